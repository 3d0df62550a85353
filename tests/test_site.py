"""The site builds, its links lead somewhere, it loads nothing from elsewhere, and generated pages match the code."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path

import jsonschema_rs
import pytest

from codemode_mcp.base.errors import ConfigError
from codemode_mcp.config import load_config
from codemode_mcp.config.server_entry import EntryKeys
from codemode_mcp.config.source import parse
from scripts import build_site, diagrams, reference, terminals
from tests.test_docs import misused
from upstream_clients.spec import UpstreamSpec

ROOT = Path(__file__).parents[1]
PICTURES = terminals.FOLDER


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    problems = build_site.build(folder)
    assert problems == []
    return folder / "site"


def test_the_site_has_a_page_for_every_page_of_the_documentation(site: Path) -> None:
    for place in build_site.gather():
        assert (site / place).with_suffix(".html" if place.endswith(".md") else Path(place).suffix).is_file(), place


def test_no_page_and_no_picture_asks_another_host_for_anything(site: Path) -> None:
    for path in site.rglob("*"):
        if path.suffix == ".html":
            text = path.read_text("utf-8")
            assert not re.findall(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(?:https?:)?//", text), path.name
            assert not re.findall(r"<link\b(?![^>]*canonical)[^>]*\bhref=[\"']?(?:https?:)?//", text), path.name
        elif path.suffix in (".css", ".svg"):
            assert not re.findall(
                r"(?:url\(|@import\s|xlink:href=|\bhref=)[\"']?(?:https?:)?//", path.read_text("utf-8")
            ), path.name


def test_a_wrong_link_a_missing_picture_and_a_foreign_script_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="b.html#here">x</a><a href="b.html#there">x</a><a href="c.html">x</a><img src="p.svg">'
        '<script src="https://cdn.example/x.js"></script><a href="https://example.org">x</a>'
    )
    (tmp_path / "b.html").write_text('<p id="here">')
    assert build_site.broken(tmp_path) == [
        "a.html loads https://cdn.example/x.js",
        "a.html: no such place: b.html#there",
        "a.html: nothing is at c.html",
        "a.html: nothing is at p.svg",
    ]


def test_a_page_outside_the_navigation_is_told() -> None:
    pages = build_site.gather()
    del pages["policy.md"]
    pages["lost.md"] = Path("lost.md")
    told = "\n".join(build_site.navigation(pages))
    assert "lost.md is not in `nav`" in told
    assert "has policy.md, which is not there" in told


def test_links_are_made_to_fit_the_place_of_their_page() -> None:
    pages = build_site.gather()
    source = build_site.ROOT / "docs" / "quickstart" / "cursor.md"
    text = "[a](../policy.md#x) [s](../../SECURITY.md) [t](../../tests/run.py) [w](https://w.example)\n```text\n[q](gone.md)\n```\n"
    assert build_site.fitted(text, source, "quickstart/cursor.md", pages) == (
        "[a](../policy.md#x) [s](../security.md) t [w](https://w.example)\n```text\n[q](gone.md)\n```\n"
    )


# generated pages


@pytest.mark.parametrize("name", reference.PAGES)
def test_a_generated_page_is_what_the_code_says(name: str) -> None:
    written = (reference.FOLDER / name).read_text("utf-8")
    assert written == reference.PAGES[name](), "run `.venv/bin/python scripts/reference.py`"


SECTIONS = {
    "": '{ "oops": 1 }',
    "mcpServers.NAME": '{ "mcpServers": { "a": { "command": "c", "oops": 1 } } }',
    "mcpServers.NAME.override.NAME": (
        '{ "mcpServers": { "a": { "command": "c", "override": { "t": { "oops": 1 } } } } }'
    ),
    "mcpServers.NAME.override.NAME.annotations": (
        '{ "mcpServers": { "a": { "command": "c", "override": { "t": { "annotations": { "oops": 1 } } } } } }'
    ),
    "mcpServers.NAME.override.NAME.arguments": (
        '{ "mcpServers": { "a": { "command": "c", "override": { "t": { "arguments": { "oops": 1 } } } } } }'
    ),
    "tools": '{ "tools": { "oops": 1 } }',
    "tools.codeMode": '{ "tools": { "codeMode": { "oops": 1 } } }',
    "tools.contexts.NAME": '{ "tools": { "contexts": { "a": { "for": ["stdio"], "oops": 1 } } } }',
    "tools.duplicates": '{ "tools": { "duplicates": { "oops": 1 } } }',
    "tools.budgets.NAME": '{ "tools": { "budgets": { "a": { "calls": 1, "oops": 1 } } } }',
    "tools.approval": '{ "tools": { "approval": { "oops": 1 } } }',
    "plugins.NAME": '{ "plugins": { "a": { "oops": 1 } } }',
    "expose": '{ "expose": { "oops": 1 } }',
    "clients.GLOB": '{ "clients": { "a": { "oops": 1 } } }',
    "store": '{ "store": { "oops": 1 } }',
    "http": '{ "http": { "oops": 1 } }',
    "http.auth.tokens[]": '{ "http": { "auth": { "tokens": [{ "oops": 1 }] } } }',
    "http.auth": '{ "http": { "auth": { "oops": 1 } } }',
    "instance": '{ "instance": { "oops": 1 } }',
    "ui": '{ "ui": { "oops": 1 } }',
    "audit": '{ "audit": { "oops": 1 } }',
    "log": '{ "log": { "oops": 1 } }',
}
"""Each section with a key that it does not have; the message names those that it has."""


@pytest.mark.parametrize("section", reference.sections(), ids=lambda section: section.path)
def test_the_reference_has_every_key_that_the_configuration_takes(section: reference.Section, tmp_path: Path) -> None:
    path = tmp_path / "codemode-mcp.json"
    path.write_text(SECTIONS[section.path], "utf-8")
    with pytest.raises(ConfigError) as raised:
        load_config(path, environ={})
    (allowed,) = re.findall(r"unknown key.*allowed: (.*)", str(raised.value))
    assert sorted(key for key, *_ in section.rows) == sorted(allowed.split(", "))


def test_the_defaults_of_a_server_entry_are_those_of_its_spec() -> None:
    spec, keys = UpstreamSpec("x", command="x"), dataclasses.fields(EntryKeys)
    defaults = {each.name: each.default for each in keys if each.default is not None}
    own = {name: getattr(spec, name) for name in defaults if hasattr(spec, name)}
    assert own == {name: defaults[name] for name in own}
    assert {"start", "share", "refresh_seconds"} <= own.keys()


def test_the_reference_has_every_section() -> None:
    assert [section.path for section in reference.sections()] == list(SECTIONS)


# the schema of the configuration


def test_the_schema_of_the_configuration_is_what_the_reference_says() -> None:
    assert reference.SCHEMA.read_text("utf-8") == reference.schema(), "run `.venv/bin/python scripts/reference.py`"


@pytest.mark.parametrize("text", SECTIONS.values(), ids=list(SECTIONS))
def test_the_schema_refuses_a_key_that_the_configuration_does_not_take(text: str) -> None:
    assert not jsonschema_rs.is_valid(json.loads(reference.schema()), json.loads(text))


def test_the_schema_takes_the_configurations_of_the_pages() -> None:
    validator = jsonschema_rs.validator_for(json.loads(reference.schema()))
    for page in sorted((ROOT / "docs").glob("*.md")):
        for block in re.findall(r"^```jsonc?\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
            if page.name not in ("cookbook.md", "testing-programs.md"):
                errors = [str(each) for each in validator.iter_errors(parse(block))]
                assert errors == [], f"{page.name}: {block}"


@pytest.mark.parametrize(
    "text",
    [
        '{"mcpServers": {"a": {"command": ["npx"]}}}',
        '{"tools": {"codeMode": {"timeoutMs": "10s"}}}',
        '{"store": {"kind": "redis"}}',
        '{"log": {"level": 3}}',
    ],
)
def test_the_schema_refuses_a_value_of_another_type(text: str) -> None:
    assert not jsonschema_rs.is_valid(json.loads(reference.schema()), json.loads(text))


def test_the_schema_takes_the_keys_of_other_clients_that_the_configuration_takes(tmp_path: Path) -> None:
    entry = {"command": "npx", "autoApprove": ["a"], "disabledTools": ["b"], "icon": "c", "version": 1}
    whole = {"mcpServers": {"a": entry}, "inputs": [], "globalShortcut": "", "preferences": {}}
    (tmp_path / "codemode-mcp.json").write_text(json.dumps(whole), "utf-8")
    load_config(tmp_path / "codemode-mcp.json", environ={})
    assert jsonschema_rs.is_valid(json.loads(reference.schema()), whole)


# pictures


def test_pictures_of_the_page_are_small() -> None:
    pictures = [*PICTURES.glob("*.png")]
    assert pictures
    assert [each.name for each in pictures if each.stat().st_size > 150_000] == []


@pytest.mark.parametrize("name", diagrams.PICTURES)
def test_a_drawing_is_what_its_script_draws(name: str) -> None:
    assert (PICTURES / name).read_text("utf-8") == diagrams.PICTURES[name](), (
        "run `.venv/bin/python scripts/diagrams.py`"
    )


@pytest.mark.parametrize("name", terminals.pictures())
def test_a_picture_of_a_terminal_shows_commands_that_there_are_and_nothing_of_the_machine(name: str) -> None:
    shown = terminals.shown_by((PICTURES / f"{name}.svg").read_text("utf-8"))
    typed = re.findall(r"^\$ ?(.+)$", shown, re.MULTILINE)
    assert tuple(typed) == terminals.pictures()[name].commands
    assert [problem for line in typed for problem in misused(line)] == []
    assert not re.search(r"/(root|home|tmp|work|Users)/|Traceback", shown)


@pytest.mark.skipif(sys.platform != "linux", reason="the pictures are of Linux")
def test_a_picture_of_a_terminal_is_what_the_command_prints_now() -> None:
    shown = terminals.shown_by((PICTURES / "cursor.svg").read_text("utf-8"))
    now = terminals.shown_by(terminals.svg("cursor", terminals.transcript(terminals.pictures()["cursor"])))
    # Where lines are folded depends on how long the path of the home was.
    assert now.split() == shown.split(), "run `.venv/bin/python scripts/terminals.py`"
