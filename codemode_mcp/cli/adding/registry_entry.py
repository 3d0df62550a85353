"""Servers of an MCP registry (`server.json`) as proposals. Pure.

A registry's data is not trusted. What would change another program than the server, hide something from the person, or
cannot be shown exactly is refused with a reason: options of `npx`, `uvx` and `docker`, other indexes, variables of
the loader or of an interpreter, references to variables of this machine, and characters that cannot be printed.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

from codemode_mcp.cli.adding.package_managers import MANAGERS
from codemode_mcp.cli.adding.packages import EXACT_VERSION, HIDDEN_INDEX, NPM_NAME, PYPI_NAME, package_entry
from codemode_mcp.cli.adding.proposal import CONTAINER_COMMAND, MARK, Refused, Setting
from codemode_mcp.cli.adding.sources import origin_of, read_address
from codemode_mcp.control.display import cut
from upstream_clients.loopback import is_loopback
from upstream_clients.secret_values import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from codemode_mcp.cli.adding.package_managers import Kind as PackageKind
    from codemode_mcp.cli.adding.proposal import Table

    IndexesOf = Callable[[PackageKind, str], Sequence[str]]

Kind = Literal["npm", "pypi", "oci", "remote"]

NAME: Final = re.compile(r"[A-Za-z0-9.-]+/[A-Za-z0-9._-]+")
"""The name of a server in a registry."""

MAX_ITEMS: Final = 50
"""Arguments, variables or headers of one server."""

MAX_TEXT: Final = 2000
"""Characters of one text that becomes part of an entry."""

_PACKAGES: Final[tuple[Literal["npm", "pypi", "oci"], ...]] = ("npm", "pypi", "oci")
_RUNTIMES: Final[Mapping[str, tuple[str, ...]]] = {"npm": ("npx",), "pypi": ("uvx",), "oci": ("docker",)}

_IMAGE: Final = re.compile(r"[a-z0-9][a-z0-9._-]*(?::[0-9]+)?(?:/[a-z0-9][a-z0-9._-]*)*")
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")

_OPTION: Final = re.compile(r"--?[A-Za-z0-9][A-Za-z0-9_.-]*")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")

_OF_OTHERS: Final = re.compile(
    r"(?:PATH|HOME|SHELL|IFS|ENV|TMPDIR|USER|LOGNAME|PATHEXT|COMSPEC|SYSTEMROOT|APPDATA|LOCALAPPDATA|USERPROFILE"
    r"|TEMP|TMP|HOMEDRIVE|HOMEPATH|WINDIR|PROGRAMFILES.*|XDG_.*|EDITOR|VISUAL|PAGER|BROWSER|HOSTALIASES|RES_OPTIONS"
    r"|.*_PROXY|NO_PROXY|SSL_.*|SSLKEYLOGFILE|OPENSSL_.*|CURL_CA_BUNDLE|REQUESTS_CA_BUNDLE"
    r"|LD_.*|DYLD_.*|GLIBC_.*|MALLOC_.*|GCONV_PATH|LOCPATH|NLSPATH"
    r"|BASH_.*|BASHOPTS|SHELLOPTS|PS[0-4]|CDPATH|ZDOTDIR|PROMPT_COMMAND|COREPACK_.*|PNPM_.*|VOLTA_.*|ELECTRON_.*"
    r"|NODE_.*|NPM_.*|YARN_.*|BUN_.*|DENO_.*|PYTHON.*|PIP_.*|UV_.*|VIRTUAL_ENV|CONDA_.*|RUBY.*|PERL.*|JAVA_.*|_JAVA_.*"
    r"|JDK_.*|DOTNET_.*|DOCKER_.*|GIT_.*|CODEMODE_MCP.*)",
    re.IGNORECASE,
)
"""Variables that change how a program is loaded or where it is fetched from, rather than the server."""

_SHELL: Final = re.compile(r"""[&|<>^%!"]""")

_HEADERS_OF_OTHERS: Final = frozenset(
    (
        *("host", "connection", "content-length", "content-type", "transfer-encoding", "te", "upgrade", "trailer"),
        *("accept", "accept-encoding", "keep-alive", "proxy-authorization", "expect", "mcp-session-id"),
        *("mcp-protocol-version", "last-event-id"),
    )
)
"""Headers of the protocol, which are not the server's."""


@dataclass(slots=True)
class Option:
    """One way to use a server.

    Attributes:
        package: the name of a package of npm or PyPI; empty for others.
        program: the program that has to be installed; empty for a remote server.
        settings: the values that a person gives.
        unasked: names of optional values that the person is not asked for.
    """

    kind: Kind
    entry: dict[str, Any]
    package: str = ""
    program: str = ""
    settings: list[Setting] = field(default_factory=list)
    unasked: list[str] = field(default_factory=list)


