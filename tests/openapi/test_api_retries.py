"""Requests to an API that are repeated, and those that must not be. The clock is the test's own."""

import math
from collections.abc import AsyncIterator

import anyio
import pytest
from loopback_api import JSON, LoopbackApi, Received, loopback_api, reply

from tests.ports import reserved_port
from upstream_clients.openapi import connections
from upstream_clients.openapi.api import ApiRequest, ApiResponse
from upstream_clients.openapi.client import ApiClient, Base, NoAnswer
from upstream_clients.openapi.exchanges import Address
from upstream_clients.openapi.next_request import following, pause_before_retry

pytestmark = pytest.mark.anyio

NOW = 1_767_225_600.0
"""2026-01-01 00:00:00 GMT."""

BUSY = reply("503 Service Unavailable", {"error": "busy"})


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Return the backend, in module scope: the tests share a server."""
    return "asyncio"


@pytest.fixture(scope="module")
async def api() -> AsyncIterator[LoopbackApi]:
    async with loopback_api() as served:
        yield served


async def send(
    url: str, path: str, *, repeatable: bool = True, time_left: float = math.inf, method: str = "GET"
) -> tuple[ApiResponse | NoAnswer, list[float]]:
    """Send a request. Return its answer and the pauses before retries."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        await anyio.lowlevel.checkpoint()
        pauses.append(seconds)

    base = Address.read(url)._replace(target="")
    client = ApiClient(Base(base, url, url, "api", True, True), headers={}, now=lambda: NOW, sleep=sleep)
    deadline = anyio.current_time() + time_left
    async with client:
        try:
            request = ApiRequest(method, path, {}, None)
            answer = await client.send(request, is_repeatable=repeatable, deadline=lambda: deadline)
        except NoAnswer as error:
            return error, pauses
    return answer, pauses


async def test_a_repeatable_request_is_sent_three_times_at_most(api: LoopbackApi) -> None:
    api.script("/busy", BUSY)
    answer, pauses = await send(api.url, "/busy")
    assert not isinstance(answer, NoAnswer)
    assert (answer.status, pauses, len(api.requests("/busy"))) == (503, [0.5, 1.0], 3)
    api.script("/soon", BUSY, reply(body=1))
    answer, pauses = await send(api.url, "/soon")
    assert not isinstance(answer, NoAnswer)
    assert (answer.status, answer.body, pauses) == (200, b"1", [0.5])


async def test_a_request_that_may_act_twice_is_sent_once(api: LoopbackApi) -> None:
    async def closed(request: Received) -> None:
        request.writer.close()

    api.script("/once", BUSY)
    answer, pauses = await send(api.url, "/once", repeatable=False, method="POST")
    assert not isinstance(answer, NoAnswer)
    assert (answer.status, pauses, len(api.requests("/once"))) == (503, [], 1)
    api.script("/lost", closed)
    answer, pauses = await send(api.url, "/lost", repeatable=False, method="POST")
    assert isinstance(answer, NoAnswer)
    assert (answer.sent, pauses, len(api.requests("/lost"))) == (True, [], 1)
    api.script("/regained", closed, reply(body=1))
    answer, pauses = await send(api.url, "/regained")
    assert not isinstance(answer, NoAnswer)
    assert (answer.status, len(api.requests("/regained"))) == (200, 2)


async def test_a_request_that_was_not_sent_is_repeated_whatever_it_does() -> None:
    answer, pauses = await send(f"http://127.0.0.1:{reserved_port()}", "/x", repeatable=False, method="POST")
    assert isinstance(answer, NoAnswer)
    assert (answer.sent, pauses) == (False, [0.5, 1.0])


async def test_a_request_that_was_answered_by_a_redirect_to_nowhere_is_not_repeated(
    api: LoopbackApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = f"http://localhost:{reserved_port()}/x"

    async def any_address(host: str, port: int, named_by: str | None) -> list[str]:
        return ["127.0.0.1"]

    monkeypatch.setattr(connections, "resolve_permitted", any_address)
    api.script("/done", reply("303 See Other", b"", JSON, f"Location: {nowhere}"))
    answer, pauses = await send(api.url, "/done", repeatable=False, method="POST")
    assert isinstance(answer, NoAnswer)
    assert "redirects to another address, which got no connection" in str(answer)
    assert (answer.sent, pauses, len(api.requests("/done"))) == (True, [], 1)


async def test_the_time_that_a_server_asks_for_is_honoured_within_the_time_of_the_call(api: LoopbackApi) -> None:
    later = reply("429 Too Many Requests", b"", JSON, "Retry-After: 7")
    api.script("/later", later, reply(body=1))
    answer, pauses = await send(api.url, "/later", time_left=20)
    assert not isinstance(answer, NoAnswer)
    assert (answer.status, pauses) == (200, [7.0])
    api.script("/too-late", later)
    answer, pauses = await send(api.url, "/too-late", time_left=5)
    assert not isinstance(answer, NoAnswer)
    assert (answer.status, answer.headers["retry-after"], pauses) == (429, "7", [])


@pytest.mark.parametrize(
    ("header", "pause"),
    [
        ("3", 3.0),
        ("0", 0.0),
        (" 2 ", 2.0),
        ("61", None),
        ("9" * 5000, None),
        ("Thu, 01 Jan 2026 00:00:09 GMT", 9.0),
        ("Wed, 31 Dec 2025 23:00:00 GMT", 0.0),
        ("Thu, 01 Jan 2026 01:00:00 GMT", None),
        *((text, 0.5) for text in ("", "-1", "1.5", "soon", "٣", "Thu, 99 Jan 2026", "Thu, 01 Jan 99999 00:00:00 GMT")),
    ],
)
def test_a_pause_is_what_the_server_says_or_ours(header: str, pause: float | None) -> None:
    assert pause_before_retry(0, header, NOW) == pause
    assert pause_before_retry(2, header, NOW) is None


@pytest.mark.parametrize(
    ("method", "status", "location", "expected"),
    [
        ("GET", 302, "/b?c#d", ("GET", "http://h/b?c")),
        ("GET", 301, "c", ("GET", "http://h/a/c")),
        ("HEAD", 303, "/b", ("HEAD", "http://h/b")),
        ("POST", 301, "//other/b", ("GET", "http://other/b")),
        ("DELETE", 302, "/b", ("DELETE", "http://h/b")),
        ("PUT", 308, "https://h/b", ("PUT", "https://h/b")),
        ("DELETE", 303, "/b", ("GET", "http://h/b")),
        *(("GET", status, "/b", None) for status in (200, 201, 300, 304, 305, 399, 404)),
        *(
            ("GET", 302, location, None)
            for location in (None, "", "file:///etc/passwd", "javascript:1", "http://u:p@h/", "http://h:x/")
        ),
        *(("GET", 302, location, None) for location in ("/a b", "/a\x00", "http://[h", "ftp://h/b", "data:,x")),
    ],
)
def test_a_redirect_is_followed_as_http_says(
    method: str, status: int, location: str | None, expected: tuple[str, str] | None
) -> None:
    assert following(method, "http://h/a/b", status, location) == expected
