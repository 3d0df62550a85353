"""The engine, its compiled file, esbuild, and the bundle with `Intl`."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

import anyio.to_thread

from codemode_mcp.cli.doctor.check import Check, elapsed_ms
from codemode_mcp.errors import CodeModeError
from codemode_mcp.plugins.api import EXEC_ID
from upstream_clients.private_files import exposure

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from codemode_mcp.app.app import App
    from codemode_mcp.config import Config


class CompiledFile(NamedTuple):
    """The compiled engine on disk.

    Attributes:
        path: the path of the file, which may not exist; None if no file can be written.
        changed_at: the time of the last change, in nanoseconds; None if there is no file.
    """

    path: Path | None
    changed_at: int | None


def compiled_file() -> CompiledFile:
    """Return the present state of the compiled engine on disk. Blocks.

    Opening the engine changes this state: it writes a missing file.
    """
    from codemode_mcp.paths import cache_dir
    from codemode_mcp.sandbox.compiled import compiled_path

    try:
        path = compiled_path(cache_dir())
        return CompiledFile(path, None if path is None or not path.exists() else path.stat().st_mtime_ns)
    except (CodeModeError, OSError):
        return CompiledFile(None, None)


async def check(app: App, before: CompiledFile) -> Iterable[Check]:
    """Check the engine by running a trivial program, and check the compiled file.

    Args:
        before: the state of the compiled file before the engine was opened.
    """
    from codemode_mcp.sandbox.binary import VERSION

    began = time.monotonic()
    try:
        await app.engine()
    except CodeModeError as error:
        return [Check("engine", "fail", error.message, "reinstall codemode-mcp with its dependencies")]
    ready = elapsed_ms(began)
    cache = await anyio.to_thread.run_sync(_cache, before, ready)
    return [await _program(app, f"QuickJS-NG (qjs-wasi-reactor {VERSION}), ready in {ready:,} ms"), cache]


async def _program(app: App, engine: str) -> Check:
    """Run a trivial program in the same way as the programs of clients."""
    began = time.monotonic()
    try:
        outcome = await app.execute("return 6 * 7", "javascript", app.operator)
    except CodeModeError as error:  # A required plugin is missing, or a plugin forbids this program.
        detail = f"starts, but a trivial program was refused: {error.message}"
        return Check("engine", "warn", detail, "see the plugins below")
    took = elapsed_ms(began)
    if outcome.value == 42:
        return Check("engine", "ok", f"{engine}, runs a trivial program in {took:,} ms")
    detail = f"the program `return 6 * 7` returned {outcome.error or repr(outcome.value)} instead of 42"
    if (await app.plugins()).interceptors.has_hooks(EXEC_ID):
        advice = "check the plugins with core:code_mode:exec in their hooks first: they may change programs"
        return Check("engine", "warn", detail, advice)
    return Check("engine", "fail", detail, "reinstall codemode-mcp")


def _cache(before: CompiledFile, ready: int) -> Check:
    name, after = "compile cache", compiled_file()
    if after.path is None:
        detail = f"others can write the cache folder, or it cannot be made: every process compiles again ({ready:,} ms)"
        return Check(name, "warn", detail, "see the cache folder above")
    if after.changed_at is None:
        detail = f"no file could be written in {after.path.parent}: every process compiles again ({ready:,} ms)"
        return Check(name, "warn", detail, "make that folder writable, and free space on its disk")
    size = f"{after.path.stat().st_size / 1e6:.1f} MB"
    why = exposure(after.path)
    if why is not None:
        return Check(name, "warn", why, "remove the file, which is made again, and find out who could write it")
    if before.changed_at is None:
        detail = f"written now, {size}, {after.path}: it saves the next process {ready:,} ms"
    elif before.changed_at != after.changed_at:
        detail = f"was damaged or of another version, and was written again: {after.path}"
    else:
        detail = f"used, {size}, {after.path}"
    return Check(name, "ok", detail)


async def esbuild(app: App, config: Config) -> Iterable[Check]:
    """Check the path and version of esbuild, and transform a line of TypeScript."""
    if "typescript" not in config.tools.code_mode.languages:
        return [Check("esbuild", "ok", "not needed: TypeScript is not enabled")]
    from codemode_mcp.paths import cache_dir
    from codemode_mcp.program.esbuild import find_esbuild, version_of
    from codemode_mcp.program.esbuild_pin import VERSION

    configured = config.tools.esbuild
    fetch = "run codemode-mcp setup (npm fetches it), or name a binary in tools.esbuild; JavaScript works without it"
    correct = 'correct "tools.esbuild", or remove it'
    try:
        path = await anyio.to_thread.run_sync(
            lambda: find_esbuild(configured, environ=os.environ, cache_dir=cache_dir()), abandon_on_cancel=True
        )
        began = time.monotonic()
        await app.transform("const x: number = 1; return x")
    except CodeModeError as error:
        return [Check("esbuild", "warn", error.message, fetch if configured is None else correct)]
    transforms = f"{path} transforms TypeScript in {elapsed_ms(began):,} ms"
    version = await anyio.to_thread.run_sync(version_of, path)
    if version == VERSION:
        return [Check("esbuild", "ok", f"{version}, {transforms}")]
    detail = f"{version or 'of an unknown version'}, {transforms}; codemode-mcp is tested with {VERSION}"
    return [Check("esbuild", "info" if configured is None else "warn", detail, f"use esbuild {VERSION}")]


def intl() -> Iterable[Check]:
    """Look for the bundle with `Intl`."""
    from codemode_mcp.paths import cache_dir
    from codemode_mcp.program.intl import find_intl

    try:
        path = find_intl(cache_dir())
    except CodeModeError as error:
        return [Check("intl", "warn", error.message, "run codemode-mcp setup (npm fetches it); other programs work")]
    return [Check("intl", "ok", f"{path.stat().st_size / 1e6:.1f} MB, {path}")]
