"""Stored results of programs, as resources that the client of their owner lists and reads.

A result belongs to its owner. A read is like `load` in a program: it needs the random key, and no rule of the policy is
asked. The list is like `core:results:list`, so a client gets it only if policy allows this tool. Two clients of one
owner may have different rules. All other callers get the answer for a resource that does not exist. Each read is
recorded.

A read takes the memory of a few copies of the result. So each owner has one read at a time, and others wait for it.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

import anyio.to_thread

from codemode_mcp.audit.events import name_to_record, request_id
from codemode_mcp.errors import CodeModeError
from codemode_mcp.exposure import results
from codemode_mcp.policy.effects import READ_ONLY
from codemode_mcp.policy.policy import Allow
from codemode_mcp.runs.result_forms import contents_of
from codemode_mcp.server.direct_calls import unknown_resource
from upstream_clients.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, JsonRpcError

if TYPE_CHECKING:
    from codemode_mcp.exposure.selection import Exposure
    from codemode_mcp.policy.callers import Caller
    from codemode_mcp.runs.result_forms import ResultContents
    from codemode_mcp.server.client_exposure import ClientExposure
    from codemode_mcp.server.exchange import Exchange
    from codemode_mcp.server.services import Runs

log = logging.getLogger("codemode_mcp.server")

LIST_TOOL: Final = "core:results:list"
"""The tool by which programs list results."""

PAGE_RESULTS: Final = 200
"""Results of one page of a list."""

MAX_READ: Final = 32 * 1024 * 1024
"""Maximum characters of the JSON of a result that is read. The values of programs are smaller."""


class ResultResources:
    """The stored results of the callers of a surface."""

    def __init__(self, runs: Runs, exposures: ClientExposure) -> None:
        self._runs = runs
        self._exposures = exposures
        self._reading: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()

    def shown(self, exposure: Exposure, caller: Caller | None) -> bool:
        """Return True if a client sees its results. `caller`: None if the client may be any caller."""
        if caller is not None and (caller.owner is None or self._runs.admits_nothing(caller)):
            return False  # results of unknown callers are not stored
        return exposure.resources

    async def read(self, exchange: Exchange) -> dict[str, Any]:
        """Answer `resources/read` of the URI of a result. Await this only if the client sees its results.

        Raises:
            JsonRpcError: the caller has no such result, or it cannot be read now.
        """
        uri, began = exchange.params["uri"], time.monotonic()
        fields: dict[str, Any] = {"status": "failed"}
        try:
            found = await self._found(exchange.caller, results.ref_of(uri))
            if found is None:
                fields["status"] = "not_found"
                raise unknown_resource(exchange, uri)
            fields.update(status="completed", bytes=found.form.size, mime_type=found.form.mime_type)
        finally:
            elapsed = round((time.monotonic() - began) * 1000)
            request = name_to_record(str(exchange.request_id))
            self._runs.auditor.emit(
                "result_read", request_id(), request=request, uri=name_to_record(uri), ms=elapsed, **fields
            )
        return {"contents": [results.contents(uri, found)]}

    async def _found(self, caller: Caller, ref: str | None) -> ResultContents | None:
        if ref is None or caller.owner is None:
            return None
        reading = self._reading.get(caller.owner) or self._reading.setdefault(caller.owner, anyio.Lock())
        async with reading:
            try:
                text = await self._runs.result(caller.owner, ref)
            except CodeModeError as error:
                raise JsonRpcError(INTERNAL_ERROR, error.message) from None
            if text is not None and len(text) > MAX_READ:
                message = f"the result has {len(text)} characters, more than {MAX_READ}; load a part of it in a program"
                raise JsonRpcError(INVALID_PARAMS, message)
            return None if text is None else await anyio.to_thread.run_sync(contents_of, text)

    async def page(self, caller: Caller, before: int | None) -> tuple[list[dict[str, Any]], str | None]:
        """Return entries of `resources/list`, the latest result first, and the cursor of the next page, if any.

        Args:
            before: the number in the cursor of the request; None for the first page.
        """
        allowed = self._exposures.policy_of(caller).decide(LIST_TOOL, READ_ONLY)
        if caller.owner is None or not isinstance(allowed, Allow):
            return [], None
        try:
            found = await self._runs.results(caller.owner, before, PAGE_RESULTS + 1)
        except CodeModeError as error:
            log.warning("stored results are left out of a list: %s", error.message)
            return [], None
        listed = [results.entry(each) for each in found[:PAGE_RESULTS] if each.ref]
        return listed, results.cursor_after(found[PAGE_RESULTS - 1]) if len(found) > PAGE_RESULTS else None
