"""The server process of `codemode-mcp serve`."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio

from codemode_mcp.catalog.search.warmup import THREAD_NAME
from codemode_mcp.cli.loading import load, logging_of, with_options
from codemode_mcp.cli.messages import say, stop
from codemode_mcp.cli.relaying import say_hint
from codemode_mcp.process.app.heap import collect_seldom_soon, use_one_arena
from codemode_mcp.rules.policy.policy import Caller

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from codemode_mcp.base.settings import LogLevel
    from codemode_mcp.config import Config, Reading
    from codemode_mcp.server.stdio import Streams

log = logging.getLogger("codemode_mcp.cli")

_SAME_SIGNAL_SECONDS = 1.0
"""Time after the first signal in which another one is the same signal, sent to the process and to its group."""


def run(
    *,
    config: str | None = None,
    transport: str = "stdio",
    host: str | None = None,
    port: int | None = None,
    path: str | None = None,
    allow_unauthenticated: bool = False,
    read_only: bool = False,
    locked: bool = False,
    context: str | None = None,
    log_level: LogLevel | None = None,
    log_file: str | None = None,
    record: Path | None = None,
) -> None:
    """Serve until the client closes the connection or a signal arrives. The arguments are the command's options."""
    from codemode_mcp.base.nesting import DEPTH_VARIABLE, MAX_DEPTH, depth

    streams = 0, 1
    at_terminal = sys.stdin is not None and sys.stdin.isatty()
    if transport == "stdio":
        for option, value in (("--host", host), ("--port", port), ("--path", path)):
            if value is not None:
                stop(2, f"{option} is for --transport http; add that, or leave {option} out")
        from codemode_mcp.server.stdio import reserve

        streams = reserve()
    elif transport != "http":
        is_http = transport in ("sse", "streamable-http", "https")
        advice = "write --transport http" if is_http else "leave it out for stdio"
        stop(2, f"--transport {transport}: it is stdio or http; {advice}")
    elif context is not None:
        stop(2, "--context is for stdio; over HTTP, the token of a caller decides its context (for, in tools.contexts)")
    else:
        check_path(path)
    if depth(os.environ) >= MAX_DEPTH:
        stop(
            2,
            f"codemode-mcp starts itself, {MAX_DEPTH} levels deep ({DEPTH_VARIABLE}); "
            "find the server entry that starts it, and remove that entry",
        )
    use_one_arena()  # before other threads start
    loaded = load(config, log_level, log_file, read_only=read_only, locked=locked)
    if record is not None:
        loaded = _recording_to(record, loaded)
    check_context(loaded, context)
    if transport == "stdio" and at_terminal:
        say_hint()
    with logging_of(loaded) as redactor:

        def reload(reading: Reading) -> Config:
            from codemode_mcp.cli.deciding import find, refuse_unknown
            from codemode_mcp.config import load_config
            from codemode_mcp.config.confirmation import Gate

            # A changed file in the working directory may start programs that were not confirmed.
            gate = Gate(refuse_unknown)
            find(config, gate.remember)
            changed = load_config(loaded.path, environ=os.environ, reading=reading, admit=gate.admit, locked=locked)
            redactor.know(changed.secretive)
            if context is not None and context not in _names_of_contexts(changed):
                log.warning(
                    "tools.contexts no longer has %r, the --context of this client: it may call nothing", context
                )
            return with_options(changed, log_level, log_file, read_only=read_only)

        if transport == "http":
            host = "127.0.0.1" if host is None else host.strip("[]")
            port = 8808 if port is None else port
            path = "/mcp" if path is None else path.rstrip("/") or "/"
            restriction = Caller(None, "http", read_only=read_only)
            anyio.run(_serve_http, loaded, reload, host, port, path, allow_unauthenticated, restriction)
        else:
            restriction = Caller(None, read_only=read_only, context=context)
            anyio.run(_serve_stdio, loaded, reload, streams, restriction)


def _recording_to(folder: Path, config: Config) -> Config:
    """Return the configuration with a folder for recordings. End the command if the folder cannot be used."""
    from codemode_mcp.audit.recordings.recordings import use_folder

    try:
        use_folder(folder)
    except OSError as error:
        stop(2, f"--record {folder}: the folder cannot be used: {error.strerror or error}; name another one")
    return replace(config, audit=replace(config.audit, recordings=str(folder.absolute())))


