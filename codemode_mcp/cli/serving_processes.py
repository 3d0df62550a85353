"""The serving processes of this user and their store: requests, runs and servers, as text for people."""

from __future__ import annotations

import json
import logging
import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import anyio
from msgspec import Struct

from codemode_mcp.audit.trajectory_files import deadline, size
from codemode_mcp.base.display import columns, counted, cut, plain, rough, table, wrapped
from codemode_mcp.base.errors import CodeModeError, ConfigError, StoreUnavailable
from codemode_mcp.cli.messages import say_line, stop_line
from codemode_mcp.runs.calls.outcome import MadeCall
from codemode_mcp.runs.views import made_text
from codemode_mcp.server.control import client
from codemode_mcp.server.control.protocol import ReportedRun, Request, digest_of, is_here, merge_reports, where
from declarations.untrusted_text import count_blanks

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from codemode_mcp.base.settings import StoreSettings
    from codemode_mcp.server.control.client import Answers
    from codemode_mcp.server.control.endpoints import Endpoint


def ask_processes(request: Request, config: str | None) -> Answers:
    """Return the answers of all serving processes.

    Args:
        config: only of processes that serve this configuration file.
    """
    found = anyio.run(partial(client.ask_all, request))
    answers = [each for each in found.answers if isinstance(each[1].get("server"), dict)]
    if config is not None:
        wanted = Path(config).expanduser().resolve()
        answers = [
            (endpoint, answer)
            for endpoint, answer in answers
            if (served := answer["server"]["config"]) and Path(served).resolve() == wanted
        ]
    return client.Answers(tuple(answers), found.problems)


def ask_process(endpoint: Endpoint, request: Request) -> dict[str, Any]:
    """Return the answer of one process. End the command if there is none."""
    try:
        return anyio.run(partial(client.ask, endpoint, request))
    except client.NoAnswer as error:
        stop_line(1, str(error))


# The contents of a configuration's store, for `codemode-mcp runs`, which only reads it and never creates one.


READ_SECONDS = 10.0
"""Timeout for reading a database."""


class StoreContents(Struct, frozen=True):
    """The runs in a store.

    Attributes:
        name: the name of the store; empty if there is none, or it was not read.
        runs, totals: in the form in which serving processes report them.
        problem: why the store could not be read.
    """

    name: str = ""
    runs: tuple[dict[str, Any], ...] = ()
    totals: dict[str, Any] | None = None
    problem: str | None = None


def read_store(config: str | None, known: Collection[str]) -> StoreContents:
    """Return the contents of the store that `serve` would use with this configuration.

    Args:
        known: names of stores that were reported by serving processes. They are not read.
    """
    from codemode_mcp.base.paths import state_dir
    from codemode_mcp.base.settings import StoreSettings
    from codemode_mcp.cli.deciding import find, refuse_unknown
    from codemode_mcp.config import load_store
    from codemode_mcp.config.confirmation import Gate
    from codemode_mcp.stores.opening import file_of, name_of

    gate = Gate(refuse_unknown)
    try:
        settings = load_store(find(config, gate.remember), environ=os.environ, admit=gate.admit) or StoreSettings(
            "sqlite"
        )
    except ConfigError as error:
        return StoreContents(problem=f"the store of suspended runs was not read: {error.problems[0]}")
    if settings.kind == "memory":
        return StoreContents()
    folder = state_dir()
    name = name_of(settings, folder)
    if name in known or (settings.kind == "sqlite" and not file_of(settings, folder).is_file()):
        return StoreContents()
    # Errors are part of the result. Without a handler, log records would go to the terminal.
    logging.getLogger("codemode_mcp").addHandler(logging.NullHandler())
    return anyio.run(_read, settings, name, folder)


async def _read(settings: StoreSettings, name: str, folder: Path) -> StoreContents:
    from codemode_mcp.base.settings import CodeModeSettings
    from codemode_mcp.server.control.answers import place_of_stored, run_report, store_report
    from codemode_mcp.stores.opening import open_database
    from codemode_mcp.stores.runs import DurableStore
    from codemode_mcp.stores.seal import Seal

    try:
        with anyio.fail_after(READ_SECONDS):
            async with open_database(settings, wall=time.time, folder=folder) as database:
                seal = Seal(settings.encryption_keys)
                store = DurableStore(database, seal, CodeModeSettings(), clock=time.monotonic, kind=settings.kind)
                views, totals = await store.views(), await store.totals()
    except StoreUnavailable as error:
        return StoreContents(problem=error.detail)
    except CodeModeError as error:
        return StoreContents(problem=error.message)
    except TimeoutError:
        return StoreContents(problem=f"the store {name} has not answered within {READ_SECONDS:g} s; try again")
    runs = tuple(run_report(view, place_of_stored(view), lambda _: False) for view in views)
    return StoreContents(name, runs, {"kind": settings.kind, "name": name, **store_report(totals)})


