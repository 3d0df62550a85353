"""Verdicts by the thresholds that were fixed before any result. Pure, but for reading them."""

from __future__ import annotations

import hashlib
import random
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

THRESHOLDS = Path(__file__).parent / "thresholds.toml"
VERDICTS = ("win", "loss", "no difference", "not known")


@dataclass(frozen=True)
class Thresholds:
    """Thresholds as they are in the file."""

    digest: str
    values: Mapping[str, Any]


def read_thresholds(path: Path = THRESHOLDS) -> Thresholds:
    data = path.read_bytes().replace(b"\r\n", b"\n")
    return Thresholds(hashlib.sha256(data).hexdigest(), tomllib.loads(data.decode("utf-8")))


@dataclass(frozen=True)
class Interval:
    """A figure with the interval in which it lies at the confidence of the thresholds."""

    figure: float
    low: float
    high: float


Pair = tuple[Sequence[float], Sequence[float]]
"""The figures of one task: of each repetition in the arm `code`, and in the other arm."""


def difference(pairs: Sequence[Pair]) -> float:
    """Return the difference of the means. Each task counts the same, however often it was repeated."""
    return sum(_mean(ours) - _mean(others) for ours, others in pairs) / len(pairs)


def ratio(pairs: Sequence[Pair]) -> float:
    """Return the ratio of the sums of all tasks; infinity if the other arm has nothing."""
    below = sum(_mean(others) for _, others in pairs)
    return sum(_mean(ours) for ours, _ in pairs) / below if below else float("inf")


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def bootstrap(pairs: Sequence[Pair], figure: Callable[[Sequence[Pair]], float], rules: Thresholds) -> Interval:
    """Return a figure and its interval by the paired bootstrap over tasks."""
    chosen, count = random.Random(rules.values["interval"]["seed"]), rules.values["interval"]["resamples"]
    # Means are taken once: each task is one pair of means from here on.
    means: list[Pair] = [([_mean(ours)], [_mean(others)]) for ours, others in pairs]
    found = sorted(figure([means[chosen.randrange(len(means))] for _ in means]) for _ in range(count))
    outside = (1 - rules.values["interval"]["confidence"]) / 2
    return Interval(figure(pairs), found[int(outside * count)], found[min(count - 1, int((1 - outside) * count))])


def success_verdict(interval: Interval, rules: Thresholds) -> str:
    least = rules.values["success"]["least"]
    if interval.low > 0 and interval.figure >= least:
        return "win"
    if interval.high < 0 and interval.figure <= -least:
        return "loss"
    return "no difference" if -least < interval.low and interval.high < least else "not known"


def ratio_verdict(interval: Interval, rules: Thresholds) -> str:
    win, loss = rules.values["ratio"]["win"], rules.values["ratio"]["loss"]
    if interval.high < win:
        return "win"
    if interval.low > loss:
        return "loss"
    return "no difference" if win < interval.low and interval.high < loss else "not known"
