"""Packages of npm and PyPI as servers, and the questions to npm, uv and web servers about them.

The version is part of the command line, so that the next start does not run another one.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import httpx2
from msgspec import Struct, structs

from codemode_mcp.base.display import cut
from codemode_mcp.extensions.setup.adding.proposal import Proposal, Refused, origin_of, short_name, typed_entry
from upstream_clients.environment import find_executable, passed_on
from upstream_clients.fetch import describe_url, same_origin

# Requests for small documents: entries of a registry, and documents of APIs.
#
# Redirects are followed within their origin only, and an answer has limits of size and time. Nothing of an answer is
# trusted.


MAX_ANSWER_BYTES: Final = 8 * 1024 * 1024
"""Bytes of an answer of a registry."""

TOTAL_SECONDS: Final = 30.0
"""Timeout for one document, redirects included."""

MAX_REDIRECTS: Final = 3


class Unreachable(Refused):
    """Error for an address that does not answer as expected. The message says why."""


class Document(Struct, frozen=True):
    """The answer to a request.

    Attributes:
        kind: the media type, in lower case.
    """

    status: int
    kind: str
    data: bytes


def fetch(url: str, headers: Mapping[str, str], *, limit: int = MAX_ANSWER_BYTES) -> Document:
    """Return a document. An answer of events, which may never end, is not read.

    Raises:
        Unreachable: there is no answer, or it breaks a limit.
    """
    until = time.monotonic() + TOTAL_SECONDS
    shown = describe_url(url)
    try:
        with httpx2.Client(timeout=10, headers={"User-Agent": "codemode-mcp", **headers}) as client:
            address = url
            for _ in range(MAX_REDIRECTS + 1):
                with client.stream("GET", address, follow_redirects=False) as response:
                    following = response.next_request
                    if following is None:
                        return _read_document(response, limit, until, shown)
                    address = str(following.url)
                    if not same_origin(url, address):
                        raise Unreachable(
                            f"{shown} redirects to another host, {describe_url(address)}; if that is the right one, "
                            "use its address"
                        )
    except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
        raise Unreachable(f"{shown} cannot be reached ({type(error).__name__})") from None
    raise Unreachable(f"{shown} redirects without end")


def fetch_json(url: str) -> Any:
    """Return the JSON value at an address; None if there is no such document (HTTP 404).

    Raises:
        Unreachable: there is no answer, or it is no JSON.
    """
    found = fetch(url, {"Accept": "application/json"})
    if found.status == 404:
        return None
    if found.status != 200:
        raise Unreachable(f"{describe_url(url)} answers HTTP {found.status}")
    try:
        return json.loads(found.data)
    except (ValueError, RecursionError):
        raise Unreachable(f"{describe_url(url)} does not answer with JSON") from None


def _read_document(response: httpx2.Response, limit: int, until: float, shown: str) -> Document:
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind == "text/event-stream":
        return Document(response.status_code, kind, b"")
    data = bytearray()
    for chunk in response.iter_bytes():
        data += chunk
        if len(data) > limit:
            raise Unreachable(f"{shown} answers with more than {limit // 1024 // 1024} MiB")
        if time.monotonic() > until:
            raise Unreachable(f"{shown} has not answered completely within {TOTAL_SECONDS:g} s")
    return Document(response.status_code, kind, bytes(data))


# Questions to npm and uv: the latest version of a package, and the index that it comes from.
#
# They read the settings of the person: `.npmrc`, `uv.toml`, variables and credentials. So the answer is about the index
# from which `npx` and `uvx` fetch the package later. They get the variables that a server inherits. They run in an
# empty folder, since the settings of a project could send variables to an index of its choice before a person has
# agreed. uv builds no package, since this would run code of the package, and installs no Python.
#
# Their messages are not shown, since an address in them may contain a password. Of an address, only the origin is
# shown.


Kind = Literal["npm", "pypi"]

MANAGERS: Final[Mapping[Kind, str]] = {"npm": "npm", "pypi": "uv"}
"""The programs that know the indexes. `npx` and `uvx` belong to them."""

SECONDS: Final = 60
"""Timeout for one answer."""

MAX_BYTES: Final = 1024 * 1024
"""Bytes of an answer that are read."""

_INSTALL: Final[Mapping[str, str]] = {"npm": "install Node.js, which has it", "uv": "install uv"}
_NPM: Final = ("--loglevel=error", "--fetch-retries=0", "--no-update-notifier")
_UV: Final = (
    *("pip", "compile", "--system", "--no-build", "--no-deps", "--no-header", "--no-annotate", "--color=never"),
    *("--emit-index-url", "--emit-index-annotation", "--no-python-downloads", "-"),
)
"""Arguments of uv. With `--system`, it does not run the Python of a `.venv` in a folder above, such as `/tmp`."""

_STOPS: Final = (("package.json", "{}"), ("uv.toml", ""))
"""Files with which npm and uv do not look for the settings of a project in the folders above."""

_ERROR: Final = re.compile(r"E[A-Z0-9]{2,30}")
_INDEX: Final = re.compile(r"^--(?:extra-)?index-url (\S+)", re.MULTILINE)
_PINNED: Final = re.compile(r"^[A-Za-z0-9._-]+==([^\s;]+)", re.MULTILINE)
_FROM: Final = re.compile(r"^\s+# from (\S+)", re.MULTILINE)


class NotInstalled(Unreachable):
    """Error for a package manager that is not on PATH."""


class _Answer(Struct, frozen=True):
    code: int
    output: str
    errors: str


def npm_release(name: str, tag: str) -> Mapping[str, Any] | None:
    """Return what npm knows about a release: `name`, `version`, `bin`, `deprecated`; None if there is no such release.

    Args:
        tag: a tag; empty for the one that npm uses by default.

    Raises:
        NotInstalled: npm is not on PATH.
        Unreachable: npm does not answer with one release.
    """
    package = f"{name}@{tag}" if tag else name
    answer = _ask("npm", ("view", "--json", *_NPM, "--", package, "name", "version", "bin", "deprecated"))
    try:
        found = json.loads(answer.output)
    except (ValueError, RecursionError):
        found = None
    error = found.get("error") if isinstance(found, dict) else None
    if answer.code == 0 and isinstance(found, dict) and error is None:
        return found
    code = error.get("code") if isinstance(error, dict) else None
    if code == "E404":
        return None
    reason = code if isinstance(code, str) and _ERROR.fullmatch(code) else f"exit code {answer.code}"
    raise Unreachable(f"npm cannot look up {package!r} ({reason}); npm view {package} says why")


def uv_release(name: str) -> tuple[str, str] | None:
    """Return the latest version of a package that needs no build, and the origin of its index.

    Returns:
        None if there is no such package. The origin is empty if uv does not say it.

    Raises:
        NotInstalled: uv is not on PATH.
        Unreachable: uv finds no version.
    """
    answer = _ask_uv(f"{name}\n")
    if answer.code == 0 and (pinned := _PINNED.search(answer.output)):
        index = _FROM.search(answer.output)
        return pinned[1], origin_of(index[1]) if index else ""
    if answer.code == 1 and "not found in the package registry" in " ".join(answer.errors.split()):
        return None
    if answer.code == 1:
        raise Unreachable(f"uv finds no version of {name!r} that this machine can use without building it")
    raise Unreachable(f"uv cannot look up {name!r} (exit code {answer.code}); its index may be unreachable")


def indexes_of(kind: Kind, name: str) -> tuple[str, ...]:
    """Return the origins of the indexes that may have a package. Nothing is sent to them.

    Returns:
        Nothing if npm does not show its index, as for an address with a password.

    Raises:
        NotInstalled: the package manager is not on PATH.
        Unreachable: it does not answer.
    """
    found = _npm_indexes(name) if kind == "npm" else _INDEX.findall(_ask_uv().output)
    return tuple(dict.fromkeys(origin for each in found if (origin := origin_of(each))))


def index_of_project(name: str, folder: Path, home: Path) -> tuple[str, ...] | None:
    """Return the origins of npm's indexes in a folder; None if no project there has settings of npm.

    Args:
        home: the folder with the settings of the person.
    """
    files = (each / ".npmrc" for each in (folder, *folder.parents) if each != home)
    if not any(each.exists() for each in files):
        return None
    return tuple(origin for each in _npm_indexes(name, folder) if (origin := origin_of(each)))


def _npm_indexes(name: str, folder: Path | None = None) -> list[str]:
    """Return the address of npm's index for a package, of which the scope may have one of its own."""
    scope = [f"{name.partition('/')[0]}:registry"] if name.startswith("@") else []
    for key in (*scope, "registry"):
        answer = _ask("npm", ("config", "get", *_NPM, "--", key), folder=folder)
        if answer.code != 0:
            return []
        found = answer.output.strip()
        if found not in ("", "undefined", "null"):
            return [found]
    return []


