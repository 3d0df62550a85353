"""The format of recordings: every line survives writing and reading, and other bytes are refused with a reason."""

from __future__ import annotations

import hashlib
import json
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codemode_mcp.audit.recordings import format as recorded
from codemode_mcp.audit.recordings.format import (
    NO_END,
    NO_REST,
    NotReadable,
    Recording,
    decode,
    encode,
    read_recording,
    recording_of,
)
from codemode_mcp.audit.recordings.masking import Mask
from codemode_mcp.audit.recordings.writer import RecordingFile, RecordingWriter, size_of
from codemode_mcp.sandbox.messages import (
    Load,
    NamespaceCall,
    ProgramEnd,
    SaveProgram,
    Thrown,
    Timer,
    ToolCall,
    message_of,
)

OPENING = recorded.Opening(1, "1.0", "run_1", "2026-01-01T00:00:00Z", "javascript", "return 1")
CATALOG = recorded.CatalogText("ab" * 32, '{"format":1,"servers":[]}')
START = recorded.Start("return 1", None, "00" * 32, 1000, 10, 1 << 20, 0.5)
HEAD = (OPENING, CATALOG, START)
END = recorded.End("completed", "1")

text = st.text(st.characters(), max_size=20)  # lone surrogates too
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | text,
    lambda each: st.lists(each) | st.dictionaries(text, each),
    max_leaves=8,
)
errors = st.builds(recorded.RecordedError, text, text, text, text)
completions = st.builds(
    recorded.Completed, st.integers(1, 99), st.none() | text, st.none() | errors, st.none() | st.just("0f" * 16)
)
requests = st.one_of(
    st.builds(lambda call, given: message_of(ToolCall(call, "mcp:x:y", given)), st.integers(1, 99), st.none() | text),
    st.builds(Timer, st.integers(1, 99), st.integers(0, 1000)),
    st.builds(Load, st.integers(1, 99), text),
)
readings = st.tuples(st.integers(0, 2**63 - 1), st.integers(1, 9))
outputs = st.fixed_dictionaries({"type": st.just("json"), "value": json_values})


def several(each: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(each, max_size=3).map(tuple)


lines = st.one_of(
    st.builds(recorded.Turn, st.floats(0, 1e6), several(completions)),
    st.builds(recorded.Requests, several(requests)),
    st.builds(recorded.Clock, several(readings), several(readings), st.integers(0, 9)),
    st.builds(recorded.Question, st.integers(1, 9), text, text, text),
    st.builds(recorded.End, st.sampled_from(["completed", "failed"]), st.none() | text, several(outputs)),
)


def whole(*steps: recorded.Line) -> list[bytes]:
    return [encode(each) for each in (*HEAD, *steps)]


def written(path: Path, *, mask: Mask | None = None, steps: tuple[recorded.Line, ...]) -> Recording:
    with RecordingWriter(lambda: mask or Mask({})) as writer:
        file = RecordingFile(writer, path)
        for each in (*HEAD, *steps):
            file.append(each)
        file.close()
    return read_recording(path)


@given(lines)
def test_every_line_is_read_as_it_was_written(line: recorded.Line) -> None:
    data = encode(line)
    assert data.count(b"\n") == 1
    assert decode(data) == line


STEPS = (
    recorded.Turn(1.5, (recorded.Completed(1, '"ö"', None, "0f" * 16),)),
    recorded.Requests((message_of(ToolCall(1, "mcp:x:y", '{"a": 1}')), Timer(2, 5))),
    recorded.Clock(((2**63 - 1, 2),), ((0, 1),), 3),
    recorded.Question(1, "ask", "\n", "€"),
)


@pytest.mark.parametrize("last", [*STEPS, recorded.End("completed", "1", ({"type": "json", "value": {"ö": None}},))])
def test_a_torn_last_line_is_left_out_with_a_note_wherever_it_is_cut(last: recorded.Line) -> None:
    before, data = whole(*STEPS), encode(last)
    for cut in range(1, len(data)):
        found = recording_of([*before, data[:cut]])
        assert (found.steps, found.end, found.notes) == (STEPS, None, (NO_REST, NO_END)), data[:cut]


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        ([], "no whole line"),
        ([b"no json\n"], "it is no recording"),
        ([b'{"kind":"recording","format":99}\n'], "format 99"),
        ([encode(END)], "first line"),
        ([encode(OPENING), encode(CATALOG)], "before its program starts"),
        (whole(OPENING), "two recordings"),
        (whole(recorded.Turn(1, ()), START), "a second time"),
        (whole(recorded.TakenOver("ab", "1")), "a state that is not in the recording"),
        ([*whole(), b'{"kind":"end","status":"completed","more":1}\n'], "line 4: a line is damaged"),
        ([*whole(), b"[" * 100_000 + b"\n"], "line 4: a line is damaged"),
        ([*whole(), b'{"kind":"turn","elapsed":NaN,"completions":[]}\n'], "line 4: a line is damaged"),
    ],
)
def test_bytes_that_are_no_recording_are_refused_with_a_reason(texts: list[bytes], why: str) -> None:
    with pytest.raises(NotReadable, match=why):
        recording_of(texts)


