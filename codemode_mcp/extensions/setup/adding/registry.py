"""Servers of an MCP registry (API v0.1) as proposals."""

from __future__ import annotations

import os
import re
import sys
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import quote, urlencode, urlsplit

from msgspec import Struct, field

from codemode_mcp.base.display import cut
from codemode_mcp.extensions.setup.adding import proposal
from codemode_mcp.extensions.setup.adding.packages import (
    EXACT_VERSION,
    HIDDEN_INDEX,
    MANAGERS,
    NPM_NAME,
    PYPI_NAME,
    Unreachable,
    fetch_json,
    index_text,
    indexes_of,
    package_entry,
)
from upstream_clients.environment import find_executable
from upstream_clients.fetch import is_loopback
from upstream_clients.redaction import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from codemode_mcp.extensions.setup.adding.packages import Kind as PackageKind

    IndexesOf = Callable[[PackageKind, str], Sequence[str]]


OFFICIAL: Final = "https://registry.modelcontextprotocol.io"

VARIABLE: Final = "CODEMODE_MCP_REGISTRY"
"""The variable with the address of another registry."""

SEARCH_LIMIT: Final = 100
"""Servers in the answer to a search."""

MAX_LISTED: Final = 20
"""Names that a message lists."""

_STATUS: Final = "io.modelcontextprotocol.registry/official"


def registry_address(option: str | None) -> str:
    """Return the address of the registry: that of `--registry`, of the variable, or the official one.

    Raises:
        Refused: it is no address.
    """
    address = proposal.read_address(option or os.environ.get(VARIABLE) or OFFICIAL)
    if address is None:
        raise proposal.Refused(f"--registry and {VARIABLE} need an address that begins with https://")
    return address.url.rstrip("/")


def find_by_name(registry: str, name: str, use: Kind | None) -> proposal.Proposal:
    """Return the proposal of the latest version of a server, by its full name.

    Raises:
        Refused: there is none, it cannot be used, or the registry does not answer.
    """
    try:
        found = _record(fetch_json(f"{registry}/v0.1/servers/{quote(name, safe='')}/versions/latest"))
    except Unreachable as error:
        raise Unreachable(f"{error}; without a registry, write npm:NAME, pypi:NAME or a URL") from None
    if found is None:
        raise proposal.Refused(f"the registry {registry} has no server {cut(name, 100)!r}; check how it is written")
    return _proposal(registry, name, *found, use)


def find_by_word(registry: str, word: str, use: Kind | None) -> proposal.Proposal | None:
    """Return the proposal of the only server whose name ends with a word; None if there is none.

    Raises:
        Refused: there are several, the server cannot be used, or the registry does not answer.
    """
    query = urlencode({"search": word, "version": "latest", "limit": SEARCH_LIMIT})
    answer = fetch_json(f"{registry}/v0.1/servers?{query}")
    listed = answer.get("servers") if isinstance(answer, dict) else None
    if not isinstance(listed, list):
        raise Unreachable(f"{registry} does not answer as an MCP registry does")
    found = [record for each in listed if (record := _record(each)) is not None]
    records = {name: each for each in found if isinstance(name := each[0].get("name"), str) and NAME.fullmatch(name)}
    matching = [name for name in records if name.partition("/")[2].casefold() == word.casefold()]
    if len(matching) > 1:
        raise proposal.Refused(
            f"the registry has {len(matching)} servers of this name; write the one you mean in full: "
            f"{', '.join(sorted(matching)[:MAX_LISTED])}"
        )
    if not matching:
        return None
    return _proposal(registry, matching[0], *records[matching[0]], use)


def _record(value: Any) -> tuple[Mapping[str, Any], str] | None:
    server = value.get("server") if isinstance(value, dict) else None
    if not isinstance(server, dict):
        return None
    meta = value.get("_meta")
    official = meta.get(_STATUS) if isinstance(meta, dict) else None
    status = official.get("status") if isinstance(official, dict) else server.get("status")
    return server, status if isinstance(status, str) else "active"


