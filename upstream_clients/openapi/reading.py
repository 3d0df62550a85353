"""The text of an OpenAPI or Swagger document, in JSON or YAML, as a document. Pure: no I/O."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.nodes import MappingNode, SequenceNode
from ruamel.yaml.scanner import Scanner

from upstream_clients.openapi.document import (
    PER_OPERATION,
    BudgetError,
    Document,
    DocumentError,
    UnsupportedError,
    shown,
)

MAX_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of a document. GitHub's has 13 MB."""
MAX_YAML_BYTES: Final = 4 * 1024 * 1024
"""Maximum size of a document in YAML, of which a second of work reads about 500 kB."""
MAX_NODES: Final = 2_000_000
"""Maximum number of values of a document. Aliases of YAML count each time. The largest published one has a million."""
MAX_CONTAINERS: Final = 1_000_000
"""Maximum number of objects and lists of a document in JSON, which take most of the memory. GitHub's has 100,000."""
MAX_DEPTH: Final = 200
"""Maximum number of nested values of a document in YAML."""


def read_json_or_yaml(data: bytes) -> Mapping[str, Any]:
    """Return the object that a text in JSON or YAML describes.

    Raises:
        DocumentError: the text is too large, or is neither.
    """
    if len(data) > MAX_BYTES:
        raise DocumentError(f"the document has {len(data)} bytes, more than {MAX_BYTES}")
    text = data.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text:
        raise DocumentError("the document is empty")
    if text.startswith(b"{"):
        if text.count(b",") > MAX_NODES:
            raise DocumentError(f"the document has more than {MAX_NODES} values")
        if text.count(b"{") + text.count(b"[") > MAX_CONTAINERS:
            raise DocumentError(f"the document has more than {MAX_CONTAINERS} objects and lists")
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
            if len(text) > MAX_YAML_BYTES:
                raise DocumentError(f"the document is not valid JSON: {_reason(error)}") from None
            value = _read_yaml(text, or_json=_reason(error))
    else:
        value = _read_yaml(text)
    if not isinstance(value, dict):
        raise DocumentError("the document is not an object; give the address of an OpenAPI document in JSON or YAML")
    return value


def _reason(error: Exception) -> str:
    lines = str(error).splitlines()
    return "it is nested too deeply" if isinstance(error, RecursionError) else lines[0][:200] if lines else "an error"


def _read_yaml(text: bytes, or_json: str = "") -> Any:
    if text.startswith((b"<!", b"<html", b"<?xml")):
        raise DocumentError("the document is HTML or XML; give the address of the OpenAPI document in JSON or YAML")
    if len(text) > MAX_YAML_BYTES:
        raise DocumentError(
            f"the document in YAML has {len(text)} bytes, more than {MAX_YAML_BYTES}; give the same document in JSON"
        )
    from ruamel.yaml import YAML  # most documents are JSON
    from ruamel.yaml.error import YAMLError

    yaml = YAML(typ="safe", pure=True)
    yaml.Scanner, yaml.Constructor = BoundedScanner, BoundedConstructor
    yaml.allow_duplicate_keys = True
    try:
        return _Plain(WrittenNumber).value(yaml.load(text.decode("utf-8", "replace")), 0)
    except (YAMLError, RecursionError, ValueError, TypeError, AttributeError, KeyError, OverflowError) as error:
        if or_json:
            raise DocumentError(f"the document is not valid JSON: {or_json}") from None
        raise DocumentError(
            f"the document is neither JSON nor valid YAML: {_reason(error) or 'it has errors'}"
        ) from None


class _Plain:
    """The conversion of a value of YAML to JSON."""

    def __init__(self, written: type[WrittenNumber]) -> None:
        self._left = MAX_NODES
        self._written = written
        self._done: dict[int, tuple[Any, Any, int]] = {}

    def value(self, node: Any, depth: int) -> Any:
        """Return the value with keys that are strings, and without dates, sets and bytes.

        Raises:
            DocumentError: it has too many values, or is nested too deeply.
        """
        self._left -= 1
        if self._left < 0:
            raise DocumentError(f"the document has more than {MAX_NODES} values; its aliases may repeat too much")
        if depth > MAX_DEPTH:
            raise DocumentError(f"the document is nested deeper than {MAX_DEPTH} levels")
        if node is None or isinstance(node, (str, bool, int)):
            return node
        if isinstance(node, self._written):
            return node.value
        if isinstance(node, float):
            return node if math.isfinite(node) else None
        if not isinstance(node, (dict, list, tuple)):
            return str(node)
        # An alias is converted once, and counts each time.
        if known := self._done.get(id(node)):
            self._left -= known[2]
            return known[1]
        before = self._left
        result: Any
        if isinstance(node, dict):
            if node.get("type") == "string" and isinstance(node.get("enum"), list):
                # Authors leave out the quotes of texts that look like numbers.
                choices = [each.text if isinstance(each, self._written) else each for each in node["enum"]]
                node = {**node, "enum": choices}
            result = {_key(key): self.value(member, depth + 1) for key, member in node.items()}
        else:
            result = [self.value(member, depth + 1) for member in node]
        self._done[id(node)] = (node, result, before - self._left)
        return result


