"""The plugin `redact`: what it replaces in results, and what it leaves alone."""

from __future__ import annotations

import json
import random
import string
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codemode_mcp.audit.redaction import FORMS
from codemode_mcp.catalog.plugins.bundled.redact import IN_URL, KINDS, NAMED, Redaction, redact_result, register

CORPUS = Path(__file__).parents[2] / ".." / "shared" / "corpus" / "toollists"
WORDS = string.ascii_letters + string.digits


def made(length: int, letters: str = WORDS, seed: int = 0) -> str:
    """Return random characters. Secrets are made here, since scanners of repositories would report written ones."""
    source = random.Random(f"{length} {letters} {seed}")
    return "".join(source.choice(letters) for _ in range(length))


HEX = "0123456789abcdef"
TOKENS = [
    ("private key", "-----BEGIN RSA PRIVATE " + "KEY-----\n" + made(64) + "\n-----END RSA PRIVATE KEY-----"),
    ("private key", "-----BEGIN PGP PRIVATE KEY " + f"BLOCK-----\n{made(64)}\n-----END PGP PRIVATE KEY BLOCK-----"),
    ("private key", "AGE-SECRET-" + "KEY-1" + made(58, string.ascii_uppercase + string.digits)),
    ("JSON web token", "ey" + "J" + made(30) + ".ey" + "J" + made(40) + "." + made(43)),
    *(("GitHub token", f"gh{kind}_" + made(36)) for kind in "opsur"),
    ("GitHub token", "github" + "_pat_" + made(22) + "_" + made(59)),
    *(("GitLab token", f"gl{kind}-" + made(20)) for kind in ("pat", "dt", "rt")),
    ("API key", "sk" + "-proj-" + made(48)),
    ("API key", "sk" + "-ant-api03-" + made(80)),
    *(("API key", f"{kind}_live_" + made(24)) for kind in ("sk", "rk")),
    ("webhook secret", "whsec" + "_" + made(32)),
    *(("Slack token", f"xox{kind}-" + made(11, string.digits) + "-" + made(24)) for kind in "bpa"),
    ("Slack token", "xapp" + "-1-A" + made(20)),
    ("Slack webhook", "hooks.slack" + ".com/services/T" + made(9) + "/B" + made(9) + "/" + made(24)),
    ("npm token", "npm" + "_" + made(36)),
    ("PyPI token", "pypi" + "-AgEI" + made(60)),
    ("Docker token", "dckr" + "_pat_" + made(27)),
    ("Hugging Face token", "hf" + "_" + made(34)),
    ("API key", "gsk" + "_" + made(52)),
    ("API key", "xai" + "-" + made(80)),
    ("Google token", "ya29" + "." + made(60)),
    ("Google token", "GOCSPX" + "-" + made(28)),
    ("Google API key", "AIza" + made(35)),
    *(("AWS access key", kind + made(16, string.ascii_uppercase + string.digits)) for kind in ("AKIA", "ASIA")),
    ("Azure key", "Account" + "Key=" + made(86) + "=="),
    ("Azure key", "SharedAccess" + "Key=" + made(43) + "="),
    ("DigitalOcean token", "dop" + "_v1_" + made(64, HEX)),
    ("SendGrid key", "SG" + "." + made(22) + "." + made(43)),
    ("Telegram token", made(9, "123456789") + ":A" + "A" + made(33)),
    ("Shopify token", "shpat" + "_" + made(32, HEX)),
    ("Square token", "sq0" + "atp-" + made(22)),
    ("Atlassian token", "ATATT3" + made(180)),
    *(("API key", kind + made(40)) for kind in ("lin_api_", "ntn_", "figd_", "glsa_", "NRAK-")),
    ("API key", "da" + "pi" + made(32, HEX)),
    ("Vault token", "hvs" + "." + made(24)),
    ("Terraform token", made(14) + ".atlas" + "v1." + made(67)),
]


