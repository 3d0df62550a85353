"""Random programs from a weighted grammar of JavaScript and of what a program is given. Pure: a `Random` in, text out.

Most programs parse, because a grammar wrote them; most throw sooner or later, because nothing keeps track of types. So
statements are often wrapped in `try`, loops are mostly bounded, and what ends a program for sure is rare.
"""

# ruff: noqa: E501 - a fragment of a program is one line

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NUMBERS = _words(
    """
    0 1 -1 2 3 7 10 31 32 100 255 256 65535 1e3 0.5 -0 1.5e300 NaN Infinity -Infinity 2**31 2**31-1 2**32 2**53
    -(2**31) 1e21 5e-324 0x7fffffff
    """
)
STRINGS = (
    *('""', '"a"', '"abc"', "'x y'", '"__proto__"', '"constructor"', '"then"', '"toJSON"', '"length"', '"0"', '"-1"'),
    *(r'"\u0000"', r'"\ud800"', r'"\udc00\ud800"', r'"😀"', r'"\u2028"', r'"é"', '"🜚"', r'"\\ud800"', r'"\n\r\t"'),
    *(
        '"[1,2"',
        "'{\"a\":1}'",
        '"1e400"',
        '"http://a.b/c?d=e#f"',
        '"mcp/files.d.ts"',
        '"x".repeat(300)',
        '"ab".repeat(999)',
    ),
)
REGEXES = _words(
    r"""
    /a+b/g /(?<y>\d+)-\k<y>/u /^(a|aa)+$/ /[\p{L}]/v /(?<=x)y/y /./su /(a*)*c/ /\b/gi /(?:)/d /[^\s]{2,}?/m
    /(?!x)(.)\1/ /\u{1F600}/u
    """
)
BINARY = _words("+ - * / % ** << >> >>> & | ^ == === != !== < > <= >= && || ?? in instanceof ,")
ASSIGN = _words("= += -= *= /= %= **= <<= >>= >>>= &= |= ^= &&= ||= ??=")
UNARY = ("!", "-", "+", "~", "typeof ", "void ", "delete ")
PROPERTIES = _words(
    """
    a b c x length name message stack constructor prototype then toJSON value toString valueOf size next done cause
    content structuredContent isError lastIndex
    """
)
KEYS = (
    *("a", "b", "c", "x", "length", "then", "toJSON", '"__proto__"', "__proto__", "constructor", "toString", "valueOf"),
    *(
        "[Symbol.iterator]",
        "[Symbol.asyncIterator]",
        "[Symbol.toPrimitive]",
        "[Symbol.toStringTag]",
        "[Symbol.species]",
    ),
    *("[Symbol.dispose]", "get", "set", "async", "static", "0", "1.5", '"-1"', "['k' + 1]", "isError", "content"),
)
WELL_KNOWN = _words(
    """
    iterator asyncIterator hasInstance isConcatSpreadable match matchAll replace search species split toPrimitive
    toStringTag unscopables dispose asyncDispose
    """
)
CONSTRUCTORS = _words(
    """
    Object Array Function Error TypeError RangeError AggregateError Map Set WeakMap WeakSet WeakRef Promise Proxy
    RegExp String Number Boolean Symbol BigInt URL URLSearchParams TextEncoder TextDecoder ArrayBuffer DataView
    Uint8Array Int8Array Uint8ClampedArray Int16Array Uint16Array Int32Array Uint32Array Float32Array Float64Array
    BigInt64Array BigUint64Array FinalizationRegistry Iterator
    """
)
TYPED = _words("Uint8Array Int8Array Uint8ClampedArray Int16Array Uint32Array Float64Array BigInt64Array")
STATICS = _words(
    """
    Object.keys Object.values Object.entries Object.assign Object.freeze Object.seal Object.fromEntries
    Object.create Object.getPrototypeOf Object.setPrototypeOf Object.groupBy Object.getOwnPropertyDescriptors
    Object.defineProperty Object.defineProperties Object.is Reflect.ownKeys Reflect.get Reflect.set Reflect.apply
    Reflect.construct Reflect.has Reflect.defineProperty Reflect.deleteProperty Reflect.setPrototypeOf
    Reflect.preventExtensions Array.from Array.of Array.isArray Array.fromAsync String.raw String.fromCodePoint
    String.fromCharCode Number.parseFloat parseInt Number.isSafeInteger Math.max Math.hypot Math.imul Math.clz32
    Math.fround Math.random JSON.stringify JSON.parse Symbol Symbol.for BigInt BigInt.asUintN Promise.all
    Promise.race Promise.any Promise.allSettled Promise.resolve Promise.reject Promise.withResolvers Promise.try
    String Number Boolean structuredClone encodeURIComponent decodeURIComponent escape unescape isNaN atob btoa
    queueMicrotask URL.canParse ArrayBuffer.isView Map.groupBy Atomics.add Iterator.from eval
    Error.captureStackTrace Proxy.revocable crypto.randomUUID crypto.getRandomValues gc escape
    """
)
METHODS = _words(
    """
    push pop shift unshift splice slice concat join map filter reduce forEach flat flatMap sort toSorted reverse
    fill copyWithin at with indexOf includes find findLast some every keys values entries toSpliced charCodeAt
    codePointAt replace replaceAll split match matchAll search padStart trim normalize localeCompare toWellFormed
    substring toString valueOf toFixed toPrecision get set has add delete clear call apply bind then catch finally
    next return throw exec test subarray resize transfer union getOrInsert hasOwnProperty isPrototypeOf toJSON deref
    take drop toArray append encode decode encodeInto setFloat64 getBigInt64 dispose
    """
)
CALLS = _words(
    """
    MCP.files.readFile MCP.files.remove MCP.files["read_file"] MCP.lost.anything MCP.files.resources.list tools.list
    tools.call tools.describe tools.search API.list API.read API.search MCP.$api MCP.files.$api MCP.lost.$api load
    yield_control
    """
)
SAID = _words("text json image console.log console.error console.table console.assert unwrap store")
GLOBALS = (
    *(
        "globalThis",
        "undefined",
        "Math",
        "JSON",
        "Reflect",
        "MCP",
        "tools",
        "API",
        "ALL_TOOLS",
        "namespaces",
        "console",
    ),
    *(
        "Symbol",
        "arguments",
        "this",
        "crypto",
        "performance",
        "Array.prototype",
        "Object.prototype",
        "Promise.prototype",
    ),
    *("Function.prototype", "MCP.files", "MCP.lost", "String.prototype", "new.target", "Map.prototype"),
)
CLOCK = ("Date.now()", "new Date()", "performance.now()", "Date()")

