"""Types as TypeScript expressions, declarations of named types, and one-line signatures of tools."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Protocol

from declarations.names import HOST_GLOBALS, LANGUAGE_GLOBALS, OBJECT_PROTOTYPE
from declarations.schema import compile_schema
from declarations.typetree import (
    ANY_OBJECT,
    UNKNOWN,
    ArrayOf,
    Constant,
    Definition,
    IntersectionOf,
    Never,
    ObjectOf,
    Ref,
    Scalar,
    SchemaType,
    TupleOf,
    Type,
    UnionOf,
    Unknown,
    string_literal,
    text_length,
    union,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

MAX_SIGNATURE: Final = 400
"""Characters of a signature."""

MAX_SHORT: Final = 80
"""Characters of a type in a signature that shows other types as `...`."""

MAX_INDEX: Final = 200
"""Characters of the type of an index signature. A longer one is `unknown`."""

MAX_REPEATED_ITEM: Final = 24
"""Characters of an item that is repeated in a tuple."""

MAX_REPEATS: Final = 6
"""Items of an array with bounds that is written as a tuple, if its items are short."""

_PLAIN_NAME: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_INHERITED: Final = frozenset(name for name in OBJECT_PROTOTYPE if not name.startswith("_"))
"""Members of every object in TypeScript: an optional property with such a name would refuse every object."""
_TYPE_NAME_WORD: Final = re.compile(r"[A-Za-z0-9]+")
GUEST_TYPE_NAMES: Final = HOST_GLOBALS | LANGUAGE_GLOBALS | {"ApiFile", "ApiHit", "Console", "ToolHit", "Tools"}
"""Names of types in `guest.d.ts` and in the declarations of the language, besides those below."""
# Types that a declaration uses, so none of its own may have these names.
_TAKEN_TYPE_NAMES: Final = frozenset({"McpApiHeader", "McpCall", "McpToolResult", "Promise", "Record", "String"})


class Renderable(Protocol):
    """The parts of a tool that its declaration needs; `upstream_clients.tools.Tool` has them."""

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
        names: names of definitions in this text.
        docs: whether properties have their comments.
        depth: levels of objects that are written. An object below them is `{ ... }`.
    """

    def __init__(self, names: Mapping[str, str], *, docs: bool = True, depth: int = 1_000) -> None:
        self._names = names
        self._docs = docs
        self._depth = depth

    def text(self, type_: Type) -> str:
        """Return the type as an expression, without parentheses around unions and intersections."""
        return _WRITERS[type(type_)](self, type_)

    def _atom(self, type_: Type) -> str:
        text = self.text(type_)
        return f"({text})" if isinstance(type_, (UnionOf, IntersectionOf)) else text

    def _unknown(self, type_: Unknown) -> str:
        return "unknown"

    def _never(self, type_: Never) -> str:
        return "never"

    def _scalar(self, type_: Scalar) -> str:
        return type_.name

    def _constant(self, type_: Constant) -> str:
        return type_.text

    def _ref(self, type_: Ref) -> str:
        return self._names[type_.name]

    def _union(self, type_: UnionOf) -> str:
        texts = dict.fromkeys([
            f"({self.text(m)})" if isinstance(m, IntersectionOf) else self.text(m) for m in type_.members
        ])  # fmt: skip
        return " | ".join(texts)

    def _intersection(self, type_: IntersectionOf) -> str:
        texts = [
            self.object(m, alone=False)
            if isinstance(m, ObjectOf)
            else f"({' | '.join(self._branch(b) for b in m.members)})"
            if isinstance(m, UnionOf)
            else self.text(m)
            for m in type_.members
        ]
        return " & ".join(dict.fromkeys(texts))

    def _branch(self, type_: Type) -> str:
        return self.object(type_, alone=False) if isinstance(type_, ObjectOf) else self._atom(type_)

    def _array(self, type_: ArrayOf) -> str:
        item = self._atom(type_.items)
        least, most = type_.min_items, type_.max_items
        if len(item) <= MAX_REPEATED_ITEM:
            if most is not None and 0 < most <= MAX_REPEATS and least <= most:
                return f"[{', '.join([item] * least + [self._optional(item)] * (most - least))}]"
            if 0 < least <= MAX_REPEATS:
                return f"[{', '.join([item] * least)}, {self._further(item)}]"
        return item + "[]"

    def _tuple(self, type_: TupleOf) -> str:
        elements = [self._atom(element) for element in type_.elements]
        texts = elements[: type_.required] + [self._optional(element) for element in elements[type_.required :]]
        if type_.rest is not None:
            texts.append(self._further(self._atom(type_.rest)))
        return f"[{', '.join(texts)}]"

    # TypeScript lets an array inside an element with `?` or `...` refer to the type that it is part of only if the
    # element has a name. Otherwise it reports a circular type.

    def _optional(self, element: str) -> str:
        return f"item?: {element}" if self._names and "[" in element else element + "?"

    def _further(self, item: str) -> str:
        return f"...items: {item}[]" if self._names else f"...{item}[]"

    def _object(self, type_: ObjectOf) -> str:
        return self.object(type_)

    def object(self, type_: ObjectOf, *, alone: bool = True, docs: bool | None = None) -> str:
        """Return an object type. `alone`: it is not a member of an intersection, whose other members add properties."""
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
            members.append("[key: string]: unknown")
        self._depth += 1
        if documented:
            # TypeScript takes a comment for a property's own only if a line begins with it.
            return "{\n" + "".join([f"  {indented(member)};\n" for member in members]) + "}"
        return f"{{ {'; '.join(members)} }}"

    def _index(self, type_: ObjectOf) -> str:
        """Return the type of the index signature. TypeScript requires that it covers every named property."""
        rest = type_.rest or UNKNOWN
        covered = union([rest, *[p.type for p in type_.properties], *[t for _, t in type_.patterns]])
        if isinstance(covered, Unknown):
            return "unknown"
        repeats = bool(type_.properties or type_.patterns)
        # Measured before it is written, because each nested object would write those inside it twice.
        if repeats and text_length(covered, 2 * MAX_INDEX) > 2 * MAX_INDEX:
            return "unknown"
        docs, self._docs = self._docs, False
        text = self.text(covered)
        self._docs = docs
        if repeats and len(text) > MAX_INDEX:
            return "unknown"
        optional = any(not p.required for p in type_.properties)
        return text + " | undefined" if optional else text


