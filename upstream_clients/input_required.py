"""Calls whose first answer is not their result, since the server needs input from the user first.

A modern server (2026-07-28) answers such a call with `resultType: "input_required"`. `send_until_result` sends the call
again with the answers. A server of 2025-11-25 fails a call with error -32042 until its user has opened a URL.
`send_until_result` then repeats the call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from upstream_clients.errors import QuestionRefused, UpstreamCallError
from upstream_clients.questions import METHODS, UrlElicitationRequired, check_question
from upstream_clients.results import needs_input

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from upstream_clients.questions import CallQuestions
    from upstream_clients.tools import JsonObject

MAX_ROUNDS = 25
"""Number of times that a modern server may answer one call with "not yet"."""

FIRST_PAUSE, MAX_PAUSE = 0.05, 0.25
"""Seconds between the rounds of a server that asks only to be called again."""

URL_WAIT = 120.0
"""Seconds that a user gets to finish at a URL. Servers are not obliged to report the end."""


async def send_until_result(
    send: Callable[[Mapping[str, Any]], Awaitable[JsonObject]], params: Mapping[str, Any], call: CallQuestions
) -> JsonObject:
    """Send a call until the server gives its result, and answer its questions in between. Return the raw result.

    Args:
        send: sends the call with the given params over the current connection. Between two rounds nothing is in flight,
            so the server may be restarted: each request has everything that the server needs.

    Raises:
        UpstreamCallError: the server asks for input that it cannot get, or asks too often.
        Exception: any exception of `send`.
    """
    pause, urls_opened = FIRST_PAUSE, False
    more: dict[str, Any] = {}
    for _ in range(1 + MAX_ROUNDS):
        try:
            raw = await send({**params, **more})
        except UrlElicitationRequired as required:
            if call.asking is None:
                raise
            if urls_opened:
                why = "still needs the user to finish in a browser; repeat the call when that is done"
                raise _failed(call, why) from required
            await _open_urls(required, call)
            urls_opened = True
            continue
        if not needs_input(raw):
            return raw
        if call.asking is None:
            raise _failed(
                call,
                "asks for further input from the user, which cannot be given here; call it with all that it needs, or "
                "use another tool",
            )
        try:
            requests, more = read_input_required(raw)
        except ValueError as error:
            raise _failed(call, f"asks for input in a way that is not valid MCP: {error}") from None
        if requests:
            more["inputResponses"] = await ask_all(requests, call)
            pause = FIRST_PAUSE
        else:
            await anyio.sleep(pause)
            pause = min(pause * 2, MAX_PAUSE)
    raise _failed(call, f"asks for further input again after {MAX_ROUNDS} rounds; it was given up")


async def ask_all(requests: Mapping[str, tuple[str, JsonObject]], call: CallQuestions) -> dict[str, JsonObject]:
    """Ask all questions at the same time and return their answers. If one is refused, the others are withdrawn."""
    answers: dict[str, JsonObject] = {}
    refusals: list[QuestionRefused] = []

    async def ask(key: str, method: str, params: JsonObject) -> None:
        try:
            answers[key] = await call.ask(method, params)
        except QuestionRefused as refusal:
            refusals.append(refusal)
            asking.cancel_scope.cancel()

    try:
        call.count(len(requests))
        for method, params in requests.values():
            check_question(method, params)
        # Stopped once for all questions, so that the clock does not run between two of them.
        with call.clock_stopped():
            async with anyio.create_task_group() as asking:
                for key, (method, params) in requests.items():
                    asking.start_soon(ask, key, method, params)
        if refusals:
            raise refusals[0]
    except QuestionRefused as refusal:
        raise _failed(call, f"needs input that it cannot get: {refusal}") from refusal
    # In the order of the questions, not of the answers.
    return {key: answers[key] for key in requests}


async def _open_urls(required: UrlElicitationRequired, call: CallQuestions) -> None:
    """Ask the user to open each URL. Then wait until the server has reported the end of all, at most `URL_WAIT`."""
    requests: dict[str, tuple[str, JsonObject]] = {}
    for item in required.elicitations:
        match item:
            case {"url": str(), "elicitationId": str() as identity} if item.get("mode", "url") == "url":
                requests[identity] = ("elicitation/create", {**item, "mode": "url"})
            case _:
                raise _failed(call, "asks the user to open a URL, but not in a way that is valid MCP") from required
    if not requests:
        raise required
    answers = await ask_all(requests, call)
    for identity, answer in answers.items():
        if (action := answer.get("action")) != "accept":
            _, params = requests[identity]
            how = "declined" if action == "decline" else "did not answer"
            raise _failed(call, f"needs the user to open {params['url']} first, and the user {how}") from required
    with call.clock_stopped(), anyio.move_on_after(URL_WAIT):
        await required.completed(list(requests))


def _failed(call: CallQuestions, what: str) -> UpstreamCallError:
    return UpstreamCallError(call.server, f"server {call.server!r}: {call.subject} {what}", dispatched=True)


def read_input_required(raw: JsonObject) -> tuple[dict[str, tuple[str, JsonObject]], dict[str, Any]]:
    """Read an answer with `resultType: "input_required"`.

    Returns:
        The method and params of each question, by the server's own keys, and the params to add to the repeated request:
        the server's state, which is sent back unread.

    Raises:
        ValueError: the answer is malformed, or a question has another method; the text says what is wrong.
    """
    state = {key: raw[key] for key in ("requestState",) if raw.get(key) is not None}
    items = raw.get("inputRequests")
    if items is None:
        items = {}
    if not isinstance(items, dict):
        raise ValueError("inputRequests is not an object")
    if not items and not state:
        raise ValueError("it has neither inputRequests nor requestState")
    requests: dict[str, tuple[str, JsonObject]] = {}
    for key, item in items.items():
        match item:
            case {"method": str() as method} if method in METHODS:
                params = {} if item.get("params") is None else item["params"]
            case {"method": str() as method}:
                raise ValueError(f"{method[:100]!r} is not one of {', '.join(sorted(METHODS))}")
            case _:
                raise ValueError(f"inputRequests.{key[:100]} names no method")
        if not isinstance(params, dict):
            raise ValueError(f"params of inputRequests.{key[:100]} is not an object")
        requests[key] = (method, params)
    return requests, state
