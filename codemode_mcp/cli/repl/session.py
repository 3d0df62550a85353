"""Names of earlier programs of a session, put in front of the next one, so that a session feels like one. Pure.

Each input is a program of its own in a fresh sandbox. At its end, what it has declared at its top is kept by `store` as
far as it is JSON, and functions as their text; before the next one begins, these are global variables. So a program may
declare any of them again. The author's lines stand one line further down in what is run; positions are put right again.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

KEY: Final = "codemode-mcp repl"
"""Under which `store` keeps the names of a session."""

MAX_KEPT: Final = 16 * 1024 * 1024
"""Characters of all that is kept."""

# Each of them is one line: the author's first line is the second of the program.
_BEFORE: Final = """
let %(names)s = { load: globalThis.load, store: globalThis.store, globalThis, %(language)s };
%(restored)s
try {
%(names)s.read = { %(getters)s };
"""
_RESTORED: Final = """
{
  const { %(language)s } = %(names)s;
  const define = (name, how) => {
    try { Object.defineProperty(%(names)s.globalThis, name, { configurable: true, ...how }); } catch {}
  };
  const value = (name, value) => define(name, { value, writable: true, enumerable: true });
  for (const [name, kept] of Object.entries((await %(names)s.load(%(key)s)) ?? {})) {
    if (kept === null || typeof kept !== "object") continue;
    if (kept.source !== undefined) {
      let made;
      define(name, { enumerable: true, get: () => (made ??= (0, eval)("(" + kept.source + "\\n)")),
        set: (other) => value(name, other) });
    } else if (kept.lost !== undefined) {
      define(name, { get() { throw new ReferenceError(name + " was " + kept.lost + ", which a later input has not: "
        + "each is a program of its own, to which JSON and the text of functions are passed on"); },
        set: (other) => value(name, other) });
    } else {
      value(name, kept.value);
    }
  }
  %(last)s
}
"""
_AFTER: Final = """
} finally { try {
  const { globalThis, %(language)s } = %(names)s;
  const kept = (await %(names)s.load(%(key)s)) ?? {};
  const isData = (v) => v === null || v === undefined || typeof v === "string" || typeof v === "boolean"
    || (typeof v === "number" ? Number.isFinite(v) : typeof v === "object" && (Array.isArray(v) ? v.every(isData)
    : [null, Object.prototype].includes(Object.getPrototypeOf(v)) && Object.values(v).every(isData)));
  const kind = (v) => typeof v === "function" ? "a function that cannot be written down"
    : typeof v !== "object" ? (typeof v === "number" ? String(v) : "a " + typeof v)
    : Array.isArray(v) || Object.getPrototypeOf(v) === Object.prototype ? "more than JSON can say"
    : "a " + (v.constructor?.name ?? "special object");
  const pack = (v) => {
    if (typeof v === "function") {
      const source = Function.prototype.toString.call(v);
      try { new Function("(" + source + "\\n)"); return { source }; } catch { return { lost: kind(v) }; }
    }
    try { if (isData(v)) return { value: v }; } catch {}
    return { lost: kind(v) };
  };
  let room = %(room)s;
  const keep = (name, read) => {
    let packed;
    try { packed = pack(read()); } catch { return; }
    room -= (JSON.stringify(packed) ?? "").length;
    if (room < 0) packed = { lost: "too large" };
    delete kept[name];
    Object.defineProperty(kept, name, { value: packed, configurable: true, enumerable: true });
  };
  for (const name of Object.keys(globalThis))
    if (name !== "_" && !(kept[name]?.source !== undefined && Object.getOwnPropertyDescriptor(globalThis, name).get))
      keep(name, () => globalThis[name]);
  for (const [name, read] of Object.entries(%(names)s.read)) keep(name, read);
  %(names)s.store(%(key)s, kept);
} catch {} }
"""
_NAMES: Final = "$codemode_repl"
_LANGUAGE: Final = "Array, Function, JSON, Number, Object, ReferenceError, String"
"""Built-ins of which a session may have names of its own."""

_OURS: Final = re.compile(r"\n[ \t]*at [^\n]*?\bcell\.[jt]s:1:[0-9]{1,9}\)?(?=\n|\Z)")
"""A frame of a stack in the first line, which no author has written."""
_POSITION: Final = re.compile(r"\b(cell\.[jt]s):(\d{1,9}):(\d{1,9})\b")


def _line(text: str) -> str:
    return " ".join(line.strip() for line in text.strip().split("\n"))


def wrapped(source: str, names: Sequence[str], *, earlier: bool, last: str | None = None) -> str:
    """Return the program that is run for an input.

    Args:
        source: what the author wrote, or that with its implicit `return`.
        names: that it declares at its top.
        earlier: whether it may speak of names of earlier inputs.
        last: what to `load` for the value of the input before; None where the program does not use it.
    """
    words = {
        "key": json.dumps(KEY),
        "names": _NAMES,
        "language": _LANGUAGE,
        "getters": ", ".join(f"{json.dumps(name)}: () => {name}" for name in names),
        "room": MAX_KEPT,
        "last": "" if last is None else f'value("_", await {_NAMES}.load({json.dumps(last)}));',
    }
    words["restored"] = _RESTORED % words if earlier or last is not None else ""
    return f"{_line(_BEFORE % words)}\n{source}\n{_line(_AFTER % words)}"


def unwrapped(text: str, lines: int, author: Callable[[int, int], tuple[int, int]]) -> str:
    """Text with positions in a wrapped program, as an error has them, with the author's instead.

    Args:
        lines: of the author's text.
        author: takes away what the implicit `return` has put in.
    """

    def position(match: re.Match[str]) -> str:
        line, column = int(match[2]) - 1, int(match[3])
        if not 1 <= line <= lines:
            return match[0] if line > lines else f"{match[1]}:1:1"
        line, column = author(line, column)
        return f"{match[1]}:{line}:{column}"

    return _POSITION.sub(position, _OURS.sub("", text))


def position_in(text: str) -> tuple[int, int] | None:
    """Return the first position of a program that an error names, as line and column."""
    match = _POSITION.search(text)
    return None if match is None else (int(match[2]), int(match[3]))


def spoken_of(source: str) -> set[str]:
    """Return the names that a program may speak of, and other words."""
    return set(re.findall(r"[\w$]+", source))


class Kept:
    """Names of a session, as the store holds them.

    Args:
        text: the JSON under `KEY`, if there is some.
    """

    def __init__(self, text: str | None) -> None:
        found = {} if text is None else json.loads(text)
        # A program may have put anything there.
        every = found.items() if isinstance(found, dict) else ()
        self._all: dict[str, dict[str, Any]] = {name: each for name, each in every if isinstance(each, dict)}

    def __repr__(self) -> str:
        return f"<Kept: {', '.join(self._all)}>"

    @property
    def names(self) -> set[str]:
        return {*self._all}

    @property
    def values(self) -> dict[str, Any]:
        return {name: each.get("value") for name, each in self._all.items() if not {"source", "lost"} & each.keys()}

    @property
    def functions(self) -> list[str]:
        return [name for name, each in self._all.items() if "source" in each]

    @property
    def lost(self) -> dict[str, str]:
        """Names of what could not be kept, and what it was."""
        return {name: str(each["lost"]) for name, each in self._all.items() if "lost" in each}
