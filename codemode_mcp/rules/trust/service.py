"""The pins of all servers of an application: what programs may see and call, and the decisions of people.

A listing is compared when its view is first seen. Its first version is accepted, and written to disk by a thread, so
that the start of a process does not wait for the disk. If the files cannot be written, the pins live in memory, and
hold changes that this process sees. If a file exists and cannot be read, everything of its server is held.

The files are watched, since a person may decide in another process.

The module is long because all its steps change the same state of a server, in the event loop: a listing that is seen, a
decision, and a file that another process has written.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, Literal

import anyio
import anyio.lowlevel
import anyio.to_thread
from msgspec import Struct, field, structs

from codemode_mcp.audit.events import Auditor, name_to_record
from codemode_mcp.rules.trust import comparison, pins_file
from codemode_mcp.rules.trust.items import ENTRY_KEY, Item, entry_item, listed_item, listed_key, reference, tool_item
from codemode_mcp.rules.trust.views import (
    UNLISTED,
    accepted_tool,
    entry_line,
    held_line,
    listing_of,
    refused_kinds,
    same_listing,
    shown_view,
    texts_line,
    why_held,
    without_secrets,
)
from upstream_clients.list_repair import without_metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from codemode_mcp.rules.trust.items import Key
    from upstream_clients.private_files import Stamp
    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.tools import JsonObject, Tool, UpstreamView

log = logging.getLogger("codemode_mcp.rules.trust")

ListedKind = Literal["prompt", "template"]

POLL_SECONDS: Final = 2.0
"""Seconds between two looks at the files. A look is one `stat` for each server."""

LAST_WRITE_SECONDS: Final = 2.0
"""Seconds to write pins at the end of the process."""

_MAX_ADMITTED: Final = 20_000
"""Maximum number of cached answers of one server. A server may change its list at any time."""

_MAX_RECORDED: Final = 200
"""Maximum number of held items of one listing that are recorded as events."""


class _Server(Struct):
    """The state of one server.

    Attributes:
        pins: None before its first listing was seen, if nothing is stored.
        stamp: the version of the file that was read or written.
        problem: the reason why the file cannot be used.
        entry: the entry in the configuration; None if it is not compared.
        view: the last view whose listing was compared, or whose tools were named.
        shown: the view that programs see in its place.
        admitted: the reasons for held tools, by the identity of the tool. The tools are kept, so that no other object
            gets the same identity.
        reported: the differences that the log has.
    """

    name: str
    mode: comparison.Mode = "pin"
    pins: comparison.ServerPins | None = None
    stamp: Stamp = None
    problem: str | None = None
    entry: Item | None = None
    loaded: bool = False
    unwritten: bool = False
    view: UpstreamView | None = None
    shown: UpstreamView | None = None
    reports: Mapping[Key, comparison.ItemReport] = field(default_factory=dict)
    admitted: dict[int, tuple[Tool, str | None]] = field(default_factory=dict)
    reported: frozenset[tuple[Key, str]] = frozenset()

    @property
    def current_pins(self) -> comparison.ServerPins:
        """The pins, with the present entry of the configuration even if no listing was compared since it changed."""
        return comparison.with_entry(self.pins or comparison.ServerPins(self.name), self.entry)

    def forget_comparison(self) -> None:
        self.shown = None
        self.admitted = {}


class Trust:
    """The pins of an application.

    Args:
        folder: the files with the pins of its configuration; None to keep pins in memory only.
        views: returns the views of the servers, as the servers list themselves.
        on_change: called when programs may see or call something else.
        clock: Unix seconds.
        option: the end of the commands in messages, such as ` --config PATH`; empty if they need no option.
    """

    def __init__(
        self,
        folder: pins_file.PinsFolder | None,
        views: Callable[[], Iterable[UpstreamView]],
        auditor: Auditor,
        on_change: Callable[[], None],
        clock: Callable[[], float] = time.time,
        option: str = "",
    ) -> None:
        self.option = option
        self._folder = folder
        self._views = views
        self._auditor = auditor
        self._on_change = on_change
        self._clock = clock
        self._servers: dict[str, _Server] = {}
        self._specs: dict[str, UpstreamSpec] = {}
        self._locked: pins_file.LockFile | None = None
        self._warned_of_files = False
        self._enabled: Sequence[str] = ()
        self._disabled: Sequence[str] = ()
        self._server_names: dict[str, str] = {}
        """The identifiers that servers have had, since this process began to run."""
        self._present_names: Mapping[str, str] | None = None
        """Those of the present configuration; None before they are needed."""
        self._unwritten_names = False

    def apply(
        self,
        modes: Mapping[str, comparison.Mode],
        specs: Iterable[UpstreamSpec],
        locked: pins_file.LockFile | None = None,
        written: Mapping[str, JsonObject] | None = None,
        enabled: Sequence[str] = (),
        disabled: Sequence[str] = (),
    ) -> None:
        """Use this configuration from now on.

        Args:
            modes: the modes of servers; `pin` for other ones.
            locked: accepted items that replace those in the files, for servers of every mode.
            written: the entries of servers, as `config.literals` returns them. Other entries are not compared.
            enabled: the names of all enabled servers in the order of the configuration, also of those without a spec.
            disabled: the names of disabled servers.
        """
        self._specs = {spec.name: spec for spec in specs}
        self._enabled, self._disabled = tuple(dict.fromkeys((*enabled, *self._specs))), disabled
        self._present_names = None
        was_locked, self._locked = self._locked is not None, locked
        for name in self._specs:
            server = self._servers.setdefault(name, _Server(name))
            if was_locked:
                server.pins, server.loaded = None, False
            server.mode = "strict" if locked is not None else modes.get(name, "pin")
            server.entry = entry_item((written or {}).get(name))
            if locked is not None:
                items = locked.servers.get(name, {})
                if ENTRY_KEY not in items:
                    server.entry = None  # the lock file is older than entries in it
                accepted = {key: comparison.Acceptance(item, "the lock file") for key, item in items.items()}
                names = locked.tool_names.get(name, {})
                server.pins, server.loaded = (
                    comparison.with_names(comparison.ServerPins(name, accepted, baseline=pins_file.KINDS, names=names)),
                    True,
                )
            server.forget_comparison()
        for name in self._servers.keys() - self._specs.keys():
            del self._servers[name]

    def load(self) -> None:
        """Read the files of all servers. Blocks; later calls of other methods then need no disk."""
        _ = self.server_names
        for server in tuple(self._servers.values()):
            self._load(server)

    # names in programs

    @property
    def server_names(self) -> Mapping[str, str]:
        """The identifiers of all enabled servers in programs, and those that disabled servers have had."""
        if self._present_names is None:
            if self._locked is not None:
                known = self._locked.servers
                found = pins_file.names_of(self._enabled, self._disabled, self._locked.server_names, known.__contains__)
            elif self._folder is not None:
                found = self._folder.server_names(self._enabled, self._disabled, self._server_names)
            else:
                found = pins_file.names_of(self._enabled, self._disabled, self._server_names, lambda _: False)
            self._unwritten_names = found != self._server_names
            self._present_names = found
            self._server_names |= found
        return self._present_names

    def tool_names(self, server: str) -> Mapping[str, str]:
        """Return the identifiers of the tools of a server in programs, and of accepted ones that are not listed now."""
        found = self._servers.get(server)
        return {} if found is None or found.pins is None else found.pins.names

    # what programs see and call

    def trusted(self, view: UpstreamView) -> UpstreamView:
        """Return the view that programs see: without held items, and with accepted texts.

        The first listing of a server is accepted here. For the same view, the result is the same object.
        """
        server = self._servers.get(view.name)
        if server is None or not view.is_listed:
            return view
        if server.mode == "follow":
            self._name_tools(server, view)
            return view
        if server.shown is None or server.view is not view:
            if server.shown is None or server.view is None or not same_listing(server.view, view):
                self._compare(server, view)
            server.view, server.shown = view, shown_view(view, server.reports, partial(self._why_held, server))
        return server.shown

    def is_pinned(self, server: str) -> bool:
        """Return True if items of a server may be held."""
        return self._pinned(server) is not None

    def _pinned(self, server: str) -> _Server | None:
        found = self._servers.get(server)
        return None if found is None or found.mode == "follow" else found

    def admits(self, server: str, tool: Tool) -> str | None:
        """Return the reason why a tool is held, as the server lists it now; None if it may be called.

        The reason follows the name of the tool in a sentence.
        """
        if (found := self._pinned(server)) is None:
            return None
        known = found.admitted.get(id(tool))
        if known is None:
            known = self._admit(found, tool)
        return known[1]

    def admits_unlisted(self, server: str, name: str) -> str | None:
        """Return the reason why a tool that its server does not list now is held, as `admits` does.

        A server must not get a call of a rejected tool by leaving it out of its list.
        """
        if not self.is_pinned(server):
            return None
        why = self.why_server_held(server)
        if why is not None or self.has_accepted(server, ("tool", name)):
            return why
        return UNLISTED

    def why_server_held(self, server: str) -> str | None:
        """Return the reason why everything of a server is held, as `admits` does; None if not all of it is."""
        if (found := self._pinned(server)) is None:
            return None
        self._see(found)
        if found.entry is None:
            return None
        return self._why_held(found, comparison.compare_item(found.current_pins, found.entry, found.mode))

    def why_held(self, server: str, kind: ListedKind, definitions: Sequence[JsonObject]) -> list[str | None]:
        """Return the reasons why prompts or templates are held, as a process of their server lists them now.

        Args:
            definitions: as `item_list_repair` returns them. See `admits` for the results.
        """
        found = self._servers.get(server)
        reports = self._reports_listed(server, kind, definitions)
        return [None if each is None or found is None else self._why_held(found, each) for each in reports]

    def usable(self, server: str, kind: ListedKind, definitions: Sequence[JsonObject]) -> list[JsonObject]:
        """Return the definitions of prompts or templates that programs see, without held ones. See `why_held`."""
        shown = []
        for definition, report in zip(definitions, self._reports_listed(server, kind, definitions), strict=True):
            if report is None or report.usable is report.present:
                shown.append(definition)
            elif report.usable is not None and report.usable.definition is not None:
                shown.append(report.usable.definition)
        return shown

    def note_list(self, server: str, kind: ListedKind, definitions: Sequence[JsonObject]) -> None:
        """Note the whole list of prompts or templates of any process of a server, such as one for a single client.

        If the process whose lists are shown has not listed this kind yet, this list is its baseline.
        """
        if (found := self._pinned(server)) is None:
            return
        self._see(found)
        pins = found.pins or comparison.ServerPins(server)
        if kind in pins.baseline:
            return
        items = dict(pins.present.items)
        for definition in definitions:
            item = self._without_secrets(listed_item(kind, definition), server)
            items.setdefault(item.key, item)
        present = comparison.Listing(items, pins.present.complete | {kind}, self._clock())
        found.pins = comparison.baseline_of(pins, server, present, found.mode, logged_in=pins.logged_in)
        found.unwritten = found.problem is None or found.unwritten
        found.forget_comparison()

    def has_accepted(self, server: str, key: Key) -> bool:
        """Return True if an item of a server is accepted, perhaps with another definition than the present one."""
        found = self._servers.get(server)
        return found is not None and found.pins is not None and key in found.pins.accepted

    def accepted_tool(self, server: str, name: str) -> Tool | None:
        found = self._servers.get(server)
        return None if found is None or found.pins is None else accepted_tool(found.pins, name)

    def accepted_since(self, server: str) -> tuple[float, Mapping[str, float]] | None:
        """Return since when the first item and each template of a server are accepted, in Unix seconds.

        A template that its server does not list now is one of them, until a person accepts that. Return None for a
        server without pins.
        """
        found = self._pinned(server)
        if found is None or found.pins is None:
            return None
        since = dict(comparison.with_since(found.pins).since)
        return since.pop("", inf), since

    def _reports_listed(
        self, name: str, kind: ListedKind, definitions: Sequence[JsonObject]
    ) -> Sequence[comparison.ItemReport | None]:
        """Return a report for each definition; None if nothing of the server is held."""
        if (server := self._pinned(name)) is None:
            return [None] * len(definitions)
        self._see(server)
        pins = server.current_pins
        return [self._report_listed(server, pins, kind, each) for each in definitions]

    def _report_listed(
        self, server: _Server, pins: comparison.ServerPins, kind: ListedKind, definition: JsonObject
    ) -> comparison.ItemReport:
        # Digests of thousands of definitions take long, and most are as they were compared already.
        known = server.reports.get(listed_key(kind, definition))
        if known is not None and known.present is not None and known.present.definition == without_metadata(definition):
            return known
        item = self._without_secrets(listed_item(kind, definition), server.name)
        return comparison.compare_item(pins, item, server.mode)

    # what people see and decide

    def reports(self, server: str | None = None) -> tuple[comparison.ItemReport, ...]:
        """Return a report for each item of one server, or of all servers. Servers with mode `follow` have none."""
        found: list[comparison.ItemReport] = []
        for each in self._servers.values():
            if each.mode != "follow" and server in (None, each.name):
                self._see(each)
                if each.pins is not None:
                    found += comparison.compare(each.pins, each.pins.present, each.mode)
        return tuple(found)

    def problem(self, server: str) -> str | None:
        found = self._servers.get(server)
        return None if found is None else found.problem

    async def accept(self, server: str, choices: Mapping[Key, str], by: str) -> None:
        """Accept items as `comparison.accept` does.

        Raises:
            KeyError: there is no such server with pins.
            Stale: an item has another definition by now. Nothing was accepted.
            PinsUnavailable: the decision cannot be stored. Nothing was accepted.
        """
        at = self._clock()
        await self._decide(server, lambda pins: comparison.accept(pins, choices, by, at))

    async def reject(self, server: str, choices: Mapping[Key, str], by: str) -> None:
        """Reject items as `comparison.reject` does. Raises as `accept`."""
        await self._decide(server, lambda pins: comparison.reject(pins, choices, by))

    async def _decide(self, name: str, decide: Callable[[comparison.ServerPins], comparison.ServerPins]) -> None:
        server = self._servers[name]
        self._see(server)
        before = server.pins
        if before is None or self._locked is not None:
            raise KeyError(name)
        decide(before)  # raises `Stale` before anything is written

        def change(stored: comparison.ServerPins | None) -> comparison.ServerPins:
            return decide(pins_file.merge_pins(stored, before, server.mode))

        if self._folder is None:
            self._take(server, decide(before), None)
            return
        after = await anyio.to_thread.run_sync(self._folder.update, name, change)
        server.problem, server.unwritten = None, False
        self._take(server, after, self._folder.stamp(name))

    # the task

    async def run(self, change: Callable[[], anyio.Event]) -> None:
        """Compare new listings, write pins, and watch the files until cancelled.

        Args:
            change: returns an event for the next change of the servers.
        """
        try:
            while True:
                changed = change()
                for server in tuple(self._servers.values()):
                    self._see(server)
                    await anyio.lowlevel.checkpoint()
                await self._write()
                await self._poll()
                with anyio.move_on_after(POLL_SECONDS):
                    await changed.wait()
        finally:
            with anyio.move_on_after(LAST_WRITE_SECONDS, shield=True):
                await self._write()

    async def _write(self) -> None:
        if self._folder is None:
            return
        names = self.server_names
        if self._unwritten_names and self._locked is None:
            try:
                await anyio.to_thread.run_sync(self._folder.keep_names, names)
            except pins_file.PinsUnavailable as error:
                log.info("%s", error)  # with the next problem of the folder comes a warning
            self._unwritten_names = False
        for server in tuple(self._servers.values()):
            pins = server.pins
            if not server.unwritten or pins is None or self._locked is not None:
                continue
            try:
                after, stamp = await anyio.to_thread.run_sync(pins_file.store_pins, self._folder, pins, server.mode)
            except pins_file.PinsUnavailable as error:
                if not self._warned_of_files:
                    log.warning("%s; until it can be written, changes are held in this process only", error)
                self._warned_of_files = True
                continue
            if server.pins is pins:
                server.unwritten = False
                self._take(server, after, stamp)

    async def _poll(self) -> None:
        """Take over what other processes have stored."""
        if self._locked is not None or self._folder is None:
            return
        known = {each.name: each.stamp for each in self._servers.values() if each.loaded and not each.unwritten}
        for name, loaded in (await anyio.to_thread.run_sync(pins_file.load_changed_pins, self._folder, known)).items():
            server = self._servers.get(name)
            if server is not None and not server.unwritten:
                if loaded.pins is None and server.pins is not None:
                    # The file has vanished. What was accepted is still known here, and is written again.
                    server.unwritten = True
                    continue
                present = None if server.pins is None else server.pins.present
                server.problem = loaded.problem
                # What this process has seen, and not what the other one has.
                pins = (
                    loaded.pins
                    if loaded.pins is None or present is None
                    else structs.replace(loaded.pins, present=present)
                )
                self._take(server, pins, loaded.stamp)

    def _take(self, server: _Server, pins: comparison.ServerPins | None, stamp: Stamp) -> None:
        before, server.pins, server.stamp = server.pins, pins, stamp
        if _decisions(before) == _decisions(pins):
            return
        record_decisions(
            self._auditor, before or comparison.ServerPins(server.name), pins or comparison.ServerPins(server.name)
        )
        server.forget_comparison()
        self._on_change()

    # comparing

    def _see(self, server: _Server) -> None:
        for view in self._views():
            if view.name == server.name:
                self.trusted(view)

    def _load(self, server: _Server) -> None:
        if not server.loaded and self._folder is not None:
            loaded = pins_file.load_pins(self._folder, server.name)
            server.loaded, server.pins, server.stamp = True, loaded.pins, loaded.stamp
            server.problem, server.unwritten = loaded.problem, loaded.is_damaged

    def _name_tools(self, server: _Server, view: UpstreamView) -> None:
        if server.view is not None and server.view.tools is view.tools:
            return
        server.view = view
        self._load(server)
        server.problem = None
        before = server.pins or comparison.ServerPins(server.name)
        server.pins = comparison.with_listed_names(before, (tool.name for tool in view.tools))
        server.unwritten = server.unwritten or server.pins != before

    def _compare(self, server: _Server, view: UpstreamView) -> None:
        self._load(server)
        before = server.pins
        present = listing_of(view, self._secrets(view.name), before, self._clock(), server.entry)
        refused = refused_kinds(view)
        after = comparison.baseline_of(
            before, view.name, present, server.mode, logged_in=view.logged_in, refused=refused
        )
        if self._locked is not None and before is not None:
            after = structs.replace(before, present=present)
        if before is None or after != before:
            server.pins, server.unwritten = after, server.problem is None or server.unwritten
        reports = comparison.compare(after, present, server.mode)
        server.reports = {(each.kind, each.name): each for each in reports}
        server.admitted = {
            id(tool): (tool, self._why_held(server, server.reports["tool", tool.name])) for tool in view.tools
        }
        self._report_differences(server, reports)

    def _admit(self, server: _Server, tool: Tool) -> tuple[Tool, str | None]:
        self._see(server)
        known = server.admitted.get(id(tool))
        if known is None:
            # A process of the server for one client lists its own tools.
            item = self._without_secrets(tool_item(tool), server.name)
            report = comparison.compare_item(server.current_pins, item, server.mode)
            why = self._why_held(server, report)
            if len(server.admitted) >= _MAX_ADMITTED:
                server.admitted.clear()
            known = server.admitted[id(tool)] = tool, why
        return known

    def _secrets(self, server: str) -> list[str]:
        spec = self._specs.get(server)
        return [] if spec is None else spec.secret_values

    def _without_secrets(self, item: Item, server: str) -> Item:
        return without_secrets(item, self._secrets(server))

    def _why_held(self, server: _Server, report: comparison.ItemReport) -> str | None:
        """Return the end of a sentence that begins with the name of an item; None if the item is not held."""
        if not report.held:
            return None
        unreadable = server.problem is not None
        pins: Literal["unreadable", "file", "lock"]
        pins = "unreadable" if unreadable else "file" if self._locked is None else "lock"
        return why_held(report, pins, self.option)

    # reporting

    def _report_differences(self, server: _Server, reports: Sequence[comparison.ItemReport]) -> None:
        differing = [each for each in reports if each.status not in ("accepted", "removed")]
        now = {
            ((each.kind, each.name), "" if each.present is None else each.present.digest): each for each in differing
        }
        unreported = [each for key, each in now.items() if key not in server.reported]
        server.reported = frozenset(now)
        held = [each for each in unreported if each.held]
        for each in held[:_MAX_RECORDED]:
            _record(self._auditor, "item_held", each.server, (each.kind, each.name), each.present, status=each.status)
        for each in unreported:
            if each.kind == "entry":
                log.warning("%s", entry_line(each, self.option))
        held = [each for each in held if each.kind != "entry"]
        if held:
            log.warning("%s", held_line(server.name, held, locked=self._locked is not None, option=self.option))
        texts = [each for each in unreported if not each.held and each.kind != "entry"]
        if texts:
            log.warning("%s", texts_line(server.name, texts, self.option))


def record_decisions(auditor: Auditor, before: comparison.ServerPins, after: comparison.ServerPins) -> None:
    for key, each in after.accepted.items():
        was = before.accepted.get(key)
        # What was read from a file has other parts of the same item.
        if each.by and (was is None or (was.item.digest, was.at) != (each.item.digest, each.at)):
            _record(auditor, "item_accepted", after.server, key, each.item, by=each.by)
    rejected = {item.digest: (key, item) for key, item in after.present.items.items()}
    for digest, by in after.rejected.items():
        if digest not in before.rejected and digest in rejected:
            _record(auditor, "item_rejected", after.server, *rejected[digest], by=by)


def _record(
    auditor: Auditor,
    kind: Literal["item_held", "item_accepted", "item_rejected"],
    server: str,
    key: Key,
    item: Item | None,
    **fields: str,
) -> None:
    digest = None if item is None else item.digest
    auditor.emit(kind, name_to_record(reference(server, *key)), digest=digest, **fields)


def _decisions(pins: comparison.ServerPins | None) -> object:
    """Return the part of pins on which the comparison depends, apart from the present listing."""
    if pins is None:
        return None
    accepted = {key: each.item.digest for key, each in pins.accepted.items()}
    return accepted, set(pins.rejected), pins.baseline, pins.names