ENDLESS = (
    "for (;;) {}",
    "while (true) { NAME = [1, 2, 3].map(String); }",
    "do {} while (1)",
    "for (const k of (function* () { for (;;) yield 1; })()) {}",
    "(function f() { try { f(); } finally { f(); } })();",
    "/^(a+)+$/.test('a'.repeat(40) + 'b');",
    "(function f() { Promise.resolve().then(f); })(); await new Promise(() => {});",
    "({ get x() { for (;;) {} } }).x;",
    "[...{ [Symbol.iterator]() { return { next: () => ({ value: 1, done: false }) }; } }];",
    "return { toJSON() { for (;;) {} } };",
    "return new Proxy({}, { ownKeys() { for (;;) {} } });",
    "throw { get message() { for (;;) {} } };",
    "queueMicrotask(function f() { queueMicrotask(f); });",
    "'x'.replace(/x/, function () { for (;;) {} });",
    "[3, 1, 2].sort(() => { for (;;) {} });",
)
"""Programs that compute without end."""

BOMBS = (
    "const NAME = []; for (;;) NAME.push(new Array(1000).fill(NAME.length));",
    "let NAME = 'x'; for (;;) NAME += NAME;",
    "const NAME = []; for (;;) NAME.push(new ArrayBuffer(1 << 20));",
    "const NAME = new Map(); for (let i = 0; ; i++) NAME.set(i, { i });",
    "const NAME = {}; for (let i = 0; ; i++) NAME['k' + i] = [i];",
    "const NAME = []; for (;;) NAME.push(1n << BigInt(NAME.length));",
    "const NAME = []; for (;;) NAME.push(Symbol('s' + NAME.length));",
    "const NAME = []; for (;;) NAME.push(() => NAME);",
    "const NAME = []; for (;;) NAME.push(/a/g);",
    "const NAME = []; for (;;) NAME.push(Promise.reject(NAME));",
    "let NAME = null; for (;;) NAME = { NAME };",
    "await (async function f() { await null; return f(); })();",
    "const NAME = []; for (;;) { NAME.push(structuredClone([NAME.length])); }",
    "const NAME = []; for (;;) { try { NAME.push('x'.repeat(1 << 16) + NAME.length); } catch (e) { NAME.push(e); } }",
)
"""Programs that fill their memory. Some catch what they get for it and continue."""

HEAVY = (
    "NAME = 'x'.repeat(1 << 24);",
    "NAME = 'ab'.repeat(1 << 18).split('').reverse().join('');",
    "NAME = new Array(1e6).fill(0).map((x, i) => i).sort();",
    "NAME = new ArrayBuffer(8, { maxByteLength: 1 << 26 }); NAME.resize(1 << 22);",
    "NAME = JSON.stringify(new Array(1e5).fill({ a: [1, 'é'] }));",
    "NAME = Array.from({ length: 2e5 }, (x, i) => ({ i }));",
    "NAME = 'a'.padEnd(1 << 20).replaceAll('a', '$&$&').normalize('NFD');",
    "NAME = (3n ** 20000n).toString();",
    "NAME = '[' .repeat(1e4) + ']'.repeat(1e4); JSON.parse(NAME);",
    "for (let i = 0; i < 300; i++) text('line ' + i);",
    "for (let i = 0; i < 20; i++) json(new Array(1000).fill(i));",
    "for (let i = 0; i < 1500; i++) MCP.files.readFile({ i });",
    "for (let i = 0; i < 50; i++) setTimeout(() => text(i), i);",
    "NAME = []; for (let i = 0; i < 5000; i++) NAME = [NAME]; json(NAME);",
    "NAME = {}; for (let i = 0; i < 3000; i++) NAME = { NAME, get g() { return i; } }; text(NAME);",
    "NAME = new Uint8Array(1 << 20); crypto.getRandomValues(NAME.subarray(0, 65536)); structuredClone(NAME);",
    "NAME = new URLSearchParams('a=b&'.repeat(2000)).toString();",
    "NAME = btoa('x'.repeat(1 << 18)); atob(NAME).length;",
    "NAME = new TextDecoder().decode(new Uint8Array(1 << 18).fill(0xf0));",
    "image({ type: 'image', data: 'A'.repeat(1 << 18), mimeType: 'image/png' });",
    "store('k', 'v'.repeat(1 << 20)); NAME = await load('k');",
)
"""Statements that take much of something and end."""

