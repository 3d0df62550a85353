"""`tools.contexts` and `tools.budgets`: what they mean, and what each mistake is told."""

import json
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp.base.settings import BudgetSettings, PolicyContext, PolicyRules
from codemode_mcp.config import Config, load_config


def load(folder: Path, contexts: object, servers: object = None, **tools: Any) -> Config:
    path = folder / "codemode-mcp.json"
    path.write_text(json.dumps({"mcpServers": servers or {}, "tools": {**tools, "contexts": contexts}}), "utf-8")
    return load_config(path, environ={})


@pytest.mark.parametrize("contexts", [None, {}])
def test_without_contexts_there_are_none(tmp_path: Path, contexts: object) -> None:
    assert load(tmp_path, contexts).tools.contexts == ()


def test_lists_of_a_context_replace_those_of_tools_but_deny_is_added_to(tmp_path: Path) -> None:
    contexts = {
        "interns": {
            "for": ["group:interns", "principal:ci-*"],
            "allow": ["mcp:docs:*"],
            "deny": ["openWorld"],
            "readOnly": True,
        },
        "me": {"for": ["stdio"], "ask": []},
        "others": {"for": ["anonymous", "stdio:lena"], "approved": ["mcp:docs:read"], "allow": []},
    }
    config = load(tmp_path, contexts, allow=["mcp:*"], deny=["mcp:*:drop"], ask=["destructive"], approved=["mcp:a:b"])
    base = config.tools.policy
    assert base == PolicyRules(("mcp:*",), ("mcp:*:drop",), ("destructive",), ("mcp:a:b",))
    assert config.tools.contexts == (
        PolicyContext(
            "interns",
            ("group:interns", "principal:ci-*"),
            PolicyRules(("mcp:docs:*",), ("mcp:*:drop", "openWorld"), ("destructive",), ("mcp:a:b",), read_only=True),
            frozenset({"allow", "deny"}),
        ),
        PolicyContext("me", ("stdio",), PolicyRules(("mcp:*",), ("mcp:*:drop",), (), ("mcp:a:b",)), frozenset({"ask"})),
        PolicyContext(
            "others",
            ("anonymous", "stdio:lena"),
            PolicyRules((), ("mcp:*:drop",), ("destructive",), ("mcp:docs:read",)),
            frozenset({"allow", "approved"}),
        ),
    )


def test_rules_of_server_entries_count_in_every_context(tmp_path: Path) -> None:
    servers = {
        "a": {"command": "x", "allow": ["read_*"], "deny": ["read_secrets"]},
        "b": {"command": "y", "trustAnnotations": False},
    }
    config = load(tmp_path, {"all": {"for": ["principal:*"], "allow": ["*"], "approved": ["*"]}}, servers)
    rules = config.tools.contexts[0].rules
    assert rules.deny == config.tools.policy.deny == ("mcp:a:read_secrets",)
    assert rules.server_allow == config.tools.policy.server_allow == (("a", ("mcp:a:read_*",)),)
    assert rules.distrusted_servers == config.tools.policy.distrusted_servers == frozenset({"b"})


def budgets(folder: Path, given: object) -> Config:
    path = folder / "codemode-mcp.json"
    path.write_text(json.dumps({"tools": {"budgets": given}}), "utf-8")
    return load_config(path, environ={})


def test_budgets_are_read_in_the_order_of_the_file(tmp_path: Path) -> None:
    given = {
        "hourly": {"calls": 10},
        "guests": {"for": ["anonymous"], "server": "web*", "bytes": 5, "runningMs": 7, "windowSeconds": 60},
    }
    assert budgets(tmp_path, given).tools.budgets == (
        BudgetSettings("hourly", calls=10),
        BudgetSettings("guests", "web*", ("anonymous",), None, 5, 7, 60),
    )
