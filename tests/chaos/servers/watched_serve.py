"""`codemode-mcp` with one thing more: at SIGUSR1 it appends its tasks to FILE: `watched_serve.py FILE serve ...`.

One line of JSON, the names of the tasks of the event loop by count. Nothing else about it is different.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter

path = sys.argv.pop(1)


def tell(*_: object) -> None:
    tasks = asyncio.all_tasks(asyncio.get_running_loop())
    names = Counter(getattr(task.get_coro(), "__qualname__", "?") for task in tasks)
    line = json.dumps({"tasks": dict(sorted(names.items()))}).encode() + b"\n"
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(file, line)
    os.close(file)


signal.signal(signal.SIGUSR1, tell)
with open(path, "w", encoding="utf-8") as file:
    file.write(json.dumps({"pid": os.getpid()}) + "\n")

from codemode_mcp.__main__ import main  # noqa: E402

main()
