"""Messages of commands: each fits a terminal and says what to do next, and every `--help` shows an example."""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
import typer
from typer.testing import CliRunner, Result

from codemode_mcp.__main__ import _open_missing_streams
from codemode_mcp.cli.messages import COLUMNS, say
from codemode_mcp.cli.parser import app, command_modules, main

SECRET: Final = "a-secret-of-many-letters"


# messages


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: a configuration without servers that start, and broken ones."""
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    # A server of another test may still be ending in the common one.
    (tmp_path / "runtime").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    for name in ("CODEMODE_MCP_CONFIG", "CODEMODE_MCP_DEPTH"):
        monkeypatch.delenv(name, raising=False)
    remote = {"url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": f"Bearer {SECRET}"}, "disabled": True}
    local = {"command": "no-such-command", "env": {"TOKEN": SECRET}, "disabled": True}
    write(tmp_path / "good.json", {"mcpServers": {"docs": remote, "local": local}})
    enabled = {"command": "no-such-command-anywhere", "env": {"TOKEN": SECRET}}
    write(tmp_path / "down.json", {"mcpServers": {"down": enabled}})
    entry = {"comand": "x", "args": SECRET, "env": {"A": 7, "B": "${NOT_SET_ANYWHERE}"}, "timeoutMs": "5"}
    write(tmp_path / "bad.json", {"mcpServers": {"s": entry}, "tols": {}, "tools": {"codeMode": {"mode": "al"}}})
    (tmp_path / "torn.json").write_text('{"mcpServers": {', "utf-8")
    (tmp_path / "file").write_text("", "utf-8")
    return tmp_path


def write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), "utf-8")


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), prog_name="codemode-mcp")


GOOD: Final = ("--config", "good.json")
CORRECT: Final = "Correct the file; codemode-mcp doctor checks it."

CONFIGURED: Final = (
    *(
        ("tools",),
        ("types",),
        ("run", "-e", "return 1"),
        ("setup", "--no-servers"),
        ("login", "docs"),
        ("logout", "docs"),
    ),
    *(("trace",), ("savings",), ("serve", "--transport", "http")),
)
"""Commands that read the configuration before anything else."""

CASES: Final = [
    *((each, ("--config", "nowhere.json"), 2, "Name an existing file with --config") for each in CONFIGURED),
    *((each, ("--config", "bad.json"), 2, CORRECT) for each in CONFIGURED),
    (("tools",), ("--config", "torn.json"), 2, CORRECT),
    (("doctor",), ("--config", "nowhere.json"), 2, "give the path of an existing file"),
    (("doctor",), ("--config", "bad.json"), 2, "correct the configuration file"),
    (("doctor", "dosc"), GOOD, 2, "did you mean 'docs'?"),
    (("doctor", "down"), ("--config", "down.json"), 1, "or give mcpServers.down.command its full path"),
    (("docter",), (), 2, "Try 'codemode-mcp --help' for help"),
    (("tools", "--quer"), (), 2, "Try 'codemode-mcp tools --help' for help"),
    (("tools", "nothing-is-called-like-this"), GOOD, 0, "nothing matches 'nothing-is-called-like-this'"),
    (("tools",), GOOD, 0, "no server is enabled: see codemode-mcp import"),
    (("run",), (), 2, "give a FILE, or the program itself: codemode-mcp run -e"),
    (("run", "x.js", "-e", "1"), (), 2, "give a FILE or -e CODE, not both"),
    (("run", "nowhere.js"), (), 2, "there is no file nowhere.js"),
    (("run", "-e", " "), GOOD, 1, "empty"),
    (("run", "-e", "return 1", "--log-file", "file/x.log"), GOOD, 1, "name another file with --log-file or log.file"),
    (("types", "--out", "file"), GOOD, 1, "cannot write to file"),
    (("login", "absent"), GOOD, 2, "there is no server 'absent'"),
    (("login", "docs"), GOOD, 2, 'remove "disabled" from its entry to log in'),
    (("login", "down"), ("--config", "down.json"), 2, "put its credentials into its env"),
    (("login",), (), 2, "Try 'codemode-mcp login --help' for help"),
    (("logout", "absent"), GOOD, 2, "there is no server 'absent'"),
    (("trace",), GOOD, 1, 'set "audit.trajectory" to a file in the configuration, or name one: --trajectory'),
    (("trace", "--html", "x.html"), GOOD, 2, "name it; codemode-mcp trace lists them"),
    (("trace", "run_x", "--trajectory", "nowhere"), GOOD, 1, "there is no such file"),
    (("trace", "--trajectory", "nowhere"), GOOD, 1, "it is created when a client first calls exec"),
    (("runs", "list"), (), 0, "a client starts it"),
    (("runs", "show", "run_nobody_has_an_id_that_is_as_long_as_this_one"), (), 1, "see codemode-mcp runs list"),
    (("runs", "approve", "run_nobodyhasit"), (), 1, "run it in one"),
    (("runs", "approve", "run_x", "--remember", "ever"), (), 2, "is not one of 'no', 'run', 'always'"),
    (("runs", "cancel", "run_nobodyhasit"), (), 1, "run it in one"),
    (("runs", "aprove"), (), 2, "Try 'codemode-mcp runs --help' for help"),
    (("serve", "--port", "1"), (), 2, "add that, or leave --port out"),
    (("serve", "--transport", "pigeon"), (), 2, "it is stdio or http"),
    (("serve", "--transport", "http", "--path", "a b"), (), 2, "like /mcp"),
    (("serve", "--transport", "http", "--host", "0.0.0.0"), GOOD, 2, "Set http.auth in the configuration"),
]


@pytest.mark.parametrize(
    ("command", "more", "code", "advice"),
    [pytest.param(*case, id=" ".join((*case[0], *case[1])).replace("/", "_")) for case in CASES],
)
@pytest.mark.usefixtures("folder")
def test_what_fails_says_what_to_do_in_lines_that_fit(
    command: tuple[str, ...], more: tuple[str, ...], code: int, advice: str
) -> None:
    done = invoke(*command, *more)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == code, done.output
    assert advice in flat(done.output)
    # What a pipe gets of `tools` is not cut.
    assert fitting(done.stderr if command[0] == "tools" else done.output)
    assert "Traceback" not in done.output
    assert SECRET not in done.output


def flat(text: str) -> str:
    return " ".join(re.sub("[│╭╮╰╯─]", " ", text).split())


def fitting(text: str) -> bool:
    """Return True if every line fits a terminal, or is one word alone, such as a path."""
    return all(len(line) <= COLUMNS or len(line.split()) <= 2 for line in text.splitlines())


@pytest.mark.usefixtures("folder")
def test_every_problem_of_a_configuration_is_a_line_with_its_key_and_a_repair() -> None:
    said = flat(invoke("tools", "--config", "bad.json").stderr)
    for key, repair in (
        ("mcpServers.s.comand", '(did you mean "command"?)'),
        ("mcpServers.s.args", "write it in brackets"),
        ("mcpServers.s.env.A", "write it in quotes"),
        ("mcpServers.s.timeoutMs", "write it without quotes"),
        ("tools.codeMode.mode", '"only"'),
        ("tols", '(did you mean "tools"?)'),
    ):
        assert re.search(rf"- {re.escape(key)}: [^-]*{re.escape(repair)}", said), key


@pytest.mark.usefixtures("folder")
def test_doctor_prints_nothing_but_json_where_that_is_asked_for() -> None:
    done = invoke("doctor", "--json", "--config", "bad.json")
    checks = json.loads(done.stdout)
    assert {"config", "engine", "esbuild"} <= {check["name"] for check in checks}
    assert set(checks[0]) == {"name", "status", "detail", "advice", "ms"}
    assert done.exit_code == 2


@pytest.mark.usefixtures("folder")
def test_setup_says_each_step_and_does_nothing_twice() -> None:
    first, second = (invoke("setup", "--no-servers", "--config", "good.json").stdout for _ in range(2))
    assert "engine: compiled already" in flat(second)
    assert "stored in" in flat(first) or "compiled already" in flat(first)
    assert fitting(first)


# help


def commands(group: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command and every group of commands but the first, with its name."""
    group = group or typer.main.get_command(app)
    context = typer.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield (*path, name), command
        if hasattr(command, "list_commands"):
            yield from commands(command, (*path, name))


