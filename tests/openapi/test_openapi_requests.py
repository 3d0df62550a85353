"""Requests: the styles of parameters, the kinds of bodies, and the names of tools and arguments."""

import base64
import json
import re
from email import message_from_bytes
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openapi_documents import api_of, read, tools

from declarations import identifiers
from tests.properties import examples
from upstream_clients.openapi.api import Api, ArgumentProblem
from upstream_clients.openapi.served import api_from
from upstream_clients.spec import ApiKey, UpstreamSpec

TEXTS = st.text(max_size=8)
SCALARS = TEXTS | st.integers(-(10**9), 10**9) | st.booleans()
KEYS = st.text("abc-é &=", min_size=1, max_size=4)
VALUES = SCALARS | st.lists(SCALARS, min_size=1, max_size=3) | st.dictionaries(KEYS, SCALARS, min_size=1, max_size=3)


def written(value: Any) -> Any:
    """Return a value as what can be read from a request: texts."""
    if isinstance(value, dict):
        return {key: written(member) for key, member in value.items()}
    if isinstance(value, list):
        return [written(member) for member in value]
    return str(value).lower() if isinstance(value, bool) else str(value)


def decoded(text: str, kind: type, style: str, *, explode: bool) -> Any:
    """Return the value of a parameter `p` in the text of a path or of a query. Written by the tables of OpenAPI."""
    between = {"simple": ",", "label": "." if explode else ",", "matrix": ";", "form": "&"}.get(style, "&")
    if style == "label":
        assert text.startswith(".")
        text = text[1:]
    if style == "matrix":
        assert text.startswith(";")
        text = text[1:]
    if style == "deepObject":
        pairs = [re.fullmatch(r"p%5B(.*)%5D=(.*)", each) for each in text.split("&")]
        return {unquote(pair[1]): unquote(pair[2]) for pair in pairs if pair}
    is_named = style not in ("simple", "label")
    if kind is dict and explode:
        return {unquote(key): unquote(value) for key, value in (each.split("=", 1) for each in text.split(between))}
    if kind is list and explode:
        parts = text.split(between)
        return [unquote(each.removeprefix("p=") if is_named else each) for each in parts]
    if is_named:
        text = text.removeprefix("p").removeprefix("=")
    if kind not in (dict, list):
        return unquote(text)
    inner = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}.get(style, ",")
    items = [unquote(each) for each in text.split(inner)]
    return items if kind is list else dict(zip(items[::2], items[1::2], strict=True))


def parameter(place: str, style: str, *, explode: bool, **more: Any) -> Api:
    one = {"name": "p", "in": place, "required": True, "style": style, "explode": explode, "schema": {}, **more}
    return api_of({"parameters": [one]}, path="/a/{p}" if place == "path" else "/a")


STYLES = [
    *(("path", style, explode) for style in ("simple", "label", "matrix") for explode in (True, False)),
    *(("query", style, explode) for style in ("form", "spaceDelimited", "pipeDelimited") for explode in (True, False)),
    ("query", "deepObject", True),
]
APIS = {each: parameter(*each[:2], explode=each[2]) for each in STYLES}


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from(STYLES), VALUES)
def test_a_parameter_in_any_style_can_be_read_by_the_rules_of_openapi(style: Any, value: Any) -> None:
    place, name, explode = style
    kind = type(value)
    if name == "deepObject" and kind is not dict:
        return
    # In these styles a text with the delimiter cannot be told from two texts.
    delimiter = {"spaceDelimited": " ", "pipeDelimited": "|", "label": "."}.get(name, "")
    if delimiter and kind in (list, dict) and delimiter in str(value):
        return
    try:
        target = APIS[style].request("call", {"p": value}).target
    except ArgumentProblem:
        assert place == "path"
        assert set("".join(written(value))) <= {"."}, "only a path of dots, or an empty one, is refused"
        return
    assert re.fullmatch(r"/a[/?][!-~]*", target)
    assert "#" not in target
    assert target.count("/") == (2 if place == "path" else 1)
    text = target.removeprefix("/a/" if place == "path" else "/a?")
    assert decoded(text, kind, name, explode=explode) == written(value)


