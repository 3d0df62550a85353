"""What a configuration file looks like from outside."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from codemode_mcp.config.source import look

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
def test_what_is_no_file_counts_as_not_there(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert look([tmp_path / "pipe", tmp_path, tmp_path / "nothing"]) == (None, None, None)


def test_a_file_that_was_written_again_is_another_one(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text("{}", "utf-8")
    (before,) = look([file])
    assert look([file]) == (before,)
    file.write_text("{ }", "utf-8")
    assert look([file]) != (before,)
