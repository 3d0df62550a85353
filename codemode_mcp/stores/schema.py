"""The tables of a store, and their migrations. Pure.

Times are seconds since the epoch. Data of programs and servers is sealed; other columns are what queries need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from codemode_mcp.errors import StoreUnavailable
from codemode_mcp.stores.work import Query

if TYPE_CHECKING:
    from codemode_mcp.stores.work import Work

_FIRST = (
    # `kept` is about the time when a run with this catalog was last written. Manifests are stored like catalogs.
    """CREATE TABLE catalogs (
        hash TEXT PRIMARY KEY,
        kept DOUBLE PRECISION NOT NULL,
        body {blob} NOT NULL
    )""",
    # `state` is "waiting" until the run has ended. `holder` is the process that has claimed it, and `parker` the one
    # that suspended it. `token` is the number of claims plus one. The row may be deleted after `expires`. `size` is the
    # size of the run in bytes, of which `printed` is in `outputs`.
    """CREATE TABLE runs (
        id TEXT PRIMARY KEY,
        owner TEXT NOT NULL,
        state TEXT NOT NULL,
        version BIGINT NOT NULL,
        token BIGINT NOT NULL,
        holder TEXT,
        parker TEXT,
        cancel BIGINT NOT NULL,
        reason TEXT NOT NULL,
        began DOUBLE PRECISION NOT NULL,
        parked DOUBLE PRECISION NOT NULL,
        ended DOUBLE PRECISION,
        expires DOUBLE PRECISION NOT NULL,
        size BIGINT NOT NULL,
        printed BIGINT NOT NULL,
        code TEXT,
        catalog TEXT,
        manifest TEXT,
        view {blob},
        outcome {blob}
    )""",
    "CREATE INDEX runs_by_state ON runs (state, expires, owner, holder)",
    "CREATE INDEX runs_by_catalog ON runs (catalog)",
    "CREATE INDEX runs_by_manifest ON runs (manifest)",
    # Suspended runs only; a separate table, so that a claim writes little.
    """CREATE TABLE snapshots (
        run TEXT PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
        record {blob},
        snapshot {blob} NOT NULL
    )""",
    # What they have printed, each piece once: those from the output of number `at` on. So that writing a run down again
    # takes as long as what is new of it.
    """CREATE TABLE outputs (
        run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        at BIGINT NOT NULL,
        body {blob} NOT NULL,
        PRIMARY KEY (run, at)
    )""",
    # Calls whose result was not delivered to the program. `carrier` is the executor.
    """CREATE TABLE calls (
        run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        id BIGINT NOT NULL,
        tool TEXT NOT NULL,
        status TEXT NOT NULL,
        repeatable BIGINT NOT NULL,
        carrier TEXT NOT NULL,
        body {blob},
        result {blob},
        PRIMARY KEY (run, id)
    )""",
    # Secrets that all processes share without configuration; see `stores.secrets`.
    """CREATE TABLE secrets (
        name TEXT PRIMARY KEY,
        body {blob} NOT NULL
    )""",
    # The usage of owners with stored values; `latest` is the number of the newest entry.
    """CREATE TABLE keepers (
        owner TEXT NOT NULL PRIMARY KEY,
        size BIGINT NOT NULL,
        latest BIGINT NOT NULL,
        used DOUBLE PRECISION NOT NULL
    )""",
    # `body` is last, since SQLite reads a row up to the column that is needed.
    """CREATE TABLE kept (
        owner TEXT NOT NULL,
        name TEXT NOT NULL,
        kind TEXT NOT NULL,
        number BIGINT NOT NULL,
        characters BIGINT NOT NULL,
        size BIGINT NOT NULL,
        used DOUBLE PRECISION NOT NULL,
        label {blob} NOT NULL,
        body {blob} NOT NULL,
        PRIMARY KEY (owner, name)
    )""",
    "CREATE INDEX kept_in_order ON kept (owner, kind, number)",
    "CREATE INDEX kept_unused ON kept (kind, used)",
    "CREATE INDEX keepers_unused ON keepers (used)",
)

_SECOND = (
    # `share` names the quota of suspended runs that a run counts for: that of its owner or of an address.
    "ALTER TABLE runs ADD COLUMN share TEXT NOT NULL DEFAULT ''",
    "UPDATE runs SET share = owner",
    "DROP INDEX runs_by_state",
    "CREATE INDEX runs_by_state ON runs (state, expires, share, holder)",
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_FIRST, _SECOND)
"""Migrations from each version to the next. A released one is never changed."""

VERSION = len(MIGRATIONS)


def migrate(name: str, blob: str) -> Work[int]:
    """Migrate a database, possibly an empty one, to `VERSION`. Only one process may do so at a time.

    Args:
        name: `Database.name`.
        blob: `Database.blob`.

    Returns:
        The version that the database had.

    Raises:
        StoreUnavailable: the database has a newer version.
    """
    yield Query("CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)")
    rows = yield Query("SELECT version FROM schema_version", locks=True)
    found: int = rows[0][0] if rows else 0
    if found > VERSION:
        raise StoreUnavailable(
            f"the store{{at}} was last used by a newer codemode-mcp (its schema is {found}, this one knows "
            f"{VERSION}); upgrade codemode-mcp here too, or configure another store for it",
            at=f" {name}",
        )
    for statements in MIGRATIONS[found:]:
        for statement in statements:
            yield Query(statement.format(blob=blob))
    if found != VERSION:
        yield Query("DELETE FROM schema_version")
        yield Query("INSERT INTO schema_version (version) VALUES (?)", (VERSION,))
    return found
