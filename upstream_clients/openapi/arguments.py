"""The one argument of a tool: parameters and body of an operation by their names. Pure: no I/O.

Parameters and the members of a body that is an object stand side by side. If two have one name, the first of path,
query, header, cookie and body keeps it, and the others get a prefix, such as `query_id` or `body_id`. So a name
changes only if a parameter is added that clashes with it.

Credentials are no arguments: parameters that a security scheme names, and `Authorization`. Headers that a client sets
itself are none either.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from upstream_clients.openapi.bodies import BASE64, FILE, MAX_MEMBERS, Body, Member, choose_content, is_file, members_of
from upstream_clients.openapi.document import MAX_TEXT, PER_ARGUMENT, Document, UnsupportedError, plain_text, shown
from upstream_clients.openapi.schemas import Converted, Schemas

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from upstream_clients.openapi.operations import Operation

MAX_CONDITIONS: Final = 500
"""Maximum number of pairs of arguments one of which needs the other. If there are more, none is stated."""
PLACES: Final = ("path", "query", "header", "cookie")
_STYLES: Final = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
"""Styles by place; the first one is the default."""
_NO_ARGUMENTS: Final = frozenset(
    {"accept", "authorization", "connection", "content-encoding", "content-length", "content-type", "cookie", "date"}
    | {"expect", "host", "keep-alive", "origin", "proxy-authenticate", "proxy-authorization", "proxy-connection"}
    | {"referer", "te", "trailer", "transfer-encoding", "upgrade", "user-agent", "via"}
    | {"x-http-method", "x-http-method-override", "x-method-override", "x-original-url", "x-rewrite-url"}
)
"""Headers, in lower case, that the client or OpenAPI's own rules set, and those that change method or path.

