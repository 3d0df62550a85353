"""The engine binary, its compiled form on disk, and the images that guests start from."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
import wasmtime
from guest_harness import MANIFEST

from codemode_mcp.errors import RuntimeUnavailable
from codemode_mcp.sandbox import binary
from codemode_mcp.sandbox import engine as engines
from codemode_mcp.sandbox.engine import GuestThreads, open_engine

if TYPE_CHECKING:
    from pathlib import Path

    from codemode_mcp.sandbox.engine import Engine

TINY = bytes(wasmtime.wat2wasm('(module (func (export "answer") (result i32) (i32.const 42)))'))
"""Compiles in no time, so that the cache can be tested by itself."""


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


def test_no_more_guests_compute_at_once_than_there_are_threads() -> None:
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
def compiler() -> wasmtime.Engine:
    return wasmtime.Engine()


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one for every module that is compiled, not read from disk."""
    made: list[int] = []

    class Counting(wasmtime.Module):
        def __init__(self, engine: wasmtime.Engine, data: bytes) -> None:
            made.append(len(data))
            super().__init__(engine, data)

    monkeypatch.setattr(engines.wasmtime, "Module", Counting)
    return made


def answer(engine: wasmtime.Engine, module: wasmtime.Module) -> int:
    store = wasmtime.Store(engine)
    function = wasmtime.Instance(store, module, []).exports(store)["answer"]
    assert isinstance(function, wasmtime.Func)
    result: int = function(store)
    return result


def test_what_was_compiled_once_is_read_from_disk(
    compiler: wasmtime.Engine, compilations: list[int], tmp_path: Path
) -> None:
    engines._compiled(compiler, TINY, tmp_path / "cache")
    again = engines._compiled(compiler, TINY, tmp_path / "cache")
    assert answer(compiler, again) == 42
    assert len(compilations) == 1


def damage_bit(data: bytes) -> bytes:
    return data[:100] + bytes([data[100] ^ 1]) + data[101:]


def junk_with_a_good_digest(data: bytes) -> bytes:
    return hashlib.sha256(b"junk").digest() + b"junk"


@pytest.mark.parametrize(
    "damage", [damage_bit, lambda data: data[:50], lambda data: b"", junk_with_a_good_digest], ids=str
)
def test_a_damaged_file_means_that_the_engine_is_compiled_again(
    compiler: wasmtime.Engine, compilations: list[int], tmp_path: Path, damage: object
) -> None:
    assert callable(damage)
    engines._compiled(compiler, TINY, tmp_path)
    [file] = tmp_path.iterdir()
    good = file.read_bytes()
    file.write_bytes(damage(good))
    assert answer(compiler, engines._compiled(compiler, TINY, tmp_path)) == 42
    assert len(compilations) == 2
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [good]


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no permission bits here")
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o720, 0o702])
def test_a_directory_that_others_can_write_to_is_neither_read_nor_written(
    compiler: wasmtime.Engine, compilations: list[int], tmp_path: Path, mode: int
) -> None:
    tmp_path.chmod(0o700)
    engines._compiled(compiler, TINY, tmp_path)
    [file] = tmp_path.iterdir()
    kept = file.read_bytes()
    tmp_path.chmod(mode)
    assert answer(compiler, engines._compiled(compiler, TINY, tmp_path)) == 42
    assert len(compilations) == 2
    file.unlink()
    engines._compiled(compiler, TINY, tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert kept


def test_a_directory_that_cannot_be_made_is_done_without(compiler: wasmtime.Engine, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert answer(compiler, engines._compiled(compiler, TINY, tmp_path / "file" / "cache")) == 42


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no permission bits here")
def test_cache_directory_and_file_are_for_this_user_only(compiler: wasmtime.Engine, tmp_path: Path) -> None:
    engines._compiled(compiler, TINY, tmp_path / "cache")
    [file] = (tmp_path / "cache").iterdir()
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700
    assert file.stat().st_mode & 0o777 == 0o600


def test_the_whole_engine_starts_from_a_damaged_cache(engine: Engine, engine_cache: Path, tmp_path: Path) -> None:
    [file] = engine_cache.iterdir()
    damaged = tmp_path / file.name
    damaged.write_bytes(damage_bit(file.read_bytes()))
    with open_engine(tmp_path, max_threads=1) as opened:
        assert opened.base.digest == engine.base.digest
    assert damaged.read_bytes() != damage_bit(file.read_bytes())
