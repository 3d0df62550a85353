"""Tests of `codemode-mcp new`."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from codemode_mcp.catalog.saved_programs.folder import read_folder
from codemode_mcp.cli.parser import app


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "codemode-mcp.json").write_text("{}", "utf-8")
    return tmp_path / "codemode-mcp.json"


def new(config: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["new", *arguments, "--config", str(config)], prog_name="codemode-mcp")


def test_a_draft_is_written_beside_the_configuration_and_its_parameters_are_shown(config: Path) -> None:
    source = config.parent / "report.ts"
    source.write_text('const n: number = 3;\nMCP.t.list({ state: "open", token: "x", n });\n', "utf-8")
    done = new(config, "report", "--from", str(source))
    assert done.exit_code == 0, done.output
    shown = done.output.splitlines()
    assert "  n: number (default 3), for the constant n" in shown
    assert '  state: string (default "open"), for MCP.t.list (state)' in shown
    assert "  token: string (required: a secret stood here), for MCP.t.list (token)" in shown
    command = (
        f"""run --program report --input '{{"n": 3, "state": "open", "token": "..."}}' --config {config} --record """
    )
    assert command in done.output
    [program] = read_folder(config.parent / "programs").programs
    assert (program.name, program.language) == ("report", "typescript")


def test_a_saved_program_is_never_overwritten(config: Path) -> None:
    assert new(config, "report.js").exit_code == 0
    before = (config.parent / "programs" / "report.js").read_text("utf-8")
    for name in ("report.js", "report", "Report.ts"):
        done = new(config, name)
        assert done.exit_code == 1
        assert "exists already; choose another name" in " ".join(done.output.split())
    assert (config.parent / "programs" / "report.js").read_text("utf-8") == before
    assert [each.name for each in read_folder(config.parent / "programs").programs] == ["report"]


@pytest.mark.parametrize(
    ("name", "text", "code", "advice"),
    [
        ("my-report", "1", 2, "such as weeklyReport"),
        ("../report", "1", 2, "no JavaScript identifier"),
        ("report.js", "const n: number = 1", 2, "leave .js out of report.js"),
        ("report", "import x from 'y'", 1, "a program has no modules"),
        ("report", "", 2, "there is no run and no file"),
    ],
)
def test_what_cannot_be_saved_is_refused(config: Path, name: str, text: str, code: int, advice: str) -> None:
    source = config.parent / "source.ts"
    if text:
        source.write_text(text, "utf-8")
    done = new(config, name, "--from", str(source))
    assert done.exit_code == code
    assert advice in " ".join(done.output.split())
    assert not list(config.parent.glob("programs/*"))


def test_only_programs_and_recordings_become_saved_programs(config: Path) -> None:
    done = new(config, "report", "--from", str(config))
    assert done.exit_code == 2
    assert "is no program and no recording" in " ".join(done.output.split())
    (config.parent / "report.jsonl").write_text("{}", "utf-8")
    done = new(config, "report", "--from", str(config.parent / "report.jsonl"))
    assert done.exit_code == 1
    assert "is no recording that can be read" in " ".join(done.output.split())
    assert not list(config.parent.glob("programs/*"))
