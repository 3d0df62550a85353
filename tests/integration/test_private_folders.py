"""Folders that a command makes in a fresh home, whatever the umask."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.harness import COMMAND

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no modes on Windows")


def test_every_folder_that_is_made_in_a_fresh_home_is_the_users_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (tmp_path / "empty.json").write_text('{"mcpServers": {}}')
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("XDG_", "CODEMODE_"))}
    done = subprocess.run(
        [*COMMAND, "doctor", "--config", str(tmp_path / "empty.json")],
        env={**environ, "HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        umask=0o000,
    )
    made = {str(path.relative_to(home)): stat.S_IMODE(path.stat().st_mode) for path in home.rglob("*") if path.is_dir()}
    assert len(made) >= 2, done.stdout + done.stderr
    assert set(made.values()) == {0o700}, made
