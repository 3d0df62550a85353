"""Types as TypeScript: expressions, one declaration file per server, the index file, one-line signatures. Pure: no I/O.

Every file declares the global interfaces that it uses, so that it compiles alone, beside all others, and beside
`guest.d.ts`: interfaces of one name merge, and these say the same everywhere. (`McpToolResult` inherits its index
signature because a repeated one would be an error.)
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from declarations.jsdoc import (
    MAX_PROPERTY_TEXT,
    MAX_PROPERTY_TEXT_ALONE,
    MAX_TOOL_TEXT,
    MAX_TOOL_TEXT_ALONE,
    comment_line,
    comment_lines,
)
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
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

MAX_SIGNATURE: Final = 400
MAX_SHORT: Final = 80
"""Length of a type in a signature of which only names are shown otherwise."""
MAX_LINE: Final = 120
"""A comment of one line that is longer is written as a block."""
MAX_INDEX: Final = 200
"""Length of the type of an index signature; a longer one is `unknown`."""
MANY_FUNCTIONS: Final = 4
"""A parameter that so many functions of a file describe in the same words is described once, at the head."""
LARGE_FILE: Final = 8 * 1024
"""Bytes from which on a file begins with a list of what it holds."""
MANY_NAMES: Final = 3
"""Names that begin with the same word are listed as `create{Issue,Label,Milestone}` from this number on."""
MAX_REPEATED_ITEM: Final = 24
MAX_REPEATS: Final = 6
"""An array with bounds is a tuple of up to so many repeated, short items."""


class Renderable(Protocol):
    """A tool as far as its declaration goes; `upstream_clients.tools.Tool` is one."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def input_schema(self) -> Mapping[str, Any]: ...
    @property
    def output_schema(self) -> Mapping[str, Any] | None: ...


@dataclass(frozen=True, slots=True)
class ServerSummary:
    """One line of `mcp/index.d.ts`.

    Attributes:
        identifier: the name under `MCP`.
        name: the server's name in the configuration.
        status: a word such as `ready` or `down`.
    """

    identifier: str
    name: str
    tool_count: int
    status: str = "ready"
    description: str = ""


RESULT_TYPE: Final = (
    "interface McpToolResult<T = unknown> extends Record<string, unknown> "
    "{ content?: unknown[]; structuredContent?: T; isError?: boolean }"
)
HEADER_TYPE: Final = (
    'interface McpApiHeader { kind: "mcp_api"; scope: "root" | "server" | "tool"; header: string; '
    "servers?: { identifier: string; serverName: string; toolCount: number; status: string }[]; "
    'tools?: { method: string; mcpTool: string; operation: "tool" | "resource" | "prompt"; description: string }[]; '
    "schemas?: Record<string, unknown> }"
)
_HEADER_TYPE_IN_SERVER: Final = 'interface McpApiHeader { kind: "mcp_api"; header: string } // more: mcp/index.d.ts'

OPTIONS_TYPE: Final = "interface McpCall { timeoutMs?: number }"
"""What a call takes after its argument; that a call takes it must cost few bytes."""

_COMPLETION: Final = (
    "argument: { name: string; value: string }; context?: { arguments?: Record<string, string> } }, o?: McpCall): "
    "Promise<{ completion: { values: string[]; total?: number; hasMore?: boolean } }>"
)
_CONTENTS: Final = (
    "{ uri: string; mimeType?: string } & ({ text: string; blob?: undefined } | { blob: string; text?: undefined })"
)
_CONTENT: Final = (
    '{ type: "text"; text: string } | { type: "image" | "audio"; data: string; mimeType: string } | '
    f'{{ type: "resource"; resource: {_CONTENTS} }} | '
    '{ type: "resource_link"; uri: string; name: string; mimeType?: string }'
)

