"""The engine binary, its compiled form on disk, and the images that guests start from."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import wasmtime
from guest_harness import MANIFEST, Cell, ok

from codemode_mcp.base.errors import RuntimeUnavailable
from codemode_mcp.sandbox import binary, compiled
from codemode_mcp.sandbox import engine as engines
from codemode_mcp.sandbox.engine import Engine, GuestThreads, open_engine
from codemode_mcp.sandbox.instance import Instance

ENGINE_BYTES = 100_000
"""Modules larger than this are the engine itself, smaller ones its glue."""

LIMIT = 16 * 1024 * 1024
BAD_DESCRIPTOR = 8
"""`EBADF` of WASI."""

needs_permissions = pytest.mark.skipif(not hasattr(os, "getuid"), reason="no permission bits here")


# the binary


def test_the_shipped_binary_has_the_pinned_digest() -> None:
    assert hashlib.sha256(binary.load()).hexdigest() == binary.DIGEST


@pytest.mark.parametrize("place", [0, 1000, -1])
def test_a_binary_that_differs_in_one_bit_is_refused(place: int) -> None:
    damaged = bytearray(binary.load())
    damaged[place] ^= 1
    with pytest.raises(RuntimeUnavailable, match="not the expected one"):
        binary.verify(bytes(damaged))


def test_a_missing_package_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary, "PACKAGE", "no_package_of_this_name")
    with pytest.raises(RuntimeUnavailable, match=r"install the package qjs-wasi-reactor\.wasm==0\.15\.1\.1"):
        binary.load()


def test_no_engine_opens_with_another_binary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary, "DIGEST", "0" * 64)
    with pytest.raises(RuntimeUnavailable), open_engine(None, max_threads=1):
        pass


WASI = """
(module
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $args (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_sizes_get" (func $environ (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_prestat_get" (func $prestat (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  ;; A buffer of four bytes at 64, as a list of buffers at 16.
  (data (i32.const 16) "\\40\\00\\00\\00\\04\\00\\00\\00")
  (data (i32.const 64) "told")
  (func (export "arguments") (result i32) (drop (call $args (i32.const 0) (i32.const 4))) (i32.load (i32.const 0)))
  (func (export "variables") (result i32) (drop (call $environ (i32.const 0) (i32.const 4))) (i32.load (i32.const 0)))
  (func (export "folder") (param i32) (result i32) (call $prestat (local.get 0) (i32.const 0)))
  (func (export "read") (result i32)
    (drop (call $read (i32.const 0) (i32.const 16) (i32.const 1) (i32.const 0))) (i32.load (i32.const 0)))
  (func (export "write") (param i32) (result i32)
    (call $write (local.get 0) (i32.const 16) (i32.const 1) (i32.const 0))))
"""
"""A module that asks WASI for everything that leads out of WebAssembly."""


def test_the_wasi_of_a_guest_has_no_arguments_variables_folders_or_streams(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("A_SECRET", "of the host")
    # A guest has no room for a third instance.
    monkeypatch.setattr(wasmtime.Store, "set_limits", lambda *_, **__: None)
    guest = Instance(engine.modules, LIMIT)
    try:
        guest.limit(10)
        probe = engine.modules.linker.instantiate(guest._store, wasmtime.Module(engine.modules.engine, WASI))

        def ask(name: str, *arguments: int) -> int:
            return int(probe.exports(guest._store)[name](guest._store, *arguments))

        assert (ask("arguments"), ask("variables"), ask("read")) == (0, 0, 0)
        assert [ask("folder", descriptor) for descriptor in range(3, 20)] == [BAD_DESCRIPTOR] * 17
        ask("write", 1)
        ask("write", 2)
    finally:
        guest.close()
    assert capfd.readouterr() == ("", "")


def test_the_engine_imports_only_wasi_from_the_host(engine: Engine) -> None:
    imports = [(each.module, each.name) for each in engine.modules.glue.imports]
    assert imports == [("engine", name) for name in ("memory", "table", "stack_pointer")]
    own = wasmtime.Module(engine.modules.engine, binary.load())
    assert {each.module for each in own.imports} == {"wasi_snapshot_preview1"}


@pytest.mark.parametrize(
    ("section", "complaint"),
    [
        (b"\x04\x04\x01\x70\x00\x05", "function table"),
        (b"\x04\x05\x01\x70\x01\x05\x05", "function table"),
        (b"\x05\x03\x01\x00\x09", "memory"),
    ],
    ids=["table without a maximum", "table of another size", "memory of another size"],
)
def test_a_section_of_an_unexpected_shape_is_not_edited(section: bytes, complaint: str) -> None:
    with pytest.raises(RuntimeUnavailable, match=complaint):
        binary.prepare(b"\0asm\x01\0\0\0" + section)


# images


def test_two_boots_in_one_process_give_the_same_images(engine: Engine, engine_cache: Path) -> None:
    with open_engine(engine_cache, max_threads=1) as second:
        assert second.base.digest == engine.base.digest
        assert (
            second.threads.submit(second.image, MANIFEST).result().digest
            == engine.threads.submit(engine.image, MANIFEST).result().digest
        )


def test_another_process_makes_the_same_images(engine: Engine, engine_cache: Path) -> None:
    script = (
        "import sys, pathlib\n"
        "from codemode_mcp.sandbox.engine import open_engine\n"
        "with open_engine(pathlib.Path(sys.argv[1]), max_threads=1) as engine:\n"
        "    print(engine.base.digest, engine.threads.submit(engine.image, sys.argv[2]).result().digest)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", script, str(engine_cache), MANIFEST], capture_output=True, text=True, check=True
    ).stdout.split()
    assert told == [engine.base.digest, engine.threads.submit(engine.image, MANIFEST).result().digest]


def test_an_image_whose_memory_was_forgotten_reads_as_before(engine: Engine) -> None:
    for image in (engine.base, engine.threads.submit(engine.image, MANIFEST).result()):
        before = image.memory
        assert not image.forget_unused(3600)
        assert image.forget_unused(0)
        assert not image.forget_unused(0), "there is nothing left to forget"
        assert image.memory is not before
        assert image.memory == before
        assert hashlib.sha256(image.memory).hexdigest() == image.digest


def test_a_program_is_suspended_and_restored_by_an_image_whose_memory_was_forgotten(engine: Engine) -> None:
    cell = Cell(engine)
    restored = None
    try:
        cell.start("let n = 41; await yield_control(); return ++n")
        suspended = cell.snapshot()
        assert engine.forget_unused(0)
        assert cell.snapshot() == suspended
        assert engine.forget_unused(0)
        restored = Cell(engine, suspended=suspended)
        assert restored.snapshot() == suspended
        assert restored.deliver(ok(1)).value == 42
    finally:
        cell.close()
        if restored is not None:
            restored.close()


def test_an_image_is_made_once_per_catalog(engine: Engine) -> None:
    first = engine.threads.submit(engine.image, MANIFEST).result()
    assert engine.threads.submit(engine.image, MANIFEST).result() is first
    other = engine.threads.submit(engine.image, '{"servers":[],"tools":[],"named":[]}').result()
    assert other.digest != first.digest


def test_an_image_that_was_dropped_is_made_again_just_as_it_was(engine: Engine) -> None:
    first = engine.threads.submit(engine.image, MANIFEST).result()
    for number in range(engines._CACHED_IMAGES):
        manifest = f'{{"servers":[],"tools":[{{"id":"t{number}"}}],"named":[]}}'
        engine.threads.submit(engine.image, manifest).result()
    again = engine.threads.submit(engine.image, MANIFEST).result()
    assert again is not first
    assert again.digest == first.digest


# threads


def test_starting_a_guest_leaves_the_stack_size_of_other_threads_alone() -> None:
    before = threading.stack_size()
    threads = GuestThreads(1)
    try:
        assert threads.submit(lambda: 42).result() == 42
    finally:
        threads.close()
    assert threading.stack_size() == before


def test_no_more_guests_compute_together_than_there_are_threads() -> None:
    threads = GuestThreads(2)
    release = threading.Event()
    together = threading.Barrier(3, timeout=5)
    started: list[int] = []

    def work(number: int) -> None:
        started.append(number)
        if number < 2:
            together.wait()
            release.wait(5)

    try:
        futures = [threads.submit(work, number) for number in range(3)]
        together.wait()
        assert sorted(started) == [0, 1]
        release.set()
        for future in futures:
            future.result(timeout=5)
        assert sorted(started) == [0, 1, 2]
    finally:
        release.set()
        threads.close()


# the compile cache


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows with each engine module that is compiled and not read from disk."""
    made: list[int] = []
    real = compiled.wasmtime.Module

    class Counting(real):  # type: ignore[misc, valid-type]
        def __init__(self, engine: Any, data: bytes) -> None:
            if len(data) > ENGINE_BYTES:
                made.append(len(data))
            super().__init__(engine, data)

    monkeypatch.setattr(compiled.wasmtime, "Module", Counting)
    return made


def opened_digest(cache: Path | None) -> str:
    """Return the digest of the base image of an engine that has computed something."""
    with open_engine(cache, max_threads=1) as opened:
        cell = Cell(opened)
        try:
            assert cell.start("return 6 * 7").value == 42
        finally:
            cell.close()
        return opened.base.digest


def copy_of(cache: Path, folder: Path) -> Path:
    """Return the path of the compiled form, in a new folder."""
    [file] = cache.glob("engine-*.cwasm")
    folder.mkdir(mode=0o700, exist_ok=True)
    copy = folder / file.name
    copy.write_bytes(file.read_bytes())
    return copy


def test_what_was_compiled_once_is_read_from_disk(
    engine: Engine, engine_cache: Path, compilations: list[int], tmp_path: Path
) -> None:
    copy = copy_of(engine_cache, tmp_path / "cache")
    before = copy.read_bytes()
    assert opened_digest(copy.parent) == engine.base.digest
    assert compilations == []
    assert copy.read_bytes() == before


def damage_head(data: bytes) -> bytes:
    return data[:40] + bytes([data[40] ^ 1]) + data[41:]


def damage_code(data: bytes) -> bytes:
    return data[:-5000] + bytes([data[-5000] ^ 1]) + data[-4999:]


def truncate(data: bytes) -> bytes:
    return data[: len(data) // 2]


def empty(data: bytes) -> bytes:
    return b""


def signed(content: bytes) -> bytes:
    return hashlib.sha256(content).digest() + content


def sign_junk(data: bytes) -> bytes:
    return signed(b"junk")


def sign_junk_code(data: bytes) -> bytes:
    return signed(data[32:].partition(b"\n")[0] + b"\njunk")


def sign_other_entries(data: bytes) -> bytes:
    return signed(b"[1,2,3]\n" + data[32:].partition(b"\n")[2])


DAMAGES = [damage_head, damage_code, truncate, empty, sign_junk, sign_junk_code, sign_other_entries]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_not_loaded(
    engine: Engine, engine_cache: Path, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    copy = copy_of(engine_cache, tmp_path / "cache")
    assert compiled._from_cache(engine.modules.engine, copy) is not None
    copy.write_bytes(damage(copy.read_bytes()))
    assert compiled._from_cache(engine.modules.engine, copy) is None


def test_with_a_damaged_file_the_engine_is_compiled_again_and_the_file_replaced(
    engine: Engine, engine_cache: Path, compilations: list[int], tmp_path: Path
) -> None:
    copy = copy_of(engine_cache, tmp_path / "cache")
    copy.write_bytes(damage_code(copy.read_bytes()))
    assert opened_digest(copy.parent) == engine.base.digest
    assert compilations
    repaired = copy.read_bytes()
    assert hashlib.sha256(repaired[32:]).digest() == repaired[:32]
    assert list(copy.parent.iterdir()) == [copy]


@needs_permissions
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o720, 0o702])
def test_a_directory_that_others_can_write_to_is_not_trusted(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(0o755)
    assert compiled._cache_path(tmp_path, b"") is not None
    tmp_path.chmod(mode)
    assert compiled._cache_path(tmp_path, b"") is None


@needs_permissions
def test_a_good_file_in_a_world_writable_directory_is_neither_read_nor_replaced(
    engine: Engine, engine_cache: Path, compilations: list[int], tmp_path: Path
) -> None:
    copy = copy_of(engine_cache, tmp_path / "cache")
    before = copy.stat()
    copy.parent.chmod(0o777)
    assert opened_digest(copy.parent) == engine.base.digest
    assert compilations
    assert (copy.stat().st_ino, copy.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert list(copy.parent.iterdir()) == [copy]


@needs_permissions
def test_a_directory_below_one_that_others_can_write_to_is_not_trusted(tmp_path: Path) -> None:
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(0o777)
    assert compiled._cache_path(above / "cache", b"") is None
    above.chmod(0o1777)
    assert compiled._cache_path(above / "cache", b"") is not None, "in a sticky folder no other user can rename it"


@needs_permissions
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
def test_machine_code_of_another_user_is_not_loaded_whatever_its_digest(
    engine: Engine, engine_cache: Path, tmp_path: Path
) -> None:
    copy = copy_of(engine_cache, tmp_path / "cache")
    os.chown(copy, 12345, 12345)
    assert compiled._from_cache(engine.modules.engine, copy) is None


@needs_permissions
def test_machine_code_behind_a_link_or_that_others_can_write_is_not_loaded(
    engine: Engine, engine_cache: Path, tmp_path: Path
) -> None:
    copy = copy_of(engine_cache, tmp_path / "cache")
    link = tmp_path / copy.name
    link.symlink_to(copy)
    assert compiled._from_cache(engine.modules.engine, link) is None
    copy.chmod(0o666)
    assert compiled._from_cache(engine.modules.engine, copy) is None


def test_a_directory_that_cannot_be_made_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert compiled.compiled_path(tmp_path / "file" / "cache") is None, "as for a folder that others can write to"


@needs_permissions
def test_cache_directory_and_file_are_for_this_user_only(engine: Engine, tmp_path: Path) -> None:
    file = compiled.compiled_path(tmp_path / "cache")
    assert file is not None
    compiled._to_cache(file, engine.base.entries, b"glue", b"engine")
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700
    assert file.stat().st_mode & 0o777 == 0o600
