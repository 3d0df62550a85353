"""Answers as bytes: what is read directly is what h11 reads, however they are cut. Connections over TLS and proxies."""

import asyncio
import datetime
import gc
import itertools
import ssl
import warnings
from pathlib import Path
from typing import Any

import anyio
import h11
import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import example, given, settings
from hypothesis import strategies as st
from loopback_api import JSON, Received, loopback_api, reply

from upstream_clients.openapi import connections
from upstream_clients.openapi.api import ApiRequest, ApiResponse
from upstream_clients.openapi.client import ApiClient, Base, NoAnswer
from upstream_clients.openapi.connections import (
    MAX_KEPT,
    Connection,
    Connections,
    Endpoint,
    UnreadableBody,
    encode_head,
)
from upstream_clients.openapi.exchanges import Address, Http, Outgoing

pytestmark = pytest.mark.anyio

LIMIT = 1000
_STATUS_LINES = (
    *("HTTP/1.1 200 OK", "HTTP/1.1 404", "HTTP/1.1 500 ", "HTTP/1.1 204 No Content", "HTTP/1.1 304 Not Modified"),
    *("HTTP/1.0 200 OK", "HTTP/1.1 100 Continue", "HTTP/1.1 99 x", "HTTP/1.1 200\tOK", "http/1.1 200 OK", "HTTP/2 200"),
)
_FIELDS = (
    *("Content-Length: 5", "Content-Length: 0", "content-length:5", "Content-Length: 5, 5", "Content-Length: +5"),
    *("Content-Length: 7", "Content-Length: 99999", "Transfer-Encoding: chunked", "Connection: close"),
    *("Connection: keep-alive", "X: é", "X : y", "X: y\tz  ", " folded", "X:", ": y", "X: \x01", "Set-Cookie: a"),
)
_BODIES = ("hello", "", "hello more", "5\r\nhello\r\n0\r\n\r\n", "5\r\nhello\r\n0\r\nHTTP/1.1 200 OK\r\n\r\n", "hel")


class _Transport(asyncio.Transport):
    """A transport that notes whether the connection wants more bytes."""

    reads = True

    def write(self, data: Any) -> None: ...

    def abort(self) -> None: ...

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True


def read(pieces: list[bytes], method: str) -> ApiResponse | str:
    """Return the answer that a connection reads from these pieces and their end, or `refused`."""
    loop = asyncio.new_event_loop()
    try:
        connection = Connection()
        connection.connection_made(_Transport())
        answer = loop.create_task(connection.exchange(method, b"", LIMIT))
        loop.call_soon(loop.stop)
        loop.run_forever()
        for piece in pieces:
            connection.data_received(piece)
        connection.eof_received()
        try:
            return loop.run_until_complete(answer)
        except (httpx2.TransportError, UnreadableBody):
            return "refused"
    finally:
        loop.close()


def read_by_h11(data: bytes, method: str) -> ApiResponse | str:
    """Return the answer that h11 reads."""
    parser = h11.Connection(h11.CLIENT)
    parser.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
    parser.send(h11.EndOfMessage())
    body, head = b"", None
    try:
        for chunk in (data, b""):
            if chunk or parser.their_state is not h11.DONE:
                parser.receive_data(chunk)
            while (event := parser.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                if isinstance(event, h11.Response):
                    head = event
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    assert head is not None
                    if len(body) > LIMIT:
                        return "refused"
                    headers: dict[str, str] = {}
                    for raw_name, raw_value in head.headers:
                        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
                        headers[name] = f"{headers[name]}, {value}" if name in headers else value
                    return ApiResponse(head.status_code, bytes(head.reason).decode("latin-1"), headers, body)
                elif isinstance(event, h11.ConnectionClosed):
                    return "refused"
    except h11.RemoteProtocolError:
        pass
    return "refused"


@settings(max_examples=200, deadline=None)
@example("HTTP/1.1 200 OK", ["Content-Length: 5"], "hello", "HEAD", [])
@example("HTTP/1.1 204 No Content", ["Content-Length: 5"], "hello", "GET", [])
@example("HTTP/1.1 200 OK", ["Content-Length: 5", "Transfer-Encoding: chunked"], _BODIES[3], "GET", [20, 40])
@example("HTTP/1.1 200 OK", ["Content-Length: 5", "Content-Length: 7"], "hello", "GET", [])
@example("HTTP/1.1 200 OK", ["Content-Length: 5", " folded"], "hello", "GET", [])
@example("HTTP/1.1 200 OK", ["X: y", "X: y\tz  ", "Content-Length: 5"], "hello more", "GET", [3, 17, 60])
@given(
    st.sampled_from(_STATUS_LINES),
    st.lists(st.sampled_from(_FIELDS), max_size=4),
    st.sampled_from(_BODIES),
    st.sampled_from(("GET", "HEAD", "POST")),
    st.lists(st.integers(0, 200), max_size=3),
)
def test_an_answer_is_read_as_h11_reads_it(
    first: str, fields: list[str], body: str, method: str, cuts: list[int]
) -> None:
    data = "\r\n".join([first, *fields, "", body]).encode("latin-1")
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[start:end] for start, end in itertools.pairwise(places)]
    assert read(pieces, method) == read_by_h11(data, method)


