"""The programs of docs/cookbook.md against the servers that it names: each answer is the one on the page."""

from __future__ import annotations

import json
import re
import sqlite3
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from codemode_mcp.config.source import parse
from tests.integration.harness import QUICKSTART, REPOSITORY, Session, npm_server, serve
from tests.real_servers.conftest import git, pypi_server

pytestmark = pytest.mark.anyio

PAGE = (REPOSITORY / "docs" / "cookbook.md").read_text("utf-8")
ENVIRONMENTS = {"mcp-server-sqlite": "mcp-1", "mcp-server-calculator": "mcp-1"}
ANSWER = {"name": "release-2"}
"""Answer of the user of the page."""

WORKBOOK = """
    const rows = [["day", "region", "amount"]];
    for (let day = 1; day <= 60; day++) rows.push([day, ["north", "south", "west"][day % 3], day * 10 + (day % 7)]);
    await MCP.excel.createWorkbook({ path: "sales.xlsx", sheets: ["Sales"] });
    unwrap(await MCP.excel.writeRange({ path: "sales.xlsx", sheet: "Sales", at: "A1", rows }));
"""


def recipes() -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the titles, each with its programs and answers in order."""
    return [
        (section.partition("\n")[0], re.findall(r"^```(js|json)\n(.*?)^```", section, re.DOTALL | re.MULTILINE))
        for section in PAGE.split("\n## ")[1:]
    ]


def installed(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the entry of the page, with the installed server instead of one that would be fetched."""
    arguments = entry["args"]
    match entry["command"]:
        case "npx":
            more = {key: value for key, value in entry.items() if key not in ("command", "args")}
            return npm_server(arguments[1].partition("server-")[2], *arguments[2:], **more)
        case "uvx":
            return {**entry, **pypi_server(ENVIRONMENTS.get(arguments[0], "mcp-2"), *arguments)}
    return {**entry, "command": sys.executable, "args": [str(QUICKSTART / arguments[0].rpartition("/")[2])]}


def furnish(work: Path) -> None:
    """Create the folder of the page, without the workbook."""
    (work / "notes").mkdir(parents=True)
    budget = (
        "Hosting: 12*49.90",
        "Desks: 3*219",
        "Travel: 4*(61.5+38.5)",
        "Coffee: 52*11",
        "Domains: 7*12",
        "Books: 90",
    )
    (work / "notes" / "budget.md").write_text("# Budget\n\n" + "".join(f"- {line}\n" for line in budget), "utf-8")
    (work / "notes" / "shop.md").write_text("# Shop\n\nNordlicht sells lamps.\nOpen from 9 to 6.\n", "utf-8")
    database = sqlite3.connect(work / "shop.db")
    database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT)")
    states = [("cancelled" if number % 9 == 4 else "paid",) for number in range(40)]
    database.executemany("INSERT INTO orders (state) VALUES (?)", states)
    database.commit()
    database.close()
    repository = work / "repo"
    git(work, "init", "--quiet", "--initial-branch=main", str(repository))
    git(repository, "config", "user.email", "nobody@example.org")
    git(repository, "config", "commit.gpgsign", "false")
    for number, author in enumerate(("Ada", "Bo", "Ada", "Chen", "Ada", "Bo")):
        git(repository, "config", "user.name", author)
        (repository / "log.txt").write_text(f"{number}\n", "utf-8")
        git(repository, "add", "log.txt")
        git(repository, "commit", "--quiet", "--message", f"Change {number}")


async def elicit(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content=dict(ANSWER))


@pytest.fixture(scope="module")
async def session(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Session]:
    folder = tmp_path_factory.mktemp("cookbook")
    (text,) = re.findall(r"```jsonc\n(.*?)```", PAGE, re.DOTALL)
    servers = {name: installed(entry) for name, entry in parse(text)["mcpServers"].items()}
    furnish(folder / "work")
    config = folder / "codemode-mcp.json"
    tools = {"codeMode": {"connectWaitMs": 25_000, "timeoutMs": 25_000}}
    config.write_text(json.dumps({"mcpServers": servers, "tools": tools}), "utf-8")
    async with serve(config, elicitation_callback=elicit) as opened:
        await opened.exec(WORKBOOK)
        yield opened


@pytest.mark.parametrize(("title", "blocks"), [pytest.param(*each, id=each[0]) for each in recipes()])
async def test_the_program_gives_the_answer_that_the_page_shows(
    session: Session, title: str, blocks: list[tuple[str, str]]
) -> None:
    assert [language for language, _ in blocks].count("js") >= 1
    answer = None
    for language, text in blocks:
        if language == "js":
            answer = await session.exec(text)
            continue
        assert answer is not None
        shown = json.loads(text)
        if isinstance(shown, dict) and "status" in shown:
            assert {key: answer.structured.get(key) for key in shown} == shown
        else:
            assert answer.value == shown
        if answer.status == "waiting":
            answer = await session.finish(answer)


async def test_pictures_reach_the_client(session: Session) -> None:
    (program,) = [blocks[0][1] for title, blocks in recipes() if title == "Show a picture"]
    answer = await session.exec(program)
    assert any(block.type == "image" for block in answer.content)


def test_there_are_ten() -> None:
    assert len(recipes()) == 10