_GROUPS: Final = {
    "resources": {
        "list": (
            "/** All resources. A `nextCursor` says that there are more; with `cursor`, one page. */",
            "(input?: { cursor?: string }, o?: McpCall): Promise<{ resources: { uri: string; name: string; "
            "title?: string; description?: string; mimeType?: string; size?: number }[]; nextCursor?: string }>",
        ),
        "read": (
            "/** The contents of one resource; `image(result)` shows those with a `blob` (base64). */",
            f"(input: {{ uri: string }}, o?: McpCall): Promise<{{ contents: ({_CONTENTS})[] }}>",
        ),
        "templates": (
            "/** All URI templates; `read` takes a URI made from one. */",
            "(input?: { cursor?: string }, o?: McpCall): Promise<{ resourceTemplates: { uriTemplate: string; "
            "name: string; title?: string; description?: string; mimeType?: string }[]; nextCursor?: string }>",
        ),
        "complete": (
            "/** Values for a variable of a template, whose `uriTemplate` is the `uri`. */",
            f"(input: {{ uri: string; {_COMPLETION}",
        ),
    },
    "prompts": {
        "list": (
            "/** All prompts. A `nextCursor` says that there are more; with `cursor`, one page. */",
            "(input?: { cursor?: string }, o?: McpCall): Promise<{ prompts: { name: string; title?: string; "
            "description?: string; arguments?: { name: string; description?: string; required?: boolean }[] }[]; "
            "nextCursor?: string }>",
        ),
        "get": (
            "/** One prompt, filled in. */",
            "(input: { name: string; arguments?: Record<string, string> }, o?: McpCall): Promise<{ "
            f'description?: string; messages: {{ role: "user" | "assistant"; content: {_CONTENT} }}[] }}>',
        ),
        "complete": (
            "/** Values for an argument of a prompt. */",
            f"(input: {{ name: string; {_COMPLETION}",
        ),
    },
}
"""The operations on resources and prompts: comment, and what follows the function's name."""

_PLAIN_NAME: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_INHERITED: Final = frozenset(name for name in OBJECT_PROTOTYPE if not name.startswith("_"))
"""What TypeScript finds on every object: of another type, such an optional property would refuse all of them."""
_TYPE_NAME_WORD: Final = re.compile(r"[A-Za-z0-9]+")
_GUEST_TYPE_NAMES: Final = HOST_GLOBALS | LANGUAGE_GLOBALS | {"ApiFile", "ApiHit", "Console", "ToolHit", "Tools"}
"""What `guest.d.ts` and the language's own declarations call their types, beside those below."""
# Types that a rendered declaration uses and must not shadow with one of its own.
_TAKEN_TYPE_NAMES: Final = frozenset({"McpApiHeader", "McpCall", "McpToolResult", "Promise", "Record", "String"})


# ---------------------------------------------------------------------------------------------------------------------
# Expressions


class _Writer:
    """Writes types as text.

    Args:
        names: how definitions are called in this text.
        docs: whether properties carry their comments.
        depth: how many objects deep to write; the next one is `{ ... }`.
    """

    def __init__(self, names: Mapping[str, str], *, docs: bool = True, depth: int = 1_000) -> None:
        self._names = names
        self._docs = docs
        self._depth = depth

    def text(self, type_: Type) -> str:
        """The type as an expression; unions and intersections come without parentheses."""
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

    # An array inside an element with `?` or `...` may refer to the type that it is part of only if the element has a
    # name; else TypeScript finds that the type refers to itself.

    def _optional(self, element: str) -> str:
        return f"item?: {element}" if self._names and "[" in element else element + "?"

    def _further(self, item: str) -> str:
        return f"...items: {item}[]" if self._names else f"...{item}[]"

    def _object(self, type_: ObjectOf) -> str:
        return self.object(type_)

    def object(self, type_: ObjectOf, *, alone: bool = True, docs: bool | None = None) -> str:
        """One object type; `alone` when it is not part of an intersection, whose members say what else there may be."""
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
            return "{\n" + "".join([f"  {_indented(member)};\n" for member in members]) + "}"
        return f"{{ {'; '.join(members)} }}"

    def _index(self, type_: ObjectOf) -> str:
        """The type of the index signature, which TypeScript wants to cover every named property too."""
        rest = type_.rest or UNKNOWN
        covered = union([rest, *[p.type for p in type_.properties], *[t for _, t in type_.patterns]])
        if isinstance(covered, Unknown):
            return "unknown"
        repeats = bool(type_.properties or type_.patterns)
        # Measured before it is written: of nested objects, each would write those inside it twice.
        if repeats and text_length(covered, 2 * MAX_INDEX) > 2 * MAX_INDEX:
            return "unknown"
        docs, self._docs = self._docs, False
        text = self.text(covered)
        self._docs = docs
        if repeats and len(text) > MAX_INDEX:
            return "unknown"
        optional = any(not p.required for p in type_.properties)
        return text + " | undefined" if optional else text


