"""Promise 3 and 4, of how a program ends: what it throws, however it is named and worded, is its own error. Only what
the engine or the host made ends it with a code of theirs.
"""

from __future__ import annotations

import pytest

from codemode_mcp.base.errors import ERROR_CODES
from codemode_mcp.sandbox.engine import Engine
from codemode_mcp.sandbox.messages import Completion, GuestError
from tests.runs.bench import bench, texts
from tests.sandbox.conftest import OpenCell, RunCode
from upstream_clients.errors import UpstreamCallError
from upstream_clients.testing import ScriptedSource, text_result

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024

CODES = [code for code in ERROR_CODES if code != "internal_error"]

WORDED = {
    "InternalError: interrupted": "Object.assign(new Error('interrupted'), { name: 'InternalError' })",
    "InternalError: out of memory": "Object.assign(new Error('out of memory'), { name: 'InternalError' })",
    "a class of that name": "new (class InternalError extends Error { name = 'InternalError' })('out of memory')",
    "a range error of that text": "new RangeError('out of memory')",
    "a string": "'out of memory'",
    "our words of memory": "new Error('the program used more than its memory of 16 MiB; keep less in memory')",
    "our words of time": "new Error('the program was still computing when its time of 10 s was over')",
    "a syntax error": "new SyntaxError('Unexpected token')",
    "an object": "({ name: 'InternalError', message: 'out of memory', engine: true, code: 'timeout' })",
    "a stack overflow of its own": "new RangeError('Maximum call stack size exceeded')",
    "with the class's name as tag": (
        "Object.assign(new Error('out of memory'), { [Symbol.toStringTag]: 'InternalError' })"
    ),
    "constructed as one": "Reflect.construct(Error, ['interrupted'], class InternalError {})",
    "ToolCallError": "Object.assign(new Error('x'), { name: 'ToolCallError', data: { tool: 'mcp:s:work' } })",
    "aggregate": "new AggregateError([Object.assign(new Error('interrupted'), { code: 'timeout' })], 'out of memory')",
    "with our stack": "Object.assign(new Error('x'), { stack: '    at collect (prelude:1:1)\\n    at native' })",
    "a proxy of one": "new Proxy(new Error('out of memory'), { getPrototypeOf: () => Error.prototype })",
}


@pytest.mark.parametrize("kind", WORDED)
async def test_an_error_worded_like_ours_is_the_programs_own(engine: Engine, kind: str) -> None:
    async with bench(engine) as it:
        for code in (
            f"throw {WORDED[kind]}",
            f"await Promise.reject({WORDED[kind]})",
            f"return {{ then() {{ throw {WORDED[kind]} }} }}",
        ):
            outcome = await it.execute(code)
            assert (outcome.status, outcome.code) == ("failed", "internal_error"), code


@pytest.mark.parametrize("code", CODES)
async def test_an_error_with_a_code_of_ours_is_the_programs_own(engine: Engine, code: str) -> None:
    async with bench(engine) as it:
        outcome = await it.execute(f"throw Object.assign(new Error('x'), {{ code: '{code}', name: 'ToolCallError' }})")
    assert (outcome.status, outcome.code) == ("failed", "internal_error")


CAUGHT = "let e; try { await MCP.s.fail({}) } catch (error) { e = error }"
MADE_FROM_A_FAILED_CALL = {
    "the same": (f"{CAUGHT} throw e", "nested_tool_failed"),
    "the same with another code": (f"{CAUGHT} try {{ e.code = 'timeout' }} catch {{ }} throw e", "nested_tool_failed"),
    "the same with another text": (
        f"{CAUGHT} e.message = 'out of memory'; e.name = 'InternalError'; throw e",
        "nested_tool_failed",
    ),
    "the same of another class": (
        f"{CAUGHT} throw Object.setPrototypeOf(e, RangeError.prototype)",
        "nested_tool_failed",
    ),
    "one that inherits from it": (f"{CAUGHT} throw Object.create(e)", "internal_error"),
    "one with all its fields": (
        f"{CAUGHT} throw Object.defineProperties(new Error(), Object.getOwnPropertyDescriptors(e))",
        "internal_error",
    ),
    "one with it as cause": (f"{CAUGHT} throw new Error('x', {{ cause: e }})", "internal_error"),
    "a proxy of it": (f"{CAUGHT} throw new Proxy(e, {{}})", "internal_error"),
    "a clone of it": (f"{CAUGHT} throw structuredClone(e)", "internal_error"),
    "its text": (f"{CAUGHT} throw e.message", "internal_error"),
}


