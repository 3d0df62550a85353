"""The first command of every page, run in the environment that the page has set up before.

One environment is shared: a clone of this repository with a `.venv` that has the wheel of this tree, as the README
makes it. Every page has a home folder of its own. What cannot be run here is in `NOT_RUN` with the reason.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[1]
SECONDS: Final = 180
NODE_MODULES: Final = ROOT / ".cache" / "node" / "node_modules"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the pages show a shell")

INSTALLATIONS: Final = {
    "python3 -m venv .venv && .venv/bin/pip install --quiet .": "an index has the dependencies",
    "pipx install .": "an index has the dependencies",
    "pipx install WHEEL": "an index has the dependencies",
    ".venv/bin/pip install hatchling": "an index has it",
}
"""Commands that the shared environment stands for, with the reason why they are not run."""

NOT_RUN: Final = {
    "docs/checking.md": "it downloads the compiler of TypeScript, which `tests/run.py` has done",
    "CONTRIBUTING.md": "runs the tests, this one among them",
    "docs/deployment.md": "needs a PostgreSQL and an authorization server; tests/stores and tests/login have these",
    "docs/logins.md": "needs a browser and an authorization server; tests/login has these",
    "docs/page.md": "opens a browser; tests/extensions/page has one",
    "docs/policy.md": "names tools of a server that is not here; tests/cli/test_policy_command.py has another one",
    "docs/servers.md": "needs a process that serves; tests/integration/test_servers_command.py has one",
    "docs/trust.md": "names a tool of a server that is not here; tests/integration/test_trust_commands.py has others",
    "docs/programs.md": "installs the extra from an index",
    "examples/plugin/README.md": "its build backend comes from an index; tests/plugins load it from its folder",
}
"""Pages whose first command is not run at all."""

RUN_ELSEWHERE: Final = ("approval", "long_running", "many_servers", "openapi", "quickstart")
"""Examples: tests/examples/test_readmes.py runs their commands and compares what they print."""

TRACKER: Final = "examples/quickstart/tracker.py"


class Machine:
    """A clone with the product, and one home folder."""

    def __init__(self, clone: Path, home: Path, cache: Path) -> None:
        self.clone = clone
        self.home = home
        self.cache = cache
        home.mkdir(parents=True)

    def run(self, command: str, *path: Path) -> str:
        """Run a line of a page in the clone. Return what it prints; fail unless it exits with 0."""
        done = self.attempt(command, *path)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    def attempt(self, command: str, *path: Path) -> subprocess.CompletedProcess[str]:
        folders = [*path, self.clone / ".venv" / "bin"]
        environ = {
            "PATH": os.pathsep.join([*map(str, folders), os.environ["PATH"]]),
            "HOME": str(self.home),
            "XDG_CACHE_HOME": str(self.cache),
            "XDG_RUNTIME_DIR": os.environ["XDG_RUNTIME_DIR"],
            "LANG": "C.UTF-8",
        }
        return subprocess.run(
            ["sh", "-c", command],
            cwd=self.clone,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=SECONDS,
            check=False,
        )

    def write(self, name: str, text: str) -> None:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def configure(self) -> None:
        """Write the configuration that the pages take for granted: one server."""
        self.write(".config/codemode-mcp/codemode-mcp.json", json.dumps({"mcpServers": {"tracker": self.entry()}}))

    def entry(self) -> dict[str, Any]:
        return {"command": sys.executable, "args": [str(ROOT / TRACKER)]}


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of this repository after the installation that the README shows.

    No index is asked: the wheel is that of this tree, and its dependencies are those of the environment of the tests.
    """
    folder = tmp_path_factory.mktemp("clone")
    for each in ROOT.iterdir():
        if each.name not in (".venv", ".cache", ".git", "build", "dist", "scripts"):
            (folder / each.name).symlink_to(each)
    shutil.copytree(ROOT / "scripts", folder / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder / "dist")],
        cwd=ROOT,
        env={**os.environ, "HATCH_BUILD_NO_HOOKS": "true"},
        capture_output=True,
        check=True,
    )
    (wheel,) = (folder / "dist").glob("*.whl")
    venv = folder / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    python = str(venv / "bin" / "python")
    arguments = ["pip", "install", "--quiet", "--offline", "--no-deps", "--python", python, str(wheel)]
    subprocess.run([sys.executable, "-m", "uv", *arguments], cwd=ROOT, check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    (here,) = {path for path in sys.path if path.endswith("site-packages")}
    (packages / "dependencies.pth").write_text(here + "\n", "utf-8")
    bundled = ROOT / "codemode_mcp" / "_bundled"
    if bundled.is_dir():  # what the wheel of a platform has
        shutil.copytree(bundled, packages / "codemode_mcp" / "_bundled")
    return folder


@pytest.fixture
def machine(clone: Path, tmp_path: Path) -> Machine:
    return Machine(clone, tmp_path / "home", Path(os.environ["XDG_CACHE_HOME"]))


def shell_blocks(page: str) -> list[list[str]]:
    """Return the commands of each block of a page that a shell runs."""
    text = (ROOT / page).read_text("utf-8")
    found = re.findall(r"^( *)```(?:sh|console)[ ]*\n(.*?)^\1```[ ]*$", text, re.DOTALL | re.MULTILINE)
    return [block.replace("\\\n", " ").splitlines() for _, block in found]


def first(page: str, *, installed: str | None = None) -> str:
    """Return the first command of a page that comes after its installation."""
    lines = [line.strip() for block in shell_blocks(page) for line in block if line.strip()]
    if installed is not None:
        assert installed in INSTALLATIONS
        assert lines[0].startswith(installed), "the page begins with another command"
        rest = lines[0].removeprefix(installed).removeprefix(" && ")
        lines = [rest, *lines[1:]] if rest else lines[1:]
    return lines[0]


PAGES: Final = [
    page.relative_to(ROOT).as_posix()
    for page in (*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md")), *ROOT.glob("examples/*/README.md"))
    if page.parent.name != "reference"
]

CLIENTS: Final = {
    "claude-code": (".claude.json", "mcpServers"),
    "claude-desktop": (".config/Claude/claude_desktop_config.json", "mcpServers"),
    "codex": (".codex/config.toml", ""),
    "copilot-cli": (".copilot/mcp-config.json", "mcpServers"),
    "cursor": (".cursor/mcp.json", "mcpServers"),
    "gemini-cli": (".gemini/settings.json", "mcpServers"),
    "goose": (".config/goose/config.yaml", ""),
    "opencode": (".config/opencode/opencode.json", "mcp"),
    "qwen-code": (".qwen/settings.json", "mcpServers"),
    "vscode": (".config/Code/User/mcp.json", "servers"),
    "windsurf": (".codeium/windsurf/mcp_config.json", "mcpServers"),
    "zed": (".config/zed/settings.json", "context_servers"),
}
"""The file of each client on Linux, and the key of its servers."""


def of_a_client(client: str, entry: dict[str, Any]) -> str:
    """Return the file of a user who has one server in a client."""
    command, args = entry["command"], entry["args"]
    if client == "codex":
        return f"[mcp_servers.tracker]\ncommand = {json.dumps(command)}\nargs = {json.dumps(args)}\n"
    if client == "goose":
        return (
            "extensions:\n  tracker:\n    enabled: true\n    name: tracker\n    type: stdio\n"
            f"    cmd: {command}\n    args: {json.dumps(args)}\n"
        )
    if client == "opencode":
        entry = {"type": "local", "command": [command, *args], "enabled": True}
    return json.dumps({CLIENTS[client][1]: {"tracker": entry}})


@pytest.mark.skipif(sys.platform != "linux", reason="the files of clients are elsewhere on other systems")
@pytest.mark.parametrize("client", CLIENTS)
def test_the_first_command_after_the_installation_of_a_quick_start_moves_the_servers(
    machine: Machine, client: str
) -> None:
    file, _ = CLIENTS[client]
    machine.write(file, of_a_client(client, machine.entry()))
    command = first(f"docs/quickstart/{client}.md", installed="pipx install .")
    assert command == f"codemode-mcp install --client {client} --move-servers"
    assert "has this server now" in machine.run(command)
    moved = json.loads((machine.home / ".config/codemode-mcp/codemode-mcp.json").read_text("utf-8"))
    assert [*moved["mcpServers"]] == ["tracker"]


def test_the_first_command_of_the_readme_shows_the_demo(machine: Machine) -> None:
    installed = "python3 -m venv .venv && .venv/bin/pip install --quiet ."
    command = first("README.md", installed=installed)
    assert command == ".venv/bin/codemode-mcp demo"
    assert "suspended" in machine.run(command)
    assert machine.run(".venv/bin/codemode-mcp runs list").startswith("no runs: no codemode-mcp serve"), (
        "its runs are not the user's"
    )


@pytest.mark.skipif(
    not NODE_MODULES.is_dir(), reason="the npm servers are not installed: python3 tests/run.py does that"
)
def test_the_configuration_of_the_readme_passes_doctor(machine: Machine, tmp_path: Path) -> None:
    """Replace `npx`, which asks a registry, by a program that starts the same packages, pinned by tests/run.py."""
    readme = (ROOT / "README.md").read_text("utf-8")
    (configuration,) = re.findall(r"```jsonc\n(.*?)```", readme, re.DOTALL)
    shim = tmp_path / "bin" / "npx"
    shim.parent.mkdir()
    shim.write_text(
        f'#!/bin/sh\npackage=$2\nshift 2\nexec node "{NODE_MODULES}/$package/dist/index.js" "$@"\n', "utf-8"
    )
    shim.chmod(0o755)
    machine.write("codemode-mcp.json", configuration)
    folder, command = re.findall(r"`(mkdir -p [^`]*|codemode-mcp doctor --config [^`]*)`", readme)[:2]
    machine.run(folder)
    text = machine.run(f"cd && {command}", shim.parent)
    assert "server files" in text
    assert "server memory" in text
    assert "fail " not in text


def test_the_first_command_of_the_start_page_shows_the_demo() -> None:
    """The README's test runs it."""
    assert first("docs/index.md", installed="pipx install .") == "codemode-mcp demo"


def test_the_first_command_of_the_page_on_installing_builds_wheels(machine: Machine) -> None:
    """Return the wheel that needs nothing from npm."""
    command = first("docs/install.md", installed=".venv/bin/pip install hatchling")
    assert command == ".venv/bin/python scripts/build_wheels.py"
    assert "py3-none-any.whl" in machine.run(f"{command} --out {machine.home} any")


def test_without_hatchling_the_command_that_builds_wheels_says_what_to_install(machine: Machine) -> None:
    done = machine.attempt(".venv/bin/python -S scripts/build_wheels.py any")
    assert done.returncode == 1
    assert "hatchling is missing: " in done.stderr
    assert "-m pip install hatchling" in done.stderr
    assert "Traceback" not in done.stderr


WITH_A_SERVER: Final = {
    "docs/doctor.md": ("codemode-mcp doctor", "server tracker: 6 tools"),
    "docs/editor.md": ("codemode-mcp types --out cells", "mcp/tracker.d.ts"),
    "docs/instance.md": ("codemode-mcp instance status", "No shared instance runs"),
    "docs/recordings.md": ("codemode-mcp run -e ", "hello"),
    "docs/repl.md": ("printf ", '["tracker"]'),
    # A demo of another test may serve meanwhile: all processes of a user are listed.
    "docs/runs.md": ("codemode-mcp runs list", "no runs"),
    "docs/run.md": ("codemode-mcp run -e 'return (await MCP.$api()).servers'", '"identifier": "tracker"'),
    "docs/saved-programs.md": ("codemode-mcp programs list", "there are no saved programs in"),
    "docs/savings.md": ("codemode-mcp savings", "tracker"),
    "docs/testing-programs.md": ("codemode-mcp new loads --from", "loads.ts is written Its parameters"),
}
"""Pages of a user who has a configuration: how the first command begins, and what it prints."""


@pytest.mark.parametrize("page", WITH_A_SERVER)
def test_the_first_command_of_a_page_works_with_a_configured_server(machine: Machine, page: str) -> None:
    machine.configure()
    beginning, printed = WITH_A_SERVER[page]
    command = first(page)
    assert command.startswith(beginning)
    command = command.replace("--out cells", f"--out {machine.home / 'cells'}")
    command = command.replace("hello.jsonl", str(machine.home / "hello.jsonl"))
    text = machine.run(command)
    assert printed in re.sub(r"\s+", " ", text.replace("'", '"'))


def test_the_first_command_of_the_page_on_clients_shows_what_it_would_import(machine: Machine) -> None:
    machine.write(CLIENTS["cursor"][0], of_a_client("cursor", machine.entry()))
    command = first("docs/clients.md")
    assert command == "codemode-mcp import"
    assert "tracker" in machine.run(command)


def test_every_page_with_a_command_is_run_or_has_a_reason() -> None:
    known = {
        "README.md",
        "docs/index.md",
        "docs/install.md",
        "docs/clients.md",
        *(f"docs/quickstart/{client}.md" for client in CLIENTS),
        *WITH_A_SERVER,
        *NOT_RUN,
        *(f"examples/{name}/README.md" for name in RUN_ELSEWHERE),
    }
    assert {page for page in PAGES if shell_blocks(page)} == known
