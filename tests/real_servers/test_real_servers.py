"""Tests that servers do their work when a program calls them: files, rows, commits and cells are checked directly."""

from __future__ import annotations

import json
import sqlite3
import zipfile
from pathlib import Path

import pytest

from tests.real_servers.conftest import Bench, git

pytestmark = pytest.mark.anyio


def told(code: str, **values: object) -> str:
    """Return a program that has these texts as constants."""
    return "".join(f"const {name} = {json.dumps(str(value))};\n" for name, value in values.items()) + code


async def test_every_server_is_connected_and_its_tools_are_found(bench: Bench) -> None:
    code = """
        const found = {};
        for (const word of ["sum", "write file", "create entities", "think step", "convert timezone", "commit changes",
            "write cells", "run select query", "calculate expression"])
            found[word] = (await API.search(word, { limit: 5 })).map((hit) => hit.server);
        return found;
    """
    found = await bench.session.value(code)
    wanted = ("everything", "filesystem", "memory", "sequentialThinking", "time", "git", "excel", "sqlite")
    for server, hits in zip((*wanted, "calculator"), found.values(), strict=True):
        assert server in hits, found


async def test_everything_adds_and_greets(bench: Bench) -> None:
    code = """
        const sum = unwrap(await MCP.everything.getSum({ a: 19, b: 23 }));
        const echo = unwrap(await MCP.everything.echo({ message: "é 😀 \\u2028" }));
        const { prompts } = await MCP.everything.prompts.list();
        const { resources } = await MCP.everything.resources.list();
        return { sum, echo, prompts: prompts.length > 0, resources: resources.length > 0 };
    """
    value = await bench.session.value(code)
    assert "42" in value["sum"]
    assert value["echo"] == "Echo: é 😀 \u2028"
    assert value["prompts"]
    assert value["resources"]


async def test_filesystem_writes_moves_and_refuses(bench: Bench) -> None:
    files = bench.folder / "files"
    code = """
        await MCP.filesystem.writeFile({ path: `${files}/draft.txt`, content: "ä\\nö\\n" });
        await MCP.filesystem.editFile({ path: `${files}/draft.txt`, edits: [{ oldText: "ö", newText: "ü" }] });
        await MCP.filesystem.moveFile({ source: `${files}/draft.txt`, destination: `${files}/final.txt` });
        const refused = await MCP.filesystem.writeFile({ path: "/no/such/place.txt", content: "" });
        return [refused.isError, refused.content[0].text];
    """
    is_error, text = await bench.session.value(told(code, files=files))
    assert is_error is True
    assert "Access denied" in text
    assert (files / "final.txt").read_text("utf-8") == "ä\nü\n"
    assert not (files / "draft.txt").exists()


async def test_memory_keeps_a_graph_in_its_file(bench: Bench) -> None:
    code = """
        await MCP.memory.createEntities({ entities: [
            { name: "Engine", entityType: "machine", observations: ["computes"] } ] });
        await MCP.memory.addObservations({ observations: [{ entityName: "Engine", contents: ["weighs tons"] }] });
        const failed = await MCP.memory.addObservations({ observations: [{ entityName: "Absent", contents: ["x"] }] });
        const { entities } = unwrap(await MCP.memory.openNodes({ names: ["Engine"] }));
        return { entities, failed: failed.isError };
    """
    value = await bench.session.value(code)
    assert value["failed"] is True
    assert value["entities"][0]["observations"] == ["computes", "weighs tons"]
    lines = [json.loads(line) for line in (bench.folder / "memory.jsonl").read_text("utf-8").splitlines()]
    assert [line["observations"] for line in lines] == [["computes", "weighs tons"]]


