"""The client of programs that `codemode-mcp run` and `codemode-mcp repl` start.

The client offers no folders to servers and shows no questions of servers. At a terminal, it asks a person to approve
calls.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from codemode_mcp.cli.messages import wrap
from codemode_mcp.cli.terminal import Question, is_attended
from codemode_mcp.control.display import columns, wrapped
from codemode_mcp.policy.approval import QUOTED, ApprovalQuestion
from upstream_clients.errors import QuestionRefused

if TYPE_CHECKING:
    from codemode_mcp.cli.terminal import Screen, Terminal
    from codemode_mcp.runs.questions import RunNotes, Way
    from upstream_clients import tools
    from upstream_clients.tools import JsonObject, QuestionMethod


class UnattendedClient:
    """The implementation of `runs.questions.Client` for a process without a person to ask."""

    lasting = True
    polls = False
    supported: frozenset[QuestionMethod] = frozenset()
    decides = False
    notes: RunNotes | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def progress(self, source: str, message: str) -> None:
        """Ignore a progress message, because the progress line shows the calls in flight."""

    def way(self, question: tools.Question | ApprovalQuestion) -> Way:
        if isinstance(question, ApprovalQuestion):
            return "ask" if self.decides else "none"
        return "ask" if question.method == "roots/list" else "none"

    async def ask(self, question: tools.Question | ApprovalQuestion) -> JsonObject:
        """Answer a question, as `runs.questions.Client` defines."""
        if not isinstance(question, ApprovalQuestion) and question.method == "roots/list":
            return {"roots": []}
        raise QuestionRefused("this command does not show questions of servers to a person")


class TerminalClient(UnattendedClient):
    """A client that asks the person at the terminal for approvals."""

    decides = True

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    def __repr__(self) -> str:
        return f"<TerminalClient at {self._terminal}>"

    async def ask(self, question: tools.Question | ApprovalQuestion) -> JsonObject:
        """Answer a question, as `runs.questions.Client` defines."""
        if not isinstance(question, ApprovalQuestion):
            return await super().ask(question)
        answered = anyio.Event()
        loop = asyncio.get_running_loop()

        def on_answer() -> None:
            with suppress(RuntimeError):  # the event loop is closed already
                loop.call_soon_threadsafe(answered.set)

        shown = Question(prompt(question, self._terminal.width), on_answer)
        self._terminal.ask(shown)
        try:
            await answered.wait()
        except anyio.get_cancelled_exc_class():
            self._terminal.withdraw(shown)
            raise
        return answer_to(question, shown.answer)


def client_at(screen: Screen) -> UnattendedClient:
    """Return the client of a program whose output is on the screen."""
    return TerminalClient(screen) if is_attended() else UnattendedClient()


def prompt(question: ApprovalQuestion, width: int) -> str:
    """Return the text of a question: the calls, with special characters escaped, and below them the possible answers.

    A quoted line that is too wide for the terminal is wrapped, and every part gets the margin of a quoted line. Without
    the margin, the rest of the line could pass for a line of this program.
    """
    lines = [""]
    for line in question.message.split("\n"):
        if not line.startswith(QUOTED):
            lines += wrap(line).split("\n")
        elif columns(line) < width:
            lines.append(line)
        else:
            lines += wrapped(line.removeprefix(QUOTED), width, QUOTED)
    run = "run: also every later call of these tools in this program; " if "run" in question.remember else ""
    return "\n".join([*lines, "", wrap(f"Type yes: these calls only; {run}anything else: no.")])


def answer_to(question: ApprovalQuestion, typed: str) -> JsonObject:
    """Convert a typed answer into the answer that an MCP client would send for its form."""
    match typed.strip().casefold():
        case "yes" | "y":
            content = {"decision": "approve"}
        case "run" | "r" if "run" in question.remember:
            content = {"decision": "approve", "remember": "run"}
        case _:
            content = {"decision": "deny"}
    return {"action": "accept", "content": content}
