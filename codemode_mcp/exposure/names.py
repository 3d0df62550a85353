"""Names of prompts and URIs of resources of servers, as clients see them. Pure.

A prompt is named `<server>/<prompt>`. A URI stays as it is, unless clients could not tell by it which server to ask:

- two servers that the client sees list the same resource or template,
- another server had the URI first, or could have had it (see `items`), or
- a server uses the scheme `codemode`, which is that of this server.

Then it is `codemode://servers/<server>/<URI>`. Clients may always use this form, for any URI of any server they see.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

SERVERS: Final = "codemode://servers/"
"""Beginning of the URIs that name their server."""


def prompt_name(server: str, prompt: str) -> str:
    """Return the name of a prompt for clients."""
    return f"{_segment(server)}/{prompt}"


def split_prompt_name(name: str) -> tuple[str, str] | None:
    """Return the server and the rest of the name of a prompt; None if the name is not that of a prompt."""
    server, slash, prompt = name.partition("/")
    return (unquote(server), prompt) if slash and server and prompt else None


def wrapped_uri(server: str, uri: str) -> str:
    """Return a URI, or a URI template, in the form that names its server."""
    return f"{SERVERS}{quote(server, safe='')}/{uri}"


def unwrap_uri(uri: str) -> tuple[str, str] | None:
    """Return the server and its own URI; None if a URI does not name its server."""
    if not uri.startswith(SERVERS):
        return None
    server, slash, rest = uri.removeprefix(SERVERS).partition("/")
    return (unquote(server), rest) if slash and server and rest else None


def is_own_uri(uri: str) -> bool:
    """Return True if a URI has the scheme of this server."""
    return _scheme_is("codemode", uri)


def is_app_uri(uri: str) -> bool:
    """Return True if a URI has the scheme of MCP Apps, however a server may read it."""
    return _scheme_is("ui", uri)


def _scheme_is(scheme: str, uri: str) -> bool:
    # Clients and servers may compare schemes without regard to case, and ignore white space.
    return uri.strip().casefold().startswith(scheme + ":")


def _segment(server: str) -> str:
    """Return the name of a server without slashes. Different names have different results."""
    return server.replace("%", "%25").replace("/", "%2F")
