"""Published OpenAPI documents: TypeScript accepts the declaration of each operation that is not skipped."""

import json
import os
import re
from collections.abc import Callable
from typing import Any

import pytest

from declarations import identifiers, render_server
from tests.real_apis.published import DOCUMENTS, document
from upstream_clients.list_repair import read_tools
from upstream_clients.openapi.api import Api, ArgumentProblem
from upstream_clients.schemas import compile_schema

pytestmark = pytest.mark.skipif(
    os.environ.get("REAL_APIS") != "1",
    reason="documents are read by a command of their own: tests/run.py openapi",
)

MOST_SKIPPED = 0.05
MOST_BYTES = 45_000
"""Bytes of the schemas of one tool, as JSON. That of GitLab's settings has 200 arguments."""


@pytest.mark.parametrize("name", DOCUMENTS)
def test_each_operation_is_declared_or_skipped(name: str, type_check: Callable[..., Any]) -> None:
    data = document(name)
    api = Api.read(data, base_url=None, source=f"{name}.json")
    if api.base_url is None:
        api = Api.read(data, base_url="https://api.example", source=f"{name}.json")
    tools, problems = read_tools(api.tools)
    assert not problems
    assert len(tools) == len(api.tools)
    operations = len(tools) + len(api.skipped)
    print(f"{name}: {len(data)} bytes, {operations} operations, skipped {[str(each) for each in api.skipped]}")
    assert operations == count_operations(data)
    assert len(api.skipped) <= MOST_SKIPPED * operations
    assert all(each.operation and each.reason for each in api.skipped)
    for tool in tools:
        compile_schema(tool.input_schema)
        compile_schema(tool.output_schema or {})
        assert len(json.dumps([tool.input_schema, tool.output_schema])) <= MOST_BYTES
        check_request(api, tool.name, tool.input_schema)
    names = identifiers([tool.name for tool in tools])
    assert all(identifier == tool for tool, identifier in names.items())
    files = {
        f"{start}.d.ts": render_server(f"api{start}", [(tool.name, tool) for tool in tools[start : start + 200]])
        for start in range(0, len(tools), 200)
    }
    assert {file: found for file, found in type_check(files).items() if found} == {}


@pytest.mark.parametrize("name", ["box", "github", "stripe"])
def test_each_operation_can_be_called_with_the_origins_that_the_reasons_name(name: str) -> None:
    data = document(name)
    stated = Api.read(data, base_url=None, source=f"{name}.json")
    assert stated.skipped
    named = {found for each in stated.skipped for found in re.findall(r'add "(.+)" to "otherOrigins"', each.reason)}
    api = Api.read(data, base_url=None, source=f"{name}.json", other_origins=named)
    assert api.skipped == ()
    assert len(api.tools) == count_operations(data)
    for tool in api.tools:
        if api.server_of(tool["name"]):
            check_request(api, tool["name"], tool["inputSchema"])
    print(f"{name}: {len(stated.skipped)} operations need {sorted(named)}; servers {api.own_servers}")
    # Another address, such as that of a test server, gets none of these operations.
    other = Api.read(data, base_url="https://api.example", source=f"{name}.json")
    assert other.own_servers == ()
    print(f"{name}: {len(other.skipped)} operations are skipped at another address")


def count_operations(data: bytes) -> int:
    methods = {"get", "put", "post", "delete", "options", "head", "patch", "trace"}
    return sum(len(methods & item.keys()) for item in json.loads(data)["paths"].values())


def check_request(api: Api, tool: str, schema: Any) -> None:
    """Make a request with an argument for each name."""
    try:
        request = api.request(tool, dict.fromkeys(schema["properties"], "YQ=="))
    except ArgumentProblem as problem:
        assert "is not an object" in str(problem), tool  # noqa: PT017
        return
    assert request.target.startswith("/")
    assert request.target.isascii()
    assert "{" not in request.target
