"""The names of a session, which later programs can use as if all inputs were one program. Pure.

Each input is a separate program in a fresh sandbox. When the program ends, `store` keeps its top-level declarations if
they are JSON, and the text of its functions. Before the next program begins, these become global variables. A program
can declare the name of a global variable again. Code around the author's source does all this, so the source begins in
the second line. Positions in messages are changed back to positions in the source.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.saved_programs.saved_program import OF_REPL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAX_KEPT: Final = 16 * 1024 * 1024
"""Maximum number of characters of all values that are kept, as JSON."""

# Each of these texts becomes one line, so that the line numbers of the source are shifted by a constant.
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
_NAMES: Final = OF_REPL
_LANGUAGE: Final = "Array, Function, JSON, Number, Object, ReferenceError, String"
"""Built-ins for the code around a program. That code keeps references, because a session may declare these names."""

_OUR_FRAME: Final = re.compile(r"\n[ \t]*at [^\n]*?\bcell\.[jt]s:1:[0-9]{1,9}\)?(?=\n|\Z)")
"""A stack frame in the first line, which is not the author's code."""

_POSITION: Final = re.compile(r"\b(cell\.[jt]s):(\d{1,9}):(\d{1,9})\b")


def _line(text: str) -> str:
    return " ".join(line.strip() for line in text.strip().split("\n"))


def wrapped(source: str, names: Sequence[str], key: str, *, earlier: bool, last: str | None = None) -> str:
    """Return the program to run for an input.

    Args:
        source: the author's source, with or without its implicit `return`.
        names: the names that the source declares at its top level.
        key: the key under which `store` keeps the names of the session.
        earlier: whether the source may use names of earlier inputs.
        last: the key to `load` for the value of the previous input; None if the source does not use that value.
    """
    words = {
        "key": json.dumps(key),
        "names": _NAMES,
        "language": _LANGUAGE,
        "getters": ", ".join(f"{json.dumps(name)}: () => {name}" for name in names),
        "room": MAX_KEPT,
        "last": "" if last is None else f'value("_", await {_NAMES}.load({json.dumps(last)}));',
    }
    words["restored"] = _RESTORED % words if earlier or last is not None else ""
    return f"{_line(_BEFORE % words)}\n{source}\n{_line(_AFTER % words)}"


def unwrapped(text: str, lines: int, author: Callable[[int, int], tuple[int, int]]) -> str:
    """Replace positions in a wrapped program, as in an error, by positions in the author's source.

    Args:
        lines: number of lines of the source.
        author: maps a position in the source with its implicit `return` to the position in the source.
    """

    def position(match: re.Match[str]) -> str:
        line, column = int(match[2]) - 1, int(match[3])
        if not 1 <= line <= lines:
            return match[0] if line > lines else f"{match[1]}:1:1"
        line, column = author(line, column)
        return f"{match[1]}:{line}:{column}"

    return _POSITION.sub(position, _OUR_FRAME.sub("", text))


def position_in(text: str) -> tuple[int, int] | None:
    """Return the line and column of the first position in an error, or None."""
    match = _POSITION.search(text)
    return None if match is None else (int(match[2]), int(match[3]))


def identifiers_in(source: str) -> set[str]:
    """Return all identifiers and other words of a program."""
    return set(re.findall(r"[\w$]+", source))


class SessionNames:
    """The names of a session, as they were stored.

    Args:
        text: the JSON that is stored under the key of the session; None if nothing is stored.
    """

    def __init__(self, text: str | None) -> None:
        stored = {} if text is None else json.loads(text)
        # A program can list the stored values, and store any value under the key.
        items = stored.items() if isinstance(stored, dict) else ()
        self._entries: dict[str, dict[str, Any]] = {name: each for name, each in items if isinstance(each, dict)}

    def __repr__(self) -> str:
        return f"<SessionNames: {', '.join(self._entries)}>"

    @property
    def all(self) -> set[str]:
        """Return all names, including lost ones."""
        return {*self._entries}

    @property
    def values(self) -> dict[str, Any]:
        """Return the names of JSON values, with their values."""
        return {name: each.get("value") for name, each in self._entries.items() if not {"source", "lost"} & each.keys()}

    @property
    def functions(self) -> list[str]:
        """Return the names of functions."""
        return [name for name, each in self._entries.items() if "source" in each]

    @property
    def lost(self) -> dict[str, str]:
        """Return the names of values that could not be kept, with the kind of each value."""
        return {name: str(each["lost"]) for name, each in self._entries.items() if "lost" in each}
