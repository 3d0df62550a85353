"""Explanations of decisions: for each kind of caller, what policy decides about a tool, and by which rule. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from codemode_mcp.policy.effects import Effects
from codemode_mcp.policy.policy import Policy
from upstream_clients.tools import Annotations

if TYPE_CHECKING:
    from codemode_mcp.settings import ToolSettings


@dataclass(frozen=True, slots=True)
class Explanation:
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
