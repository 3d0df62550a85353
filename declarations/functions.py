"""Functions, their signatures, and declaration files of namespaces and saved programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from declarations import jsdoc
from declarations.expressions import (
    GUEST_TYPE_NAMES,
    INTEGER_NAME,
    NamedTypes,
    Renderable,
    TypeWriter,
    indented,
    property_name,
)
from declarations.schema import compile_schema
from declarations.typetree import ANY_OBJECT, IntersectionOf, ObjectOf, Ref, SchemaType, Type, UnionOf, Unknown

MAX_LINE: Final = 120
"""Maximum length in characters of a comment on one line. A longer comment is a block."""

MAX_BRIEF_LINE: Final = 400
"""Maximum length of such a line in a text for a model, to whom line breaks and stars say nothing."""

MANY_FUNCTIONS: Final = 4
"""Minimum number of functions that describe a parameter in the same words. The description is then in the head of the
file."""


class FunctionText:
    """The declaration of one tool, before the named types of its file are known.

    Args:
        effects: words about what calls do, such as `read-only`; may be empty.
    """

    def __init__(self, identifier: str, tool: Renderable, *, alone: bool = False, effects: str = "") -> None:
        self._identifier = identifier
        self._effects = effects
        self._tool = tool
        self._type_name = identifier[:1].upper() + identifier[1:]
        self._max_text = jsdoc.MAX_TOOL_TEXT_ALONE if alone else jsdoc.MAX_TOOL_TEXT
        self._max_property_text = jsdoc.MAX_PROPERTY_TEXT_ALONE if alone else jsdoc.MAX_PROPERTY_TEXT
        self._input = compile_schema(
            tool.input_schema, self._type_name + "Input", self._max_property_text, of_input=True
        )
        self._output = (
            None
            if tool.output_schema is None
            else compile_schema(tool.output_schema, self._type_name + "Output", self._max_property_text)
        )
        self.parameters: dict[str, str] = {}
        """Descriptions of top-level properties, by the names as they are written in the declaration."""
        if isinstance(self._input.root, ObjectOf):
            self.parameters = {jsdoc.comment_line(property_name(p.name)): p.doc for p in self._input.root.properties}

    def write(self, types: NamedTypes, common: Mapping[str, str]) -> WrittenFunction:
        """Return the function as text.

        Args:
            types: the named types of the file.
            common: descriptions of parameters in the head of the file.
        """
        declared, writer = types.declare(self._input)
        root, parameter = argument_type(self._input)
        # The comment of the function describes the top-level properties. Deeper ones have their own comments.
        written = writer.object(root, docs=False) if isinstance(root, ObjectOf) else writer.text(root)
        output = None
        if self._output is not None:
            more, writer = types.declare(self._output)
            declared += more
            output = writer.text(self._output.root)
        doc = jsdoc.comment_lines(self._tool.description, self._max_text)
        if self._effects:
            doc[:1] = [" ".join([f"[{self._effects}]", *doc[:1]])]
        # A parameter without a description gets an empty `@param` if its name has a common description, which does not
        # apply to it.
        doc.extend(
            [f"@param {name} {text}".rstrip() for name, text in self.parameters.items() if common.get(name, "") != text]
        )
        is_renamed = "".join(filter(str.isalnum, self._tool.name)).lower() != self._identifier.lower()
        names = [f"@name {jsdoc.comment_line(self._tool.name)}"] if is_renamed else []
        return WrittenFunction(
            self._tool.name,
            "".join([f"  {indented(text)}\n" for text in declared]),
            doc,
            names,
            f"{self._identifier}({parameter}{indented(written)}",
            output,
            observable=self._tool.output_schema is None,
        )

    @property
    def types(self) -> Iterable[tuple[str, Type]]:
        """The types of the function within its input, and of its result, with names for them."""
        root = self._input.root
        yield from [(p.name, p.type) for p in root.properties] if isinstance(root, ObjectOf) else [("", root)]
        if self._output is not None:
            yield self._type_name + "Output", self._output.root


class WrittenFunction(Struct):
    """The text of a function, except for the observed type of its results.

    Attributes:
        tool: name of the tool.
        types: declarations of the named types that the function adds to the file.
        doc: first lines of the comment.
        last_lines: last lines of the comment, after the line about the result.
        call: name and argument, such as `createIssue(input: { title: string }`.
        output: type of the result, if the tool declares one.
        observable: True if the tool declares no type of its result.
        latest: the latest observed schema, and its type as text.
    """

    tool: str
    types: str
    doc: list[str]
    last_lines: list[str]
    call: str
    output: str | None
    observable: bool
    latest: tuple[Mapping[str, Any], str] | None = None

    def text(self, observed: Mapping[str, Any] | None, *, brief: bool = False) -> str:
        """Return types, comment and function.

        Args:
            observed: schema of earlier results.
            brief: True for a model: without the options of a call, and with longer lines of comments.
        """
        output, doc = self.output, self.doc
        if observed is not None and self.observable:
            if self.latest is None or self.latest[0] is not observed:
                seen = compile_schema(observed, "Output")
                # Observed types are not recursive, so they need no names.
                names = dict.fromkeys(seen.definitions, "unknown")
                self.latest = observed, TypeWriter(names, integer=INTEGER_NAME).text(seen.root)
            output = self.latest[1]
            kind = f" ({observed['description']})" if "description" in observed else ""
            doc = [*doc, f"@returns Shape observed in earlier results{kind}; the server declares none."]
        comment = comment_block([*doc, *self.last_lines], "  ", MAX_BRIEF_LINE if brief else MAX_LINE)
        options = "" if brief else ", o?: McpCall"
        return f"{self.types}{comment}  function {self.call}{options}): {indented(result_text(output))};\n"


def common_parameters(functions: Iterable[FunctionText]) -> dict[str, str]:
    """Return the descriptions of parameters that many functions share, by parameter. They shorten a file."""
    counted: dict[str, dict[str, int]] = {}
    for function in functions:
        for name, doc in function.parameters.items():
            counts = counted.setdefault(name, {})
            counts[doc] = counts.get(doc, 0) + 1
    common = {}
    for name, counts in counted.items():
        doc, count = max(counts.items(), key=lambda item: item[1])
        if doc and count >= MANY_FUNCTIONS:
            common[name] = doc
    return common


def comment_block(lines: Sequence[str], indent: str = "", width: int = MAX_LINE) -> str:
    """Return lines as a comment, on one line if they have at most `width` characters.

    More than two lines are joined only for a width above `MAX_LINE`.
    """
    if not lines:
        return ""
    line = " ".join(lines) if len(lines) <= 2 or width > MAX_LINE else ""
    if line and len(line) <= width:
        return f"{indent}/** {line} */\n"
    return f"{indent}/**\n" + "".join([f"{indent} * {line}\n" for line in lines]) + f"{indent} */\n"


# Signatures of tools on one line, and the parts of a call's type.


MAX_SIGNATURE: Final = 400
"""Maximum length in characters of a signature."""

MAX_UNFOLDED: Final = 1_000
"""Maximum length in characters of a signature whose argument is unfolded."""

MAX_NAMED: Final = 300
MAX_ALL_NAMED: Final = 50_000
"""Maximum length in characters of a named type that is unfolded, and of all named types of such an argument."""

MAX_SHORT: Final = 80
"""Maximum length in characters of the type of a property, in a signature that has no room for all types. A longer type
becomes `...`."""


def _accepts_empty_object(type_: Type, compiled: SchemaType, depth: int = 0) -> bool:
    match type_:
        case Unknown():
            return True
        case ObjectOf(properties):
            return not any(p.required for p in properties)
        case UnionOf(members):
            return any(_accepts_empty_object(member, compiled, depth) for member in members)
        case IntersectionOf(members):
            return all(_accepts_empty_object(member, compiled, depth) for member in members)
        case Ref(name):
            return depth < 10 and _accepts_empty_object(compiled.definitions[name].type, compiled, depth + 1)
        case _:
            return False


def argument_type(compiled: SchemaType) -> tuple[Type, str]:
    """Return the type of a call's argument, and the text before it: `input: ` or `input?: `."""
    root = ANY_OBJECT if isinstance(compiled.root, Unknown) else compiled.root
    return root, "input?: " if _accepts_empty_object(root, compiled) else "input: "