def test_values_are_encoded_as_the_tables_of_openapi_show() -> None:
    colors, point = ["blue", "black"], {"R": 100, "G": 200}
    shown = {
        ("path", "matrix", False): (";p=blue,black", ";p=R,100,G,200"),
        ("path", "matrix", True): (";p=blue;p=black", ";R=100;G=200"),
        ("path", "label", False): (".blue,black", ".R,100,G,200"),
        ("path", "label", True): (".blue.black", ".R=100.G=200"),
        ("path", "simple", False): ("blue,black", "R,100,G,200"),
        ("path", "simple", True): ("blue,black", "R=100,G=200"),
        ("query", "form", False): ("p=blue,black", "p=R,100,G,200"),
        ("query", "form", True): ("p=blue&p=black", "R=100&G=200"),
        ("query", "spaceDelimited", False): ("p=blue%20black", "p=R%20100%20G%20200"),
        ("query", "pipeDelimited", False): ("p=blue%7Cblack", "p=R%7C100%7CG%7C200"),
        ("query", "deepObject", True): ("p%5B0%5D=blue&p%5B1%5D=black", "p%5BR%5D=100&p%5BG%5D=200"),
    }
    for style, expected in shown.items():
        found = tuple(APIS[style].request("call", {"p": value}).target[3:] for value in (colors, point))
        assert found == expected, style


def test_further_kinds_of_parameters() -> None:
    reserved = parameter("query", "form", explode=True, allowReserved=True)
    assert reserved.request("call", {"p": "a/b?c&d#e+f"}).target == "/a?p=a/b?c%26d%23e%2Bf"
    as_json = parameter("query", "form", explode=True, schema=None, content={"application/json": {"schema": {}}})
    assert unquote(as_json.request("call", {"p": {"a": ["x"]}}).target) == '/a?p={"a":["x"]}'
    assert unquote(as_json.request("call", {"p": "x"}).target) == '/a?p="x"'
    header = parameter("header", "simple", explode=True)
    assert header.request("call", {"p": {"a": 1, "b": [2]}}).headers["p"] == "a=1,b=[2]"
    nested = APIS["query", "deepObject", True].request("call", {"p": {"a": [{"b": 1.0}], "c": None}})
    assert unquote(nested.target) == "/a?p[a][0][b]=1"


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "ü", "\x7f"])
def test_a_header_cannot_begin_another_one(value: str) -> None:
    with pytest.raises(ArgumentProblem, match="`p` has a character that a header cannot have"):
        parameter("header", "simple", explode=False).request("call", {"p": value})


TAKEN = {
    "a": {"type": "apiKey", "in": "query", "name": "api_key"},
    "b": {"type": "apiKey", "in": "cookie", "name": "sid"},
    "c": {"type": "apiKey", "in": "query", "name": "filter[key]"},
}


def schema_of(*names: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {} for name in names}, "required": list(names[:1])}


FORM = {
    "parameters": [
        {"name": "q", "in": "query", "schema": {}},
        {"name": "limit", "in": "query", "schema": {}},
        {"name": "c", "in": "cookie", "schema": {}, "allowReserved": True},
        {"name": "d", "in": "cookie", "schema": {}},
        {"name": "filter", "in": "query", "style": "deepObject", "schema": {}},
        {"name": "filter[fixed]", "in": "query", "schema": {}},
        {"name": "id", "in": "path", "required": True, "style": "matrix", "explode": True, "schema": {}},
        {"name": "sort.by", "in": "query", "schema": {}},
    ],
    "requestBody": {
        "content": {
            "application/x-www-form-urlencoded": {
                "schema": schema_of("a", "role", "user_name", "o", "p", "deep", "_method"),
                "encoding": {
                    "o": {"style": "form", "explode": True},
                    "p": {"explode": True},
                    "deep": {"style": "deepObject", "explode": True},
                },
            }
        }
    },
}
TAKEOVERS = [
    # a query
    *(
        ("q", {name: "x"})
        for name in ("api_key", "API_KEY", "_METHOD", "_method", "limit", "Limit", " limit", "action")
    ),
    *(("q", {name: "x"}) for name in ("limit[]", "limit[a]", "limit.a", "api.key", "api key", "api-key", "limit\0a")),
    *(("q", {name: "x"}) for name in ("filter[x]", "filter", "role", "user_name", "\uff4cimit", "sort", "sort[by]")),
    *(
        ("q", {name: "x"})
        for name in ("__proto__", "__proto__[limit]", "a[__proto__][b]", "constructor[prototype][limit]")
    ),
    ("filter", {"__proto__": {"limit": 1}}),
    ("filter", {"fixed": "x"}),
    ("filter", {"Fixed": "x"}),
    ("filter", {"fixed": {"a": "x"}}),
    ("filter", {"fixed": ["x"]}),
    ("filter", {"fixed][": "x"}),
    ("filter", {"key": "x"}),
    # cookies
    *(("c", {name: "x"}) for name in ("sid", "SID", "d", "d[a]", "api_key")),
    # a form
    *(("o", {name: "x"}) for name in ("role", "ROLE", "role[]", "role.x", "user_name", "user.name", "user name", "a")),
    *(("o", {name: "x"}) for name in ("_method", "api_key", "limit", "id", "deep", "deep[a]", "p", "action")),
    ("p", {"role": None, "a": 1}),
    # a path
    ("id", {"id2": 1}),
]