def options_of(server: Mapping[str, Any], indexes_of: IndexesOf) -> tuple[list[Option], list[str]]:
    """Return the ways to use a server, packages first, and the reasons why others cannot be used.

    Args:
        indexes_of: returns the origins of the indexes that the package manager uses for a package.
    """
    options: list[Option] = []
    reasons: list[str] = []
    for key, read in (("packages", partial(_package, indexes_of=indexes_of)), ("remotes", _remote)):
        for each in _objects(server, key):
            try:
                options.append(read(each))
            except Refused as error:
                what = cut(str(each.get("identifier") or each.get("url") or "?"), 100)
                reasons.append(f"{what}: {error}")
    return options, reasons


def _package(given: Mapping[str, Any], indexes_of: IndexesOf) -> Option:
    stated, identifier, version = _text(given, "registryType"), _text(given, "identifier"), _text(given, "version")
    base = _text(given, "registryBaseUrl")
    kind = next((each for each in _PACKAGES if each == stated), None)
    if kind is None:
        raise Refused(f"packages of the kind {cut(stated, 40)!r} are not supported; {', '.join(_PACKAGES)} are")
    if _text(given, "runtimeHint") not in ("", *_RUNTIMES[kind]):
        raise Refused(f"it needs {cut(_text(given, 'runtimeHint'), 40)!r} to start")
    if any(not _is_harmless(each) for each in _objects(given, "runtimeArguments")):
        raise Refused(f"it wants to give options to {_RUNTIMES[kind][0]} itself")
    if given.get("fileSha256") is not None:
        raise Refused("it has a digest of a file, which is not checked here")
    transport = given.get("transport")
    if isinstance(transport, dict) and transport.get("type") not in (None, "stdio"):
        raise Refused("it is started as an HTTP server; start it yourself, then add its URL")
    option = Option(kind, {}, program=_RUNTIMES[kind][0])
    env: dict[str, str] = {}
    _read_inputs(option, "env", _objects(given, "environmentVariables"), env)
    arguments = list(_arguments(option, _objects(given, "packageArguments")))
    if kind == "oci":
        names = [*env, *(each.name for each in option.settings if each.table == "env"), *option.unasked]
        passed = [word for name in names if _VARIABLE.fullmatch(name) for word in ("-e", name)]
        option.entry = {
            "command": "docker",
            "args": [*CONTAINER_COMMAND, *passed, _of_host(base, _image(identifier, version)), *arguments],
        }
    else:
        if not (NPM_NAME if kind == "npm" else PYPI_NAME).fullmatch(identifier):
            raise Refused(f"{cut(identifier, 100)!r} is no name of a package")
        if not EXACT_VERSION[kind].fullmatch(version):
            raise Refused(f"{cut(version, 60)!r} is no exact version")
        if base:
            _check_index(kind, identifier, base, indexes_of)
        option.package = identifier
        option.entry = package_entry(kind, identifier, version, arguments)
    if env:
        option.entry["env"] = env
    return option


def _check_index(kind: PackageKind, name: str, base: str, indexes_of: IndexesOf) -> None:
    """Refuse a package if the package manager fetches it from another index than its entry names."""
    wanted, used = origin_of(base), indexes_of(kind, name)
    if not wanted or set(used) != {wanted}:
        raise Refused(
            f"it comes from {cut(wanted, 100) or 'an index without a host'}, and {MANAGERS[kind]} uses "
            f"{cut(' and '.join(used), 200) or HIDDEN_INDEX}"
        )


def _of_host(base: str, image: str) -> str:
    """Return the name of an image with the host that its entry names for it."""
    if not base:
        return image
    wanted = origin_of(base)
    if not wanted or urlsplit(base).path.strip("/"):
        raise Refused("its registryBaseUrl is not the address of a host alone, so its image has no exact name")
    host = wanted.partition("://")[2]
    first, slash, _ = image.partition("/")
    if not slash or not (set(".:") & set(first) or first == "localhost"):
        return f"{host}/{image}"
    if first != host:
        raise Refused(f"it comes from {cut(host, 100)}, and its image from {cut(first, 100)}")
    return image


def _image(identifier: str, version: str) -> str:
    """Return the name of an image with its tag or digest."""
    name, at, digest = identifier.partition("@")
    if at:
        if not _IMAGE.fullmatch(name) or not _DIGEST.fullmatch(digest):
            raise Refused(f"{cut(identifier, 100)!r} is no name of an image")
        return identifier
    head, slash, last = name.rpartition("/")
    last, colon, tag = last.partition(":")
    if not _IMAGE.fullmatch(head + slash + last):
        raise Refused(f"{cut(identifier, 100)!r} is no name of an image")
    tag = tag if colon else version
    if not _TAG.fullmatch(tag) or tag == "latest":
        raise Refused(f"{cut(tag, 60)!r} is no exact version")
    return f"{head}{slash}{last}:{tag}"


def _remote(given: Mapping[str, Any]) -> Option:
    url, kind = _text(given, "url"), _text(given, "type")
    types = {"streamable-http": "http", "sse": "sse"}
    if kind not in types:
        raise Refused(f"its transport is {cut(kind, 40)!r}; streamable-http and sse are supported")
    if "{" in url:
        raise Refused("its address has parts to fill in; write it yourself: codemode-mcp add https://...")
    address = read_address(url)
    if address is None or (url.startswith("http://") and not is_loopback(address.host)):
        raise Refused(f"{cut(url, 100)} is not an address that begins with https://")
    option = Option("remote", {"url": url, "type": types[kind]})
    headers: dict[str, str] = {}
    _read_inputs(option, "headers", _objects(given, "headers"), headers)
    if headers:
        option.entry["headers"] = headers
    return option