async def test_sequential_thinking_numbers_its_thoughts(bench: Bench) -> None:
    code = """
        const think = MCP.sequentialThinking.sequentialthinking;
        const common = { nextThoughtNeeded: true, totalThoughts: 2 };
        const first = unwrap(await think({ ...common, thought: "a", thoughtNumber: 1 }));
        const branch = { branchFromThought: 1, branchId: "other" };
        const last = unwrap(await think({ ...common, ...branch, thought: "b", thoughtNumber: 2 }));
        const bad = await think({ ...common, thought: "c", thoughtNumber: 2, nextThoughtNeeded: "maybe" });
        return { grown: last.thoughtHistoryLength - first.thoughtHistoryLength, branches: last.branches, bad };
    """
    value = await bench.session.value(code)
    assert value["grown"] == 1
    assert value["branches"] == ["other"]
    assert value["bad"]["isError"] is True
    assert "nextThoughtNeeded" in value["bad"]["content"][0]["text"]


async def test_time_converts_between_zones(bench: Bench) -> None:
    code = """
        const converted = unwrap(await MCP.time.convertTime(
            { source_timezone: "Asia/Tokyo", time: "16:30", target_timezone: "Asia/Kolkata" }));
        const now = unwrap(await MCP.time.getCurrentTime({ timezone: "Asia/Kolkata" }));
        const unknown = await MCP.time.getCurrentTime({ timezone: "Mars/Base" });
        return { difference: converted.time_difference, at: converted.target.datetime, zone: now.timezone, unknown };
    """
    value = await bench.session.value(code)
    assert value["difference"] == "-3.5h"
    assert value["at"].endswith("T13:00:00+05:30")
    assert value["zone"] == "Asia/Kolkata"
    assert value["unknown"]["isError"] is True
    assert "Mars/Base" in value["unknown"]["content"][0]["text"]


async def test_git_commits_what_it_was_given(bench: Bench) -> None:
    repository = bench.folder / "repository"
    (repository / "second.txt").write_text("two\n", "utf-8")
    code = """
        const before = unwrap(await MCP.git.gitStatus({ repo_path }));
        await MCP.git.gitAdd({ repo_path, files: ["second.txt"] });
        const committed = unwrap(await MCP.git.gitCommit({ repo_path, message: "Second: “two”" }));
        await MCP.git.gitCreateBranch({ repo_path, branch_name: "side" });
        const outside = await MCP.git.gitStatus({ repo_path: "/" });
        return { before, committed, outside: outside.isError };
    """
    value = await bench.session.value(told(code, repo_path=repository))
    assert "second.txt" in value["before"]
    assert git(repository, "rev-parse", "HEAD") in value["committed"]
    assert git(repository, "log", "--format=%s by %an") == "Second: “two” by Ada\nFirst by Ada"
    assert "side" in git(repository, "branch", "--list", "side")
    assert value["outside"] is True


async def test_excel_writes_cells_and_computes_formulas(bench: Bench) -> None:
    path = bench.folder / "files" / "squares.xlsx"
    code = """
        await MCP.excel.createWorkbook({ path, sheets: ["Squares"] });
        const rows = [["n", "square"], [1, "=A2*A2"], [12, "=A3*A3"]];
        await MCP.excel.writeRange({ path, sheet: "Squares", at: "A1", rows });
        const { values } = unwrap(await MCP.excel.readRange({ path, sheet: "Squares" }));
        const outside = await MCP.excel.createWorkbook({ path: "/outside.xlsx" });
        return { values, outside: outside.isError };
    """
    value = await bench.session.value(told(code, path=path))
    assert value["values"] == [["n", "square"], [1, 1], [12, 144]]
    assert value["outside"] is True
    with zipfile.ZipFile(path) as workbook:
        assert b"A3*A3" in workbook.read("xl/worksheets/sheet1.xml")


