"""Configuration files of clients, and ours: reading, replacing, and the servers in them."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codemode_mcp.config.edit import replace_file
from codemode_mcp.config.nodes import describe
from codemode_mcp.config.servers import ROOT_KEYS
from codemode_mcp.config.source import SourceError, text_of
from codemode_mcp.extensions.setup.mcp_clients.dialects import value_at
from codemode_mcp.extensions.setup.mcp_clients.formats import Format, format_of, parse
from codemode_mcp.extensions.setup.mcp_clients.locations import (
    CLIENTS,
    TITLES,
    VSCODE_SETTINGS_KEYS,
    ZED_KEYS,
    Location,
    Machine,
    locations,
    project_keys,
)
from upstream_clients.private_files import make_private_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from codemode_mcp.extensions.setup.mcp_clients.locations import ClientName, System


MAX_BYTES = 64 * 1024 * 1024
"""Maximum bytes of one file. The limit is high because Claude Code's file also has the history of all projects."""

BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True, slots=True)
class Change:
    """A file and its new text.

    Attributes:
        path: the file, behind symbolic links.
        before: the current bytes; None for no file.
        private: whether a new file is readable by its owner alone.
        secret: whether the new text has secrets. An existing file is then made readable by its owner alone, too.
    """

    path: Path
    before: bytes | None = field(repr=False)
    text: str = field(repr=False)
    private: bool = True
    secret: bool = False

    def write(self, before_last_step: Callable[[Path | None], None] | None = None) -> Path | None:
        """Replace the file. Return the backup of the previous one, if there was one.

        Args:
            before_last_step: called with the backup just before the new file is renamed to `path`.

        Raises:
            OSError: the file cannot be written. It is unchanged.
            ChangedMeanwhileError: another program has changed the file since it was read.
        """
        if self.private:
            make_private_folder(self.path.parent)
        else:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.secret and self.before is not None:
            # The new file gets the mode of the old one, so the mode is set before the secrets are written.
            self.path.chmod(0o600)
        return replace_file(self.path, self.before, self.text, private=self.private, before_replacing=before_last_step)

    def is_written(self) -> bool:
        with suppress(OSError):
            return self.path.read_bytes() == self.text.encode()
        return False

    def revert(self, backup: Path | None) -> None:
        """Restore the previous file, unless another program has written it since."""
        if not self.is_written():
            return
        with suppress(OSError):
            if backup is not None:
                restore_backup(self.path, backup)
            else:
                self.path.unlink()


def restore_backup(path: Path, backup: Path) -> None:
    """Replace a file by its backup, and remove the backup.

    Raises:
        OSError: the file cannot be written.
    """
    # The backup may be on another file system, from which a file cannot be renamed.
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        shutil.copy2(backup, name)
        with suppress(FileNotFoundError):
            shutil.copymode(path, name)  # the backup is private, and the file may be open to others
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
    backup.unlink()


@dataclass(frozen=True, slots=True)
class Document:
    """The content of a file when it was read.

    Attributes:
        data: the bytes of the file; None for no file.
        text: the text of the file without a byte order mark.
        value: the parsed value.
    """

    path: Path
    data: bytes | None = field(repr=False)
    text: str = field(repr=False)
    value: Any = field(repr=False)

    def change_to(self, text: str, *, private: bool = True, secret: bool = False) -> Change:
        """Return the change to `text`, with a byte order mark if the file has one."""
        mark = BYTE_ORDER_MARK if (self.data or b"").startswith(BYTE_ORDER_MARK.encode()) else ""
        return Change(self.path, self.data, mark + text, private, secret)


def read_file(path: Path, kind: Format | None = None, *, empty: str | None = None) -> Document:
    """Read a file of JSON (with or without comments), TOML or YAML.

    Args:
        kind: the format of the file. By default it follows from the file's name.
        empty: the text to use for a missing or blank file.

    Raises:
        SourceError: the file cannot be read. The message is to follow the file's name, and says what to do.
    """
    data = None if empty is not None and not os.path.lexists(path) else read_bytes(path)
    text = text_of(data or b"")
    if empty is not None and not text.strip():
        text = empty
    return Document(path, data, text, parse(kind or format_of(path), text))


