"""The programs of a session in the shared instance, by the messages that `app_programs` lists."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import anyio
import msgspec

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.catalog.serialize import read_catalog
from codemode_mcp.cli.messages import escape
from codemode_mcp.cli.terminal import Question, Screen
from codemode_mcp.extensions.repl.programs import Answer, Hit, SessionRun
from codemode_mcp.process.instance import wire
from codemode_mcp.server.control.server import Accepted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from codemode_mcp.base.settings import Language
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.process.instance.attaching import Attached


AnyForm = TypeVar("AnyForm")

CANCEL_SECONDS: Final = 4.0
"""Timeout for the instance to end a request that is cancelled."""

LEAVE_SECONDS: Final = 5.0
"""Timeout for the instance to end the session."""


class InstanceEnded(Exception):
    """Error for a session whose instance has ended. The message says so."""


@asynccontextmanager
async def instance_programs(attached: Attached, screen: Callable[[], Screen | None]) -> AsyncIterator[InstancePrograms]:
    """Run programs of one session in the shared instance for the duration of the context. Leaving ends the session.

    Args:
        attached: a connection for the command `repl`, which is closed in the end.
        screen: returns the screen of the program that runs; None on a pipe and at the prompt.

    Raises:
        InstanceEnded: the instance has ended. The context is cancelled then.
    """
    connection = Accepted(wire.MAX_LINE, lambda _: None)
    connection.data_received(attached.received)
    attached.connection.setblocking(False)
    await asyncio.get_running_loop().create_connection(lambda: connection, sock=attached.connection)
    programs = InstancePrograms(connection, attached.pid, screen)
    connection.write(wire.encode_line({"arguments": {}}))
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(programs.read_all, group.cancel_scope)
            await programs.begun.wait()
            yield programs
            group.cancel_scope.cancel()
        if programs.ended is not None:
            raise InstanceEnded(programs.ended)
    finally:
        # The instance cancels the programs, and closes the connection when the session has ended.
        with suppress(OSError), anyio.move_on_after(LEAVE_SECONDS, shield=True):
            await connection.written()
            connection.socket.shutdown(socket.SHUT_WR)
            while await connection.receive() is not None:
                pass
        connection.abort()


class InstancePrograms:
    """The implementation of `Programs` over a connection to the instance. Use `instance_programs`.

    Attributes:
        begun: set when the instance has begun the session.
        ended: a sentence about the end of the instance; None while it runs.
    """

    def __init__(self, connection: Accepted, pid: int, screen: Callable[[], Screen | None]) -> None:
        self.key = ""
        self.begun = anyio.Event()
        self.ended: str | None = None
        self._connection = connection
        self._pid = pid
        self._screen = screen
        self._last_request = 0
        self._responses: dict[int, asyncio.Future[Mapping[str, Any]]] = {}
        self._printers: dict[int, Callable[[str], None]] = {}
        """Functions that print the output of programs, by the numbers of their requests."""
        self._numbers: dict[str, int] = {}
        """Numbers of requests of programs that have not ended, by run."""
        self._questions: dict[int, Question] = {}
        self._catalog: Catalog | None = None
        self._version = 0

    def __repr__(self) -> str:
        return f"<InstancePrograms: process {self._pid}>"

    # messages

    async def read_all(self, scope: anyio.CancelScope) -> None:
        """Read what the instance sends until it closes the connection. Then cancel a scope."""
        while (line := await self._connection.receive()) is not None:
            try:
                message = json.loads(line.lstrip(wire.MARK))
            except (ValueError, RecursionError):
                break  # this is not the instance that we know
            self._take(message)
        advice = "start codemode-mcp repl again"
        if self._printers:
            advice = "calls of its programs may have been made: look at what they have done before you repeat them"
        self.ended = f"the shared instance, process {self._pid}, has ended, and this session with it; {advice}"
        scope.cancel()
        for response in self._responses.values():
            if not response.done():
                response.set_result({"code": "aborted", "error": self.ended})
        self._withdraw_questions()

    def _take(self, message: Any) -> None:
        screen = self._screen()
        match message:
            case {"output": str() as text, "of": int() as number} if number in self._printers:
                self._printers[number](text)
            case {"response": int() as number} if number in self._responses:
                response = self._responses[number]
                if not response.done():
                    response.set_result(message)
            case {"status": str() as text} if screen is not None:
                screen.status = text
            case {"ask": int() as number, "text": str() as text} if screen is not None:
                self._ask(screen, number, text)
            case {"withdraw": int() as number} if number in self._questions:
                self._questions.pop(number).withdrawn.set()
            case {"log": str() as text}:
                sys.stderr.write(f"{escape(text)}\n")
            case {"key": str() as key}:
                self.key = key
                self.begun.set()

    def _ask(self, screen: Screen, number: int, text: str) -> None:
        loop = asyncio.get_running_loop()

        def answer() -> None:
            if self._questions.pop(number, None) is not None:
                self._connection.write(wire.encode_line({"answer": number, "text": question.answer}))

        def on_answer() -> None:
            with suppress(RuntimeError):  # the event loop is closed already
                loop.call_soon_threadsafe(answer)

        question = self._questions[number] = Question(text, on_answer)
        screen.ask(question)

    def _withdraw_questions(self) -> None:
        """Withdraw all questions. The screen would wait for their answers, and block the event loop."""
        while self._questions:
            self._questions.popitem()[1].withdrawn.set()

    async def _request(self, method: str, number: int | None = None, **arguments: Any) -> Any:
        """Return the result of a method. A request that is cancelled here is cancelled in the instance.

        Raises:
            ProgramError: the method has raised a `CodeModeError`.
        """
        if self.ended is not None:
            raise ProgramError("aborted", self.ended)
        if number is None:
            number = self._next_number()
        response = self._responses[number] = asyncio.get_running_loop().create_future()
        self._connection.write(wire.encode_line({"request": number, "method": method, "arguments": arguments}))
        try:
            message = await asyncio.shield(response)
        except anyio.get_cancelled_exc_class():
            self._withdraw_questions()
            self._connection.write(wire.encode_line({"cancel": number}))
            with anyio.move_on_after(CANCEL_SECONDS, shield=True):
                await asyncio.wait([response])
                if method == "execute":
                    await self._cancel_answered(response.result())
            raise
        finally:
            del self._responses[number]
            if method in ("execute", "observe"):  # the instance may withdraw a question of the request only later
                self._withdraw_questions()
        if "error" in message:
            raise ProgramError(message["code"], message["error"])
        return message["result"]

    async def _cancel_answered(self, message: Mapping[str, Any]) -> None:
        """Cancel the run of a program that was suspended just before its request was cancelled."""
        match message.get("result"):
            case {"status": "waiting", "runId": str() as run_id}:
                with suppress(ProgramError):
                    await self.cancel(run_id)

    async def _request_as(
        self, form: type[AnyForm], method: str, number: int | None = None, **arguments: Any
    ) -> AnyForm:
        return msgspec.convert(await self._request(method, number, **arguments), form)

    def _next_number(self) -> int:
        self._last_request += 1
        return self._last_request

    # programs

    async def execute(self, source: str, language: Language | None, on_output: Callable[[str], None]) -> Answer:
        number = self._next_number()
        self._printers[number] = on_output
        answer = None
        try:
            answer = await self._request_as(Answer, "execute", number, source=source, language=language)
            return answer
        finally:
            if answer is not None and answer.status == "waiting":
                self._numbers[answer.run_id] = number
            else:
                del self._printers[number]

    async def observe(self, run_id: str, *, cancel: bool = False) -> Answer:
        answer = None
        try:
            answer = await self._request_as(Answer, "observe", run_id=run_id, cancel=cancel)
            return answer
        finally:
            if answer is None or answer.status != "waiting":
                self._printers.pop(self._numbers.pop(run_id, 0), None)

    async def cancel(self, run_id: str) -> None:
        self._printers.pop(self._numbers.pop(run_id, 0), None)
        await self._request("cancel", run_id=run_id)

    async def runs(self) -> Sequence[SessionRun]:
        return await self._request_as(list[SessionRun], "runs")

    # values

    async def offload(self, text: str) -> str | None:
        return cast("str | None", await self._request("offload", text=text))

    async def names(self) -> str | None:
        return cast("str | None", await self._request("names"))

    async def forget_names(self) -> None:
        await self._request("forget_names")

    # tools

    async def connect(self, seconds: float) -> None:
        await self._request("connect", seconds=seconds)

    async def catalog(self) -> Catalog:
        found = await self._request("catalog", known=self._version)
        if self._catalog is None or found["text"] is not None:
            self._catalog, self._version = read_catalog(found["text"]), found["version"]
        return self._catalog

    async def declarations(self, name: str) -> str:
        return str(await self._request("declarations", name=name))

    async def search(self, words: str) -> Sequence[Hit]:
        return await self._request_as(list[Hit], "search", words=words)
