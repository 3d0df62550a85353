"""Explanations of decisions, unused rules, and tools that no caller can call. Pure.

A rule is unused if the removal of its whole list changes no decision for any known tool and context. So of two equal
rules, both are used or both are unused.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from codemode_mcp.base.did_you_mean import nearest
from codemode_mcp.rules.policy.policy import Caller, Deny, Policies, Policy, belongs, restricting_ids
from codemode_mcp.rules.policy.rule_patterns import Effects, Rules, matches, reaches
from upstream_clients.tools import Annotations

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from codemode_mcp.base.settings import HttpSettings, PolicyContext, PolicyRules, ToolSettings


Known = tuple[str, "Effects"]
"""A known tool: its id and its effects."""

Listed = Literal["deny", "approved", "ask", "allow"]

_LISTS: tuple[Listed, ...] = ("allow", "deny", "ask", "approved")
_WHY_UNUSED = {
    "deny": "everything that it matches is denied without it",
    "approved": "everything that it matches is denied, or needs no approval",
    "ask": "everything that it matches is denied or approved by other rules",
    "allow": "everything that it matches is denied, approved or asked for by other rules",
}


_ABOUT_ONE_SERVER = re.compile(r"mcp:([^:*?]+):([^/]+)")
_UNKNOWN = Effects.of(None)


class UnusedRule(Struct, frozen=True):
    """An unused rule.

    Attributes:
        key: the key of its list, such as `tools.contexts.interns.allow`.
        why: the rest of a sentence that begins with "it has no effect:"; None if the rule matches no tool.
    """

    key: str
    rule: str
    why: str | None


def unused_rules(tools: ToolSettings, known: Sequence[Known], unknown: Collection[str]) -> list[UnusedRule]:
    """Return the unused rules.

    Args:
        known: all known tools.
        unknown: prefixes of ids that are not known now, such as `mcp:down:`. If there are any, a rule that may match
            such an id counts as used, and so does every annotation test.
    """
    found: list[UnusedRule] = []
    base = _Usage(tools.policy, known)
    usage = {context.name: _Usage(context.rules, known) for context in tools.contexts}
    for key in _LISTS:
        inheriting = [base, *(usage[each.name] for each in tools.contexts if key == "deny" or key not in each.own)]
        found += _unused(f"tools.{key}", key, getattr(tools.policy, key) or (), inheriting)
    for context in tools.contexts:
        for key in _LISTS:
            if key in context.own:
                rules = _own(context, tools.policy, key)
                found += _unused(f"tools.contexts.{context.name}.{key}", key, rules, [usage[context.name]])
    for server, globs in tools.policy.server_allow:
        matched = _matched(Rules(globs), known)
        found += [UnusedRule(f"mcpServers.{server}.allow", rule, None) for rule in globs if rule not in matched]

    def may_match_unknown(rule: str) -> bool:
        return bool(unknown) and ((":" not in rule and "*" not in rule) or any(reaches(rule, each) for each in unknown))

    return [each for each in dict.fromkeys(found) if not may_match_unknown(each.rule)]


def idle_denials(tools: ToolSettings, servers: Collection[str], listed: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a sentence for each deny rule about one server that denies nothing, with the nearest name.

    Annotation tests, rules with a glob as the server, and rules about resources and prompts are left to `unused_rules`.

    Args:
        servers: the names of all configured servers.
        listed: the names of the tools, by server, as far as they are known.
    """
    lists = [("tools.deny", tools.policy.deny)]
    lists += [(f"tools.contexts.{each.name}.deny", tuple(_own(each, tools.policy, "deny"))) for each in tools.contexts]
    found: list[str] = []
    for key, rules in lists:
        for rule in rules:
            match = _ABOUT_ONE_SERVER.fullmatch(rule)
            if match is None:
                continue
            name, tool = match[1], match[2]
            if name not in servers:
                near = [f"mcp:{each}:{tool}" for each in nearest(name, servers, count=1)]
                why = f"there is no server {name!r}"
            elif name in listed and not any(matches(rule, f"mcp:{name}:{each}", _UNKNOWN) for each in listed[name]):
                near = [f"mcp:{name}:{each}" for each in nearest(tool, listed[name], count=1)]
                why = f"server {name!r} has no such tool"
            else:
                continue
            hint = f"; did you mean {near[0]!r}?" if near else ""
            found.append(f"{rule!r} in {key} denies nothing: {why}{hint}")
    return found


def _own(context: PolicyContext, base: PolicyRules, key: Listed) -> Iterable[str]:
    """Return the rules of a list that the context itself adds. Its `deny` also has the rules of `tools.deny`."""
    rules: Sequence[str] = getattr(context.rules, key) or ()
    return (Counter(rules) - Counter(base.deny)).keys() if key == "deny" else rules


