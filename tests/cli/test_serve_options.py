"""Tests of the common options of `serve`, which are parsed without the command line parser."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from typer.testing import CliRunner

from codemode_mcp.base.settings import LogLevel
from codemode_mcp.cli import app, relaying, serving
from codemode_mcp.cli.relaying import LOG_LEVELS, common_options


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--config", "a.json"],
        ["--read-only"],
        ["--locked", "--config", "a.json"],
        ["--log-level", "error"],
        ["--context", "careful", "--read-only"],
        ["--log-level", "debug", "--read-only", "--config", "a b.json"],
        ["--log-file", "a.log", "--private"],
    ],
    ids=" ".join,
)
def test_common_options_are_parsed_as_by_the_parser(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: dict[str, Any] = {}
    monkeypatch.setattr(relaying, "serve_by_relay", lambda **_: None)
    monkeypatch.setattr(serving, "run", parsed.update)
    assert CliRunner().invoke(app, ["serve", *arguments]).exit_code == 0
    found = common_options(arguments)
    assert found is not None
    assert found.pop("private", False) == ("--private" in arguments)
    assert found == {name: parsed[name] for name in found}
    defaults = {"config": None, "read_only": False, "locked": False, "context": None, "log_level": None}
    defaults["log_file"] = None
    assert {name: parsed[name] for name in defaults} == defaults | found


@pytest.mark.parametrize(
    "arguments",
    [
        ["--log-level"],
        ["--log-level", "loud"],
        ["--log-level", "error", "--log-level", "info"],
        ["--log-level=error"],
        ["--config", "--read-only"],
        ["--private", "--private"],
        ["--log-file", ""],
        ["--transport", "http"],
        ["--help"],
    ],
    ids=" ".join,
)
def test_all_other_options_are_left_to_the_parser(arguments: list[str]) -> None:
    assert common_options(arguments) is None


def test_the_levels_of_the_log_are_those_of_the_settings() -> None:
    assert get_args(LogLevel) == LOG_LEVELS
