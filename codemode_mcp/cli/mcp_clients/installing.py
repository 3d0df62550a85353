"""Installation of this server in the file of a client, with the client's servers moved behind it.

A plan lists every change and writes nothing. `carry_out` then changes all files or none.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.cli.mcp_clients import importing, install_records
from codemode_mcp.cli.mcp_clients.client_files import Change, read_file
from codemode_mcp.cli.mcp_clients.dialects import common_form
from codemode_mcp.cli.mcp_clients.entries import is_this_server, string_args
from codemode_mcp.cli.mcp_clients.json_values import map_strings, strings_in
from codemode_mcp.cli.mcp_clients.launch import PRIVATE
from codemode_mcp.cli.mcp_clients.locations import TITLES
from codemode_mcp.cli.mcp_clients.own_entries import new_entry
from codemode_mcp.cli.mcp_clients.reading import source_of
from codemode_mcp.config.edit import ChangedMeanwhileError
from codemode_mcp.config.formats import member_text, with_members
from codemode_mcp.config.source import SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from codemode_mcp.cli.mcp_clients.client_files import Document
    from codemode_mcp.cli.mcp_clients.install_records import InstallRecord
    from codemode_mcp.cli.mcp_clients.launch import Launch
    from codemode_mcp.cli.mcp_clients.locations import ClientName, Location, Machine
    from codemode_mcp.cli.mcp_clients.reading import Source

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
        source = replace(source, servers=map_strings(dict(source.servers), _optional))
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
    return replace(found, items=items)


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
        required = _REQUIRED.findall("\n".join(strings_in(found.shown[item.our_name])))
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
    record_file = install_records.record_file(records, plan.path, plan.location.keys)
    last: InstallRecord | None = None
    new: InstallRecord | None = None

    def record(backup: Path | None) -> None:
        nonlocal last, new
        last = install_records.read(record_file)
        new = install_records.next_record(last, change, plan.name, backup, plan.moved, str(plan.config))
        install_records.write(record_file, new)

    our_backup = None
    is_ours_written = False
    try:
        with install_records.locked(records):
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
                        if new is not None and install_records.read(record_file) == new:
                            install_records.write(record_file, last)
                raise
    except OSError as error:
        where = error.filename or plan.path
        raise RefusedError(f"{where} cannot be written: {error.strerror}; nothing was changed") from None
