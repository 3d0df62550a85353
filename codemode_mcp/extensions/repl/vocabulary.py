"""The names that can be completed: names of a catalog, of `guest.d.ts`, of the session and of JavaScript. Pure."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from codemode_mcp.base.display import plain
from codemode_mcp.base.text import clip, one_line
from codemode_mcp.catalog.saved_programs.saved_program import program_id
from declarations import typetree
from declarations.names import LANGUAGE_GLOBALS
from declarations.schema import compile_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.catalog.entries import Entry
    from codemode_mcp.catalog.servers import Server

ITEMS: Final = "[]"
"""The step in a path that stands for an item of an array."""

MAX_TYPES: Final = 200
"""Maximum number of types of one value that are examined."""

_SHORT: Final = 60
"""Maximum number of characters of a type or a value in a description."""


class Name(Struct, frozen=True):
    """A name with its description.

    Attributes:
        entry: the tool that the name calls, if any.
    """

    text: str
    about: str = ""
    entry: Entry | None = None


class Vocabulary(Struct, frozen=True):
    """The names that can be completed.

    Attributes:
        values: JSON values of the session by name.
        names: descriptions of the other names of the session: functions, and values that could not be kept.
    """

    catalog: Catalog
    values: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)

    def globals(self) -> Iterator[Name]:
        for name, value in self.values.items():
            yield Name(name, _kind(value))
        for name, about in self.names.items():
            yield Name(name, about)
        yield from guest_globals()
        for namespace in self.catalog.namespaces:
            yield Name(namespace.global_name, _about(namespace.description))
        for each in sorted(LANGUAGE_GLOBALS):
            yield Name(each)

    def members(self, chain: tuple[str, ...]) -> Iterator[Name]:
        """Yield the members of an expression. The chain `("a", "b")` stands for `a.b`."""
        match chain:
            case ("MCP",):
                for server in self.catalog.servers:
                    state = server.status if server.trouble is None else server.trouble.removeprefix("is ")
                    yield Name(server.identifier, _about(server.description or state))
                yield Name("$api", "(): the header of all servers")
            case ("MCP", server):
                found = self._server(server)
                if found is not None:
                    yield from map(self._tool, found.tools)
                    for group, entries in found.groups:
                        yield Name(group, ", ".join(entry.identifier for entry in entries))
                    yield Name("$api", "(tool?, { schema }): the tools of this server")
            case ("MCP", server, group):
                yield from (self._tool(entry) for entry in self._group(server, group))
            case ("tools",):
                yield from guest_members("tools")
                for name, entry_id in self.catalog.toolset.names.items():
                    tool = self.catalog.toolset.get(entry_id)
                    yield Name(name, "") if tool is None else self._tool(tool)
            case ("programs",):
                yield from map(self._tool, self.catalog.toolset.programs.entries)
            case ("namespaces",):
                yield Name("MCP", "the servers")
                for each in self.catalog.namespaces:
                    yield Name(each.global_name, _about(each.description))
            case _:
                yield from self._other_members(chain)

    def _other_members(self, chain: tuple[str, ...]) -> Iterator[Name]:
        """Yield the members of a value of the session or of a global object."""
        if chain[0] in self.values:
            value = self.values[chain[0]]
            for step in chain[1:]:
                if step == ITEMS:
                    value = value[0] if isinstance(value, list) and value else None
                else:
                    value = value.get(step) if isinstance(value, dict) else None
            match value:
                case dict():
                    yield from (Name(str(key), _kind(value[key])) for key in list(value)[:MAX_TYPES])
                case list():
                    yield from map(Name, _ARRAY_MEMBERS.split())
                case str():
                    yield from map(Name, _STRING_MEMBERS.split())
        elif len(chain) == 1:
            yield from guest_members(chain[0])
            yield from map(Name, _STATIC_MEMBERS.get(chain[0], "").split())

    def callee(self, chain: tuple[str, ...]) -> Entry | None:
        """Return the tool that an expression calls. The chain `("a", "b", "c")` stands for `a.b.c(`."""
        match chain:
            case ("MCP", server, name):
                found = self._server(server)
                names = () if found is None else found.tools
                return next((each for each in names if name in (each.identifier, each.tool.name)), None)
            case ("MCP", server, group, name):
                return next((each for each in self._group(server, group) if each.identifier == name), None)
            case ("programs", name):
                return self.catalog.toolset.programs.get(program_id(name))
            case ("tools", name):
                return self.catalog.toolset.get(self.catalog.toolset.names.get(name, ""))
        return None

    def by_id(self, entry_id: str) -> Entry | None:
        return self.catalog.toolset.get(entry_id)

    def properties(self, entry: Entry, path: tuple[str, ...]) -> list[Name]:
        compiled = compile_schema(entry.tool.input_schema)
        found: dict[str, typetree.Property] = {}
        for each in _at(compiled, path):
            if isinstance(each, typetree.ObjectOf):
                for one in each.properties:
                    found.setdefault(one.name, one)
        return [
            Name(
                one.name,
                plain(_short(f"{'' if one.required else '?'}: {brief(one.type, compiled)}"))
                + (f"  {_about(one.doc)}" if one.doc else ""),
            )
            for one in sorted(found.values(), key=lambda one: not one.required)
        ]

    def constants(self, entry: Entry, path: tuple[str, ...]) -> list[typetree.Constant | typetree.Scalar]:
        """Return the constants that are possible at a path in the argument, with `boolean` and `null` as types."""
        found: dict[typetree.Constant | typetree.Scalar, None] = {}
        for each in _at(compile_schema(entry.tool.input_schema), path):
            if isinstance(each, typetree.Constant) or (
                isinstance(each, typetree.Scalar) and each.name in ("boolean", "null")
            ):
                found[each] = None
        return list(found)

    def signature(self, entry: Entry) -> str:
        return plain(self.catalog.signature(entry))

    def _server(self, name: str) -> Server | None:
        return next((each for each in self.catalog.servers if name in (each.identifier, each.alias)), None)

    def _group(self, server: str, group: str) -> tuple[Entry, ...]:
        found = self._server(server)
        return () if found is None else dict(found.groups).get(group, ())

    def in_full(self, name: Name) -> str:
        """Return the description of a name with its tool's arguments. This takes seconds for thousands of tools."""
        if name.entry is None:
            return name.about
        arguments = _arguments(self.signature(name.entry).removeprefix(name.entry.path))
        return f"{arguments}  {name.about}".rstrip()

    def _tool(self, entry: Entry) -> Name:
        return Name(entry.identifier, _about(entry.tool.description), entry)