def test_connections_to_many_servers_are_not_all_kept() -> None:
    async def kept() -> int:
        connections, made = Connections(guarded=True), [Connection() for _ in range(3 * MAX_KEPT)]
        for number, connection in enumerate(made):
            connection.connection_made(_Transport())
            connections.release(Endpoint("https", f"{number}.example", 443), connection)
        return sum(each.is_reusable for each in made)

    assert asyncio.run(kept()) == MAX_KEPT


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(("Content-Length: 5", "Transfer-Encoding: chunked")),
    st.lists(st.tuples(st.integers(0, 200), st.sampled_from(list(b"\0\t\n\r :,;59aA\x7f\xff"))), max_size=3),
)
@example("Transfer-Encoding: chunked", [(23, 9), (88, 0), (165, 9)])  # a blank line without a carriage return
def test_a_changed_answer_is_read_as_h11_reads_it(framing: str, changes: list[tuple[int, int]]) -> None:
    body = "hello" if "Length" in framing else _BODIES[3]
    data = bytearray(f"HTTP/1.1 200 OK\r\nX: y\r\n{framing}\r\nConnection: keep-alive\r\n\r\n{body}".encode())
    for place, byte in changes:
        data[place % len(data)] = byte
    assert read([bytes(data)], "GET") == read_by_h11(bytes(data), "GET")


@pytest.mark.anyio
async def test_a_request_that_is_given_up_leaves_no_connection() -> None:
    async def silent(request: Received) -> None:
        await anyio.sleep_forever()

    async with loopback_api() as api:
        api.script("/", reply(body=1))
        api.script("/silent", silent)
        http, address = Http(guarded=False), Address.read(f"{api.url}/")
        await http.exchange(Outgoing("GET", address, {}))
        assert len(http._direct._open) == 1
        with anyio.move_on_after(0.05):
            await http.exchange(Outgoing("GET", address._replace(target="/silent"), {}))
        assert len(http._direct._open) == 0
        await http.close()


@pytest.mark.anyio
async def test_a_request_that_is_cancelled_while_it_connects_leaves_no_socket() -> None:
    async with loopback_api() as api:
        endpoint = Endpoint("http", "127.0.0.1", api.port)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for rounds in range(15):
                connections = Connections(guarded=False)
                asking = asyncio.ensure_future(connections.exchange(endpoint, "GET", b"GET /", None, LIMIT))
                for _ in range(rounds):
                    await asyncio.sleep(0)
                asking.cancel()
                await asyncio.wait([asking])
                connections.close()
            del asking
            gc.collect()
    assert [str(each.message) for each in caught] == []


