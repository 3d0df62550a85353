"""Policy as a table of cases, and against a plain reading of the order of its rules."""

from __future__ import annotations

import fnmatch
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codemode_mcp.base.settings import PolicyContext, PolicyRules, ToolSettings
from codemode_mcp.rules.policy.policy import SOURCES, Allow, Ask, Caller, Deny, Policies, Policy
from codemode_mcp.rules.policy.rule_patterns import Effects, Rules, covers, matches
from tests.values import replace
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
    ("ask admits what is not among the allowed", PolicyRules(allow=(), ask=("mcp:s:tool",)), READS, Ask),
    ("approved admits what is not among the allowed", PolicyRules(allow=(), approved=("mcp:s:t*",)), READS, Allow),
    ("deny beats ask", PolicyRules(deny=("destructive",), ask=("mcp:s:*",)), DESTROYS, Deny),
    ("read-only beats ask", PolicyRules(read_only=True, ask=("*",)), WRITES, Deny),
    ("a server's allow list beats ask", PolicyRules(server_allow=(("s", ()),), ask=("*",)), READS, Deny),
    ("a glob in the middle", PolicyRules(deny=("*:*oo*",)), READS, Deny),
    ("a glob that ends otherwise", PolicyRules(deny=("mcp:*:*tools",)), READS, Allow),
    ("case counts", PolicyRules(deny=("mcp:s:TOOL",)), READS, Allow),
]  # fmt: skip


