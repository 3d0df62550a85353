"""The caching hints of a modern server: how long a result may be used again, and by whom. Pure.

Source: MCP 2026-07-28, Caching (SEP-2549). Results of older revisions have no hints, even if they have such members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MAX_TTL_MS: Final = 24 * 60 * 60 * 1000
"""Longest time that is honoured, in milliseconds."""


class CacheHint(NamedTuple):
    """The hint of one result.

    Attributes:
        ttl_ms: milliseconds for which the result counts as fresh; 0 if it has no such time.
        is_private: True if the result is for one login only.
    """

    ttl_ms: int = 0
    is_private: bool = True


NO_HINT: Final = CacheHint()


def read_hint(result: Mapping[str, Any]) -> CacheHint:
    """Return the hint of a result of a modern server. A malformed time counts as none."""
    ttl_ms = result.get("ttlMs")
    if isinstance(ttl_ms, bool) or not isinstance(ttl_ms, int):
        ttl_ms = 0
    return CacheHint(min(max(ttl_ms, 0), MAX_TTL_MS), result.get("cacheScope") != "public")


def combined(hints: Iterable[CacheHint]) -> CacheHint:
    """Return the hint of all pages of a list: the shortest time, and private if any page is."""
    found = tuple(hints)
    if not found:
        return NO_HINT
    return CacheHint(min(hint.ttl_ms for hint in found), any(hint.is_private for hint in found))
