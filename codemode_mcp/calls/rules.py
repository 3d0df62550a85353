"""The decision about a call: by policy, by a person, and by policy again when the call is sent."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from codemode_mcp.errors import PolicyDenied, UpstreamError
from codemode_mcp.json_text import json_text
from codemode_mcp.policy.approval import ApprovalRequest
from codemode_mcp.policy.effects import Effects
from codemode_mcp.policy.policy import Ask, Deny, Policies
from upstream_clients.tools import Admission

if TYPE_CHECKING:
    from codemode_mcp.calls.context import CallContext
    from codemode_mcp.calls.outcome import CallRecord
    from codemode_mcp.catalog.entries import Entry
    from codemode_mcp.policy.approval import ApproveFn
    from codemode_mcp.policy.policy import Policy
    from codemode_mcp.sandbox.messages import ToolCall
    from codemode_mcp.settings import ToolSettings
    from codemode_mcp.tool_override import ToolOverride
    from codemode_mcp.trust.service import Trust
    from upstream_clients.tools import Annotations, JsonObject, Tool


class Decision(NamedTuple):
    """The decision about a call that is not denied.

    Attributes:
        asked_for: why a person has to approve the call; None if no approval is needed.
        policies: the rules by which it was made.
    """

    asked_for: str | None
    policies: Policies


class CallRules:
    """The rules of the configuration, applied to calls.

    Args:
        trust: the pins of servers; None if no tool is held.
    """

    def __init__(self, tools: ToolSettings, trust: Trust | None = None) -> None:
        self._policies = Policies(tools)
        self._overrides = tools.overrides
        self._trust = trust

    def apply(self, tools: ToolSettings) -> None:
        """Use these rules from now on, also for runs that have begun."""
        self._policies = Policies(tools)
        self._overrides = tools.overrides

    def asks_for(self, target: str, context: CallContext) -> bool:
        """Return True if a call of this id needs a person's approval."""
        entry = context.catalog.get(target)
        try:
            return entry is not None and self.decide(entry, context) is not None
        except PolicyDenied:
            return False

    def decide_first(self, entry: Entry, context: CallContext) -> Decision:
        """Decide about a call that a program has made. Raises `PolicyDenied`."""
        return Decision(self.decide(entry, context), self._policies)

    def decide(
        self, entry: Entry, context: CallContext, present: Annotations | None = None, why: str = ""
    ) -> str | None:
        """Return why a person has to approve the call; None if no approval is needed.

        Args:
            present: the annotations that the server declares now; None for those in the run's catalog.
            why: the end of the message of a denial.

        Raises:
            PolicyDenied: the call is denied.
        """
        # The rules may be newer than the run's catalog, and may no longer trust the server.
        policy = self._policies.of(context.caller)
        match policy.decide(entry.id, _effects_of(entry, policy, present)):
            case Deny(reason=reason):
                raise PolicyDenied(f"{entry.path} may not be called: {reason}{why}")
            case Ask(reason=reason):
                return reason
        return None

    async def approve(
        self,
        entry: Entry,
        call: ToolCall,
        context: CallContext,
        arguments: JsonObject,
        reason: str,
        ask: ApproveFn | None,
        override: ToolOverride | None = None,
    ) -> None:
        """Ask a person. Raise `PolicyDenied` unless the call is approved with exactly these arguments.

        Args:
            override: the override that has set some of the arguments.
        """
        if ask is None:
            raise PolicyDenied(f"{entry.path} needs a person's approval ({reason}), but no one can be asked here")
        effects = _effects_of(entry, self._policies.of(context.caller))
        text = json_text(arguments)
        request = ApprovalRequest(call.id, entry.id, entry.path, arguments, effects, reason)
        if override is not None:
            shown = override.concealing_secrets(arguments)
            request = replace(request, arguments=shown, unrecorded=override.unrecorded_in(arguments))
        verdict = await ask(request)
        if not verdict.approved:
            raise PolicyDenied(
                f"{entry.path} was not approved: {verdict.why}; do not try again unless the user asks for it"
            )
        # The request has the same object, which any code between here and the person could have changed.
        if json_text(arguments) != text:
            raise PolicyDenied(
                f"{entry.path}: its arguments were changed after a person had approved the call; nothing was sent"
            )
        # The rules may have changed while the person decided.
        self.decide(entry, context)

    def _decide_on_sending(
        self,
        entry: Entry,
        context: CallContext,
        present: Tool | None,
        record: CallRecord,
        override: ToolOverride | None,
        decision: Decision,
        *,
        by_listing: bool,
    ) -> None:
        """Decide again right before the call is sent, by the current rules and annotations.

        The catalog may be older than the connection to the server, and the rules may have changed while the call waited
        for the connection or for a person.

        Args:
            present: the tool as the server lists it now; None if the server no longer lists it.
            override: the override that has set some of the arguments.
        """
        self.decide_again(entry, context, decision)
        approved = decision.asked_for is not None
        if self._overrides.get(entry.id) != override:
            raise PolicyDenied(
                f"{entry.path}: the configuration of this tool has changed while the call waited, so it was not sent; "
                "call it again"
            )
        if not by_listing and not approved and self._policies is decision.policies:
            return
        self._refuse_held(entry, present)
        policy = self._policies.of(context.caller)
        if _trusts(policy, entry) and policy.by_annotations:
            if present is None:
                raise UpstreamError(
                    f"{entry.path}: server {entry.source_name!r} no longer has the tool {entry.original.name!r}",
                    dispatched=record.dispatched,
                )
            changed = "; its server has changed the tool since it was listed"
            asked_for = self.decide(entry, context, present.annotations, changed)
            if asked_for is not None and not approved:
                raise PolicyDenied(
                    f"{entry.path} needs a person's approval ({asked_for}), run the program again{changed}"
                )
        if not approved or present is None or not _trusts(policy, entry):
            return
        if _effects_of(entry, policy, present.annotations) != _effects_of(entry, policy):
            raise PolicyDenied(
                f"{entry.path} was not called: its server has changed what the tool says it does since a person was "
                "asked; run the program again"
            )

    def _refuse_held(self, entry: Entry, present: Tool | None) -> None:
        """Raise `PolicyDenied` if the tool is held, as the server lists it now."""
        if self._trust is not None and entry.source == "mcp":
            if present is None:
                why = self._trust.admits_unlisted(entry.source_name, entry.original.name)
            else:
                why = self._trust.admits(entry.source_name, present)
            if why is not None:
                raise PolicyDenied(f"{entry.path} {why}")

    def decide_again(self, entry: Entry, context: CallContext, decision: Decision) -> None:
        """Decide again by the current rules, if they have changed. The call is approved if it had to be."""
        if self._policies is decision.policies:
            return
        asked_for = self.decide(entry, context)
        if asked_for is not None and decision.asked_for is None:
            raise PolicyDenied(f"{entry.path} needs a person's approval now ({asked_for}); run the program again")

    def admission(
        self,
        entry: Entry,
        context: CallContext,
        record: CallRecord,
        override: ToolOverride | None,
        decision: Decision,
    ) -> Admission:
        """Return the decision that the source makes right before it sends the call."""

        by_listing = self._policies.of(context.caller).by_annotations or self._is_pinned(entry)

        def decide(present: Tool | None) -> None:
            self._decide_on_sending(entry, context, present, record, override, decision, by_listing=by_listing)

        return Admission(decide, by_listing)

    def _is_pinned(self, entry: Entry) -> bool:
        return self._trust is not None and entry.source == "mcp" and self._trust.is_pinned(entry.source_name)


def _effects_of(entry: Entry, policy: Policy, present: Annotations | None = None) -> Effects:
    """Return the effects of a tool by the current rules.

    Args:
        present: the annotations that the server declares now; None for those in the run's catalog.
    """
    if entry.source != "mcp":
        return entry.effects
    is_changed = present is not None or entry.listed is not None or entry.id in policy.annotations
    if entry.operation is None and is_changed:
        return policy.effects(entry.id, entry.original.annotations if present is None else present)
    return entry.effects if policy.trusts(entry.source_name) else Effects.of(None)


def _trusts(policy: Policy, entry: Entry) -> bool:
    """Return True if the annotations of a tool are trusted. Only those of MCP servers may be distrusted."""
    return entry.source != "mcp" or policy.trusts(entry.source_name)
