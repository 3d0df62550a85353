"""Types as TypeScript expressions, and declarations of named types.

A type may be written wider than it is, but TypeScript must always accept the text: one error would make all
declarations useless. Most rules below exist because TypeScript refuses the obvious text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol

from declarations import typetree
from declarations.kinds import refs
from declarations.names import HOST_GLOBALS, LANGUAGE_GLOBALS, OBJECT_PROTOTYPE
from declarations.schema import compile_schema

MAX_INDEX: Final = 200
"""Maximum length in characters of the type of an index signature. A longer type becomes `unknown`."""

MAX_REPEATED_ITEM: Final = 24
"""Maximum length in characters of an item that is repeated in a tuple."""

MAX_REPEATS: Final = 6
"""Maximum number of items for which an array with bounds is written as a tuple."""

MIN_SHARED: Final = 40
"""Minimum length in characters of a repeated object type that gets a name."""

INTEGER_NAME: Final = "int"
"""Name of the type `number | bigint` in files that declare it, and in signatures."""

_PLAIN_NAME: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_INHERITED: Final = frozenset(name for name in OBJECT_PROTOTYPE if not name.startswith("_"))
"""Members of every object in TypeScript. If an optional property with such a name had another type, TypeScript would
refuse every object."""
_TYPE_NAME_WORD: Final = re.compile(r"[A-Za-z0-9]+")
GUEST_TYPE_NAMES: Final = HOST_GLOBALS | LANGUAGE_GLOBALS | {"ApiFile", "ApiHit", "Console", "ToolHit", "Tools"}
"""Names of types in `guest.d.ts` and in the declarations of the language, besides those below."""
# Every declaration uses these types, so its own named types must have other names.
_TAKEN_TYPE_NAMES: Final = frozenset({"McpApiHeader", "McpCall", "McpToolResult", "Promise", "Record", "String"})


class Renderable(Protocol):
    """The parts of a tool that its declaration needs. `upstream_clients.tools.Tool` has them."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def input_schema(self) -> Mapping[str, Any]: ...
    @property
    def output_schema(self) -> Mapping[str, Any] | None: ...


