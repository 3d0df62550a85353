"""The listing of a view, as pins compare it, and the view that programs see in its place."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import TYPE_CHECKING

from codemode_mcp.rules.trust.comparison import ItemReport, Listing, ServerPins
from codemode_mcp.rules.trust.items import ENTRY_KEY, SERVER_KEY, Item, Key, Kind, items_of, ui_of
from upstream_clients.list_repair import metadata_of, read_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from upstream_clients.tools import JsonObject, Tool, UpstreamView


def is_listed(view: UpstreamView) -> bool:
    """Return True if the lists of a server are known."""
    return view.era is not None or bool(view.tools)


_LISTS = operator.attrgetter("tools", "prompt_list", "template_list")
_FACTS = operator.attrgetter("instructions", "server_name", "logged_in", "prompts", "resources", "refused_lists")


def same_listing(one: UpstreamView, other: UpstreamView) -> bool:
    """Return True if two views of a server surely have the same listing."""
    return all(map(operator.is_, _LISTS(one), _LISTS(other))) and _FACTS(one) == _FACTS(other)


def refused_kinds(view: UpstreamView) -> frozenset[Kind]:
    """Return the kinds whose list the server was asked for, and has never given."""
    kinds: dict[Kind, bool] = {
        "prompt": "prompts" in view.refused_lists and view.prompt_list is None,
        "template": "templates" in view.refused_lists and view.template_list is None,
    }
    return frozenset(kind for kind, is_refused in kinds.items() if is_refused)


def listing_of(
    view: UpstreamView, secrets: Sequence[str], before: ServerPins | None, at: float, entry: Item | None = None
) -> Listing:
    """Return the listing of a view. Lists that are not known yet are as they were before, for the same login.

    Args:
        entry: the item of the entry in the configuration; None to leave it out.
    """
    complete: set[Kind] = {"server", "tool"}
    if entry is not None:
        complete.add("entry")
    if view.prompt_list is not None or not view.prompts:
        complete.add("prompt")
    if view.template_list is not None or not view.resources:
        complete.add("template")
    items = {key: without_secrets(item, secrets) for key, item in items_of(view, entry).items()}
    if before is not None and (before.logged_in or not view.logged_in):
        for key, item in before.present.items.items():
            if key[0] not in complete and key != ENTRY_KEY:
                items.setdefault(key, item)
        complete |= before.present.complete - {ENTRY_KEY[0]}
    listing = Listing(items, frozenset(complete), at)
    same = before is not None and before.present.has_same_items(listing)
    return before.present if before is not None and same else listing


def without_secrets(item: Item, secrets: Sequence[str]) -> Item:
    """Return an item without its definition if the definition quotes a secret, so that no one stores or shows it."""
    if not secrets or item.definition is None:
        return item
    from upstream_clients.listing import quotes

    if not quotes(item.definition, secrets):
        return item
    return Item(item.kind, item.name, None, item.digest, item.shape_digest)


def accepted_tool(pins: ServerPins, name: str) -> Tool | None:
    """Return a tool as it was accepted; None if it was not, or if its definition is not stored."""
    accepted = pins.accepted.get(("tool", name))
    definition = None if accepted is None else accepted.item.definition
    return None if definition is None else next(iter(read_tools([definition])[0]), None)


def _usable(
    reports: Mapping[Key, ItemReport], kind: Kind, name: str, listed: Sequence[JsonObject] | None
) -> tuple[JsonObject, ...] | None:
    """Return the prompts or templates that programs see. `name`: the member with the name of an item."""
    if listed is None:
        return None
    shown: dict[str, JsonObject] = {}
    for each in listed:
        report = reports[kind, str(each.get(name))]
        usable = report.usable
        if usable is report.present and usable is not None:
            shown.setdefault(report.name, each)
        elif usable is not None and usable.definition is not None:
            shown.setdefault(report.name, {**usable.definition, **metadata_of(each)})
    return tuple(shown.values())


def _with_metadata_of(present: Tool, accepted: Tool) -> Tool:
    """Return an accepted tool with the metadata of the present one that is not compared."""
    ui = ui_of(present.meta)
    meta = {key: value for key, value in (present.meta or {}).items() if key not in ui} | dict(accepted.meta or {})
    annotations = accepted.annotations
    if present.annotations.title is not None and annotations.title is None:
        # The definition has only one of two equal titles; see `items.tool_item`.
        annotations = replace(annotations, title=accepted.title)
    return replace(
        accepted, annotations=annotations, meta=meta or None, icons=present.icons, needs_task=present.needs_task
    )


def shown_view(
    view: UpstreamView, reports: Mapping[Key, ItemReport], why_held: Callable[[ItemReport], str | None]
) -> UpstreamView:
    """Return the view that programs see: without held items, and with accepted texts.

    Args:
        why_held: returns the reason why an item is held.
    """
    if all(report.status in ("accepted", "removed") for report in reports.values()):
        return view
    tools, withheld = [], {}
    for tool in view.tools:
        report = reports["tool", tool.name]
        if report.held:
            withheld[tool.name] = why_held(report) or ""
        elif report.usable is report.present:
            tools.append(tool)
        elif report.usable is not None and report.usable.definition is not None:
            tools += [_with_metadata_of(tool, each) for each in read_tools([report.usable.definition])[0]]
    own = reports[SERVER_KEY]
    instructions = view.instructions
    if own.status != "accepted":
        accepted = None if own.accepted is None else own.accepted.definition
        instructions = None if accepted is None else accepted.get("instructions")
    if ENTRY_KEY in reports and reports[ENTRY_KEY].held:
        # It may be another server, so its resources are held, too.
        view = replace(view, resources=False, prompts=False, completions=False, resource_list=None)
    return replace(
        view,
        tools=tuple(tools),
        withheld=withheld,
        instructions=instructions,
        prompt_list=_usable(reports, "prompt", "name", view.prompt_list),
        template_list=_usable(reports, "template", "uriTemplate", view.template_list),
    )
