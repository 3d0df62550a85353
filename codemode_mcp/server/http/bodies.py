"""Bodies of requests, read within limits on size, on time, and on the share of each caller."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import anyio

from codemode_mcp.server.http.guards import RateLimiter
from codemode_mcp.server.http.responses import Headers, Refusal, header, too_many_requests

if TYPE_CHECKING:
    from starlette.types import Receive

    from codemode_mcp.server.http.guards import RoundRobin
    from codemode_mcp.settings import HttpSettings

FREE_BODY_BYTES: Final = 64 * 1024
"""Bytes of each body that no budget counts, so that small requests are always accepted."""

MIN_BUDGET: Final = 64 * 1024 * 1024
"""Smallest budget of the process for incomplete bodies, in bytes."""

SECONDS_PER_VALUE: Final = 7e-7
"""Seconds for which one JSON value of a request blocks the event loop, while it is parsed and validated."""


class BodyReader:
    """A reader of bodies for one listener.

    Args:
        turns: decides from which caller the next part of a body is read.
    """

    def __init__(self, settings: HttpSettings, turns: RoundRobin) -> None:
        self._limit = settings.max_request_bytes
        self._seconds = settings.request_read_ms / 1000
        self._turns = turns
        self._budget = BodyBudget.for_bodies_of(self._limit)
        # The tokens are seconds of the event loop, which all callers share. One caller gets a quarter of the time.
        self._parsing = RateLimiter(0.25, 0.5)

    async def read(self, headers: Headers, receive: Receive, caller: str) -> bytes:
        """Return the whole body. `caller`: the principal or peer whose share the body uses.

        Raises:
            Refusal: the body is too large or too slow, or the caller sends too much.
        """
        too_large = Refusal(
            413, f"the body is larger than {self._limit} bytes (http.maxRequestBytes)", {"connection": "close"}
        )
        declared = header(headers, b"content-length")
        if declared is not None and declared.isdecimal() and int(declared) > self._limit:
            raise too_large
        body, counted = bytearray(), 0
        try:
            with anyio.move_on_after(self._seconds) as scope:
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise Refusal(400, "the request ended before its body")  # the peer has disconnected
                    body += message.get("body", b"")
                    if len(body) > self._limit:
                        raise too_large
                    if not message.get("more_body", False):
                        scope.deadline = math.inf  # the wait that follows is not the client's delay
                        await self._wait_to_parse(caller, body)
                        return bytes(body)
                    more = max(0, len(body) - FREE_BODY_BYTES) - counted
                    if not self._budget.admits(caller, more):
                        raise Refusal(
                            503,
                            "too many large request bodies are being sent at the same time; send this request again",
                            {"retry-after": "1", "connection": "close"},
                        )
                    counted += more
                    # Callers take turns. Meanwhile uvicorn stops reading from the connection when its buffer is full.
                    await self._turns.wait(caller)
        finally:
            self._budget.release(caller, counted)
        late = f"the body did not arrive within {self._seconds:g} s (http.requestReadMs)"
        raise Refusal(408, late, {"connection": "close"})

    async def _wait_to_parse(self, caller: str, body: bytearray) -> None:
        """Wait until the caller's earlier bodies have used up no more than its share. Raises `Refusal`."""
        wait = self._parsing.take_on_credit(caller, time.monotonic(), self._seconds, seconds_to_parse(body))
        if wait >= self._seconds:
            raise too_many_requests(wait)
        if wait:
            await anyio.sleep(wait)


def seconds_to_parse(body: bytes | bytearray) -> float:
    """Return an upper bound of the seconds for which a body of JSON blocks the event loop. Commas in strings count."""
    return (body.count(b",") + body.count(b"[") + body.count(b"{")) * SECONDS_PER_VALUE


@dataclass(slots=True)
class BodyBudget:
    """Limits on the bytes of incomplete bodies that are in memory.

    Attributes:
        total: limit of the process.
        share: limit of one principal or peer.
    """

    total: int
    share: int
    _held: dict[str, int] = field(default_factory=dict)
    _sum: int = 0

    @staticmethod
    def for_bodies_of(largest: int) -> BodyBudget:
        """Return a budget in which a body of `largest` bytes fits into a share."""
        total = max(MIN_BUDGET, 4 * largest)
        return BodyBudget(total, total // 4)

    def admits(self, caller: str, size: int) -> bool:
        """Take `size` more bytes. Return False, and take none, if there is no room for them."""
        held = self._held.get(caller, 0) + size
        if held > self.share or self._sum + size > self.total:
            return False
        self._sum += size
        self._held[caller] = held
        return True

    def release(self, caller: str, size: int) -> None:
        """Give back bytes that were taken."""
        if size:
            self._sum -= size
            self._held[caller] -= size
            if not self._held[caller]:
                del self._held[caller]
