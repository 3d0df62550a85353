"""Relays and the real instance: one is started, and its clients notice its death only by their open calls."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp.process.instance import registry
from tests.instance.fake_instance import BOUND
from tests.instance.relay_processes import INITIALIZE, User, read_line, user_with_folders, write_line

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the user's folders are set by variables of Unix")

INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


@pytest.fixture
def user(monkeypatch: pytest.MonkeyPatch, engine_cache: Path) -> Iterator[User]:
    with user_with_folders(monkeypatch) as found:
        shutil.copytree(engine_cache, found.home / "cache" / "codemode-mcp")
        try:
            yield found
        finally:
            if (pid := pid_of_instance()) is not None:
                os.kill(pid, signal.SIGKILL)


def pid_of_instance() -> int | None:
    record = registry.read_record(registry.key_of(None))
    return None if record is None else record.pid


def greeted(user: User) -> subprocess.Popen[bytes]:
    process = user.serve()
    write_line(process, INITIALIZE)
    assert read_line(process)["id"] == 0
    write_line(process, INITIALIZED)
    return process


def call(process: subprocess.Popen[bytes], number: int, code: str) -> None:
    params = {"name": "exec", "arguments": {"code": code}}
    write_line(process, {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})


def answer(process: subprocess.Popen[bytes], number: int) -> Any:
    """Return the answer to a request. Skip notifications."""
    while (message := read_line(process)).get("id") != number:
        assert "id" not in message, "an answer that no request has"
    return message["result"]


def end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(BOUND) == 0


def test_relays_that_start_together_share_one_instance_that_outlives_them(user: User) -> None:
    with ThreadPoolExecutor(5) as pool:
        processes = list(pool.map(greeted, [user] * 5))
    pid = pid_of_instance()
    assert pid is not None
    listed = subprocess.run(["ps", "-ww", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    key = registry.key_of(None)
    rows = [line.split(maxsplit=2) for line in listed.splitlines() if f"instance run --key {key}" in line]
    assert [int(row[0]) for row in rows] == [pid]
    assert int(rows[0][1]) not in {process.pid for process in processes}, "the instance is no child of a relay"
    for number, process in enumerate(processes):
        call(process, 1, f"return {number} + 1")
    for number, process in enumerate(processes):
        assert answer(process, 1)["structuredContent"]["value"] == number + 1
        end(process)
    assert pid_of_instance() == pid
    end(greeted(user))
    assert pid_of_instance() == pid


def test_clients_of_an_instance_that_was_killed_notice_only_their_open_calls(user: User) -> None:
    processes = [greeted(user) for _ in range(3)]
    first = pid_of_instance()
    assert first is not None
    call(processes[0], 1, "await new Promise((done) => setTimeout(done, 60_000))")
    call(processes[1], 1, "return 1")
    assert answer(processes[1], 1)["structuredContent"]["value"] == 1
    time.sleep(0.5)  # so that the first program has begun in most runs; the answer is the same if it has not
    os.kill(first, signal.SIGKILL)
    interrupted = answer(processes[0], 1)
    assert interrupted["isError"] is True
    assert "server process ended" in interrupted["content"][0]["text"]
    for process in processes:
        call(process, 2, "return 2")
    for process in processes:
        assert answer(process, 2)["structuredContent"]["value"] == 2
        end(process)
    second = pid_of_instance()
    assert second not in (None, first)


def test_an_instance_that_is_stopped_hands_its_clients_to_the_next_one(user: User) -> None:
    process = greeted(user)
    first = pid_of_instance()
    assert first is not None
    os.kill(first, signal.SIGTERM)
    call(process, 1, "return 1")
    given = answer(process, 1)
    if given["isError"]:  # the old instance had the line already
        assert "calls was sent. Call exec again." in given["content"][0]["text"]
    call(process, 2, "return 2")
    assert answer(process, 2)["structuredContent"]["value"] == 2
    assert pid_of_instance() != first
    end(process)
