"""Rules about tools: tests of effects that annotations claim, and globs on ids. Pure.

A list of rules is indexed when it is read, so that a decision costs the same for a thousand rules as for one.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import asdict, replace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from upstream_clients.tools import Annotations


_GRAM = 3
"""Length in characters of the parts by which globs are indexed. A glob is tried only for ids with its rarest part."""


class Rules:
    """An indexed list of rules.

    Attributes:
        rules: all rules, in order.
        globs: the rules that are not annotation tests.
        has_annotations: True if a rule is an annotation test.
    """

    def __init__(self, rules: Iterable[str]) -> None:
        self.rules = tuple(rules)
        self.globs = tuple(rule for rule in self.rules if rule not in ANNOTATIONS)
        self.has_annotations = len(self.globs) < len(self.rules)
        self._annotations: list[tuple[int, str]] = []
        self._exact: dict[str, int] = {}
        self._prefixes: dict[str, int] = {}
        self._by_gram: dict[str, list[tuple[int, re.Pattern[str]]]] = {}
        self._others: list[tuple[int, re.Pattern[str]]] = []
        floating: list[tuple[int, str]] = []
        for number, rule in enumerate(self.rules):
            if rule in ANNOTATIONS:
                self._annotations.append((number, ANNOTATIONS[rule]))
            elif "*" not in rule and "?" not in rule:
                self._exact.setdefault(rule, number)
            elif "?" not in rule and rule.index("*") == len(rule.rstrip("*")):
                self._prefixes.setdefault(rule.rstrip("*"), number)
            else:
                floating.append((number, rule))
        self._lengths = sorted({len(prefix) for prefix in self._prefixes})
        # Each glob is indexed by the part that the fewest others contain.
        used = Counter(gram for _, rule in floating for gram in _grams_of(rule))
        for number, rule in floating:
            rarest = min(_grams_of(rule), key=lambda gram: (used[gram], gram), default=None)
            where = self._others if rarest is None else self._by_gram.setdefault(rarest, [])
            where.append((number, glob_pattern(rule)))

    def __bool__(self) -> bool:
        return bool(self.rules)

    def first(self, tool_id: str, tool: Effects) -> str | None:
        number = min(self._matching(tool_id, tool), default=None)
        return None if number is None else self.rules[number]

    def all(self, tool_id: str, tool: Effects) -> list[str]:
        """Return every rule that applies to a tool. Rules that differ only in asterisks at their ends count as one."""
        return [self.rules[number] for number in sorted(self._matching(tool_id, tool))]

    def test_annotations(self, tool: Effects) -> bool:
        return any(getattr(tool, attribute) for _, attribute in self._annotations)

    def _matching(self, tool_id: str, tool: Effects) -> Iterator[int]:
        for number, attribute in self._annotations:
            if getattr(tool, attribute):
                yield number
        found = self._exact.get(tool_id)
        if found is not None:
            yield found
        for length in self._lengths:
            if length > len(tool_id):
                break
            found = self._prefixes.get(tool_id[:length])
            if found is not None:
                yield found
        for number, pattern in self._others:
            if pattern.fullmatch(tool_id):
                yield number
        if self._by_gram:
            for gram in self._by_gram.keys() & _grams(tool_id):
                for number, pattern in self._by_gram[gram]:
                    if pattern.fullmatch(tool_id):
                        yield number


def matches(rule: str, tool_id: str, tool: Effects) -> bool:
    """Return True if one rule, an annotation test or a glob on ids (`*` and `?`), applies to a tool."""
    if rule in ANNOTATIONS:
        return bool(getattr(tool, ANNOTATIONS[rule]))
    return glob_pattern(rule).fullmatch(tool_id) is not None


def covers(glob: str, other: str) -> bool:
    """Return True if a glob certainly matches everything that another glob matches."""
    # The other glob is matched like an id. An asterisk in it may stand for several characters, so that a question mark
    # must not match it.
    return glob_pattern(glob, "[^*]").fullmatch(other) is not None


def reaches(glob: str, prefix: str) -> bool:
    """Return True if a glob matches at least one possible id that begins with `prefix`."""
    head, star, _ = glob.partition("*")
    return (bool(star) or len(head) >= len(prefix)) and _agree(head, prefix)


def may_overlap(one: str, other: str) -> bool:
    """Return True if two globs may match the same id. Only their beginnings and their ends are compared."""
    heads, tails = [glob.partition("*")[0] for glob in (one, other)], [glob.rpartition("*")[2] for glob in (one, other)]
    if "*" not in one and "*" not in other and len(one) != len(other):
        return False
    return _agree(*heads) and _agree(tails[0][::-1], tails[1][::-1])


def _agree(one: str, other: str) -> bool:
    """Return True if two texts are equal in their common length. A question mark equals every character."""
    return all(a == b or "?" in (a, b) for a, b in zip(one, other, strict=False))


@lru_cache(maxsize=16)  # the same id is looked up in one list after another
def _grams(text: str) -> frozenset[str]:
    return frozenset(text[start : start + _GRAM] for start in range(len(text) - _GRAM + 1))


def _grams_of(rule: str) -> set[str]:
    return {gram for part in re.split(r"[*?]", rule) for gram in _grams(part)}


@lru_cache(maxsize=8192)
def glob_pattern(rule: str, one: str = ".") -> re.Pattern[str]:
    """Return the pattern for a glob. `one`: the pattern for a question mark."""
    # `fnmatch` gives brackets a meaning, which may be part of a tool's name, and ignores case on Windows. The atomic
    # groups search each part once, at its first place, which is enough for globs. So the match takes linear time,
    # whatever names servers choose.
    first, *parts = ("".join(one if c == "?" else re.escape(c) for c in part) for part in rule.split("*"))
    if not parts:
        return re.compile(first, re.DOTALL)
    *middle, last = parts
    between = "".join(f"(?>.*?{part})" for part in middle if part)
    return re.compile(f"{first}{between}.*{last}", re.DOTALL)


class Effects(NamedTuple):
    """Annotations with MCP's defaults filled in: a tool is destructive and open-world unless it declares otherwise."""

    read_only: bool
    destructive: bool
    idempotent: bool
    open_world: bool

    @staticmethod
    def of(declared: Annotations | None) -> Effects:
        """Return the effects for annotations; None for a tool whose annotations are not trusted."""
        if declared is None:
            return Effects(read_only=False, destructive=True, idempotent=False, open_world=True)
        read_only = declared.read_only is True
        return Effects(
            read_only=read_only,
            destructive=not read_only and declared.destructive is not False,
            idempotent=read_only or declared.idempotent is True,
            open_world=declared.open_world is not False,
        )


def with_own(declared: Annotations | None, own: Annotations) -> Annotations:
    """Return the annotations of a tool after those of the operator have replaced those of the server.

    Args:
        declared: the annotations of the server; None if they are not trusted.
        own: the annotations of the operator. Fields that are None keep the server's.
    """
    return own if declared is None else replace(declared, **{k: v for k, v in asdict(own).items() if v is not None})


ANNOTATIONS: Final = {
    "readOnly": "read_only",
    "destructive": "destructive",
    "idempotent": "idempotent",
    "openWorld": "open_world",
}
"""The annotation tests, which are rules like globs, and the attributes of `Effects` that they test."""

READ_ONLY: Final = Effects(read_only=True, destructive=False, idempotent=True, open_world=True)
"""Effects of a tool that only reads."""

NO_EFFECTS: Final = Effects(read_only=False, destructive=False, idempotent=False, open_world=False)
"""Effects that pass no annotation test."""

POSSIBLE_EFFECTS: Final = (
    *(Effects(read_only=True, destructive=False, idempotent=True, open_world=world) for world in (True, False)),
    *(Effects(False, *each) for each in product((True, False), repeat=3)),
)
"""All effects that `Effects.of` may return."""
