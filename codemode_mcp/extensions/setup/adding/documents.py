"""Documents of HTTP APIs (OpenAPI and Swagger) as servers."""

from __future__ import annotations

import os
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from msgspec.structs import replace

from codemode_mcp.base.display import cut
from codemode_mcp.config.literals import secrets_of
from codemode_mcp.extensions.setup.adding.packages import Unreachable, fetch
from codemode_mcp.extensions.setup.adding.proposal import Address, Proposal, Refused, Setting, check_host, short_name
from upstream_clients.fetch import describe_url, may_be_public, same_origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from upstream_clients.openapi.api import Api

MAX_BYTES: Final = 64 * 1024 * 1024
"""Bytes of a document. Those of large APIs have about 10 MiB."""

MAX_SENTENCES: Final = 8
"""Logins, and skipped operations, that are shown."""

MAX_REASON: Final = 400
"""Characters of the reason why an operation is skipped. It may name an origin, which a person copies."""

_ACCEPT: Final = "application/json, application/yaml;q=0.9, text/yaml;q=0.9, */*;q=0.1"
_DECLARED: Final = re.compile(
    rb"""^[ \t{]{0,40}["']?(?:openapi|swagger)["']?\s{0,40}:\s{0,40}["']?[0-9]""", re.MULTILINE
)
_DECLARED_INLINE: Final = re.compile(rb'[{,]\s{0,40}"(?:openapi|swagger)"\s{0,40}:\s{0,40}"[0-9]')
_SUFFIXES: Final = (".json", ".yaml", ".yml")
_EMPTY_WORDS: Final = frozenset(
    ("the", "a", "api", "apis", "rest", "openapi", "swagger", "service", "official", "spec", "specification", "docs")
)
"""Words of a title that do not name the API."""

_IN: Final = ("header", "query", "cookie")

_USER: Final = re.compile(r"((?:\$\{[^}]*\}|[^:])*):(.*)", re.DOTALL)
"""The user name and the password of `--auth basic=...`."""


def is_document(data: bytes) -> bool:
    """Return True if a text declares the version of OpenAPI or Swagger that it is written in."""
    return _DECLARED.search(data) is not None or _DECLARED_INLINE.search(data) is not None


def looks_like_file(source: str) -> bool:
    return source.startswith((".", "/", "~", os.sep)) or source.lower().endswith(_SUFFIXES) or "\\" in source


