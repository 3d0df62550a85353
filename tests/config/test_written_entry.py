"""Server entries as pins compare them: what distinguishes two servers, and no secret."""

import json
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp.config import load_config
from codemode_mcp.config.literals import written_entry

TOKEN = "ghp_" + "a1B2" * 9


def test_an_entry_has_its_command_line_or_its_url_and_nothing_else() -> None:
    local = {"command": "npx", "args": ["-y", "files@1"], "cwd": "${HOME}/work", "env": {"A": "b"}, "timeoutMs": 5}
    assert written_entry(local) == {"command": "npx", "args": ["-y", "files@1"], "cwd": "${HOME}/work"}
    assert written_entry({"url": "https://a.example/mcp", "headers": {"X": "y"}}) == {"url": "https://a.example/mcp"}
    assert written_entry({"serverUrl": "https://a.example/mcp"}) == {"url": "https://a.example/mcp"}
    assert written_entry({"command": "a", "args": []}) == written_entry({"command": "a", "args": None})


@pytest.mark.parametrize(
    ("entry", "written"),
    [
        ({"command": "a", "args": ["--token", "x1", "b"]}, {"command": "a", "args": ["--token", "***", "b"]}),
        (
            {"command": "a", "args": [f"{TOKEN} and {TOKEN}", "--api-key=k", "${A:-" + TOKEN + "}"]},
            {"command": "a", "args": ["*** and ***", "--api-key=***", "${A***}"]},
        ),
        ({"command": "a", "args": ["pg://u:pw@h/d"]}, {"command": "a", "args": ["pg://u:***@h/d"]}),
        (
            {"url": "https://u:pw@a.example/mcp?key=k&b=${B}&k2#frag"},
            {"url": "https://***@a.example/mcp?key=***&b=***&***"},
        ),
        ({"url": "https://a.example/s/0f1e2d3c4b5a69788796a5b4/mcp"}, {"url": "https://a.example/s/***/mcp"}),
        ({"url": "${URL}"}, {"url": "${URL}"}),
    ],
)
def test_secrets_in_an_entry_are_left_out(entry: dict[str, Any], written: dict[str, Any]) -> None:
    assert written_entry(entry) == written


def test_the_values_of_variables_make_no_difference(tmp_path: Path) -> None:
    entry = {"command": "${BIN}", "args": ["${TOKEN}", "${HOME}/x"]}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"mcpServers": {"s": entry}}), "utf-8")
    for user in ("alice", "bob"):
        environ = {"BIN": f"/opt/{user}", "TOKEN": f"t-{user}", "HOME": f"/home/{user}"}
        assert load_config(path, environ=environ).written == {"s": entry}
