"""The prompts, resources and templates that one client sees, with their names and pages. Pure.

A listing is made from the lists of the servers that the client sees, in the order of the configuration. Lists are
compared by identity, so the same lists give the same listing without any work.

A URI stays with the server that had it first. A template of a newer server that could make the same URIs, and a
resource that a template of an older server makes, are listed in the form that names their server. If it is not known
who was first, the URI alone is refused. Templates are pinned, so it is known since when they are accepted. Resources
are not: a server may list another one at any time. A server cannot have had one before its own first listing.
"""

from __future__ import annotations

import base64
import hashlib
import json
from bisect import bisect_right
from collections import Counter, OrderedDict
from math import inf
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from urllib.parse import quote, unquote

from msgspec import Struct

from codemode_mcp.rules.trust.items import fixed_start, may_make, same_form
from codemode_mcp.server.exposure import apps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from upstream_clients.tools import JsonObject


Kind = Literal["prompts", "resources", "templates"]

PAGE_ITEMS: Final = 200
"""Items of one page."""

MAX_COMPARED: Final = 1_000
"""Most templates of one server that are compared with one URI. Clients reach others by the form with the server."""

SAME_SECONDS: Final = 60.0
"""Seconds within which two servers that were listed for the first time count as equally old. Then the order of the
configuration decides."""

_MAX_SAME_START: Final = 50
"""Templates with the same fixed text at their start that are compared with one URI. If there are more, they make it."""

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


class Seniority(NamedTuple):
    """The times since when a server has had its items, in Unix seconds; infinity for those that are not known.

    Attributes:
        position: the position of the server in the configuration.
        first: the time of its first listing.
        templates: the times of its templates; `first` for those of the first listing.
        started: the time of its first listing in this process.
        resources: the times at which its resources were first seen in this process; `started` for those of the first
            list.
    """

    position: int
    first: float = inf
    templates: Mapping[str, float] = {}
    started: float = inf
    resources: Mapping[str, float] = {}


class _Age(NamedTuple):
    """The time since when a server has had an item, compared with that of another server.

    Attributes:
        is_initial: True for an item of the first listing of its server.
    """

    time: float
    position: int
    is_initial: bool

    def is_older(self, other: _Age) -> bool:
        is_same = self.is_initial and other.is_initial and abs(self.time - other.time) <= SAME_SECONDS
        return self.position < other.position if is_same or self.time == other.time else self.time < other.time


class Listing(Struct, frozen=True):
    """The items of one kind that a client sees.

    Attributes:
        items: as in MCP, in the order of the servers.
        located: where the items are, by the names or URIs that clients use.
        shared: the servers of the URIs that several servers list or make, by these URIs, unless one was first.
        digest: equal for listings with equal items.
        used: the seniority on which the listing depends, by server.
    """

    items: Sequence[dict[str, Any]]
    located: Mapping[str, Located]
    shared: Mapping[str, Sequence[str]]
    digest: str
    used: Mapping[str, Seniority]


class Listings:
    """Listings of one process, made on demand."""

    def __init__(self) -> None:
        # The lists are kept with what was made of them, so that no other list gets the same `id`.
        self._made: OrderedDict[tuple[object, ...], tuple[Sequence[ServerList], Listing]] = OrderedDict()

    def of(
        self,
        kind: Kind,
        lists: Sequence[ServerList],
        seniority: Callable[[str], Seniority] | None = None,
        templates: Sequence[ServerList] = (),
    ) -> Listing:
        """Return the listing of lists that servers have sent. See `make_listing` for the arguments."""
        key = kind, *((each.server, id(each.items)) for each in (*lists, *templates))
        found = self._made.get(key)
        # Only a listing that was made with `seniority` has used any.
        if found is None or any(seniority and seniority(server) != used for server, used in found[1].used.items()):
            found = self._made[key] = (*lists, *templates), make_listing(kind, lists, seniority, templates)
            while len(self._made) > MAX_LISTINGS:
                self._made.popitem(last=False)
        self._made.move_to_end(key)
        return found[1]