class TypeWriter:
    """A writer of types as text.

    Args:
        names: TypeScript names of the definitions.
        docs: True to write comments on properties.
        depth: maximum number of levels of objects. Deeper objects become `{ ... }`.
        integer: the text for `number | bigint`.
        shared: names of object types that occur several times in a file.
    """

    def __init__(
        self,
        names: Mapping[str, str],
        *,
        docs: bool = True,
        depth: int = 1_000,
        integer: str = "number | bigint",
        shared: Mapping[typetree.ObjectOf, str] = MappingProxyType({}),
    ) -> None:
        self._names = names
        self._shared = shared
        self._integer = integer
        self._docs = docs
        self._depth = depth

    def text(self, type_: typetree.Type) -> str:
        """Return the type as an expression, without parentheses around unions and intersections."""
        match type_:
            case typetree.Scalar(name):
                return name
            case typetree.ObjectOf():
                return (self._shared and self._shared.get(type_)) or self.object(type_)
            case typetree.Constant(_, text):
                return text
            case typetree.ArrayOf():
                return self._array(type_)
            # Different types can have the same text, e.g. after a cut at `depth`. So repetitions are dropped.
            case typetree.UnionOf(members):
                both = typetree.NUMBER in members and typetree.BIGINT in members
                return " | ".join(
                    dict.fromkeys(
                        self._integer
                        if both and m in typetree.INTEGER.members
                        else f"({self.text(m)})"
                        if isinstance(m, typetree.IntersectionOf)
                        else self.text(m)
                        for m in members
                    )
                )
            case typetree.IntersectionOf(members):
                texts = (
                    f"({' | '.join(map(self._branch, m.members))})"
                    if isinstance(m, typetree.UnionOf)
                    else self._branch(m)
                    for m in members
                )
                return " & ".join(dict.fromkeys(texts))
            case typetree.TupleOf(elements, required, rest):
                atoms = [self._atom(element) for element in elements]
                items = atoms[:required] + [self._optional(atom) for atom in atoms[required:]]
                if rest is not None:
                    items.append(self._further(self._atom(rest)))
                return f"[{', '.join(items)}]"
            case typetree.Ref(name):
                return self._names[name]
            case typetree.Unknown():
                return "unknown"
            case typetree.Never():
                return "never"

    def _atom(self, type_: typetree.Type) -> str:
        text = self.text(type_)
        return (
            f"({text})"
            if isinstance(type_, (typetree.UnionOf, typetree.IntersectionOf)) and text != INTEGER_NAME
            else text
        )

    def _branch(self, type_: typetree.Type) -> str:
        return self.object(type_, alone=False) if isinstance(type_, typetree.ObjectOf) else self._atom(type_)

    def _array(self, type_: typetree.ArrayOf) -> str:
        item = self._atom(type_.items)
        minimum, maximum = type_.min_items, type_.max_items
        if len(item) <= MAX_REPEATED_ITEM:
            if maximum is not None and 0 < maximum <= MAX_REPEATS and minimum <= maximum:
                return f"[{', '.join([item] * minimum + [self._optional(item)] * (maximum - minimum))}]"
            if 0 < minimum <= MAX_REPEATS:
                return f"[{', '.join([item] * minimum)}, {self._further(item)}]"
        return item + "[]"

    # In a recursive type, TypeScript reports a circular type for an array in an element with `?` or `...`, unless the
    # element has a name. So these elements are named wherever there are named types.

    def _optional(self, element: str) -> str:
        return f"item?: {element}" if self._names and "[" in element else element + "?"

    def _further(self, item: str) -> str:
        return f"...items: {item}[]" if self._names else f"...{item}[]"

    def object(self, type_: typetree.ObjectOf, *, alone: bool = True, docs: bool | None = None) -> str:
        """Return an object type, without its name if it has one.

        Args:
            alone: False for a member of an intersection, whose other members may add properties.
            docs: True to write comments on properties; None for the writer's default.
        """
        if not type_.properties and not type_.patterns:
            if type_.openness == "closed":
                return "Record<string, never>"
            if type_.rest is None:
                return "{ [key: string]: unknown }" if alone else "{}"
        if self._depth <= 0:
            return "{ ... }"
        self._depth -= 1
        docs = self._docs if docs is None else docs
        members = []
        documented = False
        for p in type_.properties:
            # An object has its own member for a required property, so an inherited one does not matter.
            if p.required:
                member = f"{property_name(p.name)}: {self.text(p.type)}"
            else:
                member = f"{property_name(p.name)}?: {'unknown' if p.name in _INHERITED else self.text(p.type)}"
            if docs and p.doc:
                member = f"/** {p.doc} */ {member}"
                documented = True
            members.append(member)
        members.extend(f"[key: `{template}`]: {self.text(t)}" for template, t in type_.patterns)
        if type_.rest is not None:
            members.append(f"[key: string]: {self._index(type_)}")
        elif type_.openness == "silent" and alone and not any(p.declared for p in type_.properties):
            # Only `required` names properties, so the author has not listed all of them.
            members.append("[key: string]: unknown")
        self._depth += 1
        if documented:
            # TypeScript shows a comment at a property only if the comment begins a line.
            return "{\n" + "".join([f"  {indented(member)};\n" for member in members]) + "}"
        return f"{{ {'; '.join(members)} }}"

    def _index(self, type_: typetree.ObjectOf) -> str:
        """Return the type of the index signature. TypeScript requires that it covers all named properties."""
        rest = type_.rest or typetree.UNKNOWN
        covered = typetree.union([rest, *[p.type for p in type_.properties], *[t for _, t in type_.patterns]])
        if isinstance(covered, typetree.Unknown):
            return "unknown"
        repeats = bool(type_.properties or type_.patterns)
        # The length is estimated first. Otherwise each nested object would be written twice at each level, so the time
        # would double with each level.
        if repeats and typetree.text_length(covered, 2 * MAX_INDEX) > 2 * MAX_INDEX:
            return "unknown"
        docs, self._docs = self._docs, False  # the properties themselves have the comments
        text = self.text(covered)
        self._docs = docs
        if repeats and len(text) > MAX_INDEX:
            return "unknown"
        optional = any(not p.required for p in type_.properties)
        return text + " | undefined" if optional else text


def property_name(name: str) -> str:
    """Return the name of a property in a type: an ASCII identifier unchanged, any other name as a string literal.

    `__proto__` is also written as a string literal.
    """
    if _PLAIN_NAME.fullmatch(name) and name != "__proto__":
        return name
    return typetree.string_literal(name)


def indented(text: str, by: str = "  ") -> str:
    """Return a text with all lines but the first indented."""
    return text.replace("\n", "\n" + by) if "\n" in text else text


def render_schema(schema: object, name: str | None = None, *, of_input: bool = False) -> str:
    """Return a schema as TypeScript. `of_input`: see `compile_schema`.

    Returns:
        A type expression. If the type needs named types or `name` is given, the result is declarations instead. The
        type `name` (default `T`) is then the type of the schema.
    """
    target = name or "T"
    compiled = compile_schema(schema, target, of_input=of_input)
    names = _type_names(compiled.definitions, {target} | _TAKEN_TYPE_NAMES, target)
    root = TypeWriter(names).text(compiled.root)
    if not compiled.definitions:
        return f"type {target} = {root};" if name else root
    lines = [] if compiled.root == typetree.Ref(target) else [f"type {target} = {root};"]
    return "\n".join([*lines, *_declared_types(compiled.definitions, names).values()])


def _declared_types(
    definitions: Mapping[str, typetree.Definition], names: Mapping[str, str], integer: str = "number | bigint"
) -> dict[str, str]:
    writer = TypeWriter(names, integer=integer)
    return {
        names[key]: (f"/** {definition.doc} */\n" if definition.doc else "")
        + f"type {names[key]} = {writer.text(definition.type)};"
        for key, definition in definitions.items()
    }


