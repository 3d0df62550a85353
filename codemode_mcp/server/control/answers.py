"""Answers to the requests on the control socket: the runs of this process and of its store, and decisions on calls."""

from __future__ import annotations

import base64
import logging
import os
import time
import zlib
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio
import anyio.to_thread
from msgspec import Struct, structs

from codemode_mcp.audit.recordings.recordings import NotKept
from codemode_mcp.base.errors import CodeModeError, StoreUnavailable
from codemode_mcp.rules.policy.approval import AT_TERMINAL, ApprovalRequest
from codemode_mcp.server.control import protocol
from codemode_mcp.server.control.protocol import BadMessage, Request, Servers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from codemode_mcp.runs.calls.outcome import MadeCall
    from codemode_mcp.runs.observation import Operator
    from codemode_mcp.runs.outputs import Transcript
    from codemode_mcp.runs.store import Totals
    from codemode_mcp.runs.views import CallView, RunView

    Where = Literal["here", "elsewhere", "stored"]
    """The process that has a run: this one, another one, or none because the run is suspended."""


log = logging.getLogger("codemode_mcp.server.control")

MAX_RUNS = 1000
"""Maximum number of runs in a listing."""

MAX_WAITING_CALLS = 200
"""Maximum number of waiting calls in one answer. Later answers have the other calls."""

MAX_WAITING_CHARACTERS = 2 * 1024 * 1024
"""Maximum characters of the waiting calls in one answer. The first call is in the answer even if it is longer."""

MAX_WAITING_ARGUMENTS = 256 * 1024
"""Maximum characters of the arguments of one waiting call. Longer arguments are cut, and the answer has their size."""

MAX_ARGUMENTS = 500
"""Maximum characters of the arguments of any other call."""

MAX_INPUTS = 4 * 1024 * 1024
"""Maximum characters of arguments that are parsed for one answer."""

MAX_NAME = 200
"""Maximum characters of a name in an answer."""

MAX_REASON = 2000
"""Maximum characters of the reason for which a call waits."""


class ServerFacts(Struct, frozen=True):
    """Facts about the serving process, for terminals."""

    transport: str
    mode: str
    config: str | None
    version: str


