"""Types as TypeScript: expressions, one declaration file per server, the index file, one-line signatures. Pure: no I/O.

Every file declares the global interfaces that it uses, so that it compiles alone, beside all others, and beside
`guest.d.ts`: interfaces of one name merge, and these say the same everywhere. (`McpToolResult` inherits its index
signature because a repeated one would be an error.)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from declarations.jsdoc import comment_line, comment_lines
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
    union,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence, Set

MAX_SIGNATURE: Final = 400
MAX_LINE: Final = 120
"""A comment of one line that is longer is written as a block."""
MAX_INDEX: Final = 200
"""Length of the type of an index signature; a longer one is `unknown`."""
MANY_FUNCTIONS: Final = 4
"""A parameter that so many functions of a file describe in the same words is described once, at the head."""
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

_RESOURCES: Final = """\
  namespace resources {
    /** One page of the resources. */
    function list(input?: { cursor?: string }): Promise<{ resources: { uri: string; name: string; title?: string; \
description?: string; mimeType?: string; size?: number }[]; nextCursor?: string }>;
    /** The contents of one resource. */
    function read(input: { uri: string }): \
Promise<{ contents: { uri: string; mimeType?: string; text?: string; blob?: string }[] }>;
    /** One page of the URI templates of resources. */
    function templates(input?: { cursor?: string }): Promise<{ resourceTemplates: { uriTemplate: string; name: string; \
title?: string; description?: string; mimeType?: string }[]; nextCursor?: string }>;
  }
"""
_PROMPTS: Final = """\
  namespace prompts {
    /** One page of the prompts. */
    function list(input?: { cursor?: string }): Promise<{ prompts: { name: string; title?: string; \
description?: string; arguments?: { name: string; description?: string; required?: boolean }[] }[]; \
nextCursor?: string }>;
    /** One prompt, filled in. */
    function get(input: { name: string; arguments?: Record<string, string> }): \
Promise<{ description?: string; messages: { role: "user" | "assistant"; content: unknown }[] }>;
  }
"""

_PLAIN_NAME: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_TYPE_NAME_WORD: Final = re.compile(r"[A-Za-z0-9]+")
# Types that a rendered declaration uses and must not shadow with one of its own.
_TAKEN_TYPE_NAMES: Final = frozenset({"McpApiHeader", "McpToolResult", "Promise", "Record", "String"})


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
                return f"[{', '.join([item] * least + [item + '?'] * (most - least))}]"
            if 0 < least <= MAX_REPEATS:
                return f"[{', '.join([item] * least)}, ...{item}[]]"
        return item + "[]"

    def _tuple(self, type_: TupleOf) -> str:
        elements = [self._atom(element) for element in type_.elements]
        texts = elements[: type_.required] + [element + "?" for element in elements[type_.required :]]
        if type_.rest is not None:
            texts.append(f"...{self._atom(type_.rest)}[]")
        return f"[{', '.join(texts)}]"

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
            member = f"{property_name(p.name)}{':' if p.required else '?:'} {self.text(p.type)}"
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
        docs, self._docs = self._docs, False
        text = self.text(covered)
        self._docs = docs
        if isinstance(covered, Unknown) or (len(text) > MAX_INDEX and type_.properties):
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


def _type_names(keys: Iterable[str], taken: Set[str], target: str | None = None) -> dict[str, str]:
    """A TypeScript name for each definition: `my-def` is `MyDef`, and `MyDef_2` where that is taken."""
    names: dict[str, str] = {}
    used = set(taken)
    for key in keys:
        if key == target:
            names[key] = key
            continue
        words = "".join(word[0].upper() + word[1:] for word in _TYPE_NAME_WORD.findall(key))[:48]
        base = words if words and not words[0].isdigit() else "Type" + words
        name, number = base, 2
        while name in used:
            name, number = f"{base}_{number}", number + 1
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


def _result(output: str | None) -> str:
    return "Promise<McpToolResult>" if output is None or output == "unknown" else f"Promise<McpToolResult<{output}>>"


def signature(path: str, tool: Renderable) -> str:
    """The call in one line of at most about 400 characters, such as
    `MCP.github.createIssue(input: { owner: string; title: string }): Promise<McpToolResult<{ number: number }>>`.

    Where that is too long, inner objects become `{ ... }`, the result before the input.
    """
    arguments = compile_schema(tool.input_schema, "Input")
    result = None if tool.output_schema is None else compile_schema(tool.output_schema, "Output")
    root, parameter = _argument(arguments)
    line = ""
    for input_depth, output_depth in ((9, 9), (9, 2), (3, 2), (2, 1), (1, 1), (1, 0), (0, 0)):
        written = _brief(root, arguments, input_depth)
        output = None if result is None else _brief(result.root, result, output_depth)
        line = f"{path}({parameter}{written}): {_result(output)}"
        if len(line) <= MAX_SIGNATURE:
            return line
    return line if len(line) <= 2 * MAX_SIGNATURE else f"{path}({parameter}{{ ... }}): Promise<McpToolResult>"


def _brief(type_: Type, compiled: SchemaType, depth: int) -> str:
    names = {key: "{ ... }" if isinstance(d.type, ObjectOf) else "unknown" for key, d in compiled.definitions.items()}
    if isinstance(type_, Ref) and depth > 0:
        type_ = compiled.definitions[type_.name].type
    return _Writer(names, docs=False, depth=depth).text(type_)


class _NamedTypes:
    """The named types of one file, shared by the tools that mean the same by them."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def declare(self, compiled: SchemaType) -> tuple[list[str], _Writer]:
        """New declarations that `compiled` needs, and a writer that knows their names."""
        if not compiled.definitions:
            return [], _PLAIN_WRITER
        names = _type_names(compiled.definitions, _TAKEN_TYPE_NAMES)
        texts = _declared_types(compiled.definitions, names)
        if any(self._texts.get(name, text) != text for name, text in texts.items()):
            names = _type_names(compiled.definitions, _TAKEN_TYPE_NAMES | self._texts.keys())
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
    resources: bool = False,
    prompts: bool = False,
    observed: Mapping[str, Mapping[str, Any]] | None = None,
) -> str:
    """The content of `mcp/<identifier>.d.ts`.

    Args:
        identifier: the server's name under `MCP`.
        tools: identifier and tool, in the order to show them.
        server_name: the server's name in the configuration, if it is another one.
        description: what the server is for, in its own or the operator's words.
        notes: lines for the head of the file, such as that the server is down.
        resources, prompts: whether the server has them.
        observed: by tool name, the schema of results seen earlier, for tools that declare none.
    """
    called = comment_line(server_name if server_name is not None else identifier)
    count = f"{len(tools)} tool{'' if len(tools) == 1 else 's'}"
    head = [f'{count} of MCP server "{called}". await MCP.{identifier}.<tool>({{ ... }}); unwrap(result) is its value.']
    for text in (description, *notes):
        head.extend(comment_lines(text))
    functions = [_Function(name, tool, (observed or {}).get(tool.name)) for name, tool in tools]
    common = _common_parameters(functions)
    if common:
        head.append("What these parameters mean wherever a function does not say otherwise:")
        head.extend(f"@param {name} {doc}" for name, doc in common.items())
    types = _NamedTypes()
    return "".join(
        (
            _comment(head),
            f"{RESULT_TYPE}\n{_HEADER_TYPE_IN_SERVER}\n",
            f"declare namespace MCP.{identifier} {{\n",
            "  /** Return this API header. */\n",
            "  function $api(toolName?: string, options?: { schema?: boolean }): Promise<McpApiHeader>;\n",
            *[text for function in functions for text in function.render(types, common)],
            _RESOURCES if resources else "",
            _PROMPTS if prompts else "",
            "}\n",
        )
    )


