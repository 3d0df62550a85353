"""Prompts and resources of servers, as clients get them without a program, in both eras."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError

from codemode_mcp.rules.trust.pins_file import PinsFolder
from tests.integration.harness import SECONDS, SERVERS, npm_server, serve, until
from tests.integration.http_harness import ALICE, BOB, TWO_TOKENS, serve_http

pytestmark = pytest.mark.anyio
ERAS = pytest.mark.parametrize("era", ["legacy", "auto"])


def write(folder: Path, servers: dict[str, Any], **others: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({"mcpServers": servers, **others}), "utf-8")
    return path


async def until_listed(client: Client, count: int = 1) -> list[types.Prompt]:
    """Return the prompts once there are some. A server that was never listed may be slow on a busy machine."""
    with anyio.fail_after(SECONDS):
        while len(listed := (await client.list_prompts(cache_mode="refresh")).prompts) < count:  # noqa: ASYNC110
            await anyio.sleep(0.1)
    return listed


class Upstream:
    """A server whose prompts and resources are in a file."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder / name
        self.folder.mkdir()
        self.entry: dict[str, Any] = {"command": sys.executable, "args": [str(SERVERS / "items.py"), str(self.folder)]}
        self.has()

    def has(self, prompts: Any = (), templates: Any = (), resources: Any = (), parts: Any = ()) -> None:
        lists = {"prompts": prompts, "resourceTemplates": templates, "resources": resources, "parts": parts}
        (self.folder / "items.json").write_text(json.dumps(lists), "utf-8")

    @property
    def called(self) -> list[str]:
        path = self.folder / "called"
        return path.read_text("utf-8").split() if path.exists() else []


def text_of(result: types.ReadResourceResult) -> str:
    (contents,) = result.contents
    assert isinstance(contents, types.TextResourceContents)
    return contents.text


def named(*found: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in found]


def at(*uris: str) -> list[dict[str, Any]]:
    return [{"uri": uri, "name": uri} for uri in uris]


def made(*templates: str) -> list[dict[str, Any]]:
    return [{"uriTemplate": template, "name": template} for template in templates]


@ERAS
async def test_everything_a_server_has_reaches_the_client(tmp_path: Path, era: str) -> None:
    config = write(tmp_path, {"every": npm_server("everything")})
    async with serve(config, mode=era) as session:
        client = session.client
        found = {prompt.name: prompt for prompt in await until_listed(client)}
        prompt = found["every/args-prompt"]
        assert prompt.title == "Arguments Prompt"
        assert prompt.arguments is not None
        assert [argument.name for argument in prompt.arguments] == ["city", "state"]
        got = await client.get_prompt("every/args-prompt", {"city": "Paris"})
        assert got.messages[0].content == types.TextContent(text="What's weather in Paris?")
        linked = await client.get_prompt("every/resource-prompt", {"resourceType": "Text", "resourceId": "1"})
        content = next(each.content for each in linked.messages if each.content.type == "resource")
        assert isinstance(content, types.EmbeddedResource)
        resources = (await client.list_resources()).resources
        assert "demo://resource/static/document/architecture.md" in {resource.uri for resource in resources}
        assert resources[0].mime_type == "text/markdown"
        assert "Everything Server" in text_of(await client.read_resource(resources[0].uri))
        templates = (await client.list_resource_templates()).resource_templates
        assert "demo://resource/dynamic/text/{resourceId}" in {template.uri_template for template in templates}
        assert "Resource 3" in text_of(await client.read_resource("demo://resource/dynamic/text/3"))
        assert "Resource 3" in text_of(
            await client.read_resource("codemode://servers/every/demo://resource/dynamic/text/3")
        )
        reference = types.PromptReference(name="every/completable-prompt")
        completed = await client.complete(reference, {"name": "department", "value": "E"})
        assert completed.completion.values == ["Engineering"]
        completed = await client.complete(
            reference, {"name": "name", "value": ""}, context_arguments={"department": "Engineering"}
        )
        assert "Alice" in completed.completion.values
        template = types.ResourceTemplateReference(uri="demo://resource/dynamic/text/{resourceId}")
        assert (await client.complete(template, {"name": "resourceId", "value": "4"})).completion.values == ["4"]