_WRITERS: Final[dict[type, Callable[[TypeWriter, Any], str]]] = {
    Unknown: TypeWriter._unknown,
    Never: TypeWriter._never,
    Scalar: TypeWriter._scalar,
    Constant: TypeWriter._constant,
    Ref: TypeWriter._ref,
    UnionOf: TypeWriter._union,
    IntersectionOf: TypeWriter._intersection,
    ArrayOf: TypeWriter._array,
    TupleOf: TypeWriter._tuple,
    ObjectOf: TypeWriter._object,
}


def property_name(name: str) -> str:
    """Return the name of a property in a type: a string literal for `__proto__` and all but ASCII identifiers."""
    if _PLAIN_NAME.fullmatch(name) and name != "__proto__":
        return name
    return string_literal(name)


def indented(text: str, by: str = "  ") -> str:
    """Return a text with all lines but the first indented."""
    return text.replace("\n", "\n" + by) if "\n" in text else text


def render_schema(schema: object, name: str | None = None) -> str:
    """Return a schema as TypeScript.

    Returns:
        A type expression. If the type needs named types or `name` is given: declarations, of which `name` (default `T`)
        is the type of the schema.
    """
    target = name or "T"
    compiled = compile_schema(schema, target)
    names = _type_names(compiled.definitions, {target} | _TAKEN_TYPE_NAMES, target)
    root = TypeWriter(names).text(compiled.root)
    if not compiled.definitions:
        return f"type {target} = {root};" if name else root
    lines = [] if compiled.root == Ref(target) else [f"type {target} = {root};"]
    return "\n".join([*lines, *_declared_types(compiled.definitions, names).values()])


def _declared_types(definitions: Mapping[str, Definition], names: Mapping[str, str]) -> dict[str, str]:
    """Return the declaration of each definition by its TypeScript name."""
    writer = TypeWriter(names)
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
        numbers: the last number tried, by name. This function updates it.
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


def _accepts_nothing(type_: Type, compiled: SchemaType, depth: int = 0) -> bool:
    """Return whether an empty object has the type, so that a call may omit its argument."""
    match type_:
        case Unknown():
            return True
        case ObjectOf(properties):
            return not any(p.required for p in properties)
        case UnionOf(members):
            return any(_accepts_nothing(member, compiled, depth) for member in members)
        case IntersectionOf(members):
            return all(_accepts_nothing(member, compiled, depth) for member in members)
        case Ref(name):
            return depth < 10 and _accepts_nothing(compiled.definitions[name].type, compiled, depth + 1)
        case _:
            return False


def argument(compiled: SchemaType) -> tuple[Type, str]:
    """Return the type of a call's argument, and the parameter's name with `: ` or `?: `."""
    root = ANY_OBJECT if isinstance(compiled.root, Unknown) else compiled.root
    return root, "input?: " if _accepts_nothing(root, compiled) else "input: "


