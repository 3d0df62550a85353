"""Fakes that satisfy `tools.ToolSource`, for tests of its users. They need no process and no MCP SDK."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack, cast

import anyio
import anyio.lowlevel
from msgspec.structs import replace

from upstream_clients.errors import QuestionRefused, UpstreamCallError, UpstreamClientError, UpstreamUnavailable
from upstream_clients.resource_state import ResourceSubscriptions
from upstream_clients.results import read_outcome
from upstream_clients.schemas import compile_check
from upstream_clients.server_log import LogListeners
from upstream_clients.tools import (
    CallOptions,
    JsonObject,
    LogFn,
    LogLevel,
    Question,
    QuestionMethod,
    RequestOptions,
    ResourceListing,
    SentFn,
    Tool,
    ToolOutcome,
    UpdateFn,
    UpstreamView,
)

Answer = JsonObject | Exception | Callable[[JsonObject], JsonObject]
"""A raw result, an exception to raise, or a function from the arguments to a raw result."""


def text_result(text: str, **more: Any) -> dict[str, Any]:
    """Return the commonest result: one text block."""
    return {"content": [{"type": "text", "text": text}], **more}


class ScriptedSource:
    """A source with a fixed answer for each tool and each method of `request`. `calls` lists the requests so far.

    It satisfies `tools.ItemSource`, except for direct calls. The resources are those of the view. `report_update` and
    `report_log` call the listeners, and `subscribed` has the resources with listeners.
    """

    def __init__(
        self, name: str, answers: Mapping[str, Answer], *, tools: Sequence[Tool] | None = None, **view: Any
    ) -> None:
        """`tools` defaults to one plain tool per answer without a slash; `view` sets further fields of the view."""
        self._name = name
        self._answers = dict(answers)
        if tools is None:
            tools = [Tool(answer) for answer in answers if "/" not in answer]
        self._view = UpstreamView(**{"name": name, "state": "ready", "era": "modern", "tools": tuple(tools), **view})
        self.calls: list[tuple[str, JsonObject]] = []
        self.subscriptions = ResourceSubscriptions(name, lambda: None)
        self.log_listeners = LogListeners(str)

    @property
    def name(self) -> str:
        return self._name

    def view(self) -> UpstreamView:
        return self._view

    def relist(self, *tools: Tool) -> None:
        """List these tools, and no others, from now on."""
        self._view = replace(self._view, tools=tools)

    async def call_tool(self, tool: str, arguments: JsonObject, **options: Unpack[CallOptions]) -> ToolOutcome:
        await self._begin(tool, options)
        self._record(tool, arguments, options.get("on_sent"))
        await anyio.lowlevel.checkpoint()
        known = self._listed(tool)
        schema = None if known is None else known.output_schema
        return read_outcome(self._answer(tool, arguments), None if schema is None else compile_check(schema))

    async def request(self, method: str, params: JsonObject, **options: Unpack[RequestOptions]) -> JsonObject:
        await self._begin(method, cast("CallOptions", options))
        self._record(method, params, options.get("on_sent"))
        await anyio.lowlevel.checkpoint()
        return self._answer(method, params)

    async def list_resources(self) -> ResourceListing:
        await anyio.lowlevel.checkpoint()
        self._record("resources/list", {}, None)
        return ResourceListing(self._view.resource_list or ())

    def change(self, **view: Any) -> None:
        self._view = replace(self._view, **view)

    async def subscribe(self, uri: str, on_update: UpdateFn) -> Callable[[], None]:
        await anyio.lowlevel.checkpoint()
        if not self._view.resource_subscriptions:
            raise UpstreamCallError(self._name, "it does not report updates of resources", dispatched=True)
        _, remove = self.subscriptions.add(uri, on_update)
        self.subscriptions.report_accepted([uri])
        return remove

    @property
    def subscribed(self) -> list[str]:
        return sorted(self.subscriptions.uris())

    def report_update(self, uri: str) -> None:
        self.subscriptions.report_update(uri)

    def on_log(
        self, listener: LogFn, level: LogLevel, owner: str | None = None, *, known_only: bool = False
    ) -> Callable[[], None]:
        return self.log_listeners.add(listener, level, owner, None, known_only=known_only)

    def report_log(self, level: LogLevel, data: Any, owner: str | None = None) -> None:
        self.log_listeners.report({"level": level, "data": data}, owner, lambda _: True)

    def _listed(self, tool: str) -> Tool | None:
        return next((each for each in self._view.tools if each.name == tool), None)

    async def _begin(self, tool: str, options: CallOptions) -> None:
        if self._view.state in ("down", "stopped"):
            return
        if (begin := options.get("begin")) is not None:
            await begin()
        if (admit := options.get("admit")) is not None:
            admit(self._listed(tool))

    def _record(self, requested: str, arguments: JsonObject, on_sent: SentFn | None) -> None:
        if on_sent is not None:
            on_sent()
        self.calls.append((requested, arguments))

    def _answer(self, requested: str, arguments: JsonObject) -> JsonObject:
        if requested not in self._answers:
            raise UpstreamCallError(self._name, f"unknown tool or method: {requested}", dispatched=True, code=-32602)
        answer = self._answers[requested]
        if isinstance(answer, Exception):
            raise answer
        return answer(arguments) if callable(answer) else answer


class SlowSource(ScriptedSource):
    """A source whose calls are sent, report progress once, and then wait until `release` is set.

    `pending` counts the calls that wait, `cancelled` those that were given up. `wait_pending` proves overlap.
    """

    def __init__(self, name: str, answers: Mapping[str, Answer], **options: Any) -> None:
        super().__init__(name, answers, **options)
        self.release = anyio.Event()
        self.pending = 0
        self.cancelled = 0
        self._arrived = anyio.Event()

    async def call_tool(self, tool: str, arguments: JsonObject, **options: Unpack[CallOptions]) -> ToolOutcome:
        await self._begin(tool, options)
        self.pending += 1
        self._arrived.set()
        self._arrived = anyio.Event()
        if (on_sent := options.get("on_sent")) is not None:
            on_sent()
        timeout = options.get("timeout")
        with anyio.move_on_after(timeout):
            try:
                if (on_progress := options.get("on_progress")) is not None:
                    await on_progress(0.5, 1.0, "half way")
                await self.release.wait()
                return await super().call_tool(tool, arguments)
            except anyio.get_cancelled_exc_class():
                self.cancelled += 1
                raise
            finally:
                self.pending -= 1
        raise UpstreamCallError(self._name, f"tool {tool!r} timed out after {timeout:g} s", dispatched=True)

    async def wait_pending(self, count: int) -> None:
        """Return once `count` calls wait at the same time."""
        while self.pending < count:
            await self._arrived.wait()


class AskingSource(ScriptedSource):
    """A source whose calls ask questions, one after the other. The result has the answers in `structuredContent`."""

    def __init__(
        self, name: str, questions: Mapping[str, Sequence[tuple[QuestionMethod, JsonObject]]], **options: Any
    ) -> None:
        """`questions`: method and params of each, by tool."""
        super().__init__(name, {tool: {} for tool in questions}, **options)
        self._questions = dict(questions)

    async def call_tool(self, tool: str, arguments: JsonObject, **options: Unpack[CallOptions]) -> ToolOutcome:
        await self._begin(tool, options)
        self._record(tool, arguments, options.get("on_sent"))
        answers: list[JsonObject] = []
        for method, params in self._questions[tool]:
            if (asking := options.get("asking")) is None:
                message = f"server {self._name!r}: tool {tool!r} asks for further input, which cannot be given here"
                raise UpstreamCallError(self._name, message, dispatched=True)
            try:
                answers.append(await asking.ask(Question(self._name, method, params)))
            except QuestionRefused as refusal:
                message = f"server {self._name!r}: tool {tool!r} needs input that it cannot get: {refusal}"
                raise UpstreamCallError(self._name, message, dispatched=True) from refusal
        return read_outcome(text_result(json.dumps(answers), structuredContent={"answers": answers}))


class FailingSource(ScriptedSource):
    """A server that is down: it has its last known tools, and every call raises `error`."""

    def __init__(self, name: str, *, tools: Sequence[Tool] = (), error: UpstreamClientError | None = None) -> None:
        self._error = error or UpstreamUnavailable(name, f"server {name!r} is down")
        super().__init__(name, {}, tools=tools, state="down", error=self._error.message)

    def _record(self, requested: str, arguments: JsonObject, on_sent: SentFn | None) -> None:
        super()._record(requested, arguments, None)

    def _answer(self, requested: str, arguments: JsonObject) -> JsonObject:
        raise self._error


class LyingSource(ScriptedSource):
    """A source whose results do not fit the declared output schema, or are not valid MCP."""

    def __init__(self, name: str = "liar") -> None:
        count = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
        super().__init__(
            name,
            {
                "wrong_structure": text_result("ok", structuredContent={"count": "many"}),
                "no_structure": text_result("ok"),
                "no_content": {"resultType": "complete"},
                "text_content": {"content": "plain"},
                "odd_blocks": {"content": ["plain", 7, {"type": "text", "text": "fine"}], "isError": "maybe"},
            },
            tools=[
                Tool("wrong_structure", output_schema=count),
                Tool("no_structure", output_schema=count),
                Tool("no_content"),
                Tool("text_content"),
                Tool("odd_blocks"),
            ],
        )
