"""The prompts, resources and templates that one client sees, their pages, and the server of each. Pure.

A listing is made from the lists of the servers that the client sees, in the order of the configuration. Lists are
compared by identity, so the same lists give the same listing without any work.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from codemode_mcp.exposure import item_forms, names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from upstream_clients.tools import JsonObject

Kind = Literal["prompts", "resources", "templates"]

PAGE_ITEMS: Final = 200
"""Items of one page."""

MAX_COMPARED: Final = 1_000
"""Most templates of one server that are compared with one URI. Clients reach others by the form with the server."""

MAX_LISTINGS: Final = 16
"""Maximum number of listings that are kept. The least recently used one is dropped first."""

_MAX_CURSOR: Final = 200
"""Longest cursor in characters."""


class BadCursor(ValueError):
    """Error for a cursor that this server has not made."""


class Located(NamedTuple):
    """An item at its server.

    Attributes:
        identifier: the name or URI that the server uses.
        is_wrapped: True if the client knows it by a URI that names the server.
    """

    server: str
    identifier: str
    is_wrapped: bool = False


class ServerList(NamedTuple):
    """The items of one kind that a server lists."""

    server: str
    items: Sequence[JsonObject]


@dataclass(frozen=True, slots=True)
class Listing:
    """The items of one kind that a client sees.

    Attributes:
        items: as in MCP, in the order of the servers.
        located: where the items are, by the names or URIs that clients use.
        shared: the servers of the URIs that several servers list, by these URIs.
        digest: equal for listings with equal items.
    """

    items: Sequence[dict[str, Any]]
    located: Mapping[str, Located]
    shared: Mapping[str, Sequence[str]]
    digest: str


class Listings:
    """Listings of one process, made on demand."""

    def __init__(self) -> None:
        # The lists are kept with what was made of them, so that no other list gets the same `id`.
        self._made: OrderedDict[tuple[object, ...], tuple[Sequence[ServerList], Listing]] = OrderedDict()

    def of(self, kind: Kind, lists: Sequence[ServerList]) -> Listing:
        """Return the listing of lists that servers have sent."""
        key = kind, *((each.server, id(each.items)) for each in lists)
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = tuple(lists), make_listing(kind, lists)
            while len(self._made) > MAX_LISTINGS:
                self._made.popitem(last=False)
        self._made.move_to_end(key)
        return found[1]


def make_listing(kind: Kind, lists: Sequence[ServerList]) -> Listing:
    """Return the listing of one kind. Of items that clients could not distinguish, the first one is kept."""
    form = _FORMS[kind]
    key = form.key
    fitted = [
        (each.server, item[key], form.fit(item))
        for each in lists
        for item in each.items
        if kind == "prompts" or not names.is_app_uri(item[key])
    ]
    shared: dict[str, list[str]] = {}
    if kind != "prompts":
        for server, uri in dict.fromkeys((server, shown[key]) for server, _, shown in fitted):
            shared.setdefault(uri, []).append(server)
        shared = {uri: servers for uri, servers in shared.items() if len(servers) > 1}
    items: dict[str, dict[str, Any]] = {}
    located: dict[str, Located] = {}
    for server, identifier, shown in fitted:
        is_wrapped = kind != "prompts" and (shown[key] in shared or names.is_own_uri(shown[key]))
        if kind == "prompts":
            name = names.prompt_name(server, shown[key])
        else:
            name = names.wrapped_uri(server, shown[key]) if is_wrapped else shown[key]
        if name not in items:
            items[name] = {**shown, key: name}
            located[name] = Located(server, identifier, is_wrapped)
    listed = tuple(items.values())
    text = json.dumps(listed, sort_keys=True)
    return Listing(listed, located, shared, hashlib.sha256(text.encode()).hexdigest())


class _Form(NamedTuple):
    key: str
    fit: Callable[[JsonObject], dict[str, Any]]


_FORMS: Final[Mapping[Kind, _Form]] = {
    "prompts": _Form("name", item_forms.prompt_form),
    "resources": _Form("uri", item_forms.resource_form),
    "templates": _Form("uriTemplate", item_forms.template_form),
}


def identifier_key(kind: Kind) -> str:
    """Return the member with the name or URI of an item."""
    return _FORMS[kind].key


def page_of(kind: Kind, items: Sequence[dict[str, Any]], cursor: str | None) -> tuple[list[dict[str, Any]], str | None]:
    """Return the page of a list after a cursor, and the cursor of the next page; None at the end of the list.

    If the list has changed since the cursor was made, the page begins after the same item.

    Raises:
        BadCursor: this server has not made the cursor for this kind.
    """
    key = identifier_key(kind)
    start = 0
    if cursor is not None:
        start, mark = _read_cursor(kind, cursor)
        if not (0 < start <= len(items) and _mark(items[start - 1][key]) == mark):
            start = next((at for at, item in enumerate(items, 1) if _mark(item[key]) == mark), min(start, len(items)))
    page = list(items[start : start + PAGE_ITEMS])
    end = start + len(page)
    return page, _cursor(kind, end, _mark(page[-1][key])) if page and end < len(items) else None


def _cursor(kind: Kind, position: int, mark: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([kind, position, mark]).encode()).decode().rstrip("=")


def _read_cursor(kind: Kind, cursor: str) -> tuple[int, str]:
    if len(cursor) <= _MAX_CURSOR:
        try:
            read = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True))
        except (ValueError, RecursionError):
            read = None
        match read:
            case [_, bool(), _]:
                pass  # a boolean is an integer for `match`
            case [str() as its_kind, int() as position, str() as mark] if its_kind == kind and position > 0:
                return position, mark
    raise BadCursor("unknown cursor; request the list again without a cursor")


def _mark(identifier: str) -> str:
    return hashlib.sha256(identifier.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def template_matches(
    uri: str, templates: Mapping[str, Located], makes: Callable[[str, str], bool]
) -> Sequence[Located]:
    """Return the servers of the templates that make a URI, each with the URI: the most specific templates alone.

    A template with a longer text before its first expression is more specific. Of the templates of one server that
    begin like the URI, `MAX_COMPARED` are compared, so that no server can make this take long.

    Args:
        templates: as in `Listing.located`.
        makes: returns True if a template makes a URI.
    """
    found: list[tuple[int, Located]] = []
    compared: Counter[str] = Counter()
    for located in templates.values():
        template = located.identifier
        fixed = template.partition("{")[0]
        if located.is_wrapped or not uri.startswith(fixed) or compared[located.server] == MAX_COMPARED:
            continue
        compared[located.server] += 1
        if makes(template, uri):
            found.append((len(fixed), Located(located.server, uri)))
    longest = max((length for length, _ in found), default=0)
    return list(dict.fromkeys(located for length, located in found if length == longest))


def exposed_contents_uri(server: str, uri: str, *, is_wrapped: bool) -> str:
    """Return the URI of a part of a read resource for clients, which belongs to the URI that the client has sent."""
    return names.wrapped_uri(server, uri) if is_wrapped or names.is_own_uri(uri) else uri
