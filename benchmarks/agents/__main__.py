"""The command: `python -m benchmarks.agents list|offline|run|report`, from the root of a checkout."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio

from benchmarks.agents import page
from benchmarks.agents.arms import ARMS, CONNECTED
from benchmarks.agents.conversation import Limits
from benchmarks.agents.endpoint import Endpoint
from benchmarks.agents.offline import ScriptFailed, measure_all
from benchmarks.agents.prices import Prices, read_prices
from benchmarks.agents.report import NotComparable, report
from benchmarks.agents.runner import Budget, Plan, RunStopped, run
from benchmarks.agents.statistics import read_thresholds
from benchmarks.agents.task import TASKS, Task
from benchmarks.agents.wire_forms import FORMS, Settings


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        return int(options.does(options))
    except (ScriptFailed, RunStopped, NotComparable) as problem:
        print(problem, file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agents", description=__doc__)
    commands = parser.add_subparsers(required=True)
    listing = commands.add_parser("list", help="print the tasks with their right answers")
    listing.set_defaults(does=_list)
    offline = commands.add_parser("offline", help="measure bytes by scripts, without a model")
    offline.add_argument("--update", action="store_true", help="write the figures of all tasks into docs/evidence.md")
    offline.add_argument("--check", action="store_true", help="fail if figures are not those of docs/evidence.md")
    offline.add_argument("--connected", choices=CONNECTED, action="append", help="servers that are connected")
    offline.add_argument("tasks", nargs="*", metavar="TASK", help="names of tasks; all by default")
    offline.set_defaults(does=_offline)
    online = commands.add_parser("run", help="let a model do the tasks; the same command continues a stopped run")
    add = online.add_argument
    add("--out", type=Path, required=True, help="folder of the run")
    add("--base", required=True, help="address of the endpoint: https://api.anthropic.com, http://127.0.0.1:8080/v1")
    add("--form", choices=sorted(FORMS), required=True, help="form of requests that the endpoint understands")
    add("--model", required=True, help="name of the model at the endpoint")
    add("--key-variable", default="MODEL_API_KEY", help="environment variable with the key (default %(default)s)")
    add("--prices", type=Path, help="JSON file with the prices of the model for a million tokens")
    add("--no-cache", action="store_true", help="ask for no prompt caching")
    add("--repetitions", type=int, default=3)
    add("--seed", type=int, help="seed of the first repetition, where the endpoint takes seeds")
    add("--temperature", type=float)
    add("--max-tokens", type=int, default=Settings.max_tokens, help="limit of one answer (default %(default)s)")
    add("--max-tokens-field", default=Settings.max_tokens_field, help="its name in OpenAI's form (%(default)s)")
    add("--turns", type=int, default=Limits.turns, help="limit of one conversation (default %(default)s)")
    add("--seconds", type=float, default=Limits.seconds, help="limit of one conversation (default %(default)s)")
    add("--max-money", type=float, help="stop when this much is spent; needs --prices")
    add("--max-minutes", type=float, help="stop after this time")
    add("--connected", choices=CONNECTED, default="needed", help="servers that are connected (default %(default)s)")
    add("--arm", action="append", choices=ARMS, dest="arms", help="only this arm; can be repeated")
    add("--task", action="append", dest="tasks", metavar="TASK", help="only this task; can be repeated")
    online.set_defaults(does=_run)
    reporting = commands.add_parser("report", help="print the report of a run in Markdown")
    reporting.add_argument("folder", type=Path, help="folder of the run")
    reporting.add_argument("--prices", type=Path, help="JSON file with the prices of the model for a million tokens")
    reporting.set_defaults(does=_report)
    return parser


def chosen(names: Sequence[str]) -> list[Task]:
    """Return the tasks with these names, or all.

    Raises:
        SystemExit: there is no task with one of the names.
    """
    if unknown := sorted(set(names) - {task.name for task in TASKS}):
        raise SystemExit(f"There is no task {unknown[0]!r}. `list` prints the names.")
    return [task for task in TASKS if not names or task.name in names]


def _list(_: argparse.Namespace) -> int:
    for task in TASKS:
        print(f"{task.name} ({', '.join(task.servers)})\n  {task.question}\n  {task.answer}")
    return 0


def _offline(options: argparse.Namespace) -> int:
    if options.update and (options.tasks or options.connected):
        raise SystemExit("--update needs all figures; name no tasks and no --connected.")
    tasks = chosen(options.tasks)
    figures = {which: anyio.run(measure_all, tasks, which) for which in options.connected or CONNECTED}
    for which, costs in figures.items():
        for measure in (page.read, page.weighed):
            print(f"{which} servers, {measure.__name__}\n", page.summary(tasks, costs, measure), "", sep="\n")
        print(page.by_task(tasks, costs), "", sep="\n")
    if options.update:
        page.write(tasks, figures)
    problems = page.differing(page.read_figures()[1], figures) if options.check else []
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def _run(options: argparse.Namespace) -> int:
    key = os.environ.get(options.key_variable, "")
    prices = read_prices(options.prices, options.model) if options.prices else None
    if options.max_money is not None and prices is None:
        raise SystemExit("--max-money needs --prices.")
    settings = Settings(
        options.model,
        options.max_tokens,
        options.max_tokens_field,
        not options.no_cache,
        options.temperature,
        options.seed,
    )
    plan = Plan(
        options.out,
        chosen(options.tasks or ()),
        options.form,
        FORMS[options.form],
        options.base,
        settings,
        options.repetitions,
        Limits(options.turns, options.seconds),
        tuple(options.arms or ARMS),
        options.connected,
    )
    anyio.run(_converse, plan, key, prices, Budget(options.max_money, options.max_minutes))
    return 0


async def _converse(plan: Plan, key: str, prices: Prices | None, budget: Budget) -> None:
    endpoint = Endpoint(plan.base, plan.form, key)
    try:
        await run(plan, endpoint, prices, budget, lambda line: print(line, file=sys.stderr, flush=True))
    finally:
        await endpoint.close()


def _report(options: argparse.Namespace) -> int:
    model = ""
    if options.prices:
        import json

        model = json.loads((options.folder / "run.json").read_text("utf-8"))["plan"]["settings"]["model"]
    print(report(options.folder, read_prices(options.prices, model) if options.prices else None, read_thresholds()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
