"""Results that were too large for their answer, as resources that the client of their owner lists and reads."""

from __future__ import annotations

import base64
import json
import re
import sys
from typing import TYPE_CHECKING, Any

import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from tests.integration.harness import DOWN, SERVERS, handshaken, raw, serve
from tests.integration.http_harness import ALICE, BOB, TWO_TOKENS, serve_http

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from mcp.client.client import Client

    from tests.integration.harness import Answer, Session

pytestmark = pytest.mark.anyio
ERAS = pytest.mark.parametrize("era", ["legacy", "auto"])
LINKED = {"mcp": {"mishandlesLinks": False}}
"""The `clients` of a configuration: the SDK's client gets links, although others with its name cannot take them."""
LARGE = 'return "é".repeat(40_000)'
PICTURE = base64.b64encode(bytes(range(256)) * 4).decode()


def write(folder: Path, servers: dict[str, Any], **others: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({"mcpServers": servers, "clients": LINKED, **others}), "utf-8")
    return path


def links(answer: Answer) -> list[types.ResourceLink]:
    return [block for block in answer.content if block.type == "resource_link"]


async def read(client: Client, uri: str) -> Any:
    (contents,) = (await client.read_resource(uri, cache_mode="refresh")).contents
    assert contents.uri == uri
    return contents


async def error_of(client: Client, uri: str) -> types.ErrorData:
    with pytest.raises(MCPError) as raised:
        await client.read_resource(uri)
    return raised.value.error


async def listed(client: Client) -> list[types.Resource]:
    return (await client.list_resources(cache_mode="refresh")).resources


@ERAS
async def test_a_result_too_large_for_its_answer_is_linked_listed_and_read(tmp_path: Path, era: str) -> None:
    upstream = tmp_path / "one"
    upstream.mkdir()
    own = {"uri": "codemode://results/0123456789abcdef", "name": "x"}
    items = {"prompts": [], "resourceTemplates": [], "resources": [own]}
    (upstream / "items.json").write_text(json.dumps(items), "utf-8")
    entry = {"command": sys.executable, "args": [str(SERVERS / "items.py"), str(upstream)]}
    async with serve(write(tmp_path, {"one": entry}), mode=era) as session:
        client = session.client
        assert links(await session.exec("return 1")) == []

        (value,) = links(await session.exec("return Array.from({length: 9_000}, (_, id) => ({id}))"))
        assert (value.mime_type, value.name) == ("application/json", f"result-{value.uri[-16:]}.json")
        contents = await read(client, value.uri)
        assert json.loads(contents.text) == [{"id": number} for number in range(9_000)]
        assert (contents.mime_type, value.size) == ("application/json", len(contents.text))
        ref = "result:" + value.uri.removeprefix("codemode://results/")
        assert await session.value(f"return (await load({json.dumps(ref)})).length") == 9_000

        (text,) = links(await session.exec(LARGE))
        contents = await read(client, text.uri)
        assert (contents.text, contents.mime_type, text.size) == ("é" * 40_000, "text/plain", 80_000)

        shown = {"type": "image", "mimeType": "image/png", "data": PICTURE}
        page = {"uri": "x:page", "mimeType": "text/html", "blob": PICTURE}
        answer = await session.exec(
            f'text("a".repeat(20_000)); text("b".repeat(20_000)); image({json.dumps(shown)}); image({json.dumps(page)})'
        )
        picture, other, printed = links(answer)
        contents = await read(client, picture.uri)
        assert (contents.blob, contents.mime_type, picture.mime_type) == (PICTURE, "image/png", "image/png")
        assert (picture.name[-4:], picture.size) == (".png", 1024)
        assert (await read(client, other.uri)).mime_type == other.mime_type == "application/octet-stream"
        assert "b" * 20_000 in (await read(client, printed.uri)).text
        ref = "result:" + picture.uri.removeprefix("codemode://results/")
        loaded = await session.exec(f"image(await load({json.dumps(ref)}))")
        assert [block.data for block in loaded.content if block.type == "image"] == [PICTURE]

        wrapped = f"codemode://servers/one/{own['uri']}"
        found = await listed(client)
        assert [each.uri for each in found] == [
            wrapped,
            *(each.uri for each in (printed, other, picture, text, value)),
        ]
        assert (found[3].mime_type, found[3].size, found[3].name) == ("image/png", 1024, picture.name)
        assert (await read(client, wrapped)).text == f"text of {own['uri']}"
        for uri in (own["uri"], "codemode://results/", value.uri + "/", value.uri.upper(), "codemode://results/../x"):
            error = await error_of(client, uri)
            assert error.code == (-32002 if era == "legacy" else types.INVALID_PARAMS), uri
            assert error.message == f"Resource not found: {uri}"