@pytest.mark.parametrize("kind", MADE_FROM_A_FAILED_CALL)
async def test_the_error_of_a_call_keeps_its_code_and_lends_it_to_nothing(engine: Engine, kind: str) -> None:
    code, expected = MADE_FROM_A_FAILED_CALL[kind]
    async with bench(engine, ScriptedSource("s", {"fail": UpstreamCallError("s", "no", dispatched=True)})) as it:
        outcome = await it.execute(code)
    assert (outcome.status, outcome.code) == ("failed", expected)


# real ones, caught

OUT_OF_MEMORY = (
    "let big = [], e; try { for (;;) big.push(new Array(1e5).fill(1)) } catch (error) { e = error } big = 0;"
)
"""A program can catch that its memory is used up; what it makes of that error says no more than the truth: it was."""

MADE_FROM_OUT_OF_MEMORY = {
    "nothing": ("return e.message", "completed", "internal_error"),
    "another error": ("throw new Error('out of memory', { cause: e })", "failed", "internal_error"),
    "the same": ("throw e", "failed", "memory_limit_exceeded"),
    "the same, worded as an interruption": ("e.message = 'interrupted'; throw e", "failed", "internal_error"),
    "one of its prototype": (
        "throw Object.create(Object.getPrototypeOf(e), { message: { value: 'interrupted' } })",
        "failed", "internal_error",
    ),
    "from a getter of its value": ("return { get a() { throw e } }", "failed", "memory_limit_exceeded"),
    "with a code": ("e.code = 'timeout'; throw e", "failed", "memory_limit_exceeded"),
    "from its arguments": ("await MCP.s.work({ get a() { throw e } })", "failed", "memory_limit_exceeded"),
    "of a changed class": (
        "Object.getPrototypeOf(e).name = 'Own'; Object.getPrototypeOf(e).message = 'interrupted'; throw new Error('x')",
        "failed", "internal_error",
    ),
    "an object that throws it when told": ("throw { toJSON() { throw e } }", "failed", "memory_limit_exceeded"),
    "every error of its class": (
        "for (const it of [Error, RangeError]) try { it.prototype.__proto__ = Object.getPrototypeOf(e) } catch {}"
        "throw new RangeError('out of memory')", "failed", "internal_error",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", MADE_FROM_OUT_OF_MEMORY)
async def test_what_is_made_of_a_real_one_never_looks_like_another(engine: Engine, kind: str) -> None:
    code, status, expected = MADE_FROM_OUT_OF_MEMORY[kind]
    source = ScriptedSource("s", {"work": text_result("1")})
    async with bench(engine, source, timeout_ms=30_000, memory_limit_bytes=32 * MIB) as it:
        outcome = await it.execute(OUT_OF_MEMORY + code)
    assert outcome.status == status
    if status == "failed":
        assert outcome.code == expected


async def test_running_out_of_time_leaves_nothing_to_imitate(engine: Engine) -> None:
    async with bench(engine, timeout_ms=300) as it:
        code = (
            "const seen = []; process = { on: (e) => seen.push(e) };"
            "try { try { for (;;); } finally { text('finally') } } catch (e) { text('caught') }"
        )
        outcome = await it.execute(code)
    assert (outcome.status, outcome.code) == ("failed", "timeout")
    assert texts(outcome) == []


async def test_a_denied_module_keeps_its_code_and_lends_it_to_nothing(engine: Engine) -> None:
    caught = "let e; try { await (0, eval)('import(\"fs\")') } catch (error) { e = error }"
    async with bench(engine) as it:
        assert (await it.execute(f"{caught} throw e")).code == "module_access_denied"
        assert (
            await it.execute(f"{caught} throw Object.assign(new Error(), e, {{ code: e.code }})")
        ).code == "internal_error"


@pytest.mark.parametrize("how", ["then(r, f) { f(e) }", "get then() { throw e }", "then: f => { throw e }"])
async def test_a_thenable_cannot_lend_a_code_that_its_error_does_not_have(engine: Engine, how: str) -> None:
    async with bench(engine) as it:
        outcome = await it.execute(
            f"const e = Object.assign(new Error('interrupted'), {{ code: 'timeout' }}); return {{ {how} }}"
        )
    assert (outcome.status, outcome.code) == ("failed", "internal_error")


# errors that resist being told

HARD_TO_TELL = {
    "a stack of very many digits": "Object.assign(new Error('x'), { stack: 'at <input>:' + '9'.repeat(5000) + ':1' })",
    "a column of very many digits": "Object.assign(new Error('x'), { stack: 'at <input>:3:' + '9'.repeat(5000) })",
}


@pytest.mark.parametrize("kind", HARD_TO_TELL)
@pytest.mark.parametrize("how", ["throw {}", "Promise.reject({}); return 1"])
async def test_no_stack_a_program_writes_fails_the_host(engine: Engine, kind: str, how: str) -> None:
    async with bench(engine) as it:
        outcome = await it.execute("text('before');" + how.replace("{}", HARD_TO_TELL[kind]))
    assert texts(outcome) == ["before"]


UNREADABLE = {
    "a getter for everything": "new Proxy({}, { get() { throw 1 } })",
    "a proxy of an error": "new Proxy(new Error('x'), { get() { throw 1 }, getPrototypeOf() { throw 1 } })",
    "a revoked proxy": "(() => { const r = Proxy.revocable({}, {}); r.revoke(); return r.proxy })()",
    "a message that throws": "({ get message() { throw 1 }, toJSON() { throw 2 } })",
    "symbols": "Object.assign(new Error('x'), { name: Symbol('s'), message: Symbol(), stack: Symbol() })",
    "a megabyte of message": "new Error('x'.repeat(1e6))",
    "a function": "Object.defineProperty(() => 1, 'message', { get() { throw 1 } })",
    "itself as its message": "(() => { const e = new Error(); e.message = e; return e })()",
    "null": "null",
    "an array of itself": "(() => { const a = []; a.push(a); return a })()",
    "errors that are a revoked proxy": (
        "(() => { const r = Proxy.revocable([], {}); r.revoke(); const errors = r.proxy;"
        " return Object.assign(new Error('x'), { errors }) })()"
    ),
    "errors of a length that throws itself": (
        "(() => { const e = new Error('x'); e.errors = new Proxy([], { get: (t, key) =>"
        " key === 'length' ? { valueOf() { throw e } } : t[key] }); return e })()"
    ),
    "frames without end": "Object.assign(new Error('x'), { stack: '    at f (<input>:3:1)\\n'.repeat(1e5) })",
    "a frame of other digits": "Object.assign(new Error('x'), { stack: '    at f (<input>:\u0663:\u0661)' })",
}


@pytest.mark.parametrize("kind", UNREADABLE)
async def test_whatever_is_thrown_ends_the_program_and_is_told_in_a_few_words(engine: Engine, kind: str) -> None:
    async with bench(engine) as it:
        outcome = await it.execute(f"text('before'); throw {UNREADABLE[kind]}")
    assert (outcome.status, outcome.code, texts(outcome)) == ("failed", "internal_error", ["before"])
    assert "inside codemode-mcp" not in outcome.error
    assert "nothing can settle" not in outcome.error
    assert 0 < len(outcome.error) < 10_000


ENDLESS_TO_READ = {
    "a trap for properties": "new Proxy({}, { getOwnPropertyDescriptor() { for (;;); } })",
    "a trap for the prototype": "new Proxy({}, { getPrototypeOf() { for (;;); } })",
    "a prototype with a trap": "Object.create(new Proxy({}, { getOwnPropertyDescriptor() { for (;;); } }))",
    "a function with a getter": "Object.defineProperty(() => 1, 'stack', { get() { for (;;); } })",
}


@pytest.mark.parametrize("kind", ENDLESS_TO_READ)
def test_a_rejection_that_takes_forever_to_read_does_not_cost_the_result(run: RunCode, kind: str) -> None:
    told = run(f"Promise.reject({ENDLESS_TO_READ[kind]}); text('before'); return 1")
    assert told.value == 1
    assert told.texts == ["before"]


def test_a_guest_error_does_not_carry_the_code_of_an_earlier_call(cell: OpenCell) -> None:
    guest = cell()
    guest.start(
        "const e = await MCP.files.readFile({}).catch((error) => error); const own = new Error('own');"
        "Object.defineProperties(own, Object.getOwnPropertyDescriptors(e)); throw own"
    )
    report = guest.deliver(Completion(1, error=GuestError("no", name="ToolCallError", code="aborted"))).report
    assert report is not None
    assert report.error is not None
    assert (report.error.name, report.error.code, report.error.engine) == ("ToolCallError", None, False)
