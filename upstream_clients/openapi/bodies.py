"""Bodies of requests: the choice of the media type, and their bytes. Pure: no I/O."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol
from urllib.parse import quote, unquote

from msgspec import Struct

from upstream_clients.openapi.document import Document, UnsupportedError, shown

BASE64: Final = "The bytes in base64"
FILE: Final = {
    "anyOf": [
        {"type": "string", "contentEncoding": "base64"},
        {
            "type": "object",
            "properties": {
                "data": {"type": "string", "contentEncoding": "base64"},
                "filename": {"type": "string"},
                "type": {"type": "string", "description": "Its media type"},
            },
            "required": ["data"],
            "additionalProperties": False,
        },
    ]
}
"""The schema of a file of a form: its bytes in base64, alone or with a name and a media type."""
MAX_MEMBERS: Final = 500
_MAX_PARTS: Final = 100
"""Maximum number of schemas that one body is made of."""


class Member(Struct, frozen=True):
    """A member of a body.

    Attributes:
        argument: its name as a member of the argument.
        name: its name in the body.
        is_file: True if it is a file, or a list of files, in base64.
    """

    argument: str
    name: str
    is_file: bool


class Body(Struct, frozen=True):
    """The body of an operation.

    Attributes:
        kind: `json`, `form`, `multipart`, `text` or `bytes`.
        media_type: as the document writes it.
        whole: the argument that is the whole body; None if its members are arguments.
        members: the members of the body, unless `whole` is the body.
        encodings: `encoding` of OpenAPI, by the name of the member.
    """

    kind: str
    media_type: str
    is_required: bool
    whole: str | None
    members: tuple[Member, ...]
    encodings: Mapping[str, Any]


_TEXT_ENDINGS: Final = ("+xml", "/xml", "+yaml", "/yaml", "/x-yaml", "/x-ndjson", "/graphql")


def media_kind(media_type: str) -> str | None:
    name = media_type.partition(";")[0].strip().lower()
    if name == "application/json" or name.endswith(("+json", "/json")):
        return "json"
    if name == "application/x-www-form-urlencoded":
        return "form"
    if name == "multipart/form-data":
        return "multipart"
    if name.startswith("multipart/"):
        return None
    if name.startswith("text/") or name.endswith(_TEXT_ENDINGS):
        return "text"
    return "bytes" if "/" in name and name.isascii() and name.isprintable() and " " not in name else None


_ORDER: Final = ("json", "form", "multipart", "text", "bytes")


def choose_content(content: Any, document: Document) -> tuple[str, str, Mapping[str, Any]]:
    """Return kind, media type and node of the content that is sent.

    Raises:
        UnsupportedError: no kind can be sent.
    """
    if not isinstance(content, dict) or not content:
        raise UnsupportedError("its body has no `content`")
    found = []
    for position, (media_type, node) in enumerate(content.items()):
        document.budget.spend(3, len(media_type))
        node = document.follow(node)
        node = node if isinstance(node, dict) else {}
        kind = media_kind(media_type)
        if "*" in media_type:
            kind, media_type = _of_any_type(node.get("schema"), document)
        if kind is None or not media_type.isprintable() or not media_type.isascii() or len(media_type) > 200:
            continue
        found.append((_ORDER.index(kind), _patch_order(media_type), position, kind, media_type, node))
    if not found:
        raise UnsupportedError(f"its body can only be sent as {shown(', '.join(content))}")
    _, _, _, kind, media_type, node = min(found, key=lambda each: each[:3])
    return kind, media_type, node


def _patch_order(media_type: str) -> int:
    """Return the order of types of JSON: JSON itself first, and the list of changes of a JSON patch last."""
    name = media_type.partition(";")[0].strip().lower()
    return 0 if name == "application/json" else 2 if name == "application/json-patch+json" else 1


def _of_any_type(schema: Any, document: Document) -> tuple[str, str]:
    if _is_bytes(document.follow(schema)):
        return "bytes", "application/octet-stream"
    return "json", "application/json"


def _is_bytes(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return False
    if schema.get("type") == "file":
        return True
    if schema.get("type") not in (None, "string"):
        return False
    return schema.get("format") == "binary" or ("contentMediaType" in schema and "contentEncoding" not in schema)


def is_file(schema: Any, document: Document) -> bool:
    """Return True if a schema is that of a file, or of a list of files."""
    try:
        node = document.follow(schema)
        if isinstance(node, dict) and node.get("type") == "array":
            node = document.follow(node.get("items"))
    except UnsupportedError:
        return False
    return _is_bytes(node) or (isinstance(node, dict) and node.get("contentEncoding") == "base64")


class Members(Struct):
    """The members of an object, as schemas of the document."""

    properties: dict[str, Any]
    required: set[str]


_OPEN: Final = ("additionalProperties", "unevaluatedProperties")
_MERGED: Final = frozenset({"oneOf", "anyOf", "not", "if", "patternProperties", "dependentSchemas", "const", "enum"})


_COUNTED: Final = frozenset({"properties", "required", "allOf", "anyOf", "oneOf"})
"""Keywords whose members are looked at."""


def members_of(schema: Any, document: Document, *, is_form: bool = False) -> Members | None:
    """Return the members of a schema that describes one kind of object, and maybe null. Return None for any other.

    Args:
        is_form: True for a form, of which members with other names are left out.

    Raises:
        UnsupportedError: a reference of the schema leads nowhere or outside the document.
    """
    return _members(schema, document, is_form, [_MAX_PARTS])


def _members(schema: Any, document: Document, is_form: bool, parts_left: list[int]) -> Members | None:
    parts_left[0] -= 1
    node = document.follow(schema)
    if not isinstance(node, dict) or parts_left[0] < 0:
        return None
    document.budget.spend(1 + sum(len(node[each]) for each in _COUNTED & node.keys() if _is_counted(node[each])))
    for keyword in _MERGED & node.keys():
        if keyword not in ("anyOf", "oneOf") or not _is_only_required(node[keyword]):
            return None
    if not is_form and any(node.get(each) not in (None, False) for each in _OPEN):
        return None
    declared, own, parts = node.get("type"), node.get("properties"), node.get("allOf")
    if not isinstance(own, (dict, type(None))) or not _is_object(declared):
        return None
    if own is None and not parts and declared is None:
        return None
    if own is None and not parts and node.get("additionalProperties") is not False:
        return None  # any object
    found = Members({}, set())
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict) and part.keys() <= {"required", "description", "title"}:
            document.budget.spend(len(part.get("required") or ()))
            inside: Members | None = Members({}, {each for each in part.get("required") or () if isinstance(each, str)})
        else:
            inside = _members(part, document, is_form, parts_left)
        if inside is None:
            return None
        found.properties.update(inside.properties)
        found.required |= inside.required
    for name, member in (own or {}).items():
        if isinstance(member, dict) and member.get("readOnly") is True:
            found.properties.pop(name, None)
        elif name and len(name) <= 200 and name.isprintable():
            found.properties[name] = member
        else:
            return None
    required = node.get("required")
    found.required |= {each for each in required if isinstance(each, str)} if isinstance(required, list) else set()
    found.required &= found.properties.keys()
    return found if len(found.properties) <= MAX_MEMBERS else None


def _is_counted(value: Any) -> bool:
    return isinstance(value, (dict, list))


def _is_object(declared: Any) -> bool:
    names = declared if isinstance(declared, list) else [declared]
    return all(each in (None, "object", "null") for each in names) and names != ["null"]


def _is_only_required(branches: Any) -> bool:
    return isinstance(branches, list) and all(
        isinstance(each, dict) and each.keys() <= {"required", "title", "description"} for each in branches
    )


# Bytes


class MemberNames(Protocol):
    """The check of the names under which members of objects are sent; see `requests`."""

    def add(self, argument: str, place: str, own: str, sent: Iterable[str]) -> None:
        """Check the names of the members of one argument. Raises `ArgumentProblem`."""
        ...


def encode(body: Body, arguments: Mapping[str, Any], names: MemberNames) -> tuple[str, bytes] | None:
    """Return the content type and the bytes of a body; None if there is none.

    Args:
        names: checks the names of a form.

    Raises:
        ArgumentProblem: an argument cannot be sent.
    """
    if body.whole is not None:
        if body.whole not in arguments:
            return None
        value = arguments[body.whole]
        files: dict[str, bool] = {}
    else:
        value = {each.name: arguments[each.argument] for each in body.members if each.argument in arguments}
        files = {each.name: each.is_file for each in body.members}
        if not value and not body.is_required:
            return None
    if body.kind == "json":
        return body.media_type, _json(value)
    if body.kind == "text":
        return body.media_type, str(value).encode("utf-8", "replace")
    if body.kind == "bytes":
        return body.media_type, decoded(value, body.whole or "body")
    if not isinstance(value, dict):
        raise ArgumentProblem(f"`{body.whole}` is not an object, which a form needs; give an object")
    if body.whole is not None:
        names.add(body.whole, "form", "", value)
    if body.kind == "form":
        owners = {each.name: each.argument for each in body.members} or dict.fromkeys(value, body.whole or "")
        return body.media_type, _form(value, body.encodings, owners, names).encode("ascii")
    return _multipart(value, files, body.encodings)


def _json(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    except UnicodeEncodeError:  # half of a surrogate pair
        return json.dumps(value, separators=(",", ":")).encode("ascii")


def decoded(value: Any, argument: str) -> bytes:
    """Return the bytes of a value in base64.

    Raises:
        ArgumentProblem: it is not in base64.
    """
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise ArgumentProblem(f"`{argument}` is not base64; give the bytes in base64, as btoa() returns them") from None


def _form(value: Mapping[str, Any], encodings: Mapping[str, Any], owners: Mapping[str, str], names: MemberNames) -> str:
    pairs: list[tuple[str, str]] = []
    for name, member in value.items():
        encoding = encodings.get(name)
        if isinstance(encoding, dict) and ("style" in encoding or "explode" in encoding):
            style = str(encoding.get("style") or "form")
            explode = encoding.get("explode")
            found = form_pairs(name, member, style, explode if isinstance(explode, bool) else style == "form")
            names.add(owners[name], "form", name, (unquote(key) for key, _ in found))
            pairs += found
        else:
            pairs += _default_pairs(name, member)
    return "&".join(f"{key}={text}" for key, text in pairs)


def _default_pairs(name: str, value: Any) -> list[tuple[str, str]]:
    if value is None:
        return []
    if isinstance(value, dict):
        return [(quoted(name), quoted(plain(value)))]
    members = value if isinstance(value, list) else [value]
    return [(quoted(name), quoted(plain(each))) for each in members]


def _multipart(value: Mapping[str, Any], files: Mapping[str, bool], encodings: Mapping[str, Any]) -> tuple[str, bytes]:
    parts: list[bytes] = []
    for name, member in value.items():
        encoding = encodings.get(name)
        stated = encoding.get("contentType") if isinstance(encoding, dict) else None
        media_type = _plain_type(stated.partition(",")[0] if isinstance(stated, str) else "")
        make = _file_part if files.get(name) else _value_part
        parts += [make(name, each, media_type) for each in (member if isinstance(member, list) else [member])]
    parts = [part for part in parts if part]
    # The same arguments give the same bytes.
    boundary = hashlib.sha256(b"\0".join(parts)).hexdigest()[:32].encode()
    while any(boundary in part for part in parts):
        boundary = hashlib.sha256(boundary).hexdigest()[:32].encode()
    lines = b"".join(b"--" + boundary + b"\r\n" + part + b"\r\n" for part in parts)
    return f"multipart/form-data; boundary={boundary.decode()}", lines + b"--" + boundary + b"--\r\n"


def _plain_type(text: str) -> str:
    """Return a media type for a header; empty if it cannot be one."""
    text = text.strip()
    return text if text.isascii() and text.isprintable() and "*" not in text else ""


def _value_part(name: str, value: Any, media_type: str) -> bytes:
    if value is None:
        return b""
    is_json = isinstance(value, (dict, list)) or media_kind(media_type) == "json"
    content = _json(value) if is_json else plain(value).encode("utf-8", "replace")
    return _part(f'name="{quoted_header(name)}"', media_type or ("application/json" if is_json else ""), content)


def _file_part(name: str, value: Any, media_type: str) -> bytes:
    if value is None:
        return b""
    given = value if isinstance(value, dict) else {"data": value}
    media_type = _plain_type(plain(given.get("type", ""))) or media_type or "application/octet-stream"
    filename = quoted_header(plain(given.get("filename", name)))
    return _part(f'name="{quoted_header(name)}"; filename="{filename}"', media_type, decoded(given.get("data"), name))


def _part(parameters: str, media_type: str, content: bytes) -> bytes:
    head = f"Content-Disposition: form-data; {parameters}"
    lines = [head, f"Content-Type: {media_type}"] if media_type else [head]
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "replace") + content


def quoted_header(text: str) -> str:
    """Return a text for a quoted parameter of a header, as HTML forms write it."""
    quoted_text = text.replace("\r", "%0D").replace("\n", "%0A").replace('"', "%22")
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in quoted_text)


# Values of parameters as text, in the styles of OpenAPI.
#
# OpenAPI defines lists of scalars and objects with scalars. What is nested deeper is sent as JSON, and with
# `deepObject` in further brackets; the items of a list get their positions as keys. A value of null is not sent. In the
# styles `label`, `spaceDelimited` and `pipeDelimited`, an API cannot tell a text with the delimiter from two texts.


_UNRESERVED: Final = "-._~"
_RESERVED: Final = _UNRESERVED + ":/?@!$'()*,[]"
"""Characters that `allowReserved` leaves as they are: not those that end a value or begin another one for some server,
such as `;`."""
_LITERAL: Final = _UNRESERVED + ":@!$&'()*+,;=%"
_DELIMITERS: Final = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}
_MAX_DEPTH: Final = 30


class ArgumentProblem(Exception):
    """Arguments that cannot be sent. The message names the argument and says what to do."""


def quoted(text: str, *, is_reserved: bool = False) -> str:
    """Return a text percent-encoded, for a value in a path or in a query."""
    return quote(text.encode("utf-8", "replace"), safe=_RESERVED if is_reserved else _UNRESERVED)


def plain(value: Any) -> str:
    """Return a value as text: a string as it is, and any other value as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        value = int(value)
    return json_text(value)


