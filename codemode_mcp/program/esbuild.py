"""The esbuild binary that transforms TypeScript: finds it, or fetches the pinned one."""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from codemode_mcp.base.errors import RuntimeUnavailable
from codemode_mcp.program import esbuild_pin
from codemode_mcp.program.npm_package import FetchError, why_untrusted
from upstream_clients.environment import find_executable
from upstream_clients.private_files import exposure

_BUNDLED = Path(__file__).parents[1] / "_bundled" / esbuild_pin.executable_name()
_FAMILY = esbuild_pin.VERSION.rpartition(".")[0]


def find_esbuild(configured: str | None, *, environ: Mapping[str, str], cache_dir: Path) -> Path:
    """Return the path of the first usable esbuild: configured, bundled, on `PATH`, or in the user's cache.

    A configured binary only has to run. One on `PATH` must have the pinned major and minor version, since esbuild
    changes its behaviour between minor versions before 1.0. The bundled one is a part of the installation. The cached
    one must be the pinned executable, in a folder that no other user can write to.

    Raises:
        RuntimeUnavailable: no usable binary was found. The message lists the places and says how to get one.
    """
    if configured is not None:
        path = Path(configured).expanduser()
        if version_of(path) is None:
            raise RuntimeUnavailable(f"The configured esbuild, {path}, is missing or does not run.")
        return path
    searched = [f"bundled ({_BUNDLED})"]
    if _BUNDLED.is_file():
        return _BUNDLED
    on_path = find_executable("esbuild", environ.get("PATH", ""))
    version = version_of(Path(on_path)) if on_path is not None else None
    if on_path is not None and version is not None and version.rpartition(".")[0] == _FAMILY:
        return Path(on_path)
    searched.append(f"PATH ({on_path} is {version or 'unusable'}, not {_FAMILY}.x)" if on_path else "PATH")
    cached = _cached(cache_dir)
    if cached.is_file():
        pinned = esbuild_pin.EXECUTABLE_SHA256.get(esbuild_pin.platform_key() or "")
        why = why_untrusted(cached, pinned, f"esbuild {esbuild_pin.VERSION}")
        if why is None:
            return cached
        searched.append(f"cache ({cached} is not used: {why})")
    else:
        searched.append(f"cache ({cached})")
    raise RuntimeUnavailable(
        "TypeScript needs esbuild, which was not found. Run `codemode-mcp setup` to fetch it, or write JavaScript. "
        f"Searched: {', '.join(searched)}."
    )


def fetch_esbuild(cache_dir: Path, *, registry: str | None) -> Path:
    """Fetch the pinned esbuild with npm into the user's cache, for `codemode-mcp setup`.

    Raises:
        RuntimeUnavailable: npm is missing or offline, there is no package for this platform, its content is not the
            pinned one, or the cache folder is exposed to other users.
    """
    try:
        why = exposure(cache_dir)
    except OSError as error:
        why = f"{cache_dir} cannot be inspected: {error.strerror}"
    if why is not None:
        raise RuntimeUnavailable(f"esbuild was not fetched, since the cache folder is not safe: {why}.")
    try:
        return esbuild_pin.fetch(_cached(cache_dir), registry=registry)
    except FetchError as error:
        raise RuntimeUnavailable(
            f"Cannot fetch esbuild {esbuild_pin.VERSION}: {error} "
            "It is needed for TypeScript only; `tools.esbuild` can name an existing binary."
        ) from error


def _cached(cache_dir: Path) -> Path:
    # The name has the version, so that an upgrade does not use the earlier binary.
    name = Path(esbuild_pin.executable_name())
    return cache_dir / f"{name.stem}-{esbuild_pin.VERSION}{name.suffix}"


@functools.cache
def version_of(path: Path) -> str | None:
    """Return the version of an esbuild binary; None if it cannot run. Blocks, once for each path."""
    try:
        done = subprocess.run(
            [str(path), "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = done.stdout.decode("utf-8", "replace").strip()
    return version if done.returncode == 0 and re.fullmatch(r"\d+\.\d+\.\d+\S*", version) else None
