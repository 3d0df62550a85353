"""Packages that are published: contents of the wheels and the sdist, a bare install of a wheel, the container file."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from email.parser import Parser
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import typer
from packaging.metadata import Metadata

from codemode_mcp import __version__
from codemode_mcp.cli import app
from codemode_mcp.program import esbuild_pin, intl_pin
from tests.container_file import CONTAINERFILE, WITH_TELEMETRY, environment, given, instructions

ROOT = Path(__file__).parents[1]
CHECKOUT = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout: no list of tracked files")
PACKAGES = ("codemode_mcp", "upstream_clients", "declarations")
DEMO_SERVERS = ("join.ts", "reports.py", "tracker.py")
KINDS = (".py", ".d.ts", ".schema.json", ".js", ".css", ".html", ".svg", ".wat", ".txt", ".bin", ".toml", "py.typed")
"""Suffixes of the files of packages."""
SECONDS = 120


def build(root: Path, target: str, out: Path, environ: Mapping[str, str] | None = None) -> Path:
    """Build a package of this tree with hatchling, and return its path."""
    done = build_quietly(root, target, out, environ)
    assert done.returncode == 0, done.stdout
    return Path(done.stdout.strip().splitlines()[-1])


def build_quietly(
    root: Path, target: str, out: Path, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    given = {"HATCH_BUILD_NO_HOOKS": "true"} if environ is None else environ
    ours = ("HATCH_BUILD_NO_HOOKS", "CODEMODE_MCP_WHEEL_PLATFORM")
    inherited = {name: value for name, value in os.environ.items() if name not in ours}
    return subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(out)],
        cwd=root,
        env={**inherited, **given},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pure wheel of this tree."""
    return build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, "sdist", tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="session")
def unpacked(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree that a distributor has."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as tar:
        tar.extractall(folder, filter="data")
    (root,) = folder.iterdir()
    return root


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def tags(wheel: Path) -> set[str]:
    (about,) = (data for name, data in contents(wheel).items() if name.endswith(".dist-info/WHEEL"))
    return set(re.findall(r"^Tag: (.*)$", about.decode(), re.MULTILINE))


# wheels


def test_the_wheel_holds_the_three_packages_the_demos_servers_and_nothing_else(wheel: Path) -> None:
    found = [name for name in contents(wheel) if ".dist-info/" not in name]
    files = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and "_bundled" not in path.parts
    }
    assert [name for name in files if not name.endswith(KINDS)] == []
    assert sorted(found) == sorted({*files, *(f"codemode_mcp/demo_servers/{name}" for name in DEMO_SERVERS)})
    for name in (
        *(f"{package}/py.typed" for package in PACKAGES),
        "declarations/guest.d.ts",
        "declarations/configuration.schema.json",
        "codemode_mcp/sandbox/prelude/10_primordials.js",
        "codemode_mcp/catalog/search/word_vectors.bin",
    ):
        assert name in found


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    assert tags(wheel) == {"py3-none-any"}
    about = {name.partition(".dist-info/")[2]: data for name, data in contents(wheel).items() if ".dist-info/" in name}
    assert sorted(about) == ["METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"]
    assert about["entry_points.txt"].decode().split() == [
        *("[console_scripts]", "codemode-mcp", "=", "codemode_mcp.__main__:main"),
        *("[codemode_mcp.plugins]", "redact", "=", "codemode_mcp.catalog.plugins.bundled.redact:register"),
    ]
    # As PyPI does.
    Metadata.from_email(about["METADATA"], validate=True)
    metadata = Parser().parsestr(about["METADATA"].decode())
    assert (metadata["Version"], metadata["License-Expression"]) == (__version__, "MIT")
    assert metadata["Requires-Python"] == ">=3.11"
    assert [each for each in metadata.get_all("Requires-Dist", []) if "@" in each] == [], "an index refuses these"


def test_the_wheel_of_the_sdist_is_the_wheel_of_the_tree(wheel: Path, unpacked: Path, tmp_path: Path) -> None:
    again = build(unpacked, "wheel", tmp_path)
    assert contents(again) == contents(wheel)


# the sdist


