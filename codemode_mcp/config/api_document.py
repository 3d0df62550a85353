"""The keys of an entry for an HTTP API with a document that describes it, except its credentials."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from codemode_mcp.config.nodes import array_of
from codemode_mcp.config.oauth_fields import is_http_url
from codemode_mcp.settings import Clamp
from upstream_clients.spec import REFRESH_SECONDS, is_url

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from codemode_mcp.config.expand import Expander
    from codemode_mcp.config.nodes import Node

REFRESH_CLAMP: Final = Clamp(1, 86_400)
"""The range of `refreshSeconds`."""

_ORIGIN = re.compile(r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(:[0-9]{1,5})?/?")


@dataclass(frozen=True, slots=True)
class ApiDocument:
    """The place of a document.

    Attributes:
        document: an absolute path or a URL.
        version: the time and the size of a file; None for a URL, and for a file that cannot be read.
        base_url: the base address of the API; None for the one that the document names.
        refresh_seconds: seconds after which a document at a URL is read again.
        other_origins: origins to which operations with a server of their own may be sent, too.
    """

    document: str
    version: tuple[int, int] | None
    base_url: str | None
    refresh_seconds: float
    other_origins: tuple[str, ...]


def read_api_document(fields: Mapping[str, Node], expander: Expander) -> ApiDocument | None:
    """Return the place of a document; None if the entry has none. Report problems."""
    if "openapi" not in fields:
        for key in ("baseUrl", "otherOrigins", "refreshSeconds"):
            if key in fields:
                fields[key].fail(f"`{key}` is only for a server with `openapi`")
        return None
    node = fields["openapi"]
    document, version = expander.nonblank(node), None
    if not node.valid:
        pass
    elif is_url(document):
        if not is_http_url(document):
            node.refuse("expected a file or a URL like https://host/openapi.json")
    elif "://" in document:
        node.refuse("expected a file or a URL like https://host/openapi.json; allowed: http and https")
    else:
        path = expander.path(node)
        # Before it is read: a missing file is watched too, until it appears.
        expander.reading.files.append(path)
        document, version = str(path), _version(path)
    base_url = _base_url(fields["baseUrl"], expander) if "baseUrl" in fields else None
    refresh_seconds = REFRESH_SECONDS
    if "refreshSeconds" in fields:
        refresh = fields["refreshSeconds"]
        refresh_seconds = float(refresh.clamped(REFRESH_CLAMP))
        if node.valid and not is_url(document):
            refresh.note("has no effect, because the document is a file, which is read when it changes")
    read_origins = array_of(lambda node: _origin(node, expander))
    origins = read_origins(fields["otherOrigins"]) if "otherOrigins" in fields else ()
    return ApiDocument(document, version, base_url, refresh_seconds, origins)


def _version(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _base_url(node: Node, expander: Expander) -> str:
    url = expander.text(node)
    if not node.valid:
        return url
    if not is_http_url(url):
        node.refuse("expected a URL like https://host/path; allowed: http and https")
        return url
    parts = urlsplit(url)
    if parts.username or parts.password:
        node.refuse('has a user name or a password; write them in `auth`: {"type": "basic", "username", "password"}')
    elif parts.query or parts.fragment:
        node.refuse(
            'has a query or a fragment; write a key in `auth`: {"type": "apiKey", "in": "query", "name", "value"}'
        )
    return url


def _origin(node: Node, expander: Expander) -> str:
    text = expander.text(node)
    if node.valid and not (_ORIGIN.fullmatch(text) and is_http_url(text)):
        node.refuse('expected an origin like "https://upload.example", without wildcards or a path')
    return text.removesuffix("/")
