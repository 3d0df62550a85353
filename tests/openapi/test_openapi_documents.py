"""Whole documents: Swagger 2, YAML, addresses, logins, and hostile ones."""

import json
import re
import time
from contextlib import suppress
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openapi_documents import PETSTORE, SWAGGER, read, tools

from tests.properties import examples
from upstream_clients.openapi.api import Api, ArgumentProblem, DocumentError
from upstream_clients.openapi.reading import BoundedScanner, read_document
from upstream_clients.schemas import compile_schema


def test_swagger_2_is_read_as_openapi_3() -> None:
    api = read(SWAGGER)
    assert (api.base_url, api.version) == ("https://old.example/v1", "1")
    assert api.security == (
        "Basic authentication",
        "OAuth 2, token at https://old.example/token",
        "API key in the query parameter key",
    )
    found = tools(api)
    assert list(found) == ["list", "fill", "create", "upload"]
    assert [each.reason for each in api.skipped] == ["its parameter 't' has the style 'tabDelimited'"]
    assert list(found["list"]["inputSchema"]["properties"]) == ["page", "tags", "ids", "ps"]
    assert found["list"]["inputSchema"]["properties"]["page"] == {"type": "integer", "minimum": 1}
    assert found["list"]["outputSchema"]["items"] == {"$ref": "#/$defs/Pet"}
    assert "outputSchema" not in found["upload"]
    assert found["upload"]["inputSchema"]["properties"]["photo"]["anyOf"][0]["contentEncoding"] == "base64"
    listing = api.request("list", {"page": 1, "tags": ["a", "b"], "ids": [1, 2], "ps": ["x", "y"]})
    assert listing.target == "/pets?page=1&tags=a,b&ids=1&ids=2&ps=x%7Cy"
    assert api.request("create", {"name": "Rex"}).body == b'{"name":"Rex"}'
    assert api.request("fill", {"name": "R x", "list": ["a", "b"]}).body == b"name=R%20x&list=a,b"
    assert api.request("upload", {"photo": "AAE="}).headers["Content-Type"].startswith("multipart/form-data; boundary=")


def test_media_types_of_swagger_2_are_compared_without_case() -> None:
    types = ["Multipart/Form-Data", "APPLICATION/JSON", "Application/X-WWW-Form-Urlencoded"]
    api = read({**SWAGGER, "consumes": types, "produces": ["Application/JSON"]})
    assert api.request("create", {"name": "Rex"}).headers["Content-Type"].lower() == "application/json"
    assert "form-urlencoded" in api.request("fill", {"name": "x", "list": []}).headers["Content-Type"]
    assert api.request("upload", {"photo": "AAE="}).headers["Accept"] == "application/octet-stream, */*;q=0.1"
    only_multipart = read({**SWAGGER, "consumes": types[:1]})
    assert "multipart" in only_multipart.request("fill", {"name": "x", "list": []}).headers["Content-Type"]


YAML = """
openapi: 3.1.0
info: {title: Dates, version: 2024-01-02}
servers: [{url: https://yaml.example}]
paths:
  /a:
    get: &get
      operationId: a
      responses:
        200: {description: on, content: {application/json: {schema: {enum: [yes, 2020-01-01, 1.5, .nan]}}}}
    post: *get
"""


def test_a_document_in_yaml_is_read_with_numbers_and_dates_as_keys_and_values() -> None:
    api = Api.read(YAML.encode(), base_url=None, source="a.yaml")
    assert api.version == "2024-01-02"
    assert tools(api)["aGetA"]["outputSchema"] == {"enum": ["yes", "2020-01-01", 1.5, None]}
    assert list(tools(api)) == ["aGetA", "aPostA"]


def test_texts_without_quotes_keep_how_they_are_written() -> None:
    written = "001, 1.10, 1.0, 2024, .5, 1_000, 0x1F, 1e3, -0, yes, true, a"
    text = f"""
openapi: 3.0.0
paths:
  /a:
    get:
      operationId: a
      parameters:
        - {{name: s, in: query, schema: {{type: string, enum: [{written}]}}}}
        - {{name: n, in: query, schema: {{type: number, enum: [{written}], minimum: 007}}}}
"""
    properties = tools(Api.read(text.encode(), base_url=None, source="a.yaml"))["a"]["inputSchema"]["properties"]
    assert properties["s"]["enum"] == written.split(", ")
    assert properties["n"]["enum"] == [1, 1.1, 1.0, 2024, 0.5, 1000, 31, 1000.0, 0, "yes", True, "a"]
    assert properties["n"]["minimum"] == 7


