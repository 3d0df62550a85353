"""Installation of this server in the file of a client, its record, and its removal.

A plan lists every change and writes nothing. `carry_out` then changes all files or none.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import sys
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct, structs
from msgspec.structs import asdict

from codemode_mcp.config.edit import ChangedMeanwhileError
from codemode_mcp.config.source import SourceError
from codemode_mcp.extensions.setup.mcp_clients import importing
from codemode_mcp.extensions.setup.mcp_clients.client_files import (
    BYTE_ORDER_MARK,
    Change,
    Document,
    read_bytes,
    read_file,
    source_of,
)
from codemode_mcp.extensions.setup.mcp_clients.dialects import common_form
from codemode_mcp.extensions.setup.mcp_clients.entries import is_this_server, string_args
from codemode_mcp.extensions.setup.mcp_clients.formats import member_text, with_members
from codemode_mcp.extensions.setup.mcp_clients.launch import PRIVATE, Launch
from codemode_mcp.extensions.setup.mcp_clients.locations import TITLES, ClientName, Location, Machine
from codemode_mcp.extensions.setup.mcp_clients.own_entries import new_entry
from upstream_clients.json_values import map_json, values_in
from upstream_clients.private_files import make_private_folder, open_private

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from codemode_mcp.extensions.setup.mcp_clients.client_files import Source


NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Names of servers that every client accepts."""

_REQUIRED: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_()]*)\}")
"""A reference to a variable without a default."""

_INHERITED: Final = frozenset(
    (
        *("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"),
        *("APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PROCESSOR_ARCHITECTURE", "PROGRAMFILES", "SYSTEMDRIVE"),
        *("SYSTEMROOT", "TEMP", "USERNAME", "USERPROFILE"),
    )
)
"""Variables that every client passes on to its servers."""

_EMPTY_CONFIGURATION: Final = '{\n  "mcpServers": {}\n}\n'


class RefusedError(Exception):
    """A refusal; nothing was changed. The message gives the file, the reason and the next step, and no secret."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The effects of an installation.

    Attributes:
        path: the client's file, behind symbolic links.
        change: the change of the client's file; None if the file needs no change.
        config: the path of our configuration, which the new entry names.
        config_change: the change of our configuration, if any.
        name: the name of the new entry.
        entry: the new entry.
        replaced: names of other entries that start this server, which are removed.
        moved: names of the servers that are moved behind this one.
        refused: the reasons why servers stay with the client although a move was requested, by the server's name.
        kept: names of the servers that the client still starts.
        both: names of the servers in `kept` that this server starts too.
        passed: names of the variables that the client passes on to this server.
        notes: pairs of a moved server's name and a remark on it.
        unmovable: names of the servers that only the client can start.
    """

    location: Location
    path: Path
    change: Change | None
    config: Path
    config_change: Change | None
    name: str
    entry: Mapping[str, Any] = field(repr=False)
    replaced: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    both: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()
    unmovable: tuple[str, ...] = ()

    @property
    def is_private(self) -> bool:
        """True if the new entry starts a server process that only this client uses."""
        return PRIVATE in string_args(common_form(self.location.client, self.entry)[0])

    @property
    def shown(self) -> str:
        """The new entry as text of the file, without values that may be secret."""
        visible = {key: value for key, value in self.entry.items() if key not in ("env", "envs", "environment")}
        return member_text(self.location.format, self.location.keys, self.name, visible)


def read_document(location: Location, path: Path | None = None) -> Document:
    """Read the file at a location, behind symbolic links. Use `empty_text` for a missing or blank file.

    Args:
        path: a backup to read instead.

    Raises:
        RefusedError: the file cannot be read.
    """
    path = Path(os.path.realpath(path or location.path))
    try:
        document = read_file(path, location.format, empty=location.empty_text)
        if not isinstance(document.value, dict):
            raise SourceError("does not contain an object")
    except SourceError as error:
        raise RefusedError(f"{path} {error}; correct it first, nothing was changed") from None
    return document