@pytest.mark.parametrize(("argument", "value"), TAKEOVERS)
def test_a_member_of_an_object_cannot_take_the_place_of_another_parameter(argument: str, value: Any) -> None:
    api = api_of(FORM, path="/x{id}{id2}?action=list", method="post", components={"securitySchemes": TAKEN})
    harmless = {"a": 1, "role": "user", "id": {"n": 1}, "id2": 2, argument: {"harmless": 1}}
    assert "harmless=1" in str(api.request("call", harmless)) or "harmless%5D=1" in str(api.request("call", harmless))
    with pytest.raises(ArgumentProblem, match=f"`{argument}` has the member `.*`, which is sent as another parameter"):
        api.request("call", {**harmless, argument: value})


@pytest.mark.parametrize("order", [("o", "p"), ("p", "o"), ("o", "deep")])
def test_a_member_of_an_object_cannot_take_the_place_of_a_member_of_another_one(order: tuple[str, str]) -> None:
    api = api_of(FORM, path="/x{id}{id2}", method="post", components={"securitySchemes": TAKEN})
    one, other = order
    name = "deep[level]" if other == "deep" else "level"
    with pytest.raises(ArgumentProblem, match="which is sent as another parameter"):
        api.request("call", {"a": 1, "id": 1, "id2": 2, one: {name: "user"}, other: {"level": "admin"}})


@pytest.mark.parametrize(
    "name",
    [
        *("_method", "_METHOD", "__proto__[a]", "api_key", "api.key", "sid", "role", "Role", "role[]", "role.x"),
        *("action", "id"),
    ],
)
def test_a_form_whose_members_a_program_chooses_has_no_credential_and_no_other_parameter(name: str) -> None:
    content = {"application/x-www-form-urlencoded": {"schema": {"type": "object", "additionalProperties": True}}}
    security = {"securitySchemes": TAKEN}
    content["application/x-www-form-urlencoded"]["encoding"] = {"o": {"style": "deepObject"}}
    parameters = [{"name": each, "in": "query", "schema": {}} for each in ("role", "limit")]
    operation = {"parameters": parameters, "requestBody": {"content": content}}
    api = api_of(operation, path="/x/{id}?action=list", method="post", components=security)
    (whole,) = tools(api)["call"]["inputSchema"]["properties"].keys() - {"id", "role", "limit"}
    harmless = {"anything": 1, "method": 2, "o": {"a": 3}}
    assert api.request("call", {"id": 1, whole: harmless}).body == b"anything=1&method=2&o%5Ba%5D=3"
    with pytest.raises(ArgumentProblem, match="which is sent as another parameter"):
        api.request("call", {"id": 1, "role": "user", whole: {name: "DELETE"}})


def test_a_text_cannot_begin_another_parameter() -> None:
    reserved = [{"name": each, "in": "query", "allowReserved": True, "schema": {}} for each in ("q", "r")]
    api = api_of({"parameters": [*reserved, {"name": "c", "in": "cookie", "schema": {}, "allowReserved": True}]})
    request = api.request("call", {"q": "1;api_key=x&api_key=x;y", "r": ["a;b"], "c": "1; sid=x"})
    assert request.target == "/x?q=1%3Bapi_key%3Dx%26api_key%3Dx%3By&r=a%3Bb"
    assert request.headers["Cookie"] == "c=1%3B%20sid%3Dx"


def body(media_type: str, schema: Any, **more: Any) -> Api:
    content = {media_type: {"schema": schema, **more}}
    return api_of({"requestBody": {"required": True, "content": content}}, method="post")