def check_path(path: str | None) -> None:
    """End the command with status 2 if a path cannot be that of an endpoint."""
    if path is not None and (not path.startswith("/") or not path.isascii() or {*path} & {*' ?#%"\\'}):
        stop(2, f"--path {path}: it must begin with / and have no characters that a URL would encode, like /mcp")


def check_context(config: Config, name: str | None) -> None:
    """End the command with status 2 if the configuration has no context of this name."""
    known = _names_of_contexts(config)
    if name is not None and name not in known:
        there = f"there are {', '.join(map(repr, known))}" if known else "the configuration has none"
        stop(2, f"--context {name}: there is no such context in tools.contexts; {there}")


def _names_of_contexts(config: Config) -> list[str]:
    return [each.name for each in config.tools.contexts]


async def _serve_stdio(
    config: Config, reload: Callable[[Reading], Config], streams: Streams, restriction: Caller
) -> None:
    """Serve the client on these streams. `restriction`: see `Caller.bound_as`."""
    collect_seldom_soon(asyncio.get_running_loop())
    from codemode_mcp.process.app.app import open_app

    over = anyio.Event()
    by_signal = False

    def end() -> None:
        nonlocal by_signal
        by_signal = True
        over.set()

    async with anyio.create_task_group() as group:
        if sys.platform != "win32":
            group.start_soon(_end_on_signal, end)
        async with open_app(config, reload, "stdio") as opened:
            # Imported here, since opening the application prints problems of the configuration sooner.
            from codemode_mcp.server.code_mode import Surface
            from codemode_mcp.server.stdio import serve_surface

            caller = opened.operator.bound_as(restriction)
            group.start_soon(serve_surface, Surface(opened, caller, lasting=True), caller, streams, over)
            await over.wait()
        if by_signal or any(thread.name == THREAD_NAME for thread in threading.enumerate()):
            # After a signal, a thread is still in a blocking read of standard input. Nothing can interrupt it, and the
            # tasks that wait for it do not end. A thread that still loads a sentence model would make Python abort.
            sys.stderr.flush()
            os._exit(0)
        group.cancel_scope.cancel()


async def _end_on_signal(end: Callable[[], None]) -> None:
    """Call `end` at the first SIGTERM or SIGINT. A later one ends the process immediately."""
    first: float | None = None
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            if first is None:
                first = anyio.current_time()
                end()
            elif anyio.current_time() - first >= _SAME_SIGNAL_SECONDS:
                sys.stderr.flush()
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)


async def _serve_http(
    config: Config,
    reload: Callable[[Reading], Config],
    host: str,
    port: int,
    path: str,
    allow_unauthenticated: bool,
    restriction: Caller,
) -> None:
    """Serve clients over HTTP. `restriction`: see `Caller.bound_as`."""
    collect_seldom_soon(asyncio.get_running_loop())
    from codemode_mcp.process.app.app import open_app
    from codemode_mcp.server.http.listener import become_ready, begin_serving, listening, notes_for, refusal_to_listen
    from codemode_mcp.server.http.sockets import CannotListen

    settings = config.http
    refusal = refusal_to_listen(settings, host, allowed=allow_unauthenticated)
    if refusal is not None:
        stop(2, refusal)
    over = anyio.Event()
    failure: CannotListen | None = None
    async with anyio.create_task_group() as signals:  # until everything is closed
        if sys.platform != "win32":
            signals.start_soon(_end_on_signal, over.set)
        try:
            async with listening(settings, host, port, path) as listener, anyio.create_task_group() as group:
                async with open_app(config, reload, "http") as opened:
                    await begin_serving(listener, opened, restriction)
                    say(f"codemode-mcp serves MCP at {listener.url}")
                    for note in notes_for(settings, host):
                        say(note)
                    group.start_soon(become_ready, listener, opened)
                    await over.wait()
                    async with anyio.create_task_group() as ending:
                        # With a durable store, running programs are suspended and answered, for the next process.
                        ending.start_soon(opened.retire)
                        await listener.drain()
                        ending.cancel_scope.cancel()
                # The answers to open requests, that their run is aborted, are written before connections end.
                group.cancel_scope.cancel()
        except CannotListen as error:
            failure = error
        signals.cancel_scope.cancel()
    if failure is not None:
        stop(1, str(failure))
