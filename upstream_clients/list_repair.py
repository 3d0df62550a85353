"""Repair of the lists of sloppy servers: tools, prompts, templates and resources. Pure: no I/O, no MCP SDK.

Metadata is what a client shows or interprets, and no program gets: `_meta`, `icons` and the annotations of resources.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeVar

from msgspec import Struct, structs

from upstream_clients.schema_relaxation import relax
from upstream_clients.tools import Annotations, JsonObject, Tool

T = TypeVar("T")

META: Final = "_meta"
ICONS: Final = "icons"
METADATA: Final = (META, "annotations", ICONS)
"""Members with metadata. If there is no room for all of them, the first ones are kept."""

MAX_METADATA_BYTES = 16 * 1024
"""Bytes of the metadata of one item, as JSON."""

MAX_LIST_METADATA_BYTES = 4 * 1024 * 1024
"""Bytes of the metadata of all items of a list."""


def typed_member(
    of: Mapping[str, Any], key: str, kind: type[T], expected: str, subject: str, problems: list[str]
) -> T | None:
    """Return a member of the expected type. Return None if it is missing. Report another type and return None."""
    value = of.get(key)
    if value is None or isinstance(value, kind):
        return value
    problems.append(f"{subject}: {key} is not {expected} ({kind_of(value)}); ignored")
    return None


class MetadataReader:
    """The metadata of the items of one list."""

    def __init__(self) -> None:
        self._room = MAX_LIST_METADATA_BYTES
        self._is_full = False

    def read(
        self, item: Mapping[str, Any], subject: str, problems: list[str], keys: Iterable[str] = METADATA
    ) -> dict[str, Any]:
        """Return the members of `keys` that there is room for. Report those that are dropped."""
        found: dict[str, Any] = {}
        room = MAX_METADATA_BYTES
        for key in keys:
            value = _icons(item, subject, problems) if key == ICONS else _object(item, key, subject, problems)
            if not value:
                continue
            size = _size(value)
            if size > room:
                problems.append(
                    f"{subject}: {key} is left out, since an item has at most {MAX_METADATA_BYTES} bytes of metadata"
                )
            elif size > self._room:
                if not self._is_full:
                    problems.append(f"metadata is left out from {subject} on, since a list has too much of it")
                self._is_full, self._room = True, 0
            else:
                room, self._room = room - size, self._room - size
                found[key] = value
        return found


def _size(value: Any) -> int:
    try:
        return len(json.dumps(value))
    except (ValueError, RecursionError):  # ValueError: an integer of thousands of digits
        return MAX_METADATA_BYTES + 1


def _object(item: Mapping[str, Any], key: str, subject: str, problems: list[str]) -> dict[str, Any] | None:
    return typed_member(item, key, dict, "an object", subject, problems)


def _icons(item: Mapping[str, Any], subject: str, problems: list[str]) -> list[Any]:
    icons = typed_member(item, ICONS, list, "a list", subject, problems) or []
    found = [icon for icon in icons if isinstance(icon, dict) and isinstance(icon.get("src"), str)]
    if len(found) < len(icons):
        problems.append(f"{subject}: {ICONS} has an entry without src; dropped")
    return found


def kind_of(value: object) -> str:
    if value is None or value == "":
        return "missing" if value is None else "an empty string"
    kinds = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list"}
    return kinds.get(type(value), "an object")


# Repair of the tool lists of sloppy servers.
#
# The SDK's parser refuses a whole page because of one malformed tool. Here only the malformed tool is dropped. A field
# is repaired if the intention is clear. Each change is reported in one sentence.


MAX_NAME_LENGTH = 256
MAX_PROBLEMS = 50
"""Maximum number of problems that are reported for one list. A server with 10,000 bad tools must not fill the log."""

HINTS: Final = {
    "read_only": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}
"""Keys of MCP tool annotations, by the attributes of `Annotations`."""


class Page(NamedTuple):
    """One page of a list, whose items are not read yet."""

    items: list[object]
    next_cursor: str | None
    problems: tuple[str, ...]


def open_page(raw: JsonObject, method: str = "tools/list", key: str = "tools") -> Page:
    problems = []
    items = raw.get(key)
    if not isinstance(items, list):
        problems.append(f"the answer to {method} has no list {key!r} ({kind_of(items)}); taken as empty")
        items = []
    cursor = raw.get("nextCursor")
    if cursor is not None and not isinstance(cursor, str):
        problems.append(f"nextCursor is not a string ({kind_of(cursor)}); taken as the last page")
        cursor = None
    return Page(items, cursor or None, tuple(problems))


def read_tools(items: Iterable[object]) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    """Return the tools of all pages, in the server's order, and the problems. Of equal names, the first one is kept."""
    tools: dict[str, Tool] = {}
    problems: list[str] = []
    metadata = MetadataReader()
    for position, item in enumerate(items):
        tool = _read_tool(item, position, metadata, problems)
        if tool is None:
            continue
        if tool.name in tools:
            problems.append(f"tool {tool.name!r} is listed more than once; the first one is kept")
            continue
        tools[tool.name] = tool
    return tuple(tools.values()), cap_problems(problems)


