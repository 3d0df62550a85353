"""Any configuration file gives settings or one kind of error, whose messages hold no value of a variable."""

# ruff: noqa: PT017 - either way is fine, nothing else is

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from codemode_mcp.base.errors import ConfigError
from codemode_mcp.base.settings import CodeModeSettings, ranges
from codemode_mcp.config import Config, load_config
from tests.faults.fuzz.test_fuzz_decoders import mutated, spoilt
from tests.faults.fuzz.texts import ANY_TEXT, FUZZ, JSON, within

SECRET = "hunter2-do-not-print"
ENVIRON = {"TOKEN": SECRET, "EMPTY": "", "LINES": f"{SECRET}\n\x00", "HOME": "/nowhere"}

VALID: dict[str, Any] = {
    "mcpServers": {
        "local": {
            "command": "server",
            "args": ["--token", "${TOKEN}", "${UNSET:-x}"],
            "env": {"A": "${env:TOKEN}", "B": "${EMPTY:-${TOKEN}"},
            "cwd": "${workspaceFolder}",
            "timeoutMs": 1000,
            "deny": ["delete_*"],
            "trustAnnotations": False,
            "override": {
                "tool": {
                    "name": "other",
                    "annotations": {"readOnlyHint": True},
                    "arguments": {"fixed": {"a": "${TOKEN}"}, "default": {"b": [1]}, "hidden": ["c"]},
                }
            },
        },
        "remote": {
            "url": "https://host/${TOKEN}",
            "headers": {"Authorization": "Bearer ${TOKEN}"},
            "type": "http",
            "disabled": False,
        },
    },
    "tools": {
        "codeMode": {"timeoutMs": 1e4, "languages": ["javascript"], "onOutputLimit": "fail"},
        "allow": ["mcp:*", "readOnly"],
        "deny": ["mcp:local:x"],
        "resultFormat": "plain",
    },
    "log": {"level": "debug", "file": "~/x.log"},
}

STRINGS = st.sampled_from(
    (
        *("${TOKEN}", "x${TOKEN}y", "${LINES}", "${TOKEN", "${}", "${UNSET}", "${input:a}", "${env:TOKEN:-}"),
        *("$${TOKEN}", "http://${TOKEN}:x/", "http://[${TOKEN}]/", "ftp://${TOKEN}", "mcp:${TOKEN}", "", "\0"),
        *("\ud800", "~${TOKEN}", "stdio", "http", "local", "codemode-mcp", "./${TOKEN}", "é", "http://a:99999/"),
        *("http://a/ b", "*", "?"),
    )
)
KEYS = st.sampled_from(
    (
        *("command", "args", "env", "url", "headers", "type", "timeoutMs", "cwd", "deny", "allow", "auth", "serverUrl"),
        *("mcpServers", "servers", "tools", "codeMode", "plugins", "store", "http", "audit", "log", "level", "file"),
        *("languages", "comand", "disabled", "alwaysAllow", "inputs", "contexts", "esbuild", "A:b", "=x"),
        *ranges(CodeModeSettings),
    )
)
CONFIGS = st.dictionaries(
    KEYS,
    st.recursive(
        STRINGS | JSON,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | STRINGS, inner, max_size=4),
        max_leaves=15,
    ),
    max_size=5,
)


def loaded(path: Path, content: bytes) -> Config | None:
    """Return the settings, or None with the refusal held against what it promises."""
    path.write_bytes(content)
    with within(10.0):
        try:
            return load_config(path, environ=ENVIRON)
        except ConfigError as refused:
            assert refused.code == "invalid_config"
            assert refused.problems
            for problem in refused.problems:
                assert SECRET not in problem
                assert "Traceback" not in problem
                assert "\n" not in problem
            return None


def text_of(value: Any) -> bytes:
    return json.dumps(without_programs(value)).encode()


def without_programs(value: Any) -> Any:
    """Return the same with nothing that the loader would start or read: `command` of a value, `envFile`."""
    if isinstance(value, dict):
        return {
            key: without_programs(item)
            for key, item in value.items()
            if key != "envFile" and not (key == "command" and isinstance(item, list))
        }
    return [without_programs(item) for item in value] if isinstance(value, list) else value


@FUZZ
@given(ANY_TEXT.map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(max_size=300))
@example(b"")
@example(b"\xef\xbb\xbf{}")
@example(b"[" * 100_000)
@example(b'{"a":' * 20_000)
@example(b"9" * 10_000)
@example(b'{"log": 1e999}')
@example(b'{"tools": {"codeMode": {"timeoutMs": NaN, "memoryLimitBytes": Infinity}}}')
@example(b'{"tools": {"codeMode": {"timeoutMs": ' + b"9" * 4000 + b"}}}")
def test_any_bytes_are_settings_or_refused(tmp_path: Path, data: bytes) -> None:
    loaded(tmp_path / "any.json", data)


@FUZZ
@given(spoilt(json.dumps(VALID)).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_a_spoilt_file_is_settings_or_refused(tmp_path: Path, data: bytes) -> None:
    loaded(tmp_path / "spoilt.json", data)


@FUZZ
@given(mutated(VALID).map(text_of) | CONFIGS.map(text_of) | JSON.map(text_of))
@example(json.dumps(VALID).encode())
def test_any_json_is_settings_or_refused(tmp_path: Path, data: bytes) -> None:
    config = loaded(tmp_path / "any.json", data)
    if config is None:
        return
    for note in config.notes:
        assert SECRET not in note
    assert SECRET not in repr(config)
    for key, clamp in ranges(CodeModeSettings).items():
        name = "".join(f"_{c.lower()}" if c.isupper() else c for c in key)
        value = getattr(config.tools.code_mode, name)
        if value is None:
            assert key == "maxSuspendedRunsPerOwner"  # which depends on the transport
            continue
        assert clamp.lowest <= value <= clamp.highest
    for upstream in config.upstreams:
        assert SECRET not in repr(upstream)


@pytest.mark.parametrize("where", ["args", "env", "cwd", "url", "headers", "envFile", "type", "allow", "description"])
@FUZZ
@given(value=STRINGS)
def test_no_message_about_a_server_holds_what_a_variable_holds(tmp_path: Path, where: str, value: str) -> None:
    entry: dict[str, Any] = {"url": "http://h/"} if where in ("headers", "url") else {"command": "c"}
    entry[where] = {"X": value} if where in ("env", "headers") else [value] if where in ("args", "allow") else value
    loaded(tmp_path / "one.json", json.dumps({"mcpServers": {"s": entry}}).encode())
