"""Guards over HTTP: requests that are refused, and limits of the others."""

from __future__ import annotations

import json
import re
import select
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from pathlib import Path

import anyio
import anyio.to_thread
import httpx2
import pytest

from tests.integration.harness import MODERN, SECONDS
from tests.integration.http_harness import (
    ALICE,
    BOB,
    MODERN_HEADERS,
    TWO_TOKENS,
    Served,
    opened_session,
    serve_http,
    write_http_config,
)

pytestmark = pytest.mark.anyio

READ_MS = 700
MAX_BODY = 20_000


@pytest.fixture(scope="module")
async def served(folder: Path) -> AsyncIterator[Served]:
    config = write_http_config(
        folder,
        requestReadMs=READ_MS,
        maxRequestBytes=MAX_BODY,
        allowedHosts=["mcp.example", "other.example:8443"],
        allowedOrigins=["https://app.example"],
    )
    async with serve_http(config) as made:
        yield made


def exchange(served: Served, *pieces: bytes) -> bytes:
    """Send pieces over a bare connection; all that comes until the server closes it."""
    with served.connect() as connection:
        for piece in pieces:
            connection.sendall(piece)
        return until_closed(connection)


def until_closed(connection: socket.socket) -> bytes:
    received = b""
    try:
        while chunk := connection.recv(65536):
            received += chunk
    except ConnectionResetError:
        pass
    return received


