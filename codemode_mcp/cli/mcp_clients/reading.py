"""Read the files of MCP clients as they are on this machine. What cannot be read is said, and never harms the rest."""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codemode_mcp.cli.mcp_clients.places import CLIENTS, SETTINGS_KEYS, TITLES, ZED_KEYS, Place, places, project_keys
from codemode_mcp.config.formats import format_of, parse
from codemode_mcp.config.nodes import describe
from codemode_mcp.config.servers import ROOT_KEYS
from codemode_mcp.config.source import SourceError, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from codemode_mcp.cli.mcp_clients.places import ClientName, System

_CLIENT_OF: Mapping[tuple[str, ...], ClientName] = {
    SETTINGS_KEYS: "vscode",
    ("mcp",): "opencode",
    ("mcp_servers",): "codex",
    ZED_KEYS: "zed",
    ("extensions",): "goose",
}
"""The client whose file has servers under these keys."""

_INSIDE_PROJECTS = frozenset((".vscode", ".cursor", ".codex", ".gemini", ".qwen", ".zed", ".github"))
"""Folders of a project in which clients keep their file."""

MAX_BYTES = 64 * 1024 * 1024
"""Bytes of one file. Claude Code keeps the history of all projects beside its servers."""


@dataclass(frozen=True, slots=True)
class Here:
    """Surroundings on which the places of clients depend."""

    system: System
    home: Path
    environ: Mapping[str, str]
    folder: Path


def this_machine() -> Here:
    system: System = "win32" if sys.platform == "win32" else "darwin" if sys.platform == "darwin" else "linux"
    return Here(system, Path.home(), os.environ, Path.cwd())


@dataclass(frozen=True, slots=True)
class Document:
    """A file as it was read.

    Attributes:
        data: all of its bytes.
        text: these as text, without a byte order mark.
        value: the JSON value.
    """

    path: Path
    data: bytes = field(repr=False)
    text: str = field(repr=False)
    value: Any = field(repr=False)


def read_file(path: Path) -> Document:
    """Read a file of JSON (comments are fine), TOML or YAML. Refuse what is no file, such as a pipe.

    Raises:
        SourceError: it cannot be read; the message follows its name, and says what to do.
    """
    data = _bytes_of(path)
    text = text_of(data)
    return Document(path, data, text, parse(format_of(path), text))


def _bytes_of(path: Path) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        try:
            kind = os.fstat(handle).st_mode
            if not stat.S_ISREG(kind):
                raise SourceError("is a folder, not a file" if stat.S_ISDIR(kind) else "is no ordinary file")
            with open(handle, "rb", closefd=False) as file:
                data = file.read(MAX_BYTES + 1)
        finally:
            os.close(handle)
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror}") from None
    except ValueError:  # a NUL in the name
        raise SourceError("cannot be read: this is not a file name") from None
    if len(data) > MAX_BYTES:
        raise SourceError(f"is larger than {MAX_BYTES // 1024 // 1024} MiB; is it the right file?")
    return data


@dataclass(frozen=True, slots=True)
class Source:
    """Servers of one place.

    Attributes:
        client: the client whose format this is; None for another file.
        scope: as a place has it, or `file` for a file that the user has named.
        folder: of the project that the servers belong to.
        servers: the entries by name, as the client has them.
        inputs: what the client asks its user for, by id.
        notes: what is not in the file, or not taken from it.
        by_others: True if the file came with the working folder, and the user has not named it.
        problem: why it cannot be used; it follows the name of the file. Then there are no servers.
    """

    client: ClientName | None
    scope: str
    path: Path
    keys: tuple[str, ...] = ()
    folder: Path | None = None
    servers: Mapping[str, Any] = field(default_factory=dict, repr=False)
    inputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = ()
    problem: str | None = None
    by_others: bool = False

    @property
    def title(self) -> str:
        """`Cursor, project`; `file` for one that the user has named."""
        return "file" if self.scope == "file" or self.client is None else f"{TITLES[self.client]}, {self.scope}"


def read_clients(here: Here, clients: Iterable[ClientName] = CLIENTS) -> list[Source]:
    """Return the servers of the clients here, one source for each place whose file exists.

    In the user's own folder a project's file of Cursor is the user's file.
    """
    documents: dict[Path, Document | SourceError] = {}
    there: dict[tuple[object, ...], Place] = {}
    for client in clients:
        for place in places(client, here.system, here.home, here.environ, here.folder):
            if os.path.lexists(place.path):
                there.setdefault((client, place.path, place.keys), place)
    return [_source(place, here, documents) for place in there.values()]