_WRITERS: Final[dict[type, Callable[[_Writer, Any], str]]] = {
    Unknown: _Writer._unknown,
    Never: _Writer._never,
    Scalar: _Writer._scalar,
    Constant: _Writer._constant,
    Ref: _Writer._ref,
    UnionOf: _Writer._union,
    IntersectionOf: _Writer._intersection,
    ArrayOf: _Writer._array,
    TupleOf: _Writer._tuple,
    ObjectOf: _Writer._object,
}


def property_name(name: str) -> str:
    """A property's name in a type: bare if it is an ASCII identifier, else a string literal; `__proto__` always one."""
    if _PLAIN_NAME.fullmatch(name) and name != "__proto__":
        return name
    return string_literal(name)


def _indented(text: str, by: str = "  ") -> str:
    return text.replace("\n", "\n" + by) if "\n" in text else text


# ---------------------------------------------------------------------------------------------------------------------
# Schemas


def render_schema(schema: object, name: str | None = None) -> str:
    """A schema as TypeScript.

    Returns:
        A bare type expression, or, if the type needs named types or `name` is given, declarations of which the one
        called `name` (default `T`) is the schema's.
    """
    target = name or "T"
    compiled = compile_schema(schema, target)
    names = _type_names(compiled.definitions, {target} | _TAKEN_TYPE_NAMES, target)
    root = _Writer(names).text(compiled.root)
    if not compiled.definitions:
        return f"type {target} = {root};" if name else root
    lines = [] if compiled.root == Ref(target) else [f"type {target} = {root};"]
    return "\n".join([*lines, *_declared_types(compiled.definitions, names).values()])


def _declared_types(definitions: Mapping[str, Definition], names: Mapping[str, str]) -> dict[str, str]:
    """The declaration of each definition, by its TypeScript name."""
    writer = _Writer(names)
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
    """A TypeScript name for each definition: `my-def` is `MyDef`, and `MyDef_2` where that is taken.

    Args:
        numbers: by name, the least number that is worth trying; kept up to date.
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


# ---------------------------------------------------------------------------------------------------------------------
# Tools


def _accepts_nothing(type_: Type, compiled: SchemaType, depth: int = 0) -> bool:
    """Whether an empty object is of the type, so that a call may leave its argument out."""
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


def _argument(compiled: SchemaType) -> tuple[Type, str]:
    """The type of a call's argument and how the parameter begins."""
    root = ANY_OBJECT if isinstance(compiled.root, Unknown) else compiled.root
    return root, "input?: " if _accepts_nothing(root, compiled) else "input: "


