"""The task of one call of an upstream: requests about it, over whichever connection the upstream has."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Protocol

import anyio

from upstream_clients import tasks
from upstream_clients.errors import UpstreamUnavailable
from upstream_clients.tools import TaskOptions

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager

    from upstream_clients.call import Call
    from upstream_clients.live_connection import LiveConnection
    from upstream_clients.questions import CallQuestions
    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.tools import CallOptions, JsonObject, UpstreamView

MIN_SECONDS = 5.0
"""Seconds for the request about a task of an earlier process, if the call has timed out in the meantime."""


class Connected(Protocol):
    """The upstream of the call."""

    spec: UpstreamSpec

    def view(self) -> UpstreamView: ...

    def admitted(
        self, questions: CallQuestions, *, keeps_place: bool = True
    ) -> AbstractAsyncContextManager[LiveConnection]:
        """Wait for a connection, a place and a turn, and keep them for the duration of the context."""
        ...

    async def cancel_task(self, params: Mapping[str, Any]) -> None:
        """Send `tasks/cancel` if the server is connected."""
        ...


class TaskOfCall:
    """The task of one call, as `tasks.Server`. Its methods run in the scope of the call."""

    def __init__(self, upstream: Connected, call: Call, questions: CallQuestions, options: CallOptions) -> None:
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
            seed = tasks.read_task(created)
        except ValueError as error:
            raise tasks.invalid(self._questions, str(error)) from None
        deadline = self._call.scope.deadline
        left = None if deadline == math.inf else deadline - anyio.current_time()
        handle = tasks.new_handle(seed, self._upstream.spec, modern=modern, left=left, wall=time.time())
        if self._task.created is not None:
            await self._task.created(handle.text())
        return await self._follow(handle, seed)

    async def follow_known(self, text: str) -> JsonObject:
        """Follow a task of an earlier process. Raises as `follow_created`."""
        try:
            handle = tasks.handle_of(text)
        except ValueError:
            raise tasks.lost(self._questions, "the record of its task is damaged") from None
        if handle.server != tasks.server_digest(self._upstream.spec):
            raise tasks.lost(self._questions, "the definition of the server has changed since its task was created")
        call = self._call
        call.sent = True
        call.limit = None if handle.until is None else max(handle.until - time.time(), MIN_SECONDS)
        call.scope.deadline = math.inf if call.limit is None else anyio.current_time() + call.limit
        return await self._follow(handle, None)

    async def _follow(self, handle: tasks.TaskHandle, seed: tasks.Task | None) -> JsonObject:
        call, task, spec = self._call, self._task, self._upstream.spec
        following = tasks.Following(
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
                raise tasks.lost(self._questions, error.message) from error
            raise

    async def cancel_task(self, params: Mapping[str, Any]) -> None:
        await self._upstream.cancel_task(params)
