"""Run `codemode-mcp` and write which modules it has imported, for `memory.py`: `imported.py FILE ARGUMENT ...`.

Modules come in the order in which they were ready, each with whether a function of it was called after its import. A
profiler sees the calls, which makes the process slow: nothing else is measured in it. Code that is compiled into
extension modules is seen where Python code calls it, as part of its package.

`imported.py --sizes FILE` imports the same modules one after the other, in a process that does nothing else, and adds
how much its resident memory grew with each. Within a server, other threads work while modules are imported.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

LOADERS = (importlib.machinery.SourceFileLoader, importlib.machinery.ExtensionFileLoader)
ready: list[str] = []
called: set[CodeType] = set()
native: set[str] = set()
"""Modules of compiled functions that were called."""
importing: Counter[int] = Counter()
"""Imports that each thread is within."""


def watch(loader: Any) -> None:
    """Note the modules that a kind of loader executes."""
    execute: Callable[[Any, ModuleType], None] = loader.exec_module

    def noted(self: Any, module: ModuleType) -> None:
        thread = threading.get_ident()
        importing[thread] += 1
        try:
            execute(self, module)
        finally:
            importing[thread] -= 1
        ready.append(module.__name__)

    loader.exec_module = noted


def profile(frame: FrameType, event: str, argument: Any) -> None:
    if importing[threading.get_ident()]:
        return
    if event == "call":
        called.add(frame.f_code)
    elif event == "c_call":
        module = getattr(argument, "__module__", None)
        native.add(type(getattr(argument, "__self__", None)).__module__ if module is None else module)


def top(module: str) -> str:
    return module.partition(".")[0]


def write(file: Path) -> None:
    sys.setprofile(None)
    files = {code.co_filename for code in called}
    used = {top(name) for name in native}
    found = []
    for name in ready:
        if name in sys.modules and name != "__main__":
            place = getattr(sys.modules[name], "__file__", None) or ""
            seen = place in files or (top(name) in used and not place.endswith(".py"))
            found.append({"package": top(name), "name": name, "mb": 0.0, "called": seen})
    file.write_text(json.dumps(found), "utf-8")


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def add_sizes(file: Path) -> None:
    found = json.loads(file.read_text("utf-8"))
    sizes: dict[str, int] = {}
    below = [0]

    def weigh(loader: Any) -> None:
        execute: Callable[[Any, ModuleType], None] = loader.exec_module

        def weighed(self: Any, module: ModuleType) -> None:
            below.append(0)
            before = resident()
            try:
                execute(self, module)
            finally:
                took = resident() - before
                # The modules that it imports in turn have their own sizes.
                sizes[module.__name__] = took - below.pop()
                below[-1] += took

        loader.exec_module = weighed

    for loader in LOADERS:
        weigh(loader)
    for each in found:
        with suppress(ImportError):  # some are made by other modules and not found by their names
            importlib.import_module(each["name"])
        each["mb"] = max(0, sizes.get(each["name"], 0)) / 1e6
    file.write_text(json.dumps(found), "utf-8")


def main() -> None:
    if sys.argv[1] == "--sizes":
        add_sizes(Path(sys.argv[2]))
        return
    file = Path(sys.argv.pop(1))
    for loader in LOADERS:
        watch(loader)
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        from codemode_mcp.__main__ import main as start

        start()
    finally:
        write(file)


if __name__ == "__main__":
    main()
