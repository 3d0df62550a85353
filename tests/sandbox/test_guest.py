"""One guest: turns, and the limits of time, memory and stack that end them."""

from __future__ import annotations

import threading
import time

import pytest
from guest_harness import LOW, MIB, READ, Cell, called, ok

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.sandbox.binary import STACK_END
from codemode_mcp.sandbox.engine import Engine
from codemode_mcp.sandbox.guest import Guest, finish
from codemode_mcp.sandbox.messages import YieldControl, decode_turn, start_message
from tests.sandbox.conftest import OpenCell, RunCode

# turns


def test_a_program_returns_its_value_in_the_first_turn(run: RunCode) -> None:
    assert run("return 6 * 7").value == 42


def test_a_call_leaves_the_guest_and_its_result_comes_back(cell: OpenCell) -> None:
    guest = cell()
    first = guest.start('return (await MCP.files.readFile({ path: "a" })).size + 1')
    assert first.requests == [called(1, READ, {"path": "a"})]
    assert guest.deliver(ok(1, {"size": 41})).value == 42


def test_the_fallback_runs_when_the_program_does_not_parse(run: RunCode) -> None:
    assert run("return (", fallback="return 1").value == 1


def test_text_that_does_not_parse_is_told_from_a_program_that_throws(run: RunCode) -> None:
    syntax = run("return (", fallback="still (")
    assert syntax.report is not None
    assert syntax.report.error is not None
    assert (syntax.report.state, syntax.report.error.name) == ("syntax", "SyntaxError")
    thrown = run('throw new SyntaxError("made up")')
    assert thrown.report is not None
    assert thrown.report.state == "failed"


def test_a_turn_that_takes_long_pauses_and_is_finished_on_another_thread(engine: Engine) -> None:
    message = start_message(
        code="let n = 0; for (let i = 0; i < 3e6; i++) n += i; return n",
        fallback=None,
        seed=bytes(32),
        output_limit=1000,
        call_limit=10,
        elapsed_ms=0,
    )
    with Guest(engine, engine.base, memory_limit=16 * MIB) as guest:
        steps = guest.start_steps(message, 30.0, 0.001)
        next(steps)  # pauses
        turn = engine.threads.submit(finish, steps).result()
    assert turn.stopped is None
    assert turn.text is not None
    assert decode_turn(turn.text).value == 4499998500000


def test_a_turn_that_has_paused_still_ends_when_its_time_is_over(engine: Engine) -> None:
    message = start_message(
        code="for (;;) {}", fallback=None, seed=bytes(32), output_limit=1000, call_limit=10, elapsed_ms=0
    )
    with Guest(engine, engine.base, memory_limit=16 * MIB) as guest:
        steps = guest.start_steps(message, 0.1, 0.001)
        next(steps)
        assert finish(steps).stopped == "time"


def test_a_short_turn_does_not_pause(engine: Engine) -> None:
    message = start_message(
        code="return 1", fallback=None, seed=bytes(32), output_limit=1000, call_limit=10, elapsed_ms=0
    )
    with Guest(engine, engine.base, memory_limit=16 * MIB) as guest:
        turn = finish(guest.start_steps(message, 1.0, 10.0))
    assert turn.text is not None


def test_one_guest_sees_nothing_of_another(run: RunCode) -> None:
    run("globalThis.left = 1; Array.prototype.left = 1; return 1")
    assert run("return [typeof left, [].left === undefined]").value == ["undefined", True]


def test_the_stack_pointer_is_at_its_start_between_turns(cell: OpenCell) -> None:
    guest = cell()
    assert guest.guest.stack_pointer() == STACK_END
    guest.start("""
        async function deep(n) { return n === 0 ? await yield_control() : 1 + await deep(n - 1) }
        await deep(100);
        function recurse() { return 1 + recurse() }
        try { recurse() } catch (error) { await yield_control() }
        await yield_control();
        for (;;) {}
    """)
    assert guest.guest.stack_pointer() == STACK_END
    for request in (1, 2):
        told = guest.deliver(ok(request))
        assert told.requests == [YieldControl(request + 1, None)]
        assert guest.guest.stack_pointer() == STACK_END
    assert guest.deliver(ok(3), seconds=0.05).stopped == "time"
    assert guest.guest.stack_pointer() == STACK_END


def test_closing_twice_is_fine(cell: OpenCell) -> None:
    guest = cell()
    guest.close()
    guest.close()
    guest.guest.interrupt()


def test_an_image_larger_than_the_limit_is_refused(engine: Engine) -> None:
    tools = ",".join(f'["tool{number}",null,"mcp:big:tool{number}"]' for number in range(40_000))
    manifest = (
        f'{{"servers":[{{"identifier":"big","alias":null,"name":"big","down":false,"tools":[{tools}],"groups":[]}}],'
        '"tools":[],"named":[]}'
    )
    with pytest.raises(ProgramError, match="names of the tools alone") as refused:
        Cell(engine, manifest=manifest, memory_limit=MIB)
    assert refused.value.code == "memory_limit_exceeded"


