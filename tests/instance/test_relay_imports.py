"""A client waits for its relay, and each client has one: a relay imports little."""

from __future__ import annotations

import json
import subprocess
import sys

MODULES = ("codemode_mcp.__main__", "codemode_mcp.cli.relaying", "codemode_mcp.process.instance.relay")

HEAVY = {
    *("anyio", "asyncio", "concurrent.futures", "dataclasses", "inspect", "logging", "mcp", "msgspec", "pydantic"),
    *("secrets", "ssl", "subprocess", "typer"),
}
LIGHT = {
    *("upstream_clients", "upstream_clients.private_files", "codemode_mcp", "codemode_mcp.__main__"),
    *(f"codemode_mcp.base{part}" for part in ("", ".config_path", ".errors", ".log_level", ".nesting", ".paths")),
    *(f"codemode_mcp.cli{part}" for part in ("", ".messages", ".relaying")),
    *("codemode_mcp.process", "codemode_mcp.process.app.heap"),
    *("codemode_mcp.server", "codemode_mcp.server.control", "codemode_mcp.server.control.endpoints"),
}
"""Modules outside `instance` that a relay uses."""


def imported() -> set[str]:
    """Return the modules of a process that has imported what a relay needs."""
    program = f"import json, sys, {', '.join(MODULES)}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_a_relay_imports_nothing_heavy() -> None:
    found = imported()
    assert not found & HEAVY
    ours = {name for name in found if name.partition(".")[0] in ("codemode_mcp", "upstream_clients", "declarations")}
    assert {name for name in ours if not name.startswith("codemode_mcp.process.instance")} <= LIGHT
    others = {name.partition(".")[0] for name in found - ours} - sys.stdlib_module_names
    assert others <= {"__main__", "_distutils_hack", "platformdirs"}
