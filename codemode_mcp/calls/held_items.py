"""Held prompts and resource templates: programs cannot list, get or read them.

The lists that programs get have the fields of MCP that pins compare (`item_list_repair`), and no others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from codemode_mcp.errors import PolicyDenied, UpstreamError
from codemode_mcp.trust.uri_templates import makes, may_make
from declarations.untrusted_text import escape_line
from upstream_clients.item_list_repair import PROMPTS, TEMPLATES, ItemKind, read_items, without_metadata

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from codemode_mcp.catalog.entries import Entry
    from codemode_mcp.trust.service import ListedKind, Trust
    from upstream_clients.tools import JsonObject, UpstreamView


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
        """Return True if prompts or templates of an entry's server may be held."""
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
        """Return the list of a kind. Raise `UpstreamError` if it is not known."""
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
    """Return a list of the server. Raise `UpstreamError` if it is not known."""
    if listed is not None:
        return listed
    why = next((problem for problem in view.problems if problem.startswith(form.method)), "it has not listed them yet")
    raise UpstreamError(
        f"{entry.path}: the {form.noun}s of server {entry.source_name!r} cannot be compared with those that the user "
        f"has accepted: {why}; call again later",
        dispatched=False,
    )
