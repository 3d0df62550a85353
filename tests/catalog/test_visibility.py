"""Tools and servers that are denied to a caller appear nowhere in that caller's catalog."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.base.settings import PolicyRules
from codemode_mcp.catalog.catalog import Catalog
from codemode_mcp.catalog.per_caller import build
from codemode_mcp.program.mcp_uses import check_members
from codemode_mcp.program.preflight import inspect
from codemode_mcp.rules.policy.policy import Policy
from tests.values import replace
from upstream_clients.tools import Annotations, Tool, UpstreamView

READS = Annotations(read_only=True, open_world=False)
OPEN = UpstreamView("open", "ready", tools=(Tool("list", "Lists.", annotations=READS), Tool("vaulted_drop", "Drops.")))
VAULT = UpstreamView(
    "vault",
    "ready",
    description="The vault",
    tools=(Tool("take", "Takes from the vault."), Tool("put", "Puts into the vault.")),
)
GONE = UpstreamView("vault", "down", error="server 'vault' did not start")

DISTRUSTING = PolicyRules(read_only=True, distrusted_servers=frozenset({"vault"}))

HIDING = [
    ("by its id", VAULT, PolicyRules(deny=("mcp:vault:*", "*:vaulted_*"))),
    ("by a glob", VAULT, PolicyRules(deny=("*vault*",))),
    ("tool by tool", VAULT, PolicyRules(deny=("mcp:vault:take", "mcp:vault:put", "*:vaulted_*"))),
    ("not being allowed", VAULT, PolicyRules(allow=("mcp:open:list",))),
    ("its own allow list", VAULT, PolicyRules(server_allow=(("vault", ()),), deny=("*:vaulted_*",))),
    ("what its tools do", VAULT, PolicyRules(deny=("destructive",))),
    ("read-only", VAULT, PolicyRules(read_only=True)),
    ("its id, with resources", replace(VAULT, resources=True, prompts=True), PolicyRules(deny=("*vault*",))),
    ("its id, while it is down", GONE, PolicyRules(deny=("*vault*",))),
    ("its id, while it connects", UpstreamView("vault", "connecting"), PolicyRules(deny=("*vault*",))),
    ("not being believed, while it is down", GONE, DISTRUSTING),
    ("being down, with what it listed before", replace(GONE, tools=VAULT.tools), PolicyRules(read_only=True)),
]  # fmt: skip


def said(catalog: Catalog) -> str:
    """Return everything that a program can read from a catalog without knowing a name."""
    found: list[Any] = [catalog.manifest, catalog.files.list_files(""), *map(catalog.files.read, catalog.files.paths)]
    found += [
        catalog.header(None, None, schema=True),
        catalog.members.keys(),
        catalog.search("take put drop", 50, None),
    ]
    found += [catalog.header(server.identifier, None, schema=True) for server in catalog.servers]
    return json.dumps(found, default=list)


@pytest.mark.parametrize(("view", "rules"), [case[1:] for case in HIDING], ids=[case[0] for case in HIDING])
def test_a_server_of_which_everything_is_denied_does_not_exist(view: UpstreamView, rules: PolicyRules) -> None:
    catalog = build([OPEN, view], Policy(rules))
    assert [server.name for server in catalog.servers] == ["open"]
    text = said(catalog)
    assert "vault" not in text
    assert "Lists." in text
    without = build([OPEN], Policy(rules))
    assert text == said(without)
    assert catalog.version == without.version


def refusal(attempt: Callable[[], object]) -> str:
    with pytest.raises(ProgramError) as raised:
        attempt()
    return raised.value.message


@pytest.mark.parametrize(("view", "rules"), [case[1:] for case in HIDING], ids=[case[0] for case in HIDING])
def test_guesses_at_denied_names_are_answered_like_any_other(view: UpstreamView, rules: PolicyRules) -> None:
    def refusals(catalog: Catalog) -> list[str]:
        guesses: list[Callable[[], object]] = [
            lambda: catalog.resolve("mcp:vault:take"),
            lambda: catalog.resolve("mcp:open:vaulted_drop"),
            lambda: catalog.resolve_by_id("mcp:vault:take"),
            lambda: catalog.resolve_by_id("mcp:open:vaulted_drop"),
            lambda: catalog.files.read("mcp/vault.d.ts"),
            lambda: catalog.files.read("mcp/vault.d.ts#take"),
            lambda: catalog.files.read("mcp/open.d.ts#vaultedDrop"),
            lambda: catalog.header("vault", None, schema=False),
            lambda: catalog.header("open", "vaulted_drop", schema=False),
            lambda: catalog.search("take", 5, "vault"),
            lambda: check_members(inspect("MCP.vault.take()", "javascript"), catalog.members, "javascript"),
            lambda: check_members(inspect("MCP.open.vaultedDrop()", "javascript"), catalog.members, "javascript"),
        ]
        return [refusal(guess) for guess in guesses]

    unhidden = build([replace(OPEN, tools=OPEN.tools[:1])], Policy(PolicyRules()))
    assert refusals(build([OPEN, view], Policy(rules))) == refusals(unhidden)


def test_names_do_not_reveal_a_hidden_server_of_the_same_name() -> None:
    one, other = replace(OPEN, name="git_hub"), replace(VAULT, name="git-hub")
    both = build([one, other], Policy(PolicyRules()))
    assert [server.identifier for server in both.servers] == ["gitHub_2", "gitHub"]
    alone = build([one, other], Policy(PolicyRules(deny=("mcp:git-hub:*",))))
    assert [server.identifier for server in alone.servers] == ["gitHub"]


@pytest.mark.parametrize(
    ("view", "rules"),
    [
        (UpstreamView("vault", "ready"), PolicyRules(deny=("destructive",))),
        (GONE, PolicyRules(deny=("destructive",))),
        (GONE, PolicyRules(allow=("mcp:vault:take",))),
        (VAULT, PolicyRules(allow=(), ask=("mcp:vault:*",))),
        (replace(VAULT, resources=True), PolicyRules(deny=("destructive",))),
    ],
)
def test_a_server_that_may_have_tools_for_the_caller_is_visible(view: UpstreamView, rules: PolicyRules) -> None:
    assert [server.name for server in build([view], Policy(rules)).servers] == ["vault"]
