"""A server that a person is asked about: its source, its entry, and the values that it still needs.

Pure. A proposal may come from a registry, so nothing of it is trusted: `steps` shows all of it before anything starts.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

from msgspec import Struct, structs

from codemode_mcp.base.display import cut
from codemode_mcp.config.literals import secrets_of
from codemode_mcp.extensions.setup.mcp_clients.entries import valid_name
from upstream_clients.fetch import parse_address

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


Table = Literal["env", "headers", "args", "auth"]

MARK: Final = "\0"
"""The character on both sides of the name of a setting in a text of an entry. No argument can contain it."""

CONTAINER_COMMAND: Final = ("run", "-i", "--rm")
"""The arguments of `docker` for each server."""

_AFFIXES: Final = re.compile(
    r"^(?:mcp[-_.])?server[-_.](?:mcp[-_.])?|^mcp[-_.]|[-_.](?:mcp[-_.]server|server|mcp)$", re.I
)
"""Parts of a package's name that only say that it is an MCP server."""

_NOT_IN_IDENTIFIERS: Final = re.compile(r"[^A-Za-z0-9_-]+")


class Refused(Exception):
    """Error for a source of which no server can be made. The message says why, and what to do."""


class Setting(Struct, frozen=True):
    """A value that a person gives before a server starts.

    Attributes:
        table: the part of the entry that gets the value. In `args`, the value replaces its name between two `MARK`s.
        name: the name of the variable, of the header or of the argument.
        secret: True if the value must not be written into the configuration.
        description: the registry's text about the value; not escaped.
        choices: the possible values; empty for any value.
    """

    table: Table
    name: str
    secret: bool = False
    required: bool = True
    description: str = ""
    default: str | None = None
    choices: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Name of the value for a person. Credentials of an API have descriptions of our own; not escaped."""
        return self.description if self.table == "auth" else self.name


class Proposal(Struct, frozen=True):
    """A server to add.

    Attributes:
        name: the name of the server in the configuration.
        entry: the entry without the values of `settings`.
        origin: where the entry comes from, as the end of a sentence.
        notes: sentences about the server.
        warnings: sentences that a person should read before the server starts.
        is_container: True if `docker` has to be told which variables the server gets.
    """

    name: str
    entry: Mapping[str, Any]
    origin: str
    settings: tuple[Setting, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    is_container: bool = False

    @property
    def verb(self) -> Literal["start", "connect", "read"]:
        """The word for the first thing that is done with the server."""
        return "start" if "command" in self.entry else "read" if "openapi" in self.entry else "connect"


@dataclass(frozen=True, slots=True, repr=False)
class Answers:
    """The values that a person has given.

    Attributes:
        plain: values for the entry, by setting.
        secret: values that must not be written into the configuration, by setting.
    """

    plain: Mapping[Setting, str] = field(default_factory=dict)
    secret: Mapping[Setting, str] = field(default_factory=dict)


def with_values(entry: Mapping[str, Any], values: Mapping[Setting, object]) -> dict[str, Any]:
    """Return an entry with values for its settings. Arguments whose setting has no value are left out."""
    made = dict(entry)
    texts = {setting.name: str(value) for setting, value in values.items() if setting.table == "args"}
    if "args" in made:
        filled = [_filled(each, texts) for each in made["args"]]
        made["args"] = [each for each in filled if each is not None]
    for setting, value in values.items():
        if setting.table != "args":
            made[setting.table] = {**made.get(setting.table, {}), setting.name: value}
    return made


def _filled(text: str, values: Mapping[str, str]) -> str | None:
    """Return a text with the values of its settings; None if one of them has no value."""
    parts = text.split(MARK)
    if any(name not in values for name in parts[1::2]):
        return None
    parts[1::2] = [values[name] for name in parts[1::2]]
    return "".join(parts)


def with_settings(proposal: Proposal, given: Sequence[Setting]) -> Proposal:
    """Return a proposal with settings that the command line has. They replace settings of the same name."""
    named = {(each.table, each.name) for each in given}
    kept = (each for each in proposal.settings if (each.table, each.name) not in named)
    entry = proposal.entry
    if proposal.is_container:
        command, args = CONTAINER_COMMAND, entry["args"]
        passed = (each.name for each in given if each.table == "env" and each.name not in args)
        options = [word for name in passed for word in ("-e", name)]
        entry = {**entry, "args": [*args[: len(command)], *options, *args[len(command) :]]}
    return structs.replace(proposal, entry=entry, settings=(*kept, *given))


def short_name(text: str) -> str:
    """Return a name for a server from the name of its package or the title of its document."""
    last = text.rstrip("/").rpartition("/")[2]
    name = _NOT_IN_IDENTIFIERS.sub("-", _AFFIXES.sub("", _AFFIXES.sub("", last)) or last).strip("-_")
    return valid_name(name or "server")


# The forms of a source that `codemode-mcp add` takes.


_PLAIN_LABELS: Final = frozenset(("www", "mcp", "api", "server"))
"""Labels of a host that do not name what it serves."""

_HOST: Final = re.compile(r"[\w.-]+|[0-9a-f:.]+(?:%[\w.-]+)?")
_NUMBER: Final = re.compile(r"(?:.*\.)?(?:0x[0-9a-f]*|\d+)\.*")
"""An address in a form that not all programs read in the same way, such as `0x7f.1` or `2130706433`."""

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Address(Struct, frozen=True):
    """The URL of a remote MCP server, or of an OpenAPI document."""

    url: str
    host: str


def read_address(text: str) -> Address | None:
    """Return the URL that a source is; None if it is none.

    Raises:
        Refused: the URL cannot be used.
    """
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text):
        return None
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if parts.scheme.lower() not in ("http", "https") or not host:
        raise Refused(f"{cut(text, 100)} is not the URL of a server; write one that begins with https://")
    if parts.username is not None or parts.password is not None:
        raise Refused("the URL contains a password; leave it out, and name the header with --header Authorization")
    check_host(text)
    if parts.fragment or "${" in text or not text.isprintable() or " " in text:
        raise Refused(f"{cut(text, 100)} has characters that no URL of a server has; correct it")
    if secrets_of({"url": text}):
        raise Refused(
            "the URL contains a secret, and the configuration would have it as plain text; name a header for it with "
            "--header, or write the entry by hand with a variable: ${NAME}"
        )
    return Address(text, host)


def check_host(url: str) -> None:
    """Refuse a URL of which programs may read the host in different ways."""
    host = urlsplit(url).hostname or ""
    if not _HOST.fullmatch(host) or (parse_address(host) is None and _NUMBER.fullmatch(host)):
        raise Refused(f"{cut(url, 100)} has a host in an unusual form; write a name, or an address such as 192.0.2.1")


def origin_of(url: str) -> str:
    """Return scheme, host and port of a URL, without credentials, path and usual port; empty if it has no host."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or not host:
        return ""
    usual = {"http": 80, "https": 443}[parts.scheme]
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{'' if port in (None, usual) else f':{port}'}"


