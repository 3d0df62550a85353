"""`codemode-mcp` with one thing more: at SIGUSR1 it appends its tasks to FILE: `watched_serve.py FILE serve ...`.

One line of JSON, the names of the tasks of the event loop by count. Tasks that are kept for the next call and do
nothing do not count: there are as many as calls ran at the same time. Nothing else about it is different.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from typing import Any

path = sys.argv.pop(1)


def started(task: asyncio.Task[Any]) -> Any:
    """Return the coroutine with which a task was started: a task group has one of its own around it."""
    coroutine: Any = task.get_coro()
    while coroutine.__qualname__.startswith("TaskHandle.") and coroutine.cr_await is not None:
        coroutine = coroutine.cr_await
    return coroutine


def is_idle(coroutine: Any) -> bool:
    return coroutine.__qualname__ == "_Worker.run" and coroutine.cr_frame.f_locals["self"]._work is None


def tell(*_: object) -> None:
    coroutines = [started(task) for task in asyncio.all_tasks(asyncio.get_running_loop())]
    names = Counter(each.__qualname__ for each in coroutines if not is_idle(each))
    line = json.dumps({"tasks": dict(sorted(names.items()))}).encode() + b"\n"
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(file, line)
    os.close(file)


signal.signal(signal.SIGUSR1, tell)
with open(path, "w", encoding="utf-8") as file:
    file.write(json.dumps({"pid": os.getpid()}) + "\n")

from codemode_mcp.__main__ import main  # noqa: E402

main()