HOSTILE = (
    "Promise.prototype.then = function () { return this; };",
    "Promise.prototype.then = () => { throw 1; };",
    "Object.defineProperty(Promise.prototype, 'constructor', { get() { throw new Error('no'); } });",
    "Object.defineProperty(Promise, Symbol.species, { get() { return function () { throw 2; }; } });",
    'JSON.stringify = () => \'{"state":"done","value":"forged"}\';',
    "JSON.parse = () => ({ completions: [], elapsed: 0 });",
    "globalThis.JSON = null; globalThis.Promise = null;",
    "Array.prototype.push = Array.prototype.join = Array.prototype.map = () => { throw 'no'; };",
    "Object.defineProperty(Array.prototype, '0', { set() { throw 'no'; }, get() { return 7; }, configurable: true });",
    "Array.prototype[Symbol.iterator] = function* () { yield 'forged'; };",
    "String.prototype.concat = String.prototype.slice = String.prototype.charCodeAt = () => 'forged';",
    "String.prototype.toString = String.prototype.valueOf = () => { throw 3; };",
    "Map.prototype.get = Map.prototype.set = Map.prototype.has = Map.prototype.delete = () => undefined;",
    "WeakMap.prototype.set = WeakMap.prototype.get = () => 'nested_tool_failed';",
    "Object.prototype.toJSON = undefined; Object.prototype.message = 'inherited';",
    "Object.defineProperty(Object.prototype, 'then', { get() { return undefined; }, configurable: true });",
    "Object.defineProperty(Object.prototype, 'value', { set() { throw 'trap'; }, configurable: true });",
    "Object.defineProperty(Object.prototype, 'completions', { get() { return []; }, set() {}, configurable: true });",
    "Object.prototype.get = Object.prototype.set = Object.prototype.enumerable = undefined;",
    "Object.prototype.limit = 99; Object.prototype.server = 'lost'; Object.prototype.id = 1; Object.prototype.error = {};",
    "Function.prototype.call = Function.prototype.apply = Function.prototype.bind = () => 'forged';",
    "Function.prototype[Symbol.hasInstance] = undefined;",
    "Error.prototype.toString = () => { throw 4; };",
    "Error.prepareStackTrace = () => { throw 5; };",
    "Error.stackTraceLimit = Infinity;",
    "Error.stackTraceLimit = 0;",
    "Object.freeze = Object.defineProperty = Object.getPrototypeOf = () => ({});",
    "Reflect.apply = Reflect.construct = () => { throw 6; };",
    "Symbol.prototype[Symbol.toPrimitive] = undefined;",
    "for (const k of Object.getOwnPropertyNames(globalThis)) { try { if (k !== 'text') globalThis[k] = null; } catch {} }",
    "for (const k of Reflect.ownKeys(Object.prototype)) { try { delete Object.prototype[k]; } catch {} }",
    "for (const k of Reflect.ownKeys(Array.prototype)) { try { delete Array.prototype[k]; } catch {} }",
    "for (const k of Reflect.ownKeys(Promise.prototype)) { try { delete Promise.prototype[k]; } catch {} }",
    "for (const k of Reflect.ownKeys(Function.prototype)) { try { delete Function.prototype[k]; } catch {} }",
    "Object.setPrototypeOf(globalThis, new Proxy({}, { get() { throw 7; }, has() { return true; } }));",
    "Object.setPrototypeOf(Object.prototype.__lookupGetter__, null);",
    "try { Object.setPrototypeOf(Array.prototype, new Proxy([], { get() { throw 8; } })); } catch {}",
    "Object.preventExtensions(globalThis); Object.freeze(Object.prototype); Object.freeze(Array.prototype);",
    "Number.prototype.toString = BigInt.prototype.toString = () => { throw 9; };",
    "RegExp.prototype.exec = () => { throw 10; };",
    "globalThis.text = globalThis.console = undefined;",
    "Object.defineProperty(globalThis, 'undefined_', { get() { throw 11; } });",
    "(async () => {}).constructor.prototype.constructor = null;",
    "Object.getPrototypeOf(async function () {}).constructor = null;",
    "Object.getPrototypeOf(function* () {}).prototype.next = () => ({ done: true });",
)
"""Attempts on what is built in, each a whole statement. None of them may change how a program's end is told."""