def _result(output: str | None, mark: str = "", *, plain: bool = False) -> str:
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
    """The call in one line of at most about 400 characters, such as
    `MCP.github.createIssue(input: { owner: string; title: string }): Promise<McpToolResult<{ number: number }>>`.

    Where that is too long, inner objects become `{ ... }`, the result before the input; then optional properties lose
    their types.

    Args:
        observed: the schema of results seen earlier, for a tool that declares none.
        opening: what stands before the argument.
        plain: whether the result is the value itself, and no MCP result.
    """
    path += opening
    arguments = compile_schema(tool.input_schema, "Input")
    returned = tool.output_schema if tool.output_schema is not None else observed
    result = None if returned is None else compile_schema(returned, "Output")
    mark = "/* observed */ " if tool.output_schema is None else ""
    root, parameter = _argument(arguments)
    for input_depth, output_depth in ((9, 9), (9, 2), (3, 2), (2, 1), (1, 1), (1, 0)):
        written = _brief(root, arguments, input_depth)
        output = None if result is None else _brief(result.root, result, output_depth)
        line = f"{path}{parameter}{written}): {_result(output, mark, plain=plain)}"
        if len(line) <= MAX_SIGNATURE:
            return line
    output = None if result is None else _brief(result.root, result, 0)
    room = MAX_SIGNATURE - len(path) - len(parameter) - len(_result(output, mark, plain=plain)) - 3
    if room < MAX_SIGNATURE // 2:
        output, room = None, MAX_SIGNATURE - len(path) - len(parameter) - len(_result(None, plain=plain)) - 3
    return f"{path}{parameter}{_names(root, arguments, room)}): {_result(output, mark, plain=plain)}"


def _names(type_: Type, compiled: SchemaType, room: int) -> str:
    """As many of an object's properties as there is room for: the required ones with their types, others by name."""
    if isinstance(type_, Ref):
        type_ = compiled.definitions[type_.name].type
    if not isinstance(type_, ObjectOf):
        return "{ ... }"
    writer = _Writer(_brief_names(compiled), docs=False, depth=0)
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
    return _Writer(_brief_names(compiled), docs=False, depth=depth).text(type_)


def _brief_names(compiled: SchemaType) -> dict[str, str]:
    """What stands for named types where they are not declared."""
    return {key: "{ ... }" if isinstance(d.type, ObjectOf) else "unknown" for key, d in compiled.definitions.items()}


class _NamedTypes:
    """The named types of one file, shared by the tools that mean the same by them; none of them is one of `taken`."""

    def __init__(self, taken: Collection[str] = ()) -> None:
        self._texts: dict[str, str] = dict.fromkeys(taken, "")
        self._numbers: dict[str, int] = {}

    def declare(self, compiled: SchemaType) -> tuple[list[str], _Writer]:
        """New declarations that `compiled` needs, and a writer that knows their names."""
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
        return new, _Writer(names)


_PLAIN_WRITER: Final = _Writer({})


def render_server(
    identifier: str,
    tools: Sequence[tuple[str, Renderable]],
    *,
    server_name: str | None = None,
    description: str = "",
    notes: Sequence[str] = (),
    resources: Collection[str] = (),
    prompts: Collection[str] = (),
    observed: Mapping[str, Mapping[str, Any]] | None = None,
) -> str:
    """The content of `mcp/<identifier>.d.ts`. Arguments as those of `ServerFile` and its `whole`."""
    file = ServerFile(
        identifier,
        tools,
        server_name=server_name,
        description=description,
        notes=notes,
        resources=resources,
        prompts=prompts,
    )
    return file.whole(observed)