class Control:
    """The answers to requests of terminals, one at a time.

    Args:
        arguments: returns the arguments of a call, redacted for display, from their JSON text.
        may_take_over: returns True for an owner whose suspended runs this process may take over.
        clients: returns the clients that have sent requests to this process, as JSON.
        servers: the servers of this application.
        open_page: opens the page, and returns its address and a token for one browser, as JSON.
        export: returns the recording of a run, masked; see `Recordings.export`. None if none is kept.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        runs: Operator,
        about: ServerFacts,
        arguments: Callable[[str], Mapping[str, Any]],
        clock: Callable[[], float] = time.monotonic,
        *,
        may_take_over: Callable[[str], bool] = bool,
        clients: Callable[[], list[dict[str, Any]]] = list,
        servers: Servers | None = None,
        open_page: Callable[[], Awaitable[dict[str, Any]]] | None = None,
        export: Callable[[str], bytes] | None = None,
    ) -> None:
        self._servers = servers
        self._may_take_over = may_take_over
        self.clients = clients
        self._open_page = open_page
        self._exports = Exports(export)
        self._runs = runs
        self._about = about
        self._arguments = arguments
        self._clock = clock
        self._began = clock()
        self._lock = anyio.Lock()

    def has(self, run_id: str) -> bool:
        return self._runs.view(run_id) is not None

    def number_of(self, server: str) -> int | None:
        return None if self._servers is None else self._servers.number_of(server)

    def latest_lines(self) -> dict[int, int]:
        return {} if self._servers is None else self._servers.latest_lines()

    async def answer(self, line: bytes) -> dict[str, Any]:
        """Return the answer to a request. An invalid request is answered too, and no exception is raised."""
        try:
            request = protocol.decode_request(line)
        except protocol.BadMessage as error:
            return {"ok": False, "error": str(error)}
        return await self.handle(request)

    async def handle(self, request: protocol.Request, by: str = AT_TERMINAL) -> dict[str, Any]:
        """Return the answer to a request. No exception is raised.

        Args:
            by: the person who has sent it, in words.
        """
        try:
            async with self._lock:
                return {"ok": True, **await self._answer(request, by)}
        except protocol.BadMessage as error:
            return {"ok": False, "error": str(error)}
        except StoreUnavailable as error:
            return {"ok": False, "error": error.detail}
        except CodeModeError as error:
            return {"ok": False, "error": error.message}
        except Exception:
            log.exception("a request on the control socket failed unexpectedly")
            return {"ok": False, "error": "the request failed inside codemode-mcp; see its log"}

    async def _answer(self, request: protocol.Request, by: str) -> dict[str, Any]:
        match request.operation:
            case "list":
                return await self._list()
            case "show":
                view, where = await self._find(request.run)
                requests = self._runs.approvals(request.run) if where == "here" else ()
                # Arguments may be large, so they are parsed in a thread. Nothing changes the view meanwhile.
                shown = await anyio.to_thread.run_sync(self._show, view, where, requests)
                return {"server": self._server(), "run": shown}
            case "decide":
                if self._runs.view(request.run) is None:
                    await self._runs.take_over(request.run, self._may_take_over)
                decided = await self._decide(request, by)
                kept = self._runs.view(request.run)
                return {"decided": decided, "expiresMs": None if kept is None else kept.expires_ms}
            case "cancel":
                return {"cancelled": await self._runs.cancel(request.run, self._may_take_over)}
            case "clients":
                return {"server": self._server(), "clients": self.clients()}
            case "servers":
                return {"server": self._server(), "servers": [] if self._servers is None else self._servers.reports()}
            case "logs":
                return {"lines": self._with_server(request).lines_after(request.server, request.after)}
            case "restart":
                self._with_server(request).restart(request.server, by)
                return {"restarted": True}
            case "ui":
                if self._open_page is None:
                    raise protocol.BadMessage("this process has no page; use the shared instance, or serve over HTTP")
                return await self._open_page()
            case "export":
                return await self._exports.answer(request)
            case "instance" | "stop":
                raise protocol.BadMessage("this process is not a shared instance; it serves the client that started it")

    def _with_server(self, request: protocol.Request) -> Servers:
        """Return the servers, which have the one of the request. Raise `BadMessage`."""
        if self._servers is None or self._servers.number_of(request.server) is None:
            raise protocol.BadMessage(
                f"this process has no server {request.server[:80]!r} that is enabled; codemode-mcp servers lists them"
            )
        return self._servers

    async def _list(self) -> dict[str, Any]:
        found, store = await self.listing()
        return {
            "server": self._server(),
            "store": store,
            "runs": [self.report(*each) for each in found[:MAX_RUNS]],
            "omitted": max(0, len(found) - MAX_RUNS),
        }

    async def listing(self) -> tuple[list[tuple[RunView, Where]], dict[str, Any]]:
        """Return all runs, each with its place, and the report on the store.

        Runs that wait for a person come first, so that a limit never hides them. The others are sorted by age.
        """
        stored, store = await self.stored()
        found = self.live() + stored
        found.sort(key=lambda each: (not each[0].approvals, each[0].age_ms))
        return found, store

    def live(self) -> list[tuple[RunView, Where]]:
        return [(view, "here") for view in self._runs.views()]

    async def stored(self) -> tuple[list[tuple[RunView, Where]], dict[str, Any]]:
        """Return the runs that only the store has, each with its place, and the report on the store."""
        kind, name = self._runs.store
        store: dict[str, Any] = {"kind": kind, "name": name}
        try:
            found = [(view, place_of_stored(view)) for view in await self._runs.stored_views()]
            return found, store | store_report(await self._runs.totals())
        except StoreUnavailable as error:
            return [], {**store, "problem": error.detail}

    def report(self, view: RunView, where: Where) -> dict[str, Any]:
        return run_report(view, where, self._may_take_over)

    def transcript(self, run_id: str) -> Transcript | None:
        return self._runs.transcript(run_id)

    def waiting_tools(self, run_id: str) -> list[str]:
        """Return the tools of the calls of a run that wait for a person, each once; none for a run elsewhere."""
        return list(dict.fromkeys(each.tool for each in self._runs.approvals(run_id)))

    async def _find(self, run_id: str) -> tuple[RunView, Where]:
        """Return a run, after taking it over if no other process has it. Raise `BadMessage` or `CodeModeError`."""
        problem: CodeModeError | None = None
        if self._runs.view(run_id) is None:
            try:
                await self._runs.take_over(run_id, self._may_take_over)
            except CodeModeError as error:
                problem = error  # another process may have the run. Then the store can still describe it.
        view = self._runs.view(run_id)
        if view is not None:
            return view, "here"
        for stored in await self._runs.stored_views():
            if stored.id == run_id:
                return stored, place_of_stored(stored)
        if problem is not None:
            raise problem
        raise protocol.BadMessage(f"this process has no run {run_id[:80]!r} now; codemode-mcp runs list shows all runs")

    async def _decide(self, request: protocol.Request, by: str) -> list[int]:
        waiting = {each.call: each for each in self._runs.approvals(request.run)}
        # Calls that do not wait have ended, or were decided in another way meanwhile.
        chosen = {number: digest for number, digest in request.calls if number in waiting}
        for number, digest in chosen.items():
            text = await anyio.to_thread.run_sync(protocol.text_of, waiting[number].arguments)
            # The person has decided about the arguments that were shown. Others must not pass with this decision.
            if protocol.digest_of(text) != digest:
                raise protocol.BadMessage(
                    f"call {number} has other arguments than were shown, so nothing was decided; look at the run again"
                )
        if not chosen:
            return []
        approved, remember = request.approved, request.remember
        return self._runs.decide(request.run, list(chosen), approved=approved, remember=remember, by=by)

    def _show(self, view: RunView, where: Where, requests: Sequence[ApprovalRequest]) -> dict[str, Any]:
        room = MAX_INPUTS
        calls = []
        for call in reversed(view.calls):  # if there is no room for all arguments, the latest calls have theirs
            room -= len(call.input or "")
            calls.append(self._call(call, readable=room >= 0))
        waiting = _waiting(requests)
        return {
            **run_report(view, where, self._may_take_over),
            "calls": calls[::-1],
            "waiting": waiting,
            "waitingOmitted": len(requests) - len(waiting),
        }

    def _call(self, view: CallView, *, readable: bool) -> dict[str, Any]:
        if view.input is None or not readable:
            arguments: Mapping[str, Any] = {"omitted": f"{view.input_size} characters"}
        else:
            arguments = self._arguments(view.input) if view.input else {}
        return {
            "call": view.id,
            "tool": view.tool[:MAX_NAME],
            "status": view.status,
            "atMs": view.at_ms,
            "ms": view.ms,
            "bytes": view.size,
            "dispatched": view.dispatched,
            "repeatable": view.repeatable,
            "arguments": _short(arguments),
        }

    def _server(self) -> dict[str, Any]:
        uptime = round(self._clock() - self._began)
        return {"pid": os.getpid(), **structs.asdict(self._about), "uptimeSeconds": uptime}


def holders(controls: Iterable[Control], server: str) -> list[Control]:
    """Return the applications that have a server of this name, without those that only share one with an earlier one.

    Applications whose configurations define the server differently have different servers of the same name.
    """
    found: dict[int, Control] = {}
    for control in controls:
        number = control.number_of(server)
        if number is not None:
            found.setdefault(number, control)
    return [*found.values()]


def place_of_stored(view: RunView) -> Where:
    """Return where a run is that this process knows only from the store."""
    return "elsewhere" if view.observed else "stored"


def store_report(totals: Totals) -> dict[str, Any]:
    oldest = None if totals.oldest is None else round(totals.oldest * 1000)
    return {"suspended": totals.suspended, "oldestMs": oldest, "bytes": totals.size}


def run_report(view: RunView, where: Where, may_take_over: Callable[[str], bool]) -> dict[str, Any]:
    """Return the report on a run without its calls, as JSON. `may_take_over`: see `Control`."""
    return {
        "id": view.id,
        "where": where,
        "adoptable": where == "stored" and view.ended_ms is None and may_take_over(view.owner),
        "state": view.state,
        "code": view.code,
        "caller": view.kind,
        "principal": None if view.principal is None else view.principal[:MAX_NAME],
        "ageMs": view.age_ms,
        "endedMs": view.ended_ms,
        "expiresMs": view.expires_ms,
        "observed": view.observed,
        "waits": view.waits,
        "snapshots": view.snapshots,
        "approvals": view.approvals,
        "questions": view.questions,
        "timers": view.timers,
        "callCount": view.call_count,
        "made": None if view.made is None else [_made(each) for each in view.made],
    }


def _made(each: MadeCall) -> dict[str, Any]:
    return {"tool": each.tool[:MAX_NAME], "outcome": each.outcome, "times": each.times}


def _short(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    text = protocol.text_of(arguments)
    return arguments if len(text) <= MAX_ARGUMENTS else {"text": text[:MAX_ARGUMENTS], "cut": len(text)}


def _waiting(requests: Sequence[ApprovalRequest]) -> list[dict[str, Any]]:
    """Return the waiting calls with their full arguments, within the limits of one answer."""
    found: list[dict[str, Any]] = []
    room = MAX_WAITING_CHARACTERS
    for each in requests[:MAX_WAITING_CALLS]:
        text = protocol.text_of(each.arguments)
        shown = text[:MAX_WAITING_ARGUMENTS]
        room -= len(shown) + len(each.tool)
        if room < 0 and found:
            break
        found.append(
            {
                "call": each.call,
                "tool": each.tool,
                "path": each.path[:MAX_NAME],
                "arguments": shown,
                "characters": len(text),
                "digest": protocol.digest_of(text),
                "effects": {name: bool(value) for name, value in each.effects._asdict().items()},
                "reason": each.reason[:MAX_REASON],
                "configured": [name[:MAX_NAME] for name in sorted(each.unrecorded)],
            }
        )
    return found


PIECE: Final = 8 * 1024 * 1024
"""Maximum bytes of one piece, compressed."""


class Exports:
    """The answers to `export`. The latest recording is remembered until its last piece is sent.

    Args:
        export: see `Control`.
    """

    def __init__(self, export: Callable[[str], bytes] | None) -> None:
        self._export = export
        self._run = ""
        self._packed = b""

    async def answer(self, request: Request) -> dict[str, Any]:
        """Return a piece of a recording: its compressed bytes as Base64, and whether it is the last one.

        Raises:
            BadMessage: the recording is not kept.
        """
        if request.after == 0:
            self._packed = await anyio.to_thread.run_sync(self._pack, request.run)
            self._run = request.run
        elif request.run != self._run or request.after >= len(self._packed):
            raise BadMessage("another terminal has exported a recording meanwhile; repeat the command")
        piece = self._packed[request.after : request.after + PIECE]
        last = request.after + len(piece) >= len(self._packed)
        if last:
            self._run, self._packed = "", b""
        return {"piece": base64.b64encode(piece).decode(), "last": last}

    def _pack(self, run_id: str) -> bytes:
        try:
            if self._export is None:
                raise NotKept("audit.keepRecordingBytes is 0")
            return zlib.compress(self._export(run_id), 3)
        except NotKept as error:
            why = f": {error}" if str(error) else ""
            raise BadMessage(
                f"the recording of run {run_id[:80]!r} is not kept{why}; to record programs in files, set "
                "audit.recordings, or start the server with serve --record DIR"
            ) from None
