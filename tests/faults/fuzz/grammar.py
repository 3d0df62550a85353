"""Random programs from a weighted grammar of JavaScript and of what a program is given. Pure: a `Random` in, text out.

Most programs parse, because a grammar wrote them; most throw sooner or later, because nothing keeps track of types. So
statements are often wrapped in `try`, loops are mostly bounded, and what ends a program for sure is rare.
"""

# ruff: noqa: E501 - a fragment of a program is one line

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Final


def _fragments() -> SimpleNamespace:
    """Return the fragments by the names of their sections."""
    found: dict[str, list[str]] = {}
    for line in Path(__file__).with_name("fragments.txt").read_text("utf-8").split("\n"):
        if line.startswith("## "):
            section = found[line.removeprefix("## ")] = []
        elif line and not line.startswith("# "):
            section.append(line)
    return SimpleNamespace(**{name: tuple(lines) for name, lines in found.items()})


PARTS: Final = _fragments()


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
            (1, lambda: f"throw {self._pick(PARTS.weird_values) if self._chance(0.5) else self.expression()};"),
            (1, lambda: f"with ({self.expression()}) {self._block()}"),
            (4, lambda: self._pick(PARTS.hostile)),
            (4, self._timer),
            (4, self._promise_statement),
            (1, lambda: self._pick(PARTS.heavy).replace("NAME", self._name())),
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
        return self._pick(PARTS.endless if self._chance(0.4) else PARTS.bombs).replace("NAME", self._new_name())

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
            value = self._pick(PARTS.weird_values) if self._chance(0.3) else value
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
        target = self._pick(PARTS.calls)
        way = self._random.random()
        if way < 0.5:
            argument = self._object()
        elif way < 0.7:
            argument = self._pick(PARTS.strings)
        elif way < 0.8:
            argument = self._pick(PARTS.weird_values)
        else:
            argument = self._arguments()
        if target == "tools.call":
            argument = self._pick(('"plugin:issues:list"', '"mcp:my-files:remove"', '"x"')) + ", " + argument
        return f"{target}({argument})"

    def _said(self, value: str | None = None) -> str:
        how = self._pick(PARTS.said)
        if value is None:
            value = (
                self._pick(PARTS.weird_values)
                if self._chance(0.3)
                else self.leaf()
                if self._chance(0.5)
                else self._name()
            )
        if how == "store":
            return f"store({self._pick(PARTS.strings)}, {value})"
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
            return f"{a} = {self._pick(PARTS.numbers)}, ...{b}", [a, b]
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
        key = self._pick(PARTS.keys)
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
            (4, lambda: f"({self._pick(PARTS.unary)}({self.expression()}))"),
            (6, self._assignment),
            (4, lambda: f"({self.expression()} ? {self.leaf()} : {self.expression()})"),
            (8, self._access),
            (10, lambda: f"{self._pick(PARTS.statics)}({self._arguments()})"),
            (14, self._method),
            (6, self._array),
            (7, self._object),
            (6, lambda: f"({self._arrow()})"),
            (2, lambda: f"({self._function_text()})"),
            (1, lambda: f"({self._class_text()})"),
            (6, self._construction),
            (5, lambda: self._pick(PARTS.weird_values)),
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
            return self._pick(PARTS.numbers) if way > 0.4 else f"({self._pick(PARTS.numbers)})"
        if way < 0.72:
            return self._pick(PARTS.strings)
        if way < 0.8:
            return self._pick(("null", "undefined", "true", "false", "[]", "({})", "0n", "-5n", "2n ** 64n"))
        if way < 0.85:
            return self._pick(PARTS.regexes)
        if way < 0.93:
            return self._pick(PARTS.globals) if self._function or way < 0.9 else "globalThis"
        return self._pick(PARTS.constructors)

    def _binary(self) -> str:
        operator = self._pick(PARTS.binary)
        if operator == "**":
            return f"(({self.leaf()}) ** ({self.leaf()}))"
        if operator == "<<" and self._chance(0.5):
            operator = "+"
        return f"({self.expression()} {operator} {self.expression()})"

    def _assignment(self) -> str:
        target = self._name() if self._chance(0.3) else f"{self._name()}.{self._pick(PARTS.properties)}"
        if self._chance(0.15):
            return f"({target}{self._pick(('++', '--'))})"
        if self._chance(0.15):
            return f"([{target}, {self._name()}.a] = {self.expression()})"
        return f"({target} {self._pick(PARTS.assign)} {self.expression()})"

    def _access(self) -> str:
        of = f"({self.expression()})"
        way = self._random.random()
        if way < 0.5:
            return f"{of}{self._pick(('.', '.', '?.'))}{self._pick(PARTS.properties)}"
        if way < 0.85:
            return f"{of}{self._pick(('', '?.'))}[{self.leaf()}]"
        return f"{of}[Symbol.{self._pick(PARTS.well_known)}]"

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
            of = f"{self._pick(PARTS.strings)}"
        elif way < 0.75:
            of = self._name()
        else:
            of = f"({self.expression()})"
        return f"{of}{'?.' if self._chance(0.1) else '.'}{self._pick(PARTS.methods)}({self._arguments()})"

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
            key = self._pick(PARTS.keys)
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
        name = self._pick(PARTS.constructors)
        if name == "Promise":
            return (
                f"new Promise((f, r) => {{ {self._pick(('f', 'r', 'setTimeout(f, 3); (x => x)'))}({self.leaf()}); }})"
            )
        if name == "Function":
            return self._code_from_text()
        if name in ("ArrayBuffer", *PARTS.typed, "Array") and self._chance(0.6):
            return f"new {name}({int(self._random.random() ** 3 * 5000)})"
        return f"new {name}({self._arguments()})"

    def _template(self) -> str:
        tag = self._pick(("", "", "String.raw", "((s, ...v) => [s.raw, v])", self._name()))
        return f"{tag}`a${{{self.expression()}}}\\n${{{self.leaf()}}}`"

    def _proxy(self) -> str:
        traps = (
            *("get", "set", "has", "ownKeys", "getPrototypeOf", "defineProperty", "deleteProperty", "apply"),
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
            f"Iterator.from([1, 2, 3]).map((x) => x * {self._pick(PARTS.numbers)}).toArray()",
            f"[3, 1, 2].sort((a, b) => {self.leaf()})",
            f"Object.groupBy([1, 2, 3], (x) => {self.leaf()})",
        )
        return forms[int(self._random.random() * len(forms))]

    def _buffers(self) -> str:
        kind = self._pick(PARTS.typed)
        size = int(self._random.random() ** 2 * 64)
        forms = (
            f"(() => {{ const b = new ArrayBuffer(16, {{ maxByteLength: 64 }}); const t = new {kind}(b); b.resize({size}); return [t.length, t[0]]; }})()",
            f"new {kind}([1, 2, 3].map({'BigInt' if kind.startswith('Big') else 'Number'})).map((x) => {{ return x; }})",
            f"(() => {{ const b = new ArrayBuffer(8); const t = new Uint8Array(b); b.transfer?.(); return t.fill({size}).length; }})()",
            f"new DataView(new ArrayBuffer(32)).setFloat64({size}, {self._pick(PARTS.numbers)})",
            f"new {kind}({size}).set({self._array()}, {self._pick(PARTS.numbers)})",
            f"[5, 1, 4].sort.call(new {kind}({size}), () => {self.leaf()})",
            f"(() => {{ class T extends Uint8Array {{ static get [Symbol.species]() {{ return {kind}; }} }} return new T({size}).slice(1); }})()",
            f"(() => {{ const a = [1, 2, 3]; a.constructor = {{ [Symbol.species]: function (n) {{ return {self.leaf()}; }} }}; return a.map((x) => {{ a.length = 0; return x; }}); }})()",
            f"(() => {{ const b = new ArrayBuffer(64, {{ maxByteLength: 64 }}); const t = new Uint8Array(b); return t.subarray(0, {{ valueOf() {{ b.resize({size}); return 64; }} }}).length; }})()",
        )
        return forms[int(self._random.random() * len(forms))]

    def _clock(self) -> str:
        self.uses_clock = True
        return self._pick(PARTS.clock)
