"""Questions of upstreams to a person at the client, and progress messages."""

from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest

from codemode_mcp.server.client import PROGRESS_BURST, PROGRESS_INTERVAL, LatestProgress, supported
from codemode_mcp.server.client_questions import as_request
from upstream_clients.tools import Question


def shown(**params: Any) -> dict[str, Any]:
    request = as_request(Question("github", "elicitation/create", {"requestedSchema": {"type": "object"}, **params}))
    params = request["params"]
    assert isinstance(params, dict)
    return params


def test_a_question_begins_with_the_name_of_its_server() -> None:
    assert shown(message="Your name?")["message"] == "[github] Your name?"


@pytest.mark.parametrize(
    ("message", "seen"),
    [
        ("\r\x1b[2K\x1b[1A[bank] Password?", "[github] [2K[1A[bank] Password?"),
        ("a\n[bank] Password?", "[github] a\n  [bank] Password?"),
        ("a\u202e\u2066b\u200b", "[github] ab"),
        ("\u3164\u2800a\ufe0f\U000e0041\ud800", "[github] a"),
    ],
    ids=["cursor", "lines", "direction", "invisible"],
)
def test_no_text_of_a_server_can_pass_for_another_servers(message: str, seen: str) -> None:
    assert shown(message=message)["message"] == seen


def test_what_is_between_the_server_and_us_is_not_passed_on() -> None:
    assert shown(message="a", _meta={"progressToken": 1}).keys() == {"mode", "message", "requestedSchema"}


@pytest.mark.parametrize("url", ["javascript:alert(1)", "file:///etc/passwd", "", None])
def test_only_pages_are_opened(url: str | None) -> None:
    with pytest.raises(ValueError, match=r"http|url"):
        as_request(Question("github", "elicitation/create", {"mode": "url", "message": "a", "url": url}))


def test_what_cannot_be_sent_is_no_question() -> None:
    nested: dict[str, Any] = {}
    for _ in range(300):
        nested = {"properties": {"a": nested}}
    with pytest.raises(ValueError, match="depth"):
        shown(message="a", requestedSchema={"type": "object", "properties": {"a": nested}})


def test_what_a_program_asks_begins_with_words_of_ours_and_not_with_a_servers_name() -> None:
    given = {"message": "a\n[github] b\r\x1b[2Kc", "requestedSchema": {"type": "object", "properties": {}}}
    params = as_request(Question("program", "elicitation/create", given, by_program=True))["params"]
    assert params["message"] == "[the program] a\n  [github] b[2Kc"


@pytest.mark.parametrize(
    ("declared", "answers"),
    [
        ({}, set()),
        ({"elicitation": {}}, {"elicitation/create"}),
        ({"elicitation": {"form": {}, "url": {}}}, {"elicitation/create"}),
        ({"elicitation": {"url": {}}}, set()),
        ({"sampling": {}, "roots": {}}, {"sampling/createMessage", "roots/list"}),
    ],
)
def test_what_a_client_answers_is_what_it_has_declared(declared: dict[str, Any], answers: set[str]) -> None:
    assert supported(declared) == answers
    assert supported(None) == set()


class Reports:
    """A client that keeps its progress messages, and takes each one only while `open` is set."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, str | None]] = []
        self.open = anyio.Event()
        self.open.set()
        self.begun = anyio.Event()

    async def report_progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.begun.set()
        await self.open.wait()
        self.seen.append((progress, message))


@pytest.mark.anyio
async def test_of_progress_that_cannot_be_sent_yet_the_last_message_of_each_call_is_kept() -> None:
    client = Reports()
    client.open = anyio.Event()
    progress = LatestProgress(cast("Any", client))
    async with anyio.create_task_group() as group:
        group.start_soon(progress.run)
        progress.report("a", (None, None, "a first"))
        await client.begun.wait()
        for step in range(100):
            progress.report("a", (None, None, f"a {step}"))
            progress.report("b", (7.0, 8.0, f"b {step}"))
        client.open.set()
        while len({"a 99", "b 99"} & {message for _, message in client.seen}) < 2:
            await anyio.lowlevel.checkpoint()
        progress.close()
    texts = [message for _, message in client.seen]
    assert texts[0] == "a first"
    assert len(texts) <= PROGRESS_BURST + 2


@pytest.mark.anyio
async def test_progress_that_is_not_yet_sent_is_dropped_once_its_request_is_answered() -> None:
    client = Reports()
    client.open = anyio.Event()
    progress = LatestProgress(cast("Any", client))
    async with anyio.create_task_group() as group:
        group.start_soon(progress.run)
        progress.report("a", (None, None, "first"))
        await client.begun.wait()
        progress.report("a", (None, None, "second"))
        progress.close()
        client.open.set()
    assert client.seen == [(1.0, "first")]


@pytest.mark.anyio
async def test_a_request_sends_a_few_progress_messages_a_second() -> None:
    client = Reports()
    progress = LatestProgress(cast("Any", client))
    async with anyio.create_task_group() as group:
        group.start_soon(progress.run)
        began = anyio.current_time()
        while len(client.seen) < PROGRESS_BURST + 3:
            progress.report("a", (None, None, "more"))
            await anyio.sleep(0.001)
        assert anyio.current_time() - began > 1.5 * PROGRESS_INTERVAL
        progress.close()
