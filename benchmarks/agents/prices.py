"""Money that a conversation costs, by usage figures and a table of prices that the user gives."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from benchmarks.agents.wire_forms import Usage


@dataclass(frozen=True)
class Prices:
    """Prices of one model for a million tokens."""

    input: float
    output: float
    cache_read: float
    cache_write: float

    def billed(self, usage: Usage) -> float:
        """Return the price with the cache as it was used."""
        parts = (
            usage.fresh * self.input,
            usage.read * self.cache_read,
            usage.written * self.cache_write,
            usage.output * self.output,
        )
        return sum(parts) / 1e6

    def uncached(self, usage: Usage) -> float:
        """Return the price that the same tokens have without a cache."""
        return (usage.input * self.input + usage.output * self.output) / 1e6


def read_prices(path: Path, model: str) -> Prices:
    """Return the prices of a model from a JSON file.

    Raises:
        SystemExit: the file has none.
    """
    example = '{"MODEL": {"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75}}'
    try:
        entry = json.loads(path.read_text("utf-8"))[model]
        return Prices(*(float(entry[name]) for name in ("input", "output", "cache_read", "cache_write")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        problem = f"{path} has no prices of {model} ({type(error).__name__}: {error})"
        raise SystemExit(f"{problem}. Write them for a million tokens: {example}") from error
