"""The parts of a server's listing, in a form that can be compared, and references to them. Pure.

Two definitions are equal if MCP and JSON Schema give them the same meaning. So the order of the members of an object,
white space, and the order of `required`, `enum` and lists in `type` make no difference, and 1.0 equals 1. Everything
else does.

Metadata, icons and the annotations of prompts and templates are not compared, except for the user interface of a tool
(`_meta.ui`): no program gets them, and they may differ in each listing.

A definition has a second digest without the texts that only a reader acts on: titles, descriptions and comments. It
tells a change of texts from a change of what a call means.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import unquote

from msgspec import Struct

from upstream_clients.list_repair import HINTS, without_metadata
from upstream_clients.schema_repair import BY_NAME, LISTS, NEGATIVE, POSITIVE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from codemode_mcp.rules.trust.comparison import ItemReport
    from upstream_clients.tools import JsonObject, Tool, UpstreamView


Kind = Literal["entry", "server", "tool", "prompt", "template"]

Key = tuple[Kind, str]
"""The kind and the name of an item. The name of a template is its URI template. The server's own item has no name, and
neither has that of its entry in the configuration."""

ENTRY_KEY: Final[Key] = ("entry", "")

SERVER_KEY: Final[Key] = ("server", "")

MAX_DEPTH: Final = 200
"""Maximum nesting of a definition. Deeper ones are not compared, and count as changed."""

_TEXTS: Final = frozenset(("title", "description", "$comment"))
_SETS: Final = frozenset(("required", "enum", "type"))
"""Keywords of JSON Schema whose lists are sets."""

_SCHEMAS: Final = POSITIVE | NEGATIVE | LISTS | {"contentSchema"}
"""Keywords whose value is a schema, or a list of schemas. Digests of pins depend on them, and on those with names."""

_NAME_FIELDS: Final[Mapping[Kind, str]] = {"prompt": "name", "template": "uriTemplate"}
"""The members of definitions that have the names of items."""

_Place = Literal["definition", "schema", "schemas", "names", "texts", "value"]
"""The part of a definition that a value stands for: `schemas` has a schema under each name, `names` has lists of names,
`texts` is a list of objects with texts, such as the arguments of a prompt."""


Severity = Literal["high", "medium", "low"]
"""The gravest first."""


class Finding(Struct, frozen=True):
    """One part of a definition that a person should look at."""

    rule: str
    """The id of the rule in `finding_rules.toml`."""
    severity: Severity
    where: str
    """The place in the definition, as a JSON pointer (RFC 6901), escaped for people."""
    message: str
    excerpt: str
    """The text at this place, escaped for people."""


@dataclass(frozen=True)
class Item:
    """One part of a server's listing: a tool, a prompt, a resource template, or the server's own texts.

    The entry of the server in the configuration is an item, too, so that it is compared and accepted in the same way.

    Attributes:
        definition: the JSON object as MCP has it; None for a pin of a definition that is not stored, since it quotes a
            secret.
        digest: SHA-256 of the definition, in hexadecimal; empty if the definition is nested too deeply to be compared.
        stored_shape_digest: the shape digest, if the definition is not known.
    """

    kind: Kind
    name: str
    definition: JsonObject | None
    digest: str
    stored_shape_digest: str | None = None

    @property
    def key(self) -> Key:
        return self.kind, self.name

    @property
    def is_comparable(self) -> bool:
        return bool(self.digest)

    @cached_property
    def shape_digest(self) -> str:
        """SHA-256 of the definition without titles, descriptions and comments."""
        if self.stored_shape_digest is not None:
            return self.stored_shape_digest
        return "" if self.definition is None else _digest(self.definition, shape=True)


def item_of(kind: Kind, name: str, definition: JsonObject) -> Item:
    return Item(kind, name, definition, _digest(definition, shape=False))


def listed_key(kind: Literal["prompt", "template"], definition: JsonObject) -> Key:
    return kind, str(definition.get(_NAME_FIELDS[kind]))


def listed_item(kind: Literal["prompt", "template"], definition: JsonObject) -> Item:
    return item_of(*listed_key(kind, definition), without_metadata(definition))


def tool_item(tool: Tool) -> Item:
    return item_of("tool", tool.name, _tool_json(tool.as_sent))


def entry_item(written: JsonObject | None) -> Item | None:
    """Return the item of the entry in the configuration, as `config.literals` returns the entry."""
    return None if written is None else item_of(*ENTRY_KEY, written)


def items_of(view: UpstreamView, entry: Item | None = None) -> Mapping[Key, Item]:
    """Return the items of a listing, as far as it is known. The server's own item is always one of them.

    Of items with the same name, the first one counts.

    Args:
        entry: the item of the entry in the configuration, to include it.
    """
    items: dict[Key, Item] = {} if entry is None else {ENTRY_KEY: entry}
    for item in _items(view):
        items.setdefault(item.key, item)
    return items


def canonical_json(definition: JsonObject, *, shape: bool = False) -> str:
    """Return a definition as JSON text. Definitions with the same meaning have the same text.

    Args:
        shape: True to leave out titles, descriptions and comments.

    Raises:
        RecursionError: the definition is nested deeper than `MAX_DEPTH`.
        ValueError: it has an integer of thousands of digits.
    """
    return json.dumps(_canonical(definition, "definition", MAX_DEPTH, shape=shape), sort_keys=True)


def _items(view: UpstreamView) -> Iterator[Item]:
    own = {"name": view.server_name, "instructions": view.instructions}
    yield item_of(*SERVER_KEY, {key: value for key, value in own.items() if value is not None})
    for tool in view.tools:
        yield tool_item(tool)
    for prompt in view.prompt_list or ():
        yield listed_item("prompt", prompt)
    for template in view.template_list or ():
        yield listed_item("template", template)


def ui_of(meta: JsonObject | None) -> JsonObject:
    """Return the members of a tool's `_meta` that name its user interface (MCP Apps), in either form."""
    return {key: value for key, value in (meta or {}).items() if key == "ui" or key.startswith("ui/")}


