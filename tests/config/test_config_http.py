"""The section `http` of the configuration: what it means, and what each mistake is told."""

import hashlib
import json
import pathlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp.base.settings import HttpSettings, IssuerSettings, StaticToken, ranges
from codemode_mcp.config import Config, load_config

TOKEN = "a-token-nobody-may-see"
ISSUER = {"issuer": "https://login.example", "audience": "https://mcp.example/mcp"}


def load(folder: Path, section: object, **environ: str) -> Config:
    path = folder / "codemode-mcp.json"
    path.write_text(json.dumps({"http": section}), "utf-8")
    return load_config(path, environ=environ)


@pytest.mark.parametrize("section", [None, {}, {"auth": None}, {"auth": {}}])
def test_without_anything_in_it_everything_is_at_its_default(tmp_path: Path, section: object) -> None:
    assert load(tmp_path, section).http == HttpSettings()
    assert not HttpSettings().authenticates


def test_of_tokens_only_digests_are_kept(tmp_path: Path) -> None:
    tokens = [
        {"name": "alice", "token": "${ALICE}"},
        {"name": "bob", "token": {"command": [sys.executable, "-c", "print('b' * 20)"]}},
    ]
    config = load(tmp_path, {"auth": {"tokens": tokens}}, ALICE=TOKEN)
    digests = [hashlib.sha256(text.encode()).digest() for text in (TOKEN, "b" * 20)]
    assert config.http.tokens == (StaticToken("alice", digests[0]), StaticToken("bob", digests[1]))
    assert config.http.authenticates
    assert TOKEN not in repr(config.http)


def test_an_issuer_needs_an_audience_and_is_what_it_says(tmp_path: Path) -> None:
    assert load(tmp_path, {"auth": ISSUER}).http.oauth == IssuerSettings(
        "https://login.example", "https://mcp.example/mcp", "https://mcp.example/mcp"
    )
    whole = {
        "issuer": "https://login.example/tenant",
        "audience": "api://codemode",
        "resource": "https://mcp.example/mcp",
        "scopes": ["mcp:run"],
        "jwksUrl": "http://127.0.0.1:9/keys",
    }
    assert load(tmp_path, {"auth": whole}).http.oauth == IssuerSettings(
        whole["issuer"], "api://codemode", "https://mcp.example/mcp", ("mcp:run",), "http://127.0.0.1:9/keys"
    )


def in_groups(groups: Any) -> dict[str, Any]:
    return {"tokens": [{"name": "alice", "token": TOKEN, "groups": groups}]}


def test_a_token_may_have_groups_wherever_it_comes_from(tmp_path: Path) -> None:
    assert load(tmp_path, {"auth": in_groups(["staff", "ops", "staff"])}).http.tokens[0].groups == ("staff", "ops")
    printed = {"command": [sys.executable, "-c", "print('b' * 20)"]}
    tokens = [{"name": "bob", "token": printed, "groups": ["ops"]}, {"name": "eve", "token": "e" * 20}]
    assert [each.groups for each in load(tmp_path, {"auth": {"tokens": tokens}}).http.tokens] == [(), ("ops",)]
    assert [each.name for each in load(tmp_path, {"auth": {"tokens": tokens}}).http.tokens] == ["eve", "bob"]


def test_the_claim_that_holds_the_groups_has_a_name(tmp_path: Path) -> None:
    given = load(tmp_path, {"auth": {**ISSUER, "groupsClaim": "https://login.example/roles"}}).http.oauth
    assert given is not None
    assert given.groups_claim == "https://login.example/roles"
    default = load(tmp_path, {"auth": ISSUER}).http.oauth
    assert default is not None
    assert default.groups_claim == "groups"


def snake(key: str) -> str:
    return re.sub(r"[A-Z]", lambda match: "_" + match[0].lower(), key)


@pytest.mark.parametrize("key", ranges(HttpSettings))
def test_numbers_out_of_range_are_moved_to_its_end_and_noted(tmp_path: Path, key: str) -> None:
    clamp = ranges(HttpSettings)[key]
    assert clamp.lowest <= getattr(HttpSettings(), snake(key)) <= clamp.highest
    for value, used in ((clamp.lowest - 1, clamp.lowest), (clamp.highest + 1, clamp.highest)):
        config = load(tmp_path, {key: value})
        assert getattr(config.http, snake(key)) == used
        assert any(note.startswith(f"http.{key}: ") for note in config.notes)


def test_the_page_about_http_names_every_limit_with_its_default_and_range() -> None:
    page = (pathlib.Path(__file__).parents[2] / "docs" / "http.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (\d+ \| \d+ to \d+) \|", page, re.MULTILINE))
    assert rows == {
        key: f"{getattr(HttpSettings(), snake(key))} | {clamp.lowest} to {clamp.highest}"
        for key, clamp in ranges(HttpSettings).items()
    }


def test_the_configurations_on_the_page_about_http_are_valid(tmp_path: Path) -> None:
    page = (pathlib.Path(__file__).parents[2] / "docs" / "http.md").read_text("utf-8")
    found = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    assert len(found) == 3
    for text in found:
        section = json.loads(
            text.replace('["pass", "show", "codemode/ci"]', json.dumps([sys.executable, "-c", "print('c' * 20)"]))
        )
        assert load(tmp_path, section["http"], ALICE_TOKEN=TOKEN).http.authenticates