# time

ENDLESS = {
    "loop": "for (;;) {}",
    "promise chain": "const again = () => Promise.resolve().then(again); again(); await new Promise(() => {})",
    "async loop": "for (;;) await null",
    "microtasks": "const again = () => queueMicrotask(again); again(); await new Promise(() => {})",
    "regular expression": 'return /^(a+)+$/.test("a".repeat(40) + "b")',
    "generator": "function* g() { for (;;) yield 1 } for (const x of g()) {}",
    "catch in a loop": "for (;;) { try { throw 1 } catch {} }",
    "finally": "for (;;) { try { for (;;) {} } finally { continue } }",
    "eval": 'eval("for (;;) {}")',
    "promise constructors": "for (;;) new Promise(() => { for (;;) {} })",
    "getter of the value": "return { get a() { for (;;) {} } }",
    "toJSON of the value": "return { toJSON() { for (;;) {} } }",
    "message of the value's error": "return { get a() { throw { get message() { for (;;) {} } } } }",
    "compiling a regular expression": "new RegExp('(?:' + 'a|'.repeat(1e6) + ')')",
    "proxy": "return new Proxy({}, { ownKeys() { for (;;) {} } })",
    "length of the value": "return new Proxy([], { get(t, k) { return k === 'length' ? 1e15 : t[k] } })",
    "message of the error": "throw { get message() { for (;;) {} } }",
    "prototype of the error": "throw new Proxy({}, { getPrototypeOf() { for (;;) {} } })",
    "what is printed": "text({ get a() { for (;;) {} } })",
    "argument of a call": "await MCP.files.readFile({ get a() { for (;;) {} } })",
    "then of what is awaited": "await { then() { for (;;) {} } }",
    "sort": "[2, 1].sort(() => { for (;;) {} })",
    "native loop": "[].indexOf.call({ length: 2 ** 53 }, 1)",
    "native join": "new Array(2 ** 32 - 1).join()",
}


@pytest.mark.parametrize("code", ENDLESS.values(), ids=ENDLESS.keys())
def test_a_program_that_never_ends_is_stopped_when_its_time_is_over(run: RunCode, code: str) -> None:
    began = time.process_time()
    told = run(f'text("kept");{code}', seconds=0.05)
    assert told.stopped == "time"
    assert told.texts == ["kept"]
    assert time.process_time() - began < 2


def test_a_program_is_stopped_in_a_later_turn_too(cell: OpenCell) -> None:
    guest = cell()
    guest.start("await yield_control(); for (;;) {}")
    assert guest.deliver(ok(1), seconds=0.05).stopped == "time"


def test_output_and_calls_before_the_time_was_over_are_kept(run: RunCode) -> None:
    told = run('text("first"); MCP.files.readFile({}); console.log("second"); for (;;) {}', seconds=0.05)
    assert told.stopped == "time"
    assert told.texts == ["first", "second"]
    assert told.requests == [called(1, READ, {})]


def test_where_it_was_computing_is_known_afterwards(run: RunCode) -> None:
    told = run("function spin() {\n for (;;) {}\n}\nspin()", seconds=0.05)
    assert told.report is not None
    assert told.report.fault is not None
    assert told.report.fault.engine
    assert "spin" in told.report.fault.stack


def test_running_out_of_time_cannot_be_caught(run: RunCode) -> None:
    told = run('try { for (;;) {} } catch { text("caught") } finally { text("finally") }', seconds=0.05)
    assert (told.stopped, told.texts) == ("time", [])


def test_a_thrown_error_named_like_an_interruption_is_an_ordinary_one(run: RunCode) -> None:
    told = run('const error = new Error("interrupted"); error.name = "InternalError"; throw error')
    assert told.stopped is None
    assert told.report is not None
    assert told.report.error is not None
    assert not told.report.error.engine


@pytest.mark.parametrize(
    "reason",
    [
        "{ get message() { for (;;) {} } }",
        "{ get stack() { for (;;) {} } }",
        "{ get name() { for (;;) {} } }",
        "{ toJSON() { for (;;) {} } }",
    ],
)
def test_a_rejection_that_cannot_be_read_in_time_does_not_cost_the_result(run: RunCode, reason: str) -> None:
    told = run(f'Promise.reject({reason}); text("before"); return 1')
    assert told.value == 1
    assert told.texts == ["before"]


