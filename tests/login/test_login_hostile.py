"""Tests of logins with hostile or broken servers, authorization servers and requests to the listener."""

import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
import pytest
from anyio.streams.tls import TLSListener
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from protected import browse, log_in_with, protected

from upstream_clients import UpstreamSpec
from upstream_clients.errors import LoginError, LoginRefused
from upstream_clients.fetch import MAX_DOCUMENT_BYTES, Fetcher, GuardedClient, check_address
from upstream_clients.oauth import discover
from upstream_clients.spec import Challenge, OAuthSettings, read_challenge
from upstream_clients.token_store import LoginStore

pytestmark = pytest.mark.anyio

REMOTE = "https://mcp.example/mcp"


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        pytest.param(["--deny"], "the login was refused: access_denied", id="denied"),
        pytest.param(["--iss", "http://other.example"], "the answer comes from another issuer", id="answer-of-another"),
        pytest.param(["--issuer", "http://127.0.0.1:9"], "names another issuer, http://127.0.0.1:9", id="issuer"),
        pytest.param(
            ["--resource", "https://bank.example/mcp"], "is about another server, https://bank.example", id="prm"
        ),
        pytest.param(["--server", "http://192.0.2.1"], "is not https: http://192.0.2.1", id="server-elsewhere"),
        pytest.param(["--token-endpoint", "http://192.0.2.1/t"], "the token endpoint is not https", id="endpoint"),
        pytest.param(["--metadata", "huge"], f"is larger than {MAX_DOCUMENT_BYTES} bytes", id="huge"),
        pytest.param(["--metadata", "no-pkce"], "does not offer PKCE with S256", id="no-pkce"),
        pytest.param(["--metadata", "busy"], "cannot be read, HTTP 503", id="busy"),
        pytest.param(["--token", "garbage"], "the answer of the token endpoint is not a token", id="garbage"),
        pytest.param(["--token", "not-a-header"], "characters that a header cannot have", id="not-a-header"),
        pytest.param(["--token", "empty"], "the token endpoint refused: HTTP 400, invalid_grant", id="refused"),
        pytest.param(["--token", "broken"], "the token endpoint refused: HTTP 503", id="broken"),
        pytest.param(["--open", "--metadata", "none"], "it offers no OAuth login, and needs none", id="open"),
        pytest.param(
            ["--fixed-token", "--metadata", "none"],
            "no OAuth login was found; if the server takes a fixed token",
            id="fixed",
        ),
    ],
)
async def test_a_failed_login_says_why_and_stores_nothing(flags: list[str], reason: str, logins: Path) -> None:
    async with protected(*flags) as server:
        spec = server.spec()
        with pytest.raises(LoginError) as failed:
            await log_in_with(spec)
        assert reason in str(failed.value)
        assert LoginStore(spec).load() is None
        assert not [secret for secret in (*spec.learned, "SECRET") if secret in str(failed.value)]


async def test_invalid_or_foreign_metadata_is_ignored_for_that_of_the_server() -> None:
    for kind in ("away", "junk"):
        async with protected("--metadata", kind, "--unbound") as server:
            spec = server.spec()
            await log_in_with(spec)
            assert LoginStore(spec).load() is not None


async def test_a_login_times_out_without_a_person_at_the_browser() -> None:
    async def no_user(url: str) -> None:
        pass

    async with protected() as server:
        with pytest.raises(LoginError, match=r"the browser did not return within 0\.2 s"):
            await log_in_with(server.spec(), no_user, timeout=0.2)


async def test_an_answer_with_a_wrong_state_is_ignored() -> None:
    async with protected("--state", "guessed") as server:
        with pytest.raises(LoginError, match="the browser did not return within 2 s"):
            await log_in_with(server.spec(), timeout=2)
        assert await server.seen("token") == []


async def test_foreign_requests_to_the_listener_do_not_end_the_login() -> None:
    statuses: list[int] = []

    async def among_strangers(url: str) -> None:
        (back,) = parse_qs(urlsplit(url).query)["redirect_uri"]
        root = back.removesuffix("/callback")
        async with httpx2.AsyncClient() as client:
            for method, target in (
                ("GET", f"{back}?code=stolen&state=wrong"),
                ("GET", f"{back}?error=access_denied"),
                ("GET", f"{back}?error=access_denied&state=wrong&state={'x' * 43}"),
                ("GET", f"{root}/"),
                ("POST", back),
                ("GET", f"{back}?{'a=1&' * 100}"),
                ("GET", f"{back}?{'a' * 20000}"),
            ):
                statuses.append((await client.request(method, target)).status_code)
        parts = urlsplit(root)
        async with await anyio.connect_tcp(parts.hostname or "", parts.port or 0) as silent:
            await silent.send(b"\0\xff no HTTP at all\r\n\r\n")
            await browse(url)

    async with protected() as server:
        spec = server.spec()
        await log_in_with(spec, among_strangers)
        assert LoginStore(spec).load() is not None
    assert statuses[:5] == [200, 200, 200, 404, 405]
    assert statuses[5] == 400