@ERAS
async def test_results_are_there_without_resources_of_servers(tmp_path: Path, era: str) -> None:
    entry = {"command": "no-such-command", "expose": {"prompts": False, "resources": False}}
    config = write(tmp_path, {"one": entry}, store={"kind": "memory"})
    async with serve(config, mode=era) as session:
        client = session.client
        declared = client.server_capabilities
        assert (declared.prompts, declared.completions) == (None, None)
        assert declared.resources == types.ResourcesCapability()
        assert await listed(client) == []
        (link,) = links(await session.exec(LARGE))
        assert [each.uri for each in await listed(client)] == [link.uri]
        assert (await read(client, link.uri)).text == "é" * 40_000
        assert (await client.list_resource_templates()).resource_templates == []
        for uri in ("x:y", "codemode://servers/one/x:y"):
            assert (await error_of(client, uri)).message == f"Resource not found: {uri}"
        with pytest.raises(MCPError, match="Method not found"):
            await client.list_prompts()
        with pytest.raises(MCPError, match="unknown cursor"):
            await client.list_resources(cursor="results:x", cache_mode="refresh")


async def test_only_the_owner_lists_and_reads_a_result_and_reads_are_recorded(tmp_path: Path) -> None:
    audit = {"trajectory": "events.jsonl"}
    tools = {"codeMode": {"storeMaxBytes": 200_000}}
    config = write(tmp_path, DOWN, http=TWO_TOKENS, tools=tools, audit=audit)
    async with (
        serve_http(config) as served,
        served.client("legacy", ALICE) as alice,
        served.client("auto", ALICE) as other_alice,
        served.client("auto", BOB) as bob,
    ):
        (link,) = links(await alice.exec(LARGE))
        for client in (alice.client, other_alice.client):
            assert (await read(client, link.uri)).text == "é" * 40_000
            assert [each.uri for each in await listed(client)] == [link.uri]
        assert await listed(bob.client) == []
        missing = "codemode://results/0123456789abcdef"
        of_others, of_none = await error_of(bob.client, link.uri), await error_of(bob.client, missing)
        assert of_others.code == of_none.code
        assert of_others.message.replace(link.uri, missing) == of_none.message

        later = [links(await alice.exec(LARGE))[0].uri for _ in range(5)]  # the oldest results make room
        assert (await error_of(alice.client, link.uri)).message == f"Resource not found: {link.uri}"
        assert [each.uri for each in await listed(alice.client)] == later[:-5:-1]
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text("utf-8").splitlines()]
    reads = [(each["uri"], each["status"], each.get("bytes")) for each in events if each["kind"] == "result_read"]
    assert reads == [
        (link.uri, "completed", 80_000),
        (link.uri, "completed", 80_000),
        (link.uri, "not_found", None),
        (missing, "not_found", None),
        (link.uri, "not_found", None),
    ]


async def test_finished_calls_of_a_failed_program_are_loaded_by_its_owner_alone_and_after_a_kill(
    tmp_path: Path,
) -> None:
    entry = {"command": sys.executable, "args": [str(SERVERS / "echo.py"), str(tmp_path)]}
    store = {"kind": "sqlite", "path": str(tmp_path / "runs.sqlite3")}
    config = write(tmp_path, {"one": entry}, http=TWO_TOKENS, store=store)
    async with (
        serve_http(config) as served,
        served.client("auto", ALICE) as alice,
        served.client("auto", BOB) as bob,
    ):
        failed = await alice.exec("for (let n = 0; n < 11; n++) await MCP.one.echo({ n }); return nothing.at.all")
        (note,) = [note for note in failed.structured["notes"] if note.startswith("Finished calls are kept")]
        assert '[10] MCP.one.echo({"n":10})' in note
        key = note.split('"')[1]
        load = f"return (await load({json.dumps(key)}))?.map((each) => each.input.n) ?? null"
        assert await bob.value(load) is None
        assert not [each for each in await listed(bob.client) if "results" in each.uri]
        assert await alice.value(load) == list(range(11))
        served.process.kill()
    async with serve_http(config) as again, again.client("auto", ALICE) as alice, again.client("auto", BOB) as bob:
        assert await bob.value(load) is None
        assert await alice.value(load) == list(range(11))


