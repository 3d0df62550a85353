"""The work and the memory that one document may take. Pure: no I/O.

A document of a few megabytes can have thousands of operations that share one list of parameters, one body or one
answer. The work for all of them is the product of both numbers. So each part that is made or looked at is counted in
steps. After a document has used all its steps, its further operations are skipped.

A step takes at most half a microsecond. What stays in memory for an operation counts as more steps than its time. The
number of steps depends on the document alone, so that the same document always has the same operations.
"""

from __future__ import annotations

from typing import Final

MAX_STEPS: Final = 12_000_000
"""Steps of one document. Kubernetes' in Swagger 2, which takes most of the published ones, takes 1.3 million."""

PER_ARGUMENT: Final = 30
"""Steps of an argument of an operation. It takes about 350 bytes."""
PER_DEFINITION: Final = 8
"""Steps of a definition in the schemas of one operation."""
PER_OPERATION: Final = 50
PER_SCHEMA: Final = 3
"""Steps of a schema that is converted, apart from its values."""
_CHARACTERS: Final = 8
"""Characters that are read in one step."""


class BudgetError(Exception):
    """A document that has used all its steps. The message is the reason for what is skipped, as part of a sentence.

    It is no `UnsupportedError`, after which an operation may still be a tool, without an output schema.
    """


class Budget:
    """The steps of one document that are left."""

    def __init__(self) -> None:
        self._left = MAX_STEPS

    def spend(self, steps: int, characters: int = 0) -> None:
        """Count steps, and the characters of texts that are read.

        Raises:
            BudgetError: too few steps are left. Then all later calls fail as well.
        """
        self._left -= steps + characters // _CHARACTERS
        if self._left < 0:
            raise BudgetError("the document is too large: the operations before it have used the work that it may take")