# Finds runs for `codemode-mcp runs`: in all serving processes of this user, and in the store of the configuration.


MIN_PREFIX: Final = 12
"""Minimum length of the beginning of a run's id that may stand for the whole id."""


@dataclass(frozen=True)
class Listing:
    """The runs of all processes and stores.

    Attributes:
        answers: the answers of the serving processes.
        stored: the store of the configuration, unless one of the processes has reported it.
        runs: each run once. Its source is None if only `stored` has it.
        problems: processes and stores that could not be read, and why.
    """

    answers: tuple[tuple[Endpoint, dict[str, Any]], ...]
    stored: StoreContents
    runs: list[ReportedRun[Endpoint | None]]
    problems: tuple[str, ...]

    @property
    def stores(self) -> list[dict[str, Any]]:
        """The totals of each store once."""
        by_name: dict[tuple[str, int], dict[str, Any]] = {}
        for endpoint, answer in self.answers:
            store = answer.get("store") or {}
            # The memory of each process is a store.
            by_name[store.get("name", ""), endpoint.pid if store.get("kind") == "memory" else 0] = store
        if self.stored.totals is not None:
            by_name[self.stored.name, 0] = self.stored.totals
        return list(by_name.values())


def list_all(config: str | None) -> Listing:
    """Return all runs; with a configuration, those of the processes that serve it."""
    found = ask_processes(Request("list"), config)
    answers = tuple((endpoint, answer) for endpoint, answer in found.answers if isinstance(answer.get("runs"), list))
    reported = [(endpoint, answer.get("store") or {}) for endpoint, answer in answers]
    stored = read_store(config, {str(store.get("name")) for _, store in reported if "problem" not in store})
    problems = [*found.problems]
    problems += [f"process {endpoint.pid}: {store['problem']}" for endpoint, store in reported if "problem" in store]
    if stored.problem is not None:
        problems.append(stored.problem)
    sources: list[tuple[Endpoint | None, Any]] = [(endpoint, answer["runs"]) for endpoint, answer in answers]
    return Listing(answers, stored, merge_reports([*sources, (None, stored.runs)]), tuple(problems))


def recording_folder(config: str | None) -> Path | None:
    from codemode_mcp.cli.deciding import find, refuse_unknown
    from codemode_mcp.config.confirmation import Gate
    from codemode_mcp.config.load import load_audit

    gate = Gate(refuse_unknown)
    try:
        path = find(config, gate.remember)
        settings = None if path is None else load_audit(path, admit=gate.admit)
    except ConfigError:
        return None
    return None if settings is None or settings.recordings is None else Path(settings.recordings)


def find_run(run: str, config: str | None) -> tuple[Endpoint | None, dict[str, Any]]:
    """Return a run in the form of the answer to `show`, and the process that has it or could resume it.

    The process is None for a run in a store that no process serves. End the command unless there is exactly one run.
    """
    found = list_all(config)
    matches = [each for each in found.runs if each.view["id"] == run]
    if not matches and len(run) >= MIN_PREFIX:
        matches = [each for each in found.runs if str(each.view["id"]).startswith(run)]
    if not matches:
        for problem in found.problems:
            say_line(problem)
        hint = f"; give at least {MIN_PREFIX} characters of an id" if len(run) < MIN_PREFIX else ""
        stop_line(1, f"no serving process of this user has a run {run!r}{hint}; see codemode-mcp runs list")
    if len(matches) > 1:
        names = ", ".join(sorted(str(each.view["id"]) for each in matches)[:10])
        stop_line(1, f"several runs begin with {run!r}: {names}; give more of the id")
    (match,) = matches
    if match.disputed:
        stop_line(1, f"several processes claim the run {run!r}; run the command again in a moment")
    if match.source is None:
        return None, {"server": None, "run": {**match.view, "calls": [], "waiting": [], "waitingOmitted": 0}}
    return match.source, ask_process(match.source, Request("show", str(match.view["id"])))


def stop_unserved(done: str, view: dict[str, Any]) -> NoReturn:
    """End the command because no process serves the store of a run."""
    stop_line(
        1,
        f"run {view['id']} is suspended, and no codemode-mcp serve of this user that could resume it is running; "
        f"nothing was {done}; start one with its configuration, then run this again",
    )


# The text of `codemode-mcp runs` for people.
#
# Whatever programs and servers have made up is escaped, so that none of it can pass for a line of ours.


MAX_ARGUMENTS: Final = 20_000
"""Characters of the arguments of one call that a terminal shows."""

