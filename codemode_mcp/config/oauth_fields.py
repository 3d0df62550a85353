"""URLs and scopes in the OAuth settings of servers and of `http`."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from codemode_mcp.config.nodes import text_that

scope = text_that(
    re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+").fullmatch,
    "a scope is one word, without spaces and quotes; write each scope as a string",
)
"""A reader for a scope token of RFC 6749, section 3.3. Messages do not quote it: `auth` is a secret section."""


def is_http_url(url: str) -> bool:
    """Return True for an absolute URL with the scheme `http` or `https`."""
    try:
        parts = urlsplit(url)
        has_host = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return has_host and url.isprintable() and " " not in url


def is_metadata_url(url: str) -> bool:
    """Return True for a URL that can be a client id: `https` with a path."""
    return is_http_url(url) and url.startswith("https://") and url.count("/") > 2 and not url.endswith("/")


def is_resource_url(url: str) -> bool:
    """Return True for a URL that can name a server: without a query and a fragment."""
    if not is_http_url(url) or not url.isascii() or re.search(r'["\\]', url):
        return False
    parts = urlsplit(url)
    return not parts.fragment and not parts.query


def is_safe_url(url: str) -> bool:
    """Return True if others cannot read or change the traffic of a URL: it uses `https`, or is on this machine."""
    parts = urlsplit(url) if is_resource_url(url) else None
    return parts is not None and (parts.scheme == "https" or parts.hostname in ("localhost", "127.0.0.1", "::1"))
