"""The clients of the instance, each with its relay, its log, its terminal, its caller and its session."""

from __future__ import annotations

import errno
import json
import logging
import os
import stat
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO

import anyio
import anyio.lowlevel

from codemode_mcp.process.instance import wire
from codemode_mcp.process.instance.hello import CommandOptions, Hello, Options, Refusal
from codemode_mcp.rules.policy.policy import CLIENT, Caller
from codemode_mcp.server.code_mode import Surface
from codemode_mcp.server.control import protocol
from codemode_mcp.server.line_stream import repaired_line
from codemode_mcp.server.stdio import serve_surface_lines

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from codemode_mcp.audit.client_logs import ClientLogs
    from codemode_mcp.server.control.server import Accepted
    from codemode_mcp.server.services import App
    from upstream_clients.jsonrpc import RequestId

    RunCommand = Callable[[App, Caller, "CommandTerminal", Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
    """Runs a command with its arguments. Returns the result, as JSON."""


class Client:
    """A client whose relay is attached, or a command at a terminal.

    Args:
        run_command: runs a command.

    Attributes:
        number: the number of the client in this instance, from 1.
        app: the application that serves the client, while it does.
        over: set when the session or the command has ended.
    """

    def __init__(self, number: int, connection: Accepted, hello: Hello, now: float, run_command: RunCommand) -> None:
        self.number = number
        self._run_command = run_command
        self._connection = connection
        self._hello = hello
        self._began = now
        self._scope = anyio.CancelScope()
        self._lines: RelayedLines | None = None
        self._surface: Surface | None = None
        self.app: App | None = None
        self.over = anyio.Event()

    @property
    def pid(self) -> int:
        """The process of the relay."""
        return self._hello.pid

    @property
    def options(self) -> Options:
        return self._hello.options

    @property
    def is_command(self) -> bool:
        """True for a command at a terminal, False for a client of MCP."""
        return self._hello.options.command is not None

    @property
    def folder(self) -> str:
        return self._hello.folder

    def print(self, text: str) -> bool:
        """Print a text on the standard error of the relay. Return False, and print nothing, if the relay is slow."""
        if not self._connection.is_written:
            return False
        self._connection.write(wire.encode_note({"log": text}))
        return True

    def prepare_end(self, reason: str) -> None:
        """Take no more messages from the client, and tell its relay that the instance ends."""
        if self._lines is not None:
            self._lines.hold()
        self._connection.write(wire.encode_note({"leaving": reason}))
        if self.is_command:
            self._scope.cancel()  # the program of a command ends with the command

    def end(self) -> None:
        """End the session now. Its relay brings unanswered requests to the next instance."""
        if self._lines is not None:
            self._lines.close()
        self._scope.cancel()

    def facts(self, now: float) -> dict[str, Any]:
        options = self._hello.options
        command = None if options.command is None else options.command.name
        described = None if self._surface is None else self._surface.client
        return {
            "number": self.number,
            "name": f"codemode-mcp {command}" if command is not None else None if described is None else described.name,
            "clientVersion": None if described is None else described.version,
            "protocol": None if described is None else described.protocol,
            "pid": self._hello.pid,
            "version": self._hello.product,
            "folder": self._hello.folder,
            "readOnly": options.read_only,
            "locked": options.locked,
            "context": options.context,
            "command": command,
            "sinceSeconds": round(now - self._began),
        }

    async def serve(self, app: App) -> None:
        options = self._hello.options
        caller = replace(
            app.operator, share=f"{CLIENT}{self.number}", read_only=options.read_only, context=options.context
        )
        self.app = app
        try:
            with self._scope:
                await self._serve(app, caller)
        finally:
            self.app = None
            self.over.set()
            app.forget_client(caller.share)

    async def _serve(self, app: App, caller: Caller) -> None:
        command = self._hello.options.command
        if command is not None:
            terminal = CommandTerminal(self._connection, command)
            await terminal.run(partial(self._run_command, app, caller, terminal))
            return
        self._surface = surface = Surface(app, caller, lasting=True)

        def take_interrupted(request: dict[str, Any], run: str | None, dispatched: bool) -> str:
            # Without a run, nothing was done for the request yet, so that it can simply be repeated.
            if run is not None or dispatched:
                surface.note_interrupted(request["id"], run, dispatched=dispatched)
            return json.dumps(request)

        self._lines = RelayedLines(self._connection, take_interrupted)
        surface.notes_of = self._lines.notes_of
        await serve_surface_lines(surface, caller, self._lines)


@contextmanager
def logging_for(client: Client, app: App, logs: ClientLogs) -> Iterator[None]:
    """Send records that are made for a client to the log that its options or its configuration name.

    Raises:
        Refusal: the file cannot be opened.
    """
    options, settings = client.options, app.config.log
    level = options.log_level or settings.level
    name = options.log_file or settings.file
    if name is None:
        with logs.of_client(level, client.print, app.redact.own):
            yield
        return
    path = os.path.join(client.folder, name)
    try:
        file = _open(path)
    except OSError as error:
        raise Refusal(
            "failed", f"cannot log to {path}: {error.strerror}; name another file with --log-file or log.file"
        ) from None

    def write(text: str) -> bool:
        try:
            file.write(text + "\n")
        except OSError:
            return False  # for example, the disk is full
        return True

    try:
        with logs.of_client(level, write, app.redact.own):
            yield
    finally:
        with suppress(OSError):
            file.close()


def _open(path: str) -> TextIO:
    """Open a log for appending. Raise `OSError` if it is no file of the client's own.

    Writing to a pipe or a terminal may wait for its reader, and all clients would wait with it. `/dev/stderr` is the
    standard error of this process, not that of the client.
    """
    # Opening a pipe without O_NONBLOCK would wait for its reader.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(path, flags, 0o666)
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) and os.path.realpath(path) != os.devnull:
            raise OSError(errno.EINVAL, "the shared instance writes to regular files only", path)
        if _is_standard_error(about):
            raise OSError(errno.EINVAL, "it is the standard error of the shared instance", path)
        return os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace", buffering=1)
    except BaseException:
        os.close(descriptor)
        raise


def _is_standard_error(about: os.stat_result) -> bool:
    try:
        return os.path.samestat(about, os.fstat(2))
    except OSError:
        return False


log = logging.getLogger("codemode_mcp.process.instance")

MAX_UNSENT: Final = 1024 * 1024
"""Bytes that a client has not read yet, from which on no more of its lines are received."""

_MARK: Final = wire.MARK[0]


class RelayedLines:
    """The messages of one client, as `line_stream.Lines`, and the messages of its relay.

    Args:
        connection: the connection to the relay, which is attached.
        on_interrupted: takes a request that an earlier instance left unanswered: the request, the id of its run, and
            True if some calls of the run may have been sent. It returns the line to receive instead.
    """

    def __init__(
        self,
        connection: Accepted,
        on_interrupted: Callable[[dict[str, Any], str | None, bool], str],
    ) -> None:
        self._connection = connection
        self._on_interrupted = on_interrupted
        self._unread: deque[str] = deque()
        self._held = False
        self._closed = False

    def hold(self) -> None:
        """Let no further line be received. The relay brings unanswered requests to the next instance."""
        self._held = True

    def close(self) -> None:
        """Drop everything that is sent from now on."""
        self._closed = True

    async def receive(self) -> str | None:
        """Return the next line of the client, or None after the client has left."""
        if self._unread:
            return self._unread.popleft()
        if self._connection.has_line:
            # One line in each round of the event loop: the requests of other clients are handled between those of a
            # client that sends many.
            await anyio.lowlevel.checkpoint()
        while self._connection.unsent_bytes > MAX_UNSENT:
            await self._connection.written()  # the client does not read, so it gets no more to read
        while (line := await self._connection.receive()) is not None:
            if self._held:
                await anyio.sleep_forever()
            if not line or line[0] != _MARK:
                return repaired_line(line.decode("utf-8", "replace"))
            match wire.decode_note(line):
                case {"interrupted": dict() as request, "run": run, "dispatched": bool() as dispatched}:
                    return self._on_interrupted(request, run if isinstance(run, str) else None, dispatched)
                case _:
                    log.warning("a relay has sent an unknown message")
        if self._connection.too_long:
            log.warning("a client was disconnected: it sent a line of more than %d bytes", self._connection.limit)
        return None

    def unread(self, lines: Iterable[str]) -> None:
        self._unread.extendleft(reversed([*lines]))

    async def send(self, message: bytes) -> None:
        """Write a message for the client. Raise `anyio.BrokenResourceError` if the relay has gone."""
        if self._closed:
            raise anyio.BrokenResourceError
        await self._connection.send(message + b"\n")

    def notes_of(self, request: RequestId) -> RelayNotes:
        return RelayNotes(self._connection, request)


class RelayNotes:
    """Notes to a relay about the run of one request, as `runs.questions.RunNotes`."""

    def __init__(self, connection: Accepted, request: RequestId) -> None:
        self._connection = connection
        self._request = request

    @property
    def are_written(self) -> bool:
        return self._connection.is_written

    def write(self, run_id: str | None, *, dispatched: bool) -> bool:
        """Write a note; see `RunNotes`. The run is None for a direct call."""
        note = {"progress": self._request, "run": run_id, "dispatched": dispatched}
        self._connection.write(wire.encode_note(note))
        return self._connection.is_written

    async def written(self) -> None:
        await self._connection.written()


class Question(Protocol):
    """A question for a person, as `cli.terminal.Question`."""

    text: str
    answer: str

    @property
    def on_answer(self) -> Callable[[], None]: ...


class CommandTerminal:
    """The terminal of one command, as `cli.terminal.Terminal`.

    Attributes:
        name: the name of the command.
        draws: whether the progress line is shown.
        attended: whether a person can answer questions.
        width: the columns of the progress line and of questions.
        on_message: called with each message of the command that is no answer.
    """

    def __init__(self, connection: Accepted, options: CommandOptions) -> None:
        self.name = options.name
        self.draws = options.draws
        self.attended = options.attended
        self.width = options.width
        self.on_message: Callable[[Mapping[str, Any]], None] = lambda _: None
        self._connection = connection
        self._status = ""
        self._questions: dict[int, Question] = {}
        self._last_question = 0

    @property
    def status(self) -> str:
        return self._status

    @status.setter
    def status(self, text: str) -> None:
        # A command that is stopped does not read. It gets the next status when it does.
        if text != self._status and (self._connection.is_written or not text):
            self._status = text
            self.write(status=text)

    def print(self, text: str) -> None:
        self.write(print=text)

    def say(self, text: str) -> None:
        self.write(say=text)

    def ask(self, question: Question) -> None:
        self._last_question += 1
        self._questions[self._last_question] = question
        self.write(ask=self._last_question, text=question.text)

    def withdraw(self, question: Question) -> None:
        for number, each in [*self._questions.items()]:
            if each is question:
                del self._questions[number]
                self.write(withdraw=number)

    async def run(self, command: Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]) -> None:
        """Run a command and send its result. Cancel it when the other side closes the connection or its sending side.

        Args:
            command: takes the arguments of the command.
        """
        line = await self._connection.receive()
        if line is None:
            return
        arguments = json.loads(line)["arguments"]
        async with anyio.create_task_group() as group:
            group.start_soon(self._read_messages, group.cancel_scope)
            result = await command(arguments)
            self.write(result=result)
            await self._connection.written()
            group.cancel_scope.cancel()

    async def _read_messages(self, scope: anyio.CancelScope) -> None:
        while (line := await self._connection.receive()) is not None:
            match json.loads(line):
                case {"answer": int() as number, "text": str() as text} if number in self._questions:
                    question = self._questions.pop(number)
                    question.answer = text
                    question.on_answer()
                case {"answer": int()}:
                    log.debug("an answer came after its question was withdrawn")
                case message:
                    self.on_message(message)
        scope.cancel()

    def write(self, **message: Any) -> None:
        self.write_line(protocol.encode(message))

    def write_line(self, line: bytes) -> None:
        """Send an encoded message, with its line feed."""
        self._connection.write(line)
