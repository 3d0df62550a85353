"""Differences from Node that are accepted. `docs/differences-from-node.md` lists them with the same reasons."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.differential.sides import Outcome


@dataclass(frozen=True, slots=True)
class Accepted:
    """A difference that is accepted, where all patterns are found.

    Attributes:
        reason: the cell "why" of the page.
        program: a pattern in the text of the program.
        node: a pattern in the outcome of Node.
        here: a pattern in the outcome of the guest.
        digits: the number of digits in which numbers must agree, if only numbers may differ.
    """

    reason: str
    program: str = ""
    node: str = ""
    here: str = ""
    digits: int | None = None

    def explains(self, program: str, node: Outcome, here: Outcome) -> bool:
        texts = ((self.program, program), (self.node, str(node)), (self.here, str(here)))
        if any(re.search(pattern, text) is None for pattern, text in texts):
            return False
        return self.digits is None or _rounded(str(node), self.digits) == _rounded(str(here), self.digits)


def _rounded(text: str, digits: int) -> str:
    return re.sub(r"\d+\.?\d*(?:[eE][-+]?\d+)?", lambda number: f"{float(number[0]):.{digits}g}", text)


ACCEPTED = (
    Accepted(
        "The standard leaves the last digits of `Math` and of `**` to the engine",
        program=r"Math\.(?:exp|log|log10|sin|cos|sinh|cosh|tanh|asinh|acosh|hypot|pow)\(|\*\*",
        digits=12,
    ),
)
