"""Names of tools and of their arguments."""

import json
from typing import Any

import pytest
from openapi_documents import api_of, read, tools

from declarations import identifiers
from upstream_clients.openapi.served import api_from
from upstream_clients.spec import ApiKey, UpstreamSpec


def named(paths: dict[str, Any]) -> list[str]:
    return sorted(tools(read({"openapi": "3.1.0", "paths": paths}, base_url="http://a")))


def test_a_tool_has_its_operation_id_in_camel_case_else_method_and_path() -> None:
    paths = {
        "/a": {"get": {"operationId": "issues/list-for_repo"}, "put": {"operationId": "ListAccount"}},
        "/b": {"get": {"operationId": "APIKey.get"}, "post": {"operationId": "2fa"}, "delete": {"operationId": "*"}},
        "/users/{user-id}/pets/{petId}.json": {"get": {}},
    }
    names = named(paths)
    assert names == [
        "APIKeyGet",
        "_2fa",
        "deleteB",
        "getUsersByUserIdPetsByPetIdJson",
        "issuesListForRepo",
        "listAccount",
    ]
    assert identifiers(names) == {name: name for name in names}, "programs use the name that policies use"


def test_names_that_clash_get_method_and_path_whatever_the_order() -> None:
    paths = {
        "/pets": {"get": {"operationId": "list"}},
        "/users": {"get": {"operationId": "list"}, "post": {"operationId": "x" * 80}},
        "/users/": {"get": {"operationId": "list"}, "post": {"operationId": "x" * 80}},
    }
    names = named(paths)
    assert names == named(dict(reversed(paths.items())))
    assert len(set(names)) == 5
    assert names[0] == "listGetPets"
    assert max(map(len, names)) == 64
    assert named({**paths, "/more": {"get": {}}})[1:] == names


CLASHING = {
    "parameters": [
        {"name": "id", "in": "query", "schema": {"type": "integer"}},
        {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}},
        {"name": "id", "in": "header", "schema": {"type": "string"}},
        {"name": "id", "in": "cookie", "schema": {"type": "string"}},
    ],
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {"type": "object", "properties": {"id": {"type": "boolean"}, "x": {}}, "required": ["id"]}
            }
        },
    },
}


def test_arguments_with_one_name_get_their_place_as_a_prefix() -> None:
    api = api_of(CLASHING, method="post", path="/pets/{id}")
    schema = tools(api)["call"]["inputSchema"]
    assert list(schema["properties"]) == ["id", "query_id", "header_id", "cookie_id", "body_id", "x"]
    assert schema["required"] == ["id", "body_id"]
    values = {"id": "a b", "query_id": 1, "header_id": "h", "cookie_id": "c;d", "body_id": True}
    request = api.request("call", values)
    assert request.target == "/pets/a%20b?id=1"
    assert (request.headers["id"], request.headers["Cookie"]) == ("h", "id=c%3Bd")
    assert request.body == b'{"id":true}'


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "string"}},
        {"type": "object", "additionalProperties": {"type": "string"}, "properties": {"a": {}}},
        {"oneOf": [{"type": "object", "properties": {"a": {}}}, {"type": "object", "properties": {"b": {}}}]},
        {"type": "object"},
        True,
    ],
)
def test_a_body_whose_members_cannot_be_arguments_is_one_argument(schema: Any) -> None:
    body = {"required": True, "content": {"application/json": {"schema": schema}}}
    api = api_of({"requestBody": body}, method="post")
    assert list(tools(api)["call"]["inputSchema"]["properties"]) == ["body"]
    assert api.request("call", {"body": ["a"]}).body == b'["a"]'


def test_members_of_all_parts_of_a_body_are_arguments() -> None:
    schema = {
        "allOf": [{"$ref": "#/components/schemas/Base"}, {"required": ["b"]}],
        "properties": {"b": {"type": "string"}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    }
    base = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "id": {"readOnly": True}},
        "required": ["a", "id"],
    }
    body = {"required": True, "content": {"application/merge-patch+json": {"schema": schema}}}
    api = api_of({"requestBody": body}, method="patch", components={"schemas": {"Base": base}})
    found = tools(api)["call"]["inputSchema"]
    assert list(found["properties"]) == ["a", "b"]
    assert sorted(found["required"]) == ["a", "b"]
    assert api.request("call", {"a": 1, "b": "x"}).headers["Content-Type"] == "application/merge-patch+json"


