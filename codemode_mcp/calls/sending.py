"""The sending of an admitted call to the source of its tool."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio

from codemode_mcp.calls.held_items import HeldResource
from codemode_mcp.catalog.operations import RESOURCE_LIST, perform
from codemode_mcp.catalog.servers import login_advice
from codemode_mcp.errors import UpstreamError
from codemode_mcp.json_text import json_text
from codemode_mcp.plugins.running import removal_message
from upstream_clients.errors import TaskLost, UpstreamCallError, UpstreamClientError
from upstream_clients.jsonrpc import INTERNAL_ERROR

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from codemode_mcp.calls.budgets import CallBudgets
    from codemode_mcp.calls.context import CallContext, Calling
    from codemode_mcp.calls.held_items import HeldItems
    from codemode_mcp.calls.outcome import CallRecord
    from codemode_mcp.calls.repeated_secrets import RepeatedSecrets
    from codemode_mcp.calls.rules import CallRules, Decision
    from codemode_mcp.catalog.entries import Entry
    from codemode_mcp.settings import CodeModeSettings
    from codemode_mcp.tool_override import ToolOverride
    from declarations.operations import Operation
    from upstream_clients.tools import JsonObject, SentFn, TaskOptions, ToolSource, UpstreamView

log = logging.getLogger("codemode_mcp.calls")


class Admitted(NamedTuple):
    """A call that may be sent.

    Attributes:
        arguments: those to send.
        decision: the decision of the rules about the call.
        override: the override that has set some of the arguments.
        secrets: the secret values that the server may repeat.
        timeout: limit in seconds; None for the limit of the source.
    """

    entry: Entry
    arguments: JsonObject
    decision: Decision
    override: ToolOverride | None
    secrets: RepeatedSecrets | None
    timeout: float | None


class Sender:
    """The sender of calls to the sources of their tools."""

    def __init__(
        self,
        source: Callable[[Entry, CallContext], ToolSource],
        rules: CallRules,
        budgets: CallBudgets,
        settings: Callable[[], CodeModeSettings],
        held: HeldItems | None = None,
    ) -> None:
        """`held`: the pins of prompts and resource templates; None if none is held."""
        self._source = source
        self._rules = rules
        self._budgets = budgets
        self._settings = settings
        self._held = held

    async def send(self, calling: Calling, admitted: Admitted) -> tuple[Any, str | None]:
        """Send a call. Return its result, and the JSON text of the result if the source provides it."""
        entry, arguments, decision, override, secrets, timeout = admitted
        context, record = calling.context, calling.record
        source_text: str | None = None
        from_cache = False
        source = self._source_of(entry, context, dispatched=False)
        use = self._budgets.use(entry, context)

        def on_sent() -> None:
            if entry.operation is not None:
                # The rules may have changed while the call waited for a connection.
                self._rules.decide_again(entry, context, decision)
            if use is not None:
                use.sent()
            calling.sent()
            record.status, record.dispatched = "executing", True

        def on_cached() -> None:
            nonlocal from_cache
            self._rules.decide_again(entry, context, decision)
            if use is not None:
                use.sent()
            from_cache = True

        try:
            if entry.operation is None:
                outcome = await source.call_tool(
                    entry.original.name,
                    arguments,
                    on_progress=calling.progress(secrets),
                    timeout=timeout,
                    asking=calling.asking(secrets),
                    on_sent=on_sent,
                    admit=self._rules.admission(entry, context, record, override, decision),
                    begin=calling.begin,
                    task=calling.task,
                )
                if secrets is not None:
                    outcome = secrets.hide_in_outcome(outcome)
                for note in outcome.notes:
                    log.warning("%s: %s", entry.id, note)
                result: Any = outcome.result
                source_text = outcome.text
            else:
                result = await self._perform(source, entry.operation, calling, admitted, on_sent, on_cached)
                if secrets is not None:
                    result = secrets.hide(result)
            if use is not None:
                use.received(result, source_text)
        except UpstreamClientError as error:
            raise _call_error(entry, source, record, error, secrets) from error
        finally:
            if use is not None:
                use.ended()
        if not from_cache:
            record.dispatched = True  # even if the source did not report it
        return result, source_text

    async def follow(self, calling: Calling, entry: Entry, secrets: RepeatedSecrets | None, task: TaskOptions) -> Any:
        """Follow the task of a call that an earlier process has sent. Return the result of the call."""
        context, record = calling.context, calling.record
        try:
            source = self._source_of(entry, context, dispatched=True)
        except UpstreamError:
            record.is_unknown = True
            raise
        try:
            outcome = await source.call_tool(
                entry.original.name,
                {},
                on_progress=calling.progress(secrets),
                asking=calling.asking(secrets),
                task=task,
            )
        except UpstreamClientError as error:
            raise _call_error(entry, source, record, error, secrets) from error
        if secrets is not None:
            outcome = secrets.hide_in_outcome(outcome)
        for note in outcome.notes:
            log.warning("%s: %s", entry.id, note)
        use = self._budgets.use(entry, context)
        if use is not None:
            use.received(outcome.result, None)
        return outcome.result

    def _source_of(self, entry: Entry, context: CallContext, *, dispatched: bool) -> ToolSource:
        try:
            return self._source(entry, context)
        except KeyError:
            why = f"server {entry.source_name!r} is no longer configured"
            if entry.source != "mcp":
                why = f"{entry.path}: {removal_message(entry.source_name)}"
            raise UpstreamError(why, dispatched=dispatched) from None

    async def _perform(
        self,
        source: ToolSource,
        operation: Operation,
        calling: Calling,
        admitted: Admitted,
        on_sent: SentFn,
        on_cached: SentFn,
    ) -> Mapping[str, Any]:
        """Perform an operation on resources or prompts. All its pages together may take `timeout` seconds."""
        entry, arguments, _, _, secrets, timeout = admitted
        record, begin = calling.record, calling.begin
        limit = self._settings().max_tool_result_bytes
        held = self._held if self._held is not None and self._held.may_hold(entry) else None
        resources: set[str] = set()

        def admit(view: UpstreamView) -> None:
            if held is not None:
                held.check(entry, arguments, view, resources)

        async def begin_once() -> None:
            nonlocal begin
            first, begin = begin, None
            if first is not None:
                await first()

        def request(method: str, params: JsonObject) -> Awaitable[JsonObject]:
            admit_view = admit if held is not None and method == operation.method else None
            return source.request(
                method,
                params,
                asking=calling.asking(secrets),
                on_progress=calling.progress(secrets),
                on_sent=on_sent,
                begin=begin_once,
                on_cached=on_cached,
                admit_view=admit_view,
            )

        with anyio.move_on_after(timeout):
            try:
                result = await perform(operation, arguments, request, _room(limit))
            except HeldResource:
                listed = await perform(RESOURCE_LIST, {}, request, _room(limit))
                resources.update(each["uri"] for each in listed["resources"] if isinstance(each.get("uri"), str))
                result = await perform(operation, arguments, request, _room(limit))
            return result if held is None else held.without_held(entry, result)
        unsent = "" if record.dispatched else "; nothing was sent"
        raise UpstreamError(f"{entry.path} timed out after {timeout:g} s{unsent}", dispatched=record.dispatched)


def _room(limit: int) -> Callable[[Mapping[str, Any]], bool]:
    """Return a function that returns True as long as the pages that it has got have at most `limit` bytes together."""
    room = limit

    def has_room(page: Mapping[str, Any]) -> bool:
        nonlocal room
        room -= len(json_text(page).encode("utf-8", "surrogatepass"))
        return room >= 0

    return has_room


def _call_error(
    entry: Entry, source: ToolSource, record: CallRecord, error: UpstreamClientError, secrets: RepeatedSecrets | None
) -> UpstreamError:
    """Return the error for a program from an error of a source, and record whether the call was sent."""
    why = error.message if secrets is None else secrets.hide(error.message)
    record.server_error = INTERNAL_ERROR, why, None
    if isinstance(error, UpstreamCallError):
        record.dispatched = error.dispatched
        if error.code is not None:
            said, data = error.server_message or error.message, error.server_data
            record.server_error = (
                (error.code, said, data) if secrets is None else (error.code, secrets.hide(said), secrets.hide(data))
            )
        record.is_unknown = isinstance(error, TaskLost)
        return UpstreamError(f"{entry.path}: {why}", dispatched=error.dispatched)
    if source.view().login_required:
        why = f"server {entry.source_name!r} {login_advice(entry.source_name)}"
        record.server_error = INTERNAL_ERROR, why, None
    # A call may take several requests. If this one was not sent, an earlier one may have been.
    return UpstreamError(f"{entry.path}: {why}", dispatched=record.dispatched)