def test_interrupt_ends_a_turn_immediately_from_another_thread(cell: OpenCell) -> None:
    guest = cell()
    computing = threading.Event()
    turns = []

    def work() -> None:
        computing.set()
        turns.append(guest.start('text("kept"); for (;;) {}', seconds=30))

    thread = threading.Thread(target=work)
    thread.start()
    assert computing.wait(5)
    began = time.monotonic()
    # The turn may not have been entered yet; the word stays set until it is.
    guest.guest.interrupt()
    thread.join(5)
    assert not thread.is_alive()
    assert time.monotonic() - began < 2
    assert turns[0].stopped == "time"


def test_interrupt_while_a_regular_expression_is_matched(cell: OpenCell) -> None:
    guest = cell()
    timer = threading.Timer(0.1, guest.guest.interrupt)
    timer.start()
    began = time.process_time()
    assert guest.start('return /^(a+)+$/.test("a".repeat(60) + "b")', seconds=30).stopped == "time"
    assert time.process_time() - began < 3


def test_an_endless_guest_does_not_hold_up_another(cell: OpenCell) -> None:
    endless, other = cell(), cell()
    turns = []
    thread = threading.Thread(target=lambda: turns.append(endless.start("for (;;) {}", seconds=30)))
    thread.start()
    assert other.start("return 1").value == 1
    assert thread.is_alive()
    endless.guest.interrupt()
    thread.join(5)
    assert turns[0].stopped == "time"


# memory

MEMORY_BOMBS = {
    "arrays": "const kept = []; for (;;) kept.push(new Array(1e5).fill(0))",
    "buffers": "const kept = []; for (;;) kept.push(new Uint8Array(1e6))",
    "one buffer": "new ArrayBuffer(1e9)",
    "strings": "const kept = []; for (;;) kept.push('x'.repeat(1e6) + kept.length)",
    "repeat": '"x".repeat(1e9)',
    "closures": "const kept = []; for (;;) kept.push(() => kept)",
    "map": "const kept = new Map(); for (let i = 0; ; i++) kept.set(i, {})",
    "promises": "const kept = []; for (;;) kept.push(new Promise(() => {}))",
    "reading what is printed": "const a = new Array(3e6).fill(0.123456789); text(a)",
    "reading what is returned": "const a = 'x'.repeat(1e6); return new Array(1000).fill(a)",
}


@pytest.mark.parametrize("code", MEMORY_BOMBS.values(), ids=MEMORY_BOMBS.keys())
def test_a_program_that_takes_too_much_memory_is_told_so(run: RunCode, code: str) -> None:
    told = run(code, memory_limit=16 * MIB, seconds=10)
    assert told.out_of_memory, told.turn


def test_running_out_of_memory_can_be_caught(run: RunCode) -> None:
    told = run(
        "let kept = []; try { for (;;) kept.push(new Array(1e5).fill(0)) }"
        "catch (error) { kept = null; return error.message }",
        memory_limit=16 * MIB,
    )
    assert told.value == "out of memory"


def test_a_program_that_stays_within_its_memory_is_left_alone(run: RunCode) -> None:
    assert run("return new Uint8Array(8 * 1024 * 1024).length", memory_limit=16 * MIB).value == 8 * MIB


def test_output_before_the_memory_was_used_up_is_kept(run: RunCode) -> None:
    told = run('text("kept"); const a = []; for (;;) a.push(new Array(1e5).fill(0))', memory_limit=16 * MIB)
    assert told.out_of_memory
    assert told.texts == ["kept"]


# stack