RUN_HEAD: Final = ("RUN", "STATE", "BEGAN", "CALLS", "WAITS FOR", "PROCESS", "CALLER")
CALL_HEAD: Final = ("CALL", "TOOL", "STATUS", "AT", "TOOK", "BYTES", "SENT", "REPEATABLE", "ARGUMENTS")


def run_row(run: ReportedRun[Endpoint | None], now: float) -> tuple[str, ...]:
    view = run.view
    waits = [f"approval of {view['approvals']}"] if view["approvals"] else []
    waits += [f"answers to {view['questions']}"] if view["questions"] else []
    if waits and view["expiresMs"] is not None:
        waits.append(f"until {deadline(view['expiresMs'], now)}")
    process = "another" if where(view) == "elsewhere" else "none"
    if run.source is not None and is_here(view):
        process = str(run.source.pid)
    return (
        view["id"],
        state_text(view),
        _ago(view["ageMs"]),
        str(view["callCount"]),
        ", ".join(waits),
        process,
        caller_text(view),
    )


def call_row(call: Mapping[str, Any]) -> tuple[str, ...]:
    arguments = call["arguments"]
    known = arguments.get("value", arguments.get("shape", arguments.get("text", arguments.get("omitted", ""))))
    return (
        str(call["call"]),
        call["tool"],
        call["status"],
        f"+{_duration(call['atMs'])}",
        _duration(call["ms"]),
        f"{call['bytes']:,}",
        "yes" if call["dispatched"] else "no",
        "yes" if call["repeatable"] else "no",
        known if isinstance(known, str) else json.dumps(known, ensure_ascii=False),
    )


def state_text(view: Mapping[str, Any]) -> str:
    return f"{view['state']} ({view['code']})" if view["code"] else str(view["state"])


def caller_text(view: Mapping[str, Any]) -> str:
    return f"{view['caller']}:{view['principal'] or '?'}"


def summary(view: Mapping[str, Any]) -> str:
    return f"run {view['id']}: {state_text(view)}, began {_ago(view['ageMs'])}, {counted(view['callCount'], 'call')}"


def heading(view: Mapping[str, Any], now: float) -> Iterator[str]:
    """Yield the lines about a run above its calls. `now`: Unix seconds."""
    ended = f", ended {_ago(view['endedMs'])}" if view["endedMs"] is not None else ""
    expires = ""
    if view["expiresMs"] is not None:
        until = f"{_duration(view['expiresMs'])}, at {deadline(view['expiresMs'], now)}"
        expires = f", dropped in {until}, unless a wait comes"
    yield f"{view['id']}  {state_text(view)}"
    yield f"  began {_ago(view['ageMs'])}{ended}{expires}"
    yield f"  caller {caller_text(view)}, {counted(view['waits'], 'wait')}, {counted(view['timers'], 'timer')}"


def location_text(view: Mapping[str, Any]) -> str:
    """Return where a run is that no serving process of this user has."""
    if where(view) == "elsewhere":
        return "taken over by a process that cannot be asked from here"
    if view["endedMs"] is not None:
        return "kept in the store since it ended"
    return "suspended in the store, and no codemode-mcp serve of this user resumes it"


def made_line(view: Mapping[str, Any]) -> str:
    """Return one line about the calls of a run whose records no process has."""
    made = view.get("made")  # a process of an earlier version does not report it
    if made is None:
        return "its calls are not known here"
    if not made:
        return "none of its calls may have changed anything"
    return f"calls that may have changed something: {made_text([MadeCall(**each) for each in made])}"


def totals_line(stores: Iterable[Mapping[str, Any]]) -> str | None:
    """Return one line about the runs in all stores together; None if none is suspended."""
    known = [store for store in stores if store.get("suspended")]
    if not known:
        return None
    oldest = max(store["oldestMs"] or 0 for store in known)
    count, stored = (sum(store[key] for store in known) for key in ("suspended", "bytes"))
    return f"{count} suspended, the oldest for {_duration(oldest)}, {size(stored)} in all"