Rules decide by the method and the path of an operation, so no argument may change them.
"""
_ENCODING_KEYS: Final = ("style", "explode", "contentType")
METHOD_PARAMETER: Final = "_method"
"""Parameter of a query or a form that changes the method for some servers."""
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class Parameter(Struct, frozen=True):
    """A parameter.

    Attributes:
        argument: its name as a member of the argument.
        name: its name in the request.
        place: one of `PLACES`.
        is_json: True if the value is sent as JSON.
        is_reserved: True if the value may have reserved characters that are not encoded.
    """

    argument: str
    name: str
    place: str
    is_required: bool
    style: str
    explode: bool
    is_json: bool = False
    is_reserved: bool = False


class Arguments(Struct, frozen=True):
    """The parameters and the body of an operation.

    Attributes:
        schema: the schema of its argument, before it is cut to a size.
        credentials: the parameters that are no arguments.
    """

    parameters: tuple[Parameter, ...]
    body: Body | None
    schema: Converted
    credentials: Credentials

    @property
    def digest(self) -> str:
        """A digest of all that decides in which part of the request, and how, each argument is sent."""
        places = sorted(
            [each.argument, each.place, each.name, each.style, each.explode, each.is_json, each.is_reserved]
            for each in self.parameters
        )
        body: list[Any] = []
        if self.body is not None:
            members = sorted([each.argument, each.name, each.is_file] for each in self.body.members)
            encodings = sorted(
                [name, [[key, stated.get(key)] for key in _ENCODING_KEYS if _is_short(stated.get(key))]]
                for name, stated in self.body.encodings.items()
                if isinstance(stated, dict)
            )
            body = [self.body.kind, self.body.media_type, self.body.whole, members, encodings]
        text = json.dumps([places, body])
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def _is_short(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, str) and len(value) <= 200)


class Credentials:
    """The names of parameters that are no arguments.

    They are credentials by the security schemes of the document, or the entry of the configuration sets them.

    Args:
        given: places and names of the parameters that the entry sets.
    """

    def __init__(self, document: Document, given: Iterable[tuple[str, str]] = ()) -> None:
        components = document.root.get("components")
        schemes = components.get("securitySchemes") if isinstance(components, dict) else None
        self._names = {(place, _same(place, name)) for place, name in given}
        for scheme in schemes.values() if isinstance(schemes, dict) else ():
            try:
                scheme = document.follow(scheme)
            except UnsupportedError:
                continue
            if isinstance(scheme, dict) and scheme.get("type") == "apiKey":
                place = str(scheme.get("in"))
                self._names.add((place, _same(place, str(scheme.get("name")))))

    @property
    def names(self) -> list[str]:
        """The names of credentials in the query and in cookies."""
        return [name for place, name in self._names if place in ("query", "cookie")]

    def has(self, place: str, name: str) -> bool:
        return (place, _same(place, name)) in self._names


def _same(place: str, name: str) -> str:
    """Return one form of names that are the same for some servers: many take `_` in a header for `-`."""
    return name.lower().replace("_", "-") if place == "header" else name.lower()


def read_arguments(operation: Operation, document: Document, schemas: Schemas, credentials: Credentials) -> Arguments:
    """Return the arguments of an operation.

    Raises:
        UnsupportedError: a part of the request cannot be made.
    """
    names = _Names()
    properties: dict[str, Any] = {}
    required: list[str] = []
    conditions: dict[str, list[str]] = {}
    parts: list[Converted] = []
    parameters = []
    listed = [each for each in operation.parameters if _is_argument(each, operation, credentials)]
    listed += _undeclared(operation)
    for node in sorted(listed, key=lambda each: PLACES.index(each["in"])):
        document.budget.spend(PER_ARGUMENT, _length(node.get("description")))
        parameter, converted = _parameter(node, document, schemas, names)
        parameters.append(parameter)
        properties[parameter.argument] = converted.schema
        parts.append(converted)
        if parameter.is_required:
            required.append(parameter.argument)
    body = None
    if operation.node.get("requestBody") is not None:
        body, found, needed = _body(operation, document, schemas, names)
        for argument, converted in found.items():
            properties[argument] = converted.schema
            parts.append(converted)
        if body.is_required:
            required += needed
        elif needed and len(needed) * len(found) <= MAX_CONDITIONS:
            # Without a body nothing is needed.
            conditions = {each: [other for other in needed if other != each] for each in found}
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    if conditions := {each: others for each, others in conditions.items() if others}:
        schema["dependentRequired"] = conditions
    size = (
        80
        + sum(part.size for part in parts)
        + sum(len(name) + 6 for name in (*properties, *required))
        + len(str(conditions))
    )
    references = tuple(dict.fromkeys(name for part in parts for name in part.names))
    return Arguments(tuple(parameters), body, Converted(schema, references, size), credentials)


def _length(text: object) -> int:
    return min(len(text), 4 * MAX_TEXT) if isinstance(text, str) else 0


def _is_argument(node: Mapping[str, Any], operation: Operation, credentials: Credentials) -> bool:
    name, place = node["name"], node["in"]
    if place not in PLACES:
        raise UnsupportedError(f"its parameter {shown(name)} is in {shown(place)}")
    if place == "path":
        return f"{{{name}}}" in operation.path
    if credentials.has(place, name) or (place == "query" and name.lower() == METHOD_PARAMETER):
        return False
    if place == "header" and not _HEADER_NAME.fullmatch(name):
        raise UnsupportedError(f"its parameter {shown(name)} is not a name of a header")
    return place != "header" or _same(place, name) not in _NO_ARGUMENTS


def _undeclared(operation: Operation) -> Iterable[Mapping[str, Any]]:
    declared = {node["name"] for node in operation.parameters if node["in"] == "path"}
    for part in operation.path.split("{")[1:]:
        name, closing, _ = part.partition("}")
        if not closing or not name or "/" in name:
            raise UnsupportedError("its path has a brace without its counterpart in the same segment")
        if name not in declared:
            declared.add(name)
            yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


class _Names:
    """The names of arguments that are taken."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, name: str, place: str) -> str:
        if name in self._taken:
            name = f"{place}_{name}"
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name


