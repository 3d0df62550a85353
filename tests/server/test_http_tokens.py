"""Forged access tokens, and tokens for other audiences, are refused."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from codemode_mcp.base.settings import IssuerSettings, StaticToken
from codemode_mcp.server.http.auth import CredentialsRefused, StaticTokens, Verifier
from codemode_mcp.server.http.oauth import AccessTokens, Keys, access_tokens

pytestmark = pytest.mark.anyio

ISSUER = "https://login.example"
RESOURCE = "https://mcp.example/mcp"
KEY_SET = ISSUER + "/keys"


def encoded(data: bytes | dict[str, Any]) -> str:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


class Mint:
    """A signer of any header and claims, well-formed or not."""

    def __init__(self) -> None:
        self.ours = rsa.generate_private_key(65537, 2048)
        self.stranger = rsa.generate_private_key(65537, 2048)
        self.elliptic = ec.generate_private_key(ec.SECP256R1())
        self.fetched: list[str] = []

    def public(self, key: rsa.RSAPrivateKey, **more: Any) -> dict[str, Any]:
        return {**jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), **more}

    def pem(self) -> bytes:
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return self.ours.public_key().public_bytes(serialization.Encoding.PEM, form)

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        self.fetched.append(str(request.url))
        curve = jwt.algorithms.ECAlgorithm.to_jwk(self.elliptic.public_key(), as_dict=True)
        keys = [self.public(self.ours, kid="one", use="sig"), {**curve, "kid": "elliptic", "use": "sig"}]
        return httpx2.Response(200, json={"keys": keys})

    def claims(self, **changes: Any) -> dict[str, Any]:
        """Return the claims of a valid token. `...` leaves one out."""
        now = int(time.time())
        claims = {"iss": ISSUER, "aud": RESOURCE, "sub": "alice", "exp": now + 300, "iat": now, "scope": "mcp run"}
        return {key: value for key, value in (claims | changes).items() if value is not ...}

    def sign(
        self, payload: bytes | dict[str, Any] | None = None, key: rsa.RSAPrivateKey | None = None, **header: Any
    ) -> str:
        """Return a token with an RS256 signature of `key`, by default ours. `...` leaves a field out."""
        fields = {"alg": "RS256", "kid": "one", "typ": "JWT"} | header
        head = encoded({name: value for name, value in fields.items() if value is not ...})
        body = encoded(self.claims() if payload is None else payload)
        signature = (key or self.ours).sign(f"{head}.{body}".encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{head}.{body}.{encoded(signature)}"

    def symmetric(self, algorithm: str, secret: bytes, **header: Any) -> str:
        """Return a token with an HMAC over a secret that is public."""
        head = encoded({"alg": algorithm, "kid": "one", **header})
        body = encoded(self.claims())
        digest = {"HS256": "sha256", "HS384": "sha384", "HS512": "sha512"}[algorithm]
        return f"{head}.{body}.{encoded(hmac.digest(secret, f'{head}.{body}'.encode(), digest))}"


@pytest.fixture(scope="module")
def mint() -> Mint:
    return Mint()


@pytest.fixture(scope="module")
async def tokens(mint: Mint) -> AsyncIterator[AccessTokens]:
    settings = IssuerSettings(
        issuer=ISSUER, audience=RESOURCE, resource=RESOURCE, jwks_url=KEY_SET, scopes=("mcp", "run")
    )
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(mint.answer)) as client:
        yield AccessTokens(settings, Keys(settings, client, time.monotonic))


async def refusal(tokens: AccessTokens, token: str) -> tuple[int, str | None]:
    with pytest.raises(CredentialsRefused) as raised:
        await tokens.principal(token)
    return raised.value.status, raised.value.error


def parts(mint: Mint) -> list[str]:
    return mint.sign().split(".")


def changed(text: str) -> str:
    """Return a text with another first character."""
    return ("B" if text[0] != "B" else "C") + text[1:]


FORMS: dict[str, Callable[[Mint], str]] = {
    "nothing": lambda _: "",
    "dots": lambda _: "..",
    "four dots": lambda _: "....",
    "the head alone": lambda mint: parts(mint)[0],
    "no signature": lambda mint: ".".join(parts(mint)[:2]),
    "an empty signature": lambda mint: ".".join([*parts(mint)[:2], ""]),
    "an empty head": lambda mint: ".".join(["", *parts(mint)[1:]]),
    "an empty body": lambda mint: ".".join([parts(mint)[0], "", parts(mint)[2]]),
    "a fourth part": lambda mint: mint.sign() + ".x",
    "five parts, as of a JWE": lambda mint: mint.sign() + ".x.y",
    "twice": lambda mint: mint.sign() * 2,
    "backwards": lambda mint: mint.sign()[::-1],
    "capital letters": lambda mint: mint.sign().upper(),
    "another head": lambda mint: ".".join([changed(parts(mint)[0]), *parts(mint)[1:]]),
    "another body": lambda mint: ".".join([parts(mint)[0], encoded(mint.claims(sub="bob")), parts(mint)[2]]),
    "another signature": lambda mint: ".".join([*parts(mint)[:2], changed(parts(mint)[2])]),
    "a short signature": lambda mint: mint.sign()[:-4],
    "a long signature": lambda mint: mint.sign() + "AAAA",
    "a signature of zeros": lambda mint: ".".join([*parts(mint)[:2], encoded(bytes(256))]),
    "a signature of one byte": lambda mint: ".".join([*parts(mint)[:2], encoded(b"\x01")]),
    "the signature of another token": lambda mint: ".".join(
        [*parts(mint)[:2], mint.sign(mint.claims(sub="bob")).split(".")[2]]
    ),
    "a scheme before it": lambda mint: "Bearer " + mint.sign(),
    "a line break in it": lambda mint: mint.sign().replace(".", ".\r\n", 1),
    "a NUL in it": lambda mint: mint.sign().replace(".", "\0.", 1),
    "letters beyond ASCII": lambda mint: "\u00e9" + mint.sign(),
    "JSON": lambda mint: json.dumps(dict(zip(("protected", "payload", "signature"), parts(mint), strict=True))),
    "a megabyte": lambda _: "x" * 1_000_000,
    "a megabyte of dots": lambda _: "." * 1_000_000,
    "a head that is a list": lambda mint: ".".join([encoded(b"[]"), *parts(mint)[1:]]),
    "a head that is no JSON": lambda mint: ".".join([encoded(b"{"), *parts(mint)[1:]]),
    "a head without end": lambda mint: ".".join([encoded(b"[" * 50_000), *parts(mint)[1:]]),
}

HEADERS: dict[str, Callable[[Mint], str]] = {
    **{
        f"alg {name!r} without a signature": lambda mint, name=name: (
            f"{encoded({'alg': name, 'kid': 'one'})}.{encoded(mint.claims())}."
        )
        for name in ("none", "None", "NONE", "nOnE", "none ", "")
    },
    **{
        f"alg {name!r}": lambda mint, name=name: mint.sign(alg=name)
        for name in (None, ..., 5, True, ["RS256"], {"RS256": 1}, "rs256", "RS256 ", "RS1", "RS2048", "ES256K", "dir")
    },
    **{
        f"alg {name} over a signature of RS256": lambda mint, name=name: mint.sign(alg=name)
        for name in ("RS384", "RS512", "PS256", "ES256", "ES512", "EdDSA", "HS256")
    },
    **{
        f"{name} with {what}": lambda mint, name=name, secret=secret: mint.symmetric(name, secret(mint))
        for name in ("HS256", "HS512")
        for what, secret in {
            "the public key": lambda mint: mint.pem(),
            "the modulus": lambda mint: mint.public(mint.ours)["n"].encode(),
            "the key set": lambda mint: json.dumps(mint.public(mint.ours)).encode(),
            "nothing": lambda _: b"",
            "the id of the key": lambda _: b"one",
        }.items()
    },
    **{
        f"kid {str(kid)[:30]!r}": lambda mint, kid=kid: mint.sign(kid=kid)
        for kid in (
            *("unknown", "", "ONE", "one ", " one", "one\0", "../../one", "/dev/null", "file:///dev/null", "__proto__"),
            *("' OR 1=1 --", "http://127.0.0.1/keys", "one,elliptic", "elliptic", "*", "x" * 100_000),
            *(["one"], {"kid": "one"}, 1, 0, True, False),
        )
    },
    "a stranger's signature": lambda mint: mint.sign(None, mint.stranger),
    "a stranger's signature without a key id": lambda mint: mint.sign(None, mint.stranger, kid=...),
    "a stranger's key within": lambda mint: mint.sign(None, mint.stranger, jwk=mint.public(mint.stranger)),
    "a stranger's key within and no id": lambda mint: mint.sign(
        None, mint.stranger, kid=..., jwk=mint.public(mint.stranger)
    ),
    "a stranger's key set": lambda mint: mint.sign(None, mint.stranger, jku="https://evil.example/keys"),
    "a stranger's key set and no id": lambda mint: mint.sign(
        None, mint.stranger, kid=..., jku="https://evil.example/keys"
    ),
    "a stranger's certificate": lambda mint: mint.sign(None, mint.stranger, x5u="https://evil.example/cert"),
    "a stranger's certificate within": lambda mint: mint.sign(None, mint.stranger, x5c=["MIIB"]),
    "a critical field that is unknown": lambda mint: mint.sign(crit=["unknown"], unknown=1),
    "a body that is not encoded": lambda mint: mint.sign(crit=["b64"], b64=False),
    "an empty list of critical fields": lambda mint: mint.sign(crit=[]),
}

NEVER = 10**400
OTHER = "https://other.example"
WRONG: dict[str, tuple[Any, ...]] = {
    "aud": (
        *(f"{OTHER}/mcp", "https://mcp.example", RESOURCE + "/", RESOURCE + "2", RESOURCE.upper(), "*"),
        *("http" + RESOURCE[5:], f"{RESOURCE} {OTHER}", "", [], [5], [OTHER], ..., None, 5, True, {"aud": RESOURCE}),
    ),
    "iss": (
        *(OTHER, ISSUER + "/", ISSUER + ".evil.example", ISSUER.upper(), "http" + ISSUER[5:]),
        *("", "login.example", [ISSUER], {"iss": ISSUER}, 5, True, None, ...),
    ),
    "exp": (..., None, 0, -1, 1, 1_000_000_000, "soon", "", [], {}, [9_999_999_999], True, float("nan")),
    "nbf": ("later", [], {}, NEVER),
    "sub": (..., None, "", 5, 0, True, ["alice"], {"sub": "alice"}),
    "groups": (5, True, [5], ["a", None], [["a"]], [{"value": 5}], [{}], {"a": 1}, ["a"] * 1001),
}
CLAIMS: dict[str, Callable[[Mint], Any]] = {
    **{
        f"{name} {str(value)[:50]!r}": lambda mint, name=name, value=value: mint.claims(**{name: value})
        for name, values in WRONG.items()
        for value in values
    },
    "exp just over": lambda mint: mint.claims(exp=int(time.time()) - 31),
    "exp beyond any number": lambda mint: (
        json.dumps(mint.claims()).replace('"exp": ', '"exp": 1e999, "old": ').encode()
    ),
    "nbf to come": lambda mint: mint.claims(nbf=int(time.time()) + 60),
    "iat to come": lambda mint: mint.claims(iat=int(time.time()) + 600),
    "a client that is a number": lambda mint: mint.claims(sub=..., client_id=5),
    "an empty client": lambda mint: mint.claims(sub=..., client_id="", azp=""),
    "groups elsewhere": lambda mint: mint.claims(_claim_names={"groups": "src1"}),
    **{
        f"a body {text[:20]!r}": lambda _, text=text: text
        for text in (b"[]", b'"text"', b"5", b"null", b"true", b"", b"{", b"\xff\xfe", b"{}", b"[" * 50_000)
    },
}

SCOPES: dict[str, Any] = {
    "none": ...,
    "null": None,
    "empty": "",
    "one of two": "mcp",
    "a longer word": "mcp runs",
    "capital letters": "MCP RUN",
    "commas": "mcp,run",
    "a glob": "*",
    "a number": 5,
    "an object": {"mcp": 1, "run": 1},
    "a list of lists": [["mcp", "run"]],
    "a list with one word of both": ["mcp run"],
}


async def test_a_token_of_the_issuer_names_its_subject(mint: Mint, tokens: AccessTokens) -> None:
    assert (await tokens.principal(mint.sign())).subject == "alice"
    assert (await tokens.principal(mint.sign(kid=...))).subject == "alice"


@pytest.mark.parametrize(
    "claims",
    [
        lambda: {"scope": ..., "scp": ["mcp", "run"]},
        lambda: {"scope": "mcp", "scp": ["run"]},
        lambda: {"aud": [OTHER, RESOURCE]},
        lambda: {"exp": int(time.time()) - 5},
    ],
    ids=["a list of scopes", "scopes of both claims", "several audiences", "clocks that differ a little"],
)
async def test_a_token_of_another_form_is_accepted(
    mint: Mint, tokens: AccessTokens, claims: Callable[[], dict[str, Any]]
) -> None:
    assert (await tokens.principal(mint.sign(mint.claims(**claims())))).subject == "alice"


async def test_a_token_may_be_signed_with_a_key_of_an_elliptic_curve(mint: Mint, tokens: AccessTokens) -> None:
    token = jwt.encode(mint.claims(), mint.elliptic, "ES256", {"kid": "elliptic"})
    assert (await tokens.principal(token)).subject == "alice"


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (..., []),
        ("staff", ["staff"]),
        (["staff", "interns"], ["staff", "interns"]),
        ([{"value": "staff", "display": "Staff"}, "interns"], ["staff", "interns"]),
    ],
    ids=["none", "a name", "names", "an object and a name"],
)
async def test_a_principal_has_the_groups_of_its_token(
    mint: Mint, tokens: AccessTokens, groups: Any, expected: list[str]
) -> None:
    assert (await tokens.principal(mint.sign(mint.claims(groups=groups)))).groups == set(expected)


async def test_subjects_are_apart_and_a_subject_is_no_client_of_that_name(mint: Mint, tokens: AccessTokens) -> None:
    async def owner(**claims: Any) -> str:
        return (await tokens.principal(mint.sign(mint.claims(**claims)))).owner

    alice = await owner()
    assert await owner(client_id="another client", jti="2") == alice
    assert len({alice, await owner(sub="bob"), await owner(sub=..., client_id="alice")}) == 3


async def test_keys_are_fetched_once_and_serve_for_a_day_while_the_issuer_answers_503(mint: Mint) -> None:
    clock, asked = [0.0], []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(clock[0])
        return mint.answer(request) if len(asked) == 1 else httpx2.Response(503)

    settings = IssuerSettings(issuer=ISSUER, audience=RESOURCE, resource=RESOURCE, jwks_url=KEY_SET)
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as client:
        tokens = AccessTokens(settings, Keys(settings, client, lambda: clock[0]))
        for clock[0] in (0, 0, 3_599, 3_601, 86_399):
            assert (await tokens.principal(mint.sign())).subject == "alice"
        clock[0] = 86_401
        assert await refusal(tokens, mint.sign()) == (503, None)
    assert asked == [0, 3_601, 86_399]


@pytest.mark.parametrize("kind", FORMS)
async def test_a_text_that_is_no_token_is_refused(mint: Mint, tokens: AccessTokens, kind: str) -> None:
    assert await refusal(tokens, FORMS[kind](mint)) == (401, "invalid_token")


@pytest.mark.parametrize("kind", HEADERS)
async def test_a_head_decides_neither_key_nor_algorithm(mint: Mint, tokens: AccessTokens, kind: str) -> None:
    before = len(mint.fetched)
    assert await refusal(tokens, HEADERS[kind](mint)) == (401, "invalid_token")
    assert set(mint.fetched[before:]) <= {KEY_SET}


@pytest.mark.parametrize("kind", CLAIMS)
async def test_claims_that_are_not_for_this_server_now_are_refused(mint: Mint, tokens: AccessTokens, kind: str) -> None:
    assert await refusal(tokens, mint.sign(CLAIMS[kind](mint))) == (401, "invalid_token")


@pytest.mark.parametrize("kind", SCOPES)
async def test_a_token_with_other_scopes_is_refused(mint: Mint, tokens: AccessTokens, kind: str) -> None:
    token = mint.sign(mint.claims(scope=SCOPES[kind]))
    assert await refusal(tokens, token) == (403, "insufficient_scope")


async def test_keys_that_tokens_name_are_not_looked_for_again_and_again(mint: Mint, tokens: AccessTokens) -> None:
    await tokens.principal(mint.sign())
    before = len(mint.fetched)
    for number in range(60):
        assert (await refusal(tokens, mint.sign(kid=f"key-{number}")))[0] == 401
    assert len(mint.fetched) <= before + 1


# tokens of the configuration


async def test_every_token_of_the_configuration_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    digests = [hashlib.sha256(token.encode()).digest() for token in ("one", "two", "three")]
    compared: list[tuple[bytes, bytes]] = []

    def compare_digest(known: bytes, given: bytes) -> bool:
        compared.append((known, given))
        return known == given

    monkeypatch.setattr(hmac, "compare_digest", compare_digest)
    tokens = StaticTokens([StaticToken(f"user {n}", digest) for n, digest in enumerate(digests)])
    # The first one matches, and the others are compared all the same.
    assert (await tokens.principal("one")).client == "user 0"
    assert compared == [(digest, digests[0]) for digest in digests]
    compared.clear()
    with pytest.raises(CredentialsRefused):
        await tokens.principal("four")
    assert [known for known, _ in compared] == digests


# the place of the keys


@asynccontextmanager
async def reading_keys(
    monkeypatch: pytest.MonkeyPatch, mint: Mint, addresses: dict[str, str]
) -> AsyncIterator[tuple[Verifier, list[str]]]:
    """Yield the verifier of a listener, and where it has connected. The issuer names `keys.example` for its keys."""
    connected: list[str] = []

    async def look_up(host: str, port: int, **_: Any) -> list[Any]:
        return [(None, None, None, "", (addresses[host], port))]

    async def answer(_: object, request: httpx2.Request) -> httpx2.Response:
        connected.append(request.url.host)
        if request.headers["host"] == "keys.example":
            return mint.answer(request)
        return httpx2.Response(200, json={"issuer": ISSUER, "jwks_uri": "https://keys.example/keys"})

    monkeypatch.setattr(anyio, "getaddrinfo", look_up)
    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", answer)
    issuer = IssuerSettings(issuer=ISSUER, audience=RESOURCE, resource=RESOURCE)
    async with access_tokens(issuer) as verifier:
        yield verifier, connected


@pytest.mark.parametrize("inside", ["127.0.0.1", "169.254.169.254", "10.0.0.9", "192.168.1.1", "fd00::9", "::1"])
async def test_a_public_issuer_cannot_name_an_internal_address_for_its_keys(
    mint: Mint, inside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {"login.example": "93.184.216.34", "keys.example": inside}
    async with reading_keys(monkeypatch, mint, places) as (verifier, connected):
        with pytest.raises(CredentialsRefused) as refused:
            await verifier.principal(mint.sign())
        assert refused.value.status == 503
        assert connected == ["93.184.216.34"]


@pytest.mark.parametrize(("issuer", "keys"), [("93.184.216.34", "93.184.216.35"), ("10.0.0.5", "10.0.0.9")])
async def test_keys_are_fetched_from_a_public_address_or_from_the_network_of_a_private_issuer(
    mint: Mint, issuer: str, keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {"login.example": issuer, "keys.example": keys}
    async with reading_keys(monkeypatch, mint, places) as (verifier, connected):
        assert (await verifier.principal(mint.sign())).subject == "alice"
        assert connected == [issuer, keys]