def _tool_json(tool: Tool) -> JsonObject:
    hints: dict[str, Any] = {key: getattr(tool.annotations, name) for name, key in HINTS.items()}
    if tool.annotations.title != tool.title:
        hints["title"] = tool.annotations.title
    members = {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description or None,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "annotations": {key: value for key, value in hints.items() if value is not None} or None,
        "_meta": ui_of(tool.meta) or None,
    }
    return {key: value for key, value in members.items() if value is not None}


_MAX_KNOWN: Final = 50_000

_known: Final[dict[tuple[bytes, bool], str]] = {}
"""Digests that were computed already, by the SHA-256 of the definition as it was listed. A server may list thousands of
definitions again and again, and to bring one in its canonical form takes much longer than to write it as JSON."""


def _digest(definition: JsonObject, *, shape: bool) -> str:
    try:
        # Not compared as Python values, for which 1 and true are equal.
        key = hashlib.sha256(json.dumps(definition).encode()).digest(), shape
        digest = _known.get(key)
        if digest is None:
            text = canonical_json(definition, shape=shape)
            if len(_known) >= _MAX_KNOWN:
                _known.clear()
            digest = _known[key] = hashlib.sha256(text.encode()).hexdigest()
    except (RecursionError, ValueError):  # ValueError: an integer of thousands of digits
        return ""
    return digest


def _canonical(value: Any, place: _Place, depth: int, *, shape: bool) -> Any:
    """Return a value in the form that `json.dumps` writes in only one way.

    Args:
        depth: the levels that may still follow.
        shape: True to leave out the texts.
    """
    if depth < 0:
        raise RecursionError
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list | tuple):
        each = place if place in ("schema", "texts") else "value"
        return [_canonical(item, each, depth - 1, shape=shape) for item in value]
    if not isinstance(value, dict):
        return value
    made = {}
    for key, member in value.items():
        if shape and place in ("definition", "schema", "texts") and key in _TEXTS and isinstance(member, str):
            continue
        below = _place_below(place, key)
        canonical = _canonical(member, below, depth - 1, shape=shape)
        is_set = place in ("names", "schemas") or (place == "schema" and key in _SETS)
        # A reference may name a position in a list of objects, so their order has a meaning.
        if is_set and isinstance(canonical, list) and not any(isinstance(each, dict | list) for each in canonical):
            canonical = _as_set(canonical)
        made[key] = canonical
    if shape and place == "definition":
        # A title in the annotations is a text, too.
        annotations = made.get("annotations")
        if isinstance(annotations, dict) and isinstance(annotations.get("title"), str):
            del annotations["title"]
            if not annotations:
                del made["annotations"]
    return made


