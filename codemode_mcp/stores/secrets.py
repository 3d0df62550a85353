"""Secrets that all processes of one store share without configuration. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codemode_mcp.stores.work import Query

if TYPE_CHECKING:
    from codemode_mcp.stores.work import Work


def shared_secret(name: str, fresh: bytes) -> Work[bytes]:
    """Return the stored secret `name`, after storing `fresh` if there is none."""
    # If two processes insert at the same time, the first one wins. Both read back the same secret.
    yield Query("INSERT INTO secrets (name, body) VALUES (?, ?) ON CONFLICT (name) DO NOTHING", (name, fresh))
    rows = yield Query("SELECT body FROM secrets WHERE name = ?", (name,))
    return bytes(rows[0][0])