def approval_lines(waiting: Iterable[Mapping[str, Any]], width: int) -> Iterator[str]:
    """Yield the calls that wait for approval, in lines by which a person can judge them.

    End the command if the arguments of a call were changed on the way.
    """
    for call in waiting:
        effects = [name for name, applies in call["effects"].items() if applies]
        yield ""
        title = f"call {call['call']}: {plain(call['tool'])}"
        if columns(title) < width:
            yield title
        else:
            yield f"call {call['call']}:"
            yield from wrapped(call["tool"], width, "  ")
        yield from wrapped(f"as {call['path']}", width, "  ")
        yield f"  {', '.join(effects).replace('_', ' ') or 'changes something, stays within its server'}"
        yield from wrapped(f"because: {call['reason']}", width, "  ")
        if call.get("configured"):
            names = ", ".join(map(json.dumps, call["configured"]))
            yield from wrapped(f"set by the configuration, not by the program: {names}", width, "  ")
        text, length = call["arguments"], call["characters"]
        is_whole = len(text) == length
        if is_whole and digest_of(text) != call["digest"]:
            stop_line(1, f"the arguments of call {call['call']} do not have their digest; nothing was decided")
        if is_whole:
            text = json.dumps(json.loads(text), ensure_ascii=False, indent=2)
        yield from wrapped(count_blanks(text[:MAX_ARGUMENTS], is_code=True), width, "  │ ")
        if len(text) > MAX_ARGUMENTS or not is_whole:
            yield f"  ✂ CUT: the arguments have {length:,} characters,"
            yield f"    SHA-256 {call['digest']};"
            yield "    runs show RUN --json gives more of them"


def _ago(ms: int) -> str:
    return f"{rough(ms // 1000)} ago"


def _duration(ms: int) -> str:
    return f"{ms} ms" if ms < 10_000 else rough(ms // 1000)


# The text of `codemode-mcp servers` for people.
#
# Everything that servers have written is escaped, so that none of it can pass for a line of ours.


MAX_ERROR: Final = 400
"""Characters of an error."""

_HEAD: Final = ("SERVER", "STATE", "TOOLS", "CALLS", "UP", "PROTOCOL", "PROCESS")


def status_lines(servers: Sequence[Mapping[str, Any]], width: int) -> Iterator[str]:
    yield from table(_HEAD, [_row(each) for each in servers], width)
    for server in servers:
        yield from _notes(server)


def process_line(facts: Mapping[str, Any]) -> str:
    config = cut(facts["config"] or "no configuration file", 200)
    return f"process {facts['pid']} ({facts['transport']}, {facts['mode']}), {config}:"


def detail_lines(server: Mapping[str, Any]) -> Iterator[str]:
    yield f"{cut(server['name'], 60)}: {server_state_text(server)}"
    program = " ".join(filter(None, (server["serverName"], server["serverVersion"])))
    facts = (
        ("program", cut(program, 100)),
        ("connection", server["transport"]),
        ("protocol", server["protocolVersion"] and f"{server['protocolVersion']} ({server['era']})"),
        ("process", ", ".join(map(str, server["pids"]))),
        ("ready for", _up(server)),
        ("tools", _tools(server)),
        ("calls in flight", str(server["calls"])),
        ("login", "stored login in use" if server["loggedIn"] else ""),
    )
    for name, value in facts:
        if value:
            yield f"  {name}: {value}"
    yield from _notes(server)
    for problem in server["problems"]:
        yield f"  {cut(problem, MAX_ERROR)}"


def server_state_text(server: Mapping[str, Any]) -> str:
    return "needs a login" if server["loginRequired"] else str(server["state"])


def log_line(line: Mapping[str, Any]) -> str:
    moment = datetime.fromtimestamp(line["time"], UTC).astimezone().strftime("%H:%M:%S")
    return f"{moment} {line['source']:10} {plain(line['text'])}"


def outcome_text(server: Mapping[str, Any]) -> str:
    name = f"server {cut(server['name'], 60)!r}"
    if server["state"] == "ready":
        return f"{name} is ready: {counted(server['tools'], 'tool')}"
    if server["state"] == "connecting":
        return f"{name} is still connecting; codemode-mcp servers status has its state"
    return f"{name} is {server_state_text(server)}: {cut(server['error'] or 'no reason is known', MAX_ERROR)}"


def _row(server: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        server["name"],
        server_state_text(server),
        _tools(server),
        str(server["calls"]),
        _up(server),
        server["protocolVersion"] or "",
        ", ".join(map(str, server["pids"])) or (server["transport"] or ""),
    )


def _notes(server: Mapping[str, Any]) -> Iterator[str]:
    name = cut(server["name"], 60)
    if server["held"]:
        yield f"{name}: {counted(server['held'], 'tool')} held until accepted: codemode-mcp trust status {name}"
    if server["error"]:
        yield f"{name}: {cut(server['error'], MAX_ERROR)}"
    elif server["lastError"]:
        error = server["lastError"]
        yield f"{name}: last error {rough(error['secondsAgo'])} ago: {cut(error['text'], MAX_ERROR)}"


def _tools(server: Mapping[str, Any]) -> str:
    return f"{server['tools']} (+{server['held']} held)" if server["held"] else str(server["tools"])


def _up(server: Mapping[str, Any]) -> str:
    return "" if server["uptimeSeconds"] is None else rough(server["uptimeSeconds"])