async def test_the_page_repeats_nothing_of_the_request() -> None:
    pages: list[httpx2.Response] = []

    async def visit(url: str) -> None:
        (back,) = parse_qs(urlsplit(url).query)["redirect_uri"]
        async with httpx2.AsyncClient() as client:
            pages.append(await client.get(f"{back}?state=<script>alert(1)</script>"))
        await browse(url)

    async with protected() as server:
        await log_in_with(server.spec(), visit)
    assert "script" not in pages[0].text
    assert pages[0].headers["content-security-policy"] == "default-src 'none'"


@pytest.mark.parametrize(
    "address",
    [
        *("http://auth.example/", "http://127.0.0.1:8080/", "https://127.0.0.1/", "https://localhost/"),
        *("https://anything.localhost/", "https://[::1]/", "https://[::ffff:127.0.0.1]/"),
        *("https://169.254.169.254/latest/meta-data/", "https://[fe80::1]/", "https://10.0.0.1/"),
        *("https://192.168.1.1/", "https://0.0.0.0/", "https://user:password@auth.example/", "ftp://auth.example/"),
        *("file:///etc/passwd", "https://", "https://auth.example:99999/", "https://0xC0A80101/"),
        *("https://3232235777/", "https://192.168.257/", "https://10.1/", "https://100.64.0.1/", "https://0x7f.1/"),
        *("https://0xA9FEA9FE/latest/meta-data/", "https://[fc00::1]/", "https://[::127.0.0.1]/"),
        *("https://[::192.168.1.1]/", "https://[64:ff9b::7f00:1]/", "https://[64:ff9b::192.168.1.1]/"),
        *("https://[64:ff9b:1::10.0.0.1]/", "https://[2002:7f00:1::]/", "https://[2002:c0a8:101::1]/", "nonsense"),
    ],
)
async def test_a_remote_server_cannot_point_a_login_at_this_machine_or_its_network(address: str) -> None:
    with pytest.raises(LoginError) as refused:
        await check_address(address, REMOTE, "the metadata")
    assert str(refused.value).startswith("the metadata ")
    assert "password" not in str(refused.value)


@pytest.mark.parametrize(
    ("address", "server"),
    [
        ("https://93.184.216.34/", REMOTE),
        ("https://no-such-name.invalid/", REMOTE),
        ("http://127.0.0.1:1/", "http://127.0.0.1:2/mcp"),
        ("http://localhost:1/", "http://127.0.0.1:2/mcp"),
        ("https://auth.example/", "http://localhost:2/mcp"),
        ("https://10.0.0.1/", "https://10.0.0.2/mcp"),
        ("https://0x0A000001/", "https://10.0.0.2/mcp"),
        ("https://[64:ff9b::93.184.216.34]/", REMOTE),
    ],
)
async def test_an_address_that_a_server_may_name_is_accepted(address: str, server: str) -> None:
    await check_address(address, server, "the metadata")


Answers = dict[str, list[list[str]]]
"""The addresses of a name, at each look-up; the last ones from then on."""


def resolving(monkeypatch: pytest.MonkeyPatch, answers: Answers) -> None:
    async def resolve(host: str, port: int, **_: Any) -> list[Any]:
        found = answers[host]
        return [(None, None, None, "", (each, port)) for each in (found.pop(0) if len(found) > 1 else found[0])]

    monkeypatch.setattr(anyio, "getaddrinfo", resolve)


@pytest.mark.parametrize(
    "inside", ["169.254.169.254", "127.0.0.1", "192.168.1.1", "10.9.8.7", "100.64.1.1", "fd00::1", "64:ff9b::a00:1"]
)
async def test_a_name_with_an_internal_address_is_refused(inside: str, monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, {"auth.example": [["93.184.216.34", inside]], "mcp.example": [["93.184.216.35"]]})
    with pytest.raises(LoginError, match="leads to an address that is not public: https://auth"):
        await check_address("https://auth.example/", REMOTE, "the metadata")


async def test_a_server_of_a_private_network_may_name_that_network_but_not_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = {"auth.corp": [["10.0.0.5"]], "mcp.corp": [["10.0.0.6"]], "meta.corp": [["169.254.169.254"]]}
    resolving(monkeypatch, names)
    await check_address("https://auth.corp/", "https://mcp.corp/mcp", "the metadata")
    with pytest.raises(LoginError, match="leads to an address that is not public: https://meta"):
        await check_address("https://meta.corp/", "https://mcp.corp/mcp", "the metadata")


async def test_a_name_that_resolves_to_an_internal_address_only_later_is_not_connected_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        reached = anyio.Event()

        async def note(stream: anyio.abc.SocketStream) -> None:
            reached.set()
            await stream.aclose()

        tasks.start_soon(listener.serve, note)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        resolving(monkeypatch, {"auth.example": [["93.184.216.34"], ["127.0.0.1"]], "mcp.example": [["93.184.216.35"]]})
        async with Fetcher(REMOTE) as fetcher:
            with pytest.raises(LoginError, match="the metadata leads to an address that is not public: https://auth"):
                await fetcher.get(f"https://auth.example:{port}/", "the metadata")
        assert not reached.is_set()
        tasks.cancel_scope.cancel()


