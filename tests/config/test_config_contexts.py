"""`tools.contexts` and `tools.budgets`: what they mean, and what each mistake is told."""

import json
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp.base.errors import ConfigError
from codemode_mcp.base.settings import BudgetSettings, PolicyContext, PolicyRules
from codemode_mcp.config import Config, load_config


def load(folder: Path, contexts: object, servers: object = None, **tools: Any) -> Config:
    path = folder / "codemode-mcp.json"
    path.write_text(json.dumps({"mcpServers": servers or {}, "tools": {**tools, "contexts": contexts}}), "utf-8")
    return load_config(path, environ={})


def problem(folder: Path, contexts: object) -> str:
    with pytest.raises(ConfigError) as caught:
        load(folder, contexts)
    (only,) = caught.value.problems
    return only


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


ALLOWED = 'allowed: "stdio", "stdio:<login name>", "principal:<name>", "group:<name>" and "anonymous"'


def one(**fields: Any) -> dict[str, Any]:
    return {"interns": {"for": ["group:interns"], **fields}}


@pytest.mark.parametrize(
    ("contexts", "message"),
    [
        ([], "tools.contexts: expected an object, got an array"),
        ({"interns": []}, "tools.contexts.interns: expected an object, got an array"),
        (
            {"interns": {}},
            f"tools.contexts.interns: needs `for`, the callers that get these rules; {ALLOWED}; "
            "[] if only `serve --context` chooses it",
        ),
        (
            {" ": {"for": ["stdio"]}},
            'tools.contexts[" "]: the name of a context must not be blank or have control characters',
        ),
        (one(**{"for": "stdio"}), 'tools.contexts.interns.for: expected an array of strings, got "stdio"'),
        (one(**{"for": [7]}), "tools.contexts.interns.for[0]: expected a string, got 7"),
        (one(**{"for": [""]}), "tools.contexts.interns.for[0]: must not be empty"),
        (
            one(**{"for": ["groups:interns"]}),
            'tools.contexts.interns.for[0]: "groups:interns" is not a kind of caller (did you mean "group"?); '
            + ALLOWED,
        ),
        (one(**{"for": ["interns"]}), 'tools.contexts.interns.for[0]: "interns" is not a kind of caller'),
        (one(**{"for": ["group"]}), 'tools.contexts.interns.for[0]: needs a name: "group:<name>"'),
        (one(**{"for": ["principal: "]}), 'tools.contexts.interns.for[0]: needs a name: "principal:<name>"'),
        (one(**{"for": ["stdio:"]}), "tools.contexts.interns.for[0]: needs a name after the colon"),
        (one(**{"for": ["anonymous:x"]}), 'tools.contexts.interns.for[0]: "anonymous" takes no name'),
        (one(readonly=True), 'tools.contexts.interns.readonly: unknown key (did you mean "readOnly"?)'),
        (one(readOnly="yes"), 'tools.contexts.interns.readOnly: expected true or false, got "yes"'),
        (one(allow="*"), 'tools.contexts.interns.allow: expected an array of strings, got "*"'),
        (one(deny=["github:*"]), 'tools.contexts.interns.deny[0]: "github:*" can match no tool'),
        (one(ask=["destructiv"]), 'tools.contexts.interns.ask[0]: "destructiv" can match no tool (did you mean "des'),
    ],
    ids=str,
)
def test_mistakes_about_a_context(tmp_path: Path, contexts: object, message: str) -> None:
    assert problem(tmp_path, contexts).startswith(message)


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


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"b": {"windowSeconds": 60}}, "tools.budgets.b: needs at least one of `calls`, `bytes` and `runningMs`"),
        ({"b": {"calls": "many"}}, "tools.budgets.b.calls"),
        ({"b": {"call": 3, "bytes": 1}}, "calls"),
        ({"b": {"calls": 1, "for": ["me"]}}, "is not a kind of caller"),
        ({" ": {"calls": 1}}, "the name of a budget must not be blank"),
        ([], "an object such as"),
    ],
)
def test_a_wrong_budget_is_refused(tmp_path: Path, given: object, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        budgets(tmp_path, given)
    assert said in caught.value.message
