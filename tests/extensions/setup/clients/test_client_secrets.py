"""Tests of literal secrets in server entries: they are found, hidden when shown, and replaced by variables."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codemode_mcp.config.literals import secrets_of
from codemode_mcp.extensions.setup.mcp_clients.dialects import (
    VariableNames,
    variable_name,
    with_variables,
    without_secrets,
)

TOKEN = "ghp_" + "Ab3dE5fG7hI9jK1lM3nO5p"
RANDOM = "aB3dE5fG7hI9jK1lM3nO5pQ7"


def env(**variables: str) -> dict[str, Any]:
    return {"command": "x", "env": variables}


def run_with(*args: str, command: str = "x") -> dict[str, Any]:
    return {"command": command, "args": list(args)}


def remote(url: str = "https://x/mcp", **more: Any) -> dict[str, Any]:
    return {"url": url, **more}


LOGIN = {"type": "oauth", "clientId": "me", "clientSecret": "hunter2"}
HOLDERS: dict[str, tuple[dict[str, Any], str, str]] = {
    "a variable by name": (env(GITHUB_TOKEN="hunter2"), "hunter2", "GITHUB_TOKEN"),
    "a variable whose name says too little": (env(TOKEN="hunter2"), "hunter2", "MY_TOKEN"),
    "a variable by form": (
        env(DATABASE_URL="postgres://me:hunter2@db/x"),
        "postgres://me:hunter2@db/x",
        "DATABASE_URL",
    ),
    "a bearer": (remote(headers={"Authorization": "Bearer hunter2"}), "hunter2", "MY_TOKEN"),
    "a header": (remote(headers={"X-Api-Key": "hunter2"}), "hunter2", "MY_API_KEY"),
    "an option and its value": (run_with("--api-key", "hunter2", "--port", "80"), "hunter2", "MY_API_KEY"),
    "an option with its value": (run_with("--token=hunter2"), "hunter2", "MY_TOKEN"),
    "a variable of docker": (
        run_with("run", "-e", "GITHUB_PAT=hunter2", "image", command="docker"),
        "hunter2",
        "GITHUB_PAT",
    ),
    "a header among arguments": (
        run_with("mcp-remote", "https://x", "--header", "Authorization: Bearer hunter2", command="npx"),
        "hunter2",
        "MY_TOKEN",
    ),
    "credentials in a URL": (
        run_with("server-postgres", "postgresql://me:hunter2@localhost/db", command="npx"),
        "hunter2",
        "MY_PASSWORD",
    ),
    "JSON among arguments": (run_with("--config", '{"braveApiKey":"hunter2"}'), "hunter2", "MY_BRAVE_API_KEY"),
    "a command line in one argument": (
        run_with("-c", "exec server --password hunter2 --verbose", command="sh"),
        "hunter2",
        "MY_PASSWORD",
    ),
    "the query of a URL": (remote("https://x/mcp?region=eu&api_key=hunter2"), "hunter2", "MY_API_KEY"),
    "the path of a URL": (remote(f"https://x/mcp/{RANDOM}/sse"), RANDOM, "MY_KEY"),
    "a token anywhere": (run_with(TOKEN), TOKEN, "MY_KEY"),
    "the secret of a login": (remote(auth=LOGIN), "hunter2", "MY_CLIENT_SECRET"),
}
"""Entries with a secret, the text that is replaced, and the variable in its place."""


@pytest.mark.parametrize("case", HOLDERS)
def test_a_secret_is_hidden_and_becomes_a_variable(case: str) -> None:
    entry, secret, variable = HOLDERS[case]
    before = json.dumps(entry)
    changed, names = with_variables(entry, "my", VariableNames())
    assert changed == json.loads(before.replace(secret, f"${{{variable}}}"))
    assert [name for name, _ in names] == [variable]
    assert secrets_of(changed) == []
    shown = json.dumps(without_secrets(entry))
    assert not any(each in shown for each in ("hunter2", TOKEN, RANDOM))
    assert "***" in shown
    assert json.dumps(entry) == before


def test_the_default_of_a_reference_is_left_out() -> None:
    entry = env(TOKEN="${GH:-hunter2}")
    assert with_variables(entry, "my", VariableNames()) == (env(TOKEN="${GH}"), ())
    assert json.dumps(without_secrets(entry)).count("***") == 1
    assert "hunter2" not in json.dumps(without_secrets(entry))


PLAIN: list[dict[str, Any]] = [
    {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem@2025.11.25", "/home/me/2025-01-report"]},
    {"command": "uvx", "args": ["--from", "git+https://github.com/o/r@0123456789abcdef0123456789abcdef01234567", "s"]},
    {"command": "docker", "args": ["run", "-i", "--rm", "-e", "GITHUB_TOKEN", "image@sha256:" + "0a1b2c3d" * 8]},
    {
        "command": "x",
        "env": {"LOG_LEVEL": "debug", "MAX_TOKENS": "4096", "TOKEN_FILE": "/run/token", "USE_AUTH": "true"},
    },
    {"command": "x", "env": {"GITHUB_TOKEN": "${GITHUB_TOKEN}", "A_KEY": "${env:A_KEY}", "B_KEY": "${B_KEY:-}"}},
    {"url": "https://mcp.example.com/v1/mcp?region=eu", "headers": {"Authorization": "Bearer ${TOKEN}"}},
    {"openapi": "a.json", "auth": {"type": "oauth", "clientId": "me", "tokenUrl": "https://a.example/token"}},
    {"command": "ssh", "args": ["git@github.com", "--port=22", "ssh://git@github.com/x"]},
]


@pytest.mark.parametrize("entry", [pytest.param(each, id=str(number)) for number, each in enumerate(PLAIN)])
def test_values_that_are_not_secret_are_kept(entry: dict[str, Any]) -> None:
    assert secrets_of(entry) == []
    assert with_variables(entry, "my", VariableNames()) == (entry, ())


def test_values_of_env_and_headers_are_hidden_whether_they_look_secret_or_not() -> None:
    entry = {
        "url": "https://x",
        "headers": {"X-Team": "blue", "Authorization": "Basic ${B:-bGVhaw}"},
        "env": {"A": "b"},
    }
    shown = without_secrets(entry)
    assert shown["headers"] == {"X-Team": "***", "Authorization": "Basic ${B:-***}"}
    assert shown["env"] == {"A": "***"}


def test_equal_values_share_a_variable_and_different_ones_do_not() -> None:
    names = VariableNames()
    entries = [{"command": "x", "env": {"GITHUB_TOKEN": value}} for value in ("one", "one", "two", "three")]
    found = [with_variables(each, server, names)[1][0][0] for each, server in zip(entries, "abbb", strict=True)]
    assert found == ["GITHUB_TOKEN", "GITHUB_TOKEN", "B_GITHUB_TOKEN", "B_GITHUB_TOKEN_2"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        pytest.param("api-key", "API_KEY", id="dashes"),
        pytest.param("braveApiKey", "BRAVE_API_KEY", id="camel"),
        pytest.param("GITHUB_TOKEN", "GITHUB_TOKEN", id="already"),
        pytest.param("7zip", "_7_ZIP", id="digit"),
        pytest.param("日本", "VALUE", id="no letters"),
    ],
)
def test_names_of_variables_are_in_upper_case(text: str, name: str) -> None:
    assert variable_name(text) == name


TEXTS = st.text(max_size=40) | st.sampled_from(
    ("${A", "${A:-b}", "--token", "x=${B}", "https://a:b@c/?d=e", "Bearer x")
)
ENTRIES = st.fixed_dictionaries(
    {"command": TEXTS},
    optional={
        "args": st.lists(TEXTS, max_size=4),
        "env": st.dictionaries(TEXTS | st.sampled_from(("TOKEN", "A_KEY")), TEXTS, max_size=3),
        "headers": st.dictionaries(TEXTS | st.sampled_from(("Authorization", "Cookie")), TEXTS, max_size=3),
        "url": TEXTS,
    },
)


@given(entry=ENTRIES, secret=st.from_regex(r"[a-z]{9,12}", fullmatch=True))
def test_no_value_under_a_secret_name_is_ever_shown_or_left(entry: dict[str, Any], secret: str) -> None:
    entry = {**entry, "env": {**entry.get("env", {}), "MY_PASSWORD": secret}}
    marked = json.dumps({**entry, "env": {**entry["env"], "MY_PASSWORD": ""}})
    if secret in marked:
        return
    assert secret not in json.dumps(without_secrets(entry))
    changed, _ = with_variables(entry, "server", VariableNames())
    assert secret not in json.dumps(changed)


@pytest.mark.parametrize(
    "piece", ["y", "a1", "://", "${:-", "--token ", "A=", "Bearer ", '"', "${a:-b}", "eyJ", " ", "-"]
)
def test_long_texts_are_searched_fast(piece: str) -> None:
    began = time.process_time()
    entry = {"command": "x", "args": [piece * (200_000 // len(piece))]}
    without_secrets(entry)
    assert time.process_time() - began < 5
