"""Build hook: puts the pinned esbuild and the bundle with `Intl` into the wheel, where npm can fetch them.

TypeScript is the only thing that needs esbuild, and programs with `Intl` the only ones that need the bundle.
`codemode-mcp setup` gets both later as well, so a build without npm or without a network gives the same wheel without
them: pure, for any platform. Setting `HATCH_BUILD_NO_HOOKS=true` builds
that wheel on purpose. `CODEMODE_MCP_WHEEL_PLATFORM=darwin-arm64` (any key of `WHEEL_PLATFORMS`) builds the wheel of
that platform, on whatever machine, or fails. An editable install fetches too, once, so that a checkout has what its
tests need.
"""

from __future__ import annotations

import hashlib
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


class BundleHook(BuildHookInterface[Any]):
    """Registered for the wheel target only; an sdist carries neither."""

    _fetched: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        pin, intl = _load_pin(Path(self.root), "esbuild_pin"), _load_pin(Path(self.root), "intl_pin")
        asked = os.environ.get(PLATFORM_VARIABLE)
        if asked and version == "standard":
            binary = self._fetch_for(asked, pin)
            try:
                bundle = self._bundle(pin, intl)
            except intl.FetchError as error:
                self.app.abort(f"No wheel for {asked}: {error}")
            _carry(build_data, asked, binary)
            _add(build_data, bundle)
            return
        key = pin.platform_key()
        if key is None:
            return
        try:
            binary = self._esbuild(pin)
        except pin.FetchError as error:
            self.app.display_warning(f"The wheel will not contain esbuild and Intl: {error}")
            return
        if version == "standard":
            _carry(build_data, key, binary)
        try:
            bundle = self._bundle(pin, intl)
        except intl.FetchError as error:
            self.app.display_warning(f"The wheel will not contain Intl: {error}")
            return
        if version == "standard":
            _add(build_data, bundle)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._fetched is not None:
            self._fetched.cleanup()

    def _esbuild(self, pin: ModuleType) -> Path:
        """Return the pinned esbuild of this machine, fetched if it is not in the tree."""
        binary = Path(self.root) / "codemode_mcp" / "_bundled" / pin.executable_name()
        if not _is_pinned(binary, pin.VERSION):
            binary.unlink(missing_ok=True)
            pin.fetch(binary)
        return binary

    def _bundle(self, pin: ModuleType, intl: ModuleType) -> Path:
        """Return the bundle with `Intl`, built if it is not in the tree. It is the same for all platforms."""
        bundle = Path(self.root) / "codemode_mcp" / "_bundled" / str(intl.NAME)
        if not bundle.is_file() or hashlib.sha256(bundle.read_bytes()).hexdigest() != intl.SHA256:
            intl.fetch(bundle, self._esbuild(pin))
        return bundle

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
    _add(build_data, binary)


def _add(build_data: dict[str, Any], file: Path) -> None:
    build_data["force_include"][str(file)] = f"codemode_mcp/_bundled/{file.name}"


def _load_pin(root: Path, name: str) -> ModuleType:
    """Load pins of this source tree. They and what they import need only the standard library."""
    path = root / "codemode_mcp" / "program" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
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
