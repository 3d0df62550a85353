"""Statements of `Query` in the dialect of PostgreSQL, and addresses of PostgreSQL without their secrets. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

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


@dataclass(frozen=True, slots=True)
class Address:
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
    """Return True for a list of host:port in which every port is a number."""
    host = r"(\[[0-9a-fA-F:.%]+\]|[\w.%-]*)(:\d{1,5})?"
    return re.fullmatch(rf"{host}(,{host})*", hosts, re.ASCII) is not None
