"""The bundle for Claude Desktop: checked by its official tool, and started as the host starts it."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from codemode_mcp import __version__
from codemode_mcp.base.paths import cache_dir
from codemode_mcp.process.instance.registry import is_running
from scripts.bundle import main as bundled
from tests.integration.harness import NODE_MODULES, quickstart

ROOT = Path(__file__).parents[1]
MCPB = NODE_MODULES / "@anthropic-ai" / "mcpb"
SECONDS = 120

pytestmark = pytest.mark.skipif(not MCPB.is_dir(), reason="mcpb is not installed: python3 tests/run.py does that")

FILLED_IN = """
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
const [library, folder, home, settings] = process.argv.slice(2);
const { getMcpConfigForManifest } = await import(pathToFileURL(library).href);
const config = await getMcpConfigForManifest({
  manifest: JSON.parse(readFileSync(`${folder}/manifest.json`, "utf-8")),
  extensionPath: folder, systemDirs: { HOME: home }, userConfig: JSON.parse(settings), pathSeparator: "/",
});
console.log(JSON.stringify(config));
"""
"""Makes the command of a bundle by the code that Claude Desktop uses for it."""


def mcpb(*arguments: object) -> str:
    command = ["node", str(MCPB / "dist" / "cli" / "cli.js"), *map(str, arguments)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(wheels: Path, out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "scripts/build_mcpb.py", "--wheels", str(wheels), "--out", str(out), *more]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle with the pure wheel of this tree."""
    folder = tmp_path_factory.mktemp("bundle")
    command = [sys.executable, "scripts/build_wheels.py", "--out", str(folder), "any"]
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, timeout=SECONDS, check=True)
    built = build(folder, folder / "codemode-mcp.mcpb")
    assert built.returncode == 0, built.stderr
    return Path(built.stdout.strip())


