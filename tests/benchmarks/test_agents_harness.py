"""The harness that gives tasks to models: a scripted model does them over both wire forms, with real servers."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks.agents.__main__ import main
from benchmarks.agents.conversation import Limits, Outcome, answer_of
from benchmarks.agents.endpoint import Endpoint, EndpointError
from benchmarks.agents.prices import Prices
from benchmarks.agents.report import NotComparable, report
from benchmarks.agents.runner import Budget, Plan, RunStopped, read_results, run, write_settings
from benchmarks.agents.statistics import (
    Interval,
    Thresholds,
    bootstrap,
    difference,
    ratio,
    ratio_verdict,
    read_thresholds,
    success_verdict,
)
from benchmarks.agents.task import TASKS
from benchmarks.agents.wire_forms import FORMS, Settings, Usage
from tests.benchmarks.scripted_endpoint import ScriptedModel, serving
from tests.values import replace

pytestmark = pytest.mark.anyio
BY_NAME = {task.name: task for task in TASKS}
KEY = "sk-secret-0123456789"
PRICES = Prices(input=3, output=15, cache_read=0.3, cache_write=3.75)
FIXED = read_thresholds()
RULES = Thresholds(FIXED.digest, {**FIXED.values, "interval": {**FIXED.values["interval"], "resamples": 300}})
MOVE, LETTER = BY_NAME["move-customer"], BY_NAME["morning-letter"]
SELLER = "nils.okafor@acme.example"

LETTER_CALLS = [
    ("crm__get_customer", {"id": "C-117"}),
    ("billing__get_invoice", {"number": "INV-1100"}),
    ("support__get_ticket", {"id": 5100}),
    ("people__get_employee", {"email": "rosa.moreau@acme.example"}),
    ("rates__get_rate", {"currency": "NOK", "day": "2026-06-13"}),
]
"""Parallel calls; the last one is refused, because it asks for a Saturday."""


def scripts() -> dict[tuple[str, str], list[Any]]:
    letter = "ANSWER: " + json.dumps(LETTER.answer)
    move = f"Done.\n**ANSWER:** {json.dumps(MOVE.answer)}"
    return {
        (LETTER.question[:20], "crm__list_customers"): [LETTER_CALLS, letter],
        (MOVE.question[:20], "crm__list_customers"): [
            [("crm__find_customers", {"words": "Cedar Foods"})],
            [("crm__update_customer", {"id": "C-139", "owner": SELLER})],
            move,
        ],
        (MOVE.question[:20], "search"): [[("search", {"query": "find a customer"})], move],
        (MOVE.question[:20], "exec"): [[("exec", {"code": MOVE.programs[0]})], 'ANSWER: "C-138"'],
    }


def plan(folder: Path, form: str, base: str, tasks: list[Any], arms: tuple[str, ...], **more: Any) -> Plan:
    settings = Settings("scripted", **more)
    return Plan(folder, tasks, form, FORMS[form], base, settings, 1, Limits(turns=5), arms)


async def results_of(planned: Plan, budget: Budget | None = None) -> tuple[list[dict[str, Any]], list[float]]:
    """Have the conversations of a plan, and return the results and the pauses."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    endpoint = Endpoint(planned.base, planned.form, KEY, sleep=sleep)
    try:
        await run(planned, endpoint, PRICES, budget or Budget(), lambda _: None)
    finally:
        await endpoint.close()
    return read_results(planned.folder), pauses


@pytest.mark.parametrize("form", FORMS)
async def test_a_model_makes_parallel_calls_in_each_form_and_failures_that_pass_are_tried_again(
    form: str, tmp_path: Path
) -> None:
    model = ScriptedModel(scripts(), failures=[429, 500])
    with serving(model) as base:
        (result,), pauses = await results_of(plan(tmp_path, form, base, [LETTER], ("direct",), seed=5))
    assert pauses == [7.0, 2.0]
    assert (result["grade"], result["turns"], result["calls"], result["refused"]) == ("right", 2, 5, 1)
    cached = {"anthropic": [20, 1000, 200, 10], "openai": [220, 1000, 0, 10]}[form]
    assert [result["usage"][name] for name in ("fresh", "read", "written", "output")] == cached
    last = json.dumps(model.requests[-1])
    assert "Use the Friday before, 2026-06-12" in last
    assert last.count('"role": "tool"') == {"anthropic": 0, "openai": 5}[form]
    assert last.count('"type": "tool_result"') == {"anthropic": 5, "openai": 0}[form]
    assert last.count("cache_control") == {"anthropic": 2, "openai": 0}[form]
    assert model.requests[-1].get("seed") == {"anthropic": None, "openai": 5}[form]
    assert any(KEY in key for key in model.keys)
    names = ("run.json", "results.jsonl", "transcripts/morning-letter.direct.0.jsonl")
    texts = [(tmp_path / name).read_text("utf-8") for name in names]
    assert [text for text in texts if KEY in text] == []
    kinds = [json.loads(line)["kind"] for line in texts[-1].splitlines()]
    assert kinds == ["system", "tools", "user", "model", *["result"] * 5, "model", "end"]