def brief(type_: typetree.Type, compiled: typetree.SchemaType, depth: int = 2) -> str:
    match type_:
        case typetree.Scalar(name):
            return name
        case typetree.Constant(text=text):
            return text
        case typetree.Ref(name):
            return brief(compiled.definitions[name].type, compiled, depth - 1) if depth else "{ ... }"
        case typetree.ArrayOf(items):
            inner = brief(items, compiled, depth)
            return f"({inner})[]" if " | " in inner else f"{inner}[]"
        case typetree.TupleOf():
            return "[...]"
        case typetree.ObjectOf() | typetree.IntersectionOf():
            return "{ ... }"
        case typetree.UnionOf(members):
            shown = [brief(each, compiled, depth) for each in members[:6]]
            return " | ".join([*dict.fromkeys(shown), *(["..."] if len(members) > 6 else [])])
        case typetree.Never():
            return "never"
    return "unknown"


def _at(compiled: typetree.SchemaType, path: tuple[str, ...]) -> list[typetree.Type]:
    """Return the types that are possible at a path, with unions and intersections split into their members."""
    found = _flattened([compiled.root], compiled)
    for step in path:
        inner: list[typetree.Type] = []
        for each in found:
            match each:
                case typetree.ArrayOf(items) if step == ITEMS:
                    inner.append(items)
                case typetree.TupleOf(elements) if step == ITEMS:
                    inner += elements
                case typetree.ObjectOf(properties, _, rest) if step != ITEMS:
                    named = [one.type for one in properties if one.name == step]
                    inner += named or ([] if rest is None else [rest])
        found = _flattened(inner, compiled)
    return found


def _flattened(types: list[typetree.Type], compiled: typetree.SchemaType) -> list[typetree.Type]:
    """Return types with unions and intersections replaced by their members, and references by their targets."""
    left, found, seen = types[::-1], list[typetree.Type](), set[str]()
    while left and len(found) < MAX_TYPES:
        match left.pop():
            case typetree.Ref(name):
                if name not in seen:
                    seen.add(name)
                    left.append(compiled.definitions[name].type)
            case typetree.UnionOf(members) | typetree.IntersectionOf(members):
                left += reversed(members)
            case other:
                found.append(other)
    return found