def make_listing(
    kind: Kind,
    lists: Sequence[ServerList],
    seniority: Callable[[str], Seniority] | None = None,
    templates: Sequence[ServerList] = (),
) -> Listing:
    """Return the listing of one kind. Of items that clients could not distinguish, the first one is kept.

    Args:
        seniority: returns since when a server has had its items; None to compare equal URIs only.
        templates: the templates of the servers, for a listing of resources or templates; with accepted ones that are
            not listed now, such as held ones. They keep their URIs.
    """
    form = _FORMS[kind]
    key = form.key
    fitted = [
        (each.server, item[key], form.fit(item))
        for each in lists
        for item in each.items
        if kind == "prompts" or not is_app_uri(item[key])
    ]
    shared: dict[str, list[str]] = {}
    if kind != "prompts":
        same: dict[str, dict[str, None]] = {}
        for server, _, shown in fitted:
            same.setdefault(form.same(shown[key]), {})[server] = None
        uris = ((shown[key], same[form.same(shown[key])]) for _, _, shown in fitted)
        shared = {uri: list(servers) for uri, servers in uris if len(servers) > 1}
    newer: set[tuple[str, str]] = set()
    asked: dict[str, Seniority] = {}
    if seniority is not None and kind != "prompts":

        def since(server: str) -> Seniority:
            if server not in asked:
                asked[server] = seniority(server)
            return asked[server]

        if kind == "templates":
            newer = _newer_templates(templates or lists, since)
        else:
            newer, contested = _newer_resources(lists, templates, since)
            shared.update({uri: servers for uri, servers in contested.items() if uri not in shared})
    items: dict[str, dict[str, Any]] = {}
    located: dict[str, Located] = {}
    for server, identifier, shown in fitted:
        is_wrapped = kind != "prompts" and (
            shown[key] in shared or (server, identifier) in newer or is_own_uri(shown[key])
        )
        if kind == "prompts":
            name = prompt_name(server, shown[key])
        else:
            name = wrapped_uri(server, shown[key]) if is_wrapped else shown[key]
        if name not in items:
            items[name] = {**shown, key: name}
            located[name] = Located(server, identifier, is_wrapped)
    listed = tuple(items.values())
    text = json.dumps(listed, sort_keys=True)
    return Listing(listed, located, shared, hashlib.sha256(text.encode()).hexdigest(), asked)


def _newer_templates(lists: Sequence[ServerList], since: Callable[[str], Seniority]) -> set[tuple[str, str]]:
    """Return the templates that could make URIs of an older template of another server, with their servers.

    Two templates could make the same URI if the fixed start of one of them begins with that of the other.
    """
    starts = {
        (each.server, item["uriTemplate"]): fixed_start(item["uriTemplate"]) for each in lists for item in each.items
    }
    if len({server for server, _ in starts}) < 2:
        return set()
    lengths = sorted({len(start) for start in starts.values()})
    ages = {(server, template): _age(since(server), template) for server, template in starts}
    # The oldest template of each server that starts with exactly a text, and that starts with this text or a longer one
    exactly: dict[str, dict[str, _Age]] = {}
    begun: dict[str, dict[str, _Age]] = {}
    for (server, template), start in starts.items():
        age = ages[server, template]
        _keep_oldest(exactly, start, server, age)
        for length in lengths[: bisect_right(lengths, len(start))]:
            _keep_oldest(begun, start[:length], server, age)
    newer = set()
    for (server, template), start in starts.items():
        found = [exactly.get(start[:length], {}) for length in lengths[: bisect_right(lengths, len(start))]]
        others = (age for each in (*found, begun[start]) for other, age in each.items() if other != server)
        if any(age.is_older(ages[server, template]) for age in others):
            newer.add((server, template))
    return newer


def _keep_oldest(ages: dict[str, dict[str, _Age]], start: str, server: str, age: _Age) -> None:
    known = ages.setdefault(start, {})
    known[server] = min(known.get(server, age), age)


