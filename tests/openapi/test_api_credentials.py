"""Credentials of an API: what it sees, how tokens are renewed, and that programs and errors never get them."""

import base64
import html
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlencode

import anyio
import httpx2
import keyring
import pytest
from keyring.backends import null
from loopback_api import (
    CASE,
    JSON,
    LoopbackApi,
    Received,
    call,
    connected,
    loopback_api,
    operation,
    reply,
    spec_of,
    write_document,
)

from upstream_clients import UpstreamCallError, UpstreamSpec, token_store
from upstream_clients.errors import LoginError
from upstream_clients.openapi.api import ApiResponse, result_of
from upstream_clients.openapi.client import ClientToken, advice_after_refusal
from upstream_clients.redaction import secrets_of
from upstream_clients.spec import ApiKey, BasicLogin, BearerToken, ClientCredentials, CredentialSettings, OAuthSettings
from upstream_clients.token_store import Login, LoginStore

pytestmark = pytest.mark.anyio

SECRET = "s3cret/+value"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Return the backend, in module scope: the tests share a server."""
    return "asyncio"


@pytest.fixture(scope="module")
async def api() -> AsyncIterator[LoopbackApi]:
    async with loopback_api() as served:
        yield served


def token(value: str, **more: Any) -> bytes:
    return reply(body={"access_token": value, "token_type": "Bearer", **more})


async def test_an_argument_cannot_replace_a_credential_that_the_document_does_not_name(
    api: LoopbackApi, tmp_path: Path
) -> None:
    api.script("/echo", echo)
    parameters = [CASE, *({"name": "f", "in": place, "schema": {}} for place in ("query", "cookie"))]
    document = write_document(tmp_path, paths={"/{case}": {"get": {**operation("fetch"), "parameters": parameters}}})
    given = {"f": {"a+b": "thief", "n": 1}, "cookie_f": {"session": "thief", "n": 1}}
    harmless = {"f": {"n": 1}, "cookie_f": {"n": 1}}
    for credentials in (ApiKey("query", "a+b", SECRET), ApiKey("cookie", "session", SECRET)):
        async with connected(spec_of(document, url=api.url, credentials=credentials)) as pool:
            with pytest.raises(UpstreamCallError, match=f"has the member `{re.escape(credentials.name)}`"):
                await call(pool, "fetch", "echo", **given)
            await call(pool, "fetch", "echo", **harmless)
    *_, by_query, by_cookie = api.requests("/echo")  # tests of this module share the server
    assert by_query.target == "/echo?n=1&a%2Bb=s3cret%2F%2Bvalue"
    assert by_cookie.headers["cookie"] == f"n=1; session={SECRET}"


async def test_a_deep_object_or_a_form_cannot_replace_a_credential(api: LoopbackApi, tmp_path: Path) -> None:
    api.script("/echo", echo)
    deep = {"name": "filter", "in": "query", "style": "deepObject", "schema": {}}
    form = {
        "schema": {"type": "object", "properties": {"a": {}, "o": {}}},
        "encoding": {"o": {"style": "form", "explode": True}},
    }
    body = {"content": {"application/x-www-form-urlencoded": form}}
    sending = {**operation("fetch"), "parameters": [CASE, deep], "requestBody": body}
    document = write_document(tmp_path, paths={"/{case}": {"post": sending}})
    async with connected(spec_of(document, url=api.url, credentials=ApiKey("query", "filter[key]", SECRET))) as pool:
        for given in ({"filter": {"key": "thief"}}, {"o": {"filter[key]": "thief"}}, {"o": {"_method": "DELETE"}}):
            with pytest.raises(UpstreamCallError, match="which is sent as another parameter"):
                await call(pool, "fetch", "echo", **given)
        await call(pool, "fetch", "echo", filter={"n": 1}, o={"n": 1})
    request = api.requests("/echo")[-1]
    assert (request.target, request.body) == ("/echo?filter%5Bn%5D=1&filter%5Bkey%5D=s3cret%2F%2Bvalue", b"n=1")


async def echo(request: Received) -> None:
    """Answer with the headers and the target of the request, as a debugging page does."""
    seen = {"headers": request.headers, "target": request.target, "basic": base64.b64encode(SECRET.encode()).decode()}
    request.writer.write(reply("200 OK", seen, "application/json", "Location: /?key=s3cret%2F%2Bvalue"))
    await request.writer.drain()


@pytest.mark.parametrize(
    ("credentials", "header", "target"),
    [
        (BearerToken(SECRET), ("authorization", f"Bearer {SECRET}"), "/echo"),
        (BasicLogin("ann", SECRET), ("authorization", BasicLogin("ann", SECRET).header), "/echo"),
        (ApiKey("header", "X-Api-Key", SECRET), ("x-api-key", SECRET), "/echo"),
        (ApiKey("cookie", "session", SECRET), ("cookie", f"session={SECRET}"), "/echo"),
        (ApiKey("query", "api key", SECRET), ("x-extra", "1"), "/echo?api%20key=s3cret%2F%2Bvalue"),
    ],
    ids=["bearer", "basic", "header", "cookie", "query"],
)
async def test_credentials_are_sent_and_their_echo_reaches_no_program(
    api: LoopbackApi, tmp_path: Path, credentials: CredentialSettings, header: tuple[str, str], target: str
) -> None:
    api.script("/echo", echo)
    spec = spec_of(write_document(tmp_path), url=api.url, credentials=credentials, headers={"X-Extra": "1"})
    async with connected(spec) as pool:
        outcome = await call(pool, "fetch", "echo")
    request = api.requests("/echo")[-1]
    assert request.headers.get(header[0]) == header[1]
    assert request.target == target
    shown = str(outcome.result)
    assert "***" in shown
    for form in (SECRET, "s3cret%2F%2Bvalue", base64.b64encode(SECRET.encode()).decode()):
        assert form not in shown


TOKEN = 'tok+en/with&many<ma"rks>='


def all_escaped(text: str) -> str:
    return "".join(f"\\u{ord(each):04x}" for each in text)


def for_html(text: str) -> str:
    """Return JSON as writers make it that escape characters of HTML, such as those of .NET, Go and Rails."""
    return re.sub(r"[+&<>/=]", lambda found: f"\\u{ord(found[0]):04X}", json.dumps(text))


def echoed(text: str) -> dict[str, tuple[str, bytes]]:
    """Return answers that repeat a text: media type and body, by what encodes it."""
    escaped = all_escaped(text)
    return {
        "json": (JSON, json.dumps({"a": text}).encode()),
        "json with every character escaped": (JSON, f'{{"a": ["x{escaped}y"]}}'.encode()),
        "a key with every character escaped": (JSON, f'{{"{escaped}": 1}}'.encode()),
        "json for html": (JSON, f'{{"a": {for_html(text)}}}'.encode()),
        "json in json": (JSON, json.dumps({"a": json.dumps({"b": text})}).encode()),
        "json in json, escaped": (JSON, json.dumps({"a": f'{{"b": "{escaped}"}}'}).encode()),
        "json without a type": ("", f'{{"a": "{escaped}"}}'.encode()),
        "json of an unclear type": ("application/vnd.x", f'{{"a": "{escaped}"}}'.encode()),
        "json that is no json": (JSON, f'{{"a": "{escaped}"'.encode()),
        "json in utf-16": (f"{JSON}; charset=utf-16le", f'{{"a": "{text}"}}'.encode("utf-16-le")),
        "text in utf-16": ("text/plain; charset=utf-16", text.encode("utf-16")),
        "text in utf-16be": ('text/plain; charset="utf-16be"', text.encode("utf-16-be")),
        "text in utf-32": ("text/plain; charset=utf-32", text.encode("utf-32")),
        "text with escapes": ("text/plain", f"seen: {escaped}".encode()),
        "html": ("text/html", f"<b>{html.escape(text)}</b>".encode()),
        "html with references": ("text/html", "".join(f"&#x{ord(each):X};" for each in text).encode()),
        "a form": ("application/x-www-form-urlencoded", urlencode({"a": text}).encode()),
        "a url in json": (JSON, json.dumps({"a": "?k=" + "".join(f"%{ord(each):02x}" for each in text)}).encode()),
        "base64": (JSON, json.dumps({"a": base64.b64encode(f"Bearer {text}".encode()).decode()}).encode()),
        "base64 in lines": (JSON, json.dumps({"a": base64.encodebytes(f"{text * 4}".encode()).decode()}).encode()),
        "hexadecimal": (JSON, json.dumps({"a": text.encode().hex()}).encode()),
        "bytes": ("application/octet-stream", b"\xff\x00" + text.encode() + b"\xff"),
        "bytes of utf-16": ("application/octet-stream", b"\xff\x00" + text.encode("utf-16-le")),
        "a picture": ("image/png", b"\x89PNG" + text.encode() + b"\xff" * 9),
    }


@pytest.mark.parametrize("encoding", echoed(TOKEN))
async def test_no_program_gets_a_credential_that_an_api_repeats_in_another_encoding(
    api: LoopbackApi, tmp_path: Path, encoding: str
) -> None:
    kind, body = echoed(TOKEN)[encoding]
    spec = spec_of(write_document(tmp_path), url=api.url, credentials=BearerToken(TOKEN))
    async with connected(spec) as pool:
        for status in ("200 OK", "400 Bad Request"):
            answer = reply(status, body, kind or "none")
            api.script("/again", answer.replace(b"Content-Type: none\r\n", b""))
            read = readings((await call(pool, "fetch", "again")).result)
            assert not any(TOKEN[:12] in text or TOKEN.encode().hex()[:24] in text for text in read)
            assert any("***" in text or "bytes that are no text" in text for text in read)


def readings(value: Any) -> list[str]:
    """Return all texts that a program can make of a value by decoding it in the usual ways."""
    texts = [json.dumps(value), json.dumps(value, ensure_ascii=False)]
    for each in re.findall(r"[A-Za-z0-9+/_-]{8,}", texts[0]):
        data = base64.b64decode(each[: len(each) // 4 * 4].translate({45: "+", 95: "/"}) + "==")
        texts += [data.decode("latin-1"), data.decode("utf-16-le", "replace"), data[2:].decode("utf-16-le", "replace")]
    for _ in range(4):
        texts += [unquote_plus(html.unescape(re.sub(r"\\+(u[0-9a-fA-F]{4}|.)", decoded, text))) for text in texts]
        texts = [*dict.fromkeys(texts)]
    return texts


def decoded(found: re.Match[str]) -> str:
    return chr(int(found[1][1:], 16)) if len(found[1]) == 5 else found[1]


async def test_a_large_answer_is_searched_for_credentials_after_it_is_decoded(api: LoopbackApi, tmp_path: Path) -> None:
    rows = [{"id": number, "text": "x" * 90} for number in range(20_000)]
    spec = spec_of(write_document(tmp_path), url=api.url, credentials=BearerToken(TOKEN))
    async with connected(spec) as pool:
        for last, seen in ((f'"{all_escaped(TOKEN)}"', "***"), ('"nothing"', "nothing")):
            body = f"[{json.dumps(rows)[1:-1]}, {last}]".encode()
            api.script("/large", reply(body=body))
            outcome = await call(pool, "fetch", "large")
            assert outcome.result["structuredContent"][-1] == seen
            assert outcome.text is not None
            assert json.loads(outcome.text)["structuredContent"] == [*rows, seen]


async def test_a_client_gets_one_token_for_parallel_calls_and_another_after_a_401(
    api: LoopbackApi, tmp_path: Path
) -> None:
    refused = []

    async def protected(request: Received) -> None:
        if request.headers.get("authorization") == "Bearer first-token" and refused:
            request.writer.write(reply("401 Unauthorized", {"error": "expired"}))
        else:
            request.writer.write(reply(body={"seen": request.headers.get("authorization")}))
        await request.writer.drain()

    api.script("/things", protected)
    # Refused with the secret in the header, and accepted with the secret in the body.
    api.script(
        "/token", reply("401 Unauthorized", {"error": "invalid_client"}), token("first-token"), token("next-token")
    )
    credentials = ClientCredentials(f"{api.url}/token", "me", SECRET, ("read", "write"), audience="things")
    clock = [1000.0]
    spec = spec_of(write_document(tmp_path), url=api.url, credentials=credentials)
    async with connected(spec) as pool:
        outcomes: list[Any] = []

        async def one() -> None:
            outcomes.append((await call(pool, "fetch", "things")).result["structuredContent"])

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(one)
        assert outcomes == [{"seen": "Bearer ***"}] * 5
        in_header, in_body = api.requests("/token")
        assert in_header.headers["authorization"] == f"Basic {base64.b64encode(b'me:s3cret%2F%2Bvalue').decode()}"
        assert parse_qs(in_body.body.decode()) == {
            "grant_type": ["client_credentials"],
            "client_id": ["me"],
            "client_secret": [SECRET],
            "scope": ["read write"],
            "audience": ["things"],
        }
        refused.append(clock)
        answer = await call(pool, "fetch", "things")
    assert answer.result["isError"], "a token that was new a moment ago is not replaced"
    assert len(api.requests("/token")) == 2


@pytest.mark.parametrize("number", ["12345678", "12345678.0", "1.2345678e7", "-12345678", "912345678"])
def test_a_secret_of_digits_is_replaced_in_a_number_and_short_values_are_not_replaced(number: str) -> None:
    body = f'{{"id": {number}, "text": "12345678 abc", "12345678": 1234567}}'
    response = ApiResponse(200, "OK", {"link": "</?k=12345678>", "content-type": "application/json"}, body.encode())
    credentials = ApiKey("query", "k", "12345678")
    spec = UpstreamSpec("a", transport="openapi", document="d", credentials=credentials, headers={"X-Token": "abc"})
    result = result_of(response, "t", is_json_expected=True, secrets=secrets_of(spec.sent_secrets))
    assert result["structuredContent"] == {"id": "***", "text": "*** abc", "***": 1234567}
    assert result["_meta"]["http"]["headers"] == {"link": "</?k=***>"}


@pytest.mark.parametrize("cut_off", [1, 7, len(SECRET) - 1])
def test_no_part_of_a_secret_is_left_where_an_answer_is_cut(cut_off: int) -> None:
    for limit in (200, 4_000):
        text = "x" * (limit - len(SECRET) + cut_off) + SECRET
        response = ApiResponse(302, text, {"location": text}, b"")
        shown = json.dumps(result_of(response, "t", is_json_expected=True, secrets=secrets_of((SECRET,))))
        assert "x***" in shown or "x*" in shown
        assert "xs" not in shown


async def test_a_call_that_needs_more_rights_says_so_and_the_next_login_requests_them(
    api: LoopbackApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_store, "logins_folder", lambda: tmp_path / "logins")
    monkeypatch.setattr(keyring.core, "_keyring_backend", null.Keyring())
    challenge = 'WWW-Authenticate: Bearer error="insufficient_scope", scope="pets:write"'
    api.script("/rights", reply("403 Forbidden", {"error": "no"}, "application/json", challenge))
    api.script("/forbidden", reply("403 Forbidden", {"error": "never"}))
    spec = spec_of(write_document(tmp_path), url=api.url, oauth=OAuthSettings())
    LoginStore(spec).save(Login(access_token="token-of-a-login", scope="pets:read"))
    async with connected(spec) as pool:
        assert (await call(pool, "fetch", "forbidden")).result["isError"]
        with pytest.raises(
            UpstreamCallError, match=r"requires a login with more rights for this .pets:write"
        ) as raised:
            await call(pool, "send", "rights")
    assert raised.value.dispatched is False
    stored = LoginStore(spec).load()
    assert stored is not None
    assert stored.wanted == "pets:write"
    assert api.requests("/rights")[0].headers["authorization"] == "Bearer token-of-a-login"


async def test_an_answer_401_says_what_the_entry_lacks(api: LoopbackApi, tmp_path: Path) -> None:
    api.script("/private", reply("401 Unauthorized", {"error": "who are you?"}))
    document = write_document(tmp_path)
    async with connected(spec_of(document, url=api.url)) as pool:
        refused = (await call(pool, "fetch", "private")).result
    assert refused["isError"]
    assert refused["content"][-1]["text"].endswith('Ask the user to write "auth" in mcpServers.api.')
    with_token = spec_of(document, url=api.url, credentials=BearerToken(SECRET))
    async with connected(with_token) as pool:
        refused = (await call(pool, "fetch", "private")).result
    assert refused["content"][-1]["text"].endswith(
        "were sent and refused. Ask the user to check them in mcpServers.api."
    )
    unsent = advice_after_refusal(with_token, "https://other.example", are_sent=False)
    assert "only its document names https://other.example" in unsent


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def bearer_of(tokens: ClientToken) -> str:
    request = httpx2.Request("GET", "http://127.0.0.1/")
    await tokens.apply(request)
    return str(request.headers["Authorization"])


async def test_the_token_of_a_client_is_replaced_before_it_ends_and_after_it_was_refused(api: LoopbackApi) -> None:
    clock = Clock()
    settings = ClientCredentials(f"{api.url}/times", "me", SECRET)
    spec = UpstreamSpec("api", transport="openapi", document="d", credentials=settings)
    tokens = ClientToken(spec, settings, now=clock)
    failed = reply("503 Service Unavailable", {"error": "temporarily_unavailable"})
    api.script("/times", *(token(f"token-{n}", expires_in=100) for n in range(3)), failed, token("token-3"))
    assert await bearer_of(tokens) == "Bearer token-0"
    clock.now += 60
    assert await bearer_of(tokens) == "Bearer token-0"
    clock.now += 20
    assert await bearer_of(tokens) == "Bearer token-1", "30 seconds before its end, there is another one"
    assert spec.redact("token-0 and token-1") == "*** and ***"

    refused = httpx2.Request("GET", "http://127.0.0.1/", headers={"Authorization": "Bearer token-1"})
    assert not await tokens.renew(refused), "a new token would be refused too"
    clock.now += 10
    assert await tokens.renew(refused)
    assert await tokens.renew(refused), "the token is another one already"
    assert await bearer_of(tokens) == "Bearer token-2"

    clock.now += 80
    assert await bearer_of(tokens) == "Bearer token-2", "the endpoint fails, and the old token is still valid"
    clock.now += 30
    assert await bearer_of(tokens) == "Bearer token-3"


async def test_a_failed_request_for_a_token_is_explained_without_the_secret_and_not_repeated(
    api: LoopbackApi, tmp_path: Path
) -> None:
    api.script("/denied", reply("401 Unauthorized", {"error": "invalid_client", "error_description": SECRET}))
    spec = spec_of(
        write_document(tmp_path), url=api.url, credentials=ClientCredentials(f"{api.url}/denied", "me", SECRET)
    )
    async with connected(spec) as pool:
        for _ in range(2):
            with pytest.raises(UpstreamCallError) as raised:
                await call(pool, "fetch", "things")
    message = raised.value.message
    assert "the token endpoint refused: HTTP 401, invalid_client; check mcpServers.api.auth" in message
    assert SECRET not in message
    assert raised.value.dispatched is False
    assert len(api.requests("/denied")) == 2, (
        "one request for each way to send the secret, and none for the second call"
    )
    settings = ClientCredentials("http://127.0.0.1:1/token", "me", SECRET)
    tokens = ClientToken(UpstreamSpec("x", transport="openapi", document="d"), settings)
    with pytest.raises(LoginError, match=r"check mcpServers\.x\.auth"):
        await bearer_of(tokens)
