"""The rules for prose in this repository that a program can check. `python -m tests.prose [PATH ...]` checks them.

Prose is comments, docstrings, names, every other string literal with a space in it, and the whole text of pages,
scripts and drawings. Data of searches (stop words, thesaurus) and of findings (weights of words) is no prose.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]

FIRST_WORDS = frozenset(
    (
        *("what", "whether", "of", "that", "where", "who", "whom", "whose", "how", "why", "when", "which", "likewise"),
        *("see", "as", "at", "by", "for", "from", "in", "on", "to", "with", "without", "so", "if", "since", "until"),
        *("while", "then", "only", "also", "and", "but", "or", "not"),
    )
)
"""Words that no docstring begins with: it begins with a verb or a noun phrase."""

SET_ASIDE = re.compile(
    r"\b(nobody|somebody|anybody|whoever|whomever|likewise|anew|under\s+way|at\s+once|(?:go|goes|going|gone|went)\s+on"
    r"|what\s+becomes\s+of|(?:is|are)\s+told\s+of|it\s+is\s+looked|one\s+of\s+that\s+name)\b",
    re.IGNORECASE,
)
"""Words for which the glossary in ARCHITECTURE.md has a plainer one."""

UNREACHABLE = re.compile(r"\bSPEC(?:\.md)?,?\s+(?:section\s+)?\d")
"""References to a document that readers do not have."""

WORD_RULES = (SET_ASIDE, UNREACHABLE)

PAGE_LINE = 120
"""Characters of a line of a page. Rows of tables and lines of code blocks cannot be broken."""

PROSE_SUFFIXES = frozenset(
    (".md", ".js", ".mjs", ".ts", ".wat", ".toml", ".yml", ".yaml", ".sh", ".svg", ".html", ".css")
)

DATA = "codemode_mcp/extensions/findings/finding_weights.toml"
"""A file with such a suffix that is data: words that attacks have."""

STRINGS = frozenset({tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)})
"""Tokens that hold the text of strings: from Python 3.12 on, f-strings have some of their own."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One place that breaks a rule."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def check(path: str, text: str) -> Iterator[Finding]:
    """Yield what breaks a rule in a file of the repository."""
    if path.endswith(".py"):
        yield from check_python(path, text)
    elif Path(path).suffix in PROSE_SUFFIXES and path != DATA:
        yield from check_words(path, 1, text)
    if path.endswith(".md"):
        yield from check_lines(path, text)


def check_python(path: str, text: str) -> Iterator[Finding]:
    """Yield what breaks a rule in the comments and strings of a module."""
    for docstring in docstrings(ast.parse(text).body):
        first = re.match(r"\W*(\w+)", docstring.value)
        if first and first[1].lower() in FIRST_WORDS:
            yield Finding(path, docstring.lineno, f"a docstring begins with {first[1]!r}")
    # Most modules have none of the words even across the lines of comments and in names. Reading tokens takes long.
    if not any(rule.search(re.sub(r"[\s#_]+", " ", text)) for rule in WORD_RULES):
        return
    comment: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            # A comment of several lines is read as one text: its words may stand at the end of a line.
            comment.append(token.string.lstrip("#"))
            continue
        if comment and token.type not in (tokenize.NL, tokenize.INDENT, tokenize.DEDENT):
            yield from check_words(path, token.start[0] - len(comment), "\n".join(comment))
            comment.clear()
        if token.type == tokenize.NAME:
            yield from check_words(path, token.start[0], token.string.replace("_", " "))
        if token.type in STRINGS and re.search(r"\s", token.string):
            yield from check_words(path, token.start[0], token.string)
    if comment:
        yield from check_words(path, len(text.splitlines()), "\n".join(comment))


def docstrings(block: Sequence[ast.AST]) -> Iterator[ast.Constant]:
    """Yield the docstrings of a module: its own, and those of its classes, functions, constants and attributes."""
    for statement in block:
        match statement:
            case ast.Expr(value=ast.Constant(value=str()) as docstring):
                yield docstring
        for inner in ("body", "handlers", "orelse", "finalbody", "cases"):
            yield from docstrings(getattr(statement, inner, ()))


def check_words(path: str, line: int, text: str) -> Iterator[Finding]:
    """Yield the words set aside, and references that readers cannot follow, in a text that begins at a line."""
    for rule in WORD_RULES:
        for found in rule.finditer(text):
            at = line + text.count("\n", 0, found.start())
            yield Finding(path, at, f"{' '.join(found[0].split())!r} is set aside")


def check_lines(path: str, text: str) -> Iterator[Finding]:
    """Yield the lines of a page that are too long, outside tables and code blocks."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("|") and len(line) > PAGE_LINE:
            yield Finding(path, number, f"{len(line)} characters in a line")


def tracked(paths: Sequence[str] = ()) -> list[str]:
    """Return the files of the repository, or those of them under some paths."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *paths]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return sorted({path for path in listed.split("\0") if path and (ROOT / path).is_file()})


def findings(paths: Sequence[str] = ()) -> list[Finding]:
    """Return what breaks a rule in the repository, or under some paths of it."""
    checked = (path for path in tracked(paths) if Path(path).suffix in PROSE_SUFFIXES | {".py"})
    return [each for path in checked for each in check(path, (ROOT / path).read_text(encoding="utf-8"))]


if __name__ == "__main__":
    found = findings(sys.argv[1:])
    print(*found, f"{len(found)} findings", sep="\n")
    raise SystemExit(bool(found))
