"""The pins and the lock file of a configuration, and a person's decisions, for `codemode-mcp trust`.

Everything comes from files. No server is started, no variable is expanded, and no program of the configuration runs, so
that a person can decide in a shell that has none of the variables of a client. A serving process sees a decision within
two seconds, because it watches the files.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from msgspec import Struct

from codemode_mcp.base.display import counted, plain
from codemode_mcp.cli.messages import say_line, stop, stop_line, suggestion
from codemode_mcp.rules.trust import pins_file
from codemode_mcp.rules.trust.comparison import Acceptance, Listing, Mode, ServerPins, Stale, accept, compare, reject
from codemode_mcp.rules.trust.findings import new_findings, tools_of_others
from codemode_mcp.rules.trust.items import (
    ENTRY_KEY,
    SERVER_KEY,
    Finding,
    Item,
    Kind,
    entry_item,
    is_api,
    items_of,
    parse_reference,
    reference,
)
from codemode_mcp.rules.trust.text_diff import differences_of
from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from codemode_mcp.audit import Auditor
    from codemode_mcp.config import Config
    from codemode_mcp.rules.trust.comparison import ItemReport, Status
    from codemode_mcp.rules.trust.items import Key
    from upstream_clients.tools import JsonObject, UpstreamView


Verb = Literal["accept", "reject"]

PERSON: Final = "a person at a terminal"


@dataclass(frozen=True)
class PinnedServer:
    """One server of the configuration.

    Attributes:
        pins: empty if no listing of the server was seen yet.
        folder: the files with the pins.
        other_tools: the names of the tools of other servers.
    """

    name: str
    mode: Mode
    pins: ServerPins
    folder: pins_file.PinsFolder
    other_tools: frozenset[str] = frozenset()

    @cached_property
    def reports(self) -> tuple[ItemReport, ...]:
        return compare(self.pins, self.pins.present, self.mode) if self.is_listed else ()

    @cached_property
    def _is_api(self) -> bool:
        return is_api(self.reports)

    @property
    def differing(self) -> list[ItemReport]:
        return [report for report in self.reports if report.status != "accepted"]

    def findings(self, report: ItemReport) -> tuple[Finding, ...]:
        return new_findings(report, self.other_tools, is_api=self._is_api)

    @property
    def is_listed(self) -> bool:
        """True if its present listing is known. Listings of servers with `follow` are not recorded."""
        return bool(self.pins.present.complete) and self.mode != "follow"


@dataclass(frozen=True)
class PinnedItems:
    """The items that a command is about.

    Attributes:
        servers: the servers, with their reports.
        named: the reports of a single item that the person has named; None for whole servers.
        problems: sentences about pins that cannot be read.
        config: the path of the configuration file; None for the defaults.
    """

    servers: Sequence[PinnedServer]
    named: Sequence[ItemReport] | None
    problems: Sequence[str]
    config: Path | None

    def reports_of(self, server: PinnedServer) -> Sequence[ItemReport]:
        """Return the named item, or all items of a server that differ."""
        return server.differing if self.named is None else self.named

    def choosable(self, server: PinnedServer, verb: Verb) -> list[ItemReport]:
        """Return the items that can be accepted or rejected.

        An item that was rejected is only accepted by its name, and one that was accepted is only rejected by it. An
        item whose definition cannot be shown cannot be accepted.
        """
        statuses = {"text_changed", "changed", "new"} | ({"removed"} if verb == "accept" else set())
        if self.named is not None:
            statuses.add("rejected" if verb == "accept" else "accepted")
        return [
            report
            for report in self.reports_of(server)
            if report.status in statuses
            and report.is_comparable
            and (verb == "reject" or differences_of(report) is not None)
        ]


def find_items(config: str | None, item: str | None) -> PinnedItems:
    """Return the pins of all servers, of one server, or of one item. End the command for an unknown name.

    Args:
        config: the value of `--config`.
        item: a name of a server or of an item, as `references.reference` writes it; None for all servers.
    """
    path, modes = read_modes(config)
    if not modes:
        say_line("no server is configured: see codemode-mcp import and add, or name a configuration with --config")
    folder = pins_file.PinsFolder(pins_folder(), path)
    selected = None if item is None else parse_reference(item, modes)
    if item is not None and selected is None:
        stop(2, f"there is no server for {plain(item)!r}; {suggestion(item.partition('.')[0], modes)}")
    loaded: dict[str, ServerPins] = {}
    problems = []
    for name in modes:
        try:
            loaded[name] = folder.load(name) or ServerPins(name)
        except pins_file.PinsUnavailable as error:
            problems.append(str(error))
    listed = [(name, tuple(pins.present.items)) for name, pins in loaded.items()]
    servers = [
        PinnedServer(name, modes[name], pins, folder, tools_of_others(name, listed))
        for name, pins in loaded.items()
        if selected is None or selected[0] == name
    ]
    if selected is None or selected[1] is None or not servers:
        return PinnedItems(servers, None, problems, path)
    named = [report for report in servers[0].reports if item in _spellings(report)]
    if not named:
        server = servers[0]
        if not server.is_listed:
            stop_line(2, not_listed(server))
        start = len(server.name) + 1
        known = [reference(server.name, report.kind, report.name)[start:] for report in server.reports]
        name = (item or "")[start:]
        stop_line(2, f"{server.name} does not list {name!r}; {suggestion(name, known)}")
    return PinnedItems(servers, named, problems, path)


def _spellings(report: ItemReport) -> set[str]:
    """Return the names of an item: as it is, and with the escapes that commands and messages show."""
    name = reference(report.server, report.kind, report.name)
    escaped = reference(report.server, report.kind, escape_line(report.name))
    return {name, plain(name), escaped, f"{report.server}.{report.kind}s/{report.name}"}


def decide(server: PinnedServer, verb: Verb, reports: Collection[ItemReport], config: Path | None) -> None:
    """Store a person's decision about exactly these definitions. End the command if one of them has changed.

    Args:
        config: the path of the configuration file. If no process serves it, the decision is recorded here.
    """
    choices = {}
    for report in reports:
        shown = report.accepted if report.present is None else report.present
        assert shown is not None  # an item is accepted or present
        choices[report.kind, report.name] = shown.digest

    before = ServerPins(server.name)

    def change(pins: ServerPins | None) -> ServerPins:
        nonlocal before
        before = pins = pins or before
        return accept(pins, choices, PERSON, time.time()) if verb == "accept" else reject(pins, choices, PERSON)

    try:
        after = server.folder.update(server.name, change)
    except (Stale, pins_file.PinsUnavailable) as error:
        stop_line(1, f"nothing of {server.name} was {verb}ed: {error}")
    if config is not None:
        _record(config, before, after)


def _record(config: Path, before: ServerPins, after: ServerPins) -> None:
    """Write decisions to the trajectory, as a serving process does that sees the changed file."""
    from codemode_mcp.cli.serving_processes import ask_processes
    from codemode_mcp.rules.trust.service import record_decisions
    from codemode_mcp.server.control.protocol import Request

    with recorded(config) as auditor:
        if auditor is not None and not ask_processes(Request("list"), str(config)).answers:
            record_decisions(auditor, before, after)


@contextmanager
def recorded(config: Path) -> Iterator[Auditor | None]:
    """Yield the reporter of events to the trajectory of a configuration; None if it has none."""
    from codemode_mcp.audit import Auditor, Redactor
    from codemode_mcp.audit.listeners import recording
    from codemode_mcp.base.errors import ConfigError
    from codemode_mcp.config.load import load_audit

    try:
        settings = load_audit(config)
    except ConfigError as error:
        say_line(f"this decision is not in the trajectory: {error}")
        yield None
        return
    if settings.trajectory is None:
        yield None
        return
    auditor = Auditor()
    with recording(settings, auditor, Redactor()):
        yield auditor


def not_listed(server: PinnedServer) -> str:
    if server.mode == "follow":
        return f"nothing is recorded of {server.name}, since its trust is follow"
    return f"{server.name} was not listed yet; codemode-mcp tools --server {server.name} connects to it"


def read_modes(config: str | None) -> tuple[Path | None, Mapping[str, Mode]]:
    from codemode_mcp.base.errors import ConfigError
    from codemode_mcp.cli.deciding import find
    from codemode_mcp.config.servers import ROOT_KEYS
    from codemode_mcp.config.source import SourceError, parse, read_text

    try:
        path = find(config, lambda _: None)
        value: Any = {} if path is None else parse(read_text(path))
    except (ConfigError, SourceError) as error:
        stop(2, f"invalid_config: {error}")
    modes: dict[str, Mode] = {}
    for table in (value.get(key) if isinstance(value, dict) else None for key in ROOT_KEYS):
        for name, entry in table.items() if isinstance(table, dict) else ():
            mode = entry.get("trust") if isinstance(entry, dict) else None
            # An unknown mode is an error where the configuration is loaded.
            modes[name] = next((each for each in get_args(Mode) if each == mode), "pin")
    return path, modes


def pins_folder() -> Path:
    from codemode_mcp.base.paths import state_dir

    return state_dir() / "pins"


# The lock file of a configuration, for `codemode-mcp trust lock` and `codemode-mcp trust check`.


CONNECT_SECONDS: Final = 30.0
"""Timeout for connecting servers and for their lists of prompts and resource templates."""


class Difference(Struct, frozen=True):
    """One difference between the lock file and what servers list.

    Attributes:
        name: the name of the server or item, as a person types it.
        status: `unlocked`: the server is not in the lock file. `unconfigured`: it is only in the lock file.
            `unreachable`: it could not be compared.
        detail: more about `unreachable`.
    """

    name: str
    status: Status | Literal["unlocked", "unconfigured", "unreachable"]
    detail: str = ""

    def to_json(self) -> dict[str, str]:
        return {"name": self.name, "status": self.status, "detail": self.detail}


def path_of(config: Path | None) -> Path:
    """Return the path of the lock file. End the command if there is no configuration file."""
    if config is None:
        stop_line(2, "a lock file stands beside a configuration file, and there is none; name one with --config FILE")
    return pins_file.lock_path(config)


def lock_of(found: PinnedItems) -> tuple[pins_file.LockFile, list[str], list[str]]:
    """Return the lock file for all accepted items, sentences about what is missing in it, and about what is held."""
    servers: dict[str, Mapping[Key, Item]] = {}
    missing, held = [], []
    for server in found.servers:
        accepted = server.pins.accepted
        items = {key: each.item for key, each in accepted.items() if key in server.pins.present.items}
        if not server.is_listed:
            missing.append(f"{not_listed(server)}; it is not in the lock file")
        elif SERVER_KEY not in items:
            missing.append(
                f"{server.name} is not in the lock file: its own texts are held; accept them with codemode-mcp trust "
                f"accept {server.name}"
            )
        elif any(item.definition is None for item in items.values()):
            missing.append(
                f"{server.name} is not in the lock file: one of its definitions quotes a secret or is too large"
            )
        else:
            servers[server.name] = items
            count = sum(report.held for report in server.reports)
            if count:
                held.append(
                    f"{counted(count, 'item')} of {server.name} held: the lock file has only what was accepted; look "
                    f"with codemode-mcp trust diff {server.name}"
                )
    folder = pins_file.PinsFolder(pins_folder(), found.config)
    names = folder.server_names([server.name for server in found.servers])
    return (
        pins_file.LockFile(servers, names, {server.name: server.pins.names for server in found.servers}),
        missing,
        held,
    )


def check_servers(config: str | None) -> tuple[Path, list[Difference]]:
    """Connect all servers, and return the path of the lock file, and the differences. End the command without one."""
    import anyio

    from codemode_mcp.cli.loading import load, logging_of, plugins_on_stderr

    loaded = load(config, "warning", None)
    path = path_of(loaded.path)
    try:
        lock = pins_file.read_lock_file(path)
    except pins_file.LockFileError as error:
        stop_line(2, error.problems[0])
    with logging_of(loaded, level="error"), plugins_on_stderr():
        views = anyio.run(_views_of, loaded)
    return path, list(_differences(lock, views, loaded.written))


async def _views_of(config: Config) -> list[UpstreamView]:
    from codemode_mcp.process.app.app import open_app

    async with open_app(config) as opened:
        pool = await opened.pool()
        await pool.wait_listed([spec.name for spec in config.upstreams], CONNECT_SECONDS)
        return list(pool.views())


def _differences(
    lock: pins_file.LockFile, views: list[UpstreamView], written: Mapping[str, JsonObject]
) -> Iterator[Difference]:
    configured = {view.name for view in views}
    for name in lock.servers:
        if name not in configured:
            yield Difference(name, "unconfigured")
    for view in views:
        locked = lock.servers.get(view.name)
        complete = _complete(view)
        if locked is None:
            yield Difference(view.name, "unlocked")
        elif view.state != "ready" or complete != pins_file.KINDS - {ENTRY_KEY[0]}:
            failed = (problem for problem in view.problems if problem.startswith(("prompts/", "resources/")))
            yield Difference(view.name, "unreachable", view.error or next(failed, "it has not answered in time"))
        else:
            pins = ServerPins(view.name, {key: Acceptance(item) for key, item in locked.items()})
            entry = entry_item(written.get(view.name)) if ENTRY_KEY in locked else None
            for report in compare(pins, Listing(items_of(view, entry), complete), "strict"):
                if report.status != "accepted":
                    yield Difference(reference(report.server, report.kind, report.name), report.status)


def _complete(view: UpstreamView) -> frozenset[Kind]:
    kinds: set[Kind] = {"server", "tool"}
    if view.prompt_list is not None or not view.prompts:
        kinds.add("prompt")
    if view.template_list is not None or not view.resources:
        kinds.add("template")
    return frozenset(kinds)