FILE = {"type": "string", "format": "binary", "description": "A picture"}


def test_a_form_is_encoded_as_its_encoding_says() -> None:
    members = {name: {} for name in ("a b", "list", "deep", "object", "csv", "none")}
    encoding = {"deep": {"style": "deepObject", "explode": True}, "csv": {"explode": False}}
    api = body("application/x-www-form-urlencoded", {"type": "object", "properties": members}, encoding=encoding)
    values = {"a b": "ü&", "list": [1, 2], "deep": {"x": [{"y": "z"}]}, "object": {"q": 1}, "csv": [1, 2], "none": None}
    request = api.request("call", values)
    assert request.headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert request.body == (
        b"a%20b=%C3%BC%26&list=1&list=2&deep%5Bx%5D%5B0%5D%5By%5D=z&object=%7B%22q%22%3A1%7D&csv=1,2"
    )


def test_files_of_a_multipart_body_are_given_in_base64() -> None:
    schema = {"properties": {"photo": FILE, "more": {"type": "array", "items": FILE}, "tags": {}, 'na"me': {}}}
    api = body("multipart/form-data", schema, encoding={"photo": {"contentType": "image/png, image/jpeg"}})
    listed = tools(api)["call"]["inputSchema"]["properties"]
    assert listed["photo"]["anyOf"][0] == {"type": "string", "contentEncoding": "base64"}
    assert listed["photo"]["description"] == "A picture\nThe bytes in base64."
    assert listed["more"]["items"]["anyOf"] == listed["photo"]["anyOf"]
    data = bytes(range(256))
    coded = base64.b64encode(data).decode()
    request = api.request("call", {"photo": coded, "more": [coded], "tags": {"a": 1}, 'na"me': "ü"})
    assert request.body is not None
    head = f"Content-Type: {request.headers['Content-Type']}\r\n\r\n"
    message = message_from_bytes(head.encode() + request.body)
    parts = {part.get_param("name", header="content-disposition"): part for part in message.get_payload()}
    assert [parts["photo"].get_payload(decode=True), parts["more"].get_payload(decode=True)] == [data, data]
    assert (parts["photo"].get_content_type(), parts["photo"].get_filename()) == ("image/png", "photo")
    assert parts["tags"].get_payload(decode=True) == b'{"a":1}'
    assert parts["na%22me"].get_payload(decode=True) == "ü".encode()
    assert request == api.request("call", {"photo": coded, "more": [coded], "tags": {"a": 1}, 'na"me': "ü"})
    for wrong in ("no base64!", {"data": "no base64!"}):
        with pytest.raises(ArgumentProblem, match="`photo` is not base64"):
            api.request("call", {"photo": wrong})


def test_a_file_may_have_a_name_and_a_media_type() -> None:
    api = body("multipart/form-data", {"properties": {"file": {**FILE}}})

    def head(**file: Any) -> str:
        sent = api.request("call", {"file": {"data": "AAE=", **file}}).body
        assert sent is not None
        return sent.split(b"\r\n", 1)[1].split(b"\r\n\r\n")[0].decode()

    disposition = 'Content-Disposition: form-data; name="file"; filename='
    assert head(filename="ü.mp3", type="audio/mpeg") == f'{disposition}"ü.mp3"\r\nContent-Type: audio/mpeg'
    octets = "\r\nContent-Type: application/octet-stream"
    assert head(type="a\r\nX: y") == f'{disposition}"file"{octets}'
    assert head(filename='"\r\n\ud800\x00') == disposition + '"%22%0D%0A\ufffd\ufffd"' + octets


@pytest.mark.parametrize(
    ("media_type", "given_body", "sent"),
    [
        ("application/octet-stream", "AAE=", b"\0\1"),
        ("image/png", "AAE=", b"\0\1"),
        ("text/plain", "hällo", "hällo".encode()),
        ("application/xml", "<a/>", b"<a/>"),
        ("*/*", {"a": 1}, b'{"a":1}'),
    ],
)
def test_a_body_of_another_type_is_one_text(media_type: str, given_body: Any, sent: bytes) -> None:
    api = body(media_type, {})
    assert list(tools(api)["call"]["inputSchema"]["properties"]) == ["body"]
    assert api.request("call", {"body": given_body}).body == sent
    with pytest.raises(ArgumentProblem, match="`body` is missing"):
        api.request("call", {})


# Names of tools and of their arguments.


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