def read_bytes(path: Path) -> bytes:
    """Read a regular file. Refuse any other file, such as a pipe, because reading it might never end.

    Raises:
        SourceError: the file cannot be read, as for `read_file`.
    """
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        try:
            mode = os.fstat(handle).st_mode
            if not stat.S_ISREG(mode):
                raise SourceError("is a folder, not a file" if stat.S_ISDIR(mode) else "is not a regular file")
            with open(handle, "rb", closefd=False) as file:
                data = file.read(MAX_BYTES + 1)
        finally:
            os.close(handle)
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror}") from None
    except ValueError:  # a NUL in the name
        raise SourceError("cannot be read: this is not a file name") from None
    if len(data) > MAX_BYTES:
        raise SourceError(f"is larger than {MAX_BYTES // 1024 // 1024} MiB; check that it is the right file")
    return data


# The servers in the files of MCP clients on this machine. A file that cannot be read becomes a `Source.problem`.


_CLIENT_BY_KEYS: Mapping[tuple[str, ...], ClientName] = {
    VSCODE_SETTINGS_KEYS: "vscode",
    ("mcp",): "opencode",
    ("mcp_servers",): "codex",
    ZED_KEYS: "zed",
    ("extensions",): "goose",
}
"""Clients by the keys of the servers in their files."""

_FOLDERS_IN_PROJECTS = frozenset((".vscode", ".cursor", ".codex", ".gemini", ".qwen", ".zed", ".github"))
"""Folders inside a project in which clients keep their files."""


def this_machine() -> Machine:
    system: System = "win32" if sys.platform == "win32" else "darwin" if sys.platform == "darwin" else "linux"
    return Machine(system, Path.home(), os.environ, Path.cwd())


