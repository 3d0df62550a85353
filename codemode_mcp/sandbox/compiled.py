"""The compiled engine, and the image with `Intl`, kept on disk for later processes."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import wasmtime
from msgspec import Struct, structs
from wasmtime import _ffi as ffi

from codemode_mcp.base.errors import RuntimeUnavailable
from codemode_mcp.sandbox import binary, boot
from codemode_mcp.sandbox.images import INTL_BYTES, Entries, Image, changed_blocks
from codemode_mcp.sandbox.instance import GuestTrap, Modules, PooledMemory
from upstream_clients.private_files import exposure, make_private_folder, open_private

NATIVE_STACK = 20_000 * 1024
"""`max_wasm_stack`, so large that the guest's own stack check always comes first. By measurement, each byte of the
guest's stack takes up to 36 bytes of native stack (nested arrays in `JSON.stringify`)."""

ASYNC_STACK = 64 * 1024 * 1024
"""Bytes of the stack of a call that can pause. wasmtime aborts the process if `max_wasm_stack` is larger."""


class _Compiled(Struct, frozen=True):
    """Machine code.

    Attributes:
        main: the engine, whose memory is the base image.
        glue: our own module beside it.
    """

    main: wasmtime.Module
    glue: wasmtime.Module
    entries: Entries


def compile_engine(
    engine: wasmtime.Engine, linker: wasmtime.Linker, pool: PooledMemory, cache_dir: Path | None
) -> _Compiled:
    """Return the modules, compiled or from the cache."""
    prepared = binary.prepare(binary.load())
    path = None if cache_dir is None else _cache_path(cache_dir, prepared)
    if path is not None:
        cached = _from_cache(engine, path)
        if cached is not None:
            return cached
    try:
        glue = wasmtime.Module(engine, bytes(wasmtime.wat2wasm(binary.with_calls(binary.glue_source()))))
        prepared = binary.with_hooks(binary.with_clock(prepared, bytes(wasmtime.wat2wasm(binary.clock_source()))))
        cold = Modules(engine, linker, linker.instantiate_pre(wasmtime.Module(engine, prepared)), glue, pool)
        base = boot.make_base(cold)
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
    """Return the path of the compiled form; None if the folder cannot be created or trusted.

    Raises:
        RuntimeUnavailable: the binary is missing or not the expected one.
    """
    return _cache_path(cache_dir, binary.prepare(binary.load()))


def _cache_path(cache_dir: Path, prepared: bytes) -> Path | None:
    """Return the path of the compiled form; None if the folder cannot be created or trusted."""
    try:
        make_private_folder(cache_dir)
        if exposure(cache_dir) is not None:
            return None
    except OSError:
        return None
    key = hashlib.sha256()
    for part in (
        # Instead of the version of wasmtime, which takes 12 ms to read. Machine code of another version is rejected.
        str(os.path.getsize(ffi.filename)),
        f"{NATIVE_STACK} {ASYNC_STACK} epoch glue hooks",
        platform.system(),
        platform.machine(),
        _cpu_features(),
        binary.glue_source(),
        binary.clock_source(),
        boot.prelude_source(),
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


def read_intl(cache_dir: Path | None, bundle: str, base: Image) -> Image | None:
    """Return the image with `Intl` that an earlier process has kept; None if there is none.

    Args:
        bundle: the digest of the bundle with `Intl`.
        base: the image without it.
    """
    data = None if cache_dir is None else _read(_intl_path(cache_dir, bundle, base))
    if data is None:
        return None
    start = data.find(b"\n") + 1
    try:
        digest, size, blocks = json.loads(data[:start])
        changes, at = [], start
        for offset, length in blocks:
            changes.append((offset, data[at : at + length]))
            at += length
        return Image(None, base.entries, digest, base.prelude, tuple(changes), INTL_BYTES, size)
    except (ValueError, TypeError):
        return None


def keep_intl(cache_dir: Path | None, bundle: str, base: Image, image: Image) -> None:
    """Keep the image with `Intl` for later processes. Arguments as in `read_intl`."""
    if cache_dir is not None:
        about = [image.digest, image.size, [(offset, len(block)) for offset, block in image.changes]]
        data = json.dumps(about).encode() + b"\n" + b"".join(block for _, block in image.changes)
        _write(_intl_path(cache_dir, bundle, base), data)


def _intl_path(cache_dir: Path, bundle: str, base: Image) -> Path:
    key = hashlib.sha256(f"{bundle} {base.prelude} {base.digest} {boot.INTL_FORM}".encode()).hexdigest()
    return cache_dir / f"intl-{key[:32]}.image"


def _read(path: Path) -> bytes | None:
    """Return what was kept in a file; None if it is missing, may be of another user, or is damaged."""
    # The digest detects damage only: an attacker could change it too.
    try:
        with open_private(path) as file:
            data = file.read()
    except OSError:
        return None
    # Without copies, each of which would hold the interpreter's lock for milliseconds.
    if hashlib.sha256(memoryview(data)[32:]).digest() != data[:32]:
        return None
    return data[32:]


def _from_cache(engine: wasmtime.Engine, path: Path) -> _Compiled | None:
    # Machine code is only loaded from a file that no other user can have written, and whose digest is right. Otherwise
    # it is compiled again.
    data = _read(path)
    if data is None:
        return None
    start = data.find(b"\n") + 1
    try:
        *entries, size = json.loads(data[:start])
        glue, main = data[start : start + size], data[start + size :]
        return _Compiled(
            wasmtime.Module.deserialize(engine, main), wasmtime.Module.deserialize(engine, glue), Entries(*entries)
        )
    except (wasmtime.WasmtimeError, ValueError, TypeError):
        return None


def _to_cache(path: Path, entries: Entries, glue: bytes, main: bytes) -> None:
    _write(path, json.dumps([*structs.astuple(entries), len(glue)]).encode() + b"\n" + glue + main)


def _write(path: Path, data: bytes) -> None:
    """Keep data with its digest in a file, atomically. Without success, the next process makes the data again."""
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
    # Files of earlier versions. Another installation that still uses one makes it again.
    for other in current.parent.glob(f"{current.name.partition('-')[0]}-*{current.suffix}"):
        if other != current and time.time() - other.stat().st_mtime > _STALE_SECONDS:
            other.unlink()


_STALE_SECONDS = 30 * 24 * 3600
"""Age at which the file of another version is removed."""
