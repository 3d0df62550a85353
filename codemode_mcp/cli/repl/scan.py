"""A tokenizer for a program that is still being typed, which also finds unclosed brackets and strings. Pure.

At a prompt, a statement is often incomplete, and the syntax tree of an incomplete statement is of little use. This
module only separates code from strings and comments, and finds matching brackets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from codemode_mcp.program.syntax import words

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


@dataclass(frozen=True, slots=True)
class Scan:
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
