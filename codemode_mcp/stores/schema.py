"""The tables of a store and their migrations, PostgreSQL's dialect, and leases of processes. Pure.

Times are seconds since the epoch. Data of programs and servers is sealed. The other columns are those by which queries
select rows.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from msgspec import Struct, structs

from codemode_mcp.base.errors import StoreUnavailable
from codemode_mcp.stores.work import Query, Work

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
    # Secrets that all processes share without configuration; see `stores.seal`.
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


# Statements of `Query` in the dialect of PostgreSQL, and addresses of PostgreSQL without their secrets.


# A quoted text or name, a comment, or a placeholder.
_PARTS = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|\?", re.DOTALL)


@lru_cache(maxsize=1024)
def numbered(sql: str, locks: bool = False) -> str:
    """Return a statement with `$1`, `$2`, ... in place of `?`. If it locks rows, add FOR UPDATE."""
    count = 0

    def part(match: re.Match[str]) -> str:
        nonlocal count
        if match[0] != "?":
            return match[0]
        count += 1
        return f"${count}"

    text = _PARTS.sub(part, sql)
    return f"{text} FOR UPDATE" if locks else text


def plain_value(value: Any) -> Any:
    """Convert a sum, which PostgreSQL returns as `Decimal`, to the type that SQLite returns."""
    if type(value) is not Decimal:
        return value
    return int(value) if value == value.to_integral_value() else float(value)


SCHEMA = "codemode_mcp"

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}")
_OPTIONS = frozenset(
    (
        *("host", "port", "user", "password", "passfile", "dbname", "database", "service", "target_session_attrs"),
        *("application_name", "krbsrvname", "gsslib", "sslmode", "sslcert", "sslkey", "sslpassword", "sslrootcert"),
        *("sslcrl", "sslnegotiation", "ssl_min_protocol_version", "ssl_max_protocol_version"),
    )
)
"""Names of options after the `?`: those of libpq and of the driver."""

_FORM = (
    "it has the form postgresql://user:password@host:5432/database; percent-encode characters of the password that "
    "have a meaning in a URL, for example %40 for @"
)


class BadAddress(ValueError):
    """A URL that is not valid. The message shows nothing of the URL."""


class Address(Struct, frozen=True):
    """The address of a database.

    Attributes:
        name: hosts, ports and database, without secrets.
        schema: the schema of our tables.
    """

    name: str
    schema: str
    _urls: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<Address {self.name}>"

    def urls(self) -> tuple[str, ...]:
        """Return the URLs for the driver, one for each host in the order to try. They contain the password."""
        return self._urls


def address(url: str) -> Address:
    """Parse a URL of PostgreSQL.

    Raises:
        BadAddress: the URL is not valid, or it is not certain where its password ends.
    """
    try:
        parts = urlsplit(url)
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True) if parts.query else []
    except ValueError:
        raise BadAddress(f"it is not a URL: {_FORM}") from None
    if parts.scheme not in ("postgresql", "postgres") or not url.startswith(f"{parts.scheme}://"):
        raise BadAddress(f"it is not a URL of PostgreSQL: {_FORM}")
    # If a password contains an unescaped / ? # or @, its end looks like a host, a database or an option. A message
    # with such a "host" would show a part of the password, so an address with several readings is refused.
    user, at, hosts = parts.netloc.rpartition("@")
    user += at
    rest = parts.path + parts.query + parts.fragment
    if parts.netloc.count("@") > 1 or "@" in rest or parts.fragment or not _hosts_are_plain(hosts):
        raise BadAddress(f"its parts are ambiguous: {_FORM}")
    database = unquote(parts.path.removeprefix("/"))
    if "/" in database or not database.isprintable():
        raise BadAddress(f"its parts are ambiguous: {_FORM}")
    by_name = dict(options)
    if unknown := sorted(by_name.keys() - _OPTIONS - {"schema"}):
        shown = f"the option {unknown[0]}" if re.fullmatch(r"[a-z_]{1,32}", unknown[0]) else "an option"
        raise BadAddress(f"it has {shown}, which is not supported; remove it")
    schema = by_name.get("schema", SCHEMA)
    if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_"):
        raise BadAddress("its option schema is not a plain name: at most 48 of a-z, 0-9 and _, not pg_...")
    host = hosts or by_name.get("host") or "localhost"
    port = f":{by_name['port']}" if by_name.get("port", "").isdecimal() else ""
    database = database or by_name.get("dbname") or by_name.get("database") or ""
    query = urlencode([pair for pair in options if pair[0] != "schema"])
    return Address(
        name=f"{host}{port}/{database}" if database else f"{host}{port}",
        schema=schema,
        _urls=tuple(
            f"{parts.scheme}://{user}{host}{parts.path}{'?' if query else ''}{query}" for host in hosts.split(",")
        ),
    )


def _hosts_are_plain(hosts: str) -> bool:
    host = r"(\[[0-9a-fA-F:.%]+\]|[\w.%-]*)(:\d{1,5})?"
    return re.fullmatch(rf"{host}(,{host})*", hosts, re.ASCII) is not None


class Lease(Struct, frozen=True):
    """The lease of one process. Others consider the process alive for `valid` seconds after its last renewal.

    Others count from the time at which the database received the renewal. This process counts from the time at which
    it sent the renewal, which is earlier, and subtracts `margin`, because no two clocks run equally fast. So it stops
    before others may take over.

    Attributes:
        valid: seconds for which a renewal is valid.
        every: seconds from one renewal to the next.
        margin: seconds by which this process stops early.
        sent: the time at which the latest successful renewal was sent, on the clock of this process; None before the
            first renewal.
    """

    valid: float = 8.0
    every: float = 2.0
    margin: float = 1.0
    sent: float | None = None

    def renewed(self, sent: float) -> Lease:
        # Answers may arrive in another order than their requests. An older one must not shorten the lease.
        return self if self.sent is not None and self.sent > sent else structs.replace(self, sent=sent)

    def ended(self) -> Lease:
        return structs.replace(self, sent=None)

    def held(self, now: float) -> bool:
        return self.sent is not None and now < self.sent + self.valid - self.margin


def lease_clock(system: str = sys.platform) -> Callable[[], float]:
    """Return a clock of monotonic seconds that also runs while the machine sleeps, as the database's does."""
    # While the machine sleeps, time.monotonic stops on Linux and macOS. On Windows it continues. On macOS, unlike on
    # Linux, CLOCK_MONOTONIC continues.
    name = {"linux": "CLOCK_BOOTTIME", "darwin": "CLOCK_MONOTONIC"}.get(system)
    number = getattr(time, name, None) if name else None
    return time.monotonic if number is None else lambda: time.clock_gettime(number)
