"""The answer to a request whose run is suspended: its pending calls and questions.

The functions only return values. There is one exception: `waiting` also marks the questions of its answer as shown.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from codemode_mcp.rules.policy.approval import ApprovalQuestion
from codemode_mcp.runs.calls.outcome import Outcome, PendingCall, PendingStatus, WaitingReason
from codemode_mcp.runs.questions import WINDOW, Client, OpenQuestion
from codemode_mcp.runs.run_notes import quoted_start

if TYPE_CHECKING:
    from collections.abc import Iterator

    from codemode_mcp.runs.observation import Observation
    from codemode_mcp.runs.run import Run
    from upstream_clients.tools import Question


SHOWN_PENDING = 20
SHOWN_QUESTIONS = 5
"""Maximum numbers of pending calls and questions that an answer lists."""


def questions_due(run: Run, observation: Observation) -> float:
    """Return the time at which a request is answered with questions, because its client gets questions as answers."""
    returned = run.questions.returned_to(observation.client)
    if not returned:
        return math.inf
    # Calls in flight that have asked nothing yet may ask within `WINDOW`. One answer can then have all questions.
    oldest = min(each.began for each in returned)
    return oldest if run.executing <= len(run.questions.calls) else oldest + WINDOW


def is_unanswerable(run: Run, client: Client | None) -> bool:
    """Return True if a run waits only for answers that this client cannot give."""
    questions = run.questions
    return (
        bool(questions.open or run.approvals.calls)
        and not questions.has_answer
        and not run.approvals.gathers
        and not questions.being_asked
        and not questions.returned_to(client)
        and not run.timers
        and run.executing <= len(questions.calls)
    )


def keeps_output(run: Run, client: Client | None) -> bool:
    """Return True if the answer for a suspended run has no room for output, so that the output stays for a later one.

    Such an answer has only questions, or only the state of the run.
    """
    return client is not None and (client.polls or bool(run.questions.returned_to(client)))


def waiting(
    run: Run, reason: WaitingReason, now: float, wall: float, command: str, address: str | None = None
) -> Outcome:
    """Return the answer for a suspended run, without its output.

    Args:
        now, wall: the time on both clocks; see `records`.
        command: the command that runs codemode-mcp in a terminal.
        address: the address of the page about the approvals of the run; None if no page is open.
    """
    client = None if run.observation is None else run.observation.client
    return Outcome(
        run.id,
        run.owner,
        "waiting",
        run.usage(now),
        reason=reason,
        pending=tuple(_pending(run, now)),
        pending_total=len(run.calls) + len(run.timers),
        yielded=run.yield_reason if reason == "yield" else None,
        questions=run.questions.hand_out(client),
        unanswerable=is_unanswerable(run, client) and not run.questions.put_later(client),
        asked=_asked(run, client, command, address),
        deadline=None if run.expires is None or not run.waits_for_person else wall + run.expires - now,
    )


def _pending(run: Run, now: float) -> Iterator[PendingCall]:
    asking = run.questions.calls
    for live in list(run.calls.values())[:SHOWN_PENDING]:
        status: PendingStatus = "queued" if live.record.status == "queued" else "executing"
        if live.call.id in asking:
            status = "needs_input"
        elif live.call.id in run.approvals.calls:
            status = "needs_approval"
        why = ""
        if status == "queued":
            why = live.record.why_queued
            if not live.has_slot:
                why = f"waits for its turn: {run.executing} calls of this program are in flight"
        yield PendingCall(str(live.call.id), live.record.tool, status, live.record.milliseconds(now), why)
    for timer in list(run.timers)[: max(0, SHOWN_PENDING - len(run.calls))]:
        began = run.timers_began.get(timer, now)
        yield PendingCall(str(timer), "core:timer", "executing", round((now - began) * 1000))


def _asked(run: Run, client: Client | None, command: str, address: str | None) -> tuple[str, ...]:
    """Return sentences about the questions to a person, and who can answer them."""
    asked: list[str] = []
    approval = None
    for each in run.questions.open:
        if isinstance(each.question, ApprovalQuestion):
            approval = each
        elif len(asked) < SHOWN_QUESTIONS:
            how = "This client cannot be asked."
            if each.asking is not None:
                how = "The client is being asked."
            elif each.way is not None and each.way[1] == "later":
                how = "The client is asked during the next wait."
            whose = "The program" if each.question.by_program else f"Server {each.question.server!r}"
            asked.append(f"{whose} asks {_asked_for(each.question)}. {how}")
    if run.approvals.calls:
        tools = counted([request.tool for request in run.approvals.requests])
        asked.append(f"A person has to approve {tools}. {_how_to_approve(run, client, approval, command, address)}")
    return tuple(asked)


def _how_to_approve(
    run: Run, client: Client | None, approval: OpenQuestion | None, command: str, address: str | None
) -> str:
    if approval is not None and approval.asking is not None:
        return "The user is being asked."
    on_page = "" if address is None else f"The user can decide on the page {address}. "
    in_terminal = (
        f"{on_page}To approve, the user runs in a terminal: `{command} runs approve {run.id}` (or `runs deny`)."
    )
    if run.approvals.unasked_reason is not None:
        return f"{run.approvals.unasked_reason} {in_terminal}"
    if client is None or (approval is not None and client.way(approval.question) == "none"):
        return f"This client cannot ask the user. {in_terminal}"
    return f"{on_page}The user is asked during the next wait."


def _asked_for(question: Question) -> str:
    """Return the end of a sentence about a question of a server. The words of the server are quoted."""
    match question.method:
        case "elicitation/create":
            message = str(question.params.get("message", ""))
            return f"the user {quoted_start(message, 200)}"
        case "sampling/createMessage":
            return "the client's model"
        case "roots/list":
            return "for the client's folders"


def counted(tools: list[str]) -> str:
    """Return the ids of tools as text, each once, with the number of its calls."""
    counted = [tool if count == 1 else f"{tool} ({count} times)" for tool, count in Counter(tools).items()]
    shown = ", ".join(counted[:10])
    return shown + (f" and {len(counted) - 10} more tools" if len(counted) > 10 else "")