def _newer_resources(
    lists: Sequence[ServerList], templates: Sequence[ServerList], since: Callable[[str], Seniority]
) -> tuple[set[tuple[str, str]], dict[str, list[str]]]:
    """Return the resources that an older template of another server makes, and the contested ones with their servers.

    A resource is contested if it is not known whether it or the template was first.
    """
    newer_templates = _newer_templates(templates, since)
    by_start: dict[str, dict[str, list[str]]] = {}
    for each in templates:
        for item in each.items:
            template = item["uriTemplate"]
            if (each.server, template) not in newer_templates:
                by_start.setdefault(fixed_start(template), {}).setdefault(each.server, []).append(template)
    lengths = sorted({len(start) for start in by_start})
    newer: set[tuple[str, str]] = set()
    contested: dict[str, list[str]] = {}
    for each in lists:
        for uri in [item["uri"] for item in each.items] if by_start else ():
            start = fixed_start(uri, is_template=False)
            for length in lengths[: bisect_right(lengths, len(start))]:
                for other, made in by_start.get(start[:length], {}).items():
                    made = [one for one in made[:_MAX_SAME_START] if len(made) > _MAX_SAME_START or may_make(one, uri)]
                    if other == each.server or not made:
                        continue
                    own, age = since(each.server), min(_age(since(other), one) for one in made)
                    seen = own.resources.get(uri, inf)
                    if age.is_older(_Age(own.first, own.position, is_initial=True)):
                        newer.add((each.server, uri))
                    elif not _Age(seen, own.position, seen == own.started).is_older(age):
                        contested.setdefault(uri, [each.server])
                        contested[uri] = list(dict.fromkeys([*contested[uri], other]))
    return newer, contested


def _age(seniority: Seniority, template: str) -> _Age:
    time = seniority.templates.get(template, inf)
    return _Age(time, seniority.position, time == seniority.first)


class _Form(NamedTuple):
    key: str
    fit: Callable[[JsonObject], dict[str, Any]]
    same: Callable[[str], str] = str


_FORMS: Final[Mapping[Kind, _Form]] = {
    "prompts": _Form("name", apps.prompt_form),
    "resources": _Form("uri", apps.resource_form, same_form),
    "templates": _Form("uriTemplate", apps.template_form),
}


def identifier_key(kind: Kind) -> str:
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
    return wrapped_uri(server, uri) if is_wrapped or is_own_uri(uri) else uri


# Names of prompts and URIs of resources of servers, as clients see them.
#
# A prompt is named `<server>/<prompt>`. A URI stays as it is, unless clients could not tell by it which server to ask:
#
# - two servers that the client sees list the same resource or template,
# - another server had the URI first, or could have had it (see `items`), or
# - a server uses the scheme `codemode`, which is that of this server.
#
# Then it is `codemode://servers/<server>/<URI>`. Clients may always use this form, for any URI of any server they see.


SERVERS: Final = "codemode://servers/"
"""Beginning of the URIs that name their server."""


def prompt_name(server: str, prompt: str) -> str:
    return f"{_segment(server)}/{prompt}"


def split_prompt_name(name: str) -> tuple[str, str] | None:
    server, slash, prompt = name.partition("/")
    return (unquote(server), prompt) if slash and server and prompt else None


def wrapped_uri(server: str, uri: str) -> str:
    """Return a URI, or a URI template, in the form that names its server."""
    return f"{SERVERS}{quote(server, safe='')}/{uri}"


def unwrap_uri(uri: str) -> tuple[str, str] | None:
    if not uri.startswith(SERVERS):
        return None
    server, slash, rest = uri.removeprefix(SERVERS).partition("/")
    return (unquote(server), rest) if slash and server and rest else None


def is_own_uri(uri: str) -> bool:
    return _scheme_is("codemode", uri)


def is_app_uri(uri: str) -> bool:
    """Return True if a URI has the scheme of MCP Apps, however a server may read it."""
    return _scheme_is("ui", uri)


def _scheme_is(scheme: str, uri: str) -> bool:
    # Clients and servers may compare schemes without regard to case, and ignore white space.
    return uri.strip().casefold().startswith(scheme + ":")


def _segment(server: str) -> str:
    """Return the name of a server without slashes. Different names have different results."""
    return server.replace("%", "%25").replace("/", "%2F")