class ServerFile:
    """The declarations of one server. What is written once is kept, so that a new observation costs one function.

    Args:
        identifier: the server's name under `MCP`.
        tools: identifier and tool, in the order to show them.
        server_name: the server's name in the configuration, if it is another one.
        description: what the server is for, in its own or the operator's words.
        notes: lines for the head of the file, such as that the server is down.
        resources, prompts: the operations on them that there are: `list`, `read`, `templates`, `complete`; `list`,
            `get`, `complete`.
    """

    def __init__(
        self,
        identifier: str,
        tools: Sequence[tuple[str, Renderable]],
        *,
        server_name: str | None = None,
        description: str = "",
        notes: Sequence[str] = (),
        resources: Collection[str] = (),
        prompts: Collection[str] = (),
    ) -> None:
        self._identifier = identifier
        self._called = comment_line(server_name if server_name is not None else identifier)
        self._description = comment_lines(description)
        self._notes = [line for note in notes for line in comment_lines(note)]
        self._tools = dict(tools)
        self._groups = {"resources": frozenset(resources), "prompts": frozenset(prompts)}
        self._common: dict[str, str] = {}
        self._written: list[_Written] | None = None
        self._whole: tuple[list[Mapping[str, Any] | None], str] | None = None

    @property
    def path(self) -> str:
        return f"mcp/{self._identifier}.d.ts"

    def whole(self, observed: Mapping[str, Mapping[str, Any]] | None = None) -> str:
        """All of it.

        Args:
            observed: by tool name, the schema of results seen earlier, for tools that declare none. A schema that has
                changed is another object.
        """
        if self._written is None:
            # The functions are not kept: their types take much more room than their text.
            functions = [_Function(name, tool) for name, tool in self._tools.items()]
            self._common = _common_parameters(functions)
            types = _NamedTypes()
            self._written = [function.write(types, self._common) for function in functions]
        seen = [(observed or {}).get(written.tool) for written in self._written]
        if self._whole is not None and all(map(operator.is_, self._whole[0], seen)):
            return self._whole[1]
        body = "".join(
            (
                f"{RESULT_TYPE}\n{OPTIONS_TYPE}\n{_HEADER_TYPE_IN_SERVER}\n",
                f"declare namespace MCP.{self._identifier} {{\n",
                "  /** Return this API header. */\n",
                "  function $api(toolName?: string, options?: { schema?: boolean }): Promise<McpApiHeader>;\n",
                *[written.text(schema) for written, schema in zip(self._written, seen, strict=True)],
                *[_group(group, operations) for group, operations in self._groups.items()],
                "}\n",
            )
        )
        text = self._head(len(body.encode())) + body
        self._whole = seen, text
        return text

    def some(self, names: Iterable[str], observed: Mapping[str, Mapping[str, Any]] | None = None) -> str:
        """A file with these members alone, complete in itself.

        Args:
            names: identifiers of tools, `resources`, `prompts`, or one operation such as `resources.read`.

        Raises:
            KeyError: there is no such member.
        """
        types = _NamedTypes()
        functions: list[str] = []
        groups: dict[str, set[str]] = {}
        for name in dict.fromkeys(names):
            if name in self._tools:
                written = _Function(name, self._tools[name], alone=True).write(types, {})
                functions.append(written.text((observed or {}).get(written.tool)))
                continue
            group, _, operation = name.partition(".")
            there = self._groups[group]
            if not there or (operation and operation not in there):
                raise KeyError(name)
            groups.setdefault(group, set()).update([operation] if operation else there)
        return "".join(
            (
                _comment([f'Part of {self.path}, of MCP server "{self._called}".', *self._notes]),
                f"{RESULT_TYPE}\n" if functions else "",
                f"{OPTIONS_TYPE}\n",
                f"declare namespace MCP.{self._identifier} {{\n",
                *functions,
                *[_group(group, operations) for group, operations in groups.items()],
                "}\n",
            )
        )

    def _head(self, size: int) -> str:
        """The comment at the top of a file whose rest has so many bytes."""
        count = f"{len(self._tools)} tool{'' if len(self._tools) == 1 else 's'}"
        usage = f"await MCP.{self._identifier}.<tool>({{ ... }}); unwrap(result) is its value."
        first = f'{count} of MCP server "{self._called}". {usage}'
        rest = [*self._description, *self._notes]
        common = []
        if self._common:
            common.append("What these parameters mean wherever a function does not say otherwise:")
            common.extend([f"@param {name} {doc}" for name, doc in self._common.items()])
        head = _comment([first, *rest, *common])
        size += len(head.encode())
        if size <= LARGE_FILE or len(self._tools) < 2:
            return head
        names = [*self._tools, *(group for group, operations in self._groups.items() if operations)]
        reading = f'API.read("{self.path}#<tool>") gives one tool, "#<tool>,<tool>" several, and what … cuts here'
        contents = f"{round(size / 1024)} KB; {reading}. Tools: {_listed(names)}"
        return _comment([first, *rest, contents, *common])


