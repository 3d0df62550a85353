"""Servers that others wrote, in another language: the npm reference servers."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest
from harness import Session, npm_server, serve, write_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=["auto", "legacy"])
async def session(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> AsyncIterator[Session]:
    folder = tmp_path_factory.mktemp("npm")
    (folder / "files").mkdir()
    servers = {
        "everything": npm_server("everything", "stdio"),
        "filesystem": npm_server("filesystem", str(folder / "files")),
        "memory": npm_server("memory", env={"MEMORY_FILE_PATH": str(folder / "memory.jsonl")}),
    }
    config = write_config(folder, servers, codeMode={"connectWaitMs": 25_000, "timeoutMs": 20_000})
    async with serve(config, mode=request.param) as session:
        session.files = folder / "files"
        yield session


async def test_an_image_of_a_tool_is_shown_to_the_client(session: Session) -> None:
    code = """
        const { content } = await MCP.everything.getTinyImage({});
        text("before");
        for (const block of content) if (block.type === "image") image(block);
        text("after");
    """
    answer = await session.exec(code)
    assert [block.type for block in answer.content] == ["text", "image", "text"]
    assert answer.content[1].mime_type == "image/png"
    picture = base64.b64decode(answer.content[1].data)
    assert picture.startswith(b"\x89PNG")
    shown = answer.structured["output"][1]
    assert shown == {"type": "image", "mimeType": "image/png", "bytes": len(picture)}
    assert answer.value is None


async def test_structured_content_is_unwrapped(session: Session) -> None:
    code = 'return unwrap(await MCP.everything.getStructuredContent({ location: "Chicago" }))'
    assert set(await session.value(code)) == {"temperature", "conditions", "humidity"}


async def test_defaults_are_filled_in_and_arguments_checked(session: Session) -> None:
    links = await session.value("return (await MCP.everything.getResourceLinks()).content.length")
    assert links == 4
    refused = await session.exec('await MCP.everything.getSum({ a: 1, b: "2" })')
    assert refused.code == "nested_tool_failed"
    assert "b" in refused.error
    assert "number" in refused.error


async def test_resources_are_listed_and_read(session: Session) -> None:
    code = """
        const { resources } = await MCP.everything.resources.list();
        const { contents } = await MCP.everything.resources.read({ uri: resources[0].uri });
        const { resourceTemplates } = await MCP.everything.resources.templates();
        return { uri: resources[0].uri, text: contents[0].text.length, templates: resourceTemplates.length };
    """
    value = await session.value(code)
    assert value["uri"].startswith("demo://resource/static/")
    assert value["text"] > 100
    assert value["templates"] == 2


async def test_prompts_are_listed_and_got(session: Session) -> None:
    code = """
        const { prompts } = await MCP.everything.prompts.list();
        const got = await MCP.everything.prompts.get({ name: "args-prompt", arguments: { city: "Turin" } });
        return { names: prompts.map((p) => p.name), text: got.messages[0].content.text };
    """
    value = await session.value(code)
    assert "simple-prompt" in value["names"]
    assert "Turin" in value["text"]


async def test_arguments_of_prompts_and_templates_are_completed(session: Session) -> None:
    code = """
        const name = "completable-prompt";
        const first = await MCP.everything.prompts.complete({ name, argument: { name: "department", value: "Eng" } });
        const [department] = first.completion.values;
        const second = await MCP.everything.prompts.complete({
            name, argument: { name: "name", value: "" }, context: { arguments: { department } } });
        const uri = "demo://resource/dynamic/text/{resourceId}";
        const third = await MCP.everything.resources.complete({ uri, argument: { name: "resourceId", value: "7" } });
        return [department, second.completion.values.length > 0, third.completion.values];
    """
    assert await session.value(code) == ["Engineering", True, ["7"]]


async def test_a_resource_that_is_binary_is_passed_on_and_read_in_the_program(session: Session) -> None:
    code = """
        const read = await MCP.everything.resources.read({ uri: "demo://resource/dynamic/blob/7" });
        const linked = await MCP.everything.getResourceReference({ resourceType: "Blob", resourceId: 2 });
        image(read);
        image(linked);
        return atob(read.contents[0].blob);
    """
    answer = await session.exec(code)
    assert answer.value.startswith("Resource 7: This is a base64 blob")
    assert [block.type for block in answer.content] == ["resource", "resource", "text"]
    blobs = [base64.b64decode(block.resource.blob).decode() for block in answer.content[:2]]
    assert [blob[:11] for blob in blobs] == ["Resource 7:", "Resource 2:"]


async def test_a_picture_that_is_returned_is_not_inflated_into_text(session: Session) -> None:
    answer = await session.exec("return await MCP.everything.getTinyImage()")
    assert len(answer.read) < 400
    assert answer.value["content"][1]["data"] == "[image/png, 4,033 bytes; show it with image(block)]"


async def test_a_slow_operation_reports_its_progress(session: Session) -> None:
    seen: list[str] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append(message or "")

    code = "return unwrap(await MCP.everything.triggerLongRunningOperation({ duration: 0.4, steps: 2 }))"
    answer = await session.call("exec", {"code": code}, progress_callback=on_progress)
    assert "completed" in answer.value.lower()
    assert any(line.startswith("mcp:everything:trigger-long-running-operation: ") for line in seen)


async def test_files_are_written_read_and_listed(session: Session) -> None:
    code = f"""
        const folder = {str(session.files)!r};
        const names = ["a.txt", "b.txt", "ü 😀.txt"];
        await Promise.all(names.map((name, n) =>
            MCP.filesystem.writeFile({{ path: `${{folder}}/${{name}}`, content: `file ${{n}}` }})));
        const listing = unwrap(await MCP.filesystem.listDirectory({{ path: folder }}));
        const read = await Promise.all(names.map((name) =>
            MCP.filesystem.readTextFile({{ path: `${{folder}}/${{name}}` }})));
        return {{ listing, read: read.map((r) => unwrap(r).content) }};
    """
    value = await session.value(code)
    assert value["read"] == ["file 0", "file 1", "file 2"]
    assert "ü 😀.txt" in str(value["listing"])
    assert (session.files / "ü 😀.txt").read_text("utf-8") == "file 2"


async def test_a_file_outside_is_refused_by_its_server_and_the_program_continues(session: Session) -> None:
    code = """
        const result = await MCP.filesystem.readTextFile({ path: "/etc/hostname" });
        return { isError: result.isError, text: result.content[0].text };
    """
    value = await session.value(code)
    assert value["isError"] is True
    assert "denied" in value["text"].lower()
    assert (await session.exec('unwrap(await MCP.filesystem.readTextFile({ path: "/" }))')).code == "nested_tool_failed"


async def test_entities_are_created_and_found(session: Session) -> None:
    code = """
        await MCP.memory.createEntities({ entities: [
            { name: "Ada", entityType: "person", observations: ["likes looms"] },
            { name: "Engine", entityType: "machine", observations: ["computes"] },
        ] });
        await MCP.memory.createRelations({ relations: [{ from: "Ada", to: "Engine", relationType: "programs" }] });
        const { entities } = unwrap(await MCP.memory.searchNodes({ query: "looms" }));
        const graph = unwrap(await MCP.memory.readGraph());
        return { found: entities.map((e) => e.name), relations: graph.relations.length };
    """
    assert await session.value(code) == {"found": ["Ada"], "relations": 1}


async def test_original_names_work_as_well(session: Session) -> None:
    code = 'return [MCP.everything["get-sum"], MCP.everything.getSum].map((f) => typeof f)'
    assert await session.value(code) == ["function", "function"]
    assert "5" in str(await session.value('return unwrap(await MCP.everything["get-sum"]({ a: 2, b: 3 }))'))


async def test_tools_of_all_servers_are_found_by_their_purpose(session: Session) -> None:
    hits = await session.value('return (await API.search("write a file", { limit: 3 })).map((h) => h.call)')
    assert "MCP.filesystem.writeFile" in hits
    signature = await session.value('return (await API.search("add numbers sum"))[0].signature')
    assert "a: number" in signature


async def test_large_results_are_joined_in_the_sandbox_and_not_in_the_answer(session: Session) -> None:
    code = f"""
        const path = {str(session.files)!r} + "/large.txt";
        const line = "x".repeat(99) + "\\n";
        await MCP.filesystem.writeFile({{ path, content: line.repeat(20_000) }});
        const {{ content }} = unwrap(await MCP.filesystem.readTextFile({{ path }}));
        return content.split("\\n").length;
    """
    answer = await session.exec(code)
    assert answer.value == 20_001
    assert len(answer.read) < 100
