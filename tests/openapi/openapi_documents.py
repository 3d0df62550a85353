"""Documents of OpenAPI for tests."""

import json
from typing import Any

from upstream_clients.openapi.api import Api

PET = {
    "type": "object",
    "required": ["id", "name"],
    "properties": {
        "id": {"type": "integer", "format": "int64", "readOnly": True},
        "name": {"type": "string", "description": "Its <b>name</b>."},
        "tag": {"type": "string", "nullable": True},
        "parent": {"$ref": "#/components/schemas/Pet"},
    },
}

PET_IN_JSON = {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}

PETSTORE: dict[str, Any] = {
    "openapi": "3.0.3",
    "info": {"title": "Petstore", "version": "1.2.0"},
    "servers": [{"url": "https://{region}.pets.example/v1/", "variables": {"region": {"default": "eu"}}}],
    "paths": {
        "/pets": {
            "get": {
                "operationId": "listPets",
                "summary": "List all pets.",
                "parameters": [
                    {"name": "limit", "in": "query", "description": "How many", "schema": {"type": "integer"}},
                    {"name": "tags", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
                    {"name": "X-Key", "in": "header", "schema": {"type": "string"}},
                    {"name": "Authorization", "in": "header", "schema": {"type": "string"}},
                ],
                "responses": {
                    "200": {
                        "description": "Pets",
                        "content": {
                            "application/json": {
                                "schema": {"type": "array", "items": {"$ref": "#/components/schemas/Pet"}}
                            }
                        },
                    },
                    "default": {"$ref": "#/components/responses/Error"},
                },
            },
            "post": {
                "operationId": "pets/create",
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}},
                },
                "responses": {"201": {"description": "Created"}},
            },
        },
        "/pets/{id}": {
            "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
            "get": {"responses": {"200": {"$ref": "#/components/responses/Pet"}}},
            "delete": {"responses": {"204": {"description": "Gone"}}},
            "put": {"parameters": "x", "responses": {}},
        },
    },
    "components": {
        "schemas": {"Pet": PET},
        "responses": {
            "Pet": {
                "description": "",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}},
            },
            "Error": {"description": "", "content": {"application/json": {"schema": {"type": "object"}}}},
        },
        "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}},
    },
}


BOOK = {
    "type": "object",
    "required": ["title"],
    "properties": {
        "id": {"type": "string", "readOnly": True},
        "title": {"type": "string"},
        "kind": {"enum": ["novel", "essay", None]},
        "parts": {"type": "array", "items": {"$ref": "#/components/schemas/Book"}},
        "note*/": {"type": ["string", "null"], "description": "Ends a comment: */ and <b>not</b> \u202e this"},
    },
}
OK = {"200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Book"}}}}}
FEATURES: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Every feature"},
    "paths": {
        "/books/{id}": {
            "parameters": [{"name": "id", "in": "path", "required": True, "style": "matrix", "schema": {}}],
            "get": {
                "operationId": "find-books",
                "parameters": [
                    {"name": "id", "in": "query", "schema": {"type": "integer", "default": 1}},
                    {"name": "filter", "in": "query", "style": "deepObject", "schema": {"type": "object"}},
                    {"name": "or", "in": "query", "content": {"application/json": {"schema": {"type": "array"}}}},
                    {"name": "X-Trace", "in": "header", "deprecated": True, "schema": {"type": "boolean"}},
                    {"name": "class", "in": "cookie", "description": "*/", "schema": {"const": "a"}},
                ],
                "responses": OK,
            },
            "put": {
                "operationId": "class",
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Book"}}}},
                "responses": {**OK, "204": {}},
            },
            "patch": {
                "operationId": "patchBook",
                "requestBody": {
                    "required": True,
                    "content": {"application/json-patch+json": {"schema": {"type": "array", "items": {}}}},
                },
                "responses": {"default": {"content": {"application/json": {"schema": {"type": "array"}}}}},
            },
        },
        "/upload": {
            "post": {
                "requestBody": {
                    "required": True,
                    "content": {
                        "multipart/form-data": {
                            "schema": {
                                "type": "object",
                                "required": ["file"],
                                "properties": {
                                    "file": {"type": "string", "contentMediaType": "application/octet-stream"},
                                    "book": {"$ref": "#/components/schemas/Book"},
                                },
                            }
                        }
                    },
                },
                "responses": {"200": {"content": {"image/png": {}}}},
            },
            "delete": {
                "requestBody": {"content": {"text/plain": {"schema": {"type": "string"}}}},
                "responses": {"204": {}},
            },
        },
    },
    "components": {"schemas": {"Book": BOOK}},
}


def read(document: Any, *, base_url: str | None = None, source: str = "pets.json", **more: Any) -> Api:
    """Return the API of a document that is given as a value."""
    return Api.read(json.dumps(document).encode(), base_url=base_url, source=source, **more)


def api_of(operation: dict[str, Any], *, method: str = "get", path: str = "/x", **more: Any) -> Api:
    """Return an API with one operation, whose tool has the name `call`."""
    paths = {path: {method: {"operationId": "call", "responses": {}, **operation}}}
    return read({"openapi": "3.0.3", "info": {}, "paths": paths, **more}, base_url="https://api.example")


def tools(api: Api) -> dict[str, Any]:
    """Return the listed tools of an API by name."""
    return {tool["name"]: tool for tool in api.tools}
