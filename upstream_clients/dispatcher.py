"""Requests to one server and their answers, and the server's own requests and notifications, over any transport.

Messages are dicts. Results are not modelled: programs get what the server has sent.

The module is long because requests of both sides end together with their connection.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

import anyio

from upstream_clients import jsonrpc
from upstream_clients.direct import Answer, Refusal, RequestsInFlight
from upstream_clients.error_mapping import HttpFault
from upstream_clients.errors import QuestionRefused
from upstream_clients.jsonrpc import JsonRpcError, RequestId
from upstream_clients.line_messages import Incoming, NotAMessage, ReadingAllowance
from upstream_clients.list_state import ANNOUNCEMENTS, ListName
from upstream_clients.questions import CURRENT, METHODS
from upstream_clients.results import text_of

if TYPE_CHECKING:
    import contextvars

    from anyio.abc import TaskGroup

    from upstream_clients.list_changed import Subscription
    from upstream_clients.question_routing import ConnectionQuestions
    from upstream_clients.tools import JsonObject, ProgressFn


logger = logging.getLogger(__name__)

CANCEL_TIMEOUT = 5.0
"""Seconds for the transport to take the cancellation of a request."""

CANCEL_WAIT = 0.2
"""Seconds of `CANCEL_TIMEOUT` for which the cancelled caller waits too."""

SETTLED_POLL_INTERVAL = 0.01
"""Seconds between two checks for open requests, when the connection is about to end."""


class Transport(Protocol):
    """The two halves of a connection."""

    @property
    def last_context(self) -> contextvars.Context | None:
        """The context of the request whose response had the last message; None if the transport cannot tell."""
        ...

    async def receive(self) -> Incoming:
        """Return the next message, or the reason why it cannot be read.

        Raises:
            anyio.EndOfStream: the connection has ended.
        """
        ...

    async def send(self, message: jsonrpc.Message, headers: Mapping[str, str] | None = None) -> None:
        """Send a message.

        Args:
            headers: headers of the HTTP request.

        Raises:
            anyio.BrokenResourceError, anyio.ClosedResourceError: the connection has ended, and nothing was sent.
        """
        ...


class Dispatcher:
    """The messages of one connection. Requests can be sent inside `running`.

    Args:
        over: set when the connection has ended.
        on_list_changed: called when the server announces that a list has changed, before any later message is handled.
        on_log_message: takes the params of log messages of the server, and the owner of the call that they are about;
            None if the call is not known.
        on_updated: takes the URI of a resource that the server reports as updated.
        on_stray: takes the beginning of a text that is no message, which may have secrets.
        direct: requests that are sent past the dispatcher. Only unusual answers to them reach the dispatcher.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        over: anyio.Event,
        questions: ConnectionQuestions,
        on_list_changed: Callable[[ListName], None],
        on_log_message: Callable[[Mapping[str, Any], str | None], None] | None = None,
        on_updated: Callable[[str], None] | None = None,
        on_stray: Callable[[str], None] | None = None,
        direct: RequestsInFlight | None = None,
    ) -> None:
        self._on_log_message = on_log_message
        self._on_updated = on_updated
        self._on_stray = on_stray
        self._has_notified = False
        """True if the server got a notification after its latest answer."""
        self.questions = questions
        self.direct = direct
        self.subscriptions: dict[jsonrpc.RequestId, Subscription] = {}
        self._over = over
        self._on_list_changed = on_list_changed
        self._transport = transport
        self._allowance = ReadingAllowance()
        self._message_count = 0
        self._last_id = 0
        self._waiting: dict[jsonrpc.RequestId, asyncio.Future[jsonrpc.Message]] = {}
        self._progress: dict[jsonrpc.RequestId, ProgressFn] = {}
        self._server_requests: dict[jsonrpc.RequestId, anyio.CancelScope] = {}
        self._group: TaskGroup | None = None
        self._closed = False

    @property
    def message_count(self) -> int:
        return self._message_count + (0 if self.direct is None else self.direct.count)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Read messages for the duration of the context. Leaving it cancels open requests."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._run)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()

    async def _run(self) -> None:
        try:
            async with anyio.create_task_group() as self._group:
                try:
                    while True:
                        item = await self._transport.receive()
                        self._message_count += 1
                        await self._take(item)
                except (anyio.EndOfStream, anyio.ClosedResourceError):
                    # Before the tasks are cancelled, so that requests fail with a reason.
                    self._close()
                finally:
                    self._group.cancel_scope.cancel()
        finally:
            self._close()  # also when this task is cancelled
            self._over.set()
            if self.direct is not None:
                self.direct.close()
            self.questions.close()

    def _close(self) -> None:
        self._closed = True
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(jsonrpc.JsonRpcError(jsonrpc.CONNECTION_CLOSED, "Connection closed"))
        for subscription in self.subscriptions.values():
            subscription.end(lost=True)

    async def settled(self) -> None:
        """Wait until no request is open."""
        while self._waiting or self.direct:  # noqa: ASYNC110 - for half a second
            await anyio.sleep(SETTLED_POLL_INTERVAL)

    # Messages to the server.

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        headers: Mapping[str, str] | None = None,
        on_progress: ProgressFn | None = None,
        request_id: jsonrpc.RequestId | None = None,
        tell_given_up: bool = True,
    ) -> JsonObject:
        """Send a request and return its result.

        Args:
            request_id: an unused id, if the caller has to know the id in advance.
            tell_given_up: send `notifications/cancelled` if the caller is cancelled. MCP forbids it for `initialize`.

        Raises:
            JsonRpcError: the server answered with an error, or the connection has ended.
        """
        if request_id is None:
            self._last_id += 1
            request_id = self._last_id
        if self._closed:  # no task would read the answer
            raise _not_sent()
        key = jsonrpc.key_of(request_id)
        sent = dict(params)
        with span_of(method, sent, request_id):
            if on_progress is not None:
                sent["_meta"] = {**sent.get("_meta", {}), "progressToken": request_id}
                self._progress[key] = on_progress
            message: jsonrpc.Message = {"jsonrpc": "2.0", "id": request_id, "method": method}
            if sent:
                message["params"] = sent
            # Registered before the request is sent: a fast answer may come before `send` returns.
            answered = self._waiting[key] = asyncio.get_running_loop().create_future()
            try:
                try:
                    await self._transport.send(message, headers)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    raise _not_sent() from None
                answer = await answered
            except anyio.get_cancelled_exc_class():
                if tell_given_up:
                    # The caller is cancelled, so without a shield nothing could be sent.
                    with anyio.move_on_after(CANCEL_TIMEOUT, shield=True):
                        await self._tell_given_up(request_id, headers)
                raise
            finally:
                self._waiting.pop(key, None)
                self._progress.pop(key, None)
                if answered.done() and not answered.cancelled():
                    answered.exception()  # asyncio would log an exception that no caller has retrieved
            if "error" in answer:
                error = answer["error"]
                raise jsonrpc.JsonRpcError(error["code"], error["message"], error.get("data"))
            result: JsonObject = answer["result"]
            return result

    async def request_aside(self, method: str, params: Mapping[str, Any], headers: Mapping[str, str] | None) -> None:
        """Send a request whose answer is not needed. Wait for the answer for `CANCEL_WAIT` seconds at most."""
        if self._group is None or self._closed:
            return
        answered = anyio.Event()

        async def send() -> None:
            with anyio.move_on_after(CANCEL_TIMEOUT), suppress(jsonrpc.JsonRpcError):
                await self.request(method, params, headers=headers, tell_given_up=False)
            answered.set()

        self._group.start_soon(send)
        with anyio.move_on_after(CANCEL_WAIT):
            await answered.wait()

    async def notify(
        self, method: str, params: JsonObject | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a notification. Do nothing if the connection has ended."""
        message: jsonrpc.Message = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        self._has_notified = True
        await self._send(message, headers)

    async def _send(self, message: jsonrpc.Message, headers: Mapping[str, str] | None = None) -> None:
        try:
            await self._transport.send(message, headers)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            logger.debug("dropped a message: the connection has ended")

    def tell_cancelled(self, request_id: jsonrpc.RequestId) -> None:
        """Tell the server that a direct request was given up, without waiting."""
        if self._group is not None:
            self._group.start_soon(self._tell_cancelled, anyio.Event(), request_id, None)

    async def _tell_given_up(self, request_id: jsonrpc.RequestId, headers: Mapping[str, str] | None) -> None:
        # Usually the transport takes the notification immediately, so the server reads it before the next call. A task
        # sends it, since the caller must not wait long for a transport that is stuck.
        if self._group is not None and not self._closed:
            taken = anyio.Event()
            self._group.start_soon(self._tell_cancelled, taken, request_id, headers)
            with anyio.move_on_after(CANCEL_WAIT):
                await taken.wait()

    async def _tell_cancelled(
        self, taken: anyio.Event, request_id: jsonrpc.RequestId, headers: Mapping[str, str] | None
    ) -> None:
        params = {"requestId": request_id, "reason": "caller cancelled"}
        with anyio.move_on_after(CANCEL_TIMEOUT):
            await self.notify("notifications/cancelled", params, headers)
        taken.set()

    # Messages from the server.

    async def _take(self, item: Incoming) -> None:
        if isinstance(item, Exception):
            if self._on_stray is not None and isinstance(item, NotAMessage) and str(item):
                self._on_stray(str(item))
            pause = self._allowance.spend(item)
        else:
            form = jsonrpc.form_of(item)
            # Answers that a request waits for are free. All other messages count against the server's allowance.
            if form in ("result", "error") and self._take_answer(item):
                return
            pause = self._allowance.spend(item)
            if form == "request":
                self._spawn(self._answer, item)
            elif form == "notification":
                self._take_notification(item["method"], item.get("params") or {})
        if pause:
            # Nothing is read meanwhile, so the server's own pipe or socket fills up, and not our memory.
            await anyio.sleep(pause)

    def _take_answer(self, message: jsonrpc.Message) -> bool:
        """Give an answer to its request. Return False if no request waits for it."""
        request_id = message.get("id")
        if request_id is None:
            request_id = self._only_request() if "error" in message else None
        if request_id is None:
            return False
        self._has_notified = False
        key = jsonrpc.key_of(request_id)
        if self.direct is not None and isinstance(key, int) and key in self.direct:
            # `direct` did not take this answer itself: its form is unusual, or an earlier message was still unread.
            if "result" in message:
                self.direct.resolve(key, Answer(message["result"], text_of(message["result"])))
            else:
                error = message["error"]
                self.direct.resolve(key, Refusal(error["code"], error["message"], error.get("data")))
            return True
        # Also for requests that were given up, whose answers are dropped below: the server no longer works on them.
        self.questions.answered(key)
        answered = self._waiting.get(key)
        if answered is None or answered.done():
            return False
        answered.set_result(message)
        return True

    def _only_request(self) -> jsonrpc.RequestId | None:
        """Return the request that an error without an id belongs to; None if that is not certain."""
        requests = [*self._waiting, *(self.direct or ())]
        # Some servers answer a notification that they do not know with such an error.
        has_notified = self._has_notified or (self.direct is not None and self.direct.has_notified)
        return requests[0] if len(requests) == 1 and not has_notified else None

    def _take_notification(self, method: str, params: Mapping[str, Any]) -> None:
        if (names := ANNOUNCEMENTS.get(method)) is not None:
            for name in names:
                self._on_list_changed(name)
            return
        match method:
            case "notifications/message" if self._on_log_message is not None:
                self._on_log_message(params, self._owner())
            case "notifications/resources/updated" if self._on_updated is not None:
                if isinstance(uri := params.get("uri"), str):
                    self._on_updated(uri)
            case "notifications/elicitation/complete":
                self.questions.complete(params.get("elicitationId"))
            case "notifications/progress":
                self._take_progress(params)
            case "notifications/cancelled" if jsonrpc.is_id(params.get("requestId")):
                request_id = params["requestId"]
                # A modern server may end a stream of changes like this.
                if (subscription := self.subscriptions.get(request_id)) is not None:
                    subscription.end(lost=True)
                if (scope := self._server_requests.get(jsonrpc.key_of(request_id))) is not None:
                    scope.cancel()
            case "notifications/subscriptions/acknowledged":
                meta, honored = params.get("_meta"), params.get("notifications")
                request_id = meta.get(jsonrpc.SUBSCRIPTION_ID) if isinstance(meta, dict) else None
                subscription = self.subscriptions.get(request_id) if jsonrpc.is_id(request_id) else None
                if subscription is not None and isinstance(honored, dict) and subscription.honored is None:
                    subscription.honored = honored
                    subscription.acknowledged.set()

    def _owner(self) -> str | None:
        """Return the owner of the call whose response has the current message; None if it is not known."""
        context = self._transport.last_context
        call = None if context is None else context.get(CURRENT)
        return None if call is None or call.asking is None else call.asking.owner

    def _take_progress(self, params: Mapping[str, Any]) -> None:
        token, progress = params.get("progressToken"), jsonrpc.finite(params.get("progress"))
        if not jsonrpc.is_id(token) or progress is None:
            return
        key = jsonrpc.key_of(token)
        on_progress = self._progress.get(key)
        if on_progress is None and self.direct is not None:
            on_progress = self.direct.progress_of(key)
        if on_progress is None:
            return
        message = params.get("message")
        text = message if isinstance(message, str) else None
        self._spawn(_report_progress, on_progress, progress, jsonrpc.finite(params.get("total")), text)

    async def _answer(self, message: jsonrpc.Message) -> None:
        request_id, key = message["id"], jsonrpc.key_of(message["id"])
        scope = self._server_requests[key] = anyio.CancelScope()
        answer: jsonrpc.Message | None = None
        try:
            with scope:
                try:
                    answer = {"result": await self._result(message["method"], message.get("params") or {})}
                except jsonrpc.JsonRpcError as error:
                    answer = {"error": error.as_json()}
                except Exception:
                    logger.exception("a request of a server could not be answered")
                    answer = {"error": jsonrpc.JsonRpcError(jsonrpc.INTERNAL_ERROR, "Internal error").as_json()}
        finally:
            # A server may use an id again, and the later request must stay cancellable.
            if self._server_requests.get(key) is scope:
                del self._server_requests[key]
        # A cancelled request gets no answer (MCP, Cancellation).
        if answer is not None and not scope.cancel_called:
            await self._send({"jsonrpc": "2.0", "id": request_id, **answer})

    async def _result(self, method: str, params: Mapping[str, Any]) -> JsonObject:
        if method == "ping":
            return {}
        if method not in METHODS:
            raise jsonrpc.JsonRpcError(jsonrpc.METHOD_NOT_FOUND, "Method not found", method)
        asker = CURRENT.get()
        # While the question is answered, other requests may be sent, which do not belong to the asking call.
        CURRENT.set(None)
        try:
            return dict(jsonrpc.sendable(await self.questions.answer(method, params, asker)))
        except QuestionRefused as refusal:
            raise jsonrpc.JsonRpcError(jsonrpc.INVALID_REQUEST, str(refusal)) from refusal

    def _spawn(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        """Run a task in the context of the request whose response had the message.

        In this context, `CURRENT` is the call that a question belongs to.
        """
        assert self._group is not None
        context = self._transport.last_context
        if context is None:
            self._group.start_soon(work, *arguments)
        else:
            context.run(self._group.start_soon, work, *arguments)


def _not_sent() -> JsonRpcError:
    fault = HttpFault(None, sent=False)
    return JsonRpcError(jsonrpc.CONNECTION_CLOSED, "the connection has ended; nothing was sent", fault.to_data())


async def _report_progress(on_progress: ProgressFn, progress: float, total: float | None, message: str | None) -> None:
    try:
        await on_progress(progress, total, message)
    except Exception:
        logger.exception("progress could not be reported")


def traced(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return `_meta` with the current trace context, if there is one (W3C Trace Context)."""
    found = dict(meta)
    if "opentelemetry.trace" in sys.modules:
        from opentelemetry.propagate import inject

        inject(found)
    return found


@contextmanager
def span_of(method: str, params: dict[str, Any], request_id: RequestId) -> Iterator[None]:
    """Open a span for a request, and add its trace context to `params`."""
    if "opentelemetry.trace" not in sys.modules:
        yield
        return
    from opentelemetry.trace import SpanKind, StatusCode, get_tracer

    name = params.get("name")
    with get_tracer("mcp-python-sdk").start_as_current_span(
        f"MCP send {method} {name}" if isinstance(name, str) else f"MCP send {method}",
        kind=SpanKind.CLIENT,
        attributes={"mcp.method.name": method, "jsonrpc.request.id": str(request_id)},
    ) as span:
        if meta := traced(params.get("_meta", {})):
            params["_meta"] = meta
        try:
            yield
        except JsonRpcError as error:
            code = str(error.code)
            span.set_attributes({"error.type": code, "rpc.response.status_code": code})
            span.set_status(StatusCode.ERROR, error.message)
            raise
