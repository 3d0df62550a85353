"""Answers of an API as results of a tool."""

import base64
from typing import Any

import pytest
from openapi_documents import PET_IN_JSON, PETSTORE, read

from upstream_clients.openapi.api import Api, ApiResponse


@pytest.fixture(scope="module")
def petstore() -> Api:
    return read(PETSTORE)


def result(api: Api, body: bytes, media_type: str | None = None, *, tool: str = "deletePetsById", **more: Any) -> Any:
    headers = {} if media_type is None else {"content-type": media_type}
    headers |= more.get("headers", {})
    return api.result(tool, ApiResponse(more.get("status", 200), more.get("reason", ""), headers, body))


@pytest.mark.parametrize("body", [b"1.5", b'"text"', b"[]", b"true", b'{"a": null}', b'\xef\xbb\xbf{"a": 1}'])
def test_a_body_in_json_of_any_type_is_the_value(petstore: Api, body: bytes) -> None:
    found = result(petstore, body, "application/problem+json; charset=utf-8")
    assert found["content"] == []
    assert found["structuredContent"] in (1.5, "text", [], True, {"a": None}, {"a": 1})


def test_no_body_and_null_are_null(petstore: Api) -> None:
    for body in (b"", b"  ", b"null"):
        found = result(petstore, body, "application/json")
        assert (found["content"], found["structuredContent"]) == ([{"type": "text", "text": "null"}], None)


def test_a_body_of_an_unclear_type_is_json_only_where_json_is_described(petstore: Api) -> None:
    assert result(petstore, b'{"a": 1}', "text/html", tool="getPetsById")["structuredContent"] == {"a": 1}
    assert result(petstore, b'{"a": 1}', "text/html")["content"] == [{"type": "text", "text": '{"a": 1}'}]
    assert result(petstore, b'{"a": 1}')["structuredContent"] == {"a": 1}
    broken = result(petstore, b'{"a": ', "application/json")
    assert broken["content"] == [{"type": "text", "text": '{"a": '}]
    assert "structuredContent" not in broken


@pytest.mark.parametrize(
    ("body", "media_type", "text"),
    [
        ("Grüße".encode("latin-1"), "text/plain; charset=ISO-8859-1", "Grüße"),
        ("Grüße".encode(), "text/csv", "Grüße"),
        (b"\xff\xfeabc", "text/plain; charset=nonsense", "\N{REPLACEMENT CHARACTER}" * 2 + "abc"),
        (b"abc", 'text/plain; charset="base64"', "abc"),
        # A codec that is no charset, and takes quadratic time.
        (b"-abc", "text/plain; charset=punycode", "-abc"),
        (b"<a/>", "application/xml", "<a/>"),
        (b"plain words", None, "plain words"),
    ],
)
def test_a_text_is_decoded_by_its_charset(petstore: Api, body: bytes, media_type: str | None, text: str) -> None:
    assert result(petstore, body, media_type)["content"] == [{"type": "text", "text": text}]


def test_bytes_are_given_in_base64(petstore: Api) -> None:
    data, coded = b"\0\1", base64.b64encode(b"\0\1").decode()
    assert result(petstore, data, "image/png")["content"] == [{"type": "image", "data": coded, "mimeType": "image/png"}]
    assert result(petstore, data, "audio/wav")["content"][0]["type"] == "audio"
    (block,) = result(petstore, data, "application/pdf")["content"]
    assert block["resource"] == {"uri": "openapi:deletePetsById", "mimeType": "application/pdf", "blob": coded}
    assert result(petstore, data)["content"][0]["resource"]["mimeType"] == "application/octet-stream"


@pytest.mark.parametrize("status", [300, 302, 400, 404, 429, 500, 503, 100, 600])
def test_any_status_but_2xx_is_an_error(petstore: Api, status: int) -> None:
    found = result(petstore, b'{"why": "x"}', "application/json", status=status, reason="Why\r\n", tool="getPetsById")
    assert found["isError"] is True
    assert "structuredContent" not in found
    assert found["content"][0]["text"] == f"HTTP {status} Why"
    assert found["content"][-1]["text"] == '{"why": "x"}'


def test_a_redirect_that_is_not_followed_names_its_target(petstore: Api) -> None:
    found = result(petstore, b"", status=302, reason="Found", headers={"location": "https://other.example/"})
    assert [block["text"] for block in found["content"]] == [
        "HTTP 302 Found",
        "It redirects to https://other.example/, which was not followed.",
    ]


def test_an_error_in_bytes_has_their_number(petstore: Api) -> None:
    found = result(petstore, b"\xff\0", "image/png", status=500)
    assert found["content"][-1]["text"] == "The body has 2 bytes that are no text."


def test_a_few_headers_are_passed_on(petstore: Api) -> None:
    passed = {
        "etag": '"a"',
        "location": "/pets/1",
        "x-ratelimit-remaining": "3",
        "ratelimit": "l",
        "x-total-count": "9",
        "next-page": "/pets?after=3",
    }
    others = {"set-cookie": "a=b", "server": "x", "etagged": "y", "link": "l" * 5_000}
    found = result(petstore, b"", status=201, headers={**passed, **others})
    assert found["_meta"] == {"http": {"status": 201, "headers": passed}}


def test_json_is_asked_for_where_there_is_any() -> None:
    def accept(content: Any) -> str:
        operation = {"operationId": "call", "responses": {"200": {"content": content}}}
        api = read({"openapi": "3.0.0", "paths": {"/x": {"get": operation}}}, base_url="http://a")
        return api.request("call", {}).headers["Accept"]

    assert accept({"text/xml": {}, **PET_IN_JSON}) == "application/json, */*;q=0.1"
    assert accept({"text/csv": {}, "image/*": {}, "bad\r\n/x": {}}) == "text/csv, */*;q=0.1"
    assert accept({"application/vnd.api+json": {}}) == "application/vnd.api+json, */*;q=0.1"
    assert accept({}) == "application/json, */*;q=0.1"
    both = {"application/vnd.api+json": {}, "Application/JSON": {"schema": {"type": "integer"}}}
    operation = {"operationId": "call", "responses": {"200": {"description": "", "content": both}}}
    (tool,) = read({"openapi": "3.0.0", "paths": {"/x": {"get": operation}}}, base_url="http://a").tools
    assert tool["outputSchema"] == {"type": "integer"}


def test_media_types_of_answers_are_compared_without_case(petstore: Api) -> None:
    assert result(petstore, b"[1]", "Application/Problem+JSON; Charset=UTF-8")["structuredContent"] == [1]
    assert result(petstore, b"x", "TEXT/Plain")["content"] == [{"type": "text", "text": "x"}]
    assert result(petstore, b"x", "IMAGE/Png")["content"][0]["type"] == "image"


def test_media_types_of_swagger_2_are_asked_for_without_a_schema_too() -> None:
    def accept(**operation: Any) -> str:
        node = {"operationId": "call", "responses": {"200": {"description": "A picture"}}, **operation}
        document = {"swagger": "2.0", "produces": ["image/png", "image/webp"], "paths": {"/x": {"get": node}}}
        return read(document, base_url="http://a").request("call", {}).headers["Accept"]

    assert accept() == "image/png, image/webp, */*;q=0.1"
    assert accept(produces=["text/xml", "application/json"]) == "application/json, */*;q=0.1"
    assert accept(produces=[]) == "application/json, */*;q=0.1"