async def test_a_stopped_run_continues_and_its_report_shows_each_failure(tmp_path: Path) -> None:
    model = ScriptedModel(scripts())
    with serving(model) as base:
        planned = plan(tmp_path, "anthropic", base, [MOVE], ("code", "direct", "search"))
        with pytest.raises(RunStopped, match="2 conversations are left; the same command continues"):
            await results_of(planned, Budget(money=0.000001))
        before = len(model.requests)
        with (tmp_path / "results.jsonl").open("a", encoding="utf-8") as file:
            file.write('{"task": "move-cust')  # a line that a killed process has not finished
        model.failures = [400]
        with pytest.raises(RunStopped, match=r"400.*\n2 conversations are left") as stopped:
            await results_of(planned)
        assert "[key]" in str(stopped.value)
        assert KEY not in str(stopped.value)
        results, _ = await results_of(planned)
        with pytest.raises(RunStopped, match=r"run\.json has another value of settings"):
            await results_of(plan(tmp_path, "anthropic", base, [MOVE], ("code", "direct", "search"), cache=False))
    assert before == 2
    assert [(each["arm"], each["grade"]) for each in results] == [
        ("code", "wrong answer"),
        ("direct", "right"),
        ("search", "wrong changes"),
    ]
    assert "customers lacks" in results[2]["detail"]
    assert results[0]["detail"] == '"C-138" instead of "C-139"'
    assert KEY not in (tmp_path / "transcripts" / "move-customer.search.0.jsonl").read_text("utf-8")
    text = report(tmp_path, PRICES, RULES)
    assert "**No verdicts.**" in text
    assert "| wrong answer | 0 | 0 | 1 |" in text
    assert "| wrong changes | 0 | 1 | 0 |" in text
    assert "| right answers | code - direct | -1.000 |" in text
    assert "| 1 | direct | 1 | 100% (100% to 100%) |" in text
    other = Thresholds("0" * 64, RULES.values)
    with pytest.raises(NotComparable, match="began with other thresholds"):
        report(tmp_path, PRICES, other)


def test_the_command_runs_a_task_prints_the_report_and_takes_the_key_from_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prices, out = tmp_path / "prices.json", str(tmp_path / "run")
    prices.write_text('{"scripted": {"input": 1, "output": 1, "cache_read": 1, "cache_write": 1}}')
    monkeypatch.setenv("A_KEY", KEY)
    model = ScriptedModel(scripts())
    with serving(model) as base:
        command = ["run", "--out", out, "--form", "openai", "--base", base, "--model", "scripted", "--arm", "direct"]
        command += ["--repetitions", "1", "--key-variable", "A_KEY", "--task", MOVE.name]
        with pytest.raises(SystemExit, match="--max-money needs --prices"):
            main([*command, "--max-money", "1"])
        assert main(command) == 0
    assert model.keys == {f"Bearer {KEY}"}
    assert main(["report", out, "--prices", str(prices)]) == 0
    shown = capsys.readouterr()
    assert "1/1 move-customer direct 0: right" in shown.err
    assert "| move-customer | 1 | 1 of 1 / " in shown.out
    assert main(["report", str(tmp_path)]) == 1
    with pytest.raises(SystemExit, match="There is no task 'moves'"):
        main(["offline", "moves"])


