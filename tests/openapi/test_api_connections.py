"""Connections to APIs over TLS and through proxies of the environment."""

import datetime
import ssl
from pathlib import Path

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from loopback_api import JSON, loopback_api, reply

from upstream_clients.openapi.api import ApiRequest
from upstream_clients.openapi.client import ApiClient, Base, NoAnswer
from upstream_clients.openapi.exchanges import Address

pytestmark = pytest.mark.anyio

GET = ApiRequest("GET", "/pets?a=1", {}, None)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def client_of(url: str) -> ApiClient:
    base = Base(Address.read(url)._replace(target=""), url, url, "api", True, True)
    return ApiClient(base, headers={"X-Key": "secret"})


def certificate(folder: Path) -> Path:
    """Return a file with a key and a certificate for `localhost`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    path = folder / "server.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        + built.public_bytes(serialization.Encoding.PEM)
    )
    return path


async def test_a_certificate_is_checked_with_its_host_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(path)
    async with loopback_api(context) as api:
        api.script("/pets", reply(body=1))
        async with client_of(f"https://localhost:{api.port}") as client:
            with pytest.raises(NoAnswer, match="certificate verify failed") as refused:
                await client.send(GET, is_repeatable=False)
        assert not refused.value.sent
        trusting = httpx2.create_ssl_context()
        trusting.load_verify_locations(path)
        monkeypatch.setattr(httpx2, "create_ssl_context", lambda: trusting)
        async with client_of(f"https://localhost:{api.port}") as client:
            for _ in range(2):
                assert (await client.send(GET, is_repeatable=True)).body == b"1"
        async with client_of(f"https://127.0.0.1:{api.port}") as client:
            with pytest.raises(NoAnswer, match="IP address mismatch"):
                await client.send(GET, is_repeatable=False)
    first, second = api.requests("/pets")
    assert first.connection == second.connection


async def test_requests_use_the_proxy_of_the_environment_and_no_private_address_is_asked_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with loopback_api() as proxy, loopback_api() as direct:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        moved = reply("302 Found", b"", JSON, "Location: http://10.1.2.3/secrets")
        proxy.script("http://api.example/pets", reply(body=1), moved)
        async with client_of("http://api.example") as client:
            assert (await client.send(GET, is_repeatable=True)).body == b"1"
            assert (await client.send(GET, is_repeatable=True)).status == 302
        direct.script("/pets", reply(body=2))
        async with client_of(direct.url) as client:
            assert (await client.send(GET, is_repeatable=True)).body == b"2"
    assert [each.target for each in proxy.received] == ["http://api.example/pets?a=1"] * 2
    assert proxy.received[0].headers["host"] == "api.example"
    assert proxy.received[0].headers["x-key"] == "secret"
