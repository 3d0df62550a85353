"""Explanations of decisions: the same decision as policy makes, with the rule that made it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codemode_mcp.base.settings import PolicyContext, PolicyRules, ToolSettings
from codemode_mcp.rules.policy.policy import Allow, Ask, Caller, Deny, Policies
from codemode_mcp.rules.policy.unused_rules import explain
from upstream_clients.tools import Annotations

READ = Annotations(read_only=True)


@pytest.mark.parametrize(
    ("rules", "annotations", "decision", "why"),
    [
        (PolicyRules(), None, "allow", "no rule denies it or asks for it"),
        (PolicyRules(allow=("mcp:a:*",)), None, "allow", "allowed by the rule 'mcp:a:*'"),
        (
            PolicyRules(approved=("mcp:a:b",), ask=("mcp:*",)),
            None,
            "allow",
            "approved by the rule 'mcp:a:b'",
        ),
        (PolicyRules(ask=("destructive",)), None, "ask", "asked for by the rule 'destructive'"),
        (PolicyRules(ask=("destructive",)), READ, "allow", "no rule denies it or asks for it"),
        (PolicyRules(deny=("mcp:a:b",)), READ, "deny", "denied by the rule 'mcp:a:b'"),
        (PolicyRules(allow=("mcp:x:*",)), READ, "deny", "not among the allowed tools"),
        (PolicyRules(read_only=True), None, "deny", "only read-only tools are allowed"),
        (
            PolicyRules(read_only=True, distrusted_servers=frozenset({"a"})),
            READ,
            "deny",
            "only read-only tools are allowed",
        ),
    ],
)
def test_the_reason_names_the_rule(
    rules: PolicyRules, annotations: Annotations | None, decision: str, why: str
) -> None:
    (only,) = explain(ToolSettings(policy=rules), "mcp:a:b", annotations)
    assert (only.context, only.decision, only.why) == (None, decision, why)


def test_each_context_has_its_own_decision() -> None:
    context = PolicyContext("guests", ("anonymous",), PolicyRules(allow=()))
    everyone, guests = explain(ToolSettings(contexts=(context,)), "mcp:a:b", None)
    assert (everyone.decision, guests.decision) == ("allow", "deny")
    assert (guests.context, guests.callers) == ("guests", ("anonymous",))


PATTERNS = st.lists(
    st.sampled_from(["mcp:a:b", "mcp:a:*", "mcp:*", "mcp:x:*", "*", "readOnly", "destructive", "openWorld"]), max_size=3
).map(tuple)


@given(
    st.builds(
        PolicyRules,
        allow=st.none() | PATTERNS,
        deny=PATTERNS,
        ask=PATTERNS,
        approved=PATTERNS,
        read_only=st.booleans(),
        distrusted_servers=st.sampled_from([frozenset(), frozenset({"a"})]),
    ),
    st.builds(Annotations, read_only=st.sampled_from([None, True, False]), destructive=st.sampled_from([None, False])),
)
def test_the_explained_decision_is_the_one_that_policy_makes(rules: PolicyRules, annotations: Annotations) -> None:
    tools = ToolSettings(policy=rules)
    policy = Policies(tools).of(Caller("me"))
    decided = policy.decide("mcp:a:b", policy.effects("mcp:a:b", annotations))
    (only,) = explain(tools, "mcp:a:b", annotations)
    assert only.decision == {Allow: "allow", Ask: "ask", Deny: "deny"}[type(decided)]