def _ask_uv(requirement: str = "") -> _Answer:
    """Return the answer about a requirement. Without one, uv names its indexes and sends nothing."""
    answer = _ask("uv", _UV, requirement)
    if answer.code != 0 and "No interpreter found" in answer.errors:
        raise Unreachable("uv finds no Python on this machine; uv python install gets one")
    return answer


def _ask(program: str, words: Sequence[str], given: str = "", *, folder: Path | None = None) -> _Answer:
    """Run a package manager. The answer goes to files, which no process that is left behind keeps open for us."""
    environ = passed_on(os.environ)
    path = find_executable(program, environ.get("PATH", ""))
    if path is None:
        raise NotInstalled(f"{program} is not installed, or not on PATH; {_INSTALL[program]}")
    with tempfile.TemporaryDirectory(prefix="codemode-mcp-", ignore_cleanup_errors=True) as made:
        empty, output, errors = Path(made, "empty"), Path(made, "output"), Path(made, "errors")
        empty.mkdir()
        for name, text in _STOPS:
            (empty / name).write_text(text)
        try:
            with output.open("wb") as out, errors.open("wb") as err:
                done = subprocess.run(
                    [path, *words],
                    cwd=folder or empty,
                    env=environ,
                    input=given.encode(),
                    stdout=out,
                    stderr=err,
                    timeout=SECONDS,
                    check=False,
                )
        except subprocess.TimeoutExpired:
            raise Unreachable(f"{program} has not answered within {SECONDS} s") from None
        except OSError as error:
            raise Unreachable(f"{program} cannot be run: {error.strerror}") from None
        return _Answer(done.returncode, _read_file(output), _read_file(errors))


