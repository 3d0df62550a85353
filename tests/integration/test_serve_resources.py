"""Resources, prompts and completion of upstreams in programs; pictures and other binary content on its way through."""

from __future__ import annotations

import base64
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from harness import SERVERS, Session, raw, serve, write_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

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


async def test_a_list_of_resources_comes_whole(session: Session) -> None:
    code = """
        const whole = await MCP.library.resources.list();
        const page = await MCP.library.resources.list({ cursor: "20" });
        const uris = whole.resources.map((r) => r.uri);
        return { count: new Set(uris).size, last: uris.at(-1), more: "nextCursor" in whole,
                 page: page.resources.length, next: page.nextCursor };
    """
    expected = {"count": 50, "last": "book:///49", "more": False, "page": 20, "next": "40"}
    assert await session.value(code) == expected


async def test_a_list_without_an_end_is_cut_and_says_where_it_continues(session: Session) -> None:
    code = """
        const first = await MCP.bare.resources.list();
        const next = await MCP.bare.resources.list({ cursor: first.nextCursor });
        return [first.resources.length, first.nextCursor, next.resources[0].uri];
    """
    assert await session.value(code) == [100, "100", "book:///100"]


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


async def test_arguments_of_an_operation_are_checked_before_anything_is_sent(session: Session) -> None:
    answer = await session.exec('await MCP.library.resources.read({ url: "book:///1" })')
    assert "nothing was sent" in answer.error
    assert "input.url: no such argument; did you mean" in answer.error
    assert "Signature: MCP.library.resources.read(input: { uri: string })" in answer.error


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


async def test_what_a_program_asks_for_first_is_no_mistake(session: Session) -> None:
    code = """
        const { bare } = MCP;
        const known = ["complete", "list"].map((name) => name in bare.resources);
        return [typeof bare.prompts, MCP.bare.prompts?.list, ...known];
    """
    assert await session.value(code) == ["undefined", None, False, True]


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


async def test_a_server_without_prompts_says_so(session: Session) -> None:
    answer = await session.exec('const s = "bare"; return await MCP[s].prompts.list()')
    assert "a server without prompts has no such member" in answer.error
    answer = await session.exec("return await API.read('mcp/bare.d.ts#prompts')")
    assert "MCP.bare has no prompts" in answer.error


# pictures


async def test_pictures_are_shown_from_whatever_holds_them(session: Session) -> None:
    code = """
        const result = await MCP.odd.picture({ bytes: 900 });
        const block = result.content[1];
        const author = await MCP.library.resources.read({ uri: "author:///Ada" });
        image(block);
        image(result);
        image(result.content);
        image({ type: "resource", resource: author.contents[1] });
        image(author);
        image(author.contents[1]);
        image(await MCP.library.prompts.get({ name: "review-0", arguments: { author: "Ada" } }));
        image(`data:${block.mimeType};base64,${block.data}`);
        image({ data: block.data, mimeType: block.mimeType });
        return atob(block.data).length;
    """
    answer = await session.exec(code)
    assert answer.value == 900
    blocks = answer.content[:-1]
    assert [block.type for block in blocks] == ["image"] * 9
    sizes = [len(base64.b64decode(block.data)) for block in blocks]
    assert sizes == [900] * 3 + [1032] * 4 + [900] * 2
    assert [item["bytes"] for item in answer.structured["output"]] == sizes
    assert "data" not in answer.structured["output"][0]


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


async def test_a_client_older_than_audio_gets_it_as_a_resource(folder: Path) -> None:
    config = write_config(folder, {"odd": script("odd_content")}, name="old.json")
    async with raw(config) as client:
        await client.initialize("2024-11-05")
        code = "image((await MCP.odd.mixed({})).content[3])"
        answer = await client.request("tools/call", {"name": "exec", "arguments": {"code": code}})
        [block] = answer["result"]["content"]
        assert block["type"] == "resource"
        assert block["resource"]["mimeType"] == "audio/wav"
        assert await client.end() == 0


