"""Programs and behaviours on the page about other code modes do what the page says.

The tables of the page are the cases. A row with a program is run. For a row without one, `HELD` names the test.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from codemode_mcp.base.errors import ERROR_CODES
from tests.integration.harness import REPOSITORY, Session, quickstart, serve

pytestmark = pytest.mark.anyio

PAGE = REPOSITORY / "docs" / "differences.md"
DESK = """
from codemode_mcp.plugins import PluginTool, ToolError, namespace_tool

INPUT = {"type": "object", "properties": {"text": {"type": "string"}}}


def fail(value):
    raise ToolError("the desk is closed")


def register(api):
    api.tool(PluginTool(name="note", description="Return a note.", run=lambda value: value, input=INPUT))
    api.tool(PluginTool(name="fail", description="Fail.", run=fail, input=INPUT))
    api.namespace(
        "broken",
        "Broken",
        description="A scope that has no JSON form.",
        required_tools=["note"],
        create_scope=lambda context: {"read": print},
    )
"""
HELD = {
    "without any setting": "integration/test_serve_surface.py::test_the_list_is_exec_and_wait_and_stays_so",
    "`exec` with wrong arguments": "integration/test_serve_bad_input.py::"
    "test_exec_says_what_is_wrong_with_its_arguments",
    "a request of `wait` is cancelled": "integration/test_serve_suspension.py::test_cancelling_wait_only_lets_go",
    "another session asks for a run": "integration/test_serve_http_auth.py::"
    "test_a_principal_resumes_over_another_connection_and_in_the_other_era",
    "a program is too large to suspend": "runs/test_manager.py::"
    "test_a_program_too_large_to_suspend_leaves_calls_that_may_change_something",
    "too many suspended programs": "runs/test_manager.py::test_suspended_programs_of_all_clients_count_for_their_owner",
    "a tool called `constructor`": "declarations/test_declaration_names.py::test_a_tool_name_becomes_this_identifier",
    "namespaces": "integration/test_serve_namespaces.py::"
    "test_the_first_list_of_a_process_has_the_namespaces_and_no_change_follows",
}
"""Tests of rows without a program, by the first cell of the row."""


def rows() -> Iterator[list[str]]:
    """Cells of the rows of all tables."""
    for table in re.findall(r"(?:^\|.*\n)+", PAGE.read_text("utf-8"), re.MULTILINE):
        for line in table.splitlines()[2:]:
            yield [cell.strip() for cell in line.strip("|").split("|")]


def programs() -> Iterator[Any]:
    for cells in rows():
        if program := re.fullmatch(r"`([^`]+)`", cells[0]):
            here = cells[1] if len(cells) == 2 else cells[2]
            yield pytest.param(program[1], re.findall(r"`([^`]+)`", here), id=program[1])


@pytest.fixture(scope="module")
async def session(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Session]:
    folder = tmp_path_factory.mktemp("differences")
    (folder / "desk.py").write_text(textwrap.dedent(DESK), "utf-8")
    config = {"mcpServers": {"tracker": quickstart()["tracker"]}, "plugins": {"desk": {"module": "./desk.py"}}}
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    async with serve(folder / "config.json") as opened:
        await opened.finish(await opened.exec("await MCP.tracker.listPeople({})"))  # its tools are known now
        yield opened


@pytest.mark.parametrize(("program", "here"), list(programs()))
async def test_a_program_of_the_page_gives_what_the_page_says(session: Session, program: str, here: list[str]) -> None:
    answer = await session.finish(await session.exec(program))
    first, *others = here
    if first in ERROR_CODES:
        assert answer.code == first
    else:
        try:
            expected = json.loads(first)
        except ValueError:
            others = here
        else:
            assert answer.value == expected
    for part in others:
        assert part in answer.read


def test_every_row_without_a_program_is_held_by_a_test_that_there_is() -> None:
    assert {cells[0] for cells in rows() if not re.fullmatch(r"`[^`]+`", cells[0])} == set(HELD)
    for place in HELD.values():
        path, name = place.split("::")
        assert re.search(rf"^(async )?def {name}\(", (REPOSITORY / "tests" / path).read_text("utf-8"), re.MULTILINE)