_DECLARED: Final = re.compile(
    r"(?:^/\*\*(?P<doc>(?:[^*]|\*(?!/))*)\*/\n)?^declare (?P<kind>function|const|class|namespace) (?P<name>[\w$]+)"
    r"(?P<rest>[^\n]*)(?P<body>(?:\n  [^\n]*)*)",
    re.MULTILINE,
)
_INTERFACE: Final = re.compile(r"^interface (\w+)[^\n]*\{((?:\n  [^\n]*)*)", re.MULTILINE)
_MEMBER: Final = re.compile(
    r"(?:^  /\*\* (?P<doc>[^\n]*?) ?\*/\n)?^  (?P<static>static )?(?:readonly |function )?(?P<name>[\w$]+)"
    r"(?P<rest>(?:<[^\n]*?>)?[(?:][^\n]*)",
    re.MULTILINE,
)


@cache
def _guest() -> tuple[dict[str, Name], dict[str, tuple[Name, ...]]]:
    text = (resources.files("declarations") / "guest.d.ts").read_text("utf-8")
    interfaces = {match[1]: match[2] for match in _INTERFACE.finditer(text)}
    found: dict[str, Name] = {}
    members: dict[str, tuple[Name, ...]] = {}
    for match in _DECLARED.finditer(text):
        name, kind, rest = match["name"], match["kind"], match["rest"]
        doc = _sentence(re.sub(r"\n \* ?", " ", match["doc"] or "").strip())
        arguments = _arguments(rest) if kind == "function" else ""
        found.setdefault(name, Name(name, f"{arguments}  {doc}".strip()))
        of_type = re.match(r": (\w+);", rest)
        body = interfaces.get(of_type[1], "") if of_type is not None else match["body"]
        listed: dict[str, Name] = {}
        for each in _MEMBER.finditer(body):
            if (kind != "class" or each["static"]) and each["name"] not in ("constructor", "safeToolName"):
                about = f"{_arguments(each['rest'])}  {each['doc'] or ''}".rstrip()
                listed.setdefault(each["name"], Name(each["name"], about))  # the first overload has the comment
        members[name] = tuple(listed.values())
    return found, members


def guest_globals() -> tuple[Name, ...]:
    return tuple(_guest()[0].values())


def guest_members(name: str) -> tuple[Name, ...]:
    return _guest()[1].get(name, ())


def _arguments(rest: str) -> str:
    """Return the parameters of a function, or the type of another declaration."""
    arguments, is_function, _ = rest.partition("): ")
    return _short(arguments + ")" if is_function else arguments.rstrip(";"))


def _about(text: str) -> str:
    return plain(one_line(_sentence(text), 120))


def _sentence(text: str) -> str:
    return re.split(r"(?<=[.!?])\s", one_line(text, 400), maxsplit=1)[0]


def _short(text: str) -> str:
    return clip(text, _SHORT)


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool() | int() | float():
            return str(value).lower()
        case str():
            return plain(_short(value))
        case list():
            return f"{len(value):,} item{'' if len(value) == 1 else 's'}"
    return plain(_short(f"{{ {', '.join(map(str, list(value)[:8]))} }}"))


_ARRAY_MEMBERS: Final = (
    "at concat every filter find findIndex findLast flat flatMap forEach includes indexOf join keys length map push "
    "reduce reverse slice some sort splice toReversed toSorted values with"
)
_STRING_MEMBERS: Final = (
    "at charCodeAt endsWith includes indexOf length localeCompare match matchAll normalize padEnd padStart repeat "
    "replace replaceAll search slice split startsWith substring toLowerCase toUpperCase trim trimEnd trimStart"
)
_STATIC_MEMBERS: Final = {
    "Array": "from fromAsync isArray of",
    "Date": "UTC now parse",
    "JSON": "parse stringify",
    "Math": (
        "E PI abs acos asin atan atan2 cbrt ceil cos exp floor hypot log log10 log2 max min pow random round sign sin "
        "sqrt tan trunc"
    ),
    "Number": "EPSILON MAX_SAFE_INTEGER MIN_SAFE_INTEGER isFinite isInteger isNaN isSafeInteger parseFloat",
    "Map": "groupBy",
    "Object": (
        "assign create defineProperty entries freeze fromEntries getOwnPropertyNames getPrototypeOf groupBy hasOwn is "
        "keys values"
    ),
    "Promise": "all allSettled any race reject resolve try withResolvers",
    "Reflect": "apply construct get has ownKeys set",
    "String": "fromCharCode fromCodePoint raw",
    "Symbol": "asyncIterator for iterator toStringTag",
}
