"""Listed prompts, resources and templates in the form that clients get. Pure.

A client reads one list with the items of all servers, and may refuse all of it for one invalid member. So invalid
members of an item are left out here. Hidden characters are removed from texts, and escaped in names and URIs, where
removing them could make two names equal.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from codemode_mcp.json_text import replace_lone_surrogates
from declarations.untrusted_text import HIDDEN, drop_hidden, escape_hidden

if TYPE_CHECKING:
    from collections.abc import Mapping

    from upstream_clients.tools import JsonObject

_TEXTS: Final = ("title", "description", "mimeType")
_ROLES: Final = ("user", "assistant")
_THEMES: Final = ("light", "dark")


def prompt_form(prompt: JsonObject) -> dict[str, Any]:
    """Return a prompt for clients, under the name that its server uses."""
    shown = {"name": shown_name(prompt["name"]), **_members(prompt)}
    arguments = prompt.get("arguments")
    if isinstance(arguments, list):
        shown["arguments"] = [_argument(each) for each in arguments if isinstance(each, dict)]
    return shown


def resource_form(resource: JsonObject) -> dict[str, Any]:
    """Return a resource for clients, under the URI that its server uses."""
    shown = {"uri": shown_uri(resource["uri"]), **_named(resource, "uri"), **_members(resource)}
    size = resource.get("size")
    if isinstance(size, int) and not isinstance(size, bool) and size >= 0:
        shown["size"] = size
    return {**shown, **_annotations(resource)}


def template_form(template: JsonObject) -> dict[str, Any]:
    """Return a resource template for clients, as its server uses it."""
    shown = {"uriTemplate": shown_uri(template["uriTemplate"]), **_named(template, "uriTemplate")}
    return {**shown, **_members(template), **_annotations(template)}


def shown_name(name: str) -> str:
    """Return the name of an item without hidden characters. Different names may have the same result."""
    return escape_hidden(name)


def shown_uri(uri: str) -> str:
    """Return a URI without hidden characters, which are percent-encoded."""
    return HIDDEN.sub(lambda found: quote(found[0], errors="replace"), uri)


def _named(item: JsonObject, identifier: str) -> dict[str, Any]:
    name = item.get("name")
    return {"name": shown_name(name if isinstance(name, str) and name else item[identifier])}


def _text(value: str) -> str:
    return replace_lone_surrogates(drop_hidden(value, keep="\n\t"))


def _members(item: JsonObject) -> dict[str, Any]:
    """Return the members that all kinds of items have."""
    shown: dict[str, Any] = {key: _text(item[key]) for key in _TEXTS if isinstance(item.get(key), str)}
    if icons := icons_form(item.get("icons")):
        shown["icons"] = icons
    meta = item.get("_meta")
    if isinstance(meta, dict) and meta:
        shown["_meta"] = meta
    return shown


def icons_form(icons: object) -> list[dict[str, Any]]:
    """Return the valid icons of a list, without other members."""
    fitted = map(_icon, icons) if isinstance(icons, list | tuple) else ()
    return [icon for icon in fitted if icon is not None]


def _argument(argument: Mapping[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": shown_name(str(argument.get("name", "")))}
    shown |= {key: _text(argument[key]) for key in ("title", "description") if isinstance(argument.get(key), str)}
    if isinstance(argument.get("required"), bool):
        shown["required"] = argument["required"]
    return shown


def _icon(icon: object) -> dict[str, Any] | None:
    if not isinstance(icon, dict) or not isinstance(icon.get("src"), str):
        return None
    shown: dict[str, Any] = {"src": icon["src"]}
    if isinstance(icon.get("mimeType"), str):
        shown["mimeType"] = icon["mimeType"]
    sizes = icon.get("sizes")
    if isinstance(sizes, list) and all(isinstance(each, str) for each in sizes):
        shown["sizes"] = sizes
    if icon.get("theme") in _THEMES:
        shown["theme"] = icon["theme"]
    return shown


def _annotations(item: JsonObject) -> dict[str, Any]:
    given = item.get("annotations")
    if not isinstance(given, dict):
        return {}
    shown: dict[str, Any] = {}
    audience, priority = given.get("audience"), given.get("priority")
    if isinstance(audience, list) and all(each in _ROLES for each in audience):
        shown["audience"] = audience
    if isinstance(priority, int | float) and not isinstance(priority, bool) and _is_share(priority):
        shown["priority"] = priority
    if isinstance(given.get("lastModified"), str):
        shown["lastModified"] = given["lastModified"]
    return {"annotations": shown} if shown else {}


def _is_share(number: float) -> bool:
    return math.isfinite(number) and 0 <= number <= 1
