"""`Allow`, `Deny` or `Ask` for one tool, from the operator's rules. Pure.

Deny beats approved beats ask beats allow; without `allow` everything is allowed (SPEC 6).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from codemode_mcp.callers import Caller
    from codemode_mcp.settings import PolicyRules, ToolSettings


class Declared(Protocol):
    """Annotations of a tool, `None` where nothing was declared."""

    @property
    def read_only(self) -> bool | None: ...
    @property
    def destructive(self) -> bool | None: ...
    @property
    def idempotent(self) -> bool | None: ...
    @property
    def open_world(self) -> bool | None: ...


@dataclass(frozen=True, slots=True)
class Effects:
    """Annotations with MCP's defaults filled in: destructive and open world unless declared otherwise."""

    read_only: bool
    destructive: bool
    idempotent: bool
    open_world: bool

    @staticmethod
    def of(declared: Declared | None) -> Effects:
        """`None` for a tool whose annotations are not trusted."""
        if declared is None:
            return Effects(read_only=False, destructive=True, idempotent=False, open_world=True)
        read_only = declared.read_only is True
        return Effects(
            read_only=read_only,
            destructive=not read_only and declared.destructive is not False,
            idempotent=read_only or declared.idempotent is True,
            open_world=declared.open_world is not False,
        )


@dataclass(frozen=True, slots=True)
class Allow:
    pass


@dataclass(frozen=True, slots=True)
class Deny:
    reason: str


@dataclass(frozen=True, slots=True)
class Ask:
    reason: str


Decision = Allow | Deny | Ask

_NOTHING_DECLARED = Effects(read_only=False, destructive=False, idempotent=False, open_world=False)
_ANNOTATIONS = frozenset(("readOnly", "destructive", "idempotent", "openWorld"))


class Policy:
    """The rules for one kind of caller, ready to decide by.

    Attributes:
        rules: what it was made from.
        by_annotations: whether what a server says of its tools makes a difference.
        admits_nothing: whether no tool can be allowed, whatever is offered.
    """

    def __init__(self, rules: PolicyRules) -> None:
        self.rules = rules
        self.by_annotations = by_annotations(rules)
        self.admits_nothing = admits_nothing(rules)

    def __repr__(self) -> str:
        rules = self.rules
        return f"<Policy: {len(rules.allow or ())} allow, {len(rules.deny)} deny, {len(rules.ask)} ask>"

    def trusts(self, source_name: str) -> bool:
        """Whether what this server says of its tools is believed."""
        return source_name not in self.rules.distrusted_servers

    def effects(self, source_name: str, declared: Declared) -> Effects:
        """What a tool is taken to do; a server that is not trusted has declared nothing."""
        return Effects.of(declared if self.trusts(source_name) else None)

    def decide(self, tool_id: str, tool: Effects) -> Decision:
        """Whether a call of `tool_id` may happen."""
        return decide(self.rules, tool_id, tool)

    def names(self, tool_id: str) -> bool:
        """Whether an operator's rule admits this very tool: more than a rule for everything."""
        listed = (*(self.rules.allow or ()), *self.rules.approved)
        return any(matches(rule, tool_id, _NOTHING_DECLARED) for rule in listed if set(rule) != {"*"})


class Policies:
    """What each caller may call: the rules of `tools`, and those of its contexts."""

    def __init__(self, tools: ToolSettings) -> None:
        self.default = Policy(tools.policy)
        """For callers of no context."""
        self._contexts = tuple((context, Policy(context.rules)) for context in tools.contexts)

    def of(self, caller: Caller) -> Policy:
        """The first context that the caller belongs to, else the rules for everybody."""
        for context, policy in self._contexts:
            if any(_is(caller, each) for each in context.callers):
                return policy
        return self.default


def _is(caller: Caller, described: str) -> bool:
    kind, _, name = described.partition(":")
    match kind:
        case "stdio":
            return caller.kind == "stdio" and (not name or caller.principal == name)
        case "principal":
            return (
                caller.kind == "http"
                and caller.principal is not None
                and _glob(name).fullmatch(caller.principal) is not None
            )
        case "group":
            return name in caller.groups
        case "anonymous":
            return caller.kind == "http" and caller.principal is None
    return False


def decide(rules: PolicyRules, tool_id: str, tool: Effects) -> Decision:
    """Whether a call of `tool_id` may happen."""
    if rules.read_only and not tool.read_only:
        return Deny("only read-only tools are allowed")
    rule = _first(rules.deny, tool_id, tool)
    if rule is not None:
        return Deny(f"denied by the rule {rule!r}")
    if not _server_allows(rules, tool_id, tool):
        return Deny("not among the tools allowed of this server")
    if _first(rules.approved, tool_id, tool) is not None:
        return Allow()
    rule = _first(rules.ask, tool_id, tool)
    if rule is not None:
        return Ask(f"asked for by the rule {rule!r}")
    if rules.allow is not None and _first(rules.allow, tool_id, tool) is None:
        return Deny("not among the allowed tools")
    return Allow()


def _server_allows(rules: PolicyRules, tool_id: str, tool: Effects) -> bool:
    for server, allowed in rules.server_allow:
        if tool_id.startswith(f"mcp:{server}:"):
            return _first(allowed, tool_id, tool) is not None
    return True


def _first(rules: Iterable[str], tool_id: str, tool: Effects) -> str | None:
    return next((rule for rule in rules if matches(rule, tool_id, tool)), None)


def by_annotations(rules: PolicyRules) -> bool:
    """Whether what a server says of its tools makes a difference."""
    lists = (rules.deny, rules.ask, rules.approved, rules.allow or (), *(allowed for _, allowed in rules.server_allow))
    return rules.read_only or any(rule in _ANNOTATIONS for rules in lists for rule in rules)


def admits_nothing(rules: PolicyRules) -> bool:
    """Whether no tool can be allowed, whatever the servers offer."""
    return (rules.allow is not None and not rules.allow and not rules.approved) or any(
        set(rule) == {"*"} or (rule.startswith("mcp:") and set(rule[4:]) == {"*"}) for rule in rules.deny
    )


def matches(rule: str, tool_id: str, tool: Effects) -> bool:
    """Whether one rule, an annotation test or a glob on ids (`*` and `?`), applies to a tool."""
    match rule:
        case "readOnly":
            return tool.read_only
        case "destructive":
            return tool.destructive
        case "idempotent":
            return tool.idempotent
        case "openWorld":
            return tool.open_world
    return _glob(rule).fullmatch(tool_id) is not None


@lru_cache(maxsize=4096)
def _glob(rule: str) -> re.Pattern[str]:
    # Not fnmatch: a tool's name may hold brackets, and case matters on every system.
    return re.compile("".join(".*" if c == "*" else "." if c == "?" else re.escape(c) for c in rule), re.DOTALL)
