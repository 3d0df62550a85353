"""A person's approval of nested calls: what is asked, and what the answer means (SPEC 6). Pure.

A question is made by us alone: it shows the real tools and the real arguments, escaped, so that no program text in them
can look like part of the question.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from codemode_mcp.policy import Effects
    from upstream_clients.tools import JsonObject

Remember = Literal["no", "run", "always"]
"""How long an approval counts: for these calls, for calls of the same tools in the same run, for ever."""


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """One call that waits for a person.

    Attributes:
        call: its number within its run.
        tool: its id.
        path: the expression that the program wrote.
        arguments: exactly what is sent once it is approved.
        reason: why it is asked for, e.g. the rule.
    """

    call: int
    tool: str
    path: str
    arguments: JsonObject
    effects: Effects
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was decided of one call.

    Attributes:
        why: of a denial, for the program: who denied it, or that nobody could be asked.
    """

    approved: bool
    why: str = ""
    remember: Remember = "no"


ApproveFn = Callable[[ApprovalRequest], Awaitable[Verdict]]
"""Waits for a person as long as it takes; is cancelled when the call ends."""
