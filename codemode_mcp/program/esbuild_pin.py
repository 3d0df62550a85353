"""The pinned esbuild, fetched from npm's platform package and checked by its integrity hash.

This module, `npm_package` and `upstream_clients.environment` import the standard library only: the build hook uses
them before dependencies are installed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from codemode_mcp.program import npm_package
from codemode_mcp.program.npm_package import FetchError

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


def executable_name(system: str = sys.platform) -> str:
    """Return the file name of esbuild for a value of `sys.platform` or a key of `INTEGRITY`."""
    return npm_package.executable_name("esbuild", system)


def platform_key() -> str | None:
    """Return the key of this machine in `INTEGRITY`; None if it has no package."""
    key = npm_package.machine_key()
    return key if key in INTEGRITY else None


def fetch(target: Path, *, registry: str | None = None, platform_name: str | None = None) -> Path:
    """Write the pinned esbuild to `target`, atomically.

    Args:
        target: the file to write; its folder is created.
        registry: a registry in place of the configured one.
        platform_name: a key of `INTEGRITY`; None for this machine.

    Raises:
        FetchError: npm is missing or offline, there is no package for this platform, or its content is not the pinned
            one.
    """
    key = platform_name or platform_key()
    if key is None:
        raise FetchError(f"There is no esbuild package for this machine ({npm_package.machine_key()}).")
    package = f"@esbuild/{key}@{VERSION}"
    name = executable_name(key)
    member = f"package/{name}" if name.endswith(".exe") else f"package/bin/{name}"
    content = npm_package.fetch_files(package, INTEGRITY[key], registry).get(member)
    if content is None:
        raise FetchError(f"{package} does not contain {member}.")
    npm_package.write_files(target.parent, {target.name: content})
    return target