def remote(address: Address, origin: str = "as you have typed it") -> Proposal:
    return Proposal(host_name(address.url), {"url": address.url}, origin)


def host_name(url: str) -> str:
    host = urlsplit(url).hostname or ""
    labels = [label for label in host.split(".") if label not in _PLAIN_LABELS]
    if not labels or re.fullmatch(r"[0-9.]+|\[?[0-9a-f:]+\]?", host):
        return "server"
    return short_name(labels[-2] if len(labels) > 1 else labels[0])


def local(name: str, command: Sequence[str], folder: Path) -> Proposal:
    return Proposal(name, typed_entry(command[0], command[1:], command, folder), "as you have typed it")


def typed_entry(command: str, args: Sequence[str], typed: Sequence[str], folder: Path) -> dict[str, Any]:
    """Return the entry of a command line of which a person has typed some words.

    If these name files by relative paths, the server starts in the folder where the person has typed them.

    Args:
        typed: the words that the person has typed.
        folder: the working directory.

    Raises:
        Refused: the command line contains a secret.
    """
    entry: dict[str, Any] = {"command": command} | ({"args": list(args)} if args else {})
    words = (each for each in typed if not each.startswith("-") and (each != command or "/" in each))
    if any(not os.path.isabs(each) and os.path.lexists(folder / each) for each in words):
        entry["cwd"] = str(folder)
    if found := secrets_of(entry):
        raise Refused(
            f"the command line contains a secret ({found[0].where}), and the configuration would have it as plain "
            "text; name a variable for it with --env NAME, or write the argument as '${NAME}'"
        )
    return entry


def read_settings(env: Sequence[str], headers: Sequence[str]) -> tuple[list[Setting], Mapping[Setting, str]]:
    """Return the settings of `--env` and `--header`, and the values that the command line has for them.

    Raises:
        Refused: an option is malformed, or has a secret as plain text.
    """
    settings: list[Setting] = []
    values: dict[Setting, str] = {}
    for option, table, texts, form in (("--env", "env", env, _VARIABLE), ("--header", "headers", headers, _HEADER)):
        for text in texts:
            name, mark, value = text.partition("=")
            if not form.fullmatch(name):
                raise Refused(f"{option} needs a name, or NAME=VALUE for a value that is not secret")
            if mark and secrets_of({table: {name: value}}):
                raise Refused(
                    f"{option} {cut(name, 60)}: the value looks like a secret, which others can see on a command line; "
                    f"write {option} {cut(name, 60)} alone, and you are asked for it"
                )
            setting = Setting("env" if table == "env" else "headers", name, secret=not mark)
            settings.append(setting)
            if mark:
                values[setting] = value
    return settings, values
