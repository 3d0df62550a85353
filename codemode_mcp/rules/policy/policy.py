"""Callers, and the decision about their calls by the operator's rules: `Allow`, `Deny` or `Ask`. Pure.

`deny` beats `approved`, `approved` beats `ask`, and `ask` beats `allow`. Without `allow`, everything is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from codemode_mcp.base.settings import PolicyContext, PolicyRules, ToolSettings
from codemode_mcp.rules.policy.rule_patterns import (
    NO_EFFECTS,
    POSSIBLE_EFFECTS,
    READ_ONLY,
    Effects,
    Rules,
    covers,
    glob_pattern,
    may_overlap,
    reaches,
    with_own,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from upstream_clients.tools import Annotations


class Allow(Struct, frozen=True):
    """The decision that a call may be made."""


class Deny(Struct, frozen=True):
    """The decision that a call must not be made."""

    reason: str


class Ask(Struct, frozen=True):
    """The decision that a person has to approve a call."""

    reason: str


Decision = Allow | Deny | Ask

SOURCES: Final = ("mcp:", "plugin:", "core:", "client:", "program:")
"""Prefixes of tool ids."""

TOOL_MARK: Final = "tools/call:"
"""Prefix, within an id, of the name of an MCP tool that is called like an operation: `mcp:s:tools/call:prompts/get`."""

MAX_REMEMBERED: Final = 32_768
"""Maximum number of decisions that one policy caches."""


class Policy:
    """The policy for one kind of caller.

    Attributes:
        by_annotations: True if decisions depend on the annotations of tools.
        annotations: the annotations of the operator, by the id of the tool.
    """

    def __init__(self, rules: PolicyRules) -> None:
        self.rules = rules
        self._deny, self._ask, self._approved = Rules(rules.deny), Rules(rules.ask), Rules(rules.approved)
        self._allow = None if rules.allow is None else Rules(rules.allow)
        self._server_allow = {server: Rules(allowed) for server, allowed in rules.server_allow}
        self.annotations = dict(rules.annotations)
        self._naming = Rules(
            rule for rule in (*(rules.allow or ()), *rules.ask, *rules.approved) if rule and rule.strip("*")
        )
        every = (self._deny, self._ask, self._approved, self._allow or Rules(()), *self._server_allow.values())
        self.by_annotations = rules.read_only or any(each.has_annotations for each in every)
        # Caches.
        self._decided: dict[tuple[str, Effects], Decision] = {}
        self._admissible: dict[str, bool] = {}

    def __repr__(self) -> str:
        rules = self.rules
        return f"<Policy: {len(rules.allow or ())} allow, {len(rules.deny)} deny, {len(rules.ask)} ask>"

    def trusts(self, source_name: str) -> bool:
        return source_name not in self.rules.distrusted_servers

    def effects(self, tool_id: str, declared: Annotations) -> Effects:
        """Return the effects of a server's tool, by the annotations that count."""
        return Effects.of(self.counted(tool_id, declared))

    def counted(self, tool_id: str, declared: Annotations) -> Annotations | None:
        """Return the annotations of a tool that count: those of the operator, and then those of the server.

        The annotations of a server that is not trusted do not count.
        """
        trusted = declared if self.trusts(_server_of(tool_id)) else None
        own = self.annotations.get(tool_id)
        return trusted if own is None else with_own(trusted, own)

    def operation_effects(self, server: str) -> Effects:
        # MCP defines that reading resources and prompts changes nothing, whatever the server declares.
        return READ_ONLY if self.trusts(server) else Effects.of(None)

    def decide(self, tool_id: str, tool: Effects) -> Decision:
        key = tool_id, tool
        found = self._decided.get(key)
        if found is None:
            if len(self._decided) >= MAX_REMEMBERED:
                self._decided.clear()
            found = self._decided[key] = self._decide(tool_id, tool)
        return found

    def _decide(self, tool_id: str, tool: Effects) -> Decision:
        if self.rules.read_only and not tool.read_only:
            return Deny("only read-only tools are allowed")
        rule = _first(self._deny, tool_id, tool)
        if rule is not None:
            return Deny(f"denied by the rule {rule!r}")
        if not self._server_lists(tool_id, tool):
            return Deny("not among the tools allowed of this server")
        if self._approved.first(tool_id, tool) is not None:
            return Allow()
        rule = _first(self._ask, tool_id, tool)
        if rule is not None:
            return Ask(f"asked for by the rule {rule!r}")
        if self._allow is not None and self._allow.first(tool_id, tool) is None:
            return Deny("not among the allowed tools")
        return Allow()

    def explain(self, tool_id: str, tool: Effects) -> tuple[Literal["allow", "ask", "deny"], str]:
        decision = self.decide(tool_id, tool)
        if isinstance(decision, Deny):
            return "deny", decision.reason
        if isinstance(decision, Ask):
            return "ask", decision.reason
        approved = self._approved.first(tool_id, tool)
        if approved is not None:
            return "allow", f"approved by the rule {approved!r}"
        allowed = None if self._allow is None else self._allow.first(tool_id, tool)
        return "allow", "no rule denies it or asks for it" if allowed is None else f"allowed by the rule {allowed!r}"

    def switches_off(self, tool_id: str) -> bool:
        """Return True if `deny` names exactly this tool."""
        return tool_id in self.rules.deny

    def server_admits(self, tool_id: str, tool: Effects) -> bool:
        """Return True if a tool passes the rules that no list can lift: `readOnly`, and the `allow` of its server."""
        return (tool.read_only or not self.rules.read_only) and self._server_lists(tool_id, tool)

    def _server_lists(self, tool_id: str, tool: Effects) -> bool:
        allowed = self._server_allow.get(_server_of(tool_id))
        return allowed is None or allowed.first(tool_id, tool) is not None

    def names(self, tool_id: str) -> bool:
        """Return True if a rule admits this tool that does not apply to every tool."""
        return self._naming.first(tool_id, NO_EFFECTS) is not None

    def may_admit(self, prefix: str) -> bool:
        """Return True if some tool with this prefix of its id might be allowed, or need an approval.

        Where overlapping rules make the answer hard to find, it is True.

        Args:
            prefix: a source such as `core:`, or a source with a name such as `mcp:github:`.
        """
        found = self._admissible.get(prefix)
        if found is None:
            found = self._admissible[prefix] = self._may_admit(prefix)
        return found

    def _may_admit(self, prefix: str) -> bool:
        name = _server_of(prefix)
        # The effects that a tool with this prefix can have, if no rule denies them.
        possible = [
            each
            for each in (self._untrusted_effects(prefix) if name and not self.trusts(name) else POSSIBLE_EFFECTS)
            if (each.read_only or not self.rules.read_only) and not self._deny.test_annotations(each)
        ]
        everything = prefix + "*"
        if not possible or self._is_denied(everything):
            return False

        def tests(rules: Rules) -> bool:
            return any(map(rules.test_annotations, possible))

        # Globs for the tools that the server's own list admits. An annotation test in the list may admit every tool.
        listed = [everything]
        allowed = self._server_allow.get(name)
        if allowed is not None and not tests(allowed):
            listed = [glob for glob in allowed.globs if reaches(glob, prefix) and not self._is_denied(glob)]
        for admitting in (self._approved, self._ask, self._allow):
            globs = listed
            if admitting is not None and not tests(admitting):
                globs = [
                    glob
                    for glob in admitting.globs
                    if reaches(glob, prefix)
                    and any(may_overlap(glob, other) for other in listed)
                    and not self._is_denied(glob)
                ]
            if globs:
                return True
        return False

    def _untrusted_effects(self, prefix: str) -> tuple[Effects, ...]:
        """Return the effects that tools of a server can have whose own annotations do not count."""
        own = (Effects.of(each) for tool_id, each in self.annotations.items() if tool_id.startswith(prefix))
        return Effects.of(None), *own

    def _is_denied(self, glob: str) -> bool:
        """Return True if one rule denies everything that a glob matches."""
        return any(covers(rule, glob) for rule in self._deny.all(glob, NO_EFFECTS))


