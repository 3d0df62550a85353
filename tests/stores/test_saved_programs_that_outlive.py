"""Saved programs that another process continues, in the middle."""

from __future__ import annotations

import pytest

from tests.runs.saved_programs import DOUBLE, WORK, library
from tests.stores.replicas import Replicas, fast, slow, until_done

pytestmark = pytest.mark.anyio

OUTER = """export default async () => {
  const first = await programs.work({ n: 1 });
  const second = await programs.double({ n: 4 });
  return [first, second.twice];
};"""


async def test_a_saved_program_continues_in_another_process_that_has_none(replicas: Replicas) -> None:
    async with replicas(slow()) as first:
        first.library = library(outer=OUTER, work=WORK, double=DOUBLE)
        waiting = await first.execute("return [await programs.outer(), (await programs.double({ n: 5 })).twice]")
        assert waiting.status == "waiting"
    async with replicas(fast()) as second:
        heard = []
        second.auditor.add(heard.append)
        outcome = await until_done(second, waiting.run_id)
        assert (outcome.error, outcome.value) == ("", [["done 1!", 8], 10])
        run = second.manager.operator.view(waiting.run_id)
        assert run is not None
        programs = [(call.tool, call.status) for call in run.calls if call.tool.startswith("program:")]
        assert programs == [(f"program:saved:{name}", "completed") for name in ("outer", "work", "double", "double")]
        ended = [event.fields["tool"] for event in heard if event.kind == "call_ended"]
        assert sorted(ended) == sorted(["mcp:files:read", *(tool for tool, _ in programs)])


async def test_an_error_in_another_process_names_the_line_of_the_file(replicas: Replicas) -> None:
    failing = f"{WORK}\n// more\n".replace("return `${result.text}!`;", "throw new Error(result.text);")
    async with replicas(slow()) as first:
        first.library = library(work=failing)
        waiting = await first.execute("return await programs.work({ n: 1 })")
    async with replicas(fast()) as second:
        outcome = await until_done(second, waiting.run_id)
        assert "programs.work failed: done 1 (programs/work.js:4:9)" in outcome.error
