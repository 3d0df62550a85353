"""Mistakes that new users made, each with the words of its answer that say what to do.

A row has the mistake, the command line or the configuration, the exit code where it differs, and words of the answer.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from codemode_mcp.cli import app

TRACKER: Final = {
    "command": sys.executable,
    "args": [str(Path(__file__).parents[1] / "examples" / "quickstart" / "tracker.py")],
}


def python(code: str, **more: Any) -> dict[str, Any]:
    return {"mcpServers": {"a": {"command": sys.executable, "args": ["-c", code], **more}}}


COMMAND_LINES: Final[list[tuple[str, list[str], int, list[str]]]] = [
    # programs
    ("no program", ["run"], 2, ["give a FILE, or the program itself: codemode-mcp run -e 'return 1'"]),
    ("no file", ["run", "nofile.ts"], 2, ["there is no file nofile.ts", "to give the program itself, use -e CODE"]),
    ("no text", ["run", "-e"], 2, ["'-e' requires an argument", "codemode-mcp run -e 'return 1'"]),
    ("file and text", ["run", "-e", "return 1", "x.js"], 2, ["not both", "leave out x.js or -e"]),
    ("text as a file", ["run", "return 1"], 2, ["to run this text: codemode-mcp run -e 'return 1'"]),
    ("a short language", ["run", "--language", "py", "-e", "1"], 2, ["--language py: use javascript or typescript"]),
    ("another language", ["repl", "--language", "python"], 2, ["'python' is not supported; use javascript or typ"]),
    ("a trace nowhere", ["run", "-e", "1", "--trace-html", "no/x.html"], 1, ["name another file with --trace-html"]),
    # commands
    ("exec", ["exec", "-e", "1"], 2, ["codemode-mcp run -e CODE"]),
    ("list", ["list"], 2, ["codemode-mcp tools, or codemode-mcp runs list"]),
    ("tool", ["tool"], 2, ["Write codemode-mcp tools."]),
    ("version", ["version"], 2, ["codemode-mcp --version"]),
    ("help", ["help"], 2, ["codemode-mcp --help"]),
    ("docter", ["docter"], 2, ["codemode-mcp doctor"]),
    ("runs approv", ["runs", "approv"], 2, ["Did you mean 'approve'?"]),
    ("runs ls", ["runs", "xyz"], 2, ["codemode-mcp runs list or codemode-mcp runs show"]),
    # options
    ("--eval", ["run", "--eval", "1"], 2, ["Did you mean -e?"]),
    ("-c", ["run", "-c", "x.json", "-e", "1"], 2, ["Did you mean --config?"]),
    ("--sever", ["tools", "--sever", "git"], 2, ["Did you mean --server?"]),
    ("--since yesterday", ["savings", "--since", "yesterday"], 2, ["write a number, such as 7"]),
    ("--port 99999", ["serve", "--port", "99999"], 2, ["write a number of at most 65535"]),
    ("--port web", ["serve", "--port", "web"], 2, ["write a whole number, such as 8808"]),
    ("--transport sse", ["serve", "--transport", "sse"], 2, ["it is stdio or http; write --transport http"]),
    ("--transport htp", ["serve", "--transport", "htp"], 2, ["it is stdio or http"]),
    ("--log-level verbose", ["run", "-e", "1", "--log-level", "verbose"], 2, ["is not one of 'debug', 'info'"]),
    (
        "every address",
        ["serve", "--transport", "http", "--host", "0.0.0.0"],
        2,
        ["Set http.auth", "listen on 127.0.0.1"],
    ),
    ("no such file", ["run", "--config", "no.json", "-e", "1"], 2, ["no.json does not exist", "Name an existing file"]),
    ("a folder", ["run", "--config", ".", "-e", "1"], 2, ["it is a folder; name a file in it"]),
    # arguments
    ("install cursor", ["install", "cursor"], 2, ["codemode-mcp install --client cursor"]),
    ("--client cursr", ["install", "--client", "cursr"], 2, ["nothing was changed", "did you mean 'cursor'?"]),
    ("--client emacs", ["install", "--client", "emacs"], 2, ["most clients take this entry", "mcp add codemode --"]),
    ("--from vs-code", ["import", "--from", "vs-code"], 2, ["did you mean 'vscode'?"]),
    ("import FILE", ["import", "./x.json"], 2, ["codemode-mcp import --from ./x.json"]),
    (
        "types DIR",
        ["types", "cells"],
        2,
        ["types takes no argument, but got cells. Write codemode-mcp types --out cells."],
    ),
    ("types nowhere", ["types", "--out", "/proc/x"], 1, ["name another folder with --out"]),
    ("repl FILE", ["repl", "x.js"], 2, ["Write codemode-mcp run x.js."]),
    ("demo x", ["demo", "x"], 2, ["demo takes no argument, but got x. Write codemode-mcp demo, without it."]),
    ("login", ["login"], 2, ["codemode-mcp login docs"]),
    ("call", ["call"], 2, ["codemode-mcp call github.listIssues state=open", "codemode-mcp tools lists"]),
    ("runs show", ["runs", "show"], 2, ["codemode-mcp runs list shows the ids of runs"]),
    ("runs approve", ["runs", "approve"], 2, ["codemode-mcp runs list shows the ids of runs"]),
    ("runs show x", ["runs", "show", "run_x"], 1, ["see codemode-mcp runs list"]),
    ("no trajectory", ["trace", "run_x"], 1, ['set "audit.trajectory" to a file', "--trajectory"]),
    ("trajectory nowhere", ["trace", "--trajectory", "no.jsonl"], 1, ["--trajectory no.jsonl: there is no such file"]),
    ("no configuration", ["run", "-e", "return 1"], 0, ["no configuration", "codemode-mcp import"]),
    ("only own tools", ["tools", "xyzzy"], 0, ["nothing matches 'xyzzy'; try other words", "codemode-mcp import"]),
    ("nothing to import", ["import"], 1, ["name a file with --from FILE"]),
]

INVALID: Final[list[tuple[str, Any, list[str]]]] = [
    ("comand", {"mcpServers": {"a": {"comand": "x"}}}, ['did you mean "command"?']),
    ("args as text", {"mcpServers": {"a": {"command": "x", "args": "-y b"}}}, ["write it in brackets, each word as a"]),
    ("mcpServer", {"mcpServer": {"a": {"command": "x"}}}, ['did you mean "mcpServers"?']),
    ("missing comma", '{"mcpServers": {} "plugins": {}}', ["line 1, column 19", "a comma is missing before it"]),
    ("missing comma above", '{\n  "log": {}\n  "audit": {}\n}', ["a comma is missing at the end of line 2"]),
    ("missing brace", '{"mcpServers": {', ["is not valid JSON: line 1"]),
    ("denny", {"tools": {"denny": ["x"]}}, ['did you mean "deny"?']),
    ("url without scheme", {"mcpServers": {"a": {"url": "x.example/mcp"}}}, ["expected a URL like https://host/path"]),
    ("websocket", {"mcpServers": {"a": {"url": "wss://x/", "type": "websocket"}}}, ["begins with https://"]),
    ("command and url", {"mcpServers": {"a": {"command": "x", "url": "https://x"}}}, ["keep `command` for a local"]),
    ("language python", {"tools": {"codeMode": {"languages": ["python"]}}}, ['expected "javascript" or "typescript"']),
    ("10s", {"tools": {"codeMode": {"timeoutMs": "10s"}}}, ["tools.codeMode.timeoutMs: expected an integer"]),
    ("array", {"mcpServers": [{"command": "x"}]}, ['expected an object such as {"files": {"command": "npx"']),
    ("entry as text", {"mcpServers": {"a": "npx -y b"}}, ['expected an object such as {"command": "npx"']),
    ("YAML", "mcpServers:\n  a: {}\n", ["which begins with {", "write it as JSON"]),
    ("TOML", "[mcpServers]\n", ["which begins with {", "write it as JSON"]),
    ("number in env", {"mcpServers": {"a": {"command": "x", "env": {"PORT": 80}}}}, ["write it in quotes"]),
    (
        "file of a client",
        {"numStartups": 5, "mcpServers": {}, "userID": "x"},
        ["codemode-mcp import --from", "--write"],
    ),
    ("itself", {"mcpServers": {"a": {"command": "codemode-mcp", "args": ["serve"]}}}, ["remove the entry"]),
    ("ask word", {"tools": {"ask": ["sometimes"]}}, ["allowed: the annotation tests readOnly", '"mcp:github:*"']),
]

FAILING: Final[list[tuple[str, Any, list[str]]]] = [
    (
        "unset variable",
        {"mcpServers": {"a": {"command": "${NOT_SET_X}"}}},
        [
            "the variable NOT_SET_X is not set (mcpServers.a.command)",
            "set it, or give a default: `${NOT_SET_X:-",
            "export NOT_SET_X=... where codemode-mcp is started",
        ],
    ),
    ("npxx", {"mcpServers": {"a": {"command": "npxx"}}}, ["'npxx' was not found on PATH", 'check "command"']),
    ("command with words", {"mcpServers": {"a": {"command": "npx -y b"}}}, ['"command": "npx", "args": ["-y", "b"]']),
    ("wrong folder", {"mcpServers": {"a": {**TRACKER, "cwd": "/nope"}}}, ["'/nope' does not exist", 'check "cwd"']),
    ("no module", python("import mcp_server_gitt"), ["No module named 'mcp_server_gitt'"]),
    (
        "npm 404",
        python(
            "import sys; sys.exit('npm error code E404\\nnpm error 404 Not Found - GET https://registry.example/b\\n"
            "npm error A complete log of this run can be found in: /x/y.log')"
        ),
        ["npm error 404 Not Found"],
    ),
    (
        "text on stdout",
        python("import time; print('ready to serve', flush=True); time.sleep(30)", connectTimeoutMs=1500),
        ["its stdout, which must have MCP messages only, has this line: ready to serve"],
    ),
    (
        "no answer",
        python("import time; time.sleep(30)", connectTimeoutMs=1500),
        ["no complete answer from", "run it once by hand", "raise mcpServers.a.connectTimeoutMs (now 1500)"],
    ),
    ("no listener", {"mcpServers": {"a": {"url": "http://127.0.0.1:9/mcp"}}}, ['check that it is running and "url"']),
    ("folder of filesystem", python("import sys; sys.exit('Error: ENOENT: /no/notes')"), ["ENOENT: /no/notes"]),
]

NAMES: Final[list[tuple[str, list[str], list[str]]]] = [
    ("login nope", ["login", "nope"], ["there is no server 'nope'; there are: git, docs"]),
    ("login git", ["login", "git"], ["only a server with a URL has a login"]),
    ("logout nope", ["logout", "nope"], ["there is no server 'nope'; there are: git, docs"]),
    ("doctor gti", ["doctor", "gti"], ["did you mean 'git'?"]),
    ("tools --server gti", ["tools", "--server", "gti"], ["did you mean 'git'?"]),
    ("run --server gti", ["run", "--server", "gti", "-e", "1"], ["did you mean 'git'?"]),
    ("call gti.x", ["call", "gti.listIssues"], ["there is no server 'gti'; did you mean 'git'?"]),
    ("call git", ["call", "git"], ["'git' names no tool: write SERVER.TOOL", "codemode-mcp tools lists"]),
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home that is the working directory."""
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    for name in ("CODEMODE_MCP_CONFIG", "CODEMODE_MCP_DEPTH", "NOT_SET_X"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def told(arguments: list[str]) -> tuple[int, str]:
    """Run a command. Return its exit code and what it says on stderr and stdout, unfolded."""
    done = CliRunner().invoke(app, arguments, prog_name="codemode-mcp")
    text = f"{done.stderr} {done.stdout}"
    assert "Traceback" not in text
    assert "Value error" not in text
    return done.exit_code, " ".join(text.replace("\u2502", " ").split())


def written(folder: Path, config: object) -> str:
    path = folder / "c.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config), "utf-8")
    return str(path)


@pytest.mark.parametrize(("arguments", "code", "words"), [pytest.param(*row[1:], id=row[0]) for row in COMMAND_LINES])
def test_a_mistaken_command_line_is_answered_with_what_to_write(
    arguments: list[str], code: int, words: list[str]
) -> None:
    exit_code, text = told(arguments)
    assert [each for each in words if each not in text] == [], text
    assert exit_code == code


@pytest.mark.parametrize(("config", "words"), [pytest.param(*row[1:], id=row[0]) for row in INVALID])
def test_a_mistake_in_the_configuration_is_answered_with_what_to_write(
    folder: Path, config: object, words: list[str]
) -> None:
    exit_code, text = told(["run", "--config", written(folder, config), "-e", "return 1"])
    assert [each for each in words if each not in text] == [], text
    assert "invalid_config" in text
    assert exit_code == 2


@pytest.mark.parametrize(("arguments", "words"), [pytest.param(*row[1:], id=row[0]) for row in NAMES])
def test_a_mistaken_name_is_answered_with_the_nearest_or_with_all(
    folder: Path, arguments: list[str], words: list[str]
) -> None:
    servers = {"git": TRACKER, "docs": {"url": "http://127.0.0.1:9/mcp"}}
    exit_code, text = told([*arguments, "--config", written(folder, {"mcpServers": servers})])
    assert [each for each in words if each not in text] == [], text
    assert exit_code == 2


@pytest.mark.parametrize(("config", "words"), [pytest.param(*row[1:], id=row[0]) for row in FAILING])
def test_doctor_says_why_a_server_does_not_start_and_what_to_do(folder: Path, config: object, words: list[str]) -> None:
    exit_code, text = told(["doctor", "a", "--config", written(folder, config)])
    assert [each for each in words if each not in text] == [], text
    assert exit_code == 1


class _Lost(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.send_error(404)

    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        """Keep the output of the test clean."""


@pytest.fixture
def lost() -> Iterator[str]:
    """The URL of a web server that has no MCP server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Lost)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/wrong"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_url_that_leads_to_no_mcp_server_is_named_with_the_answer(folder: Path, lost: str) -> None:
    exit_code, text = told(["doctor", "a", "--config", written(folder, {"mcpServers": {"a": {"url": lost}}})])
    assert "404" in text
    assert 'check the path in "url" of mcpServers.a' in text
    assert exit_code == 1


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("p.py", "def main():\n    print(1)\n", ["this looks like Python; exec runs JavaScript or TypeScript"]),
        ("p.sh", "#!/bin/sh\nls -l\n", ["JavaScript"]),
    ],
)
def test_a_program_in_another_language_is_named(folder: Path, name: str, text: str, words: list[str]) -> None:
    (folder / name).write_text(text, "utf-8")
    exit_code, said = told(["run", name])
    assert [each for each in words if each not in said] == [], said
    assert exit_code == 1


def test_the_module_of_a_plugin_that_is_not_there_is_named(folder: Path) -> None:
    config = {"plugins": {"x": {"module": "./nope.py"}}}
    _, text = told(["run", "--config", written(folder, config), "-e", "return 1"])
    assert "plugin 'x' is refused: the file" in text
    assert "nope.py does not exist" in text