STACK_BOMBS = {
    "function": "const f = () => 1 + f(); f()",
    "method": "class A { get() { return this.get() + 1 } } new A().get()",
    "getter": "const o = { get a() { return this.a + 1 } }; o.a",
    "setter": "const o = { set a(v) { this.a = v } }; o.a = 1",
    "proxy": "const p = new Proxy({}, { get(t, k, r) { return r[k] } }); p.a",
    "proxy of proxies": "let p = {}; for (let i = 0; i < 1e5; i++) p = new Proxy(p, {}); p.a",
    "prototypes": "let p = {}; for (let i = 0; i < 1e5; i++) p = Object.create(new Proxy(p, {})); p.a",
    "toString": "const o = { toString() { return '' + o } }; '' + o",
    "valueOf": "const o = { valueOf() { return +o } }; +o",
    "toPrimitive": "const o = { [Symbol.toPrimitive]() { return `${o}` } }; `${o}`",
    "JSON.parse": "JSON.parse('['.repeat(1e5))",
    "JSON.parse of objects": "JSON.parse('{\"a\":'.repeat(1e5))",
    "JSON.parse reviver": "JSON.parse('[1]', function r() { return JSON.parse('[1]', r) })",
    "JSON.stringify": "let a = []; for (let i = 0; i < 2e4; i++) a = [a]; low(() => JSON.stringify(a))",
    "JSON.stringify of objects": "let a = {}; for (let i = 0; i < 2e4; i++) a = { a }; low(() => JSON.stringify(a))",
    "toJSON": "const o = { toJSON() { return JSON.stringify(o) } }; JSON.stringify(o)",
    "parentheses": "eval('('.repeat(1e5) + ')'.repeat(1e5))",
    "nested arrays": "eval('['.repeat(1e5))",
    "nested functions": "eval('()=>'.repeat(1e5) + '1')",
    "nested blocks": "eval('{'.repeat(1e5))",
    "unary operators": "eval('!'.repeat(1e6) + '1')",
    "regular expression": "new RegExp('('.repeat(1e5) + ')'.repeat(1e5))",
    "flat": "let a = []; for (let i = 0; i < 1e5; i++) a = [a]; a.flat(Infinity)",
    "join": "let a = []; for (let i = 0; i < 1e5; i++) a = [a]; String(a)",
    "sort": "const f = () => [2, 1].sort(f); f()",
    "replace": "const f = () => 'a'.replace('a', f); f()",
    "constructor": "class A { constructor() { new A() } } new A()",
    "bound functions": "let f = () => 1; for (let i = 0; i < 1e5; i++) f = f.bind(null); f()",
    "apply": "const f = () => Reflect.apply(f, null, []); f()",
    "generator": "function* g() { yield* g() } [...g()]",
    "iterator": "const o = { [Symbol.iterator]() { return [...o] } }; [...o]",
    "instanceof": "const o = { [Symbol.hasInstance]() { return 1 instanceof o } }; 1 instanceof o",
    "error message": "const o = { get message() { throw o.message } }; o.message",
    "eval": "globalThis.f = () => eval('f()'); f()",
    "function constructor": "globalThis.f = () => new Function('return f()')(); f()",
    "arguments": "const f = (...a) => f(...a, 1); f()",
    "concat": "let a = []; for (let i = 0; i < 1e5; i++) a = [a]; [].concat(a) + ''",
}


@pytest.mark.parametrize("code", STACK_BOMBS.values(), ids=STACK_BOMBS.keys())
def test_recursing_too_deep_is_an_error_that_can_be_caught(run: RunCode, code: str) -> None:
    body = f"{LOW} try {{ {code}; return 'no error' }} catch (error) {{ return error.name }}"
    told = run(body, seconds=20, memory_limit=128 * MIB)
    assert told.stopped is None, told.turn
    assert told.value in {"RangeError", "SyntaxError", "InternalError"}
    assert told.value != "no error"


DEEP = "let a = []; for (let i = 0; i < 1e5; i++) a = [a];"


@pytest.mark.parametrize(
    "code",
    [
        f"{DEEP} return a",
        f"{DEEP} text(a)",
        f"{DEEP} throw a",
        f"{DEEP} store('key', a)",
        "let a = {}; for (let i = 0; i < 1e5; i++) a = { toJSON: () => a }; return a",
        "const a = { toJSON() { return [a] } }; return a",
        "const p = new Proxy({}, { get(t, k, r) { return r[k] } }); return p",
        "let a = new Map(); for (let i = 0; i < 1e5; i++) a = new Map([['a', a]]); return a",
        "let e = new Error('0'); for (let i = 0; i < 1e5; i++) e = new Error(i, { cause: e }); throw e",
        "let a = 1; for (let i = 0; i < 1e5; i++) a = Promise.resolve(a); return await a",
        "let p = Promise.resolve(1); for (let i = 0; i < 1e5; i++) p = p.then((v) => v); return await p",
    ],
    ids=["value", "text", "error", "store", "toJSON", "toJSON again", "proxy", "map", "cause", "promises", "chain"],
)
def test_values_nested_without_end_do_not_trap_the_sandbox(run: RunCode, code: str) -> None:
    told = run(code, seconds=20, memory_limit=128 * MIB)
    assert told.stopped is None, told.turn
    assert told.report is not None
    assert told.report.state in {"done", "failed"}
    assert told.report.fault is None


def test_a_flood_of_calls_is_refused_in_the_guest(run: RunCode) -> None:
    told = run(
        "const all = []; for (let i = 0; i < 10000; i++) all.push(MCP.files.readFile({ i }));"
        "const ends = await Promise.allSettled(all.slice(-2)); return ends.map((e) => e.reason.code)",
        memory_limit=16 * MIB,
    )
    assert told.value == ["too_many_pending_tool_calls"] * 2
    assert len(told.requests) == 1000


def test_what_is_cloned_may_be_nested_deeply(run: RunCode) -> None:
    told = run(f"{DEEP} const clone = structuredClone(a); return clone !== a && clone.length", memory_limit=128 * MIB)
    assert told.value == 1


def test_what_is_nested_deeply_can_be_freed(run: RunCode) -> None:
    told = run("let a = []; for (let i = 0; i < 1e6; i++) a = [a]; a = null; return 1", memory_limit=256 * MIB)
    assert told.value == 1
