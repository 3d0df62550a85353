"""Rules that do nothing, tools that no one reaches, contexts that no one is in."""

from __future__ import annotations

import pytest

from codemode_mcp.base.settings import (
    HttpSettings,
    IssuerSettings,
    PolicyContext,
    PolicyRules,
    StaticToken,
    ToolSettings,
)
from codemode_mcp.rules.policy.policy import Caller
from codemode_mcp.rules.policy.rule_patterns import Effects
from codemode_mcp.rules.policy.unused_rules import UnusedRule, empty_contexts, idle_denials, out_of_reach, unused_rules
from tests.values import replace
from upstream_clients.tools import Annotations

READS, WRITES = Effects.of(Annotations(read_only=True)), Effects.of(None)
KNOWN = (
    ("mcp:s:read", READS),
    ("mcp:s:write", WRITES),
    ("mcp:t:write", WRITES),
    ("plugin:p:do", WRITES),
    ("core:results:list", READS),
)
DENIED = "everything that it matches is denied without it"
NO_NEED = "everything that it matches is denied, or needs no approval"

CASES = [
    (
        "nothing is idle where everything does something",
        PolicyRules(("mcp:*", "plugin:p:*"), ("mcp:t:*",), ("mcp:s:write",)),
        [],
    ),
    (
        "a denied tool that is not allowed anyway",
        PolicyRules(("mcp:s:*",), ("mcp:t:*",)),
        [("deny", "mcp:t:*", DENIED)],
    ),
    (
        "a denied tool that would be asked for",
        PolicyRules(("mcp:s:*",), ("mcp:t:*",), ("mcp:t:*",)),
        [("ask", "mcp:t:*", "everything that it matches is denied or approved by other rules")],
    ),
    ("an approval of what needs none", PolicyRules(approved=("mcp:s:read",)), [("approved", "mcp:s:read", NO_NEED)]),
    ("an approval that allows", PolicyRules(allow=(), approved=("mcp:s:read",)), []),
    ("an approval instead of a question", PolicyRules(ask=("mcp:s:*",), approved=("mcp:s:read",)), []),
    (
        "an allowed tool that is asked for",
        PolicyRules(("mcp:s:*",), ask=("mcp:s:*",)),
        [("allow", "mcp:s:*", "everything that it matches is denied, approved or asked for by other rules")],
    ),
    (
        "what there is not",
        PolicyRules(deny=("mcp:x:*", "plugin:q:do", "client:session:roots")),
        [("deny", each, None) for each in ("mcp:x:*", "plugin:q:do", "client:session:roots")],
    ),
    ("two that say the same", PolicyRules(deny=("mcp:s:*", "mcp:s:write")), []),
    (
        "what writes, where nothing may",
        PolicyRules(deny=("mcp:s:write", "mcp:s:read"), read_only=True),
        [("deny", "mcp:s:write", DENIED)],
    ),
]


