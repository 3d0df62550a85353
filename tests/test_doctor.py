"""What doctor says of an installation, over real servers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp.config import load_config
from codemode_mcp.doctor import Check, check_config, check_everything

TRACKER = Path(__file__).parents[1] / "examples" / "quickstart" / "tracker.py"


async def checks(folder: Path, **tools: Any) -> dict[str, list[Check]]:
    """All checks of an installation with the tracker, by name."""
    servers = {"tracker": {"command": sys.executable, "args": [str(TRACKER)]}}
    path = folder / "codemode-mcp.json"
    path.write_text(json.dumps({"mcpServers": servers, "tools": tools}), "utf-8")
    found: dict[str, list[Check]] = {}
    for check in await check_everything(load_config(path, environ={})):
        found.setdefault(check.name, []).append(check)
    return found


@pytest.mark.anyio
async def test_a_sound_installation_is_all_right(tmp_path: Path) -> None:
    found = await checks(tmp_path)
    assert [check.status for check in found["engine"]] == ["ok"]
    assert [check.status for check in found["server tracker"]] == ["ok"]
    assert "policy" not in found


@pytest.mark.anyio
async def test_rules_without_effect_and_tools_out_of_reach_are_named(tmp_path: Path) -> None:
    found = await checks(
        tmp_path, allow=["mcp:tracker:*"], deny=["mcp:tracker:delete_*", "mcp:tracker:get_issue"], ask=["destructive"]
    )
    assert [check.detail for check in found["policy"]] == ["'mcp:tracker:delete_*' in tools.deny matches no tool"]
    said = [check.detail for check in found["server tracker"]]
    assert "policy hides 1 of 6 tools" in said
    assert any("need an approval" in detail for detail in said)


@pytest.mark.anyio
async def test_a_policy_that_hides_everything_is_a_warning(tmp_path: Path) -> None:
    found = await checks(tmp_path, deny=["openWorld", "mcp:tracker:*"])
    assert [check.status for check in found["server tracker"]][-1] == "warn"


def test_a_broken_configuration_is_a_check_per_problem(tmp_path: Path) -> None:
    path = tmp_path / "codemode-mcp.json"
    path.write_text('{"mcpServers": {"a": {}}, "tols": {}}', "utf-8")
    loaded, found = check_config(str(path), {})
    assert loaded is None
    assert [check.status for check in found] == ["fail", "fail"]