def result_text(output: str | None, mark: str = "", *, plain: bool = False) -> str:
    """Return the type that a call returns. `plain`: True if the result is the value itself, not an MCP result."""
    bare = output is None or output == "unknown"
    if plain:
        return f"Promise<{'unknown' if bare else output}>"
    return "Promise<McpToolResult>" if bare else f"Promise<McpToolResult<{mark}{output}>>"


def value_text(output: str | None, mark: str = "", *, plain: bool = False) -> str:
    """Return the type of the value of a call's result, in the place of `result_text`."""
    return "unknown" if output is None else mark + output


def signature(
    path: str,
    tool: Renderable,
    observed: Mapping[str, Any] | None = None,
    *,
    opening: str = "(",
    plain: bool = False,
    unfolds: bool = False,
    returned: Callable[..., str] = result_text,
) -> str:
    """Return the signature of a tool in one line of about `MAX_SIGNATURE` characters at most.

    For example `MCP.github.createIssue(input: { title: string }): Promise<McpToolResult<{ number: number }>>`. In a
    signature that would be too long, inner objects become `{ ... }`, first in the result, then in the input. If that is
    not enough, optional properties are written without types.

    Args:
        path: the function.
        observed: observed type of the results, for a tool without an output schema.
        opening: text before the argument.
        plain: True if the result is the value itself, not an MCP result.
        unfolds: True to write the inner objects of an argument too, if the signature then takes at most `MAX_UNFOLDED`
            characters.
        returned: returns the text of the type of the result, as `result_text` does.
    """
    path += opening
    arguments = compile_schema(tool.input_schema, "Input", of_input=True)
    schema = tool.output_schema if tool.output_schema is not None else observed
    result = None if schema is None else compile_schema(schema, "Output")
    kind = f": {observed['description']}" if observed and "description" in observed else ""
    mark = f"/* observed{kind} */ " if tool.output_schema is None else ""
    root, parameter = argument_type(arguments)
    for input_depth, output_depth in ((9, 9), (9, 2), (3, 2), (2, 1), (1, 1), (1, 0)):
        written = _brief(root, arguments, input_depth)
        output = None if result is None else _brief(result.root, result, output_depth)
        line = f"{path}{parameter}{written}): {returned(output, mark, plain=plain)}"
        if len(line) <= MAX_SIGNATURE:
            break
    else:
        line = ""
    if unfolds and (not line or _FOLDED in written):
        names = _unfolded_names(arguments)
        root = arguments.definitions[root.name].type if isinstance(root, Ref) else root
        for input_depth, output_depth in ((9, 1), (9, 0), (4, 0), (3, 0), (2, 0)):
            written = TypeWriter(names, docs=False, depth=input_depth, integer=INTEGER_NAME).text(root)
            output = None if result is None else _brief(result.root, result, output_depth)
            whole = f"{path}{parameter}{written}): {returned(output, mark, plain=plain)}"
            if len(whole) <= MAX_UNFOLDED:
                return whole
    if line:
        return line
    output = None if result is None else _brief(result.root, result, 0)
    most, short = (MAX_UNFOLDED, MAX_NAMED) if unfolds else (MAX_SIGNATURE, MAX_SHORT)
    room = most - len(path) - len(parameter) - len(returned(output, mark, plain=plain)) - 3
    # A model needs the argument to make the call, so the argument gets at least half of the room.
    if room < most // 2:
        output, room = None, most - len(path) - len(parameter) - len(returned(None, plain=plain)) - 3
    return f"{path}{parameter}{_names(root, arguments, room, short)}): {returned(output, mark, plain=plain)}"


