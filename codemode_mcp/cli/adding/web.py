"""Requests for small documents: entries of a registry, and documents of APIs.

Redirects are followed within their origin only, and an answer has limits of size and time. Nothing of an answer is
trusted.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import httpx2

from codemode_mcp.cli.adding.proposal import Refused
from upstream_clients.fetch import describe_url, same_origin

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_BYTES: Final = 8 * 1024 * 1024
"""Bytes of an answer of a registry."""

TOTAL_SECONDS: Final = 30.0
"""Timeout for one document, redirects included."""

MAX_REDIRECTS: Final = 3


class Unreachable(Refused):
    """Error for an address that does not answer as expected. The message says why."""


@dataclass(frozen=True, slots=True)
class Document:
    """The answer to a request.

    Attributes:
        kind: the media type, in lower case.
    """

    status: int
    kind: str
    data: bytes


def fetch(url: str, headers: Mapping[str, str], *, limit: int = MAX_BYTES) -> Document:
    """Return a document. An answer of events, which may never end, is not read.

    Raises:
        Unreachable: there is no answer, or it breaks a limit.
    """
    until = time.monotonic() + TOTAL_SECONDS
    shown = describe_url(url)
    try:
        with httpx2.Client(timeout=10, headers={"User-Agent": "codemode-mcp", **headers}) as client:
            address = url
            for _ in range(MAX_REDIRECTS + 1):
                with client.stream("GET", address, follow_redirects=False) as response:
                    following = response.next_request
                    if following is None:
                        return _read(response, limit, until, shown)
                    address = str(following.url)
                    if not same_origin(url, address):
                        raise Unreachable(
                            f"{shown} redirects to another host, {describe_url(address)}; if that is the right one, "
                            "use its address"
                        )
    except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
        raise Unreachable(f"{shown} cannot be reached ({type(error).__name__})") from None
    raise Unreachable(f"{shown} redirects without end")


def fetch_json(url: str) -> Any:
    """Return the JSON value at an address; None if there is no such document (HTTP 404).

    Raises:
        Unreachable: there is no answer, or it is no JSON.
    """
    found = fetch(url, {"Accept": "application/json"})
    if found.status == 404:
        return None
    if found.status != 200:
        raise Unreachable(f"{describe_url(url)} answers HTTP {found.status}")
    try:
        return json.loads(found.data)
    except (ValueError, RecursionError):
        raise Unreachable(f"{describe_url(url)} does not answer with JSON") from None


def _read(response: httpx2.Response, limit: int, until: float, shown: str) -> Document:
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind == "text/event-stream":
        return Document(response.status_code, kind, b"")
    data = bytearray()
    for chunk in response.iter_bytes():
        data += chunk
        if len(data) > limit:
            raise Unreachable(f"{shown} answers with more than {limit // 1024 // 1024} MiB")
        if time.monotonic() > until:
            raise Unreachable(f"{shown} has not answered completely within {TOTAL_SECONDS:g} s")
    return Document(response.status_code, kind, bytes(data))