def json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def quoted_literal(text: str) -> str:
    """Return a fixed part of a path percent-encoded. What is encoded already stays so."""
    return quote(text.encode("utf-8", "replace"), safe=_LITERAL)


def path_value(name: str, value: Any, style: str, *, explode: bool) -> str:
    members = _value_members(value)
    if style == "label":
        return "." + _joined(members, "." if explode else ",", is_paired=explode)
    if style == "matrix":
        key = quoted(name)
        if explode and isinstance(value, dict):
            return "".join(f";{quoted(inner or '')}={quoted(text)}" for inner, text in members)
        if explode and isinstance(value, list):
            return "".join(f";{key}={quoted(text)}" for _, text in members)
        text = _joined(members, ",", is_paired=False)
        return f";{key}={text}" if text else f";{key}"
    return _joined(members, ",", is_paired=explode)


def header_value(value: Any, *, explode: bool) -> str:
    """Return the text of a header, which is not encoded."""
    members = _value_members(value)
    if explode:
        return ",".join(text if key is None else f"{key}={text}" for key, text in members)
    return ",".join(text if key is None else f"{key},{text}" for key, text in members)


def form_pairs(name: str, value: Any, style: str, explode: bool, *, is_reserved: bool = False) -> list[tuple[str, str]]:
    """Return the encoded names and values of a parameter in a query, a cookie or a form."""
    if value is None:
        return []
    if style == "deepObject":
        return _deep_pairs(quoted(name), value, is_reserved, 0)
    members = _value_members(value)
    if not isinstance(value, (dict, list)) or (explode and isinstance(value, list)):
        return [(quoted(name), quoted(text, is_reserved=is_reserved)) for _, text in members]
    if explode:
        return [(quoted(key or ""), quoted(text, is_reserved=is_reserved)) for key, text in members]
    if not members:
        return []
    return [(quoted(name), _joined(members, _DELIMITERS.get(style, ","), is_paired=False, is_reserved=is_reserved))]


def _value_members(value: Any) -> list[tuple[str | None, str]]:
    if isinstance(value, dict):
        return [(str(key), plain(member)) for key, member in value.items() if member is not None]
    if isinstance(value, list):
        return [(None, plain(member)) for member in value if member is not None]
    return [(None, plain(value))]


def _joined(
    members: list[tuple[str | None, str]], delimiter: str, *, is_paired: bool, is_reserved: bool = False
) -> str:
    texts = []
    for key, text in members:
        encoded = quoted(text, is_reserved=is_reserved)
        if key is None:
            texts.append(encoded)
        else:
            texts += [f"{quoted(key)}={encoded}"] if is_paired else [quoted(key), encoded]
    return delimiter.join(texts)


def _deep_pairs(name: str, value: Any, is_reserved: bool, depth: int) -> list[tuple[str, str]]:
    if value is None:
        return []
    if not isinstance(value, (dict, list)) or depth > _MAX_DEPTH:
        return [(name, quoted(plain(value), is_reserved=is_reserved))]
    members = value.items() if isinstance(value, dict) else enumerate(value)
    return [
        pair
        for key, member in members
        for pair in _deep_pairs(f"{name}%5B{quoted(str(key))}%5D", member, is_reserved, depth + 1)
    ]
