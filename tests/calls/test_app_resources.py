"""Tests that programs can neither list nor read the resources of apps."""

from __future__ import annotations

from typing import Any

import pytest

from codemode_mcp.sandbox.engine import Engine
from tests.runs.bench import bench, ran
from upstream_clients.testing import ScriptedSource

RESOURCES = [
    {"uri": "ui://clock/app.html", "name": "app"},
    {"uri": "file:///a", "name": "a"},
    {"uri": "UI://x", "name": "x"},
]
TEMPLATES = [{"uriTemplate": "ui://clock/{name}", "name": "apps"}, {"uriTemplate": "file:///{name}", "name": "files"}]


def clock() -> ScriptedSource:
    return ScriptedSource(
        "clock",
        {
            "resources/list": {"resources": RESOURCES},
            "resources/templates/list": {"resourceTemplates": TEMPLATES},
            "resources/read": {"contents": [{"uri": "file:///a", "text": "a"}]},
            "completion/complete": {"completion": {"values": []}},
        },
        resources=True,
        completions=True,
    )


@pytest.mark.parametrize(
    "uri", ["ui://clock/app.html", "UI://clock/app.html", " ui://clock/app.html", "\\tui://x", "ui:x"]
)
async def test_a_program_cannot_read_an_app(engine: Engine, uri: str) -> None:
    source = clock()
    async with bench(engine, source) as it:
        outcome = await it.execute(f'await MCP.clock.resources.read({{ uri: "{uri}" }})')
        assert outcome.status == "failed"
        assert "ui:// resources are apps, which programs cannot read" in outcome.error
        assert "show(result)" in outcome.error
        assert source.calls == []


async def test_other_resources_are_read(engine: Engine) -> None:
    async with bench(engine, clock()) as it:
        outcome = await it.execute('return (await MCP.clock.resources.read({ uri: "file:///a" })).contents[0].text')
        assert outcome.value == "a"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("(await MCP.clock.resources.list()).resources.map((each) => each.uri)", ["file:///a"]),
        ("(await MCP.clock.resources.templates()).resourceTemplates.map((each) => each.name)", ["files"]),
    ],
)
async def test_apps_are_not_in_the_lists_of_programs(engine: Engine, code: str, expected: Any) -> None:
    assert (await ran(engine, f"return {code}", clock())).value == expected
