"""The pool of threads that guests run on."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from codemode_mcp.sandbox import engine
from codemode_mcp.sandbox.engine import GuestThreads


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[GuestThreads]:
    monkeypatch.setattr(engine, "IDLE_SECONDS", 0.05)
    opened = GuestThreads(2)
    yield opened
    opened.close()


def test_no_more_threads_work_together_than_there_may_be(threads: GuestThreads) -> None:
    go, started = threading.Event(), threading.Semaphore(0)

    def work() -> int:
        started.release()
        go.wait(10)
        return threading.get_ident()

    futures = [threads.submit(work) for _ in range(6)]
    assert started.acquire(timeout=10)
    assert started.acquire(timeout=10)
    assert not started.acquire(timeout=0.1)
    go.set()
    assert len({future.result(10) for future in futures}) == 2


def test_a_thread_that_is_idle_is_used_again(threads: GuestThreads) -> None:
    first = threads.submit(threading.get_ident).result(10)
    again = {threads.submit(threading.get_ident).result(10) for _ in range(20)}
    assert len(again | {first}) <= 2


def test_threads_without_work_end_and_new_ones_take_their_place(threads: GuestThreads) -> None:
    for _ in range(5):
        thread = threads.submit(threading.current_thread).result(10)
        thread.join(10)
        assert not thread.is_alive()


def test_no_work_is_left_lying_while_threads_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "IDLE_SECONDS", 0.001)
    threads = GuestThreads(3)
    chance = random.Random(1)

    def client(pauses: list[float]) -> None:
        for pause in pauses:
            time.sleep(pause)
            futures = [threads.submit(time.sleep, pause / 4) for _ in range(4)]
            for future in futures:
                future.result(30)

    clients = ThreadPoolExecutor(4)
    try:
        ended = [
            clients.submit(client, [chance.choice([0, 0.0009, 0.001, 0.0011]) for _ in range(200)]) for _ in range(4)
        ]
        for each in ended:
            each.result(60)
    finally:
        threads.close()
        clients.shutdown()


def test_what_goes_wrong_reaches_its_caller_and_the_thread_continues(threads: GuestThreads) -> None:
    def fail() -> None:
        raise ValueError("on purpose")

    for _ in range(5):
        with pytest.raises(ValueError, match="on purpose"):
            threads.submit(fail).result(10)


def test_closing_cancels_what_is_queued_and_lets_the_threads_end() -> None:
    threads = GuestThreads(1)
    go, started = threading.Event(), threading.Event()

    def work() -> threading.Thread:
        started.set()
        go.wait(10)
        return threading.current_thread()

    running = threads.submit(work)
    queued = threads.submit(threading.get_ident)
    assert started.wait(10)
    threads.close()
    assert queued.cancelled()
    go.set()
    thread = running.result(10)
    thread.join(10)
    assert not thread.is_alive()
    with pytest.raises(RuntimeError):
        threads.submit(threading.get_ident)
