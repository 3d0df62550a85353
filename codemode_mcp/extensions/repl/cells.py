"""Analysis of an input: its tokens, whether it is complete, and the names that later inputs can use. Pure."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from msgspec import Struct

from codemode_mcp.catalog.saved_programs.saved_program import OF_REPL
from codemode_mcp.program.syntax import from_utf16_units, parse, utf16_units, words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tree_sitter import Node


COMMANDS: Final = {
    "help": ("", "show this help"),
    "d": ("SERVER[#TOOL]", "the declaration of a server, or of one of its tools"),
    "search": ("WORDS", "find tools for what you need"),
    "wait": ("[RUN]", "resume the latest suspended program, or the one whose id begins with RUN"),
    "cancel": ("[RUN]", "end a suspended program"),
    "runs": ("", "the programs of this session"),
    "all": ("", "the last value in full, as JSON"),
    "names": ("", "the names that this session keeps, and those that it cannot keep"),
    "ts": ("", "read inputs as TypeScript from here on"),
    "js": ("", "read inputs as JavaScript from here on"),
    "load": ("FILE", "run a file here"),
    "save": ("FILE", "write the programs of this session to a file"),
    "clear": ("", "forget all names of this session"),
    "exit": ("", "leave; so does Ctrl-D"),
}
"""Commands by name, with their argument and their effect."""

MAX_JUDGED: Final = 20_000
"""Maximum number of characters of an input that can count as incomplete. A longer input is run."""

MAX_PARSED: Final = 4_000
"""Maximum characters of an input that is parsed to find an open statement. The parser is slow for invalid text."""

_COMMAND: Final = re.compile(r"\s*\.([a-z]+)(?:\s+(.*?))?\s*", re.DOTALL)
_WORD: Final = re.compile(r"\s*(exit|quit|help|clear)\s*(?:\(\s*\))?\s*;?\s*")
_CONTINUING: Final = words("= + - * / % & | ^ < > , . ? : ! ~ => ... ?.")
_UNFINISHED: Final = words(
    "const let var function class extends new typeof void delete throw in of instanceof else do try case"
)
_ENDINGS: Final = (" x", " {}", " (0)", " while (0)", " : x")
"""Texts that complete the beginning of a statement."""


class Command(Struct, frozen=True):
    """A command `.name rest`."""

    name: str
    rest: str


def command(text: str) -> Command | None:
    """Return the command of an input, or None for a program. The name of the command may be unknown."""
    match = _COMMAND.fullmatch(text) if "\n" not in text.strip() else None
    return None if match is None else Command(match[1], match[2] or "")


def word(text: str) -> str | None:
    """Return the input if it is a command of other prompts (`exit`, `quit`, `help`, `clear`), else None."""
    match = _WORD.fullmatch(text)
    return None if match is None else match[1]


def is_incomplete(text: str) -> bool:
    """Return True if a bracket, a template or a statement is not closed, so that another line has to follow.

    Invalid text counts as complete, so that it is run and the engine reports the error.
    """
    if len(text) > MAX_JUDGED or command(text) is not None:
        return False
    found = scan(text)
    if found.mismatched:
        return False
    if found.open or found.within in ("template", "comment"):
        return True
    if not found.tokens:
        return False
    last = found.tokens[-1]
    if last.kind == "string" and not last.closed:
        return last.text.endswith("\\")
    if last.kind == "punct" and last.text in _CONTINUING:
        return True
    if last.kind == "word" and last.text in _UNFINISHED:
        before = found.tokens[-2].text if len(found.tokens) > 1 else ""
        return before not in (".", "?.")
    return len(text) <= MAX_PARSED and _is_open_statement(text)


def depth(text: str) -> int:
    """Return the number of open brackets."""
    found = scan(text[-MAX_JUDGED:])
    return 0 if found.within == "template" else len(found.open)


def _is_open_statement(text: str) -> bool:
    units = utf16_units(text)
    tree = parse(units)
    if tree is None:
        return False
    root = tree.root_node
    if root.has_error:
        completed = (parse(units + ending) for ending in _ENDINGS)
        return any(each is not None and not each.root_node.has_error for each in completed)
    last = root.named_children[-1] if root.named_children else None
    while last is not None and last.type == "comment":
        last = last.prev_named_sibling
    if last is None:
        return False
    if last.type == "try_statement":
        return last.child_by_field_name("handler") is None and last.child_by_field_name("finalizer") is None
    return last.type == "function_signature" and not text.rstrip().endswith(";")


def declared(text: str) -> tuple[str, ...]:
    """Return the names that a program declares at its top level, in order."""
    units = utf16_units(text)
    tree = parse(units)
    if tree is None:
        return ()
    found: dict[str, None] = {}

    def read(node: Node) -> str:
        return from_utf16_units(units[node.start_byte // 2 : node.end_byte // 2])

    def names(pattern: Node) -> None:
        left = [pattern]
        while left:
            node = left.pop()
            if node.type in ("identifier", "type_identifier", "shorthand_property_identifier_pattern"):
                found[read(node)] = None
            elif node.type in ("pair_pattern", "object_assignment_pattern", "assignment_pattern"):
                part = node.child_by_field_name("value" if node.type == "pair_pattern" else "left")
                left += [part] if part is not None else []
            elif node.type in ("object_pattern", "array_pattern", "rest_pattern"):
                left += reversed(node.named_children)

    for statement in tree.root_node.named_children:
        has_several = statement.type in ("lexical_declaration", "variable_declaration")
        declarations = statement.named_children if has_several else [statement] if statement.type in _NAMED else []
        for each in declarations:
            if (name := each.child_by_field_name("name")) is not None:
                names(name)
    return tuple(found)


_NAMED: Final = words(
    "function_declaration generator_function_declaration class_declaration abstract_class_declaration enum_declaration"
)


# A tokenizer for a program that is still being typed, which also finds unclosed brackets and strings.
#
# At a prompt, a statement is often incomplete, and the syntax tree of an incomplete statement is of little use. This
# module only separates code from strings and comments, and finds matching brackets.


Within = Literal["string", "template", "comment", "remark"]
"""`remark`: a comment up to the end of the line."""

Kind = Literal["word", "number", "string", "template", "regex", "comment", "punct"]


class Token(NamedTuple):
    """A token of the text.

    Attributes:
        closed: False for a string or template without its end.
    """

    kind: Kind
    text: str
    start: int
    end: int
    closed: bool = True


class Scan(Struct, frozen=True):
    """The tokens of a text.

    Attributes:
        tokens: all tokens except white space and comments.
        open: indices in `tokens` of the brackets that are open at the end of the text, the outermost first. The `${` of
            a template counts as a bracket.
        within: the kind of text that is open at the end; None if the text ends in code.
        mismatched: True if a closing bracket has no matching opening bracket.
    """

    tokens: tuple[Token, ...]
    open: tuple[int, ...]
    within: Within | None
    mismatched: bool


_TOKEN: Final = re.compile(
    r"""
      (?P<space>\s++)
    | (?P<comment>//[^\n\r\u2028\u2029]*+|/\*(?:[^*]|\*(?!/))*+(?P<commented>\*/)?)
    | (?P<string>"(?:[^"\\\n\r]|\\(?:\r\n|.|\Z))*+(?P<double>")?|'(?:[^'\\\n\r]|\\(?:\r\n|.|\Z))*+(?P<single>')?)
    | (?P<number>\d[\w.]*+|\.\d\w*+)
    | (?P<word>[^\W\d][\w$]*+|[$\#][\w$]*+)
    | (?P<punct>=>|\.\.\.|\?\.(?!\d)|\+\+|--|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_CHUNK: Final = re.compile(r"(?:[^`\\$]|\\.|\$(?!\{)|\\\Z)*+(?P<end>`|\$\{)?", re.DOTALL)
_REGEX: Final = re.compile(r"/(?![*/])(?:[^/\\\[\n]|\\[^\n]|\[(?:[^\]\\\n]|\\[^\n]){0,200}+\]){1,300}+/\w*+")
_BEFORE_REGEX: Final = words("return typeof case in of do else void delete throw new instanceof await yield extends")
_CLOSES: Final = {")": ("(",), "]": ("[",), "}": ("{", "${")}


def scan(text: str) -> Scan:
    """Return the tokens of a text, in time proportional to its length."""
    tokens: list[Token] = []
    opened: list[int] = []
    within: Within | None = None
    mismatched = False
    at = 0

    def chunk(start: int, after: int) -> int:
        """Add the text of a template up to its end or its next `${`. Return the position after the added text.

        Args:
            start: where the token begins.
            after: the position after the backtick or the `}` at `start`.
        """
        nonlocal within
        match = _CHUNK.match(text, after)
        assert match is not None
        end = match.end()
        tokens.append(Token("template", text[start:end], start, end, closed=match["end"] is not None))
        if match["end"] == "${":
            opened.append(len(tokens))
            tokens.append(Token("punct", "${", end - 2, end))
        elif match["end"] is None:
            within = "template"
            return len(text)
        return end

    while at < len(text):
        if text[at] == "`":
            at = chunk(at, at + 1)
            continue
        if text[at] == "/" and not _ends_value(tokens):
            regex = _REGEX.match(text, at)
            if regex is not None:
                tokens.append(Token("regex", regex[0], at, regex.end()))
                at = regex.end()
                continue
        match = _TOKEN.match(text, at)
        assert match is not None  # the last alternative takes any character
        start, at = at, match.end()
        kind, found = match.lastgroup, match[0]
        if match["space"] is not None:
            continue
        if match["comment"] is not None:
            if found.startswith("//"):
                within = "remark" if at == len(text) else None
            elif match["commented"] is None:
                within = "comment"
            continue
        if match["string"] is not None:
            closed = match["double"] is not None or match["single"] is not None
            if not closed and at == len(text):
                within = "string"
            tokens.append(Token("string", found, start, at, closed))
            continue
        if kind == "punct":
            if found in ("(", "[", "{"):
                opened.append(len(tokens))
            elif found in _CLOSES:
                if opened and tokens[opened[-1]].text in _CLOSES[found]:
                    closes_part = tokens[opened.pop()].text == "${"
                    tokens.append(Token("punct", found, start, at))
                    if closes_part:
                        at = chunk(at, at)
                    continue
                mismatched = True
            tokens.append(Token("punct", found, start, at))
        else:
            tokens.append(Token("number" if kind == "number" else "word", found, start, at))
    return Scan(tuple(tokens), tuple(opened), within, mismatched)


def _ends_value(tokens: list[Token]) -> bool:
    """Return True if a slash after these tokens is a division, not the beginning of a regular expression."""
    if not tokens:
        return False
    last = tokens[-1]
    if last.kind == "word":
        return last.text not in _BEFORE_REGEX
    return last.kind != "punct" or last.text in (")", "]", "}", "++", "--")


# The names of a session, which later programs can use as if all inputs were one program.
#
# Each input is a separate program in a fresh sandbox. When the program ends, `store` keeps its top-level declarations
# if they are JSON, and the text of its functions. Before the next program begins, these become global variables. A
# program can declare the name of a global variable again. Code around the author's source does all this, so the source
# begins in the second line. Positions in messages are changed back to positions in the source.


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
    match = _POSITION.search(text)
    return None if match is None else (int(match[2]), int(match[3]))


def identifiers_in(source: str) -> set[str]:
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
        return {name: each.get("value") for name, each in self._entries.items() if not {"source", "lost"} & each.keys()}

    @property
    def functions(self) -> list[str]:
        return [name for name, each in self._entries.items() if "source" in each]

    @property
    def lost(self) -> dict[str, str]:
        """Return the names of values that could not be kept, with the kind of each value."""
        return {name: str(each["lost"]) for name, each in self._entries.items() if "lost" in each}