@pytest.mark.parametrize("extra", [b"x", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"])
def test_a_connection_with_more_bytes_than_its_answer_is_not_used_again(extra: bytes) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"

    async def reusable(*pieces: bytes) -> bool:
        connection = Connection()
        connection.connection_made(_Transport())
        answering = asyncio.ensure_future(connection.exchange("GET", b"", LIMIT))
        await asyncio.sleep(0)
        for piece in pieces:
            connection.data_received(piece)
        assert (await answering).body == b"ok"
        return connection.is_reusable

    for form in (answer, chunked):
        assert asyncio.run(reusable(form))
        assert not asyncio.run(reusable(form + extra))
        assert not asyncio.run(reusable(form, extra))


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


async def answered(*pieces: bytes) -> ApiResponse:
    """Return the answer to a request, after these pieces and the end of the connection."""
    connection = Connection()
    connection.connection_made(_Transport())
    answering = asyncio.ensure_future(connection.exchange("GET", b"", 10_000))
    await asyncio.sleep(0)
    for piece in pieces:
        connection.data_received(piece)
    connection.connection_lost(None)
    return await answering


def test_many_small_chunks_are_read_in_steps_and_not_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        connection, transport = Connection(), _Transport()
        connection.connection_made(transport)
        answering = asyncio.ensure_future(connection.exchange("GET", b"", 10_000))
        await asyncio.sleep(0)
        connection.data_received(CHUNKED + b"1\r\nx\r\n" * 1000)
        assert not transport.reads
        connection.data_received(b"1\r\ny\r\n")  # bytes that the event loop had read before
        steps = 0
        while not transport.reads:
            steps += 1
            await asyncio.sleep(0)
        assert steps >= 1000 // connections.PIECES_PER_STEP - 1
        connection.data_received(b"0\r\n\r\n")
        assert (await answering).body == b"x" * 1000 + b"y"
        assert connection.is_reusable

    asyncio.run(main())
    whole = CHUNKED + b"1\r\nx\r\n" * 1000
    assert asyncio.run(answered(whole + b"0\r\n\r\n")).body == b"x" * 1000
    with pytest.raises(httpx2.RemoteProtocolError, match="incomplete chunked read"):
        asyncio.run(answered(whole))
    monkeypatch.setattr(connections, "MAX_PIECES", 900)
    with pytest.raises(httpx2.RemoteProtocolError, match="more than 900 chunks"):
        asyncio.run(answered(whole))


@pytest.mark.parametrize("form", ["Content-Length: 0\r\n", "Transfer-Encoding: chunked\r\n"])
def test_a_head_with_too_many_lines_is_refused(form: str) -> None:
    head = "HTTP/1.1 200 OK\r\n" + form + "X: y\r\n" * 1000 + "\r\n0\r\n\r\n"
    with pytest.raises(httpx2.RemoteProtocolError, match="more than 1000 lines"):
        asyncio.run(answered(head.encode()))


def test_a_request_on_a_connection_that_ended_before_it_was_not_sent() -> None:
    async def main() -> None:
        connection = Connection()
        connection.connection_made(_Transport())
        connection.connection_lost(None)
        with pytest.raises(httpx2.ConnectError, match="before a request was sent"):
            await connection.exchange("POST", b"", LIMIT)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("method", "target", "headers"),
    [
        ("GET", "/a b", {}),
        ("GET", "/a\r\nX: y", {}),
        ("GET", "/é", {}),
        ("G T", "/", {}),
        ("GET", "/", {"x": "a\r\nb: c"}),
        ("GET", "/", {"x": "a\nb"}),
        ("GET", "/", {"x": "a\0"}),
        ("GET", "/", {"x: y\r\nz": "a"}),
    ],
)
def test_no_value_can_end_a_line_of_a_request(method: str, target: str, headers: dict[str, str]) -> None:
    with pytest.raises(httpx2.LocalProtocolError):
        encode_head(method, target, headers)
    assert encode_head("GET", "/a?b=c%0A", {"x": "é\t"}) == "GET /a?b=c%0A HTTP/1.1\r\nx: é\t\r\n\r\n".encode()


# Connections to APIs over TLS and through proxies of the environment.


GET = ApiRequest("GET", "/pets?a=1", {}, None)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def client_of(url: str) -> ApiClient:
    base = Base(Address.read(url)._replace(target=""), url, url, "api", True, True)
    return ApiClient(base, headers={"X-Key": "secret"})


def certificate(folder: Path) -> Path:
    """Return a file with a key and a certificate for `localhost`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    path = folder / "server.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        + built.public_bytes(serialization.Encoding.PEM)
    )
    return path


async def test_a_certificate_is_checked_with_its_host_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(path)
    async with loopback_api(context) as api:
        api.script("/pets", reply(body=1))
        async with client_of(f"https://localhost:{api.port}") as client:
            with pytest.raises(NoAnswer, match="certificate verify failed") as refused:
                await client.send(GET, is_repeatable=False)
        assert not refused.value.sent
        trusting = httpx2.create_ssl_context()
        trusting.load_verify_locations(path)
        monkeypatch.setattr(httpx2, "create_ssl_context", lambda: trusting)
        async with client_of(f"https://localhost:{api.port}") as client:
            for _ in range(2):
                assert (await client.send(GET, is_repeatable=True)).body == b"1"
        async with client_of(f"https://127.0.0.1:{api.port}") as client:
            with pytest.raises(NoAnswer, match="IP address mismatch"):
                await client.send(GET, is_repeatable=False)
    first, second = api.requests("/pets")
    assert first.connection == second.connection


async def test_requests_use_the_proxy_of_the_environment_and_no_private_address_is_asked_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with loopback_api() as proxy, loopback_api() as direct:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        moved = reply("302 Found", b"", JSON, "Location: http://10.1.2.3/secrets")
        proxy.script("http://api.example/pets", reply(body=1), moved)
        async with client_of("http://api.example") as client:
            assert (await client.send(GET, is_repeatable=True)).body == b"1"
            assert (await client.send(GET, is_repeatable=True)).status == 302
        direct.script("/pets", reply(body=2))
        async with client_of(direct.url) as client:
            assert (await client.send(GET, is_repeatable=True)).body == b"2"
    assert [each.target for each in proxy.received] == ["http://api.example/pets?a=1"] * 2
    assert proxy.received[0].headers["host"] == "api.example"
    assert proxy.received[0].headers["x-key"] == "secret"
