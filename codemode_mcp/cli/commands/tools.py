"""`codemode-mcp tools` and `codemode-mcp types`."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer
from msgspec import Struct

from codemode_mcp.cli.command_service import read_tools
from codemode_mcp.cli.messages import say, stop
from codemode_mcp.cli.options import ConfigOption, JsonOption, PrivateOption
from codemode_mcp.cli.parser import server_names
from codemode_mcp.cli.running_instance import ask_instance, tools_there

if TYPE_CHECKING:
    from codemode_mcp.config import Config
    from codemode_mcp.rules.policy.policy import Caller
    from codemode_mcp.server.services import App


Result = TypeVar("Result")

app = typer.Typer()


@app.command(
    epilog="Example: codemode-mcp tools\n\nExample: codemode-mcp tools open issues --server github\n\n"
    "Example: codemode-mcp tools --long --server github"
)
def tools(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="QUERY", help="Search words; default: all tools.")
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only tools of this server or plugin.", autocompletion=server_names),
    ] = None,
    long: Annotated[bool, typer.Option("--long", "-l", help="Show signatures and whole descriptions.")] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
    private: PrivateOption = False,
) -> None:
    """List the tools a program can call, or search them."""
    request = read_tools(words or (), server, long=long, as_json=as_json)
    if not private:
        code = tools_there(request, config=config)
        if code is not None:
            raise typer.Exit(code)
    from codemode_mcp.cli.listing import emptiness, of_server, printed, tools_of, unknown_source
    from codemode_mcp.cli.loading import load, logging_of, plugins_on_stderr

    loaded = load(config, "warning", None)
    # Servers that are down are reported after the list.
    with logging_of(loaded, level="error"), plugins_on_stderr():
        found = _run(of_server(loaded, server), partial(tools_of, query=request.query, server=server))
    if found is None:
        stop(2, unknown_source(server or "", loaded))
    for line in printed(found, request):
        print(line)
    for note in (*found.notes, *emptiness(loaded)):
        say(note)


@app.command(
    epilog="Example: codemode-mcp types --out cells\n\nThen open the folder in an editor: cells/*.ts are completed and "
    "checked."
)
def types(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write to.")] = Path("codemode-types"),
    config: ConfigOption = None,
    private: PrivateOption = False,
) -> None:
    """Write the declaration files and a tsconfig.json, so that an editor completes and checks programs."""

    result = None if private else ask_instance("types", {}, config=config, log_level="error")
    if result is None:
        from codemode_mcp.cli.listing import emptiness, types_of
        from codemode_mcp.cli.loading import load, logging_of, plugins_on_stderr

        loaded = load(config, "warning", None)
        with logging_of(loaded, level="error"), plugins_on_stderr():
            files, errors = _run(loaded, types_of)
        notes = [*errors, *emptiness(loaded)]
    else:
        files, notes = result["files"], result["notes"]
    try:
        written = write_folder(out, files)
    except OSError as error:
        stop(1, f"cannot write to {error.filename or out}: {error.strerror}; name another folder with --out")
    for path in written.declarations:
        print(out / path)
    for path in written.removed:
        say(f"removed {out / path}: its server is no longer configured")
    for path in written.changed:
        say(f"kept {out / path}: its server is no longer configured, but the file was changed by hand")
    if not written.project:
        say(f"kept {out / PROJECT}, which is not ours; delete it and run this again to have programs checked")
    if written.example:
        say(f"{out / EXAMPLE} is a first program: open {out} in an editor")
    for note in notes:
        say(note)


def _run(config: Config, function: Callable[[App, Caller], Awaitable[Result]]) -> Result:
    """Call a function with an application that is open meanwhile."""
    import anyio

    from codemode_mcp.process.app.app import open_app

    async def run() -> Result:
        async with open_app(config) as opened:
            return await function(opened, opened.operator)

    return anyio.run(run)


# The folder that `codemode-mcp types` writes for an editor: declaration files, a `tsconfig.json` and a first program.
#
# The folder may be by others. So files of others are kept, and nothing is written through a symbolic link. A list of
# the written files has their digests. With it, a later run removes the files of deleted servers that are unchanged.


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


class WrittenFolder(Struct, frozen=True):
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
