"""The loader of the JavaScript engine, which takes seconds to compile at first."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from codemode_mcp.base.errors import CodeModeError, RuntimeUnavailable
from codemode_mcp.base.paths import cache_dir

if TYPE_CHECKING:
    from codemode_mcp.sandbox.engine import Engine

log = logging.getLogger("codemode_mcp.process.app")

CLOSE_SECONDS = 3.0
"""Seconds that the end of the process waits for an engine that is still being compiled."""


class EngineLoader:
    """The loader of the engine, in a thread. A context manager: leaving it closes the engine."""

    def __init__(self, max_threads: int) -> None:
        self._max_threads = max_threads
        self._stack = ExitStack()
        self._lock = threading.Lock()
        self._ready = threading.Event()
        self._started = False
        self._engine: Engine | None = None
        self._error: CodeModeError | None = None

    def __enter__(self) -> EngineLoader:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            started, self._started = self._started, True  # so that it is not started after this
        if started:
            self._ready.wait(CLOSE_SECONDS)
        self._stack.close()

    def start(self) -> None:
        """Start to load the engine, unless it was started before."""
        with self._lock:
            if self._started:
                return
            self._started = True
        threading.Thread(target=self._open, name="engine", daemon=True).start()

    def forget_unused(self) -> bool:
        """Free what the engine can make again and has not used for a while. Return True if anything was freed."""
        return self._engine is not None and self._engine.forget_unused()

    async def get(self) -> Engine:
        """Return the engine, after it was loaded.

        Raises:
            RuntimeUnavailable: the engine cannot be loaded.
        """
        if self._engine is None:
            self.start()
            await anyio.to_thread.run_sync(self._ready.wait, abandon_on_cancel=True)
        if self._engine is None:
            assert self._error is not None
            raise RuntimeUnavailable(self._error.message)
        return self._engine

    def _open(self) -> None:
        try:
            from codemode_mcp.program.intl import intl_reader
            from codemode_mcp.sandbox.engine import open_engine

            began = time.monotonic()
            opening = open_engine(cache_dir(), max_threads=self._max_threads, intl=intl_reader(cache_dir()))
            self._engine = self._stack.enter_context(opening)
            log.info("engine ready in %d ms", round((time.monotonic() - began) * 1000))
        except CodeModeError as error:
            log.error("%s", error.message)  # a traceback would add nothing
            self._error = error
        except Exception:
            log.exception("the engine did not start")
            self._error = RuntimeUnavailable("the JavaScript engine did not start; see the log of codemode-mcp")
        finally:
            self._ready.set()