def _key(key: object) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return "null" if key is None else str(key)


def read_document(data: bytes) -> Document:
    """Return the document that a text describes. Swagger 2 is brought to the form of OpenAPI 3.

    Raises:
        DocumentError: the text is not such a document.
    """
    root = read_json_or_yaml(data)
    swagger, version = root.get("swagger"), root.get("openapi")
    if str(swagger).startswith("2"):
        return to_version_3(root)
    if not isinstance(version, (str, float, int)) or isinstance(version, bool):
        raise DocumentError(
            "the document is not OpenAPI: it has neither `openapi` (3.0, 3.1) nor `swagger` (2.0); "
            "give the address of an OpenAPI document"
        )
    if not str(version).startswith("3"):
        raise DocumentError(f"the document has version {shown(str(version))} of OpenAPI; 2.0, 3.0 and 3.1 can be read")
    return Document(root, is_legacy=str(version).startswith("3.0"))


# Swagger 2.0 in the form of OpenAPI 3.0.
#
# Only what has another form is converted: servers, parameters, bodies, answers and security schemes. Schemas stay where
# they are, so that references to `#/definitions/...` still lead to them.


_METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch")
_STYLES: Final[dict[str, dict[str, Any]]] = {
    "csv": {"explode": False},
    "ssv": {"style": "spaceDelimited", "explode": False},
    "pipes": {"style": "pipeDelimited", "explode": False},
    "multi": {"style": "form", "explode": True},
    "tsv": {"style": "tabDelimited"},
}
"""Styles by `collectionFormat`. No style of OpenAPI 3 is that of `tsv`, so its operations are skipped."""
_SCHEMA_KEYWORDS: Final = (
    "type", "format", "items", "default", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "minLength", "maxLength", "pattern", "minItems", "maxItems", "uniqueItems", "multipleOf", "example",
)  # fmt: skip
_OPERATION_KEYS: Final = ("operationId", "summary", "description", "deprecated", "requestBody")
"""Members of an operation that stay as they are."""
_PER_PARAMETER: Final = 25
_PER_RESPONSE: Final = 10
"""Steps of a parameter that is converted, and of an answer of an operation."""
_MAX_TYPES: Final = 100
"""Maximum number of media types of an operation that are read."""
_FLOWS: Final = {"accessCode": "authorizationCode", "application": "clientCredentials"}