class _Function:
    """One tool on its way into a file."""

    def __init__(self, identifier: str, tool: Renderable, observed: Mapping[str, Any] | None) -> None:
        self._identifier = identifier
        self._tool = tool
        self._type_name = identifier[:1].upper() + identifier[1:]
        self._input = compile_schema(tool.input_schema, self._type_name + "Input")
        self._output_schema = tool.output_schema if tool.output_schema is not None else observed
        self._is_observed = tool.output_schema is None and observed is not None
        self.parameters: dict[str, str] = {}
        """What is said about each top-level property, by its name as written."""
        if isinstance(self._input.root, ObjectOf):
            self.parameters = {comment_line(property_name(p.name)): p.doc for p in self._input.root.properties}

    def render(self, types: _NamedTypes, common: Mapping[str, str]) -> list[str]:
        """The tool's named types, comment and function."""
        declared, writer = types.declare(self._input)
        root, parameter = _argument(self._input)
        # The properties of the argument are described in the function's comment, those deeper down where they stand.
        written = writer.object(root, docs=False) if isinstance(root, ObjectOf) else writer.text(root)
        output = None
        if self._output_schema is not None:
            result = compile_schema(self._output_schema, self._type_name + "Output")
            more, writer = types.declare(result)
            declared += more
            output = writer.text(result.root)
        doc = comment_lines(self._tool.description)
        # A bare `@param` says that what is common does not hold here.
        doc.extend(
            [f"@param {name} {text}".rstrip() for name, text in self.parameters.items() if common.get(name, "") != text]
        )
        if self._is_observed:
            doc.append("@returns Shape observed in earlier results; the server declares none.")
        if self._tool.name != self._identifier:
            doc.append(f"@name {comment_line(self._tool.name)}")
        return [
            *[f"  {_indented(text)}\n" for text in declared],
            _comment(doc, "  "),
            f"  function {self._identifier}({parameter}{_indented(written)}): {_indented(_result(output))};\n",
        ]


def _common_parameters(functions: Sequence[_Function]) -> dict[str, str]:
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
