"""The pinned esbuild, fetched from npm's platform package and checked by its integrity hash.

This module imports the standard library only: the build hook loads it by its path, before dependencies are installed.
"""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VERSION = "0.28.2"

INTEGRITY: dict[str, str] = {
    "linux-x64": "4xTZr1FUmSoQW4XIWmit3tzQrUTZM+N3P0XV8xROKYF50XfI7xeO90+1bZvNwxIufQ9hDQVRJH5YhgPVF8A/HQ==",
    "linux-arm64": "pW4AC0P3it8c7do9MVM4p51FzHzdM/TZrerurgRcHJ2WTa1VQ1CIq18xncfpBJw4ojkiZZrKW2yIBWBP92j6Ug==",
    "darwin-x64": "uq6suIWYP37qzGddBKPw5QEQPi6HiLGsO7UmkpfyaYNQ3D+rN6w6WfwH+nuqcGXWvawGwxOEroO4YGnFh95azw==",
    "darwin-arm64": "n4KqkOQrraxHJcgjM1RvwbigfQKIKJVpM7xp+KsxiyUSrRdIXnt73VhrPAx0fV44hgfmIVKjxMN9J1t5jySVkw==",
    "win32-x64": "5ebpxr3nWMzrL/rnUI755Jkuee0bHL/Gq0WTF9lvcpv73wAp5eu8MfBUgWK9bhWvZjj7yX8etf/8tI8Ney695g==",
    "win32-arm64": "PIhhEkE9uPBleRBrQEJpUn7MBnibZzbGzYWPmY3x+YoVg/95zbjB4CxPPOQ8l5tYYM4mMaCthF8/1DIfBQQyWQ==",
}
"""SHA-512 of the package of each platform, as npm publishes it."""

EXECUTABLE_SHA256: dict[str, str] = {
    "linux-x64": "e1698a3d5c6c0798fee4fd3b5cc816651f460c63d390a7a26ea4beb0b1884100",
    "linux-arm64": "90bd269553d258e80b19e3ccab4f98f0831f87442a2f056510ce24fd1b425fc2",
    "darwin-x64": "7fe5c9c905fff0a05d92db98929434ab4d3b6dd92d7a7688922db74380c75df3",
    "darwin-arm64": "10b6243df618d374bb2d5c9cfbe7052e1405f6aa4e53a6164f11a91b9f2e1384",
    "win32-x64": "c7bee37877d0aa6a046e52783fa0a2cf1a9ce5579d68bb3083bda99d4bff18ef",
    "win32-arm64": "530fb3933af14eefe85dfd06502f826e6ef60fdf4e75228ea67c696db312ecb1",
}
"""SHA-256 of the executable in each package, by which a cached copy is checked."""

_ARCHITECTURES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
_NPM_SECONDS = 120
_MAX_BINARY_BYTES = 64 << 20


class EsbuildFetchError(Exception):
    """The binary could not be fetched. The message tells the operator why."""


def executable_name(system: str = sys.platform) -> str:
    """Return the file name of esbuild for a value of `sys.platform` or a key of `INTEGRITY`."""
    return "esbuild.exe" if system.startswith("win32") else "esbuild"


def platform_key() -> str | None:
    """Return the key of this machine in `INTEGRITY`; None if it has no package."""
    system = "linux" if sys.platform.startswith("linux") else sys.platform
    key = f"{system}-{_ARCHITECTURES.get(platform.machine().lower(), '?')}"
    return key if key in INTEGRITY else None


def fetch(target: Path, *, registry: str | None = None, platform_name: str | None = None) -> Path:
    """Write the pinned esbuild to `target`, atomically.

    This runs `npm pack`, so that the user's npm settings (registry, proxy, credentials) apply. No script of the package
    runs, and only the executable is extracted.

    Args:
        target: the file to write; its folder is created.
        registry: a registry in place of the configured one.
        platform_name: a key of `INTEGRITY`; None for this machine.

    Raises:
        EsbuildFetchError: npm is missing or offline, there is no package for this platform, or its content is not the
            pinned one.
    """
    key = platform_name or platform_key()
    if key is None:
        raise EsbuildFetchError(f"There is no esbuild package for {sys.platform} on {platform.machine()}.")
    package = f"@esbuild/{key}@{VERSION}"
    with tempfile.TemporaryDirectory(prefix="codemode-mcp-") as directory:
        archive = _pack(package, Path(directory), registry)
        digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if digest != INTEGRITY[key]:
            raise EsbuildFetchError(f"{package} is not the pinned content: its sha512 is {digest}. Nothing was kept.")
        binary = _executable(archive, package, executable_name(key))
    try:
        _write_atomically(target, binary)
    except OSError as error:
        raise EsbuildFetchError(f"Cannot write {target}: {error.strerror}.") from error
    return target


def _pack(package: str, directory: Path, registry: str | None) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise EsbuildFetchError("npm is not installed or not on PATH.")
    command = [npm, "pack", package, "--pack-destination", str(directory), "--ignore-scripts", "--loglevel=error"]
    command += ["--fetch-retries=0", "--fetch-timeout=30000", "--no-update-notifier"]
    if registry is not None:
        command += ["--registry", registry]
    try:
        # An empty working directory, so that a project's .npmrc does not choose the registry.
        done = subprocess.run(
            command, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, timeout=_NPM_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise EsbuildFetchError(f"npm did not answer for {package} within {_NPM_SECONDS} s.") from error
    except OSError as error:
        raise EsbuildFetchError(f"npm cannot be run: {error.strerror}.") from error
    archives = list(directory.glob("*.tgz"))
    if done.returncode != 0 or len(archives) != 1:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        reason = next((line for line in lines if "code E" in line), lines[-1] if lines else f"exit {done.returncode}")
        raise EsbuildFetchError(f"npm cannot get {package} ({reason[:200]}). Is this machine offline?")
    return archives[0]


def _executable(archive: Path, package: str, name: str) -> bytes:
    member = f"package/{name}" if name.endswith(".exe") else f"package/bin/{name}"
    try:
        with tarfile.open(archive, "r:gz") as tar:
            info = tar.getmember(member)
            content = tar.extractfile(info) if info.isreg() and info.size <= _MAX_BINARY_BYTES else None
            if content is not None:
                return content.read()
    except (tarfile.TarError, KeyError, OSError) as error:
        raise EsbuildFetchError(f"{package} does not contain {member}.") from error
    raise EsbuildFetchError(f"{member} of {package} is not a regular file.")


def _write_atomically(target: Path, content: bytes) -> None:
    for folder in reversed(target.parents):
        # One by one, since with `parents=True` the upper folders would get the mode of the umask.
        folder.mkdir(mode=0o700, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(name).chmod(0o755)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
