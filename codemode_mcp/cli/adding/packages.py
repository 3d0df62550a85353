"""Packages of npm and PyPI as servers: names, versions and command lines.

The version is part of the command line, so that the next start does not run another one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.cli.adding.package_managers import (
    NotInstalled,
    index_of_project,
    indexes_of,
    npm_release,
    uv_release,
)
from codemode_mcp.cli.adding.proposal import Proposal, Refused, short_name
from codemode_mcp.cli.adding.sources import typed_entry
from codemode_mcp.cli.adding.web import Unreachable
from codemode_mcp.control.display import cut

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from codemode_mcp.cli.adding.package_managers import Kind

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


@dataclass(frozen=True, slots=True)
class Package:
    """A package that a person has named.

    Attributes:
        version: an exact version or a tag; empty for the latest one.
    """

    kind: Kind
    name: str
    version: str = ""


@dataclass(frozen=True, slots=True)
class Found:
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
    """Return the proposal of a package that was found. See `package_proposal`."""
    kind, name, version = found.package.kind, found.package.name, found.package.version
    plain = package_entry(kind, name, version, arguments)
    entry = typed_entry(plain["command"], plain["args"], arguments, folder)
    origin = f"{TITLES[kind]} package {name} {version}{f' from {found.index}' if found.index else ''}"
    return Proposal(short_name(name), entry, origin, warnings=found.warnings)


def package_entry(kind: Kind, name: str, version: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Return the entry that starts an exact version of a package."""
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
    exact = replace(package, version=version)
    return Found(exact, index_text("npm", package.name), (*warnings, *project_warnings(package, folder)))


def _pypi(package: Package) -> Found | None:
    found = uv_release(package.name)
    if found is None:
        return None
    return Found(replace(package, version=_exact(found[0], package)), found[1] or HIDDEN_INDEX)


def _exact(version: object, package: Package) -> str:
    if not isinstance(version, str) or not EXACT_VERSION[package.kind].fullmatch(version):
        raise Unreachable(f"{TITLES[package.kind]} names no released version of {cut(package.name, 100)!r}")
    return version