@CHECKOUT
def test_the_sdist_holds_every_file_of_the_repository_but_what_runs_it_elsewhere(unpacked: Path) -> None:
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    ours = {name for name in listed.split("\0") if name and (ROOT / name).is_file()}
    there = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    assert sorted(name for name in ours - there if not name.startswith(".ci/")) == []


def test_the_sdist_holds_no_program_and_nothing_that_tools_have_left(unpacked: Path) -> None:
    names = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*")}
    assert [name for name in names if re.search(r"__pycache__|\.pyc$|_bundled|node_modules", name)] == []
    top = {path.name for path in unpacked.iterdir()}
    assert {"pyproject.toml", "PKG-INFO", "LICENSE", "tests", "examples", "docs", "hatch_build.py"} <= top
    assert not top & {".cache", ".venv", ".git", "dist", "build", ".hypothesis"}


# wheels with esbuild


def fake_npm(folder: Path, archives: Mapping[str, bytes]) -> Path:
    """A folder with an `npm` that packs these, by the package's name."""
    packages = folder / "packages"
    for name, data in archives.items():
        target = packages / f"{name}.tgz"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    program = folder / "bin" / "npm"
    program.parent.mkdir()
    # npm pack PACKAGE --pack-destination DIRECTORY
    program.write_text(f'#!/bin/sh\nexec /bin/cp "{packages}/$2.tgz" "$4/package.tgz"\n', "utf-8")
    program.chmod(0o755)
    return program.parent