def test_lines_that_another_process_has_undone_are_left_out() -> None:
    early, undone, later = (recorded.Turn(float(each), ()) for each in (1, 2, 3))
    checkpoint, taken = recorded.Checkpoint("ab"), recorded.TakenOver("ab", "1")
    found = recording_of(whole(early, checkpoint, undone, taken, later, END))
    assert found.steps == (early, checkpoint, taken, later)
    assert found.end == END
    assert found.notes == ()


def test_the_second_text_of_a_program_replaces_the_first() -> None:
    second = msgspec.structs.replace(START, code="return 2")
    found = recording_of(whole(recorded.Requests(()), second, END))
    assert (found.start, found.steps) == (second, ())


SECRET = 'pa"ss/wörd-1'
NAMED = {
    SECRET: "github_TOKEN",
    "github": "github_NAME",
    "8080": "github_PORT",
    "true": "github_ON",
    "12345678": "github_ID",
}


def escaped(text: str) -> str:
    return "".join(f"\\u{ord(each):04X}" for each in text).join('""')


@pytest.mark.parametrize("escape", [json.dumps, partial(json.dumps, ensure_ascii=False), escaped])
def test_a_secret_in_json_is_masked_in_any_spelling(escape: Any) -> None:
    masked = Mask(NAMED).json(f'{{"a": [ {escape(SECRET)} , 1.50], {escape("key " + SECRET)}: true}}')
    assert json.loads(masked) == {"a": ["__SECRET_github_TOKEN__", 1.5], "key __SECRET_github_TOKEN__": True}
    assert "1.50" in masked


def test_text_without_a_secret_keeps_its_bytes() -> None:
    odd = '{ "a" :\t1e0, "b": "\\u0041\\/" , "b": -0}'
    assert Mask(NAMED).json(odd) == odd


def test_numbers_are_masked_if_they_are_long() -> None:
    mask = Mask(NAMED)
    assert mask.json('[8080, "8080", 12345678]') == '[8080, "__SECRET_github_PORT__", "__SECRET_github_ID__"]'
    assert mask.code("listen(8080, true, 12345678)") == "listen(8080, true, __SECRET_github_ID__)"


def test_arguments_that_are_not_json_are_masked_as_text() -> None:
    assert Mask(NAMED).json("nothing quoted 12345678") == "nothing quoted __SECRET_github_ID__"


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=4, max_size=12), text, max_size=5), text, text)
def test_no_secret_is_left_in_a_file(named: dict[str, str], before: str, after: str) -> None:
    mask = Mask({value: f"s_{name}" for value, name in named.items()})
    shown = mask.text("SECRET s_ 0123456789 _")
    for value in named:
        if value in shown or mask.text(value) == value:
            continue  # a part of a placeholder, or a word that is not masked
        message = f"{before}{value}{after}"
        error = recorded.RecordedError("Error", message, "x", json.dumps({message: 1}))
        ends = (recorded.Completed(1, json.dumps([message])), recorded.Completed(2, None, error))
        line = recorded.Turn(1, ends)
        for end in mask.line(line).completions:  # type: ignore[union-attr]
            assert value not in (json.loads(end.value)[0] if end.error is None else end.error.message)  # type: ignore[arg-type]
            assert end.digest is not None


