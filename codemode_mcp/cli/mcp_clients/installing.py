"""Put this server into the file of a client, move the client's servers behind it, and take all of that back.

Plans are made of what was read and say everything beforehand; carrying one out is all or nothing.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.cli.mcp_clients import importing, installed
from codemode_mcp.cli.mcp_clients.entries import is_this_server
from codemode_mcp.cli.mcp_clients.launch import entry
from codemode_mcp.cli.mcp_clients.places import TITLES
from codemode_mcp.cli.mcp_clients.reading import MAX_BYTES, Source, inputs_of
from codemode_mcp.cli.mcp_clients.secrets import mapped
from codemode_mcp.config.edit import ChangedMeanwhileError, put_back, replace_file
from codemode_mcp.config.formats import parse, with_members, written
from codemode_mcp.config.servers import ROOT_KEYS
from codemode_mcp.config.source import SourceError, text_of
from upstream_clients.private_files import make_private_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from codemode_mcp.cli.mcp_clients.launch import Launch
    from codemode_mcp.cli.mcp_clients.places import ClientName, Place
    from codemode_mcp.cli.mcp_clients.reading import Document, Here
    from codemode_mcp.config.formats import Format

NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Names of servers that every client accepts."""

_NEEDED: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_()]*)\}")
_INHERITED: Final = frozenset(
    (
        *("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"),
        *("APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PROCESSOR_ARCHITECTURE", "PROGRAMFILES", "SYSTEMDRIVE"),
        *("SYSTEMROOT", "TEMP", "USERNAME", "USERPROFILE"),
    )
)
"""Variables that servers get from every client."""

BYTE_ORDER_MARK: Final = "\ufeff"

RESTART: Final[Mapping[ClientName, str]] = {
    "claude-desktop": "quit Claude Desktop from its menu or tray icon (closing the window is not enough) and start it",
    "claude-code": "end the session and start `claude` again; `/mcp` then lists the server",
    "cursor": "in Cursor's settings under MCP switch the server on, or restart Cursor",
    "vscode": "run `MCP: List Servers` from VS Code's command palette, choose the server, and start it",
    "windsurf": "press refresh among the MCP servers of Cascade, or restart Windsurf",
    "codex": "end the session and start `codex` again; `/mcp` then lists the server",
    "gemini-cli": "end the session and start `gemini` again; `/mcp` then lists the server",
    "opencode": "end the session and start `opencode` again; `opencode mcp list` shows the server",
    "copilot-cli": "end the session and start `copilot` again; `/mcp show` then lists the server",
    "zed": "open the settings of Zed's agent panel; the dot beside the server is green when it runs",
    "goose": "end the session and start `goose session` again, or restart Goose Desktop",
    "qwen-code": "end the session and start `qwen` again; `/mcp` then lists the server",
}
"""Advice to make each client read its changed file."""

RESTART_AFTER_UNDO: Final[Mapping[ClientName, str]] = {
    **RESTART,
    "claude-code": "end the session and start `claude` again",
    "cursor": "restart Cursor",
    "vscode": "run `Developer: Reload Window` from VS Code's command palette",
    "codex": "end the session and start `codex` again",
    "gemini-cli": "end the session and start `gemini` again",
    "opencode": "end the session and start `opencode` again",
    "copilot-cli": "end the session and start `copilot` again",
    "zed": "open the settings of Zed's agent panel; they list the servers that Zed has now",
    "qwen-code": "end the session and start `qwen` again",
}
"""The same after this server is gone from the file: no text promises that it is there."""

REMARKS: Final[Mapping[ClientName, str]] = {
    "codex": (
        "`codex exec` cannot ask you and refuses this server's `exec`. To allow it, add "
        '`default_tools_approval_mode = "approve"` to the entry: Codex then asks about no call to this server. '
        "`tools.ask` of codemode-mcp still asks; `codex exec` has no one who could answer, so set "
        '`tools.approval.via` to "terminal" and approve there'
    ),
}
"""A choice that is left to the user of a client, with what it gives up."""


class RefusedError(Exception):
    """Nothing was changed. The message names the file, says why and what to do, and holds no secret."""


