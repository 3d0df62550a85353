"""SQL as `Query` says it, in PostgreSQL's words; and what of an address may be shown. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

# A quoted text or name, a comment, or a placeholder.
_PARTS = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|\?", re.DOTALL)


@lru_cache(maxsize=1024)
def numbered(sql: str, locks: bool = False) -> str:
    """Return a statement with `$1`, `$2`, ... for `?`, and FOR UPDATE where it locks."""
    count = 0

    def part(match: re.Match[str]) -> str:
        nonlocal count
        if match[0] != "?":
            return match[0]
        count += 1
        return f"${count}"

    text = _PARTS.sub(part, sql)
    return f"{text} FOR UPDATE" if locks else text


SCHEMA = "codemode_mcp"

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}")
_OPTIONS = frozenset(
    (
        *("host", "port", "user", "password", "passfile", "dbname", "database", "service", "target_session_attrs"),
        *("application_name", "krbsrvname", "gsslib", "sslmode", "sslcert", "sslkey", "sslpassword", "sslrootcert"),
        *("sslcrl", "sslnegotiation", "ssl_min_protocol_version", "ssl_max_protocol_version"),
    )
)
"""Options after the `?`, by libpq's names, with those of the driver."""

_FORM = (
    "it has the form postgresql://user:password@host:5432/database; write characters of the password that mean "
    "something in a URL, as in %40 for @"
)


class BadAddress(ValueError):
    """Says what is wrong with a URL, and nothing that is in it."""


@dataclass(frozen=True, slots=True)
class Address:
    """Address of a database.

    Attributes:
        name: hosts, ports and database.
        schema: of our tables in it.
    """

    name: str
    schema: str
    _urls: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<Address {self.name}>"

    def urls(self) -> tuple[str, ...]:
        """Return the URLs for the driver, one for each host, in the order to try; they hold the password."""
        return self._urls


def address(url: str) -> Address:
    """Read a URL of PostgreSQL.

    Raises:
        BadAddress: it is none, or one of which it is not certain where its password ends.
    """
    try:
        parts = urlsplit(url)
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True) if parts.query else []
    except ValueError:
        raise BadAddress(f"it is no URL: {_FORM}") from None
    if parts.scheme not in ("postgresql", "postgres") or not url.startswith(f"{parts.scheme}://"):
        raise BadAddress(f"it is no URL of PostgreSQL: {_FORM}")
    # With an unescaped / ? # or @ in the password, its end would be taken for a host, a database or an option.
    user, at, hosts = parts.netloc.rpartition("@")
    user += at
    elsewhere = parts.path + parts.query + parts.fragment
    if parts.netloc.count("@") > 1 or "@" in elsewhere or parts.fragment or not _hosts_are_plain(hosts):
        raise BadAddress(f"its parts cannot be told apart: {_FORM}")
    database = unquote(parts.path.removeprefix("/"))
    if "/" in database or not database.isprintable():
        raise BadAddress(f"its parts cannot be told apart: {_FORM}")
    said = dict(options)
    if unknown := sorted(said.keys() - _OPTIONS - {"schema"}):
        shown = f"the option {unknown[0]}" if re.fullmatch(r"[a-z_]{1,32}", unknown[0]) else "an option"
        raise BadAddress(f"it has {shown}, which is not known here; leave it out")
    schema = said.get("schema", SCHEMA)
    if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_"):
        raise BadAddress("its option schema is no plain name: small letters, digits and _, at most 48, not pg_...")
    host = hosts or said.get("host") or "localhost"
    port = f":{said['port']}" if said.get("port", "").isdecimal() else ""
    database = database or said.get("dbname") or said.get("database") or ""
    rest = urlencode([pair for pair in options if pair[0] != "schema"])
    return Address(
        name=f"{host}{port}/{database}" if database else f"{host}{port}",
        schema=schema,
        _urls=tuple(
            f"{parts.scheme}://{user}{host}{parts.path}{'?' if rest else ''}{rest}" for host in hosts.split(",")
        ),
    )


def _hosts_are_plain(hosts: str) -> bool:
    """Return True if this is a list of host:port, where a port is a number."""
    host = r"(\[[0-9a-fA-F:.%]+\]|[\w.%-]*)(:\d{1,5})?"
    return re.fullmatch(rf"{host}(,{host})*", hosts, re.ASCII) is not None
