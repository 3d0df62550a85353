"""Whatever reads bytes or text of the sandbox, of esbuild or of a call takes anything, in bounded time."""

# ruff: noqa: PT017 - either way is fine, nothing else is

from __future__ import annotations

import base64
import hashlib
import json
import struct
import tracemalloc
import zlib
from typing import Any

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from codemode_mcp.base.errors import ERROR_CODES, InternalError, ProgramError, RuntimeUnavailable
from codemode_mcp.base.settings import CodeModeSettings, ToolSettings
from codemode_mcp.program.inspection import decode_mappings
from codemode_mcp.program.typescript import _Input, _read_diagnostics, _source_map
from codemode_mcp.runs.calls.arguments import ArgumentChecker
from codemode_mcp.runs.calls.outcome import CallRecord, Outcome, PendingCall, Usage
from codemode_mcp.runs.outputs import MIN_PREVIEW
from codemode_mcp.runs.rendering import NEXT_BYTES, PENDING_BYTES, TELEMETRY_BYTES, TELEMETRY_KEY, render
from codemode_mcp.sandbox import snapshot
from codemode_mcp.sandbox.binary import DIGEST, PAGE
from codemode_mcp.sandbox.images import Entries, Image
from codemode_mcp.sandbox.messages import ToolCall, TurnReport, decode_turn
from tests.faults.fuzz.texts import ANY_TEXT, FUZZ, JSON, within
from tests.values import replace

# turns

THROWN = {"name": "Error", "message": "m", "stack": "    at f (<input>:3:4)\n", "engine": False, "code": None}
TURN: dict[str, Any] = {
    "state": "done",
    "value": {"a": [1, "\ud800"]},
    "error": THROWN,
    "fault": None,
    "calls": [
        {"id": 1, "op": "call", "target": "mcp:s:t", "count": 1, "input": "{}"},
        {"id": 2, "op": "call_by_id", "target": "t", "count": 0},
        {"id": 3, "op": "api_search", "query": "q", "limit": 3, "server": "s"},
        {"id": 4, "op": "header", "server": None, "tool": "t", "schema": True},
        {"id": 5, "op": "store", "key": "k", "value": "1"},
        {"id": 6, "op": "timer", "ms": 5},
        {"id": 7, "op": "clear", "target": 6},
        {"id": 8, "op": "yield", "reason": None},
    ],
    "outputs": [
        {"type": "text", "text": "t"},
        {"type": "json", "value": 1},
        {"type": "image", "mimeType": "image/png", "data": "AA=="},
    ],
    "droppedItems": 0,
    "droppedSize": 0,
    "rejections": [THROWN],
    "unchecked": [{"id": 1, "text": "x"}],
    "leftOut": [{"tool": "mcp:a:b", "parts": "1 image", "taken": "", "count": 1}],
    "returning": False,
    "tooLarge": 0,
    "lost": "",
}


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of everything in a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in inner for found in places(item, (*path, key)))]


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """`value` with something else at a path; `...` takes it out."""
    if not path:
        return None if new is ... else new
    copy = dict(value) if isinstance(value, dict) else list(value)
    if len(path) == 1 and new is ...:
        del copy[path[0]]
    else:
        copy[path[0]] = put(copy[path[0]], path[1:], new)
    return copy


def mutated(value: Any) -> st.SearchStrategy[Any]:
    """`value` with up to three of its parts replaced or taken out."""

    @st.composite
    def draw_from(draw: st.DrawFn) -> Any:
        changed = value
        for _ in range(draw(st.integers(1, 3))):
            path = draw(st.sampled_from(places(changed)))
            changed = put(changed, path, draw(JSON | st.just(...)))
            if not isinstance(changed, dict | list):
                break
        return changed

    return draw_from()


def spoilt(text: str) -> st.SearchStrategy[str]:
    """`text` with one stretch of it replaced."""
    return st.builds(
        lambda at, size, new: text[:at] + new + text[at + size :],
        st.integers(0, len(text)),
        st.integers(0, 12),
        st.text(st.sampled_from('{}[]",:\\ud8e0123456789.-+truefalsn\0\ud800é'), max_size=8),
    )


