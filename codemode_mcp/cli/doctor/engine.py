"""The sandbox, its compiled form on disk, and esbuild."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

import anyio.to_thread

from codemode_mcp.cli.doctor.check import Check
from codemode_mcp.errors import CodeModeError
from codemode_mcp.plugins.api import EXEC_ID
from upstream_clients.private_files import exposure

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from codemode_mcp.app.app import App
    from codemode_mcp.config import Config


class Kept(NamedTuple):
    """The compiled engine on disk. `path` is None where nothing can be kept, `changed_at` where nothing is."""

    path: Path | None
    changed_at: int | None


def look_at_cache() -> Kept:
    """Before the engine is opened, which makes what is missing. Blocks."""
    from codemode_mcp.paths import cache_dir
    from codemode_mcp.sandbox.compiled import compiled_path

    try:
        path = compiled_path(cache_dir())
        return Kept(path, None if path is None or not path.exists() else path.stat().st_mtime_ns)
    except (CodeModeError, OSError):
        return Kept(None, None)


async def check(app: App, before: Kept) -> Iterable[Check]:
    """Yield the engine, then its compile cache."""
    from codemode_mcp.sandbox.binary import VERSION

    began = time.monotonic()
    try:
        await app.engine()
    except CodeModeError as error:
        return [Check("engine", "fail", error.message, "reinstall codemode-mcp with its dependencies")]
    ready = round((time.monotonic() - began) * 1000)
    cache = await anyio.to_thread.run_sync(_cache, before, ready)
    return [await _program(app, f"QuickJS-NG (qjs-wasi-reactor {VERSION}), ready in {ready:,} ms"), cache]


async def _program(app: App, engine: str) -> Check:
    """Run a trivial program on the path of all programs."""
    began = time.monotonic()
    try:
        outcome = await app.execute("return 6 * 7", "javascript", app.operator)
    except CodeModeError as error:  # a plugin that has to see every program, or forbids this one
        detail = f"starts, but a trivial program was refused: {error.message}"
        return Check("engine", "warn", detail, "see the plugins below")
    took = round((time.monotonic() - began) * 1000)
    if outcome.value == 42:
        return Check("engine", "ok", f"{engine}, runs a trivial program in {took:,} ms")
    given = outcome.error or repr(outcome.value)
    if (await app.plugins()).interceptors.hooks(EXEC_ID):
        advice = "a plugin may change programs (core:code_mode:exec in its hooks): look there first"
        return Check("engine", "warn", f"a trivial program gave {given}", advice)
    return Check("engine", "fail", f"a trivial program gave {given}", "reinstall codemode-mcp")


def _cache(before: Kept, ready: int) -> Check:
    name, after = "compile cache", look_at_cache()
    if after.path is None:
        detail = f"the cache folder is not yours alone, or cannot be made: every process compiles again ({ready:,} ms)"
        return Check(name, "warn", detail, "see the cache folder above")
    if after.changed_at is None:
        detail = f"nothing could be kept in {after.path.parent}: every process compiles again ({ready:,} ms)"
        return Check(name, "warn", detail, "make that folder writable, and room on its disk")
    size = f"{after.path.stat().st_size / 1e6:.1f} MB"
    why = exposure(after.path)
    if why is not None:
        advice = "remove it, and see who could; it is made again"
        return Check(name, "warn", why, advice)
    if before.changed_at is None:
        detail = f"made now, {size}, {after.path}: the next process need not compile for {ready:,} ms"
        return Check(name, "ok", detail)
    if before.changed_at != after.changed_at:
        detail = f"was damaged, or made by another version, and has been made again: {after.path}"
        return Check(name, "ok", detail)
    return Check(name, "ok", f"used, {size}, {after.path}")


async def esbuild(app: App, config: Config) -> Iterable[Check]:
    """Check the place and version of esbuild, and one transformation."""
    if "typescript" not in config.tools.code_mode.languages:
        return [Check("esbuild", "ok", "not needed: TypeScript is not enabled")]
    from codemode_mcp.paths import cache_dir
    from codemode_mcp.program.esbuild_pin import VERSION
    from codemode_mcp.program.typescript import find_esbuild, version_of

    configured = config.tools.esbuild
    fetch = "run codemode-mcp setup (npm fetches it); offline, name a binary in tools.esbuild; JavaScript needs neither"
    correct = 'correct "tools.esbuild", or leave it out'
    try:
        path = await anyio.to_thread.run_sync(
            lambda: find_esbuild(configured, environ=os.environ, cache_dir=cache_dir()), abandon_on_cancel=True
        )
        began = time.monotonic()
        await app.transform("const x: number = 1; return x")
    except CodeModeError as error:
        return [Check("esbuild", "warn", error.message, fetch if configured is None else correct)]
    took = round((time.monotonic() - began) * 1000)
    version = await anyio.to_thread.run_sync(version_of, path)
    where = f"{path} transforms TypeScript in {took:,} ms"
    if version == VERSION:
        return [Check("esbuild", "ok", f"{version}, {where}")]
    detail = f"{version or 'of an unknown version'}, {where}; this version is tested with {VERSION}"
    return [Check("esbuild", "info" if configured is None else "warn", detail, f"use esbuild {VERSION}")]