async def test_base64_of_another_dialect_is_put_right_and_what_is_none_is_named(session: Session) -> None:
    answer = await session.exec("image(await MCP.odd.sloppyBase64({}))")
    assert [block.type for block in answer.content] == ["image", "text"]
    assert len(base64.b64decode(answer.content[0].data, validate=True)) == 1000
    assert answer.content[1].text == "[image/png: cannot be shown, its data is not valid base64]"


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ("result.content[2]", 'resources.read({ uri: "file:///a.pdf" })'),
        ("result.content[0]", "text(block.text)"),
        ("MCP.odd.mixed({})", "await it first"),
        ("result.content[5].data", "a string alone does not say what it is; image() takes an MCP image block"),
        ("{ content: [] }", "there is no content in it"),
        ("(await MCP.library.resources.read({ uri: 'book:///1' }))", "text(contents.text)"),
    ],
)
async def test_what_cannot_be_shown_says_what_to_do(session: Session, given: str, advice: str) -> None:
    code = f"const result = await MCP.odd.mixed({{}}); try {{ image({given}) }} catch (e) {{ return e.message }}"
    assert advice in await session.value(code)


async def test_a_picture_of_two_megabytes_passes_and_the_text_stays_small(session: Session) -> None:
    code = "const r = await MCP.odd.picture({ bytes: 2_000_000 }); image(r); return r"
    answer = await session.exec(code)
    assert [block.type for block in answer.content] == ["image", "text"]
    assert len(base64.b64decode(answer.content[0].data)) == 2_000_000
    assert len(answer.read) < 300
    assert "truncated" not in answer.value
    assert len(json.dumps(answer.structured)) < 2_000


async def test_a_picture_that_no_answer_can_hold_is_refused_by_its_size(session: Session) -> None:
    answer = await session.exec("image(await MCP.odd.picture({ bytes: 7_000_000 }))")
    assert "7,000,0" in answer.error
    assert "ask for a smaller picture" in answer.error


async def test_thousands_of_pictures_are_cut(session: Session) -> None:
    answer = await session.exec("image(await MCP.odd.gallery({ count: 2000 })); return 1")
    assert sum(block.type == "image" for block in answer.content) == 100
    assert "left out, an answer has room for" in answer.read
    assert len(answer.read) < 200_000


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


async def test_a_result_of_a_thousand_blocks_arrives_whole(session: Session) -> None:
    code = """
        const { content } = await MCP.odd.manyBlocks({ count: 1000 });
        return [content.length, content.at(-1).text, unwrap({ content }).split("\\n").length];
    """
    assert await session.value(code) == [1000, "999", 1000]


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


async def test_an_operation_has_a_timeout_of_its_own_too(session: Session) -> None:
    quick = "return (await MCP.library.resources.list({}, { timeoutMs: 20_000 })).resources.length"
    assert await session.value(quick) == 50
    answer = await session.exec("await MCP.bare.resources.list({}, { timeoutMs: 1 })")
    assert "MCP.bare.resources.list timed out after 0.001 s" in answer.error


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("{ timeout: 5 }", "there is no option timeout; did you mean timeoutMs?"),
        ("{ count: 2 }", "Arguments of the tool go into the first argument"),
        ("{ timeoutMs: 0 }", "timeoutMs is a number of milliseconds from 1 to 600000, not number 0"),
        ("{ timeoutMs: 600_001 }", "from 1 to 600000"),
        ('{ timeoutMs: "5s" }', 'not string "5s"'),
        ("5000", "takes one object, and options such as { timeoutMs: 5000 } after it, got number 5000"),
        ("{}, {}", "takes one object and options, got 3 arguments"),
    ],
)
async def test_options_that_are_none_are_refused(session: Session, options: str, complaint: str) -> None:
    answer = await session.exec(f"await MCP.odd.manyBlocks({{ count: 1 }}, {options})")
    assert answer.code == "nested_tool_failed"
    assert complaint in answer.error
    assert "nothing was sent" in answer.error
