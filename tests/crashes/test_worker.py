"""The process under test, without its store."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import pytest

if not hasattr(os, "fork"):
    pytest.skip("processes are forked", allow_module_level=True)

from tests.crashes.worker import Server


class Lines:
    """A writer that keeps what is written."""

    def __init__(self) -> None:
        self.found: list[Any] = []

    def write(self, line: bytes) -> None:
        self.found.append(json.loads(line))


def test_a_request_that_is_dropped_before_its_task_begins_is_answered() -> None:
    async def answers() -> list[Any]:
        reader, lines = asyncio.StreamReader(), Lines()
        for command in ({"do": "wait", "request": 1, "run": "run_a"}, {"do": "drop", "request": 1}):
            reader.feed_data(json.dumps(command).encode() + b"\n")
        reader.feed_eof()
        unused: Any = None  # no code of the request runs
        await Server(unused, unused, unused, lines).serve(reader)  # type: ignore[arg-type]
        return lines.found

    assert asyncio.run(answers()) == [{"request": 1, "dropped": True}]