async def test_sqlite_inserts_rows_and_keeps_a_memo(bench: Bench) -> None:
    code = """
        await MCP.sqlite.createTable({ query: "CREATE TABLE ships (name TEXT, guns INTEGER)" });
        await MCP.sqlite.writeQuery({ query: "INSERT INTO ships VALUES ('Vasa', 64), ('Mary Rose', 78)" });
        const read = unwrap(await MCP.sqlite.readQuery({ query: "SELECT sum(guns) AS guns FROM ships" }));
        await MCP.sqlite.appendInsight({ insight: "Both sank." });
        const { resources } = await MCP.sqlite.resources.list();
        const { contents } = await MCP.sqlite.resources.read({ uri: resources[0].uri });
        const { messages } = await MCP.sqlite.prompts.get({ name: "mcp-demo", arguments: { topic: "shipwrecks" } });
        return { read, memo: contents[0].text, prompt: messages[0].content.text };
    """
    value = await bench.session.value(code)
    assert "142" in value["read"]
    assert "Both sank." in value["memo"]
    assert "shipwrecks" in value["prompt"]
    assert _rows(bench.folder / "rows.db", "SELECT * FROM ships") == [("Vasa", 64), ("Mary Rose", 78)]


async def test_calculator_calculates_and_reports_its_failure(bench: Bench) -> None:
    code = """
        const power = unwrap(await MCP.calculator.calculate({ expression: "2^10" }));
        const failed = await MCP.calculator.calculate({ expression: "1/0" });
        return { power, failed };
    """
    value = await bench.session.value(code)
    assert value["power"] == {"result": "1024"}
    assert value["failed"]["isError"] is True
    assert "division by zero" in value["failed"]["content"][0]["text"]


async def test_one_program_uses_all_of_them(bench: Bench) -> None:
    files, repository = bench.folder / "files", bench.folder / "repository"
    code = """
        const numbers = [3, 5, 7];
        const cubes = await Promise.all(numbers.map(async (n) =>
            Number(unwrap(await MCP.calculator.calculate({ expression: `${n}^3` })).result)));
        const sum = unwrap(await MCP.everything.getSum({ a: cubes[0] + cubes[1], b: cubes[2] }));
        await MCP.sqlite.createTable({ query: "CREATE TABLE cubes (n INTEGER, cube INTEGER)" });
        await MCP.sqlite.writeQuery(
            { query: `INSERT INTO cubes VALUES ${numbers.map((n, i) => `(${n}, ${cubes[i]})`).join(", ")}` });
        const path = `${files}/cubes.xlsx`;
        await MCP.excel.createWorkbook({ path, sheets: ["Cubes"] });
        await MCP.excel.writeRange({ path, sheet: "Cubes", at: "A1", rows: numbers.map((n, i) => [n, cubes[i]]) });
        const [cells, , , , noon] = await Promise.all([
            MCP.excel.readRange({ path, sheet: "Cubes" }),
            MCP.filesystem.writeFile({ path: `${files}/cubes.json`, content: JSON.stringify(cubes) }),
            MCP.memory.createEntities({ entities: [{ name: "Cubes", entityType: "list", observations: [sum] }] }),
            MCP.sequentialThinking.sequentialthinking(
                { thought: "done", nextThoughtNeeded: false, thoughtNumber: 1, totalThoughts: 1 }),
            MCP.time.convertTime({ source_timezone: "UTC", time: "12:00", target_timezone: "Asia/Tokyo" }),
        ]);
        const { content } = unwrap(await MCP.filesystem.readTextFile({ path: `${files}/cubes.json` }));
        const log = unwrap(await MCP.git.gitLog({ repo_path, max_count: 1 }));
        return { sum, cells: unwrap(cells).values, content, noon: unwrap(noon).target.datetime.slice(11, 16), log };
    """
    answer = await bench.session.exec(told(code, files=files, repo_path=repository))
    value = answer.value
    assert "495" in value["sum"]
    assert value["cells"] == [[3, 27], [5, 125], [7, 343]]
    assert value["content"] == "[27,125,343]"
    assert value["noon"] == "21:00"
    assert "Author: Ada" in value["log"]
    assert await bench.session.value("return Object.keys(MCP).length") == 9
    assert json.loads((files / "cubes.json").read_text("utf-8")) == [27, 125, 343]
    assert _rows(bench.folder / "rows.db", "SELECT sum(cube) FROM cubes") == [(495,)]


def _rows(path: Path, query: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()