def _read_inputs(option: Option, table: Table, inputs: list[Mapping[str, Any]], fixed: dict[str, str]) -> None:
    """Add variables or headers to an option: values to `fixed`, and settings for those that a person gives."""
    for each in inputs:
        name = _text(each, "name")
        if not (_VARIABLE if table == "env" else _HEADER).fullmatch(name):
            raise Refused(f"{cut(name, 60)!r} is no name of a {'variable' if table == 'env' else 'header'}")
        is_of_others = _OF_OTHERS.fullmatch(name) if table == "env" else name.lower() in _HEADERS_OF_OTHERS
        if is_of_others:
            raise Refused(f"it wants to set {cut(name, 60)}, which changes other programs than the server")
        found = _value(each, table, name)
        if isinstance(found, Setting):
            _keep(option, found)
        elif found is not None:
            fixed[name] = found


def _arguments(option: Option, arguments: list[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the arguments of a package. Values that a person gives are names between two `MARK`s."""
    for number, each in enumerate(arguments, 1):
        kind, name = _text(each, "type"), _text(each, "name")
        if kind not in ("positional", "named"):
            raise Refused("it has an argument of an unknown kind")
        if kind == "named" and not _OPTION.fullmatch(name):
            raise Refused(f"{cut(name, 60)!r} is no name of an option")
        found = _value(each, "args", name or _text(each, "valueHint") or f"argument {number}")
        text = found
        if isinstance(found, Setting):
            if found.secret:
                raise Refused(f"it takes a secret as the argument {cut(found.name, 60)}, which others could read")
            if not _keep(option, found):
                continue
            text = f"{MARK}{found.name}{MARK}"
        if kind == "positional":
            if text is None:
                raise Refused("it has an argument without a value")
            yield str(text)
        elif text is None:
            yield name
        elif name.startswith("--"):
            yield f"{name}={text}"
        else:
            yield from (name, str(text))


def _value(given: Mapping[str, Any], table: Table, name: str) -> Setting | str | None:
    """Return a fixed value, or the setting for one that a person gives; None for an option without a value."""
    value = given.get("value")
    if value is not None:
        if given.get("variables"):
            raise Refused(f"the value of {cut(name, 60)} has parts to fill in")
        if given.get("isSecret"):
            raise Refused(f"it has a secret of its own for {cut(name, 60)}")
        return _checked(value, name)
    choices = tuple(_checked(each, name) for each in _list(given, "choices"))
    default = given.get("default")
    if table == "args" and given.get("format") == "boolean":
        choices = choices or ("true", "false")
    return Setting(
        table,
        name,
        secret=bool(given.get("isSecret")) or (table != "args" and is_secret_name(name)),
        required=bool(given.get("isRequired")),
        description=str(given.get("description") or "")[:MAX_TEXT],
        default=None if default is None or default == "" else _checked(default, name),
        choices=choices,
    )


def _keep(option: Option, setting: Setting) -> bool:
    """Add a setting to an option if a person is asked for it: if it is required or secret."""
    if any((each.table, each.name) == (setting.table, setting.name) for each in option.settings):
        raise Refused(f"it has {cut(setting.name, 60)} twice")
    is_asked = setting.required or setting.secret
    if is_asked:
        option.settings.append(setting)
    else:
        option.unasked.append(setting.name)
    return is_asked


def _is_harmless(argument: Mapping[str, Any]) -> bool:
    """Return True for an option of a launcher that is given anyway."""
    return _text(argument, "name") in ("-y", "--yes", "-i", "--rm") and argument.get("value") is None


def _checked(value: object, name: str) -> str:
    """Return a text that becomes part of an entry. Refuse one that means something else there, or cannot be seen."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if not isinstance(value, str) or not value.isprintable() or len(value) > MAX_TEXT:
        raise Refused(f"the value of {cut(name, 60)} is too long, or has characters that cannot be printed")
    if sys.platform == "win32" and _SHELL.search(value):
        raise Refused(f"the value of {cut(name, 60)} has characters that `cmd` interprets, with which npx starts")
    if "${" in value:
        raise Refused(f"the value of {cut(name, 60)} refers to a variable of this machine, which may be a secret")
    return value


def _text(given: Mapping[str, Any], key: str) -> str:
    value = given.get(key)
    return "" if value is None else _checked(value, key)


def _list(given: Mapping[str, Any], key: str) -> list[Any]:
    value = given.get(key)
    found = value if isinstance(value, list) else []
    if len(found) > MAX_ITEMS:
        raise Refused(f"it has {len(found):,} {key}; at most {MAX_ITEMS} are accepted")
    return found


def _objects(given: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    return [each for each in _list(given, key) if isinstance(each, dict)]
