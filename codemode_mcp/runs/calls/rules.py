"""The decision about a call: by policy, by a person, by budgets, and by what a person has accepted."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from codemode_mcp.base.errors import BudgetExceeded, Exceeded, PolicyDenied, UpstreamError
from codemode_mcp.base.strict_json import json_text
from codemode_mcp.base.text import utf8_size
from codemode_mcp.rules.policy.approval import ApprovalRequest, ApproveFn
from codemode_mcp.rules.policy.budgets import AccountView, Budgets, Unit
from codemode_mcp.rules.policy.policy import Ask, Deny, Policies, Policy
from codemode_mcp.rules.policy.rule_patterns import Effects
from codemode_mcp.rules.trust.items import makes, may_make
from declarations.untrusted_text import escape_line
from upstream_clients.list_repair import PROMPTS, TEMPLATES, ItemKind, read_items, without_metadata
from upstream_clients.tools import Admission, Annotations, JsonObject, Tool, UpstreamView

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from codemode_mcp.base.settings import BudgetSettings, ToolOverride, ToolSettings
    from codemode_mcp.catalog.entries import Entry
    from codemode_mcp.rules.trust.service import ListedKind, Trust
    from codemode_mcp.runs.calls.outcome import CallContext, CallRecord
    from codemode_mcp.sandbox.messages import ToolCall


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


# Held prompts and resource templates: programs cannot list, get or read them.
#
# The lists that programs get have the fields of MCP that pins compare (`item_list_repair`), and no others.


class _Listed(NamedTuple):
    """A list that an operation returns."""

    kind: ListedKind
    form: ItemKind


_LISTED: Final = {
    "prompts/list": _Listed("prompt", PROMPTS),
    "resources/templates/list": _Listed("template", TEMPLATES),
}


class HeldResource(PolicyDenied):
    """Error for a URI that only a held template makes, as far as the templates are known.

    The URI may also be in the server's list of resources, of which nothing is held.
    """


class HeldItems:
    """The pins of prompts and templates, applied to the requests of programs."""

    def __init__(self, trust: Trust) -> None:
        self._trust = trust

    def may_hold(self, entry: Entry) -> bool:
        return entry.source == "mcp" and entry.operation is not None and self._trust.is_pinned(entry.source_name)

    def check(
        self, entry: Entry, arguments: Mapping[str, Any], view: UpstreamView, resources: Collection[str] = ()
    ) -> None:
        """Check a request right before it is sent.

        Args:
            arguments: the arguments of the program.
            view: the view of the process that gets the request. Its lists are newer than its announcements.
            resources: the URIs of resources that the server lists.

        Raises:
            HeldResource: only a held template makes the URI, and it is not in `resources`.
            PolicyDenied: the prompt or template is held, or everything of the server is.
            UpstreamError: the prompt is unknown, or the prompts or templates could not be listed.
        """
        why = self._trust.why_server_held(entry.source_name)
        if why is not None:
            raise PolicyDenied(f"{entry.path} {why}")
        match entry.operation.id if entry.operation is not None else "":
            case "prompts/list":
                self._known_list(entry, "prompt", view)
            case "resources/templates/list":
                self._known_list(entry, "template", view)
            case "prompts/get" | "prompts/complete":
                self._check_prompt(entry, arguments["name"], view)
            case "resources/read" | "resources/complete":
                self._check_uri(entry, arguments["uri"], view, resources)

    def without_held(self, entry: Entry, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the result of a list without held items, and with the accepted texts of the others."""
        listed = None if entry.operation is None else _LISTED.get(entry.operation.method)
        if listed is None:
            return result
        items = result.get(listed.form.key)
        read, _ = read_items(listed.form, items if isinstance(items, list) else ())
        seen = [without_metadata(item) for item in read]
        return {**result, listed.form.key: self._trust.usable(entry.source_name, listed.kind, seen)}

    def _known_list(self, entry: Entry, kind: ListedKind, view: UpstreamView) -> tuple[JsonObject, ...]:
        if kind == "prompt":
            listed = _require_list(entry, view.prompt_list, PROMPTS, view)
        else:
            listed = _require_list(entry, view.template_list, TEMPLATES, view)
        self._trust.note_list(entry.source_name, kind, listed)
        return listed

    def _check_prompt(self, entry: Entry, name: str, view: UpstreamView) -> None:
        listed = self._known_list(entry, "prompt", view)
        found = next((each for each in listed if each["name"] == name), None)
        if found is not None:
            (why,) = self._trust.why_held(entry.source_name, "prompt", [found])
            if why is not None:
                raise PolicyDenied(f"{entry.path}: the prompt {escape_line(repr(name))} {why}")
        elif not self._trust.has_accepted(entry.source_name, ("prompt", name)):
            raise UpstreamError(
                f"{entry.path}: server {entry.source_name!r} lists no prompt {escape_line(repr(name))}",
                dispatched=False,
            )

    def _check_uri(self, entry: Entry, uri: str, view: UpstreamView, resources: Collection[str]) -> None:
        held: list[str] = []
        templates: list[str] = []
        listed = () if view.template_list is None else self._known_list(entry, "template", view)
        for template, why in zip(listed, self._trust.why_held(entry.source_name, "template", listed), strict=True):
            if why is None:
                templates.append(template["uriTemplate"])
            elif may_make(template["uriTemplate"], uri):
                held.append(f"the resource template {escape_line(repr(template['uriTemplate']))} {why}")
        if held and uri not in resources and not any(makes(template, uri) for template in templates):
            raise HeldResource(f"{entry.path}: {held[0]}")


