"""The option `-k`: words that names of tests contain, with `and`, `or`, `not` and parentheses. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Predicate = Callable[[str], bool]
    """A function that returns True for the names of tests that are selected."""

_TOKEN = re.compile(r"\s*(\(|\)|[^\s()]+)")


class SelectionError(Exception):
    """Error for an expression that cannot be read. The message is for the user."""


def selection(expression: str) -> Predicate:
    """Return the predicate of an expression such as `report and not slow`. Letters are compared without case.

    Raises:
        SelectionError: the expression cannot be read.
    """
    tokens = _TOKEN.findall(expression.strip())
    reader = _Reader(tokens, expression)
    found = reader.either()
    if reader.tokens:
        raise reader.error()
    return lambda name: found(name.lower())


class _Reader:
    def __init__(self, tokens: list[str], expression: str) -> None:
        self.tokens = tokens
        self._expression = expression
        self._depth = 0

    def error(self) -> SelectionError:
        at = f"at {self.tokens[0]!r}" if self.tokens else "at its end"
        return SelectionError(f"-k {self._expression!r} cannot be read {at}; write it as in: report and not slow")

    def either(self) -> Predicate:
        found = self._all()
        while self._took("or"):
            found = _or(found, self._all())
        return found

    def _all(self) -> Predicate:
        found = self._one()
        while self._took("and"):
            found = _and(found, self._one())
        return found

    def _one(self) -> Predicate:
        self._depth += 1
        if not self.tokens or self.tokens[0] in ("and", "or", ")") or self._depth > 50:
            raise self.error()
        token = self.tokens.pop(0)
        if token == "not":
            negated = self._one()
            found: Predicate = lambda name: not negated(name)  # noqa: E731
        elif token == "(":
            found = self.either()
            if not self._took(")"):
                raise self.error()
        else:
            word = token.lower()
            found = lambda name: word in name  # noqa: E731
        self._depth -= 1
        return found

    def _took(self, word: str) -> bool:
        if self.tokens and self.tokens[0] == word:
            del self.tokens[0]
            return True
        return False


def _or(first: Predicate, second: Predicate) -> Predicate:
    return lambda name: first(name) or second(name)


def _and(first: Predicate, second: Predicate) -> Predicate:
    return lambda name: first(name) and second(name)