class Policies:
    """The policies of all callers: the rules of `tools`, and those of its contexts.

    Attributes:
        default: the policy of callers in no context.
    """

    def __init__(self, tools: ToolSettings) -> None:
        self.default = _compiled(tools.policy)
        made = {tools.policy: self.default}
        for context in tools.contexts:
            made.setdefault(context.rules, _compiled(context.rules))
        self._contexts = tuple((context, made[context.rules]) for context in tools.contexts)
        self._read_only: dict[Policy, Policy] = {}
        """The policies of read-only callers, made on demand, by the policies that they restrict."""

    @property
    def all(self) -> tuple[Policy, ...]:
        """All different policies of the configuration, the default first, without the restrictions of a client."""
        return tuple(dict.fromkeys((self.default, *(policy for _, policy in self._contexts))))

    def of(self, caller: Caller) -> Policy:
        """Return the policy of the caller's context, or else the default. For a read-only caller, restrict it.

        A caller that names a context which does not exist may call nothing. The context may have been removed from the
        configuration, and other rules could allow more than it did.
        """
        policy = self.default
        if caller.context is not None:
            policy = next((each for context, each in self._contexts if context.name == caller.context), _NOTHING)
        elif self._contexts:
            policy = next((each for context, each in self._contexts if belongs(caller, context)), policy)
        return self._restricted(policy) if caller.read_only else policy

    def context_of(self, caller: Caller) -> PolicyContext | None:
        """Return the context of the caller: the one that it names, or else the first one that it belongs to.

        Return None if the default policy applies, or if there is no context of this name.
        """
        if caller.context is not None:
            return next((context for context, _ in self._contexts if context.name == caller.context), None)
        return next((context for context, _ in self._contexts if belongs(caller, context)), None)

    def _restricted(self, policy: Policy) -> Policy:
        if policy.rules.read_only:
            return policy
        found = self._read_only.get(policy)
        if found is None:
            found = self._read_only[policy] = _compiled(replace(policy.rules, read_only=True))
        return found


