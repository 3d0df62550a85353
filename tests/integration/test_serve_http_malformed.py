"""Malformed requests over HTTP: each is refused, is answered once, and nothing in it is taken for a second request.

Bodies that are no request of MCP are answered, whatever it costs to read them.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path

import anyio.to_thread
import pytest

from tests.integration.harness import MODERN
from tests.integration.http_harness import Served, serve_http, write_http_config

pytestmark = pytest.mark.anyio

NEXT = b"GET /healthz HTTP/1.1\r\nhost: HOST\r\n\r\n"
"""A request that is answered only where the end of the one before it was taken for somewhere else."""

JSON = b"content-type: application/json\r\n"


@pytest.fixture(scope="module")
async def served(folder: Path) -> AsyncIterator[Served]:
    place = folder / "malformed"
    place.mkdir()
    async with serve_http(write_http_config(place, requestReadMs=500)) as made:
        await made.ready()
        yield made


def exchange(served: Served, data: bytes) -> bytes:
    """Send bytes, and nothing after them; all that comes until the server closes the connection."""
    received = b""
    with served.connect() as connection:
        try:
            connection.sendall(data.replace(b"HOST", f"localhost:{served.port}".encode()))
            while chunk := connection.recv(65536):
                received += chunk
        except OSError:  # closed while we were sending
            pass
    return received


def post(*lines: bytes, body: bytes = b"{}") -> bytes:
    """Return a POST with these lines in its head."""
    return b"POST /mcp HTTP/1.1\r\nhost: HOST\r\n" + JSON + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + body


def chunked(body: bytes) -> bytes:
    return post(b"transfer-encoding: chunked", body=body)


LENGTH = b"content-length: "
CODED = b"transfer-encoding: "
BODY = b"2\r\n{}\r\n0\r\n\r\n"
"""The body `{}` in chunks."""

LENGTHS = (
    *(b"2, 3", b"+2", b"-2", b"0x2", b"2 2", b"", b"2.0", b"2e0", b"0_2", b"9" * 400),
    "\u0662".encode(),
)
CODINGS = (
    *(b"xchunked", b"identity", b"chunked, identity", b"chunked, chunked", b"gzip, chunked"),
    *(b"\x0bchunked", b"chunked\0", b'"chunked"'),
)
CHUNKS = {
    "a negative size": b"-2\r\n{}\r\n0\r\n\r\n",
    "a size with 0x": b"0x2\r\n{}\r\n0\r\n\r\n",
    "no size": b"\r\n{}\r\n0\r\n\r\n",
    "another base": b"g\r\n{}\r\n0\r\n\r\n",
    "a size beyond any number": b"f" * 21 + b"\r\n{}\r\n0\r\n\r\n",
    "more than it says": b"1\r\n{}\r\n0\r\n\r\n",
    "less than it says": b"9\r\n{}\r\n0\r\n\r\n",
    "no end of line": b"2\r\n{}0\r\n\r\n",
}
FRAMING = {
    **{f"the length {length[:9]!r}": post(LENGTH + length) for length in LENGTHS},
    **{f"the coding {coding!r}": post(CODED + coding, body=BODY) for coding in CODINGS},
    **{f"a chunk with {name}": chunked(body) for name, body in CHUNKS.items()},
    "a length and chunks": post(LENGTH + b"2", CODED + b"chunked", body=BODY),
    "chunks and a length": post(CODED + b"chunked", LENGTH + b"2", body=BODY),
    "chunks and a length of zero": post(CODED + b"chunked", LENGTH + b"0", body=BODY),
    "two lengths": post(LENGTH + b"2", LENGTH + b"3"),
    "chunked in two lines": post(CODED + b"chunked", CODED + b"chunked"),
    "a space before the colon": post(b"transfer-encoding : chunked", body=BODY),
    "a folded line": post(b"x: y\r\n " + LENGTH + b"2", LENGTH + b"-1"),
    "a header with a NUL": post(b"x: a\0b", LENGTH + b"2"),
    "a header with a carriage return": post(b"x: a\rb", LENGTH + b"2"),
    "a header without a colon": post(b"nothing", LENGTH + b"2"),
    "a header without a name": post(b": nothing", LENGTH + b"2"),
    "a header with a space in its name": post(b"x y: z", LENGTH + b"2"),
    "a header with letters beyond ASCII in its name": post("\u00e9: z".encode(), LENGTH + b"2"),
    "a header of 100 kB": post(b"x: " + b"y" * 100_000, LENGTH + b"2"),
    "30,000 headers": post(*[b"x: y"] * 30_000, LENGTH + b"-2"),
    "two spaces in the first line": b"POST  /mcp HTTP/1.1\r\nhost: HOST\r\n\r\n",
    "a tab in the first line": b"POST\t/mcp\tHTTP/1.1\r\nhost: HOST\r\n\r\n",
    "no version": b"POST /mcp\r\nhost: HOST\r\n\r\n",
    "version 1.10": b"POST /mcp HTTP/1.10\r\nhost: HOST\r\n\r\n",
    "a version in small letters": b"POST /mcp http/1.1\r\nhost: HOST\r\n\r\n",
    "a NUL in the path": b"POST /mcp\0 HTTP/1.1\r\nhost: HOST\r\n\r\n",
    "no host": b"POST /mcp HTTP/1.1\r\n\r\n",
    "two hosts": b"POST /mcp HTTP/1.1\r\nhost: HOST\r\nhost: evil.example\r\n\r\n",
    "the hello of TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 600 + b"\r\n\r\n",
}


@pytest.mark.parametrize("kind", FRAMING)
async def test_a_request_whose_end_is_in_doubt_is_refused_and_the_connection_closed(served: Served, kind: str) -> None:
    answer = await anyio.to_thread.run_sync(exchange, served, FRAMING[kind] + NEXT)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert answer.split(b" ", 2)[1] in (b"400", b"408", b"413", b"421", b"431", b"501")
    assert b'"status"' not in answer


METHODS = ("HEAD", "PUT", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "post", "GETS", "X")
PLACES = (
    *("/", "/MCP", "/mcp/", "//mcp", "/mcp//", "/mcp/..", "/mcp/../mcp", "/./mcp", "/mcp;x", "/mcp%00", "/mcp%2f"),
    *("/%2e/mcp", "/mcp\\", "/x/mcp", "/mcpx", "/healthz/", "/healthz/../mcp", "/etc/passwd"),
    *("/.well-known/oauth-protected-resource", "/" + "x" * 100_000),
)


@pytest.mark.parametrize("method", METHODS)
async def test_other_methods_are_refused(served: Served, method: str) -> None:
    data = f"{method} /mcp HTTP/1.1\r\nhost: HOST\r\nconnection: close\r\n\r\n".encode()
    answer = await anyio.to_thread.run_sync(exchange, served, data)
    assert answer.split(b" ", 2)[1] in (b"400", b"405")


@pytest.mark.parametrize("path", PLACES, ids=lambda path: path[:40])
async def test_nothing_is_at_other_paths(served: Served, path: str) -> None:
    data = post(LENGTH + b"2", b"connection: close").replace(b" /mcp ", f" {path} ".encode())
    answer = await anyio.to_thread.run_sync(exchange, served, data)
    assert answer.split(b" ", 2)[1] in (b"400", b"404")


KINDS = ("", "text/plain", "text/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "*/*")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_form_that_a_page_can_send_without_asking_is_refused(served: Served, kind: str) -> None:
    assert (await served.request(content=b"{}", headers={"content-type": kind})).status_code == 415


CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": MODERN}
BODIES = {
    "nothing": b"",
    "spaces": b" " * 3_000_000,
    "a list": b"[]",
    "null": b"null",
    "a number": b"5",
    "a text": b'"tools/list"',
    "half an object": b'{"jsonrpc":',
    "lists without end": b"[" * 1_000_000,
    "objects without end": b'{"a":' * 500_000,
    "lists that end": b"[" * 100_000 + b"]" * 100_000,
    "a number of a million digits": b'{"jsonrpc": "2.0", "id": ' + b"9" * 1_000_000 + b', "method": "ping"}',
    "a float beyond any number": b'{"jsonrpc": "2.0", "id": 1e999, "method": "ping"}',
    "NaN": b'{"jsonrpc": "2.0", "id": NaN, "method": "ping"}',
    "two objects": b"{}{}",
    "a comment": b"{} // nothing",
    "half a character": b'{"jsonrpc": "2.0", "id": "\xff", "method": "ping"}',
    "gzip": gzip.compress(json.dumps(CALL).encode()),
    "another version": json.dumps({**CALL, "jsonrpc": "1.0"}).encode(),
    "a method that is a number": json.dumps({**CALL, "method": 5}).encode(),
    "an id that is an object": json.dumps({**CALL, "id": {}}).encode(),
    "parameters that are a list": json.dumps({**CALL, "params": [1]}).encode(),
    "parameters that are a text": json.dumps({**CALL, "params": "x"}).encode(),
    "ten thousand requests": json.dumps([CALL] * 10_000).encode(),
    "a hundred thousand keys": json.dumps({"a" + str(number): number for number in range(100_000)}).encode(),
    "half a million escapes": b'{"jsonrpc": "2.0", "id": 1, "method": "' + b"\\u0041" * 500_000 + b'"}',
    "a result": json.dumps({"jsonrpc": "2.0", "id": 1, "result": {}}).encode(),
}


@pytest.mark.parametrize("kind", BODIES)
async def test_a_body_that_is_no_request_is_answered(served: Served, kind: str) -> None:
    answer = await served.request(content=BODIES[kind])
    assert 400 <= answer.status_code < 500 or "error" in answer.json() or kind == "a result"
    assert len(answer.content) < 10_000
    assert (await served.request()).status_code == 200


HANDSHAKE = {"mcp-protocol-version": "2025-06-18"}
GREETING = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "1"},
}

MALFORMED = [
    (b"{bad", -32700, None, "not JSON"),
    (b"", -32700, None, "not JSON"),
    (b"\xef\xbb\xbf", -32700, None, "not JSON"),
    (b"[" * 100_000, -32700, None, "nested too deeply"),
    (b"5", -32600, None, "a message must be an object"),
    (b"{}", -32600, None, '"method" is missing'),
    (b'{"jsonrpc": "2.0", "id": 5}', -32600, 5, '"method" is missing'),
    (b'{"jsonrpc": "1.0", "id": "a", "method": "ping"}', -32600, "a", '"jsonrpc" must be "2.0"'),
    (b'{"id": 5, "method": "ping"}', -32600, 5, '"jsonrpc" must be "2.0"'),
    (b'{"jsonrpc": "2.0", "id": 5, "method": "ping", "params": []}', -32600, 5, '"params" must be an object'),
    (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600, None, '"id" must be a string or an integer'),
    (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}', -32600, None, '"id" must be a string or an integer'),
    (b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', -32600, 1.5, '"id" must be a string or an integer'),
    (b'[{"jsonrpc": "2.0", "id": 5, "method": "ping"}]', -32600, 5, "batches are not supported"),
    (json.dumps([CALL] * 2).encode(), -32600, None, "batches are not supported"),
    (b'{"method": "notifications/initialized"}', -32600, None, '"jsonrpc" must be "2.0"'),
]


@pytest.mark.parametrize("headers", [{}, HANDSHAKE], ids=["modern", "handshake"])
async def test_a_malformed_message_is_refused_with_its_id_where_it_can_be_read(
    served: Served, headers: dict[str, str]
) -> None:
    for body, code, request_id, words in MALFORMED:
        answer = await served.request(content=body, headers=headers)
        found = answer.json()
        assert answer.status_code == 400, body[:100]
        assert (found["jsonrpc"], found["id"], found["error"]["code"]) == ("2.0", request_id, code), body[:100]
        assert words in found["error"]["message"]
        assert "validation" not in answer.text


@pytest.mark.parametrize("kind", ["Application/JSON", "APPLICATION/JSON; Charset=UTF-8", "application/json ;x=y"])
async def test_media_types_are_compared_without_case(served: Served, kind: str) -> None:
    headers = {"content-type": kind, "accept": "Application/JSON, TEXT/Event-Stream"}
    assert (await served.request(headers=headers)).status_code == 200
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": GREETING})
    answer = await served.request(content=body, headers={**HANDSHAKE, **headers})
    assert answer.status_code == 200
    assert '"protocolVersion":"2025-06-18"' in answer.text


@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf"], ids=["without a mark", "with a byte order mark"])
async def test_an_id_with_a_fraction_of_zero_is_the_integer(served: Served, before: bytes) -> None:
    body = before + json.dumps({**CALL, "id": 7.0}).encode()
    answer = (await served.request(content=body)).json()
    assert (answer["id"], type(answer["id"])) == (7, int)
    greeting = json.dumps({"jsonrpc": "2.0", "id": 7.0, "method": "initialize", "params": GREETING}).encode()
    answer = await served.request(content=before + greeting, headers=HANDSHAKE)
    assert '"id":7,' in answer.text.replace(" ", "")


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({**GREETING, "capabilities": {"roots": True}}, "capabilities.roots must be an object"),
        ({**GREETING, "clientInfo": {"name": "raw"}}, "clientInfo.version is missing"),
        (None, "capabilities is missing"),
    ],
)
async def test_invalid_params_of_initialize_are_named(served: Served, params: object, words: str) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", **({"params": params} if params else {})}
    answer = await served.request(content=json.dumps(message), headers=HANDSHAKE)
    assert f"Invalid request parameters: {words}" in answer.text
    assert "-32602" in answer.text


async def test_invalid_params_of_a_modern_request_are_named(served: Served) -> None:
    for params, words in (
        ({"cursor": 5}, "cursor must be a string"),
        ({"_meta": {**MODERN["_meta"], "progressToken": []}}, "_meta"),
    ):
        body = json.dumps({**CALL, "params": {**MODERN, **params}})
        error = (await served.request(content=body)).json()["error"]
        assert error["code"] == -32602
        assert words in error["message"]
