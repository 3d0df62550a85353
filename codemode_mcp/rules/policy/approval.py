"""A person's approval of nested calls: the question, and the meaning of its answer. Pure.

Only this module writes the text of a question. It shows the real tools and the real arguments, escaped, so that no text
of a program can look like part of the question.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from codemode_mcp.base.errors import CodeModeError
from codemode_mcp.base.strict_json import json_text
from declarations.untrusted_text import escape_misleading, json_escape

if TYPE_CHECKING:
    import logging

    from codemode_mcp.rules.policy.policy import Caller
    from codemode_mcp.rules.policy.rule_patterns import Effects
    from upstream_clients.tools import JsonObject

Remember = Literal["no", "run", "always"]
"""Extent of an approval: only these calls, calls of the same tools in the same run, or calls of these tools in all
later programs."""


class ApprovalRequest(Struct, frozen=True):
    """One call that waits for a person.

    Attributes:
        call: the number of the call within its run.
        tool: the id of the tool.
        path: the expression that the program wrote.
        arguments: exactly the arguments that are sent after the approval, apart from secrets of the configuration.
        reason: why an approval is needed, such as the rule.
        unrecorded: the names of arguments that the configuration has set, and that are never recorded.
    """

    call: int
    tool: str
    path: str
    arguments: JsonObject
    effects: Effects
    reason: str
    unrecorded: frozenset[str] = frozenset()


AT_TERMINAL: Final = "a person at a terminal"
AT_PAGE: Final = "a person at the page"
"""The sources of decisions of a person, for records."""


class Verdict(Struct, frozen=True):
    """The decision on one call.

    Attributes:
        why: the reason of a denial, for the program: who denied it, or why no person could be asked.
        by: the origin of the decision.
    """

    approved: bool
    why: str = ""
    remember: Remember = "no"
    by: Literal["client", "terminal", "page", "remembered", "nobody"] = "client"


ApproveFn = Callable[[ApprovalRequest], Awaitable[Verdict]]
"""A function that returns a person's verdict, however long that takes. It is cancelled when the call ends."""

RememberFn = Callable[["Collection[str]", "Caller"], Awaitable[None]]
"""A function that approves calls of tools, by their ids, in all later programs of callers in the same context.

It raises `ConfigError` if the configuration cannot be changed."""


async def remember_approval(
    remember: RememberFn, tools: Collection[str], caller: Caller, log: logging.Logger, *, otherwise: str
) -> str | None:
    """Approve calls of tools in all later programs. If that fails, log why and return a note for the user.

    Args:
        otherwise: the extent of the approval if it cannot be remembered, in words.
    """
    try:
        await remember(tools, caller)
    except CodeModeError as error:
        log.error("an approval could not be remembered: %s", error.message)
    except Exception:
        log.exception("an approval could not be remembered")
    else:
        return None
    return (
        f"The approval is valid for {otherwise} only: the configuration file could not be changed; "
        "see the log of codemode-mcp"
    )


class ApprovalQuestion(Struct, frozen=True):
    """A question of this server to the user. Questions of upstream servers are `upstream_clients.tools.Question`.

    Attributes:
        message: the text. It never begins with a bracket, as the texts of upstream servers do.
        remember: the extents that the user can choose, apart from "no".
    """

    message: str
    remember: tuple[Remember, ...] = ()

    @property
    def method(self) -> Literal["elicitation/create"]:
        return "elicitation/create"

    @property
    def params(self) -> JsonObject:
        properties: dict[str, JsonObject] = {
            "decision": {
                "type": "string",
                "title": "Decision",
                "description": "For all calls that are shown",
                "enum": ["approve", "deny"],
            }
        }
        if self.remember:
            meanings = {"run": "run: these tools, in this program", "always": "always: these tools, in every program"}
            properties["remember"] = {
                "type": "string",
                "title": "Remember an approval",
                "description": "; ".join(["no: these calls alone", *(meanings[each] for each in self.remember)]),
                "enum": ["no", *self.remember],
            }
        schema = {"type": "object", "properties": properties, "required": ["decision"]}
        return {"mode": "form", "message": self.message, "requestedSchema": schema}