_compiled = lru_cache(maxsize=64)(Policy)
"""The policy for rules. Several parts of the product decide by the same rules, which are indexed only once."""

_NOTHING: Final = Policy(PolicyRules(allow=()))
"""The policy that allows nothing."""


def belongs(caller: Caller, context: PolicyContext) -> bool:
    return is_among(caller, context.callers)


def is_among(caller: Caller, described: Iterable[str]) -> bool:
    """Return True if a caller fits one of these descriptions; see `PolicyContext.callers`."""
    return any(_is(caller, each) for each in described)


def _is(caller: Caller, described: str) -> bool:
    kind, _, name = described.partition(":")
    match kind:
        case "stdio":
            return caller.kind == "stdio" and (not name or _fits(name, caller.principal))
        case "principal":
            return caller.kind == "http" and _fits(name, caller.principal)
        case "group":
            return any(_fits(name, group) for group in caller.groups)
        case "anonymous":
            return caller.kind == "http" and caller.principal is None
    return False


def _fits(glob: str, name: str | None) -> bool:
    return name is not None and glob_pattern(glob).fullmatch(name) is not None


def restricting_ids(tool_id: str) -> tuple[str, ...]:
    """Return the ids by which rules of `deny` and `ask` match a tool.

    A tool with the name of an operation is also matched by the operation's id, so that a rule which was written for the
    plain name of the tool still restricts it. Rules of `allow` and `approved` match the tool's own id only.
    """
    head, mark, name = tool_id.partition(TOOL_MARK)
    return (tool_id, head + name) if mark and head == f"mcp:{_server_of(tool_id)}:" else (tool_id,)


def _first(rules: Rules, tool_id: str, tool: Effects) -> str | None:
    found = (rules.first(each, tool) for each in restricting_ids(tool_id))
    return next((rule for rule in found if rule is not None), None)


def _server_of(tool_id: str) -> str:
    """Return the server in an id of an MCP tool; an empty string for other ids and for bare sources."""
    source, _, rest = tool_id.partition(":")
    return rest.partition(":")[0] if source == "mcp" else ""


PEER: Final = "peer "
"""Prefix of shares that belong to an address."""

CLIENT: Final = "client "
"""Prefix of shares that belong to one of several clients of an owner in one process: `client 7`. The number means
nothing to other processes."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The author of a request, as far as known.

    Attributes:
        owner: the owner of runs and stored values; None for an unknown caller, whose runs belong to everyone who has
            their ids.
        principal: the caller's name in policies. Over HTTP it is the name of a token of the configuration, or the
            subject of an access token. Over stdio it is the user's login name. None without authentication.
        groups: the groups of the caller.
        share: the share of the server that the request uses, if it is not the owner's: the address of a caller that
            is not authenticated (`PEER`), or one client of an owner (`CLIENT`). It decides nothing else, so two callers
            are equal even if their shares differ.
        read_only: True to allow only read-only tools, whatever the rules say.
        context: the name of the context in `tools.contexts` whose rules apply; None for the first context that the
            caller belongs to.
    """

    owner: str | None
    kind: Literal["stdio", "http"] = "stdio"
    principal: str | None = None
    groups: frozenset[str] = frozenset()
    share: str | None = field(default=None, compare=False)
    read_only: bool = False
    context: str | None = None

    @property
    def operates(self) -> bool:
        """True for the user of this configuration, who may change it."""
        return self.kind == "stdio"

    @property
    def client(self) -> str | None:
        """The share, if it is that of one of several clients of an owner; None otherwise."""
        return self.share if self.share is not None and self.share.startswith(CLIENT) else None

    def bound_as(self, other: Caller) -> Caller:
        """Return this caller with the restrictions of another one: `read_only` and `context`.

        A run keeps the restrictions of the client that began it, whichever client of the owner resumes it.
        """
        if (self.read_only, self.context) == (other.read_only, other.context):
            return self
        return replace(self, read_only=other.read_only, context=other.context)
