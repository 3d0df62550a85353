"""The time from the bytes of an OpenAPI document to a catalog whose tools are found by a search.

    python benchmarks/run.py documents

It is processor time, so that a busy machine does not distort it. Measured with a document of this file, and with
GitHub's if `python3 tests/run.py openapi` has downloaded it.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from measure import report

from codemode_mcp.catalog.per_caller import build
from codemode_mcp.policy.policy import Policy
from codemode_mcp.settings import PolicyRules
from upstream_clients.list_repair import read_tools
from upstream_clients.openapi.api import Api
from upstream_clients.tools import UpstreamView

ROOT = Path(__file__).resolve().parents[1]
OPERATIONS = 1_200
SCHEMAS = 300
ROUNDS = 5
BAR = 1.0


def generated() -> bytes:
    """Return a document with `OPERATIONS` operations, whose schemas refer to each other."""
    kinds = ("account", "invoice", "shipment", "ticket", "device", "report")
    schemas = {f"Schema{n}": _schema(n) for n in range(SCHEMAS)}
    paths: dict[str, Any] = {}
    for n in range(OPERATIONS // 4):
        kind = kinds[n % len(kinds)]
        one = {"application/json": {"schema": {"$ref": f"#/components/schemas/Schema{n % SCHEMAS}"}}}
        many = {"type": "array", "items": {"$ref": f"#/components/schemas/Schema{n % SCHEMAS}"}}
        identifier = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
        page = {"name": "page", "in": "query", "description": "The page of results.", "schema": {"type": "integer"}}
        paths[f"/{kind}s/{n}"] = {
            "get": _operation("list", kind, n, {"content": {"application/json": {"schema": many}}}, parameters=[page]),
            "post": _operation("create", kind, n, {"content": one}, requestBody={"required": True, "content": one}),
        }
        paths[f"/{kind}s/{n}/{{id}}"] = {
            "get": _operation("get", kind, n, {"content": one}, parameters=[identifier]),
            "delete": _operation("delete", kind, n, {"description": "Gone"}, parameters=[identifier]),
        }
    document = {"openapi": "3.0.3", "info": {}, "paths": paths, "components": {"schemas": schemas}}
    return json.dumps(document).encode()


def _operation(verb: str, kind: str, number: int, answer: Any, **more: Any) -> dict[str, Any]:
    return {
        "operationId": f"{kind}s/{verb}-{number}",
        "summary": f"{verb.capitalize()} {kind}s of region {number}.",
        "description": f"It returns what is known of the {kind}. " * 8,
        "responses": {"200": answer},
        **more,
    }


def _schema(number: int) -> dict[str, Any]:
    members: dict[str, Any] = {
        f"member_{n}": {"type": "string", "description": f"The member {n} of the schema. " * 3, "example": "value"}
        for n in range(15)
    }
    members |= {f"part_{n}": {"$ref": f"#/components/schemas/Schema{(number * 7 + n) % SCHEMAS}"} for n in range(4)}
    return {"type": "object", "required": ["member_1"], "properties": members}


def seconds(data: bytes, query: str) -> tuple[int, float]:
    """Return the number of tools, and the least processor time of several rounds."""
    times = []
    for _ in range(ROUNDS):
        began = time.process_time()
        api = Api.read(data, base_url="https://api.example", source="document.json")
        tools, _ = read_tools(api.tools)
        catalog = build([UpstreamView("api", "ready", tools=tools)], Policy(PolicyRules()))
        hits = catalog.search(query, 3, None)
        times.append(time.process_time() - began)
        assert hits, "the search found nothing"
    return len(api.tools), min(times)


def documents() -> None:
    """Print a row for each document."""
    rows = [("a generated document", generated(), "create an invoice")]
    if (ROOT / ".cache" / "openapi").is_dir():
        sys.path.insert(0, str(ROOT))
        from tests.real_apis.published import document

        rows.append(("GitHub's document", document("github"), "list the issues of a repository"))
    for name, data, query in rows:
        count, took = seconds(data, query)
        title = f"{name} of {len(data) / 1e6:.1f} MB with {count} operations, to a search in the catalog"
        report(title, f"{took:.2f} s of processor time", f"< {BAR:g} s", took < BAR)


if __name__ == "__main__":
    documents()
