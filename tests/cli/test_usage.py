"""Help, and the commands that install extras."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from codemode_mcp.base.installation import command, install_command, requirements
from codemode_mcp.cli import app


@pytest.mark.parametrize("words", [(), ("run",), ("runs", "show"), ("call",)])
def test_the_option_h_shows_the_help(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, [*words, "-h"], prog_name="codemode-mcp")
    assert done.exit_code == 0
    assert "Usage: codemode-mcp" in done.stdout


@pytest.mark.parametrize(
    ("prefix", "has_pip", "expected"),
    [
        ("/home/ada/.local/share/pipx/venvs/codemode-mcp", True, "pipx inject codemode-mcp 'asyncpg>=0.31'"),
        ("/home/ada/.local/share/uv/tools/codemode-mcp", False, "uv pip install --python /py 'asyncpg>=0.31'"),
        ("/work/.venv", True, "/py -m pip install 'asyncpg>=0.31'"),
        ("/work/.venv", False, "uv pip install --python /py 'asyncpg>=0.31'"),
    ],
)
def test_packages_of_an_extra_are_installed_where_this_program_runs(prefix: str, has_pip: bool, expected: str) -> None:
    assert command(["asyncpg>=0.31"], Path(prefix), "/py", again=False, has_pip=has_pip) == expected


def test_the_command_for_an_extra_names_its_packages_and_never_this_one() -> None:
    assert requirements("postgres") == ["asyncpg>=0.31"]
    assert "codemode-mcp[" not in install_command("postgres")
    assert "onnxruntime" in install_command("semantic", again=True)
