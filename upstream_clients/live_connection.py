"""One live connection: raw requests in the form of its protocol era, and its liveness."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import anyio

from upstream_clients import jsonrpc
from upstream_clients.direct import Answer, Refusal
from upstream_clients.dispatcher import Dispatcher, traced
from upstream_clients.eager import Reply
from upstream_clients.error_mapping import HttpWatch, call_error, is_logged_out, is_session_lost, is_transport_failure
from upstream_clients.errors import UpstreamCallError
from upstream_clients.json_values import values_in
from upstream_clients.listing import ItemListing, Listing, list_items, list_tools
from upstream_clients.negotiate import METHOD_HEADER, VERSION_HEADER, Agreement, request_capabilities
from upstream_clients.questions import CURRENT, CallQuestions, UrlElicitationRequired
from upstream_clients.results import text_of
from upstream_clients.tools import NO_HINT, JsonObject, LogLevel, ProgressFn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from upstream_clients.fair_limiter import Call, CallsInFlight
    from upstream_clients.list_changed import Subscription
    from upstream_clients.list_repair import ItemKind
    from upstream_clients.spec import UpstreamSpec


_FIRST_ID = 1 << 20
"""First id of calls to legacy servers. Such a call needs its id in advance: `question_routing` remembers the id if the
call is given up, until the server answers it. Other requests count from 1."""

_SUBSCRIPTIONS = count()

_HEADER_NAME: Final = "x-mcp-header"
"""Key of a schema's property whose value is also sent as a header (2026-07-28)."""