def archive_of(member: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        info = tarfile.TarInfo(member)
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture
def pinned_to_fakes(unpacked: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A tree whose pins are those of programs we have made up, and the folder of an `npm` that gives them."""
    root = tmp_path / "tree"
    shutil.copytree(unpacked, root)
    pin = root / "codemode_mcp" / "program" / "esbuild_pin.py"
    text = pin.read_text("utf-8")
    archives = {}
    for key, digest in esbuild_pin.INTEGRITY.items():
        member = "package/esbuild.exe" if key.startswith("win32") else "package/bin/esbuild"
        archive = archive_of(member, f"the program of {key}".encode())
        archives[f"@esbuild/{key}@{esbuild_pin.VERSION}"] = archive
        text = text.replace(digest, base64.b64encode(hashlib.sha512(archive).digest()).decode())
    pin.write_text(text, "utf-8")
    # A bundle that is in the tree is not built again.
    bundle = root / "codemode_mcp" / "_bundled" / intl_pin.NAME
    bundle.parent.mkdir()
    bundle.write_bytes(BUNDLE)
    pin = root / "codemode_mcp" / "program" / "intl_pin.py"
    text = pin.read_text("utf-8").replace(intl_pin.SHA256, hashlib.sha256(BUNDLE).hexdigest())
    pin.write_text(text, "utf-8")
    return root, fake_npm(tmp_path / "npm", archives)


BUNDLE = b"the bundle with Intl"


@pytest.mark.skipif(sys.platform == "win32", reason="the npm made up here is a shell script")
def test_a_wheel_of_each_platform_is_built_on_any_and_carries_its_esbuild(
    pinned_to_fakes: tuple[Path, Path], tmp_path: Path
) -> None:
    root, npm = pinned_to_fakes
    for key, name, tag in (
        ("darwin-arm64", "esbuild", "py3-none-macosx_12_0_arm64"),
        ("win32-x64", "esbuild.exe", "py3-none-win_amd64"),
        ("linux-arm64", "esbuild", "py3-none-musllinux_1_1_aarch64"),
    ):
        environ = {"CODEMODE_MCP_WHEEL_PLATFORM": key, "PATH": str(npm)}
        built = build(root, "wheel", tmp_path / "out", environ)
        assert tag in tags(built)
        bundled = {path: data for path, data in contents(built).items() if "_bundled/" in path}
        assert bundled == {
            f"codemode_mcp/_bundled/{name}": f"the program of {key}".encode(),
            "codemode_mcp/_bundled/intl.js": BUNDLE,
        }
        with zipfile.ZipFile(built) as archive:
            assert archive.getinfo(f"codemode_mcp/_bundled/{name}").external_attr >> 16 & 0o111, "it can be run"
        kept = [path.name for path in (root / "codemode_mcp" / "_bundled").iterdir()]
        assert kept == ["intl.js"], "what another machine runs is not kept in the tree"


@pytest.mark.skipif(sys.platform == "win32", reason="the npm made up here is a shell script")
def test_a_wheel_that_was_asked_for_and_cannot_be_had_is_an_error(
    pinned_to_fakes: tuple[Path, Path], tmp_path: Path
) -> None:
    root, npm = pinned_to_fakes
    wrong = build_quietly(root, "wheel", tmp_path / "out", {"CODEMODE_MCP_WHEEL_PLATFORM": "beos", "PATH": str(npm)})
    assert wrong.returncode == 1
    assert "it can be linux-x64, linux-arm64," in wrong.stdout
    (npm.parent / "packages" / "@esbuild" / f"win32-x64@{esbuild_pin.VERSION}.tgz").write_bytes(b"something else")
    environ = {"CODEMODE_MCP_WHEEL_PLATFORM": "win32-x64", "PATH": str(npm)}
    forged = build_quietly(root, "wheel", tmp_path / "out", environ)
    assert forged.returncode == 1
    assert "is not the pinned content" in forged.stdout
    assert not list((tmp_path / "out").glob("*.whl"))


@pytest.mark.skipif(sys.platform == "win32", reason="the npm made up here is a shell script")
def test_the_hook_leaves_nothing_behind_and_a_checkout_is_for_the_machine_it_is_on(
    pinned_to_fakes: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, npm = pinned_to_fakes
    spec = importlib.util.spec_from_file_location("hatch_build", root / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setenv("CODEMODE_MCP_WHEEL_PLATFORM", "win32-arm64")
    monkeypatch.setenv("PATH", str(npm))
    hook = module.BundleHook(str(root), {}, None, None, str(tmp_path), "wheel")
    wheel: dict[str, Any] = {"force_include": {}}
    hook.initialize("standard", wheel)
    carried, bundle = map(Path, wheel["force_include"])
    assert carried.is_file()
    hook.finalize("standard", wheel, "")
    assert not carried.parent.exists()
    assert bundle.read_bytes() == BUNDLE
    editable: dict[str, Any] = {"force_include": {}}
    hook.initialize("editable", editable)
    assert editable == {"force_include": {}}


@pytest.mark.skipif(sys.platform == "win32", reason="the npm made up here is a shell script")
def test_a_wheel_that_was_asked_for_without_the_packages_of_intl_is_an_error(
    pinned_to_fakes: tuple[Path, Path], tmp_path: Path
) -> None:
    root, npm = pinned_to_fakes
    (root / "codemode_mcp" / "_bundled" / intl_pin.NAME).write_bytes(b"of another version")
    environ = {"CODEMODE_MCP_WHEEL_PLATFORM": "win32-x64", "PATH": str(npm)}
    done = build_quietly(root, "wheel", tmp_path / "out", environ)
    assert done.returncode == 1
    assert "No wheel for win32-x64: npm cannot get @formatjs/intl-numberformat@" in done.stdout


def test_without_npm_the_wheel_is_the_pure_one_and_the_build_says_so(unpacked: Path, tmp_path: Path) -> None:
    done = build_quietly(unpacked, "wheel", tmp_path, {"PATH": str(tmp_path)})
    assert done.returncode == 0, done.stdout
    assert "will not contain esbuild and Intl: npm is not installed" in done.stdout
    (built,) = tmp_path.glob("*.whl")
    assert tags(built) == {"py3-none-any"}


# installed


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts' folder of an environment with the wheel and what it depends on, and without this tree.

    The dependencies are those of the environment that the tests run in, where they are installed already: a `.pth` adds
    its packages, but does not read the `.pth` there that adds this tree.
    """
    folder = tmp_path_factory.mktemp("installed")
    # A link to the interpreter, not to its environment.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=SECONDS)
    scripts = folder / ("Scripts" if os.name == "nt" else "bin")
    python = str(scripts / "python")
    flags = ("--no-deps", "--no-index", "--quiet", "--disable-pip-version-check")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", *flags, str(wheel)]
    subprocess.run(pip, check=True, timeout=SECONDS)
    where = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = Path(subprocess.run(where, capture_output=True, text=True, check=True).stdout.strip())
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n", "utf-8")
    return scripts


def alone(scripts: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of the environment as on a machine with nothing else: without Node and folders of a user."""
    kept = ("SYSTEMROOT", "TMPDIR", "TEMP")
    environ = {name: os.environ[name] for name in kept if name in os.environ}
    environ |= {"PATH": str(scripts), "HOME": str(cwd), "USERPROFILE": str(cwd), "PYTHONUTF8": "1"}
    return subprocess.run(
        [str(scripts / arguments[0]), *arguments[1:]],
        cwd=cwd,
        env=environ,
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
        check=False,
    )


def test_the_wheel_alone_runs_the_demo_where_there_is_no_node(installed: Path, tmp_path: Path) -> None:
    names = "', '".join(PACKAGES)
    asked = f"import importlib as i, json; print(json.dumps([i.import_module(n).__file__ for n in ['{names}']]))"
    files = json.loads(alone(installed, "python", "-c", asked, cwd=tmp_path).stdout)
    assert all(Path(file).is_relative_to(installed.parent) for file in files), "else this proves nothing"
    demo = alone(installed, "codemode-mcp", "demo", cwd=tmp_path)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert demo.stderr == ""
    assert "TypeScript needs esbuild, which is not installed" in demo.stdout
    assert "All of it worked, except TypeScript." in demo.stdout
    assert "codemode-mcp setup" in demo.stdout.splitlines()[-1]


@pytest.fixture
def index(wheel: Path, sdist: Path, tmp_path: Path) -> Iterator[str]:
    """The address of a package index that has nothing else than what this tree builds."""
    packages = tmp_path / "simple" / "codemode-mcp"
    packages.mkdir(parents=True)
    for built in (wheel, sdist):
        shutil.copy(built, packages)
    handler = partial(QuietHandler, directory=str(packages.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        serving.join()


class QuietHandler(SimpleHTTPRequestHandler):
    """A handler that lists folders, in the form that installers read, and logs nothing."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
        pass


def test_uvx_runs_the_package_of_an_index_and_a_client_is_greeted(index: str, tmp_path: Path) -> None:
    uv = shutil.which("uv", path=sysconfig.get_path("scripts"))
    if uv is None:
        pytest.skip("uv is not installed here")
    # The other packages are not in this index, so they come from the one that uv has.
    options = ["--index", index, "--no-config", "--no-build", "--python", sys.executable]
    home = {
        **os.environ,
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path),
        "UV_TOOL_DIR": str(tmp_path / "tools"),
    }

    def uvx(*command: str, sent: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [uv, "tool", "run", *options, "codemode-mcp", *command],
            cwd=tmp_path,
            env=home,
            input=sent,
            capture_output=True,
            encoding="utf-8",
            timeout=SECONDS,
            check=False,
        )

    shown = uvx("--version")
    if shown.returncode != 0 and re.search(r"Failed to fetch|error sending request|dns error|timed out", shown.stderr):
        pytest.skip("uv reaches no package index")
    assert (shown.returncode, shown.stdout.strip()) == (0, __version__), shown.stderr
    me = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": me}
    served = uvx("serve", "--private", sent=json.dumps(hello) + "\n")
    (answer,) = map(json.loads, served.stdout.splitlines())
    assert answer["result"]["serverInfo"]["version"] == __version__, served.stderr


@pytest.mark.skipif(not os.environ.get("CLEAN_INSTALL"), reason="a minute; CLEAN_INSTALL=1 runs it")
def test_the_wheel_installs_in_a_clean_environment_and_by_pipx(wheel: Path, tmp_path: Path) -> None:
    clean = tmp_path / "clean"
    subprocess.run([sys.executable, "-m", "venv", str(clean)], check=True, timeout=SECONDS)
    scripts = clean / ("Scripts" if os.name == "nt" else "bin")
    pip = [str(scripts / "python"), "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
    subprocess.run([*pip, str(wheel)], check=True, timeout=5 * SECONDS)
    assert alone(scripts, "codemode-mcp", "demo", cwd=tmp_path).returncode == 0
    subprocess.run([*pip, "pipx"], check=True, timeout=SECONDS)
    environ = {**os.environ, "PIPX_HOME": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(tmp_path / "bin")}
    installing = [str(scripts / "pipx"), "install", str(wheel)]
    subprocess.run(installing, env=environ, check=True, timeout=5 * SECONDS, capture_output=True)
    assert alone(tmp_path / "bin", "codemode-mcp", "demo", cwd=tmp_path).returncode == 0


# the container file


@pytest.mark.parametrize("path", [CONTAINERFILE, WITH_TELEMETRY], ids=lambda path: path.name)
def test_the_linter_finds_nothing_in_a_container_file(path: Path) -> None:
    hadolint = shutil.which("hadolint", path=sysconfig.get_path("scripts"))
    if hadolint is None:
        pytest.skip("there is no wheel of hadolint for this system")
    command = [hadolint, "--no-color", "--failure-threshold", "style", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_has_a_base_with_a_tag_a_user_of_its_own_and_no_network_but_pips() -> None:
    assert all(re.fullmatch(r"python:3\.\d+-slim-\w+( AS build)?", each) for each in given("FROM"))
    assert len(given("FROM")) == 2
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", given("USER")[-1])
    names = [name for name, _ in instructions()]
    assert names.index("USER") < names.index("ENTRYPOINT")
    for command in given("RUN"):
        assert not re.search(r"\b(curl|wget|apt|apt-get|apk|git|npm|npx|sh -c)\b", command)
    assert "ADD" not in names, "it fetches and unpacks"
    assert not [each for each in given("ENV") + given("ARG") if re.search(r"TOKEN|SECRET|PASSWORD|API_KEY", each)]


def test_what_the_image_copies_is_let_through_by_the_ignore_file_and_is_what_a_build_makes(wheel: Path) -> None:
    sources = [each.split()[0] for each in given("COPY") if not each.startswith("--from=")]
    assert sources == ["dist/*.whl"]
    ignored = [line for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if not line.startswith("#")]
    assert ignored == ["*", *(f"!{source}" for source in sources)]
    assert Path("dist", wheel.name).match(sources[0])
    help_text = subprocess.run(
        [sys.executable, "scripts/build_wheels.py", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "default: dist" in help_text


def test_the_images_command_is_one_of_the_command_line_and_its_check_asks_where_that_listens() -> None:
    program, *first = json.loads(given("ENTRYPOINT")[-1])
    assert (program, first) == ("codemode-mcp", [])
    arguments = json.loads(given("CMD")[-1])
    with typer.main.get_command(app).make_context(program, list(arguments)) as context:
        name, command, rest = context.command.resolve_command(context, arguments)  # type: ignore[attr-defined]
        assert name == "serve"
        with command.make_context(name, rest, parent=context) as parsed:
            port = parsed.params["port"]
            assert (parsed.params["transport"], parsed.params["host"]) == ("http", "0.0.0.0")
            assert not parsed.params["allow_unauthenticated"], "without authentication it must not start"
    assert given("EXPOSE") == [str(port)]
    (check,) = given("HEALTHCHECK")
    assert f"http://127.0.0.1:{port}/healthz" in check
    (volumes,) = given("VOLUME")
    environ = environment()
    folders = {environ[f"XDG_{kind}_HOME"] for kind in ("CACHE", "DATA", "STATE")}
    kept = {*folders, str(Path(environ["CODEMODE_MCP_CONFIG"]).parent)}
    assert kept == set(json.loads(volumes))


def test_the_image_with_telemetry_starts_the_same_command_as_the_same_user() -> None:
    for name in ("CMD", "USER"):
        assert given(name, WITH_TELEMETRY)[-1] == given(name)[-1]
    program, *command = json.loads(given("ENTRYPOINT", WITH_TELEMETRY)[-1])
    assert (program, command) == ("opentelemetry-instrument", json.loads(given("ENTRYPOINT")[-1]))
    environ = dict(each.split("=", 1) for each in given("ENV", WITH_TELEMETRY)[-1].split())
    assert [environ["OTEL_EXPORTER_PROMETHEUS_PORT"]] == given("EXPOSE", WITH_TELEMETRY)


def test_the_checks_command_is_true_python() -> None:
    (check,) = given("HEALTHCHECK")
    program = json.loads(check.partition("CMD ")[2])
    assert program[:2] == ["python", "-c"]
    compile(program[2], "HEALTHCHECK", "exec")
