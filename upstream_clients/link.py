"""One live connection: raw requests to the server, stamped as its protocol era wants it.

Results are not modelled: the SDK's `ClientSession` would validate each of them twice, which costs more than the rest
of a call. So this talks to the session's dispatcher, dicts in and dicts out, and puts on what the session would.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, TypeGuard

import anyio
from mcp.shared._otel import inject_trace_context
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    CONNECTION_CLOSED,
    HEADER_MISMATCH,
    INVALID_REQUEST,
    PROTOCOL_VERSION_META_KEY,
    URL_ELICITATION_REQUIRED,
    Implementation,
    JSONRPCError,
    JSONRPCResponse,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from upstream_clients.direct import Answer, Refusal
from upstream_clients.errors import QuestionRefused, UpstreamCallError
from upstream_clients.faults import call_error, is_logged_out, is_session_lost, is_transport_failure
from upstream_clients.large import text_of
from upstream_clients.listing import Listing, list_tools
from upstream_clients.negotiate import CAPABILITIES
from upstream_clients.questions import (
    CURRENT,
    METHODS,
    CallQuestions,
    ConnectionQuestions,
    UrlElicitationRequired,
)
from upstream_clients.wire import ReadingAllowance, whole

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from mcp.client.session import ClientSession
    from mcp.shared.dispatcher import (
        CallOptions,
        DispatchContext,
        OnNotify,
        OnNotifyIntercept,
        OnRequest,
        ProgressFnT,
    )

    from upstream_clients.direct import RequestsInFlight
    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.tools import JsonObject, ProgressFn
    from upstream_clients.wire import Incoming, MendedStream


CANCEL_TIMEOUT = 5.0
"""Seconds for the transport to take the word that a call was given up."""

CANCEL_WAIT = 0.2
"""How many of them the caller waits too."""

_FIRST_ID = 1 << 20
"""Ids of calls to legacy servers, where it matters later which of them was answered. The SDK counts from 1."""


class WatchedDispatcher(JSONRPCDispatcher):
    """The SDK's dispatcher, which also says when its stream has ended, and has the server's questions answered.

    Questions are taken here, where they are still as the server sent them: the SDK's models know no field that a later
    revision adds.
    """

    over: anyio.Event
    """Set when the stream has ended; to be put in before `run`."""

    questions: ConnectionQuestions
    """To be put in before `run`, too."""

    stream: MendedStream
    """What it reads from."""

    on_list_changed: Callable[[], None]
    """Called when the server announces other tools, before anything that comes after it; to be put in before `run`."""

    direct: RequestsInFlight | None = None
    """Requests that do not come by way of this, where there are such; their odd answers do."""

    def __init__(self, *streams: Any) -> None:
        super().__init__(*streams)
        self._allowance = ReadingAllowance()

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        **options: Any,
    ) -> None:
        async def request(
            context: DispatchContext[Any], method: str, params: Mapping[str, Any] | None
        ) -> dict[str, Any]:
            if method not in METHODS:
                return await on_request(context, method, params)
            asker = CURRENT.get()
            # What the client does to answer is no part of the call.
            CURRENT.set(None)
            try:
                return dict(_sendable(await self.questions.answer(method, params or {}, asker)))
            except QuestionRefused as refusal:
                raise MCPError(INVALID_REQUEST, str(refusal)) from refusal

        def intercept(method: str, params: Mapping[str, Any] | None) -> bool:
            if method == "notifications/elicitation/complete" and params is not None:
                self.questions.complete(params.get("elicitationId"))
            if method == "notifications/tools/list_changed":
                self.on_list_changed()
            if method == "notifications/progress" and params is not None and self._tell_progress(params):
                return True
            return on_notify_intercept is not None and on_notify_intercept(method, params)

        try:
            await super().run(request, on_notify, intercept, **options)
        finally:
            self.over.set()
            if self.direct is not None:
                self.direct.close()
            self.questions.close()

    def _tell_progress(self, params: Mapping[str, Any]) -> bool:
        """Tell the progress of a request past this; False where it is of none."""
        on_progress = None if self.direct is None else self.direct.progress_of(params.get("progressToken"))
        progress, total, message = params.get("progress"), params.get("total"), params.get("message")
        if on_progress is None or self._tg is None or not _is_number(progress):
            return False
        total = total if _is_number(total) else None
        self._tg.start_soon(
            _as_sdk_callback(on_progress), progress, total, message if isinstance(message, str) else None
        )
        return True

    async def _cancel_outbound(self, *told: Any) -> None:
        # Whoever gave a call up does not wait for a transport that takes nothing. Mostly it takes this at once, and
        # then the server hears of it before it hears of the next call.
        if self._tg is not None:
            taken = anyio.Event()
            self._tg.start_soon(self._tell_cancelled, taken, *told)
            with anyio.move_on_after(CANCEL_WAIT):
                await taken.wait()

    def tell_cancelled(self, request_id: int) -> None:
        """Tell the server that a request past this was given up, without waiting for that."""
        if self._tg is not None:
            self._tg.start_soon(self._tell_cancelled, anyio.Event(), request_id, "caller cancelled", None)

    async def _tell_cancelled(self, taken: anyio.Event, *told: Any) -> None:
        with anyio.move_on_after(CANCEL_TIMEOUT):
            await super()._cancel_outbound(*told)
        taken.set()

    async def _dispatch(self, item: Incoming, *rest: Any) -> None:
        if self.direct is not None and self._resolve_direct(self.direct, item):
            return
        pause = 0.0 if self._awaited(item) else self._allowance.spend(item)
        await super()._dispatch(item, *rest)
        if pause:
            await anyio.sleep(pause)

    @staticmethod
    def _resolve_direct(direct: RequestsInFlight, item: Incoming) -> bool:
        """Give an odd answer to the request past this that it belongs to; False where it belongs to none."""
        message = None if isinstance(item, Exception) else item.message
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            request_id = None if message.id is None else coerce_request_id(message.id)
            if isinstance(request_id, int) and request_id in direct:
                if isinstance(message, JSONRPCResponse):
                    direct.resolve(request_id, Answer(message.result, text_of(message.result)))
                else:
                    error = message.error
                    direct.resolve(request_id, Refusal(error.code, error.message, error.data))
                return True
        return False

    def _awaited(self, item: Incoming) -> bool:
        """Decide if a message answers a request that is still open."""
        message = None if isinstance(item, Exception) else item.message
        answered = message.id if isinstance(message, JSONRPCResponse | JSONRPCError) else None
        return answered is not None and coerce_request_id(answered) in self._pending

    def _resolve_pending(self, request_id: int | str | None, outcome: Any) -> None:
        # Answers to requests that nobody waits for any more are told nowhere else.
        self.questions.answered(coerce_request_id(request_id) if request_id is not None else None)
        super()._resolve_pending(request_id, outcome)


class Link:
    """Satisfies `upstream.Link`. Made after negotiation, from a session that is entered."""

    def __init__(
        self,
        spec: UpstreamSpec,
        session: ClientSession,
        dispatcher: WatchedDispatcher,
        client_info: Implementation,
        *,
        over: anyio.Event,
        on_stale: Callable[[], None],
    ) -> None:
        """`over`: the connection has no future; set here too. `on_stale`: a tool is not what it was when listed."""
        version = session.protocol_version
        assert version is not None
        self.protocol_version = version
        self.modern = version in MODERN_PROTOCOL_VERSIONS
        self._spec = spec
        self._dispatcher = dispatcher
        self._over = over
        self._on_stale = on_stale
        self._envelope = {
            PROTOCOL_VERSION_META_KEY: version,
            CLIENT_INFO_META_KEY: client_info.model_dump(by_alias=True, mode="json", exclude_none=True),
        }
        self._param_headers: dict[str, dict[tuple[str, ...], str]] = {}
        self._in_flight = 0
        self._ids = count(_FIRST_ID)

    @property
    def alive(self) -> bool:
        return not self._over.is_set()

    @property
    def heard(self) -> int:
        """How many messages have come so far."""
        direct = self._dispatcher.direct
        return self._dispatcher.stream.count + (0 if direct is None else direct.count)

    async def probe(self) -> None:
        """Ask for any answer. Raises `UpstreamCallError`."""
        await self.send("server/discover" if self.modern else "ping", {})

    @asynccontextmanager
    async def turn(self, call: CallQuestions) -> AsyncIterator[None]:
        """Round the `send` of a call. Raises `UpstreamCallError` when the connection ended before its turn came."""
        if self.modern:
            # Such a server asks in its results alone.
            yield
            return
        questions = self._dispatcher.questions
        await questions.enter(call)
        try:
            if not self.alive:
                raise UpstreamCallError(
                    self._spec.name,
                    f"server {self._spec.name!r} closed the connection while {call.subject} waited for its turn; "
                    "nothing was sent, repeat the call",
                    dispatched=False,
                )
            yield
        finally:
            questions.leave(call)

    async def send(
        self,
        method: str,
        params: Mapping[str, Any],
        on_progress: ProgressFn | None = None,
        call: CallQuestions | None = None,
    ) -> JsonObject:
        """The raw result of one request. No timeout of its own. `call`: whose questions the server may ask meanwhile.

        Raises:
            UrlElicitationRequired: the user has to open a URL first.
            UpstreamCallError: any other end.
        """
        params = _sendable(params)
        options: CallOptions = {"headers": self._headers(method, params)}
        if on_progress is not None:
            options["on_progress"] = _as_sdk_callback(on_progress)
        if self.modern:
            askable = call is not None and call.asking is not None
            envelope = {**self._envelope, CLIENT_CAPABILITIES_META_KEY: CAPABILITIES if askable else {}}
            params = {**params, "_meta": {**params.get("_meta", {}), **envelope}}
        elif call is not None:
            call.request_id = options["request_id"] = next(self._ids)
        self._in_flight += 1
        before = CURRENT.set(call)
        try:
            result = await self._dispatcher.send_raw_request(method, params, options)
            if call is not None:
                call.request_id = None
            return self._spec.redact_learned_in(result) if result.get("isError") else result
        except MCPError as error:
            if call is not None:
                call.request_id = None
            raise self._call_error(method, error) from error
        finally:
            CURRENT.reset(before)
            self._in_flight -= 1

    def _call_error(self, method: str, error: MCPError) -> UpstreamCallError:
        """Return what the error of a request means to its caller, and note what it says of the connection."""
        # An unreachable server ends the connection, unless another request may still get its answer.
        broken = is_transport_failure(error) or is_logged_out(error)
        if is_session_lost(error) or (broken and self._in_flight == 1):
            self._over.set()
        elif error.code == HEADER_MISMATCH:
            self._on_stale()
        raised = call_error(self._spec, method, error)
        match error.data:
            case {"elicitations": list() as elicitations} if error.code == URL_ELICITATION_REQUIRED:
                return UrlElicitationRequired(raised, elicitations, self._dispatcher.questions.completed)
        return raised

    def try_turn(self, call: CallQuestions) -> bool:
        """Enter `turn` without waiting; False where it would have to wait. `leave` leaves it."""
        return self.modern or self._dispatcher.questions.try_enter(call)

    def leave(self, call: CallQuestions) -> None:
        """Leave the turn of a call that `try_turn` has entered."""
        if not self.modern:
            self._dispatcher.questions.leave(call)

    @property
    def is_direct(self) -> bool:
        """Tell whether `try_send` can send at all."""
        return self._dispatcher.direct is not None

    def try_send(
        self,
        method: str,
        params: Mapping[str, Any],
        on_answer: Callable[[Answer | UpstreamCallError], None],
        on_progress: ProgressFn | None,
        call: CallQuestions,
    ) -> Callable[[], None] | None:
        """Send a request at once, as `send` does.

        Returns:
            A function that gives the request up; None where it could not be sent so.
        """
        direct = self._dispatcher.direct
        trace: dict[str, Any] = {}
        inject_trace_context(trace)
        if direct is None or trace:
            return None  # the SDK's dispatcher tells servers of the span that a request belongs to

        def answered(answer: Answer | Refusal | None) -> None:
            call.request_id = None
            self._dispatcher.questions.answered(request_id)
            if isinstance(answer, Answer):
                self._in_flight -= 1
                if answer.result.get("isError"):
                    redacted = self._spec.redact_learned_in(answer.result)
                    answer = Answer(redacted, answer.text if redacted == answer.result else None)
                on_answer(answer)
                return
            error = (
                MCPError(CONNECTION_CLOSED, "Connection closed")
                if answer is None
                else MCPError(answer.code, answer.message, answer.data)
            )
            raised = self._call_error(method, error)
            self._in_flight -= 1
            on_answer(raised)

        headers = self._headers(method, params)
        if self.modern:
            askable = call.asking is not None
            envelope = {**self._envelope, CLIENT_CAPABILITIES_META_KEY: CAPABILITIES if askable else {}}
            params = {**params, "_meta": {**params.get("_meta", {}), **envelope}}
        # What comes back on the call's own stream knows the call by this.
        before = CURRENT.set(call)
        try:
            request_id = direct.send(method, params, answered, on_progress, headers)
        finally:
            CURRENT.reset(before)
        if request_id is None:
            return None
        self._in_flight += 1
        if not self.modern:
            call.request_id = request_id

        def give_up() -> None:
            self._in_flight -= 1
            direct.cancel(request_id)

        return give_up

    async def list_tools(self) -> Listing:
        """All tools. Raises `UpstreamCallError`."""
        listing = await list_tools(self.send, self._spec.name)
        if not self.modern:
            return listing
        # The modern revision obliges clients to drop a tool whose header annotations are invalid.
        invalid = {
            tool.name: reason
            for tool in listing.tools
            if (reason := find_invalid_x_mcp_header(tool.input_schema)) is not None
        }
        tools = tuple(tool for tool in listing.tools if tool.name not in invalid)
        maps = ((tool.name, x_mcp_header_map(tool.input_schema)) for tool in tools)
        self._param_headers = {name: header_map for name, header_map in maps if header_map}
        problems = tuple(f"tool {name!r}: {reason}; dropped" for name, reason in invalid.items())
        return Listing(tools, listing.problems + problems)

    def _headers(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        """For HTTP; other transports ignore them."""
        headers = {MCP_PROTOCOL_VERSION_HEADER: self.protocol_version}
        if not self.modern:
            return headers
        headers[MCP_METHOD_HEADER] = method
        name_key = NAME_BEARING_METHODS.get(method)
        name = params.get(name_key) if name_key is not None else None
        if isinstance(name, str):
            headers[MCP_NAME_HEADER] = encode_header_value(name)
            if method == "tools/call" and (header_map := self._param_headers.get(name)):
                headers.update(mcp_param_headers(header_map, params.get("arguments") or {}))
        return headers


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _sendable(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """With U+FFFD for halves of surrogate pairs, which JavaScript's strings may hold and UTF-8 cannot."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        mended: dict[str, Any] = whole(dict(value))
        return mended
    except (TypeError, ValueError, RecursionError):
        pass  # for whoever sends it to tell
    return value


def _as_sdk_callback(on_progress: ProgressFn) -> ProgressFnT:
    async def callback(progress: float, total: float | None, message: str | None) -> None:
        await on_progress(progress, total, message)

    return callback