def test_aliases_that_repeat_too_much_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(DocumentError, match="more than 2000000 values; its aliases"):
        Api.read("\n".join(["openapi: 3.0.0", *lines]).encode(), base_url=None, source="a.yaml")
    with pytest.raises(DocumentError, match="nested"):
        Api.read(b"openapi: 3.0.0\na: &a {b: *a}", base_url=None, source="a.yaml")


def test_merge_keys_and_numbers_that_would_take_for_ever_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    merging = "a0: &a0 {b: 1}\n" + "".join(f"a{n}: &a{n}\n  <<: [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
    for text, problem in (
        (f"openapi: 3.0.0\n{merging}", "merge keys (`<<`) that repeat too much"),
        ('{"openapi": "3.0.0", "a": [' + "[]," * 2_000_001 + "1]}", "more than 2000000 values"),
        (f"%YAML 1.1\n---\nopenapi: 3.0.0\na: {'1:' * 2_000}1\n", "a number of more than 1000 characters"),
    ):
        with pytest.raises(DocumentError, match=re.escape(problem)):
            Api.read(text.encode(), base_url=None, source="a.yaml")
    monkeypatch.setattr(BoundedScanner, "_left", 1_000)
    with pytest.raises(DocumentError, match="more than 800000 tokens; give the same one in JSON"):
        Api.read(f"openapi: 3.0.0\na: [{'1,' * 2_000}1]".encode(), base_url=None, source="a.yaml")
    merged = "openapi: 3.1.0\nservers: [{<<: {url: 'https://a.example'}}]"
    assert Api.read(merged.encode(), base_url=None, source="a.yaml").base_url == "https://a.example"


@pytest.mark.parametrize(
    ("url", "source", "address"),
    [
        ("https://a.example/v1/", "x", "https://a.example/v1"),
        ("//a.example", "x", "https://a.example"),
        ("/v1", "http://127.0.0.1:8080/docs/openapi.json", "http://127.0.0.1:8080/v1"),
        ("/v1", "/home/x/openapi.json", None),
        ("https://user:pass@a.example", "x", None),
        ("ftp://a.example", "x", None),
        ("https://a.example:99999", "x", None),
        ("https://{host}/v1", "x", None),
        ("https://a.example/\r\nX: y", "x", None),
        ("javascript:alert(1)", "x", None),
        (7, "x", None),
    ],
)
def test_the_address_of_an_api_is_one_of_http(url: Any, source: str, address: str | None) -> None:
    assert read({"openapi": "3.0.0", "servers": [{"url": url}]}, source=source).base_url == address


def test_variables_of_an_address_cannot_make_it_any_longer() -> None:
    variables = {f"v{n}": {"default": f"{{v{n + 1}}}" * 300} for n in range(9)}
    assert read({"openapi": "3.0.0", "servers": [{"url": "https://{v0}", "variables": variables}]}).base_url is None
    long = {"a": {"default": "b" * 1_000}, **{f"v{n}": {"default": ""} for n in range(3)}}
    assert read({"openapi": "3.0.0", "servers": [{"url": "https://{a}{a}{a}", "variables": long}]}).base_url is None


def test_operations_with_one_common_server_of_their_own_are_kept() -> None:
    servers = [{"url": "https://api.twilio.example"}]
    paths = {"/a": {"servers": servers, "get": {}}, "/b": {"servers": servers, "get": {}}}
    api = read({"openapi": "3.0.1", "paths": paths})
    assert (len(api.tools), api.base_url) == (2, "https://api.twilio.example")


LONG = "x" * 1_000_000
MEMBERS = {f"m{n}": {"type": "string"} for n in range(20_000)}
A = {"$ref": "#/components/schemas/A"}
CALL = {"parameters": [{"name": "a", "in": "query", "schema": A}]}
PATTERNS = [{"name": f"{n}", "in": "query", "schema": {"pattern": f"(a{{9}}){{{n}}}"}} for n in range(250)]
BODY = {"requestBody": {"content": {"application/json": {"schema": A}}}}
DOUBLING = {
    "A": {"$ref": "#/components/schemas/A0"},
    **{f"A{n}": {"allOf": [{"$ref": f"#/components/schemas/A{n + 1}"}] * 2} for n in range(60)},
    "A60": {"type": "object", "properties": {"a": {}}},
}


@pytest.mark.parametrize(
    ("operation", "schemas"),
    [
        (CALL, {"A": {"type": "object", "properties": MEMBERS}}),
        (CALL, {"A": {"enum": [LONG, "b"], "example": LONG, "title": LONG, "required": [LONG], "default": [LONG]}}),
        (
            CALL,
            {"A": {"anyOf": [{"$ref": f"#/components/schemas/A{n}"} for n in range(900)]}, "A1": {"example": [LONG]}},
        ),
        (CALL, DOUBLING),
        (BODY, DOUBLING),
        (BODY, {"A": {"properties": dict(list(MEMBERS.items())[:200]), "required": list(MEMBERS)[:200]}}),
        ({"parameters": PATTERNS}, {}),
    ],
)
def test_a_part_that_many_operations_share_costs_little(operation: Any, schemas: Any) -> None:
    paths = {f"/{n}": {"get": operation, "put": operation} for n in range(100)}
    began = time.process_time()
    api = read({"openapi": "3.0.0", "paths": paths, "components": {"schemas": schemas}}, base_url="http://a")
    assert time.process_time() - began < 5, "it takes 0.5 s at most"
    assert len(api.tools) == 200
    assert len(json.dumps(api.tools)) < 200 * 45_000


def test_the_lists_of_tools_and_of_skipped_operations_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = {"get": {"parameters": 1}, "put": 1}
    for item in (1, broken):
        api = read({"openapi": "3.0.0", "paths": dict.fromkeys(map(str, range(5_000)), item)})
        assert len(api.skipped) == 1_001
    wide = {"get": {"parameters": [{"name": f"{n}{'a' * 190}", "in": "query", "required": True} for n in range(300)]}}
    (skipped,) = read({"openapi": "3.0.0", "paths": {"/a": wide}}).skipped
    assert skipped.reason == "its schema has more than 64000 bytes without its parts"
    monkeypatch.setattr("upstream_clients.openapi.api.MAX_TOOLS_BYTES", 1_000)
    api = read(PETSTORE)
    assert "have schemas of 1000 bytes" in api.skipped[-1].reason
    assert 0 < len(api.tools) < 4


MANY = [f"m{n}" for n in range(400)]
WORDY = {"type": "object", "properties": {each: {"type": "string", "enum": MANY[:100]} for each in MANY[:30]}}
SHARED: dict[str, Any] = {
    "parameters": {"parameters": [{"name": each, "in": "query", "schema": {}} for each in MANY[:300]]},
    "references": {"parameters": [{"$ref": "#/x/r0"}] * 300},
    "members of a body": {"requestBody": {"content": {"application/json": {"schema": {"$ref": "#/x/body"}}}}},
    "media types": {"requestBody": {"content": {f"text/{each}": {} for each in MANY}}},
    "required members": {
        "requestBody": {
            "content": {
                "text/json": {"schema": {"properties": {"a": {}}, "required": MANY, "allOf": [{"required": MANY}]}}
            }
        }
    },
    "alternatives": {
        "requestBody": {"content": {"text/json": {"schema": {"properties": {"a": {}}, "anyOf": [{}] * 800}}}}
    },
    "a text": {"description": "word " * 1_600},
    "answers": {"responses": {each: {} for each in MANY}},
    "types of an answer": {"responses": {"200": {"content": {f"text/{each}": {} for each in MANY}}}},
    "an answer that is cut": {"responses": {"200": {"content": {"text/json": {"schema": WORDY}}}}},
    "a definition that is cut": {
        "responses": {"200": {"content": {"text/json": {"schema": {"type": "array", "items": {"$ref": "#/x/wordy"}}}}}}
    },
    "definitions": {
        "responses": {
            "200": {"content": {"text/json": {"schema": {"anyOf": [{"$ref": f"#/x/{each}"} for each in MANY[:100]]}}}}
        }
    },
}
TARGETS = {
    "body": {"type": "object", "properties": {each: {} for each in MANY}},
    **{each: {"type": "string", "title": f"a {each}"} for each in MANY[:100]},
    **{f"r{n}": {"$ref": f"#/x/r{n + 1}"} for n in range(18)},
    "r18": {"name": "a", "in": "query"},
    "wordy": WORDY,
}


@pytest.mark.parametrize("part", ["parameters", "references", "an answer that is cut"])
def test_operations_are_skipped_when_those_before_them_have_used_all_work(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = {"get": SHARED[part], "put": SHARED[part]}
    paths = {f"/{n}": {"$ref": "#/x/item"} for n in range(100)}
    # 200 operations without the part take 22,000 steps. The part takes fewer than 30,000, once.
    monkeypatch.setattr("upstream_clients.openapi.document.MAX_STEPS", 70_000)
    document = {"openapi": "3.1.0", "paths": paths, "x": {**TARGETS, "item": item}}
    api = read(document, base_url="http://a")
    assert len(api.tools) < 190
    assert {each.reason for each in api.skipped} == {
        "the document is too large: the operations before it have used the work that it may take"
    }
    named = [*(each.operation for each in api.skipped), *(each["inputSchema"]["x-request"] for each in api.tools)]
    assert {each.rpartition(" ")[2] for each in named} == set(paths)
    assert len(read({**document, "paths": {"/1": item}}, base_url="http://a").tools) == 2


STEPS = {
    "parameters": 19_707,
    "references": 12_343,
    "members of a body": 26_286,
    "media types": 3_447,
    "required members": 1_944,
    "alternatives": 1_942,
    "a text": 4_207,
    "answers": 1_007,
    "types of an answer": 5_081,
    "an answer that is cut": 39_065,
    "a definition that is cut": 9_155,
    "definitions": 4_526,
}
"""Steps that two operations with the part take. With fewer, something that is made or looked at is not counted."""
SWAGGER_SHARED: dict[str, Any] = {
    "parameters": [{"name": each, "in": "query", "type": "string"} for each in MANY[:300]],
    "form": [{"name": each, "in": "formData", "type": "string"} for each in MANY[:300]],
    "responses": {each: {"description": "", "schema": {}} for each in MANY},
}
SWAGGER_STEPS = {"parameters": 28_807, "form": 37_583, "responses": 21_107}


@pytest.mark.parametrize("part", [*STEPS, *(f"{part} of Swagger 2" for part in SWAGGER_STEPS)])
def test_each_part_of_an_operation_is_counted(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old = part.removesuffix(" of Swagger 2")
    paths = {f"/{n}": {"$ref": "#/x/item"} for n in range(2)}
    document: dict[str, Any] = {"paths": paths, "x": {**TARGETS, "item": {"put": SHARED.get(part)}}}
    if part == old:
        document["openapi"], steps = "3.1.0", STEPS[part]
    else:
        document["swagger"], steps = "2.0", SWAGGER_STEPS[old]
        document["x"]["item"]["put"] = {"responses" if old == "responses" else "parameters": SWAGGER_SHARED[old]}
    monkeypatch.setattr("upstream_clients.openapi.document.MAX_STEPS", steps - 1)
    assert read(document, base_url="http://a").skipped
    monkeypatch.setattr("upstream_clients.openapi.document.MAX_STEPS", 2 * steps)
    assert not read(document, base_url="http://a").skipped


def test_a_schema_that_operations_share_is_converted_once() -> None:
    page = {"name": "page", "in": "query", "schema": {"type": "integer"}}
    paths = {f"/{n}": {"get": {"parameters": [{"$ref": "#/components/parameters/page"}]}} for n in range(2)}
    components = {"parameters": {"page": page}}
    one, other = read({"openapi": "3.0.0", "paths": paths, "components": components}).tools
    assert one["inputSchema"]["properties"]["page"] is other["inputSchema"]["properties"]["page"]


def test_a_document_of_too_many_objects_is_refused() -> None:
    data = b'{"openapi":"3.0.0","x":[' + b'{"a":' * 100 + b"0" + b"}" * 100 + b"]}"
    assert read_document(data).root
    with pytest.raises(DocumentError, match="more than 1000000 objects and lists"):
        read_document(b'{"openapi":"3.0.0","x":[' + b'{"a":' * 1_000_000)


def places(value: Any, path: tuple[Any, ...] = ()) -> Any:
    """Yield the path of each value inside a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in items:
        yield (*path, key)
        yield from places(member, (*path, key))


DOCUMENTS = (PETSTORE, SWAGGER)
PLACES = [(number, path) for number, document in enumerate(DOCUMENTS) for path in places(document)]
TEXTS = ["", "x\0y", "#", "#/paths", "../", "array", "path", "form", "a/b"]
ODD = st.sampled_from([None, True, 0, -1, 1e300, *TEXTS, [], {}, [[]], {"$ref": "#"}, {"$ref": 1}, {"$ref": "x"}])


def put(document: Any, path: tuple[Any, ...], value: Any) -> None:
    """Put a value at a place of a document, if the place is still there."""
    with suppress(LookupError, TypeError):
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = value


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PLACES), ODD | st.recursive(ODD, st.lists)), min_size=1, max_size=3))
def test_a_document_with_wrong_parts_is_refused_or_has_other_tools(changes: Any) -> None:
    for number, whole in enumerate(DOCUMENTS):
        document = deepcopy(whole)
        for (which, path), odd in changes:
            if which == number:
                put(document, path, odd)
        if document != whole:
            check(json.dumps(document).encode())


def check(data: bytes) -> None:
    try:
        # Not `Api.read`, which would hide a mistake of ours.
        api = Api(read_document(data), base_url=None, source="x")
    except DocumentError:
        return
    for tool in api.tools:
        compile_schema(tool["inputSchema"])
        compile_schema(tool.get("outputSchema", {}))
        try:
            request = api.request(tool["name"], dict.fromkeys(tool["inputSchema"]["properties"], "a"))
        except ArgumentProblem:
            continue
        assert request.target.startswith("/")
        assert request.target.isascii()
        assert request.target.isprintable()
        assert " " not in request.target
    assert all(each.operation.isprintable() and each.reason.isprintable() for each in api.skipped)