def _place_below(place: _Place, key: str) -> _Place:
    if place == "definition":
        return "schema" if key in ("inputSchema", "outputSchema") else "texts" if key == "arguments" else "value"
    if place == "schemas":
        return "schema"
    if place == "schema":
        if key in BY_NAME:
            return "schemas"
        return "names" if key == "dependentRequired" else "schema" if key in _SCHEMAS else "value"
    return "value"


def _as_set(items: list[Any]) -> list[Any]:
    by_text = {json.dumps(item, sort_keys=True): item for item in items}
    return [by_text[text] for text in sorted(by_text)]


# The names by which people refer to items of servers: `github.create_issue`, `github.prompts/greet`.
#
# `github` alone stands for everything that the server lists.


_PREFIXES: Final[Mapping[Kind, str]] = {
    "tool": "tools/",
    "prompt": "prompts/",
    "template": "templates/",
    "server": "server/",
    "entry": "entry/",
}


def reference(server: str, kind: Kind, name: str) -> str:
    """Return the name of an item. The server's own texts are `github.server/`, and its entry is `github.entry/`."""
    needs_prefix = kind != "tool" or name.startswith(tuple(_PREFIXES.values()))
    return f"{server}.{_PREFIXES[kind] if needs_prefix else ''}{name}"


def parse_reference(text: str, servers: Collection[str]) -> tuple[str, Key | None] | None:
    """Return the server and the key of an item; the key is None for the whole server.

    Return None if no server has such a name. Names of servers may have dots; the longest one that fits is used.
    """
    if text in servers:
        return text, None
    server = max((each for each in servers if text.startswith(f"{each}.")), key=len, default=None)
    if server is None:
        return None
    name = text[len(server) + 1 :]
    for kind, prefix in _PREFIXES.items():
        if name.startswith(prefix):
            return server, (kind, name[len(prefix) :])
    return server, ("tool", name)


# The line with method and address that this program puts at the end of the description of an API's operation.
#
# It is not wording of the document, and `POST https://...` reads like an order to send data there. So findings leave it
# out, but only for a server whose entry in the configuration names an OpenAPI document, only if it is exactly the
# request of the operation, and only its method, scheme and host. Rules still read the path, which the document's author
# chooses.


REQUEST_KEY: Final = "x-request"
"""Member of an input schema with the request of an operation (`upstream_clients.openapi.api`)."""

_REQUEST: Final = re.compile(r"[A-Z]{3,10} (?:https?://[A-Za-z0-9.:\[\]-]{1,255}(?=/))?(/\S{0,2000})")


def is_api(reports: Iterable[ItemReport]) -> bool:
    """Return True if a server is an HTTP API with an OpenAPI document, as its entry in the configuration says.

    Args:
        reports: the reports of all items of the server.
    """
    entries = (report.present for report in reports if report.kind == "entry")
    return any(each is not None and each.definition is not None and "openapi" in each.definition for each in entries)


def without_request(item: Item) -> Item:
    """Return an operation of an API without the method and the host of its request."""
    definition = item.definition or {}
    description, schema = definition.get("description"), definition.get("inputSchema")
    if item.kind != "tool" or not isinstance(description, str) or not isinstance(schema, dict):
        return item
    request = schema.get(REQUEST_KEY)
    if not isinstance(request, str):
        return item
    found = _REQUEST.fullmatch(request)
    text, _, last = f"\n{description}".rpartition("\n")
    if found is None or last != request:
        return item
    own = {"description": text.removeprefix("\n"), "inputSchema": {**schema, REQUEST_KEY: found[1]}}
    return item_of(item.kind, item.name, {**definition, **own})


# URI templates (RFC 6570) of servers, compared with URIs of programs and clients.
#
# The templates are not trusted, and a server may list thousands of them, which are all compared with one URI. So no
# pattern is compiled. `makes` keeps the set of positions in the URI that the parts of the template read so far can end
# at, as the bits of an integer. Each character and each expression of the template takes a few operations on it.


MAX_URI: Final = 8 * 1024
"""Maximum number of characters of a URI that a template makes. Servers list no longer URIs than half of that."""

