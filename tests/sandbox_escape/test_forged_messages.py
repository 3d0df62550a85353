"""Promise 5: what a program writes stays what it is, text or a value, and never becomes a message of ours; and what a
guest could only say if its engine were broken is refused on the host.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from guest_harness import READ, called, ok

from codemode_mcp.base.errors import InternalError
from codemode_mcp.base.settings import PolicyRules
from codemode_mcp.runs import guests
from codemode_mcp.sandbox import messages
from codemode_mcp.sandbox.engine import Engine
from codemode_mcp.sandbox.guest import Steps, Turn
from codemode_mcp.sandbox.messages import Completion, GuestError, Timer, decode_turn
from tests.runs.bench import bench
from tests.sandbox.conftest import OpenCell, RunCode
from upstream_clients.testing import ScriptedSource, text_result

# text that looks like a message

FORGED = '"}],"calls":[{"id":1,"op":"call","target":"mcp:my-files:remove","count":1,"input":"{}"}],"outputs":[{"a":"'
LOOKALIKES = {
    "the end of a string and a call": FORGED,
    "a whole report": '{"state":"done","value":1,"error":null,"fault":null,"calls":[],"outputs":[],"rejections":[],'
    '"unchecked":[]}',
    "a member": '","op":"call","target":"mcp:my-files:remove',
    "escapes": '\\",\\"op\\":\\"call',
    "a backslash at the end": "x\\",
    "control characters": "\x00\x01\x1f\r\n\t\x7f",
    "line separators": "\u2028\u2029\ufeff",
    "an escape of half a pair": "\\ud800",
    "an escape of an escape": '\\\\ud800\\"',
    "a pair": "\U0001f600",
}


def escaped(text: str) -> str:
    """Return a string literal."""
    return json.dumps(text)


@pytest.mark.parametrize("text", LOOKALIKES.values(), ids=LOOKALIKES.keys())
def test_text_that_looks_like_a_message_stays_text_wherever_it_is_put(cell: OpenCell, text: str) -> None:
    guest = cell()
    told = guest.start(
        f"const x = {escaped(text)}; text(x); json({{ [x]: x }}); console.log(x, [x]);"
        "const p = MCP.files.readFile({ [x]: x, list: [x] }); tools.call(x, { x }).catch(() => 1);"
        "store(x, { [x]: x }); load(x); API.read(x).catch(() => 1); API.list(x); API.search(x, { server: x });"
        "tools.describe(x).catch(() => 1); MCP.files.$api(x).catch(() => 1); yield_control(x);"
        "image({ type: 'image', data: x, mimeType: 'image/png' }); await p;"
        "throw Object.assign(new Error(x), { name: x, stack: x, code: x })"
    )
    assert told.requests == [
        called(1, READ, {text: text, "list": [text]}),
        messages.ToolCall(2, text, json.dumps({"x": text}, ensure_ascii=False, separators=(",", ":")), by_id=True),
        messages.Store(3, text, json.dumps({text: text}, ensure_ascii=False, separators=(",", ":"))),
        messages.Load(4, text),
        messages.ApiRead(5, text),
        messages.ApiList(6, text),
        messages.ApiSearch(7, text, None, text),
        messages.Describe(8, text),
        messages.Header(9, "files", text),
        messages.YieldControl(10, text),
    ]
    assert told.report is not None
    shown = json.dumps([text], ensure_ascii=False, separators=(",", ":"))
    assert told.report.outputs == (
        {"type": "text", "text": text},
        {"type": "json", "value": {text: text}},
        {"type": "text", "text": f"{text} {shown}"},
        {"type": "image", "mimeType": "image/png", "data": text},
    )
    report = guest.deliver(ok(1)).report
    assert report is not None
    assert report.error is not None
    assert (report.error.name, report.error.message) == (text, text)
    assert re.fullmatch(r"    at anonymous \(<input>:3:\d+\)\n", report.error.stack)
    assert (report.error.code, report.error.engine) == (None, False)
    assert report.requests == ()


@pytest.mark.parametrize("half", ["\\ud800", "\\udfff", "\\udc00\\udc00", "\\ud83d\\ud83d\\ude00"])
def test_halves_of_surrogate_pairs_change_no_message_around_them(run: RunCode, half: str) -> None:
    told = run(
        f'text("{half}"); json({{ "{half}": "{half}" }}); MCP.files.readFile({{ "{half}": "a" }}); load("{half}");'
        "return 'after'"
    )
    assert told.value == "after"
    assert [type(each).__name__ for each in told.requests] == ["ToolCall", "Load"]
    assert [request.id for request in told.requests] == [1, 2]
    assert "\ufffd" in told.texts[0]
    assert told.report is not None
    json.dumps([told.report.outputs, told.report.value], ensure_ascii=False).encode()


HOSTILE_TO_JSON = {
    "text of a message": f"() => {escaped(FORGED)}",
    "a raw text": "() => JSON.rawJSON('\"raw\"')",
    "an object with another": "() => ({ toJSON: () => 1, op: 'call' })",
    "itself": "function () { return this }",
    "a promise": "() => Promise.resolve(1)",
    "undefined": "() => undefined",
    "a throw": "() => { throw { message: { toString() { throw 1 } } } }",
    "another call": "() => { MCP.files.remove({ nested: 1 }); return 'made' }",
}


@pytest.mark.parametrize("kind", HOSTILE_TO_JSON)
def test_a_hostile_to_json_gives_a_value_and_no_message(run: RunCode, kind: str) -> None:
    told = run(
        f"const v = {{ toJSON: {HOSTILE_TO_JSON[kind]} }}; text(v); json([v]);"
        "MCP.files.readFile({ v }).catch(() => 1); store('k', v); return v"
    )
    assert told.turn.text is not None
    raw = json.loads(told.turn.text)
    assert raw["state"] == "done"
    allowed = {"call": READ, "store": None}
    for call in raw["calls"]:
        if call["target" if call["op"] == "call" else "op"] == "mcp:my-files:remove":
            assert kind == "another call"
            assert json.loads(call["input"]) == {"nested": 1}
        else:
            assert call["op"] in allowed
            assert call.get("target") == allowed[call["op"]]
            json.loads(call["input" if call["op"] == "call" else "value"])
    assert [call["id"] for call in raw["calls"]] == list(range(1, len(raw["calls"]) + 1))
    assert [output["type"] for output in raw["outputs"]] == ["text", "json"]


# messages that no prelude writes


def turn(**parts: Any) -> str:
    rest = {
        "state": "pending", "value": None, "error": None, "fault": None, "calls": [], "outputs": [],
        "droppedItems": 0, "droppedSize": 0, "rejections": [], "unchecked": [], "leftOut": [], "returning": False,
        "tooLarge": 0, "lost": "",
    }  # fmt: skip
    return json.dumps({**rest, **parts})


REFUSED = {
    "an unknown request": turn(calls=[{"id": 1, "op": "read_file", "path": "/etc/passwd"}]),
    "a request without a kind": turn(calls=[{"id": 1}]),
    "a kind that is a list": turn(calls=[{"id": 1, "op": ["call"]}]),
    "a kind named like a method": turn(calls=[{"id": 1, "op": "__class__"}]),
    "an id that is a float": turn(calls=[{"id": 1.5, "op": "timer", "ms": 1}]),
    "an id that is null": turn(calls=[{"id": None, "op": "timer", "ms": 1}]),
    "an id of ten thousand digits": turn(calls=[{"id": 1, "op": "timer", "ms": 1}]).replace(
        '"id": 1', '"id": ' + "9" * 10_000
    ),
    "a target that is an object": turn(calls=[{"id": 1, "op": "call", "target": {}, "count": 1}]),
    "a text that is a list": turn(outputs=[{"type": "text", "text": []}]),
    "a stack that is a number": turn(error={"name": "E", "message": "", "stack": 1, "engine": False, "code": None}),
    "outputs that are null": turn(outputs=None),
    "calls that are a string": turn(calls="call"),
    "rejections that are a number": turn(rejections=1),
    "a state that is a list": turn(state=["done"]),
    "a list in place of it all": "[]",
    "a string in place of it all": '"pending"',
    "two reports": turn() + turn(),
    "nothing": "",
    "lists without end": "[" * 50_000,
    "objects without end": '{"state":' * 50_000,
    "lists without end as a value": turn().replace('"value": null', '"value": ' + "[" * 50_000 + "]" * 50_000),
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED.keys())
def test_a_turn_of_another_form_is_refused_as_a_whole(text: str) -> None:
    with pytest.raises(InternalError, match="sandbox"):
        decode_turn(text)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_does_not_have_are_refused(number: str) -> None:
    with pytest.raises(InternalError):
        decode_turn(turn().replace('"value": null', f'"value": {number}'))


def puppet(monkeypatch: pytest.MonkeyPatch, *texts: str) -> list[list[Any]]:
    """Let guests report these turns, one after the other. Return the list of delivered completions, which grows."""
    said = list(texts)
    delivered: list[list[Any]] = []

    class Puppet:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def start_steps(self, message: str, seconds: float, pause_after: float | None) -> Steps:
            return Turn(said.pop(0))
            yield

        def deliver_steps(self, message: str, seconds: float, pause_after: float | None) -> Steps:
            delivered.append(json.loads(message)["completions"])
            return Turn(said.pop(0))
            yield

        def interrupt(self) -> None: ...

        def close(self) -> None: ...

    monkeypatch.setattr(guests, "Guest", Puppet)
    return delivered


async def outcome_of(engine: Engine, monkeypatch: pytest.MonkeyPatch, *texts: str) -> Any:
    """Return the end of a run whose guest reports these turns, and what was delivered to it."""
    delivered = puppet(monkeypatch, *texts)
    async with bench(engine, ScriptedSource("s", {"work": text_result("done")})) as it:
        return await it.execute("return 1"), delivered


WORK: dict[str, Any] = {"op": "call", "target": "mcp:s:work", "count": 1, "input": "{}"}
DONE = turn(state="done", value="over")

HARMLESS = {
    "an id twice": [{**WORK, "id": 1}, {**WORK, "id": 1}],
    "a negative id": [{**WORK, "id": -1}],
    "a huge id": [{**WORK, "id": 2**200}],
    "a timer with the id of a call": [{**WORK, "id": 1}, {"id": 1, "op": "timer", "ms": 0}],
    "a timer in the past": [{"id": 1, "op": "timer", "ms": -(10**9)}],
    "clearing what never was": [{"id": 1, "op": "clear", "target": 77}, {**WORK, "id": 2}],
    "clearing a call": [{**WORK, "id": 1}, {"id": 2, "op": "clear", "target": 1}],
    "a tool that is none": [{**WORK, "id": 1, "target": "mcp:s:"}],
    "a tool that is another's method": [{**WORK, "id": 1, "target": "tools/call"}],
    "a tool by the name of its server": [{**WORK, "id": 1, "target": "mcp:s:*"}],
    "arguments that are no JSON": [{**WORK, "id": 1, "input": "{"}],
    "arguments with NaN": [{**WORK, "id": 1, "input": '{"a":NaN}'}],
    "arguments without end": [{**WORK, "id": 1, "input": '{"a":' * 10_000 + "1" + "}" * 10_000}],
    "more arguments than are counted": [{**WORK, "id": 1, "count": -5}],
    "a store of no JSON": [{"id": 1, "op": "store", "key": "k", "value": "{"}, {**WORK, "id": 2}],
}


@pytest.mark.anyio
@pytest.mark.parametrize("kind", HARMLESS)
async def test_a_turn_of_the_right_form_with_a_senseless_content_ends_like_any_other(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    calls = HARMLESS[kind]
    waited = sum(1 for call in calls if call["op"] != "clear")
    outcome, delivered = await outcome_of(engine, monkeypatch, turn(calls=calls), *[turn()] * (waited - 1), DONE)
    assert outcome.status in ("completed", "failed")
    assert outcome.error is None or "inside codemode-mcp" not in outcome.error
    known = {call["id"] for call in calls}
    assert {number for batch in delivered for number, *_ in batch} <= known


def test_a_timer_that_no_clock_reaches_is_as_late_as_timers_can_be() -> None:
    (timer,) = decode_turn(turn(calls=[{"id": 1, "op": "timer", "ms": 10**400}])).requests
    assert timer == Timer(1, 2**31 - 1)


@pytest.mark.anyio
async def test_a_stored_text_that_is_no_json_is_no_message_for_a_later_program(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(engine, ScriptedSource("s", {"work": text_result("done")})) as it:
        forged = "1],null],[2,[2],null],[3,[3"
        puppet(monkeypatch, turn(calls=[{"id": 1, "op": "store", "key": "k", "value": forged}], state="done"))
        await it.execute("return 1")
        monkeypatch.undo()
        outcome = await it.execute("return await Promise.all([load('k'), yield_control()])")
        assert outcome.status == "waiting"
        outcome = await it.observe(outcome.run_id)
        assert outcome.value == [None, None]


@pytest.mark.anyio
async def test_a_guest_that_makes_no_sense_ends_its_own_run_alone(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome, _ = await outcome_of(engine, monkeypatch, "nonsense")
    assert (outcome.status, outcome.code) == ("failed", "internal_error")
    assert outcome.error == "the sandbox answered with a message that is not valid (DecodeError)"


# what is at the limit


def test_calls_that_do_not_leave_for_want_of_stack_do_not_count_as_made(cell: OpenCell) -> None:
    told = cell().start(
        "let up = 0, at = 0, lost = 0, made = 0;"
        "const call = () => { MCP.files.remove({ at: new Date(0) }).catch(() => { lost++ }); made++ };"
        "const f = () => { try { f() } catch (error) { if (++up === at) call(); throw error } };"
        "const overflow = (frame) => { at = frame; up = 0; try { f() } catch {} };"
        "let place = 0; for (let i = 1; place === 0 && i < 40; i++) {"
        "  lost = 0; overflow(i); await null; await null; if (lost > 0) place = i }"
        "lost = 0; made = 0; for (let i = 0; i < 60; i++) overflow(place);"
        "await null; await null; text(made + ' ' + lost); await MCP.files.readFile({ last: 1 })",
        call_limit=50,
        seconds=20,
    )
    assert told.texts == ["60 60"]
    assert told.requests[-1] == called(told.requests[-1].id, READ, {"last": 1})


@pytest.mark.anyio
async def test_a_number_too_large_for_a_float_is_not_sent_as_something_else(engine: Engine) -> None:
    source = ScriptedSource("s", {"work": text_result("done")})
    async with bench(engine, source) as it:
        outcome = await it.execute("return await MCP.s.work({ n: JSON.rawJSON('1e999') })")
    assert outcome.code == "nested_tool_failed"
    assert source.calls == []


# completions


def test_answers_to_ids_that_never_were_settle_nothing(cell: OpenCell) -> None:
    guest = cell()
    guest.start("const seen = []; const p = MCP.files.readFile({}); p.then((v) => seen.push(v)); await p; return seen")
    for strange in (0, -1, 2, 10**15, 2**60):
        told = guest.deliver(ok(strange, "strange"), Completion(strange, error=GuestError("strange")))
        assert told.report is not None
        assert (told.report.state, told.requests) == ("pending", [])
    assert guest.deliver(ok(1, "right")).value == ["right"]


# names of files and tools

PATHS = [
    "..", "../secret", "mcp/../index.d.ts", "mcp/..",
    "./mcp/index.d.ts", "mcp/./index.d.ts", "/mcp/index.d.ts", "//", "",
    "/etc/passwd", "C:\\Windows", "mcp\\index.d.ts", "mcp/index.d.ts/", "mcp//index.d.ts", "mcp/index.d.ts\0",
    "mcp/index.d.ts\0.txt", "%2e%2e/mcp/index.d.ts", "mcp%2findex.d.ts", "mcp/\u2024\u2024/x", "mcp/\uff0e\uff0e/x",
    "mcp\u2215index.d.ts", "mcp/\u0131ndex.d.ts", "MCP/INDEX.D.TS", "mcp/index.d.ts ", " mcp/index.d.ts", "mcp/*",
    "mcp/__proto__.d.ts", "__proto__", "constructor", "toString", "mcp/constructor.d.ts", "file:///etc/passwd",
    "http://127.0.0.1/", "~", "$HOME", "${HOME}", "mcp/s.d.ts\nx", "mcp", "mcp/secret.d.ts", "x" * 1024,
]  # fmt: skip


@pytest.mark.anyio
async def test_no_path_but_a_listed_one_is_read(engine: Engine) -> None:
    async with bench(engine, ScriptedSource("s", {"work": text_result("done")})) as it:
        outcome = await it.execute(
            f"const out = []; for (const path of {json.dumps(PATHS)}) out.push(await API.read(path).then("
            "(file) => file, (error) => [error.code, error.message]));"
            "return [out, (await API.list()).files.map((file) => file.path)]"
        )
    answers, listed = outcome.value
    assert listed == ["mcp/index.d.ts", "mcp/s.d.ts"]
    for path, answer in zip(PATHS, answers, strict=True):
        shown = json.dumps(path if len(path) <= 100 else path[:100] + "…", ensure_ascii=False)
        code, message = answer
        assert code == "nested_tool_failed"
        assert message.startswith((f"{shown} is not a valid path; see API.list()", f"there is no file {shown}."))


DENIED = {
    "mcp:s:secret": "mcp:s:secred",
    "mcp:hidden:work": "mcp:hiddem:work",
    "mcp:hidden:resources/read": "mcp:hiddem:resources/read",
}
"""Messages with unknown ids close to known ones."""
NOT_THERE = [
    "mcp:s:nothing", "mcp:nobody:work", "__proto__",
    "constructor", "toString", "hasOwnProperty", "mcp:s:*", "*", "mcp:*",
    "mcp:s:__proto__", "mcp:s:", "mcp::", "", "mcp:S:work", "mcp:s:work ", "mcp:s:wor\u043a", "call", "core:timer",
    "mcp:s:work\0", "s.work", "MCP.s.work", "../s/work", "tools/call", "search", "describe",
]  # fmt: skip


@pytest.mark.anyio
async def test_a_denied_tool_is_answered_like_one_that_never_was(engine: Engine) -> None:
    sources = (
        ScriptedSource("s", {"work": text_result("done"), "secret": text_result("secret")}),
        ScriptedSource("hidden", {"work": text_result("hidden"), "resources/read": text_result("hidden")}),
    )
    async with bench(engine, *sources, rules=PolicyRules(deny=("mcp:s:secret", "mcp:hidden:*"))) as it:
        outcome = await it.execute(
            f"const ids = {json.dumps([*DENIED, *DENIED.values(), *NOT_THERE])}; const out = [];"
            "const told = (id, e) => [e.name, e.code, e.message.replaceAll(id, 'ID'), Object.keys(e.data ?? {}),"
            "  e.data?.dispatched, e.data?.repeatable];"
            "for (const id of ids) { const answers = [];"
            "  for (const ask of [tools.call(id, {}), tools.call(id), tools.describe(id)])"
            "    answers.push(await ask.then((v) => ['answered', v], (error) => told(id, error)));"
            "  out.push(answers) }"
            "return [out, await tools.search('secret'), await API.search('secret'), JSON.stringify(MCP), ALL_TOOLS,"
            "  Object.keys(MCP), await Promise.all(['hidden', 'hiddem'].map((name) =>"
            "    API.read(`mcp/${name}.d.ts`).catch((e) => e.message.replaceAll(name, 'NAME')))),"
            "  (await API.read('mcp/s.d.ts')).content, await MCP.s.$api('secret').catch((error) => error.code)]"
        )
    out, *shown = outcome.value
    never = out[len(DENIED)]
    assert [answer[0] for answer in never] == ["ToolCallError", "ToolCallError", "Error"]
    assert out[: len(DENIED)] == out[len(DENIED) : 2 * len(DENIED)]
    for name, answers in zip(NOT_THERE, out[2 * len(DENIED) :], strict=True):
        assert [answer[1] for answer in answers] == ["nested_tool_failed"] * 3, name
        assert [answer[4:] for answer in answers] == [answer[4:] for answer in never], name
    assert "secret" not in json.dumps(shown)
    assert shown[4] == ["s"]
    assert "there is no file" in shown[5][0]
    assert shown[5][0] == shown[5][1]
    assert [source.calls for source in sources] == [[], []]


@pytest.mark.anyio
async def test_tools_call_is_no_way_to_an_mcp_tool(engine: Engine) -> None:
    source = ScriptedSource("s", {"work": text_result("done")})
    async with bench(engine, source) as it:
        outcome = await it.execute("return await tools.call('mcp:s:work', {}).catch((error) => error.message)")
    assert outcome.value.startswith('"mcp:s:work" is an MCP tool: call MCP.s.work({...})')
    assert source.calls == []
