"""One conversation of a model about one task, and the grade of its answer."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio

from benchmarks.agents.arms import Result, Toolbox
from benchmarks.agents.endpoint import Endpoint
from benchmarks.agents.task import Task, is_right
from benchmarks.agents.wire_forms import Reply, Settings, Usage, WireForm

SYSTEM = """\
You solve a task with the tools that you have. Work until it is done; do not ask questions. When it is done, write the \
answer as JSON on one line of its own, after the word ANSWER and a colon, such as:
ANSWER: {"total": 3}"""
MARK = "ANSWER:"

Note = Callable[[dict[str, Any]], None]
"""Writes one entry of a transcript."""


@dataclass(frozen=True)
class Limits:
    """Limits of one conversation."""

    turns: int = 40
    seconds: float = 900.0


@dataclass
class Outcome:
    """The end of a conversation.

    Attributes:
        grade: `right`, or a kind of failure: `wrong answer`, `wrong changes`, `no answer`, `cut off`, `turn limit`,
            `time limit`.
        detail: what was wrong, for people.
        turns: requests to the model.
        calls: calls of tools.
        refused: calls of tools whose results were errors.
        seconds: time of the conversation, without pauses after failures of the endpoint.
    """

    grade: str = ""
    detail: str = ""
    usage: Usage = field(default_factory=Usage)
    turns: int = 0
    calls: int = 0
    refused: int = 0
    seconds: float = 0.0


async def converse(
    task: Task, box: Toolbox, endpoint: Endpoint, form: WireForm, settings: Settings, limits: Limits, note: Note
) -> Outcome:
    """Return the outcome of a conversation.

    Raises:
        EndpointError: the endpoint has failed, which says nothing about the model.
    """
    outcome, began = Outcome(), time.monotonic() - endpoint.paused
    messages: list[dict[str, Any]] = [{"role": "user", "content": task.prompt}]
    note({"kind": "system", "text": SYSTEM})
    note({"kind": "tools", "tools": box.tools})
    note({"kind": "user", "text": task.prompt})
    while True:
        outcome.seconds = time.monotonic() - began - endpoint.paused
        if outcome.turns >= limits.turns:
            return _ended(outcome, "turn limit", f"{limits.turns} turns")
        if outcome.seconds >= limits.seconds:
            return _ended(outcome, "time limit", f"{limits.seconds:.0f} seconds")
        reply = await endpoint.ask(form.body(settings, SYSTEM, messages, box.tools))
        outcome.turns += 1
        outcome.usage += reply.usage
        outcome.seconds = time.monotonic() - began - endpoint.paused
        note({"kind": "model", "message": reply.message, "usage": reply.usage.__dict__, "seconds": outcome.seconds})
        if not reply.uses:
            return _graded(task, box, reply, outcome)
        messages.append(reply.message)
        messages += form.results(await _called(box, reply, outcome, note))


async def _called(box: Toolbox, reply: Reply, outcome: Outcome, note: Note) -> list[Any]:
    """Return the results of all calls of an answer, which are made at the same time."""
    found = [Result("The arguments are no JSON object.", is_error=True)] * len(reply.uses)

    async def call(number: int, name: str, arguments: dict[str, Any]) -> None:
        found[number] = await box.call(name, arguments)

    async with anyio.create_task_group() as tasks:
        for number, use in enumerate(reply.uses):
            if use.arguments is not None:
                tasks.start_soon(call, number, use.name, use.arguments)
    for use, result in zip(reply.uses, found, strict=True):
        outcome.calls += 1
        outcome.refused += result.is_error
        note({"kind": "result", "id": use.id, "tool": use.name, "text": result.text, "error": result.is_error})
    return [(use, result.text, result.is_error) for use, result in zip(reply.uses, found, strict=True)]


def answer_of(text: str) -> tuple[bool, Any]:
    """Return True and the answer in a text, or False if it has none that is JSON."""
    _, mark, rest = text.rpartition(MARK)
    if not mark:
        return False, None
    line = rest.strip().strip("*`").strip()
    try:
        return True, json.loads(line)
    except ValueError:
        pass
    try:  # words after the answer do no harm
        return True, json.JSONDecoder().raw_decode(line)[0]
    except ValueError:
        return False, None


def _graded(task: Task, box: Toolbox, reply: Reply, outcome: Outcome) -> Outcome:
    found, answer = answer_of(reply.text)
    if not found:
        return _ended(outcome, "cut off" if reply.cut else "no answer", reply.text[-200:])
    if wrong := box.differences(task.tables()):
        return _ended(outcome, "wrong changes", "; ".join(wrong)[:500])
    if not is_right(answer, task.answer):
        detail = f"{json.dumps(answer)[:200]} instead of {json.dumps(task.answer)[:200]}"
        return _ended(outcome, "wrong answer", detail)
    return _ended(outcome, "right", "")


def _ended(outcome: Outcome, grade: str, detail: str) -> Outcome:
    outcome.grade, outcome.detail = grade, detail
    return outcome