@dataclass(frozen=True, slots=True)
class Source:
    """The servers of one location, or of one file that the user has named.

    Attributes:
        client: the client whose format the entries have; None for the common format.
        scope: the scope of the location, or `file` for a file that the user has named.
        folder: the project that the servers belong to.
        servers: the client's entries by name.
        inputs: the values that the client asks its user for, by id.
        notes: remarks for the user, such as on servers that are not in the file.
        problem: the reason why the file cannot be used, in words that follow the file's name. `servers` is then empty.
        comes_with_folder: whether the file belongs to the working directory and the user has not named it.
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
    comes_with_folder: bool = False

    @property
    def title(self) -> str:
        """`Cursor, project`, or `file` for a file that the user has named."""
        return "file" if self.scope == "file" or self.client is None else f"{TITLES[self.client]}, {self.scope}"


def read_clients(machine: Machine, clients: Iterable[ClientName] = CLIENTS) -> list[Source]:
    """Return a source for each location of these clients whose file exists.

    If the working directory is the home folder, a client's project file can be its user file. It is returned once.
    """
    documents: dict[Path, Document | SourceError] = {}
    existing: dict[tuple[object, ...], Location] = {}
    for client in clients:
        for location in locations(client, machine):
            if os.path.lexists(location.path):
                existing.setdefault((client, location.path, location.keys), location)
    return [_read_location(location, machine, documents) for location in existing.values()]


def read_named(path: Path, machine: Machine) -> list[Source]:
    """Read a file that the user has named. Its location shows the client, or else the keys in the file do."""
    path = Path(os.path.abspath(path))
    documents: dict[Path, Document | SourceError] = {}
    known = [each for client in CLIENTS for each in locations(client, machine) if each.path == path]
    if known:
        return [_read_location(location, machine, documents) for location in known]
    folder = path.parent.parent if path.parent.name in _FOLDERS_IN_PROJECTS else path.parent
    unread = Source(None, "file", path, folder=folder)
    document = _read_once(path, documents)
    if isinstance(document, SourceError):
        return [replace(unread, problem=str(document))]
    projects = [("projects", key, "mcpServers") for key in project_keys(machine.folder)]
    found = []
    for keys in (*((key,) for key in ROOT_KEYS), *_CLIENT_BY_KEYS, *projects):
        if keys == ("mcp",) and value_at(document.value, VSCODE_SETTINGS_KEYS) is not None:
            continue
        if value_at(document.value, keys) is not None:
            client: ClientName | None = "vscode" if keys == ("servers",) else _CLIENT_BY_KEYS.get(keys)
            inner = folder
            if keys[0] == "projects":
                client, inner = "claude-code", machine.folder
            found.append(_with_servers(Source(client, "file", path, keys, inner), document))
    if not found:
        problem = (
            "has no servers: it has no `mcpServers`, `servers`, `mcp.servers`, `mcp`, `mcp_servers`, "
            "`context_servers` or `extensions`; check that it is the right file"
        )
        return [replace(unread, problem=problem)]
    return found


def source_of(location: Location, document: Document | SourceError) -> Source:
    source = Source(location.client, location.scope, location.path, location.keys, location.folder)
    if isinstance(document, SourceError):
        return replace(source, problem=str(document))
    return _with_servers(replace(source, path=document.path), document)


def _read_location(location: Location, machine: Machine, documents: dict[Path, Document | SourceError]) -> Source:
    document = _read_once(location.path, documents)
    source = source_of(location, document)
    notes: Sequence[str] = ()
    if isinstance(document, SourceError):
        return source
    if location.client == "claude-desktop":
        notes = _extension_notes(source.path)
    elif location.client == "claude-code" and location.scope == "user":
        notes = _project_notes(document.value, machine.folder)
    return replace(source, notes=(*source.notes, *notes))


def _read_once(path: Path, documents: dict[Path, Document | SourceError]) -> Document | SourceError:
    if path not in documents:
        try:
            documents[path] = read_file(path)
        except SourceError as error:
            documents[path] = error
    return documents[path]


def _with_servers(source: Source, document: Document) -> Source:
    inner = document.value
    if not isinstance(inner, dict):
        return replace(source, problem=f"holds {describe(inner, secret=True)}; expected an object")
    for depth, key in enumerate(source.keys):
        inner = inner.get(key)
        if inner is None:
            return source
        if not isinstance(inner, dict):
            where = ".".join(source.keys[: depth + 1]) if source.scope != "local" else source.keys[-1]
            return replace(source, problem=f"has {describe(inner, secret=True)} as `{where}`; expected an object")
    notes = tuple(f"{name!r} is there more than once; the last one counts" for name in getattr(inner, "repeated", ()))
    inputs = value_at(document.value, (*source.keys[:-1], "inputs"))
    by_id = {
        each["id"]: each
        for each in (inputs if isinstance(inputs, list) else ())
        if isinstance(each, dict) and isinstance(each.get("id"), str)
    }
    return replace(source, servers=inner, inputs=by_id, notes=notes)


def _extension_notes(path: Path) -> Sequence[str]:
    """Return a note on servers that Claude Desktop keeps outside its file."""
    try:
        names = [each for each in os.listdir(path.parent / "Claude Extensions") if not each.startswith(".")]
    except OSError:
        return ()
    if not names:
        return ()
    count = "1 of its servers is an extension" if len(names) == 1 else f"{len(names)} of its servers are extensions"
    return (f"{count}, not in this file; they stay with it, since only it can start them",)


def _project_notes(value: Any, folder: Path) -> Sequence[str]:
    projects = value_at(value, ("projects",))
    if not isinstance(projects, dict):
        return ()
    here = project_keys(folder)
    others = [key for key, each in projects.items() if key not in here and value_at(each, ("mcpServers",))]
    if not others:
        return ()
    count = "1 other project has its" if len(others) == 1 else f"{len(others)} other projects have their"
    return (f"{count} own servers in this file; import in the folder of a project to take them too",)
