"""The side of a serving process: a socket in a folder of its user, which tells of runs and takes decisions.

Only processes of the same user get in. A request is small and comes in time, one connection is one request, few are
open at the same time, and they are answered one after another: a flood delays only other requests of this kind.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sys
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import anyio
import anyio.to_thread
from anyio.abc import SocketAttribute, SocketListener

from codemode_mcp.control import places, protocol
from codemode_mcp.control.lines import Lines, peer_of
from codemode_mcp.errors import CodeModeError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from anyio.abc import SocketStream, TaskGroup

    from codemode_mcp.policy.approval import ApprovalRequest, Remember
    from codemode_mcp.runs.store import Totals
    from codemode_mcp.runs.views import CallView, RunView

    Where = Literal["here", "elsewhere", "stored"]
    """Process of a run: this one, another one, or none since it is suspended."""

log = logging.getLogger("codemode_mcp.control")

CONNECTION_SECONDS = 10.0
"""Seconds from the connection of a client to the last byte of its answer."""

MAX_CONNECTIONS = 16
"""Concurrent connections; more are closed without a message."""

PAUSE_SECONDS = 0.2
"""After a connection that could not be accepted."""

SHOWN_RUNS = 1000
SHOWN_ARGUMENTS = 2 * 1024 * 1024
"""Characters of waiting calls in one answer. The calls behind come when these have been decided."""

SHOWN_WAITING = 200

SHOWN_ARGUMENT = 256 * 1024
"""Characters of the arguments of one waiting call; what is longer is cut, and said to be."""

SHOWN_INPUT = 500
"""Shown characters of the arguments of a call."""

READ_INPUTS = 4 * 1024 * 1024
"""Characters of arguments that are looked at for one answer."""

SHOWN_NAME = 200
SHOWN_REASON = 2000

BY = "a person at a terminal"


class Runs(Protocol):
    """The part of the run manager that is needed here."""

    def views(self) -> list[RunView]: ...

    def view(self, run_id: str) -> RunView | None: ...

    def approvals(self, run_id: str) -> Sequence[ApprovalRequest]:
        """Return the calls that wait for a person; none of a run that does not exist."""
        ...

    def decide(
        self, run_id: str, calls: Collection[int] | None, *, approved: bool, remember: Remember = "no", by: str
    ) -> list[int]:
        """Return the calls that were decided, which others may have decided in between. Raises `ProgramError`."""
        ...

    async def cancel(self, run_id: str, serves: Callable[[str], bool]) -> bool: ...

    async def stored_views(self) -> list[RunView]:
        """Return the other runs of a store; `observed` are those of another process. Raises `StoreUnavailable`."""
        ...

    async def take_over(self, run_id: str, serves: Callable[[str], bool]) -> bool:
        """Take over a run without a process, so that its calls that wait for a person are known.

        Only a run of an owner that this process `serves`. Raises `CodeModeError`.
        """
        ...

    @property
    def store(self) -> tuple[str, str]:
        """Return the kind and the name of the store."""
        ...

    async def totals(self) -> Totals:
        """Raises `StoreUnavailable`."""
        ...


@dataclass(frozen=True, slots=True)
class About:
    """Facts about the process for clients."""

    transport: str
    mode: str
    config: str | None
    version: str


class Control:
    """Answers requests. Use `controlled`.

    Args:
        arguments: returns the arguments of a call as they may be shown, from their JSON text.
        adopts: returns True if the process may resume the runs of an owner that are only in a store.
        clients: JSON of the clients that have sent requests to the process.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        runs: Runs,
        about: About,
        arguments: Callable[[str], Mapping[str, Any]],
        clock: Callable[[], float] = time.monotonic,
        *,
        adopts: Callable[[str], bool] = bool,
        clients: Callable[[], list[dict[str, Any]]] = list,
    ) -> None:
        self._adopts = adopts
        self._clients = clients
        self._runs = runs
        self._about = about
        self._arguments = arguments
        self._clock = clock
        self._began = clock()
        self._turn = anyio.Lock()

    async def answer(self, line: bytes) -> dict[str, Any]:
        """Return the answer to one request, whatever it is; never raises."""
        try:
            request = protocol.decode_request(line)
            async with self._turn:
                return {"ok": True, **await self._answer(request)}
        except protocol.BadMessage as error:
            return {"ok": False, "error": str(error)}
        except StoreUnavailable as error:
            return {"ok": False, "error": error.detail}
        except CodeModeError as error:
            return {"ok": False, "error": error.message}
        except Exception:
            log.exception("a request on the control socket failed in an unexpected way")
            return {"ok": False, "error": "the request failed inside codemode-mcp; see its log"}

    async def _answer(self, request: protocol.Request) -> dict[str, Any]:
        match request.operation:
            case "list":
                return await self._list()
            case "show":
                view, where = await self._find(request.run)
                requests = self._runs.approvals(request.run) if where == "here" else ()
                # Arguments may be large. They are never changed.
                shown = await anyio.to_thread.run_sync(self._show, view, where, requests)
                return {"server": self._server(), "run": shown}
            case "decide":
                if self._runs.view(request.run) is None:
                    await self._runs.take_over(request.run, self._adopts)
                return {"decided": await self._decide(request)}
            case "cancel":
                return {"cancelled": await self._runs.cancel(request.run, self._adopts)}
            case "clients":
                return {"server": self._server(), "clients": self._clients()}

    async def _list(self) -> dict[str, Any]:
        found: list[tuple[RunView, Where]] = [(view, "here") for view in self._runs.views()]
        kind, name = self._runs.store
        store: dict[str, Any] = {"kind": kind, "name": name}
        try:
            found += [(view, where_stored(view)) for view in await self._runs.stored_views()]
            store |= told_totals(await self._runs.totals())
        except StoreUnavailable as error:
            store["problem"] = error.detail
        # Those that a person is wanted for must not be pushed out by others.
        found.sort(key=lambda each: (not each[0].approvals, each[0].age_ms))
        return {
            "server": self._server(),
            "store": store,
            "runs": [told(*each, self._adopts) for each in found[:SHOWN_RUNS]],
            "omitted": max(0, len(found) - SHOWN_RUNS),
        }

    async def _find(self, run_id: str) -> tuple[RunView, Where]:
        """Return a run, and take it over if no other process has it. Raises `BadMessage`,
        `CodeModeError`."""
        problem: CodeModeError | None = None
        if self._runs.view(run_id) is None:
            try:
                await self._runs.take_over(run_id, self._adopts)
            except CodeModeError as error:
                problem = error  # another process has it, for one; it can be looked at
        view = self._runs.view(run_id)
        if view is not None:
            return view, "here"
        for stored in await self._runs.stored_views():
            if stored.id == run_id:
                return stored, where_stored(stored)
        if problem is not None:
            raise problem
        raise protocol.BadMessage(f"there is no run {run_id[:80]!r} here any more")

    async def _decide(self, request: protocol.Request) -> list[int]:
        waiting = {each.call: each for each in self._runs.approvals(request.run)}
        # Missing ones have ended, or were decided elsewhere.
        chosen = {number: digest for number, digest in request.calls if number in waiting}
        for number, digest in chosen.items():
            text = await anyio.to_thread.run_sync(protocol.text_of, waiting[number].arguments)
            if protocol.digest_of(text) != digest:
                raise protocol.BadMessage(f"call {number} has other arguments than were shown; nothing was decided")
        if not chosen:
            return []
        return list(
            self._runs.decide(request.run, list(chosen), approved=request.approved, remember=request.remember, by=BY)
        )

    def _show(self, view: RunView, where: Where, requests: Sequence[ApprovalRequest]) -> dict[str, Any]:
        room = READ_INPUTS
        calls = []
        for call in reversed(view.calls):
            room -= len(call.input or "")
            calls.append(self._call(call, readable=room >= 0))
        waiting = _waiting(requests)
        return {
            **told(view, where, self._adopts),
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
            "tool": view.tool[:SHOWN_NAME],
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
        return {"pid": os.getpid(), **asdict(self._about), "uptimeSeconds": uptime}


def where_stored(view: RunView) -> Where:
    """Return where a run is that a store has and no process that was asked."""
    return "elsewhere" if view.observed else "stored"


def told_totals(totals: Totals) -> dict[str, Any]:
    """Return the report on a store."""
    oldest = None if totals.oldest is None else round(totals.oldest * 1000)
    return {"suspended": totals.suspended, "oldestMs": oldest, "bytes": totals.size}


def told(view: RunView, where: Where, adopts: Callable[[str], bool]) -> dict[str, Any]:
    """Return the report on a run, without its calls. `adopts`: see `Control`."""
    return {
        "id": view.id,
        "where": where,
        "adoptable": where == "stored" and view.ended_ms is None and adopts(view.owner),
        "state": view.state,
        "code": view.code,
        "caller": view.kind,
        "principal": None if view.principal is None else view.principal[:SHOWN_NAME],
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
    }


def _short(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    text = protocol.text_of(arguments)
    return arguments if len(text) <= SHOWN_INPUT else {"text": text[:SHOWN_INPUT], "cut": len(text)}


def _waiting(requests: Sequence[ApprovalRequest]) -> list[dict[str, Any]]:
    """Those that wait, with all that they would be sent with; as many as there is room for."""
    found: list[dict[str, Any]] = []
    room = SHOWN_ARGUMENTS
    for each in requests[:SHOWN_WAITING]:
        text = protocol.text_of(each.arguments)
        shown = text[:SHOWN_ARGUMENT]
        room -= len(shown) + len(each.tool)
        if room < 0 and found:
            break
        found.append(
            {
                "call": each.call,
                "tool": each.tool,
                "path": each.path[:SHOWN_NAME],
                "arguments": shown,
                "characters": len(text),
                "digest": protocol.digest_of(text),
                "effects": {name: bool(value) for name, value in asdict(each.effects).items()},
                "reason": each.reason[:SHOWN_REASON],
            }
        )
    return found


# the socket


@asynccontextmanager
async def controlled(
    control: Control, *, loopback: bool = sys.platform == "win32", folders: Sequence[Path] | None = None
) -> AsyncIterator[places.Place | None]:
    """Answer requests for the time inside; None, and a line in the log, where that cannot be.

    Args:
        loopback: a port and a file with its token in place of a Unix socket.
    """
    token = secrets.token_hex(32)
    try:
        place, listening, keep = await anyio.to_thread.run_sync(_listen, token, loopback, folders)
    except (places.NoPlace, OSError) as error:
        log.warning("`codemode-mcp runs` cannot reach this process: %s", error)
        yield None
        return
    try:
        async with await SocketListener.from_socket(listening) as listener, anyio.create_task_group() as group:
            group.start_soon(_accept, listener, control, token if loopback else None, group)
            yield place
            group.cancel_scope.cancel()
    finally:
        listening.close()
        if keep is not None:
            keep.close()
        with suppress(OSError):
            place.path.unlink()


def _listen(token: str, loopback: bool, folders: Sequence[Path] | None) -> tuple[places.Place, socket.socket, Any]:
    """Raises `NoPlace`, `OSError`. The third is to be kept open meanwhile."""
    for folder in places.folders() if folders is None else folders:
        _sweep(folder)
    place = places.new_place("json" if loopback else "sock", folders)
    made = socket.socket(socket.AF_INET if loopback else socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        if not loopback:
            # Its final name appears only once a client can connect.
            unready = place.path.with_suffix(".new")
            made.bind(os.fspath(unready))
            os.chmod(unready, 0o600)
            made.listen(MAX_CONNECTIONS)
            os.rename(unready, place.path)
            return place, made, None
        made.bind(("127.0.0.1", 0))
        made.listen(MAX_CONNECTIONS)
        descriptor = os.open(place.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        kept = os.fdopen(descriptor, "wb", buffering=0)
        try:
            kept.write(protocol.encode({"port": made.getsockname()[1], "token": token}))
        except BaseException:
            kept.close()
            raise
        return place, made, kept
    except BaseException:
        made.close()
        for left in (place.path, place.path.with_suffix(".new")):
            with suppress(OSError):
                left.unlink()
        raise


def _sweep(folder: Path) -> None:
    """Remove what processes have left that were killed."""
    try:
        found = places.places(folder)
    except places.NotPrivate:
        return
    for place in found:
        if place.kind == "json":
            places.forget(place)
            continue
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            try:
                probe.connect(os.fspath(place.path))
            except ConnectionRefusedError:
                places.forget(place)
            except OSError:
                pass  # too many wait to be let in: it lives


async def _accept(listener: SocketListener, control: Control, token: str | None, group: TaskGroup) -> None:
    open_connections: set[SocketStream] = set()

    async def attend(stream: SocketStream) -> None:
        try:
            with anyio.move_on_after(CONNECTION_SECONDS):
                await _attend(stream, control, token)
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
            pass  # it has gone
        except Exception:
            log.exception("a connection to the control socket failed in an unexpected way")
        finally:
            open_connections.discard(stream)
            with anyio.CancelScope(shield=True), suppress(Exception):
                await stream.aclose()

    while True:
        try:
            stream = await listener.accept()
        except anyio.ClosedResourceError:
            return
        except OSError as error:  # no file descriptors, for one
            log.warning("a connection to the control socket could not be accepted: %s", error)
            await anyio.sleep(PAUSE_SECONDS)
            continue
        if len(open_connections) >= MAX_CONNECTIONS:
            await stream.aclose()
            continue
        open_connections.add(stream)
        group.start_soon(attend, stream)


async def _attend(stream: SocketStream, control: Control, token: str | None) -> None:
    if token is None and peer_of(stream.extra(SocketAttribute.raw_socket)) != os.geteuid():
        log.warning("a process of another user was not let in at the control socket")
        return
    lines = Lines(stream, protocol.MAX_REQUEST)
    try:
        if token is not None and not await _is_known(stream, lines, token):
            return
        answer = await control.answer(await lines.next())
    except protocol.BadMessage as error:
        answer = {"ok": False, "error": str(error)}
    data = protocol.encode(answer)
    if len(data) > protocol.MAX_ANSWER:
        data = protocol.encode({"ok": False, "error": "the answer would be too large"})
    await stream.send(data)


async def _is_known(stream: SocketStream, lines: Lines, token: str) -> bool:
    """Return True if the client has read the token; it is shown that we have, too."""
    ours = secrets.token_hex(16)
    await stream.send(protocol.encode({"nonce": ours}))
    message = protocol.decode(await lines.next())
    theirs = message.get("nonce")
    if not isinstance(theirs, str) or not protocol.proves(message.get("proof"), token, "client", (ours, theirs)):
        return False
    await stream.send(protocol.encode({"proof": protocol.proof(token, "server", (ours, theirs))}))
    return True
