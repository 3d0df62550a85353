"""The dashboard of `examples/deployment`: Grafana's own types have all of it, and its queries name metrics and labels
as the exporter of OpenTelemetry for Prometheus writes them.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Sample

from codemode_mcp.audit.events import Auditor
from codemode_mcp.audit.spans import Spans

DASHBOARD: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "examples" / "deployment" / "grafana-dashboard.json").read_text("utf-8")
)
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
OF_PROMETHEUS = {"job", "instance"}
"""Labels that Prometheus adds to all metrics of a process."""

LEFT_OUT: dict[str, str] = {"target": "has the versions of the process, and no measurement"}
"""Metrics without a panel, with the reason."""


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    """Return what Prometheus gets, after all that changes a metric has happened."""
    registry = CollectorRegistry()
    meters = MeterProvider([PrometheusMetricReader(registry=registry)])
    auditor = Auditor()
    spans = Spans(str, None, meters)
    auditor.add(spans.record)
    auditor.add_meter(spans.measure)
    auditor.emit("run_started", "run_a", language="javascript")
    auditor.emit("call_started", "run_a/1", "run_a", tool="mcp:s:t")
    auditor.emit("call_ended", "run_a/1", "run_a", tool="mcp:s:t", status="completed", ms=1, bytes=1, dispatched=True)
    auditor.emit("parked", "run_a", reason="yield")
    auditor.emit("run_ended", "run_a", status="completed", calls=1, waits=0, snapshots=1)
    auditor.measure("store_swept", "postgres", suspended=1, oldest=1.0, size=1)
    auditor.measure("store_used", "postgres", seconds=1.0, failed=True)
    found = [sample for family in registry.collect() for sample in family.samples]
    meters.shutdown()
    return found


@pytest.fixture(scope="module")
def exported(samples: list[Sample]) -> dict[str, set[str]]:
    """Return the labels of each sample."""
    return {sample.name: set(sample.labels) for sample in samples}


def panels() -> list[dict[str, Any]]:
    """Return all panels but the rows, which have a title only."""
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def queries() -> Iterator[tuple[dict[str, Any], promql.Expr]]:
    """Yield each query, with the values of variables that Grafana would set, and its target."""
    for panel in panels():
        for target in panel["targets"]:
            text = target["expr"].replace("$__rate_interval", "5m").replace("$job", ".*")
            assert "$" not in text
            yield target, promql.parse(text)


def within(expression: Any) -> Iterator[Any]:
    """Yield an expression and all that it is made of."""
    yield expression
    for name in ("expr", "lhs", "rhs", "param", "vector_selector"):
        if (inner := getattr(expression, name, None)) is not None:
            yield from within(inner)
    for inner in getattr(expression, "args", ()):
        yield from within(inner)


def selectors(expression: promql.Expr) -> list[promql.VectorSelector]:
    """Return the selections of metrics in an expression."""
    return [each for each in within(expression) if isinstance(each, promql.VectorSelector)]


def test_grafanas_types_have_all_members_of_the_dashboard() -> None:
    register_default_plugins()
    again = json.loads(json.dumps(Dashboard.from_json(DASHBOARD), cls=JSONEncoder))

    def lost(ours: Any, theirs: Any, place: str) -> Iterator[str]:
        """Yield the places that another value has there, or none. Defaults may be added."""
        if isinstance(ours, dict) and isinstance(theirs, dict):
            for key, value in ours.items():
                yield from lost(value, theirs.get(key), f"{place}.{key}")
        elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
            for number, pair in enumerate(zip(ours, theirs, strict=True)):
                yield from lost(*pair, f"{place}[{number}]")
        elif ours != theirs:
            yield f"{place}: {ours} became {theirs}"

    assert list(lost(DASHBOARD, again, "dashboard")) == []


def test_the_dashboard_can_be_imported_anywhere() -> None:
    assert not DASHBOARD.keys() & {"id", "uid", "version", "gnetId"}, "these belong to one Grafana"
    source, job = DASHBOARD["templating"]["list"]
    assert (source["name"], source["type"], source["query"]) == ("datasource", "datasource", "prometheus")
    assert job["datasource"] == SOURCE
    for panel in panels():
        assert panel["datasource"] == SOURCE
        assert all(target["datasource"] == SOURCE for target in panel["targets"])
        assert [target["refId"] for target in panel["targets"]] == [*"ABC"][: len(panel["targets"])]
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    for one, other in combinations([panel["gridPos"] for panel in DASHBOARD["panels"]], 2):
        apart = [one[at] + one[size] <= other[at] or other[at] + other[size] <= one[at] for at, size in ("xw", "yh")]
        assert any(apart), f"panels overlap at {one} and {other}"
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in DASHBOARD["panels"])


def test_every_metric_and_label_of_a_query_is_exported(exported: dict[str, set[str]]) -> None:
    for target, expression in queries():
        (labels,) = {frozenset(exported[each.name]) for each in selectors(expression)}
        named = {matcher.name for each in selectors(expression) for matcher in each.matchers.matchers}
        grouped = {
            label
            for each in within(expression)
            if isinstance(each, promql.AggregateExpr) and each.modifier is not None
            for label in each.modifier.labels
        }
        shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        assert named | grouped <= labels | OF_PROMETHEUS, target["expr"]
        assert shown <= grouped, target["expr"]
        assert "job" in named, "the variable `job` would not count here"
    (variable,) = [each["query"] for each in DASHBOARD["templating"]["list"] if each["type"] == "query"]
    assert re.fullmatch(r"label_values\((\w+), job\)", variable)[1] in exported  # type: ignore[index]


def test_every_exported_metric_has_a_panel_or_a_reason(exported: dict[str, set[str]]) -> None:
    def family(name: str) -> str:
        return re.sub(r"_(bucket|count|sum|total|info)$", "", name)

    shown = {family(each.name) for _, expression in queries() for each in selectors(expression)}
    assert {family(name) for name in exported} == shown | LEFT_OUT.keys()
    assert not shown & LEFT_OUT.keys()


@pytest.mark.parametrize(
    ("metric", "values"),
    [
        ("codemode_call_duration_seconds", (0.002, 0.02, 0.2, 2.0, 20.0, 200.0)),
        ("codemode_call_result_size_bytes", (100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)),
        ("codemode_store_duration_seconds", (0.0002, 0.002, 0.02, 0.2, 2.0)),
    ],
)
def test_quantiles_tell_ordinary_values_apart(samples: list[Sample], metric: str, values: tuple[float, ...]) -> None:
    """The default boundaries of OpenTelemetry, from 5 to 10,000, have all durations of calls in one bucket."""
    boundaries = sorted({float(each.labels["le"]) for each in samples if each.name == f"{metric}_bucket"})
    buckets = [bisect_left(boundaries, value) for value in values]
    assert len(set(buckets)) == len(values)
    assert buckets[-1] < len(boundaries) - 1, "nothing is known of values in the last bucket"
