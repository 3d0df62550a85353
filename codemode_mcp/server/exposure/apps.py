"""MCP Apps, listed items and stored results of programs, in the forms that clients get. Pure.

A client that declares the extension `io.modelcontextprotocol/ui` gets the apps of all servers. Each server's apps have
URIs of their own, `ui://<server>/<rest>` for the server's `ui://<rest>`, so no server can stand for another one.

Hosts trust what they get from a server: they read the app of a tool, and build the content security policy of its
frame from the domains that the app names. So tools and apps are checked here:

- A tool names an app of its own server, or none. Everything else in its metadata is left out.
- An app is one HTML document of a bounded size, with the exact MIME type. It runs in a frame within a page of ours
  (`app_frame.html`): hosts see one server, and would let an app call the tools of all servers.
- Domains are single tokens, so that they cannot add directives to the policy. Unknown members of `_meta.ui` are left
  out, and so is `domain`: the origin that it asks for is bound to a server, and hosts see only this one.

Source: https://github.com/modelcontextprotocol/ext-apps, specification/2026-01-26.
"""

from __future__ import annotations

import binascii
import math
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

import msgspec

from codemode_mcp.base.strict_json import join_surrogates, json_text, replace_lone_surrogates
from codemode_mcp.catalog.entries import SCHEME, app_uri, is_app_uri, is_for_apps, is_for_apps_only
from codemode_mcp.runs.values import REF_PREFIX, ListedResult, ResultContents, ResultForm, StoredResult
from declarations.untrusted_text import HIDDEN, drop_hidden, escape_hidden
from upstream_clients.jsonrpc import APP_MIME_TYPE as MIME_TYPE
from upstream_clients.jsonrpc import APPS_EXTENSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from upstream_clients.tools import JsonObject, Tool


DECLARATION: Final[Mapping[str, Any]] = {APPS_EXTENSION: {"mimeTypes": [MIME_TYPE]}}
"""The extension in the capabilities of this server."""

_OWN: Final = "codemode-mcp"

SHOWN_URI: Final = "ui://codemode-mcp/shown"
"""The URI of the page of `exec` and `wait`, for apps that programs show."""

SHOWN_KEY: Final = "codemode-mcp/app"
"""Key in the `_meta` of an answer, for what that page needs of the app that a program has shown."""

RESOURCES: Final = "ui://codemode-mcp/resources/"
"""Prefix of the URIs under which apps read other resources of their server."""

MAX_HTML: Final = 8 * 1024 * 1024
"""Maximum size of an app in bytes."""

MAX_PAGE: Final = 12 * 1024 * 1024
"""Maximum number of characters of an app in our page, where some are escaped."""

MAX_DOMAINS: Final = 50
"""Maximum number of domains of each kind that an app may name."""

_DOMAIN_LISTS: Final = ("connectDomains", "resourceDomains", "frameDomains", "baseUriDomains")
_PERMISSIONS: Final = {
    "camera": "camera",
    "microphone": "microphone",
    "geolocation": "geolocation",
    "clipboardWrite": "clipboard-write",
}
"""The features of browsers, by the permissions for which apps may ask."""
_DOMAIN: Final = re.compile(
    r"(?:(?:https?|wss?)://)?(?:\*\.)?[A-Za-z0-9._-]{1,253}(?::(?:\d{1,5}|\*))?|(?:https?|wss?):|\*"
)


class AppError(Exception):
    """Error for an app that cannot be passed on. The text says why."""


def shows_apps(capabilities: Mapping[str, Any] | None) -> bool:
    extensions = (capabilities or {}).get("extensions")
    declared = extensions.get(APPS_EXTENSION) if isinstance(extensions, dict) else None
    types = declared.get("mimeTypes") if isinstance(declared, dict) else None
    return isinstance(types, list) and any(isinstance(each, str) and _is_app_type(each) for each in types)


def exposed_uri(server: str, uri: str) -> str:
    """Return the URI under which clients get an app of a server. No server gets the URIs of our own pages."""
    name = "codemode%2Dmcp" if server == _OWN else quote(server, safe="")
    return f"{SCHEME}{name}/{uri.removeprefix(SCHEME)}"


def original_uri(exposed: str) -> tuple[str, str] | None:
    """Return the server of a URI that a client or an app reads, and the URI that the server uses.

    None if it is not a URI of an app, or of a resource for an app.
    """
    if not is_app_uri(exposed):
        return None
    is_resource = exposed.startswith(RESOURCES)
    server, slash, rest = exposed.removeprefix(RESOURCES if is_resource else SCHEME).partition("/")
    if not slash or not rest:
        return None
    return unquote(server), unquote(rest) if is_resource else SCHEME + rest