def test_members_that_are_needed_are_needed_only_with_a_body_if_the_body_is_optional() -> None:
    schema = {"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "required": ["a", "b"]}
    api = api_of({"requestBody": {"content": {"application/json": {"schema": schema}}}}, method="post")
    found = tools(api)["call"]["inputSchema"]
    assert "required" not in found
    assert found["dependentRequired"] == {"a": ["b"], "b": ["a"], "c": ["a", "b"]}
    assert api.request("call", {}).body is None


def test_credentials_and_headers_of_the_client_are_no_arguments() -> None:
    listed = [("header", "Authorization"), ("header", "content-type"), ("header", "Host"), ("query", "api_key")]
    listed += [("cookie", "session"), ("header", "X-Trace")]
    # Rules decide by method and path, which these change.
    listed += [("header", "X-HTTP-Method-Override"), ("header", "X_Original_URL"), ("query", "_method")]
    schemes = {
        "a": {"type": "apiKey", "in": "query", "name": "api_key"},
        "b": {"$ref": "#/components/securitySchemes/c"},
        "c": {"type": "apiKey", "in": "cookie", "name": "session"},
    }
    parameters = [{"name": name, "in": place, "required": True, "schema": {}} for place, name in listed]
    api = api_of({"parameters": parameters}, components={"securitySchemes": schemes})
    assert list(tools(api)["call"]["inputSchema"]["properties"]) == ["X-Trace"]
    assert api.security == ("API key in the query parameter api_key", "API key in the cookie session")


def test_what_the_entry_of_the_configuration_sets_is_no_argument() -> None:
    listed = [("query", "token"), ("header", "X-Version"), ("query", "X-Version")]
    parameters = [{"name": name, "in": place, "required": True} for place, name in listed]
    document = {"openapi": "3.0.0", "paths": {"/x": {"get": {"operationId": "call", "parameters": parameters}}}}
    key, headers = ApiKey("query", "Token", "secret"), {"x-version": "2"}
    spec = UpstreamSpec("a", "openapi", document="x.json", url="http://a", credentials=key, headers=headers)
    found = tools(api_from(json.dumps(document).encode(), spec))["call"]["inputSchema"]
    assert found["properties"].keys() == {"X-Version"}
    assert found["required"] == ["X-Version"]


def test_a_path_parameter_that_is_not_declared_is_a_text() -> None:
    api = api_of({}, path="/a/{b}?fixed=1#part")
    assert tools(api)["call"]["inputSchema"]["required"] == ["b"]
    assert api.request("call", {"b": "ü"}).target == "/a/%C3%BC?fixed=1"


@pytest.mark.parametrize(
    ("operation", "path", "reason"),
    [
        ({}, "/a/../b", "a segment `.` or `..`"),
        ({}, "/a/%2E%2e/b", "a segment `.` or `..`"),
        ({}, "/a\r\n", "a character that cannot be shown"),
        ({}, "/a/{b", "a brace without its counterpart"),
        ({}, "/" + "a" * 2000, "more than 1000 characters"),
        ({"parameters": [{"$ref": "other.yaml#/a"}]}, "/a", "another document, 'other.yaml#/a'"),
        ({"parameters": [{"$ref": "#/nowhere"}]}, "/a", "'#/nowhere' leads nowhere"),
        ({"parameters": [{"$ref": "#/paths/~1a/get/parameters/0"}]}, "/a", "20 references in a row"),
        ({"parameters": [{"name": "a"}]}, "/a", "without `name` and `in`"),
        ({"parameters": [{"name": "a\r\nb", "in": "query"}]}, "/a", "parameter with the name"),
        ({"parameters": [{"name": "Authorization : a", "in": "header"}]}, "/a", "is not a name of a header"),
        ({"parameters": [{"name": "a", "in": "body"}]}, "/a", "'a' is in 'body'"),
        ({"parameters": [{"name": "a", "in": "query", "style": "x"}]}, "/a", "has the style 'x'"),
        ({"requestBody": {"content": {"multipart/mixed": {}}}}, "/a", "only be sent as 'multipart/mixed'"),
        ({"requestBody": {}}, "/a", "no `content`"),
        ({"requestBody": {"content": {"multipart/form-data": {"schema": True}}}}, "/a", "no members that are known"),
        ({"servers": [{"url": "https://other.example"}]}, "/a", 'add "https://other.example" to "otherOrigins"'),
        ({"parameters": [{"name": f"p{n}", "in": "query"} for n in range(301)]}, "/a", "more than 300 parameters"),
    ],
)
def test_an_operation_that_cannot_be_called_is_skipped_with_the_reason(
    operation: dict[str, Any], path: str, reason: str
) -> None:
    paths = {path: {"get": operation}, "/good": {"get": {}}}
    api = read({"openapi": "3.0.0", "servers": [{"url": "https://api.example"}], "paths": paths})
    assert list(tools(api)) == ["getGood"]
    (skipped,) = api.skipped
    assert reason in skipped.reason
    assert skipped.operation.isprintable()


def test_too_many_operations_are_skipped() -> None:
    api = read({"openapi": "3.0.0", "paths": {f"/{n}": {"get": {}} for n in range(5_001)}}, base_url="http://a")
    assert len(api.tools) == 5_000
    assert [each.reason for each in api.skipped] == ["the document has more than 5000 operations"]