@FUZZ
@given(ANY_TEXT | JSON.map(json.dumps) | mutated(TURN).map(json.dumps) | spoilt(json.dumps(TURN)))
def test_a_turn_is_a_report_or_refused(text: str) -> None:
    with within(1.0):
        try:
            report = decode_turn(text)
        except InternalError:
            return
    assert isinstance(report, TurnReport)
    assert all(isinstance(request.id, int) for request in report.requests)
    # What is taken has a UTF-8 form, for it goes into answers.
    json.dumps([report.value, report.outputs], ensure_ascii=False).encode()


@pytest.mark.parametrize(
    "text",
    [
        "[" * 1_000_000,
        '{"state":' * 300_000,
        json.dumps(TURN).replace("1", "9" * 100_000, 1),
        json.dumps(TURN).replace('"t"', '"' + "\\" * 200_000 + '"'),
        json.dumps(TURN).replace('"t"', '"' + "\\\\ud800" * 100_000 + '"'),
        json.dumps(TURN).replace('"t"', '"' + "\\ud800" * 100_000 + '"'),
        json.dumps({**TURN, "calls": TURN["calls"] * 20_000}),
    ],
    ids=["brackets", "objects", "digits", "backslashes", "escaped escapes", "halves", "calls"],
)
def test_a_large_turn_is_read_or_refused_in_time(text: str) -> None:
    with within(5.0):
        try:
            decode_turn(text)
        except InternalError as refused:
            assert "not valid" in refused.message


# snapshots

BASE = bytes(range(256)) * (4 * PAGE // 256)
IMAGE = Image(
    BASE,
    Entries(*range(12)),
    hashlib.sha256(BASE).hexdigest(),
    hashlib.sha256(b"prelude").hexdigest(),
)
SUSPENDED = BASE[: 2 * PAGE] + bytes(100) + BASE[2 * PAGE + 100 :] + b"\x07" * PAGE
SNAPSHOT = snapshot.encode(SUSPENDED, IMAGE)
MOST = 8 * PAGE


def sealed(pages: int, body: bytes) -> bytes:
    """Return a snapshot with a valid head."""
    rest = b"".join(bytes.fromhex(each) for each in (DIGEST, IMAGE.prelude, IMAGE.digest))
    rest += struct.pack("<I", pages) + body
    return snapshot.MAGIC + hashlib.sha256(rest).digest() + rest


def with_body(numbers: list[int], count: int, blocks: bytes) -> bytes:
    return zlib.compress(struct.pack(f"<I{len(numbers)}I", count, *numbers) + blocks)


BODIES = st.builds(
    with_body,
    st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 200), max_size=5),
    st.integers(0, 6) | st.integers(0, 2**32 - 1),
    st.integers(0, 6).map(lambda blocks: bytes(blocks * snapshot.BLOCK)) | st.binary(max_size=50),
)
CHANGED = st.builds(
    lambda at, new: SNAPSHOT[:at] + new + SNAPSHOT[at + len(new) :],
    st.integers(0, len(SNAPSHOT)),
    st.binary(min_size=1, max_size=9),
)


@FUZZ
@given(
    st.binary(max_size=400)
    | CHANGED
    | st.integers(0, len(SNAPSHOT)).map(lambda size: SNAPSHOT[:size])
    | st.builds(sealed, st.integers(0, 2**32 - 1) | st.integers(0, 9), BODIES | st.binary(max_size=200))
    | st.builds(sealed, st.integers(0, 9), BODIES.map(lambda body: body + body))
)
@example(SNAPSHOT)
@example(sealed(5, b""))
def test_a_snapshot_is_taken_or_refused(data: bytes) -> None:
    with within(1.0):
        try:
            patches = snapshot.decode(data, IMAGE, max_bytes=MOST)
        except ProgramError as refused:
            assert refused.code == "snapshot_restore_failed"
            return
    assert patches.pages * PAGE <= MOST
    for offset, block in patches.blocks:
        assert 0 <= offset <= patches.pages * PAGE - snapshot.BLOCK
        assert len(block) == snapshot.BLOCK


@pytest.mark.parametrize("pages", [1, 8, 9, 2**32 - 1])
def test_a_snapshot_that_unpacks_to_much_more_than_it_may_is_refused_without_doing_so(pages: int) -> None:
    bomb = sealed(pages, zlib.compress(bytes(64 * MOST), 9))
    tracemalloc.start()
    try:
        with pytest.raises(ProgramError, match="cannot be restored"):
            snapshot.decode(bomb, IMAGE, max_bytes=MOST)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * MOST