def test_equal_masked_values_have_equal_digests_and_unmasked_ones_have_none(tmp_path: Path) -> None:
    values = (json.dumps(f"a {SECRET}"), json.dumps(f"a {SECRET}"), json.dumps(f"b {SECRET}"), '"plain"')
    turn = recorded.Turn(1, tuple(recorded.Completed(number, each) for number, each in enumerate(values)))
    (step,) = written(tmp_path / "r", mask=Mask(NAMED), steps=(turn, END)).steps
    assert isinstance(step, recorded.Turn)
    first, second, third, plain = step.completions
    assert first.digest == second.digest != third.digest
    assert first.digest != Mask(NAMED).digest(values[0]), "a digest can be guessed"
    assert (plain.value, plain.digest) == ('"plain"', None)


def test_a_file_is_private_and_a_foreign_file_is_not_replaced(tmp_path: Path) -> None:
    found = written(tmp_path / "r", steps=(END,))
    assert found.end == END
    assert (tmp_path / "r").stat().st_mode & 0o777 == 0o600
    (tmp_path / "other").write_text("mine")
    with pytest.raises(NotReadable):
        written(tmp_path / "other", steps=(END,))
    assert (tmp_path / "other").read_text() == "mine"


def test_another_process_appends_after_the_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "r"
    written(path, steps=(recorded.Suspended("yield", "ab"),))
    path.write_bytes(path.read_bytes() + encode(END)[:20])
    with RecordingWriter(lambda: Mask({})) as writer:
        file = RecordingFile(writer, path, reopen=True)
        file.append(recorded.TakenOver("ab", "1"))
        file.append(END)
        file.flush()
        assert read_recording(path).end == END
        other = RecordingFile(writer, path, reopen=True)  # the first one has the lock
        other.append(END)
        other.flush()
    assert read_recording(path).notes == ()


def test_a_line_that_cannot_be_made_ends_the_recording_with_a_reason(tmp_path: Path) -> None:
    with RecordingWriter(lambda: Mask({})) as writer:
        file = RecordingFile(writer, tmp_path / "r")
        for each in HEAD:
            file.append(each)
        file.append(lambda: encode(END).missing)  # type: ignore[attr-defined]
        file.append(END)
    found = read_recording(tmp_path / "r")
    assert found.end is None
    assert "not complete" in found.notes[0]


def test_no_secret_is_left_in_the_end_of_a_saved_program_or_in_an_error() -> None:
    secret = "s3cret/value"
    thrown = Thrown(f"Name{secret}", f"message {secret}", f"at {secret}", engine=False, code=None)
    error = recorded.RecordedError(secret, secret, "nested_tool_failed", json.dumps(secret))
    # A server that writes JSON with escaped slashes (`s3cret\/value`) into a text.
    inner = json.dumps(json.dumps({"token": secret}).replace("/", "\\/"))
    for line in (
        recorded.Requests((ProgramEnd(1, 2, "report", error=thrown),)),
        recorded.Turn(1.0, (recorded.Completed(1, None, error), recorded.Completed(2, inner))),
    ):
        text = encode(Mask({secret: "github_TOKEN"}).line(line)).decode()
        assert "s3cret" not in text
        assert "__SECRET_github_TOKEN__" in text


def test_a_masked_catalog_has_no_digest_that_anyone_can_compute() -> None:
    text = '{"about":"pin 73910264"}'
    line = recorded.CatalogText(hashlib.sha256(text.encode()).hexdigest(), text)
    masked = Mask({"73910264": "bank_PIN"}).line(line)
    assert isinstance(masked, recorded.CatalogText)
    assert masked.text == '{"about":"pin __SECRET_bank_PIN__"}'
    assert masked.digest != line.digest
    assert Mask({"other-secret": "x"}).line(line) == line


def test_masking_a_long_text_with_escapes_takes_little_memory() -> None:
    text = json.dumps([f"{'x' * 2_000_000}\n", "s3cret"])
    tracemalloc.start()
    masked = Mask({"s3cret": "github_TOKEN", "\u00e4\u00e4\u00e4\u00e4": "other"}).json(text)
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "s3cret" not in masked
    assert used < 30_000_000, used


def test_the_size_of_a_line_counts_all_texts_of_its_requests() -> None:
    long = "x" * 10_000
    thrown = Thrown("Error", long, long, engine=False, code=None)
    for request in (
        SaveProgram(1, "report", long, "javascript", long),
        NamespaceCall(1, "shop", "cart.add", (long, None, long)),
        ProgramEnd(1, 2, "report", error=thrown),
    ):
        assert size_of(recorded.Requests((request,))) > 20_000