def ask_for(
    requests: Sequence[ApprovalRequest], *, remember: tuple[Remember, ...] = (), who: str = "a program"
) -> tuple[ApprovalQuestion, int]:
    """Return one question for the first calls, and their number. It has room for a limited number of calls.

    Args:
        who: the author of the calls, in words.
    """
    blocks: list[str] = []
    size = 0
    for request in requests[:MAX_SHOWN]:
        block = "\n".join(QUOTED + line for line in shown(request))
        if blocks and size + len(block) > MAX_CHARACTERS:
            break
        size += len(block)
        blocks.append(block)
    count = len(blocks)
    left = len(requests) - count
    calls = "this tool call" if count == 1 else f"these {count} tool calls"
    lines = [
        f"codemode-mcp asks for your approval: may {who} make {calls}?",
        "",
        "\n\n".join(blocks),
        "",
        f"Names and arguments, which are indented, are quoted: they come from {who} and say nothing about this "
        "question. If you approve, exactly these arguments are sent.",
    ]
    if any("[cut: " in block for block in blocks):
        lines.append("Not everything is shown: see what is cut, in brackets. Deny what you cannot judge.")
    if left:
        lines.append(f"{left} more calls wait, and are asked for after this.")
    return ApprovalQuestion("\n".join(lines), remember), count


AUTOMATIC_DECLINE: Final = (
    " (if the client declined without asking the user, the operator can set "
    'tools.approval.via to "terminal", or list the tool in tools.approved)'
)
"""Advice for clients that may have answered without showing the question to the user."""


def verdict_of(answer: object, remember: tuple[Remember, ...] = ()) -> Verdict:
    """Return the decision in a client's answer, the unchecked MCP result of the question.

    Every answer that is not exactly an approval is a denial.
    """
    if not isinstance(answer, dict):
        return Verdict(approved=False, why="the client's answer was not valid")
    match answer.get("action"):
        case "decline":
            return Verdict(approved=False, why=f"the user declined{AUTOMATIC_DECLINE}")
        case "cancel":
            return Verdict(approved=False, why="the user dismissed the question")
        case "accept":
            pass
        case _:
            return Verdict(approved=False, why="the client's answer was not valid")
    content = answer.get("content")
    match content.get("decision") if isinstance(content, dict) else None:
        case "deny":
            return Verdict(approved=False, why="the user denied it")
        case "approve":
            pass
        case _:
            return Verdict(approved=False, why="the client's answer contained no decision")
    assert isinstance(content, dict)
    match content.get("remember"):
        case None | "" | "no":
            return Verdict(approved=True)
        case "run" | "always" as chosen if chosen in remember:
            return Verdict(approved=True, remember=chosen)
    return Verdict(approved=False, why="the client's answer was not valid")


def is_cancel(answer: object) -> bool:
    """Return True if a client's answer says that the question was dismissed without a decision."""
    return isinstance(answer, dict) and answer.get("action") == "cancel"


def may_be_always(tools: Iterable[str], *, operates: bool = True) -> bool:
    """Return True if the approval of these tools may be remembered for every program.

    A rule must be able to name each tool and no other one, and the caller must operate this server, as people at a
    terminal or the page do, and callers over HTTP do not.
    """
    return operates and all(not set(tool) & set("*?") and tool.isprintable() and len(tool) <= MAX_ID for tool in tools)


# the text of a question

MAX_SHOWN = 20
"""Maximum number of calls in one question."""

MAX_CHARACTERS = 12_000
"""Maximum characters of all calls in one question. The first call is always shown; its size is limited, too."""

MAX_ID = 200
MAX_ARGUMENTS = 24
"""Maximum number of top-level arguments of one call that are shown."""

MAX_VALUE = 1_200
"""Maximum characters of the JSON of one argument. Of a longer argument, the beginning and the end are shown."""

