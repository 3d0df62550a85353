"""Integers of 64 bits of an HTTP API: with all their digits in each place of a request, and in answers."""

import json
from pathlib import Path

import pytest
from loopback_api import loopback_api, reply
from openapi_documents import document

from tests.integration.harness import serve
from upstream_clients.direct import THREAD_BYTES

pytestmark = pytest.mark.anyio

ID = 725653563933458433
DOCUMENT = document("large_integers")

PROGRAM = """
const { id } = unwrap(await MCP.api.read({ id: 1 }));
const places = { after: id, any: [id, 5n], filter: { id }, "X-Owner": id, chat: id, ratio: 2 ** 60 };
const item = unwrap(await MCP.api.read({ id, ...places }));
await MCP.api.form({ id, owner: id, all: [id] });
await MCP.api.replace({ id, owner: id, all: [id, 7] });
const large = unwrap(await MCP.api.read({ id: 2 }));
return [id, typeof id, item.id === id, typeof item.count, large.all.every((each) => each === id), large.all.length];
"""


async def test_ids_of_an_api_are_read_and_sent_with_all_their_digits(tmp_path: Path) -> None:
    many = THREAD_BYTES // 10
    async with loopback_api() as api:
        for path in ("/items/1", f"/items/{ID}"):
            api.script(path, reply(body={"id": ID, "count": 3}))
        api.script("/items/2", reply(body={"all": [ID] * many}))
        (tmp_path / "api.json").write_text(json.dumps(DOCUMENT), "utf-8")
        config = tmp_path / "config.json"
        config.write_text(json.dumps({"mcpServers": {"api": {"openapi": "api.json", "baseUrl": api.url}}}), "utf-8")
        async with serve(config) as session:
            answer = await session.finish(await session.exec(PROGRAM))
            assert answer.value == [ID, "bigint", True, "number", True, many]
            declared = await session.value("return (await API.read('mcp/api.d.ts#read')).content")
            assert "id: int; after?: int; any?: int[];" in declared
            assert "/** @format int64 */ id?: int;\n    count?: number;" in declared
            refused = await session.exec(f"return await MCP.api.read({{ id: {ID} }})")
            assert "input.id: expected an integer, got the Number 725653563933458400" in refused.error
        read, form, replace = api.requests(f"/items/{ID}")
    assert read.target.partition("?")[2].split("&") == [
        f"after={ID}",
        f"any={ID}",
        "any=5",
        f"filter%5Bid%5D={ID}",
        "ratio=1152921504606847000",
    ]
    assert (read.headers["x-owner"], read.headers["cookie"]) == (str(ID), f"chat={ID}")
    assert form.body == f"owner={ID}&all={ID}".encode()
    assert replace.body == f'{{"owner":{ID},"all":[{ID},7]}}'.encode()


async def test_an_answer_with_too_many_digits_stays_a_text(tmp_path: Path) -> None:
    text = f'{{"id":{"7" * 4_301},"count":{ID}}}'
    async with loopback_api() as api:
        api.script("/items/1", reply(body=text.encode()))
        (tmp_path / "api.json").write_text(json.dumps(DOCUMENT), "utf-8")
        config = tmp_path / "config.json"
        config.write_text(json.dumps({"mcpServers": {"api": {"openapi": "api.json", "baseUrl": api.url}}}), "utf-8")
        async with serve(config) as session:
            code = "const r = await MCP.api.read({ id: 1 }); const v = unwrap(r); return [r.content, v.id, v.count]"
            assert await session.value(code) == [[{"type": "text", "text": text}], "7" * 4_301, ID]
