"""Build hook: puts the pinned esbuild into the wheel, where npm can fetch it.

TypeScript is the only thing that needs it, and `codemode-mcp setup` gets it later as well, so a build without npm or
without a network gives the same wheel without it: pure, for any platform. Setting `HATCH_BUILD_NO_HOOKS=true` builds
that wheel on purpose. An editable install fetches too, once, so that a checkout has what its tests need.
"""

from __future__ import annotations

import importlib.util
import subprocess
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


class EsbuildHook(BuildHookInterface[Any]):
    """Registered for the wheel target only; an sdist carries no binary."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        pin = _load_pin(Path(self.root))
        key = pin.platform_key()
        if key is None:
            return
        binary = Path(self.root) / "codemode_mcp" / "_bundled" / pin.executable_name()
        if not _is_pinned(binary, pin.VERSION):
            binary.unlink(missing_ok=True)
            try:
                pin.fetch(binary)
            except pin.EsbuildFetchError as error:
                self.app.display_warning(f"The wheel will not contain esbuild: {error}")
                return
        if version == "standard":
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{WHEEL_PLATFORMS[key]}"
            build_data["artifacts"].append(f"codemode_mcp/_bundled/{binary.name}")


def _load_pin(root: Path) -> ModuleType:
    """By path: importing the package would need its dependencies, which a build environment has not."""
    spec = importlib.util.spec_from_file_location("esbuild_pin", root / "codemode_mcp" / "esbuild_pin.py")
    if spec is None or spec.loader is None:
        raise ImportError("codemode_mcp/esbuild_pin.py is missing")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _is_pinned(binary: Path, version: str) -> bool:
    try:
        done = subprocess.run([str(binary), "--version"], capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.stdout.decode("utf-8", "replace").strip() == version