def _require_list(
    entry: Entry, listed: tuple[JsonObject, ...] | None, form: ItemKind, view: UpstreamView
) -> tuple[JsonObject, ...]:
    if listed is not None:
        return listed
    why = next((problem for problem in view.problems if problem.startswith(form.method)), "it has not listed them yet")
    raise UpstreamError(
        f"{entry.path}: the {form.noun}s of server {entry.source_name!r} cannot be compared with those that the user "
        f"has accepted: {why}; call again later",
        dispatched=False,
    )


_KEYS: Final[dict[Unit, str]] = {"calls": "calls", "bytes": "bytes", "running_ms": "runningMs"}
_WORDS: Final[dict[Unit, str]] = {"calls": "calls", "bytes": "bytes of results", "running_ms": "ms of running calls"}


class CallBudgets:
    """The budgets of the configuration, applied to calls of MCP servers.

    Args:
        clock: monotonic seconds.
        wall: seconds since the epoch, for messages.
    """

    def __init__(
        self,
        settings: Sequence[BudgetSettings],
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._budgets = Budgets(settings)
        self._clock = clock
        self._wall = wall

    def apply(self, settings: Sequence[BudgetSettings]) -> None:
        self._budgets.apply(settings)

    def limits(self, entry: Entry) -> bool:
        """Return True if budgets may apply to a tool."""
        return bool(self._budgets.settings) and entry.source == "mcp"

    def check(self, entry: Entry, context: CallContext) -> None:
        """Raise `BudgetExceeded` if the call must not be sent now."""
        found = self._budgets.used_up(context.caller, context.quota_share, entry.source_name, self._clock())
        if found is None:
            return
        opens = datetime.fromtimestamp(self._wall(), UTC) + timedelta(seconds=found.opens_in)
        key = f"tools.budgets.{found.budget.name}.{_KEYS[found.unit]}"
        raise BudgetExceeded(
            f"{entry.path} was not called: the budget {found.budget.name!r} for server {found.server!r} is used up "
            f"({found.used} of {found.limit} {_WORDS[found.unit]} in {found.budget.window_seconds} s). It opens again "
            f"at {opens:%Y-%m-%dT%H:%M:%SZ}, in {round(found.opens_in) or 1} s; do not call this server before that",
            Exceeded(key, found.used, found.limit),
        )

    def use(self, entry: Entry, context: CallContext) -> CallUse | None:
        """Return the use of the budgets by one call; None if no budget can apply to it."""
        return CallUse(self, entry, context, self._clock) if self.limits(entry) else None

    def add(self, entry: Entry, context: CallContext, unit: Unit, amount: int) -> None:
        self._budgets.add(context.caller, context.quota_share, entry.source_name, self._clock(), unit, amount)

    def views(self) -> list[AccountView]:
        """Return the accounts that have been used in their windows."""
        return self._budgets.views(self._clock())


class CallUse:
    """The use of budgets by one call."""

    __slots__ = ("_budgets", "_clock", "_context", "_counted", "_entry", "_since")

    def __init__(self, budgets: CallBudgets, entry: Entry, context: CallContext, clock: Callable[[], float]) -> None:
        self._budgets = budgets
        self._entry = entry
        self._context = context
        self._clock = clock
        # The mutable state.
        self._counted = False
        self._since: float | None = None
        """The time of the first request, while the call is in flight."""

    def sent(self) -> None:
        """Count the call, right before its first request. Raise `BudgetExceeded` if it must not be sent."""
        if not self._counted:
            self._budgets.check(self._entry, self._context)
            self._budgets.add(self._entry, self._context, "calls", 1)
            self._counted, self._since = True, self._clock()

    def received(self, result: object, text: str | None) -> None:
        """Count a result. `text`: the result as JSON, if the source has sent it."""
        self._budgets.add(self._entry, self._context, "bytes", utf8_size(json_text(result) if text is None else text))

    def ended(self) -> None:
        """Count the time of the call. Further calls do nothing."""
        if self._since is not None:
            milliseconds = math.ceil((self._clock() - self._since) * 1000)
            self._since = None
            self._budgets.add(self._entry, self._context, "running_ms", milliseconds)
