"""The number of examples of property tests."""

from __future__ import annotations

import os


def examples(count: int) -> int:
    """Return `count`, multiplied by the environment variable `EXAMPLES` if it is set."""
    return count * int(os.environ.get("EXAMPLES", "1"))
