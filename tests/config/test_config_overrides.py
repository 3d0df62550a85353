"""`mcpServers.NAME.override`: what it means, and what each mistake is told."""

import json
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp.base.errors import ConfigError
from codemode_mcp.base.settings import ToolOverride
from codemode_mcp.config import Config, load_config
from codemode_mcp.config.reload import differences
from codemode_mcp.rules.policy.policy import Policy
from codemode_mcp.rules.policy.rule_patterns import Effects
from upstream_clients.tools import Annotations

SECRET = "hunter2-do-not-print"


def load(folder: Path, override: object, /, more: dict[str, Any] | None = None, **environ: str) -> Config:
    path = folder / "config.json"
    entry = {"command": "x", "override": override, **(more or {})}
    path.write_text(json.dumps({"mcpServers": {"hub": entry}}), "utf-8")
    return load_config(path, environ=environ)


def override_of(folder: Path, override: object, /, **environ: str) -> ToolOverride:
    (found,) = load(folder, {"t": override}, **environ).tools.overrides.values()
    return found


def problems(folder: Path, override: object, /, **environ: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load(folder, override, **environ)
    return caught.value.problems


def test_all_keys_are_read(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        {
            "create_issue": {
                "name": "report",
                "title": "Report a bug",
                "description": "Report a bug of our product.",
                "annotations": {"readOnlyHint": False, "idempotentHint": True},
                "arguments": {"fixed": {"owner": "acme", "labels": ["bug", 1]}, "default": {"n": 5}, "hidden": ["x"]},
            },
            "prompts/get": {},
        },
    )
    assert config.tools.overrides == {
        "mcp:hub:create_issue": ToolOverride(
            name="report",
            title="Report a bug",
            description="Report a bug of our product.",
            annotations=Annotations(read_only=False, idempotent=True),
            fixed={"owner": "acme", "labels": ["bug", 1]},
            default={"n": 5},
            hidden=("x",),
        ),
        "mcp:hub:tools/call:prompts/get": ToolOverride(),
    }
    policy = Policy(config.tools.policy)
    assert policy.effects("mcp:hub:create_issue", Annotations(read_only=True)) == Effects.of(
        Annotations(read_only=False, idempotent=True)
    )


def test_annotations_count_for_a_server_that_is_not_trusted(tmp_path: Path) -> None:
    override = {"look": {"annotations": {"readOnlyHint": True}}}
    rules = load(tmp_path, override, {"trustAnnotations": False}).tools.policy
    policy = Policy(rules)
    assert policy.effects("mcp:hub:look", Annotations()).read_only
    assert not policy.effects("mcp:hub:other", Annotations(read_only=True)).read_only


def test_an_annotated_tool_of_a_server_that_is_not_trusted_can_be_all_that_rules_admit(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    entry = {"command": "x", "trustAnnotations": False, "override": {"look": {"annotations": {"readOnlyHint": True}}}}
    servers = {"hub": entry, "other": {"command": "x", "trustAnnotations": False}}
    path.write_text(json.dumps({"mcpServers": servers, "tools": {"allow": ["readOnly"]}}), "utf-8")
    policy = Policy(load_config(path, environ={}).tools.policy)
    assert policy.may_admit("mcp:hub:")
    assert not policy.may_admit("mcp:other:")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("key", "${TOKEN}"),
        ("text", "prefix ${TOKEN}"),
        ("deep", {"a": [{"b": "${TOKEN}"}]}),
        ("password", SECRET),
        ("text", "ghp_" + "a" * 36),
        ("printed", {"command": ["echo", SECRET]}),
    ],
)
@pytest.mark.parametrize("table", ["fixed", "default"])
def test_a_value_that_is_secret_is_known_as_such(tmp_path: Path, name: str, value: object, table: str) -> None:
    config = load(tmp_path, {"t": {"arguments": {table: {name: value, "plain": "shown"}}}}, TOKEN=SECRET)
    override = config.tools.overrides["mcp:hub:t"]
    assert override.secret == {name}
    secret = SECRET if "ghp_" not in str(value) else str(value)
    values = json.dumps(getattr(override, table))
    assert secret in values
    assert secret not in repr(config.tools)
    (spec,) = config.upstreams
    assert spec.redact(f"no {secret} here") == "no *** here"
    assert spec.redact("shown") == "shown"


def test_a_variable_that_is_no_secret_is_shown(tmp_path: Path) -> None:
    found = override_of(tmp_path, {"arguments": {"fixed": {"path": "${HOME}/x"}}}, HOME="/home/ada")
    assert found.fixed == {"path": "/home/ada/x"}
    assert found.secret == frozenset()


def test_an_object_of_several_members_is_a_value_and_no_program(tmp_path: Path) -> None:
    found = override_of(tmp_path, {"arguments": {"fixed": {"a": {"command": ["x"], "cwd": "/"}}}})
    assert found.fixed == {"a": {"command": ["x"], "cwd": "/"}}


def test_two_tools_may_swap_their_names(tmp_path: Path) -> None:
    assert len(load(tmp_path, {"t": {"name": "u"}, "u": {"name": "t"}}).tools.overrides) == 2


def test_numbers_that_are_no_json_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(
        '{"mcpServers": {"hub": {"command": "x", "override": {"t": {"arguments": {"fixed": {"a": [Infinity]}}}}}}}'
    )
    with pytest.raises(ConfigError, match="NaN and Infinity are not JSON"):
        load_config(path, environ={})


@pytest.mark.parametrize("override", [{"t": {"arguments": {"fixed": {"a": "${TOKEN"}}}}, {"t": {"name": ["${TOKEN}"]}}])
def test_no_message_has_a_value(tmp_path: Path, override: object) -> None:
    assert SECRET not in str(problems(tmp_path, override, TOKEN=SECRET))


def test_a_changed_override_changes_settings_of_tools_and_restarts_no_server(tmp_path: Path) -> None:
    before = load(tmp_path, {"t": {"arguments": {"fixed": {"a": 1}}}})
    after = load(tmp_path, {"t": {"arguments": {"fixed": {"a": 2}}}})
    assert differences(before, after) == ["new settings of tools"]
    assert before.upstreams == after.upstreams
