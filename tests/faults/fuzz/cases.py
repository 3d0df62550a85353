"""Cases made from seeds: a program, its input, and, where known by construction, its end. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

from tests.faults.fuzz.grammar import PARTS, Grammar
from tests.faults.fuzz.mutation import mutate, seeds, typescript_seeds

MIB = 1024 * 1024

Kind = Literal["grammar", "mutation", "known"]

_TELLS_TIME = re.compile(r"\b(?:Date|performance|now)\b")


@dataclass(frozen=True, slots=True)
class Known:
    """The known end of a program.

    Attributes:
        codes: `completed`, `waiting` or an error code; any of them.
        value: what it returns, when that is known too.
        says: part of the error's message.
    """

    codes: tuple[str, ...]
    value: Any = ...
    says: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """One program to run.

    Attributes:
        memory_limit: bytes.
        seconds: what one turn may compute.
        repeatable: it does the same whenever it is run with the same answers.
    """

    seed: int
    kind: Kind
    source: str
    memory_limit: int
    seconds: float
    repeatable: bool
    known: Known | None = None

    def random(self, purpose: str) -> Random:
        """Choices about this case that are not its program's."""
        return Random(f"{self.seed} {purpose}")


def case(seed: int) -> Case:
    """Return the case of a seed; always the same."""
    random = Random(seed)
    way = random.random()
    memory_limit = random.choice((4, 8, 8, 8, 16, 16, 64)) * MIB
    seconds = random.choice((0.03, 0.03, 0.05, 0.08))
    if way < 0.2:
        source, known, patient = _known(random)
        # What ends by itself gets the time for it, on a busy machine too.
        seconds = 20.0 if patient else seconds
        return Case(seed, "known", source, memory_limit, seconds, not _TELLS_TIME.search(source), known)
    if way < 0.45:
        typed = typescript_seeds()
        start = random.choice(typed if typed and random.random() < 0.04 else seeds())
        source = mutate(random, start)
        return Case(seed, "mutation", source, memory_limit, seconds, not _TELLS_TIME.search(source))
    source = Grammar(random, 4 + int(random.random() ** 2 * 120)).program()
    return Case(seed, "grammar", source, memory_limit, seconds, not _TELLS_TIME.search(source))


# programs whose end is known


def _hostile(random: Random, *, calls: bool = False) -> str:
    """Attempts on the built-ins, none of which ends the program."""
    chosen = random.sample(PARTS.hostile, int(random.random() * 6))
    if calls:
        # The engine's own JSON.stringify trips over setters for indices; then the arguments cannot be sent.
        chosen = [statement for statement in chosen if "Array.prototype, '0'" not in statement]
    return "\n".join(f"try {{ {statement} }} catch {{}}" for statement in chosen)


