"""`codemode-mcp programs list`, which reads files only."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from codemode_mcp.cli.parser import app


def test_a_file_with_a_syntax_error_in_its_body_is_marked_with_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    config = tmp_path / "config.json"
    config.write_text('{"mcpServers": {}}', "utf-8")
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "open.ts").write_text(
        "export default () => {\n  const a = [1;\n  return a;\n};\n", "utf-8"
    )
    (tmp_path / "programs" / "fine.ts").write_text("export default () => {\n  return [1];\n};\n", "utf-8")
    command = ["programs", "list", "--config", str(config)]
    rows = {line.split()[0]: line for line in CliRunner().invoke(app, command).stdout.splitlines()}
    assert "syntax error in line 2? See programs check" in rows["open"]
    assert "syntax" not in rows["fine"]
    listed = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert [each["syntaxErrorLine"] for each in listed["programs"]] == [None, 2]