def result_text(output: str | None, mark: str = "", *, plain: bool = False) -> str:
    """Return the type of a call. `plain`: its result is the value itself, not an MCP result."""
    bare = output is None or output == "unknown"
    if plain:
        return f"Promise<{'unknown' if bare else output}>"
    return "Promise<McpToolResult>" if bare else f"Promise<McpToolResult<{mark}{output}>>"


def signature(
    path: str,
    tool: Renderable,
    observed: Mapping[str, Any] | None = None,
    *,
    opening: str = "(",
    plain: bool = False,
) -> str:
    """Return the call in one line of at most about 400 characters, such as
    `MCP.github.createIssue(input: { owner: string; title: string }): Promise<McpToolResult<{ number: number }>>`.

    If it is too long, inner objects become `{ ... }`, first in the result, then in the input. After that optional
    properties lose their types.

    Args:
        observed: schema of earlier results, for a tool that declares none.
        opening: text before the argument.
        plain: whether the result is the value itself, not an MCP result.
    """
    path += opening
    arguments = compile_schema(tool.input_schema, "Input")
    returned = tool.output_schema if tool.output_schema is not None else observed
    result = None if returned is None else compile_schema(returned, "Output")
    mark = "/* observed */ " if tool.output_schema is None else ""
    root, parameter = argument(arguments)
    for input_depth, output_depth in ((9, 9), (9, 2), (3, 2), (2, 1), (1, 1), (1, 0)):
        written = _brief(root, arguments, input_depth)
        output = None if result is None else _brief(result.root, result, output_depth)
        line = f"{path}{parameter}{written}): {result_text(output, mark, plain=plain)}"
        if len(line) <= MAX_SIGNATURE:
            return line
    output = None if result is None else _brief(result.root, result, 0)
    room = MAX_SIGNATURE - len(path) - len(parameter) - len(result_text(output, mark, plain=plain)) - 3
    if room < MAX_SIGNATURE // 2:
        output, room = None, MAX_SIGNATURE - len(path) - len(parameter) - len(result_text(None, plain=plain)) - 3
    return f"{path}{parameter}{_names(root, arguments, room)}): {result_text(output, mark, plain=plain)}"


def _names(type_: Type, compiled: SchemaType, room: int) -> str:
    """Return as many properties as there is room for: required ones with types, optional ones by name."""
    if isinstance(type_, Ref):
        type_ = compiled.definitions[type_.name].type
    if not isinstance(type_, ObjectOf):
        return "{ ... }"
    writer = TypeWriter(_brief_names(compiled), docs=False, depth=0)
    typed = [f"{property_name(p.name)}: {_short(writer.text(p.type))}" for p in type_.properties if p.required]
    members = [*typed, *[f"{property_name(p.name)}?" for p in type_.properties if not p.required]]
    shown: list[str] = []
    room -= len("{ ... 1000 more }")
    for member in members:
        room -= len(member) + 2
        if room < 0:
            shown.append(f"... {len(members) - len(shown)} more")
            break
        shown.append(member)
    return f"{{ {'; '.join(shown)} }}"


def _short(text: str) -> str:
    return text if len(text) <= MAX_SHORT else "..."


def _brief(type_: Type, compiled: SchemaType, depth: int) -> str:
    if isinstance(type_, Ref) and depth > 0:
        type_ = compiled.definitions[type_.name].type
    return TypeWriter(_brief_names(compiled), docs=False, depth=depth).text(type_)


def _brief_names(compiled: SchemaType) -> dict[str, str]:
    """Return replacements for named types where they are not declared."""
    return {key: "{ ... }" if isinstance(d.type, ObjectOf) else "unknown" for key, d in compiled.definitions.items()}


class NamedTypes:
    """The named types of one file. Tools with equal definitions share them. No name is one of `taken`."""

    def __init__(self, taken: Collection[str] = ()) -> None:
        self._texts: dict[str, str] = dict.fromkeys(taken, "")
        self._numbers: dict[str, int] = {}

    def declare(self, compiled: SchemaType) -> tuple[list[str], TypeWriter]:
        """Return the declarations that `compiled` needs and the file lacks, and a writer that knows their names."""
        if not compiled.definitions:
            return [], _PLAIN_WRITER
        names = _type_names(compiled.definitions, _TAKEN_TYPE_NAMES)
        texts = _declared_types(compiled.definitions, names)
        if any(self._texts.get(name, text) != text for name, text in texts.items()):
            names = _type_names(
                compiled.definitions, _TAKEN_TYPE_NAMES, also_taken=self._texts.keys(), numbers=self._numbers
            )
            texts = _declared_types(compiled.definitions, names)
        new = [text for name, text in texts.items() if name not in self._texts]
        self._texts.update(texts)
        return new, TypeWriter(names)


_PLAIN_WRITER: Final = TypeWriter({})
