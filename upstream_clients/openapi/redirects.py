"""The next request after a redirect of an API (RFC 9110, 15.4). Pure: no I/O."""

from __future__ import annotations

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