def _names(type_: Type, compiled: SchemaType, room: int, short: int) -> str:
    """Return as many properties as fit: required ones with types of at most `short` characters, others without."""
    if isinstance(type_, Ref):
        type_ = compiled.definitions[type_.name].type
    if not isinstance(type_, ObjectOf):
        return _FOLDED
    writer = TypeWriter(_brief_names(compiled), docs=False, depth=0, integer=INTEGER_NAME)
    texts = [(property_name(p.name), writer.text(p.type)) for p in type_.properties if p.required]
    typed = [f"{name}: {text if len(text) <= short else '...'}" for name, text in texts]
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


def _brief(type_: Type, compiled: SchemaType, depth: int) -> str:
    if isinstance(type_, Ref) and depth > 0:
        type_ = compiled.definitions[type_.name].type
    return TypeWriter(_brief_names(compiled), docs=False, depth=depth, integer=INTEGER_NAME).text(type_)


def _unfolded_names(compiled: SchemaType) -> dict[str, str]:
    """Return texts that replace named types: their definitions, two levels deep, where these are short."""
    names = brief = _brief_names(compiled)
    for _ in range(2):
        writer = TypeWriter(names, docs=False, integer=INTEGER_NAME)
        texts = {key: writer.text(definition.type) for key, definition in compiled.definitions.items()}
        if sum(map(len, texts.values())) > MAX_ALL_NAMED:
            break
        # `[]` may follow, so a union is in parentheses.
        whole = {key: f"({text})" if " | " in text or " & " in text else text for key, text in texts.items()}
        names = {key: text if len(text) <= MAX_NAMED else brief[key] for key, text in whole.items()}
    return names


def _brief_names(compiled: SchemaType) -> dict[str, str]:
    """Return texts that replace named types, which a signature does not declare."""
    return {key: _FOLDED if isinstance(d.type, ObjectOf) else "unknown" for key, d in compiled.definitions.items()}


_FOLDED: Final = "{ ... }"


