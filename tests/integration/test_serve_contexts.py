"""Callers of one server with rules of their own, over real HTTP and over stdio."""

from __future__ import annotations

import getpass
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from typer.testing import CliRunner

from codemode_mcp.cli import app
from tests.integration.harness import SECONDS, Session, counting, events, serve, until, write_config
from tests.integration.http_harness import ALICE, BOB, ERAS, Issuer, Served, issuer, serve_http

pytestmark = pytest.mark.anyio

CAROL, EVE = "carol-has-one-more-token", "eve-has-a-token-for-nothing"
TOKENS = [
    {"name": "alice", "token": ALICE, "groups": ["staff"]},
    {"name": "bob", "token": BOB, "groups": ["interns", "staff"]},
    {"name": "carol", "token": CAROL},
    {"name": "eve", "token": EVE},
]
CONTEXTS = {
    "interns": {"for": ["group:interns"], "deny": ["mcp:vault:*", "mcp:library:die"]},
    "nothing": {"for": ["principal:ev?"], "allow": []},
    "readers": {"for": ["principal:carol"], "readOnly": True},
}


def write(folder: Path, contexts: dict[str, Any], *, http: dict[str, Any] | None = None, **tools: Any) -> Path:
    servers = {"library": counting(folder / "library"), "vault": counting(folder / "vault", "tool=unlock")}
    path = folder / "config.json"
    path.write_text(
        json.dumps({"mcpServers": servers, "tools": {**tools, "contexts": contexts}, "http": http or {}}), "utf-8"
    )
    return path


@pytest.fixture(scope="module")
async def shared(folder: Path) -> AsyncIterator[Served]:
    place = folder / "contexts"
    place.mkdir()
    async with serve_http(write(place, CONTEXTS, http={"auth": {"tokens": TOKENS}})) as served:
        await served.ready()
        yield served


COUNT = "return unwrap(await MCP.{}.count({{ name: 'x' }}))"

EVERYTHING = """
const caught = async (f) => { try { return await f(); } catch (error) { return `${error.code} ${error.message}`; } };
const server = MCP;
const read = await Promise.all((await API.list()).files.map((file) => API.read(file.path)));
return JSON.stringify([
  Object.keys(server), read, ALL_TOOLS, Object.keys(tools), Object.keys(globalThis),
  await API.search("open a safe", { limit: 50 }), await tools.search("open a safe"),
  await MCP.$api(), await MCP.library.$api(undefined, { schema: true }), "WORD" in server,
  await caught(() => API.search("safe", { server: "WORD" })),
  await caught(() => API.read("mcp/WORD.d.ts")),
  await caught(() => tools.call("mcp:WORD:MEMBER", {})),
  await caught(() => tools.describe("mcp:WORD:MEMBER")),
  await caught(() => server["WORD"]["MEMBER"]({})),
]);
"""


def asking_for(server: str, tool: str) -> str:
    return EVERYTHING.replace("WORD", server).replace("MEMBER", tool)


async def description(session: Session) -> str:
    listed = (await session.client.list_tools()).tools
    return next((tool.description or "" for tool in listed if tool.name == "exec"), "")


@pytest.mark.parametrize("mode", ERAS)
async def test_two_callers_see_their_own_servers_and_tools(shared: Served, mode: str) -> None:
    async with shared.client(mode, ALICE) as alice, shared.client(mode, BOB) as bob:
        assert "servers: library, vault." in await description(alice)
        assert "servers: library." in await description(bob)
        assert "vault" not in await description(bob)
        for session in (alice, bob):
            assert "The description of exec names the servers." in (session.client.instructions or "")
            assert await session.value(COUNT.format("library")) == "x"
        assert await alice.value(COUNT.format("vault")) == "x"
        assert "unlock" in await alice.value(asking_for("vault", "nothing"))


async def test_nothing_tells_a_caller_of_a_server_that_is_denied_to_it(shared: Served) -> None:
    async with shared.client("auto", BOB) as bob:
        *shown, is_there, by_search, by_path, by_call, by_description, by_name = json.loads(
            await bob.value(asking_for("vault", "unlock"))
        )
        told = json.dumps(shown)
        assert "library" in told
        assert not re.search("vault|unlock|mcp:library:die", told)
        assert is_there is False
        assert by_search == 'nested_tool_failed there is no server "vault".'
        assert by_path == 'nested_tool_failed there is no file "mcp/vault.d.ts". See API.list().'
        assert by_call == by_description
        assert by_call.startswith('nested_tool_failed there is no tool "mcp:vault:unlock". See ALL_TOOLS')
        assert by_name == "undefined cannot read property 'unlock' of undefined"
        for code in ("MCP.WORD.unlock()", "MCP.library.WORD()", "return MCP.WORD"):
            guessed = await bob.exec(code.replace("WORD", "vault"))
            nonsense = await bob.exec(code.replace("WORD", "dragon"))
            assert guessed.code == nonsense.code
            assert (guessed.error or "").replace("vault", "W") == (nonsense.error or "").replace("dragon", "W")
        denied = await bob.exec("await MCP.library.die()")
        assert denied.code == "invalid_input"
        assert "die" not in denied.error.replace("MCP.library.die", "")


