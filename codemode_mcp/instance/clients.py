"""The clients of the instance, each with its relay, its caller and its session."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from codemode_mcp.instance import wire
from codemode_mcp.instance.command_terminal import CommandTerminal
from codemode_mcp.instance.relayed_lines import RelayedLines
from codemode_mcp.json_text import compact_json
from codemode_mcp.policy.callers import CLIENT
from codemode_mcp.server.code_mode import Surface
from codemode_mcp.server.stdio import serve_surface_lines

if TYPE_CHECKING:
    from codemode_mcp.app.app import App
    from codemode_mcp.control.accepted import Accepted
    from codemode_mcp.instance.command_terminal import RunCommand
    from codemode_mcp.instance.hello import Hello, Options
    from codemode_mcp.policy.callers import Caller
    from codemode_mcp.server.passthrough import Passthrough


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
        self._front: Surface | Passthrough | None = None
        self.app: App | None = None
        self.over = anyio.Event()

    @property
    def pid(self) -> int:
        """The process of the relay."""
        return self._hello.pid

    @property
    def options(self) -> Options:
        """The options of `serve` that bind the client."""
        return self._hello.options

    @property
    def is_command(self) -> bool:
        """True for a command at a terminal, False for a client of MCP."""
        return self._hello.options.command is not None

    @property
    def folder(self) -> str:
        """The working directory of the client."""
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
        """Return facts about the client, as JSON."""
        options = self._hello.options
        command = None if options.command is None else options.command.name
        described = None if self._front is None else self._front.client
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
        """Answer the client until it leaves, or the session is ended."""
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
        if not app.code_mode:
            from codemode_mcp.instance.passthrough import serve_passthrough

            self._lines = RelayedLines(self._connection, self._answer_interrupted, notes_calls=True)
            await serve_passthrough(app, caller, self._lines, self._set_front)
            return
        surface = Surface(app, caller, lasting=True)
        self._set_front(surface)

        def take_interrupted(request: dict[str, Any], run: str | None, dispatched: bool) -> str:
            # Without a run, nothing was done for the request yet, so that it can simply be repeated.
            if run is not None or dispatched:
                surface.note_interrupted(request["id"], run, dispatched=dispatched)
            return json.dumps(request)

        self._lines = RelayedLines(self._connection, take_interrupted)
        surface.notes_of = self._lines.notes_of
        await serve_surface_lines(surface, caller, self._lines)

    def _set_front(self, front: Surface | Passthrough) -> None:
        self._front = front

    def _answer_interrupted(self, request: dict[str, Any], run: str | None, dispatched: bool) -> None:
        """Answer a call that an earlier instance left unanswered."""
        text = (
            "outcome_unknown: the server process ended while this call was open. The tool may have run. Look at what "
            "it has done before you call it again."
        )
        result = {"content": [{"type": "text", "text": text}], "isError": True}
        answer = {"jsonrpc": "2.0", "id": request.get("id"), "result": result}
        self._connection.write(compact_json(answer).encode("utf-8", "replace") + b"\n")
