"""Taking an installation in a client's file back: a plan as a value, then the change."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from codemode_mcp.cli.mcp_clients import installed
from codemode_mcp.cli.mcp_clients.dialects import shared
from codemode_mcp.cli.mcp_clients.entries import is_this_server
from codemode_mcp.cli.mcp_clients.installing import (
    BYTE_ORDER_MARK,
    Change,
    File,
    RefusedError,
    content,
    empty_for,
    read,
    servers_in,
)
from codemode_mcp.config.edit import ChangedMeanwhileError, replace_file
from codemode_mcp.config.formats import with_members
from codemode_mcp.config.source import SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from codemode_mcp.cli.mcp_clients.places import Place


@dataclass(frozen=True, slots=True)
class Undoing:
    """Changes that take an installation back.

    Attributes:
        change: None where nothing of ours is there.
        removes: whether the file goes, as it was not there before.
        whole: whether it becomes as it was before, to the byte.
        removed: names of entries of ours that go.
        restored: names of servers that come back.
        lost: names of servers whose entries cannot be found any more; our configuration has them.
        occupied: names of servers that do not come back, as there is another of the name.
        config: our configuration, which has them.
        recorded: whether it is known what was moved.
    """

    change: Change | None
    removes: bool = False
    whole: bool = False
    removed: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    occupied: tuple[str, ...] = ()
    config: str | None = None
    recorded: bool = True


def plan_undo(place: Place, file: File, records: Path) -> Undoing:
    """Plan the removal of an installation.

    Raises:
        RefusedError: it cannot be done.
    """
    known = installed.read(records, file.path, place.keys)
    servers = servers_in(file, place.keys)
    own = tuple(name for name, given in servers.items() if is_this_server(given, place.client))
    config = known.config if known is not None else None
    if (file.data is None and (known is None or not known.moved)) or (not own and known is None):
        return Undoing(None)
    if known is not None and known.unbroken and file.data is not None and installed.digest(file.data) == known.after:
        if known.origin is None:
            return Undoing(file.becoming(""), removes=True, whole=True, removed=own, config=config)
        origin = _copy(type(file.path)(known.origin))
        if origin is not None and installed.digest(origin) == known.origin_digest:
            text = origin.decode().removeprefix(BYTE_ORDER_MARK)
            return Undoing(
                file.becoming(text), whole=True, removed=own, restored=tuple(known.moved), config=config
            )  # fmt: skip
    return _piece_by_piece(place, file, own, known)


def _piece_by_piece(
    place: Place, file: File, own: tuple[str, ...], known: installed.Installed | None
) -> Undoing:  # fmt: skip
    """Take our entry out of a file that was changed since, and put the moved entries back."""
    servers = servers_in(file, place.keys)
    back: dict[str, Any] = {}
    lost: list[str] = []
    occupied: list[str] = []
    copies: dict[str, Mapping[str, Any]] = {}
    for name, copy in (known.moved if known is not None else {}).items():
        if copy not in copies:
            copies[copy] = _entries_in(type(file.path)(copy), place)
        if name in servers and name not in own:
            if servers[name] != copies[copy].get(name):
                occupied.append(name)
        elif name in copies[copy]:
            back[name] = copies[copy][name]
        else:
            lost.append(name)
    try:
        text = with_members(place.format, file.text, place.keys, back, own)
    except SourceError as error:
        raise RefusedError(f"{file.path} {error}") from None
    return Undoing(
        file.becoming(text) if text != file.text else None,
        removed=own,
        restored=tuple(back),
        lost=tuple(lost),
        occupied=tuple(occupied),
        config=known.config if known is not None else _config_of(shared(place.client, servers[own[0]])[0]),
        recorded=known is not None,
    )


def _config_of(entry: Mapping[str, Any]) -> str | None:
    """Return the configuration that an entry of ours names."""
    args = entry.get("args")
    words = [word for word in args if isinstance(word, str)] if isinstance(args, list) else []
    return next((after for word, after in pairwise(words) if word == "--config"), None)


def _copy(path: Path) -> bytes | None:
    try:
        return content(path)
    except (OSError, SourceError):
        return None


def _entries_in(path: Path, place: Place) -> Mapping[str, Any]:
    try:
        return servers_in(read(path, empty_for(place.client), place.format), place.keys)
    except RefusedError:
        return {}


def undo(undoing: Undoing, place: Place, path: Path, records: Path) -> Path | None:
    """Take an installation back; the copy of the file before.

    Raises:
        RefusedError: nothing was changed.
        ChangedMeanwhileError: nothing was changed, since another program has changed the file.
    """
    backup = None
    try:
        change = undoing.change
        with installed.alone(records):
            if change is not None and undoing.removes:
                if content(change.path) != change.before:
                    raise ChangedMeanwhileError
                change.path.unlink()
            elif change is not None:
                backup = replace_file(change.path, change.before, change.text)
            installed.forget(records, path, place.keys)
    except OSError as error:
        raise RefusedError(f"{path} could not be written: {error.strerror}; nothing was changed") from None
    return backup


def way_back(path: Path, backup: Path | None, windows: bool) -> str:
    """Return the command that puts the file before in its place."""
    import shlex

    if backup is None:
        return f'del "{path}"' if windows else f"rm {shlex.quote(str(path))}"
    if windows:
        return f'copy /Y "{backup}" "{path}"'
    return f"cp -p {shlex.quote(str(backup))} {shlex.quote(str(path))}"