class _Usage:
    """The rules of one policy that match a known tool, and the rules that decide about one, by list.

    A list decides about a tool if the decision would be another without the list. The order is that of `Policy.decide`.
    """

    def __init__(self, rules: PolicyRules, known: Iterable[Known]) -> None:
        self.matching: Mapping[Listed, set[str]] = {key: set() for key in _LISTS}
        self.deciding: Mapping[Listed, set[str]] = {key: set() for key in _LISTS}
        lists = {key: Rules(getattr(rules, key) or ()) for key in _LISTS}
        policy = Policy(rules)
        for tool_id, effects in known:
            found = {key: _applying(key, each, tool_id, effects) for key, each in lists.items()}
            for key in _LISTS:
                self.matching[key].update(found[key])
            if not policy.server_admits(tool_id, effects):
                continue
            admitted = rules.allow is None or found["allow"]
            if found["deny"]:
                if found["approved"] or found["ask"] or admitted:
                    self.deciding["deny"].update(found["deny"])
            elif found["approved"]:
                if found["ask"] or not admitted:
                    self.deciding["approved"].update(found["approved"])
            elif found["ask"]:
                self.deciding["ask"].update(found["ask"])
            else:
                self.deciding["allow"].update(found["allow"])


def _applying(key: Listed, rules: Rules, tool_id: str, effects: Effects) -> list[str]:
    ids = restricting_ids(tool_id) if key in ("deny", "ask") else (tool_id,)
    return [rule for each in ids for rule in rules.all(each, effects)]


def _unused(key: str, kind: Listed, rules: Iterable[str], where: Sequence[_Usage]) -> Iterable[UnusedRule]:
    for rule in rules:
        if not any(rule in each.matching[kind] for each in where):
            yield UnusedRule(key, rule, None)
        elif not any(rule in each.deciding[kind] for each in where):
            yield UnusedRule(key, rule, _WHY_UNUSED[kind])


def _matched(rules: Rules, known: Iterable[Known]) -> set[str]:
    return {rule for tool_id, effects in known for rule in rules.all(tool_id, effects)}


def out_of_reach(tools: ToolSettings, known: Iterable[Known]) -> list[str]:
    """Return the ids of tools that no caller can call, in any context."""
    policies = Policies(tools).all
    return [
        tool_id
        for tool_id, effects in known
        if all(isinstance(policy.decide(tool_id, effects), Deny) for policy in policies)
    ]


def empty_contexts(tools: ToolSettings, http: HttpSettings, operator: Caller) -> list[tuple[str, str]]:
    """Return the names of the contexts that no caller can belong to without naming them, each with the reason."""
    policies = Policies(tools)
    callers = list(_possible_callers(tools, http, operator))
    inhabited = {context.name for caller in callers if (context := policies.context_of(caller)) is not None}
    found = []
    for context in tools.contexts:
        if context.name in inhabited or not context.callers:
            continue
        if any(belongs(caller, context) for caller in callers):
            why = "all callers in it are in an earlier context"
        elif http.tokens:
            why = "no token of http.auth.tokens has such a name or group"
        elif http.oauth is not None:
            why = "with http.auth no caller is anonymous"
        else:
            why = "without http.auth no HTTP caller has a name or a group"
        found.append((context.name, why))
    return found


def _possible_callers(tools: ToolSettings, http: HttpSettings, operator: Caller) -> Iterable[Caller]:
    """Yield a caller of every possible kind. The text of a glob is used as the name of a caller that it matches."""
    yield operator
    yield Caller(None, "stdio")
    described = [each.partition(":") for context in tools.contexts for each in context.callers]
    yield from (Caller(None, "stdio", name) for kind, _, name in described if kind == "stdio" and name)
    if http.tokens:
        yield from (Caller(None, "http", token.name, frozenset(token.groups)) for token in http.tokens)
    elif http.oauth is not None:
        yield from (Caller(None, "http", name) for kind, _, name in described if kind == "principal")
        yield from (Caller(None, "http", "\0", frozenset({name})) for kind, _, name in described if kind == "group")
    else:
        yield Caller(None, "http")


class Explanation(Struct, frozen=True):
    """The decision about one tool for one kind of caller.

    Attributes:
        context: the name of the context; None for callers in no context.
        callers: the callers of the context, as in its `for`.
        decision: never `held` from `explain`, which does not know what people have accepted.
    """

    context: str | None
    callers: tuple[str, ...]
    decision: Literal["allow", "ask", "deny", "held"]
    why: str


def explain(tools: ToolSettings, tool_id: str, annotations: Annotations | None) -> list[Explanation]:
    """Return the decision for callers in no context, and then for each context.

    Args:
        annotations: those of the tool; None if they are unknown.
    """
    kinds = [(None, (), tools.policy), *((each.name, each.callers, each.rules) for each in tools.contexts)]
    found = []
    for name, callers, rules in kinds:
        policy = Policy(rules)
        is_mcp = tool_id.startswith("mcp:")
        effects = policy.effects(tool_id, annotations or Annotations()) if is_mcp else Effects.of(annotations)
        found.append(Explanation(name, callers, *policy.explain(tool_id, effects)))
    return found