def _proposal(registry: str, name: str, server: Mapping[str, Any], status: str, use: Kind | None) -> proposal.Proposal:
    if server.get("name") != name or not NAME.fullmatch(name):
        raise proposal.Refused(f"the registry answers with another server than {cut(name, 100)!r}; nothing was started")
    if status == "deleted":
        raise proposal.Refused(f"{name} was deleted from the registry; nothing was started")
    options, reasons = options_of(server, cache(indexes_of))
    suitable = [each for each in options if use in (None, each.kind)]
    if not suitable:
        kinds = ", ".join(dict.fromkeys(each.kind for each in options))
        why = f"it can be used as {kinds}" if options else "; ".join(reasons[:3]) or "it has no packages and no address"
        raise proposal.Refused(f"{name} of the registry cannot be added{f' with --use {use}' if use else ''}: {why}")
    chosen = next((each for each in suitable if not each.program or find_executable(each.program)), suitable[0])
    others = list(dict.fromkeys(each.kind for each in options if each.kind != chosen.kind))
    return proposal.Proposal(
        proposal.short_name(name),
        chosen.entry,
        f"{name} {cut(str(server.get('version') or ''), 40)} of the registry {registry}",
        tuple(chosen.settings),
        tuple(_notes(chosen, others)),
        tuple(_warnings(name, status)),
        is_container=chosen.kind == "oci",
    )


def _notes(chosen: Option, others: list[Kind]) -> list[str]:
    found = []
    if chosen.package and chosen.kind in ("npm", "pypi") and (index := index_text(chosen.kind, chosen.package)):
        found.append(f"{chosen.program} fetches it from {index}")
    if chosen.unasked:
        found.append(f"optional values that you are not asked for: {cut(', '.join(chosen.unasked), 200)}")
    if others:
        found.append(f"other ways to use it: --use {', --use '.join(others)}")
    return found


def _warnings(name: str, status: str) -> list[str]:
    namespace = name.partition("/")[0]
    found = [f"check that {namespace} is the publisher that you mean; the registry does not check what its server does"]
    if status != "active":
        found.append(f"the registry says that it is {cut(status, 40)}")
    return found