async def test_the_connection_uses_the_checked_address_and_the_name_of_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[httpx2.Request] = []

    async def send(self: object, request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        if request.url.host == "93.184.216.34":
            raise httpx2.ConnectError("not there")
        return httpx2.Response(200, json={"issuer": "x"})

    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", send)
    resolving(
        monkeypatch, {"auth.example": [["93.184.216.34", "2606:2800:21f:cb07::1"]], "mcp.example": [["93.184.216.35"]]}
    )
    async with Fetcher(REMOTE) as fetcher:
        assert await fetcher.get("https://auth.example/a?b=c", "the metadata") == (200, {"issuer": "x"})
    assert [str(request.url) for request in sent] == [
        "https://93.184.216.34/a?b=c",
        "https://[2606:2800:21f:cb07::1]/a?b=c",
    ]
    for request in sent:
        assert request.headers["host"] == "auth.example"
        assert request.extensions["sni_hostname"] == "auth.example"


async def test_a_certificate_is_checked_against_the_name_and_not_the_address(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server, client = tls_contexts(tmp_path, "auth.example")
    resolving(monkeypatch, {"auth.example": [["127.0.0.1"]], "other.example": [["127.0.0.1"]]})

    async def answer(stream: anyio.abc.ByteStream) -> None:
        async with stream:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                await stream.receive()
                await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as tcp,
        anyio.create_task_group() as tasks,
        GuardedClient("http://localhost/", verify=client) as fetcher,
    ):
        listener = TLSListener(tcp, server, standard_compatible=False)
        tasks.start_soon(listener.serve, answer)
        port = tcp.extra(anyio.abc.SocketAttribute.local_port)
        assert (await fetcher.get(f"https://auth.example:{port}/")).json() == {}
        with pytest.raises(httpx2.ConnectError, match=r"(?i)hostname mismatch|not valid for"):
            await fetcher.get(f"https://other.example:{port}/")
        tasks.cancel_scope.cancel()


def tls_contexts(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the contexts of a server with a certificate of its own making for `name`, and of a client that trusts
    it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / "server.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path)
    client = ssl.create_default_context(cadata=certificate.public_bytes(serialization.Encoding.PEM).decode())
    return server, client


async def test_a_challenge_that_points_at_a_metadata_service_is_refused_before_any_request() -> None:
    spec = UpstreamSpec("srv", "http", url="https://93.184.216.34/mcp")
    challenge = Challenge(resource_metadata="http://169.254.169.254/latest/meta-data/")
    async with Fetcher(str(spec.url)) as fetcher:
        with pytest.raises(LoginError, match="the metadata of the server is not https: http://169"):
            await discover(spec, fetcher, challenge)


async def test_a_login_over_plain_http_is_refused() -> None:
    spec = UpstreamSpec("srv", "http", url="http://192.0.2.7/mcp")
    async with Fetcher(str(spec.url)) as fetcher:
        with pytest.raises(LoginError, match="anyone on the network path could read the login"):
            await discover(spec, fetcher, Challenge())


async def test_an_endless_document_is_refused() -> None:
    async def dribble(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{")
            await anyio.sleep_forever()

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, dribble)
        url = f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}/"
        async with Fetcher(url, timeout=0.3) as fetcher:
            with pytest.raises(LoginError, match=r"the document did not answer within 0\.3 s"):
                await fetcher.get(url, "the document")
        tasks.cancel_scope.cancel()


async def test_an_occupied_port_is_named() -> None:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as taken, protected() as server:
        port = taken.extra(anyio.abc.SocketAttribute.local_port)
        with pytest.raises(LoginError, match=f"cannot listen on 127.0.0.1 port {port}"):
            await log_in_with(server.spec(oauth=OAuthSettings(redirect_port=port)))


async def test_a_client_that_cannot_register_is_told_how_to_continue() -> None:
    async with protected("--metadata", "no-registration") as server:
        with pytest.raises(LoginError, match='"clientId": "..."}} in mcpServers.srv'.replace("}}", "}")):
            await log_in_with(server.spec())


async def test_a_refusal_is_distinguished_from_a_failure() -> None:
    async with protected("--deny") as server:
        with pytest.raises(LoginRefused):
            await log_in_with(server.spec())


@pytest.mark.parametrize(
    ("header", "challenge"),
    [
        (None, None),
        ("Basic realm=x", None),
        ('Basic realm="bearer"', None),
        ("Bearer", Challenge()),
        ("bearer", Challenge()),
        ('Bearer resource_metadata="https://h/x", scope="a b"', Challenge("https://h/x", "a b")),
        ("Bearer error=insufficient_scope,scope=a", Challenge(None, "a", "insufficient_scope")),
        ('Bearer error_description="scope=x, error=y", scope="z"', Challenge(None, "z")),
        ('Negotiate, Bearer error="invalid_token"', Challenge(None, None, "invalid_token")),
    ],
)
async def test_a_challenge_is_read(header: str | None, challenge: Challenge | None) -> None:
    assert read_challenge(header) == challenge