_EXPRESSION: Final = re.compile(r"\{([^{}]*)\}")

_IGNORED: Final = re.compile(r"[\x00-\x20\x7f-\xa0]+")
"""Blanks and control characters, which parsers of URIs leave out."""

_USUAL: Final = (
    (re.compile(r"^(https://[^/?#:]*):443(?=[/?#]|$)|^(http://[^/?#:]*):80(?=[/?#]|$)"), r"\1\2"),
    (re.compile(r"^file:(?://localhost)?/(?!/)"), "file:///"),
)
"""Parts of URIs that parsers leave out, and what is left."""

_ENDS: Final = {"+": "\n\r\u2028\u2029", "#": "\n\r\u2028\u2029", "/": "?#", "?": "#", "&": "#"}
"""Characters that the value of an expression cannot have, by its operator (RFC 6570, section 2.2)."""

_OTHER_ENDS: Final = "/?#"
"""Characters that the value of an expression with another operator, or without one, cannot have."""


class _Positions:
    """The positions of the characters of a URI, as the bits of integers: bit 0 is the first character."""

    def __init__(self, uri: str) -> None:
        self.all = (1 << len(uri)) - 1
        self._of: dict[str, int] = {}
        for position, character in enumerate(uri):
            self._of[character] = self._of.get(character, 0) | 1 << position
        self._without: dict[str, int] = {}

    def of(self, character: str) -> int:
        return self._of.get(character, 0)

    def without(self, characters: str) -> int:
        found = self._without.get(characters)
        if found is None:
            found = self.all
            for each in characters:
                found &= ~self.of(each)
            self._without[characters] = found
        return found


_positions = lru_cache(maxsize=4)(_Positions)


def makes(template: str, uri: str) -> bool:
    """Return True if a URI is made from a template, with values that RFC 6570 allows."""
    if uri == template:
        return True
    if len(uri) > MAX_URI:
        return False
    positions, reached = _positions(uri), 1
    for index, part in enumerate(_EXPRESSION.split(template)):  # texts and expressions in turn
        if index % 2:
            operator = part[:1]
            values = positions.without(_ENDS.get(operator, _OTHER_ENDS))
            if operator and operator in "/?&":  # a value begins with the operator, or is empty
                begun = (reached & positions.of(operator)) << 1
                reached |= begun | _spread(begun, values)
            else:
                reached |= _spread(reached, values)
        else:
            for character in part:
                reached = (reached & positions.of(character)) << 1
                if not reached:
                    return False
    return bool(reached >> len(uri) & 1)


def _spread(reached: int, values: int) -> int:
    """Return the positions that are reached from others by any number of characters at the positions `values`."""
    # The sum carries each start to the end of its run of ones.
    starts = reached & values
    return ((starts + values) ^ values) | starts


def may_make(template: str, uri: str) -> bool:
    """Return True if a server may take a URI for one that is made from a template: with any values at all.

    A client or a server may parse a URI before it compares it. So case, percent-encoding, blanks, control characters,
    usual ports and a slash at the end make no difference.
    """
    first, *rest = map(_folded, _EXPRESSION.split(template)[::2])
    if not rest:
        return same_form(uri) == first.rstrip("/")
    uri = _folded(uri)
    if rest[-1].endswith("/") and not uri.endswith("/"):
        uri += "/"
    if not uri.startswith(first):
        return False
    start = len(first)
    for text in rest[:-1]:
        found = uri.find(text, start)
        if found < 0:
            return False
        start = found + len(text)
    return len(uri) - start >= len(rest[-1]) and uri.endswith(rest[-1])


def fixed_start(text: str, *, is_template: bool = True) -> str:
    """Return the fixed text at the start of a template, or a URI, as a server may compare it; see `may_make`."""
    first, brace, _ = text.partition("{") if is_template else (text, "", "")
    return _folded(first) if brace or not is_template else same_form(first)


def same_form(uri: str) -> str:
    """Return one text for all URIs that a client or a server may take for the same; see `may_make`."""
    return _folded(uri).rstrip("/")


def _folded(text: str) -> str:
    text = unicodedata.normalize("NFC", _IGNORED.sub("", unquote(_IGNORED.sub("", text))).casefold())
    for pattern, usual in _USUAL:
        text = pattern.sub(usual, text)
    return text