class _Swagger(Document):
    """A document of Swagger 2.0. A parameter or an answer that operations share is converted once.

    What is converted is found by the identity of its node, which the document keeps alive.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        super().__init__(root, is_legacy=True)
        self._parameters: dict[int, dict[str, Any]] = {}
        self._responses: dict[tuple[int, tuple[str, ...]], Any] = {}

    def parameter(self, node: Mapping[str, Any]) -> dict[str, Any]:
        found = self._parameters.get(id(node))
        if found is None:
            self.budget.spend(_PER_PARAMETER)
            found = self._parameters[id(node)] = _parameter(node)
        return found

    def response(self, node: Any, produces: tuple[str, ...]) -> Any:
        try:
            node = self.follow(node)
        except UnsupportedError:
            return node
        if not isinstance(node, dict) or node.get("schema") is None:
            return node
        found = self._responses.get((id(node), produces))
        if found is None:
            self.budget.spend(_PER_PARAMETER + 5 * len(produces))
            found = self._responses[id(node), produces] = _response(node["schema"], produces)
        return found


def to_version_3(root: Mapping[str, Any]) -> Document:
    document = _Swagger(root)
    paths = root.get("paths")
    converted = {
        **root,
        "openapi": "3.0.0",
        "servers": _servers(root),
        "paths": {path: _item(item, document) for path, item in paths.items()} if isinstance(paths, dict) else {},
        "components": {"securitySchemes": _security(root.get("securityDefinitions"))},
    }
    return Document(converted, is_legacy=True, budget=document.budget)


def _servers(root: Mapping[str, Any]) -> list[dict[str, str]]:
    host, base, schemes = root.get("host"), root.get("basePath"), root.get("schemes")
    path = base if isinstance(base, str) and base else "/"
    path = path if path.startswith("/") else f"/{path}"
    if not isinstance(host, str) or not host:
        return [{"url": path}]
    schemes = [each for each in schemes if each in ("https", "http")] if isinstance(schemes, list) else []
    if not schemes:
        return [{"url": f"//{host}{path}"}]
    return [{"url": f"{'https' if 'https' in schemes else 'http'}://{host}{path}"}]


def _item(item: Any, document: _Swagger) -> Any:
    try:
        item = document.follow(item)
        if not isinstance(item, dict):
            return item
        shared = item.get("parameters")
        return {
            method: _operation(item[method], shared, document) if isinstance(item[method], dict) else item[method]
            for method in _METHODS
            if method in item
        }
    except (UnsupportedError, BudgetError):
        return item  # these operations are skipped later, with the reason


def _operation(node: Mapping[str, Any], shared: Any, document: _Swagger) -> dict[str, Any]:
    document.budget.spend(PER_OPERATION)
    result = {key: node[key] for key in _OPERATION_KEYS if key in node}
    parameters: dict[tuple[str, str], Any] = {}
    body, form = None, {}
    for listed in (shared, node.get("parameters")):
        for each in listed if isinstance(listed, list) else ():
            document.budget.spend(2)
            try:
                parameter = document.follow(each)
            except UnsupportedError:
                parameter = each  # skips the operation, with the reason
            place = parameter.get("in") if isinstance(parameter, dict) else None
            name = parameter.get("name") if isinstance(parameter, dict) else None
            if place == "body":
                body = parameter
            elif place == "formData" and isinstance(name, str):
                form[name] = parameter
            elif isinstance(place, str) and isinstance(name, str):
                parameters[place, name] = parameter
            else:
                parameters["", str(len(parameters))] = parameter
    result["parameters"] = [
        document.parameter(each) if isinstance(each, dict) else each for each in parameters.values()
    ]
    consumes = _types(node.get("consumes"), document.root.get("consumes"))
    if body is not None:
        usable = [each for each in consumes if "form" not in each.lower()] or ["application/json"]
        media = {"schema": body.get("schema")}
        result["requestBody"] = {
            "content": dict.fromkeys(usable, media),
            "required": body.get("required") is True,
            **({"description": body["description"]} if "description" in body else {}),
        }
    elif form:
        document.budget.spend(_PER_PARAMETER * len(form))
        result["requestBody"] = _form(form, consumes)
    produces = _types(node.get("produces"), document.root.get("produces")) or ["application/json"]
    result["produces"] = produces  # for answers without a schema, whose content is not described
    responses, media_types = node.get("responses"), tuple(produces)
    document.budget.spend(_PER_RESPONSE * len(responses) if isinstance(responses, dict) else 0)
    result["responses"] = (
        {status: document.response(each, media_types) for status, each in responses.items()}
        if isinstance(responses, dict)
        else {}
    )
    return result


def _types(*listed: Any) -> list[str]:
    for each in listed:
        if isinstance(each, list):
            return [media_type for media_type in each[:_MAX_TYPES] if isinstance(media_type, str)]
    return []


def _schema(parameter: Mapping[str, Any]) -> dict[str, Any]:
    schema = {key: parameter[key] for key in _SCHEMA_KEYWORDS if key in parameter}
    if parameter.get("x-nullable") is True:
        schema["nullable"] = True
    return schema


def _parameter(node: Mapping[str, Any]) -> dict[str, Any]:
    if "$ref" in node or "schema" in node:
        return dict(node)
    result = {key: node[key] for key in ("name", "in", "description", "required") if key in node}
    result["schema"] = _schema(node)
    if node.get("type") == "array":
        style = _STYLES.get(str(node.get("collectionFormat", "csv")), {"explode": False})
        result.update(style if node.get("in") == "query" or "style" not in style else {"explode": False})
        if style.get("style") == "tabDelimited":
            result["style"] = "tabDelimited"
    return result


def _form(form: Mapping[str, Mapping[str, Any]], consumes: list[str]) -> dict[str, Any]:
    has_file = any(each.get("type") == "file" for each in form.values())
    properties, encoding = {}, {}
    for name, each in form.items():
        schema = {"type": "string", "format": "binary"} if each.get("type") == "file" else _schema(each)
        properties[name] = {**schema, **({"description": each["description"]} if "description" in each else {})}
        if each.get("type") == "array":
            encoding[name] = {"style": "form", **_STYLES.get(str(each.get("collectionFormat", "csv")), {})}
    required = [name for name, each in form.items() if each.get("required") is True]
    accepted = {each.lower() for each in consumes}
    is_multipart = has_file or (
        "multipart/form-data" in accepted and "application/x-www-form-urlencoded" not in accepted
    )
    media_type = "multipart/form-data" if is_multipart else "application/x-www-form-urlencoded"
    schema = {"type": "object", "properties": properties, "required": required}
    return {"content": {media_type: {"schema": schema, "encoding": encoding}}, "required": bool(required)}


def _response(schema: Any, produces: tuple[str, ...]) -> dict[str, Any]:
    media_types: list[str] = list(produces)
    if isinstance(schema, dict) and schema.get("type") == "file":
        schema = {"type": "string", "format": "binary"}
        media_types = [each for each in produces if "json" not in each.lower()] or ["application/octet-stream"]
    media = {"schema": schema}
    return {"content": dict.fromkeys(media_types, media)}


def _security(definitions: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, node in definitions.items() if isinstance(definitions, dict) else ():
        if not isinstance(node, dict):
            continue
        kind = node.get("type")
        if kind == "basic":
            found[name] = {"type": "http", "scheme": "basic"}
        elif kind == "oauth2":
            flow = _FLOWS.get(str(node.get("flow")), str(node.get("flow")))
            found[name] = {"type": "oauth2", "flows": {flow: node}}
        else:
            found[name] = node
    return found


# A scanner and a constructor of YAML whose work is bounded.
#
# The scanner reads about 30,000 tokens in a second, and a document that is hardly more than commas has one in each
# byte. Merge keys (`<<`) copy the members of other mappings. A few lines whose mappings merge each other twice would
# make any number of members. Sexagesimal numbers of YAML 1.1 take quadratic time.
#
# Only imported for documents in YAML, since `ruamel.yaml` takes long to import.


MAX_TOKENS: Final = 800_000
"""Maximum number of tokens. A document of the largest size has half of them, since it has descriptions."""
MAX_WORK: Final = 2_000_000
"""Maximum number of members of mappings that are looked through. A member that is merged counts ten times."""
MAX_NUMBER: Final = 1_000
"""Maximum length of a number."""

_MERGE: Final = "tag:yaml.org,2002:merge"
_NUMBERS: Final = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


class BoundedScanner(Scanner):
    """The scanner of one document."""

    _left = MAX_TOKENS

    def fetch_more_tokens(self) -> Any:
        """Raise `DocumentError` if there are too many tokens."""
        self._left -= 1
        if self._left < 0:
            raise DocumentError(f"the document in YAML has more than {MAX_TOKENS} tokens; give the same one in JSON")
        return super().fetch_more_tokens()


class WrittenNumber(float):
    """A number whose text in the document differs from that in JSON, such as `007` and `1.10`.

    Attributes:
        value: the number.
        text: the number as the document has it.
    """

    value: int | float
    text: str

    def __str__(self) -> str:
        return self.text


class BoundedConstructor(SafeConstructor):
    """The constructor of the values of one document."""

    _left = MAX_WORK

    def flatten_mapping(self, node: Any) -> Any:
        """Raise `DocumentError` before merge keys make too many members."""
        merged = 0
        for key, value in node.value:
            if key.tag == _MERGE:
                for each in value.value if isinstance(value, SequenceNode) else [value]:
                    if isinstance(each, MappingNode):
                        self.flatten_mapping(each)  # has no merge keys after this
                        merged += len(each.value)
        self._left -= len(node.value) + 10 * merged
        if self._left < 0:
            raise DocumentError("the document has merge keys (`<<`) that repeat too much")
        return super().flatten_mapping(node)

    def construct_scalar(self, node: Any) -> Any:
        """Raise `DocumentError` for a number that is too long."""
        if node.tag in _NUMBERS and len(node.value) > MAX_NUMBER:
            raise DocumentError(f"the document has a number of more than {MAX_NUMBER} characters")
        return super().construct_scalar(node)

    def construct_number(self, node: Any) -> Any:
        """Return a number, with its text if that is not certain."""
        read = self.construct_yaml_int if node.tag == _NUMBERS[0] else self.construct_yaml_float
        value = read(node)
        if repr(value) == node.value or not -1e300 < value < 1e300:
            return value
        written = WrittenNumber(value)
        written.value, written.text = value, node.value
        return written


for _tag in _NUMBERS:
    BoundedConstructor.add_constructor(_tag, BoundedConstructor.construct_number)
