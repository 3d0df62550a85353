"""The listing of a view, as pins compare it, and the view that programs see in its place."""

from __future__ import annotations

import operator
import shlex
from typing import TYPE_CHECKING, Final, Literal

from msgspec.structs import replace

from codemode_mcp.base.text import listed
from codemode_mcp.rules.trust.comparison import ItemReport, Listing, ServerPins, Status
from codemode_mcp.rules.trust.items import ENTRY_KEY, MAX_DEPTH, SERVER_KEY, Item, Key, Kind, items_of, reference, ui_of
from declarations.untrusted_text import escape_line
from upstream_clients.list_repair import metadata_of, read_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from upstream_clients.tools import JsonObject, Tool, UpstreamView


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


# The states of items in words, and the messages about held items.


STATES: Final[Mapping[tuple[Status, bool], str]] = {
    ("accepted", False): "accepted",
    ("text_changed", False): "only its texts have changed; programs see the accepted ones",
    ("text_changed", True): "only its texts have changed; held",
    ("changed", True): "changed; held",
    ("changed", False): "changed",
    ("new", True): "new; held",
    ("new", False): "new",
    ("removed", False): "no longer listed by its server",
    ("rejected", True): "rejected; held",
    ("rejected", False): "its new texts were rejected; programs see the accepted ones",
}
"""The state of an item, by its status and whether it is held."""

_ENTRY_STATES: Final[Mapping[tuple[Status, bool], str]] = {
    ("new", False): "the command or URL in the configuration is new; it may be another server",
    ("new", True): "the command or URL in the configuration is new; everything of the server is held",
    ("changed", False): "the configuration has another command or URL; it may be another server",
    ("changed", True): "the configuration has another command or URL; everything of the server is held",
    ("rejected", True): "the command or URL in the configuration was rejected; everything of the server is held",
}

NOT_COMPARABLE: Final = (
    f"its definition is nested deeper than {MAX_DEPTH} levels, or has a number of thousands of digits, so it cannot be "
    "compared or accepted; its server must change it"
)
"""The reason why an item without a digest is held."""


def state_of(report: ItemReport) -> str:
    if report.held and not report.is_comparable:
        return f"held: {NOT_COMPARABLE}"
    if report.by_entry:
        return "held, since the configuration has another command or URL for the server"
    if report.kind == "entry":
        return _ENTRY_STATES.get((report.status, report.held)) or STATES[report.status, report.held]
    return STATES[report.status, report.held]


# The messages about held items, for models and for the log.


MAX_NAMED: Final = 5
"""Maximum number of items that one line of the log names."""

_WHY: Final = {
    "new": "no person has accepted this new item",
    "changed": "its server has changed it since it was accepted",
    "text_changed": "its server has changed its description since it was accepted",
}


UNLISTED: Final = (
    "is held: its server no longer lists it, and no person has accepted it. Do not call it again unless the user asks "
    "for it"
)
"""The reason why a tool is held that is neither listed nor accepted."""


def why_held(report: ItemReport, pins: Literal["file", "lock", "unreadable"], option: str = "") -> str:
    """Return the end of a sentence that begins with the name of a held item. It says how a person accepts the item.

    Args:
        pins: the origin of the pins: their file, the lock file, or nothing, since their file cannot be read.
        option: the end of commands, such as ` --config PATH`; empty if they find the configuration themselves.
    """
    target = shlex.quote(reference(report.server, report.kind, escape_line(report.name)))
    if pins == "unreadable":
        return (
            "is held: the record of what was accepted of its server cannot be read. Ask the user to run: codemode-mcp "
            f"trust status {shlex.quote(report.server)}{option}"
        )
    if pins == "lock":
        return (
            "is held: it is not as the user's lock file has it. Ask the user to compare them with: codemode-mcp trust "
            f"check{option}"
        )
    if not report.is_comparable:
        return f"is held: {NOT_COMPARABLE}"
    if report.by_entry or report.kind == "entry":
        entry = shlex.quote(reference(report.server, *ENTRY_KEY))
        return (
            "is held: the configuration has another command or URL for its server than the accepted one. Ask the user "
            f"to look at it with: codemode-mcp trust diff {entry}{option}, and to accept it with: codemode-mcp trust "
            f"accept {entry}{option}"
        )
    if report.status == "rejected":
        return "is held: the user has rejected it. Do not try again unless the user asks for it"
    return (
        f"is held: {_WHY[report.status]}. Ask the user to look at it with: codemode-mcp trust diff {target}{option}, "
        f"and to accept it with: codemode-mcp trust accept {target}{option}"
    )


def reason_of(why: str) -> str:
    """Return the reason in a result of `why_held`, without what to do."""
    return why.removeprefix("is held: ").partition(". ")[0]


def held_line(server: str, reports: Sequence[ItemReport], *, locked: bool, option: str = "") -> str:
    """Return the line for the log about items that are held.

    Args:
        locked: True if the lock file decides.
        option: see `why_held`.
    """
    if locked:
        return (
            f"server {server!r}: {_items(len(reports))} held, since the lock file does not have what the server lists "
            f"({named(reports)}); compare them with: codemode-mcp trust check{option}"
        )
    return (
        f"server {server!r}: {_items(len(reports))} held until a person accepts {_them(reports)} ({named(reports)}); "
        f"look at {_them(reports)} with: codemode-mcp trust diff {shlex.quote(server)}{option}"
    )


def entry_line(report: ItemReport, option: str = "") -> str:
    """Return the line for the log about a changed entry in the configuration. `option`: see `why_held`."""
    entry = shlex.quote(reference(report.server, *ENTRY_KEY))
    effect = "everything of it is held" if report.held else "it may be another server"
    return (
        f"server {report.server!r}: the configuration has another command or URL for it than the accepted one, so "
        f"{effect}; look at it with: codemode-mcp trust diff {entry}{option}"
    )


def texts_line(server: str, reports: Sequence[ItemReport], option: str = "") -> str:
    """Return the line for the log about items whose texts have changed. `option`: see `why_held`."""
    return (
        f"server {server!r}: {_items(len(reports))} used with the accepted texts, since the server has changed them "
        f"({named(reports)}); look at them with: codemode-mcp trust diff {shlex.quote(server)}{option}"
    )


def _them(reports: Sequence[ItemReport]) -> str:
    return "it" if len(reports) == 1 else "them"


def _items(count: int) -> str:
    return "1 item is" if count == 1 else f"{count} items are"


def named(reports: Sequence[ItemReport]) -> str:
    """Return the names of at most `MAX_NAMED` items, and the number of the others."""
    return listed([escape_line(reference(each.server, each.kind, each.name), 80) for each in reports], MAX_NAMED)
