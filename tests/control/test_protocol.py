"""Tests of the messages of both sides of the control socket."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import pytest

from codemode_mcp.server.control.endpoints import proof, proves
from codemode_mcp.server.control.protocol import (
    MAX_DECIDED,
    BadMessage,
    Request,
    decode_request,
    digest_of,
    encode,
    encode_request,
    merge_reports,
    text_of,
)

GOOD: dict[str, Any] = {"version": 1, "operation": "decide", "run": "run_x", "calls": [[1, "d"]]}
GOOD |= {"approved": True, "remember": "no"}
BAD: list[tuple[str, Any]] = [
    *(("version", 2), ("operation", "approve"), ("operation", None), ("run", 7)),
    *(("calls", calls) for calls in (None, [[True, "d"]], [["1", "d"]], [[1]], [[1, "d"]] * (MAX_DECIDED + 1))),
    *(("approved", 1), ("approved", "yes"), ("remember", "forever"), ("remember", "\ud800")),
]


def test_a_request_survives_the_way() -> None:
    request = Request("decide", "run_x", ((1, "a"), (2, "b")), approved=True, remember="run")
    assert decode_request(encode_request(request)) == request


@pytest.mark.parametrize(("name", "value"), BAD)
def test_anything_else_is_no_request(name: str, value: Any) -> None:
    assert decode_request(json.dumps(GOOD).encode()).approved
    with pytest.raises(BadMessage):
        decode_request(json.dumps(GOOD | {name: value}).encode())


@pytest.mark.parametrize("name", GOOD)
def test_a_request_without_one_of_its_members_is_none(name: str) -> None:
    with pytest.raises(BadMessage):
        decode_request(json.dumps({key: value for key, value in GOOD.items() if key != name}).encode())


@pytest.mark.parametrize("line", [b"", b"[]", b"null", b"{", b"\xff\xfe", b"[" * 100_000, b"GET / HTTP/1.1\r"])
def test_bytes_that_are_no_json_object_are_told_so(line: bytes) -> None:
    with pytest.raises(BadMessage):
        decode_request(line)


def test_a_message_is_one_line_of_ascii_whatever_is_in_it() -> None:
    line = encode({"text": "a\nb\r\u2028\x1b\ud800漢"})
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert all(0x20 <= byte < 0x7F for byte in line[:-1])


def test_a_proof_counts_for_one_side_one_token_and_these_nonces() -> None:
    given = proof("token", "client", ("a", "b"))
    assert proves(given, "token", "client", ("a", "b"))
    assert not proves(given, "token", "server", ("a", "b"))
    assert not proves(given, "other", "client", ("a", "b"))
    assert not proves(given, "token", "client", ("b", "a"))
    assert not proves(None, "token", "client", ("a", "b"))


def test_a_digest_tells_arguments_apart_that_look_alike() -> None:
    texts = [text_of(each) for each in ({"a": 1}, {"a": 1.0}, {"a": "1"}, {"\u0430": 1}, {"a": 1, "b": None})]
    assert len({digest_of(text) for text in texts}) == len(texts)


# the choice of a process for a run that several processes report


def view(where: str | None, *, observed: bool = False, ended: bool = False) -> dict[str, Any]:
    found = {"id": "run_a", "observed": observed, "endedMs": 5 if ended else None}
    return found if where is None else {**found, "where": where}


LADDER = {
    "drives": view("here", observed=True),
    "has ended it": view("here", ended=True),
    "carries its calls": view("here"),
    "sees it driven": view("elsewhere", observed=True),
    "could resume it": {**view("stored"), "adoptable": True},
    "sees it in its store": view("stored"),
}
"""Reports by their distance from the run, the closest first."""


@pytest.mark.parametrize("count", range(1, len(LADDER) + 1))
def test_a_run_is_listed_once_by_the_process_closest_to_it(count: int) -> None:
    lowest = [*LADDER.items()][-count:]
    for order in permutations(lowest):
        (found,) = merge_reports((source, [told]) for source, told in order)
        assert (found.source, found.disputed) == (lowest[0][0], False)


def test_two_that_have_the_same_run_are_in_dispute_until_one_of_them_drives_it() -> None:
    assert [each.disputed for each in merge_reports([("a", [view("here")]), ("b", [view(None)])])] == [True]
    told = [("a", [view("here")]), ("b", [view("here")]), ("c", [view("here", observed=True)])]
    assert [(each.source, each.disputed) for each in merge_reports(told)] == [("c", False)]


def test_several_that_could_resume_a_run_are_as_good_as_the_first() -> None:
    told = [("a", [view("stored")]), ("b", [view("stored")])]
    assert [(each.source, each.disputed) for each in merge_reports(told)] == [("a", False)]


def test_runs_stay_in_the_order_in_which_they_are_told() -> None:
    one, two = {**view("stored"), "id": "run_1"}, {**view("here"), "id": "run_2"}
    merged = merge_reports([("a", [one, two]), ("b", [{**one, "where": "here"}])])
    assert [each.view["id"] for each in merged] == ["run_1", "run_2"]
