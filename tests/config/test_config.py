"""The configuration file: what is found, what it means, and what each mistake is told."""

import json
import os
import sys
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codemode_mcp.base.errors import ConfigError
from codemode_mcp.base.settings import (
    ApprovalSettings,
    AuditSettings,
    CodeModeSettings,
    DuplicateSettings,
    LogSettings,
    ToolSettings,
    key_of,
    ranges,
)
from codemode_mcp.config import FILE_NAME, PATH_VARIABLE, Config, Reading, find_config, load_config
from codemode_mcp.config.nodes import ANNOTATION_TESTS
from codemode_mcp.config.source import file_states, parse
from codemode_mcp.rules.policy.rule_patterns import Effects, matches

RANGES = ranges(CodeModeSettings)

SECRET = "hunter2-do-not-print"


class Folder:
    """A folder with one configuration file; `path` is the file."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / FILE_NAME

    def load(self, content: object, /, **environ: str) -> Config:
        """`content` is JSON, or the text or bytes of the file."""
        if isinstance(content, bytes):
            self.path.write_bytes(content)
        else:
            text = content if isinstance(content, str) else json.dumps(content)
            self.path.write_text(text, encoding="utf-8", errors="surrogatepass")
        return load_config(self.path, environ=environ)

    def problems(self, content: object, /, **environ: str) -> tuple[str, ...]:
        with pytest.raises(ConfigError) as caught:
            self.load(content, **environ)
        assert caught.value.code == "invalid_config"
        assert all("\n" not in problem and "Traceback" not in problem for problem in caught.value.problems)
        return caught.value.problems

    def server(self, entry: object, /, **environ: str) -> Any:
        """Return the one upstream of a file with this entry."""
        (upstream,) = self.load({"mcpServers": {"s": entry}}, **environ).upstreams
        return upstream

    def server_problems(self, entry: object, /, **environ: str) -> tuple[str, ...]:
        return self.problems({"mcpServers": {"s": entry}}, **environ)

    def why_disabled(self, entry: object, /, **environ: str) -> str:
        """Return why the server with this entry is not started. The other server of the file is not affected."""
        config = self.load({"mcpServers": {"s": entry, "other": {"command": "y"}}}, **environ)
        broken, other = config.upstreams
        assert (other.command, other.unusable) == ("y", None)
        assert broken.unusable is not None
        beginning = "server 's' is disabled: "
        assert broken.unusable.startswith(beginning)
        return str(broken.unusable.removeprefix(beginning))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


# --- Which file ---


def find(explicit: str | None, root: Path, **environ: str) -> Path | None:
    return find_config(explicit, environ=environ, cwd=root / "cwd", user_config_dir=root / "user", admit=lambda _: None)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_in_the_working_directory_is_only_used_when_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "cwd").mkdir()
    path = tmp_path / "cwd" / FILE_NAME
    path.write_text("{}")
    os.chown(path, 12345, 12345)
    with pytest.raises(ConfigError, match="belongs to another user") as raised:
        find(None, tmp_path)
    assert f"pass --config {path}" in raised.value.problems[0]
    assert find(str(path), tmp_path) == path
    assert find(None, tmp_path, **{PATH_VARIABLE: str(path)}) == path

    path.rename(tmp_path / "theirs.json")
    path.symlink_to(tmp_path / "theirs.json")
    with pytest.raises(ConfigError, match="belongs to another user"):
        find(None, tmp_path)
    os.chown(tmp_path / "theirs.json", 0, 0)
    os.chown(path, 12345, 12345, follow_symlinks=False)
    with pytest.raises(ConfigError, match="belongs to another user"):
        find(None, tmp_path)


def test_the_file_is_looked_for_in_the_documented_order(tmp_path: Path) -> None:
    for name in ("cwd", "user"):
        (tmp_path / name).mkdir()
    explicit, from_environment = tmp_path / "a.json", tmp_path / "b.json"
    in_cwd, in_user_dir = tmp_path / "cwd" / FILE_NAME, tmp_path / "user" / FILE_NAME
    for path in (explicit, from_environment, in_cwd, in_user_dir):
        path.write_text("{}")
    variable = {PATH_VARIABLE: str(from_environment)}

    assert find("../a.json", tmp_path, **variable) == explicit
    assert find(None, tmp_path, **variable) == from_environment
    assert find(None, tmp_path, **{PATH_VARIABLE: ""}) == in_cwd
    in_cwd.unlink()
    assert find(None, tmp_path) == in_user_dir
    in_user_dir.unlink()
    assert find(None, tmp_path) is None


@pytest.mark.parametrize(
    ("explicit", "environ", "source"),
    [("gone.json", {}, "--config"), (None, {PATH_VARIABLE: "gone.json"}, "$CODEMODE_MCP_CONFIG")],
)
def test_a_file_that_was_asked_for_and_is_not_there_is_a_problem_that_names_who_asked(
    tmp_path: Path, explicit: str | None, environ: dict[str, str], source: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        find(explicit, tmp_path, **environ)
    (problem,) = caught.value.problems
    assert problem.startswith(source)
    assert "gone.json does not exist" in problem


@pytest.mark.parametrize("content", [None, "{}", '{"mcpServers": {}}', '{"log": null}', "\ufeff{}", "// no\n{\n}\n"])
def test_without_a_file_or_with_nothing_in_it_everything_is_at_its_default(folder: Folder, content: str | None) -> None:
    config = load_config(None, environ={}) if content is None else folder.load(content)
    assert config.path == (None if content is None else folder.path)
    assert (config.upstreams, config.notes, config.disabled) == ((), (), ())
    assert config.tools == ToolSettings()
    assert config.log == LogSettings()


# --- From bytes to values ---


def test_comments_and_trailing_commas_are_allowed(folder: Folder) -> None:
    config = folder.load('{ // line\n "log": { "level": "debug", /* block */ }, }')
    assert config.log.level == "debug"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b" \n\t", "is empty"),
        (b"[]", "contains an array; expected an object"),
        (b'"text"', "contains a string; expected an object"),
        (b"null", "contains null; expected an object"),
        (b"\xff\xfe{\x00}\x00", "is not UTF-8 text (byte 0)"),
        (b'{"a": "\xe9"}', "is not UTF-8 text (byte 7)"),
        (b"\x7fELF\0\0\0", "is not text"),
        (b'{"log": }', 'line 1, column 9: unexpected "}"'),
        (b'{"log": {}\n  "http": {}}', 'line 2, column 3: unexpected "\\""'),
        (b'{\n  // note\n  "log": {', "line 3, column 11: unexpected end of input"),
        (b'{"log": {"level": "de\nbug"}}', 'line 1, column 22: unexpected "\\n"'),
        (b"{} {}", 'line 1, column 4: unexpected "{"'),
        (b"[" * 100_000, "is nested too deeply"),
        (b'{"log": ' + b"9" * 5000 + b"}", "a number in it is too long"),
        (b"{log: " + b"9" * 5000 + b"}", "a number in it is too long"),
        (b'{"log": {}}' + b" " * 10 * 1024 * 1024, "is larger than 256 KiB"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_a_file_that_is_no_json_object_gives_one_message_with_its_name(
    folder: Folder, content: bytes, message: str
) -> None:
    (problem,) = folder.problems(content)
    assert problem.startswith(str(folder.path))
    assert message in problem


def test_a_file_that_cannot_be_read_gives_one_message(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "gone.json", tmp_path / "a\0b"):
        with pytest.raises(ConfigError) as caught:
            load_config(path, environ={})
        (problem,) = caught.value.problems
        assert "cannot be read" in problem


def test_a_key_given_twice_is_a_problem(folder: Folder) -> None:
    content = '{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y", "command": "z"}}}'
    assert folder.problems(content) == (
        "mcpServers.a: this key is given more than once; keep one",
        "mcpServers.a.command: this key is given more than once; keep one",
    )


# --- Problems ---


def test_ten_mistakes_give_ten_messages(folder: Folder) -> None:
    problems = folder.problems(
        {
            "mcpServers": {
                "github": {"command": "github-mcp-server", "args": ["stdio", 5], "env": {"TOKEN": "${GITHUB_TOKEN}"}},
                "docs": {"comand": "docs-server"},
                "both": {"command": "x", "url": "https://x.example"},
                "web": {"type": "htttp", "url": "https://x.example"},
                "old": {"url": "ftp://x.example"},
            },
            "tools": {"codeMode": {"timeoutMS": 5000, "runtime": "v8", "memoryLimitBytes": "64M"}},
            "store": {"kind": "sqllite"},
        }
    )
    assert [problem.split(": ")[0] for problem in problems] == [
        *("mcpServers.github.args[1]", "mcpServers.github.env.TOKEN", "mcpServers.docs.comand", "mcpServers.both"),
        *("mcpServers.web.type", "mcpServers.old.url", "tools.codeMode.timeoutMS", "tools.codeMode.runtime"),
        *("tools.codeMode.memoryLimitBytes", "store.kind"),
    ]


@pytest.mark.parametrize(
    "pattern", ["mcp:github:*", "mcp:*", "*", "*delete*", "plugin:a:b", "m?p:x:y", "destructive", "readOnly"]
)
def test_a_pattern_that_can_match_is_accepted(folder: Folder, pattern: str) -> None:
    assert folder.load({"tools": {"deny": [pattern]}}).tools.policy.deny == (pattern,)


def test_policy_knows_every_annotation_test_that_is_accepted() -> None:
    everything = Effects(read_only=True, destructive=True, idempotent=True, open_world=True)
    assert all(matches(word, "mcp:s:t", everything) for word in ANNOTATION_TESTS)


@pytest.mark.parametrize("pattern", ["", "github", "github:*", "delete_*", "mcp:github", "destructve", "readonly"])
def test_a_pattern_that_can_match_no_tool_is_refused_as_it_would_fail_open_in_deny(
    folder: Folder, pattern: str
) -> None:
    (problem,) = folder.problems({"tools": {"deny": [pattern]}})
    assert problem.startswith("tools.deny[0]: ")
    assert "can match no tool" in problem


def test_sections_that_ask_for_the_default_are_as_if_they_were_not_there(folder: Folder) -> None:
    config = folder.load(
        {
            "plugins": {},
            "store": {"kind": "memory"},
            "http": {"auth": {}},
            "audit": {"trajectory": None, "includeInputs": False},
            "tools": {"contexts": {}, "codeMode": {"enabled": True, "runtime": "quickjs-wasi", "mode": "only"}},
        }
    )
    assert config.tools == ToolSettings()
    assert folder.load({"store": None, "http": None, "audit": {}, "tools": {"codeMode": True}}).notes == ()


# --- tools, log ---


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, DuplicateSettings()),
        ({}, DuplicateSettings()),
        ({"max": 1, "action": "deny"}, DuplicateSettings(1, "deny")),
        ({"action": "off"}, DuplicateSettings(3, "off")),
        ({"max": 0}, DuplicateSettings(1)),
        ({"max": 10**9}, DuplicateSettings(10_000)),
        ({"windowSeconds": 0}, DuplicateSettings(window_seconds=0)),
        ({"windowSeconds": 10**9}, DuplicateSettings(window_seconds=86_400)),
    ],
)
def test_the_fate_of_repeated_calls_is_read(folder: Folder, given: object, expected: DuplicateSettings) -> None:
    config = folder.load({"tools": {"duplicates": given}})
    assert config.tools.duplicates == expected
    clamped = [
        f"tools.duplicates.{key}: "
        for key, value in (given.items() if isinstance(given, dict) else ())
        if (key, value) == ("max", 0) or value == 10**9
    ]
    assert [note[: len(begin)] for note, begin in zip(config.notes, clamped, strict=True)] == clamped


def test_every_field_of_code_mode_is_read(folder: Folder) -> None:
    given: dict[str, object] = {key: min(clamp.highest, clamp.lowest + 1) for key, clamp in RANGES.items()}
    given |= {"timeoutMs": 900, "languages": ("typescript",), "onOutputLimit": "fail", "telemetry": "off"}
    given |= {"savePrograms": False, "check": "note", "enabled": True, "runtime": "quickjs-wasi", "mode": "only"}
    config = folder.load({"tools": {"codeMode": given}})
    read = config.tools.code_mode
    assert {key_of(each): getattr(read, each.name) for each in fields(read)} == given
    assert config.notes == ()


@pytest.mark.parametrize("key", RANGES)
def test_a_number_out_of_range_is_moved_to_the_nearest_end_and_noted(folder: Folder, key: str) -> None:
    for value, expected in ((-(10**40), RANGES[key].lowest), (10**40, RANGES[key].highest)):
        config = folder.load({"tools": {"codeMode": {"maxRequestMs": 600_000, key: value}}})
        assert expected in asdict(config.tools.code_mode).values()
        assert any(note.startswith(f"tools.codeMode.{key}: ") and str(expected) in note for note in config.notes)


def test_limits_that_disagree_are_cut_and_noted(folder: Folder) -> None:
    config = folder.load({"tools": {"codeMode": {"timeoutMs": 60_000, "maxSearchLimit": 5}}})
    assert config.tools.code_mode.timeout_ms == 45_000
    assert config.tools.code_mode.search_default_limit == 5
    assert config.notes == (
        "tools.codeMode: timeoutMs is larger than maxRequestMs; 45000 is used",
        "tools.codeMode: searchDefaultLimit is larger than maxSearchLimit; 5 is used",
    )


def test_an_integer_may_be_written_with_an_exponent(folder: Folder) -> None:
    settings = folder.load('{"tools": {"codeMode": {"timeoutMs": 2e3}}}').tools.code_mode
    assert settings == CodeModeSettings(timeout_ms=2000)


def test_paths_start_in_the_folder_of_the_file(folder: Folder) -> None:
    config = folder.load({"tools": {"esbuild": "bin/esbuild"}, "log": {"file": "a.log"}})
    assert config.tools.esbuild == str(folder.root / "bin" / "esbuild")
    assert config.log.file == str(folder.root / "a.log")


def test_rules_of_tools_and_of_server_entries_become_one_policy(folder: Folder) -> None:
    policy = folder.load(
        {
            "mcpServers": {
                "a": {"command": "x", "allow": ["get_*", "list"], "deny": ["get_secret"]},
                "b": {"command": "x", "allow": [], "trustAnnotations": False},
                "c": {"command": "x", "trustAnnotations": True},
            },
            "tools": {"allow": [], "deny": ["openWorld"], "ask": ["destructive"], "approved": ["mcp:a:list"]},
        }
    ).tools.policy
    assert policy.allow == ()
    assert policy.deny == ("openWorld", "mcp:a:get_secret")
    assert (policy.ask, policy.approved) == (("destructive",), ("mcp:a:list",))
    assert policy.server_allow == (("a", ("mcp:a:get_*", "mcp:a:list")), ("b", ()))
    assert policy.distrusted_servers == {"b"}


def test_without_allow_everything_is_allowed(folder: Folder) -> None:
    assert folder.load({"tools": {"deny": ["destructive"]}}).tools.policy.allow is None


# --- Servers ---


def test_a_local_server_is_read(folder: Folder) -> None:
    upstream = folder.server(
        {
            "type": "stdio",
            "command": "github-mcp-server",
            "args": ["stdio"],
            "env": {"TOKEN": "${GITHUB_TOKEN}"},
            "cwd": "sub",
            "timeoutMs": 5000,
            "description": "GitHub",
        },
        GITHUB_TOKEN="t",
    )
    assert (upstream.name, upstream.transport, upstream.command, upstream.args) == (
        "s",
        "stdio",
        "github-mcp-server",
        ("stdio",),
    )
    assert (upstream.env, upstream.cwd) == ({"TOKEN": "t"}, str(folder.root / "sub"))
    assert (upstream.timeout_ms, upstream.description) == (5000, "GitHub")


@pytest.mark.parametrize(
    ("entry", "transport"),
    [
        ({"url": "https://h/mcp"}, "auto"),
        ({"serverUrl": "https://h/mcp"}, "auto"),
        ({"url": "https://h/mcp", "type": "http"}, "http"),
        ({"url": "https://h/mcp", "transport": "streamable-http"}, "http"),
        ({"url": "https://h/mcp", "type": "http", "transport": "streamable-http"}, "http"),
        ({"url": "https://h/mcp", "type": "sse", "env": {}, "args": []}, "sse"),
        ({"url": "https://h/mcp", "serverUrl": "https://h/mcp"}, "auto"),
    ],
)
def test_a_remote_server_is_read(folder: Folder, entry: dict[str, object], transport: str) -> None:
    upstream = folder.server(entry)
    assert (upstream.transport, upstream.url, upstream.command) == (transport, "https://h/mcp", None)


def test_servers_of_both_roots_are_taken_in_the_order_of_the_file(folder: Folder) -> None:
    config = folder.load(
        {"mcpServers": {"b": {"command": "x"}, "a": {"command": "x"}}, "servers": {"c": {"url": "http://h"}}}
    )
    assert [upstream.name for upstream in config.upstreams] == ["b", "a", "c"]


def test_keys_of_other_clients_are_accepted_and_noted(folder: Folder) -> None:
    entry = {"command": "x", "autoApprove": [], "alwaysAllow": [], "disabledTools": ["a"], "icon": "i", "gallery": "g"}
    config = folder.load({"$schema": "s", "inputs": [], "servers": {"s": {**entry, "dev": {}, "envVars": []}}})
    assert [note.split(":")[0] for note in config.notes] == [
        "inputs",
        *(
            f"servers.s.{key}"
            for key in ("autoApprove", "alwaysAllow", "disabledTools", "icon", "gallery", "dev", "envVars")
        ),
    ]
    assert "use `deny` instead" in config.notes[3]


def test_a_disabled_server_is_left_out_and_noted_and_needs_no_variables(folder: Folder) -> None:
    config = folder.load({"mcpServers": {"s": {"disabled": True, "command": "${NOPE}", "auth": "oauth"}}})
    assert (config.upstreams, config.disabled) == ((), ("s",))
    assert config.notes == ("mcpServers.s: disabled",)


@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("codemode-mcp", ["serve"]),
        ("codemode-mcp", ["serve", "--private", "--context", "careful"]),
        ("/home/me/.venv/bin/codemode-mcp", []),
        (r"C:\Tools\CodeMode-MCP.exe", []),
        ("python", ["-m", "codemode_mcp", "serve"]),
        ("/usr/bin/python3.12", ["-X", "dev", "-m", "codemode_mcp.__main__"]),
        ("python3", ["-mcodemode_mcp"]),
        ("python3", ["/home/me/.venv/bin/codemode-mcp"]),
        ("uvx", ["codemode-mcp"]),
        ("uvx", ["--from", "codemode-mcp==0.1.0", "codemode-mcp"]),
        ("uv", ["run", "codemode-mcp", "serve"]),
        ("uvx", ["codemode-mcp", "serve", "--private"]),
        ("uv", ["run", "python", "-m", "codemode_mcp"]),
        ("npx", ["-y", "codemode-mcp@latest"]),
        ("pipx", ["run", "codemode_mcp"]),
        ("cmd", ["/c", "codemode-mcp", "serve"]),
        ("sh", ["-c", "cd /tmp && exec codemode-mcp serve"]),
        ("${SELF}", []),
    ],
)
def test_an_entry_that_would_start_this_server_is_refused(folder: Folder, command: str, args: list[str]) -> None:
    (problem,) = folder.server_problems({"command": command, "args": args}, SELF="codemode-mcp")
    assert problem.startswith("mcpServers.s: this entry would start codemode-mcp within itself")


@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("mcp-server-filesystem", ["/home/me/codemode-mcp"]),
        ("npx", ["-y", "@modelcontextprotocol/server-filesystem", "/home/me/codemode-mcp"]),
        ("uv", ["--directory", "/home/me/codemode-mcp", "run", "other-server"]),
        ("python", ["-m", "codemode_mcp_tools"]),
        ("codemode-mcp-helper", []),
        ("python", ["examples/quickstart/tracker.py"]),
    ],
)
def test_an_entry_that_only_mentions_this_server_is_accepted(folder: Folder, command: str, args: list[str]) -> None:
    assert folder.server({"command": command, "args": args}).command == command


# --- Variables, files, programs ---


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("${A}", "1"),
        ("x${A}y${B}z", "x1y${A}z"),  # what a variable holds is not expanded again
        ("${env:A}", "1"),
        ("${A:-2}", "1"),
        ("${NOPE:-2}", "2"),
        ("${env:NOPE:-2}", "2"),
        ("${NOPE:-}", ""),
        ("${EMPTY}", ""),
        ("${EMPTY:-2}", "2"),
        ("${NOPE:-http://h:1/?a={b}", "http://h:1/?a={b"),
        ("$A $ {A} $(A)", "$A $ {A} $(A)"),
    ],
)
def test_variables_expand(folder: Folder, text: str, expanded: str) -> None:
    upstream = folder.server({"command": "x", "args": [text]}, A="1", B="${A}", EMPTY="")
    assert upstream.args == (expanded,)


def test_variables_expand_wherever_a_server_can_use_one(folder: Folder) -> None:
    (folder.root / "v.env").write_text("K=v")
    value = "${V}"
    local = folder.server(
        {"command": value, "args": [value], "env": {"E": value}, "cwd": value, "envFile": "${V}.env"}, V="v"
    )
    assert (local.command, local.args, local.env) == ("v", ("v",), {"K": "v", "E": "v"})
    assert local.cwd == str(folder.root / "v")
    remote = folder.server({"url": "https://${V}/", "headers": {"A": "Bearer ${V}"}}, V="v")
    assert (remote.url, remote.headers) == ("https://v/", {"A": "Bearer v"})


def with_value(key: str, text: str) -> dict[str, object]:
    """Return an entry with a text as the value of a key, or in it."""
    value: object = {"args": [text], "env": {"K": text}, "headers": {"K": text}}.get(key, text)
    base = {"url": "http://h"} if key == "headers" else {} if key in ("command", "url") else {"command": "x"}
    return {**base, key: value}


PLACES = {
    **{key: f"mcpServers.s.{key}" for key in ("command", "cwd", "envFile", "url")},
    "args": "mcpServers.s.args[0]",
    "env": "mcpServers.s.env.K",
    "headers": "mcpServers.s.headers.K",
}
"""The paths of the texts of `with_value`, by key."""


@pytest.mark.parametrize("key", PLACES)
@pytest.mark.parametrize("text", ["${NOPE}", "${env:NOPE}", "a ${NOPE} b ${A}"])
def test_a_variable_that_is_not_set_disables_its_server_alone(folder: Folder, key: str, text: str) -> None:
    assert folder.why_disabled(with_value(key, text), A="1") == (
        f"the variable NOPE is not set ({PLACES[key]}); set it, or give a default: `${{NOPE:-default}}`"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${input:token}", '"${input:token}" asks a person for the value, which is not possible here'),
        ("${}", "`${...}` does not contain the name of a variable; allowed: ${VAR}, ${VAR:-default}, ${env:VAR}"),
        ("${a b}", "`${...}` does not contain the name of a variable"),
        ("${NOPE", "`${` has no closing `}`"),
        ("${NOPE:-${A}}", "references cannot be nested"),
    ],
)
@pytest.mark.parametrize("key", PLACES)
def test_a_malformed_reference_is_one_problem_that_names_its_key(
    folder: Folder, key: str, text: str, message: str
) -> None:
    (problem,) = folder.server_problems(with_value(key, text), A="1")
    assert message in problem
    assert problem.startswith(PLACES[key])


def test_each_unset_variable_of_an_entry_is_named(folder: Folder) -> None:
    why = folder.why_disabled({"command": "x", "args": ["${A}${B}${A}"], "env": {"K": "${C}"}})
    assert [word for word in why.split() if word in ("A", "B", "C")] == ["A", "B", "C"]


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"url": "${V}"}, "expected a URL like https://host/path (mcpServers.s.url); allowed: http and https"),
        ({"url": "${V}", "serverUrl": "${W}"}, "the variable W is not set"),
        ({"url": "${W}", "serverUrl": "http://h"}, "the variable W is not set"),
        ({"command": " ${V2}"}, "must not be empty"),
        ({"url": "http://h", "headers": {"A": "${LINES}"}}, "the value has a character that is not allowed in headers"),
        ({"url": "http://h", "auth": {"type": "oauth", "clientId": "${W}"}}, "the variable W is not set"),
        ({"url": "http://h", "auth": {"type": "oauth", "clientId": "c", "clientSecret": "${W}"}}, "W is not set"),
        ({"openapi": "${W}"}, "the variable W is not set"),
        ({"openapi": "http://h/o.json", "baseUrl": "${V}"}, "expected a URL like https://host/path"),
        ({"openapi": "a.json", "auth": {"type": "bearer", "token": "${W}"}}, "the variable W is not set"),
        ({"openapi": "a.json", "auth": {"type": "bearer", "token": "${TWO}"}}, "the token has a space"),
        ({"openapi": "a.json", "auth": {"type": "basic", "username": "u", "password": "${W}"}}, "W is not set"),
        ({"openapi": "a.json", "auth": {"type": "apiKey", "in": "query", "name": "k", "value": "${W}"}}, "W is not"),
        ({"openapi": "a.json", "otherOrigins": ["${V}"]}, "expected an origin"),
        ({"command": "x", "override": {"t": {"arguments": {"fixed": {"a": ["${W}"]}}}}}, "the variable W is not set"),
        ({"command": "x", "env": {"T": {"command": ["${W}"]}}}, "the variable W is not set"),
    ],
    ids=str,
)
def test_what_an_entry_refers_to_is_the_trouble_of_its_server_alone(
    folder: Folder, entry: dict[str, object], why: str
) -> None:
    assert why in folder.why_disabled(entry, V="v", V2=" ", LINES="a\nb", TWO="a b")


def test_an_unset_variable_of_another_section_makes_the_file_invalid(folder: Folder) -> None:
    (problem,) = folder.problems({"mcpServers": {"s": {"command": "x"}}, "store": {"kind": "sqlite", "path": "${NO}"}})
    assert problem.startswith("store.path: the variable NO is not set")


def test_a_disabled_server_is_not_the_trouble_of_others_with_the_same_program(folder: Folder) -> None:
    value = program("raise SystemExit(4)")
    entries = {name: {"command": "x", "env": {name.upper(): value}} for name in ("a", "b")}
    specs = folder.load({"mcpServers": {**entries, "c": {"command": "z"}}}, **os.environ).upstreams
    assert [spec.unusable for spec in specs] == [
        "server 'a' is disabled: the program failed with exit code 4 (mcpServers.a.env.A)",
        "server 'b' is disabled: the program failed with exit code 4 (mcpServers.b.env.B)",
        None,
    ]


@pytest.mark.parametrize(("name", "expected"), [("sub/codemode-mcp.json", "sub"), (".vscode/mcp.json", "")])
def test_the_workspace_folder_is_where_vs_code_looks_from(tmp_path: Path, name: str, expected: str) -> None:
    path = tmp_path / name
    path.parent.mkdir()
    path.write_text('{"servers": {"s": {"command": "${workspaceFolder}/run"}}}')
    (upstream,) = load_config(path, environ={}).upstreams
    assert Path(upstream.command or "") == tmp_path / expected / "run"


def test_an_env_file_is_read_and_env_has_the_last_word(folder: Folder) -> None:
    (folder.root / ".env").write_text(
        "\ufeff# comment\n\nA=1\nexport B = two words # note\nC='sin#gle' # note\n"
        'D="a\\nb \\"q\\" ${A}"\nE=\nF=x#y\nG=overruled\r\nH=#\n',
        encoding="utf-8",
    )
    upstream = folder.server({"command": "x", "envFile": ".env", "env": {"G": "g"}})
    assert upstream.env == {
        "A": "1",
        "B": "two words",
        "C": "sin#gle",
        "D": 'a\nb "q" ${A}',
        "E": "",
        "F": "x#y",
        "G": "g",
        "H": "",
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, '".env" cannot be read: No such file or directory'),
        (b"\xff", '".env" is not UTF-8 text'),
        (f"A=1\n{SECRET}\n".encode(), "line 2 of the file is not KEY=VALUE"),
        (f'A="{SECRET}\n'.encode(), "line 1 of the file is not KEY=VALUE"),
    ],
)
def test_an_env_file_that_cannot_be_used_disables_its_server(
    folder: Folder, content: bytes | None, message: str
) -> None:
    if content is not None:
        (folder.root / ".env").write_bytes(content)
    why = folder.why_disabled({"command": "x", "envFile": ".env"})
    assert "(mcpServers.s.envFile)" in why
    assert message in why.replace(" (mcpServers.s.envFile)", "")
    assert SECRET not in why


def program(code: str) -> dict[str, list[str]]:
    return {"command": [sys.executable, "-c", code]}


def test_a_value_can_come_from_a_program_which_is_run_once_in_the_folder_of_the_file(folder: Folder) -> None:
    code = "import os; open('runs', 'a').write('x'); print(os.environ['V'], 'é')"
    environ = {**os.environ, "V": "v", "PYTHONIOENCODING": "utf-8"}
    config = folder.load(
        {
            "mcpServers": {
                "a": {"command": "x", "env": {"T": program(code), "U": "u"}},
                "b": {"url": "http://h", "headers": {"Authorization": program(code)}},
            }
        },
        **environ,
    )
    local, remote = config.upstreams
    assert local.env == {"T": "v é", "U": "u"}
    assert remote.headers == {"Authorization": "v é"}
    assert (folder.root / "runs").read_text() == "x"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (program(f"print('{SECRET}'); raise SystemExit(3)"), "the program failed with exit code 3"),
        (program(f"raise RuntimeError('{SECRET}')"), "the program failed with exit code 1"),
        (program("print()"), "the program printed no text"),
        (program("import os; os.write(1, b'\\xff')"), "the output of the program is not UTF-8 text"),
        (program(f"print('{SECRET}\\n2')"), "the value has a character that is not allowed in headers"),
        (
            {"command": ["/no/such/program", SECRET]},
            'the program "/no/such/program" cannot be run: No such file or directory',
        ),
        ({"command": [f"nosuch {SECRET}"]}, 'the program "nosuch ..." cannot be run: No such file or directory'),
    ],
    ids=lambda value: str(value)[-40:],
)
def test_a_program_that_gives_no_value_disables_its_server_without_its_output(
    folder: Folder, value: object, message: str
) -> None:
    why = folder.why_disabled({"url": "http://h", "headers": {"A": value}}, **os.environ)
    assert "(mcpServers.s.headers.A)" in why
    assert message in why
    assert SECRET not in why


@pytest.mark.skipif(sys.platform == "win32", reason="the program is a shell script")
def test_a_program_of_the_folder_is_run_only_by_its_path(folder: Folder) -> None:
    planted = folder.root / "tool"
    planted.write_text("#!/bin/sh\necho planted")
    planted.chmod(0o755)
    entry = {"command": "x", "env": {"A": {"command": ["tool"]}}}
    why = folder.why_disabled(entry, PATH=f".{os.pathsep}")
    assert 'the program "tool" cannot be run: No such file or directory' in why
    entry["env"] = {"A": {"command": ["./tool"]}}
    assert folder.server(entry).env == {"A": "planted"}


def test_a_program_that_does_not_end_is_stopped(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codemode_mcp.config.expand.PROGRAM_SECONDS", 0.2)
    value = program("import time; time.sleep(60)")
    assert "the program did not end within 0.2 s" in folder.why_disabled(
        {"command": "x", "env": {"A": value}}, **os.environ
    )


def test_no_program_is_run_while_there_is_another_problem(folder: Folder) -> None:
    entry = {"command": "x", "env": {"A": program("open('ran', 'w')")}, "timeoutMs": 0}
    assert len(folder.server_problems(entry, **os.environ)) == 1
    assert not (folder.root / "ran").exists()


# --- Secrets ---


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "x", "env": {"T": SECRET}},
        {"command": "x", "env": {"T": "${T}"}, "args": ["--token=${T}"]},
        {"command": "x", "env": {"T": program(f"print('{SECRET}')")}},
        {"url": "https://user:${T}@h/?k=${T}", "headers": {"Authorization": f"Bearer {SECRET}"}},
    ],
    ids=str,
)
def test_no_secret_shows_in_the_repr_of_a_valid_configuration(folder: Folder, entry: object) -> None:
    config = folder.load({"mcpServers": {"s": entry}}, **{**os.environ, "T": SECRET})
    assert SECRET not in repr(config)
    assert SECRET not in repr(config.upstreams)
    assert SECRET not in "".join(config.notes)
    assert config.upstreams[0].redact(f"failed: {SECRET}") == "failed: ***"


@pytest.mark.parametrize(
    "entry",
    [
        SECRET,
        {"command": "x", "args": SECRET},
        {"command": "x", "args": [[SECRET]]},
        {"command": "x", "env": SECRET},
        {"command": "x", "env": [f"T={SECRET}"]},
        {"command": "x", "env": {"T": [SECRET]}},
        {"command": "x", "env": {f"T={SECRET}": ""}},
        {"command": "x", "env": {"T": f"{SECRET}\0"}},
        {"command": "x", "env": {"T": f"{SECRET}${{"}},
        {"command": "x", "env": {"T": {"keyring": SECRET}}},
        {"command": "x", "env": {"T": {"command": SECRET}}},
        {"command": "x", "enviroment": {"T": SECRET}},
        {"command": "x", "token": SECRET},
        {"command": "${T}", "cwd": "${T}", "envFile": "${T}"},
        {"url": SECRET},
        {"url": "ftp://${T}"},
        {"url": "http://h", "headers": SECRET},
        {"url": "http://h", "headers": {f"Authorization: Bearer {SECRET}": ""}},
        {"url": "http://h", "headers": {"Authorization": "${T}\n"}},
        {"url": "http://h", "auth": SECRET},
        {"url": "http://h", "auth": {"type": SECRET}},
        {"url": "http://h", "auth": {"type": "oauth", "clientSecret": SECRET}},
        {"url": "http://h", "auth": {"type": "oauth", "clientId": "c", "clientSecret": {"keyring": SECRET}}},
        {"url": "http://h", "auth": {"type": "oauth", "secret": SECRET}},
    ],
    ids=str,
)
def test_no_secret_shows_in_any_message(folder: Folder, entry: object) -> None:
    try:
        (spec,) = folder.load({"mcpServers": {"s": entry}}, T=SECRET).upstreams
        said = spec.unusable or ""
    except ConfigError as error:
        said = "".join(error.problems)
    assert said
    assert SECRET not in said


@pytest.mark.parametrize("section", ["http", "store"])
def test_no_secret_shows_in_a_message_about_a_section(folder: Folder, section: str) -> None:
    keys = {"http": "auth", "store": "encryptionKey"}
    assert SECRET not in "".join(folder.problems({section: {keys[section]: SECRET}}))


# --- audit ---


def test_the_trajectory_is_beside_the_configuration_unless_its_path_is_absolute(folder: Folder) -> None:
    audit = folder.load({"audit": {"trajectory": "runs.jsonl", "includeInputs": True, "files": 2}}).audit
    assert audit == AuditSettings(str(folder.path.parent / "runs.jsonl"), True, files=2)
    absolute = str(folder.path.parent / "elsewhere" / "runs.jsonl")
    assert folder.load({"audit": {"trajectory": absolute}}).audit == AuditSettings(absolute)
    assert folder.load({"audit": None}).audit == folder.load({"audit": {"trajectory": None}}).audit == AuditSettings()


def test_limits_of_the_trajectory_are_moved_into_their_range_and_told(folder: Folder) -> None:
    config = folder.load({"audit": {"maxBytes": 1, "files": 0}})
    assert (config.audit.max_bytes, config.audit.files) == (65536, 1)
    assert [note.partition(":")[0] for note in config.notes] == ["audit.maxBytes", "audit.files"]


# --- Anything at all ---


def outcome(folder: Folder, content: object) -> tuple[str, ...]:
    """Return the problems of the file; none when it is valid. Programs are not found, as `PATH` is empty."""
    try:
        assert isinstance(folder.load(content, A="a", PATH=""), Config)
    except ConfigError as error:
        return error.problems or ("no problem is named\n",)
    return ()


KEYS = st.sampled_from(
    [
        *("mcpServers", "servers", "tools", "codeMode", "store", "kind", "http", "auth", "audit", "log", "level"),
        *("plugins", "command", "args", "env", "headers", "url", "type", "cwd", "envFile", "timeoutMs", "disabled"),
        *("allow", "deny", "languages", "maxOutputBytes", "file", "esbuild", "keyring", "clientId", "clientSecret"),
        "scopes",
    ]
)
TEXTS = st.one_of(
    st.text(), st.sampled_from(["stdio", "http", "memory", "http://h/", "${A}", "${B:-x}", "mcp:*", "info", "python"])
)
JSON_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXTS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.one_of(KEYS, st.text()), inner, max_size=5)
    ),
    max_leaves=20,
)


@settings(max_examples=300, deadline=None)
@given(value=st.one_of(JSON_VALUES, st.dictionaries(KEYS, JSON_VALUES)))
def test_any_json_gives_a_configuration_or_problems_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, value: object
) -> None:
    for problem in outcome(Folder(tmp_path_factory.getbasetemp()), value):
        assert problem.isprintable()


@settings(max_examples=200, deadline=None)
@given(content=st.one_of(st.binary(), st.text().map(lambda text: text.encode("utf-8", "surrogatepass"))))
def test_any_bytes_give_a_configuration_or_problems_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    outcome(Folder(tmp_path_factory.getbasetemp()), content)


@pytest.mark.parametrize(("given", "enabled"), [(False, False), (True, True), ({"enabled": False}, False), ({}, True)])
def test_pass_through_is_asked_for_in_either_form(folder: Folder, given: object, enabled: bool) -> None:
    assert folder.load({"tools": {"codeMode": given}}).tools.code_mode.enabled is enabled


def test_the_files_that_the_configuration_depends_on_are_known_even_when_one_is_missing(folder: Folder) -> None:
    (folder.root / "there.env").write_text("A=1\n", "utf-8")
    entries = {name: {"command": "x", "envFile": f"{name}.env"} for name in ("there", "missing")}
    assert folder.load({"mcpServers": {"there": entries["there"]}}).files == (folder.root / "there.env",)
    folder.load({"mcpServers": entries})
    reading = Reading()
    load_config(folder.path, environ={}, reading=reading)
    assert reading.files == [folder.root / "there.env", folder.root / "missing.env"]


def test_a_reading_that_was_stopped_starts_no_programs(folder: Folder) -> None:
    reading = Reading()
    reading.stop()
    program = [sys.executable, "-c", f"open({str(folder.root / 'ran')!r}, 'w')"]
    folder.path.write_text(json.dumps({"mcpServers": {"s": {"command": "x", "env": {"A": {"command": program}}}}}))
    load_config(folder.path, environ={}, reading=reading)
    assert not (folder.root / "ran").exists()


def test_the_life_of_a_server_is_configured(folder: Folder) -> None:
    entry = {"start": "eager", "share": "client", "idleSeconds": 0, "maxConcurrentCalls": 3, "connectTimeoutMs": 1500}
    specs = folder.load({"mcpServers": {"a": {"command": "x", **entry}, "b": {"command": "x"}}}).upstreams
    lives = [
        (spec.start, spec.share, spec.idle_after, spec.max_concurrent_calls, spec.connect_timeout) for spec in specs
    ]
    assert lives == [("eager", "client", float("inf"), 3, 1.5), ("lazy", "user", 600, None, 30)]


def test_how_a_person_is_asked_is_read(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text('{"tools": {"approval": {"via": "terminal", "notify": ["ring", ""]}}}')
    assert load_config(path, environ={}).tools.approval == ApprovalSettings("terminal", ("ring", ""))


def test_null_withholds_a_variable_from_a_server_and_proxies_are_secret(folder: Folder) -> None:
    proxy = "http://me:hunter2@proxy.example:3128"
    spec = folder.server({"command": "x", "env": {"TZ": None, "A": "b"}}, HTTPS_PROXY=proxy, NO_PROXY="localhost")
    assert (spec.env, spec.withheld) == ({"A": "b"}, frozenset({"TZ"}))
    assert spec.redact(f"{proxy} hunter2 localhost") == "*** *** localhost"
    assert folder.server_problems({"url": "https://x.example", "headers": {"A": None}})


def test_values_of_home_and_its_like_are_never_hidden(folder: Folder) -> None:
    entry = {"command": "x", "args": ["${HOME}", "${TOKEN}"], "env": {"PATH": "/opt/bin", "ROOT": "${HOME}"}}
    spec = folder.server(entry, HOME="/home/ada", TOKEN="hunter22", USER="ada-lovelace", TMPDIR="/var/tmp")
    text = "/home/ada/.cache /opt/bin ada-lovelace"
    assert spec.redact(f"{text} hunter22") == f"{text} ***"


# what a configuration file looks like from outside.


@pytest.mark.parametrize("comment", ["", "// said\n"])
def test_an_escaped_character_is_the_same_in_a_file_with_comments(comment: str) -> None:
    text = '{"k\\ud83d\\ude00": ["a\\uD83D\\uDE00b", {"half": "\\ud83d"}]}'
    assert parse(comment + text) == {"k\U0001f600": ["a\U0001f600b", {"half": "\ud83d"}]}


def test_keys_that_are_there_twice_are_remembered_in_a_file_with_comments() -> None:
    assert parse('// said\n{"a": {"b": 1, "b": 2}}')["a"].repeated == ["b"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
def test_what_is_no_file_counts_as_not_there(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert file_states([tmp_path / "pipe", tmp_path, tmp_path / "nothing"]) == (None, None, None)


def test_a_file_that_was_written_again_is_another_one(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text("{}", "utf-8")
    (before,) = file_states([file])
    assert file_states([file]) == (before,)
    file.write_text("{ }", "utf-8")
    assert file_states([file]) != (before,)
