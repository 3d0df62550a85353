"""Tasks for clients: a suspended `exec` answers a client that knows tasks with a task, which the client polls.

The id of the task is the id of the run. Clients declare the extension `io.modelcontextprotocol/tasks` of MCP 2026-07-28
with each request. Other clients get the answer `waiting`, and `wait` stays for them.

| the run | status of the task |
|---|---|
| works, or is suspended and waits for calls | `working` |
| waits for answers that the client can give | `input_required`, with the questions |
| has completed or failed | `completed`, with the result that `wait` would have with `fromStart` |
| was aborted | `cancelled` |

Rules:

- A failed program is no JSON-RPC error, so no task is `failed`.
- An `exec` asks its first questions by an `InputRequiredResult`, as without tasks. Questions of a task come later.
- Owners are checked by the store, as for `wait`. Tasks of others look like unknown tasks.
- No notifications are sent for tasks. The extension leaves that to the server.

Source: https://github.com/modelcontextprotocol/ext-tasks, specification/2026-07-28/tasks.md.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import OrderedDict
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio
from msgspec import Struct

from codemode_mcp.audit.events import name_to_record, request_id
from codemode_mcp.base.errors import CodeModeError, ShuttingDown
from codemode_mcp.runs.rendering import why_waiting
from codemode_mcp.server.client import McpClient, knows_tasks
from upstream_clients import jsonrpc

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from pydantic import TypeAdapter

    from codemode_mcp.base.settings import ToolSettings
    from codemode_mcp.runs.calls.outcome import Outcome
    from codemode_mcp.runs.observation import Polled
    from codemode_mcp.server.exchange import Client, Exchange
    from codemode_mcp.server.exposure.selection import Exposure
    from codemode_mcp.server.services import App
    from upstream_clients.tools import JsonObject

    RenderFn = Callable[[Outcome, Exchange, McpClient], Awaitable[JsonObject]]

Status = Literal["working", "input_required", "completed", "cancelled"]

POLL_SECONDS: Final = 1.0
"""Interval at which clients are asked to poll, and the time for which a poll waits for a change."""

MAX_ID: Final = 200
"""Maximum characters of the id of a task."""

MAX_RESPONSES: Final = 1000
"""Maximum number of answers in one request."""

MAX_KNOWN: Final = 1000
"""Maximum number of tasks whose creation is remembered. It is estimated for all others."""

MAX_RESULTS: Final = 32
"""Maximum number of results that are kept."""

MAX_RESULT: Final = 256 * 1024
"""Maximum characters of a result that is kept."""


def not_declared() -> jsonrpc.JsonRpcError:
    return jsonrpc.JsonRpcError(
        jsonrpc.MISSING_CLIENT_CAPABILITY,
        f"tasks are for clients that declare the extension {jsonrpc.TASKS_EXTENSION} with each request",
        {"requiredCapabilities": {"extensions": {jsonrpc.TASKS_EXTENSION: {}}}},
    )


class _Known(Struct):
    """A task that this process has seen. `created`: seconds since the epoch. `status`: the latest status."""

    created: float
    status: Status = "working"


class ClientTasks:
    """The tasks of all clients of a surface.

    Args:
        exposure: returns what the client of a request sees directly.
        render: returns an outcome as a `CallToolResult`.
        hands_over: returns True if a relay repeats requests that are open when this process ends.
        wall: seconds since the epoch.
    """

    def __init__(
        self,
        runs: App,
        exposure: Callable[[Exchange], Exposure],
        render: RenderFn,
        hands_over: Callable[[], bool],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._runs = runs
        self._exposure = exposure
        self._render = render
        self._hands_over = hands_over
        self._wall = wall
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._results: OrderedDict[tuple[str, str], JsonObject] = OrderedDict()
        """The results of tasks, by the form in which their client gets them, under the settings `_results_of`."""
        self._results_of: ToolSettings | None = None

    def declared(self, capabilities: dict[str, Any], client: Client, exposure: Exposure) -> dict[str, Any]:
        """Return capabilities of this server with the extension, if the client may get tasks."""
        if not client.modern or exposure.mode == "search":
            return capabilities
        return {**capabilities, "extensions": {**capabilities.get("extensions", {}), jsonrpc.TASKS_EXTENSION: {}}}

    def created(self, outcome: Outcome) -> dict[str, Any]:
        age, now = outcome.usage.ms / 1000, self._wall()
        left: float = self._runs.settings().code_mode.snapshot_ttl_seconds
        if outcome.deadline is not None:
            left = outcome.deadline - now
        self._note(outcome.run_id, now - age)
        return {"resultType": "task", **self._task(outcome.run_id, "working", age, left, _message(outcome))}

    async def answer(self, exchange: Exchange, method: str) -> dict[str, Any]:
        """Return the result of a request about a task.

        Args:
            method: one of `exchange.TASK_METHODS`.

        Raises:
            JsonRpcError: the client has not declared the extension, or there is no such task.
        """
        if not exchange.session.modern:
            raise jsonrpc.JsonRpcError(jsonrpc.METHOD_NOT_FOUND, "Method not found", method)
        if not knows_tasks(exchange.session):
            raise not_declared()
        if self._exposure(exchange).mode == "search" or self._runs.admits_nothing(exchange.caller):
            raise jsonrpc.JsonRpcError(jsonrpc.METHOD_NOT_FOUND, "you have no tool that makes tasks here", method)
        task_id = exchange.params.get("taskId")
        if not isinstance(task_id, str) or not 0 < len(task_id) <= MAX_ID:
            raise jsonrpc.JsonRpcError(
                jsonrpc.INVALID_PARAMS, f"taskId must be a string of at most {MAX_ID} characters"
            )
        client = McpClient(exchange, None, rounds=0, lasting=False, polls=True)
        try:
            match method:
                case "tasks/get":
                    return await self._get(exchange, task_id, client)
                case "tasks/update":
                    await self._update(exchange, task_id, client)
                case _:
                    await self._cancel(exchange, task_id, client)
        except ShuttingDown as error:
            if self._hands_over():
                await anyio.sleep_forever()  # until the session ends: the relay asks the next process
            raise jsonrpc.JsonRpcError(jsonrpc.INTERNAL_ERROR, f"{error.message}; send the request again") from None
        except CodeModeError as error:
            raise _request_error(error) from None
        return {"resultType": "complete"}

    async def _get(self, exchange: Exchange, task_id: str, client: McpClient) -> dict[str, Any]:
        began, polling = time.monotonic(), (await self._runs.manager()).polling
        caller = exchange.caller
        polled = await polling.poll(task_id, caller.owner, caller, client, POLL_SECONDS)
        status, outcome = status_of(polled), polled.outcome
        age = self._age(task_id, polled, ended=status in ("completed", "cancelled"))
        known = self._known[task_id]
        if known.status != status:
            known.status = status
            self._report(exchange, task_id, began, status)
        message = None if outcome is None else _message(outcome)
        found = {"resultType": "complete", **self._task(task_id, status, age, polled.left, message)}
        if outcome is not None and status == "input_required":
            from codemode_mcp.server.client_questions import as_request

            found["inputRequests"] = {key: as_request(question) for key, question in outcome.questions}
        elif outcome is not None and status == "completed":
            found["result"] = await self._result(exchange, outcome, client)
        return found

    async def _result(self, exchange: Exchange, outcome: Outcome, client: McpClient) -> JsonObject:
        """Return the result of an ended run. Its large parts are stored only once while the result is kept."""
        settings = self._runs.settings()
        if self._results_of is not settings:
            self._results_of = settings
            self._results.clear()
        key = outcome.run_id, _form(exchange)
        if key in self._results:
            self._results.move_to_end(key)
            return self._results[key]
        result = {"resultType": "complete", **await self._render(outcome, exchange, client)}
        if len(json.dumps(result)) <= MAX_RESULT:
            self._results[key] = result
            if len(self._results) > MAX_RESULTS:
                self._results.popitem(last=False)
        return result

    async def _update(self, exchange: Exchange, task_id: str, client: McpClient) -> None:
        began, polling = time.monotonic(), (await self._runs.manager()).polling
        answers = exchange.params.get("inputResponses")
        if not isinstance(answers, dict) or len(answers) > MAX_RESPONSES:
            raise jsonrpc.JsonRpcError(
                jsonrpc.INVALID_PARAMS, f"inputResponses must be an object with at most {MAX_RESPONSES} answers"
            )
        valid = {key: answer for key, answer in answers.items() if _is_response(answer)}
        still_open = await polling.answer(task_id, exchange.caller.owner, exchange.caller, client, valid)
        self._report(exchange, task_id, began, "working", answers=len(valid) or None)
        if refused := sorted(still_open & (answers.keys() - valid.keys())):
            raise jsonrpc.JsonRpcError(
                jsonrpc.INVALID_PARAMS, f"the answer to {refused[0]} is not a valid result of its request"
            )

    async def _cancel(self, exchange: Exchange, task_id: str, client: McpClient) -> None:
        began, polling = time.monotonic(), (await self._runs.manager()).polling
        await polling.cancel(task_id, exchange.caller.owner, exchange.caller, client)
        self._report(exchange, task_id, began, "cancelled", cancel=True)

    def _report(self, exchange: Exchange, task_id: str, began: float, status: Status, **fields: Any) -> None:
        """Report a request that has changed a task, or has found it changed."""
        auditor, request = self._runs.auditor, request_id()
        auditor.emit("wait", request, request=name_to_record(str(exchange.request_id)), run=task_id, bytes=0, **fields)
        ms = round((time.monotonic() - began) * 1000)
        auditor.emit("answered", request, ms=ms, run=task_id, status=_REPORTED[status])

    def _age(self, task_id: str, polled: Polled, *, ended: bool) -> float:
        """Return the seconds from the creation of a task to its latest change. Note when it was created."""
        now = self._wall()
        known = self._known.get(task_id)
        if known is None:
            since = 0.0
            if ended:
                since = max(0.0, self._runs.settings().code_mode.snapshot_ttl_seconds - polled.left)
            known = self._note(task_id, now - since - (polled.age or 0.0))
        return polled.age if ended and polled.age is not None else max(0.0, now - known.created)

    def _note(self, task_id: str, created: float) -> _Known:
        known = self._known[task_id] = _Known(created)
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        return known

    def _task(self, task_id: str, status: Status, age: float, left: float, message: str | None) -> dict[str, Any]:
        """Return a task in the form of the extension.

        Args:
            age: seconds from its creation to its latest change.
            left: seconds from now, for which it is kept.
        """
        created = self._known[task_id].created
        kept = max(1, round((self._wall() + left - created) * 1000))
        task = {"taskId": task_id, "status": status, "createdAt": _time(created), "lastUpdatedAt": _time(created + age)}
        return (
            task
            | {"ttlMs": kept, "pollIntervalMs": round(POLL_SECONDS * 1000)}
            | ({} if message is None else {"statusMessage": message})
        )


_REPORTED: Final[Mapping[Status, str]] = {
    "working": "waiting",
    "input_required": "asks",
    "completed": "completed",
    "cancelled": "cancelled",
}
"""The status in events."""


def status_of(polled: Polled) -> Status:
    outcome = polled.outcome
    if outcome is None:
        return "working"
    if outcome.status == "waiting":
        return "input_required" if outcome.questions else "working"
    return "cancelled" if outcome.code == "aborted" and outcome.status == "failed" else "completed"


def _form(exchange: Exchange) -> str:
    """Return a digest of everything in a request on which the form of a result depends. Clients choose most of it."""
    session, caller = exchange.session, exchange.caller
    client = session.client_name, session.protocol_version, session.capabilities, exchange.path_mode
    who = caller.principal, sorted(caller.groups), caller.context, caller.read_only
    text = json.dumps([*client, *who], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _is_response(answer: object) -> bool:
    from pydantic import ValidationError

    try:
        _responses().validate_python(answer, by_name=False)
    except ValidationError:
        return False
    return True


@cache  # making one takes a millisecond, and a request may have a thousand answers
def _responses() -> TypeAdapter[Any]:
    from mcp_types import InputResponse
    from pydantic import TypeAdapter

    return TypeAdapter(InputResponse)


def _message(outcome: Outcome) -> str | None:
    """Return the status message of a task; None for a task that has ended."""
    if outcome.status != "waiting":
        return None
    return " ".join([f"The program is suspended: {why_waiting(outcome)}.", *outcome.asked])


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _request_error(error: CodeModeError) -> jsonrpc.JsonRpcError:
    match error.code:
        case "snapshot_expired":
            return jsonrpc.JsonRpcError(jsonrpc.INVALID_PARAMS, f"the task has expired: {error.message}")
        case "invalid_input":
            return jsonrpc.JsonRpcError(
                jsonrpc.INVALID_PARAMS,
                "there is no task with this taskId; it was never yours, or its result was kept long enough and dropped",
            )
    return jsonrpc.JsonRpcError(jsonrpc.INTERNAL_ERROR, error.message)