class LiveConnection:
    """One live connection, for calls and requests.

    Args:
        watch: the watch of the HTTP client.
        over: set when the connection can no longer be used. This class also sets it.
        on_stale: called when a tool has changed since it was listed.
        use_list: called when the tools of the latest list come into use; see `OpenTransport`.
        log_level: returns the level of log messages that is wanted for the calls of an owner.
    """

    def __init__(
        self,
        spec: UpstreamSpec,
        dispatcher: Dispatcher,
        agreement: Agreement,
        client_info: JsonObject,
        *,
        watch: HttpWatch,
        over: anyio.Event,
        on_stale: Callable[[], None],
        use_list: Callable[[], tuple[str, ...]] = tuple,
        log_level: Callable[[str | None], LogLevel | None] = lambda _: None,
    ) -> None:
        self.protocol_version = agreement.protocol_version
        self.modern = agreement.modern
        self.has_task_calls = agreement.has_task_calls
        self._spec = spec
        self._dispatcher = dispatcher
        self._watch = watch
        self._over = over
        self._on_stale = on_stale
        self.use_list = use_list
        self._log_level = log_level
        self._envelope = {jsonrpc.PROTOCOL_VERSION: self.protocol_version, jsonrpc.CLIENT_INFO: client_info}
        self._param_headers: dict[str, dict[tuple[str, ...], str]] = {}
        self._in_flight = 0
        self._ids = count(_FIRST_ID)
        self.lost_session = ""
        """The reason for a person, once the server has refused a request because it has lost the session."""
        self.has_answered = False
        """True once a call has got a result."""

    @property
    def alive(self) -> bool:
        return not self._over.is_set()

    @property
    def logged_in(self) -> bool:
        """True if the latest request was sent with a stored login."""
        return self._watch.logged_in

    @property
    def message_count(self) -> int:
        return self._dispatcher.message_count

    async def probe(self) -> None:
        """Send a request that any server answers. Raises `UpstreamCallError`."""
        await self.send("server/discover" if self.modern else "ping", {})

    async def enter(self, call: CallQuestions) -> None:
        """Wait for the call's turn, and keep it until `leave`. `exchange` is called in between.

        Calls wait only while calls of different runs must not overlap (`question_routing`).

        Raises:
            UpstreamCallError: the connection ended before the turn came.
        """
        if self.modern:  # its questions come in the answer to a call, so calls may overlap
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
            if questions.lacks_roots(call):
                method = "notifications/roots/list_changed"
                await questions.renew_roots(partial(self._dispatcher.notify, method, headers=self._headers(method, {})))
        except BaseException:
            questions.leave(call)
            raise

    def leave(self, call: CallQuestions) -> None:
        if not self.modern:
            self._dispatcher.questions.leave(call)

    async def send(self, method: str, params: Mapping[str, Any]) -> JsonObject:
        """Return the raw result of a request that belongs to no call. Raises as `exchange`."""
        return (await self.exchange(method, params)).result

    async def exchange(
        self,
        method: str,
        params: Mapping[str, Any],
        on_progress: ProgressFn | None = None,
        call: CallQuestions | None = None,
    ) -> Answer:
        """Return the answer to one request. Cancelling the caller cancels the request at the server.

        Args:
            call: the call that the server may ask questions for; None if it can ask none.

        Raises:
            UrlElicitationRequired: the user has to open a URL first.
            UpstreamCallError: the request failed for another reason.
        """
        self._in_flight += 1
        before = CURRENT.set(call)  # for messages that come back on the call's own HTTP stream
        try:
            answer = await self._send_directly(method, params, on_progress, call)
            if answer is None:
                answer = await self._send_by_dispatcher(method, jsonrpc.sendable(params), on_progress, call)
            # Cleared at an answer only. If the call is cancelled, `leave` finds the id and notes an abandoned request.
            if call is not None:
                call.request_id, self.has_answered = None, True
        except jsonrpc.JsonRpcError as error:
            if call is not None:
                call.request_id = None
            raise self._call_error(method, error) from error
        finally:
            CURRENT.reset(before)
            self._in_flight -= 1
        if answer.result.get("isError"):
            redacted = self._spec.redact_learned_in(answer.result)
            return Answer(redacted, answer.text if redacted == answer.result else None)
        return answer

    async def _send_directly(
        self, method: str, params: Mapping[str, Any], on_progress: ProgressFn | None, call: CallQuestions | None
    ) -> Answer | None:
        """Send a call past the dispatcher. Return None if that is not possible; nothing was sent then."""
        direct = self._dispatcher.direct
        if direct is None or call is None or method != "tools/call" or traced({}):
            return None  # `Dispatcher.request` opens the span of a traced request, and adds it to `params`
        headers = self._headers(method, params)
        if self.modern and not self._spec.is_api:
            params = self._with_envelope(method, params, call)
        reply: Reply[Answer | Refusal | None] = Reply(loop=asyncio.get_running_loop())
        request_id = direct.send(method, params, reply.bring, on_progress, headers)
        if request_id is None:
            return None
        if not self.modern:
            call.request_id = request_id
        try:
            answer = await reply
        except BaseException:
            direct.cancel(request_id)
            raise
        self._dispatcher.questions.answered(request_id)
        if answer is None:
            raise jsonrpc.JsonRpcError(jsonrpc.CONNECTION_CLOSED, "Connection closed")
        if isinstance(answer, Refusal):
            raise jsonrpc.JsonRpcError(answer.code, answer.message, answer.data)
        return answer

    async def _send_by_dispatcher(
        self, method: str, params: Mapping[str, Any], on_progress: ProgressFn | None, call: CallQuestions | None
    ) -> Answer:
        headers = self._headers(method, params)
        request_id: int | None = None
        if self.modern:
            params = self._with_envelope(method, params, call)
        elif call is not None:
            call.request_id = request_id = next(self._ids)
        result = await self._dispatcher.request(
            method, params, headers=headers, on_progress=on_progress, request_id=request_id
        )
        return Answer(result if isinstance(result, dict) else dict(result), text_of(result))

    def _with_envelope(self, method: str, params: Mapping[str, Any], call: CallQuestions | None) -> Mapping[str, Any]:
        askable = call is not None and call.asking is not None
        envelope = {**self._envelope, jsonrpc.CLIENT_CAPABILITIES: request_capabilities(method, askable=askable)}
        level = self._log_level(None if call is None or call.asking is None else call.asking.owner)
        if level is not None:
            envelope[jsonrpc.LOG_LEVEL] = level
        return {**params, "_meta": {**params.get("_meta", {}), **envelope}}

    async def cancel_task(self, params: Mapping[str, Any]) -> None:
        """Send `tasks/cancel`. Do not wait long for the answer, and ignore errors."""
        method = "tasks/cancel"
        headers = self._headers(method, params)
        if self.modern:
            params = self._with_envelope(method, params, None)
        await self._dispatcher.request_aside(method, params, headers)

    async def listen(self, subscription: Subscription, wanted: Mapping[str, Any]) -> None:
        """Subscribe to announcements of a modern server. Return when the server ends the stream.

        Args:
            wanted: the kinds of announcements (`SubscriptionFilter` of MCP).

        Raises:
            JsonRpcError: the server has refused the subscription, or the stream or the connection was lost.
        """
        request_id = f"listen-{next(_SUBSCRIPTIONS)}"
        method = "subscriptions/listen"
        params = self._with_envelope(method, {"notifications": wanted}, None)
        headers = self._headers(method, params)
        self._dispatcher.subscriptions[request_id] = subscription
        try:
            await self._dispatcher.request(method, params, headers=headers, request_id=request_id)
            subscription.end(lost=False)
        except jsonrpc.JsonRpcError as error:
            subscription.end(lost=True)
            if subscription.honored is None and is_transport_failure(error):
                self._over.set()
            raise
        finally:
            del self._dispatcher.subscriptions[request_id]

    def _call_error(self, method: str, error: jsonrpc.JsonRpcError) -> UpstreamCallError:
        """Return the error of a request for its caller. End the connection or list again if the error requires that."""
        is_process = self._spec.is_process
        in_session = not self.modern and (is_process or self._watch.in_session)
        session_lost = is_session_lost(error, in_session=in_session, is_process=is_process)
        # If the server cannot be reached, the connection ends, unless another request may still get its answer.
        broken = is_transport_failure(error) or is_logged_out(error)
        if session_lost or (broken and self._in_flight == 1):
            self._over.set()
        elif error.code == jsonrpc.HEADER_MISMATCH:
            self._on_stale()
        raised = call_error(self._spec, method, error, session_lost=session_lost)
        if session_lost:
            self.lost_session = raised.message
        match error.data:
            case {"elicitations": list() as elicitations} if error.code == jsonrpc.URL_ELICITATION_REQUIRED:
                return UrlElicitationRequired(raised, elicitations, self._dispatcher.questions.wait_completed)
        return raised

    async def list_tools(self) -> Listing:
        """Return all tools. Raises `UpstreamCallError`."""
        listing = await list_tools(self.send, self._spec.name)
        if not self.modern:
            return listing._replace(hint=NO_HINT)
        if self._spec.is_api:
            return listing  # its schemas have no header annotations
        # The modern revision requires clients to drop a tool whose header annotations are invalid.
        marked = [tool for tool in listing.tools if _is_marked(tool.input_schema)]
        if not marked:
            self._param_headers = {}
            return listing
        from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map

        invalid = {
            tool.name: reason for tool in marked if (reason := find_invalid_x_mcp_header(tool.input_schema)) is not None
        }
        maps = ((tool.name, x_mcp_header_map(tool.input_schema)) for tool in marked if tool.name not in invalid)
        self._param_headers = {name: header_map for name, header_map in maps if header_map}
        problems = tuple(f"tool {name!r}: {reason}; dropped" for name, reason in invalid.items())
        tools = tuple(tool for tool in listing.tools if tool.name not in invalid)
        return Listing(tools, listing.problems + problems, listing.hint)

    async def list_items(self, kind: ItemKind) -> ItemListing:
        """Return all prompts, resource templates or resources. Raises `UpstreamCallError`."""
        listing = await list_items(self.send, kind)
        return listing if self.modern else listing._replace(hint=NO_HINT)

    def _headers(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        if self._spec.is_process or self._spec.is_api:
            return {}
        headers = {VERSION_HEADER: self.protocol_version}
        if not self.modern:
            return headers
        from mcp.shared.inbound import MCP_NAME_HEADER, NAME_BEARING_METHODS, encode_header_value, mcp_param_headers

        headers[METHOD_HEADER] = method
        name_key = "taskId" if method.startswith("tasks/") else NAME_BEARING_METHODS.get(method)
        name = params.get(name_key) if name_key is not None else None
        if isinstance(name, str):
            headers[MCP_NAME_HEADER] = encode_header_value(name)
            if method == "tools/call" and (header_map := self._param_headers.get(name)):
                headers.update(mcp_param_headers(header_map, params.get("arguments") or {}))
        return headers


def _is_marked(schema: object) -> bool:
    """Return True if a schema declares anywhere that a value is also sent as a header."""
    return any(isinstance(each, dict) and _HEADER_NAME in each for each in values_in(schema))


# Liveness of a connected server: a stopped process or a half-open connection gives no error, only silence.
#
# Silence alone proves little, since many servers do one thing at a time and answer nothing meanwhile. So a server
# counts as hung only when all of this holds:
#
# - A call has timed out, or the server has sent nothing for `QUIET` seconds while calls wait.
# - After that, the server has sent nothing for `PROBE_TIMEOUT` seconds after a probe.
# - None of the calls that were in flight before the probe can be the reason: each has ended, or has no limit and has
#   taken more than `PATIENCE_SECONDS`. A call with a limit can be the reason until it ends at its limit.


QUIET = 30.0
"""Seconds without any message, while calls wait, after which the server is probed."""

PROBE_TIMEOUT = 10.0
"""Seconds for any message of the server after the probe."""

PATIENCE_SECONDS = 600.0
"""Seconds for which a call without a limit may keep a server silent."""

POLL_INTERVAL = 1.0
"""Seconds between two checks while calls wait."""


class LivenessMonitor:
    """The monitor of one connection."""

    def __init__(
        self,
        calls: CallsInFlight,
        connection: LiveConnection,
        *,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._calls = calls
        self._connection = connection
        self._sleep = sleep

    async def until_hung(self, end: Callable[[float], object]) -> None:
        """Wait until the server counts as hung. Call `end` with the seconds for which it has been silent."""
        since, long_calls = await self._until_suspicious()
        while await self._shows_life(long_calls):
            since, long_calls = await self._until_suspicious()
        end(self._calls.clock() - since)

    async def _until_suspicious(self) -> tuple[float, set[Call]]:
        """Wait for a reason to probe.

        Return the time of the last message, and the calls that may keep the server busy.
        """
        calls = self._calls
        count, since = self._connection.message_count, calls.clock()
        while True:
            calls.changed = anyio.Event()
            if (suspects := calls.suspects) is not None:
                calls.suspects = None
                return since, suspects
            if self._connection.message_count != count or not calls.sent():
                count, since = self._connection.message_count, calls.clock()
            elif calls.clock() - since >= QUIET:
                return since, calls.sent()
            if calls:
                await self._sleep(POLL_INTERVAL)
            else:
                await calls.changed.wait()

    async def _shows_life(self, long_calls: set[Call]) -> bool:
        """Probe the server. Return False if it has sent nothing, and none of the calls can be the reason."""
        count, begun = self._connection.message_count, self._calls.clock()
        async with anyio.create_task_group() as probing:
            probing.start_soon(self._probe)
            while True:
                await self._sleep(min(POLL_INTERVAL, PROBE_TIMEOUT))
                now = self._calls.clock()
                long_calls = {call for call in long_calls.intersection(self._calls) if _may_be_long(call, now)}
                if self._connection.message_count != count or (now - begun >= PROBE_TIMEOUT and not long_calls):
                    break
            probing.cancel_scope.cancel()
        return self._connection.message_count != count

    async def _probe(self) -> None:
        # An error is an answer too. The end of the connection is noticed elsewhere.
        with suppress(UpstreamCallError):
            await self._connection.probe()


def _may_be_long(call: Call, now: float) -> bool:
    # A call with a limit ends at its deadline. Its age proves nothing: the deadline moves while a question is open.
    return call.limit is not None or now - call.since < PATIENCE_SECONDS
