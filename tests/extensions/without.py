"""The tree without one extension and its tests. `python -m tests.extensions.without NAME` runs the core's tests there.

More words after the name are arguments of pytest. They replace the folders of the core's tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
EXTENSIONS: Final = {
    each.parent.name: each.parent.relative_to(ROOT)
    for pattern in ("codemode_mcp/extensions/*/extension.py", "upstream_clients/*/transport.py")
    for each in sorted(ROOT.glob(pattern))
}
"""The folder of each extension, by its name."""

ALSO: Final[dict[str, tuple[str, ...]]] = {
    "repl": ("tests/integration/test_repl",),
    "findings": ("tests/cli/test_trust", "tests/integration/test_add_command.py"),
    "semantic": ("tests/integration/test_serve_semantic",),
    "program_tools": (
        "tests/integration/test_new_and_test.py",
        "tests/programs/",
        "tests/stores/test_recorded_takeovers.py",
        "tests/integration/test_recordings.py",
    ),
    "setup": (
        "tests/cli/test_completion.py",
        "tests/cli/test_missing_values.py",
        "tests/cli/test_usage.py",
        "tests/integration/test_add_command.py",
        "tests/integration/test_instance_commands.py",
        "tests/openapi/test_api_doctor.py",
        "tests/stores/test_doctor_store.py",
        "tests/test_deep_links.py",
    ),
    "page": ("tests/apps/", "tests/control/test_display.py", "tests/extensions/trace/", "tests/test_first_commands.py"),
    "savings": ("tests/cli/test_missing_values.py",),
    "trace": ("tests/cli/test_completion.py",),
    "openapi": (
        "tests/openapi/",
        "tests/real_apis/",
        "tests/declarations/test_openapi_declarations.py",
        "tests/integration/test_serve_api_changes.py",
        "tests/integration/test_serve_schemas.py",
        "tests/extensions/setup/",
    ),
}
"""Tests of an extension outside its folder, by the name of the extension."""

CORE: Final = (
    *("app", "audit", "calls", "catalog", "cli", "config", "control", "declarations", "exposure", "plugins", "policy"),
    *("program", "recordings", "runs", "sandbox", "saved_programs", "search", "server", "stores", "trust"),
    "upstream_clients",
)
"""Folders with tests of the core's modules."""


def linked(name: str, folder: Path) -> None:
    """Fill a folder with links to the import packages, without an extension."""
    (folder / "declarations").symlink_to(ROOT / "declarations")
    made = [Path("codemode_mcp"), Path("codemode_mcp/extensions"), Path("upstream_clients")]
    for path in made:
        (folder / path).mkdir()
        for each in (ROOT / path).iterdir():
            place = path / each.name
            if place not in (*made, EXTENSIONS.get(name)) and each.name != "__pycache__":
                (folder / place).symlink_to(each)


def environment(folder: Path) -> dict[str, str]:
    """Return the environment in which Python imports our packages from a folder."""
    return {**os.environ, "PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}


def _copied(name: str, folder: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    gone = (f"{EXTENSIONS[name].as_posix()}/", f"tests/extensions/{name}/", *ALSO.get(name, ()))
    for each in filter(None, listed.decode().split("\0")):
        if not each.startswith(gone) and (ROOT / each).is_file():
            (folder / each).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / each, folder / each)
    if (ROOT / "codemode_mcp/_bundled").exists():
        shutil.copytree(ROOT / "codemode_mcp/_bundled", folder / "codemode_mcp/_bundled", dirs_exist_ok=True)


def main() -> int:
    name, *arguments = sys.argv[1:]
    if name not in EXTENSIONS:
        print(f"There is no extension {name!r}; there are {', '.join(EXTENSIONS)}.", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        _copied(name, folder)
        environ = environment(folder)
        lint = Path(sys.executable).with_name("lint-imports")
        contracts = subprocess.run([lint, "--no-cache"], cwd=folder, env=environ, check=False).returncode
        tests = arguments or ["-q", *(f"tests/{each}" for each in CORE)]
        ran = subprocess.run([sys.executable, "-m", "pytest", *tests], cwd=folder, env=environ, check=False).returncode
    return contracts or ran


if __name__ == "__main__":
    sys.exit(main())
