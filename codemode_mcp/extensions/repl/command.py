"""`codemode-mcp repl`."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from functools import partial
from io import TextIOBase
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TextIO, cast

import anyio
import anyio.to_thread
import typer

from codemode_mcp.cli.loading import load, logging_of, plugins_on_stderr
from codemode_mcp.cli.messages import end, escape, say, stop, wrap
from codemode_mcp.cli.options import ConfigOption, LogFileOption, LogLevelOption, PrivateOption, ReadOnlyOption

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from codemode_mcp.base.settings import Language
    from codemode_mcp.cli.terminal import Screen
    from codemode_mcp.config import Config
    from codemode_mcp.extensions.repl.programs import Programs
    from codemode_mcp.extensions.repl.prompt import Prompt
    from codemode_mcp.extensions.repl.terminal import Reader

    OpenPrograms = Callable[[Callable[[], Screen | None]], AbstractAsyncContextManager[Programs]]
    """Opens the programs of a session. The argument returns the screen of the program that runs, if there is one."""

CONNECT_SECONDS = 30.0
"""Timeout for connecting servers in the background, so that completion knows their tools."""

GREETING_SECONDS = 1.5
"""Timeout for connecting servers before the first prompt."""

app = typer.Typer()


@app.command(
    epilog="Example: codemode-mcp repl\n\n"
    "Example: printf 'const a = await API.list()\\na.files.length\\n' | codemode-mcp repl"
)
def repl(
    config: ConfigOption = None,
    language: Annotated[
        str | None, typer.Option(help="javascript or typescript; default: JavaScript, else TypeScript by trying.")
    ] = None,
    read_only: ReadOnlyOption = False,
    log_level: LogLevelOption = None,
    log_file: LogFileOption = None,
    private: PrivateOption = False,
) -> None:
    """Try programs line by line against the configured servers, with completion.

    Piped input is read as if it were typed, without colours. The exit code is 1 if any of it failed.
    """
    from codemode_mcp.base.errors import CodeModeError
    from codemode_mcp.cli.running_instance import attach_command
    from codemode_mcp.cli.terminal import Screen, is_attended
    from codemode_mcp.extensions.repl.instance_programs import InstanceEnded, instance_programs
    from codemode_mcp.server.exec_arguments import exec_arguments

    try:
        chosen = exec_arguments({"code": "1", "language": language}).language
    except CodeModeError as error:
        stop(2, error.message)
    screen, at_terminal = Screen(), sys.stdin.isatty() and sys.stdout.isatty()
    draws, attended = at_terminal and screen.draws, at_terminal and is_attended()
    run = _at_terminal if at_terminal else _from_pipe
    try:
        attached = None
        if not (private or log_level or log_file):
            terminal = {"draws": draws, "attended": attended, "width": screen.width}
            attached = attach_command("repl", terminal, config=config, read_only=read_only)
        if attached is not None:
            ok = anyio.run(run, partial(instance_programs, attached), sys.stdout, chosen)
        else:
            loaded = load(config, log_level or "warning", log_file, read_only=read_only)
            programs = partial(_private_programs, loaded, draws=draws, attended=attended)
            with (
                _logging_to_current_stderr(loaded),
                nullcontext(sys.stdout) if at_terminal else plugins_on_stderr() as out,
            ):
                ok = anyio.run(run, programs, out, chosen)
    except KeyboardInterrupt:
        say("interrupted: the program was cancelled")
        _leave(130, at_terminal=at_terminal)
    except InstanceEnded as error:
        say(str(error))
        _leave(1, at_terminal=at_terminal)
    if not ok:
        raise typer.Exit(1)


def _leave(code: int, *, at_terminal: bool) -> NoReturn:
    """End the command while its input may still be open."""
    if at_terminal:
        end(code)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a thread may still wait for the next line of the pipe, and nothing can interrupt it


@asynccontextmanager
async def _private_programs(
    config: Config, screen: Callable[[], Screen | None], *, draws: bool, attended: bool
) -> AsyncIterator[Programs]:
    """Run programs in an application of this process for the duration of the context."""
    from codemode_mcp.extensions.repl.app_programs import app_programs
    from codemode_mcp.process.app.app import open_app

    async with (
        open_app(config) as opened,
        app_programs(opened, opened.operator, screen, draws=draws, attended=attended) as programs,
    ):
        yield programs


@contextmanager
def _logging_to_current_stderr(config: Config) -> Iterator[None]:
    """Send the log to whatever `sys.stderr` is at the time: above the prompt, or into the output of a program."""
    original, sys.stderr = sys.stderr, cast("TextIO", _CurrentStderr())
    try:
        with logging_of(config):
            sys.stderr = original
            yield
    finally:
        sys.stderr = original


class _CurrentStderr(TextIOBase):
    @property
    def encoding(self) -> str:  # type: ignore[override]
        return sys.stderr.encoding or "utf-8"

    def write(self, text: str, /) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


class _PipeFront:
    """A `repl.prompt.Front` for piped input: prints results as plain text."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self.gone: OSError | None = None
        """The error that ended the output."""
        self.scope = anyio.CancelScope()

    def print(self, text: str) -> None:
        try:
            print(escape(text) if self._out.isatty() else text, file=self._out, flush=True)
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


