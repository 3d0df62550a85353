"""Completion of names at a position in a program that is being typed. Pure."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from msgspec import Struct, structs

from codemode_mcp.base.display import plain
from codemode_mcp.extensions.repl.cells import COMMANDS, Token, scan
from codemode_mcp.extensions.repl.vocabulary import ITEMS, Name, Vocabulary
from declarations.expressions import property_name
from declarations.typetree import Constant, string_literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from codemode_mcp.catalog.entries import Entry

MAX_READ: Final = 20_000
"""Maximum number of characters that are read before the cursor. After the cursor, a tenth of this number is read."""

MAX_OFFERED: Final = 500
"""Maximum number of completions that are returned."""

MAX_IN_FULL: Final = 50
"""Maximum number of names that are listed with their arguments. A longer list shows only descriptions."""

_IDENTIFIER: Final = re.compile(r"[^\W\d][\w$]*|\$[\w$]*")
_KEYWORDS: Final = (
    "async await break case catch class const continue delete do else false finally for function if in instanceof let "
    "new null of return switch this throw true try typeof undefined var void while yield"
)
_DECLARING: Final = frozenset(("const", "let", "var", "function", "class"))


class Completion(Struct, frozen=True):
    """One completion.

    Attributes:
        text: the text to insert in place of the text from `start` to the cursor.
        label: the text in the list, on one line.
        meta: the description in the list.
    """

    text: str
    start: int
    label: str
    meta: str = ""


def complete(text: str, cursor: int, words: Vocabulary) -> list[Completion]:
    """Return the completions at the cursor, the best first. The time is bounded, and no error is raised."""
    cursor = max(0, min(cursor, len(text)))
    before = text[:cursor]
    if re.match(r"\s*\.[a-z]*(\s|\Z)", before) is not None and "\n" not in before.strip():
        return _command(before, words)
    begin = max(0, cursor - MAX_READ)
    found = _complete(before[begin:], text[cursor : cursor + MAX_READ // 10], words)
    return [structs.replace(each, start=each.start + begin) for each in found[:MAX_OFFERED]]


def _complete(before: str, after: str, words: Vocabulary) -> list[Completion]:
    found = scan(before)
    if found.within in ("comment", "remark", "template"):
        return []
    tokens = found.tokens
    last = tokens[-1] if tokens else None
    if last is not None and last.kind == "string" and not last.closed and last.end == len(before):
        return _in_string(last, tokens[:-1], found.open, words)
    partial, start = "", len(before)
    if last is not None and last.kind != "punct" and last.end == len(before):
        if last.kind != "word":
            return []
        partial, start, tokens = last.text, last.start, tokens[:-1]
    previous = tokens[-1] if tokens else None
    if previous is None:
        return _names(partial, start, tokens, words)
    if previous.text in (".", "?.") and previous.kind == "punct":
        chain = chain_before(tokens, len(tokens) - 1)
        return [] if chain is None else _members(words.members(chain), partial, start, previous, words)
    if previous.kind == "word" and previous.text in _DECLARING:
        return []
    place = _find_argument(tokens, found.open, words)
    if place is not None and previous.kind == "punct":
        offered = _in_call(place, tokens, partial, start, after, words)
        if offered:
            return offered
    return _names(partial, start, tokens, words)


def _in_call(
    place: _Argument, tokens: Sequence[Token], partial: str, start: int, after: str, words: Vocabulary
) -> list[Completion]:
    previous, opener = tokens[-1].text, tokens[place.opener].text
    if opener == "{" and previous in ("{", ","):
        if place.argument == 1 and not place.path:
            return _matching([Name("timeoutMs", ": number  1 to 600,000")], partial, start, behind=": ")
        present = _keys(tokens[place.opener :]) | _keys_after(after)
        names = words.properties(place.entry, place.path) if place.argument == 0 else []
        return _matching([each for each in names if each.text not in present], partial, start, behind=": ")
    if place.argument != 0:
        return []
    if opener == "(" and previous == "(" and not partial and words.properties(place.entry, ()):
        return [Completion("{ ", start, "{", words.signature(place.entry).removeprefix(place.entry.path))]
    path = _path_of_value(place, tokens)
    return [] if path is None else _matching([Name(each) for each in _values(words, place.entry, path)], partial, start)


def _in_string(string: Token, tokens: Sequence[Token], opened: Sequence[int], words: Vocabulary) -> list[Completion]:
    quote, partial, start = string.text[0], string.text[1:], string.start + 1
    if not tokens:
        return []
    if tokens[-1].text == "(":
        match chain_before(tokens, len(tokens) - 1):
            case ("API", "read"):
                return _files(partial, start, words)
            case ("tools", "call" | "describe"):
                return _plain(partial, start, [*words.catalog.toolset.ids], quote)
    if tokens[-1].text == "[":
        chain = chain_before(tokens, len(tokens) - 1)
        if chain is not None:
            return _plain(partial, start, [each.text for each in words.members(chain)], quote)
    place = _find_argument(tokens, opened, words)
    path = None if place is None or place.argument != 0 else _path_of_value(place, tokens)
    if place is None or path is None:
        return []
    found = [each.text for each in words.constants(place.entry, path) if isinstance(each, Constant)]
    return _plain(partial, start, [unquoted(each) for each in found if each.startswith('"')], quote)


def _files(partial: str, start: int, words: Vocabulary) -> list[Completion]:
    path, mark, _ = partial.partition("#")
    if not mark:
        return _plain(partial, start, list(words.catalog.files.paths), "")
    parts = [
        f"{path}#{entry.identifier}" for each in words.catalog.servers if each.path == path for entry in each.tools
    ]
    return _plain(partial, start, parts, "")


class _Argument(Struct, frozen=True):
    """A position in the arguments of a tool call.

    Attributes:
        entry: the tool.
        opener: the index of the innermost open bracket among the tokens.
        argument: the index of the argument.
        path: the keys from the argument to the innermost bracket.
    """

    entry: Entry
    opener: int
    argument: int
    path: tuple[str, ...]


def chain_before(tokens: Sequence[Token], end: int) -> tuple[str, ...] | None:
    """Return the parts of an expression such as `a.b[0].c` before `tokens[end]`; None if no expression ends there."""
    chain: list[str] = []
    at = end - 1
    while at >= 0:
        if tokens[at].text == "]" and tokens[at].kind == "punct":
            begin = _opening(tokens, at)
            if begin is None:
                return None
            index = tokens[begin + 1 : at]
            named = len(index) == 1 and index[0].kind == "string" and index[0].closed
            chain.append(unquoted(index[0].text) if named else ITEMS)
            at = begin - 1
            if at >= 0 and tokens[at].text == "?.":
                at -= 1
            continue
        if tokens[at].kind != "word":
            return None
        chain.append(tokens[at].text)
        at -= 1
        if at < 0 or tokens[at].kind != "punct" or tokens[at].text not in (".", "?."):
            return tuple(reversed(chain))
        at -= 1
    return None


def _opening(tokens: Sequence[Token], end: int) -> int | None:
    level = 0
    for at in range(end, -1, -1):
        if tokens[at].kind == "punct":
            level += (tokens[at].text == "]") - (tokens[at].text == "[")
        if not level:
            return at
    return None


def _find_argument(tokens: Sequence[Token], opened: Sequence[int], words: Vocabulary) -> _Argument | None:
    opened = [each for each in opened if each < len(tokens)]
    path: list[str] = []
    for level in range(len(opened) - 1, -1, -1):
        opener, outer = opened[level], opened[level - 1] if level else -1
        bracket, around = tokens[opener].text, tokens[outer].text if level else ""
        before = tokens[opener - 1].text if opener else ""
        if bracket == "(" and level == len(opened) - 1:
            return _called(tokens, opener, len(tokens), opener, (), words)
        if bracket not in ("{", "["):
            return None
        if bracket == "[":
            path.append(ITEMS)
        if around == "(" and before in ("(", ","):
            return _called(tokens, outer, opener, opened[-1], tuple(reversed(path)), words)
        if around == "{" and before == ":":
            key = _key(tokens[opener - 2])
            if key is None:
                return None
            path.append(key)
        elif around != "[" or before not in ("[", ","):
            return None
    return None


def _called(
    tokens: Sequence[Token], bracket: int, end: int, opener: int, path: tuple[str, ...], words: Vocabulary
) -> _Argument | None:
    """Return the position of `tokens[end]` in a call with arguments from `bracket`; None if no tool is called."""
    chain = chain_before(tokens, bracket)
    if chain is None:
        return None
    argument = sum(1 for _ in _at_top(tokens[bracket + 1 : end], ","))
    entry = words.callee(chain)
    if entry is None and chain == ("tools", "call") and argument and tokens[bracket + 1].kind == "string":
        entry, argument = words.by_id(unquoted(tokens[bracket + 1].text)), argument - 1
    return None if entry is None else _Argument(entry, opener, argument, path)


def _path_of_value(place: _Argument, tokens: Sequence[Token]) -> tuple[str, ...] | None:
    previous, bracket = tokens[-1].text, tokens[place.opener].text
    if bracket == "{":
        key = _key(tokens[-2]) if previous == ":" and len(tokens) > 1 else None
        return None if key is None else (*place.path, key)
    return place.path if bracket == "[" and previous in ("[", ",") else None


def _key(token: Token) -> str | None:
    if token.kind == "string":
        return unquoted(token.text)
    return token.text if token.kind == "word" else None


def _at_top(tokens: Iterable[Token], wanted: str) -> Iterable[int]:
    """Yield the indices of a punctuation mark outside nested brackets, up to the closing bracket around the tokens."""
    level = 0
    for at, token in enumerate(tokens):
        if token.kind == "punct":
            if token.text in ("(", "[", "{", "${"):
                level += 1
            elif token.text in (")", "]", "}"):
                level -= 1
                if level < 0:
                    return
            elif token.text == wanted and not level:
                yield at


def _keys(tokens: Sequence[Token]) -> set[str]:
    found = {_key(tokens[at]) for at in _at_top(tokens[1:], ":")}
    # `{ a, b }` is short for `{ a: a, b: b }`.
    for at in _at_top(tokens[1:], ","):
        if at and tokens[at].kind == "word" and tokens[at - 1].text in ("{", ","):
            found.add(tokens[at].text)
    return {each for each in found if each is not None}


def _keys_after(after: str) -> set[str]:
    tokens = scan(after).tokens
    found = (_key(tokens[at - 1]) for at in _at_top(tokens, ":") if at)
    return {each for each in found if each is not None}


def _values(words: Vocabulary, entry: Entry, path: tuple[str, ...]) -> list[str]:
    found: list[str] = []
    for each in words.constants(entry, path):
        if isinstance(each, Constant):
            found.append(each.text)
        else:
            found += ["true", "false"] if each.name == "boolean" else ["null"]
    return list(dict.fromkeys(found))


def _names(partial: str, start: int, tokens: Sequence[Token], words: Vocabulary) -> list[Completion]:
    local = dict.fromkeys(
        token.text
        for before, token in pairwise(tokens)
        if token.kind == "word" and before.kind == "word" and before.text in _DECLARING
    )
    known = {each.text: each for each in [*map(Name, local), *words.globals()]}
    if not partial:
        return _matching([each for each in known.values() if each.about], "", start)
    keywords = [Name(each) for each in _KEYWORDS.split() if each.startswith(partial)]
    return _matching([*known.values(), *keywords], partial, start)


def _members(names: Iterable[Name], partial: str, start: int, dot: Token, words: Vocabulary) -> list[Completion]:
    found = []
    fitting = _fitting(names, partial)[:MAX_OFFERED]
    for each in fitting:
        about = words.in_full(each) if len(fitting) <= MAX_IN_FULL else each.about
        if _IDENTIFIER.fullmatch(each.text):
            found.append(Completion(each.text, start, plain(each.text), about))
        else:
            quoted = string_literal(each.text)
            optional = "?." if dot.text == "?." else ""
            found.append(Completion(f"{optional}[{quoted}]", dot.start, f"[{plain(quoted)}]", about))
    return found


def _matching(names: Iterable[Name], partial: str, start: int, *, behind: str = "") -> list[Completion]:
    found = []
    for each in _fitting(names, partial):
        text = property_name(each.text) if behind else each.text
        found.append(Completion(text + behind, start, plain(text), each.about))
    return found


def _plain(partial: str, start: int, texts: Sequence[str], quote: str) -> list[Completion]:
    found = []
    for each in _fitting(map(Name, texts), partial):
        written = string_literal(each.text)[1:-1]
        if quote == "'":
            written = written.replace('\\"', '"').replace("'", "\\'")
        found.append(Completion(written, start, plain(each.text)))
    return found


def _fitting(names: Iterable[Name], partial: str) -> list[Name]:
    """Return the names that begin with a text. If no name does, return the names that contain the text."""
    every = list(names)
    wanted = partial.casefold()
    beginning = [each for each in every if each.text.casefold().startswith(wanted)]
    return beginning or [each for each in every if len(wanted) > 1 and wanted in each.text.casefold()]


def _command(before: str, words: Vocabulary) -> list[Completion]:
    line = before.lstrip()
    begin = len(before) - len(line)
    name, blank, rest = line[1:].partition(" ")
    if not blank:
        return [
            Completion(f".{each}{' ' if takes else ''}", begin, f".{each}", f"{takes}  {about}".strip())
            for each, (takes, about) in COMMANDS.items()
            if each.startswith(name)
        ]
    if name != "d":
        return []
    server, mark, part = rest.partition("#")
    start = len(before) - len(part if mark else rest)
    if not mark:
        return _matching((Name(each.text, each.about) for each in words.members(("MCP",))), server, start)
    return _matching(words.members(("MCP", server.strip())), part, start)


def unquoted(text: str) -> str:
    """Return the value of a string literal. If it has escapes that JSON lacks, return the text between its quotes."""
    quote, inner = text[0], text[1:-1] if len(text) > 1 and text[-1] == text[0] else text[1:]
    try:
        found = json.loads(f'"{inner}"' if quote == '"' else '"' + inner.replace('"', '\\"') + '"')
    except ValueError:
        return inner
    return found if isinstance(found, str) else inner