def cap_problems(problems: list[str]) -> tuple[str, ...]:
    if len(problems) <= MAX_PROBLEMS:
        return tuple(problems)
    return (*problems[:MAX_PROBLEMS], f"... and {len(problems) - MAX_PROBLEMS} more problems")


def _read_tool(item: object, position: int, metadata: MetadataReader, problems: list[str]) -> Tool | None:
    if not isinstance(item, dict):
        problems.append(f"tool number {position + 1} is not an object ({kind_of(item)}); dropped")
        return None
    name = item.get("name")
    if not isinstance(name, str) or not name:
        problems.append(f"tool number {position + 1} has no name ({kind_of(name)}); dropped")
        return None
    if len(name) > MAX_NAME_LENGTH:
        problems.append(f"tool {name[:40] + '...'!r} has a name of {len(name)} characters (at most 256); dropped")
        return None

    def member(of: dict[str, Any], key: str, kind: type[T], expected: str) -> T | None:
        return typed_member(of, key, kind, expected, f"tool {name!r}", problems)

    annotations = member(item, "annotations", dict, "an object") or {}
    title = member(annotations, "title", str, "a string") or None
    for_clients = metadata.read(item, f"tool {name!r}", problems, (META, ICONS))
    tool = Tool(
        name=name,
        description=member(item, "description", str, "a string") or "",
        title=member(item, "title", str, "a string") or title,
        input_schema=_input_schema(item.get("inputSchema"), name, problems),
        output_schema=member(item, "outputSchema", dict, "an object"),
        annotations=Annotations(
            **{attribute: member(annotations, key, bool, "true or false") for attribute, key in HINTS.items()},
            title=title,
        ),
        meta=for_clients.get(META),
        icons=tuple(for_clients.get(ICONS, ())),
        needs_task=(member(item, "execution", dict, "an object") or {}).get("taskSupport") == "required",
    )
    return with_relaxed_schemas(tool)


def with_relaxed_schemas(tool: Tool) -> Tool:
    """Return a tool whose schemas do not contradict themselves. It keeps those that its server has sent."""
    sent = tool.input_schema, tool.output_schema
    taken, given = relax(sent[0]).schema, None if sent[1] is None else relax(sent[1]).schema
    if taken is sent[0] and given is sent[1]:
        return tool
    return structs.replace(tool, input_schema=taken, output_schema=given, sent=sent)


def _input_schema(schema: object, name: str, problems: list[str]) -> JsonObject:
    """Return the schema of the arguments. A schema that does not describe an object is replaced by "any object"."""
    if not isinstance(schema, dict):
        problems.append(f"tool {name!r}: inputSchema is {kind_of(schema)}; any object is accepted")
        return {"type": "object"}
    declared = schema.get("type")
    if declared == "object" or (isinstance(declared, list) and "object" in declared):
        return schema
    if declared is None:
        return {**schema, "type": "object"}
    problems.append(f"tool {name!r}: inputSchema has type {_shorten(declared)}, not 'object'; any object is accepted")
    return {"type": "object"}


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


# Repair of a server's lists of prompts, resource templates and resources.
#
# The fields of MCP are kept, if they have the right type and size. `without_metadata` has those that say what an item
# is. A caller that compares these has compared everything that a program sees. Each change is reported in one sentence,
# as for tools.


MAX_ITEMS = 10_000
"""Number of items of one list."""

MAX_LIST_BYTES = 4 * 1024 * 1024
"""Bytes of one list, as JSON."""

MAX_URI_LENGTH = 4_096


class ItemKind(Struct, frozen=True):
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
