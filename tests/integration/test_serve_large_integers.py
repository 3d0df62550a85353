"""Integers beyond 2^53 on their whole way: into a program, out of it, and into the next one, with all their digits.

The server behind it answers with the very text of a file, and shows the very text that reached it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.harness import SERVERS, Session, cli, handshaken, serve, write_config

pytestmark = pytest.mark.anyio

ID = 725653563933458433
EDGES = [2**53 - 1, 2**53, 2**53 + 1, -(2**53) + 1, -(2**53), -(2**53) - 1, 2**63 - 1, 2**63, 2**64, -(2**64), 10**30]

PROGRAM = """/**
 * Count a chat up.
 * @param {{ id: bigint, more?: number }} input
 */
export default async ({ id, more }) => ({ id, next: id + 1n, kind: typeof id, more: typeof more, large: 2 ** 60 });
"""


def echoing(folder: Path) -> dict[str, Any]:
    return {"echo": {"command": sys.executable, "args": [str(SERVERS / "echo.py"), str(folder)]}}


def configured(folder: Path, **more: Any) -> Path:
    path = write_config(folder, echoing(folder), **more)
    config = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps(config | {"store": {"kind": "sqlite", "path": str(folder / "runs.sqlite3")}}), "utf-8")
    return path


@pytest.fixture(scope="module")
async def session(folder: Path) -> AsyncIterator[Session]:
    (folder / "programs").mkdir()
    (folder / "programs" / "countUp.js").write_text(PROGRAM, "utf-8")
    async with serve(configured(folder, codeMode={"maxOutputBytes": 2_000})) as session:
        yield session


def give(folder: Path, value: Any) -> str:
    """Return the expression for a result with this as its `structuredContent`."""
    (folder / "given").write_text(json.dumps(value), "utf-8")
    return 'unwrap(await MCP.echo.give({ name: "given" }))'


@pytest.mark.parametrize("integer", EDGES)
async def test_an_integer_of_a_result_can_be_printed_returned_and_passed_on(
    session: Session, folder: Path, integer: int
) -> None:
    code = (
        f"const ad = {give(folder, {'id': integer, 'all': [integer, [{'id': integer}]]})}; text(ad.id); json(ad);"
        "const sent = (await MCP.echo.sendTo({ chat_id: ad.id, others: ad.all.slice(0, 1) })).content[0].text;"
        "return [ad.id, `${ad.id}`, JSON.stringify(ad), ad.all[1][0].id, typeof ad.id, sent]"
    )
    answer = await session.exec(code)
    kind = "bigint" if abs(integer) > 2**53 - 1 else "number"
    whole = json.dumps({"id": integer, "all": [integer, [{"id": integer}]]}, separators=(",", ":"))
    *value, sent = answer.value
    assert value == [integer, str(integer), whole, integer, kind]
    assert f'"arguments":{{"chat_id":{integer},"others":[{integer}]}}' in sent
    assert answer.texts == [str(integer)]
    assert answer.structured["output"][1] == {"type": "json", "value": json.loads(whole)}
    assert answer.read.count(str(integer)) >= 5


async def test_json_in_a_text_and_in_a_resource_is_read_with_all_digits(session: Session, folder: Path) -> None:
    code = (
        f"await {give(folder, ID)}; const r = unwrap(await MCP.echo.echo({{ a: {ID}n, b: [{2**53 - 1}] }}));"
        "const { a, b } = r.params.arguments; const [part] = (await MCP.echo.resources.read({ uri: 'file:///given' }))"
        ".contents; return [a, typeof a, typeof b[0], part._meta.size, typeof part._meta.size, part.text,"
        "unwrap({ content: [{ type: 'text', text: part.text }] }), JSON.parse(part.text)]"
    )
    rounded = int(float(ID))
    [*value, parsed] = await session.value(code)
    assert value == [ID, "bigint", "number", ID, "bigint", str(ID), ID]
    assert float(parsed) == rounded


async def test_stored_values_keep_their_digits_and_their_kinds(session: Session, folder: Path) -> None:
    await session.value(f"store('ids', {{ id: {give(folder, ID)}, n: 2 ** 60, m: 2 ** 53 - 1, s: '{ID}' }})")
    code = "const v = await load('ids'); return [v.id, typeof v.id, v.n === 2 ** 60, typeof v.m, v.s]"
    assert await session.value(code) == [ID, "bigint", True, "number", str(ID)]


async def test_a_value_that_is_kept_elsewhere_keeps_its_digits(session: Session, folder: Path) -> None:
    many = [{"id": ID + number} for number in range(200)]
    answer = await session.exec(f"return {give(folder, many)}")
    assert answer.value["truncated"] is True
    assert answer.value["preview"][0] == {"id": ID}
    code = (
        f"const all = await load({json.dumps(answer.value['ref'])}); return [all.length, all[199].id, typeof all[0].id]"
    )
    assert await session.value(code) == [200, ID + 199, "bigint"]


async def test_a_suspended_program_and_what_it_waits_for_keep_their_digits(session: Session, folder: Path) -> None:
    code = (
        f"const id = {give(folder, ID)}; text(id); await yield_control(); text(id + 1n);"
        "const again = unwrap(await MCP.echo.give({ name: 'given' })); return [id, again, id === again]"
    )
    suspended = await session.exec(code)
    assert suspended.texts == [str(ID)]
    answer = await session.wait(suspended.run_id)
    assert answer.value == [ID, ID, True]
    assert answer.texts == [str(ID + 1)]
    whole = await session.wait(suspended.run_id, fromStart=True)
    assert whole.texts == [str(ID), str(ID + 1)]


async def test_a_saved_program_gets_and_gives_all_digits(session: Session, folder: Path) -> None:
    code = (
        f"const r = await programs.countUp({{ id: {give(folder, ID)}, more: 2 ** 60 }});"
        "return [r, typeof r.next, typeof r.large, r.large === 2 ** 60]"
    )
    result = {"id": ID, "next": ID + 1, "kind": "bigint", "more": "number", "large": 1152921504606847000}
    assert await session.value(code) == [result, "bigint", "number", True]
    refused = await session.exec(f"return await programs.countUp({{ id: {ID} }})")
    assert "input.id: expected an integer, got the Number 725653563933458400" in refused.error


async def test_a_rounded_number_is_not_sent_in_the_place_of_an_integer(session: Session, folder: Path) -> None:
    answer = await session.exec(f"await MCP.echo.sendTo({{ chat_id: {ID} }})")
    assert answer.code == "nested_tool_failed"
    assert "input.chat_id: expected an integer, got the Number 725653563933458400: beyond 2^53" in answer.error
    assert "nothing was sent" in answer.error
    [note] = answer.structured["notes"]
    assert note == (f"JavaScript rounds {ID} (cell.js:1:34), because it is beyond 2^53; write {ID}n to keep all digits")
    for wrong in ("Number(id)", "Number.MAX_VALUE", "2 ** 53", "-1e21"):
        refused = await session.exec(f"const id = {give(folder, ID)}; await MCP.echo.sendTo({{ chat_id: {wrong} }})")
        assert "input.chat_id: expected an integer, got the Number" in refused.error
    code = f"return (await MCP.echo.sendTo({{ chat_id: 1, at: {ID}, note: {ID} }})).content[0].text"
    assert '{"chat_id":1,"at":725653563933458400,"note":725653563933458400}' in await session.value(code)
    refused = await session.exec(f"const id = {give(folder, ID)}; await MCP.echo.sendTo({{ chat_id: id, title: id }})")
    assert f"input.title: expected string, got bigint {ID}n; pass String(n)" in refused.error
    code = (
        f"const id = {give(folder, ID)}; return (await MCP.echo.sendTo({{ chat_id: id, title: String(id) }})).content"
    )
    assert f'{{"chat_id":{ID},"title":"{ID}"}}' in (await session.value(code))[0]["text"]


async def test_a_program_resumed_by_another_process_keeps_its_digits(tmp_path: Path) -> None:
    config = configured(tmp_path)
    (tmp_path / "given").write_text(str(ID), "utf-8")
    code = (
        "const id = unwrap(await MCP.echo.give({ name: 'given' })); text(id); await yield_control();"
        "return [id, unwrap(await MCP.echo.sendTo({ chat_id: id })).params.arguments.chat_id === id]"
    )
    async with handshaken(config) as first:
        waiting = (await first.call("exec", {"code": code}))["result"]["structuredContent"]
        assert waiting["status"] == "waiting"
        first.process.kill()
        await first.process.wait()
    async with handshaken(config) as second:
        result = (await second.call("wait", {"runId": waiting["runId"]}))["result"]
        assert result["structuredContent"]["value"] == [ID, True]
        whole = (await second.call("wait", {"runId": waiting["runId"], "fromStart": True}))["result"]
        assert whole["structuredContent"]["output"] == [{"type": "text", "text": str(ID)}]


async def test_commands_of_a_terminal_keep_all_digits(tmp_path: Path) -> None:
    config = configured(tmp_path)
    (tmp_path / "given").write_text(json.dumps({"id": ID}), "utf-8")
    sent = cli("call", "echo.send_to", f"chat_id={ID}", f"others=[{ID + 1}]", "--config", str(config), cwd=tmp_path)
    assert sent.returncode == 0, sent.stderr
    assert json.loads(sent.stdout)["params"]["arguments"] == {"chat_id": ID, "others": [ID + 1]}
    program = tmp_path / "program.js"
    program.write_text("return unwrap(await MCP.echo.give({ name: 'given' }))", "utf-8")
    recording = tmp_path / "run.jsonl"
    first = cli("run", str(program), "--record", str(recording), "--config", str(config), cwd=tmp_path)
    assert json.loads(first.stdout) == {"id": ID}
    (tmp_path / "given").unlink()
    replayed = cli("run", "--replay", str(recording), cwd=tmp_path)
    assert replayed.returncode == 0, replayed.stderr
    assert json.loads(replayed.stdout) == {"id": ID}
