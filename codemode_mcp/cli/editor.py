"""The folder that `codemode-mcp types` writes for an editor: declaration files, a `tsconfig.json` and a first program.

The folder may be by others. So files of others are kept, and nothing is written through a symbolic link. A list of the
written files has their digests. With it, a later run removes the files of deleted servers that are unchanged.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

WRITTEN: Final = ".codemode-types.json"
"""The list of the written files."""

PROJECT: Final = "tsconfig.json"
EXAMPLE: Final = "cell.ts"

MARK: Final = "// Written by `codemode-mcp types`"
"""The beginning of a `tsconfig.json` that may be replaced."""

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
"""Compiler options that give the editor the view of a program.

Each file is a module, which allows `await` at its top level and keeps its names apart from those of other files. Names
of the browser, and of packages outside the folder, are unknown, because programs do not have them.
"""

PROJECT_TEXT: Final = (
    f"{MARK}, which replaces this file unless you delete this line.\n"
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
"""Names of devices on Windows, which no file can have with any suffix."""

_DECLARATIONS: Final = re.compile(r"codemode-mcp\.schema\.json|(?!\.)[^/\\]+\.d\.ts|mcp/(?!\.)[^/\\]+\.d\.ts")


@dataclass(frozen=True, slots=True)
class WrittenFolder:
    """The effects of writing a folder. Paths are relative to it, with `/`.

    Attributes:
        declarations: the declaration files.
        removed: declaration files of deleted servers, which were removed.
        changed: declaration files of deleted servers that were changed by hand, and kept.
        example: whether the first program was written.
        project: whether `tsconfig.json` is ours.
    """

    declarations: tuple[str, ...]
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    example: bool = False
    project: bool = True


def write_folder(folder: Path, declarations: Mapping[str, str]) -> WrittenFolder:
    """Write declaration files to the folder, which is created if necessary. Writing the same again changes nothing.

    Raises:
        OSError: a file cannot be read or written, or is a symbolic link.
    """
    declarations = dict(zip(_on_disk(declarations), declarations.values(), strict=True))
    for path in (WRITTEN, "mcp", *declarations):
        _refuse_link(folder / path)
    earlier = _read_list(folder)
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
    # A kept file that was changed by hand belongs to the user from now on.
    written = {path: _digest(text.encode("utf-8")) for path, text in sorted(declarations.items())}
    _write(folder / WRITTEN, json.dumps(written, indent=1, ensure_ascii=True) + "\n")
    project = folder / PROJECT
    ours = not os.path.lexists(project) or (_is_regular(project) and project.read_bytes().startswith(MARK.encode()))
    if ours:
        _write(project, PROJECT_TEXT)
    # Only in a new folder: it is not written again after the user has deleted it.
    example = ours and not earlier and not os.path.lexists(folder / EXAMPLE)
    if example:
        _write(folder / EXAMPLE, EXAMPLE_TEXT)
    return WrittenFolder(tuple(declarations), tuple(removed), tuple(changed), example, ours)


def _read_list(folder: Path) -> dict[str, str]:
    """Return the digests of the files written earlier, by path. Entries that we cannot have written are ignored."""
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
    """Yield names under which the files can be written on every system: not equal but for case, and no devices.

    The names have no meaning for an editor.
    """
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


def _is_regular(path: Path) -> bool:
    """Return True for a file or folder that is not a symbolic link."""
    return not path.is_symlink() and (path.is_file() or path.is_dir())


def _refuse_link(path: Path) -> None:
    """Raise `OSError` for a symbolic link, or something that is neither a file nor a folder."""
    if os.path.lexists(path) and not _is_regular(path):
        raise OSError(errno.ELOOP, "it is a link or a special file; delete it, or use another folder", str(path))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _write(path: Path, text: str) -> None:
    """Write a file unless it has this text already: editors read every written file again."""
    data = text.encode("utf-8")
    try:
        if path.read_bytes() == data:
            return
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