_FIRST_WORD: Final = re.compile("[a-z]+(?=[A-Z0-9_])")


def _listed(names: Sequence[str]) -> str:
    """Names in a line, those with the same first word together: `addLabel, create{Issue,Label,Milestone}`."""
    groups: dict[str, list[str]] = {}
    for name in names:
        match = _FIRST_WORD.match(name)
        # The blank keeps `create` apart from `createIssue`.
        groups.setdefault(match[0] if match else name + " ", []).append(name)
    listed = []
    for word, members in groups.items():
        if len(members) < MANY_NAMES:
            listed.extend(members)
        else:
            listed.append(f"{word}{{{','.join([member[len(word) :] for member in members])}}}")
    return ", ".join(listed)


def _group(group: str, wanted: Collection[str]) -> str:
    """The namespace `resources` or `prompts` with the operations wanted."""
    shown = [
        f"    {doc}\n    function {name}{rest};\n" for name, (doc, rest) in _GROUPS[group].items() if name in wanted
    ]
    return f"  namespace {group} {{\n{''.join(shown)}  }}\n" if shown else ""


class _Function:
    """One tool on its way into a file."""

    def __init__(self, identifier: str, tool: Renderable, *, alone: bool = False) -> None:
        self._identifier = identifier
        self._tool = tool
        self._type_name = identifier[:1].upper() + identifier[1:]
        self._text = MAX_TOOL_TEXT_ALONE if alone else MAX_TOOL_TEXT
        self._property_text = MAX_PROPERTY_TEXT_ALONE if alone else MAX_PROPERTY_TEXT
        self._input = compile_schema(tool.input_schema, self._type_name + "Input", self._property_text)
        self.parameters: dict[str, str] = {}
        """What is said about each top-level property, by its name as written."""
        if isinstance(self._input.root, ObjectOf):
            self.parameters = {comment_line(property_name(p.name)): p.doc for p in self._input.root.properties}

    def write(self, types: _NamedTypes, common: Mapping[str, str]) -> _Written:
        """The function for a file with these named types, and these comments on parameters at its head."""
        declared, writer = types.declare(self._input)
        root, parameter = _argument(self._input)
        # The properties of the argument are described in the function's comment, those deeper down where they stand.
        written = writer.object(root, docs=False) if isinstance(root, ObjectOf) else writer.text(root)
        output = None
        if self._tool.output_schema is not None:
            result = compile_schema(self._tool.output_schema, self._type_name + "Output", self._property_text)
            more, writer = types.declare(result)
            declared += more
            output = writer.text(result.root)
        doc = comment_lines(self._tool.description, self._text)
        # A bare `@param` says that what is common does not hold here.
        doc.extend(
            [f"@param {name} {text}".rstrip() for name, text in self.parameters.items() if common.get(name, "") != text]
        )
        names = [f"@name {comment_line(self._tool.name)}"] if self._is_renamed() else []
        return _Written(
            self._tool.name,
            "".join([f"  {_indented(text)}\n" for text in declared]),
            doc,
            names,
            f"{self._identifier}({parameter}{_indented(written)}, o?: McpCall)",
            output,
            observable=self._tool.output_schema is None,
        )

    def _is_renamed(self) -> bool:
        """Whether the tool's name has other letters than its identifier, so that nobody could guess it."""
        return "".join(filter(str.isalnum, self._tool.name)).lower() != self._identifier.lower()


