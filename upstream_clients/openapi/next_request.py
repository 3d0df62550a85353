"""The next request to an API after a redirect (RFC 9110, 15.4) or a failure. Pure: no I/O."""

from __future__ import annotations

import math
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final, NamedTuple
from urllib.parse import urljoin, urlsplit

MAX_REDIRECTS: Final = 5
"""Redirects that are followed for one call. After that, the answer of the call is the last redirect."""

SAFE_METHODS: Final = frozenset(("GET", "HEAD"))
"""Methods with which a redirect to another origin is followed."""

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_TO_GET: Final = frozenset((HTTPStatus.MOVED_PERMANENTLY, HTTPStatus.FOUND))
"""Statuses with which a POST becomes a GET, as all clients do it."""

_FOLLOWED: Final = _TO_GET | {HTTPStatus.SEE_OTHER, HTTPStatus.TEMPORARY_REDIRECT, HTTPStatus.PERMANENT_REDIRECT}


class Following(NamedTuple):
    """The method and the address of the next request. The body is sent again if the method stays the same."""

    method: str
    url: str


def origin_of(url: str) -> tuple[str, str, int] | None:
    """Return the scheme, the host and the port of an address; None if it is not a usable HTTP address."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    scheme, host = parts.scheme.lower(), parts.hostname
    if scheme not in _DEFAULT_PORTS or not host:
        return None
    return scheme, host, port or _DEFAULT_PORTS[scheme]


def following(method: str, url: str, status: int, location: str | None) -> Following | None:
    """Return the request that follows an answer; None if the answer is no redirect, or names no usable address."""
    if status not in _FOLLOWED or not location or not location.isprintable() or " " in location:
        return None
    try:
        target = urljoin(url, location).partition("#")[0]
        has_user = "@" in urlsplit(target).netloc
    except ValueError:
        return None
    if has_user or origin_of(target) is None:
        return None
    to_get = (status in _TO_GET and method == "POST") or (status == HTTPStatus.SEE_OTHER and method != "HEAD")
    return Following("GET" if to_get else method, target)


# The rules for repeating a request to an API.
#
# A request is repeated at most `MAX_RETRIES` times, and only if that cannot act twice: nothing was sent, or the
# operation is repeatable. The server may say how long to wait (RFC 9110, 10.2.3).


MAX_RETRIES: Final = 2

RETRIED_STATUSES: Final = frozenset(
    (
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    )
)
"""Statuses of answers that a later request may not get."""

FIRST_PAUSE: Final = 0.5
"""Seconds before the first retry, without a word of the server. The pause doubles each time."""

MAX_PAUSE: Final = 60.0
"""Longest pause in seconds. A server that asks for more gets no retry, and the program gets its answer."""


def pause_before_retry(retries: int, retry_after: str | None, now: float) -> float | None:
    """Return the seconds to wait before a request is repeated; None if it must not be repeated.

    Args:
        retries: the number of retries so far.
        retry_after: the header `Retry-After` of the answer.
        now: seconds since the epoch.
    """
    if retries >= MAX_RETRIES:
        return None
    wanted = None if retry_after is None else _seconds(retry_after.strip(), now)
    pause = FIRST_PAUSE * 2**retries if wanted is None else wanted
    return pause if pause <= MAX_PAUSE else None


def _seconds(retry_after: str, now: float) -> float | None:
    if retry_after.isascii() and retry_after.isdigit():
        return float(retry_after) if len(retry_after) < 10 else math.inf
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - now)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