# `namespaces.d.ts`: the globals that plugins add, as types.


class ScopeFunction(Struct, frozen=True):
    """A function in the scope of a namespace.

    Attributes:
        tool: name of the tool that the function calls.
        mapped: True if the plugin maps the arguments, so that the function's parameters are unknown.
    """

    tool: str
    mapped: bool = False


class ScopeObject(Struct, frozen=True):
    """An object in the scope of a namespace, or the scope itself.

    Attributes:
        members: members by name. A string is the type of a member that is data.
        more: True if the object has further members, whose names are unknown.
    """

    members: Mapping[str, ScopeObject | ScopeFunction | str]
    more: bool = False


class NamespaceSummary(Struct, frozen=True):
    """One global of `namespaces.d.ts`.

    Attributes:
        global_name: an identifier.
        tools: the tools that the namespace calls, by id; None for a tool without a declaration.
        scope: the members of the namespace in one program; None if unknown.
    """

    global_name: str
    description: str
    tools: Mapping[str, Renderable | None]
    prompt: str = ""
    scope: ScopeObject | None = None


_ANY_MEMBERS: Final = "{ readonly [name: string]: any }"


def render_namespaces(namespaces: Sequence[NamespaceSummary]) -> str:
    """Return the content of `namespaces.d.ts`."""
    types = NamedTypes(GUEST_TYPE_NAMES | {each.global_name for each in namespaces})
    declared: list[str] = []
    text = ""
    for each in namespaces:
        tools = jsdoc.comment_line(", ".join(each.tools), jsdoc.MAX_TOOL_TEXT)
        lines = [
            *jsdoc.comment_lines(each.description),
            *jsdoc.comment_lines(each.prompt),
            f"The same as namespaces.{each.global_name}. Calls {tools}; see tools.describe(id).",
        ]
        by_name = {tool.name: tool for tool in each.tools.values() if tool is not None}
        scope = _ANY_MEMBERS
        if each.scope is not None:
            scope = _Scope(by_name, types, declared, each.global_name).text(each.scope)
        text += f"{comment_block(lines)}declare const {each.global_name}: {scope};\n"
    head = [
        "Namespaces of plugins: data, and functions that call tools, made for each program.",
        "Each is a global and a member of `namespaces`; print one to see its members.",
    ]
    return comment_block(head) + "".join(declared) + text


class _Scope:
    """A writer of the scope of one namespace as a type.

    Args:
        tools: tools by name.
        declared: takes the declarations of named types.
    """

    def __init__(
        self, tools: Mapping[str, Renderable], types: NamedTypes, declared: list[str], global_name: str
    ) -> None:
        self._tools = tools
        self._types = types
        self._declared = declared
        self._global_name = global_name

    def text(self, scope: ScopeObject, indent: str = "") -> str:
        """Return the type of an object. `indent`: indentation of the closing brace."""
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
        function = FunctionText(f"{self._global_name}{value.tool.title().replace('-', '')}", tool).write(
            self._types, {}
        )
        self._declared.extend(line.removeprefix("  ") for line in function.types.splitlines(keepends=True))
        output = "any" if function.output in (None, "unknown") else indented(str(function.output), indent)
        if value.mapped:
            comment = comment_block(jsdoc.comment_lines(tool.description), indent)
            return f"{comment}{indent}{written}(...args: any[]): Promise<{output}>;\n"
        comment = comment_block(function.doc, indent)
        # A function of a namespace takes only the tool's input.
        taken = indented(function.call.partition("(")[2].removesuffix(", o?: McpCall)"), indent[:-2])
        return f"{comment}{indent}{written}({taken}): Promise<{output}>;\n"


# Declaration files of saved programs.


def render_program(name: str, program: Renderable) -> str:
    """Return the text of `programs/<name>.d.ts`."""
    return _namespace([_function(name, program, NamedTypes(), alone=True)])


def render_programs(programs: Iterable[tuple[str, Renderable]]) -> str:
    """Return the text of one file with all saved programs, for an editor."""
    types = NamedTypes()
    head = comment_block(["The saved programs. Each is a file of the folder `programs` beside the configuration file."])
    return head + _namespace([_function(name, program, types, alone=False) for name, program in programs])


def _namespace(functions: list[str]) -> str:
    return f"declare namespace programs {{\n{''.join(functions)}}}\n"


def _function(name: str, program: Renderable, types: NamedTypes, *, alone: bool) -> str:
    written = FunctionText(name, program, alone=alone).write(types, {})
    comment = comment_block([*written.doc, *written.last_lines], "  ")
    result = indented(result_text(written.output, plain=True))
    return f"{written.types}{comment}  function {written.call}): {result};\n"