# Servers of an MCP registry (`server.json`) as proposals.
#
# A registry's data is not trusted. What would change another program than the server, hide something from the person,
# or cannot be shown exactly is refused with a reason: options of `npx`, `uvx` and `docker`, other indexes, variables of
# the loader or of an interpreter, references to variables of this machine, and characters that cannot be printed.


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


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OF_SYSTEM: Final = _words("""
PATH HOME SHELL IFS ENV TMPDIR TEMP TMP USER LOGNAME PATHEXT COMSPEC SYSTEMROOT WINDIR APPDATA LOCALAPPDATA
USERPROFILE HOMEDRIVE HOMEPATH PROGRAMDATA PSMODULEPATH PS0 PS1 PS2 PS3 PS4 CDPATH FPATH ZDOTDIR SHELLOPTS
PROMPT_COMMAND INPUTRC HISTFILE GLOBIGNORE TERMCAP MANPATH MANOPT EXINIT MYVIMRC VIM VIMINIT VIMRUNTIME LESS LESSOPEN
LESSCLOSE LESSKEY MORE VISUAL FCEDIT GREP_OPTIONS GCONV_PATH GETCONF_DIR LOCPATH NLSPATH NIS_PATH TZDIR HOSTALIASES
LOCALDOMAIN RES_OPTIONS RESOLV_HOST_CONF SSLKEYLOGFILE WGETRC NETRC GNUPGHOME PSQLRC PGSERVICEFILE PGSYSCONFDIR
MYSQL_HOME KUBECONFIG AWS_CONFIG_FILE AWS_SHARED_CREDENTIALS_FILE CONTAINER_HOST CONTAINERS_CONF MAKE MAKEFILES AR AS
CC CPP CXX CPATH FC LD LEX NM M4 OBJC OBJCOPY RANLIB STRIP WINDRES YACC LIBTOOL CROSS_COMPILE CONFIG_SITE CONFIG_SHELL
SDKROOT DEVELOPER_DIR TOOLCHAINS PHPRC TCLLIBPATH WORKON_HOME PWD EDITOR PAGER BROWSER SSH_AUTH_SOCK SSH_SK_PROVIDER
SSH_SK_HELPER SSH_PKCS11_HELPER LIBPATH SHLIB_PATH RLD_LIST CL LINK INCLUDE LIB HOST_CC HOST_CXX TARGET_CC TARGET_CXX
HOST_AR TARGET_AR HGRCPATH HGEDITOR GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES TAR_OPTIONS AZURE_CONFIG_DIR INIT_CWD
PREFIX SOCKS_SERVER
""")
_OF_PROGRAMS: Final = _words("""
ACLOCAL ANSIBLE ANT ASAN ASDF AUTOCONF BAZEL BUILDKIT BUN BUNDLE BUNDLER CABAL CARGO CGO COMPLUS COMPOSE COMPOSER
CONAN CONDA COR CORECLR COREPACK CTEST CURL DBUS DENO DISTUTILS DOCKER DOTNET DYLD ELECTRON ELIXIR ERL FISH FNM GCC
GDK GEM GHC GIO GIT GLIBC GPG GRADLE GROOVY GST GTK GUILE HATCH HELM HOMEBREW JAVA JDK JRE JULIA KOTLIN LD LEIN LLVM
LSAN LUA M2 MALLOC MAMBA MAVEN MESON MISE MIX MONO MSAN NIX NODE NPM NPX NUGET NVM OPAM OPENSSL PDM PHP PIP PIPENV
PIPX PNPM PODMAN POETRY PYTEST QT R RBENV RVM SBT SCALA SETUPTOOLS SSL SUDO SVN SYSTEMD TF TSAN TSX UBSAN UV VAGRANT
VCPKG VIRTUAL VOLTA XDG YARN ZSH NVCC TCL TK QEMU CLOUDSDK RSYNC CFLAGS CXXFLAGS CPPFLAGS LDFLAGS ARFLAGS CC CXX
ESBUILD ZIG LIBVA VK PROXYCHAINS RUSTDOC
""")
"""First words of the names of variables that other programs read."""

_BEGINNINGS: Final = tuple(
    _words("""
BASH CCACHE CLANG_ CMAKE CODEMODE_MCP COMMONPROGRAM KRB5 MSBUILD OCAML PKG_CONFIG PROGRAMFILES PYTHON PYENV PYVENV
IPYTHON RUBY RUSTC RUSTUP SCCACHE TERMINFO TS_NODE VIRTUALENV AWS_ENDPOINT_URL LD_ DYLD_ PIP_ UV_ YARN_ NPM_CONFIG
PNPM_CONFIG GIT_CONFIG EMACS WINE PERL HTTP_PROXY HTTPS_PROXY DEBUGINFOD
""")
)
_ENDINGS: Final = tuple(
    _words("""
_PROXY _ASKPASS WRAPPER _PRELOAD _TOOLCHAIN _LINKER _LAUNCHER _OPTS TOOL_OPTIONS CLASSPATH INCLUDE_PATH LIBRARY_PATH
PLUGIN_PATH MODULE_PATH _CA_BUNDLE _CA_CERTS _CA_FILE _CA_PATH _CERT_FILE _CERT_DIR _SSL_CERT _SSL_ROOTS_FILE_PATH
_EDITOR PAGER _RSH _MIRROR _CDNURL DOWNLOAD_HOST
""")
)
_CREDENTIALS: Final = ("TOKEN", "KEY", "SECRET", "PASSWORD")