async def test_an_endpoint_that_stays_away_or_answers_nonsense_is_no_failure_of_the_model() -> None:
    async def sleep(_: float) -> None:
        pass

    model = ScriptedModel({}, failures=[503] * 7 + [401])
    with serving(model) as base:
        endpoint = Endpoint(base, FORMS["openai"], KEY, sleep=sleep)
        for status in (503, 401):
            with pytest.raises(EndpointError, match=str(status)) as raised:
                await endpoint.ask({})
            assert KEY not in str(raised.value)
        await endpoint.close()
    assert endpoint.retries == 6
    wrong = Endpoint("http://127.0.0.1:9", FORMS["openai"], KEY, sleep=sleep)
    with pytest.raises(EndpointError, match="cannot be reached"):
        await wrong.ask({})
    assert wrong.retries == 0


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('so it is\nANSWER: {"a": [1]}', (True, {"a": [1]})),
        ("**ANSWER:** 17", (True, 17)),
        ("ANSWER: 1\nno, wait\nANSWER: `2` is it", (True, 2)),
        ("ANSWER: forty", (False, None)),
        ("17", (False, None)),
    ],
)
def test_the_answer_is_the_json_after_the_last_mark(text: str, answer: object) -> None:
    assert answer_of(text) == answer


def test_money_is_counted_with_and_without_the_cache() -> None:
    usage = Usage(fresh=1_000_000, read=2_000_000, written=1_000_000, output=100_000)
    assert PRICES.billed(usage) == pytest.approx(3 + 0.6 + 3.75 + 1.5)
    assert PRICES.uncached(usage) == pytest.approx(12 + 1.5)


def test_verdicts_follow_the_thresholds_and_losses_are_told_as_wins_are() -> None:
    rules = read_thresholds()
    success = {(0.2, 0.1, 0.3): "win", (-0.2, -0.3, -0.1): "loss", (0.0, -0.04, 0.04): "no difference"}
    success |= {(0.04, 0.01, 0.07): "not known", (0.2, -0.1, 0.5): "not known"}
    assert {key: success_verdict(Interval(*key), rules) for key in success} == success
    ratios = {(0.5, 0.4, 0.6): "win", (2.0, 1.2, 3.0): "loss", (1.0, 0.95, 1.05): "no difference"}
    ratios |= {(0.8, 0.7, 0.95): "not known"}
    assert {key: ratio_verdict(Interval(*key), rules) for key in ratios} == ratios


def test_a_report_says_a_loss_in_the_same_form_as_a_win(tmp_path: Path) -> None:
    """Make results in which programs need few tokens, and are wrong in every second task."""
    planned = replace(plan(tmp_path, "anthropic", "http://127.0.0.1:9", list(TASKS), ("direct", "code")), repetitions=3)
    write_settings(planned)
    with (tmp_path / "results.jsonl").open("w", encoding="utf-8") as file:
        for number, (task, arm, repetition) in enumerate(planned.conversations()):
            code = arm == "code"
            tokens = (100 if code else 1000) + number % 7
            usage = {"fresh": tokens, "read": 0, "written": 0, "output": 300 if code else 200}
            outcome = Outcome("wrong answer" if code and TASKS.index(task) % 2 else "right", "", Usage(**usage), 4, 4)
            entry = {"task": task.name, "arm": arm, "repetition": repetition, "servers": len(task.servers)}
            file.write(json.dumps({**entry, **asdict(outcome)}) + "\n")
    text = report(tmp_path, None, RULES)
    assert "No verdicts" not in text
    assert re.search(r"\| right answers \| code - direct \| -0\.\d+ \| .* \| \*\*loss\*\* \|", text)
    assert re.search(r"\| input tokens \| code / direct \| 0\.1\d? \| .* \| \*\*win\*\* \|", text)
    assert "**Win** of `code`: input tokens (direct)." in text
    assert "**Loss** of `code`: right answers (direct); output tokens (direct)." in text
    assert "**No difference** of `code`: turns (direct); seconds (direct)." in text
    assert text.count("| wrong answer | 0 | ") == 1


def test_the_interval_holds_the_figure_is_paired_and_is_the_same_each_time() -> None:
    paired = [([100.0 * task], [101.0 * task]) for task in range(1, 31)]  # tasks differ much, arms hardly
    found = bootstrap(paired, ratio, RULES)
    assert found == bootstrap(paired, ratio, RULES)
    assert 0.98 < found.low <= found.figure <= found.high < 1.0
    rates = [([1.0, 1.0, float(task % 2)], [0.0, 1.0, 0.0]) for task in range(40)]
    found = bootstrap(rates, difference, RULES)
    assert found.figure == pytest.approx(0.5)
    assert found.low < 0.5 < found.high