def _known(random: Random) -> tuple[str, Known, bool]:
    """Return a program, how it ends, and whether it ends by itself."""
    mark = f"mark-{int(random.random() * 1e9)}"
    hostile = _hostile(random)
    match int(random.random() * 16):
        case 0:
            source = f'const Kept = Error;\n{hostile}\nthrow new Kept("{mark}");'
            return source, Known(("internal_error",), says=mark), True
        case 1:
            value = random.choice((mark, 42, -0.5, True, None, mark + "é😀\u2028"))
            return f"{hostile}\nreturn {json.dumps(value)};", Known(("completed",), value), True
        case 2:
            source = (
                f"const call = MCP.files.readFile;\n{_hostile(random, calls=True)}\n"
                f'const result = await call({{ echo: "{mark}" }});\nreturn result.structuredContent.echo;'
            )
            return source, Known(("completed",), mark), True
        case 3:
            source = random.choice(PARTS.endless).replace("NAME", "v0")
            if random.random() < 0.5:
                source = f"try {{ {source} }} catch {{}} finally {{ for (;;) {{}} }}"
            return source, Known(("timeout",)), False
        case 4:
            source = random.choice(PARTS.bombs).replace("NAME", "v0")
            return source, Known(("memory_limit_exceeded", "timeout")), False
        case 5:
            # A comment or a string that is open would swallow what is broken.
            start = Grammar(random, 8).program()
            return f"{start}\n;{random.choice(PARTS.broken)}", Known(("invalid_input",)), True
        case 6:
            text, value = _arithmetic(random, 4)
            return f"return {text};", Known(("completed",), value), True
        case 7:
            return f"{random.choice(PARTS.modules)}", Known(("module_access_denied",)), True
        case 8:
            return f"{hostile}\nthrow {random.choice(PARTS.thrown)};", Known(("internal_error",)), True
        case 9:
            waits = random.choice(
                (
                    "new Promise(() => {})",
                    "{ then() {} }",
                    "Promise.race([])",
                    "(async () => await new Promise(() => {}))()",
                )
            )
            return f"await {waits};", Known(("internal_error",), says="nothing can settle"), True
        case 10:
            source = (
                f'const call = MCP.files.remove;\n{_hostile(random, calls=True)}\nawait call({{ fail: "{mark}" }});'
            )
            return source, Known(("nested_tool_failed",), says=mark), True
        case 11:
            loops = ("function f() { return f() + 1; } f();", "const a = {}; a.toString = () => `${a}`; `${a}`;")
            return random.choice(loops), Known(("internal_error",), says="RangeError"), True
        case 12:
            source = (
                "let last;\nfor (let i = 0; i < 3000; i++) {\n"
                "  last = MCP.files.readFile({ i });\n  last.catch(() => {});\n}\nawait last;"
            )
            return source, Known(("too_many_pending_tool_calls",)), True
        case 13:
            source = f'Promise.reject(new Error("{mark}"));\nawait null;\n{hostile}\nreturn 1;'
            return source, Known(("completed",), 1), True
        case 14:
            return (
                f'text("{mark}");\nawait yield_control("{mark}");\nreturn "{mark}";',
                Known(("waiting", "completed")),
                True,
            )
        case _:
            shape, value = _literal(random, 4)
            return f"return {shape};", Known(("completed",), value), True


def _arithmetic(random: Random, depth: int) -> tuple[str, int | bool]:
    """Return an expression over small integers, and what it comes to."""
    if depth == 0 or random.random() < 0.2:
        number = int(random.random() * 2000) - 1000
        return f"({number})", number
    left, a = _arithmetic(random, depth - 1)
    right, b = _arithmetic(random, depth - 1)
    match int(random.random() * 6):
        case 0:
            return f"({left} + {right})", a + b
        case 1:
            return f"({left} - {right})", a - b
        case 2 if abs(a * b) < 2**40:
            return f"(({left} * {right}) | 0)", (a * b + 2**31) % 2**32 - 2**31
        case 3:
            return f"Math.max({left}, {right})", max(a, b)
        case 4:
            return f"({left} < {right} ? {left} : {right})", min(a, b)
        case _:
            return f"[{left}, {right}].reduce((a, b) => a + b)", a + b


def _literal(random: Random, depth: int) -> tuple[str, Any]:
    """Return a literal, and the JSON it is told as."""
    way = random.random()
    if depth == 0 or way < 0.4:
        return random.choice(
            (
                *(
                    ("1", 1),
                    ("undefined", None),
                    ("null", None),
                    ('"é"', "é"),
                    ("5n", 5),
                    ("NaN", None),
                    ("true", True),
                ),
                *(("new Set([1])", [1]), ("[]", []), ("({})", {}), ('"\\ud800"', "\ufffd"), ("1e21", 1e21)),
            )
        )
    parts = [_literal(random, depth - 1) for _ in range(int(random.random() * 4))]
    if way < 0.7:
        return f"[{', '.join(text for text, _ in parts)}]", [value for _, value in parts]
    text = ", ".join(f"k{index}: {part}" for index, (part, _) in enumerate(parts))
    left = {f"k{index}": value for index, (part, value) in enumerate(parts) if part != "undefined"}
    return f"({{ {text} }})", left