async def _from_pipe(open_programs: OpenPrograms, out: TextIO, language: Language | None) -> bool:
    from codemode_mcp.extensions.repl.cells import is_incomplete
    from codemode_mcp.extensions.repl.prompt import Prompt

    ok = True
    front = _PipeFront(out)
    async with open_programs(lambda: None) as programs:
        prompt = Prompt(programs, front, language)
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


class _TerminalFront:
    """A `repl.prompt.Front` for a person.

    While a program runs, a `Screen` has the terminal; the rest of the time the prompt has it. Coloured output is
    printed after the screen has closed.
    """

    def __init__(self) -> None:
        self.screen: Screen | None = None
        self._deferred: list[partial[None]] = []

    def print(self, text: str) -> None:
        from codemode_mcp.extensions.repl.display import lines_of

        if self.screen is not None:
            self.screen.print(text)
        else:
            print(lines_of(text), flush=True)

    def declaration(self, text: str) -> None:
        from codemode_mcp.extensions.repl.terminal import print_code

        self._deferred.append(partial(print_code, text))

    def value(self, value: Any) -> None:
        from codemode_mcp.extensions.repl.terminal import print_value

        self._deferred.append(partial(print_value, value, _columns()))

    def say(self, text: str) -> None:
        from codemode_mcp.extensions.repl.display import lines_of

        if self.screen is not None:
            self.screen.say(wrap(lines_of(text)))
        else:
            say(lines_of(text))

    def fail(self, text: str, place: tuple[str, int, int] | None) -> None:
        from codemode_mcp.extensions.repl.terminal import print_error

        self._deferred.append(partial(print_error, text, place, _columns()))

    def print_deferred(self) -> None:
        deferred, self._deferred = self._deferred, []
        for print_part in deferred:
            print_part()


def _columns() -> int:
    return shutil.get_terminal_size((80, 24)).columns


async def _at_terminal(open_programs: OpenPrograms, _: TextIO, language: Language | None) -> bool:
    from codemode_mcp.extensions.repl.prompt import Prompt
    from codemode_mcp.extensions.repl.terminal import Reader, history_path, open_history

    history = None
    try:
        history = open_history(history_path())
    except OSError as error:
        say(f"your input is not saved for later sessions: cannot open {history_path()}: {error.strerror}")
    front = _TerminalFront()
    async with open_programs(lambda: front.screen) as programs, anyio.create_task_group() as group:
        prompt = Prompt(programs, front, language)
        reader = Reader(prompt.vocabulary, lambda: prompt.language == "typescript", history)
        runner = _InputRunner(front, prompt)
        group.start_soon(programs.connect, CONNECT_SECONDS)
        await _greet(programs)
        with _on_interrupt(partial(asyncio.get_running_loop().call_soon_threadsafe, runner.interrupt)):
            await _read_inputs(reader, runner)
        group.cancel_scope.cancel()
    return True


async def _read_inputs(reader: Reader, runner: _InputRunner) -> None:
    """Read and run one input after the other, until the person leaves."""
    from codemode_mcp.extensions.repl.terminal import Interrupted

    interrupted_once = False
    while True:
        try:
            text = await reader.read()
        except Interrupted as interrupted:
            if interrupted_once and not interrupted.typed:
                return
            interrupted_once = not interrupted.typed
            if interrupted_once:
                say("(Ctrl-C again, Ctrl-D or .exit leaves)")
            continue
        interrupted_once = False
        if text is None or await runner.take(text) is None:
            return


async def _greet(programs: Programs) -> None:
    from importlib import metadata

    from codemode_mcp.base.display import counted, plain

    with anyio.move_on_after(GREETING_SECONDS):
        await programs.connect(GREETING_SECONDS)
    catalog = await programs.catalog()
    servers = [
        f"MCP.{each.identifier} ({counted(len(each.tools), 'tool')})"
        if each.tools and each.trouble is None
        else f"MCP.{each.identifier} ({plain(each.trouble or each.status).removeprefix('is ')})"
        for each in catalog.servers
    ]
    say(f"codemode-mcp {metadata.version('codemode-mcp')}. Tab completes, .help helps, Ctrl-D leaves.")
    say(", ".join(servers) if servers else "no server is configured; see codemode-mcp doctor")


class _InputRunner:
    """Runs one input after the other. Ctrl-C cancels the running input, not the session."""

    def __init__(self, front: _TerminalFront, prompt: Prompt) -> None:
        self._front = front
        self._prompt = prompt
        self._scope: anyio.CancelScope | None = None

    def interrupt(self) -> None:
        """Cancel the running input, if any."""
        if self._scope is not None:
            self._scope.cancel()

    async def take(self, text: str) -> bool | None:
        """Run an input as `Prompt.take` does. An interrupted input has failed."""
        from codemode_mcp.cli.terminal import Screen

        front = self._front
        done: bool | None = False
        with Screen() as screen:
            front.screen = screen
            try:
                with anyio.CancelScope() as scope:
                    self._scope = scope
                    done = await self._prompt.take(text)
            finally:
                screen.status = ""
                front.screen = self._scope = None
        front.print_deferred()
        if scope.cancelled_caught:
            say("cancelled, with its calls in flight")
        return done


@contextmanager
def _on_interrupt(call: Callable[[], object]) -> Iterator[None]:
    previous = signal.signal(signal.SIGINT, lambda *_: call())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