@pytest.mark.parametrize(("kind", "token"), TOKENS, ids=[f"{kind} {n}" for n, (kind, _) in enumerate(TOKENS)])
@pytest.mark.parametrize(
    "around", ["{}", "the key is {}.", '{{"value": "{}"}}', "KEY={}\nOTHER=1", "https://h/?k={}&x=1"]
)
def test_a_token_of_a_known_form_is_replaced_wherever_it_stands(kind: str, token: str, around: str) -> None:
    redacted = Redaction().text(around.format(token))
    assert token not in redacted
    assert token[len(token) // 2 :] not in redacted
    assert "[redacted: " in redacted


def test_each_kind_of_token_is_tested() -> None:
    assert {kind for kind, _ in TOKENS} == {form.kind for form in FORMS}


NAMES = ("password", "DB_PASSWORD", "client_secret", "apiKey", "api-key", "accessToken", "AWS_SECRET_ACCESS_KEY", "pwd")
VALUES = ("hunter2-hunter2", made(24), "Tr0ub4dor&3", "9f8e7d6c5b4a")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", VALUES)
def test_a_value_beside_a_secret_name_is_replaced(name: str, value: str) -> None:
    redaction = Redaction()
    assert redaction.value({"rows": [{name: value, "id": 1}]}) == {"rows": [{name: f"[redacted: {NAMED}]", "id": 1}]}
    quoted = f'{{"{name}": "{value}"}}'
    for text in (f"{name}={value}", f"{name}: {value}", quoted, json.dumps(json.dumps({name: value}))):
        assert value not in redaction.text(text), text
        assert name in redaction.text(text)


def test_credentials_in_a_url_and_in_a_header_are_replaced() -> None:
    redaction = Redaction()
    assert redaction.text("postgres://ann:s3cr3t@db/x") == f"postgres://ann:[redacted: {IN_URL}]@db/x"
    assert "Zm9v" not in redaction.text("Authorization: Basic Zm9vOmJhcjEyMw==")


BENIGN = [
    "nextPageToken: CAEQAA, total_tokens: 1204, max_tokens=4096",
    "The commit 9b2d1f7c0e6a4d3b8f5e2a1c7d9e0b3f4a6c8d2e fixes the password field.",
    "password: string; apiKey?: string; secret: required",
    "Set API_KEY=<your key> or apiKey: ${API_KEY} in the environment.",
    "const token = process.env.GITHUB_TOKEN; const secret = config.get('secret');",
    "password = getpass.getpass()",
    "id 550e8400-e29b-41d4-a716-446655440000, sha256 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "Authorization: Bearer <token>",
    "postgresql://user:password@localhost:5432/db",
    "mailto:ann@example.com https://example.com/@ann/post?x=1",
    "the key: value pairs; keyboard = qwerty; monkey: banana; primary_key=True",
    "cookie: theme; passage: Psalm-23; compass: N45E",
    "sk-learn, sk_buff, pk_fields, npm_config_registry, hf_hub, glpat, AKIAs, eyJust",
    "password: ********, secret=xxxx-xxxx, api_key: ...",
    "secretary: Ann-Marie O'Neil 2; password_reset_url: https://example.com/reset?id=1",
]


@pytest.mark.parametrize("text", BENIGN)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert Redaction().text(text) == text
    value = {"message": text, "nextPageToken": "CAEQAA==", "count": 3}
    assert Redaction().value(value) == value


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the recorded tool lists are not beside this clone")
def test_nothing_is_replaced_in_recorded_tool_lists() -> None:
    redaction, count = Redaction(), 0
    for path in sorted(CORPUS.glob("*.json")):
        listing = json.loads(path.read_text("utf-8"))
        assert redaction.value(listing) is listing, path.name
        count += 1
    assert count >= 20


def test_binary_contents_stay_as_they_are() -> None:
    blob = "AKIA" + made(16, string.ascii_uppercase)
    result = {
        "content": [
            {"type": "image", "data": blob, "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "f://x", "blob": blob, "text": f"key {blob}"}},
            {"type": "text", "text": f"key {blob}"},
        ],
        "structuredContent": {"key": blob},
        "isError": False,
    }
    image, resource, text = redact_result(Redaction(), result)["content"]
    assert image["data"] == resource["resource"]["blob"] == blob
    assert blob not in resource["resource"]["text"] + text["text"]
    assert blob not in json.dumps(redact_result(Redaction(), result)["structuredContent"])


def test_excepted_kinds_stay_as_they_are() -> None:
    token = "npm" + "_" + made(36)
    assert Redaction(frozenset({"npm token"})).text(token) == token
    assert Redaction(frozenset({"PyPI token"})).text(token) != token


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_redaction_keeps_the_shape_of_a_value_and_changes_nothing_twice(value: Any) -> None:
    redaction = Redaction()
    once = redaction.value(value)
    assert redaction.value(once) == once
    assert _shape(once) == _shape(value)


def _shape(value: Any) -> Any:
    match value:
        case dict():
            return {key: _shape(each) for key, each in value.items()}
        case list():
            return [_shape(each) for each in value]
    return type(value)


PARTS = (
    "-----BEGIN PRIVATE KEY-----",
    "eyJ",
    "password=",
    "x://a:",
    "secret: ",
    "sk-",
    "AccountKey=",
    "_v1_do",
    ":AA1",
)


@pytest.mark.parametrize("part", [*PARTS, "a" * 50])
def test_time_grows_with_the_length_of_a_hostile_text(part: str) -> None:
    redaction = Redaction()

    def seconds(size: int) -> float:
        text = part * (size // len(part))
        took = []
        for _ in range(3):
            began = time.process_time()
            redaction.text(text)
            took.append(time.process_time() - began)
        return min(took)

    # Quadratic time would be 64 times as long.
    assert seconds(400_000) < 24 * max(seconds(50_000), 1e-3)


class _Api:
    name = "redact"

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.tools: list[str] = []

    def tool_result_middleware(self, middleware: Any, *, tools: Any = ()) -> None:
        self.tools += tools


def test_a_wrong_configuration_is_refused() -> None:
    for config, said in (
        ({"kinds": []}, "unknown key 'kinds'"),
        ({"except": "npm token"}, "must be an array"),
        ({"except": ["npm"]}, "unknown kind 'npm'; allowed: API key"),
    ):
        with pytest.raises(ValueError, match=said):
            register(_Api(config))  # type: ignore[arg-type]
    api = _Api({"except": sorted(KINDS)})
    register(api)  # type: ignore[arg-type]
    assert api.tools == ["*"]