# groups of access tokens


@pytest.fixture(scope="module")
async def roles(folder: Path) -> AsyncIterator[tuple[Issuer, Served]]:
    """Yield an authorization server, and a server that takes the groups from its claim `roles`."""
    place = folder / "roles"
    place.mkdir()
    with issuer() as server:
        auth = {"issuer": server.url, "audience": "https://mcp.example/mcp", "groupsClaim": "roles"}
        async with serve_http(write(place, CONTEXTS, http={"auth": auth})) as served:
            await served.ready()
            yield server, served


async def test_groups_of_an_access_token_choose_the_context(roles: tuple[Issuer, Served]) -> None:
    server, served = roles
    cases = (
        ({"sub": "dan", "groups": ["interns"]}, True),
        ({"sub": "dan", "roles": ["staff", "interns"]}, False),
    )
    for claims, sees in cases:
        async with served.client("auto", server.issue(**claims)) as session:
            assert ("vault" in await description(session)) is sees, claims
            assert (await session.exec(COUNT.format("vault"))).status == ("completed" if sees else "failed")


async def test_a_member_who_has_left_a_group_continues_by_the_rules_of_the_others(
    roles: tuple[Issuer, Served], folder: Path
) -> None:
    server, served = roles
    code = f"await yield_control(); {COUNT.format('vault').replace('x', 'left')}"
    async with served.client("auto", server.issue(sub="dan", roles=["staff"])) as before:
        suspended, kept = await before.exec(code), await before.exec(code)
        assert (await before.wait(kept.run_id)).value == "left"
    async with served.client("auto", server.issue(sub="dan", roles=["interns"])) as after:
        refused = await after.wait(suspended.run_id)
        assert refused.code == "nested_tool_failed"
        assert "MCP.vault.count may not be called" in refused.error
    assert events(folder / "roles" / "vault").count("call left") == 1


# without authentication


async def test_a_caller_without_credentials_is_anonymous_and_waits_for_no_server_that_it_may_not_see(
    tmp_path: Path,
) -> None:
    never = counting(tmp_path / "never", f"wait_for={tmp_path / 'nothing'}", connectTimeoutMs=120_000, start="eager")
    servers = {"library": counting(tmp_path / "library"), "vault": never}
    contexts = {"strangers": {"for": ["anonymous"], "allow": ["mcp:library:*"]}}
    config = write_config(tmp_path, servers, contexts=contexts, codeMode={"connectWaitMs": 60_000})
    async with serve_http(config) as served:
        for mode in ERAS:
            with anyio.fail_after(SECONDS):
                async with served.client(mode) as session:
                    assert "vault" not in await description(session)
                    assert await session.value(COUNT.format("library")) == "x"
                    assert (await session.exec(COUNT.format("vault"))).code == "invalid_input"
                    assert await session.value("const all = MCP; return Object.keys(all)") == ["library"]


# pass-through


async def test_pass_through_shows_each_caller_its_own_tools(tmp_path: Path) -> None:
    config = write(tmp_path, CONTEXTS, http={"auth": {"tokens": TOKENS}}, codeMode=False)
    async with serve_http(config) as served:
        await served.ready()
        for mode in ERAS:
            async with served.client(mode, ALICE) as alice, served.client(mode, BOB) as bob:
                for _ in range(2):
                    names = {tool.name for tool in (await alice.client.list_tools()).tools}
                    assert {"vault__unlock", "library__die"} <= names
                    names = {tool.name for tool in (await bob.client.list_tools()).tools}
                    assert "library__count" in names
                    assert not {name for name in names if name.startswith("vault") or name == "library__die"}
                assert "vault" not in (bob.client.instructions or "") + (alice.client.instructions or "")
                assert not (await bob.client.call_tool("library__count", {"name": "b"})).is_error
                with pytest.raises(Exception, match="Unknown tool") as guessed:
                    await bob.client.call_tool("vault__count", {"name": "b"})
                assert "Nearest: vault" not in str(guessed.value)
                assert not (await alice.client.call_tool("vault__count", {"name": "a"})).is_error
            async with served.client(mode, EVE) as eve:
                assert (await eve.client.list_tools()).tools == []
    assert "call b" not in events(tmp_path / "vault")