def error_of(answer: bytes) -> tuple[int, str]:
    """Status and message of a refusal; every one is JSON."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head.lower()
    return int(head.split()[1]), json.loads(body)["error"]["message"]


def head(served: Served, *lines: str) -> bytes:
    given = [f"host: 127.0.0.1:{served.port}", *(f"{name}: {value}" for name, value in MODERN_HEADERS.items())]
    return ("\r\n".join(["POST /mcp HTTP/1.1", *given, "mcp-method: tools/list", *lines]) + "\r\n\r\n").encode()


# where a request comes from


@pytest.mark.parametrize(
    "host",
    ["localhost:{port}", "LOCALHOST:{port}", "[::1]:{port}", "mcp.example", "mcp.example:1", "other.example:8443"],
)
async def test_our_own_names_are_let_in(served: Served, host: str) -> None:
    assert (await served.request(headers={"host": host.format(port=served.port)})).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "localhost", "localhost:1", "127.0.0.1.evil.example:{port}", "0.0.0.0:{port}"),
        *("other.example:1", "mcp.example.evil.example", "localhost:{port}@evil.example"),
    ],
)
async def test_a_foreign_name_that_points_at_this_machine_is_refused(served: Served, host: str) -> None:
    answer = await served.request(headers={"host": host.format(port=served.port)})
    assert answer.status_code == 421
    assert "http.allowedHosts" in answer.json()["error"]["message"]


@pytest.mark.parametrize("origin", ["http://localhost:{port}", "https://app.example", "http://127.0.0.1:{port}"])
async def test_pages_of_ours_are_let_in(served: Served, origin: str) -> None:
    assert (await served.request(headers={"origin": origin.format(port=served.port)})).status_code == 200


@pytest.mark.parametrize(
    "origin",
    [
        *("https://evil.example", "http://localhost:5173", "null", "https://app.example:444", "http://app.example"),
        *("http://localhost:{port}.evil.example", "https://app.example.evil.example", "file://", ""),
    ],
)
async def test_pages_of_others_are_not_let_in(served: Served, origin: str) -> None:
    answer = await served.request(headers={"origin": origin.format(port=served.port)})
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers


async def test_only_pages_that_the_operator_names_may_read_answers(served: Served) -> None:
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "mcp-session-id"}
    named = await served.request("OPTIONS", headers={"origin": "https://app.example", **asked})
    assert named.status_code == 204
    assert named.headers["access-control-allow-origin"] == "https://app.example"
    assert named.headers["vary"] == "origin"
    own = await served.request("OPTIONS", headers={"origin": f"http://localhost:{served.port}", **asked})
    assert own.status_code == 405
    for answer in (own, await served.request()):
        assert not [name for name in answer.headers if name.startswith("access-control")]


# how much


async def test_a_body_of_the_largest_size_does_and_one_more_byte_does_not(served: Served) -> None:
    text = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": MODERN})
    fits = text + " " * (MAX_BODY - len(text))
    assert (await served.request(content=fits)).status_code == 200
    answer = await served.request(content=fits + " ")
    assert answer.status_code == 413
    assert str(MAX_BODY) in answer.json()["error"]["message"]


async def test_a_body_that_says_it_is_large_is_refused_before_it_is_sent(served: Served) -> None:
    status, message = error_of(exchange(served, head(served, "content-length: 99999999999")))
    assert status == 413
    assert "larger" in message


async def test_a_chunked_body_is_measured_as_it_comes(served: Served) -> None:
    chunk = b"1000\r\n" + b" " * 0x1000 + b"\r\n"
    assert error_of(exchange(served, head(served, "transfer-encoding: chunked"), *[chunk] * 6))[0] == 413


async def test_headers_have_a_size(served: Served) -> None:
    status, message = error_of(exchange(served, head(served, *[f"x-{number}: {'y' * 900}" for number in range(60)])))
    assert (status, message) == (431, "the headers are too large")


# how slow


@pytest.mark.parametrize(
    "sent",
    [b"", b"POST /mcp HTTP/1.1\r\nhost: localhost\r\n", b"POST /mc"],
    ids=["nothing", "half a head", "half a line"],
)
async def test_headers_that_do_not_come_end_the_connection(served: Served, sent: bytes) -> None:
    answer = await anyio.to_thread.run_sync(exchange, served, sent)
    assert error_of(answer) == (408, f"the request did not arrive within {READ_MS / 1000:g} s (http.requestReadMs)")


@pytest.mark.parametrize(
    ("begin", "drop", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\n", b"x: y\r\n", 408),
        (b"PUT /healthz HTTP/1.1\r\nhost: localhost:PORT\r\ncontent-length: 9999\r\n\r\n", b"x", 405),
    ],
    ids=["headers", "the rest of a refused body"],
)
async def test_what_trickles_in_does_not_keep_the_connection(
    served: Served, begin: bytes, drop: bytes, status: int
) -> None:
    def drip() -> bytes:
        received = b""
        with served.connect() as connection:
            connection.sendall(begin.replace(b"PORT", str(served.port).encode()))
            connection.settimeout(0.1)
            for _ in range(10 * SECONDS):
                try:
                    connection.sendall(drop)
                    if not (chunk := connection.recv(65536)):
                        return received
                    received += chunk
                except TimeoutError:
                    continue
                except OSError:
                    return received or b"closed"
        return b"it was kept"

    answer = await anyio.to_thread.run_sync(drip)
    assert answer == b"closed" or error_of(answer)[0] == status


async def test_a_second_request_has_its_time_as_well(served: Served) -> None:
    first = f"GET /healthz HTTP/1.1\r\nhost: localhost:{served.port}\r\n\r\n".encode()
    answer = await anyio.to_thread.run_sync(exchange, served, first + first + b"GET /heal")
    assert answer.count(b'{"status":"ok"}') == 2
    assert b"408" in answer


async def test_a_body_that_does_not_come_is_not_waited_for(served: Served) -> None:
    answer = await anyio.to_thread.run_sync(exchange, served, head(served, "content-length: 100"), b'{"json')
    assert error_of(answer) == (408, f"the body did not arrive within {READ_MS / 1000:g} s (http.requestReadMs)")


async def test_slow_clients_do_not_hold_up_others(served: Served) -> None:
    with ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(served.connect()).sendall(b"POST /mcp HTTP/1.1\r\n")
        assert (await served.request()).status_code == 200


# how often, and how many


async def test_a_principal_that_asks_too_often_is_slowed_down_alone(tmp_path: Path) -> None:
    config = write_http_config(tmp_path, **TWO_TOKENS, requestsPerSecond=1, requestBurst=5)
    async with serve_http(config) as served:
        statuses = []
        while 429 not in statuses and len(statuses) < 60:
            answer = await served.request(token=ALICE)
            statuses.append(answer.status_code)
        assert statuses[:5] == [200] * 5
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) >= 1
        assert (await served.request(token=BOB)).status_code == 200


def healthy_answer(connection: socket.socket) -> None:
    """Read a whole answer: its head and its body may come apart."""
    data = b""
    while b'{"status":"ok"}' not in data:
        more = connection.recv(65536)
        assert more, data
        data += more
    assert b" 200 " in data


async def test_connections_that_are_not_used_make_room_for_others(tmp_path: Path) -> None:
    async with serve_http(write_http_config(tmp_path, maxConnections=3)) as served:
        with ExitStack() as stack:
            opened = [stack.enter_context(served.connect()) for _ in range(3)]
            healthy = f"GET /healthz HTTP/1.1\r\nhost: localhost:{served.port}\r\n\r\n".encode()
            for connection in opened:
                connection.sendall(healthy)
                await anyio.to_thread.run_sync(healthy_answer, connection)
            opened[0].sendall(healthy)  # so that another one is idle longest
            await anyio.to_thread.run_sync(healthy_answer, opened[0])
            assert (await served.request("GET", "/healthz")).status_code == 200
            assert await anyio.to_thread.run_sync(opened[1].recv, 65536) == b""
            opened[0].sendall(healthy)
            await anyio.to_thread.run_sync(healthy_answer, opened[0])


async def test_half_sent_requests_keep_no_client_out(tmp_path: Path) -> None:
    async with serve_http(write_http_config(tmp_path, **TWO_TOKENS, maxConnections=20)) as served:
        with ExitStack() as stack:
            for number in range(30):
                connection = stack.enter_context(served.connect())
                head = f"POST /mcp HTTP/1.1\r\nhost: localhost:{served.port}\r\n"
                token = f"authorization: Bearer {BOB}\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{{"
                connection.sendall((head + (token if number % 2 else "")).encode())
            assert (await served.request(token=ALICE)).status_code == 200


async def test_connections_that_are_all_in_use_turn_new_ones_away(tmp_path: Path) -> None:
    async with serve_http(write_http_config(tmp_path, maxConnections=2)) as served:
        params = {**MODERN, "notifications": {}}
        listen = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
        body = json.dumps(listen).encode()
        head = [
            "POST /mcp HTTP/1.1",
            f"host: localhost:{served.port}",
            f"content-length: {len(body)}",
            "mcp-method: subscriptions/listen",
            *(f"{name}: {value}" for name, value in MODERN_HEADERS.items()),
        ]
        with ExitStack() as stack:
            for _ in range(2):
                connection = stack.enter_context(served.connect())
                connection.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + body)
                assert b"200" in await anyio.to_thread.run_sync(connection.recv, 65536)
            assert error_of(await anyio.to_thread.run_sync(exchange, served))[0] == 503


async def test_an_address_suspends_a_share_of_what_there_is_room_for(tmp_path: Path) -> None:
    # Programs that other tests leave suspended count in the store that they share.
    store = {"kind": "sqlite", "path": str(tmp_path / "runs.sqlite3")}
    config = write_http_config(tmp_path, store=store, trustedProxies=["127.0.0.1"])
    config.write_text(json.dumps(json.loads(config.read_text()) | {"tools": {"codeMode": {"maxSuspendedRuns": 9}}}))
    async with serve_http(config) as served:
        await served.ready()

        async def suspend(address: str) -> str:
            answer = await served.call("exec", {"code": "await yield_control()"}, **{"x-forwarded-for": address})
            return answer["result"]["structuredContent"]["status"]

        # Addresses of one network of 64 bits are one peer.
        answers = [await suspend(f"2001:db8::{number}") for number in range(9)]
        assert answers == ["waiting"] * 8 + ["failed"]
        assert await suspend("192.0.2.7") == "waiting"


LEGACY = {"mcp-protocol-version": "2025-11-25"}
LISTING = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}


async def test_a_new_session_takes_the_place_of_one_of_the_principal_that_has_the_most(tmp_path: Path) -> None:
    async with serve_http(write_http_config(tmp_path, **TWO_TOKENS, maxSessions=4)) as served:
        bobs = [await opened_session(served, BOB) for _ in range(4)]
        alices = await opened_session(served, ALICE)
        bobs.append(await opened_session(served, BOB))

        async def status(session: str, token: str) -> int:
            headers = LEGACY | {"mcp-session-id": session}
            return (await served.request(json=LISTING, content=None, headers=headers, token=token)).status_code

        assert [await status(session, BOB) for session in bobs] == [404, 404, 200, 200, 200]
        assert await status(alices, ALICE) == 200
        assert (await served.request(token=BOB)).status_code == 200, "the modern era has no sessions"


async def test_idle_sessions_end(tmp_path: Path) -> None:
    async with serve_http(write_http_config(tmp_path, sessionIdleSeconds=1)) as served:
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        opened = await served.request(json=message, content=None, headers=LEGACY)
        headers = LEGACY | {"mcp-session-id": opened.headers["mcp-session-id"]}
        with anyio.fail_after(SECONDS):
            while True:
                await anyio.sleep(1.5)  # each request would renew it
                if (await served.request(json=LISTING, content=None, headers=headers)).status_code == 404:
                    break


async def test_half_sent_bodies_of_one_principal_take_little_memory_and_no_room_of_others(tmp_path: Path) -> None:
    async with serve_http(write_http_config(tmp_path, requestReadMs=300_000, **TWO_TOKENS), own_process=True) as served:
        assert (await served.request(token=ALICE)).status_code == 200
        before = resident(served.process.pid)
        half = b" " * (3 * 1024 * 1024)
        head = (
            f"POST /mcp HTTP/1.1\r\nhost: localhost:{served.port}\r\nauthorization: Bearer {BOB}\r\n"
            f"content-type: application/json\r\ncontent-length: {4 * 1024 * 1024}\r\n\r\n"
        ).encode()

        def send() -> socket.socket:
            connection = served.connect()
            with suppress(OSError):  # the answer came before the end
                connection.sendall(head + half)
            return connection

        def wait_for_refusals(connections: list[socket.socket]) -> None:
            """Return when no more than five remain, which is what fits into the share of 16 MiB of one principal."""
            while len(connections) > 5:
                answered = select.select(connections, [], [], SECONDS)[0]
                assert answered, f"{len(connections)} half-sent bodies are kept"
                connections = [connection for connection in connections if connection not in answered]

        with ExitStack() as stack:
            # 180 MiB
            sent = [stack.enter_context(await anyio.to_thread.run_sync(send)) for _ in range(60)]
            await anyio.to_thread.run_sync(wait_for_refusals, sent)
            large = (
                b" " * (7 * 512 * 1024)
                + json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": MODERN}).encode()
            )
            assert (await served.request(content=large, token=ALICE)).status_code == 200
            assert (await served.request(token=BOB)).status_code == 200, "small bodies are always taken"
            with suppress(httpx2.TransportError):  # the connection is closed before all is sent
                assert (await served.request(content=large, token=BOB)).status_code == 503
            grown = resident(served.process.pid) - before
        assert grown < 100 * 1024 * 1024


def resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        pytest.skip("needs /proc")
    found = re.search(r"VmRSS:\s+(\d+) kB", status.read_text("utf-8"))
    assert found is not None
    return int(found[1]) * 1024


async def test_two_statements_of_a_length_are_refused_and_the_connection_closed(served: Served) -> None:
    both = (
        f"POST /mcp HTTP/1.1\r\nhost: localhost:{served.port}\r\ncontent-type: application/json\r\n"
        "content-length: 200\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
        f"GET /healthz HTTP/1.1\r\nhost: localhost:{served.port}\r\n\r\n"
    )
    answer = await anyio.to_thread.run_sync(exchange, served, both.encode())
    assert answer.count(b"HTTP/1.1") == 1
    assert b" 400 " in answer.split(b"\r\n")[0]
    assert b"must not have both" in answer


# what is said


async def test_every_refusal_is_json_and_says_nothing_of_what_is_behind(served: Served) -> None:
    answers = [
        await served.request("PUT"),
        await served.request("GET", headers={"accept": "text/html"}),
        await served.request(headers={"content-type": "text/plain"}),
        await served.request(headers={"accept": "text/html"}),
        await served.request(headers={"accept": "text/html", "mcp-protocol-version": "2025-11-25"}),
        await served.request(content="{"),
        await served.request(content="[" * 15_000),
        await served.request(content="{}", headers={"mcp-protocol-version": "1999-01-01"}),
        await served.request(path="/%2e%2e/etc/passwd"),
    ]
    for answer in answers:
        assert 400 <= answer.status_code < 500
        assert answer.headers["content-type"].startswith("application/json")
        assert answer.json()["error"]["message"]
        assert "server" not in answer.headers
        for word in ("Traceback", "uvicorn", "starlette", "File "):
            assert word not in answer.text
    assert "x-content-type-options" in answers[0].headers
