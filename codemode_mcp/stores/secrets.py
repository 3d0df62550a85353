"""Secrets on which all processes that share a store agree, without configuration. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codemode_mcp.stores.work import Query

if TYPE_CHECKING:
    from codemode_mcp.stores.work import Work


def agreed(name: str, fresh: bytes) -> Work[bytes]:
    """Return the secret of this name: `fresh`, where none of them has made one before."""
    yield Query("INSERT INTO secrets (name, body) VALUES (?, ?) ON CONFLICT (name) DO NOTHING", (name, fresh))
    rows = yield Query("SELECT body FROM secrets WHERE name = ?", (name,))
    return bytes(rows[0][0])
