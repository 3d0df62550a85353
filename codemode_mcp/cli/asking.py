"""The client of programs that `codemode-mcp run` and `codemode-mcp repl` start.

It has no folders to offer, and puts no question of a server to a person. At a terminal a person approves calls.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from codemode_mcp.cli.shared import fitted
from codemode_mcp.cli.terminal import Question
from codemode_mcp.control.display import columns, wrapped
from codemode_mcp.policy.approval import QUOTED, ApprovalQuestion
from upstream_clients.errors import QuestionRefused

if TYPE_CHECKING:
    from codemode_mcp.cli.terminal import Screen
    from codemode_mcp.runs.questions import Way
    from upstream_clients import tools
    from upstream_clients.tools import JsonObject, QuestionMethod


class Unattended:
    """Satisfies `runs.questions.Client` where no person can be asked."""

    lasting = True
    supported: frozenset[QuestionMethod] = frozenset()
    decides = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def progress(self, source: str, message: str) -> None:
        """Ignore it: the line of progress has the calls in flight."""

    def way(self, question: tools.Question | ApprovalQuestion) -> Way:
        if isinstance(question, ApprovalQuestion):
            return "ask" if self.decides else "none"
        return "ask" if question.method == "roots/list" else "none"

    async def ask(self, question: tools.Question | ApprovalQuestion) -> JsonObject:
        """Answer as `runs.questions.Client` says."""
        if not isinstance(question, ApprovalQuestion) and question.method == "roots/list":
            return {"roots": []}
        raise QuestionRefused("this command puts no questions of servers to a person")


class Person(Unattended):
    """The person at the terminal, asked for approvals."""

    decides = True

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def __repr__(self) -> str:
        return f"<Person at {self._screen}>"

    async def ask(self, question: tools.Question | ApprovalQuestion) -> JsonObject:
        """Answer as `runs.questions.Client` says."""
        if not isinstance(question, ApprovalQuestion):
            return await super().ask(question)
        answered = anyio.Event()
        loop = asyncio.get_running_loop()

        def tell() -> None:
            with suppress(RuntimeError):  # everything has ended meanwhile
                loop.call_soon_threadsafe(answered.set)

        asked = Question(prompt(question, self._screen.width), tell)
        self._screen.ask(asked)
        try:
            await answered.wait()
        except anyio.get_cancelled_exc_class():
            asked.withdrawn.set()
            raise
        return meant(asked.answer, question)


def prompt(question: ApprovalQuestion, width: int) -> str:
    """Its message shows calls as they are, escaped; what can be typed is said under them.

    What is quoted stays indented where a terminal of this width would break it: there it could look like ours.
    """
    lines = [""]
    for line in question.message.split("\n"):
        if not line.startswith(QUOTED):
            lines += fitted(line).split("\n")
        elif columns(line) < width:
            lines.append(line)
        else:
            lines += wrapped(line.removeprefix(QUOTED), width, QUOTED)
    run = "run: and every other call of these tools in this program; " if "run" in question.remember else ""
    return "\n".join([*lines, "", fitted(f"Type yes: these calls alone; {run}anything else: no.")])


def meant(typed: str, question: ApprovalQuestion) -> JsonObject:
    """Return the answer as a client's form would give it."""
    match typed.strip().casefold():
        case "yes" | "y":
            return {"action": "accept", "content": {"decision": "approve"}}
        case "run" | "r" if "run" in question.remember:
            return {"action": "accept", "content": {"decision": "approve", "remember": "run"}}
        case _:
            return {"action": "accept", "content": {"decision": "deny"}}