_PLAIN_VALUE: Final = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9_-]*|v?[0-9]+(?:\.[0-9]+)*)?", re.ASCII)
_PROGRAM_NAMES: Final = (
    "PATH",
    "BIN",
    "BINARY",
    "EXEC",
    "EXECUTABLE",
    "COMMAND",
    "CMD",
    "SHELL",
    "LIBRARY",
    "LIBRARIES",
)
"""Last words of the names of variables whose values are programs. No list of variables is complete, so each value that
could be a path, an address, an option or a command is typed by the person."""

_SHELL: Final = re.compile(r"""[&|<>^%!"]""")

_HEADERS_OF_OTHERS: Final = frozenset(
    (
        *("host", "connection", "content-length", "content-type", "transfer-encoding", "te", "upgrade", "trailer"),
        *("accept", "accept-encoding", "keep-alive", "proxy-authorization", "expect", "mcp-session-id"),
        *("mcp-protocol-version", "last-event-id"),
    )
)
"""Headers of the protocol, which are not the server's."""


class Option(Struct):
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
    settings: list[proposal.Setting] = field(default_factory=list)
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
            except proposal.Refused as error:
                what = cut(str(each.get("identifier") or each.get("url") or "?"), 100)
                reasons.append(f"{what}: {error}")
    return options, reasons


def _package(given: Mapping[str, Any], indexes_of: IndexesOf) -> Option:
    stated, identifier, version = _text(given, "registryType"), _text(given, "identifier"), _text(given, "version")
    base = _text(given, "registryBaseUrl")
    kind = next((each for each in _PACKAGES if each == stated), None)
    if kind is None:
        raise proposal.Refused(
            f"packages of the kind {cut(stated, 40)!r} are not supported; {', '.join(_PACKAGES)} are"
        )
    if _text(given, "runtimeHint") not in ("", *_RUNTIMES[kind]):
        raise proposal.Refused(f"it needs {cut(_text(given, 'runtimeHint'), 40)!r} to start")
    if any(not _is_harmless(each) for each in _objects(given, "runtimeArguments")):
        raise proposal.Refused(f"it wants to give options to {_RUNTIMES[kind][0]} itself")
    if given.get("fileSha256") is not None:
        raise proposal.Refused("it has a digest of a file, which is not checked here")
    transport = given.get("transport")
    if isinstance(transport, dict) and transport.get("type") not in (None, "stdio"):
        raise proposal.Refused("it is started as an HTTP server; start it yourself, then add its URL")
    option = Option(kind, {}, program=_RUNTIMES[kind][0])
    env: dict[str, str] = {}
    _read_inputs(option, "env", _objects(given, "environmentVariables"), env)
    arguments = list(_arguments(option, _objects(given, "packageArguments")))
    if kind == "oci":
        names = [*env, *(each.name for each in option.settings if each.table == "env"), *option.unasked]
        passed = [word for name in names if _VARIABLE.fullmatch(name) for word in ("-e", name)]
        option.entry = {
            "command": "docker",
            "args": [*proposal.CONTAINER_COMMAND, *passed, _of_host(base, _image(identifier, version)), *arguments],
        }
    else:
        if not (NPM_NAME if kind == "npm" else PYPI_NAME).fullmatch(identifier):
            raise proposal.Refused(f"{cut(identifier, 100)!r} is no name of a package")
        if not EXACT_VERSION[kind].fullmatch(version):
            raise proposal.Refused(f"{cut(version, 60)!r} is no exact version")
        if base:
            _check_index(kind, identifier, base, indexes_of)
        option.package = identifier
        option.entry = package_entry(kind, identifier, version, arguments)
    if env:
        option.entry["env"] = env
    return option


