"""Packages of npm and PyPI as servers: names, versions and command lines.

The version is part of the command line, so that the next start does not run another one.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import quote

from codemode_mcp.cli.adding.proposal import Proposal, Refused, short_name
from codemode_mcp.cli.adding.sources import typed_entry
from codemode_mcp.cli.adding.web import Unreachable, fetch_json
from codemode_mcp.control.display import cut

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

Kind = Literal["npm", "pypi"]

NPM_NAME: Final = re.compile(r"(?:@[a-z0-9][a-z0-9._-]*/)?[a-z0-9][a-z0-9._-]*", re.IGNORECASE)
PYPI_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
EXACT_VERSION: Final = {
    "npm": re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(?:[-+][A-Za-z0-9.+-]+)?"),
    "pypi": re.compile(r"[0-9][A-Za-z0-9.+!_-]*"),
}
"""A version, and not a range or a tag. It cannot be an option. For npm, `1` and `1.x` are ranges."""

_TAG: Final = re.compile(r"[a-z][a-z0-9._-]*", re.IGNORECASE)
_FINAL: Final = re.compile(r"[0-9]+(?:\.[0-9]+)*(?:\.post[0-9]+)?")

TITLES: Final[Mapping[str, str]] = {"npm": "npm", "pypi": "PyPI"}
_INDEXES: Final[Mapping[Kind, tuple[tuple[str, ...], str]]] = {
    "npm": (("npm_config_registry", "NPM_CONFIG_REGISTRY"), "https://registry.npmjs.org"),
    "pypi": (("UV_DEFAULT_INDEX", "UV_INDEX_URL"), "https://pypi.org/simple"),
}
"""The variables that `npx` and `uvx` read, which the server inherits too, and the index without them."""


@dataclass(frozen=True, slots=True)
class Package:
    """A package that a person has named.

    Attributes:
        version: an exact version or a tag; empty for the latest one.
    """

    kind: Kind
    name: str
    version: str = ""


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
    """Return the proposal of a package in its exact version. Without one, its index is asked for the latest.

    Args:
        arguments: words that the person has typed.
        folder: the working directory.

    Raises:
        Refused: there is no such package, its index does not answer, or an argument is a secret.
    """
    found = find_package(package)
    if found is None:
        raise Refused(f"{TITLES[package.kind]} has no package {cut(package.name, 100)!r}; check how it is written")
    name, version, warnings = found
    plain = package_entry(package.kind, name, version, arguments)
    entry = typed_entry(plain["command"], plain["args"], arguments, folder)
    return Proposal(short_name(name), entry, f"{TITLES[package.kind]} package {name} {version}", warnings=warnings)


def package_entry(kind: Kind, name: str, version: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Return the entry that starts an exact version of a package."""
    if kind == "npm":
        return {"command": "npx", "args": ["-y", f"{name}@{version}", *arguments]}
    return {"command": "uvx", "args": [f"{name}=={version}", *arguments]}


def find_package(package: Package) -> tuple[str, str, tuple[str, ...]] | None:
    """Return the name of a package, its exact version, and warnings; None if there is no such package.

    Raises:
        Refused: its index does not answer, or has no version that can be used.
    """
    variables, base = _INDEXES[package.kind]
    named = next((each for each in variables if os.environ.get(each)), None)
    base = (os.environ[named] if named else base).rstrip("/")
    warnings = (f"the package comes from the index that the variable {named} names",) if named else ()
    if EXACT_VERSION[package.kind].fullmatch(package.version):
        return package.name, package.version, warnings
    try:
        found = _npm(base, package) if package.kind == "npm" else _pypi(base, package)
    except Unreachable as error:
        form = f"{package.kind}:{package.name}{'@' if package.kind == 'npm' else '=='}VERSION"
        raise Refused(f"{error}; name the version yourself: {form}") from None
    return None if found is None else (package.name, found[0], (*warnings, *found[1]))


def _npm(base: str, package: Package) -> tuple[str, tuple[str, ...]] | None:
    found = fetch_json(f"{base}/{quote(package.name, safe='@')}/{package.version or 'latest'}")
    if found is None:
        return None
    version = _exact(found.get("version") if isinstance(found, dict) else None, package)
    if found.get("name") != package.name:
        raise Refused(f"npm answers with another package than {cut(package.name, 100)!r}; nothing was started")
    if not found.get("bin"):
        raise Refused(f"the npm package {package.name} {version} has no command, so npx cannot start it")
    deprecated = found.get("deprecated")
    return version, ((f"npm says that it is deprecated: {cut(str(deprecated), 300)}",) if deprecated else ())


def _pypi(base: str, package: Package) -> tuple[str, tuple[str, ...]] | None:
    name = re.sub(r"[-_.]+", "-", package.name).lower()
    found = fetch_json(f"{base}/{quote(name, safe='')}/", "application/vnd.pypi.simple.v1+json")
    if found is None:
        return None
    listed = found.get("versions") if isinstance(found, dict) else None
    versions = [each for each in listed if isinstance(each, str)] if isinstance(listed, list) else []
    yanked = _yanked(found, versions) if versions else frozenset()
    final = [each for each in versions if _FINAL.fullmatch(each) and each not in yanked]
    return _exact(max(final, key=_order, default=None), package), ()


def _yanked(found: Mapping[str, Any], versions: Sequence[str]) -> frozenset[str]:
    """Return the versions of which all files are yanked."""
    files = found.get("files")
    listed = [each for each in files if isinstance(each, dict)] if isinstance(files, list) else []
    yanked = set()
    for version in versions:
        ends = (f"-{version}.tar.gz", f"-{version}.zip")
        own = [each for each in listed if (name := str(each.get("filename"))).endswith(ends) or f"-{version}-" in name]
        if own and all(each.get("yanked") for each in own):
            yanked.add(version)
    return frozenset(yanked)


def _order(version: str) -> tuple[tuple[int, ...], int]:
    numbers, _, post = version.partition(".post")
    parts = [int(each[:18]) for each in numbers.split(".")]
    while len(parts) > 1 and parts[-1] == 0:
        parts.pop()
    return tuple(parts), int(post[:18] or -1)


def _exact(version: object, package: Package) -> str:
    if not isinstance(version, str) or not EXACT_VERSION[package.kind].fullmatch(version):
        raise Unreachable(f"{TITLES[package.kind]} names no released version of {cut(package.name, 100)!r}")
    return version