WEIRD_VALUES = (
    "({ toJSON() { throw 1; } })",
    "({ toJSON: 5 })",
    "({ toJSON() { return this; } })",
    "({ then(f) { f(1); } })",
    "({ then() {} })",
    "({ then: 1 })",
    "({ get then() { throw 'then'; } })",
    "({ then(f, r) { r(this); f(2); } })",
    "new Proxy({}, {})",
    "new Proxy([], { get() { throw 'get'; } })",
    "new Proxy(function () {}, { apply() { return 1; }, construct() { return {}; } })",
    "new Proxy({}, { ownKeys() { return ['a', 'a']; } })",
    "new Proxy({}, { getOwnPropertyDescriptor() { return 1; }, ownKeys() { return ['z']; } })",
    "(() => { const p = Proxy.revocable({}, {}); p.revoke(); return p.proxy; })()",
    "(() => { const o = {}; o.o = o; return o; })()",
    "Object.create(null)",
    "Object.assign(Object.create({ inherited: 1 }), { own: 2 })",
    "Object.freeze([1, , 3])",
    "[, , 1]",
    "Symbol('s')",
    "Symbol.iterator",
    "10n ** 30n",
    "function named() {}",
    "async () => {}",
    "class K { #p = 1; static s = 2; get p() { return this.#p; } }",
    "new Error('e', { cause: new Error('c') })",
    "new AggregateError([1, new Error('in')], 'agg')",
    "Object.assign(new Error('x'), { name: 5, message: {}, stack: [] })",
    "Object.defineProperty(new Error('x'), 'message', { get() { throw 1; } })",
    "new Map([[{}, 1], ['k', new Map()]])",
    "new Set([NaN, -0, [1]])",
    "new Uint8Array([1, 2, 300])",
    "new ArrayBuffer(4, { maxByteLength: 16 })",
    "new Date(NaN)",
    "new Date(0)",
    "/x/gi",
    "Promise.resolve({ a: 1 })",
    "Promise.reject(new Error('late'))",
    "new WeakRef({})",
    "globalThis",
    "MCP",
    "tools",
    "API.read",
    "arguments",
    "new Boolean(false)",
    "Object(1n)",
    "Object(Symbol())",
    "new (class extends Array { static get [Symbol.species]() { return Object; } })(3)",
    "new URL('http://u:p@h:1/é?q#f')",
    "[1, [2, [3, { a: [undefined, () => 1, null] }]]]",
    "({ 'é\\ud800': '\\udfff', '\\u0000': 1 })",
    "({ __proto__: null, ['__proto__']: { polluted: true } })",
    "({ content: [{ type: 'text', text: '[1]' }], isError: true })",
    "(function* () { yield 1; })()",
    "(async function* () { yield 1; })()",
)


Writer = Callable[[], str]
Table = tuple[tuple[int, Writer], ...]


def _cumulated(table: Table) -> tuple[list[int], list[Writer]]:
    return list(accumulate(weight for weight, _ in table)), [write for _, write in table]