def _check_index(kind: PackageKind, name: str, base: str, indexes_of: IndexesOf) -> None:
    """Refuse a package if the package manager fetches it from another index than its entry names."""
    wanted, used = proposal.origin_of(base), indexes_of(kind, name)
    if not wanted or set(used) != {wanted}:
        raise proposal.Refused(
            f"it comes from {cut(wanted, 100) or 'an index without a host'}, and {MANAGERS[kind]} uses "
            f"{cut(' and '.join(used), 200) or HIDDEN_INDEX}"
        )


def _of_host(base: str, image: str) -> str:
    if not base:
        return image
    host = proposal.origin_of(base).partition("://")[2]
    if not _IMAGE.fullmatch(host) or urlsplit(base).path.strip("/"):
        raise proposal.Refused("its registryBaseUrl is not the address of a host alone, so its image has no exact name")
    first, slash, _ = image.partition("/")
    if not slash or not (set(".:") & set(first) or first == "localhost"):
        return f"{host}/{image}"
    if first != host:
        raise proposal.Refused(f"it comes from {cut(host, 100)}, and its image from {cut(first, 100)}")
    return image


def _image(identifier: str, version: str) -> str:
    name, at, digest = identifier.partition("@")
    if at:
        if not _IMAGE.fullmatch(name) or not _DIGEST.fullmatch(digest):
            raise proposal.Refused(f"{cut(identifier, 100)!r} is no name of an image")
        return identifier
    head, slash, last = name.rpartition("/")
    last, colon, tag = last.partition(":")
    if not _IMAGE.fullmatch(head + slash + last):
        raise proposal.Refused(f"{cut(identifier, 100)!r} is no name of an image")
    tag = tag if colon else version
    if not _TAG.fullmatch(tag) or tag == "latest":
        raise proposal.Refused(f"{cut(tag, 60)!r} is no exact version")
    return f"{head}{slash}{last}:{tag}"


def _remote(given: Mapping[str, Any]) -> Option:
    url, kind = _text(given, "url"), _text(given, "type")
    types = {"streamable-http": "http", "sse": "sse"}
    if kind not in types:
        raise proposal.Refused(f"its transport is {cut(kind, 40)!r}; streamable-http and sse are supported")
    if "{" in url:
        raise proposal.Refused("its address has parts to fill in; write it yourself: codemode-mcp add https://...")
    address = proposal.read_address(url)
    if address is None or (url.startswith("http://") and not is_loopback(address.host)):
        raise proposal.Refused(f"{cut(url, 100)} is not an address that begins with https://")
    option = Option("remote", {"url": url, "type": types[kind]})
    headers: dict[str, str] = {}
    _read_inputs(option, "headers", _objects(given, "headers"), headers)
    if headers:
        option.entry["headers"] = headers
    return option


def _read_inputs(option: Option, table: proposal.Table, inputs: list[Mapping[str, Any]], fixed: dict[str, str]) -> None:
    """Add variables or headers to an option: values to `fixed`, and settings for those that a person gives."""
    for each in inputs:
        name = _text(each, "name")
        if not (_VARIABLE if table == "env" else _HEADER).fullmatch(name):
            raise proposal.Refused(f"{cut(name, 60)!r} is no name of a {'variable' if table == 'env' else 'header'}")
        is_of_others = _is_of_others(name) if table == "env" else name.lower() in _HEADERS_OF_OTHERS
        if is_of_others:
            raise proposal.Refused(f"it wants to set {cut(name, 60)}, which changes other programs than the server")
        found = _value(each, table, name)
        if isinstance(found, proposal.Setting):
            _keep(option, found)
        elif found is not None:
            fixed[name] = found


def _is_of_others(name: str) -> bool:
    """Return True for a variable that changes how a program is loaded, built or reached, or which one is started."""
    name = name.upper().strip("_")
    first, more, _ = name.partition("_")
    if name in _OF_SYSTEM or name.startswith(_BEGINNINGS):
        return True
    if name.endswith(_CREDENTIALS):
        return False
    is_short = not more and (name.endswith("FLAGS") or (name.startswith("GO") and name != "GOOGLE"))
    return is_short or first in _OF_PROGRAMS or name.endswith(_ENDINGS)


