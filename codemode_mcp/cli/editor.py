"""The folder of `codemode-mcp types`, for an editor that completes and checks programs: the declaration files,
a `tsconfig.json` for them, and a first program.

What is there and not ours stays as it is, and nothing is written through a link: a folder may come from anywhere. A
list of what was written, with digests, tells ours from others later: files of servers that are gone are removed if
they were not changed by hand.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

WRITTEN: Final = ".codemode-types.json"
"""The list of what was written."""

PROJECT: Final = "tsconfig.json"
EXAMPLE: Final = "cell.ts"

MARK: Final = "// Written by `codemode-mcp types`"

_OPTIONS: Final = {
    "strict": True,
    "noEmit": True,
    "target": "es2023",
    "lib": ["es2023"],
    "types": [],
    "module": "esnext",
    "moduleResolution": "bundler",
    "moduleDetection": "force",
    "allowJs": True,
    "checkJs": True,
    "skipLibCheck": True,
}
"""Every program is a module of its own, so that `await` stands at its top and its names are its own. Neither the
browser's names nor those of packages around the folder are known: a program does not have them."""

PROJECT_TEXT: Final = (
    f"{MARK}, which replaces it: without this line it is yours.\n"
    f"{json.dumps({'compilerOptions': _OPTIONS, 'include': ['**/*.ts', '**/*.js']}, indent=2)}\n"
)

EXAMPLE_TEXT: Final = """\
// A program for `exec`. Run it: codemode-mcp run cell.ts
const { servers } = await MCP.$api();
for (const server of servers ?? []) text(`${server.identifier}: ${server.toolCount} tools`);

const hits = await API.search("list");
hits.map((hit) => hit.call); // the last expression is the value of the program
"""

_DEVICES: Final = re.compile(r"(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])\Z")
"""Names of devices on Windows, with any suffix."""

_DECLARATIONS: Final = re.compile(r"codemode-mcp\.schema\.json|(?!\.)[^/\\]+\.d\.ts|mcp/(?!\.)[^/\\]+\.d\.ts")


@dataclass(frozen=True, slots=True)
class Kept:
    """Changes in a folder. Paths are relative to it, with `/`.

    Attributes:
        removed: declaration files of what is gone.
        changed: such files that were changed by hand: they were left.
        example: whether the first program was written.
        project: whether `tsconfig.json` is ours.
    """

    declarations: tuple[str, ...]
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    example: bool = False
    project: bool = True


def keep(folder: Path, declarations: Mapping[str, str]) -> Kept:
    """Have these declaration files in the folder, which need not be there. Doing it again changes nothing.

    Raises:
        OSError: a file cannot be read or written, or is a link.
    """
    declarations = dict(zip(_on_disk(declarations), declarations.values(), strict=True))
    for path in (WRITTEN, "mcp", *declarations):
        _not_elsewhere(folder / path)
    earlier = _earlier(folder)
    removed, changed = [], []
    for path, digest in earlier.items():
        if path in declarations or not (folder / path).is_file():
            continue
        if _digest((folder / path).read_bytes()) == digest:
            (folder / path).unlink()
            removed.append(path)
        else:
            changed.append(path)
    for path, text in declarations.items():
        _write(folder / path, text)
    # A file that is left because it was changed is the user's from now on.
    written = {path: _digest(text.encode("utf-8")) for path, text in sorted(declarations.items())}
    _write(folder / WRITTEN, json.dumps(written, indent=1, ensure_ascii=True) + "\n")
    project = folder / PROJECT
    ours = not os.path.lexists(project) or (_is_here(project) and project.read_bytes().startswith(MARK.encode()))
    if ours:
        _write(project, PROJECT_TEXT)
    # Only into a new folder: a user who has deleted it does not want it back.
    example = ours and not earlier and not os.path.lexists(folder / EXAMPLE)
    if example:
        _write(folder / EXAMPLE, EXAMPLE_TEXT)
    return Kept(tuple(declarations), tuple(removed), tuple(changed), example, ours)


def _earlier(folder: Path) -> dict[str, str]:
    """Digests of what was written before, by path. What cannot be such a list, or names other files, is none."""
    try:
        found = json.loads((folder / WRITTEN).read_bytes())
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {
        path: digest
        for path, digest in found.items()
        if isinstance(digest, str) and _DECLARATIONS.fullmatch(path) is not None
    }


def _on_disk(paths: Iterable[str]) -> Iterator[str]:
    """Names for these files that are apart in file systems that do not tell case, and that are files everywhere. What
    they are called means nothing to an editor."""
    taken = set[str]()
    for path in paths:
        stem, name, number = path.removesuffix(".d.ts"), path, 1
        if _DEVICES.match(stem.rpartition("/")[2].partition(".")[0].casefold()):
            name = f"{stem}~.d.ts"
        while (same := unicodedata.normalize("NFC", name).casefold()) in taken:
            number += 1
            name = f"{stem}~{number}.d.ts"
        taken.add(same)
        yield name


def _is_here(path: Path) -> bool:
    """Return True if it is an ordinary file or folder, and no link."""
    return not path.is_symlink() and (path.is_file() or path.is_dir())


def _not_elsewhere(path: Path) -> None:
    """Raises `OSError`."""
    if os.path.lexists(path) and not _is_here(path):
        raise OSError(errno.ELOOP, "it is a link, or no file; delete it, or name another folder by --out", str(path))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _write(path: Path, text: str) -> None:
    """Write a file where its text is another one: an editor reads a written file again."""
    data = text.encode("utf-8")
    try:
        if path.read_bytes() == data:
            return
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
