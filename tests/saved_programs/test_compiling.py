"""The compilation of saved programs."""

from __future__ import annotations

import anyio
import pytest

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.catalog.saved_programs.compiling import ProgramCompiler
from codemode_mcp.catalog.saved_programs.program_file import read_program
from codemode_mcp.program.typescript import Transformed

pytestmark = pytest.mark.anyio


async def test_a_program_is_compiled_in_one_process_at_a_time_however_often_it_is_called() -> None:
    running = most = 0

    async def transform(source: str) -> Transformed:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.lowlevel.checkpoint()
        running -= 1
        raise ProgramError("invalid_input", "cell.ts:1: wrong")

    compiler = ProgramCompiler(transform)
    program = read_program("report", "typescript", "export default (input: { a: string }) => 1")

    async def call() -> None:
        with pytest.raises(ProgramError, match=r"programs/report\.ts:1: wrong"):
            await compiler.compile(program)

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(call)
    assert most == 1