async def test_a_client_that_cannot_take_links_gets_none(tmp_path: Path) -> None:
    config = write(tmp_path, DOWN)

    def kinds(answer: dict[str, Any]) -> list[str]:
        return [block["type"] for block in answer["result"]["content"]]

    async with raw(config) as client:  # its revision is older than links
        await client.initialize("2025-03-26")
        assert kinds(await client.call("exec", {"code": LARGE})) == ["text"]
        assert len((await client.request("resources/list"))["result"]["resources"]) == 1
    for changes, expected in (
        ({}, ["text", "resource_link"]),
        ({"clients": {"raw": {"mishandlesLinks": True}}}, ["text"]),
        ({"expose": {"resources": False}}, ["text"]),
    ):
        write(tmp_path, DOWN, **changes)
        async with handshaken(config) as client:
            assert kinds(await client.call("exec", {"code": LARGE})) == expected


async def test_an_unknown_caller_has_no_results(tmp_path: Path) -> None:
    entry = {"command": "no-such-command", "expose": {"resources": False}}
    async with serve_http(write(tmp_path, {"one": entry})) as served, served.client("auto") as session:
        assert session.client.server_capabilities.resources is None
        assert links(await session.exec(LARGE)) == []
        error = await error_of(session.client, "codemode://results/0123456789abcdef")
        assert error.code == types.METHOD_NOT_FOUND


FORECAST = {"city": "Oslo", "days": [{"day": number, "degrees": number / 2} for number in range(30)]}
LOG = "first line\n" + 'a "line" of the log, é\n' * 3000 + "last line"


@pytest.fixture
async def scripted(tmp_path: Path) -> AsyncIterator[Session]:
    """Return a client of a server whose tool `give` answers with one of some results, with room for 2,000 bytes."""
    results = {
        "forecast": {"content": [{"type": "text", "text": json.dumps(FORECAST)}], "structuredContent": FORECAST},
        "log": {"content": [{"type": "text", "text": LOG}], "structuredContent": {"result": LOG}},
        "failed": {"content": [{"type": "text", "text": "Database error: no such table: users"}], "isError": False},
    }
    for name, result in results.items():
        (tmp_path / name).write_text(json.dumps(result), "utf-8")
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    (tmp_path / "tools.json").write_text(json.dumps([{"name": "give", "inputSchema": schema}]), "utf-8")
    entry = {"command": sys.executable, "args": [str(SERVERS / "scripted.py"), str(tmp_path)]}
    config = write(tmp_path, {"up": entry}, tools={"codeMode": {"maxOutputBytes": 2000}})
    async with serve(config) as session:
        yield session


async def test_a_result_that_says_its_data_twice_is_read_once_and_stays_whole_in_programs(scripted: Session) -> None:
    whole = await scripted.exec('const r = await MCP.up.give({ name: "forecast" }); store("r", r); return r')
    assert whole.value == {"structuredContent": FORECAST}
    assert whole.read.count("Oslo") == 1
    note = "result.content is not shown where it repeats structuredContent."
    assert whole.structured["notes"] == [note]
    printed = await scripted.exec('text(await MCP.up.give({ name: "forecast" }))')
    assert printed.read.count("Oslo") == 1
    assert note in printed.read
    assert await scripted.value('return (await load("r")).content[0].text.length') == len(json.dumps(FORECAST))


@pytest.mark.parametrize("shows", ["return", "text"])
async def test_a_long_text_is_read_as_text_with_its_beginning_and_its_end(scripted: Session, shows: str) -> None:
    answer = await scripted.exec(f'const log = unwrap(await MCP.up.give({{ name: "log" }})).result; {shows}(log)')
    read, _, line = answer.read.rpartition("\n")
    row = 'a "line" of the log, é\n'
    assert re.fullmatch(
        rf"first line\n({row})+.* \.\.\. \[\d+ of \d+ bytes left out\] \.\.\. .*\n({row})+last line", read
    )
    assert 1600 < len(answer.read.encode()) <= 2000
    load = json.loads(line)["read"]
    assert await scripted.value(f"const kept = {load}; return (kept[0].text ?? kept).length") == len(LOG)


async def test_a_text_that_reads_like_an_error_is_a_value_and_a_note(scripted: Session) -> None:
    answer = await scripted.exec('return unwrap(await MCP.up.give({ name: "failed" }))')
    assert answer.value == "Database error: no such table: users"
    [note] = answer.structured["notes"]
    assert note.startswith("MCP.up.give returned a text that reads like an error, without isError")
