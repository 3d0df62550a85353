"""Guests whose memory serves one after the other: nothing of one is left for the next."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from guest_harness import MANIFEST, Cell, ok

from codemode_mcp.sandbox import engine as engines
from codemode_mcp.sandbox.engine import GUESTS_PER_THREAD, Engine, open_engine
from codemode_mcp.sandbox.guest import Guest

LIMIT = 64 * 1024 * 1024
MEGABYTES = 24


def test_nothing_that_a_guest_has_written_is_in_the_memory_of_those_after_it(engine: Engine) -> None:
    image = engine.threads.submit(engine.image, MANIFEST).result()
    with Guest(engine, image, memory_limit=LIMIT) as first:
        expected = bytes(first._instance.image())
    program = "globalThis.kept = []; for (let i = 0; i < %d; i++) kept.push('%s'.repeat(65536));"
    for _ in range(4):
        mark = secrets.token_hex(8)
        # In what is kept between guests, and far beyond it.
        cell = Cell(engine)
        try:
            cell.start(program % (MEGABYTES, mark))
            assert mark.encode() in cell.guest._instance.image()
        finally:
            cell.close()
        with Guest(engine, image, memory_limit=LIMIT) as fresh:
            assert bytes(fresh._instance.image()) == expected
            fresh._instance.grow_to(image.pages + MEGABYTES * 16)
            grown = bytes(fresh._instance.image())
            assert mark.encode() not in grown
            assert not any(grown[len(image.memory) :])


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux has it")
def test_guests_of_all_threads_use_the_same_memory_one_after_the_other(engine_cache: Path) -> None:
    places: set[int] = set()

    def use() -> None:
        with Guest(engine, image, memory_limit=LIMIT) as guest:
            places.add(guest._instance._address)

    processors = os.sched_getaffinity(0)
    with open_engine(engine_cache, max_threads=2) as engine:
        image = engine.threads.submit(engine.image, MANIFEST).result()
        for _ in range(8):
            thread = threading.Thread(target=use)
            thread.start()
            thread.join()
    assert len(places) == 1
    assert os.sched_getaffinity(0) == processors


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is given back")
def test_the_memory_of_many_guests_goes_back_once_they_are_over(engine_cache: Path) -> None:
    with open_engine(engine_cache, max_threads=2) as engine:
        image = engine.threads.submit(engine.image, MANIFEST).result()
        guests = [Guest(engine, image, memory_limit=LIMIT) for _ in range(30)]
        expected = bytes(guests[0]._instance.image())
        for guest in guests:
            guest.close()
        before = resident_mb()
        assert not engine.modules.pool.give_back(3600), "they were in use just now"
        while engine.modules.pool.give_back(0):
            pass
        assert resident_mb() < before - 40
        with Guest(engine, image, memory_limit=LIMIT) as fresh:
            assert bytes(fresh._instance.image()) == expected


def resident_mb() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def test_guests_that_are_alive_keep_their_memory_while_that_of_others_is_given_back(engine_cache: Path) -> None:
    failures: list[str] = []
    over = threading.Event()

    def live(number: int) -> None:
        turns = 0
        while not over.is_set() or turns < 3:
            turns += 1
            cell = Cell(engine)
            try:
                cell.start(
                    f"const kept = Array.from({{length: 5000}}, (_, i) => i + {number}); await yield_control();"
                    "return kept.every((value, i) => value === i + %d) && kept.length" % number
                )
                suspended = cell.snapshot()
                if cell.deliver(ok(1)).value != 5000:
                    failures.append("after a turn")
            finally:
                cell.close()
            again = Cell(engine, suspended=suspended)
            try:
                if again.deliver(ok(1)).value != 5000:
                    failures.append("restored")
            finally:
                again.close()

    with open_engine(engine_cache, max_threads=4) as engine:
        threads = [threading.Thread(target=live, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        until = time.monotonic() + 1.5
        given_back = 0
        while time.monotonic() < until:
            given_back += engine.forget_unused(0)
        over.set()
        for thread in threads:
            thread.join()
    assert failures == []
    assert given_back > 10


def test_as_many_guests_are_alive_together_as_programs_may_be(engine_cache: Path) -> None:
    with open_engine(engine_cache, max_threads=2) as engine:
        image = engine.threads.submit(engine.image, MANIFEST).result()
        guests = [Guest(engine, image, memory_limit=LIMIT) for _ in range(2 * GUESTS_PER_THREAD + 8)]
        assert all(bytes(guest._instance.read(0, 65536)) == image.memory[:65536] for guest in guests)
        for guest in guests:
            guest.close()


@pytest.mark.skipif(sys.platform == "win32", reason="no such limit there")
def test_where_address_space_is_limited_guests_get_memory_of_their_own(engine_cache: Path, engine: Engine) -> None:
    script = (
        "import pathlib, resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))\n"
        "from codemode_mcp.sandbox.engine import open_engine\n"
        "with open_engine(pathlib.Path(sys.argv[1]), max_threads=1) as engine:\n"
        "    print(engine.base.digest)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", script, str(engine_cache)], capture_output=True, text=True, check=False, env=os.environ
    )
    assert (told.stdout.split(), told.returncode) == ([engine.base.digest], 0)


def test_an_engine_for_very_many_guests_reserves_nothing(monkeypatch: pytest.MonkeyPatch, engine_cache: Path) -> None:
    asked: list[int] = []
    monkeypatch.setattr(engines, "_can_reserve", lambda size: bool(asked.append(size)))
    with open_engine(engine_cache, max_threads=1024):
        assert asked == []
    with open_engine(engine_cache, max_threads=2):
        assert len(asked) == 1
