"""The tools that clients get beside `exec` and `wait`, or instead of them: those of the modes `search` and `direct`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from codemode_mcp.errors import CodeModeError
from codemode_mcp.exposure.auto import choose_mode, listed_tools
from codemode_mcp.exposure.patterns import DirectPatterns
from codemode_mcp.exposure.selection import ALL_TOOLS
from codemode_mcp.json_text import json_text
from codemode_mcp.server import search_tools
from codemode_mcp.server.caller_listings import CallerListings
from codemode_mcp.server.descriptions import prompt_bytes
from codemode_mcp.server.direct_calls import Target
from codemode_mcp.server.direct_results import tool_result
from codemode_mcp.server.protocol_fit import failure
from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.exposure.auto import Mode
    from codemode_mcp.exposure.selection import Exposure
    from codemode_mcp.policy.callers import Caller
    from codemode_mcp.server.caller_listings import Tools
    from codemode_mcp.server.direct_calls import DirectCalls
    from codemode_mcp.server.exchange import Exchange
    from codemode_mcp.server.list_changed import Announcer

MAX_CALLERS: Final = 1024
"""Maximum number of callers whose choice of the mode `auto` is remembered."""

MAX_LISTS: Final = 64
"""Maximum number of different values of `expose.direct` whose lists are watched for changes."""


class ExposedTools:
    """The tools of all clients of a surface.

    Args:
        announcer: reports changes of the tool list.
    """

    def __init__(self, tools: Tools, direct: DirectCalls, announcer: Announcer) -> None:
        self._tools = tools
        self._direct = direct
        self._announcer = announcer
        self._listings: dict[tuple[str, ...], CallerListings] = {}
        self._patterns: dict[tuple[str, ...], DirectPatterns] = {}
        self._decisions: dict[Caller, Mode] = {}
        self._sizes: WeakKeyDictionary[Catalog, int] = WeakKeyDictionary()

    def fingerprint(self) -> Hashable:
        """Return a value that changes when a list changes that a client has got."""
        decided = tuple(self._decide(caller) for caller in [*self._decisions])
        return decided, tuple(each.fingerprint() for each in self._listings.values())

    # the mode `auto`

    async def decided(self, caller: Caller, exposure: Exposure) -> Exposure:
        """Return what a client sees, with the mode that `auto` stands for now."""
        if exposure.mode != "auto":
            return exposure
        await self._catalog(caller)
        mode = self._decide(caller)
        direct = exposure.direct or (ALL_TOOLS if mode == "direct" else ())
        return replace(exposure, mode=mode, direct=direct)

    def _decide(self, caller: Caller) -> Mode:
        catalog = self._tools.catalog_of(caller)
        size = self._sizes.get(catalog)
        if size is None:
            size = self._sizes[catalog] = prompt_bytes(listed_tools(catalog.index.tools))
        if caller not in self._decisions and len(self._decisions) >= MAX_CALLERS:
            del self._decisions[next(iter(self._decisions))]
        mode = self._decisions[caller] = choose_mode(size, self._decisions.get(caller))
        return mode

    # the tools of `direct`

    async def listed(self, exchange: Exchange, patterns: tuple[str, ...]) -> list[dict[str, Any]]:
        """Return the tools that patterns choose, as entries of `tools/list`."""
        if not patterns:
            return []
        listing = await self._listings_for(patterns).listed(exchange.caller)
        chosen = self._patterns[patterns]
        if not all(chosen.choose(entry) for entry in listing.entries.values()):
            raise RuntimeError("the tool list has a tool that expose.direct does not choose")  # fails closed
        return listing.of_version(exchange.session.protocol_version)

    async def call_listed(self, exchange: Exchange, patterns: tuple[str, ...], name: str) -> dict[str, Any]:
        """Call one of the tools that patterns choose. Return a `CallToolResult` or an `InputRequiredResult`.

        Raises:
            JsonRpcError: there is no such tool.
        """
        listings, arguments = self._listings_for(patterns), exchange.params.get("arguments") or {}

        async def find() -> Target:
            listing, entry = await listings.find(name, exchange.caller)
            return Target(entry, listing.catalog, json_text(arguments))

        return await self._call(exchange, find, name)

    def _listings_for(self, patterns: tuple[str, ...]) -> CallerListings:
        found = self._listings.get(patterns)
        if found is None:
            while len(self._listings) >= MAX_LISTS:
                oldest = next(iter(self._listings))
                del self._listings[oldest], self._patterns[oldest]
            chosen = self._patterns[patterns] = DirectPatterns(patterns)
            found = self._listings[patterns] = CallerListings(self._tools, lambda: None, self._announcer, chosen.choose)
        return found

    # `search` and `call`

    async def call_searching(self, exchange: Exchange, name: str) -> dict[str, Any]:
        """Answer a call of `search` or `call`. Return a `CallToolResult` or an `InputRequiredResult`."""
        version, arguments = exchange.session.protocol_version, exchange.params.get("arguments") or {}
        try:
            if name == "search":
                return _text_result(await self._search(exchange.caller, arguments), version)

            async def find() -> Target:
                catalog = await self._catalog(exchange.caller)
                entry, given = search_tools.called_entry(catalog, arguments)
                return Target(entry, catalog, json_text(given))

            return await self._call(exchange, find, str(arguments.get("name", name))[:200])
        except CodeModeError as error:
            return failure(f"{error.code}: {error.message}", version)

    async def _search(self, caller: Caller, arguments: Mapping[str, Any]) -> str:
        settings = self._tools.settings().code_mode
        catalog = await self._catalog(caller)
        return search_tools.found_tools(catalog, arguments, settings.search_default_limit, settings.max_search_limit)

    async def _catalog(self, caller: Caller) -> Catalog:
        """Return the catalog of a caller, after its servers have listed their tools or have had time to."""
        await self._tools.dispatcher()
        await self._tools.wait_settled(None, self._tools.settings().code_mode.connect_wait_ms / 1000)
        return await self._tools.catalog_for(caller, None)

    async def _call(self, exchange: Exchange, find: Callable[[], Any], name: str) -> dict[str, Any]:
        answer = await self._direct.answer(exchange, find)
        if answer.questions is not None:
            return answer.questions
        return tool_result(escape_line(name), answer, exchange.session.protocol_version)


def _text_result(text: str, version: str) -> dict[str, Any]:
    return {**failure(text, version), "isError": False}
