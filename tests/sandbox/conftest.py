"""Guests that are closed after their test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pytest
from guest_harness import Cell, Told

from codemode_mcp.sandbox.engine import Engine


class OpenCell(Protocol):
    def __call__(self, **options: Any) -> Cell: ...


class RunCode(Protocol):
    def __call__(self, code: str, **options: Any) -> Told: ...


@pytest.fixture
def cell(engine: Engine) -> Iterator[OpenCell]:
    """Yield a function that opens guests."""
    opened: list[Cell] = []

    def open_cell(**options: Any) -> Cell:
        opened.append(Cell(engine, **options))
        return opened[-1]

    yield open_cell
    for each in opened:
        each.close()


@pytest.fixture
def run(cell: OpenCell) -> RunCode:
    """Return a function that returns the first turn of a program in a new guest."""

    def run_code(code: str, *, memory_limit: int = 64 * 1024 * 1024, **options: Any) -> Told:
        return cell(memory_limit=memory_limit).start(code, **options)

    return run_code
