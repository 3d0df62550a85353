"""A person's approval of nested calls: the question, and the meaning of its answer. Pure.

A question is made by us alone: it shows the real tools and the real arguments, escaped, so that no program text in them
can look like part of the question.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from codemode_mcp.json_text import json_text
from declarations.untrusted_text import escape_misleading, json_escape

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from codemode_mcp.policy.callers import Caller
    from codemode_mcp.policy.policy import Effects
    from upstream_clients.tools import JsonObject

Remember = Literal["no", "run", "always"]
"""Duration of an approval: for these calls, for calls of the same tools in the same run, for ever."""


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
    """The decision on one call.

    Attributes:
        why: of a denial, for the program: who denied it, or that no person could be asked.
        by: who has decided.
    """

    approved: bool
    why: str = ""
    remember: Remember = "no"
    by: Literal["client", "terminal", "remembered", "nobody"] = "client"


ApproveFn = Callable[[ApprovalRequest], Awaitable[Verdict]]
"""Waits for a person as long as it takes; is cancelled when the call ends."""

RememberFn = Callable[["Collection[str]", "Caller"], Awaitable[None]]
"""Have calls of these tools, by their ids, of callers like this one approved from now on, for ever. Raises
`ConfigError`."""


@dataclass(frozen=True, slots=True)
class ApprovalQuestion:
    """A question of our own to the user; see `upstream_clients.tools.Question`, which is what others ask.

    Attributes:
        message: what is shown. It never begins with a bracket, as all that others ask does.
        remember: what may be chosen of how long an approval counts, apart from "no".
    """

    message: str
    remember: tuple[Remember, ...] = ()

    @property
    def method(self) -> Literal["elicitation/create"]:
        return "elicitation/create"

    @property
    def params(self) -> JsonObject:
        """Return the parameters of the MCP request."""
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
    """Return one question for as many of the calls as it has room for, from the first on, and how many these are.

    `who`: makes the calls, in words.
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


BY_ITSELF: Final = (
    ' (if the client did so by itself, the operator can set tools.approval.via to "terminal", or list the tool in '
    "tools.approved)"
)
"""Advice for the user of a client that may have answered without showing the question."""


def verdict_of(answer: object, remember: tuple[Remember, ...] = ()) -> Verdict:
    """Return the decision in a client's answer: the MCP result of the question, unchecked so far.

    Whatever is not exactly an approval denies.
    """
    if not isinstance(answer, dict):
        return Verdict(approved=False, why="the client's answer was not valid")
    match answer.get("action"):
        case "decline":
            return Verdict(approved=False, why=f"the user declined{BY_ITSELF}")
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
            return Verdict(approved=False, why="the client's answer held no decision")
    assert isinstance(content, dict)
    match content.get("remember"):
        case None | "" | "no":
            return Verdict(approved=True)
        case "run" | "always" as chosen if chosen in remember:
            return Verdict(approved=True, remember=chosen)
    return Verdict(approved=False, why="the client's answer was not valid")


def is_cancel(answer: object) -> bool:
    """Tell if an answer of a client says that the question was dismissed without a decision."""
    return isinstance(answer, dict) and answer.get("action") == "cancel"


def lasts(tool_id: str) -> bool:
    """Return True if a rule can name this tool and nothing else, so that its approval can be kept for ever."""
    return not set(tool_id) & set("*?") and tool_id.isprintable() and len(tool_id) <= MAX_ID


# what a person is shown

MAX_SHOWN = 20
"""Calls in one question."""

MAX_CHARACTERS = 12_000
"""Characters of all calls in one question; the first is always shown, and is bounded too."""

MAX_ID = 200
MAX_ARGUMENTS = 24
"""Top-level arguments of one call that are shown."""

MAX_VALUE = 1_200
"""Characters of the JSON of one argument that are shown whole; of a longer one, its begin and its end."""

_LEAST_VALUE = 200
"""Characters of one value, where there are many."""

_WIDTH = 100
QUOTED: Final = "    "
"""Before every line of a call: clients that read Markdown show such lines as they are."""
_CONTINUED = "      | "


def shown(request: ApprovalRequest) -> list[str]:
    """Return one call for a person's eyes, in lines of printable characters.

    No text of a program's or a server's can begin a line of its own or be taken for one of ours: it is JSON, between
    quotes, and a line that is too long continues behind a mark.
    """
    lines = [f"call {request.call}: {_quoted(request.tool, MAX_ID)}"]
    if request.arguments:
        lines.append("  arguments:")
        lines += _arguments(request.arguments)
    else:
        lines.append("  arguments: none")
    lines.append(f"  effects: {_effects(request.effects)}")
    lines.append(f"  why you are asked: {_quoted(request.reason, 400)}")
    return lines


def _arguments(arguments: JsonObject) -> list[str]:
    lines: list[str] = []
    items = list(arguments.items())
    # However large the others are, something is seen of each.
    most = max(_LEAST_VALUE, min(MAX_VALUE, 4 * MAX_VALUE // len(items)))
    for name, value in items[:MAX_ARGUMENTS]:
        key, text = _quoted(name, MAX_ID), json_text(value)
        if len(text) <= most:
            lines += _wrapped(f"{key}: {visible(text)}")
            continue
        begin, end = text[: most * 2 // 3], text[-(most // 3) :]
        left_out = len(text) - len(begin) - len(end)
        lines += _wrapped(f"{key}: {visible(begin)}")
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


def _quoted(text: str, most: int) -> str:
    """Return a text as JSON, so that its end is clear."""
    if len(text) <= most:
        return visible(json_text(text))
    return f"{visible(json_text(text[:most]))} [cut: {len(text):,} characters, {_measure(text)}]"


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
    """Return text, which may be anything, with all that could mislead a reader written as JSON escapes.

    Spaces in a row but the first two are included: no line can be made to break. Marks that take a place of their own
    count as piled up too, because a decision rests on this text.
    """
    shown = escape_misleading(text, json_escape, piled=("Mn", "Me", "Mc"))
    return _SPACES.sub(lambda found: "  " + "\\u0020" * (len(found[0]) - 2), shown)


_SPACES: Final = re.compile(" {3,}")