@dataclass(frozen=True, slots=True)
class Change:
    """A file and the text that it gets.

    Attributes:
        before: what it holds; None where there is no file.
        private: whether a new one is for its owner alone.
        secret: whether one that is there has to be, too.
    """

    path: Path
    before: bytes | None = field(repr=False)
    text: str = field(repr=False)
    private: bool = True
    secret: bool = False


@dataclass(frozen=True, slots=True)
class File:
    """A file as it was read; one that is not there, or has nothing in it, reads as an empty object.

    Attributes:
        path: behind symbolic links.
        data: None where there is no file.
    """

    path: Path
    data: bytes | None = field(repr=False)
    text: str = field(repr=False)
    value: Any = field(repr=False)

    def becoming(self, text: str, *, private: bool = True) -> Change:
        """Return the change to `text`, which begins with a byte order mark if the file does."""
        mark = self.data is not None and self.data.startswith(BYTE_ORDER_MARK.encode())
        return Change(self.path, self.data, (BYTE_ORDER_MARK if mark else "") + text, private)


@dataclass(frozen=True, slots=True)
class Plan:
    """Changes to a client's file.

    Attributes:
        change: None where everything is as it should be.
        config: the change of our configuration; None for none.
        name: of our entry.
        entry: ours.
        replaced: names of entries that are this server too, which go.
        moved: the names of servers that go behind this one.
        left: those that were to go but stay with the client, and why.
        kept: the names of servers that the client still starts.
        both: those among them that this server starts too.
        handed: the variables that the client hands on to us.
        notes: what is different for servers that were moved, by their names.
        starts_with: the configuration that our entry names.
        unmovable: names of servers that only the client can start.
    """

    place: Place
    path: Path
    change: Change | None
    config: Change | None
    name: str
    entry: Mapping[str, Any] = field(repr=False)
    replaced: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    left: Mapping[str, str] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    both: tuple[str, ...] = ()
    handed: tuple[str, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()
    starts_with: str = ""
    unmovable: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """Our entry as the file has it, without values that may be secret."""
        kept = {key: value for key, value in self.entry.items() if key not in ("env", "envs", "environment")}
        return written(self.place.format, self.place.keys, self.name, kept)


def read(path: Path, empty: str = "{}\n", kind: Format = "json") -> File:
    """Return the file at `path`, which need not be there.

    Args:
        empty: the text that is begun with where there is none.

    Raises:
        RefusedError: it cannot be read as this format.
    """
    path = type(path)(os.path.realpath(path))
    try:
        data = content(path)
        text = empty if data is None else text_of(data)
        text = text if text.strip() else empty
        value = parse(kind, text)
        if not isinstance(value, dict):
            raise SourceError("does not hold an object")
    except OSError as error:
        raise RefusedError(f"{path} cannot be read: {error.strerror}") from None
    except SourceError as error:
        raise RefusedError(f"{path} {error}; correct it first, nothing was changed") from None
    return File(path, data, text, value)


def content(path: Path) -> bytes | None:
    if not os.path.lexists(path):
        return None
    if not path.is_file():  # a pipe may never end
        raise SourceError("is no ordinary file")
    with open(path, "rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise SourceError(f"is larger than {MAX_BYTES // 1024 // 1024} MiB")
    return data


def empty_for(client: ClientName) -> str:
    """Return the text of a new file of this client."""
    match client:
        case "vscode":
            return '{\n\t"servers": {}\n}\n'
        case "codex" | "goose":
            return ""
        case "opencode":
            return '{\n  "$schema": "https://opencode.ai/config.json",\n  "mcp": {}\n}\n'
        case "zed":
            return '{\n  "context_servers": {}\n}\n'
    return '{\n  "mcpServers": {}\n}\n'


# to install


def plan(
    place: Place, file: File, name: str, launched: Launch, config: Path, here: Here, *, move: bool
) -> Plan:  # fmt: skip
    """Plan an installation. Reads our configuration, writes nothing.

    Args:
        config: our configuration, which need not be there if servers are moved into it.

    Raises:
        RefusedError: it cannot be done.
    """
    servers = servers_in(file, place.keys)
    own = [each for each, given in servers.items() if is_this_server(given, place.client)]
    incoming = _incoming(place, file, config, here, move=move)
    moved = tuple(incoming.taken) if move else ()
    if name in servers and name not in own and name not in moved:
        raise RefusedError(
            f"{file.path} has another server called {name!r}; give this one another name, as in --name {name}-2"
        )
    old = servers[name if name in own else own[0]] if own else None
    handed = _handed(place.client, incoming.references) if move else {}
    made = entry(place.client, launched, str(config), old, name, handed)
    replaced = tuple(each for each in own if each != name)
    gone = (*replaced, *(each for each in moved if each != name))
    try:
        text = with_members(place.format, file.text, place.keys, {name: made}, gone)
    except SourceError as error:
        raise RefusedError(f"{file.path} {error}") from None
    kept = tuple(each for each in servers if each not in own and each not in moved)
    change = file.becoming(text, private=place.scope != "project")
    ours = None
    # Without a file the server would not start.
    our_text = incoming.text or (empty_for("cursor") if incoming.before is None else None)
    if move and our_text is not None:
        before = incoming.before
        ours = Change(type(file.path)(os.path.realpath(config)), before, our_text, secret=incoming.private)
    return Plan(
        place,
        file.path,
        change if file.data is None or text != file.text else None,
        ours,
        name,
        made,
        replaced=replaced,
        moved=moved,
        left=incoming.left if move else {},
        kept=kept,
        both=tuple(item.name for item in incoming.items if item.status == "there" and item.name in kept),
        handed=tuple(handed),
        notes=tuple((item.name, note) for item in incoming.items if item.name in moved for note in _notes(item)),
        starts_with=str(config),
        unmovable=tuple(item.name for item in incoming.items if item.status == "left out"),
    )


def _notes(item: importing.Item) -> tuple[str, ...]:
    if item.status in ("there", "same") and item.under != item.name:
        return (f"it is the same server as {item.under!r}, and is there once", *item.notes)
    return item.notes


def servers_in(file: File, keys: Sequence[str]) -> Mapping[str, Any]:
    found = _at(file.value, keys)
    return found if isinstance(found, dict) else {}


def _incoming(place: Place, file: File, config: Path, here: Here, *, move: bool) -> importing.Plan:
    """Plan an import of the client's servers, without those that could not start behind us."""
    source = _source(place, file, here)
    if move and place.client == "claude-code":
        source = replace(source, servers={name: mapped(given, _optional) for name, given in source.servers.items()})
    try:
        before = importing.existing_at(config)
        found = importing.make_plan([source], config, before, here)
        if not move or not (helpless := _helpless(place.client, found, here) | _switched_off(found, source, before)):
            return found
        rest = {name: given for name, given in source.servers.items() if name not in helpless}
        found = importing.make_plan([replace(source, servers=rest)], config, before, here)
    except SourceError as error:
        raise RefusedError(f"{config} {error}; nothing was changed") from None
    items = (*found.items, *(importing.Item(0, name, "left out", reason=why) for name, why in helpless.items()))
    return replace(found, items=items)


def _optional(text: str) -> str:
    """References without a default get an empty one: other clients start this server too, and do not hand these on."""
    return _NEEDED.sub(lambda match: match[0] if match[1] in _INHERITED else f"${{{match[1]}:-}}", text)


def _source(place: Place, file: File, here: Here) -> Source:
    folder = None if place.folder is None else here.folder
    return Source(
        client=place.client,
        scope=place.scope,
        path=file.path,
        keys=place.keys,
        folder=folder,
        servers=servers_in(file, place.keys),
        inputs=inputs_of(_at(file.value, (*place.keys[:-1], "inputs"))),
    )


def _at(value: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _helpless(client: ClientName, found: importing.Plan, here: Here) -> dict[str, str]:
    """servers that need a variable that stays unset: with one of them, this server would not start at all."""
    handed = _handed(client, found.references)
    known = {each for each in here.environ if here.environ[each] and (client != "claude-desktop" or each in _INHERITED)}
    helpless: dict[str, str] = {}
    for item in found.added:
        needed = [name for name in _needs(found.shown[item.under]) if name not in handed and name not in known]
        if needed:
            helpless[item.name] = f"it needs ${needed[0]}, which {TITLES[client]} does not hand on"
    return helpless


def _switched_off(found: importing.Plan, source: Source, before: Document | None) -> dict[str, str]:
    """Servers that are in use, but that our configuration has and does not start."""
    ours = before.value if before is not None else {}
    off = {
        name
        for root in ROOT_KEYS
        for name, given in (_at(ours, (root,)) or {}).items()
        if isinstance(given, dict) and given.get("disabled") is True
    }
    return {
        item.name: f"it is switched off here: remove `disabled` from {item.under!r} in {found.path}"
        for item in found.items
        if item.status == "there" and item.under in off and not source.servers[item.name].get("disabled")
    }


def _needs(value: object) -> Iterator[str]:
    """Yield the variables without a default."""
    match value:
        case str():
            yield from _NEEDED.findall(value)
        case dict():
            for each in value.values():
                yield from _needs(each)
        case list():
            for each in value:
                yield from _needs(each)


def _handed(client: ClientName, references: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of our entry for servers behind us, in the client's own way: it alone knows some.

    Clients start servers with few of the variables that they have themselves.
    """
    if client == "claude-desktop":  # replaces nothing
        return {}
    if client == "claude-code":
        # It would not start a server of whose variables one is not set.
        return {name: re.sub(r"\A\$\{([^{}:]+)\}\Z", r"${\1:-}", said) for name, said in references.items()}
    return dict(references)


def carry_out(plan: Plan, records: Path) -> Path | None:
    """Write our configuration, then the client's file; the copy of that before. Neither, when one cannot be written.

    Args:
        records: the folder in which is kept what was done.

    Raises:
        RefusedError: nothing was changed.
        ChangedMeanwhileError: nothing was changed, since another program has changed one of the files.
    """
    change = plan.change
    if change is None:
        return None
    keys = plan.place.keys
    recorded: list[tuple[installed.Installed | None, installed.Installed]] = []

    def record(backup: Path | None) -> None:
        last = installed.read(records, plan.path, keys)
        after = change.text.encode()
        new = installed.following(
            last, plan.path, plan.name, change.before, after, backup, plan.moved, plan.starts_with
        )
        recorded.append((last, new))
        installed.write(records, plan.path, keys, new)

    try:
        with installed.alone(records):
            return _carried_out(plan.config, change, record, lambda: _unrecord(records, plan.path, keys, recorded))
    except OSError as error:
        where = error.filename or plan.path
        raise RefusedError(f"{where} cannot be written: {error.strerror}; nothing was changed") from None


def _carried_out(
    ours: Change | None, change: Change, record: Callable[[Path | None], None], unrecord: Callable[[], None]
) -> Path | None:
    copy = None
    is_done = False
    try:
        if ours is not None:
            copy = _written(ours)
            is_done = True
        # Whenever this process ends: what is moved is in ours by then, and it is known where it was.
        return _written(change, record)
    except BaseException as error:
        # Another process may have made the very same change at the same moment.
        if isinstance(error, ChangedMeanwhileError) or not _holds(change.path, change.text):
            if ours is not None and is_done:
                _taken_back(ours, copy)
            unrecord()
        raise


def _written(change: Change, first: Callable[[Path | None], None] | None = None) -> Path | None:
    if change.private:
        make_private_folder(change.path.parent)
    else:
        change.path.parent.mkdir(parents=True, exist_ok=True)
    if change.secret and change.before is not None:
        # Before there is anything to read in it; the new file gets the mode of the old one.
        change.path.chmod(0o600)
    return replace_file(change.path, change.before, change.text, private=change.private, first=first)


def _unrecord(
    records: Path,
    path: Path,
    keys: tuple[str, ...],
    recorded: Sequence[tuple[installed.Installed | None, installed.Installed]],
) -> None:
    """Restore the previous record, unless another process has written one since."""
    with suppress(OSError):
        for last, new in recorded:
            if installed.read(records, path, keys) != new:
                continue
            if last is None:
                installed.forget(records, path, keys)
            else:
                installed.write(records, path, keys, last)


def _holds(path: Path, text: str) -> bool:
    with suppress(OSError):
        return path.read_bytes() == text.encode()
    return False


def _taken_back(change: Change, backup: Path | None) -> None:
    """Restore the file, unless it was written since."""
    if not _holds(change.path, change.text):
        return
    with suppress(OSError):
        if backup is not None:
            put_back(change.path, backup)
        else:
            change.path.unlink()


# and back


# what is said