# over stdio


async def test_the_user_who_started_the_server_may_have_a_context_too_which_may_change_while_it_runs(
    tmp_path: Path,
) -> None:
    user = getpass.getuser()

    def contexts(**rules: Any) -> dict[str, Any]:
        return {
            "others": {"for": ["principal:*", "anonymous", "group:*"], "allow": []},
            "stranger": {"for": [f"stdio:not-{user}"], "allow": []},
            "me": {"for": [f"stdio:{user}"], **rules},
            "all": {"for": ["stdio"], "deny": ["*"]},
        }

    def taken(session: Session) -> int:
        return session.stderr.count("new rules for calls")

    async def change(session: Session, changed: dict[str, Any]) -> None:
        before = taken(session)
        write(tmp_path, changed)
        await until(lambda: taken(session) > before)

    async with serve(write(tmp_path, contexts(deny=["mcp:vault:*"]))) as session:
        assert "Servers: library." in (session.client.instructions or "")
        assert "vault" not in await description(session)
        assert await session.value(COUNT.format("library")) == "x"
        assert "vault" not in await session.value("return (await API.list()).files.map((f) => f.path).join()")
        await change(session, {})
        assert "servers: library, vault." in await description(session)
        waiting = await session.exec(f"await MCP.vault.peek.name; await yield_control(); {COUNT.format('vault')}")
        assert waiting.status == "waiting"
        await change(session, contexts(deny=["mcp:vault:count"]))
        ended = await session.wait(waiting.run_id)
        assert "denied by the rule 'mcp:vault:count'" in ended.error
        await change(session, contexts(allow=[]))
        assert (await session.client.list_tools()).tools == []
    assert "call x" not in events(tmp_path / "vault")


async def test_read_only_counts_in_every_context_and_after_every_change(tmp_path: Path) -> None:
    contexts = {"staff": {"for": ["group:staff"], "allow": ["*"], "approved": ["*"], "readOnly": False}}
    http = {"auth": {"tokens": TOKENS}}
    async with serve_http(write(tmp_path, contexts, http=http), "--read-only") as served:
        await served.ready()
        for round_ in range(2):
            for token in (ALICE, CAROL):
                async with served.client("auto", token) as session:
                    assert (await session.exec(COUNT.format("library"))).code == "invalid_input"
                    members = "return [Object.keys(MCP.library), Object.keys(MCP.vault)]"
                    assert await session.value(members) == [["peek"], ["peek"]]
            if round_ == 0:
                before = served.stderr.count("new rules for calls")
                write(tmp_path, {**contexts, "more": {"for": ["principal:carol"], "ask": []}}, http=http)
                await until(lambda before=before: served.stderr.count("new rules for calls") > before)
    assert "call x" not in events(tmp_path / "library")


NAMED = {"careful": {"for": [], "deny": ["mcp:vault:*"], "readOnly": True}, "free": {"for": ["stdio"], "allow": ["*"]}}


async def test_a_client_may_name_its_context(tmp_path: Path) -> None:
    config = write(tmp_path, NAMED)
    async with serve(config) as session:
        assert await session.value(COUNT.format("vault")) == "x"
    async with serve(config, "--context", "careful") as session:
        assert "Servers: library." in (session.client.instructions or "")
        tools = (await session.client.list_tools()).tools
        assert all(tool.annotations is not None and tool.annotations.read_only_hint for tool in tools)
        assert await session.value("return Object.keys(MCP.library)") == ["peek"]
        waiting = await session.exec("await MCP.library.peek({ name: 'x' }); await yield_control(); return 1")
        before = session.stderr.count("new rules for calls")
        write(tmp_path, {"free": NAMED["free"]})
        await until(lambda: session.stderr.count("new rules for calls") > before)
        assert "tools.contexts no longer has 'careful'" in session.stderr
        assert (await session.client.list_tools()).tools == []
        assert "allows you no tools" in (await session.wait(waiting.run_id)).error


@pytest.mark.parametrize(
    ("arguments", "contexts", "message"),
    [
        (["--context", "carful"], NAMED, "there are 'careful', 'free'"),
        (["--context=careful"], {}, "the configuration has none"),
        (["--context", "careful", "--transport", "http"], NAMED, "--context is for stdio"),
    ],
)
def test_a_context_that_cannot_be_used_is_refused(
    tmp_path: Path, arguments: list[str], contexts: dict[str, Any], message: str
) -> None:
    command = ["serve", "--private", "--config", str(write(tmp_path, contexts)), *arguments]
    ended = CliRunner().invoke(app, command, catch_exceptions=False)
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert message in ended.stderr