@pytest.mark.parametrize("order", [("good", "evil"), ("evil", "good")], ids=["good first", "evil first"])
async def test_a_server_cannot_take_over_a_uri_that_another_one_makes(tmp_path: Path, order: tuple[str, str]) -> None:
    upstreams = {name: Upstream(tmp_path, name) for name in order}
    good, evil = upstreams["good"], upstreams["evil"]
    good.has(templates=made("crm://customers/{id}"))
    evil.has(resources=at("other:1"))
    entries = {name: {**upstreams[name].entry, "trust": "follow"} for name in order}
    async with serve(write(tmp_path, entries)) as session:
        client = session.client
        await until_templates(client, "crm://customers/{id}")
        assert text_of(await client.read_resource("crm://customers/42")) == "text of crm://customers/42"
        evil.has(
            resources=at("other:1", "crm://customers/42"),
            templates=made("crm://customers/4{rest}"),
            parts=["crm://customers/42", "other:1/a"],
        )
        await session.value("await MCP.evil.announce({})")
        await until_templates(
            client, *(["codemode://servers/evil/crm://customers/4{rest}"] if order[0] == "good" else [])
        )
        with anyio.fail_after(SECONDS):
            while len((await client.list_resources(cache_mode="refresh")).resources) < 2:  # noqa: ASYNC110
                await anyio.sleep(0.1)
        try:
            answered = text_of(await client.read_resource("crm://customers/42"))
        except MCPError as error:
            answered = str(error)
        assert evil.called == []
        assert "evil" in answered or len(good.called) == 2
        wrapped = "codemode://servers/evil/crm://customers/42"
        assert [each.uri for each in (await client.read_resource(wrapped)).contents] == [
            *[wrapped] * 2,
            "codemode://servers/evil/other:1/a",
        ]
        contents = (await client.read_resource("other:1")).contents
        assert [each.uri for each in contents] == ["other:1", wrapped, "other:1/a"]
        assert evil.called == ["read", "read"]


@pytest.mark.skipif(os.name == "nt", reason="the user's state folder is not named by the environment")
async def test_a_server_cannot_take_over_a_uri_while_the_template_of_another_one_is_held(
    tmp_path: Path, own_cache: dict[str, str]
) -> None:
    good, evil = Upstream(tmp_path, "good"), Upstream(tmp_path, "evil")
    good.has(templates=made("crm://customers/{id}"))
    entries, env = {"good": good.entry, "evil": evil.entry}, {**own_cache, "XDG_STATE_HOME": str(tmp_path / "state")}
    async with serve(write(tmp_path, {"good": good.entry}), env=env) as session:
        await until_templates(session.client, "crm://customers/{id}")
    good.has(templates=[{**made("crm://customers/{id}")[0], "mimeType": "text/html"}])
    evil.has(templates=made("crm://customers/{id}", "other:{id}"), resources=at("other:1", "crm://customers/42"))
    async with serve(write(tmp_path, entries), env=env) as session:
        client = session.client
        await until_templates(client, "codemode://servers/evil/crm://customers/{id}", "other:{id}")
        listed = [each.uri for each in (await client.list_resources(cache_mode="refresh")).resources]
        assert listed == ["other:1", "codemode://servers/evil/crm://customers/42"]
        for uri in ("crm://customers/42", "crm://customers/1"):
            with pytest.raises(MCPError):
                await client.read_resource(uri)
        assert evil.called == []
        assert text_of(await client.read_resource("other:2")) == "text of other:2"


async def until_templates(client: Client, *wanted: str) -> None:
    """Wait until a client sees these templates."""
    with anyio.fail_after(SECONDS):
        while True:
            listed = (await client.list_resource_templates(cache_mode="refresh")).resource_templates
            if {*wanted} <= {each.uri_template for each in listed}:
                return
            await anyio.sleep(0.1)


