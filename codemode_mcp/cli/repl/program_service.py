"""The programs of a session whose prompt is in another process, as the shared instance runs them.

The messages in both directions are those of `instance.wire` for a command, and these:

| from | message | meaning |
|---|---|---|
| instance | `{"key": KEY}` | the session has begun; see `Programs.key` |
| prompt | `{"request": NUMBER, "method": NAME, "arguments": {...}}` | a call of a method of `Programs` |
| prompt | `{"cancel": NUMBER}` | the request is no longer needed; it is still answered |
| instance | `{"output": TEXT, "of": NUMBER}` | output of the program of this request |
| instance | `{"response": NUMBER, "result": ...}` | the answer to a request |
| instance | `{"response": NUMBER, "code": CODE, "error": TEXT}` | the same, if it has failed |

The session ends when the prompt closes its sending side.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
from msgspec.structs import replace

from codemode_mcp.catalog.serialize import catalog_text
from codemode_mcp.cli.repl.app_programs import app_programs
from codemode_mcp.cli.repl.programs import Answer
from codemode_mcp.errors import CodeModeError, ProgramError
from codemode_mcp.instance import wire
from codemode_mcp.strict_json import ascii_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from anyio.abc import TaskGroup

    from codemode_mcp.app.app import App
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.cli.repl.app_programs import AppPrograms
    from codemode_mcp.errors import ErrorCode
    from codemode_mcp.instance.command_terminal import CommandTerminal
    from codemode_mcp.policy.callers import Caller

MAX_REQUESTS: Final = 64
"""Maximum number of requests of one session that are open. A prompt has a few."""

MAX_CONNECT_SECONDS: Final = 60.0
"""Maximum seconds that a request to connect to all servers takes."""

log = logging.getLogger("codemode_mcp.instance")


async def serve_programs(app: App, caller: Caller, terminal: CommandTerminal) -> Mapping[str, Any]:
    """Run the programs of a prompt until it leaves, which cancels this function."""
    async with (
        app_programs(app, caller, lambda: terminal, attended=terminal.attended, draws=terminal.draws) as programs,
        anyio.create_task_group() as group,
    ):
        await app.manager()
        service = _Service(programs, terminal, group)
        terminal.on_message = service.take
        terminal.write(key=programs.key)
        await anyio.sleep_forever()
    return {}


class _Service:
    def __init__(self, programs: AppPrograms, terminal: CommandTerminal, group: TaskGroup) -> None:
        self._programs = programs
        self._terminal = terminal
        self._group = group
        self._scopes: dict[int, anyio.CancelScope] = {}
        self._catalog: Catalog | None = None
        self._version = 0
        self._methods: dict[str, Callable[..., Awaitable[Any]]] = {
            "execute": programs.execute,
            "observe": programs.observe,
            "cancel": programs.cancel,
            "runs": programs.runs,
            "offload": programs.offload,
            "names": programs.names,
            "forget_names": programs.forget_names,
            "connect": self._connect,
            "catalog": self._catalog_unless,
            "declarations": programs.declarations,
            "search": programs.search,
        }

    def take(self, message: Mapping[str, Any]) -> None:
        """Begin or cancel a request of the prompt."""
        match message:
            case {"request": int() as number} if number in self._scopes or len(self._scopes) >= MAX_REQUESTS:
                self._respond(number, _failure("invalid_input", "there are too many open requests"))
            case {"request": int() as number, "method": str() as method, "arguments": dict() as arguments} if (
                method in self._methods
            ):
                self._scopes[number] = anyio.CancelScope()
                self._group.start_soon(self._answer, number, method, arguments)
            case {"cancel": int() as number}:
                if number in self._scopes:  # the response may be on its way
                    self._scopes[number].cancel()
            case _:
                log.warning("a prompt of codemode-mcp repl has sent an invalid message")

    async def _answer(self, number: int, method: str, arguments: dict[str, Any]) -> None:
        response: Mapping[str, Any] = _failure("aborted", "the request was cancelled")
        with self._scopes[number]:
            try:
                if method == "execute":
                    arguments["on_output"] = lambda text: self._terminal.write(output=text, of=number)
                response = {"result": await self._methods[method](**arguments)}
            except CodeModeError as error:
                response = _failure(error.code, error.message)
        del self._scopes[number]
        self._respond(number, response)

    def _respond(self, number: int, response: Mapping[str, Any]) -> None:
        self._terminal.write_line(_encoded(number, response))

    async def _connect(self, *, seconds: float) -> None:
        await self._programs.connect(min(seconds, MAX_CONNECT_SECONDS))

    async def _catalog_unless(self, *, known: int) -> Mapping[str, Any]:
        """Return the version and the text of the catalog, without the text if the prompt has this version."""
        catalog = await self._programs.catalog()
        if catalog is not self._catalog:
            self._catalog = catalog
            self._version += 1
        version = self._version
        # Thousands of tools take a while, and other clients wait for the event loop.
        text = None if version == known else await anyio.to_thread.run_sync(catalog_text, catalog)
        return {"version": version, "text": text}


def _encoded(number: int, response: Mapping[str, Any]) -> bytes:
    """Return the line of a response. A result that cannot be sent is replaced by an error."""
    try:
        line = ascii_json({"response": number, **response}).encode("ascii") + b"\n"
    except ProgramError:
        failure = _failure("output_limit_exceeded", "its value is nested too deep to be shown")
    else:
        if len(line) <= wire.MAX_LINE:
            return line
        failure = _failure("output_limit_exceeded", "its value is too large to be shown")
    result = response.get("result")
    if isinstance(result, Answer):
        # The program has run. An error of the request would mean that it was refused.
        failure = {"result": replace(result, status="failed", value=None, **failure)}
    return ascii_json({"response": number, **failure}).encode("ascii") + b"\n"


def _failure(code: ErrorCode, message: str) -> dict[str, Any]:
    return {"code": code, "error": message}
