"""Results that were too large for their answer, as resources that the client of their owner lists and reads."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError

from tests.integration.harness import DOWN, SERVERS, Answer, handshaken, raw, serve
from tests.integration.http_harness import ALICE, BOB, TWO_TOKENS, serve_http

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
        serve_http(config, own_process=True) as served,
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
