"""JSON Schemas of TypeScript types, as saved programs declare their input and result. Pure.

The types that JSON can have are read: object types, optional members, `Record`, arrays, tuples, unions, literals,
primitives, and types and interfaces of the same file. Anything else is an error that names the type.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from codemode_mcp.base.text import one_line
from codemode_mcp.program.syntax import from_utf16_units, parse, text_of, utf16_units

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tree_sitter import Node

    from upstream_clients.tools import JsonObject


MAX_TYPES: Final = 2_000
"""Maximum number of types in one declaration."""

MAX_DEPTH: Final = 40
"""Maximum depth of types in types."""

_PRIMITIVES: Final[dict[str, JsonObject]] = {
    "string": {"type": "string"},
    "number": {"type": "number"},
    "bigint": {"type": "integer"},
    "boolean": {"type": "boolean"},
    "unknown": {},
    "any": {},
    "object": {"type": "object"},
}
_LISTS: Final = frozenset({"Array", "ReadonlyArray"})
_SHOWN: Final = 60


class UnknownTypeError(Exception):
    """Error for a type that has no JSON Schema.

    Attributes:
        line: its line in the file, 1-based.
    """

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line


class TypeReader:
    """Reads the types of one file.

    Args:
        units: the file, as `utf16_units` returns it.
        closed: True if objects may have no other members than the declared ones.
        line: the line of the file in which `units` begins, 1-based.
    """

    def __init__(self, units: str, root: Node, *, closed: bool, line: int = 1, outer: TypeReader | None = None) -> None:
        self._units = units
        self._closed = closed
        self._line = line
        self._outer = outer
        self._declared = {name: node for node in root.named_children for name, node in self._declarations(node)}
        self._definitions: dict[str, JsonObject] = {}
        self._left = MAX_TYPES
        self._depth = 0

    def schema(self, written: Node) -> JsonObject:
        """Return the JSON Schema of a type.

        Raises:
            UnknownTypeError: it has none.
        """
        # A name at the top is replaced by its type, so that the members are where readers look for them.
        node, names = written, set[str]()
        while node.type == "type_identifier" and (name := self._text(node)) in self._declared and name not in names:
            names.add(name)
            node = self._body(self._declared[name])
        made = self._type(node)
        return {**made, "$defs": dict(self._definitions)} if self._definitions else made

    def from_text(self, text: str, line: int) -> JsonObject:
        """Return the JSON Schema of a type in a doc comment. Raises `UnknownTypeError`."""
        units = utf16_units(f"type T = {text};")
        tree = parse(units)
        statement = None if tree is None else next(iter(tree.root_node.named_children), None)
        value = None if statement is None else statement.child_by_field_name("value")
        if tree is None or value is None or tree.root_node.has_error:
            raise UnknownTypeError(line, f"the type {one_line(text, _SHOWN)} cannot be read")
        return TypeReader(units, tree.root_node, closed=self._closed, line=line, outer=self).schema(value)

    def _text(self, node: Node) -> str:
        return text_of(self._units, node)

    def _unknown(self, node: Node, why: str = "") -> UnknownTypeError:
        why = why or "has no JSON Schema"
        return UnknownTypeError(
            self._line + node.start_point.row, f"the type {one_line(self._text(node), _SHOWN)} {why}"
        )

    def _declarations(self, statement: Node) -> list[tuple[str, Node]]:
        if statement.type == "export_statement":
            declared = statement.child_by_field_name("declaration")
            statement = statement if declared is None else declared
        if statement.type not in ("type_alias_declaration", "interface_declaration"):
            return []
        name = statement.child_by_field_name("name")
        return [] if name is None else [(self._text(name), statement)]

    def _body(self, declaration: Node) -> Node:
        for child in declaration.named_children:
            if child.type == "type_parameters":
                raise self._unknown(declaration, "has type parameters")
            if child.type == "extends_type_clause":
                raise self._unknown(declaration, "extends another type; write its members instead")
        body = declaration.child_by_field_name("value") or declaration.child_by_field_name("body")
        if body is None:
            raise self._unknown(declaration)
        return body

    def _type(self, node: Node) -> JsonObject:
        self._left -= 1
        self._depth += 1
        if self._left < 0 or self._depth > MAX_DEPTH:
            raise self._unknown(node, "is too large or too deep")
        try:
            return self._one(node)
        finally:
            self._depth -= 1

    def _one(self, node: Node) -> JsonObject:
        match node.type:
            case "predefined_type" if self._text(node) in _PRIMITIVES:
                return dict(_PRIMITIVES[self._text(node)])
            case "literal_type":
                return {"const": self._literal(node)}
            case "parenthesized_type":
                return self._type(_inside(node)[0])
            case "readonly_type":
                return self._type(_inside(node)[-1])
            case "array_type":
                return {"type": "array", "items": self._type(_inside(node)[0])}
            case "tuple_type":
                return self._tuple(node)
            case "union_type":
                return self._union(node)
            case "object_type" | "interface_body":
                return self._object(node)
            case "generic_type":
                return self._generic(node)
            case "type_identifier":
                return self._named(node)
        raise self._unknown(node)

    def _named(self, node: Node) -> JsonObject:
        name = self._text(node)
        if name not in self._declared:
            if name in _PRIMITIVES:
                return dict(_PRIMITIVES[name])
            if name == "Object" or name == "Array":
                return {"type": name.lower()}
            if self._outer is not None and name in self._outer._declared:
                raise self._unknown(node, "cannot be named in a doc comment")
            raise self._unknown(node, "is not declared in this file")
        if name not in self._definitions:
            self._definitions[name] = {}  # a type may refer to itself
            self._definitions[name] = self._type(self._body(self._declared[name]))
        return {"$ref": f"#/$defs/{name}"}

    def _generic(self, node: Node) -> JsonObject:
        name, arguments = node.child_by_field_name("name"), node.child_by_field_name("type_arguments")
        given = [] if arguments is None else _inside(arguments)
        match self._text(name) if name is not None else "", given:
            case (("Array" | "ReadonlyArray"), [item]):
                return {"type": "array", "items": self._type(item)}
            case "Readonly", [inner]:
                return self._type(inner)
            case "Record", [key, value]:
                return self._record(key, value)
        raise self._unknown(node)

    def _record(self, key: Node, value: Node) -> JsonObject:
        keys = self._type(key)
        if keys == _PRIMITIVES["string"]:
            return {"type": "object", "additionalProperties": self._type(value)}
        names = keys.get("enum", [keys["const"]] if "const" in keys else [])
        if not names or not all(isinstance(name, str) for name in names):
            raise self._unknown(key, "cannot be the keys of a Record")
        one = self._type(value)
        made = {"type": "object", "properties": dict.fromkeys(names, one), "required": list(names)}
        return self._close(made)

    def _literal(self, node: Node) -> Any:
        text = self._text(node)
        match text:
            case "true" | "false" | "null":
                return {"true": True, "false": False, "null": None}[text]
        inner = _inside(node)[0] if node.named_children else node
        if inner.type == "string" and (value := _string(text)) is not None:
            return value
        if inner.type in ("number", "unary_expression"):
            try:
                number = ast.literal_eval(text.replace(" ", ""))
            except (ValueError, SyntaxError):
                raise self._unknown(node) from None
            if isinstance(number, int | float):
                return number
        raise self._unknown(node)

    def _members_of_union(self, node: Node) -> list[Node]:
        """Return the types of a union, also of unions in it."""
        left, found = [node], []
        while left:
            each = left.pop()
            inner = _inside(each) if each.type in ("union_type", "parenthesized_type") else []
            if each.type == "parenthesized_type" and (not inner or inner[0].type != "union_type"):
                found.append(each)
            elif inner:
                left += reversed(inner)
            else:
                found.append(each)
        return found

    def _union(self, node: Node) -> JsonObject:
        kinds = [each for each in self._members_of_union(node) if self._text(each) != "undefined"]
        if not kinds:
            raise self._unknown(node)
        schemas = [self._type(each) for each in kinds]
        if len(schemas) == 1:
            return schemas[0]
        if all(schema.keys() == {"const"} for schema in schemas):
            return {"enum": [schema["const"] for schema in schemas]}
        simple = [*(schema.get("type") for schema in schemas if schema.keys() == {"type"})]
        nulls = sum(schema == {"const": None} for schema in schemas)
        if len(simple) + nulls == len(schemas):
            return {"type": [*dict.fromkeys(simple), *(["null"] if nulls else [])]}
        return {"anyOf": [{"type": "null"} if schema == {"const": None} else schema for schema in schemas]}

    def _tuple(self, node: Node) -> JsonObject:
        items: list[JsonObject] = []
        least = 0
        for part in _inside(node):
            named = part.type in ("required_parameter", "optional_parameter")
            annotation = part.child_by_field_name("type") if named else None
            name = part.child_by_field_name("name") if named else None
            inner = part if annotation is None else _inside(annotation)[0]
            if part.type == "rest_type" or (name is not None and name.type == "rest_pattern"):
                rest = self._type(_inside(part)[0] if part.type == "rest_type" else inner)
                made: JsonObject = {"type": "array", "prefixItems": items, "items": rest.get("items", {})}
                return {**made, "minItems": least}
            optional = part.type in ("optional_type", "optional_parameter")
            items.append(self._type(_inside(part)[0] if part.type == "optional_type" else inner))
            least += not optional
        return {"type": "array", "prefixItems": items, "minItems": least, "maxItems": len(items)}

    def _object(self, node: Node) -> JsonObject:
        properties: dict[str, JsonObject] = {}
        required: list[str] = []
        others: JsonObject | None = None
        for member in _inside(node):
            annotation = member.child_by_field_name("type")
            if annotation is None or member.type not in ("property_signature", "index_signature"):
                raise self._unknown(member, "has no JSON Schema; give it a type that JSON has")
            inner = _inside(annotation)[0]
            if member.type == "index_signature":
                others = self._type(inner)
                continue
            name = member.child_by_field_name("name")
            if name is None or name.type not in ("property_identifier", "string", "number"):
                raise self._unknown(member)
            key = _string(self._text(name)) if name.type == "string" else self._text(name)
            if key is None:
                raise self._unknown(member)
            schema = self._type(inner)
            comment = doc_comment_before(self._units, member)
            if comment is not None and comment.description:
                schema = {"description": " ".join(comment.description.split()), **schema}
            properties[key] = schema
            is_optional = any(child.type == "?" for child in member.children) or (
                inner.type == "union_type"
                and any(self._text(each) == "undefined" for each in self._members_of_union(inner))
            )
            if not is_optional:
                required.append(key)
        made: dict[str, Any] = {"type": "object", "properties": properties}
        if required:
            made["required"] = required
        if others is not None:
            return {**made, "additionalProperties": others}
        return self._close(made)

    def _close(self, schema: JsonObject) -> JsonObject:
        return {**schema, "additionalProperties": False} if self._closed else schema


def _inside(node: Node) -> list[Node]:
    return [child for child in node.named_children if child.type != "comment"]


_SIMPLE: Final = {
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "/": "/",
}
_ESCAPE: Final = re.compile(r"\\(?:u\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.)|\Z)", re.DOTALL)


def _string(text: str) -> str | None:
    """Return the value of a string literal; None if it has an escape that JSON Schemas of people do not need."""
    unknown = False

    def value(match: re.Match[str]) -> str:
        nonlocal unknown
        written = match[1] or match[2] or match[3]
        if written is None:
            found = _SIMPLE.get(match[4] or "")
        else:
            code = int(written, 16)
            found = chr(code) if code < 0xD800 or 0xDFFF < code < 0x110000 else None
        unknown = unknown or found is None
        return found or ""

    decoded = _ESCAPE.sub(value, text[1:-1])
    return None if unknown else decoded


# Doc comments (JSDoc) before functions and members.


MAX_COMMENTS: Final = 100
"""Maximum number of comments between a doc comment and what it describes. The parser takes longer for each."""

_LINE_START = re.compile(r"^[ \t]*\*?[ \t]?", re.MULTILINE)
_TAG = re.compile(r"^[ \t]*@(?P<name>[A-Za-z]+)\b[ \t]*", re.MULTILINE)
_PARAM_NAME = re.compile(
    r"(?P<optional>\[)?[ \t]*(?P<name>[\w$]+(?:\.[\w$]+)*)(?(optional)[^\]\n]*\])[ \t]*(?:-[ \t]+)?"
)


class Tag(Struct, frozen=True):
    """One tag of a doc comment.

    Attributes:
        name: the word after `@`.
        text: the text up to the next tag.
        line: the line of the file, 1-based.
    """

    name: str
    text: str
    line: int


class DocComment(Struct, frozen=True):
    """A doc comment.

    Attributes:
        description: the text before the first tag.
    """

    description: str = ""
    tags: tuple[Tag, ...] = ()

    def tag(self, *names: str) -> Tag | None:
        return next((tag for tag in self.tags if tag.name in names), None)


class Param(Struct, frozen=True):
    """A tag `@param`.

    Attributes:
        path: the name of the parameter, and those of members after dots.
        optional: True for a name in brackets.
        type: the text of the type in braces; None without one.
        line: the line of the file, 1-based.
    """

    path: tuple[str, ...]
    optional: bool
    type: str | None
    description: str
    line: int


def doc_comment_before(units: str, node: Node) -> DocComment | None:
    before = node
    for _ in range(MAX_COMMENTS):
        previous = before.prev_sibling
        if previous is None or previous.type != "comment":
            return None
        before = previous
        text = text_of(units, before)
        if text.startswith("/**"):
            return parse_comment(from_utf16_units(text), before.start_point.row + 1)
    return None


def parse_comment(comment: str, line: int) -> DocComment:
    """Return the parts of a comment that begins with `/**`.

    Args:
        line: the line of its beginning, 1-based.
    """
    text = _LINE_START.sub("", comment.removeprefix("/**").removesuffix("*/"))
    marks = list(_TAG.finditer(text))
    ends = [*(mark.start() for mark in marks[1:]), len(text)][: len(marks)]
    tags = tuple(
        Tag(mark["name"], text[mark.end() : end].strip(), line + text.count("\n", 0, mark.start()))
        for mark, end in zip(marks, ends, strict=True)
    )
    return DocComment(text[: marks[0].start() if marks else len(text)].strip(), tags)


def braced_type(text: str) -> tuple[str | None, str]:
    """Return the type in braces at the beginning of a text, if there is one, and the text after it."""
    if not text.startswith("{"):
        return None, text
    depth = 0
    for at, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return text[1:at].strip(), text[at + 1 :].strip()
    return None, text


def params(comment: DocComment) -> Sequence[Param]:
    found = []
    for tag in comment.tags:
        if tag.name in ("param", "arg", "argument"):
            written, rest = braced_type(tag.text)
            name = _PARAM_NAME.match(rest)
            if name is not None:
                path = tuple(name["name"].split("."))
                description = " ".join(rest[name.end() :].split())
                found.append(Param(path, name["optional"] is not None, written, description, tag.line))
    return found