def _type_names(
    keys: Iterable[str],
    taken: Collection[str],
    target: str | None = None,
    *,
    also_taken: Collection[str] = (),
    numbers: dict[str, int] | None = None,
) -> dict[str, str]:
    """Return a TypeScript name for each definition: `my-def` becomes `MyDef`, or `MyDef_2` if that is taken.

    Args:
        numbers: the last number that was tried for each name. This function updates it, so that the search for a free
            name does not start from 2 each time.
    """
    names: dict[str, str] = {}
    used: set[str] = set()
    numbers = {} if numbers is None else numbers
    for key in keys:
        if key == target:
            names[key] = key
            continue
        words = "".join(word[0].upper() + word[1:] for word in _TYPE_NAME_WORD.findall(key))[:48]
        base = words if words and not words[0].isdigit() else "Type" + words
        name = base
        while name in used or name in taken or name in also_taken:
            number = numbers[base] = numbers.get(base, 1) + 1
            name = f"{base}_{number}"
        used.add(name)
        names[key] = name
    return names


class NamedTypes:
    """The named types of one file. Tools with equal definitions share them.

    Args:
        taken: names that are not available.
        integer: see `TypeWriter`.
    """

    def __init__(self, taken: Collection[str] = (), *, integer: str = "number | bigint") -> None:
        self._integer = integer
        self._shared: dict[typetree.ObjectOf, str] = {}
        self._plain_writer = TypeWriter({}, integer=integer, shared=self._shared)
        self._texts: dict[str, str] = dict.fromkeys(taken, "")
        self._numbers: dict[str, int] = {}

    def share(self, types: Iterable[tuple[str, typetree.Type]]) -> list[str]:
        """Name the object types that occur several times, and return their declarations. Call this before `declare`.

        Args:
            types: all types of the file, each with a name for it.
        """
        found: dict[typetree.ObjectOf, tuple[str, int]] = {}
        for name, type_ in types:
            _count_objects(type_, name, found)
        repeated = {
            type_: name
            for type_, (name, count) in found.items()
            if count > 1 and not refs(type_) and len(self._plain_writer.object(type_)) >= MIN_SHARED
        }
        for type_, name in repeated.items():
            key = _type_names([name], _TAKEN_TYPE_NAMES, also_taken=self._texts.keys(), numbers=self._numbers)[name]
            self._shared[type_] = key
            self._texts[key] = ""
        for type_, name in self._shared.items():
            self._texts[name] = f"type {name} = {self._plain_writer.object(type_)};"
        return [self._texts[name] for name in self._shared.values()]

    def declare(self, compiled: typetree.SchemaType) -> tuple[list[str], TypeWriter]:
        """Return the declarations that `compiled` adds to the file, and a writer that uses their names."""
        if not compiled.definitions:
            return [], self._plain_writer
        # First with names that ignore the other types of the file: types with the same name and text are shared. If a
        # name has another text already, all definitions of this schema get names that are free.
        names = _type_names(compiled.definitions, _TAKEN_TYPE_NAMES)
        texts = _declared_types(compiled.definitions, names, self._integer)
        if any(self._texts.get(name, text) != text for name, text in texts.items()):
            names = _type_names(
                compiled.definitions, _TAKEN_TYPE_NAMES, also_taken=self._texts.keys(), numbers=self._numbers
            )
            texts = _declared_types(compiled.definitions, names, self._integer)
        new = [text for name, text in texts.items() if name not in self._texts]
        self._texts.update(texts)
        return new, TypeWriter(names, integer=self._integer, shared=self._shared)


def _count_objects(type_: typetree.Type, name: str, found: dict[typetree.ObjectOf, tuple[str, int]]) -> None:
    """Count the object types in a type. Those within a repeated type are counted once, because it is written once.

    Args:
        name: a name for the type, or for its items.
        found: the first name and the number of each object type. This function updates it.
    """
    match type_:
        case typetree.ObjectOf(properties, _, rest, patterns):
            first, count = found.get(type_, (name, 0))
            found[type_] = first, count + 1
            if count == 0:
                for each in properties:
                    _count_objects(each.type, each.name, found)
                for _, each_type in (*patterns, *((("", rest),) if rest is not None else ())):
                    _count_objects(each_type, name + " value", found)
        case typetree.ArrayOf(items):
            _count_objects(items, _singular(name), found)
        case typetree.TupleOf(elements, _, rest):
            for element in elements if rest is None else (*elements, rest):
                _count_objects(element, name, found)
        case typetree.UnionOf(members) | typetree.IntersectionOf(members):
            for member in members:
                _count_objects(member, name, found)


def _singular(name: str) -> str:
    return name[:-1] if name.endswith("s") and not name.endswith(("ss", "us", "is")) else name
