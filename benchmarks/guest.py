"""Cost of the prelude: each function that it replaces beside the engine's own, and what it adds by itself.

    .venv/bin/python benchmarks/guest.py

The bare engine and the guest are timed in turn, in one process; the smallest of several times counts. The bar is three
times what the engine takes, where it has such a function; for what it has not, a figure of its own.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import wasmtime
from measure import report

from codemode_mcp.sandbox import binary
from codemode_mcp.sandbox.boot import GC_THRESHOLD
from codemode_mcp.sandbox.engine import open_engine
from codemode_mcp.sandbox.guest import Guest
from codemode_mcp.sandbox.instance import Instance, Modules
from codemode_mcp.sandbox.messages import Completion, decode_turn, deliver_message, start_message

if TYPE_CHECKING:
    from codemode_mcp.sandbox.engine import Engine

CATALOG: Final = json.dumps(
    {
        "servers": [
            {
                "identifier": "files",
                "alias": None,
                "name": "files",
                "down": False,
                "tools": [["readFile", "read_file", "mcp:files:read_file"]],
                "groups": [],
            }
        ],
        "tools": [],
        "named": [],
    }
)
MEMORY: Final = 512 * 1024 * 1024
SECONDS: Final = 60.0
ROUNDS: Final = 7
ROUND_MS: Final = 15
MOST_TIMES: Final = 3.0

NAMES: Final = "const names = Array.from({ length: 20000 }, (_, i) => 'name ' + (i * 7919 % 20011) + ' of many');"
EUROPEAN: Final = (
    "const names = Array.from({ length: 5000 }, (_, i) => ['Ärger', 'été', 'Straße', 'Łódź', 'Ωmega', 'мир'][i % 6]"
    " + (i * 7919 % 5011));"
)

REPLACED: Final = [
    # name, setup, expression
    ("Math.random()", "", "Math.random()"),
    ("JSON.parse, small", 'const text = \'{"a":[1,2,3],"b":"c"}\'', "JSON.parse(text)"),
    ("JSON.parse, with a reviver", "const text = '[1,2,3]'", "JSON.parse(text, (k, v) => v)"),
    (
        "JSON.parse, 100 KB",
        "const text = JSON.stringify(Array.from({ length: 3000 }, (_, i) => ({ i, n: 'n' + i })))",
        "JSON.parse(text)",
    ),
    ("JSON.parse that fails", "", "try { JSON.parse('{a}') } catch {}"),
    ("performance.now()", "", "performance.now()"),
    ("new Proxy", "const target = {}, handler = {}", "new Proxy(target, handler)"),
    ("Proxy.revocable", "const target = {}, handler = {}", "Proxy.revocable(target, handler)"),
    ("a property through a proxy", "const p = new Proxy({ a: 1 }, {})", "p.a"),
    ("next of an iterator helper", "const list = [1, 2, 3]", "[1, 2, 3].values().map((v) => v).next()"),
    (
        "100 steps of an iterator helper",
        "const list = Array.from({ length: 100 }, (_, i) => i)",
        "for (const v of list.values().map((v) => v)) ;",
    ),
    (
        "chain of iterator helpers, toArray",
        "const list = Array.from({ length: 100 }, (_, i) => i)",
        "list.values().filter((v) => v % 2).map((v) => v + 1).toArray()",
    ),
    ("return of an iterator helper", "", "(function* () { yield 1 })().map((v) => v).return()"),
    ("Number toLocaleString, integer", "", "(7).toLocaleString()"),
    ("Number toLocaleString, 1234567.891", "", "(1234567.891).toLocaleString()"),
    ("Number toLocaleString, rounded", "", "(2 / 3).toLocaleString()"),
    ("Number toLocaleString, en-US", "", "(1234567.891).toLocaleString('en-US')"),
    ("BigInt toLocaleString", "", "(12345678901234567890n).toLocaleString()"),
    ("Date toLocaleString", "const date = new Date(1e12)", "date.toLocaleString()"),
    ("Date toLocaleDateString", "const date = new Date(1e12)", "date.toLocaleDateString()"),
    ("Date toLocaleTimeString", "const date = new Date(1e12)", "date.toLocaleTimeString()"),
    ("Array toLocaleString", "const list = [1, 2, 3, 'a', 'b']", "list.toLocaleString()"),
    ("typed array toLocaleString", "const list = new Uint8Array([1, 2, 3, 4, 5])", "list.toLocaleString()"),
    ("localeCompare, equal", "const a = 'some text', b = 'some ' + 'text'", "a.localeCompare(b)"),
    ("localeCompare, short", "", "'banana'.localeCompare('bandana')"),
    ("localeCompare, long and alike", "const x = 'x'.repeat(200), a = x + 'a', b = x + 'b'", "a.localeCompare(b)"),
    ("localeCompare, accents", "", "'Ärger'.localeCompare('Arger')"),
    ("localeCompare, Cyrillic", "", "'привет'.localeCompare('привёт')"),
    ("localeCompare, Chinese", "", "'中文字'.localeCompare('中文子')"),
    ("localeCompare, Korean", "", "'한국어'.localeCompare('한국인')"),
    ("sort of 20,000 by localeCompare", NAMES, "[...names].sort((a, b) => a.localeCompare(b))"),
    ("sort of 5,000 European by localeCompare", EUROPEAN, "[...names].sort((a, b) => a.localeCompare(b))"),
    ("toLocaleUpperCase", "const text = 'Some text'", "text.toLocaleUpperCase()"),
    ("toLocaleLowerCase", "const text = 'Some text'", "text.toLocaleLowerCase()"),
    ("queueMicrotask", "const done = () => 0", "queueMicrotask(done)"),
    ("Date.parse of the standard's form", "const text = '2026-03-05T10:00:00.000Z'", "Date.parse(text)"),
    ("new Date of a text", "const text = '2026-03-05'", "new Date(text)"),
    ("setDate", "const date = new Date(1e12)", "date.setDate(5)"),
    ("Date toString", "const date = new Date(1e12)", "date.toString()"),
    ("new Error", "", "new Error('some message')"),
    ("an error of the engine", "const none = null", "try { none.x } catch {}"),
    ("new RegExp", "", "new RegExp('(a|b)+c', 'gi')"),
    ("exec", "const r = /(\\w+)=(\\d*)/, text = 'some text, name=42'", "r.exec(text)"),
    ("exec of a repeated choice", "const r = /(?:(a)|(b))+c/, text = 'ab'.repeat(20) + 'c'", "r.exec(text)"),
    ("replace", "const text = 'one two three '.repeat(10)", "text.replace(/\\w+/g, (word) => word)"),
    ("split", "const text = 'one,two;three'.repeat(10)", "text.split(/[,;]/)"),
    ("members of an object", "const o = { a: 1, b: 2 }", "({ ...o })"),
    ("push", "const list = []", "list.push(1); list.length = 0"),
]
"""Functions that the engine has too."""

ADDED: Final = [
    # name, setup, expression, microseconds that it may take
    ("Math.random()", "", "Math.random()", 0.3),
    ("crypto.randomUUID()", "", "crypto.randomUUID()", 1.0),
    ("crypto.getRandomValues, 16 bytes", "const bytes = new Uint8Array(16)", "crypto.getRandomValues(bytes)", 5.0),
    ("crypto.getRandomValues, 64 KB", "const bytes = new Uint8Array(65536)", "crypto.getRandomValues(bytes)", 1000.0),
    ("TextEncoder.encode, 5 characters", "const e = new TextEncoder()", "e.encode('short')", 3.0),
    (
        "TextEncoder.encode, 100 KB",
        "const e = new TextEncoder(), text = 'abcdefghij'.repeat(10000)",
        "e.encode(text)",
        500.0,
    ),
    (
        "TextEncoder.encode, 100 KB, é€𝄞",
        "const e = new TextEncoder(), text = 'aé€𝄞'.repeat(10000)",
        "e.encode(text)",
        1500.0,
    ),
    (
        "TextEncoder.encodeInto, 100 KB",
        "const e = new TextEncoder(), text = 'abcdefghij'.repeat(10000), into = new Uint8Array(100000)",
        "e.encodeInto(text, into)",
        1000.0,
    ),
    (
        "TextDecoder.decode, 5 bytes",
        "const d = new TextDecoder(), bytes = new Uint8Array(5).fill(97)",
        "d.decode(bytes)",
        6.0,
    ),
    (
        "TextDecoder.decode, 100 KB",
        "const d = new TextDecoder(), bytes = new Uint8Array(100000).fill(97)",
        "d.decode(bytes)",
        500.0,
    ),
    (
        "TextDecoder.decode, 100 KB, é€𝄞",
        "const d = new TextDecoder(), bytes = new TextEncoder().encode('aé€𝄞'.repeat(10000))",
        "d.decode(bytes)",
        2000.0,
    ),
    (
        "TextDecoder.decode, 100 KB that are malformed",
        "const d = new TextDecoder(), bytes = new Uint8Array(100000).fill(255)",
        "d.decode(bytes)",
        3000.0,
    ),
    ("structuredClone, small", "const v = { a: [1, 2, 3], b: 'c' }", "structuredClone(v)", 30.0),
    ("new URL", "", "new URL('https://example.com/path?query=1#part')", 60.0),
    ("Date.parse of another form", "", "Date.parse('Thu, 05 Mar 2026 10:00:00 GMT')", 60.0),
    ("stack of an error", "", "new Error('some message').stack", 30.0),
    ("new RegExp with the flag v", "", "new RegExp('[\\\\w--\\\\d]+', 'v')", 40.0),
    ("new URLSearchParams", "", "new URLSearchParams('a=1&b=two%20words')", 40.0),
]
"""Functions that it has not."""

RETURNED: Final = [
    ("a text", "'x'.repeat(1e6)"),
    (
        "rows",
        "Array.from({ length: 10000 }, (_, i) => ({ id: i, name: 'item ' + i, price: i * 1.5, tags: ['a', 'b'],"
        " ok: true, note: 'some text here' }))",
    ),
    (
        "an object with 40,000 members",
        "Object.fromEntries(Array.from({ length: 40000 }, (_, i) => ['key' + i, 'value ' + i]))",
    ),
    ("150,000 integers", "Array.from({ length: 150000 }, (_, i) => i)"),
    ("55,000 fractions", "Array.from({ length: 55000 }, (_, i) => i / 7)"),
]
"""Values of 1 MB."""
RETURNED_MS: Final = 60.0

LOOP: Final = """(function (rounds, roundMs) {
  const clock = CLOCK;
  SETUP;
  const run = function (n) {
    const began = clock();
    for (let i = 0; i < n; i++) { EXPRESSION; }
    return clock() - began;
  };
  let n = 1;
  let took = run(n);
  while (took < roundMs && n < 1e7) { n *= took * 4 < roundMs ? 4 : 2; took = run(n); }
  let best = took / n;
  for (let i = 1; i < rounds; i++) { took = run(n) / n; if (took < best) best = took; }
  return best * 1000;
})"""
"""Microseconds that an expression takes."""


def loop(setup: str, expression: str) -> str:
    body = LOOP.replace("CLOCK", "performance.now.bind(performance)")
    return body.replace("SETUP", setup).replace("EXPRESSION", expression) + f"({ROUNDS}, {ROUND_MS})"


class Bare:
    """The engine without the prelude."""

    def __init__(self, engine: Engine) -> None:
        used = engine.modules
        module = wasmtime.Module(used.engine, binary.prepare(binary.load()))
        self._modules = Modules(used.engine, used.linker, used.linker.instantiate_pre(module), used.glue, used.pool)

    def time(self, setup: str, expression: str) -> float:
        """Return microseconds. On a thread of the engine."""
        instance = Instance(self._modules, MEMORY)
        try:
            instance.call("_initialize")
            runtime = instance.call("JS_NewRuntime") & 0xFFFFFFFF
            instance.call("JS_SetGCThreshold", runtime, GC_THRESHOLD)
            context = instance.call("JS_NewContext", runtime) & 0xFFFFFFFF
            source = f"String({loop(setup, expression)})".encode()
            at, scratch = (instance.call("calloc", 1, size) & 0xFFFFFFFF for size in (len(source) + 1, 128))
            instance.write(at, source)
            value = instance.call("JS_Eval", context, at, len(source), scratch, 0)
            if (value >> 32) & 0xFFFFFFFF == 6:
                value = instance.call("JS_GetException", context)
            text = instance.call("JS_ToCStringLen2", context, scratch, value, 0) & 0xFFFFFFFF
            return float(instance.read(text, int.from_bytes(instance.read(scratch, 4), "little")))
        finally:
            instance.close()


def turns(engine: Engine, code: str) -> tuple[Any, float]:
    """Return a program's value, and the milliseconds from its last completion to that. On a thread of the engine."""
    start = start_message(code=code, fallback=None, seed=bytes(32), output_limit=1000, call_limit=10, elapsed_ms=0)
    with Guest(engine, engine.image(CATALOG), memory_limit=MEMORY) as guest:
        guest.start(start, SECONDS)
        answer = deliver_message([Completion(1)], elapsed_ms=1.0)
        began = time.perf_counter()
        turn = guest.deliver(answer, SECONDS)
        if turn.text is None:
            raise RuntimeError(f"the program was stopped: {turn}")
        told = decode_turn(turn.text)
        took = 1000 * (time.perf_counter() - began)
    if told.state != "done":
        raise RuntimeError(f"the program failed: {told}")
    return told.value, took