def tool_meta(server: str, tool: Tool) -> dict[str, Any] | None:
    """Return the `_meta` with which clients that show apps get a tool; None if it has nothing to do with apps."""
    uri, only = app_uri(tool), is_for_apps_only(tool)
    if uri is None and not only:
        return None
    ui: dict[str, Any] = {}
    meta: dict[str, Any] = {"ui": ui}
    if uri is not None:
        ui["resourceUri"] = meta["ui/resourceUri"] = exposed_uri(server, uri)
    if only:
        ui["visibility"] = ["app"]
    elif not is_for_apps(tool):
        ui["visibility"] = ["model"]
    return meta


def exposed_resource(server: str, resource: JsonObject) -> dict[str, Any] | None:
    """Return the entry of `resources/list` for an app of a server, without invalid members; None for no valid app."""
    uri, mime_type = resource.get("uri"), resource.get("mimeType", MIME_TYPE)
    if not is_app_uri(uri) or not isinstance(mime_type, str) or not _is_app_type(mime_type):
        return None
    ui, form = _ui_of(resource), resource_form(resource)
    return {
        **{name: form[name] for name in _RESOURCE_MEMBERS if name in form},
        "uri": exposed_uri(server, uri),
        "mimeType": MIME_TYPE,
        **({"_meta": {"ui": ui}} if ui else {}),
    }


_RESOURCE_MEMBERS: Final = ("name", "title", "description", "size", "annotations", "icons")


def exposed_contents(
    server: str, uri: str, result: Mapping[str, Any], tools: Mapping[str, str], listed: JsonObject | None = None
) -> dict[str, Any]:
    """Return the result of `resources/read` for an app.

    Args:
        uri: the URI of the app, as the server uses it.
        result: the result of the server.
        tools: the names of the tools that the app may call, as clients know them, by the names that the server uses.
        listed: the entry of the app in the server's list of resources, whose `_meta.ui` counts if the result has none.

    Raises:
        AppError: the server did not answer with one HTML document.
    """
    contents = result.get("contents")
    if not isinstance(contents, list) or len(contents) != 1 or not isinstance(contents[0], dict):
        raise AppError("its server did not answer with exactly one document")
    item = contents[0]
    mime_type = item.get("mimeType")
    if not isinstance(mime_type, str) or not _is_app_type(mime_type):
        raise AppError(f"its MIME type is not {MIME_TYPE}")
    ui = _ui_of(item) or _ui_of(listed or {})
    app = {
        "html": join_surrogates(_html(item)),
        "tools": tools,
        "apps": exposed_uri(server, SCHEME),
        "resources": f"{RESOURCES}{quote(server, safe='')}/",
        "allow": "; ".join(_PERMISSIONS[name] for name in ui.get("permissions", ())),
    }
    return _page(exposed_uri(server, uri), app, ui)


def shown_page() -> dict[str, Any]:
    """Return the result of `resources/read` for the page of `exec` and `wait`."""
    return _page(SHOWN_URI, None, {})


def lacks_metadata(result: Mapping[str, Any]) -> bool:
    """Return True if the result of `resources/read` has no `_meta.ui` for hosts."""
    contents = result.get("contents")
    return isinstance(contents, list) and not any(isinstance(each, dict) and _ui_of(each) for each in contents)


def _page(uri: str, app: dict[str, Any] | None, ui: Mapping[str, Any]) -> dict[str, Any]:
    # Within a script element, a text could end the element or begin a comment.
    given = json_text(app).replace("<", "\\u003c")
    if len(given) > MAX_PAGE:
        raise AppError(f"it is larger than {MAX_PAGE // 1024 // 1024} MiB in our page")
    page: dict[str, Any] = {"uri": uri, "mimeType": MIME_TYPE, "text": _template().replace("{app}", given, 1)}
    if ui:
        page["_meta"] = {"ui": dict(ui)}
    return {"contents": [page]}


@cache
def _template() -> str:
    return Path(__file__).with_name("app_frame.html").read_text("utf-8")


def _html(item: Mapping[str, Any]) -> str:
    text, blob = item.get("text"), item.get("blob")
    if not isinstance(text, str):
        if not isinstance(blob, str):
            raise AppError("its server sent no document")
        if len(blob) > MAX_HTML * 4 // 3 + 4:
            raise AppError(f"it is larger than {MAX_HTML // 1024 // 1024} MiB")
        try:
            text = binascii.a2b_base64(blob, strict_mode=True).decode("utf-8")
        except ValueError:
            raise AppError("its document is not UTF-8 in base64") from None
    if len(text) > MAX_HTML or len(text.encode("utf-8", "replace")) > MAX_HTML:
        raise AppError(f"it is larger than {MAX_HTML // 1024 // 1024} MiB")
    return text


