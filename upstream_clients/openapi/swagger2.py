"""Swagger 2.0 in the form of OpenAPI 3.0. Pure: no I/O.

Only what has another form is converted: servers, parameters, bodies, answers and security schemes. Schemas stay where
they are, so that references to `#/definitions/...` still lead to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

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
_FLOWS: Final = {"accessCode": "authorizationCode", "application": "clientCredentials"}


def to_version_3(root: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document of Swagger 2.0 as one of OpenAPI 3.0."""
    document = Document(root, is_legacy=True)
    paths = root.get("paths")
    return {
        **root,
        "openapi": "3.0.0",
        "servers": _servers(root),
        "paths": {path: _item(item, document) for path, item in paths.items()} if isinstance(paths, dict) else {},
        "components": {"securitySchemes": _security(root.get("securityDefinitions"))},
    }


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


def _item(item: Any, document: Document) -> Any:
    try:
        item = document.follow(item)
    except UnsupportedError:
        return item
    if not isinstance(item, dict):
        return item
    shared = item.get("parameters")
    return {
        method: _operation(node, shared, document) if isinstance(node, dict) else node
        for method, node in item.items()
        if method in _METHODS
    }


def _operation(node: Mapping[str, Any], shared: Any, document: Document) -> dict[str, Any]:
    result = {key: value for key, value in node.items() if key not in ("parameters", "responses", "servers")}
    parameters: dict[tuple[str, str], Any] = {}
    body, form = None, {}
    for listed in (shared, node.get("parameters")):
        for each in listed if isinstance(listed, list) else ():
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
    result["parameters"] = [_parameter(each) if isinstance(each, dict) else each for each in parameters.values()]
    consumes = _types(node.get("consumes"), document.root.get("consumes"))
    if body is not None:
        usable = [each for each in consumes if "form" not in each] or ["application/json"]
        media = {"schema": body.get("schema")}
        result["requestBody"] = {
            "content": dict.fromkeys(usable, media),
            "required": body.get("required") is True,
            **({"description": body["description"]} if "description" in body else {}),
        }
    elif form:
        result["requestBody"] = _form(form, consumes)
    produces = _types(node.get("produces"), document.root.get("produces")) or ["application/json"]
    result["produces"] = produces  # for answers without a schema, whose content is not described
    responses = node.get("responses")
    result["responses"] = (
        {status: _response(each, produces, document) for status, each in responses.items()}
        if isinstance(responses, dict)
        else {}
    )
    return result


def _types(*listed: Any) -> list[str]:
    """Return the first list of media types."""
    for each in listed:
        if isinstance(each, list):
            return [media_type for media_type in each if isinstance(media_type, str)]
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
    is_multipart = has_file or (
        "multipart/form-data" in consumes and "application/x-www-form-urlencoded" not in consumes
    )
    media_type = "multipart/form-data" if is_multipart else "application/x-www-form-urlencoded"
    schema = {"type": "object", "properties": properties, "required": required}
    return {"content": {media_type: {"schema": schema, "encoding": encoding}}, "required": bool(required)}


def _response(node: Any, produces: list[str], document: Document) -> Any:
    try:
        node = document.follow(node)
    except UnsupportedError:
        return node
    if not isinstance(node, dict) or node.get("schema") is None:
        return node
    schema = node["schema"]
    if isinstance(schema, dict) and schema.get("type") == "file":
        schema = {"type": "string", "format": "binary"}
        produces = [each for each in produces if "json" not in each] or ["application/octet-stream"]
    return {
        **{key: value for key, value in node.items() if key != "schema"},
        "content": {media_type: {"schema": schema} for media_type in produces},
    }


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