def guest_time(engine: Engine, setup: str, expression: str) -> float:
    """Return microseconds. On a thread of the engine."""
    value, _ = turns(engine, f"await MCP.files.readFile({{}}); return {loop(setup, expression)}")
    return float(value)


def main() -> None:
    chosen = sys.argv[1] if len(sys.argv) > 1 else ""
    with open_engine(None, max_threads=1) as engine:
        bare = Bare(engine)

        def on_thread(work: Any, *arguments: Any) -> Any:
            return engine.threads.submit(work, *arguments).result()

        for name, setup, expression in REPLACED:
            if chosen not in name:
                continue
            own = on_thread(bare.time, setup, expression)
            ours = on_thread(guest_time, engine, setup, expression)
            figure = f"{ours:.3g} us, the engine's {own:.3g} us: {ours / own:.1f} times"
            report(name, figure, f"{MOST_TIMES:.0f} times", ours <= MOST_TIMES * own)
        for name, setup, expression, most in ADDED:
            if chosen not in name:
                continue
            ours = on_thread(guest_time, engine, setup, expression)
            report(name, f"{ours:.3g} us", f"{most:g} us", ours <= most)
        for name, value in RETURNED:
            if chosen not in name:
                continue
            code = f"const value = {value}; await MCP.files.readFile({{}}); return value"
            took = min(on_thread(turns, engine, code)[1] for _ in range(ROUNDS))
            report(f"1 MB returned: {name}", f"{took:.0f} ms", f"{RETURNED_MS:.0f} ms", took <= RETURNED_MS)


if __name__ == "__main__":
    main()
