"""Build hook: puts the pinned esbuild into the wheel, where npm can fetch it.

TypeScript is the only thing that needs it, and `codemode-mcp setup` gets it later as well, so a build without npm or
without a network gives the same wheel without it: pure, for any platform. Setting `HATCH_BUILD_NO_HOOKS=true` builds
that wheel on purpose. `CODEMODE_MCP_WHEEL_PLATFORM=darwin-arm64` (any key of `WHEEL_PLATFORMS`) builds the wheel of
that platform, on whatever machine, or fails. An editable install fetches too, once, so that a checkout has what its
tests need.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

if TYPE_CHECKING:
    from types import ModuleType

# esbuild is one static executable: on Linux it needs no C library, so both kinds of tag are true.
WHEEL_PLATFORMS = {
    "linux-x64": "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64",
    "linux-arm64": "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64",
    "darwin-x64": "macosx_12_0_x86_64",
    "darwin-arm64": "macosx_12_0_arm64",
    "win32-x64": "win_amd64",
    "win32-arm64": "win_arm64",
}
PLATFORM_VARIABLE = "CODEMODE_MCP_WHEEL_PLATFORM"


class EsbuildHook(BuildHookInterface[Any]):
    """Registered for the wheel target only; an sdist carries no binary."""

    _fetched: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        pin = _load_pin(Path(self.root))
        asked = os.environ.get(PLATFORM_VARIABLE)
        if asked and version == "standard":
            binary = self._fetch_for(asked, pin)
            _carry(build_data, asked, binary)
            return
        key = pin.platform_key()
        if key is None:
            return
        binary = Path(self.root) / "codemode_mcp" / "_bundled" / pin.executable_name()
        if not _is_pinned(binary, pin.VERSION):
            binary.unlink(missing_ok=True)
            try:
                pin.fetch(binary)
            except pin.FetchError as error:
                self.app.display_warning(f"The wheel will not contain esbuild: {error}")
                return
        if version == "standard":
            _carry(build_data, key, binary)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._fetched is not None:
            self._fetched.cleanup()

    def _fetch_for(self, key: str, pin: ModuleType) -> Path:
        """Return the esbuild of a platform that need not be this one, which therefore cannot be asked for its
        version."""
        if key not in WHEEL_PLATFORMS:
            self.app.abort(f"{PLATFORM_VARIABLE} is {key!r}; it can be {', '.join(WHEEL_PLATFORMS)}")
        self._fetched = tempfile.TemporaryDirectory(prefix="codemode-mcp-")
        binary: Path = Path(self._fetched.name) / pin.executable_name(key)
        try:
            pin.fetch(binary, platform_name=key)
        except pin.FetchError as error:
            self._fetched.cleanup()
            self.app.abort(f"No wheel for {key}: {error}")
        return binary


def _carry(build_data: dict[str, Any], key: str, binary: Path) -> None:
    build_data["pure_python"] = False
    build_data["tag"] = f"py3-none-{WHEEL_PLATFORMS[key]}"
    build_data["force_include"][str(binary)] = f"codemode_mcp/_bundled/{binary.name}"


def _load_pin(root: Path) -> ModuleType:
    """Load the pins of this source tree. They and what they import need only the standard library."""
    path = root / "codemode_mcp" / "program" / "esbuild_pin.py"
    spec = importlib.util.spec_from_file_location("esbuild_pin", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is missing")
    module = importlib.util.module_from_spec(spec)
    # A build environment has neither this package nor its dependencies.
    sys.path.insert(0, str(root))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(root))
    return module


def _is_pinned(binary: Path, version: str) -> bool:
    try:
        done = subprocess.run([str(binary), "--version"], capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.stdout.decode("utf-8", "replace").strip() == version
