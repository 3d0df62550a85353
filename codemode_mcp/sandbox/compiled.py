"""The compiled engine, kept on disk for the next process."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
import time
from contextlib import suppress
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

import wasmtime
from wasmtime import _ffi as ffi

from codemode_mcp.errors import RuntimeUnavailable
from codemode_mcp.sandbox import binary, images
from codemode_mcp.sandbox.images import (
    NATIVE_STACK,
    Entries,
    changed_blocks,
    glue_source,
    make_base,
)
from codemode_mcp.sandbox.instance import GuestTrap, Modules, Places
from upstream_clients.private_files import exposure, make_private_folder, open_private

if TYPE_CHECKING:
    from pathlib import Path


ASYNC_STACK = 64 * 1024 * 1024
"""wasmtime aborts the process when `max_wasm_stack` is larger than this."""


@dataclass(frozen=True, slots=True)
class _Compiled:
    """Machine code.

    Attributes:
        main: the engine, whose memory is the base image.
        glue: our own module beside it.
    """

    main: wasmtime.Module
    glue: wasmtime.Module
    entries: Entries


def compile_engine(
    engine: wasmtime.Engine, linker: wasmtime.Linker, places: Places, cache_dir: Path | None
) -> _Compiled:
    """Compile the modules, or take them from the cache."""
    prepared = binary.prepare(binary.load())
    path = None if cache_dir is None else _cache_path(cache_dir, prepared)
    if path is not None:
        cached = _from_cache(engine, path)
        if cached is not None:
            return cached
    try:
        glue = wasmtime.Module(engine, bytes(wasmtime.wat2wasm(glue_source())))
        cold = Modules(engine, linker, linker.instantiate_pre(wasmtime.Module(engine, prepared)), glue, places)
        base = make_base(cold)
        segments = tuple(changed_blocks(base.memory, b""))
        module = wasmtime.Module(engine, binary.with_memory(prepared, segments, base.pages))
    except wasmtime.WasmtimeError as error:
        raise RuntimeUnavailable(f"the JavaScript engine does not compile: {str(error).splitlines()[0]}") from None
    except GuestTrap as trap:
        raise RuntimeUnavailable(f"the JavaScript engine does not start: {trap}") from None
    if path is not None:
        _to_cache(path, base.entries, bytes(glue.serialize()), bytes(module.serialize()))
    return _Compiled(module, glue, base.entries)


def compiled_path(cache_dir: Path) -> Path | None:
    """Return where this engine's compiled form is kept, or will be; None where the folder cannot be made or trusted.

    Raises:
        RuntimeUnavailable: the binary is missing, or is another one.
    """
    return _cache_path(cache_dir, binary.prepare(binary.load()))


def _cache_path(cache_dir: Path, prepared: bytes) -> Path | None:
    """Return the place of the compiled form, or None when the folder cannot be trusted or made."""
    try:
        make_private_folder(cache_dir)
        if exposure(cache_dir) is not None:
            return None
    except OSError:
        return None
    key = hashlib.sha256()
    for part in (
        # In place of its version, which takes 12 ms to read. A file of another version is refused, and made again.
        str(os.path.getsize(ffi.filename)),
        f"{NATIVE_STACK} {ASYNC_STACK} epoch glue",
        platform.system(),
        platform.machine(),
        _cpu_features(),
        glue_source(),
        images.prelude_source(),
    ):
        key.update(part.encode() + b"\0")
    key.update(prepared)
    return cache_dir / f"engine-{key.hexdigest()[:32]}.cwasm"


def _cpu_features() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        return platform.processor()


def _from_cache(engine: wasmtime.Engine, path: Path) -> _Compiled | None:
    # Machine code is only loaded from a file that no other user can have written, and when its digest shows that it is
    # what was written; anything else means recompile. The digest alone is no protection: it is in the same file.
    try:
        with open_private(path) as file:
            data = file.read()
    except OSError:
        return None
    # Without copies: of these megabytes each would take the interpreter's lock for milliseconds.
    if hashlib.sha256(memoryview(data)[32:]).digest() != data[:32]:
        return None
    start = data.find(b"\n", 32) + 1
    try:
        *entries, size = json.loads(data[32:start])
        glue, main = data[start : start + size], data[start + size :]
        return _Compiled(
            wasmtime.Module.deserialize(engine, main), wasmtime.Module.deserialize(engine, glue), Entries(*entries)
        )
    except (wasmtime.WasmtimeError, ValueError, TypeError):
        return None


def _to_cache(path: Path, entries: Entries, glue: bytes, main: bytes) -> None:
    data = json.dumps([*astuple(entries), len(glue)]).encode() + b"\n" + glue + main
    scratch = None
    try:
        descriptor, scratch = tempfile.mkstemp(".tmp", f"{path.name}.", path.parent)  # with mode 0600
        with os.fdopen(descriptor, "wb") as file:
            file.write(hashlib.sha256(data).digest() + data)
        os.replace(scratch, path)
        _remove_stale(path)
    except OSError:
        if scratch is not None:
            with suppress(OSError):
                os.unlink(scratch)


def _remove_stale(current: Path) -> None:
    # Of earlier versions; one that another installation still uses is soon made again.
    for other in current.parent.glob("engine-*.cwasm"):
        if other != current and time.time() - other.stat().st_mtime > _STALE_SECONDS:
            other.unlink()


_STALE_SECONDS = 30 * 24 * 3600