def _arguments(option: Option, arguments: list[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the arguments of a package. Values that a person gives are names between two `MARK`s."""
    for number, each in enumerate(arguments, 1):
        kind, name = _text(each, "type"), _text(each, "name")
        if kind not in ("positional", "named"):
            raise proposal.Refused("it has an argument of an unknown kind")
        if kind == "named" and not _OPTION.fullmatch(name):
            raise proposal.Refused(f"{cut(name, 60)!r} is no name of an option")
        found = _value(each, "args", name or _text(each, "valueHint") or f"argument {number}")
        text = found
        if isinstance(found, proposal.Setting):
            if found.secret:
                raise proposal.Refused(
                    f"it takes a secret as the argument {cut(found.name, 60)}, which others could read"
                )
            if not _keep(option, found):
                continue
            text = f"{proposal.MARK}{found.name}{proposal.MARK}"
        if kind == "positional":
            if text is None:
                raise proposal.Refused("it has an argument without a value")
            yield str(text)
        elif text is None:
            yield name
        elif name.startswith("--"):
            yield f"{name}={text}"
        else:
            yield from (name, str(text))


def _value(given: Mapping[str, Any], table: proposal.Table, name: str) -> proposal.Setting | str | None:
    """Return a fixed value, or the setting for one that a person gives; None for an option without a value."""
    value = given.get("value")
    proposed = given.get("default") if value is None else value
    text = None if proposed is None or (value is None and proposed == "") else _checked(proposed, name)
    if value is not None:
        if given.get("variables"):
            raise proposal.Refused(f"the value of {cut(name, 60)} has parts to fill in")
        if given.get("isSecret"):
            raise proposal.Refused(f"it has a secret of its own for {cut(name, 60)}")
    description = str(given.get("description") or "")[:MAX_TEXT]
    if table == "env" and text and (not _PLAIN_VALUE.fullmatch(text) or name.upper().endswith(_PROGRAM_NAMES)):
        description, text = f"the registry proposes {text}{description and '; '}{description}", None
    elif value is not None:
        return text
    choices = tuple(_checked(each, name) for each in _list(given, "choices"))
    if table == "args" and given.get("format") == "boolean":
        choices = choices or ("true", "false")
    return proposal.Setting(
        table,
        name,
        secret=bool(given.get("isSecret")) or (table != "args" and is_secret_name(name)),
        required=bool(given.get("isRequired")) or value is not None,
        description=description,
        default=text,
        choices=choices,
    )


def _keep(option: Option, setting: proposal.Setting) -> bool:
    """Add a setting to an option if a person is asked for it: if it is required or secret."""
    if any((each.table, each.name) == (setting.table, setting.name) for each in option.settings):
        raise proposal.Refused(f"it has {cut(setting.name, 60)} twice")
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
        raise proposal.Refused(f"the value of {cut(name, 60)} is too long, or has characters that cannot be printed")
    if sys.platform == "win32" and _SHELL.search(value):
        raise proposal.Refused(
            f"the value of {cut(name, 60)} has characters that `cmd` interprets, with which npx starts"
        )
    if "${" in value:
        raise proposal.Refused(
            f"the value of {cut(name, 60)} refers to a variable of this machine, which may be a secret"
        )
    return value


def _text(given: Mapping[str, Any], key: str) -> str:
    value = given.get(key)
    return "" if value is None else _checked(value, key)


def _list(given: Mapping[str, Any], key: str) -> list[Any]:
    value = given.get(key)
    found = value if isinstance(value, list) else []
    if len(found) > MAX_ITEMS:
        raise proposal.Refused(f"it has {len(found):,} {key}; at most {MAX_ITEMS} are accepted")
    return found


def _objects(given: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    return [each for each in _list(given, key) if isinstance(each, dict)]
