"""An OpenAPI document as tools, requests and results."""

import itertools
import json
from typing import Any
from unittest.mock import ANY

import pytest
from openapi_documents import PETSTORE, api_of, read, tools

from upstream_clients.openapi.api import Api, ApiResponse, ArgumentProblem, DocumentError, Skipped


@pytest.fixture(scope="module")
def petstore() -> Api:
    return read(PETSTORE)


def test_each_operation_is_a_tool_and_a_bad_one_is_skipped_with_the_reason(petstore: Api) -> None:
    assert list(tools(petstore)) == ["listPets", "petsCreate", "getPetsById", "deletePetsById"]
    assert petstore.skipped == (Skipped("PUT /pets/{id}", "its `parameters` are not a list"),)
    assert (petstore.title, petstore.version, petstore.base_url) == ("Petstore", "1.2.0", "https://eu.pets.example/v1")
    assert petstore.security == ("API key in the header X-Key",)


def test_the_argument_has_parameters_and_members_of_the_body_but_no_credentials(petstore: Api) -> None:
    listing, creating = tools(petstore)["listPets"], tools(petstore)["petsCreate"]
    assert listing["inputSchema"] == {
        "type": "object",
        "properties": {
            "limit": {"type": "integer", "description": "How many"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "additionalProperties": False,
        "x-request": "GET https://eu.pets.example/v1/pets",
        "x-encoding": ANY,
    }
    assert list(creating["inputSchema"]["properties"]) == ["name", "tag", "parent"]
    assert creating["inputSchema"]["properties"]["tag"] == {"type": ["string", "null"]}
    assert creating["inputSchema"]["required"] == ["name"]
    assert list(creating["inputSchema"]["$defs"]["Pet"]["properties"]) == ["name", "tag", "parent"]


def test_the_value_has_the_schema_of_the_successful_answers(petstore: Api) -> None:
    schema = tools(petstore)["listPets"]["outputSchema"]
    assert schema["items"] == {"$ref": "#/$defs/Pet"}
    assert schema["$defs"]["Pet"]["required"] == ["id", "name"]
    assert schema["$defs"]["Pet"]["properties"]["name"]["description"] == "Its name."
    assert "outputSchema" not in tools(petstore)["deletePetsById"]


def test_annotations_follow_from_the_method(petstore: Api) -> None:
    found = {name: tool["annotations"] for name, tool in tools(petstore).items()}
    assert found["getPetsById"] == {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": True}
    assert found["petsCreate"] == {"readOnlyHint": False, "openWorldHint": True}
    assert found["deletePetsById"]["destructiveHint"] is True
    assert [petstore.is_repeatable(name) for name in found] == [True, False, True, True]


def test_the_description_has_the_address_only_if_the_document_states_it(petstore: Api) -> None:
    configured = read(PETSTORE, base_url="http://127.0.0.1:8080/api/")
    assert tools(petstore)["listPets"]["description"] == "List all pets.\nGET https://eu.pets.example/v1/pets"
    assert tools(configured)["listPets"]["description"] == "List all pets.\nGET /pets"
    assert (configured.base_url, configured.base_from_document) == ("http://127.0.0.1:8080/api", False)
    assert petstore.base_from_document


def test_a_definition_depends_on_the_request_and_on_how_arguments_are_sent() -> None:
    def definition(path: str = "/x?mode=read", **more: Any) -> Any:
        parameter = {"name": "a", "in": "query", "schema": {}, **more}
        return tools(api_of({"parameters": [parameter]}, path=path))["call"]["inputSchema"]

    def definition_of_body(media_type: str, name: str = "a", **more: Any) -> Any:
        schema = {"type": "object", "properties": {name: {}}}
        body = {"content": {media_type: {"schema": schema, **more}}}
        return tools(api_of({"requestBody": body}, method="post"))["call"]["inputSchema"]

    definitions = [
        definition(),
        definition("/x?mode=delete"),
        definition(**{"in": "cookie"}),
        definition(explode=False),
        definition(allowReserved=True),
        definition_of_body("application/json"),
        definition_of_body("application/x-www-form-urlencoded"),
        definition_of_body("application/x-www-form-urlencoded", encoding={"a": {"style": "deepObject"}}),
    ]
    assert all(one != other for one, other in itertools.combinations(definitions, 2))
    assert definition() == definition(description=None)


def test_a_server_is_relative_to_the_address_of_the_document() -> None:
    document = {**PETSTORE, "servers": [{"url": "../v2"}]}
    assert read(document, source="https://pets.example/docs/openapi.json").base_url == "https://pets.example/v2"
    assert read(document).base_url is None


def test_arguments_become_a_request(petstore: Api) -> None:
    listing = petstore.request("listPets", {"limit": 2, "tags": ["a&b", "c"]})
    assert (listing.method, listing.target, listing.body) == ("GET", "/pets?limit=2&tags=a%26b&tags=c", None)
    assert listing.headers == {"Accept": "application/json, */*;q=0.1"}
    creating = petstore.request("petsCreate", {"name": "Rex", "tag": None})
    assert (creating.target, creating.body) == ("/pets", b'{"name":"Rex","tag":null}')
    assert creating.headers["Content-Type"] == "application/json"
    assert petstore.request("getPetsById", {"id": "a/../b?"}).target == "/pets/a%2F..%2Fb%3F"


@pytest.mark.parametrize("value", ["", ".", "..", None])
def test_a_value_cannot_leave_its_segment_of_the_path(petstore: Api, value: object) -> None:
    with pytest.raises(ArgumentProblem, match="`id` is"):
        petstore.request("getPetsById", {"id": value})


def test_an_answer_becomes_a_result(petstore: Api) -> None:
    headers = {"content-type": "application/json", "link": '</pets?page=2>; rel="next"', "set-cookie": "a=b"}
    result = petstore.result("listPets", ApiResponse(200, "OK", headers, b'[{"id":1,"name":"Rex"}]'))
    assert result == {
        "content": [],
        "structuredContent": [{"id": 1, "name": "Rex"}],
        "_meta": {"http": {"status": 200, "headers": {"link": '</pets?page=2>; rel="next"'}}},
    }
    empty = petstore.result("deletePetsById", ApiResponse(204, "No Content", {}, b""))
    assert (empty["content"], empty["structuredContent"]) == ([{"type": "text", "text": "null"}], None)


def test_an_error_of_the_api_has_status_reason_and_body(petstore: Api) -> None:
    body, headers = json.dumps({"message": "no such pet"}), {"content-type": "application/json"}
    result = petstore.result("getPetsById", ApiResponse(404, "Not Found", headers, body.encode()))
    assert result["isError"] is True
    assert [block["text"] for block in result["content"]] == ["HTTP 404 Not Found", body]
    assert result["_meta"]["http"]["status"] == 404


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "the document is empty"),
        (b"<!doctype html><p>Log in</p>", "is HTML or XML"),
        (b'{"openapi": "3.0.0", "paths": ', "not valid JSON"),
        (b'{"a": 1}', "neither `openapi`"),
        (b'{"openapi": "4.0.0"}', "version '4.0.0'"),
        (b"[1, 2]", "is not an object"),
        (b'{"openapi":' * 50_000, "nested too deeply"),
    ],
)
def test_a_text_that_is_no_document_is_refused_with_the_reason(text: bytes, problem: str) -> None:
    with pytest.raises(DocumentError, match=problem):
        Api.read(text, base_url=None, source="x")