@pytest.mark.parametrize(("rules", "declared", "expected"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_decisions(rules: PolicyRules, declared: Annotations, expected: type) -> None:
    policy = Policy(rules)
    assert type(policy.decide("mcp:s:tool", policy.effects("mcp:s:tool", declared))) is expected


def test_a_wildcard_matches_names_with_line_ends_and_brackets() -> None:
    policy = Policy(PolicyRules(deny=("mcp:s:[x]*",)))
    assert isinstance(policy.decide("mcp:s:[x]\ny", Effects.of(SILENT)), Deny)
    assert isinstance(policy.decide("mcp:s:x", Effects.of(SILENT)), Allow)


def test_the_reason_names_the_first_rule_that_applies() -> None:
    policy = Policy(PolicyRules(deny=("plugin:*", "*:tool", "mcp:s:*", "mcp:s:tool"), ask=("destructive", "*")))
    assert policy.decide("mcp:s:tool", Effects.of(SILENT)) == Deny("denied by the rule '*:tool'")
    assert policy.decide("core:x:y", Effects.of(READS)) == Ask("asked for by the rule '*'")


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
    assert Policy(rules).by_annotations


def test_rules_on_ids_alone_depend_on_no_annotations() -> None:
    ids = ("mcp:s:readOnly", "*destructive*")
    assert not Policy(PolicyRules()).by_annotations
    on_ids = PolicyRules(allow=ids, deny=ids, ask=ids, approved=ids, server_allow=(("s", ids),))
    assert not Policy(on_ids).by_annotations


ALL = ("mcp:*", "plugin:*", "core:*", "client:*", "program:*")

ADMITS_NOTHING = [
    ("an empty allow", PolicyRules(allow=()), True),
    ("an empty allow, but some are approved", PolicyRules(allow=(), approved=("mcp:s:x",)), False),
    ("an empty allow, but a person can be asked", PolicyRules(allow=(), ask=("destructive",)), False),
    ("what would be asked for is denied", PolicyRules(allow=(), ask=("mcp:s:*",), deny=("mcp:*",)), True),
    ("what is approved is denied", PolicyRules(allow=(), approved=("mcp:s:x",), deny=("*:x",)), True),
    ("everything is denied", PolicyRules(deny=("*",)), True),
    ("everything is denied, approved or not", PolicyRules(deny=("**",), approved=("*",), ask=("*",)), True),
    ("everything is denied, source by source", PolicyRules(deny=ALL), True),
    ("all MCP tools are denied, and nothing else", PolicyRules(deny=("mcp:*",)), False),
    ("what is allowed is denied", PolicyRules(allow=("mcp:s:*",), deny=("mcp:?:*",)), True),
    ("some of what is allowed is denied", PolicyRules(allow=("mcp:s:*",), deny=("mcp:s:x*",)), False),
    ("nothing writes, and nothing reads", PolicyRules(read_only=True, deny=("readOnly",)), True),
    ("nothing destroys, and nothing reads", PolicyRules(deny=("readOnly", "destructive")), False),
    ("only what reads is allowed, and that is denied", PolicyRules(allow=("readOnly",), deny=("readOnly",)), True),
    ("only what reads", PolicyRules(read_only=True, allow=("readOnly",)), False),
    ("only what destroys, where nothing may write", PolicyRules(read_only=True, allow=("destructive",)), True),
    ("no rules", PolicyRules(), False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rules", "expected"), [case[1:] for case in ADMITS_NOTHING], ids=[case[0] for case in ADMITS_NOTHING]
)
def test_whether_rules_can_admit_anything(rules: PolicyRules, expected: bool) -> None:
    assert (not any(map(Policy(rules).may_admit, SOURCES))) is expected


MAY_ADMIT = [
    ("without rules", PolicyRules(), True),
    ("allowed by name", PolicyRules(allow=("mcp:s:x",)), True),
    ("another is allowed", PolicyRules(allow=("mcp:t:*", "mcp:su:*", "core:*")), False),
    ("allowed by a glob of names", PolicyRules(allow=("mcp:?:x",)), True),
    ("allowed by a tool's name", PolicyRules(allow=("*:list_*",)), True),
    ("a tool's name may hold a colon", PolicyRules(allow=("mcp:??:x",)), True),
    ("a glob that is too short for an id", PolicyRules(allow=("mcp:?",)), False),
    ("denied", PolicyRules(deny=("mcp:s:*",)), False),
    ("denied by a glob", PolicyRules(deny=("*:s:*",)), False),
    ("denied in part", PolicyRules(deny=("mcp:s:x*",)), True),
    ("its allow list is empty", PolicyRules(server_allow=(("s", ()),)), False),
    ("on its allow list", PolicyRules(server_allow=(("s", ("mcp:s:x",)),)), True),
    ("what is on its allow list is denied", PolicyRules(server_allow=(("s", ("mcp:s:x",)),), deny=("*:x",)), False),
    ("not both allowed", PolicyRules(server_allow=(("s", ("mcp:s:x",)),), allow=("mcp:s:y",)), False),
    ("both allowed", PolicyRules(server_allow=(("s", ("mcp:s:x*",)),), allow=("mcp:s:*y",)), True),
    ("nothing that writes", PolicyRules(read_only=True), True),
    ("nothing that writes, and not believed", PolicyRules(read_only=True, distrusted_servers=frozenset("s")), False),
    ("not believed and so destructive", PolicyRules(deny=("destructive",), distrusted_servers=frozenset("s")), False),
    ("asked for", PolicyRules(allow=(), ask=("mcp:s:*",)), True),
]  # fmt: skip


@pytest.mark.parametrize(("rules", "expected"), [case[1:] for case in MAY_ADMIT], ids=[case[0] for case in MAY_ADMIT])
def test_whether_anything_of_a_server_can_be_seen(rules: PolicyRules, expected: bool) -> None:
    assert Policy(rules).may_admit("mcp:s:") is expected


@pytest.mark.parametrize(
    ("rule", "named"),
    [("*", False), ("**", False), ("readOnly", False), ("plugin:issues:*", True), ("*:list", True), ("mcp:*", False)],
)
def test_a_rule_names_a_tool_unless_it_is_for_everything(rule: str, named: bool) -> None:
    for rules in (PolicyRules(allow=(rule,)), PolicyRules(approved=(rule,)), PolicyRules(ask=(rule,))):
        assert Policy(rules).names("plugin:issues:list") is named
    assert not Policy(PolicyRules(deny=(rule,))).names("plugin:issues:list")


# against a plain reading

_ANNOTATIONS = {"readOnly": 0, "destructive": 1, "idempotent": 2, "openWorld": 3}


def plain_match(rule: str, tool_id: str, tool: Effects) -> bool:
    flags = (tool.read_only, tool.destructive, tool.idempotent, tool.open_world)
    if rule in _ANNOTATIONS:
        return flags[_ANNOTATIONS[rule]]
    pattern = re.sub(r"(\[)", r"[\1]", rule)
    return re.fullmatch(fnmatch.translate(pattern), tool_id) is not None


def plain(rules: PolicyRules, tool_id: str, tool: Effects) -> str:
    """Return the order of the rules, word by word."""

    def listed(among: tuple[str, ...]) -> bool:
        return any(plain_match(rule, tool_id, tool) for rule in among)

    if rules.read_only and not tool.read_only:
        return "Deny"
    if listed(rules.deny):
        return "Deny"
    for server, allowed in rules.server_allow:
        if tool_id.startswith(f"mcp:{server}:") and not listed(allowed):
            return "Deny"
    if listed(rules.approved):
        return "Allow"
    if listed(rules.ask):
        return "Ask"
    return "Allow" if rules.allow is None or listed(rules.allow) else "Deny"


IDS = st.builds(
    "{}{}:{}".format, st.sampled_from(SOURCES), st.text("ab", min_size=1, max_size=3), st.text("ab_:\n", max_size=6)
)
GLOBS = st.one_of(
    IDS,
    st.sampled_from(sorted(_ANNOTATIONS)),
    st.text("ab_:*?", max_size=8),
    st.builds("{}{}".format, st.sampled_from(SOURCES), st.text("ab_:*?", max_size=7)),
    IDS.map(lambda each: each[:-2] + "*"),
)
LISTS = st.lists(GLOBS, max_size=4).map(tuple)
TOOLS = st.sampled_from((READS, WRITES, DESTROYS, SILENT, Annotations(idempotent=True, open_world=False)))
RULES = st.builds(
    PolicyRules,
    allow=st.none() | LISTS,
    deny=LISTS,
    ask=LISTS,
    approved=LISTS,
    read_only=st.booleans(),
    server_allow=st.dictionaries(st.text("ab", min_size=1, max_size=2), LISTS, max_size=2).map(
        lambda found: tuple(found.items())
    ),
)


@settings(max_examples=200, deadline=None)
@given(RULES, st.lists(st.tuples(IDS, TOOLS), min_size=1, max_size=6))
def test_decisions_are_those_of_a_plain_reading(rules: PolicyRules, tools: list[tuple[str, Annotations]]) -> None:
    policy = Policy(rules)
    for tool_id, declared in tools * 2:
        effects = Effects.of(declared)
        decision = policy.decide(tool_id, effects)
        assert type(decision).__name__ == plain(rules, tool_id, effects)
        if not isinstance(decision, Deny):
            source, name, _ = tool_id.split(":", 2)
            assert policy.may_admit(f"{source}:")
            assert policy.may_admit(f"{source}:{name}:")


@settings(max_examples=200, deadline=None)
@given(st.lists(GLOBS, max_size=30), IDS, TOOLS)
def test_the_first_rule_that_applies_is_the_one_found(rules: list[str], tool_id: str, declared: Annotations) -> None:
    effects = Effects.of(declared)
    expected = [rule for rule in rules if plain_match(rule, tool_id, effects)]
    assert Rules(rules).first(tool_id, effects) == (expected[0] if expected else None)
    assert all(matches(rule, tool_id, effects) for rule in expected)


@settings(max_examples=200, deadline=None)
@given(st.text("ab*?", max_size=5), st.text("ab*?", max_size=5), st.text("ab", max_size=6))
def test_a_glob_that_covers_another_matches_all_that_it_does(glob: str, other: str, text: str) -> None:
    nothing = Effects(read_only=False, destructive=False, idempotent=False, open_world=False)
    if covers(glob, other) and matches(other, text, nothing):
        assert matches(glob, text, nothing)


def test_a_name_that_a_server_chose_makes_no_rule_slow() -> None:
    rules = PolicyRules(deny=("*a*a*a*a*a*a*a*b", "mcp:*a?a*a?a*a?a*a?a*c"))
    began = time.thread_time()
    assert isinstance(Policy(rules).decide("mcp:s:" + "a" * 20_000, Effects.of(SILENT)), Allow)
    assert time.thread_time() - began < 5  # far longer than it takes, far less than by trying every way


def test_what_is_remembered_of_decisions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codemode_mcp.rules.policy.policy.MAX_REMEMBERED", 10)
    policy = Policy(PolicyRules(deny=("*7",)))
    for number in range(100):
        expected = Deny if number % 10 == 7 else Allow
        assert isinstance(policy.decide(f"mcp:s:{number}", Effects.of(SILENT)), expected)
        assert len(policy._decided) <= 10


# who they are for


def policies(**contexts: tuple[str, ...]) -> Policies:
    """Contexts for these callers, each of which denies its own name."""
    made = tuple(PolicyContext(name, callers, PolicyRules(deny=(name,))) for name, callers in contexts.items())
    return Policies(ToolSettings(contexts=made))


ME = Caller("me", "stdio", "lena")
NAMELESS = Caller("me", "stdio")
BOB = Caller("bob", "http", "bob", frozenset({"staff", "ops"}))
CI = Caller("ci", "http", "ci-7")
UNKNOWN = Caller(None, "http")

BELONGS = [
    ("stdio", (ME, NAMELESS)),
    ("stdio:lena", (ME,)),
    ("stdio:l*", (ME,)),
    ("stdio:bob", ()),
    ("principal:bob", (BOB,)),
    ("principal:lena", ()),
    ("principal:*", (BOB, CI)),
    ("principal:ci-?", (CI,)),
    ("principal:BOB", ()),
    ("group:staff", (BOB,)),
    ("group:o*", (BOB,)),
    ("group:*", (BOB,)),
    ("group:bob", ()),
    ("anonymous", (UNKNOWN,)),
    ("nonsense", ()),
    ("", ()),
]


@pytest.mark.parametrize(("described", "expected"), BELONGS, ids=[case[0] or "nothing" for case in BELONGS])
def test_whom_a_context_is_for(described: str, expected: tuple[Caller, ...]) -> None:
    made = policies(it=(described,))
    for caller in (ME, NAMELESS, BOB, CI, UNKNOWN):
        context = made.context_of(caller)
        assert (context is not None) == (caller in expected)
        assert made.of(caller).rules.deny == (("it",) if caller in expected else ())


def test_the_first_context_that_fits_counts() -> None:
    made = policies(ops=("group:ops",), people=("principal:*", "stdio"), all=("anonymous", "stdio", "principal:*"))
    assert [made.of(caller).rules.deny for caller in (BOB, CI, ME, UNKNOWN)] == [
        ("ops",),
        ("people",),
        ("people",),
        ("all",),
    ]


def test_callers_of_equal_rules_share_what_is_made_of_them() -> None:
    same = PolicyRules(deny=("mcp:s:*",))
    contexts = (PolicyContext("a", ("principal:bob",), same), PolicyContext("b", ("principal:ci-*",), same))
    made = Policies(ToolSettings(policy=PolicyRules(), contexts=contexts))
    assert made.of(BOB) is made.of(CI)
    assert made.of(ME) is made.default
    assert made.all == (made.default, made.of(BOB))


def test_a_context_that_a_caller_names_wins_over_the_context_that_it_belongs_to() -> None:
    made = policies(ops=("group:ops",), careful=())
    assert made.of(BOB).rules.deny == ("ops",)
    named = replace(BOB, context="careful")
    assert made.of(named).rules.deny == ("careful",)
    context = made.context_of(named)
    assert context is not None
    assert context.name == "careful"
    assert made.of(ME) is made.default


def test_a_caller_that_names_an_unknown_context_may_call_nothing() -> None:
    for made in (policies(ops=("stdio",)), Policies(ToolSettings())):
        for read_only in (False, True):
            gone = replace(ME, context="gone", read_only=read_only)
            assert made.context_of(gone) is None
            assert not any(map(made.of(gone).may_admit, SOURCES))
            assert isinstance(made.of(gone).decide("mcp:s:tool", Effects.of(READS)), Deny)


def test_a_read_only_caller_has_the_read_only_version_of_its_policy() -> None:
    made = policies(ops=("group:ops",), careful=())
    for caller in (ME, BOB, replace(ME, context="careful")):
        restricted = replace(caller, read_only=True)
        policy = made.of(restricted)
        assert policy is made.of(restricted)
        assert policy.rules == replace(made.of(caller).rules, read_only=True)
        assert policy.decide("mcp:s:tool", Effects.of(WRITES)) == Deny("only read-only tools are allowed")
        assert made.of(caller).decide("mcp:s:tool", Effects.of(WRITES)) == Allow()
        assert made.context_of(restricted) == made.context_of(caller)
    # These are the policies of the configuration. Restrictions of clients are not among them.
    assert made.all == (made.default, made.of(BOB), made.of(replace(ME, context="careful")))


def test_restrictions_tell_callers_apart_and_shares_do_not() -> None:
    assert replace(ME, share="client 1") == replace(ME, share="client 2") == ME
    assert len({ME, replace(ME, read_only=True), replace(ME, context="careful")}) == 3
    assert ME.bound_as(ME) is ME
    bound = replace(ME, share="client 1").bound_as(replace(BOB, read_only=True, context="careful"))
    assert (bound.principal, bound.share, bound.read_only, bound.context) == ("lena", "client 1", True, "careful")


def test_only_shares_of_clients_name_a_client() -> None:
    assert [replace(ME, share=each).client for each in (None, "peer 192.0.2.1", "client 7")] == [None, None, "client 7"]
