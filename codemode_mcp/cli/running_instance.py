"""Commands that the running shared instance runs, and shows at the terminal of this process.

A person waits for this, so the module imports little: it loads neither the configuration nor the event loop.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.cli.command_service import ProgramRequest, read_call, read_program, read_tools
from codemode_mcp.cli.messages import end, say, stop
from codemode_mcp.cli.relaying import client_of, read_options, spelled
from codemode_mcp.cli.terminal import Question, Screen, is_attended

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from codemode_mcp.cli.command_service import CallRequest, ToolsRequest
    from codemode_mcp.process.instance.attaching import Attached


READ_BYTES: Final = 64 * 1024
"""Maximum bytes of one read."""

POLL_SECONDS: Final = 0.5
"""Interval between looks for Ctrl-C on Windows, which does not interrupt a read."""

CANCEL_SECONDS: Final = 5.0
"""Timeout for an interrupted program to end."""


def ask_instance(
    name: str,
    arguments: Mapping[str, Any],
    *,
    config: str | None,
    read_only: bool = False,
    log_level: str = "warning",
) -> dict[str, Any] | None:
    """Have the shared instance run a command, and show what it prints and asks. Return the result.

    Return None if no instance runs that serves this process, which then has to run the command itself. End the command
    if the person interrupts it, if the instance ends, and if the output can no longer be written.

    Args:
        arguments: the arguments of the command, as JSON.
        config: the value of `--config`.
    """
    screen = Screen()
    terminal = {"draws": screen.draws, "attended": is_attended(), "width": screen.width}
    attached = attach_command(name, terminal, config=config, read_only=read_only, log_level=log_level)
    if attached is None:
        return None
    with attached.connection:
        try:
            with screen:
                result = _Session(attached, screen).run(arguments)
        except KeyboardInterrupt:
            if screen.is_stuck:
                os._exit(130)  # the reader of our output does not read
            say("interrupted: the program was cancelled, and its calls in flight")
            end(130)
        except BrokenPipeError:
            raise
        except OSError as error:
            if error is not screen.gone:
                raise
            stop(1, f"cannot write the output: {error.strerror}; the program was cancelled")
    if result is None:
        advice = "repeat it"
        if name in ("call", "run"):
            advice = "calls of its program may have been made: look at what they have done before you repeat it"
        stop(1, f"the shared instance, process {attached.pid}, has ended before the command did; {advice}")
    return result


def attach_command(
    name: str, terminal: Mapping[str, Any], *, config: str | None, read_only: bool, log_level: str = "warning"
) -> Attached | None:
    """Connect to the shared instance as the terminal of a command.

    Return None if no instance runs that serves this process, which then has to run the command itself.

    Args:
        terminal: facts about the terminal; see `process.instance.hello.CommandOptions`.
        config: the value of `--config`.
    """
    options = {"readOnly": read_only, "logLevel": log_level, "command": {"name": name, **terminal}}
    found = client_of(config, options)
    if found is None:
        return None
    from codemode_mcp.process.instance import attaching

    return attaching.attach_running(*found, os.environ)


class _Session:
    """The messages of the instance about one command."""

    def __init__(self, attached: Attached, screen: Screen) -> None:
        self._connection = attached.connection
        self._received = attached.received
        self._screen = screen
        self._questions: dict[int, Question] = {}

    def run(self, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """Show what the instance sends. Return the result; None if the instance has ended without one."""
        self._screen.when_gone(self._leave)
        self._send({"arguments": arguments})
        try:
            return self._result()
        except KeyboardInterrupt:
            # The instance cancels the program, and closes the connection when the calls have ended.
            self._leave()
            self._connection.settimeout(CANCEL_SECONDS)
            with suppress(TimeoutError):
                self._result()
            raise
        finally:
            self._screen.status = ""
            for question in self._questions.values():
                question.withdrawn.set()

    def _result(self) -> dict[str, Any] | None:
        for line in self._lines():
            match json.loads(line.lstrip(b"\x01")):
                case {"print": str() as text}:
                    self._screen.print(text)
                case {"say": str() as text}:
                    self._screen.say(text)
                case {"status": str() as text}:
                    self._screen.status = text
                case {"ask": int() as number, "text": str() as text}:
                    self._ask(number, text)
                case {"withdraw": int() as number} if number in self._questions:
                    self._questions.pop(number).withdrawn.set()
                case {"log": str() as text} if " did not start: " not in text:
                    # One message at the end of the program names all servers that did not start.
                    self._screen.say(text)
                case {"result": dict() as result}:
                    return result
        return None

    def _lines(self) -> Iterator[bytes]:
        parts = [self._received]
        if sys.platform == "win32" and self._connection.gettimeout() is None:
            self._connection.settimeout(POLL_SECONDS)
        while True:
            *whole, rest = parts[-1].split(b"\n")
            if whole:
                whole[0] = b"".join([*parts[:-1], whole[0]])
                parts = [rest]
                yield from whole
            try:
                data = self._connection.recv(READ_BYTES)
            except ConnectionError:
                return
            except TimeoutError:
                if self._connection.gettimeout() != POLL_SECONDS:
                    raise
                continue
            if not data:
                return
            parts.append(data)

    def _ask(self, number: int, text: str) -> None:
        def answer() -> None:
            if not question.withdrawn.is_set():
                self._send({"answer": number, "text": question.answer})

        question = self._questions[number] = Question(text, answer)
        self._screen.ask(question)

    def _send(self, message: Mapping[str, Any]) -> None:
        from codemode_mcp.process.instance import wire

        with suppress(OSError):
            self._connection.sendall(wire.encode_line(message))

    def _leave(self) -> None:
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)


# The commands that the running shared instance carries out, and their common command lines.
#
# If no instance runs, the modules in `commands` read the command line and carry it out.


_CALL_OPTIONS: Final = spelled(("config", "json"))
_TOOLS_OPTIONS: Final = spelled(("config", "server"))
_RUN_OPTIONS: Final = spelled(("config", "language")) | {"-e": "code"}
_PROGRAM_FLAGS: Final = spelled(("read_only", "quiet")) | {"-q": "quiet"}
_TOOLS_FLAGS: Final = spelled(("json", "long")) | {"-l": "long"}


def run_quickly(arguments: Sequence[str]) -> int | None:
    """Have the shared instance carry out a command that is not unusual. Return the exit code.

    Return None for any other command line, and if no instance runs: then typer has to read it.
    """
    match arguments:
        case ["call", *rest] if (read := read_options(rest, _CALL_OPTIONS, _PROGRAM_FLAGS)) and read[0]:
            (tool, *words), found = read
            return call_there(read_call(tool, words, found.pop("json", None)), **found)
        case ["tools", *rest] if read := read_options(rest, _TOOLS_OPTIONS, _TOOLS_FLAGS):
            words, found = read
            tools = read_tools(
                words, found.get("server"), long=found.get("long", False), as_json=found.get("json", False)
            )
            return tools_there(tools, config=found.get("config"))
        case ["run", *rest] if read := read_options(rest, _RUN_OPTIONS, _PROGRAM_FLAGS | spelled(("json",))):
            return _run_quickly(*read)
    return None


def _run_quickly(
    words: Sequence[str],
    found: dict[str, Any],
) -> int | None:
    code, language = found.get("code"), found.get("language")
    if len(words) + (code is not None) != 1:
        return None
    if words:
        from pathlib import Path

        code, language = read_program(Path(words[0]), language)
    request = ProgramRequest(code, language, (), found.get("json", False), found.get("quiet", False))
    return run_there(request, config=found.get("config"), read_only=found.get("read_only", False))


def call_there(
    request: CallRequest, *, config: str | None = None, read_only: bool = False, quiet: bool = False
) -> int | None:
    """Have the shared instance make a call. Return the exit code; None as `ask_instance` does."""
    arguments = {"request": request._asdict(), "quiet": quiet}
    return _code(ask_instance("call", arguments, config=config, read_only=read_only))


def tools_there(request: ToolsRequest, *, config: str | None) -> int | None:
    """Have the shared instance list or search tools. Return the exit code; None as `ask_instance` does."""
    return _code(ask_instance("tools", {"request": request._asdict()}, config=config, log_level="error"))


def run_there(request: ProgramRequest, *, config: str | None, read_only: bool) -> int | None:
    """Have the shared instance run a program. Return the exit code; None as `ask_instance` does."""
    return _code(ask_instance("run", {"request": request._asdict()}, config=config, read_only=read_only))


def _code(result: dict[str, Any] | None) -> int | None:
    return None if result is None else result["code"]