# source maps and diagnostics of esbuild

VLQ = st.text(st.sampled_from("ACEGIKMgBDF9/+;,,;AAAA"), max_size=60)


@FUZZ
@given(VLQ)
def test_mappings_of_the_alphabet_are_places(mappings: str) -> None:
    with within(1.0):
        segments = decode_mappings(mappings)
    assert [segment[0] for segment in segments] == sorted(segment[0] for segment in segments)


@FUZZ
@given(
    ANY_TEXT
    | st.binary(max_size=200).map(lambda data: base64.b64encode(data).decode())
    | JSON.map(lambda value: base64.b64encode(json.dumps(value).encode()).decode())
)
def test_what_is_no_source_map_is_refused(encoded: str) -> None:
    try:
        assert isinstance(_source_map(encoded, _Input("", ())).mappings, str)
    except RuntimeUnavailable as refused:
        assert "source map" in refused.message


@FUZZ
@given(
    ANY_TEXT,
    st.lists(st.tuples(st.text(max_size=30), st.integers(0, 40), st.integers(0, 10**6)), max_size=4),
    st.text(max_size=50),
)
def test_diagnostics_are_places_in_what_was_given(source: str, told: list[tuple[str, int, int]], junk: str) -> None:
    source = source.encode("utf-8", "replace").decode()
    text = junk + "".join(f"X [ERROR] {what}\n\n    cell.ts:{line}:{column}:\n" for what, line, column in told)
    for diagnostic in _read_diagnostics(text, _Input(source, tuple(source.split("\n")))):
        assert diagnostic.column >= 1


# arguments

SCHEMA_KEYS = (
    *("type", "properties", "required", "default", "items", "enum", "const", "anyOf", "oneOf", "allOf", "not", "$ref"),
    *("$defs", "pattern", "format", "minimum", "maxLength", "additionalProperties", "patternProperties", "$schema"),
    *("if", "then", "dependentRequired", "uniqueItems", "$id", "$dynamicRef", "prefixItems", "multipleOf", "contains"),
)
SCHEMA_WORDS = (
    *("object", "string", "integer", "array", "null", "#", "#/$defs/a", "http://127.0.0.1:1/x", "(a+)+$", "[", "date"),
    *("file:///etc/passwd", "https://json-schema.org/draft/2020-12/schema", "^(?=a)", "\\p{L}", "a", "b", "urn:x"),
)
SCHEMAS = st.dictionaries(
    st.sampled_from(SCHEMA_KEYS),
    st.recursive(
        st.sampled_from(SCHEMA_WORDS) | JSON,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(SCHEMA_KEYS) | st.sampled_from("ab"), inner, max_size=4)
        ),
        max_leaves=12,
    ),
    max_size=6,
)
INPUTS = (
    st.none()
    | ANY_TEXT
    | JSON.map(json.dumps)
    | st.dictionaries(st.sampled_from("abc"), JSON, max_size=3).map(json.dumps)
)


@FUZZ
@given(SCHEMAS, INPUTS, st.integers(0, 3))
@example({"properties": {"a": {"default": {}}}}, "{}", 1)
@example({"$ref": "#"}, '{"a":1}', 1)
@example({}, "1e999", 1)
@example({}, '{"a":1e999}', 1)
@example({}, "[" * 100_000, 1)
@example({}, "9" * 5000, 1)
def test_arguments_are_an_object_to_send_or_refused(schema: dict[str, Any], text: str | None, count: int) -> None:
    call = ToolCall(1, "mcp:s:t", text, count)
    with within(2.0):
        try:
            sent = ArgumentChecker().prepare(call, "MCP.s.t", schema, lambda: "signature")
        except ProgramError as refused:
            assert refused.code == "nested_tool_failed"
            assert "nothing was sent" in refused.message
            refused.message.encode()
            return
    assert isinstance(sent, dict)
    json.dumps(sent, ensure_ascii=False).encode()


# answers

