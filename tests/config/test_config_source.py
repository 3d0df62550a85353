"""Tests of what a configuration file looks like from outside."""

import os
from pathlib import Path

import pytest

from codemode_mcp.config.source import file_states, parse


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