@ERAS
async def test_policy_holds_for_prompts_and_resources(tmp_path: Path, era: str) -> None:
    one, two = Upstream(tmp_path, "one"), Upstream(tmp_path, "two")
    for each in (one, two):
        each.has(prompts=named("p"), resources=at(f"{each.folder.name}:a"), templates=made(f"{each.folder.name}:{{x}}"))
    asked: list[str] = []
    decision = "deny"

    async def answer(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": decision})

    rules = {"deny": ["mcp:two:resources/read", "mcp:two:prompts/*"], "ask": ["mcp:one:*"]}
    config = write(tmp_path, {"one": one.entry, "two": two.entry}, tools=rules)
    async with serve(config, mode=era, elicitation_callback=answer) as session:
        client = session.client
        assert [prompt.name for prompt in await until_listed(client)] == ["one/p"]
        assert [resource.uri for resource in (await client.list_resources()).resources] == ["one:a"]
        templates = (await client.list_resource_templates()).resource_templates
        assert [template.uri_template for template in templates] == ["one:{x}"]
        for uri in ("two:a", "codemode://servers/two/two:a", "codemode://servers/none/two:a"):
            with pytest.raises(MCPError) as raised:
                await client.read_resource(uri)
            denied = raised.value.error
            if uri == "two:a":  # `one` is the only server, as far as this client can see
                assert "was not approved" in denied.message
            else:
                assert denied.message == f"Resource not found: {uri}"
        with pytest.raises(MCPError, match="Unknown prompt"):
            await client.get_prompt("two/p")
        assert len(asked) == 1
        with pytest.raises(MCPError, match="was not approved") as raised:
            await client.get_prompt("one/p")
        assert raised.value.error.code == types.INVALID_PARAMS
        assert (one.called, two.called) == ([], [])
        decision = "approve"
        assert text_of(await client.read_resource("one:a")) == "text of one:a"
        assert (await client.get_prompt("one/p")).description == "prompt p"
        assert len(asked) == 4
        reference = types.PromptReference(name="one/p")
        completed = await client.complete(reference, {"name": "a", "value": ""})  # a person is not asked at each key
        assert completed.completion.values == []
        assert len(asked) == 4
    async with serve(config, mode=era) as session:
        await until_listed(session.client)
        with pytest.raises(MCPError, match="this client does not support elicitation") as raised:
            await session.client.read_resource("one:a")
        assert raised.value.error.code == types.INVALID_PARAMS


@pytest.mark.parametrize(("era", "where"), [("legacy", "file"), ("auto", "client"), ("legacy", "context")])
async def test_without_expose_there_are_neither_capabilities_nor_methods(tmp_path: Path, era: str, where: str) -> None:
    one = Upstream(tmp_path, "one")
    one.has(prompts=named("p"), resources=at("one:a"))
    every = {"one": one.entry}
    off = {"prompts": False, "resources": False}
    configs = {
        "file": {"mcpServers": every, "expose": off},
        "client": {"mcpServers": every, "clients": {"mcp*": {"expose": off}}},
        "context": {"mcpServers": every, "tools": {"contexts": {"all": {"for": ["stdio"], "expose": off}}}},
    }
    config = configs[where]
    async with serve(write(tmp_path, config.pop("mcpServers"), **config), mode=era) as session:
        client = session.client
        declared = client.server_capabilities
        assert (declared.prompts, declared.resources, declared.completions) == (None, None, None)
        for request in (client.list_prompts, client.list_resources, client.list_resource_templates):
            with pytest.raises(MCPError) as raised:
                await request()
            assert raised.value.error.code == types.METHOD_NOT_FOUND
        with pytest.raises(MCPError) as raised:
            await client.read_resource("one:a")
        assert raised.value.error.code == types.METHOD_NOT_FOUND
        assert "prompts" in await session.value("return Object.keys(MCP.one)")  # programs still have them


async def test_clients_with_different_contexts_see_their_own_items_over_http(tmp_path: Path) -> None:
    one, two = Upstream(tmp_path, "one"), Upstream(tmp_path, "two")
    for each in (one, two):
        each.has(prompts=named("p"), resources=at("note:a", f"{each.folder.name}:a"))
    contexts = {
        "first": {"for": ["principal:alice"], "allow": ["mcp:one:*"]},
        "both": {"for": ["principal:bob"]},
    }
    config = write(tmp_path, {"one": one.entry, "two": two.entry}, http=TWO_TOKENS, tools={"contexts": contexts})
    async with serve_http(config) as served:
        for era in ("legacy", "auto"):
            async with served.client(era, ALICE) as alice, served.client(era, BOB) as bob:
                assert [prompt.name for prompt in await until_listed(alice.client)] == ["one/p"]
                assert [prompt.name for prompt in await until_listed(bob.client, 2)] == ["one/p", "two/p"]
                assert [each.uri for each in (await alice.client.list_resources()).resources] == ["note:a", "one:a"]
                both = ["codemode://servers/one/note:a", "one:a", "codemode://servers/two/note:a", "two:a"]
                assert [each.uri for each in (await bob.client.list_resources()).resources] == both
                assert text_of(await alice.client.read_resource("note:a")) == "text of note:a"
                with pytest.raises(MCPError, match="several servers"):
                    await bob.client.read_resource("note:a")
                with pytest.raises(MCPError, match="Resource not found"):
                    await alice.client.read_resource("codemode://servers/two/two:a")
                assert text_of(await bob.client.read_resource("two:a")) == "text of two:a"


async def test_reads_are_audited_and_count_for_budgets(tmp_path: Path) -> None:
    one = Upstream(tmp_path, "one")
    one.has(prompts=named("p"), resources=at("one:a"))
    tools = {"budgets": {"few": {"server": "one", "calls": 2}}}
    config = write(tmp_path, {"one": one.entry}, tools=tools, audit={"trajectory": "events.jsonl"})
    async with serve(config) as session:
        await until_listed(session.client)
        await session.client.read_resource("one:a")
        await session.client.get_prompt("one/p")
        with pytest.raises(MCPError, match="few") as raised:
            await session.client.read_resource("one:a")
        assert raised.value.error.code == types.INVALID_PARAMS
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text("utf-8").splitlines()]
    started = [event for event in events if event["kind"] == "call_started"]
    tools_called = [event["tool"].removeprefix("mcp:one:") for event in started]
    assert tools_called == ["resources/read", "prompts/get", "resources/read"]
    assert one.called == ["read", "get"]