TEXTS = st.text(max_size=40) | st.integers(1, 4000).map(lambda size: "é😀x"[size % 3] * size)
OUTPUTS = st.lists(
    st.builds(lambda text: {"type": "text", "text": text}, TEXTS)
    | st.builds(lambda value: {"type": "json", "value": value}, JSON | TEXTS)
    | st.builds(
        lambda data, kind: {"type": "image", "mimeType": f"image/{kind}", "data": data},
        st.text("AB=", max_size=50),
        st.text("abc", min_size=1, max_size=90),
    ),
    max_size=12,
)


def maker(kind: type[Any]) -> Any:
    """Return a function without types: hypothesis would evaluate those of a struct, some of which are not there."""
    return lambda *members, **others: kind(*members, **others)


RECORDS = st.lists(
    st.builds(
        lambda tool, ended, size: CallRecord(1, tool, 0.0, "completed", ended, size),
        TEXTS,
        st.none() | st.floats(0, 1e6),
        st.integers(0, 2**40),
    ),
    max_size=8,
)
OUTCOMES = st.builds(
    maker(Outcome),
    run_id=st.just("run_" + "x" * 24),
    owner=st.just("me"),
    status=st.sampled_from(("completed", "waiting", "failed")),
    usage=st.builds(
        maker(Usage),
        catalog_size=st.integers(0, 10**9),
        call_count=st.integers(0, 10**9),
        calls=RECORDS.map(tuple),
        ms=st.integers(0, 10**10),
    ),
    outputs=OUTPUTS.map(tuple),
    notes=st.lists(TEXTS, max_size=3).map(tuple),
    dropped=st.integers(0, 10**9),
    value=JSON | TEXTS | st.lists(TEXTS, max_size=5),
    error=TEXTS,
    code=st.sampled_from(ERROR_CODES),
    reason=st.sampled_from(("pending_tools", "yield")),
    pending=st.lists(
        st.builds(
            maker(PendingCall),
            st.text(max_size=5),
            TEXTS,
            st.sampled_from(("queued", "executing")),
            st.integers(0, 10**9),
        ),
        max_size=20,
    ).map(tuple),
    pending_total=st.integers(0, 2000),
    yielded=st.none() | TEXTS,
    asked=st.lists(TEXTS, max_size=6).map(tuple),
    unanswerable=st.booleans(),
    challenges=st.lists(st.text(max_size=5), max_size=2).map(tuple),
)
MARKER = 2 * (MIN_PREVIEW + 300)
"""Bytes of two markers for what was left out, with their previews."""


@FUZZ
@given(OUTCOMES, st.integers(1024, 8192), st.sampled_from(("offload", "fail")), st.sampled_from(("markdown", "plain")))
def test_an_answer_has_its_form_and_is_no_larger_than_it_may_be(
    outcome: Outcome, cap: int, on_limit: Any, result_format: Any
) -> None:
    code_mode = CodeModeSettings(max_output_bytes=cap, on_output_limit=on_limit)
    chosen = replace(ToolSettings(), code_mode=code_mode, result_format=result_format)
    kept: list[str] = []

    async def offload(owner: str, text: str) -> str | None:
        assert owner == "me"
        kept.append(text)
        return f"result:{len(kept)}" if len(text) % 2 else None

    rendered = anyio.run(render, outcome, chosen, offload, 1e6)
    structured = rendered.structured
    assert structured["status"] in ("completed", "waiting", "failed")
    assert rendered.is_error == (structured["status"] == "failed")
    required = {"completed": {"value"}, "waiting": {"runId", "reason", "next"}, "failed": {"error", "code"}}
    assert required[structured["status"]] <= set(structured)
    assert rendered.content
    assert all(block["type"] in ("text", "image") for block in rendered.content)
    assert size(rendered.meta[TELEMETRY_KEY]) <= TELEMETRY_BYTES
    assert size(structured.get("error", "")) <= cap + MARKER
    assert sum(size(note) for note in structured.get("notes", [])) <= cap
    assert size(structured.get("next", "")) - 2 <= NEXT_BYTES
    assert size(structured.get("pendingToolCalls", [])) <= PENDING_BYTES + 2
    shown = structured.get("output", [])
    assert size(structured.get("value")) + sum(size(item) - 20 for item in shown) <= cap + MARKER
    for text in kept:
        json.loads(text)


def size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
