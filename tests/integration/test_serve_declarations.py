"""Declaration files as programs read them, over real pipes: parts of files, and what earlier results looked like."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from harness import SERVERS, Session, serve, write_config

pytestmark = pytest.mark.anyio

PART = "return (await API.read('mcp/echo.d.ts#give')).content"
SHAPE = "{ id: number; labels: string[]; owner: { name: string } | null }"


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[Session]:
    (folder / "first.json").write_text('{"id": 4711, "labels": ["secret"], "owner": null}')
    (folder / "second.json").write_text('{"id": 4712, "labels": [], "owner": {"name": "secret"}}')
    (folder / "third.json").write_text('{"other": true}')
    servers = {"echo": {"command": sys.executable, "args": [str(SERVERS / "echo.py"), str(folder)]}}
    async with serve(write_config(folder, servers)) as session:
        yield session


@pytest.fixture
async def session(tmp_path: Path) -> AsyncIterator[Session]:
    """Yield a server that has seen no result."""
    async with served(tmp_path) as session:
        yield session


@pytest.fixture(scope="module")
async def unchanged(folder: Path) -> AsyncIterator[Session]:
    """Yield a server for all tests that call no tool."""
    async with served(folder) as session:
        yield session


async def give(session: Session, name: str) -> None:
    await session.value(f"return unwrap(await MCP.echo.give({{ name: '{name}.json' }}))")


async def test_a_program_sees_what_results_of_the_programs_before_looked_like(session: Session) -> None:
    assert "observed" not in await session.value(PART)
    await give(session, "first")
    await give(session, "second")
    part = await session.value(PART)
    assert f"Promise<McpToolResult<{SHAPE}>>;" in part
    assert "@returns Shape observed in earlier results" in part
    assert "4711" not in part
    assert "secret" not in part
    signature = f"MCP.echo.give(input: {{ name: string }}): Promise<McpToolResult</* observed */ {SHAPE}>>"
    assert await session.value("return (await API.search('give'))[0].signature") == signature
    assert await session.value("return (await MCP.echo.$api('give')).header") == signature
    assert signature in (await session.exec("await MCP.echo.give({ nam: 'first.json' })")).error
    file = await session.value("return await API.read('mcp/echo.d.ts')")
    assert SHAPE in file["content"]
    assert file["bytes"] == len(file["content"].encode())
    listed = await session.value("return (await API.list('mcp/echo')).files")
    assert listed == [{"path": "mcp/echo.d.ts", "tools": ["echo", "give", "sendTo"]}]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("API.search('give', { servers: 'echo' })", "there is no option servers; there is limit, server"),
        ("API.search('give', 'echo')", "the options are an object, { limit: ... }, not a string"),
        ("API.search()", 'API.search takes the query as a string, not undefined; write API.search("what you need")'),
        ("API.search({ q: 'give' })", 'API.search({ query: "what you need", limit: 5 })'),
        ("API.search(['give'])", "the query as a string, not an array"),
        ("API.search(API.search('give'))", "the query as a string, not a promise"),
        ("API.search({ query: 'give', servers: 'echo' })", "there is no option servers; there is limit, server"),
        ("API.search({ query: 'give' }, { limit: 2 })", "one object with the query and the options, or the query and"),
        ("API.search('give', 0)", "the option limit must be a positive integer, not 0"),
        ("API.search('give', { limit: '3' })", "the option limit must be a positive integer, not "),
        ("tools.search('give', { limit: 1.5 })", "the option limit must be a positive integer, not 1.5"),
        ("tools.search({ query: 'give', server: 'echo' })", "there is no option server; there is limit"),
        ("MCP.echo.$api('give', { schemas: true })", "there is no option schemas; there is schema"),
    ],
)
async def test_an_option_that_there_is_not_is_refused(unchanged: Session, call: str, told: str) -> None:
    assert told in (await unchanged.exec(f"return await {call}")).error


async def test_a_server_called_index_has_declarations_of_its_own(tmp_path: Path) -> None:
    servers = {"index": {"command": sys.executable, "args": [str(SERVERS / "echo.py"), str(tmp_path)]}}
    async with serve(write_config(tmp_path, servers)) as session:
        paths = await session.value("return (await API.list()).files.map((file) => file.path)")
        assert paths == ["mcp/index.d.ts", "mcp/index_.d.ts"]
        part = await session.value("const [hit] = await API.search('give'); return (await API.read(hit.path)).content")
        assert "function give(" in part
        for name in ("index_", "index"):
            header = await session.value(f"return await MCP.{name}.$api()")
            assert "give" in [each["method"] for each in header["tools"]]