def from_file(path: Path, base_url: str | None) -> Proposal:
    """Return the proposal of a file.

    Raises:
        Refused: it is no document of an API.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}; a URL begins with https:// or http://") from None
    if not is_document(data):
        raise Refused(
            f"{path} is no OpenAPI document; to add a program, write its command after a name: codemode-mcp add NAME "
            f"-- COMMAND ..., and to add servers of a client's file: codemode-mcp import --from FILE"
        )
    return _proposal(str(path), data, base_url)


def from_address(address: Address, base_url: str | None, *, is_api: bool = False) -> Proposal | None:
    """Return the proposal of a URL if it answers with the document of an API; None if it may be an MCP server.

    Args:
        is_api: True if the command line says that it is an API. The name of a JSON or YAML file says so, too.

    Raises:
        Refused: it is a document that cannot be used, or an API without a document.
    """
    is_api = is_api or urlsplit(address.url).path.lower().endswith(_SUFFIXES)
    try:
        found = fetch(address.url, {"Accept": _ACCEPT}, limit=MAX_BYTES)
    except Unreachable as error:
        if is_api:
            raise Refused(f"no OpenAPI document is there: {error}; start the API, or check the address") from None
        return None
    if found.status == HTTPStatus.OK and is_document(found.data):
        return _proposal(address.url, found.data, base_url)
    if not is_api:
        return None
    shown = describe_url(address.url)
    if found.status != HTTPStatus.OK:
        raise Refused(f"{shown} answers HTTP {found.status}; check the address, or add the document as a file")
    raise Refused(f"{shown} is no OpenAPI document; give the address of the document, often .../openapi.json")


def with_auth(proposal: Proposal, option: str) -> tuple[Proposal, Mapping[Setting, str]]:
    """Return the proposal of an API with the credentials of `--auth`, and the values that the option has for them.

    A person gives the values, or the option has variables for them, as in `bearer=${TOKEN}`.

    Raises:
        Refused: the option is malformed, or has a secret as plain text; or the proposal is no API.
    """
    if "openapi" not in proposal.entry:
        raise Refused("--auth is only for an API with an OpenAPI document; use --header for an MCP server")
    kind, mark, given = option.partition("=")
    word, *rest = kind.split(":", 2)
    titles: dict[str, str]
    match word, rest:
        case "bearer", []:
            auth, titles = {"type": "bearer"}, {"token": "the bearer token"}
        case "basic", []:
            auth, titles = {"type": "basic"}, {"username": "the user name", "password": "the password"}
        case "apiKey", [place, name] if place in _IN and name:
            auth = {"type": "apiKey", "in": place, "name": name}
            titles = {"value": f"the API key in the {place} {cut(name, 40)}"}
        case _:
            raise Refused(
                f"--auth {cut(kind, 60)}: write bearer, basic, or apiKey:header:NAME, :query:NAME, :cookie:NAME"
            )
    values = _given(kind, given, titles) if mark else {}
    settings = {
        Setting("auth", name, secret=not mark, description=title): values.get(name, "")
        for name, title in titles.items()
    }
    made = replace(proposal, entry={**proposal.entry, "auth": auth}, settings=(*proposal.settings, *settings))
    return made, settings if mark else {}


def _given(kind: str, text: str, names: Iterable[str]) -> dict[str, str]:
    """Return the values of `--auth KIND=...`, by the names of settings. Raises `Refused`."""
    parts = _USER.fullmatch(text) if kind == "basic" else None
    texts = (text,) if kind != "basic" else () if parts is None else parts.groups()
    values = dict(zip(names, texts, strict=False))
    shown = cut(kind, 60)
    how = f"name variables, as in --auth '{cut(auth_by_variable(kind), 80)}', or write --auth {shown} to be asked"
    if secrets_of({"auth": values}):
        raise Refused(f"--auth {shown}: the value is a secret, which others can see on a command line; {how}")
    if not texts or not all(texts):
        raise Refused(f"--auth {shown}: the value after = is not complete; {how}")
    return values


def auth_by_variable(kind: str) -> str:
    return kind + ("=${USER}:${PASSWORD}" if kind == "basic" else "=${VARIABLE}")


def _proposal(source: str, data: bytes, base_url: str | None) -> Proposal:
    from upstream_clients.openapi.api import Api, DocumentError

    try:
        api = Api.read(data, base_url=base_url, source=source)
    except DocumentError as error:
        raise Refused(f"{cut(source, 200)} is an OpenAPI document that cannot be used: {error}") from None
    if api.base_url is None and base_url is not None:
        raise Refused(f"--base-url {cut(base_url, 200)} is no address of an API; write one like https://host/path")
    if api.base_url is None:
        raise Refused(f"{cut(source, 200)} names no address of its API; give it with --base-url https://...")
    check_host(api.base_url)
    is_file = "://" not in source
    if is_file and base_url is None:
        # The person confirms this address. A later version of the file cannot name another one.
        base_url = api.base_url
    entry: dict[str, Any] = {"openapi": source} | ({} if base_url is None else {"baseUrl": base_url})
    origin = f"the API {cut(api.title, 60)!r} {cut(api.version, 40)}"
    notes = [] if base_url is not None else [f"requests go to: {cut(api.base_url, 200)}"]
    notes += [f"login that the document names: {cut(each, 200)}" for each in api.security[:MAX_SENTENCES]]
    notes += [
        f"skipped: {cut(each.operation, 80)}, because {cut(each.reason, MAX_REASON)}"
        for each in api.skipped[:MAX_SENTENCES]
    ]
    if len(api.skipped) > MAX_SENTENCES:
        notes.append(f"{len(api.skipped)} operations are skipped in all; codemode-mcp doctor shows more of them")
    warnings = []
    if base_url is None and not same_origin(source, api.base_url):
        if not may_be_public(urlsplit(api.base_url).hostname or ""):
            raise Refused(
                f"{describe_url(source)} names another address for its API, which is not public; if you trust it, add "
                f"--base-url {cut(api.base_url, 200)}"
            )
        warnings.append(
            "the document is not at this address, so no credentials are sent there; if you trust it, give it with "
            "--base-url"
        )
    return Proposal(_name(api, source), entry, origin, notes=tuple(notes), warnings=tuple(warnings))


def _name(api: Api, source: str) -> str:
    words = re.findall(r"[a-z0-9]+", re.sub(r"['\u2019]s\b", "", api.title.lower()))
    words = [each for each in words if each not in _EMPTY_WORDS]
    return short_name("_".join(words[:2]) or source.rpartition("/")[2].partition(".")[0] or "api")