_MIN_VALUE = 200
"""Minimum characters that are shown of a long value, even if there are many values."""

_WIDTH = 100
QUOTED: Final = "    "
"""Prefix of every line of a call. Clients that render Markdown show indented lines as plain text."""
_CONTINUED = "      | "


def shown(request: ApprovalRequest) -> list[str]:
    """Return the lines that show one call to a person. They have printable characters only.

    Text of a program or a server cannot begin a line, nor look like a line of this module: it is quoted as JSON, and
    the rest of a long line follows a mark.
    """
    lines = [f"call {request.call}: {_quoted(request.tool, MAX_ID)}"]
    if request.arguments:
        lines.append("  arguments:")
        lines += _arguments(request.arguments)
    else:
        lines.append("  arguments: none")
    if request.unrecorded:
        names = ", ".join(_quoted(name, MAX_ID) for name in sorted(request.unrecorded)[:MAX_ARGUMENTS])
        lines += _wrapped(f"set by the configuration of codemode-mcp, not by the program: {names}", "  ")
    lines.append(f"  effects: {_effects(request.effects)}")
    lines.append(f"  why you are asked: {_quoted(request.reason, 400)}")
    return lines


def _arguments(arguments: JsonObject) -> list[str]:
    lines: list[str] = []
    items = list(arguments.items())
    # A part of each argument is shown, however large the others are.
    limit = max(_MIN_VALUE, min(MAX_VALUE, 4 * MAX_VALUE // len(items)))
    for name, value in items[:MAX_ARGUMENTS]:
        key, text = _quoted(name, MAX_ID), json_text(value)
        if len(text) <= limit:
            lines += _wrapped(f"{key}: {visible(text)}")
            continue
        start, end = text[: limit * 2 // 3], text[-(limit // 3) :]
        left_out = len(text) - len(start) - len(end)
        lines += _wrapped(f"{key}: {visible(start)}")
        lines.append(f"    [cut: {left_out:,} characters are not shown here; the whole is {_measure(text)}]")
        lines += _wrapped(visible(end), _CONTINUED)
    left = items[MAX_ARGUMENTS:]
    if left:
        lines.append(
            f"    [cut: {len(left):,} more arguments are not shown; they are {_measure(json_text(dict(left)))}]"
        )
    return lines


def _measure(text: str) -> str:
    data = text.encode("utf-8", "surrogatepass")
    return f"{len(data):,} bytes of JSON, SHA-256 {hashlib.sha256(data).hexdigest()}"


def _wrapped(text: str, first: str = "    ") -> list[str]:
    parts = [text[at : at + _WIDTH] for at in range(0, len(text), _WIDTH)]
    return [first + parts[0], *(_CONTINUED + part for part in parts[1:])]


def _quoted(text: str, limit: int) -> str:
    """Return a text as JSON, which shows where the text ends."""
    if len(text) <= limit:
        return visible(json_text(text))
    return f"{visible(json_text(text[:limit]))} [cut: {len(text):,} characters, {_measure(text)}]"


def _effects(effects: Effects) -> str:
    if effects.read_only:
        words = ["reads only"]
    else:
        words = ["may destroy or overwrite" if effects.destructive else "changes something"]
        if effects.idempotent:
            words.append("doing it again changes nothing more")
    words.append("reaches beyond its server" if effects.open_world else "stays within its server")
    return ", ".join(words)


def visible(text: str) -> str:
    """Return untrusted text with JSON escapes for every character that could mislead a reader.

    These are invisible, cursor-moving, right-to-left and stacked characters. Spacing marks count as stacked, because a
    decision depends on this text. Of spaces in a row, only the first two stay, so that a text cannot break a line.
    """
    shown = escape_misleading(text, json_escape, stacked=("Mn", "Me", "Mc"))
    return _SPACES.sub(lambda found: "  " + "\\u0020" * (len(found[0]) - 2), shown)


_SPACES: Final = re.compile(" {3,}")
