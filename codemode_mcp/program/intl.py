"""The bundle with `Intl`: finds it, or builds the pinned one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from codemode_mcp.base.errors import RuntimeUnavailable
from codemode_mcp.program import intl_pin
from codemode_mcp.program.npm_package import FetchError, why_untrusted
from upstream_clients.private_files import exposure

_BUNDLED = Path(__file__).parents[1] / "_bundled" / intl_pin.NAME


def find_intl(cache_dir: Path) -> Path:
    """Return the path of the bundle: in the installation, or in the user's cache. It must be the pinned one.

    Raises:
        RuntimeUnavailable: there is none. The message lists the places and says how to get it.
    """
    searched = f"bundled ({_BUNDLED})"
    if _BUNDLED.is_file():
        if hashlib.sha256(_BUNDLED.read_bytes()).hexdigest() == intl_pin.SHA256:
            return _BUNDLED
        searched = f"bundled ({_BUNDLED} is not used: it is not the pinned one)"
    cached = _cached(cache_dir)
    if cached.is_file():
        why = why_untrusted(cached, intl_pin.SHA256, "the bundle with Intl")
        if why is None:
            return cached
        searched += f", cache ({cached} is not used: {why})"
    else:
        searched += f", cache ({cached})"
    raise RuntimeUnavailable(
        "This program uses Intl, or locales or options of toLocaleString, toLocaleDateString, toLocaleTimeString or "
        "localeCompare, and the bundle for these was not found. Nothing of the program has run. Run `codemode-mcp "
        "setup` to fetch the bundle, or write with toISOString(), toFixed() and padStart() instead. "
        f"Searched: {searched}."
    )


def intl_reader(cache_dir: Path) -> Callable[[], bytes]:
    return lambda: find_intl(cache_dir).read_bytes()


def fetch_intl(cache_dir: Path, esbuild: Path, *, registry: str | None) -> Path:
    """Build the bundle from packages of npm in the user's cache, for `codemode-mcp setup`.

    Raises:
        RuntimeUnavailable: npm is missing or offline, a package or the bundle is not the pinned one, or the cache
            folder is exposed to other users.
    """
    try:
        why = exposure(cache_dir)
    except OSError as error:
        why = f"{cache_dir} cannot be inspected: {error.strerror}"
    if why is not None:
        raise RuntimeUnavailable(f"The bundle with Intl was not built, since the cache folder is not safe: {why}.")
    try:
        return intl_pin.fetch(_cached(cache_dir), esbuild, registry=registry)
    except FetchError as error:
        raise RuntimeUnavailable(
            f"Cannot build the bundle with Intl: {error} Only programs that use Intl need it."
        ) from error


def _cached(cache_dir: Path) -> Path:
    # The name has the digest, so that an upgrade does not use the earlier bundle.
    return cache_dir / f"intl-{intl_pin.SHA256[:16]}.js"
