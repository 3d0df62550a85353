"""Resources, prompts and completion of upstreams in programs; pictures and other binary content on its way through."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from harness import SERVERS, Session, serve, write_config

pytestmark = pytest.mark.anyio


def script(name: str, *flags: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(SERVERS / f"{name}.py"), *flags]}


@pytest.fixture(scope="module", params=["auto", "legacy"])
async def session(folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[Session]:
    servers = {
        "library": script("library"),
        "bare": script("library", "bare", "endless"),
        "odd": script("odd_content"),
        "slow": script("odd_content"),
    }
    config = write_config(folder, servers, deny=["mcp:bare:resources/complete"], codeMode={"connectWaitMs": 25_000})
    async with serve(config, mode=request.param) as session:
        yield session


# resources


async def test_a_template_is_listed_completed_and_read(session: Session) -> None:
    code = """
        const { resourceTemplates: [template] } = await MCP.library.resources.templates();
        const uri = template.uriTemplate;
        const { completion } = await MCP.library.resources.complete({ uri, argument: { name: "name", value: "A" } });
        const { contents } = await MCP.library.resources.read({ uri: uri.replace("{name}", completion.values[1]) });
        return { values: completion.values, text: contents[0].text };
    """
    assert await session.value(code) == {
        "values": ["ref/resource name []", "Ada", "Alan", "Annie"],
        "text": "Ada wrote books.",
    }


async def test_a_resource_that_is_not_there_rejects_with_the_words_of_the_server(session: Session) -> None:
    answer = await session.exec('await MCP.library.resources.read({ uri: "book:///999" })')
    assert answer.code == "nested_tool_failed"
    assert "MCP.library.resources.read" in answer.error
    assert "no such resource: book:///999" in answer.error


# prompts


async def test_prompts_are_listed_completed_and_got(session: Session) -> None:
    code = """
        const { prompts } = await MCP.library.prompts.list();
        const name = prompts[2].name;
        const { completion } = await MCP.library.prompts.complete({
            name, argument: { name: "author", value: "Gr" }, context: { arguments: { mood: "good" } } });
        const got = await MCP.library.prompts.get({ name, arguments: { author: completion.values[1] } });
        return { name, values: completion.values, text: got.messages[0].content.text };
    """
    assert await session.value(code) == {
        "name": "review-2",
        "values": ["ref/prompt author ['mood']", "Grace"],
        "text": "Review Grace.",
    }


# what there is


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("MCP.library.resources.lst()", "MCP.library.resources.lst does not exist (cell.js:1:20). Nearest: list."),
        ("MCP.bare.prompts.list()", "MCP.bare.prompts does not exist (cell.js:1:20). This server has no prompts."),
        ("MCP.odd.resources.list()", "MCP.odd.resources does not exist (cell.js:1:20). This server has no resources."),
        ("MCP.bare.resources.complete({})", "MCP.bare.resources.complete does not exist (cell.js:1:20)."),
    ],
)
async def test_what_does_not_exist_fails_before_the_start(session: Session, expression: str, complaint: str) -> None:
    await session.value('await API.read("mcp/library.d.ts")')
    answer = await session.exec(f'text("ran"); await {expression}')
    assert answer.code == "invalid_input"
    assert complaint in answer.error
    assert answer.texts == []
    late = await session.exec('const s = "bare"; return await MCP[s].prompts.list()')
    assert "a server without prompts has no such member" in late.error


async def test_the_operations_are_declared_and_found(session: Session) -> None:
    code = """
        const header = await MCP.library.$api();
        const bare = await API.read("mcp/bare.d.ts");
        const hits = await API.search("read a resource of the library", { server: "library" });
        const { content: library } = await API.read("mcp/library.d.ts#resources,prompts");
        return { tools: header.tools, header: header.header, library, bare: bare.content, hits };
    """
    found = await session.value(code)
    methods = [tool["method"] for tool in found["tools"]]
    assert methods == [
        *("resources.list", "resources.read", "resources.templates", "resources.complete"),
        *("prompts.list", "prompts.get", "prompts.complete"),
    ]
    assert [tool["operation"] for tool in found["tools"]] == ["resource"] * 4 + ["prompt"] * 3
    assert '// resources: list, read, templates, complete; types: "mcp/library.d.ts#resources"' in found["header"]
    assert "function complete(input: { uri: string;" in found["library"]
    assert "function complete(input: { name: string;" in found["library"]
    assert "prompts" not in found["bare"]
    assert "complete" not in found["bare"]
    assert found["hits"][0]["call"] == "MCP.library.resources"
    assert "MCP.library.resources.read(input: { uri: string })" in found["hits"][0]["signature"]


# pictures


async def test_a_result_with_binary_content_is_never_inflated_into_text(session: Session) -> None:
    code = """
        const mixed = await MCP.odd.mixed({});
        const author = await MCP.library.resources.read({ uri: "author:///Ada" });
        json(mixed);
        console.log(author);
        text({ deep: [mixed] });
        store("mixed", mixed);
        return { mixed, author, mine: { data: "x".repeat(150), blob: "y".repeat(150) } };
    """
    answer = await session.exec(code)
    everything = json.dumps(answer.structured) + answer.read
    assert "iVBORw0KGgo" not in everything  # the head of the portrait
    content = answer.value["mixed"]["content"]
    assert content[5]["data"] == "[image/png, 1,000 bytes; show it with image(block)]"
    assert content[3]["data"] == "[audio/wav, 2,000 bytes; show it with image(block)]"
    assert content[4]["resource"]["blob"] == "[application/pdf, 3,000 bytes; image(contents) passes it on]"
    assert answer.value["author"]["contents"][1]["blob"].startswith("[image/png, 1,032 bytes;")
    # What is no picture as MCP has them is the program's own.
    assert content[1]["data"] == "A" * 300
    assert answer.value["mine"] == {"data": "x" * 150, "blob": "y" * 150}
    kept = 'const kept = await load("mixed"); image(kept); return kept.content[5].data.length'
    later = await session.exec(kept)
    assert later.value == 1336
    assert [block.type for block in later.content] == ["audio", "resource", "image", "text"]


async def test_audio_and_other_binary_content_is_passed_on_as_what_it_is(session: Session) -> None:
    answer = await session.exec("image(await MCP.odd.mixed({}))")
    audio, document, picture = answer.content
    assert (audio.type, audio.mime_type, len(base64.b64decode(audio.data))) == ("audio", "audio/wav", 2000)
    assert document.type == "resource"
    assert (document.resource.uri, document.resource.mime_type) == ("file:///a.pdf", "application/pdf")
    assert len(base64.b64decode(document.resource.blob)) == 3000
    assert picture.type == "image"
    assert [item["mimeType"] for item in answer.structured["output"]] == ["audio/wav", "application/pdf", "image/png"]


async def test_a_large_picture_passes_and_the_text_stays_small(session: Session) -> None:
    code = "const r = await MCP.odd.picture({ bytes: 2_000_000 }); image(r); return r"
    answer = await session.exec(code)
    assert [block.type for block in answer.content] == ["image", "text"]
    assert len(base64.b64decode(answer.content[0].data)) == 2_000_000
    assert len(answer.read) < 300
    assert "truncated" not in answer.value
    assert len(json.dumps(answer.structured)) < 2_000
    refused = await session.exec("image(await MCP.odd.picture({ bytes: 7_000_000 }))")
    assert "ask for a smaller picture" in refused.error


async def test_large_pictures_survive_a_suspension_or_fail_by_the_limit(session: Session) -> None:
    code = """
        const held = [];
        for (let i = 0; i < COUNT; i++) held.push(await MCP.odd.picture({ bytes: 2_500_000 }));
        await yield_control();
        return held.map((result) => atob(result.content[1].data).length);
    """
    answer = await session.exec(code.replace("COUNT", "1"))
    assert (await session.finish(answer)).value == [2_500_000]
    answer = await session.exec(code.replace("COUNT", "6"))
    assert answer.code == "snapshot_limit_exceeded"
    assert "maxSnapshotBytes" in answer.error


# results as servers send them


async def test_odd_content_reaches_the_program_untouched(session: Session) -> None:
    code = """
        const { content, _meta, extension } = await MCP.odd.mixed({});
        const [text, hologram, link, , resource, picture] = content;
        return { text, hologram, link, audience: resource.annotations, meta: picture._meta, _meta, extension };
    """
    assert await session.value(code) == {
        "text": {"type": "text", "text": "t", "annotations": {"audience": ["user"], "priority": 1}},
        "hologram": {"type": "hologram", "beams": [1, 2], "data": "A" * 300, "_meta": {"odd": True}},
        "link": {"type": "resource_link", "uri": "file:///a.pdf", "name": "A", "size": 3, "icons": []},
        "audience": {"priority": 0.5},
        "meta": {"page": 1},
        "_meta": {"trace": "abc"},
        "extension": {"anything": [None]},
    }


# the time of one call


async def test_a_call_ends_at_its_own_timeout_and_the_program_continues(session: Session) -> None:
    code = """
        await MCP.slow.sleep({ seconds: 0 });
        try { await MCP.slow.sleep({ seconds: 2 }, { timeoutMs: 50 }) }
        catch (error) { return { name: error.name, message: error.message, dispatched: error.data.dispatched } }
    """
    value = await session.value(code)
    assert value["name"] == "ToolCallError"
    assert "timed out after 0.05 s" in value["message"]
    assert value["dispatched"] is True
