"""Stored results of programs as MCP resources: their URIs, list entries, links, contents and pages. Pure.

The URI of a result is `codemode://results/<key>`, where `result:<key>` is the ref that `load` takes. Keys are random,
and a URI is useful only to the owner of the result. Servers cannot use these URIs; see `exposure.names`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.runs.values import REF_PREFIX

if TYPE_CHECKING:
    from codemode_mcp.runs.result_forms import ResultContents, ResultForm, StoredResult
    from codemode_mcp.runs.values import ListedResult

RESULTS: Final = "codemode://results/"
"""Beginning of the URIs of results."""

MAX_LINKS: Final = 8
"""Maximum number of links in one answer. The list of resources has all results."""

_KEY: Final = re.compile(r"[0-9a-f]{16}", re.ASCII)
_CURSOR: Final = re.compile(r"results:([1-9][0-9]{0,17})", re.ASCII)


def result_uri(ref: str) -> str:
    """Return the URI of a result."""
    return RESULTS + ref.removeprefix(REF_PREFIX)


def ref_of(uri: str) -> str | None:
    """Return the ref of the result that a URI names; None if the URI cannot be that of a result."""
    key = uri.removeprefix(RESULTS) if uri.startswith(RESULTS) else ""
    return REF_PREFIX + key if _KEY.fullmatch(key) else None


def link(result: StoredResult) -> dict[str, Any]:
    """Return the content block for a result in the answer of its program."""
    return {"type": "resource_link", **_described(result.ref, result.form), "description": "stored in full"}


def entry(result: ListedResult) -> dict[str, Any]:
    """Return the entry of a result in `resources/list`."""
    return {**_described(result.ref, result.form), "title": "Result of a program"}


def _described(ref: str, form: ResultForm | None) -> dict[str, Any]:
    key = ref.removeprefix(REF_PREFIX)
    if form is None:
        return {"uri": result_uri(ref), "name": f"result-{key}"}
    name = f"result-{key}.{form.extension}"
    return {"uri": result_uri(ref), "name": name, "mimeType": form.mime_type, "size": form.size}


def contents(uri: str, found: ResultContents) -> dict[str, Any]:
    """Return a result as the contents of a resource."""
    data = {"text": found.text} if found.blob is None else {"blob": found.blob}
    return {"uri": uri, "mimeType": found.form.mime_type, **data}


def cursor_after(result: ListedResult) -> str:
    """Return the cursor of the page that begins after a result."""
    return f"results:{result.number}"


def number_before(cursor: str | None) -> int | None:
    """Return the number before which the page of a cursor begins; None if the cursor is not one of results."""
    found = None if cursor is None else _CURSOR.fullmatch(cursor)
    return None if found is None else int(found[1])
