"""Swagger 2.0 in the form of OpenAPI 3.0. Pure: no I/O.

Only what has another form is converted: servers, parameters, bodies, answers and security schemes. Schemas stay where
they are, so that references to `#/definitions/...` still lead to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from upstream_clients.openapi.budget import PER_OPERATION, BudgetError
from upstream_clients.openapi.document import Document, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    """Return a document of Swagger 2.0 as one of OpenAPI 3.0."""
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