ALL: Final = list(commands())


def examples(command: Any) -> list[list[str]]:
    """The words after `codemode-mcp` of each example, without what a shell does around them."""
    lines = [line for line in (command.epilog or "").splitlines() if line.startswith("Example: ")]
    found = []
    for line in lines:
        words = shlex.split(line.removeprefix("Example: "))
        words = words[words.index("codemode-mcp") + 1 :]
        end = next((number for number, word in enumerate(words) if word in ("<", ">", "|", "&&")), len(words))
        found.append(words[:end])
    return found


def test_every_registered_command_is_looked_at() -> None:
    assert {path[0] for path, _ in ALL} == set(command_modules())
    assert ("runs", "approve") in dict(ALL)


@pytest.mark.parametrize(("path", "command"), [pytest.param(*each, id=" ".join(each[0])) for each in ALL])
def test_the_help_of_every_command_shows_an_example_that_parses(path: tuple[str, ...], command: Any) -> None:
    found = examples(command)
    assert found, "no example: epilog='Example: codemode-mcp ...'"
    for words in found:
        assert tuple(words[: len(path)]) == path
        rest, inner = words[len(path) :], command
        while hasattr(inner, "list_commands"):
            inner, rest = inner.get_command(typer.Context(inner), rest[0]), rest[1:]
            assert inner is not None, words
        inner.make_context(" ".join(words[:2]), list(rest))  # raises for an option that there is not
    shown = invoke(*path, "--help").stdout
    assert f"Example: codemode-mcp {' '.join(path)}" in flat(shown)
    assert fitting(shown)


def test_help_shows_what_wants_no_value_without_one_and_how_to_begin() -> None:
    for path in [(), *(path for path, _ in ALL)]:
        assert "<bool>" not in invoke(*path, "--help").stdout
    assert "codemode-mcp install --client cursor --move-servers" in flat(invoke("--help").stdout)


# where they are said


def test_a_closed_stream_is_one_without_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    _open_missing_streams()
    with sys.stdin, sys.stdout, sys.stderr:
        assert sys.stdin.read() == ""
        print("said to no reader")
        print("said to no reader", file=sys.stderr)


def test_what_stdout_cannot_encode_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    main(SimpleNamespace(invoked_subcommand="tools"))
    print("cut\u2026", flush=True)
    assert written.getvalue().strip() == rb"cut\u2026"


def test_before_serve_nothing_that_was_printed_gets_to_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    print("printed by a library")
    main(SimpleNamespace(invoked_subcommand="serve"))
    assert written.getvalue() == b""


def test_nothing_that_is_said_moves_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    say("server 'a\x1b[2J\x9b\u202e\r'\n  failed ü")
    assert capsys.readouterr().err == "server 'a\\x1b[2J\\x9b\\u202e\\x0d'\n  failed ü\n"