def read_named(path: Path, here: Here) -> list[Source]:
    """Read a file that the user has named: one of a client as such, any other by its contents."""
    path = Path(os.path.abspath(path))
    documents: dict[Path, Document | SourceError] = {}
    known = [
        place
        for client in CLIENTS
        for place in places(client, here.system, here.home, here.environ, here.folder)
        if place.path == path
    ]
    if known:
        return [_source(place, here, documents) for place in known]
    folder = _project_of(path)
    plain = Source(None, "file", path, folder=folder)
    document = _read(path, documents)
    if isinstance(document, SourceError):
        return [replace(plain, problem=str(document))]
    found = []
    for keys in (*((key,) for key in ROOT_KEYS), *_CLIENT_OF, *_projects(here.folder)):
        if keys == ("mcp",) and _at(document.value, SETTINGS_KEYS) is not None:
            continue
        if _at(document.value, keys) is not None:
            client: ClientName | None = "vscode" if keys == ("servers",) else _CLIENT_OF.get(keys)
            inside = folder
            if keys[0] == "projects":
                client, inside = "claude-code", here.folder
            found.append(_filled(Source(client, "file", path, keys, inside), document))
    if not found:
        problem = (
            "holds no servers: it has no `mcpServers`, `servers`, `mcp.servers`, `mcp`, `mcp_servers`, "
            "`context_servers` or `extensions`; is it the right file?"
        )
        return [replace(plain, problem=problem)]
    return found


def _projects(folder: Path) -> list[tuple[str, ...]]:
    return [("projects", key, "mcpServers") for key in project_keys(folder)]


def _project_of(path: Path) -> Path:
    """Return the folder that a file's `${workspaceFolder}` is."""
    return path.parent.parent if path.parent.name in _INSIDE_PROJECTS else path.parent


def _source(place: Place, here: Here, documents: dict[Path, Document | SourceError]) -> Source:
    folder = None if place.folder is None else here.folder
    source = Source(place.client, place.scope, Path(place.path), place.keys, folder)
    document = _read(source.path, documents)
    if isinstance(document, SourceError):
        return replace(source, problem=str(document))
    source = _filled(source, document)
    if place.client == "claude-desktop":
        source = replace(source, notes=(*source.notes, *_extensions(source.path)))
    if place.client == "claude-code" and place.scope == "user":
        source = replace(source, notes=(*source.notes, *_other_projects(document.value, here.folder)))
    return source


def _read(path: Path, documents: dict[Path, Document | SourceError]) -> Document | SourceError:
    """Return the file, read once for all the places in it."""
    if path not in documents:
        try:
            documents[path] = read_file(path)
        except SourceError as error:
            documents[path] = error
    return documents[path]


def _filled(source: Source, document: Document) -> Source:
    """Return the source with what the file holds in its place."""
    value = document.value
    if not isinstance(value, dict):
        return replace(source, problem=f"holds {describe(value, secret=True)}; expected an object")
    inner: Any = value
    for depth, key in enumerate(source.keys):
        inner = inner.get(key)
        if inner is None:
            return source
        if not isinstance(inner, dict):
            way = ".".join(source.keys[: depth + 1]) if source.scope != "local" else source.keys[-1]
            return replace(source, problem=f"has {describe(inner, secret=True)} as `{way}`; expected an object")
    inputs = _at(value, (*source.keys[:-1], "inputs"))
    notes = tuple(f"{name!r} is there more than once; the last one counts" for name in getattr(inner, "repeated", ()))
    return replace(source, servers=inner, inputs=inputs_of(inputs), notes=notes)


def _at(value: Any, keys: Iterable[str]) -> Any:
    for key in keys:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def inputs_of(value: Any) -> dict[str, Mapping[str, Any]]:
    """Return the inputs that VS Code asks its user for, by id."""
    if not isinstance(value, list):
        return {}
    return {each["id"]: each for each in value if isinstance(each, dict) and isinstance(each.get("id"), str)}


def _extensions(path: Path) -> tuple[str, ...]:
    """Return notes on servers that Claude Desktop has outside its file."""
    try:
        names = [each for each in os.listdir(path.parent / "Claude Extensions") if not each.startswith(".")]
    except OSError:
        return ()
    if not names:
        return ()
    count = "1 of its servers is an extension" if len(names) == 1 else f"{len(names)} of its servers are extensions"
    return (f"{count}, not in this file; they stay with it, since only it can start them",)


def _other_projects(value: Any, folder: Path) -> tuple[str, ...]:
    """Return notes on servers of other projects."""
    projects = _at(value, ("projects",))
    if not isinstance(projects, dict):
        return ()
    here = project_keys(folder)
    others = [key for key, each in projects.items() if key not in here and _at(each, ("mcpServers",))]
    if not others:
        return ()
    count = "1 other project has its" if len(others) == 1 else f"{len(others)} other projects have their"
    return (f"{count} own servers in this file; import in the folder of a project to take them too",)