def _ui_of(resource: Mapping[str, Any]) -> dict[str, Any]:
    meta = resource.get("_meta")
    given = meta.get("ui") if isinstance(meta, dict) else None
    if not isinstance(given, dict):
        return {}
    ui: dict[str, Any] = {}
    csp, permissions = given.get("csp"), given.get("permissions")
    if isinstance(csp, dict):
        ui["csp"] = {name: _domains(csp[name]) for name in _DOMAIN_LISTS if isinstance(csp.get(name), list)}
    if isinstance(permissions, dict):
        ui["permissions"] = {name: {} for name in _PERMISSIONS if isinstance(permissions.get(name), dict)}
    if isinstance(given.get("prefersBorder"), bool):
        ui["prefersBorder"] = given["prefersBorder"]
    return ui


def _domains(listed: list[Any]) -> list[str]:
    valid = [each for each in listed[: 4 * MAX_DOMAINS] if isinstance(each, str) and _DOMAIN.fullmatch(each)]
    return valid[:MAX_DOMAINS]


def _is_app_type(mime_type: str) -> bool:
    return mime_type.replace(" ", "").casefold() == MIME_TYPE


# apps that programs show


def shown_meta(item: Mapping[str, Any], resource_uri: str) -> dict[str, Any]:
    """Return the `_meta` of an answer for the output of `show()` in a program.

    Args:
        item: the output, as the guest has written it.
        resource_uri: the URI under which clients get the app.
    """
    try:
        arguments = msgspec.json.decode(replace_lone_surrogates(item.get("input", "{}")))
    except (ValueError, RecursionError):
        arguments = None
    app = {
        "resourceUri": resource_uri,
        "tool": item["target"],
        "arguments": arguments if isinstance(arguments, dict) else {},
        "result": {"content": [], **item["result"]},
    }
    return {"ui": {"resourceUri": resource_uri}, "ui/resourceUri": resource_uri, SHOWN_KEY: app}


def marked(tool: JsonObject) -> dict[str, Any]:
    """Return `exec` or `wait` with the page for apps that programs show. Apps may not call these tools."""
    ui = {"resourceUri": SHOWN_URI, "visibility": ["model"]}
    return {**tool, "_meta": {**tool.get("_meta", {}), "ui": ui, "ui/resourceUri": SHOWN_URI}}


# Listed prompts, resources and templates in the form that clients get.
#
# A client reads one list with the items of all servers, and may refuse all of it for one invalid member. So invalid
# members of an item are left out here. Hidden characters are removed from texts, and escaped in names and URIs, where
# removing them could make two names equal.


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
    shown: dict[str, Any] = {key: _text(item[key]) for key in _TEXTS if isinstance(item.get(key), str)}
    if icons := icons_form(item.get("icons")):
        shown["icons"] = icons
    meta = item.get("_meta")
    if isinstance(meta, dict) and meta:
        shown["_meta"] = meta
    return shown


def icons_form(icons: object) -> list[dict[str, Any]]:
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


# Stored results of programs as MCP resources: their URIs, list entries, links, contents and pages.
#
# The URI of a result is `codemode://results/<key>`, where `result:<key>` is the ref that `load` takes. Keys are random,
# and a URI is useful only to the owner of the result. Servers cannot use these URIs; see `server.exposure.items`.


RESULTS: Final = "codemode://results/"
"""Beginning of the URIs of results."""

MAX_LINKS: Final = 8
"""Maximum number of links in one answer. The list of resources has all results."""

_KEY: Final = re.compile(r"[0-9a-f]{16}", re.ASCII)
_CURSOR: Final = re.compile(r"results:([1-9][0-9]{0,17})", re.ASCII)


def result_uri(ref: str) -> str:
    return RESULTS + ref.removeprefix(REF_PREFIX)


def ref_of(uri: str) -> str | None:
    key = uri.removeprefix(RESULTS) if uri.startswith(RESULTS) else ""
    return REF_PREFIX + key if _KEY.fullmatch(key) else None


def link(result: StoredResult) -> dict[str, Any]:
    return {"type": "resource_link", **_described(result.ref, result.form), "description": "stored in full"}


def entry(result: ListedResult) -> dict[str, Any]:
    return {**_described(result.ref, result.form), "title": "Result of a program"}


def _described(ref: str, form: ResultForm | None) -> dict[str, Any]:
    key = ref.removeprefix(REF_PREFIX)
    if form is None:
        return {"uri": result_uri(ref), "name": f"result-{key}"}
    name = f"result-{key}.{form.extension}"
    return {"uri": result_uri(ref), "name": name, "mimeType": form.mime_type, "size": form.size}


def contents(uri: str, found: ResultContents) -> dict[str, Any]:
    data = {"text": found.text} if found.blob is None else {"blob": found.blob}
    return {"uri": uri, "mimeType": found.form.mime_type, **data}


def cursor_after(result: ListedResult) -> str:
    return f"results:{result.number}"


def number_before(cursor: str | None) -> int | None:
    """Return the number before which the page of a cursor begins; None if the cursor is not one of results."""
    found = None if cursor is None else _CURSOR.fullmatch(cursor)
    return None if found is None else int(found[1])
