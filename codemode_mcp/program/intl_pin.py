"""The bundle with `Intl`: our scripts and pinned packages of npm, in one script, built by the pinned esbuild.

The same packages and the same esbuild give the same bytes on every machine. Snapshots name the image that contains
them. This module and what it imports use the standard library only, since the build hook uses them.
"""

from __future__ import annotations

import functools
import hashlib
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from codemode_mcp.program import intl_data, npm_package
from codemode_mcp.program.npm_package import FetchError

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME: Final = "intl.js"
"""The file name of the bundle in an installation."""

SHA256: Final = "c38508e2a7de83b785c8860cd2a2759043c7b762ea508c40e74cf20309acc8c8"
"""SHA-256 of the bundle. `scripts/pin_intl.py` writes it."""

PACKAGES: Final[Mapping[str, tuple[str, str]]] = {
    intl_data.NUMBERS: (
        "9.4.3",
        "absVu2I7FlWl+Buictw2PL8Fl385uab3bEA3TCCTu+0DBHHFE+RTbmPmj0nUVO82U1b2Qw3/OA2I7KKLI48EpQ==",
    ),
    intl_data.PLURALS: (
        "6.3.16",
        "iOqCpBM2fo7bbbWqno+yN9WioepV01N2q3KawFZhRYADzijpzmIIA6cbFXrriCI1Mt2q5c7mceiKHoQkEFf0/Q==",
    ),
    intl_data.LISTS: (
        "8.3.15",
        "dZEUYngBoAWLgYXvoBX3P6jIk5cg2rva7p5ZJTTn4lsCx/9abUKoPI2Wf59twxl5jgw1SDQMR1MBzJ7oiHwffw==",
    ),
    "@formatjs/intl-relativetimeformat": (
        "13.0.1",
        "Gl5dCHb7elEC19tTzxIyllWLHaHnN+HpQYEaA9xxAt9rKgRLwC3vGty1w8bVGG7p2YcGSPIg5c4qn4KdkGcTqg==",
    ),
    "@formatjs/intl-segmenter": (
        "12.2.15",
        "1AEewdf+fVMgmYdzwHKX1cNLQZ42coRWAiboAtSVlAEM7n23U/DkHxKQ32+AUGDNZY1WsmRtXZkFhiMGxAhbww==",
    ),
    "@formatjs/intl-locale": (
        "5.3.12",
        "bI5CrvuC6A5PMOIiHX+6ETTHXzUofHw1U/fkI59sQJ+BFbkglxIVVncFPxHf4IHmAqAs/Rlp2bdzTEcLaq2tQw==",
    ),
    "@formatjs/intl-getcanonicallocales": (
        "3.2.12",
        "THqQLTJUH2z2A7oE1guW8VzpGpsGFxwWZ+l8cI8Bk75xUU8DxtJoLfKl+5a6fYK26GeDWDWE0UbDhE5SwcLoFg==",
    ),
    "@formatjs/bigdecimal": (
        "0.2.7",
        "B4+XY/e4u5v261r3a37Kq2ax91gPZSKGyVpx8X5dygAggLlUz+6MeBpmAhaBFGB8WQ4JB1qD+QtKHk9aJkEb9Q==",
    ),
    intl_data.DATES: (
        "48.1.0",
        "GyVLYFmC8Xsd+awXwAedeAXTr3u9FGnpRTFEf9aYbB6zVzz5CqATPBvyFqLs0+PLPbdHrqhjgxQ6oIf9EAavbw==",
    ),
    intl_data.CORE: (
        "48.1.0",
        "Br9lHQHRhFVyQ/4dY2AnTOuJVEwzDSFR9tE4EzaZxdtux4BFZ4V6oY0SiSAe/8H9+CJ6njpBiPJdDv+vdXnvfA==",
    ),
    intl_data.ALIASES: (
        "48.2.0",
        "ks3zN+Wbg1zMqvJNeDai1zA0JBGHbAnxv2Ko4rjVohvXscDGmTa7VNy1T+QRlQw3QVPzQcCm2EOiEtAfOU4d+g==",
    ),
    intl_data.ZONES: (
        "0.6.6",
        "LF5AAYsMduXFW2ungr/D9JqNq9ykZyhWgYG6wFtdGZW5ZlBDTBgTUFqW8EC7Fa+Dvs3IMZxlWkSR09sW2D/+0w==",
    ),
}
"""The packages: version, and SHA-512 of the archive as npm publishes it."""

