"""The parts of a server's listing, in a form that can be compared. Pure.

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
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

from upstream_clients.item_list_repair import without_metadata

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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

_SCHEMAS: Final = frozenset(
    (
        *("additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not"),
        *("propertyNames", "then", "unevaluatedItems", "unevaluatedProperties", "allOf", "anyOf", "oneOf"),
        "prefixItems",
    )
)
"""Keywords whose value is a schema, or a list of schemas."""

_SCHEMAS_BY_NAME: Final = frozenset(
    ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties")
)
"""Keywords whose value is an object with names that the server has chosen, and a schema for each."""

_HINTS: Final = {
    "read_only": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}
"""Keys of MCP tool annotations, by the attributes of `upstream_clients.tools.Annotations`."""

_NAME_FIELDS: Final[Mapping[Kind, str]] = {"prompt": "name", "template": "uriTemplate"}
"""The members of definitions that have the names of items."""

_Place = Literal["definition", "schema", "schemas", "names", "texts", "value"]
"""The part of a definition that a value stands for: `schemas` has a schema under each name, `names` has lists of names,
`texts` is a list of objects with texts, such as the arguments of a prompt."""


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
        """The kind and the name."""
        return self.kind, self.name

    @property
    def is_comparable(self) -> bool:
        """True if the definition has a digest."""
        return bool(self.digest)

    @cached_property
    def shape_digest(self) -> str:
        """SHA-256 of the definition without titles, descriptions and comments."""
        if self.stored_shape_digest is not None:
            return self.stored_shape_digest
        return "" if self.definition is None else _digest(self.definition, shape=True)


def item_of(kind: Kind, name: str, definition: JsonObject) -> Item:
    """Return an item with the digest of its definition."""
    return Item(kind, name, definition, _digest(definition, shape=False))


def listed_key(kind: Literal["prompt", "template"], definition: JsonObject) -> Key:
    """Return the key of a prompt or a resource template."""
    return kind, str(definition.get(_NAME_FIELDS[kind]))


def listed_item(kind: Literal["prompt", "template"], definition: JsonObject) -> Item:
    """Return the item of a prompt or a resource template."""
    return item_of(*listed_key(kind, definition), without_metadata(definition))


def tool_item(tool: Tool) -> Item:
    """Return the item of a tool."""
    return item_of("tool", tool.name, _tool_json(tool.as_sent))


def entry_item(written: JsonObject | None) -> Item | None:
    """Return the item of the entry in the configuration, as `config.written_entry` returns the entry."""
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
    """Return a tool as in `tools/list`."""
    hints: dict[str, Any] = {key: getattr(tool.annotations, name) for name, key in _HINTS.items()}
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
        if key in _SCHEMAS_BY_NAME:
            return "schemas"
        return "names" if key == "dependentRequired" else "schema" if key in _SCHEMAS else "value"
    return "value"


def _as_set(items: list[Any]) -> list[Any]:
    """Return the items without repetitions, in the order of their JSON texts."""
    by_text = {json.dumps(item, sort_keys=True): item for item in items}
    return [by_text[text] for text in sorted(by_text)]