@pytest.fixture(scope="module")
def installed(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which a host unpacks the bundle."""
    folder = tmp_path_factory.mktemp("extension")
    mcpb("unpack", bundle, folder)
    return folder


def test_the_official_tool_accepts_the_bundle_and_packs_the_same_files(
    bundle: Path, installed: Path, tmp_path: Path
) -> None:
    assert "validation passes" in mcpb("validate", installed / "manifest.json")
    mcpb("pack", installed, tmp_path / "packed.mcpb")

    def files(path: Path) -> dict[str, bytes]:
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}

    assert files(tmp_path / "packed.mcpb") == files(bundle)
    assert f'"codemode-mcp=={__version__}"' in files(bundle)["pyproject.toml"].decode()
    assert json.loads(files(bundle)["manifest.json"])["version"] == __version__


def test_the_same_wheels_give_the_same_bundle_and_none_give_none(bundle: Path, tmp_path: Path) -> None:
    assert build(bundle.parent, tmp_path / "again.mcpb").returncode == 0
    assert (tmp_path / "again.mcpb").read_bytes() == bundle.read_bytes()
    without = build(tmp_path, tmp_path / "empty.mcpb")
    assert without.returncode == 1
    assert f"{tmp_path} has no wheel of {__version__}; build it: " in without.stderr
    unknown = build(bundle.parent, tmp_path / "empty.mcpb", "--registry", str(tmp_path / "server.json"))
    assert (unknown.returncode, unknown.stderr) == (
        1,
        "server.json names no repository: scripts/release.py writes it\n",
    )
    assert not (tmp_path / "empty.mcpb").exists()


def test_each_setting_of_the_form_is_passed_and_is_an_option_of_serve() -> None:
    manifest = json.loads((ROOT / "scripts" / "bundle" / "manifest.json").read_text("utf-8"))
    arguments = manifest["server"]["mcp_config"]["args"]
    passed = dict(re.findall(r"^--([a-z-]+)=\$\{user_config\.([a-z_]+)\}$", "\n".join(arguments), re.MULTILINE))
    assert sorted(passed.values()) == sorted(manifest["user_config"])
    assert manifest["server"]["entry_point"] in arguments
    filled = {"config": "/a b/c.json", "ask": "true", "read-only": "true", "context": "team", "record": "/r"}
    assert {*passed} == {*filled}
    settings = bundled.settings_of([f"--{name}={value}" for name, value in filled.items()])
    assert bundled.serve_arguments(settings) == [
        *("serve", "--config=/a b/c.json", "--context=team", "--record=/r", "--read-only")
    ]
    empty = ["--config=", "--context=${user_config.context}", "--read-only=false", "--ask=${user_config.ask_first}"]
    assert bundled.serve_arguments(bundled.settings_of(empty)) == ["serve"]
    # A host may write a switch in another way. It must not be lost.
    assert bundled.serve_arguments(bundled.settings_of(["--read-only=True"])) == ["serve", "--read-only"]


def parameters(installed: Path, home: Path, settings: dict[str, Any]) -> StdioServerParameters:
    """Return the command of the host for the settings that a person has filled in."""
    uv = shutil.which("uv", path=sysconfig.get_path("scripts"))
    if uv is None:
        pytest.skip("uv is not installed here")
    script = home / "filled_in.mjs"
    script.write_text(FILLED_IN, "utf-8")
    command = ["node", str(script), str(MCPB / "dist" / "index.js"), str(installed), str(home), json.dumps(settings)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    config = json.loads(done.stdout)
    assert config["command"] == "uv"
    own = ("PYTHONPATH", "VIRTUAL_ENV", "CODEMODE_MCP_CONFIG")
    environ = {name: value for name, value in os.environ.items() if name not in own}
    environ |= {"HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"), "UV_PYTHON": sys.executable}
    return StdioServerParameters(command=uv, args=config["args"], env={**environ, **config.get("env", {})})


@asynccontextmanager
async def started(installed: Path, home: Path, **settings: Any) -> AsyncIterator[Client]:
    """Start the bundle as Claude Desktop does, and connect to it."""
    stderr = home / "stderr"
    given = parameters(installed, home, settings)
    with stderr.open("w", encoding="utf-8") as errlog, anyio.fail_after(SECONDS):
        try:
            async with Client(stdio_client(given, errlog=errlog), mode="legacy") as client:
                yield client
        except Exception:
            if re.search(r"Failed to fetch|error sending request|dns error", stderr.read_text("utf-8")):
                pytest.skip("uv reaches no package index")
            print(stderr.read_text("utf-8"))
            raise


def instances() -> set[str]:
    """Return the keys of the shared instances of which there are records."""
    return {path.stem for path in (cache_dir() / "instance").glob("*.json")}


@pytest.mark.anyio
async def test_a_person_who_leaves_the_form_as_it_is_shares_an_instance_that_asks(
    installed: Path, tmp_path: Path
) -> None:
    before = instances()  # of other tests
    async with started(installed, tmp_path) as client:
        assert client.server_info.version == __version__
        assert (await client.list_tools()).tools == [], "there are no servers yet"
        assert [is_running(key) for key in instances() - before] == [True]
    (written,) = (tmp_path / "config").rglob("*.json")
    assert json.loads(written.read_text("utf-8")) == {"mcpServers": {}, "tools": {"ask": ["destructive"]}}
    assert stat.S_IMODE(written.stat().st_mode) == 0o600 or sys.platform == "win32"


@pytest.mark.anyio
async def test_the_settings_of_the_form_hold(installed: Path, tmp_path: Path) -> None:
    """Use a configuration in a folder with a space, as on macOS."""
    config, recordings = tmp_path / "My files" / "servers.json", tmp_path / "recordings"
    config.parent.mkdir()
    config.write_text(json.dumps({"mcpServers": quickstart()}), "utf-8")
    chosen = {"configuration_file": str(config), "read_only": True, "recordings_folder": str(recordings)}
    async with started(installed, tmp_path, **chosen) as client:
        listed = (await client.list_tools()).tools
        manifest = json.loads((installed / "manifest.json").read_text("utf-8"))
        assert [tool.name for tool in listed] == [tool["name"] for tool in manifest["tools"]]
        assert listed[0].annotations is not None
        assert listed[0].annotations.read_only_hint is True
        answer = await client.call_tool("exec", {"code": "return Object.keys(MCP)"})
        assert (answer.structured_content or {})["value"] == ["tracker", "reports"]
    assert len([*recordings.iterdir()]) == 1
    assert not (tmp_path / "config").exists(), "a person who names a file has one"
