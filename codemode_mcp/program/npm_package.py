"""Packages of npm with one executable for each platform, fetched and checked by their pinned hashes.

This module imports the standard library only, and one module of ours that does the same: the build hook uses both
before dependencies are installed.
"""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from upstream_clients.environment import find_executable
from upstream_clients.private_files import exposure, open_private

_ARCHITECTURES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
_NPM_SECONDS = 120
_MAX_FILE_BYTES = 64 << 20
_MAX_FILES = 1_000


class FetchError(Exception):
    """The package could not be fetched. The message tells the operator why."""


def machine_key() -> str:
    """Return the name of this machine as packages use it, such as `linux-x64`. Unknown architectures are `?`."""
    system = "linux" if sys.platform.startswith("linux") else sys.platform
    return f"{system}-{_ARCHITECTURES.get(platform.machine().lower(), '?')}"


def executable_name(stem: str, system: str = sys.platform) -> str:
    """Return the file name of an executable for a value of `sys.platform` or a name such as `win32-x64`."""
    return f"{stem}.exe" if system.startswith("win32") else stem


def fetch_files(
    package: str, integrity: str, registry: str | None = None, *, wanted: Callable[[str], bool] | None = None
) -> dict[str, bytes]:
    """Return the regular files of a package by their names in its archive, such as `package/bin/esbuild`.

    This runs `npm pack`, so that the user's npm settings (registry, proxy, credentials) apply. No script of the package
    runs, and nothing is extracted to a disk.

    Args:
        package: the name with its version.
        integrity: the SHA-512 of the archive in Base64, as npm publishes it.
        registry: a registry in place of the configured one.
        wanted: tells which files are returned, by their names in the archive; None for all.

    Raises:
        FetchError: npm is missing or offline, or the archive is not the pinned one.
    """
    with tempfile.TemporaryDirectory(prefix="codemode-mcp-") as directory:
        archive = _pack(package, Path(directory), registry)
        digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if digest != integrity:
            raise FetchError(f"{package} is not the pinned content: its sha512 is {digest}. Nothing was kept.")
        try:
            return _read(archive, wanted or (lambda _: True))
        except (tarfile.TarError, OSError) as error:
            raise FetchError(f"{package} cannot be unpacked ({type(error).__name__}).") from error


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write executables or data files into a private folder, each atomically. Raises `FetchError`."""
    for name, content in files.items():
        try:
            _write_atomically(folder / name, content)
        except OSError as error:
            raise FetchError(f"Cannot write {folder / name}: {error.strerror}.") from error


def _is_version(suffix: str) -> bool:
    """Return True for the end of a name such as `esbuild-0.28.2`."""
    return suffix[1:].isdigit()


def _pack(package: str, directory: Path, registry: str | None) -> Path:
    npm = find_executable("npm")
    if npm is None:
        raise FetchError("npm is not installed or not on PATH.")
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
        raise FetchError(f"npm did not answer for {package} within {_NPM_SECONDS} s.") from error
    except OSError as error:
        raise FetchError(f"npm cannot be run: {error.strerror}.") from error
    archives = list(directory.glob("*.tgz"))
    if done.returncode != 0 or len(archives) != 1:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        reason = next((line for line in lines if "code E" in line), lines[-1] if lines else f"exit {done.returncode}")
        raise FetchError(f"npm cannot get {package} ({reason[:200]}). Is this machine offline?")
    return archives[0]


def _read(archive: Path, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    with tarfile.open(archive, "r:gz") as tar:
        for info in tar:
            is_read = info.isreg() and info.size <= _MAX_FILE_BYTES and wanted(info.name)
            content = tar.extractfile(info) if is_read else None
            if content is not None and len(files) < _MAX_FILES:
                files[info.name] = content.read()
    return files


def _write_atomically(target: Path, content: bytes) -> None:
    for folder in reversed(target.parents):
        # One by one, since with `parents=True` the upper folders would get the mode of the umask.
        folder.mkdir(mode=0o700, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(name).chmod(0o755 if target.suffix in ("", ".exe") or _is_version(target.suffix) else 0o644)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def why_untrusted(path: Path, sha256: str | None, thing: str) -> str | None:
    """Return why a cached file must not be used; None if it may be. The digest is computed once for each version.

    Args:
        sha256: the pinned digest; None if there is none for this machine, so that no content is the pinned one.
        thing: what the file should be, for the message.
    """
    try:
        why = exposure(path)
        if why is not None:
            return why
        with open_private(path) as file:
            status = os.fstat(file.fileno())
            key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            if (key, sha256) not in _verified:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                if digest != sha256:
                    return f"it is not {thing} as pinned; its SHA-256 is {digest}"
                _verified.add((key, sha256))
    except OSError as error:
        return error.strerror or type(error).__name__
    return None


_verified: set[tuple[tuple[int, ...], str | None]] = set()
"""Files whose digest this process has checked, by identity and times of the file."""
