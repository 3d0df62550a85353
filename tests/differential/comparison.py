"""The comparison of generated programs."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from codemode_mcp.base.settings import Language
from tests.differential import families
from tests.differential.accepted import ACCEPTED
from tests.differential.grammar import SHOW
from tests.differential.sides import Guests, Node, Outcome


@dataclass(frozen=True, slots=True)
class Generated:
    """A program of a family.

    Attributes:
        number: its number, which repeats it together with the seed and the family.
        source: the text for the guest.
        body: the text for Node, which is another one for TypeScript.
    """

    family: str
    seed: int
    number: int
    source: str
    body: str
    language: Language = "javascript"


@dataclass(frozen=True, slots=True)
class Difference:
    """A program that has different outcomes.

    Attributes:
        reason: why it is accepted; None if it is not explained.
    """

    program: Generated
    node: Outcome
    here: Outcome
    reason: str | None

    def __str__(self) -> str:
        of = self.program
        again = f"--family {of.family} --seed {of.seed} --number {of.number}"
        lines = difflib.unified_diff(_lines(self.node), _lines(self.here), "node", "here", n=0, lineterm="")
        return f"{again}\n{of.source.removesuffix(SHOW).strip()}\n" + "\n".join(list(lines)[2:])


def _lines(outcome: Outcome) -> list[str]:
    value = outcome.value
    shown = [f"[{n}] {each}" for n, each in enumerate(value)] if isinstance(value, list) else [repr(value)]
    return [*(f"> {line}" for text in outcome.outputs for line in text.split("\n")), *shown, f"error: {outcome.error}"]


FAMILIES: dict[str, Any] = {
    found.name: importlib.import_module(f"{families.__name__}.{found.name}")
    for found in pkgutil.iter_modules(families.__path__)
}
"""The modules of the families. Each has `program(random)`, and `LANGUAGE` if its programs are not JavaScript."""

_TYPES = re.compile("⟪(.*?)⟫", re.DOTALL)
"""Text of a TypeScript program for the guest alone."""
_PLAIN = re.compile("⟦(.*?)⟧", re.DOTALL)
"""Text of it for Node alone."""


def generate(family: str, seed: int, number: int) -> Generated:
    """Return a program of a family."""
    module = FAMILIES[family]
    text = module.program(Random(f"{family} {seed} {number}"))
    source, body = _PLAIN.sub("", _TYPES.sub(r"\1", text)), _TYPES.sub("", _PLAIN.sub(r"\1", text))
    return Generated(family, seed, number, source, body, getattr(module, "LANGUAGE", "javascript"))


def chosen(names: Sequence[str], seed: int, count: int) -> list[Generated]:
    """Return programs of some families in turn."""
    return [generate(names[number % len(names)], seed, number // len(names)) for number in range(count)]


def compare(programs: Sequence[Generated], node: Node, guests: Guests) -> Iterator[Difference]:
    """Run programs on both sides, and yield their differences."""
    outcomes = node.run([each.body for each in programs])
    for program, expected in zip(programs, outcomes, strict=True):
        here = guests.run(program.source, program.language)
        if here != expected:
            reasons = (each.reason for each in ACCEPTED if each.explains(program.source, expected, here))
            yield Difference(program, expected, here, next(reasons, None))
