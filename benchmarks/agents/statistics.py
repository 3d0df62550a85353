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


Figure = Callable[[float, float, int], float]
"""A figure of the sums of both arms over so many tasks. Each task counts the same, however often it was repeated."""


def difference(ours: float, others: float, tasks: int) -> float:
    """Return the difference of the means."""
    return (ours - others) / tasks


def ratio(ours: float, others: float, tasks: int) -> float:
    """Return the ratio of the sums: 1 if both are nothing, infinity if only the other one is."""
    if not others:
        return float("inf") if ours else 1.0
    return ours / others


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def bootstrap(pairs: Sequence[Pair], figure: Figure, rules: Thresholds) -> Interval:
    """Return a figure and its interval by the paired bootstrap over tasks."""
    chosen, count = random.Random(rules.values["interval"]["seed"]), rules.values["interval"]["resamples"]
    tasks = range(len(pairs))
    ours, others = [_mean(first) for first, _ in pairs], [_mean(second) for _, second in pairs]
    found: list[float] = []
    for _ in range(count):
        drawn = chosen.choices(tasks, k=len(tasks))
        found.append(figure(sum(map(ours.__getitem__, drawn)), sum(map(others.__getitem__, drawn)), len(tasks)))
    found.sort()
    outside = (1 - rules.values["interval"]["confidence"]) / 2
    low, high = found[int(outside * count)], found[min(count - 1, int((1 - outside) * count))]
    return Interval(figure(sum(ours), sum(others), len(tasks)), low, high)


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
