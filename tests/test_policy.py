"""Policy as a table of cases."""

from __future__ import annotations

import pytest

from codemode_mcp.policy import Allow, Ask, Deny, Effects, Policy, admits_nothing, by_annotations, decide
from codemode_mcp.settings import PolicyRules
from upstream_clients.tools import Annotations

READS = Annotations(read_only=True)
WRITES = Annotations(read_only=False, destructive=False)
DESTROYS = Annotations(read_only=False, destructive=True)
SILENT = Annotations()

DISTRUSTED = PolicyRules(read_only=True, distrusted_servers=frozenset({"s"}))
BARRED = PolicyRules(server_allow=(("s", ()),), approved=("*",))

CASES = [
    ("without rules everything is allowed", PolicyRules(), SILENT, Allow),
    ("an empty allow admits nothing", PolicyRules(allow=()), READS, Deny),
    ("allow by id", PolicyRules(allow=("mcp:s:tool",)), SILENT, Allow),
    ("allow by glob", PolicyRules(allow=("mcp:s:*",)), SILENT, Allow),
    ("allow of another server", PolicyRules(allow=("mcp:t:*",)), SILENT, Deny),
    ("allow by annotation", PolicyRules(allow=("readOnly",)), READS, Allow),
    ("allow by an annotation the tool does not have", PolicyRules(allow=("readOnly",)), SILENT, Deny),
    ("deny by id", PolicyRules(deny=("mcp:s:tool",)), READS, Deny),
    ("deny by one character", PolicyRules(deny=("mcp:s:too?",)), READS, Deny),
    ("deny beats approved", PolicyRules(deny=("mcp:s:*",), approved=("mcp:s:tool",)), READS, Deny),
    ("approved beats ask", PolicyRules(ask=("*",), approved=("mcp:s:tool",)), SILENT, Allow),
    ("ask beats allow", PolicyRules(allow=("*",), ask=("destructive",)), DESTROYS, Ask),
    ("ask of what the tool is not", PolicyRules(ask=("destructive",)), WRITES, Allow),
    ("without annotations a tool is destructive", PolicyRules(deny=("destructive",)), SILENT, Deny),
    ("without annotations a tool is open to the world", PolicyRules(deny=("openWorld",)), SILENT, Deny),
    ("a read-only tool is not destructive", PolicyRules(deny=("destructive",)), READS, Allow),
    ("read-only admits what only reads", PolicyRules(read_only=True), READS, Allow),
    ("read-only refuses the silent", PolicyRules(read_only=True), SILENT, Deny),
    ("read-only beats approved", PolicyRules(read_only=True, approved=("*",)), WRITES, Deny),
    ("a server that is not trusted has declared nothing", DISTRUSTED, READS, Deny),
    ("of a server with an allow list, nothing else", PolicyRules(server_allow=(("s", ("mcp:s:other",)),)), READS, Deny),
    ("of a server with an allow list, what is on it", PolicyRules(server_allow=(("s", ("mcp:s:t*",)),)), READS, Allow),
    ("the allow list of another server", PolicyRules(server_allow=(("t", ()),)), READS, Allow),
    ("approved does not lift a server's allow list", BARRED, READS, Deny),
]  # fmt: skip


@pytest.mark.parametrize(("rules", "declared", "expected"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_decisions(rules: PolicyRules, declared: Annotations, expected: type) -> None:
    policy = Policy(rules)
    assert type(policy.decide("mcp:s:tool", policy.effects("s", declared))) is expected


def test_a_wildcard_matches_names_with_line_ends_and_brackets() -> None:
    rules = PolicyRules(deny=("mcp:s:[x]*",))
    assert isinstance(decide(rules, "mcp:s:[x]\ny", Effects.of(SILENT)), Deny)
    assert isinstance(decide(rules, "mcp:s:x", Effects.of(SILENT)), Allow)


@pytest.mark.parametrize(
    "rules",
    [
        PolicyRules(read_only=True),
        PolicyRules(deny=("mcp:s:x", "destructive")),
        PolicyRules(ask=("openWorld",)),
        PolicyRules(approved=("idempotent",)),
        PolicyRules(allow=("readOnly",)),
        PolicyRules(server_allow=(("s", ("mcp:s:x",)), ("t", ("readOnly",)))),
    ],
)
def test_rules_that_depend_on_annotations_are_known_as_such(rules: PolicyRules) -> None:
    assert by_annotations(rules)


def test_rules_on_ids_alone_depend_on_no_annotations() -> None:
    ids = ("mcp:s:readOnly", "*destructive*")
    assert not by_annotations(PolicyRules())
    assert not by_annotations(PolicyRules(allow=ids, deny=ids, ask=ids, approved=ids, server_allow=(("s", ids),)))


def test_rules_that_can_admit_nothing_are_known_as_such() -> None:
    assert admits_nothing(PolicyRules(allow=()))
    assert admits_nothing(PolicyRules(deny=("*",)))
    assert not admits_nothing(PolicyRules())
