"""Tests of the messages of both sides of the control socket."""

from __future__ import annotations

import json
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
    text_of,
)

GOOD: dict[str, Any] = {
    "version": 1,
    "operation": "decide",
    "run": "run_x",
    "calls": [[1, "d"]],
    "approved": True,
    "remember": "no",
}


def test_a_request_survives_the_way() -> None:
    request = Request("decide", "run_x", ((1, "a"), (2, "b")), approved=True, remember="run")
    assert decode_request(encode_request(request)) == request


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"operation": "approve"},
        {"operation": None},
        {"run": 7},
        {"calls": None},
        {"calls": [[True, "d"]]},
        {"calls": [["1", "d"]]},
        {"calls": [[1]]},
        {"calls": [[1, "d"]] * (MAX_DECIDED + 1)},
        {"approved": 1},
        {"approved": "yes"},
        {"remember": "forever"},
        {"remember": "\ud800"},
    ],
)
def test_anything_else_is_no_request(change: dict[str, Any]) -> None:
    assert decode_request(json.dumps(GOOD).encode()).approved
    with pytest.raises(BadMessage):
        decode_request(json.dumps(GOOD | change).encode())


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