def plan(
    location: Location, document: Document, name: str, launch: Launch, config: Path, machine: Machine, *, move: bool
) -> Plan:
    """Plan an installation. Read our configuration, and write nothing.

    Args:
        name: the name of the new entry.
        config: our configuration. It need not exist if servers are moved into it.
        move: whether to move the client's servers behind this one.

    Raises:
        RefusedError: this server cannot be installed there.
    """
    source = source_of(location, document)
    servers = source.servers
    own = [each for each, entry in servers.items() if is_this_server(entry, location.client)]
    incoming = _plan_import(source, config, machine, move=move)
    moved = tuple(item.name for item in incoming.of_status("new", "there", "same")) if move else ()
    left_out = incoming.of_status("left out")
    if name in servers and name not in own and name not in moved:
        raise RefusedError(
            f"{document.path} has another server called {name!r}; give this one another name, as in --name {name}-2"
        )
    old = servers[name if name in own else own[0]] if own else None
    passed = _passed(location.client, incoming.references) if move else {}
    entry = new_entry(location.client, launch, str(config), old, name, passed)
    replaced = tuple(each for each in own if each != name)
    kept = tuple(each for each in servers if each not in own and each not in moved)
    try:
        removed = (*replaced, *(each for each in moved if each != name))
        text = with_members(location.format, document.text, location.keys, {name: entry}, removed)
    except SourceError as error:
        raise RefusedError(f"{document.path} {error}") from None
    config_change = incoming.change if move else None
    if move and config_change is None and not os.path.lexists(config):
        # Our entry names this file, and this server does not start without it.
        config_change = Change(Path(os.path.realpath(config)), None, _EMPTY_CONFIGURATION)
    return Plan(
        location,
        document.path,
        document.change_to(text, private=location.scope != "project")
        if document.data is None or text != document.text
        else None,
        config,
        config_change,
        name,
        entry,
        replaced=replaced,
        moved=moved,
        refused={item.name: item.reason for item in left_out} if move else {},
        kept=kept,
        both=tuple(item.name for item in incoming.of_status("there") if item.name in kept),
        passed=tuple(passed),
        notes=tuple((item.name, note) for item in incoming.items if item.name in moved for note in _notes(item)),
        unmovable=tuple(item.name for item in left_out),
    )


def _notes(item: importing.Item) -> tuple[str, ...]:
    if item.status in ("there", "same") and item.our_name != item.name:
        return (f"it is the same server as {item.our_name!r}, and is there once", *item.notes)
    return item.notes


def _plan_import(source: Source, config: Path, machine: Machine, *, move: bool) -> importing.Plan:
    """Plan an import of the client's servers, without those that could not start behind this server."""
    if move and source.client == "claude-code":
        # Other clients also use our configuration, and do not pass on the variables of Claude Code.
        source = replace(source, servers=map_json(dict(source.servers), _optional, keys=False))
    try:
        before = importing.existing_at(config)
        found = importing.make_plan([source], config, before, machine)
        if not move:
            return found
        ours = importing.servers_of(before)
        reasons = {**_without_variables(source, found, machine), **_disabled_here(found, source, ours)}
        if not reasons:
            return found
        rest = {name: entry for name, entry in source.servers.items() if name not in reasons}
        found = importing.make_plan([replace(source, servers=rest)], config, before, machine)
    except SourceError as error:
        raise RefusedError(f"{config} {error}; nothing was changed") from None
    items = (*found.items, *(importing.Item(0, name, "left out", reason=reason) for name, reason in reasons.items()))
    return structs.replace(found, items=items)


def _optional(text: str) -> str:
    """Give each required variable an empty default, except those in `_INHERITED`."""
    return _REQUIRED.sub(lambda match: match[0] if match[1] in _INHERITED else f"${{{match[1]}:-}}", text)


def _without_variables(source: Source, found: importing.Plan, machine: Machine) -> dict[str, str]:
    """Return the servers that require a variable that would be unset, with the reason why they stay with the client.

    If one of them were moved, it would be disabled here.
    """
    assert source.client is not None
    known = {
        name
        for name, value in machine.environ.items()
        if value and (source.client != "claude-desktop" or name in _INHERITED)
    } | {*_passed(source.client, found.references)}
    reasons: dict[str, str] = {}
    for item in found.of_status("new"):
        texts = [each for each in values_in(found.shown[item.our_name]) if isinstance(each, str)]
        required = _REQUIRED.findall("\n".join(texts))
        if missing := [name for name in required if name not in known]:
            reasons[item.name] = f"it needs ${missing[0]}, which {TITLES[source.client]} does not pass on"
    return reasons


def _disabled_here(found: importing.Plan, source: Source, ours: Mapping[str, Any]) -> dict[str, str]:
    """Return the servers that the client uses but our configuration disables, with the reason why they stay."""
    return {
        item.name: f"it is disabled here: remove `disabled` from {item.our_name!r} in {found.path}"
        for item in found.of_status("there")
        if ours[item.our_name].get("disabled") is True and not source.servers[item.name].get("disabled")
    }


