"""The one search for secrets: every encoding in which a server repeats a secret, and which values are secret at all."""

import base64
import html
import json
import random
import re
import time
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties import examples
from upstream_clients.redaction import Secrets, counts_as_secret, hide
from upstream_clients.spec import UpstreamSpec

SECRETS = {
    "token": "s3cr3t-Token-ABCDEFGH",
    "punctuation": "abc+def/ghi&j<k>l\"m'n=",
    "letters": "pä§§wörd-ünï",
    "backslash": "corp\\user name",
    "digits": "1234567890123",
    "key": f"-----BEGIN PRIVATE KEY-----\n{'MIIEowIBAAKCAQEA' * 4}\n{'x1234567890abc' * 4}\n-----END PRIVATE KEY-----",
    "tab": "tab\there12",
    "newline": "line-one\nand-two",
    "escapes": "50%25off&amp;more",
}


def units(text: str) -> list[int]:
    """Return the code units of UTF-16."""
    data = text.encode("utf-16-be")
    return [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]


def escaped(text: str) -> str:
    return "".join(f"\\u{unit:04x}" for unit in units(text))


def for_html(text: str) -> str:
    """Return JSON as writers make it that escape characters of HTML, such as those of .NET, Go and Rails."""
    return re.sub(r"[+&<>'/=]", lambda found: f"\\u{ord(found[0]):04X}", json.dumps(text))


def mixed(text: str) -> str:
    """Return a text in which each character is escaped in another way, or not at all."""
    chosen = random.Random(7)
    ways: list[Callable[[str], str]] = [str, escaped, lambda c: f"%{ord(c):02x}", lambda c: f"&#{ord(c)};"]
    return "".join(chosen.choice(ways)(each) if each.isascii() and each.isalnum() else each for each in text)


def wrapped(text: str) -> str:
    return base64.encodebytes(b"x" * 50 + text.encode() + b"y" * 70).decode()


ENCODINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "json": json.dumps,
    "json in json": lambda text: json.dumps(json.dumps({"a": text})),
    "json in json in json": lambda text: json.dumps(json.dumps(json.dumps({"a": text}, ensure_ascii=False))),
    "every character escaped": escaped,
    "escaped with capital digits": lambda text: "".join(f"\\u{unit:04X}" for unit in units(text)),
    "escaped twice": lambda text: json.dumps(escaped(text)),
    "escaped three times": lambda text: json.dumps(json.dumps(escaped(text))),
    "escaped for html": for_html,
    "escaped for html, nested": lambda text: json.dumps({"body": for_html(text)}),
    "escaped slashes": lambda text: json.dumps(text).replace("/", "\\/"),
    "escaped slashes, nested": lambda text: json.dumps(json.dumps(text).replace("/", "\\/")).replace("/", "\\/"),
    "url": lambda text: quote(text, safe=""),
    "url twice": lambda text: quote(quote(text, safe=""), safe=""),
    "form": quote_plus,
    "every byte of a url": lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
    "json in a url": lambda text: quote(json.dumps(text)),
    "a url in json, escaped": lambda text: "".join(f"\\u0025{byte:02x}" for byte in text.encode()),
    "html": html.escape,
    "html twice": lambda text: html.escape(html.escape(text)),
    "decimal references": lambda text: "".join(f"&#{ord(each)};" for each in text),
    "hexadecimal references": lambda text: "".join(f"&#x{ord(each):X};" for each in text),
    "references in a url": lambda text: quote("".join(f"&#x{ord(each):x};" for each in text)),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 for urls": lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "within base64": lambda text: base64.b64encode(b"user:" + text.encode() + b" more").decode(),
    "base64 of utf-16": lambda text: base64.b64encode(f"x{text}y".encode("utf-16-le")).decode(),
    "base64 in lines": wrapped,
    "base64 in lines, in json": lambda text: json.dumps(wrapped(text)),
    "base64 in lines, in json in json": lambda text: json.dumps(json.dumps(wrapped(text).replace("\n", "\r\n"))),
    "references with zeros": lambda text: "".join(f"&#x{ord(each):010x};" for each in text),
    "hexadecimal bytes": lambda text: text.encode().hex(" "),
    "hexadecimal bytes with colons": lambda text: text.encode().hex(":").upper(),
    "hexadecimal": lambda text: text.encode().hex(),
    "hexadecimal capitals": lambda text: text.encode().hex().upper(),
    "python": repr,
    "python bytes": lambda text: repr(text.encode()),
    "code points": lambda text: "".join(f"\\u{{{ord(each):x}}}" for each in text),
    "octal": lambda text: "".join(f"\\{byte:03o}" for byte in text.encode()),
    "each byte": lambda text: "".join(f"\\x{byte:02x}" for byte in text.encode()),
    "characters that are not seen": "\u200b".join,
    "mixed": mixed,
}


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_is_found_in_every_encoding(kind: str, encoding: str) -> None:
    secret = SECRETS[kind]
    encoded = ENCODINGS[encoding](secret)
    shown = hide(f"before {encoded} after", (secret, "another-secret-value"))
    assert shown.startswith("before ")
    assert shown.endswith(" after")
    assert "***" in shown
    if "base64" not in encoding:  # which has more than the secret
        assert set(re.findall(r"\w{3,}", shown)) <= {"before", "after", "body"}


