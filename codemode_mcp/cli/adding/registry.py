"""Look-ups in an MCP registry (API v0.1)."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from codemode_mcp.cli.adding.package_managers import indexes_of
from codemode_mcp.cli.adding.packages import index_text
from codemode_mcp.cli.adding.proposal import Proposal, Refused, short_name
from codemode_mcp.cli.adding.registry_entry import NAME, options_of
from codemode_mcp.cli.adding.sources import read_address
from codemode_mcp.cli.adding.web import Unreachable, fetch_json
from codemode_mcp.control.display import cut
from upstream_clients.executables import find_executable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from codemode_mcp.cli.adding.registry_entry import Kind, Option

OFFICIAL: Final = "https://registry.modelcontextprotocol.io"

VARIABLE: Final = "CODEMODE_MCP_REGISTRY"
"""The variable with the address of another registry."""

SEARCH_LIMIT: Final = 100
"""Servers in the answer to a search."""

MAX_LISTED: Final = 20
"""Names that a message lists."""

_STATUS: Final = "io.modelcontextprotocol.registry/official"


def registry_address(option: str | None) -> str:
    """Return the address of the registry: that of `--registry`, of the variable, or the official one.

    Raises:
        Refused: it is no address.
    """
    address = read_address(option or os.environ.get(VARIABLE) or OFFICIAL)
    if address is None:
        raise Refused(f"--registry and {VARIABLE} need an address that begins with https://")
    return address.url.rstrip("/")


def find_by_name(registry: str, name: str, use: Kind | None) -> Proposal:
    """Return the proposal of the latest version of a server, by its full name.

    Raises:
        Refused: there is none, it cannot be used, or the registry does not answer.
    """
    try:
        found = _record(fetch_json(f"{registry}/v0.1/servers/{quote(name, safe='')}/versions/latest"))
    except Unreachable as error:
        raise Unreachable(f"{error}; without a registry, write npm:NAME, pypi:NAME or a URL") from None
    if found is None:
        raise Refused(f"the registry {registry} has no server {cut(name, 100)!r}; check how it is written")
    return _proposal(registry, name, *found, use)


def find_by_word(registry: str, word: str, use: Kind | None) -> Proposal | None:
    """Return the proposal of the only server whose name ends with a word; None if there is none.

    Raises:
        Refused: there are several, the server cannot be used, or the registry does not answer.
    """
    query = urlencode({"search": word, "version": "latest", "limit": SEARCH_LIMIT})
    answer = fetch_json(f"{registry}/v0.1/servers?{query}")
    listed = answer.get("servers") if isinstance(answer, dict) else None
    if not isinstance(listed, list):
        raise Unreachable(f"{registry} does not answer as an MCP registry does")
    found = [record for each in listed if (record := _record(each)) is not None]
    records = {name: each for each in found if isinstance(name := each[0].get("name"), str) and NAME.fullmatch(name)}
    matching = [name for name in records if name.partition("/")[2].casefold() == word.casefold()]
    if len(matching) > 1:
        raise Refused(
            f"the registry has {len(matching)} servers of this name; write the one you mean in full: "
            f"{', '.join(sorted(matching)[:MAX_LISTED])}"
        )
    if not matching:
        return None
    return _proposal(registry, matching[0], *records[matching[0]], use)


def _record(value: Any) -> tuple[Mapping[str, Any], str] | None:
    """Return a server and its status from an answer of the registry; None if there is none."""
    server = value.get("server") if isinstance(value, dict) else None
    if not isinstance(server, dict):
        return None
    meta = value.get("_meta")
    official = meta.get(_STATUS) if isinstance(meta, dict) else None
    status = official.get("status") if isinstance(official, dict) else server.get("status")
    return server, status if isinstance(status, str) else "active"


def _proposal(registry: str, name: str, server: Mapping[str, Any], status: str, use: Kind | None) -> Proposal:
    if server.get("name") != name or not NAME.fullmatch(name):
        raise Refused(f"the registry answers with another server than {cut(name, 100)!r}; nothing was started")
    if status == "deleted":
        raise Refused(f"{name} was deleted from the registry; nothing was started")
    options, reasons = options_of(server, cache(indexes_of))
    suitable = [each for each in options if use in (None, each.kind)]
    if not suitable:
        kinds = ", ".join(dict.fromkeys(each.kind for each in options))
        why = f"it can be used as {kinds}" if options else "; ".join(reasons[:3]) or "it has no packages and no address"
        raise Refused(f"{name} of the registry cannot be added{f' with --use {use}' if use else ''}: {why}")
    chosen = next((each for each in suitable if not each.program or find_executable(each.program)), suitable[0])
    others = list(dict.fromkeys(each.kind for each in options if each.kind != chosen.kind))
    return Proposal(
        short_name(name),
        chosen.entry,
        f"{name} {cut(str(server.get('version') or ''), 40)} of the registry {registry}",
        tuple(chosen.settings),
        tuple(_notes(chosen, others)),
        tuple(_warnings(name, status)),
        is_container=chosen.kind == "oci",
    )


def _notes(chosen: Option, others: list[Kind]) -> list[str]:
    found = []
    if chosen.package and chosen.kind in ("npm", "pypi") and (index := index_text(chosen.kind, chosen.package)):
        found.append(f"{chosen.program} fetches it from {index}")
    if chosen.unasked:
        found.append(f"optional values that you are not asked for: {cut(', '.join(chosen.unasked), 200)}")
    if others:
        found.append(f"other ways to use it: --use {', --use '.join(others)}")
    return found


def _warnings(name: str, status: str) -> list[str]:
    namespace = name.partition("/")[0]
    found = [f"check that {namespace} is the publisher that you mean; the registry does not check what its server does"]
    if status != "active":
        found.append(f"the registry says that it is {cut(status, 40)}")
    return found