@dataclass(slots=True)
class _Written:
    """A function as text, but for what is observed of its results.

    Attributes:
        tool: its name.
        types: declarations of the named types that it brings along.
        doc: lines of its comment; `last` are those that come after what is said of the result.
        call: `createIssue(input: { title: string })`.
        output: the type of the result, if the tool declares one.
        observable: whether it declares none.
        kept: the type of what was observed last.
    """

    tool: str
    types: str
    doc: list[str]
    last: list[str]
    call: str
    output: str | None
    observable: bool
    kept: tuple[Mapping[str, Any], str] | None = None

    def text(self, observed: Mapping[str, Any] | None) -> str:
        """Types, comment and function."""
        output, doc = self.output, self.doc
        if observed is not None and self.observable:
            if self.kept is None or self.kept[0] is not observed:
                seen = compile_schema(observed, "Output")
                # Nothing recurs in what was observed, so no type of it has a name.
                self.kept = observed, _Writer(dict.fromkeys(seen.definitions, "unknown")).text(seen.root)
            output = self.kept[1]
            doc = [*doc, "@returns Shape observed in earlier results; the server declares none."]
        comment = _comment([*doc, *self.last], "  ")
        return f"{self.types}{comment}  function {self.call}: {_indented(_result(output))};\n"


def _common_parameters(functions: Iterable[_Function]) -> dict[str, str]:
    """The parameters that many functions describe in the same words: said once, they make a file much shorter."""
    said: dict[str, dict[str, int]] = {}
    for function in functions:
        for name, doc in function.parameters.items():
            counts = said.setdefault(name, {})
            counts[doc] = counts.get(doc, 0) + 1
    common = {}
    for name, counts in said.items():
        doc, count = max(counts.items(), key=lambda item: item[1])
        if doc and count >= MANY_FUNCTIONS:
            common[name] = doc
    return common


def _comment(lines: Sequence[str], indent: str = "") -> str:
    if not lines:
        return ""
    line = " ".join(lines) if len(lines) <= 2 else ""
    if line and len(line) <= MAX_LINE:
        return f"{indent}/** {line} */\n"
    return f"{indent}/**\n" + "".join([f"{indent} * {line}\n" for line in lines]) + f"{indent} */\n"


def render_tools(tools: Sequence[tuple[str, str | None, Renderable]]) -> str:
    """The content of `tools.d.ts`: what `Tools` of `guest.d.ts` has for each tool that is no MCP tool.

    Args:
        tools: id, name after `tools.` if it has one, and the tool.
    """
    types = _NamedTypes(_GUEST_TYPE_NAMES | {"ToolCatalogEntry"})
    declared: list[str] = []
    members: list[str] = []
    for number, (tool_id, name, tool) in enumerate(tools):
        function = _Function(f"tool{number}", tool)
        written = function.write(types, {})
        declared.append(written.types)
        parameters = written.call.partition("(")[2]
        result = _indented(_result(written.output, plain=True))
        comment = _comment([*written.doc, *written.last], "  ")
        if name is not None:
            members.append(f"{comment}  {name}({parameters}: {result};\n")
        members.append(f"{comment}  call(id: {string_literal(tool_id)}, {parameters}: {result};\n")
    head = _comment(["The tools that are no MCP tools: by their ids, and by name where that is unambiguous."])
    return f"{head}{OPTIONS_TYPE}\n{''.join(declared)}interface Tools {{\n{''.join(members)}}}\n"


@dataclass(frozen=True, slots=True)
class ScopeFunction:
    """A function in the scope of a namespace.

    Attributes:
        tool: name of the tool that it calls.
        mapped: what it takes is not the tool's input, and not known.
    """

    tool: str
    mapped: bool = False


@dataclass(frozen=True, slots=True)
class ScopeObject:
    """An object in the scope of a namespace, or the scope itself.

    Attributes:
        members: by name; data as the expression of its type.
        more: it has other members too.
    """

    members: Mapping[str, ScopeObject | ScopeFunction | str]
    more: bool = False


@dataclass(frozen=True, slots=True)
class NamespaceSummary:
    """One global of `namespaces.d.ts`.

    Attributes:
        global_name: an identifier.
        tools: the tools that it calls, by id.
        scope: what is in it, for one program; None: not known.
    """

    global_name: str
    description: str
    tools: Mapping[str, Renderable | None]
    prompt: str = ""
    scope: ScopeObject | None = None


_ANY_MEMBERS: Final = "{ readonly [name: string]: any }"


