"""The line with method and address that this program puts at the end of the description of an API's operation. Pure.

It is not wording of the document, and `POST https://...` reads like an order to send data there. So findings leave it
out, but only for a server whose entry in the configuration names an OpenAPI document, only if it is exactly the request
of the operation, and only its method, scheme and host. Rules still read the path, which the document's author chooses.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from codemode_mcp.trust.items import item_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from codemode_mcp.trust.comparison import ItemReport
    from codemode_mcp.trust.items import Item

REQUEST_KEY: Final = "x-request"
"""Member of an input schema with the request of an operation (`upstream_clients.openapi.api`)."""

_REQUEST: Final = re.compile(r"[A-Z]{3,10} (?:https?://[A-Za-z0-9.:\[\]-]{1,255}(?=/))?(/\S{0,2000})")


def is_api(reports: Iterable[ItemReport]) -> bool:
    """Return True if a server is an HTTP API with an OpenAPI document, as its entry in the configuration says.

    Args:
        reports: the reports of all items of the server.
    """
    entries = (report.present for report in reports if report.kind == "entry")
    return any(each is not None and each.definition is not None and "openapi" in each.definition for each in entries)


def without_request(item: Item) -> Item:
    """Return an operation of an API without the method and the host of its request."""
    definition = item.definition or {}
    description, schema = definition.get("description"), definition.get("inputSchema")
    if item.kind != "tool" or not isinstance(description, str) or not isinstance(schema, dict):
        return item
    request = schema.get(REQUEST_KEY)
    if not isinstance(request, str):
        return item
    found = _REQUEST.fullmatch(request)
    text, _, last = f"\n{description}".rpartition("\n")
    if found is None or last != request:
        return item
    own = {"description": text.removeprefix("\n"), "inputSchema": {**schema, REQUEST_KEY: found[1]}}
    return item_of(item.kind, item.name, {**definition, **own})
