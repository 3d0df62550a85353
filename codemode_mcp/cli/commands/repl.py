"""`codemode-mcp repl`."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import time
from contextlib import contextmanager
from functools import partial
from io import TextIOBase
from typing import TYPE_CHECKING, Annotated, Any, TextIO, cast

import anyio
import anyio.to_thread
import typer

from codemode_mcp.cli.options import ConfigOption, LogFileOption, LogLevelOption
from codemode_mcp.cli.shared import fitted, harmless, load, logging_as, plugins_on_stderr, say, stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from codemode_mcp.app.app import App
    from codemode_mcp.audit.events import Event
    from codemode_mcp.cli.repl.prompt import Prompt
    from codemode_mcp.cli.repl.terminal import Reader
    from codemode_mcp.cli.terminal import Screen
    from codemode_mcp.cli.trace.progress import Progress
    from codemode_mcp.config import Config
    from codemode_mcp.settings import Language

CONNECT_SECONDS = 30.0
"""Seconds for servers to connect in the background, so that completion knows them."""

GREETING_SECONDS = 1.5
"""Seconds of these before the first prompt."""

app = typer.Typer()


@app.command(
    epilog="Example: codemode-mcp repl\n\n"
    "Example: printf 'const a = await API.list()\\na.files.length\\n' | codemode-mcp repl"
)
def repl(
    config: ConfigOption = None,
    language: Annotated[
        str | None, typer.Option(help="javascript or typescript; default: the first, and the other by trying.")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Admit read-only tools only.")] = False,
    log_level: LogLevelOption = None,
    log_file: LogFileOption = None,
) -> None:
    """Try programs line by line against the configured servers, with completion.

    What is piped in is read as if it was typed, without colours; the exit code is 1 if something in it failed.
    """
    from codemode_mcp.errors import CodeModeError
    from codemode_mcp.server.exec_arguments import exec_arguments

    loaded = load(config, log_level or "warning", log_file, read_only=read_only)
    try:
        chosen = exec_arguments({"code": "1", "language": language}).language
    except CodeModeError as error:
        stop(2, error.message)
    try:
        with _log_where_stderr_is(loaded):
            if sys.stdin.isatty() and sys.stdout.isatty():
                ok = anyio.run(_at_terminal, loaded, chosen)
            else:
                with plugins_on_stderr() as out:
                    ok = anyio.run(_from_pipe, out, loaded, chosen)
    except KeyboardInterrupt:
        say("interrupted: the program was cancelled")
        raise typer.Exit(130) from None
    if not ok:
        raise typer.Exit(1)


@contextmanager
def _log_where_stderr_is(config: Config) -> Iterator[None]:
    """Send the log to the current `sys.stderr`: above the prompt, or into the output of a program."""
    theirs, sys.stderr = sys.stderr, cast("TextIO", _Stderr())
    try:
        with logging_as(config):
            sys.stderr = theirs
            yield
    finally:
        sys.stderr = theirs


class _Stderr(TextIOBase):
    @property
    def encoding(self) -> str:  # type: ignore[override]
        return sys.stderr.encoding or "utf-8"

    def write(self, text: str, /) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


# a pipe


class _Pipe:
    decides = False

    def __init__(self, out: TextIO) -> None:
        from codemode_mcp.cli.asking import Unattended

        self._out = out
        self.client = Unattended()
        self.gone: OSError | None = None
        """The error after which nothing can be printed."""
        self.scope = anyio.CancelScope()

    def print(self, text: str) -> None:
        try:
            print(harmless(text) if self._out.isatty() else text, file=self._out, flush=True)
        except OSError as error:
            self.gone = error
            self.scope.cancel()

    def declaration(self, text: str) -> None:
        self.print(text)

    def value(self, value: Any) -> None:
        self.print(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))

    def say(self, text: str) -> None:
        say(text)

    def fail(self, text: str, place: tuple[str, int, int] | None) -> None:
        say(text)


async def _from_pipe(out: TextIO, config: Config, language: Language | None) -> bool:
    from codemode_mcp.app.app import open_app
    from codemode_mcp.cli.repl.cells import is_incomplete
    from codemode_mcp.cli.repl.prompt import Prompt

    ok = True
    front = _Pipe(out)
    async with open_app(config) as opened:
        prompt = Prompt(opened, front, language)
        text = ""
        while True:
            try:
                line = (await anyio.to_thread.run_sync(sys.stdin.buffer.readline, abandon_on_cancel=True)).decode()
            except UnicodeDecodeError as error:
                say(f"cannot read the programs from stdin: {error}")
                return False
            text += line
            if line and is_incomplete(text.rstrip("\r\n")):
                continue
            done: bool | None = False
            with front.scope:
                done = await prompt.take(text)
            if isinstance(front.gone, BrokenPipeError):
                raise front.gone
            if front.gone is not None:
                say(f"cannot write the output: {front.gone.strerror}; the program was cancelled")
                return False
            front.scope = anyio.CancelScope()
            if done is None:
                return ok
            ok, text = ok and done, ""
            if not line:
                return ok


# a terminal


class _Terminal:
    """A person. While a program runs, a `Screen` has the terminal; in between the prompt has it."""

    def __init__(self) -> None:
        from codemode_mcp.cli.asking import Unattended

        self.client = Unattended()
        self.screen: Screen | None = None
        self._put_off: list[partial[None]] = []

    @property
    def decides(self) -> bool:
        """Return True if a person can decide here, see `repl.front.Front`."""
        return self.client.decides

    def print(self, text: str) -> None:
        from codemode_mcp.cli.repl.display import lines_of

        if self.screen is not None:
            self.screen.print(text)
        else:
            print(lines_of(text), flush=True)  # noqa: T201

    def declaration(self, text: str) -> None:
        from codemode_mcp.cli.repl.terminal import print_code

        self._put_off.append(partial(print_code, text))

    def value(self, value: Any) -> None:
        from codemode_mcp.cli.repl.terminal import print_value

        self._put_off.append(partial(print_value, value, _columns()))

    def say(self, text: str) -> None:
        from codemode_mcp.cli.repl.display import lines_of

        if self.screen is not None:
            self.screen.say(fitted(lines_of(text)))
        else:
            say(lines_of(text))

    def fail(self, text: str, place: tuple[str, int, int] | None) -> None:
        from codemode_mcp.cli.repl.terminal import print_error

        self._put_off.append(partial(print_error, text, place, _columns()))

    def show(self) -> None:
        """Print the coloured parts, behind all that was printed."""
        put_off, self._put_off = self._put_off, []
        for each in put_off:
            each()


def _columns() -> int:
    return shutil.get_terminal_size((80, 24)).columns


async def _at_terminal(config: Config, language: Language | None) -> bool:
    from codemode_mcp.app.app import open_app
    from codemode_mcp.cli.repl.prompt import Prompt
    from codemode_mcp.cli.repl.terminal import Reader, history_path, open_history

    history = None
    try:
        history = open_history(history_path())
    except OSError as error:
        say(f"what is typed is not remembered: cannot open {history_path()}: {error.strerror}")
    front = _Terminal()
    async with open_app(config) as opened, anyio.create_task_group() as group:
        prompt = Prompt(opened, front, language)
        reader = Reader(prompt.vocabulary, lambda: prompt.language == "typescript", history)
        running = _Running(opened, front, prompt)
        group.start_soon(opened.connect, CONNECT_SECONDS)
        await _greet(opened)
        with _on_interrupt(partial(asyncio.get_running_loop().call_soon_threadsafe, running.interrupt)):
            await _talk(reader, running)
        group.cancel_scope.cancel()
    return True


async def _talk(reader: Reader, running: _Running) -> None:
    """One input after the other, until a person leaves."""
    from codemode_mcp.cli.repl.terminal import Interrupted

    given_up = False
    while True:
        try:
            text = await reader.read()
        except Interrupted as interrupted:
            if interrupted.typed:
                given_up = False
                continue
            if given_up:
                return
            given_up = True
            say("(Ctrl-C again, Ctrl-D or .exit leaves)")
            continue
        given_up = False
        if text is None or await running.take(text) is None:
            return


async def _greet(opened: App) -> None:
    from importlib import metadata

    from codemode_mcp.control.display import counted, plain

    await opened.manager()
    with anyio.move_on_after(GREETING_SECONDS):
        await opened.connect(GREETING_SECONDS)
    catalog = await opened.catalog_for(opened.operator, None)
    told = [
        f"MCP.{each.identifier} ({counted(len(each.tools), 'tool')})"
        if each.tools and each.trouble is None
        else f"MCP.{each.identifier} ({plain(each.trouble or each.status).removeprefix('is ')})"
        for each in catalog.servers
    ]
    say(f"codemode-mcp {metadata.version('codemode-mcp')}. Tab completes, .help helps, Ctrl-D leaves.")
    say(", ".join(told) if told else "no server is configured; see codemode-mcp doctor")


class _Running:
    """Obeys one input after the other. Ctrl-C ends what is running, and not the session."""

    def __init__(self, opened: App, front: _Terminal, prompt: Prompt) -> None:
        self._opened = opened
        self._front = front
        self._prompt = prompt
        self._progress: Progress | None = None
        self._scope: anyio.CancelScope | None = None
        opened.auditor.add(self._listen)

    def interrupt(self) -> None:
        """End what is running, if something is."""
        if self._scope is not None:
            self._scope.cancel()

    async def take(self, text: str) -> bool | None:
        """Run an input as `Prompt.take` does; an interrupted one has failed."""
        from codemode_mcp.cli.asking import Person, Unattended
        from codemode_mcp.cli.terminal import Screen, is_at_terminal
        from codemode_mcp.nesting import DEPTH_VARIABLE

        front = self._front
        done: bool | None = False
        with Screen() as screen:
            front.screen = screen
            # A process below our own upstream servers decides nothing, nor does a person who cannot see the question.
            if is_at_terminal() and DEPTH_VARIABLE not in os.environ:
                front.client = Person(screen)
            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(self._count, screen)
                    with anyio.CancelScope() as scope:
                        self._scope = scope
                        done = await self._prompt.take(text)
                    group.cancel_scope.cancel()
            finally:
                screen.status = ""
                front.screen = self._scope = None
                front.client = Unattended()
        front.show()
        if scope.cancelled_caught:
            say("cancelled, with its calls in flight")
        return done

    def _listen(self, event: Event) -> None:
        if self._progress is not None:
            self._progress.listen(event)

    async def _count(self, screen: Screen) -> None:
        """Keep the line of progress as it is at the moment."""
        from codemode_mcp.cli.terminal import TICK_SECONDS
        from codemode_mcp.cli.trace.progress import Progress

        def called(tool: str) -> str:
            entry = self._opened.catalog_of(self._opened.operator).get(tool)
            return tool if entry is None else entry.path

        progress = self._progress = Progress(called)
        while True:
            await anyio.sleep(TICK_SECONDS)
            screen.status = progress.line(time.time(), screen.width, progress.begun)


@contextmanager
def _on_interrupt(tell: Callable[[], object]) -> Iterator[None]:
    theirs = signal.signal(signal.SIGINT, lambda *_: tell())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, theirs)
