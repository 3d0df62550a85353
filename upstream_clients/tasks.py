"""Tasks: calls that a server answers with a handle, and whose results are fetched later.

Two forms exist. In the extension `io.modelcontextprotocol/tasks` of MCP 2026-07-28, the server decides: its answer to
`tools/call` has `resultType: "task"`, `tasks/get` has the result, and questions are answered by `tasks/update`. In MCP
2025-11-25, the client asks for a task, `tasks/result` has the result, and questions are requests of the server while
`tasks/result` waits. `Following` follows both to their end.

Rules:

- A server is never asked more often than every `MIN_INTERVAL` seconds, and at least every `MAX_INTERVAL`.
- A lost connection does not end a task. The server is asked again after it is connected again. `TaskLost` says that
  it cannot be found out what the tool has done: the server does not know the task, or was silent for `MAX_SILENCE`.
- A task that is not needed any more is cancelled at the server, unless a later process follows it (`is_left`).
- Ids of tasks may be credentials, so no message contains one.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import time
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, cast, get_args

import anyio
import msgspec
from msgspec import Struct, structs

from upstream_clients.errors import TaskLost, UpstreamCallError, UpstreamUnavailable
from upstream_clients.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, MISSING_CLIENT_CAPABILITY, finite, readable_error
from upstream_clients.questions import NO_PERSON, CallQuestions, ask_all, failure, read_input_required
from upstream_clients.redaction import MAX_SECRET, cut
from upstream_clients.tools import CallOptions, JsonObject, ProgressFn, TaskOptions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from upstream_clients.fair_limiter import Call
    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.upstream import Upstream


logger = logging.getLogger(__name__)

MIN_INTERVAL, MAX_INTERVAL, DEFAULT_INTERVAL = 0.1, 60.0, 1.0
"""Seconds between two requests about a task. The last one is for a server that suggests none."""

MAX_ID_LENGTH = 1024
"""Characters of the id of a task, which is sent as a header."""

MAX_MESSAGE = 1000
"""Characters of a status message that are passed on."""

MAX_SILENCE = 600.0
"""Seconds without any answer about a task, after which it counts as lost."""

MAX_ERRORS = 5
"""Number of errors in a row with which a server may answer `tasks/get`."""

MAX_QUESTION_ROUNDS = 25
"""Number of times that a task may ask for input."""

REQUEST_TIMEOUT = 60.0
"""Seconds for the answer to a request about a task."""

MAX_TASK_SECONDS = 24 * 3600.0
"""Seconds for which a task without a time to live, in a call without a limit, is followed."""

_RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
"""Key in `_meta` of a result of MCP 2025-11-25, with the id of its task."""

Status = Literal["working", "input_required", "completed", "cancelled", "failed"]

_STATUSES: Final = frozenset(get_args(Status))


class Task(NamedTuple):
    """One state of a task, as the server reports it.

    Attributes:
        message: the start of the status message, in which secrets are not replaced yet; None without one.
        interval: seconds until the server should be asked again.
        ttl: seconds from the creation of the task for which the server keeps it; None for no limit.
        raw: the whole object, with the result, the error or the questions.
    """

    id: str
    status: Status
    message: str | None
    interval: float
    ttl: float | None
    raw: JsonObject


class TaskHandle(Struct, frozen=True):
    """Everything that a later process needs to follow a task.

    Attributes:
        modern: True for the extension, False for a task of MCP 2025-11-25.
        server: digest of the definition of the server; see `server_digest`.
        interval: seconds between two requests.
        created: when the task was created, in seconds since the epoch, on the clock of this machine.
        ends: when the server may forget the task; None if it is kept without a limit.
        until: when the call times out; None for no limit.
    """

    id: str
    modern: bool
    server: str
    interval: float
    created: float
    ends: float | None = None
    until: float | None = None

    def text(self) -> str:
        return json.dumps(structs.asdict(self))


def handle_of(text: str) -> TaskHandle:
    """Return the handle of a text of `TaskHandle.text`. Raises `ValueError`."""
    return msgspec.convert(json.loads(text), TaskHandle)


def server_digest(spec: UpstreamSpec) -> str:
    """Return a digest of the parts of a definition that say which server it is.

    Values of variables and headers do not count, since tokens are renewed. The server checks the login itself.
    """
    parts = [spec.name, spec.command, list(spec.args), spec.cwd, spec.url]
    if spec.document is not None:
        parts.append(spec.document)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def read_task(raw: object, expected: str | None = None) -> Task:
    """Read a task in either form.

    Args:
        expected: the id that the task must have; None for a new task.

    Raises:
        ValueError: the task is malformed; the text says what is wrong.
    """
    if not isinstance(raw, dict):
        raise ValueError("the task is not an object")
    identity, status, message = raw.get("taskId"), raw.get("status"), raw.get("statusMessage")
    if not isinstance(identity, str) or not identity:
        raise ValueError("taskId is not a string")
    if len(identity) > MAX_ID_LENGTH:
        raise ValueError(f"taskId has {len(identity)} characters, and {MAX_ID_LENGTH} are allowed")
    if expected is not None and identity != expected:
        raise ValueError("taskId is that of another task")
    if not isinstance(status, str) or status not in _STATUSES:
        raise ValueError(f"status is not one of {', '.join(get_args(Status))}")
    ttl = _milliseconds(raw.get("ttlMs", raw.get("ttl")))
    interval = _milliseconds(raw.get("pollIntervalMs", raw.get("pollInterval")))
    return Task(
        identity,
        cast("Status", status),
        cut(message, MAX_MESSAGE + MAX_SECRET) if isinstance(message, str) and message else None,
        DEFAULT_INTERVAL if interval is None else min(max(interval, MIN_INTERVAL), MAX_INTERVAL),
        None if ttl is None or ttl < 0 else ttl,
        raw,
    )


def _milliseconds(value: object) -> float | None:
    """Return a number of milliseconds in seconds; None for a value that is not a finite number, and for no limit."""
    milliseconds = finite(value)
    return None if milliseconds is None else milliseconds / 1000


class Server(Protocol):
    """The server of a task, over whichever connection it has."""

    async def request(self, method: str, params: Mapping[str, Any]) -> JsonObject:
        """Return the raw result of a request.

        Raises:
            UpstreamUnavailable: the server is not connected now.
            UpstreamCallError: the request failed.
        """
        ...

    async def cancel_task(self, params: Mapping[str, Any]) -> None:
        """Send `tasks/cancel` if the server is connected. Do not wait long for the answer."""
        ...


class Following:
    """One task from its handle to its result.

    Args:
        redact: hides secrets in a text of the server.
        is_left: returns True if the task must not be cancelled at the server when its caller is cancelled.
        sleep, clock: in seconds.
        wall: seconds since the epoch.
    """

    def __init__(
        self,
        handle: TaskHandle,
        server: Server,
        call: CallQuestions,
        on_progress: ProgressFn | None = None,
        *,
        redact: Callable[[str], str] = lambda text: text,
        is_left: Callable[[], bool] = lambda: False,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._handle = handle
        self._server = server
        self._call = call
        self._on_progress = on_progress
        self._redact = redact
        self._is_left = is_left
        self._sleep = sleep
        self._clock = clock
        # If the wall clock was set back, the task is taken for a new one.
        self._created = clock() - max(0.0, wall() - handle.created)
        # The mutable state.
        self._ttl = None if handle.ends is None else max(0.0, handle.ends - handle.created)
        self._interval = handle.interval
        self._message: str | None = None
        self._reports = 0
        self._answered: set[str] = set()
        """The keys of the questions that were answered."""
        self._rounds = 0
        self._ended = False
        """True once the server has ended or forgotten the task."""
        self._errors = 0
        self._silent_since: float | None = None

    async def result(self, seed: Task | None = None) -> JsonObject:
        """Follow the task to its end, and return the raw result of the call.

        Args:
            seed: the task as it was created; None if it was created in an earlier process.

        Raises:
            TaskLost: it is unknown what the tool has done.
            UpstreamCallError: the task has failed or was cancelled, needs input that it cannot get, or is not valid.
        """
        try:
            if seed is not None:
                await self._report(seed.message)
            if seed is not None and seed.status == "working":
                await self._pause()
            while True:
                task = await self._get()
                found = None if task is None else await self._take(task)
                if found is not None:
                    return found
                self._check_time()
                await self._pause()
        except anyio.get_cancelled_exc_class():
            if not self._is_left():
                await self._cancel()
            raise
        except UpstreamCallError:
            await self._cancel()
            raise

    async def _cancel(self) -> None:
        if not self._ended:
            with anyio.CancelScope(shield=True):
                await self._server.cancel_task({"taskId": self._handle.id})

    async def _pause(self) -> None:
        left = self._interval if self._ttl is None else self._created + self._ttl - self._clock()
        await self._sleep(max(MIN_INTERVAL, min(self._interval, left)))

    def _check_time(self) -> None:
        age = self._clock() - self._created
        if self._ttl is not None and age >= self._ttl:
            raise lost(self._call, f"its task has not ended within its time to live of {self._ttl:g} s")
        if self._ttl is None and self._handle.until is None and age >= MAX_TASK_SECONDS:
            raise lost(
                self._call, f"its task has not ended within {MAX_TASK_SECONDS:g} s; set timeoutMs to wait longer"
            )

    async def _get(self) -> Task | None:
        """Return the state of the task; None if the server did not answer this time."""
        why, raw = f"no answer within {REQUEST_TIMEOUT:g} s", None
        try:
            with anyio.move_on_after(REQUEST_TIMEOUT):
                raw = await self._server.request("tasks/get", {"taskId": self._handle.id})
        except UpstreamUnavailable as error:
            why = error.message
        except TaskLost:
            raise
        except UpstreamCallError as error:
            why = error.message
            self._check_error(error)
        if raw is not None:
            self._silent_since, self._errors = None, 0
            return self._accept(raw)
        now = self._clock()
        if self._silent_since is None:
            self._silent_since = now
        if now - self._silent_since >= MAX_SILENCE:
            raise lost(self._call, f"the server has not answered about its task for {MAX_SILENCE:g} s ({why})")
        return None

    def _check_error(self, error: UpstreamCallError) -> None:
        if error.code == INVALID_PARAMS:
            self._ended = True
            raise lost(self._call, f"the server does not know its task ({error.message})")
        if error.code is None:
            return  # the connection was lost, or a proxy answered
        self._errors += 1
        if error.code in (METHOD_NOT_FOUND, MISSING_CLIENT_CAPABILITY) or self._errors >= MAX_ERRORS:
            raise lost(self._call, f"the server cannot be asked about its task ({error.message})")

    def _accept(self, raw: JsonObject) -> Task:
        try:
            task = read_task(raw, self._handle.id)
        except ValueError as error:
            raise invalid(self._call, str(error)) from None
        self._interval, self._ttl = task.interval, task.ttl
        return task

    async def _take(self, task: Task) -> JsonObject | None:
        """Act on a state of the task. Return the result of the call; None if the task has not ended.

        Raises:
            UpstreamCallError: the task has ended without a result, or needs input that it cannot get.
        """
        await self._report(task.message)
        self._ended = task.status in ("completed", "failed", "cancelled")
        match task.status:
            case "working":
                return None
            case "cancelled":
                said = "" if task.message is None else f": {cut(self._redact(task.message), 500)}"
                raise failure(self._call, f"was cancelled by the server{said}")
            case _ if not self._handle.modern:
                return await self._legacy_result()
            case "input_required":
                await self._answer(task)
                return None
            case "failed":
                raise self._failed(task)
        result = task.raw.get("result")
        if not isinstance(result, dict) or result.get("resultType", "complete") != "complete":
            raise invalid(self._call, "a completed task has no result")
        return result

    async def _legacy_result(self) -> JsonObject | None:
        """Return the result; None if the connection was lost. While the server asks for input, this waits."""
        try:
            raw = await self._server.request("tasks/result", {"taskId": self._handle.id})
        except UpstreamUnavailable:
            return None
        except UpstreamCallError as error:
            if error.code is None and not isinstance(error, TaskLost):
                return None
            raise
        meta = raw.get("_meta")
        if not isinstance(meta, dict) or _RELATED_TASK not in meta:
            return raw
        rest = {key: value for key, value in meta.items() if key != _RELATED_TASK}
        return {key: value for key, value in raw.items() if key != "_meta"} | ({"_meta": rest} if rest else {})

    async def _answer(self, task: Task) -> None:
        """Ask the user the new questions of a task, and send the answers.

        Meanwhile the server is asked about the task. If it no longer waits for these answers, they are withdrawn.
        """
        try:
            requests, _ = read_input_required({"inputRequests": {}, **task.raw, "requestState": ""})
        except ValueError as error:
            raise invalid(self._call, str(error)) from None
        new = {key: each for key, each in requests.items() if key not in self._answered}
        if not new:
            return  # the server has not taken the answers yet
        self._rounds += 1
        if self._rounds > MAX_QUESTION_ROUNDS:
            raise failure(
                self._call, f"asks for further input again after {MAX_QUESTION_ROUNDS} rounds; it was given up"
            )
        if self._call.asking is None:
            raise failure(self._call, NO_PERSON)
        answers: dict[str, JsonObject] = {}
        failed: UpstreamCallError | None = None

        async def ask() -> None:
            nonlocal answers, failed
            try:
                answers = await ask_all(new, self._call)
            except UpstreamCallError as refusal:
                failed = refusal
            asking.cancel_scope.cancel()

        async with anyio.create_task_group() as asking:
            asking.start_soon(ask)
            try:
                await self._while_wanted(new.keys())
            except UpstreamCallError as error:
                failed = error
            asking.cancel_scope.cancel()
        if failed is not None:
            raise failed
        if answers:
            self._answered |= new.keys()
            await self._send_answers(answers)

    async def _while_wanted(self, keys: Any) -> None:
        while True:
            self._check_time()
            await self._pause()
            task = await self._get()
            if task is None:
                continue
            waiting = task.raw.get("inputRequests")
            if task.status != "input_required" or not isinstance(waiting, dict) or not keys <= waiting.keys():
                return

    async def _send_answers(self, answers: Mapping[str, JsonObject]) -> None:
        params = {"taskId": self._handle.id, "inputResponses": answers}
        while True:
            try:
                with anyio.move_on_after(REQUEST_TIMEOUT):
                    await self._server.request("tasks/update", params)
                    return
            except UpstreamUnavailable:
                pass
            except UpstreamCallError as error:
                if isinstance(error, TaskLost):
                    raise
                if error.code is not None:
                    await self._get()  # raises another error if the server does not know the task
                    raise
            # It is unknown whether the server has the answers. A server ignores those that it has already.
            await self._pause()
            self._check_time()
            task = await self._get()
            if task is not None and task.status != "input_required":
                return

    async def _report(self, message: str | None) -> None:
        if message is None or message == self._message or self._on_progress is None:
            return
        self._message = message
        self._reports += 1
        try:
            await self._on_progress(float(self._reports), None, cut(self._redact(message), MAX_MESSAGE))
        except Exception:
            logger.exception("progress could not be reported")

    def _failed(self, task: Task) -> UpstreamCallError:
        server, code = self._call.server, None
        said = "an error without a message"
        given = task.raw.get("error")
        error = None if given is None else readable_error(given)
        if error is not None and (error is given or task.message is None):
            code, said = error["code"], f"error {error['code']}: {cut(self._redact(error['message']), 500)}"
        elif task.message is not None:
            said = f"an error: {cut(self._redact(task.message), 500)}"
        why = f"server {server!r} answered tools/call with {said}"
        return UpstreamCallError(server, why, dispatched=True, code=code)


def invalid(call: CallQuestions, what: str) -> UpstreamCallError:
    return failure(call, f"was answered with a task that is not valid MCP: {what}")


def lost(call: CallQuestions, why: str) -> TaskLost:
    return TaskLost(
        call.server,
        f"server {call.server!r}: {call.subject}: {why}; it is unknown whether the tool has acted. Find that out "
        "before you make the call again",
    )


def new_handle(task: Task, spec: UpstreamSpec, *, modern: bool, left: float | None, wall: float) -> TaskHandle:
    """Return the handle of a task that was just created.

    Args:
        left: seconds until the call times out; None for no limit.
        wall: seconds since the epoch.
    """
    ends = None if task.ttl is None else wall + task.ttl
    until = None if left is None else wall + left
    return TaskHandle(task.id, modern, server_digest(spec), task.interval, wall, ends, until)


MIN_SECONDS = 5.0
"""Seconds for the request about a task of an earlier process, if the call has timed out in the meantime."""


class TaskOfCall:
    """The task of one call, as `tasks.Server`. Its methods run in the scope of the call."""

    def __init__(self, upstream: Upstream, call: Call, questions: CallQuestions, options: CallOptions) -> None:
        self._upstream = upstream
        self._call = call
        self._questions = questions
        self._options = options
        self._task = options.get("task") or TaskOptions()

    async def follow_created(self, created: JsonObject, *, modern: bool) -> JsonObject:
        """Follow a task that the server has just created. Return the raw result of the call.

        Raises:
            UpstreamCallError: see `tasks.Following.result`.
        """
        try:
            seed = read_task(created)
        except ValueError as error:
            raise invalid(self._questions, str(error)) from None
        deadline = self._call.scope.deadline
        left = None if deadline == math.inf else deadline - anyio.current_time()
        handle = new_handle(seed, self._upstream.spec, modern=modern, left=left, wall=time.time())
        if self._task.created is not None:
            await self._task.created(handle.text())
        return await self._follow(handle, seed)

    async def follow_known(self, text: str) -> JsonObject:
        """Follow a task of an earlier process. Raises as `follow_created`."""
        try:
            handle = handle_of(text)
        except ValueError:
            raise lost(self._questions, "the record of its task is damaged") from None
        if handle.server != server_digest(self._upstream.spec):
            raise lost(self._questions, "the definition of the server has changed since its task was created")
        call = self._call
        call.sent = True
        call.limit = None if handle.until is None else max(handle.until - time.time(), MIN_SECONDS)
        call.scope.deadline = math.inf if call.limit is None else anyio.current_time() + call.limit
        return await self._follow(handle, None)

    async def _follow(self, handle: TaskHandle, seed: Task | None) -> JsonObject:
        call, task, spec = self._call, self._task, self._upstream.spec
        following = Following(
            handle,
            self,
            self._questions,
            self._options.get("on_progress"),
            redact=spec.redact_learned,
            # If the scope of the call itself was cancelled, the call is over, and not only this process.
            is_left=lambda: not call.scope.cancel_called and task.is_left(),
        )
        raw = await following.result(seed)
        redacted: JsonObject = spec.redact_learned_in(raw) if raw.get("isError") else raw
        return redacted

    async def request(self, method: str, params: Mapping[str, Any]) -> JsonObject:
        # While the result of a task of MCP 2025-11-25 is awaited, its server may ask questions.
        asks = method == "tasks/result"
        try:
            async with self._upstream.admitted(self._questions, keeps_place=asks) as link:
                return (await link.exchange(method, params, None, self._questions)).result
        except UpstreamUnavailable as error:
            if self._upstream.view().state == "stopped":
                raise lost(self._questions, error.message) from error
            raise

    async def cancel_task(self, params: Mapping[str, Any]) -> None:
        await self._upstream.cancel_task(params)