def render_namespaces(namespaces: Sequence[NamespaceSummary]) -> str:
    """Return the content of `namespaces.d.ts`."""
    types = _NamedTypes(_GUEST_TYPE_NAMES | {each.global_name for each in namespaces})
    declared: list[str] = []
    text = ""
    for each in namespaces:
        tools = comment_line(", ".join(each.tools), MAX_TOOL_TEXT)
        lines = [
            *comment_lines(each.description),
            *comment_lines(each.prompt),
            f"The same as namespaces.{each.global_name}. Calls {tools}; see tools.describe(id).",
        ]
        by_name = {tool.name: tool for tool in each.tools.values() if tool is not None}
        scope = _ANY_MEMBERS
        if each.scope is not None:
            scope = _Scope(by_name, types, declared, each.global_name).text(each.scope)
        text += f"{_comment(lines)}declare const {each.global_name}: {scope};\n"
    head = [
        "Namespaces of plugins: data, and functions that call tools, made for each program.",
        "Each is a global and a member of `namespaces`; print one to see what is in it.",
    ]
    return _comment(head) + "".join(declared) + text


class _Scope:
    """Writes the scope of one namespace as a type.

    Args:
        tools: by name.
        declared: takes the named types that are needed.
    """

    def __init__(
        self, tools: Mapping[str, Renderable], types: _NamedTypes, declared: list[str], global_name: str
    ) -> None:
        self._tools = tools
        self._types = types
        self._declared = declared
        self._global_name = global_name

    def text(self, scope: ScopeObject, indent: str = "") -> str:
        """Return the type of an object whose closing brace has this indentation."""
        inner = indent + "  "
        members = [self._member(name, each, inner) for name, each in scope.members.items()]
        if scope.more:
            members.append(f"{inner}readonly [name: string]: any;\n")
        return f"{{\n{''.join(members)}{indent}}}" if members else "Record<string, never>"

    def _member(self, name: str, value: ScopeObject | ScopeFunction | str, indent: str) -> str:
        written = property_name(name)
        match value:
            case str():
                return f"{indent}readonly {written}: {value};\n"
            case ScopeObject():
                return f"{indent}readonly {written}: {self.text(value, indent)};\n"
        tool = self._tools.get(value.tool)
        if tool is None:
            return f"{indent}{written}(...args: any[]): Promise<any>;\n"
        function = _Function(f"{self._global_name}{value.tool.title().replace('-', '')}", tool).write(self._types, {})
        self._declared.extend(line.removeprefix("  ") for line in function.types.splitlines(keepends=True))
        output = "any" if function.output in (None, "unknown") else _indented(str(function.output), indent)
        if value.mapped:
            comment = _comment(comment_lines(tool.description), indent)
            return f"{comment}{indent}{written}(...args: any[]): Promise<{output}>;\n"
        comment = _comment(function.doc, indent)
        # A function of a namespace takes the tool's input alone.
        taken = _indented(function.call.partition("(")[2].removesuffix(", o?: McpCall)"), indent[:-2])
        return f"{comment}{indent}{written}({taken}): Promise<{output}>;\n"


def render_index(servers: Sequence[ServerSummary]) -> str:
    """The content of `mcp/index.d.ts`: the types that all servers share, and one line per server."""
    lines = [
        "The MCP servers of this program. Read mcp/<identifier>.d.ts for the functions of one;",
        'API.search("...") finds tools in all of them.',
    ]
    for server in servers:
        named = "" if server.name == server.identifier else f' "{comment_line(server.name, 100)}"'
        about = f": {comment_line(server.description, 200)}" if server.description else ""
        count = f"{server.tool_count} tool{'' if server.tool_count == 1 else 's'}"
        lines.append(f"MCP.{server.identifier}{named} ({count}, {comment_line(server.status, 100)}){about}")
    return (
        f"{_comment(lines)}{RESULT_TYPE}\n{HEADER_TYPE}\n"
        "declare namespace MCP {\n"
        "  /** Return the header of the whole API. */\n"
        "  function $api(): Promise<McpApiHeader>;\n"
        "}\n"
    )