def _parameter(
    node: Mapping[str, Any], document: Document, schemas: Schemas, names: _Names
) -> tuple[Parameter, Converted]:
    name, place = node["name"], node["in"]
    schema, is_json = node.get("schema"), False
    content = node.get("content")
    if schema is None and isinstance(content, dict) and content:
        media = document.follow(next(iter(content.values())))
        schema = media.get("schema") if isinstance(media, dict) else None
        is_json = True
    style = node.get("style") or _STYLES[place][0]
    if style not in _STYLES[place]:
        raise UnsupportedError(f"its parameter {shown(name)} has the style {shown(str(style))}")
    explode = node.get("explode")
    parameter = Parameter(
        names.take(name, place),
        name,
        place,
        place == "path" or node.get("required") is True,
        style,
        explode if isinstance(explode, bool) else style in ("form", "deepObject"),
        is_json,
        node.get("allowReserved") is True,
    )
    return parameter, _described(schemas.convert(schema, "input"), node)


def _described(converted: Converted, node: Mapping[str, Any]) -> Converted:
    more: dict[str, Any] = {}
    text = plain_text(node.get("description"))
    if text:
        more["description"] = text
    if node.get("deprecated") is True:
        more["deprecated"] = True
    if not more or not isinstance(converted.schema, dict):
        return converted
    return Converted({**converted.schema, **more}, converted.names, converted.size + len(text or "") + 40)


# Bodies


def _body(
    operation: Operation, document: Document, schemas: Schemas, names: _Names
) -> tuple[Body, dict[str, Converted], list[str]]:
    """Return the body, the schemas of its arguments, and the names of those that it needs."""
    node = document.follow(operation.node["requestBody"])
    if not isinstance(node, dict):
        raise UnsupportedError("its body is not an object")
    document.budget.spend(PER_ARGUMENT, _length(node.get("description")))
    kind, media_type, media = choose_content(node.get("content"), document)
    schema, is_required = media.get("schema"), node.get("required") is True
    stated = media.get("encoding")
    encodings = stated if isinstance(stated, dict) and len(stated) <= MAX_MEMBERS else {}
    if kind in ("text", "bytes"):
        argument = names.take("body", "body")
        text = "The body, as text" if kind == "text" else BASE64
        single = Converted({"type": "string", **_bytes(kind), "description": f"{text} ({media_type})."}, (), 120)
        return Body(kind, media_type, is_required, argument, (), {}), {argument: single}, [argument]
    members = members_of(schema, document, is_form=kind != "json")
    if members is None and kind == "multipart":
        raise UnsupportedError(f"its body of the type {shown(media_type)} has no members that are known")
    if members is None:
        argument = names.take("body", "body")
        whole = _described(schemas.convert(schema, "input"), node)
        return Body(kind, media_type, is_required, argument, (), encodings), {argument: whole}, [argument]
    found: dict[str, Converted] = {}
    taken = []
    document.budget.spend(PER_ARGUMENT * len(members.properties) + 2 * len(encodings))
    for name, member in members.properties.items():
        if kind != "json" and name.lower() == METHOD_PARAMETER:
            continue
        argument = names.take(name, "body")
        files = is_file(member, document) if kind == "multipart" else False
        found[argument] = _file(member, document) if files else schemas.convert(member, "input")
        taken.append(Member(argument, name, files))
    needed = [each.argument for each in taken if each.name in members.required]
    return Body(kind, media_type, is_required, None, tuple(taken), encodings), found, needed


def _bytes(kind: str) -> dict[str, str]:
    return {"contentEncoding": "base64"} if kind == "bytes" else {}


def _file(schema: Any, document: Document) -> Converted:
    node = document.follow(schema)
    text = plain_text(node.get("description")) if isinstance(node, dict) else None
    described = {"description": f"{text}\n{BASE64}." if text else f"{BASE64}."}
    size = len(str(FILE)) + 60 + len(text or "")
    if isinstance(node, dict) and node.get("type") == "array":
        return Converted({"type": "array", "items": FILE, **described}, (), size)
    return Converted({**FILE, **described}, (), size)