def _read_file(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(MAX_BYTES).decode(errors="replace")


NPM_NAME: Final = re.compile(
    r"(?!.*\.(?:tgz|tar|tar\.gz)$)(?:@[a-z0-9][a-z0-9._-]*/)?[a-z0-9][a-z0-9._-]*", re.IGNORECASE
)
"""The name of a package. With the ending of an archive, npm would take it for a file."""

PYPI_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
EXACT_VERSION: Final = {
    "npm": re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(?:[-+][A-Za-z0-9.+-]+)?"),
    "pypi": re.compile(r"[0-9][A-Za-z0-9.+!_-]*"),
}
"""A version, and not a range or a tag. It cannot be an option. For npm, `1` and `1.x` are ranges."""

_TAG: Final = re.compile(r"[a-z][a-z0-9._-]*", re.IGNORECASE)

HIDDEN_INDEX: Final = "an index of which no host is shown"

TITLES: Final[Mapping[Kind, str]] = {"npm": "npm", "pypi": "PyPI"}


class Package(Struct, frozen=True):
    """A package that a person has named.

    Attributes:
        version: an exact version or a tag; empty for the latest one.
    """

    kind: Kind
    name: str
    version: str = ""


class Found(Struct, frozen=True):
    """A package of an index.

    Attributes:
        package: the package in its exact version.
        index: the index for a person; empty if it is not known.
        warnings: sentences that a person should read before the package starts.
    """

    package: Package
    index: str
    warnings: tuple[str, ...] = ()


def read_package(text: str) -> Package | None:
    """Return the package that a source is: `npm:NAME[@VERSION]`, `pypi:NAME[==VERSION]` or `@SCOPE/NAME`.

    Raises:
        Refused: the name or the version is malformed.
    """
    prefix, colon, rest = text.partition(":")
    if not colon or prefix not in ("npm", "pypi"):
        if not text.startswith("@"):
            return None
        prefix, rest = "npm", text
    if prefix == "pypi":
        name, version = re.split("==|@", rest, maxsplit=1) if re.search("==|@", rest) else (rest, "")
    else:
        at = rest.find("@", 1)
        name, version = (rest, "") if at < 0 else (rest[:at], rest[at + 1 :])
    package = Package("npm" if prefix == "npm" else "pypi", name, version)
    check_name(package.kind, name)
    is_tag = package.kind == "npm" and _TAG.fullmatch(version)
    if version and not EXACT_VERSION[package.kind].fullmatch(version) and not is_tag:
        raise Refused(
            f"{cut(version, 60)!r} is no version of a package; write one such as 1.2.3, or none for the latest"
        )
    return package


def check_name(kind: Kind, name: str) -> None:
    """Refuse a name that no package has. It could be an option of `npx` or `uvx`, or the address of other code."""
    if not (NPM_NAME if kind == "npm" else PYPI_NAME).fullmatch(name):
        raise Refused(f"{cut(name, 100)!r} is no name of a package of {TITLES[kind]}")


def package_proposal(package: Package, arguments: Sequence[str], folder: Path) -> Proposal:
    """Return the proposal of a package in its exact version. Without one, the package manager is asked for the latest.

    Args:
        arguments: words that the person has typed.
        folder: the working directory.

    Raises:
        Refused: there is no such package, the package manager does not answer, or an argument is a secret.
    """
    found = find_package(package, folder)
    if found is None:
        raise Refused(f"{TITLES[package.kind]} has no package {cut(package.name, 100)!r}; check how it is written")
    return proposal_of(found, arguments, folder)


def proposal_of(found: Found, arguments: Sequence[str], folder: Path) -> Proposal:
    kind, name, version = found.package.kind, found.package.name, found.package.version
    plain = package_entry(kind, name, version, arguments)
    entry = typed_entry(plain["command"], plain["args"], arguments, folder)
    origin = f"{TITLES[kind]} package {name} {version}{f' from {found.index}' if found.index else ''}"
    return Proposal(short_name(name), entry, origin, warnings=found.warnings)


def package_entry(kind: Kind, name: str, version: str, arguments: Sequence[str]) -> dict[str, Any]:
    if kind == "npm":
        return {"command": "npx", "args": ["-y", f"{name}@{version}", *arguments]}
    return {"command": "uvx", "args": [f"{name}=={version}", *arguments]}


def find_package(package: Package, folder: Path) -> Found | None:
    """Return the exact version of a package; None if there is no such package.

    Args:
        folder: the working directory.

    Raises:
        NotInstalled: the package manager is needed, and not on PATH.
        Refused: it does not answer, or has no version that can be used.
    """
    form = f"{package.kind}:{package.name}{'@' if package.kind == 'npm' else '=='}VERSION"
    if EXACT_VERSION[package.kind].fullmatch(package.version):
        return Found(package, index_text(package.kind, package.name), project_warnings(package, folder))
    try:
        found = _npm(package, folder) if package.kind == "npm" else _pypi(package)
    except NotInstalled as error:
        raise NotInstalled(f"{error}, or name the version yourself: {form}") from None
    except Unreachable as error:
        raise Refused(f"{error}; name the version yourself: {form}") from None
    return found


def index_text(kind: Kind, name: str) -> str:
    """Return the origins of the indexes that a package may come from, for a person; empty without the manager."""
    try:
        return " or ".join(indexes_of(kind, name)) or HIDDEN_INDEX
    except Unreachable:
        return ""


def project_warnings(package: Package, folder: Path) -> tuple[str, ...]:
    """Return a warning if `npx` uses another index in the working directory than the person's own."""
    try:
        here = index_of_project(package.name, folder, Path.home()) if package.kind == "npm" else None
        if here is None or here == indexes_of("npm", package.name):
            return ()
    except (Unreachable, RuntimeError):  # `home` raises a RuntimeError if there is none
        return ()
    where = " or ".join(here) or HIDDEN_INDEX
    return (f"a .npmrc of this folder has npx fetch the package from {where}; add it in another folder",)


def _npm(package: Package, folder: Path) -> Found | None:
    found = npm_release(package.name, package.version)
    if found is None:
        return None
    version = _exact(found.get("version"), package)
    if found.get("name") != package.name:
        raise Refused(f"npm answers with another package than {cut(package.name, 100)!r}; nothing was started")
    if not found.get("bin"):
        raise Refused(f"the npm package {package.name} {version} has no command, so npx cannot start it")
    deprecated = found.get("deprecated")
    warnings = (f"npm says that it is deprecated: {cut(str(deprecated), 300)}",) if deprecated else ()
    exact = structs.replace(package, version=version)
    return Found(exact, index_text("npm", package.name), (*warnings, *project_warnings(package, folder)))


def _pypi(package: Package) -> Found | None:
    found = uv_release(package.name)
    if found is None:
        return None
    return Found(structs.replace(package, version=_exact(found[0], package)), found[1] or HIDDEN_INDEX)


def _exact(version: object, package: Package) -> str:
    if not isinstance(version, str) or not EXACT_VERSION[package.kind].fullmatch(version):
        raise Unreachable(f"{TITLES[package.kind]} names no released version of {cut(package.name, 100)!r}")
    return version
