"""The bookkeeping of a relay: each request is answered once, and each answer reaches the instance that asked."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codemode_mcp.process.instance import wire
from codemode_mcp.process.instance.relayed_session import LONG_LINE, MAX_ATTEMPTS, RelayedSession
from tests.properties import examples

INITIALIZE = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def line(message: Any) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


def request(number: object, method: str = "tools/call", **params: Any) -> bytes:
    return line({"jsonrpc": "2.0", "id": number, "method": method, "params": params})


def result(number: object, **values: Any) -> bytes:
    return line({"jsonrpc": "2.0", "id": number, "result": values})


def notification(method: str, **params: Any) -> bytes:
    return line({"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params})


def send(session: RelayedSession, data: bytes) -> bytes | None:
    """Pass a line of the client on. Return what reached the instance."""
    outgoing = session.from_client(data)
    if outgoing is None:
        return None
    session.sent(outgoing.key)
    return outgoing.line


def brought(session: RelayedSession) -> list[Any]:
    """Bring the session to another instance. Return the messages and notes that it gets."""
    session.instance_ended()
    found = []
    for outgoing in session.replay()[0]:
        session.sent(outgoing.key)
        is_note = outgoing.line.startswith(wire.MARK)
        found.append(wire.decode_note(outgoing.line) if is_note else json.loads(outgoing.line))
    return found


def greeted() -> RelayedSession:
    session = RelayedSession()
    for message in (INITIALIZE, INITIALIZED):
        assert send(session, line(message)) == line(message)
    assert session.from_instance(result(0)) == result(0)
    return session


def test_a_session_is_brought_to_the_next_instance_and_the_client_sees_no_second_greeting() -> None:
    session = greeted()
    assert not session.awaits_answers
    for _ in range(2):
        assert brought(session) == [INITIALIZE, INITIALIZED]
        assert not session.awaits_answers
        assert session.from_instance(result(0, second=True)) is None
    assert session.from_instance(result(0)) == result(0), "only the answer to the repeated greeting is hidden"


def test_the_next_instance_gets_the_latest_level_of_log_messages() -> None:
    session = greeted()
    for number, level in ((1, "debug"), (2, "error")):
        send(session, request(number, "logging/setLevel", level=level))
        assert session.from_instance(result(number)) == result(number)
    for _ in range(2):
        assert [message.get("params") for message in brought(session)[2:]] == [{"level": "error"}]
        assert session.from_instance(result(0)) is session.from_instance(result(2)) is None
    send(session, request(3, "logging/setLevel", level="info"))
    assert [message.get("id") for message in brought(session)] == [0, None, 3]
    assert session.from_instance(result(3)) == result(3)


def test_a_client_that_still_waits_for_its_greeting_gets_it_from_the_next_instance() -> None:
    session = RelayedSession()
    send(session, line(INITIALIZE))
    assert brought(session) == [INITIALIZE]
    assert session.from_instance(result(0)) == result(0)


def test_a_client_without_a_greeting_has_nothing_to_replay() -> None:
    session = RelayedSession()
    send(session, request(1, "server/discover"))
    session.from_instance(result(1))
    assert brought(session) == []


def test_reading_requests_are_repeated_and_calls_are_reported_in_order() -> None:
    session = greeted()
    lines = [request(1, "tools/list"), request(2, name="exec"), request("2", "ping"), request(3, name="wait")]
    for data in lines:
        send(session, data)
    session.note({"progress": 3, "run": "run_a", "dispatched": False})
    session.note({"progress": 3, "run": None, "dispatched": True})
    session.note({"progress": 3, "run": "run_a", "dispatched": False})
    assert brought(session)[2:] == [
        json.loads(lines[0]),
        {"interrupted": json.loads(lines[1]), "run": None, "dispatched": False},
        json.loads(lines[2]),
        {"interrupted": json.loads(lines[3]), "run": "run_a", "dispatched": True},
    ]


def test_a_call_that_did_not_reach_an_instance_is_repeated() -> None:
    session = greeted()
    assert session.from_client(request(1, name="exec")) is not None  # and sending fails
    assert brought(session)[2:] == [json.loads(request(1, name="exec"))]
    unsent = {"interrupted": json.loads(request(1, name="exec")), "run": None, "dispatched": False}
    assert brought(session)[2:] == [unsent]


def test_an_answered_or_cancelled_request_is_not_brought() -> None:
    session = greeted()
    for number in (1, "1", 2):
        send(session, request(number))
    assert session.from_instance(result(1)) == result(1)
    cancelled = notification("cancelled", requestId=2)
    assert send(session, cancelled) == cancelled
    assert [each["interrupted"]["id"] for each in brought(session)[2:]] == ["1"]
    assert session.from_instance(result(2)) == result(2), "the client drops a late answer, if there is one"


def test_questions_of_an_instance_that_has_ended_are_withdrawn_and_late_answers_dropped() -> None:
    session = greeted()
    question = request(1, "elicitation/create", message="Sure?")
    assert session.from_instance(question) == question
    assert session.from_instance(request("b", "roots/list")) == request("b", "roots/list")
    assert send(session, result("b")) == result("b")
    assert send(session, result("b")) is None, "there is one answer"
    (withdrawn,) = map(json.loads, session.instance_ended())
    assert (withdrawn["method"], withdrawn["params"]["requestId"]) == ("notifications/cancelled", 1)
    session.replay()
    # The next instance counts from the same number. A late answer must not be taken for an answer to its question.
    shown = session.from_instance(question)
    assert shown is not None
    assert shown != question
    assert send(session, result(1, action="accept")) is None
    answered = send(session, result(json.loads(shown)["id"], action="decline"))
    assert answered is not None
    assert json.loads(answered) == json.loads(result(1, action="decline"))


def test_a_later_instance_withdraws_its_question_by_the_id_that_the_client_knows() -> None:
    session = greeted()
    brought(session)
    shown = session.from_instance(request(7, "elicitation/create"))
    assert shown is not None
    seen = session.from_instance(notification("cancelled", requestId=7, reason="r"))
    assert seen is not None
    assert json.loads(seen)["params"] == {"requestId": json.loads(shown)["id"], "reason": "r"}
    assert session.instance_ended() == []


def test_a_subscription_is_repeated_and_confirmed_once_until_the_instance_ends_it() -> None:
    session = RelayedSession()
    send(session, request(5, "subscriptions/listen"))
    meta = {"io.modelcontextprotocol/subscriptionId": 5}
    confirmed = notification("subscriptions/acknowledged", _meta=meta)
    assert session.from_instance(confirmed) == confirmed
    assert brought(session) == [json.loads(request(5, "subscriptions/listen"))]
    assert session.from_instance(confirmed) is None
    ended = notification("cancelled", requestId=5)
    assert session.from_instance(ended) == ended
    assert brought(session) == []


def test_a_request_that_ends_every_instance_is_answered_by_the_relay() -> None:
    session = greeted()
    send(session, request(1, name="exec"))
    for _ in range(MAX_ATTEMPTS):
        session.instance_ended()
        assert session.replay()[1] == []
    session.instance_ended()
    lines, answers = session.replay()
    assert [json.loads(each.line).get("method") for each in lines] == ["initialize", "notifications/initialized"]
    (answer,) = map(json.loads, answers)
    assert (answer["id"], answer["error"]["code"]) == (1, -32603)
    assert "server processes have ended while it was open. No call to a tool was sent" in answer["error"]["message"]


def test_without_another_instance_every_open_request_is_answered_truly() -> None:
    session = greeted()
    for number, method in enumerate(["tools/list", "tools/call", "tools/call", "tools/call"]):
        send(session, request(f"r{number}", method))
    session.note({"progress": "r2", "run": "run_x", "dispatched": True})
    session.note({"progress": "r3", "run": "run_y", "dispatched": False})
    session.instance_ended()
    answers = {each["id"]: each["error"]["message"] for each in map(json.loads, session.give_up("the disk is full"))}
    assert answers == {
        "r0": "the server process has ended, and no other one could be started: the disk is full",
        "r1": answers["r0"] + ". No call to a tool was sent, so make the same request again when the server runs again",
        "r2": answers["r0"] + ". Some calls to tools were sent, and their results are unknown: look at what they have "
        "done. When the server runs again, call wait with runId run_x",
        "r3": answers["r0"] + ". No call to a tool was sent. When the server runs again, call wait with runId run_y",
    }
    assert not session.awaits_answers


NO_REQUESTS = [
    *(b"nonsense", b"[" * 100_000, line([json.loads(request(1))]), b"7", b'{"jsonrpc":"2.0"}', b"\xff\xfe"),
    *(b'{"method":1,"id":1}', b'{"jsonrpc":"2.0","id":null,"error":{}}'),
    b'{"jsonrpc":"2.0","id":"\x01","method":"ping"}' + b" " * LONG_LINE,
]


@pytest.mark.parametrize("data", NO_REQUESTS)
def test_a_line_that_is_no_request_is_passed_on_untouched_in_both_directions(data: bytes) -> None:
    session = greeted()
    assert send(session, data) == data
    assert session.from_instance(data) == data
    assert brought(session) == [INITIALIZE, INITIALIZED]


@pytest.mark.parametrize(
    "data", [b"", b"  \r", b'\x01{"log":"x"}', b"\x01", b"\xef\xbb\xbf", b'\xef\xbb\xbf\x01{"log":"x"}']
)
def test_a_client_can_send_neither_blank_lines_nor_notes(data: bytes) -> None:
    assert RelayedSession().from_client(data) is None


def test_a_byte_order_mark_at_the_beginning_of_the_session_reaches_no_instance() -> None:
    session = RelayedSession()
    assert send(session, b"\xef\xbb\xbf" + line(INITIALIZE)) == line(INITIALIZE)
    session.from_instance(result(0))
    assert brought(session) == [INITIALIZE]


def test_ids_that_are_equal_as_numbers_are_one_id() -> None:
    session = greeted()
    send(session, request(5.0, "ping"))
    assert session.from_instance(result(5)) == result(5)
    assert not session.awaits_answers
    question = request(7, "roots/list")
    for answer in (result(7.0), result("7")):
        assert session.from_instance(question) == question
        assert send(session, answer) == answer
        assert send(session, answer) is None


@pytest.mark.parametrize("number", [True, [1], {}])
def test_a_request_whose_id_cannot_be_sent_back_is_passed_on_and_not_awaited(number: object) -> None:
    session = greeted()
    assert send(session, request(number, "ping")) == request(number, "ping")
    assert not session.awaits_answers


LONG = {"name": "exec", "arguments": {"code": 'x","jsonrpc":"2.0","id":9}' * 400}}


@pytest.mark.parametrize("number", [5, "five", 'a"\\é', None, 1.5])
@pytest.mark.parametrize("order", ["jsonrpc id method params", "method params jsonrpc id", "params id method jsonrpc"])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_long_requests_are_registered_in_any_order(number: object, order: str, separators: tuple[str, str]) -> None:
    message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": LONG}
    data = json.dumps({name: message[name] for name in order.split()}, separators=separators).encode()
    assert len(data) > LONG_LINE
    session = RelayedSession()
    assert send(session, data) == data
    assert brought(session) == [{"interrupted": message, "run": None, "dispatched": False}]
    answer = result(number, content="y" * LONG_LINE)
    assert session.from_instance(answer) == answer
    assert not session.awaits_answers


def test_long_answers_and_questions_are_registered_too() -> None:
    session = greeted()
    brought(session)
    question = request(1, "sampling/createMessage", messages="m" * LONG_LINE)
    shown = session.from_instance(question)
    assert shown is not None
    answer = {"result": {"text": "t" * LONG_LINE}, "jsonrpc": "2.0", "id": json.loads(shown)["id"]}
    given = send(session, line(answer))
    assert given is not None
    assert json.loads(given) == {**answer, "id": 1}
    assert send(session, line(answer)) is None


def test_a_long_notification_is_no_request() -> None:
    session = greeted()
    for order in ("jsonrpc method params", "method params jsonrpc"):
        message = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": {"a": ["d" * LONG_LINE]}}}
        data = line({name: message[name] for name in order.split()})
        assert send(session, data) == data
        assert session.from_instance(data) == data
    assert not session.awaits_answers


# any order of events

EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["call", "list", "level", "unsent", "answer", "ask", "reply", "late", "note", "cancel", "end"]),
        st.integers(0, 5),
    ),
    max_size=60,
)


class Simulated:
    """An instance that gets lines, and remembers what it was asked and what it has asked."""

    def __init__(self) -> None:
        self.open: list[object] = []
        self.asked: dict[int, int] = {}  # by id: the number of the question
        self.last_id = 0

    def take(self, data: bytes) -> None:
        message = wire.decode_note(data)["interrupted"] if data.startswith(wire.MARK) else json.loads(data)
        if "id" in message:
            self.open.append(message["id"])


@given(EVENTS, st.booleans())
@settings(max_examples=examples(200), deadline=None)
def test_in_any_order_of_events_every_request_is_answered_once_and_no_answer_goes_astray(
    events: list[tuple[str, int]], greets: bool
) -> None:
    session, instance = RelayedSession(), Simulated()
    answers: dict[object, int] = {}
    shown: dict[object, int] = {}  # the questions that the client sees, by shown id
    withdrawn: list[object] = []
    questions = 0
    number = 0

    def client_reads(data: bytes | None) -> None:
        if data is None:
            return
        message = json.loads(data)
        if message.get("method") == "notifications/cancelled":
            withdrawn.append(message["params"]["requestId"])
            del shown[message["params"]["requestId"]]
        elif "method" in message:
            assert message["id"] not in shown
            shown[message["id"]] = message["params"]["question"]
        else:
            answers[message["id"]] += 1

    def client_writes(data: bytes, *, arrives: bool = True) -> None:
        outgoing = session.from_client(data)
        assert outgoing is not None
        if arrives:
            session.sent(outgoing.key)
            instance.take(outgoing.line)

    if greets:
        answers[0] = 0
        client_writes(line(INITIALIZE))
        client_writes(line(INITIALIZED))
    for event, pick in events:
        match event:
            case "call" | "list" | "level" | "unsent":
                number += 1
                answers[number] = 0
                method = {"list": "tools/list", "level": "logging/setLevel"}.get(event, "tools/call")
                client_writes(request(number, method), arrives=event != "unsent")
            case "answer" if instance.open:
                client_reads(session.from_instance(result(instance.open.pop(pick % len(instance.open)))))
            case "ask":
                instance.last_id += 1
                questions += 1
                instance.asked[instance.last_id] = questions
                client_reads(session.from_instance(request(instance.last_id, "roots/list", question=questions)))
            case "reply" if shown:
                asked = list(shown)[pick % len(shown)]
                outgoing = session.from_client(result(asked, question=shown[asked]))
                assert outgoing is not None
                reply = json.loads(outgoing.line)
                assert instance.asked.pop(reply["id"]) == shown.pop(asked) == reply["result"]["question"]
            case "late" if withdrawn:
                late = withdrawn[pick % len(withdrawn)]
                if late not in shown:
                    assert session.from_client(result(late)) is None
            case "note" if instance.open:
                session.note({"progress": instance.open[pick % len(instance.open)], "run": "r", "dispatched": True})
            case "cancel" if waiting := [each for each in answers if each and not answers[each]]:
                # The client expects no answer to this request any more.
                gone = waiting[pick % len(waiting)]
                client_writes(notification("cancelled", requestId=gone))
                del answers[gone]
                instance.open = [each for each in instance.open if each != gone]
            case "end":
                for data in session.instance_ended():
                    client_reads(data)
                instance = Simulated()
                assert not shown
                lines, failures = session.replay()
                for data in failures:
                    client_reads(data)
                for outgoing in lines:
                    session.sent(outgoing.key)
                    instance.take(outgoing.line)
    for data in session.instance_ended():
        client_reads(data)
    for data in session.give_up("the end"):
        client_reads(data)
    assert all(count == 1 for count in answers.values()), answers
