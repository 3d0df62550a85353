"""Removal of an installation from a client's file. `plan_undo` plans the change, and `undo` carries it out."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codemode_mcp.cli.mcp_clients import install_records
from codemode_mcp.cli.mcp_clients.client_files import BYTE_ORDER_MARK, Change, Document, read_bytes
from codemode_mcp.cli.mcp_clients.dialects import common_form
from codemode_mcp.cli.mcp_clients.entries import is_this_server, string_args
from codemode_mcp.cli.mcp_clients.installing import RefusedError, read_document
from codemode_mcp.cli.mcp_clients.reading import source_of
from codemode_mcp.config.edit import ChangedMeanwhileError
from codemode_mcp.config.formats import with_members
from codemode_mcp.config.source import SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from codemode_mcp.cli.mcp_clients.install_records import InstallRecord
    from codemode_mcp.cli.mcp_clients.locations import Location


@dataclass(frozen=True, slots=True)
class UndoPlan:
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
    record = install_records.read(install_records.record_file(records, document.path, location.keys))
    servers = source_of(location, document).servers
    own = tuple(name for name, entry in servers.items() if is_this_server(entry, location.client))
    if (document.data is None and (record is None or not record.moved)) or (not own and record is None):
        return UndoPlan(None)
    if record is not None and document.data is not None:
        is_unchanged = record.unbroken and install_records.digest(document.data) == record.after
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
    if install_records.digest(origin) != record.origin_digest:
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
        with install_records.locked(records):
            if change is not None and plan.removes_file:
                if change.path.exists() and change.path.read_bytes() != change.before:
                    raise ChangedMeanwhileError
                change.path.unlink(missing_ok=True)
            elif change is not None:
                backup = change.write()
            install_records.write(install_records.record_file(records, path, location.keys), None)
    except OSError as error:
        raise RefusedError(f"{path} could not be written: {error.strerror}; nothing was changed") from None
    return backup


def restore_command(path: Path, backup: Path | None, *, windows: bool) -> str:
    """Return the shell command that restores the previous file."""
    if windows:
        return f'copy /Y "{backup}" "{path}"' if backup is not None else f'del "{path}"'
    quoted = shlex.quote(str(path))
    return f"cp -p {shlex.quote(str(backup))} {quoted}" if backup is not None else f"rm {quoted}"
