"""Tests of converting entries of each client into ours: their meaning is kept, and the rest is noted."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from codemode_mcp.base.errors import ConfigError
from codemode_mcp.config import load_config
from codemode_mcp.extensions.setup.mcp_clients.client_files import Source
from codemode_mcp.extensions.setup.mcp_clients.dialects import VariableNames
from codemode_mcp.extensions.setup.mcp_clients.entries import (
    Converted,
    IsThisServer,
    NotImportable,
    convert,
    valid_name,
)
from codemode_mcp.extensions.setup.mcp_clients.locations import CLIENTS, ClientName, Machine

MACHINE = Machine("linux", Path("/home/me"), {}, Path("/home/me/here"))


def source(client: ClientName | None = "cursor", folder: str | None = None, **inputs: dict[str, Any]) -> Source:
    return Source(
        client, "user", Path("/home/me/file.json"), folder=None if folder is None else Path(folder), inputs=inputs
    )


def converted(entry: object, origin: Source | None = None, name: str = "github") -> Converted:
    return convert(name, entry, origin or source(), MACHINE, VariableNames())


def entry_of(entry: object, origin: Source | None = None) -> dict[str, Any]:
    return converted(entry, origin).entry


SAME: list[dict[str, Any]] = [
    {"command": "npx", "args": ["-y", "server"], "env": {"A": "b"}, "cwd": "/srv", "envFile": "/srv/.env"},
    {"type": "sse", "url": "https://x.example/sse", "headers": {"Authorization": "Bearer x"}},
    {"url": "https://x.example", "auth": "oauth", "timeoutMs": 5, "allow": ["a_*"], "deny": ["b"]},
    {"command": "x", "env": {"A": {"command": ["pass", "show", "a"]}, "B": {"keyring": "b"}}, "description": "d"},
    {"command": "x", "start": "eager", "idleSeconds": 0, "maxConcurrentCalls": 1, "trustAnnotations": False},
]


@pytest.mark.parametrize("entry", [pytest.param(each, id=str(number)) for number, each in enumerate(SAME)])
def test_keys_with_the_same_meaning_are_unchanged(
    entry: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "envFile" in entry:
        (tmp_path / ".env").write_text("X=1\n")
        entry = {**entry, "envFile": str(tmp_path / ".env")}
    found = converted(entry, source(None))
    assert (found.entry, found.notes) == (entry, ())


WRITTEN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "stdio of Claude Code": ({"type": "stdio", "command": "x", "args": [], "env": {}}, {"command": "x"}),
    "http of Claude Code": ({"type": "http", "url": "https://x.y"}, {"type": "http", "url": "https://x.y"}),
    "streamable": ({"type": "streamable-http", "url": "https://x.y"}, {"type": "http", "url": "https://x.y"}),
    "the camel of Cline": ({"type": "streamableHttp", "url": "https://x.y"}, {"type": "http", "url": "https://x.y"}),
    "serverUrl of Windsurf": ({"serverUrl": "https://x.y/sse"}, {"url": "https://x.y/sse"}),
    "numbers": ({"command": "x", "args": [1, 0.5]}, {"command": "x", "args": ["1", "0.5"]}),
    "no texts": (
        {"command": "x", "env": {"P": 80, "D": True, "N": None}},
        {"command": "x", "env": {"P": "80", "D": "true", "N": None}},
    ),
    "a timeout": ({"command": "x", "timeout": 60000}, {"command": "x", "timeoutMs": 60000}),
    "the shortest timeout": ({"command": "x", "timeout": 1000}, {"command": "x", "timeoutMs": 1000}),
    "a URL in a variable": ({"url": "${env:U}"}, {"url": "${U:-}"}),
    "disabled": ({"command": "x", "disabled": True}, {"command": "x", "disabled": True}),
    "not disabled": ({"command": "x", "disabled": False}, {"command": "x"}),
    "not enabled": ({"command": "x", "enabled": False}, {"command": "x", "disabled": True}),
    "tools": ({"command": "x", "disabledTools": ["a", "b"]}, {"command": "x", "deny": ["a", "b"]}),
    "the login of Cursor": (
        {"url": "https://x.y", "auth": {"CLIENT_ID": "i", "CLIENT_SECRET": "${env:S}", "scopes": ["a"]}},
        {"url": "https://x.y", "auth": {"type": "oauth", "clientId": "i", "clientSecret": "${S:-}", "scopes": ["a"]}},
    ),
    "the login of Claude Code": (
        {"url": "https://x.y", "oauth": {"clientId": "i", "callbackPort": 8080, "scopes": "a b"}},
        {"url": "https://x.y", "auth": {"type": "oauth", "clientId": "i", "scopes": ["a", "b"], "redirectPort": 8080}},
    ),
    "a file of Windsurf": (
        {"url": "https://x.y", "headers": {"K": "${file:/run/key}"}},
        {"url": "https://x.y", "headers": {"K": {"command": ["cat", "/run/key"]}}},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("entry", "ours"), [pytest.param(*each, id=name) for name, each in WRITTEN.items()])
def test_keys_of_clients_become_ours(entry: dict[str, Any], ours: dict[str, Any]) -> None:
    assert entry_of(entry) == ours


def test_notes_say_what_is_not_imported() -> None:
    found = converted(
        {
            "command": "x",
            "icon": "i",
            "dev": {"watch": "**"},
            "alwaysAllow": ["a"],
            "disabledTools": ["readOnly", "c"],
            "timeout": 30,
            "sandboxEnabled": True,
        }
    )
    assert found.entry == {"command": "x", "deny": ["c"]}
    assert found.notes == (
        "1 of `disabledTools` cannot be names of tools; they are left out",
        "`disabledTools` became `deny`: 1 tool",
        "`alwaysAllow` is not imported: only calls that match `tools.ask` need approval here",
        "`timeout` 30 is not imported: it may be seconds; use `timeoutMs`",
        'keys of the client, not imported: "sandboxEnabled"',
    )
    remote = {"url": "https://x.y", "headersHelper": "/bin/h", "oauth": {"authServerMetadataUrl": "https://z"}}
    assert [note.split()[0] for note in converted(remote).notes] == ["`authServerMetadataUrl`", "`headersHelper`"]


def test_references_resolve_outside_the_client() -> None:
    args = [
        *("${workspaceFolder}/a", "${userHome}", "${workspaceFolderBasename}", "${pathSeparator}${/}"),
        *("${env:X}", "${Y}"),
    ]
    project = source("vscode", "/srv/project")
    assert entry_of({"command": "x", "args": args}, project) == {
        "command": "x",
        "args": ["/srv/project/a", "/home/me", "project", "//", "${X:-}", "${Y:-}"],
    }
    found = converted({"command": "x", "args": ["${workspaceFolder}"]}, source("vscode"))
    assert found.entry["args"] == ["/home/me/here"]
    assert found.notes == ("`${workspaceFolder}` is /home/me/here here, not the folder that the client has open",)
    # Claude Code starts nothing where these are not set.
    strict = {"command": "${A}", "args": ["${B:-c}"], "env": {"D": "x${E}"}}
    assert entry_of(strict, source("claude-code")) == strict


def test_inputs_of_vs_code_become_variables() -> None:
    inputs: dict[str, dict[str, Any]] = {
        "gh-token": {"type": "promptString", "password": True, "description": "A token of GitHub"},
        "region": {"type": "pickString", "options": ["eu"], "default": "eu"},
        "pw": {"type": "promptString", "password": True, "default": "hunter2"},
    }
    entry = {
        "command": "x",
        "args": ["--region", "${input:region}", "--pw", "${input:pw}"],
        "env": {"GITHUB_TOKEN": "${input:gh-token}"},
    }
    found = converted(entry, source("vscode", **inputs))
    assert found.entry == {
        "command": "x",
        "args": ["--region", "${GITHUB_REGION:-eu}", "--pw", "${GITHUB_PW:-}"],
        "env": {"GITHUB_TOKEN": "${GITHUB_TOKEN:-}"},
    }
    assert found.inputs == (
        ("GITHUB_PW", 'what the client asks for as "pw"'),
        ("GITHUB_TOKEN", 'what the client asks for as "gh-token": A token of GitHub'),
    )
    assert found.notes == ("`${input:region}` is now the variable GITHUB_REGION, with the same default",)
    assert found.references["GITHUB_TOKEN"] == "${input:gh-token}"


def test_relative_paths_still_lead_into_the_project() -> None:
    project = source("claude-code", "/srv/project")
    for entry in (
        {"command": "./run.sh"},
        {"command": "node", "args": ["build/index.js"]},
        {"command": "x", "args": ["."]},
    ):
        assert entry_of(entry, project)["cwd"] == "/srv/project"
    for entry in ({"command": "npx", "args": ["-y", "@a/b@1.2"]}, {"command": "/bin/x", "args": ["/a/b.py", "--c=d"]}):
        assert "cwd" not in entry_of(entry, project)
    assert entry_of({"command": "x", "cwd": "sub"}, project)["cwd"] == "/srv/project/sub"
    assert "cwd" not in entry_of({"command": "node", "args": ["index.js"]}, source())


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        pytest.param("npx x", "it is a string; expected an object", id="text"),
        pytest.param({}, "it has neither `command` nor `url`", id="empty"),
        pytest.param({"command": "x", "url": "https://y"}, "it has `command` and `url`; keep one", id="both"),
        pytest.param({"command": ["x", "s3cret"]}, "`command` is an array; expected a string", id="list"),
        pytest.param({"command": ""}, "`command`: must not be empty", id="no command"),
        pytest.param({"command": "x", "args": "s3cret"}, "`args` is a string; expected an array", id="args"),
        pytest.param({"command": "x", "env": ["s3cret"]}, "`env` is an array; expected an object", id="env"),
        pytest.param({"command": "x", "env": {"A": ["s3cret"]}}, "`env.A` is an array; expected a string", id="value"),
        pytest.param({"type": "ws", "url": "wss://x"}, "it is reached by WebSocket", id="websocket"),
        pytest.param({"url": "localhost:80/s3cret"}, "`url`: expected a URL like https://host/path", id="url"),
        pytest.param({"command": "x", "args": ["${file}"]}, 'only the client knows "${file}"', id="editor"),
        pytest.param({"command": "${A B:-s3cret}"}, 'only the client knows "${A B}"', id="default"),
        pytest.param({"command": "${command:pick}"}, 'only the client knows "${command:pick}"', id="command"),
        pytest.param({"command": "x", "args": ["${A"]}, "`args[0]`: `${` has no closing `}`", id="brace"),
        pytest.param({"command": "x", "envFile": "/no/such"}, "cannot be read: No such file", id="envFile"),
        pytest.param({"command": "x", "timeoutMs": "s3cret"}, "`timeoutMs`: expected a positive integer", id="timeout"),
    ],
)  # fmt: skip
def test_an_entry_that_could_not_be_loaded_is_refused_with_the_reason(entry: object, reason: str) -> None:
    with pytest.raises(NotImportable) as raised:
        converted(entry)
    assert reason in str(raised.value)
    if "timeoutMs" not in str(entry):  # of no secret key; ours shows these too
        assert "s3cret" not in str(raised.value)


ITSELF: list[dict[str, Any]] = [
    {"command": "codemode-mcp", "args": ["serve"]},
    {"command": "/opt/venv/bin/codemode-mcp", "args": ["serve", "--config", "/x"]},
    {"command": r"C:\venv\Scripts\codemode-mcp.exe", "args": ["serve"]},
    {"command": "uvx", "args": ["codemode-mcp", "serve"]},
    {"command": "uvx", "args": ["codemode-mcp@0.1.0", "serve"]},
    {"command": "uvx", "args": ["--from", "codemode-mcp[semantic]", "codemode-mcp"]},
    {"command": "uv", "args": ["run", "--directory", "/src", "codemode-mcp", "serve"]},
    {"command": "pipx", "args": ["run", "codemode-mcp", "serve"]},
    {"command": "python3.12", "args": ["-m", "codemode_mcp", "serve"]},
    {"command": "/opt/venv/bin/python", "args": ["-Im", "codemode_mcp", "serve"]},
    {"command": "cmd", "args": ["/c", "codemode-mcp", "serve"]},
    {"command": "cmd.exe", "args": ["/c", r"C:\venv\Scripts\codemode-mcp.exe", "serve"]},
    {"command": "bash", "args": ["-lc", "exec '/opt/venv/bin/codemode-mcp' serve"]},
    {"command": "env", "args": ["A=b", "/opt/tools/codemode-mcp", "serve"]},
    {"command": "docker", "args": ["run", "-i", "--rm", "images.example/someone/codemode-mcp:0.1", "serve"]},
    {"command": "op", "args": ["run", "--", "codemode-mcp", "serve"]},
    {"command": "${HOME}/.local/bin/codemode-mcp"},
    {"command": "codemode-mcp", "args": ["serve"], "disabled": True},
]


@pytest.mark.parametrize("entry", [pytest.param(each, id=str(number)) for number, each in enumerate(ITSELF)])
def test_this_server_is_recognized_however_it_is_started(entry: dict[str, Any]) -> None:
    with pytest.raises(IsThisServer):
        converted(entry)


def test_this_server_is_recognized_behind_references_of_the_client() -> None:
    with pytest.raises(IsThisServer):
        converted({"command": "${userHome}${/}bin${/}codemode-mcp", "args": ["serve"]}, source("vscode"))


@pytest.mark.parametrize("client", ["vscode", "cursor", "windsurf"])
def test_unset_variables_are_empty_where_the_client_does_so(client: ClientName) -> None:
    entry = {"command": "x", "env": {"T": "${env:T}"}}
    assert entry_of(entry, source(client))["env"] == {"T": "${T:-}"}
    assert entry_of(entry, source("claude-code"))["env"] == {"T": "${T}"}


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param({"command": "npx", "args": ["server-filesystem", "/home/me/codemode-mcp"]}, id="folder"),
        pytest.param({"command": "uvx", "args": ["mcp-server-git", "--repository", "codemode-mcp-docs"]}, id="name"),
        pytest.param({"command": "docker", "args": ["run", "-v", "/x/codemode-mcp:/data", "image"]}, id="volume"),
        pytest.param({"url": "https://codemode-mcp.example/mcp"}, id="url"),
    ],
)
def test_servers_that_only_mention_this_one_are_not_it(entry: dict[str, Any]) -> None:
    assert entry_of(entry)


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        pytest.param("io.github.owner/server", "io.github.owner/server", id="gallery"),
        pytest.param("my:server*", "my-server-", id="marks"),
        pytest.param("The  Program", "The  Program", id="spaces"),
        pytest.param("the program", "server", id="program"),
        pytest.param("", "server", id="empty"),
        pytest.param("\x00", "server", id="nul"),
    ],
)
def test_names_are_made_valid(name: str, ours: str) -> None:
    assert valid_name(name) == ours


KEYS = st.sampled_from(
    (
        *("command", "args", "env", "cwd", "envFile", "url", "serverUrl", "headers", "auth", "oauth", "type"),
        *("timeout", "timeoutMs", "disabled", "disabledTools", "enabledTools", "allow", "deny", "description", "start"),
        # Keys of single clients.
        *("env_vars", "http_headers", "env_http_headers", "bearer_token_env_var", "scopes", "enabled_tools", "tools"),
        *("environment", "httpUrl", "trust", "tcp", "includeTools", "settings", "config", "cmd", "uri", "envs"),
        *("env_keys", "available_tools", "startup_timeout_sec", "tool_timeout_sec", "deferTools", "enabled"),
    )
)
WORDS = st.text(max_size=12) | st.sampled_from(
    (
        *("x", "https://a.b/c", "${A}", "${input:i}", "${env:B}", "${workspaceFolder}"),
        *("http", "oauth", "${", "readOnly", "mcp:a:b"),
    )
)
VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)


@given(
    given_entry=st.dictionaries(KEYS, VALUES)
    | st.dictionaries(KEYS, VALUES).map(lambda rest: {"command": "x", **rest}),
    name=st.text(max_size=10),
    client=st.sampled_from((None, *CLIENTS)),
)
@settings(max_examples=200, deadline=None)
@example(given_entry={"type": []}, name="", client="goose")
@example(given_entry={"cmd": "x", "envs": "x"}, name="", client="goose")
@example(given_entry={"cmd": "x", "env_keys": 5}, name="", client="goose")
@example(given_entry={"command": "x", "env_vars": 5}, name="", client="codex")
@example(given_entry={"command": "x", "http_headers": "x"}, name="", client="codex")
@example(given_entry={"command": "x", "env_vars": ["A"], "env": 5}, name="", client="codex")
def test_any_entry_is_refused_or_loads(
    given_entry: dict[str, Any], name: str, client: ClientName | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    try:
        entry = convert(name, given_entry, source(client), MACHINE, VariableNames()).entry
    except (NotImportable, IsThisServer):
        return
    path = tmp_path_factory.getbasetemp() / "entry.json"
    path.write_text(json.dumps({"mcpServers": {valid_name(name): entry}}), "utf-8")

    problems = []
    for value in ("1", "https://1.example"):
        try:
            load_config(path, environ=Everything(value))
        except ConfigError as error:
            problems.append(error)
    assert len(problems) < 2, problems


class Everything(dict[str, str]):
    """An environment where all is set."""

    def __init__(self, value: str) -> None:
        super().__init__()
        self._value = value

    def get(self, key: str, default: Any = None) -> Any:
        return self._value


@pytest.mark.parametrize("timeout", [pytest.param(10**400, id="long"), pytest.param(float("inf"), id="endless")])
def test_huge_timeouts_are_handled(timeout: float) -> None:
    assert entry_of({"command": "x", "timeout": timeout})["command"] == "x"