def _passed(client: ClientName, references: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that our entry passes on to moved servers, with the client's references as values.

    A client does not pass on all of its environment, and some references can be resolved only by the client.
    """
    if client == "claude-desktop":  # it resolves no references
        return {}
    if client == "claude-code":  # it does not start a server that refers to an unset variable
        return {name: re.sub(r"\A\$\{([^{}:]+)\}\Z", r"${\1:-}", each) for name, each in references.items()}
    return dict(references)


def carry_out(plan: Plan, records: Path) -> Path | None:
    """Write our configuration, then the client's file. Return the backup of the client's file, if there was one.

    If one of the two files cannot be written, neither is changed.

    Args:
        records: the folder for the records of installations.

    Raises:
        RefusedError: nothing was changed.
        ChangedMeanwhileError: nothing was changed, since another program has changed one of the files.
    """
    change, ours = plan.change, plan.config_change
    if change is None:
        return None
    record_file = path_of_record(records, plan.path, plan.location.keys)
    last: InstallRecord | None = None
    new: InstallRecord | None = None

    def record(backup: Path | None) -> None:
        nonlocal last, new
        last = read(record_file)
        new = next_record(last, change, plan.name, backup, plan.moved, str(plan.config))
        write(record_file, new)

    our_backup = None
    is_ours_written = False
    try:
        with locked(records):
            try:
                if ours is not None:
                    our_backup = ours.write()
                    is_ours_written = True
                # The record and our configuration are written before the client's file. If this process is killed
                # at any step, moved servers are in our configuration, and the record names their backup.
                return change.write(record)
            except BaseException as error:
                # Even after an error the client's file may have the new text, for example from another process. The
                # file then needs our configuration and the record, so they stay.
                if isinstance(error, ChangedMeanwhileError) or not change.is_written():
                    if ours is not None and is_ours_written:
                        ours.revert(our_backup)
                    with suppress(OSError):
                        # Restore the last record, unless another process has written one since.
                        if new is not None and read(record_file) == new:
                            write(record_file, last)
                raise
    except OSError as error:
        where = error.filename or plan.path
        raise RefusedError(f"{where} cannot be written: {error.strerror}; nothing was changed") from None


# Records of the changes of `install` in the files of clients, so that `--undo` can restore the files byte for byte.
#
# A record contains no server entry and no secret. It contains names and the paths of the backups with the entries.


class InstallRecord(Struct, frozen=True):
    """The installation of this server in one file of a client.

    Attributes:
        path: the client's file.
        name: the name of our entry.
        after: the SHA-256 of the file after the installation.
        origin: the backup of the file before the first of several installations in a row; None if there was no file.
            If another program has changed the file between two installations, the row begins after that change.
        origin_digest: the SHA-256 of `origin`.
        unbroken: whether no other program has changed the file between the installations.
        moved: the backup that has the entry of each server that was moved behind this one, by the server's name.
        config: our configuration, which has the moved servers now.
    """

    path: str
    name: str
    after: str
    origin: str | None
    origin_digest: str | None
    unbroken: bool
    moved: Mapping[str, str] = msgspec.field(default_factory=dict)
    config: str = ""


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def path_of_record(folder: Path, path: Path, keys: Sequence[str]) -> Path:
    return folder / f"{digest(json.dumps([str(path), *keys]).encode('utf-8', 'surrogatepass'))[:24]}.json"


def next_record(
    last: InstallRecord | None, change: Change, name: str, backup: Path | None, moved: Sequence[str], config: str
) -> InstallRecord:
    """Return the record of a location after one more installation. `last` is the record before it."""
    origin = None if backup is None else str(backup)
    origin_digest = None if change.before is None else digest(change.before)
    unbroken = True
    entries = dict.fromkeys(moved, origin) if origin is not None else {}
    if last is not None:
        if last.moved and not entries:
            config = last.config  # the configuration that has the moved servers
        entries = {**last.moved, **entries}
        unbroken = last.unbroken and origin_digest == last.after
        if origin_digest == last.after:
            origin, origin_digest = last.origin, last.origin_digest
    after = digest(change.text.encode())
    return InstallRecord(str(change.path), name, after, origin, origin_digest, unbroken, entries, config)


def read(file: Path) -> InstallRecord | None:
    """Return a record; None if it is missing or damaged."""
    try:
        with open_private(file) as opened:
            found = InstallRecord(**json.loads(opened.read()))
    except (OSError, ValueError, TypeError):
        return None
    texts = (found.path, found.name, found.after, found.config, *found.moved, *found.moved.values())
    return found if all(isinstance(each, str) for each in texts) else None


def write(file: Path, record: InstallRecord | None) -> None:
    """Replace the record in a file. Delete the file if the record is None."""
    if record is None:
        file.unlink(missing_ok=True)
        return
    make_private_folder(file.parent)
    handle, name = tempfile.mkstemp(dir=file.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as opened:
        json.dump(asdict(record), opened, indent=2)
    os.replace(name, file)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock on the files of clients and their records.

    Windows and some file systems have no such lock. There, only the checks before each step protect the files.
    """
    make_private_folder(folder)
    if sys.platform == "win32":
        yield
        return
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # the file system has no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


# Removal of an installation from a client's file. `plan_undo` plans the change, and `undo` carries it out.


class UndoPlan(Struct, frozen=True):
    """The effects of undoing an installation.

    Attributes:
        change: the change of the client's file; None if this server is not in it.
        removes_file: whether the file is deleted, because it did not exist before the installation.
        exact: whether the previous file is restored byte for byte.
        removed: names of our entries that are removed.
        restored: names of the servers that are put back.
        lost: names of moved servers whose entries no backup has. Our configuration still has these servers.
        occupied: names of moved servers that are not put back, because the client has other servers of these names.
        config: our configuration, which has the moved servers.
        recorded: whether there is a record of the servers that were moved.
    """

    change: Change | None
    removes_file: bool = False
    exact: bool = False
    removed: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    occupied: tuple[str, ...] = ()
    config: str | None = None
    recorded: bool = True


def plan_undo(location: Location, document: Document, records: Path) -> UndoPlan:
    """Plan the undoing of an installation.

    Raises:
        RefusedError: the file cannot be changed.
    """
    record = read(path_of_record(records, document.path, location.keys))
    servers = source_of(location, document).servers
    own = tuple(name for name, entry in servers.items() if is_this_server(entry, location.client))
    if (document.data is None and (record is None or not record.moved)) or (not own and record is None):
        return UndoPlan(None)
    if record is not None and document.data is not None:
        is_unchanged = record.unbroken and digest(document.data) == record.after
        if is_unchanged and record.origin is None:
            return UndoPlan(document.change_to(""), removes_file=True, exact=True, removed=own, config=record.config)
        if is_unchanged and (text := _original_text(record)) is not None:
            restored = tuple(record.moved)
            return UndoPlan(document.change_to(text), exact=True, removed=own, restored=restored, config=record.config)
    return _plan_by_entries(location, document, servers, own, record)


def _original_text(record: InstallRecord) -> str | None:
    """Return the text of the file before the installation; None if the backup is gone or changed."""
    try:
        origin = read_bytes(Path(record.origin or ""))
    except SourceError:
        return None
    if digest(origin) != record.origin_digest:
        return None
    return origin.decode().removeprefix(BYTE_ORDER_MARK)


def _plan_by_entries(
    location: Location,
    document: Document,
    servers: Mapping[str, Any],
    own: tuple[str, ...],
    record: InstallRecord | None,
) -> UndoPlan:
    """Plan the removal of our entry and the return of moved entries. Keep other changes since the installation."""
    back: dict[str, Any] = {}
    lost: list[str] = []
    occupied: list[str] = []
    backups: dict[str, Mapping[str, Any]] = {}
    for name, backup in (record.moved if record is not None else {}).items():
        if backup not in backups:
            backups[backup] = _entries_in(Path(backup), location)
        entries = backups[backup]
        if name in servers and name not in own:
            if servers[name] != entries.get(name):
                occupied.append(name)
        elif name in entries:
            back[name] = entries[name]
        else:
            lost.append(name)
    try:
        text = with_members(location.format, document.text, location.keys, back, own)
    except SourceError as error:
        raise RefusedError(f"{document.path} {error}") from None
    if record is not None:
        config: str | None = record.config
    else:
        words = string_args(common_form(location.client, servers[own[0]])[0])
        config = next((value for option, value in pairwise(words) if option == "--config"), None)
    return UndoPlan(
        document.change_to(text) if text != document.text else None,
        removed=own,
        restored=tuple(back),
        lost=tuple(lost),
        occupied=tuple(occupied),
        config=config,
        recorded=record is not None,
    )


def _entries_in(backup: Path, location: Location) -> Mapping[str, Any]:
    try:
        return source_of(location, read_document(location, backup)).servers
    except RefusedError:
        return {}


def undo(plan: UndoPlan, location: Location, path: Path, records: Path) -> Path | None:
    """Carry out a plan. Return the backup of the changed file.

    Args:
        path: the client's file, behind symbolic links.

    Raises:
        RefusedError: nothing was changed.
        ChangedMeanwhileError: nothing was changed, since another program has changed the file.
    """
    backup = None
    change = plan.change
    try:
        with locked(records):
            if change is not None and plan.removes_file:
                if change.path.exists() and change.path.read_bytes() != change.before:
                    raise ChangedMeanwhileError
                change.path.unlink(missing_ok=True)
            elif change is not None:
                backup = change.write()
            write(path_of_record(records, path, location.keys), None)
    except OSError as error:
        raise RefusedError(f"{path} could not be written: {error.strerror}; nothing was changed") from None
    return backup


def restore_command(path: Path, backup: Path | None, *, windows: bool) -> str:
    if windows:
        return f'copy /Y "{backup}" "{path}"' if backup is not None else f'del "{path}"'
    quoted = shlex.quote(str(path))
    return f"cp -p {shlex.quote(str(backup))} {quoted}" if backup is not None else f"rm {quoted}"
