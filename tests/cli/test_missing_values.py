"""Commands with a server that lacks a value to which its entry refers: the server is named, and others are used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from codemode_mcp.cli import app
from tests.integration.harness import counting

WHY = "the variable BOOK_KEY is not set (mcpServers.books.env.KEY)"


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration with a server that lacks a variable, and one that works."""
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("BOOK_KEY", raising=False)
    works = counting(tmp_path / "log")
    path = tmp_path / "codemode-mcp.json"
    entries = {"books": {"command": "books", "env": {"KEY": "${BOOK_KEY}"}}, "works": works}
    path.write_text(json.dumps({"mcpServers": entries}), "utf-8")
    return path


def said(config: Path, *arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, [*arguments, "--config", str(config)], prog_name="codemode-mcp")
    return done.exit_code, " ".join(f"{done.stderr} {done.stdout}".split())


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("run", "-e", "return 1 + 1"), 0, "2"),
        (("run", "-e", "return Object.keys(MCP).length"), 0, "2"),
        (("run", "-e", "return (await MCP.works.count({ name: 'x' })).content.length === 1"), 0, "true"),
        (("run", "-e", "return await MCP.books.list()"), 1, f"MCP.books is down: server 'books' is disabled: {WHY}"),
        (("call", "works.count", "name=x"), 0, "x"),
        (("call", "books.list"), 1, WHY),
        (("tools",), 0, f"{WHY}|books: down"),
        (("tools", "--server", "works"), 0, "MCP.works.count"),
        (("types", "--out", "types"), 0, WHY),
        (("trust", "status"), 0, "books pin not listed yet"),
        (("policy", "explain", "works.count"), 0, "allow"),
        (("login", "books"), 2, WHY),
        (("savings",), 0, f"books is left out: server 'books' is disabled: {WHY}"),
        (("doctor", "works"), 0, "ok server works"),
        (("doctor", "books", "works"), 1, f"fail server books: is disabled: {WHY}|ok server works"),
    ],
    ids=lambda value: " ".join(value)[:50] if isinstance(value, tuple) else str(value)[:20],
)
def test_a_server_without_its_variable_is_the_only_one_that_does_not_work(
    config: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    exit_code, text = said(config, *arguments)
    assert all(each in text for each in words.split("|")), text
    assert exit_code == code


def test_the_server_is_used_once_the_variable_is_set(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = json.loads(config.read_text("utf-8"))
    entries["mcpServers"]["books"] |= entries["mcpServers"]["works"]
    config.write_text(json.dumps(entries), "utf-8")
    assert said(config, "call", "books.count", "name=x")[0] == 1
    monkeypatch.setenv("BOOK_KEY", "open sesame")
    assert said(config, "call", "books.count", "name=x")[0] == 0
