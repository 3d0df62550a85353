"""The terminal of a command that the instance runs. The process of the command shows what is printed and asked."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Protocol

import anyio

from codemode_mcp.control import protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from codemode_mcp.app.app import App
    from codemode_mcp.control.accepted import Accepted
    from codemode_mcp.instance.hello import CommandOptions
    from codemode_mcp.policy.callers import Caller

    RunCommand = Callable[[App, Caller, "CommandTerminal", Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
    """Runs a command with its arguments. Returns the result, as JSON."""

log = logging.getLogger("codemode_mcp.instance")


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
        """The text of the progress line."""
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
        """Print a message for a person."""
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
        """Send a message to the process of the command."""
        self.write_line(protocol.encode(message))

    def write_line(self, line: bytes) -> None:
        """Send an encoded message, with its line feed."""
        self._connection.write(line)