class Grammar:
    """Writes one program.

    Args:
        random: where all choices come from.
        size: statements and expressions, about.
    """

    def __init__(self, random: Random, size: int) -> None:
        self.uses_clock = False
        self._random = random
        self._fuel = size
        self._depth = 0
        self._names = ["v0"]
        self._private: list[str] = []
        self._counter = 0
        self._labels: list[str] = []
        self._loops = 0
        self._await = True
        self._yield = False
        self._function = 0
        self._statements = _cumulated(self._statement_table())
        self._expressions = _cumulated(self._expression_table())

    def program(self) -> str:
        random = self._random
        lines = [f"let v0; try {{ v0 = {self.expression()}; }} catch {{}}"]
        if random.random() < 0.03:
            lines.insert(0, '"use strict";')
        while self._fuel > 0:
            lines.append(self.statement())
        ending = random.random()
        if ending < 0.2:
            lines.append(f"return {self.expression()};")
        elif ending < 0.45:
            lines.append(f"try {{ return {self.expression()}; }} catch (e) {{ return e; }}")
        elif ending < 0.6:
            lines.append(self.expression())
        elif ending < 0.7:
            lines.append(f"return [{', '.join(self._pick(self._names) for _ in range(3))}];")
        return "\n".join(lines)

    # choosing

    def _pick(self, options: tuple[str, ...] | list[str]) -> str:
        return options[int(self._random.random() * len(options))]

    def _weighted(self, ends: list[int], writers: list[Writer]) -> Writer:
        return writers[bisect_right(ends, self._random.random() * ends[-1])]

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _name(self) -> str:
        return self._names[-1 - int(self._random.random() ** 2 * len(self._names))]

    def _new_name(self) -> str:
        self._counter += 1
        return f"v{self._counter}"

    @contextmanager
    def _scope(
        self, *, function: bool = False, can_await: bool = False, can_yield: bool = False, params: tuple[str, ...] = ()
    ) -> Iterator[None]:
        held = (self._names, self._labels, self._loops, self._await, self._yield)
        self._names = [*self._names, *params]
        if function:
            self._labels, self._loops, self._await, self._yield = [], 0, can_await, can_yield
            self._function += 1
        yield
        self._names, self._labels, self._loops, self._await, self._yield = held
        if function:
            self._function -= 1

    # statements

    def statement(self) -> str:
        self._fuel -= 1
        self._depth += 1
        try:
            if self._depth > 6:
                return f"{self.expression()};" if not self._chance(0.2) else f"{self._said()};"
            return self._guarded(self._weighted(*self._statements)())
        finally:
            self._depth -= 1

    def _statement_table(self) -> Table:
        return (
            (22, self._declaration),
            (20, self._expression_statement),
            (16, self._call_statement),
            (9, lambda: f"{self._said()};"),
            (7, self._if),
            (6, self._for),
            (5, self._for_each),
            (2, self._while),
            (5, self._try),
            (5, self._function_declaration),
            (4, self._class_declaration),
            (2, self._switch),
            (2, self._labelled),
            (2, self._jump),
            (1, lambda: f"throw {self._pick(WEIRD_VALUES) if self._chance(0.5) else self.expression()};"),
            (1, lambda: f"with ({self.expression()}) {self._block()}"),
            (4, lambda: self._pick(HOSTILE)),
            (4, self._timer),
            (4, self._promise_statement),
            (1, lambda: self._pick(HEAVY).replace("NAME", self._name())),
            (1, self._dangerous),
            (1, self._using),
            (2, self._deep),
            (1, lambda: ";"),
        )

    def _guarded(self, text: str) -> str:
        # What is declared in a block is not seen after it.
        if self._chance(0.85) and not text.startswith(("let ", "const ", "class ")):
            return f"try {{ {text} }} catch {{}}"
        return text

    def _dangerous(self) -> str:
        if self._chance(0.75):
            return self._expression_statement()
        return self._pick(ENDLESS if self._chance(0.4) else BOMBS).replace("NAME", self._new_name())

    def _block(self) -> str:
        with self._scope():
            return "{ " + " ".join(self.statement() for _ in range(1 + int(self._random.random() * 3))) + " }"

    def _expression_statement(self) -> str:
        text = self.expression()
        return f"({text});" if text.startswith(("{", "function", "class", "let", "async")) else f"{text};"

    def _declaration(self) -> str:
        name, value = self._new_name(), self.expression()
        kind = self._pick(("let", "let", "const", "var"))
        if self._chance(0.2):
            pattern, names = self._pattern()
            value = self._pick(WEIRD_VALUES) if self._chance(0.3) else value
            self._names.extend(names)
            return f"{kind} {pattern} = {value};"
        self._names.append(name)
        if self._chance(0.75):
            return f"var {name}; try {{ {name} = {value}; }} catch {{}}"
        return f"{kind} {name} = {value};"

    def _pattern(self) -> tuple[str, list[str]]:
        a, b, c = self._new_name(), self._new_name(), self._new_name()
        shapes = (
            (f"{{ a: {a}, b: {b} = {self.leaf()}, ...{c} }}", [a, b, c]),
            (f"[{a}, , {b} = {self.leaf()}, ...{c}]", [a, b, c]),
            (f"{{ length: {a}, [{self.leaf()}]: {b} = 1 }}", [a, b]),
            (f"[[{a}] = [1], {{ x: {b} }} = {{}}]", [a, b]),
        )
        return shapes[int(self._random.random() * len(shapes))]

    def _call_statement(self) -> str:
        name = self._new_name()
        call = self._call()
        way = self._random.random()
        if self._await and way < 0.55:
            text = f"var {name} = await {call};"
        elif way < 0.75:
            text = f"{call}.then((r) => {{ {self._said('r')}; }}, (e) => {{ {self._said('e')}; }});"
        else:
            text = f"var {name} = {call};"
        self._names.append(name)
        return text

    def _call(self) -> str:
        target = self._pick(CALLS)
        way = self._random.random()
        if way < 0.5:
            argument = self._object()
        elif way < 0.7:
            argument = self._pick(STRINGS)
        elif way < 0.8:
            argument = self._pick(WEIRD_VALUES)
        else:
            argument = self._arguments()
        if target == "tools.call":
            argument = self._pick(('"plugin:issues:list"', '"mcp:my-files:remove"', '"x"')) + ", " + argument
        return f"{target}({argument})"

    def _said(self, value: str | None = None) -> str:
        how = self._pick(SAID)
        if value is None:
            value = (
                self._pick(WEIRD_VALUES) if self._chance(0.3) else self.leaf() if self._chance(0.5) else self._name()
            )
        if how == "store":
            return f"store({self._pick(STRINGS)}, {value})"
        if how == "image":
            return f'image({{ data: "AAAA", mimeType: "image/png", x: {value} }})'
        return f"{how}({value})"

    def _if(self) -> str:
        other = f" else {self._block()}" if self._chance(0.4) else ""
        return f"if ({self.expression()}) {self._block()}{other}"

    def _for(self) -> str:
        name = self._new_name()
        count = int(self._random.random() ** 2 * 12)
        with self._scope(params=(name,)):
            self._loops += 1
            kind = self._pick(("let", "var"))
            return f"for ({kind} {name} = 0; {name} < {count}; {name}++) {self._block()}"

    def _for_each(self) -> str:
        name = self._new_name()
        kind = self._pick(("const", "let", "var"))
        way = self._random.random()
        what = self.expression()
        with self._scope(params=(name,)):
            self._loops += 1
            if way < 0.35:
                return f"for ({kind} {name} in {what}) {self._block()}"
            if way < 0.7 or not self._await:
                items = self._array() if self._chance(0.6) else f"({what})"
                return f"for ({kind} {name} of {items}) {self._block()}"
            return f"for await ({kind} {name} of {self._generator_call()}) {self._block()}"

    def _while(self) -> str:
        name = self._new_name()
        with self._scope(params=(name,)):
            self._loops += 1
            return (
                f"var {name} = {int(self._random.random() * 6)}; while ({name}-- > 0 && {self.leaf()}) {self._block()}"
            )

    def _try(self) -> str:
        name = self._new_name()
        with self._scope(params=(name,)):
            caught = f" catch ({name}) {self._block()}"
        last = f" finally {self._block()}" if self._chance(0.35) else ""
        if last and self._chance(0.2):
            caught = ""
        return f"try {self._block()}{caught}{last}"

    def _switch(self) -> str:
        cases = " ".join(f"case {self.leaf()}: {self.statement()}" for _ in range(2))
        return f"switch ({self.leaf()}) {{ {cases} default: {self._block()} }}"

    def _labelled(self) -> str:
        label = f"L{self._counter}"
        self._counter += 1
        with self._scope():
            self._labels = [*self._labels, label]
            self._loops += 1
            return f"{label}: for (const {self._new_name()} of [1, 2, 3]) {self._block()}"

    def _jump(self) -> str:
        if self._loops:
            label = f" {self._pick(self._labels)}" if self._labels and self._chance(0.6) else ""
            return f"if ({self.leaf()}) {self._pick(('break', 'continue'))}{label};"
        return f"if ({self.leaf()} === 5) return {self.leaf()};" if self._function else "debugger;"

    def _using(self) -> str:
        name = self._new_name()
        how = "await using" if self._await and self._chance(0.3) else "using"
        return f"{{ {how} {name} = {{ [Symbol.dispose]() {{ text('disposed'); }}, x: {self.leaf()} }}; {self.statement()} }}"

    def _timer(self) -> str:
        delay = self._pick(("0", "1", "5", "50", "-1", "NaN", '"7"', "2147483647", "Infinity"))
        way = self._random.random()
        with self._scope(function=True):
            block = self._block()
        if way < 0.4 and self._await:
            return f"await new Promise((r) => setTimeout(r, {delay}));"
        if way < 0.7:
            return f"setTimeout(() => {block}, {delay}, {self.leaf()});"
        if way < 0.85:
            name = self._new_name()
            return f"var {name} = setInterval(() => {{ clearInterval({name}); {self.leaf()}; }}, {delay});"
        return f"clearTimeout(setTimeout(() => {block}, {delay}));"

    def _promise_statement(self) -> str:
        many = ", ".join(self._call() if self._chance(0.6) else self.leaf() for _ in range(3))
        text = f"Promise.{self._pick(('all', 'race', 'any', 'allSettled'))}([{many}])"
        return f"await {text};" if self._await else f"{text}.catch(() => {{}});"

    def _deep(self) -> str:
        name = self._new_name()
        forms = (
            f"function {name}(n) {{ return n ? 1 + {name}(n - 1) : 0; }} text({name}({int(self._random.random() * 400)}));",
            f"function {name}() {{ return {name}() + 1; }} try {{ {name}(); }} catch (e) {{ text(e.name); }}",
            f"var {name} = {{}}; {name}.toString = () => '' + {name}; try {{ '' + {name}; }} catch (e) {{ text(e.name); }}",
            f"var {name} = new Proxy({{}}, {{ get(t, k, r) {{ return r[k]; }} }}); try {{ {name}.x; }} catch (e) {{ text(e.name); }}",
            f"var {name} = []; for (let i = 0; i < 2000; i++) {name} = [{name}]; try {{ JSON.stringify({name}); }} catch (e) {{ text(e.name); }}",
            "try { eval('('.repeat(5000) + ')'.repeat(5000)); } catch (e) { text(e.name); }",
            f"class {name} {{ static get x() {{ return new {name}().y; }} get y() {{ return {name}.x; }} }} try {{ {name}.x; }} catch (e) {{ text(e.name); }}",
            f"async function {name}(n) {{ return n ? 1 + (await {name}(n - 1)) : 0; }} {name}(100).then(text);",
            "try { new Function('return ' + '['.repeat(3000) + ']'.repeat(3000))(); } catch (e) { text(e.name); }",
            "try { structuredClone((() => { let o = 0; for (let i = 0; i < 3000; i++) o = { o }; return o; })()); } catch (e) { text(e.name); }",
            "try { new RegExp('('.repeat(2000) + ')'.repeat(2000)).test(''); } catch (e) { text(e.name); }",
        )
        return forms[int(self._random.random() * len(forms))]

    # functions and classes

    def _function_declaration(self) -> str:
        name = self._new_name()
        text = self._function_text(name)
        self._names.append(name)
        return text

    def _function_text(self, name: str = "") -> str:
        kind = self._pick(("function", "function", "async function", "function*", "async function*"))
        params, names = self._parameters()
        with self._scope(
            function=True, can_await=kind.startswith("async"), can_yield=kind.endswith("*"), params=tuple(names)
        ):
            body = self._function_body()
        return f"{kind} {name}({params}) {body}"

    def _parameters(self) -> tuple[str, list[str]]:
        a, b = self._new_name(), self._new_name()
        way = self._random.random()
        if way < 0.3:
            return "", []
        if way < 0.7:
            return f"{a}, {b}", [a, b]
        if way < 0.85:
            return f"{a} = {self._pick(NUMBERS)}, ...{b}", [a, b]
        return f"{{ x: {a} = 1, ...{b} }} = {{}}", [a, b]

    def _function_body(self) -> str:
        inside = " ".join(self.statement() for _ in range(1 + int(self._random.random() * 2)))
        step = (
            f"yield {self.leaf()}; "
            if self._yield
            else f"await {self.leaf()}; "
            if self._await and self._chance(0.5)
            else ""
        )
        return f"{{ {inside} {step}return {self.leaf()}; }}"

    def _arrow(self) -> str:
        way = self._random.random()
        name = self._new_name()
        is_async = "async " if self._chance(0.15) else ""
        with self._scope(function=True, can_await=bool(is_async), params=(name,)):
            if way < 0.5:
                body = self.leaf()
                return f"{is_async}({name}) => ({body})"
            if way < 0.8:
                return f"{is_async}({name}) => {self._function_body()}"
            return f"{is_async}(...{name}) => {{ {self.statement()} }}"

    def _generator_call(self) -> str:
        with self._scope(function=True, can_await=True, can_yield=True):
            return f"(async function* () {self._function_body()})()"

    def _class_declaration(self) -> str:
        name = self._new_name()
        text = self._class_text(name)
        self._names.append(name)
        return text

    def _class_text(self, name: str = "") -> str:
        base = ""
        if self._chance(0.35):
            base = f" extends {self._pick(('Array', 'Map', 'Promise', 'Error', 'Function', 'Uint8Array', 'Object', 'null'))}"
        held, self._private = self._private, ["#p", "#q"]
        members = [f"#p = {self.leaf()};", f"static #q = {self.leaf()};"]
        with self._scope(function=True):
            members += [self._member() for _ in range(int(self._random.random() * 4))]
        self._private = held
        return f"class {name}{base} {{ {' '.join(members)} }}"

    def _member(self) -> str:
        key = self._pick(KEYS)
        static = self._pick(("", "", "static "))
        way = self._random.random()
        if way < 0.15:
            return f"['c' + 1]() {{ {self.statement()} }}" if self._chance(0.3) else "m() { return this.#p; }"
        if way < 0.35:
            return f"{static}get [{self.leaf()}]() {{ return {self.leaf()}; }}"
        if way < 0.5:
            return f"{static}set x(v) {{ this.y = v; }}"
        if way < 0.6:
            return f"static {{ {self.statement()} }}"
        if way < 0.7:
            return "has(o) { return #p in o; }"
        if way < 0.8:
            return f"{static}['f' + {self.leaf()}] = {self.leaf()};"
        if key in ("constructor", "static", "get", "set", "async", "__proto__", '"__proto__"'):
            key = "named"
        return f"{static}{self._pick(('', '', 'async ', '*', 'async *'))}{key}() {{ return {self.leaf()}; }}"

    # expressions

    def expression(self) -> str:
        self._fuel -= 1
        self._depth += 1
        try:
            if self._depth > 7 or self._fuel < -30:
                return self.leaf()
            return self._weighted(*self._expressions)()
        finally:
            self._depth -= 1

    def _expression_table(self) -> Table:
        return (
            (16, self.leaf),
            (12, self._binary),
            (4, lambda: f"({self._pick(UNARY)}({self.expression()}))"),
            (6, self._assignment),
            (4, lambda: f"({self.expression()} ? {self.leaf()} : {self.expression()})"),
            (8, self._access),
            (10, lambda: f"{self._pick(STATICS)}({self._arguments()})"),
            (14, self._method),
            (6, self._array),
            (7, self._object),
            (6, lambda: f"({self._arrow()})"),
            (2, lambda: f"({self._function_text()})"),
            (1, lambda: f"({self._class_text()})"),
            (6, self._construction),
            (5, lambda: self._pick(WEIRD_VALUES)),
            (3, self._template),
            (3, lambda: f"(await {self.expression()})" if self._await else self.leaf()),
            (3, lambda: f"(yield {self.leaf()})" if self._yield else self.leaf()),
            (2, self._proxy),
            (2, self._code_from_text),
            (3, self._iteration),
            (2, self._buffers),
            (1, self._clock),
            (3, lambda: f"(await {self._call()})" if self._await else f"{self._call()}"),
            (1, lambda: f"this.{self._pick(self._private)}" if self._private else self.leaf()),
        )

    def leaf(self) -> str:
        way = self._random.random()
        if way < 0.35:
            return self._name()
        if way < 0.55:
            return self._pick(NUMBERS) if way > 0.4 else f"({self._pick(NUMBERS)})"
        if way < 0.72:
            return self._pick(STRINGS)
        if way < 0.8:
            return self._pick(("null", "undefined", "true", "false", "[]", "({})", "0n", "-5n", "2n ** 64n"))
        if way < 0.85:
            return self._pick(REGEXES)
        if way < 0.93:
            return self._pick(GLOBALS) if self._function or way < 0.9 else "globalThis"
        return self._pick(CONSTRUCTORS)

    def _binary(self) -> str:
        operator = self._pick(BINARY)
        if operator == "**":
            return f"(({self.leaf()}) ** ({self.leaf()}))"
        if operator == "<<" and self._chance(0.5):
            operator = "+"
        return f"({self.expression()} {operator} {self.expression()})"

    def _assignment(self) -> str:
        target = self._name() if self._chance(0.3) else f"{self._name()}.{self._pick(PROPERTIES)}"
        if self._chance(0.15):
            return f"({target}{self._pick(('++', '--'))})"
        if self._chance(0.15):
            return f"([{target}, {self._name()}.a] = {self.expression()})"
        return f"({target} {self._pick(ASSIGN)} {self.expression()})"

    def _access(self) -> str:
        of = f"({self.expression()})"
        way = self._random.random()
        if way < 0.5:
            return f"{of}{self._pick(('.', '.', '?.'))}{self._pick(PROPERTIES)}"
        if way < 0.85:
            return f"{of}{self._pick(('', '?.'))}[{self.leaf()}]"
        return f"{of}[Symbol.{self._pick(WELL_KNOWN)}]"

    def _arguments(self) -> str:
        count = int(self._random.random() * 3.5)
        parts = [self._arrow() if self._chance(0.2) else self.expression() for _ in range(count)]
        if parts and self._chance(0.08):
            parts[-1] = f"...{self._array()}"
        return ", ".join(f"({part})" if part.startswith("async") else part for part in parts)

    def _method(self) -> str:
        way = self._random.random()
        if way < 0.35:
            of = self._array()
        elif way < 0.5:
            of = f"{self._pick(STRINGS)}"
        elif way < 0.75:
            of = self._name()
        else:
            of = f"({self.expression()})"
        return f"{of}{'?.' if self._chance(0.1) else '.'}{self._pick(METHODS)}({self._arguments()})"

    def _array(self) -> str:
        parts = [self.expression() if self._chance(0.4) else self.leaf() for _ in range(int(self._random.random() * 5))]
        if parts and self._chance(0.1):
            parts[0] = "..." + parts[0]
        if parts and self._chance(0.05):
            parts.insert(0, "")
        return f"[{', '.join(parts)}]"

    def _object(self) -> str:
        parts = []
        proto = False
        for _ in range(int(self._random.random() * 4)):
            key = self._pick(KEYS)
            if "__proto__" in key and proto:
                continue
            proto = proto or "__proto__" in key
            way = self._random.random()
            if way < 0.55:
                parts.append(f"{key}: {self.expression() if self._chance(0.4) else self.leaf()}")
            elif way < 0.7:
                with self._scope(function=True):
                    parts.append(
                        f"get {key}() {{ {self.statement() if self._chance(0.3) else ''} return {self.leaf()}; }}"
                    )
            elif way < 0.8:
                with self._scope(function=True):
                    parts.append(f"set {key}(v) {{ {self.leaf()}; }}")
            elif way < 0.92:
                kind = self._pick(("", "", "async ", "*", "async *"))
                with self._scope(function=True, can_await="async" in kind, can_yield="*" in kind):
                    parts.append(f"{kind}{key}() {self._function_body()}")
            else:
                parts.append(f"...({self.leaf()})")
        return f"({{ {', '.join(parts)} }})"

    def _construction(self) -> str:
        name = self._pick(CONSTRUCTORS)
        if name == "Promise":
            return (
                f"new Promise((f, r) => {{ {self._pick(('f', 'r', 'setTimeout(f, 3); (x => x)'))}({self.leaf()}); }})"
            )
        if name == "Function":
            return self._code_from_text()
        if name in ("ArrayBuffer", *TYPED, "Array") and self._chance(0.6):
            return f"new {name}({int(self._random.random() ** 3 * 5000)})"
        return f"new {name}({self._arguments()})"

    def _template(self) -> str:
        tag = self._pick(("", "", "String.raw", "((s, ...v) => [s.raw, v])", self._name()))
        return f"{tag}`a${{{self.expression()}}}\\n${{{self.leaf()}}}`"

    def _proxy(self) -> str:
        traps = (
            "get",
            "set",
            "has",
            "ownKeys",
            "getPrototypeOf",
            "defineProperty",
            "deleteProperty",
            "apply",
            "construct",
        )
        trap = self._pick(traps)
        with self._scope(function=True, params=("t", "k", "r")):
            body = f"Reflect.{trap}(...arguments)" if self._chance(0.5) else self.expression()
        target = self._pick(("{}", "[]", "function () {}", "new Map()", "class {}"))
        return f"new Proxy({target}, {{ {trap}(t, k, r) {{ return {body}; }} }})"

    def _code_from_text(self) -> str:
        with self._scope(function=True):
            source = self.expression() if self._chance(0.6) else self.statement()
        quoted = source.replace("\\", "\\\\").replace("`", "\\`").replace("${", "\\${")
        how = self._pick(
            ("eval({})", "(0, eval)({})", "new Function({})()", "new Function('a', {})(1)", "Function({})")
        )
        return how.format(f"`{quoted}`")

    def _iteration(self) -> str:
        forms = (
            f"[...(function* () {{ try {{ yield* [1, {self.leaf()}]; }} finally {{ {self.leaf()}; }} }})()]",
            f"Array.from({{ length: {int(self._random.random() * 20)} }}, (x, i) => i)",
            f"new Map([[{self.leaf()}, {self.leaf()}]])",
            f"new Set({self._array()})",
            f"Object.entries({self._object()})",
            "(() => { const g = (function* () { const x = yield 1; return x; })(); g.next(); return g.next(5).value; })()",
            f"Iterator.from([1, 2, 3]).map((x) => x * {self._pick(NUMBERS)}).toArray()",
            f"[3, 1, 2].sort((a, b) => {self.leaf()})",
            f"Object.groupBy([1, 2, 3], (x) => {self.leaf()})",
        )
        return forms[int(self._random.random() * len(forms))]

    def _buffers(self) -> str:
        kind = self._pick(TYPED)
        size = int(self._random.random() ** 2 * 64)
        forms = (
            f"(() => {{ const b = new ArrayBuffer(16, {{ maxByteLength: 64 }}); const t = new {kind}(b); b.resize({size}); return [t.length, t[0]]; }})()",
            f"new {kind}([1, 2, 3].map({'BigInt' if kind.startswith('Big') else 'Number'})).map((x) => {{ return x; }})",
            f"(() => {{ const b = new ArrayBuffer(8); const t = new Uint8Array(b); b.transfer?.(); return t.fill({size}).length; }})()",
            f"new DataView(new ArrayBuffer(32)).setFloat64({size}, {self._pick(NUMBERS)})",
            f"new {kind}({size}).set({self._array()}, {self._pick(NUMBERS)})",
            f"[5, 1, 4].sort.call(new {kind}({size}), () => {self.leaf()})",
            f"(() => {{ class T extends Uint8Array {{ static get [Symbol.species]() {{ return {kind}; }} }} return new T({size}).slice(1); }})()",
            f"(() => {{ const a = [1, 2, 3]; a.constructor = {{ [Symbol.species]: function (n) {{ return {self.leaf()}; }} }}; return a.map((x) => {{ a.length = 0; return x; }}); }})()",
            f"(() => {{ const b = new ArrayBuffer(64, {{ maxByteLength: 64 }}); const t = new Uint8Array(b); return t.subarray(0, {{ valueOf() {{ b.resize({size}); return 64; }} }}).length; }})()",
        )
        return forms[int(self._random.random() * len(forms))]

    def _clock(self) -> str:
        self.uses_clock = True
        return self._pick(CLOCK)
