"""Repair of a server's lists of prompts, resource templates and resources. Pure: no I/O, no MCP SDK.

The fields of MCP are kept, if they have the right type and size. `without_metadata` has those that say what an item is.
A caller that compares these has compared everything that a program sees. Each change is reported in one sentence, as
for tools.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from upstream_clients.item_members import METADATA, MetadataReader, kind_of, typed_member
from upstream_clients.tool_list_repair import MAX_NAME_LENGTH, cap_problems

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from upstream_clients.tools import JsonObject

MAX_ITEMS = 10_000
"""Number of items of one list."""

MAX_LIST_BYTES = 4 * 1024 * 1024
"""Bytes of one list, as JSON."""

MAX_URI_LENGTH = 4_096


@dataclass(frozen=True, slots=True)
class ItemKind:
    """A kind of items that a server lists besides tools.

    Attributes:
        noun: the word for one item.
        method: the method that lists the items.
        key: the name of the list in the result.
        identifier: the field that distinguishes the items of a list.
        max_length: maximum length of the identifier, in characters.
        texts: fields with strings.
        numbers: fields with integers.
    """

    noun: str
    method: str
    key: str
    identifier: str
    max_length: int
    texts: tuple[str, ...]
    numbers: tuple[str, ...] = ()


PROMPTS: Final = ItemKind("prompt", "prompts/list", "prompts", "name", MAX_NAME_LENGTH, ("title", "description"))
TEMPLATES: Final = ItemKind(
    "resource template",
    "resources/templates/list",
    "resourceTemplates",
    "uriTemplate",
    MAX_URI_LENGTH,
    ("name", "title", "description", "mimeType"),
)

RESOURCES: Final = ItemKind(
    "resource",
    "resources/list",
    "resources",
    "uri",
    MAX_URI_LENGTH,
    ("name", "title", "description", "mimeType"),
    ("size",),
)

ITEM_KINDS: Final[Mapping[Literal["prompts", "templates", "resources"], ItemKind]] = {
    "prompts": PROMPTS,
    "templates": TEMPLATES,
    "resources": RESOURCES,
}


def read_items(kind: ItemKind, items: Iterable[object]) -> tuple[tuple[JsonObject, ...], tuple[str, ...]]:
    """Return the items in the server's order, and the problems. Of equal identifiers, the first one is kept."""
    found: dict[str, JsonObject] = {}
    problems: list[str] = []
    size = 0
    metadata = MetadataReader()
    for position, item in enumerate(items):
        read = _read_item(kind, item, position, problems)
        if read is None:
            continue
        if (identifier := read[kind.identifier]) in found:
            problems.append(f"{kind.noun} {identifier!r} is listed more than once; the first one is kept")
            continue
        size += len(json.dumps(read))
        if len(found) == MAX_ITEMS or size > MAX_LIST_BYTES:
            problems.append(
                f"{kind.method} has more than {MAX_ITEMS} items or {MAX_LIST_BYTES} bytes; the rest is left out"
            )
            break
        assert isinstance(item, dict)
        found[identifier] = {**read, **metadata.read(item, f"{kind.noun} {identifier!r}", problems)}
    return tuple(found.values()), cap_problems(problems)


def _read_item(kind: ItemKind, item: object, position: int, problems: list[str]) -> JsonObject | None:
    subject = f"{kind.noun} number {position + 1}"
    if not isinstance(item, dict):
        problems.append(f"{subject} is not an object ({kind_of(item)}); dropped")
        return None
    identifier = item.get(kind.identifier)
    if not isinstance(identifier, str) or not identifier:
        problems.append(f"{subject} has no {kind.identifier} ({kind_of(identifier)}); dropped")
        return None
    if len(identifier) > kind.max_length:
        problems.append(
            f"{subject} has a {kind.identifier} of {len(identifier)} characters (at most {kind.max_length}); dropped"
        )
        return None
    subject = f"{kind.noun} {identifier!r}"
    read: dict[str, Any] = {kind.identifier: identifier, **_texts(item, kind.texts, subject, problems)}
    for key in kind.numbers:
        number = typed_member(item, key, int, "an integer", subject, problems)
        if number is not None and not isinstance(number, bool) and 0 <= number < 2**63:
            read[key] = number
    if kind is PROMPTS:
        arguments = typed_member(item, "arguments", list, "a list", subject, problems)
        if arguments is not None:
            found = (_read_argument(each, subject, problems) for each in arguments)
            read["arguments"] = [argument for argument in found if argument is not None]
    return read


def without_metadata(item: JsonObject) -> JsonObject:
    """Return an item without the members that no program gets."""
    return {key: value for key, value in item.items() if key not in METADATA}


def metadata_of(item: JsonObject) -> JsonObject:
    """Return the members of an item that no program gets."""
    return {key: value for key, value in item.items() if key in METADATA}


def _read_argument(argument: object, subject: str, problems: list[str]) -> JsonObject | None:
    if not isinstance(argument, dict) or not isinstance(argument.get("name"), str):
        problems.append(f"{subject}: an argument has no name; dropped")
        return None
    subject = f"{subject}: argument {argument['name'][:MAX_NAME_LENGTH]!r}"
    required = typed_member(argument, "required", bool, "true or false", subject, problems)
    texts = _texts(argument, ("title", "description"), subject, problems)
    return {"name": argument["name"], **texts, **({} if required is None else {"required": required})}


def _texts(of: dict[str, Any], keys: Iterable[str], subject: str, problems: list[str]) -> dict[str, str]:
    found = {key: typed_member(of, key, str, "a string", subject, problems) for key in keys}
    return {key: text for key, text in found.items() if text is not None}
