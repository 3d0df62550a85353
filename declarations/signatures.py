"""Signatures of tools on one line, and the parts of a call's type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from declarations.expressions import INTEGER_NAME, Renderable, TypeWriter, property_name
from declarations.schema import compile_schema
from declarations.typetree import ANY_OBJECT, IntersectionOf, ObjectOf, Ref, SchemaType, Type, UnionOf, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
    """Return True if an empty object has the type, so that a call may omit its argument."""
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