_SCRIPTS: Final = Path(__file__).parents[1] / "sandbox" / "intl"
_BUILD_SECONDS: Final = 60


def fetch(target: Path, esbuild: Path, *, registry: str | None = None) -> Path:
    """Build the bundle from the pinned packages, and write it to `target`, atomically.

    Args:
        target: the file to write; its folder is created.
        esbuild: the pinned esbuild of this machine.
        registry: a registry in place of the configured one.

    Raises:
        FetchError: npm is missing or offline, a package is not the pinned one, or esbuild builds something else.
    """
    content = build(esbuild, registry=registry)
    digest = hashlib.sha256(content).hexdigest()
    if digest != SHA256:
        raise FetchError(
            f"the bundle with Intl is not the pinned one: its SHA-256 is {digest}. It is built by esbuild {esbuild}."
        )
    npm_package.write_files(target.parent, {target.name: content})
    return target


def build(esbuild: Path, *, registry: str | None = None) -> bytes:
    """Return the bundle: a script whose value is a function that adds `Intl` to the globals. Raises `FetchError`."""
    files = {
        name: npm_package.fetch_files(
            f"{name}@{version}", integrity, registry, wanted=functools.partial(intl_data.wanted, name)
        )
        for name, (version, integrity) in PACKAGES.items()
    }
    with tempfile.TemporaryDirectory(prefix="codemode-mcp-") as directory:
        folder = Path(directory)
        for script in _SCRIPTS.glob("*.js"):
            (folder / script.name).write_bytes(script.read_bytes())
        (folder / "data.js").write_text(intl_data.module(files), "utf-8")
        (folder / "plurals.js").write_text(intl_data.plurals(files), "utf-8")
        for name, members in files.items():
            for member, content in members.items():
                path = folder / "node_modules" / name / member.removeprefix("package/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        return _licences(files) + _bundled(esbuild, folder)


def _bundled(esbuild: Path, folder: Path) -> bytes:
    command = [
        *(str(esbuild), "main.js", "--bundle", "--format=iife", "--global-name=bundle", "--target=es2023"),
        *("--banner:js=(function(){", "--footer:js=return bundle.default})()"),
        # What the packages see as `Intl` is an object of the bundle.
        *("--define:Intl=intlInternals", "--inject:./internals.js"),
        *(f"--alias:@formatjs/intl-{name}=./matcher.js" for name in ("localematcher", "supportedvaluesof")),
        *("--minify-whitespace", "--minify-syntax", "--charset=utf8", "--legal-comments=none", "--log-level=error"),
    ]
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=_BUILD_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FetchError(f"esbuild cannot build the bundle with Intl ({type(error).__name__}).") from error
    if done.returncode != 0:
        reason = done.stderr.decode(errors="replace").strip().splitlines()[:1]
        raise FetchError(f"esbuild cannot build the bundle with Intl: {' '.join(reason)[:200]}")
    return done.stdout


def _licences(files: Mapping[str, Mapping[str, bytes]]) -> bytes:
    """Return the licences of the packages as a comment, each text once."""
    texts: dict[str, list[str]] = {}
    for name, members in files.items():
        for member, content in members.items():
            if member.startswith("package/LICENSE"):
                texts.setdefault(content.decode().replace("*/", "* /").strip(), []).append(name)
    return "".join(f"/* {', '.join(names)}\n\n{text}\n*/\n" for text, names in texts.items()).encode()
