"""Fakes that satisfy `tools.ToolSource`, for tests of what stands on it. They need no process and no MCP SDK."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import anyio
import anyio.lowlevel

from upstream_clients.errors import QuestionRefused, UpstreamCallError, UpstreamClientError, UpstreamUnavailable
from upstream_clients.results import read_outcome
from upstream_clients.schemas import compile_check
from upstream_clients.tools import (
    AdmitFn,
    Asking,
    BeginFn,
    JsonObject,
    ProgressFn,
    Question,
    QuestionMethod,
    SentFn,
    Tool,
    ToolOutcome,
    UpstreamView,
)

Answer = JsonObject | Exception | Callable[[JsonObject], JsonObject]
"""A raw result, an exception to raise, or a function from the arguments to a raw result."""


def text_result(text: str, **more: Any) -> dict[str, Any]:
    """Return the commonest result: one text block."""
    return {"content": [{"type": "text", "text": text}], **more}


class ScriptedSource:
    """Answers each tool, and each other request by its method, as told; remembers what was asked in `calls`."""

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

    @property
    def name(self) -> str:
        return self._name

    def view(self) -> UpstreamView:
        return self._view

    def relist(self, *tools: Tool) -> None:
        """Have these tools, and no others, from now on."""
        self._view = replace(self._view, tools=tools)

    async def call_tool(
        self,
        tool: str,
        arguments: JsonObject,
        *,
        on_progress: ProgressFn | None = None,
        timeout: float | None = None,
        asking: Asking | None = None,
        on_sent: SentFn | None = None,
        admit: AdmitFn | None = None,
        begin: BeginFn | None = None,
    ) -> ToolOutcome:
        await self._begin(begin)
        self._admit(tool, admit)
        self._take(tool, arguments, on_sent)
        await anyio.lowlevel.checkpoint()
        known = self._listed(tool)
        schema = None if known is None else known.output_schema
        return read_outcome(self._answer(tool, arguments), None if schema is None else compile_check(schema))

    async def request(
        self,
        method: str,
        params: JsonObject,
        *,
        asking: Asking | None = None,
        on_sent: SentFn | None = None,
        begin: BeginFn | None = None,
    ) -> JsonObject:
        await self._begin(begin)
        self._take(method, params, on_sent)
        await anyio.lowlevel.checkpoint()
        return self._answer(method, params)

    @property
    def _is_up(self) -> bool:
        return self._view.state not in ("down", "stopped")

    def _listed(self, tool: str) -> Tool | None:
        return next((each for each in self._view.tools if each.name == tool), None)

    async def _begin(self, begin: BeginFn | None) -> None:
        if begin is not None and self._is_up:
            await begin()

    def _admit(self, tool: str, admit: AdmitFn | None) -> None:
        if admit is not None and self._is_up:
            admit(self._listed(tool))

    def _take(self, asked: str, arguments: JsonObject, on_sent: SentFn | None) -> None:
        if on_sent is not None:
            on_sent()
        self.calls.append((asked, arguments))

    def _answer(self, asked: str, arguments: JsonObject) -> JsonObject:
        if asked not in self._answers:
            raise UpstreamCallError(self._name, f"unknown tool or method: {asked}", dispatched=True, code=-32602)
        answer = self._answers[asked]
        if isinstance(answer, Exception):
            raise answer
        return answer(arguments) if callable(answer) else answer


class SlowSource(ScriptedSource):
    """Holds every call until `release` is set; reports progress once before it waits. As if sent when it waits.

    `pending` counts the calls that wait, `cancelled` those that were given up; `wait_pending` proves overlap.
    """

    def __init__(self, name: str, answers: Mapping[str, Answer], **options: Any) -> None:
        super().__init__(name, answers, **options)
        self.release = anyio.Event()
        self.pending = 0
        self.cancelled = 0
        self._arrived = anyio.Event()

    async def call_tool(
        self,
        tool: str,
        arguments: JsonObject,
        *,
        on_progress: ProgressFn | None = None,
        timeout: float | None = None,
        asking: Asking | None = None,
        on_sent: SentFn | None = None,
        admit: AdmitFn | None = None,
        begin: BeginFn | None = None,
    ) -> ToolOutcome:
        await self._begin(begin)
        self._admit(tool, admit)
        self.pending += 1
        self._arrived.set()
        self._arrived = anyio.Event()
        if on_sent is not None:
            on_sent()
        with anyio.move_on_after(timeout):
            try:
                if on_progress is not None:
                    await on_progress(0.5, 1.0, "half way")
                await self.release.wait()
                return await super().call_tool(tool, arguments, on_progress=on_progress)
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
    """Asks before it answers, one question after the other; the result of a call is the answers that it got.

    `structuredContent.answers` holds them.
    """

    def __init__(
        self, name: str, questions: Mapping[str, Sequence[tuple[QuestionMethod, JsonObject]]], **options: Any
    ) -> None:
        """`questions`: method and params of each, by tool."""
        super().__init__(name, {tool: {} for tool in questions}, **options)
        self._questions = dict(questions)

    async def call_tool(
        self,
        tool: str,
        arguments: JsonObject,
        *,
        on_progress: ProgressFn | None = None,
        timeout: float | None = None,
        asking: Asking | None = None,
        on_sent: SentFn | None = None,
        admit: AdmitFn | None = None,
        begin: BeginFn | None = None,
    ) -> ToolOutcome:
        await self._begin(begin)
        self._admit(tool, admit)
        self._take(tool, arguments, on_sent)
        answers: list[JsonObject] = []
        for method, params in self._questions[tool]:
            if asking is None:
                message = f"server {self._name!r}: tool {tool!r} asks for further input, which cannot be given here"
                raise UpstreamCallError(self._name, message, dispatched=True)
            try:
                answers.append(await asking.ask(Question(self._name, method, params)))
            except QuestionRefused as refusal:
                message = f"server {self._name!r}: tool {tool!r} needs input that it cannot get: {refusal}"
                raise UpstreamCallError(self._name, message, dispatched=True) from refusal
        return read_outcome(text_result(json.dumps(answers), structuredContent={"answers": answers}))


class FailingSource(ScriptedSource):
    """A server that is down: listed with its last known tools, and every call rejects with `error`."""

    def __init__(self, name: str, *, tools: Sequence[Tool] = (), error: UpstreamClientError | None = None) -> None:
        self._error = error or UpstreamUnavailable(name, f"server {name!r} is down")
        super().__init__(name, {}, tools=tools, state="down", error=self._error.message)

    def _take(self, asked: str, arguments: JsonObject, on_sent: SentFn | None) -> None:
        super()._take(asked, arguments, None)

    def _answer(self, asked: str, arguments: JsonObject) -> JsonObject:
        raise self._error


class LyingSource(ScriptedSource):
    """Keeps to no promise: results against the declared output schema, or of no valid shape."""

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