@pytest.mark.parametrize(("rules", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_rules_that_do_nothing(rules: PolicyRules, expected: list[tuple[str, str, str | None]]) -> None:
    found = unused_rules(ToolSettings(policy=rules), KNOWN, ())
    assert found == [UnusedRule(f"tools.{key}", rule, why) for key, rule, why in expected]


def test_a_rule_does_something_where_it_does_so_in_any_context_that_has_it() -> None:
    base = PolicyRules(allow=("mcp:s:read",), ask=("core:*",), deny=("mcp:t:*",))
    wide = PolicyContext("wide", ("stdio",), replace(base, allow=None), frozenset({"allow"}))
    assert unused_rules(ToolSettings(policy=base, contexts=(wide,)), KNOWN, ()) == []
    own = PolicyContext(
        "own", ("stdio",), replace(base, ask=(), deny=("mcp:t:*", "mcp:s:*")), frozenset({"ask", "deny"})
    )
    assert unused_rules(ToolSettings(policy=base, contexts=(own,)), KNOWN, ()) == [
        UnusedRule("tools.deny", "mcp:t:*", DENIED)
    ]


def test_unknown_names_get_the_benefit_of_the_doubt() -> None:
    rules = PolicyRules(deny=("mcp:down:*", "*:drop", "mcp:s:drop", "idempotent", "mcp:downer:x"))
    tools = ToolSettings(policy=rules)
    known = KNOWN[1:4]
    assert [each.rule for each in unused_rules(tools, known, ())] == list(rules.deny)
    assert [each.rule for each in unused_rules(tools, known, ("mcp:down:",))] == ["mcp:s:drop", "mcp:downer:x"]


def test_rules_of_a_server_entry_that_match_nothing_are_named() -> None:
    rules = PolicyRules(server_allow=(("s", ("mcp:s:read", "mcp:s:rite")),))
    assert unused_rules(ToolSettings(policy=rules), KNOWN, ()) == [UnusedRule("mcpServers.s.allow", "mcp:s:rite", None)]


def test_a_tool_is_out_of_reach_when_it_is_denied_in_every_context() -> None:
    base = PolicyRules(allow=("mcp:s:*",))
    other = PolicyContext("other", ("stdio",), replace(base, allow=("mcp:t:*",), read_only=False), frozenset({"allow"}))
    assert out_of_reach(ToolSettings(policy=base), KNOWN) == ["mcp:t:write", "plugin:p:do", "core:results:list"]
    tools = ToolSettings(policy=base, contexts=(other,))
    assert out_of_reach(tools, KNOWN) == ["plugin:p:do", "core:results:list"]
    asking = ToolSettings(policy=replace(base, ask=("*",)))
    assert out_of_reach(asking, KNOWN) == []


ME = Caller("me", "stdio", "lena")
TOKENS = HttpSettings(tokens=(StaticToken("bob", b"", ("staff",)), StaticToken("ci-1", b"")))
ISSUER = HttpSettings(oauth=IssuerSettings("https://i", "https://a", "https://a"))
OPEN = HttpSettings()

CONTEXTS = [
    ("stdio", OPEN, None),
    ("stdio:somebody", OPEN, None),
    ("anonymous", OPEN, None),
    ("principal:bob", OPEN, "without http.auth no HTTP caller has a name or a group"),
    ("principal:bob", TOKENS, None),
    ("principal:ci-*", TOKENS, None),
    ("principal:eve", TOKENS, "no token of http.auth.tokens has such a name or group"),
    ("group:staff", TOKENS, None),
    ("group:interns", TOKENS, "no token of http.auth.tokens has such a name or group"),
    ("group:interns", ISSUER, None),
    ("principal:eve", ISSUER, None),
    ("anonymous", ISSUER, "with http.auth no caller is anonymous"),
]


@pytest.mark.parametrize(("described", "http", "expected"), CONTEXTS)
def test_contexts_that_no_caller_can_be_in(described: str, http: HttpSettings, expected: str | None) -> None:
    contexts = (PolicyContext("it", (described,), PolicyRules()),)
    found = empty_contexts(ToolSettings(contexts=contexts), http, ME)
    assert found == ([] if expected is None else [("it", expected)])


@pytest.mark.parametrize(
    ("first", "second", "http", "is_empty"),
    [
        ("principal:*", "principal:bob", TOKENS, True),
        ("principal:*", "principal:ci-*", ISSUER, True),
        ("principal:*", "group:interns", ISSUER, True),
        ("group:interns", "principal:bob", ISSUER, False),
        ("principal:bob", "group:staff", TOKENS, True),
        ("principal:ci-*", "group:staff", TOKENS, False),
        ("stdio", "stdio:lena", OPEN, True),
        ("stdio:lena", "stdio", OPEN, False),
    ],
)
def test_a_context_behind_another_may_be_empty(first: str, second: str, http: HttpSettings, is_empty: bool) -> None:
    contexts = tuple(PolicyContext(each, (each,), PolicyRules()) for each in (first, second))
    found = empty_contexts(ToolSettings(contexts=contexts), http, ME)
    assert found == ([(second, "all callers in it are in an earlier context")] if is_empty else [])


def test_a_deny_rule_about_one_server_that_denies_nothing_is_named_with_the_nearest() -> None:
    guests = PolicyContext("guests", ("anonymous",), PolicyRules(deny=("mcp:t:wrte",)))
    denied = ("mcp:trackr:*", "mcp:s:delet", "mcp:s:del*", "mcp:down:x", "*:x", "write", "mcp:s:prompts/x")
    rules = PolicyRules(deny=denied)
    found = idle_denials(
        ToolSettings(policy=rules, contexts=(guests,)),
        ("tracker", "s", "t", "down"),
        {"s": ["delete"], "tracker": ["x"], "t": ["write"]},
    )
    assert found == [
        "'mcp:trackr:*' in tools.deny denies nothing: there is no server 'trackr'; did you mean 'mcp:tracker:*'?",
        "'mcp:s:delet' in tools.deny denies nothing: server 's' has no such tool; did you mean 'mcp:s:delete'?",
        "'mcp:t:wrte' in tools.contexts.guests.deny denies nothing: server 't' has no such tool; "
        "did you mean 'mcp:t:write'?",
    ]


def test_a_context_for_no_caller_is_chosen_by_name_and_is_not_reported() -> None:
    contexts = (PolicyContext("careful", (), PolicyRules()),)
    assert empty_contexts(ToolSettings(contexts=contexts), OPEN, ME) == []
