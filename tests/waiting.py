"""Requests of asynchronous tests that are waited for, refused, or answered meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio
import anyio.lowlevel
import pytest

from codemode_mcp.base.errors import CodeModeError, ProgramError

Answer = TypeVar("Answer")
Refusal = TypeVar("Refusal", bound=CodeModeError)


async def until(happened: Callable[[], object]) -> None:
    with anyio.fail_after(20):
        while not happened():
            await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def answering(request: Awaitable[Answer]) -> AsyncIterator[list[Answer]]:
    """Make a request while the context is open. At its end, the list has the answer."""
    answers: list[Answer] = []

    async def ask() -> None:
        answers.append(await request)

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        yield answers


async def refusal(request: Awaitable[object], kind: type[Refusal] = ProgramError) -> Refusal:  # type: ignore[assignment]
    """Return the error of a request that fails."""
    with pytest.raises(kind) as refused:
        await request
    return refused.value
