"""The one search for secrets: every encoding in which a server repeats a secret, and which values are secret at all."""

import base64
import html
import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codemode_mcp.audit.events import MAX_NAME, Event, name_to_record
from codemode_mcp.audit.redaction import Inputs, Redactor
from codemode_mcp.audit.trajectory import document_of
from tests.properties import examples
from upstream_clients.error_mapping import call_error, start_failure
from upstream_clients.jsonrpc import JsonRpcError
from upstream_clients.redaction import MAX_SECRET, Secrets, counts_as_secret, cut, hide, redacted_start
from upstream_clients.server_log import MAX_LINE, LogListeners, ServerLog, StderrTail
from upstream_clients.server_log import MAX_LOG_LINE as MAX_LOGGED
from upstream_clients.server_log import MAX_NAME as MAX_LOGGER
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


# Texts that are cut: no part of a secret that lies across the cut is left, wherever the text is shown.


SECRET = "hunter2-and  some (more)"
PIECES = [SECRET[:length] for length in range(4, len(SECRET) + 1)]
SPEC = UpstreamSpec("s", command="server", env={"KEY": SECRET})


def across(limit: int) -> Iterator[str]:
    """Yield texts with the secret at each position across a limit."""
    for before in range(limit - len(SECRET) + 1, limit):
        words = ("word " * limit)[: before - 1] + " "
        yield f"{words}{SECRET} and the rest of the text, which is cut off"


def leaks(text: str) -> bool:
    return any(piece in text for piece in PIECES)


@pytest.mark.parametrize("limit", [40, 500])
def test_a_cut_leaves_no_part_of_a_known_secret(limit: int) -> None:
    for text in across(limit):
        for found in (cut(text, limit, (SECRET,)), redacted_start(text, limit, SPEC.redact)):
            assert not leaks(found)
            assert limit - 30 < len(found) <= limit


def test_a_cut_leaves_no_part_of_an_unknown_token_and_enough_of_any_text() -> None:
    token = "ghp_" + "a1B2" * 9
    for before in range(62, 100):
        assert "ghp" not in cut(f"{'x ' * (before // 2)}{token} rest", 100)
        assert "ghp" not in cut(f"{'x;' * (before // 2)}{token}", 100)
    assert cut("x" * 200, 100) == "x" * 100
    assert cut("\u4e2d" * 200, 100) == "\u4e2d" * 100
    assert cut("a short one", 100) == "a short one"


def test_a_secret_behind_many_other_secrets_is_not_brought_into_sight() -> None:
    limit = 100
    text = f"{SECRET} " * ((limit + MAX_SECRET) // (len(SECRET) + 1) + 3)
    assert not leaks(redacted_start(text, limit, SPEC.redact))


def test_no_part_of_a_secret_is_in_stderr_even_if_a_line_has_no_end() -> None:
    texts = [*across(MAX_LINE), "a" * (MAX_SECRET + MAX_LINE) + f" {SECRET} " * 30_000, "the end"]
    lines: list[str] = []
    with StderrTail("s", SPEC.redact, lines.append) as tail:
        program = "import sys; sys.stderr.write(sys.stdin.read())"
        subprocess.run([sys.executable, "-c", program], input="\n".join(texts), text=True, stderr=tail.file, check=True)
    assert lines[-1] == "the end"
    assert len(lines) == len(texts)
    assert not any(map(leaks, lines))


def test_no_part_of_a_secret_is_in_the_log_of_a_server() -> None:
    log = ServerLog(SPEC.redact)
    for text in (*across(MAX_LOGGED), f"{' ' * (64 * MAX_LOGGED - 10)}{SECRET}"):
        log.add_message({"data": text})
    assert log.count > 20
    assert not any(leaks(line.text) for line in log.after(0))


def test_no_part_of_a_secret_is_in_the_name_of_a_logger() -> None:
    listeners, seen = LogListeners(SPEC.redact), []
    listeners.add(seen.append, "debug", None, None)
    for text in across(MAX_LOGGER):
        listeners.report({"logger": text, "data": "x"}, None, lambda _: True)
    assert len(seen) > 20
    assert not any(leaks(str(message["logger"])) for message in seen)


@pytest.mark.parametrize(
    "message",
    [
        lambda text: call_error(SPEC, "tools/call", JsonRpcError(-32603, text)).message,
        lambda text: start_failure(SPEC, JsonRpcError(-32603, text)),
        lambda text: start_failure(SPEC, RuntimeError(text)),
    ],
)
def test_no_part_of_a_secret_is_left_at_the_end_of_an_error(message: Callable[[str], str]) -> None:
    redact = partial(hide, secrets=(SECRET,))
    assert not any(leaks(redact(message(text))) for text in across(500))


def test_no_part_of_a_secret_is_in_the_name_of_a_recorded_tool() -> None:
    redact = Redactor()
    redact.know([SPEC])
    for text in across(MAX_NAME):
        for event in (
            Event("call_started", 0.0, "1", fields={"tool": name_to_record(text)}),
            Event("item_held", 0.0, name_to_record(text)),
            Event("result_read", 0.0, "1", fields={"uri": name_to_record(text)}),
        ):
            document = document_of(event, Inputs(include=False), redact)
            assert not leaks(str(document))
            assert len(document.get("tool") or document.get("uri") or document["id"]) <= MAX_NAME
