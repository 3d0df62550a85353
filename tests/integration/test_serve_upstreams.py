"""Upstreams that are missing, broken, remote or careless: the rest work, messages name the one and hide its secrets."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from harness import (
    REPOSITORY,
    SECONDS,
    Session,
    counting,
    events,
    http_server,
    other,
    parse_message,
    pids,
    raw,
    serve,
    until,
    write_config,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def session(folder: Path) -> AsyncIterator[Session]:
    async with http_server() as modern, http_server("--legacy") as legacy, http_server("--sse") as sse:
        servers = {
            "good": counting(folder / "good"),
            "missing": {"command": "no-such-command-anywhere"},
            "no-folder": {"command": sys.executable, "cwd": "no-such-folder"},
            "exits": other("raw_server.py", "exit", env={"TOKEN": "token-of-exits"}),
            "silent": other("raw_server.py", "silent"),
            "junk": counting(folder / "junk", "junk"),
            "malformed": counting(folder / "malformed", "malformed"),
            "mortal": counting(folder / "mortal"),
            "remote": {"url": modern},
            "older": {"type": "http", "url": legacy},
            "oldest": {"type": "sse", "url": sse},
            "closed": {"url": "http://127.0.0.1:9/mcp"},
            "off": {"command": "no-such-command", "disabled": True},
            "unset": counting(folder / "unset", env={"KEY": "${NO_SUCH_VARIABLE}"}),
            "no-file": counting(folder / "no-file", envFile="no-such-file.env"),
            "no-value": {"url": modern, "headers": {"X-Key": {"command": [sys.executable, "-c", "exit(3)"]}}},
        }
        config = write_config(folder, servers, codeMode={"connectWaitMs": 5000})
        async with serve(config) as session:
            yield session


async def count(session: Session, server: str) -> Any:
    """Return the value of a call as soon as its server is connected, which takes long on a busy machine."""
    with anyio.fail_after(SECONDS):
        while (answer := await session.exec(f'return unwrap(await MCP.{server}.count({{ name: "x" }}))')).is_error:
            assert server in answer.error
    return answer.value


@pytest.mark.parametrize("server", ["good", "junk", "malformed"])
async def test_a_server_works_beside_broken_ones(session: Session, server: str) -> None:
    assert await count(session, server) == "x"


@pytest.mark.parametrize(("server", "size"), [("remote", 2_000_000), ("older", 2_000_000), ("oldest", 1_000_000)])
async def test_remote_servers_are_called_like_local_ones(session: Session, server: str, size: int) -> None:
    assert await session.value(f'return unwrap(await MCP.{server}.echo({{ text: "é😀" }}))') == "é😀"
    assert await session.value(f"return unwrap(await MCP.{server}.big({{ bytes: {size} }})).length") == size


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ("missing", ["'missing'", "no-such-command-anywhere", "PATH"]),
        ("noFolder", ["'no-folder'", "working directory"]),
        ("exits", ["'exits'", "exited"]),
        ("closed", ["'closed'", "cannot be reached"]),
        ("unset", ["'unset' is disabled", "the variable NO_SUCH_VARIABLE is not set (mcpServers.unset.env.KEY)"]),
        ("noFile", ["'no-file' is disabled", "no-such-file.env", "(mcpServers.no-file.envFile)"]),
        ("noValue", ["'no-value' is disabled", "exit code 3 (mcpServers.no-value.headers.X-Key)"]),
    ],
)
async def test_a_call_of_a_server_that_is_down_says_which_and_why(
    session: Session, server: str, words: list[str]
) -> None:
    answer = await session.exec(f"return await MCP.{server}.anything({{ a: 1 }})")
    assert answer.code == "nested_tool_failed"
    for word in words:
        assert word in answer.error
    assert "token-of-exits" not in answer.read


async def test_servers_that_are_down_are_listed_as_such(session: Session) -> None:
    servers = {s["identifier"]: s for s in await session.value("return (await MCP.$api()).servers")}
    assert servers["missing"]["status"].startswith("down")
    assert servers["unset"]["status"].startswith("down")
    assert servers["good"]["status"] == "ready"
    assert servers["silent"]["status"] == "connecting"
    assert "off" not in servers
    hits = await session.value('return await API.search("count", { limit: 50 })')
    assert "missing" in [hit["server"] for hit in hits if hit.get("status") == "down"]
    assert "MCP.good.count" in [hit["call"] for hit in hits]


async def test_a_server_that_dies_in_mid_call_is_named_and_comes_back(session: Session, folder: Path) -> None:
    code = """
        const [died, other] = await Promise.allSettled([
            MCP.mortal.die({}),
            MCP.good.count({ name: "meanwhile" }),
        ]);
        return { message: died.reason.message, data: died.reason.data, other: unwrap(other.value) };
    """
    value = await session.value(code)
    assert "'mortal'" in value["message"]
    assert "unknown" in value["message"]
    assert value["data"]["dispatched"] is True
    assert value["other"] == "meanwhile"
    await until(lambda: len(pids(folder / "mortal")) > 1)
    assert events(folder / "mortal").count("call die") == 1
    assert await count(session, "mortal") == "x"


async def test_a_token_in_the_headers_opens_a_guarded_server(folder: Path) -> None:
    async with http_server("--token", "right") as url:
        servers = {
            "guarded": {"url": url, "headers": {"Authorization": "Bearer ${GUARD}"}},
            "shut": {"url": url, "headers": {"Authorization": "Bearer wrong"}},
        }
        async with serve(write_config(folder, servers, name="guard.json"), env={"GUARD": "right"}) as session:
            assert await session.value('return unwrap(await MCP.guarded.echo({ text: "in" }))') == "in"
            refused = await session.exec('return await MCP.shut.echo({ text: "in" })')
            assert "HTTP 401" in refused.error
            assert "mcpServers.shut" in refused.error


async def test_a_deep_chain_of_ourselves_is_refused(folder: Path) -> None:
    config = write_config(folder, {"good": counting(folder / "deep")}, name="deep.json")
    async with raw(config, env={"CODEMODE_MCP_DEPTH": "3"}) as client:
        assert await client.exit_code() == 2
    assert "starts itself" in client.stderr
    assert client.received == b""


SECRETS = ("sk-environment-4711", "sk-header-4712", "sk-query-4713", "sk-argument-4714", "sk-program-4715")


async def test_no_secret_path_or_traceback_reaches_a_client_or_the_log(folder: Path) -> None:
    in_env, in_header, in_query, in_argument, in_program = SECRETS
    async with http_server("--token", "another") as url:
        servers: dict[str, Any] = {
            "set": counting(folder / "s", env={"SECRET": "${PLANTED}"}),
            "chatty": other("raw_server.py", "exit", env={"TOKEN": in_env}),
            "noisy": counting(folder / "n", f"stderr=my key is {in_env}", env={"SECRET": in_env}),
            "refused": {"url": url, "headers": {"Authorization": f"Bearer {in_header}"}},
            "query": {"url": f"http://user:{in_header}@127.0.0.1:9/mcp?key={in_query}"},
            "argument": {"command": "no-such-command", "args": ["--key", "${ARGUMENT}"]},
            "program": other(
                "raw_server.py",
                "exit",
                env={"TOKEN": {"command": [sys.executable, "-c", f"print('{in_program}')"]}},
            ),
        }
        config = write_config(folder, servers, name="secrets.json", codeMode={"connectWaitMs": 3000})
        planted = {"PLANTED": in_env, "ARGUMENT": in_argument}
        async with raw(config, "--log-level", "debug", env=planted) as client:
            await client.initialize("2025-11-25")
            await client.request("tools/list")
            programs = [
                "return unwrap(await MCP.set.environment({}))",
                "return [await MCP.$api(), (await API.list()).files, await API.search('key token secret')]",
                'return (await API.read("mcp/index.d.ts")).content',
                *(f"return await MCP.{name}.go({{}})" for name in servers if name not in ("set", "noisy")),
                "return await MCP.set.reject({})",
                "return unwrap(await MCP.noisy.refuse({}))",
                "throw new Error(JSON.stringify([Object.keys(globalThis), typeof process, new Error('x').stack]))",
            ]
            answers = []
            for code in programs:
                answer = await client.request("tools/call", {"name": "exec", "arguments": {"code": code}})
                answers.append(answer["result"]["structuredContent"])
            assert answers[0]["value"] == "set"
            assert [answer["status"] for answer in answers[3:]] == ["failed"] * (len(answers) - 3)
            assert await client.end() == 0
    traffic = client.received.decode()
    for line in traffic.splitlines():
        parse_message(line.encode())
    for secret in SECRETS:
        assert secret not in traffic
        assert secret not in client.stderr
    assert "Bearer" not in traffic
    for revealing in ("Traceback", 'File "', str(REPOSITORY), sys.prefix, "site-packages"):
        assert revealing not in traffic
