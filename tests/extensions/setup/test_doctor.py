"""Tests of what doctor says of an installation, over real servers."""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp.cli.deciding import refuse_unknown
from codemode_mcp.config import Config, load_config
from codemode_mcp.config.confirmation import Gate
from codemode_mcp.extensions.setup.doctor import Check, Checkup, check_config
from codemode_mcp.extensions.setup.doctor.checkup import make_ahead

TRACKER = Path(__file__).parents[3] / "examples" / "quickstart" / "tracker.py"


LISTING = """
import json, sys
read, write, close = {"readOnlyHint": True}, {"destructiveHint": False}, {"destructiveHint": True}
hints = {"list_issues": read, "get_issue": read, "list_people": read, "create_issue": write, "comment_issue": write}
tools = [{"name": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": False, **each}}
         for name, each in {**hints, "close_issue": close}.items()]
results = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
                   "serverInfo": {"name": "tracker", "version": "1"}},
    "tools/list": {"tools": tools},
    "prompts/list": {"prompts": [{"name": "triage"}]},
    "resources/list": {"resources": []},
    "resources/templates/list": {"resourceTemplates": []},
}
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        found = results.get(message["method"])
        end = {"error": {"code": -32601, "message": "no"}} if found is None else {"result": found}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **end}), flush=True)
"""
"""A server that lists what the tracker does, and starts immediately."""


def listing(folder: Path) -> dict[str, Any]:
    (folder / "listing.py").write_text(LISTING, "utf-8")
    return {"command": sys.executable, "args": [str(folder / "listing.py")]}


async def check_everything(config: Config) -> list[Check]:
    checkup = Checkup()
    await checkup.run(config)
    return checkup.checks


async def checks_by_name(path: Path) -> dict[str, list[Check]]:
    found: dict[str, list[Check]] = {}
    for check in await check_everything(load_config(path, environ={})):
        found.setdefault(check.name, []).append(check)
    return found


async def checks(folder: Path, server: dict[str, Any] | None = None, **tools: Any) -> dict[str, list[Check]]:
    """Return all checks of an installation with one server, by name."""
    servers = {"tracker": server or listing(folder)}
    path = folder / "codemode-mcp.json"
    path.write_text(json.dumps({"mcpServers": servers, "tools": tools}), "utf-8")
    return await checks_by_name(path)


@pytest.mark.anyio
async def test_a_sound_installation_is_all_right(tmp_path: Path) -> None:
    found = await checks(tmp_path, {"command": sys.executable, "args": [str(TRACKER)]})
    assert [check.status for check in found["engine"]] == ["ok"]
    assert [check.status for check in found["server tracker"]] == ["ok"]
    assert [check.detail for check in found["policy"]] == ["no rules: programs may call every tool"]
    found.pop("store")  # it warns of a busy disk or machine
    assert not [check for each in found.values() for check in each if check.status not in ("ok", "info")]
    assert all(found[name][0].ms is not None for name in ("engine", "esbuild", "server tracker")), "how long each took"


@pytest.mark.anyio
async def test_rules_without_effect_and_tools_out_of_reach_are_named(tmp_path: Path) -> None:
    found = await checks(
        tmp_path, allow=["mcp:tracker:*"], deny=["mcp:tracker:delete_*", "mcp:tracker:get_issue"], ask=["destructive"]
    )
    assert [check.detail for check in found["policy"]] == ["'mcp:tracker:delete_*' in tools.deny matches no tool"]
    said = [check.detail for check in found["server tracker"]]
    assert "policy hides 1 of 6 tools" in said
    asked = [check for check in found["server tracker"] if "need an approval" in check.detail]
    assert [(check.status, check.detail) for check in asked] == [
        ("info", "1 of 6 tools need an approval: you are asked when a program calls them")
    ]


@pytest.mark.anyio
async def test_rules_about_other_tools_and_in_contexts_are_looked_at_too(tmp_path: Path) -> None:
    contexts = {
        "guests": {"for": ["anonymous"], "allow": ["mcp:tracker:list_issues", "mcp:tracker:lst"], "deny": ["core:*"]},
        "late": {"for": ["anonymous", "group:x"], "approved": ["client:session:roots"]},
        "staff": {"for": ["group:staff"]},
    }
    found = await checks(
        tmp_path,
        contexts=contexts,
        deny=["core:results:*", "plugin:absent:*", "client:session:sample", "mcp:tracker:*", "mcp:tracker:prompts/zz"],
        approved=["core:results:list"],
    )
    assert [check.detail for check in found["policy"]] == [
        "'plugin:absent:*' in tools.deny matches no tool",
        "'mcp:tracker:prompts/zz' in tools.deny matches no tool",
        "'core:results:list' in tools.approved has no effect: "
        "everything that it matches is denied, or needs no approval",
        "'mcp:tracker:list_issues' in tools.contexts.guests.allow has no effect: "
        "everything that it matches is denied, approved or asked for by other rules",
        "'mcp:tracker:lst' in tools.contexts.guests.allow matches no tool",
        "'client:session:roots' in tools.contexts.late.approved has no effect: "
        "everything that it matches is denied, or needs no approval",
        "no caller can be in tools.contexts.late: all callers in it are in an earlier context",
        "no caller can be in tools.contexts.staff: without http.auth no HTTP caller has a name or a group",
    ]
    hidden = [check for check in found["server tracker"] if check.status == "warn"]
    assert [check.detail for check in hidden] == ["policy hides all 6 tools from all callers"]


@pytest.mark.anyio
async def test_a_policy_that_hides_everything_is_a_warning(tmp_path: Path) -> None:
    found = await checks(tmp_path, deny=["openWorld", "mcp:tracker:*"])
    assert [check.status for check in found["server tracker"]][-1] == "warn"


