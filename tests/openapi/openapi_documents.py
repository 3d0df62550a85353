"""Documents of OpenAPI for tests."""

import json
from pathlib import Path
from typing import Any

from upstream_clients.openapi.api import Api

PET_IN_JSON = {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}


def document(name: str) -> dict[str, Any]:
    """Return a document of the folder `documents`."""
    value: dict[str, Any] = json.loads((Path(__file__).parent / "documents" / f"{name}.json").read_text("utf-8"))
    return value


PETSTORE, FEATURES, SWAGGER = document("petstore"), document("features"), document("swagger")


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
