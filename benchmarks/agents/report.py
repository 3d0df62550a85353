"""The report of a run in Markdown. Losses have the same place and form as wins. Pure, but for reading the run."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.agents.arms import ARMS
from benchmarks.agents.prices import Prices
from benchmarks.agents.runner import read_results
from benchmarks.agents.statistics import (
    VERDICTS,
    Interval,
    Pair,
    Thresholds,
    bootstrap,
    difference,
    ratio,
    ratio_verdict,
    success_verdict,
)
from benchmarks.agents.wire_forms import Usage

Result = dict[str, Any]
Measure = Callable[[Result], float]


@dataclass(frozen=True)
class Verdict:
    """One comparison of two arms by one measure."""

    measure: str
    arms: tuple[str, str]
    interval: Interval
    verdict: str


class NotComparable(Exception):
    """Results that no report can be made of."""


def right(result: Result) -> float:
    return float(result["grade"] == "right")


def measures(prices: Prices | None) -> dict[str, Measure]:
    """Return the measures that are compared as ratios."""
    found: dict[str, Measure] = {
        "input tokens": lambda result: Usage(**result["usage"]).input,
        "output tokens": lambda result: result["usage"]["output"],
        "turns": lambda result: result["turns"],
        "seconds": lambda result: result["seconds"],
    }
    if prices is None:
        return found
    money: dict[str, Measure] = {
        "money, with the cache as it was used": lambda result: prices.billed(Usage(**result["usage"])),
        "money, without a cache": lambda result: prices.uncached(Usage(**result["usage"])),
    }
    return money | found


def pairs(results: Sequence[Result], arms: tuple[str, str], measure: Measure) -> list[Pair]:
    """Return the figures of all tasks that both arms have done equally often."""
    by_task: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        by_task[result["task"]][result["arm"]].append(measure(result))
    found = [(each[arms[0]], each[arms[1]]) for each in by_task.values()]
    return [(ours, others) for ours, others in found if ours and len(ours) == len(others)]


def verdicts(results: Sequence[Result], prices: Prices | None, rules: Thresholds) -> Iterator[Verdict]:
    """Yield the verdicts of both comparisons."""
    for kind in ("primary", "secondary"):
        ours, other = rules.values["comparisons"][kind]
        arms = (ours, other)
        found = pairs(results, arms, right)
        if not found:
            continue
        interval = bootstrap(found, difference, rules)
        yield Verdict("right answers", arms, interval, success_verdict(interval, rules))
        for name, measure in measures(prices).items():
            interval = bootstrap(pairs(results, arms, measure), ratio, rules)
            yield Verdict(name, arms, interval, ratio_verdict(interval, rules))


def report(folder: Path, prices: Prices | None, rules: Thresholds) -> str:
    """Return the report of a run.

    Raises:
        NotComparable: there are no results, or they were made with other thresholds.
    """
    path = folder / "run.json"
    if not path.exists():
        raise NotComparable(f"{folder} has no run.json: it is no folder of a run.")
    about = json.loads(path.read_text("utf-8"))
    plan, results = about["plan"], read_results(folder)
    if not results:
        raise NotComparable(f"{folder} has no results yet.")
    if plan["thresholds"] != rules.digest:
        raise NotComparable(
            f"The run in {folder} began with other thresholds ({plan['thresholds'][:12]}) than those of "
            f"thresholds.toml ({rules.digest[:12]}). Restore the file, or begin a new run."
        )
    wanted = len(plan["names"]) * len(plan["arms"]) * plan["repetitions"]
    sample = rules.values["sample"]
    enough = len(plan["names"]) >= sample["tasks"] and plan["repetitions"] >= sample["repetitions"]
    settings = plan["settings"]
    lines = [
        f"# {settings['model']}",
        "",
        f"{plan['endpoint']} ({plan['form']}), begun {about['began']}, codemode-mcp {plan['codemode_mcp']}, "
        f"{len(plan['names'])} tasks, {plan['repetitions']} repetitions, {plan['connected']} servers "
        f"connected, prompt caching {'asked for' if settings['cache'] else 'not asked for'}, "
        f"temperature {settings['temperature']}, seed {settings['seed']}. "
        f"{len(results)} of {wanted} conversations have ended.",
        "",
        "## Verdicts",
        "",
    ]
    if not enough or len(results) < wanted:
        lines.append(
            f"**No verdicts.** The thresholds want all conversations of at least {sample['tasks']} tasks and "
            f"{sample['repetitions']} repetitions."
        )
    lines += _verdict_tables(list(verdicts(results, prices, rules)), judged=enough and len(results) == wanted)
    lines += [
        "",
        "Means of tasks follow, each with its interval.",
        "",
        "## By arm",
        "",
        *_by_arm(results, prices, rules),
    ]
    lines += ["", "## By number of servers", "", *_by_servers(results, prices, rules)]
    lines += ["", "## Failures", "", *_failures(results)]
    lines += ["", "## By task", "", *_by_task(results, plan["arms"])]
    return "\n".join(lines) + "\n"


def _verdict_tables(found: Sequence[Verdict], *, judged: bool) -> list[str]:
    lines = ["", "| measure | arms | figure | interval | verdict |", "| --- | --- | ---: | ---: | --- |"]
    for each in found:
        signed = "+.3f" if each.measure == "right answers" else ".2f"
        shown = [format(value, signed) for value in (each.interval.figure, each.interval.low, each.interval.high)]
        between = f"{each.arms[0]} {'-' if signed == '+.3f' else '/'} {each.arms[1]}"
        verdict = f"**{each.verdict}**" if judged else "-"
        lines.append(f"| {each.measure} | {between} | {shown[0]} | {shown[1]} to {shown[2]} | {verdict} |")
    if judged:
        for verdict in VERDICTS:
            names = [f"{each.measure} ({each.arms[1]})" for each in found if each.verdict == verdict]
            lines += ["", f"**{verdict.capitalize()}** of `code`: {'; '.join(names) or 'none'}."]
    return lines


def _by_arm(results: Sequence[Result], prices: Prices | None, rules: Thresholds) -> list[str]:
    """Return a row for each arm: means with their intervals."""
    shown = ["right", *measures(prices), "calls", "refused calls"]
    lines = [f"| arm | conversations | {' | '.join(shown)} |", f"| --- | ---: |{' ---: |' * len(shown)}"]
    for arm, own in _grouped(results, "arm").items():
        cells = [_percent(_interval(own, right, rules))]
        cells += [_between(_interval(own, measure, rules)) for measure in measures(prices).values()]
        cells += [f"{_mean(own, lambda each: each[name]):.1f}" for name in ("calls", "refused")]  # noqa: B023
        lines.append(f"| {arm} | {len(own)} | {' | '.join(cells)} |")
    return lines


def _by_servers(results: Sequence[Result], prices: Prices | None, rules: Thresholds) -> list[str]:
    """Return a row for each number of servers and arm: means with their intervals."""
    shown = ["right", *measures(prices)]
    lines = [
        f"| servers | arm | conversations | {' | '.join(shown)} |",
        f"| ---: | --- | ---: |{' ---: |' * len(shown)}",
    ]
    for count, some in sorted(_grouped(results, "servers").items()):
        for arm, own in _grouped(some, "arm").items():
            cells = [_percent(_interval(own, right, rules))]
            cells += [_between(_interval(own, measure, rules)) for measure in measures(prices).values()]
            lines.append(f"| {count} | {arm} | {len(own)} | {' | '.join(cells)} |")
    return lines


def _interval(results: Sequence[Result], measure: Measure, rules: Thresholds) -> Interval:
    """Return the mean of a measure, each task counting the same, and its interval over tasks."""
    tasks = _grouped(results, "task").values()
    return bootstrap([([measure(each) for each in own], [0.0]) for own in tasks], difference, rules)


def _percent(interval: Interval) -> str:
    return f"{interval.figure:.0%} ({interval.low:.0%} to {interval.high:.0%})"


def _between(interval: Interval) -> str:
    return f"{interval.figure:,.4g} ({interval.low:,.4g} to {interval.high:,.4g})"


def _failures(results: Sequence[Result]) -> list[str]:
    arms = list(_grouped(results, "arm"))
    counts = Counter((each["grade"], each["arm"]) for each in results if each["grade"] != "right")
    kinds = sorted({kind for kind, _ in counts})
    lines = [f"| kind | {' | '.join(arms)} |", f"| --- |{' ---: |' * len(arms)}"]
    return lines + [f"| {kind} | {' | '.join(str(counts[kind, arm]) for arm in arms)} |" for kind in kinds]


def _by_task(results: Sequence[Result], arms: Sequence[str]) -> list[str]:
    lines = [f"| task | servers | {' | '.join(f'{arm}: right / input tokens / turns' for arm in arms)} |"]
    lines.append(f"| --- | ---: |{' ---: |' * len(arms)}")
    for task, some in _grouped(results, "task").items():
        cells = []
        for arm in arms:
            own = [each for each in some if each["arm"] == arm]
            if not own:
                cells.append("-")
                continue
            tokens, turns = (
                _mean(own, lambda each: Usage(**each["usage"]).input),
                _mean(own, lambda each: each["turns"]),
            )
            cells.append(f"{sum(map(right, own)):.0f} of {len(own)} / {tokens:,.0f} / {turns:.1f}")
        lines.append(f"| {task} | {some[0]['servers']} | {' | '.join(cells)} |")
    return lines


def _grouped(results: Sequence[Result], key: str) -> Mapping[Any, list[Result]]:
    """Return results by the value of a key. Arms have the same order everywhere."""
    groups: dict[Any, list[Result]] = {arm: [] for arm in ARMS if any(each.get(key) == arm for each in results)}
    for result in results:
        groups.setdefault(result[key], []).append(result)
    return groups


def _mean(results: Sequence[Result], measure: Measure) -> float:
    return sum(map(measure, results)) / len(results)