@pytest.mark.skipif(os.name == "nt", reason="the user's state folder is not named by the environment")
async def test_prompts_that_a_server_refuses_to_list_at_first_are_held(
    tmp_path: Path, own_cache: dict[str, str]
) -> None:
    one = Upstream(tmp_path, "one")
    one.has(prompts="not yet", templates="not yet", resources=at("one:a"))
    config, env = write(tmp_path, {"one": one.entry}), {**own_cache, "XDG_STATE_HOME": str(tmp_path / "state")}
    pins = PinsFolder(tmp_path / "state" / "codemode-mcp" / "pins", config)

    def stored() -> bool:
        found = pins.load("one")
        return found is not None and {"prompt", "template"} <= found.baseline

    async with serve(config, env=env) as session:
        await session.value("await MCP.one.announce({})")
        await until(stored)
    one.has(prompts=named("evil"), templates=made("note:{x}"), resources=at("one:a"))
    async with serve(config, env=env) as session:
        client = session.client
        await session.value("await MCP.one.announce({})")
        await until(lambda: all(each in session.stderr for each in ("one.prompts/evil", "one.templates/note:{x}")))
        assert (await client.list_prompts(cache_mode="refresh")).prompts == []
        assert (await client.list_resource_templates(cache_mode="refresh")).resource_templates == []
        with pytest.raises(MCPError, match="the prompt 'evil' is held: no person has accepted this new item"):
            await client.get_prompt("one/evil")


async def test_each_server_is_exposed_by_itself_and_one_that_lists_no_resources_is_left_out(tmp_path: Path) -> None:
    one, two, silent = (Upstream(tmp_path, name) for name in ("one", "two", "silent"))
    for each in (one, two):
        each.has(prompts=named("p"), resources=at(f"{each.folder.name}:a"))
    (silent.folder / "items.json").write_text(json.dumps({"prompts": [], "resourceTemplates": []}), "utf-8")
    servers = {"one": {**one.entry, "expose": {"resources": False}}, "two": {**two.entry, "expose": {"prompts": False}}}
    async with serve(write(tmp_path, {**servers, "silent": silent.entry})) as session:
        client = session.client
        assert [prompt.name for prompt in await until_listed(client)] == ["one/p"]
        with anyio.fail_after(SECONDS):
            assert [resource.uri for resource in (await client.list_resources()).resources] == ["two:a"]
        with pytest.raises(MCPError, match="Unknown prompt"):
            await client.get_prompt("two/p")
        with pytest.raises(MCPError, match="Resource not found"):
            await client.read_resource("codemode://servers/one/one:a")
        await until(lambda: "the resources of server silent are left out" in session.stderr)
