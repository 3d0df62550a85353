"""The address of an API, the servers of single operations, and the logins that its document names. Pure: no I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin, urlsplit

from upstream_clients.openapi.document import UnsupportedError
from upstream_clients.openapi.keywords import plain_text
from upstream_clients.openapi.redirects import origin_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from upstream_clients.openapi.document import Document

MAX_ADDRESS: Final = 2_000
_VARIABLE: Final = re.compile(r"\{([^{}]*)\}")


def server_address(servers: Any, source: str) -> str | None:
    """Return the address of the first server of a list, without a final slash. Return None if it is not usable.

    Args:
        source: the document's own address, to which the server's may be relative; any other text if it is a file.
    """
    first = servers[0] if isinstance(servers, list) and servers else {"url": "/"}
    url = first.get("url") if isinstance(first, dict) else None
    if not isinstance(url, str) or len(url) > MAX_ADDRESS:
        return None
    variables = first.get("variables")
    if isinstance(variables, dict):
        for name in dict.fromkeys(_VARIABLE.findall(url)):
            variable = variables.get(name)
            default = variable.get("default") if isinstance(variable, dict) else None
            if isinstance(default, (str, int)) and not isinstance(default, bool):
                url = url.replace(f"{{{name}}}", str(default)[:MAX_ADDRESS])
                if len(url) > MAX_ADDRESS:
                    return None
    return http_address(url, source)


def http_address(url: str, source: str = "") -> str | None:
    """Return an absolute address of HTTP without a final slash, query and fragment. Return None for any other."""
    url = url.strip()
    try:
        if urlsplit(source).scheme in ("http", "https"):
            url = urljoin(source, url)
        elif url.startswith("//"):
            url = f"https:{url}"
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        return None
    if not url.isprintable() or re.search(r"[\s{}\\]", url) or len(url) > MAX_ADDRESS:
        return None
    return f"{parts.scheme}://{parts.netloc.lower()}{parts.path.rstrip('/')}"


_PLAIN_ORIGIN: Final = re.compile(r"https?://(?:[a-z0-9._-]{1,255}|\[[0-9a-f:.]{2,45}\])(?::[0-9]{1,5})?(?=/|$)")
"""An origin that all readers of addresses read in the same way."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses by which the place of each operation is decided.

    A document decides the path of an operation, and never its origin: that is the one of the base address, or one that
    the configuration names. A `baseUrl` that differs from the document's address may stand for a test server. So no
    server of an operation, which belongs to the document's address, is used beside it.

    Attributes:
        base: the base address of the API.
        servers: the servers that the document has for the whole API.
        stated: the address of the first of these.
        other_origins: further origins that the configuration names.
    """

    base: str | None
    servers: Any
    stated: str | None
    other_origins: tuple[str, ...] = ()
    _known: dict[int, tuple[Any, str | UnsupportedError]] = field(default_factory=dict)
    """Answers by the identities of lists of servers, which thousands of operations may share."""

    def own_server(self, servers: Any, source: str) -> str:
        """Return the address of the server of an operation; empty if the operation is at the base address.

        Args:
            servers: the servers of the operation or of its path, as the document has them.
            source: see `server_address`.

        Raises:
            UnsupportedError: no request may be sent there.
        """
        if not servers:
            return ""
        known = self._known.get(id(servers))
        if known is None:
            answer: str | UnsupportedError
            try:
                answer = self._own_server(servers, source)
            except UnsupportedError as error:
                answer = error
            known = self._known[id(servers)] = servers, answer
        if isinstance(known[1], UnsupportedError):
            raise UnsupportedError(*known[1].args)
        return known[1]

    def _own_server(self, servers: Any, source: str) -> str:
        if servers == self.servers:
            return ""
        address = server_address(servers, source)
        if address is not None and address in (self.stated, self.base):
            return ""
        found = _PLAIN_ORIGIN.match(address or "")
        if address is None or found is None:
            raise UnsupportedError("it has a server of its own without a usable address")
        if any(each.lower().replace("%2e", ".") in (".", "..") for each in address.split("/")):
            raise UnsupportedError("it has a server of its own whose path has a segment `.` or `..`")
        origin = origin_of(address)
        if origin in map(origin_of, self.other_origins):
            return address
        advice = f'if you trust it, add "{found[0]}" to "otherOrigins" of the entry'
        if self.base is None or origin != origin_of(self.base):
            raise UnsupportedError(f"it has a server of its own; {advice}")
        if self.base != self.stated:
            raise UnsupportedError(f"it has a server of its own, and `baseUrl` is not the document's address; {advice}")
        return address


_MAX_LOGINS: Final = 20


def logins(document: Document) -> tuple[str, ...]:
    """Return sentences about the logins that a document names."""
    components = document.root.get("components")
    schemes = components.get("securitySchemes") if isinstance(components, dict) else None
    found: dict[str, None] = {}
    for node in list(schemes.values())[:_MAX_LOGINS] if isinstance(schemes, dict) else ():
        try:
            scheme = document.follow(node)
        except UnsupportedError:
            continue
        if isinstance(scheme, dict) and (text := _login(scheme)):
            found[text] = None
    return tuple(found)


def _login(scheme: Mapping[str, Any]) -> str | None:
    kind = scheme.get("type")
    if kind == "apiKey":
        place = {"header": "header", "query": "query parameter", "cookie": "cookie"}.get(str(scheme.get("in")))
        name = plain_text(scheme.get("name"), 100)
        return f"API key in the {place} {name}" if place and name else None
    if kind == "http":
        name = str(scheme.get("scheme")).lower()
        return {"basic": "Basic authentication", "bearer": "Bearer token"}.get(name) or (
            f"HTTP authentication {plain_text(name, 50)}"
        )
    if kind == "oauth2":
        return _oauth(scheme.get("flows"))
    if kind == "openIdConnect":
        address = plain_text(scheme.get("openIdConnectUrl"), 300)
        return f"OpenID Connect, configuration at {address}" if address else "OpenID Connect"
    return "Certificate of the client (mutual TLS)" if kind == "mutualTLS" else None


def _oauth(flows: Any) -> str:
    """Return a sentence about the flow with the most endpoints."""
    found = ["OAuth 2"]
    for flow in flows.values() if isinstance(flows, dict) else ():
        if isinstance(flow, dict):
            addresses = {
                "authorization": plain_text(flow.get("authorizationUrl"), 300),
                "token": plain_text(flow.get("tokenUrl"), 300),
            }
            found.append(", ".join(["OAuth 2", *(f"{what} at {where}" for what, where in addresses.items() if where)]))
    return max(found, key=lambda text: text.count(" at "))