def test_a_broken_configuration_is_a_check_per_problem(tmp_path: Path) -> None:
    path = tmp_path / "codemode-mcp.json"
    path.write_text('{"mcpServers": {"a": {}}, "tols": {}}', "utf-8")
    loaded, found = check_config(str(path), {}, Gate(refuse_unknown))
    assert loaded is None
    assert [check.status for check in found if check.name == "config"] == ["fail", "fail"]


GUARD = """
from codemode_mcp.plugins import EXEC_ID

def register(api):
    api.before_tool_call(lambda event: None, tools=["mcp:*", EXEC_ID])
"""


async def plugin_checks(folder: Path, **plugins: Any) -> dict[str, list[Check]]:
    servers = {"tracker": listing(folder), "off": {"command": "x", "disabled": True}}
    (folder / "guard.py").write_text(GUARD, "utf-8")
    (folder / "broken.py").write_text("import no_such_module_at_all\n", "utf-8")
    (folder / "torn.py").write_text("def register(api:\n", "utf-8")
    path = folder / "codemode-mcp.json"
    path.write_text(json.dumps({"mcpServers": servers, "plugins": plugins, "audit": {"trajectory": "t"}}), "utf-8")
    return await checks_by_name(path)


@pytest.mark.anyio
async def test_a_guard_that_is_granted_what_is_not_there_guards_nothing_and_is_named(tmp_path: Path) -> None:
    granted = ["mcp:trakcer:*", "mcp:tracker:close_issue", "mcp:off:*", "core:code_mode:exec", "plugin:x:*"]
    found = await plugin_checks(tmp_path, guard={"module": "guard.py", "hooks": granted})
    assert [check.detail for check in found["plugin guard"] if check.status == "warn"] == [
        "'mcp:trakcer:*' in plugins.guard.hooks matches no tool",
        "'plugin:x:*' in plugins.guard.hooks has no effect: its hooks want to see no such calls",
    ]
    assert not (tmp_path / "t").exists() or not (tmp_path / "t").read_text("utf-8"), "a check is not recorded"


@pytest.mark.anyio
async def test_a_plugin_that_is_missing_is_not_taken_for_a_broken_engine(tmp_path: Path) -> None:
    found = await plugin_checks(
        tmp_path, broken={"module": "broken.py", "hooks": ["core:code_mode:exec"]}, torn={"module": "torn.py"}
    )
    (engine,) = found["engine"]
    assert engine.status == "warn"
    assert "plugin 'broken'" in engine.detail
    assert "reinstall" not in engine.advice
    for name, said in (
        ("broken", "ModuleNotFoundError: No module named 'no_such_module_at_all' (broken.py:1)"),
        ("torn", "SyntaxError: '(' was never closed (torn.py, line 1)"),
    ):
        assert [check.detail for check in found[f"plugin {name}"]] == [f"refused: it raised {said}"]


@pytest.mark.anyio
async def test_a_module_that_is_not_installed_is_named_without_a_place_in_python_itself(tmp_path: Path) -> None:
    found = await plugin_checks(tmp_path, gone={"module": "no_such_package_at_all:register"})
    (check,) = found["plugin gone"]
    assert check.detail == "refused: it raised ModuleNotFoundError: No module named 'no_such_package_at_all'"


@pytest.mark.anyio
async def test_setup_has_every_server_list_its_tools_and_keeps_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listings = tmp_path / "listings"
    for place in (
        "codemode_mcp.process.app.app.listings_dir",
        "codemode_mcp.extensions.setup.doctor.checkup.listings_dir",
    ):
        monkeypatch.setattr(place, lambda: listings)
    servers = {"tracker": listing(tmp_path), "down": {"command": "no-such-command-anywhere"}}
    path = tmp_path / "codemode-mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}), "utf-8")
    config = load_config(path, environ={})
    for _ in range(2):
        steps: list[Check] = []
        await make_ahead(config, steps.append, servers=True, check=False)
        found = {step.name: step for step in steps}
        assert found["server tracker"].status == "ok"
        assert found["server tracker"].detail.startswith("6 tools listed in ")
        assert (found["server down"].status, bool(found["server down"].advice)) == ("fail", True)
        assert str(listings) in found["listings"].detail
    assert len(list(listings.glob("*.json"))) == 1, "one for the server that is there, however often"
    assert found["engine"].detail.startswith("compiled already")


HANGING = """
import pathlib, sys
pathlib.Path(sys.argv[1]).write_text("up")
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals and terminals are POSIX")
def test_control_c_ends_it_with_what_was_found_and_a_terminal_is_told_meanwhile(tmp_path: Path) -> None:
    import pty

    (tmp_path / "hanging.py").write_text(HANGING, "utf-8")
    entry = {"command": sys.executable, "args": ["hanging.py", "up"], "cwd": ".", "connectTimeoutMs": 600_000}
    (tmp_path / "codemode-mcp.json").write_text(json.dumps({"mcpServers": {"hangs": entry}}), "utf-8")
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    environment.pop("NO_COLOR", None)
    command = [sys.executable, "-m", "codemode_mcp", "doctor", "--json", "--config", "codemode-mcp.json"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        while b"checking server hangs" not in shown:
            assert select.select([ours], [], [], 30)[0], shown
            shown += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        printed = process.stdout.read()
        assert process.wait(15) == 1
    while True:
        try:
            shown += (more := os.read(ours, 65536))
        except OSError:
            break
        if not more:
            break
    os.close(ours)
    names = [check["name"] for check in json.loads(printed)]
    assert {"config", "engine", "esbuild"} <= set(names)
    assert "server hangs" not in names
    assert b"interrupted; unfinished checks: server hangs" in shown
    assert b"Traceback" not in shown
