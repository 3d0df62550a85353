"""The reading of one saved program: its function, its description and the types of its input and result. Pure."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from codemode_mcp.base.did_you_mean import nearest
from codemode_mcp.base.strict_json import parse_json
from codemode_mcp.catalog.saved_programs import saved_program, type_schemas
from codemode_mcp.program.error_location import first_error_line
from codemode_mcp.program.preflight import UseFinder
from codemode_mcp.program.syntax import from_utf16_units, line_count, parse, text_of, utf16_units
from upstream_clients.schemas import UnusableSchema, compile_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tree_sitter import Node

    from codemode_mcp.base.settings import Language
    from upstream_clients.tools import JsonObject

_FUNCTION_VALUES: Final = frozenset({"arrow_function", "function_expression"})
_ONE_FUNCTION: Final = (
    "write one function, such as: export default async function report(input: { city: string }) { ... }"
)
_WRITE_SCHEMA: Final = "write the JSON Schema of the input in the comment before the function: @input {...}"
MAX_NAMED: Final = 12
"""Maximum number of members that a message names."""
NO_INPUT: Final[JsonObject] = {"type": "object", "properties": {}, "additionalProperties": False}
"""The schema of a function without a parameter."""


class DefaultFunction(Struct, frozen=True):
    """The function that a file exports.

    Attributes:
        statement: the statement with `export default`.
        node: the function.
        name: its name, if a statement declares it; None for a function that is a value.
        about: its doc comment.
    """

    statement: Node
    node: Node
    name: str | None
    about: type_schemas.DocComment


def read_program(name: str, language: Language, text: str) -> saved_program.SavedProgram:
    """Return the saved program that a text is.

    Raises:
        ProgramFileError: the text is not a saved program; the error has the line and what to do.
    """
    problem = saved_program.name_problem(name)
    if problem is not None:
        raise saved_program.ProgramFileError(0, problem)
    if len(text.encode("utf-8", "surrogatepass")) > saved_program.MAX_TEXT:
        raise saved_program.ProgramFileError(
            0, f"the file is larger than {saved_program.MAX_TEXT // 1024} KiB; write a shorter program"
        )
    units = utf16_units(text)
    tree = parse(units)
    if tree is None:
        raise saved_program.ProgramFileError(0, "reading the program takes too long; write a shorter one")
    found = default_function(units, tree.root_node)
    line = found.node.start_point.row + 1
    description = found.about.description
    if len(description) > saved_program.MAX_DESCRIPTION:
        raise saved_program.ProgramFileError(
            line,
            f"the description has {len(description)} characters, more than {saved_program.MAX_DESCRIPTION}; shorten it",
        )
    try:
        parameter = _parameter(units, found.node)
        input_schema = _input_schema(units, tree.root_node, found, parameter)
        output_schema = _output_schema(units, tree.root_node, found)
    except saved_program.ProgramFileError:
        _check_parameters(found.node)
        raise
    except type_schemas.UnknownTypeError as error:
        _check_parameters(found.node)
        why = from_utf16_units(str(error))
        raise saved_program.ProgramFileError(error.line, f"{why}; use another type, or {_WRITE_SCHEMA}") from None
    except (StopIteration, IndexError):  # a type with a part missing, which the parser has made up
        raise saved_program.ProgramFileError(
            line, f"a type of the function cannot be read; correct it, or {_WRITE_SCHEMA}"
        ) from None
    input_schema = _plain_schema(input_schema, line)
    output_schema = None if output_schema is None else _plain_schema(output_schema, line)
    finder = UseFinder(units)
    finder.read(tree)
    takes_input = parameter is not None
    return saved_program.SavedProgram(
        name, language, text, description, input_schema, output_schema, takes_input, finder.servers()
    )


@lru_cache(maxsize=500)
def syntax_error_line(text: str) -> int | None:
    """Return the line of the first probable syntax error; None if there is none. Valid text is rarely reported."""
    tree = parse(utf16_units(text))
    return None if tree is None else first_error_line(tree.root_node)


def unknown_members(program: saved_program.SavedProgram) -> Sequence[saved_program.FileProblem]:
    """Return a problem for each tag `@param input.<name>` of a saved program that names no member of its input."""
    schema = program.input_schema
    if schema.get("additionalProperties") is not False or "patternProperties" in schema:
        return ()
    units = utf16_units(program.text)
    tree = parse(units)
    written = () if tree is None else type_schemas.params(default_function(units, tree.root_node).about)
    members = schema.get("properties", {})
    found = []
    for each in written:
        name = each.path[1] if len(each.path) > 1 else ""
        # The name in the tag ends before a hyphen.
        if name and name not in members and not any(member.startswith(f"{name}-") for member in members):
            near = nearest(name, members) or sorted(members)[:MAX_NAMED]
            advice = f"use one of {', '.join(near)}" if near else "remove the line"
            text = f"@param {'.'.join(each.path)[:80]} names no member of the input; {advice}"
            found.append(saved_program.FileProblem(program.file, each.line, text))
    return found


def _plain_schema(schema: JsonObject, line: int) -> JsonObject:
    """Return a schema that every client can read. Characters that the file has in two halves are whole in it."""
    try:
        plain: JsonObject = json.loads(json.dumps(schema, allow_nan=False))
        json.dumps(plain, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise saved_program.ProgramFileError(
            line, "the types have a number that is too large, or half a character; write another value"
        ) from None
    return plain


def default_function(units: str, root: Node) -> DefaultFunction:
    """Return the function that a file exports. Raises `ProgramFileError`."""
    statements = [child for child in root.named_children if child.type not in ("comment", "hash_bang_line")]
    exports = []
    for statement in statements:
        line = statement.start_point.row + 1
        if statement.type == "import_statement":
            raise saved_program.ProgramFileError(
                line, "a saved program cannot import; call tools with MCP.<server>.<tool>({...}), and other saved "
                "programs with programs.<name>({...})"
            )  # fmt: skip
        if statement.type == "export_statement" and not exports_type(statement):
            exports.append(statement)
            if not any(child.type == "default" for child in statement.children):
                raise saved_program.ProgramFileError(
                    line, f"a saved program has one export, which is its default; {_ONE_FUNCTION}"
                )
    if not exports:
        raise saved_program.ProgramFileError(line_count(units), f"the file has no export default; {_ONE_FUNCTION}")
    if len(exports) > 1:
        raise saved_program.ProgramFileError(
            exports[1].start_point.row + 1, "the file has two export default; keep one of them"
        )
    return _exported(units, statements, exports[0])


def exports_type(statement: Node) -> bool:
    declared = statement.child_by_field_name("declaration")
    return declared is not None and declared.type in ("type_alias_declaration", "interface_declaration")


def _exported(units: str, statements: Sequence[Node], statement: Node) -> DefaultFunction:
    declared, value = statement.child_by_field_name("declaration"), statement.child_by_field_name("value")
    line = statement.start_point.row + 1
    about = type_schemas.doc_comment_before(units, statement)
    if declared is not None and declared.type == "function_declaration":
        name = declared.child_by_field_name("name")
        return _checked(units, statement, declared, None if name is None else text_of(units, name), about)
    leading = _leading_function(value)
    if leading is not None:
        return _checked(units, statement, leading, None, about)
    while value is not None and value.type in ("parenthesized_expression", "satisfies_expression", "as_expression"):
        value = next((child for child in value.named_children if child.type != "comment"), None)
    if value is not None and value.type in _FUNCTION_VALUES:
        return _checked(units, statement, value, None, about)
    if value is not None and value.type == "identifier":
        for other in statements:
            for declarator, function in _functions(other):
                name = declarator.child_by_field_name("name")
                if name is not None and text_of(units, name) == text_of(units, value):
                    about = about or type_schemas.doc_comment_before(units, other)
                    return _checked(units, statement, function, None, about)
    raise saved_program.ProgramFileError(line, f"export default is no function; {_ONE_FUNCTION}")


def _leading_function(value: Node | None) -> Node | None:
    """Return the function with which an exported value begins, if it begins with one.

    In JavaScript, such a function is the whole export. The parser may take a parenthesis on the next line for a call.
    """
    while value is not None and value.type != "function_expression":
        first = next(iter(value.children), None)
        value = None if first is None or value.type == "arrow_function" else first
    return value


def _functions(statement: Node) -> Iterator[tuple[Node, Node]]:
    if statement.type == "function_declaration":
        yield statement, statement
    for declarator in statement.named_children if statement.type == "lexical_declaration" else ():
        value = declarator.child_by_field_name("value")
        if value is not None and value.type in _FUNCTION_VALUES:
            yield declarator, value


def _checked(
    units: str, statement: Node, function: Node, name: str | None, about: type_schemas.DocComment | None
) -> DefaultFunction:
    line = function.start_point.row + 1
    if any(child.type == "type_parameters" for child in function.named_children):
        raise saved_program.ProgramFileError(line, "the function has type parameters; use types that are known")
    if about is None:
        about = _first_comment(units, statement)
    return DefaultFunction(statement, function, name, about)


def _first_comment(units: str, statement: Node) -> type_schemas.DocComment:
    root = statement.parent
    first = None if root is None else next(iter(root.named_children), None)
    if first is None or first.type != "comment" or not text_of(units, first).startswith("/**"):
        return type_schemas.DocComment()
    return type_schemas.parse_comment(from_utf16_units(text_of(units, first)), first.start_point.row + 1)


def _parameter(units: str, function: Node) -> Node | None:
    """Return the only parameter; None if there is none. Raises `ProgramFileError`."""
    single, several = function.child_by_field_name("parameter"), function.child_by_field_name("parameters")
    if single is not None:
        return single
    found = [] if several is None else [each for each in several.named_children if each.type != "comment"]
    for each in found:
        pattern = each.child_by_field_name("pattern")
        if pattern is None or pattern.type in ("this", "rest_pattern"):
            raise saved_program.ProgramFileError(
                each.start_point.row + 1, f"this parameter cannot be used; {_ONE_FUNCTION}"
            )
    if len(found) > 1:
        raise saved_program.ProgramFileError(
            found[1].start_point.row + 1,
            f"the function has {len(found)} parameters, and a saved program has at most one; make them members of "
            "one object: { a, b }: { a: string; b: number }",
        )
    return found[0] if found else None


def _check_parameters(function: Node) -> None:
    parameters = function.child_by_field_name("parameters")
    line = None if parameters is None else first_error_line(parameters)
    if line is not None:
        raise saved_program.ProgramFileError(
            line, f"the parameters of the function have a syntax error; {_ONE_FUNCTION}"
        )


def _input_schema(units: str, root: Node, found: DefaultFunction, parameter: Node | None) -> JsonObject:
    tag = found.about.tag("input")
    if tag is not None:
        if parameter is None:
            raise saved_program.ProgramFileError(
                tag.line, "the comment has @input, but the function has no parameter; add one"
            )
        return _object_schema(_json_schema(tag), tag.line)
    if parameter is None:
        return NO_INPUT
    line = parameter.start_point.row + 1
    types = type_schemas.TypeReader(units, root, closed=True)
    written = type_schemas.params(found.about)
    annotation = parameter.child_by_field_name("type")
    if annotation is not None:
        schema = types.schema(next(child for child in annotation.named_children if child.type != "comment"))
    else:
        schema = _documented(types, written, line)
    schema = _described(_object_schema(schema, line), written)
    if parameter.type == "optional_parameter" and schema.get("required"):
        raise saved_program.ProgramFileError(
            line, "the parameter is optional, but some of its members are not; make the members optional instead"
        )
    return schema


def _documented(types: type_schemas.TypeReader, written: Sequence[type_schemas.Param], line: int) -> JsonObject:
    """Return the schema of a parameter without an annotation, as tags `@param` describe it."""
    whole = next((each for each in written if len(each.path) == 1), None)
    if whole is None or whole.type is None:
        raise saved_program.ProgramFileError(
            line, f"the parameter has no type; write one, as in input: {{ city: string }}, or {_WRITE_SCHEMA}"
        )
    members = [each for each in written if len(each.path) == 2 and each.path[0] == whole.path[0]]
    if whole.type.lower() != "object" or not members:
        return types.from_text(whole.type, whole.line)
    properties = {each.path[1]: types.from_text(each.type or "unknown", each.line) for each in members}
    required = [each.path[1] for each in members if not each.optional]
    return {
        "type": "object",
        "properties": properties,
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def _described(schema: JsonObject, written: Sequence[type_schemas.Param]) -> JsonObject:
    properties: dict[str, Any] = dict(schema.get("properties", {}))
    for each in written:
        member = each.path[-1]
        if each.description and member in properties and len(each.path) <= 2:
            properties[member] = {"description": each.description, **properties[member]}
        elif each.description and len(each.path) == 1:
            schema = {"description": each.description, **schema}
    return {**schema, "properties": properties}


def _output_schema(units: str, root: Node, found: DefaultFunction) -> JsonObject | None:
    tag = found.about.tag("output")
    if tag is not None:
        return _json_schema(tag)
    types = type_schemas.TypeReader(units, root, closed=False)
    annotation = found.node.child_by_field_name("return_type")
    try:
        if annotation is not None:
            return types.schema(_resolved(units, annotation.named_children[-1]))
        returned = found.about.tag("returns", "return")
        written = None if returned is None else type_schemas.braced_type(returned.text)[0]
        if returned is None or written is None:
            return None
        if written.startswith("Promise<") and written.endswith(">"):
            written = written.removeprefix("Promise<")[:-1]
        return types.from_text(written, returned.line)
    except type_schemas.UnknownTypeError:
        return None  # the result is unknown to callers, and the program runs


def _resolved(units: str, node: Node) -> Node:
    """Return `T` of `Promise<T>`, and any other type as it is."""
    name, arguments = node.child_by_field_name("name"), node.child_by_field_name("type_arguments")
    if node.type == "generic_type" and name is not None and text_of(units, name) == "Promise" and arguments is not None:
        return arguments.named_children[0]
    return node


def _json_schema(tag: type_schemas.Tag) -> JsonObject:
    try:
        schema = parse_json(tag.text)
    except ValueError as error:
        raise saved_program.ProgramFileError(
            tag.line, f"the JSON Schema after @{tag.name} is no JSON: {error}"
        ) from None
    except RecursionError:
        raise saved_program.ProgramFileError(
            tag.line, f"the JSON Schema after @{tag.name} is nested too deeply"
        ) from None
    if not isinstance(schema, dict):
        raise saved_program.ProgramFileError(
            tag.line, f"the JSON Schema after @{tag.name} is no object; begin it with {{"
        )
    problem = _schema_problem(schema)
    if problem:
        raise saved_program.ProgramFileError(tag.line, f"the JSON after @{tag.name} is no JSON Schema: {problem}")
    return schema


def _schema_problem(schema: dict[str, Any]) -> str:
    try:
        compile_schema(schema)  # fetches no document, whatever the schema names
    except UnusableSchema as error:
        return str(error).split("\n", 1)[0][:200]
    return ""


def _object_schema(schema: JsonObject, line: int) -> JsonObject:
    if schema.get("type") != "object":
        raise saved_program.ProgramFileError(
            line, f"the input must be an object with named members, such as {{ city: string }}; or {_WRITE_SCHEMA}"
        )
    return schema
