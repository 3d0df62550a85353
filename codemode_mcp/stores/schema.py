"""The tables of a store, and their migrations. Pure.

Times are seconds since the epoch. Data of programs and servers is sealed. The other columns are those by which queries
select rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from codemode_mcp.errors import StoreUnavailable
from codemode_mcp.stores.work import Query

if TYPE_CHECKING:
    from codemode_mcp.stores.work import Work

_FIRST = (
    # Catalogs and manifests. `kept` is the approximate time at which a run with this catalog was last written.
    """CREATE TABLE catalogs (
        hash TEXT PRIMARY KEY,
        kept DOUBLE PRECISION NOT NULL,
        body {blob} NOT NULL
    )""",
    # `state` is "waiting" until the run has ended. `holder` is the process that has claimed the run, and `parker` the
    # process that suspended it. `token` is the number of claims plus one. The row may be deleted after `expires`.
    # `size` is the size of the run in bytes. `printed` is the part of `size` that is in the table `outputs`.
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
    # The snapshots of suspended runs. They have a table of their own, so that a claim, which updates the row in `runs`,
    # does not write the snapshot again.
    """CREATE TABLE snapshots (
        run TEXT PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
        record {blob},
        snapshot {blob} NOT NULL
    )""",
    # The outputs of suspended runs. Each row has the outputs since the previous write of the run, and `at` is the
    # number of the first of them. So the cost of a write depends on the new outputs only.
    """CREATE TABLE outputs (
        run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        at BIGINT NOT NULL,
        body {blob} NOT NULL,
        PRIMARY KEY (run, at)
    )""",
    # The calls whose results were not delivered to their programs. `carrier` is the executor.
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
    # One row for each owner with stored values. `latest` is the number of the newest entry.
    """CREATE TABLE keepers (
        owner TEXT NOT NULL PRIMARY KEY,
        size BIGINT NOT NULL,
        latest BIGINT NOT NULL,
        used DOUBLE PRECISION NOT NULL
    )""",
    # The stored values. `body` is the last column, because SQLite reads a row only up to the last column that it needs.
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
    # `share` is the owner or the address in whose quota of suspended runs a run counts.
    "ALTER TABLE runs ADD COLUMN share TEXT NOT NULL DEFAULT ''",
    "UPDATE runs SET share = owner",
    "DROP INDEX runs_by_state",
    "CREATE INDEX runs_by_state ON runs (state, expires, share, holder)",
)

_THIRD = (
    # `task` is the task with which the server has answered a call, so that another process can follow it.
    "ALTER TABLE calls ADD COLUMN task {blob}",
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_FIRST, _SECOND, _THIRD)
"""Migrations from each version to the next. A released migration is never changed."""

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
