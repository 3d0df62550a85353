"""Authentication over HTTP, and the separation of principals."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.warnings import InsecureKeyLengthWarning

from tests.integration.http_harness import (
    ALICE,
    BOB,
    ERAS,
    TWO_TOKENS,
    Issuer,
    Served,
    issuer,
    opened_session,
    serve_http,
    write_http_config,
)

pytestmark = pytest.mark.anyio

RESOURCE = "https://mcp.example/mcp"
METADATA = "https://mcp.example/.well-known/oauth-protected-resource/mcp"


# bearer tokens of the configuration


@pytest.fixture(scope="module")
async def two_tokens(folder: Path) -> AsyncIterator[Served]:
    place = folder / "tokens"
    place.mkdir()
    tokens = [
        {"name": "alice", "token": "${ALICE_TOKEN}"},
        {"name": "bob", "token": {"command": [sys.executable, "-c", f"print({BOB!r})"]}},
    ]
    config = write_http_config(place, auth={"tokens": tokens})
    async with serve_http(config, "--log-level", "debug", env={"ALICE_TOKEN": ALICE}) as served:
        yield served
        assert ALICE not in served.stderr
        assert BOB not in served.stderr


async def test_tokens_come_from_variables_and_programs_and_are_never_shown(two_tokens: Served) -> None:
    # The fixture looks into the log.
    assert [(await two_tokens.request(token=token)).status_code for token in (ALICE, BOB)] == [200, 200]


async def test_a_request_without_credentials_is_told_what_is_needed(two_tokens: Served) -> None:
    for headers in ({}, {"authorization": "Basic YWxpY2U6"}, {"authorization": "Bearer"}):
        answer = await two_tokens.request(headers=headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "send the header Authorization: Bearer <token>" in answer.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/register", "/.well-known/oauth-protected-resource", "/elsewhere"])
async def test_a_client_that_tries_a_login_is_told_where_to_put_the_token(two_tokens: Served, path: str) -> None:
    answer = await two_tokens.request(path=path)
    assert answer.status_code == 404
    message = answer.json()["error"]["message"]
    assert "send the header Authorization: Bearer <token>" in message
    assert "the MCP endpoint is /mcp" in message


@pytest.mark.parametrize("token", ["nobody-has-this-token", ALICE[:-1], ALICE + "x", ALICE.upper(), "\u00e9" * 20])
async def test_a_token_that_is_none_of_ours_is_refused(two_tokens: Served, token: str) -> None:
    answer = await two_tokens.request(headers={"authorization": f"Bearer {token}".encode()})
    assert answer.status_code == 401
    assert 'error="invalid_token"' in answer.headers["www-authenticate"]
    assert token not in answer.text + two_tokens.stderr


async def test_a_token_in_the_url_is_refused_even_beside_one_in_the_header(two_tokens: Served) -> None:
    answer = await two_tokens.request(path=f"/mcp?access_token={ALICE}", token=ALICE)
    assert answer.status_code == 400
    assert 'error="invalid_request"' in answer.headers["www-authenticate"]
    assert ALICE not in answer.text + two_tokens.stderr


@pytest.mark.parametrize("mode", ERAS)
async def test_a_run_of_one_principal_is_nothing_to_another(two_tokens: Served, mode: str) -> None:
    async with two_tokens.client(mode, ALICE) as alice, two_tokens.client(mode, BOB) as bob:
        suspended = await alice.exec("store('k', 'of alice'); await yield_control(); return 'for alice'")
        unknown = await bob.wait("run_" + "A" * 24)
        foreign = await bob.wait(suspended.run_id)
        cancelled = await bob.wait(suspended.run_id, cancel=True)
        assert unknown.code == foreign.code == cancelled.code
        masked = [answer.error.replace(suspended.run_id, "ID") for answer in (foreign, cancelled)]
        assert masked == [unknown.error.replace("run_" + "A" * 24, "ID")] * 2
        assert (await alice.wait(suspended.run_id)).value == "for alice"
        assert await bob.value("return await load('k') ?? 'nothing'") == "nothing"
        assert await alice.value("return await load('k')") == "of alice"


async def test_a_principal_resumes_over_another_connection_and_in_the_other_era(two_tokens: Served) -> None:
    async with two_tokens.client("legacy", ALICE) as first:
        suspended = await first.exec("await yield_control(); return 'still there'")
    async with two_tokens.client("auto", ALICE) as second:
        assert (await second.wait(suspended.run_id)).value == "still there"


async def test_a_session_of_another_principal_does_not_exist(two_tokens: Served) -> None:
    session = await opened_session(two_tokens, ALICE)
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    headers = {"mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}
    answers = [
        await two_tokens.request(json=listing, content=None, headers=headers, token=BOB),
        await two_tokens.request(json=listing, content=None, headers=headers | {"mcp-session-id": "f" * 32}, token=BOB),
        await two_tokens.request("DELETE", headers=headers, token=BOB),
    ]
    assert [answer.status_code for answer in answers] == [404] * 3
    assert answers[0].json() == answers[1].json() == answers[2].json()
    mine = await two_tokens.request(json=listing, content=None, headers=headers, token=ALICE)
    assert mine.status_code == 200


async def test_failed_logins_are_slowed_down_and_those_of_others_are_not(tmp_path: Path) -> None:
    async with serve_http(write_http_config(tmp_path, **TWO_TOKENS)) as served:
        head = f"PUT /mcp HTTP/1.1\r\nhost: localhost:{served.port}\r\nauthorization: Bearer {'x' * 20}\r\n\r\n"

        def answered(connection: socket.socket) -> tuple[int, float]:
            return int(connection.recv(65536).split()[1]), time.monotonic()

        with ExitStack() as stack:
            began = time.monotonic()
            wrong = [stack.enter_context(served.connect()) for _ in range(90)]
            for connection in wrong:
                connection.sendall(head.encode())
            assert (await served.request(token=ALICE)).status_code == 200
            right = time.monotonic()
            answers = [await anyio.to_thread.run_sync(answered, connection) for connection in wrong]
    assert [status for status, _ in answers[:60]] == [401] * 60
    statuses, times = zip(*answers, strict=True)
    assert 429 in statuses
    assert max(times) - began >= 9, "the last ones wait for the others"
    assert right < max(times)


# without authentication


@pytest.fixture(scope="module")
async def open_to_all(folder: Path) -> AsyncIterator[Served]:
    place = folder / "open"
    place.mkdir()
    async with serve_http(write_http_config(place)) as served:
        yield served


async def test_a_legacy_session_owns_its_runs_and_values(open_to_all: Served) -> None:
    async with open_to_all.client("legacy") as one, open_to_all.client("legacy") as other:
        suspended = await one.exec("store('k', 1); await yield_control(); return 'mine'")
        assert (await other.wait(suspended.run_id)).status == "failed"
        assert (await other.wait(suspended.run_id, cancel=True)).status == "failed"
        assert await other.value("return (await load('k')) === undefined")
        assert (await one.wait(suspended.run_id)).value == "mine"


async def test_a_session_id_means_nothing_in_the_modern_era(open_to_all: Served) -> None:
    session = await opened_session(open_to_all)
    headers = {"mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}
    message: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "tools/call",
        "params": {"name": "exec", "arguments": {"code": "store('k', 'kept'); await yield_control()"}},
    }
    answer = await open_to_all.request(json=message, content=None, headers=headers)
    run_id = answer.text.partition('"runId":"')[2].partition('"')[0]
    assert run_id
    stolen = await open_to_all.call("wait", {"runId": run_id}, **{"mcp-session-id": session})
    assert stolen["result"]["structuredContent"]["status"] == "failed"
    values = await open_to_all.call("exec", {"code": "return await load('k')"}, **{"mcp-session-id": session})
    assert values["result"]["structuredContent"]["status"] == "failed"


# access tokens of an authorization server


@pytest.fixture(scope="module")
def server() -> Iterator[Issuer]:
    with issuer() as made:
        made.add("elliptic", "EC")
        made.keys["short"] = rsa.generate_private_key(65537, 1024)
        yield made


@pytest.fixture(scope="module")
async def protected(folder: Path, server: Issuer) -> AsyncIterator[Served]:
    place = folder / "oauth"
    place.mkdir()
    auth = {"issuer": server.url, "audience": RESOURCE, "scopes": ["mcp", "run"]}
    async with serve_http(write_http_config(place, auth=auth)) as served:
        yield served


async def ask(served: Served, token: str | None) -> httpx2.Response:
    return await served.request(token=token)


@pytest.mark.parametrize("mode", ERAS)
async def test_a_token_of_the_issuer_lets_its_subject_in(protected: Served, server: Issuer, mode: str) -> None:
    token = server.issue(scope="run other mcp")
    async with protected.client(mode, token) as session:
        assert await session.value("return 1 + 1") == 2


async def test_a_token_for_another_audience_issuer_or_time_is_told_so(protected: Served, server: Issuer) -> None:
    for claims, words in (
        ({"aud": "https://other.example/mcp"}, "another audience"),
        ({"iss": "https://other.example"}, "another issuer"),
        ({"exp": int(time.time()) - 120}, "expired"),
        ({"sub": None}, "neither a subject nor a client"),
    ):
        token = server.issue(scope="mcp run", **claims)
        answer = await ask(protected, token)
        assert (answer.status_code, words in answer.json()["error"]["message"]) == (401, True), answer.text
        challenge = answer.headers["www-authenticate"]
        assert 'error="invalid_token"' in challenge
        assert f'resource_metadata="{METADATA}"' in challenge
        assert token not in answer.text + protected.stderr


async def test_a_token_that_is_forged_is_refused(protected: Served, server: Issuer) -> None:
    public = server._public("one", server.keys["one"])
    claims = jwt.decode(server.issue(scope="mcp run"), options={"verify_signature": False})
    with issuer() as stranger:
        other = stranger.issue(scope="mcp run", iss=server.url)
    head, body, signature = server.issue(scope="mcp").split(".")
    wider = server.issue(scope="mcp run").split(".")[1]
    for token in (
        other,  # signed by another issuer with a key of the same name
        f"{head}.{wider}.{signature}",
        f"{head}.{body}.",
        jwt.encode(claims, None, "none"),
        jwt.encode(claims, public["n"], "HS256", {"kid": "one"}),  # "signed" with what everybody knows
        jwt.encode(claims, server.keys["elliptic"], "ES256", {"kid": "one"}),
        "not.a.token",
        "x" * 5000,
    ):
        answer = await ask(protected, token)
        assert answer.status_code == 401, token[:60]
        assert 'error="invalid_token"' in answer.headers["www-authenticate"]


async def test_a_token_without_a_scope_is_told_which(protected: Served, server: Issuer) -> None:
    answer = await ask(protected, server.issue(scope="mcp runs"))
    assert answer.status_code == 403
    challenge = answer.headers["www-authenticate"]
    assert 'error="insufficient_scope"' in challenge
    assert 'scope="mcp run"' in challenge
    assert f'resource_metadata="{METADATA}"' in challenge


async def test_without_credentials_the_way_to_them_is_shown(protected: Served, server: Issuer) -> None:
    answer = await ask(protected, None)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == f'Bearer scope="mcp run", resource_metadata="{METADATA}"'
    for path in ("/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"):
        metadata = await protected.request("GET", path)
        assert metadata.status_code == 200
        assert metadata.json() == {
            "resource": RESOURCE,
            "authorization_servers": [server.url],
            "scopes_supported": ["mcp", "run"],
            "bearer_methods_supported": ["header"],
            "resource_name": "codemode-mcp",
        }
        assert "access-control-allow-origin" not in metadata.headers


async def test_the_url_that_clients_know_is_let_in_as_a_host(protected: Served) -> None:
    assert (
        await protected.request("GET", "/.well-known/oauth-protected-resource", headers={"host": "mcp.example"})
    ).is_success
    assert (await protected.request(headers={"host": "other.example"})).status_code == 421


async def test_a_token_signed_by_a_short_key_is_refused(protected: Served, server: Issuer) -> None:
    with pytest.warns(InsecureKeyLengthWarning):
        token = server.issue("short", scope="mcp run")
    assert (await ask(protected, token)).status_code == 401
    assert (await ask(protected, server.issue(scope="mcp run"))).status_code == 200
    assert "an RSA key of 1024 bits in the key set is ignored" in protected.stderr


async def test_while_there_are_no_keys_a_client_is_told_to_come_again(tmp_path: Path) -> None:
    with issuer() as server:
        server.down = True
        auth = {"issuer": server.url, "audience": RESOURCE}
        async with serve_http(write_http_config(tmp_path, auth=auth)) as served:
            answer = await ask(served, server.issue())
            assert answer.status_code == 503
            assert "retry-after" in answer.headers
            assert "keys" in served.stderr