@pytest.mark.parametrize("width", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_a_secret_is_found_in_bytes_of_other_widths(width: str) -> None:
    data = "é before s3cr3t-Token-ABCDEFGH after".encode(width)
    assert b"T" not in Secrets(("s3cr3t-Token-ABCDEFGH",)).hide_in_bytes(data)
    assert Secrets(("absent-secret",)).hide_in_bytes(data) == data


def test_strings_keys_and_numbers_of_json_are_searched_after_they_are_decoded() -> None:
    secrets = Secrets(("s3cr3t-Token", "12345678", "4711"))
    text = r'{"a": ["\u0073\u0033cr3t-Token"], "s3cr3t\u002dToken": 1.2345678e7, "b": [4711, 47110, true, 812345678]}'
    value = json.loads(text)
    hidden = {"a": ["***"], "***": "***", "b": ["***", 47110, True, "***"]}
    assert secrets.hide_in(value, text) == secrets.hide_in(value) == hidden
    unchanged = json.loads('{"a": [1, "b"]}')
    assert Secrets(("s3cr3t-Token",)).hide_in(unchanged, '{"a": [1, "b"]}') is unchanged


ANY = st.text(st.sampled_from('aZ5é"\\\n/+&%;#u0 \u2028'), min_size=10, max_size=14).filter(
    lambda text: sum(map(text.count, "\\%&")) < 3  # escapes alone stand for few characters
)


@settings(max_examples=examples(150), deadline=None)
@given(ANY, ANY, ANY, st.sampled_from(["json", "json in json", "escaped twice", "url", "html", "base64"]))
def test_no_secret_is_left_in_any_text(secret: str, before: str, after: str, encoding: str) -> None:
    encoded = ENCODINGS[encoding](secret)
    assert encoded not in hide(f"{before} {encoded} {after}", (secret,))
    assert secret not in json.dumps(Secrets((secret,)).hide_in([f"{before} {secret} {after}"]), ensure_ascii=False)


@pytest.mark.parametrize(
    "text",
    [
        *("\\", "%25", "%73", "%", "\\u0073", "&amp;", "&", "&amp;#", "&#", "&#x0", "\\/", "\n", "\\n", "\\\\n"),
        *("s3cr3t-Token-", "czNjcjN0", "\\x", "\\u{0", "%u0073", "\u200b", "é", "s", "\0s", "%C3%A4", "\\ud83d"),
    ],
)
def test_hostile_text_takes_linear_time(text: str) -> None:
    secrets = Secrets(("s3cr3t-Token-ABCDEFGH", "pä§§wörd-\\ünï", "1234567890123"))
    times = []
    for size in (100_000, 800_000):
        began = time.thread_time()
        secrets.find(text * (size // len(text)))
        times.append(time.thread_time() - began)
    assert times[1] < 40 * times[0] + 2


# which values are secret


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("NODE_ENV", "production"), ("DB_HOST", "localhost"), ("PORT", "3000"), ("MODE", "exit"), ("WHO", "foo-bar")),
        *(("DB_HOST", "server01"), ("DB_HOST", "db-01.prod.internal:5432"), ("REGION", "us-east-1"), ("X", "1.2.3")),
        *(
            ("X", "/usr/local/bin"),
            ("X", "C:\\Users\\me"),
            ("X", "https://example.com/path?a=b"),
            ("X", "v1.2.3-beta.4"),
        ),
        *(("TZ", "Europe/Berlin"), ("LANG", "en_US.UTF-8"), ("DEBUG", "app:*"), ("X", "2024-01-01T00:00:00Z")),
        *(("NODE_OPTIONS", "--max-old-space-size=4096"), ("X", "true"), ("MAX_TOKENS", "4096"), ("AUTH_TYPE", "none")),
        *(("X", "myServerName"), ("MODEL", "gpt-4o-mini"), ("X", "größe"), ("X", "me@example.com"), ("X", "512mb")),
        *(("X", "postgres://localhost/db"), ("X", "192.168.1.10"), ("TOKEN_URL", "https://example.com/token")),
        *(
            ("X-Env", "staging"),
            ("Accept", "application/json"),
            ("X", "hello world"),
            ("X", "redis://localhost:6379/0"),
        ),
    ],
)
def test_words_numbers_hosts_and_paths_are_no_secrets(name: str, value: str) -> None:
    assert not counts_as_secret(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("TOKEN", "foo-bar"), ("DB_PASS", "exit"), ("apiKey", "word"), ("X-Auth", "word"), ("Cookie", "a=b")),
        *(
            ("X", "hunter2"),
            ("X", "s3cr3t"),
            ("X", "Passw0rd!"),
            ("X", "a8F3kQ2"),
            ("X", "correct horse battery staple"),
        ),
        *(("X", "550e8400-e29b-41d4-a716-446655440000"), ("X", "ghp_" + "a1B2" * 9), ("X", "AKIAIOSFODNN7EXAMPLE")),
        *(("X", "postgres://user:word@host/db"), ("X", "https://word@host/"), ("X", "Server=db;Password=word")),
        *(
            ("X", "https://example.com/?token=word"),
            ("X", "user:password"),
            ("X", "aGVsbG8gd29ybGQ"),
            ("X", "0a1b2c3d"),
        ),
        *(("X", "kJHdkWqZpTrX"), ("X", "4111111111111111"), ("X", "JBSWY3DPEHPK3PXP"), ("X", "Bearer word")),
        *(("NODE_ENV", "kJHdkWqZpTrX"), ("DB_HOST", "ghp_" + "a1B2" * 9), ("X", "qwertyuiopasdfghjklzx")),
    ],
)
def test_what_has_the_name_or_the_form_of_a_credential_is_secret(name: str, value: str) -> None:
    assert counts_as_secret(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("TOKEN_TIMEOUT", "30"), ("API_KEY_HEADER", "x-api-key"), ("COOKIE_DOMAIN", "example.com")),
        *(("AUTH_TOKEN_EXPIRY", "3600"), ("SECRET_PROVIDER", "vault"), ("PASSWORD_MIN_LENGTH", "12")),
    ],
)
def test_a_setting_about_credentials_is_none(name: str, value: str) -> None:
    assert not counts_as_secret(name, value)


def test_a_password_in_an_address_is_secret_without_the_address_too() -> None:
    spec = UpstreamSpec("s", command="x", env={"DATABASE_URL": "postgres://ada:open%20sesame@db/x"})
    assert spec.redact('password "open sesame" refused for ada') == 'password "***" refused for ada'
