"""MCP Apps of servers, as clients of this server get them. Pure.

A client that declares the extension `io.modelcontextprotocol/ui` gets the apps of all servers. Each server's apps have
URIs of their own, `ui://<server>/<rest>` for the server's `ui://<rest>`, so no server can stand for another one.

Hosts trust what they get from a server: they read the app of a tool, and build the content security policy of its
frame from the domains that the app names. So tools and apps are checked here:

- A tool names an app of its own server, or none. Everything else in its metadata is left out.
- An app is one HTML document of a bounded size, with the exact MIME type.
- Domains are single tokens, so that they cannot add directives to the policy. Unknown members of `_meta.ui` are left
  out, and so is `domain`: the origin that it asks for is bound to a server, and hosts see only this one.

Source: https://github.com/modelcontextprotocol/ext-apps, specification/2026-01-26.
"""

from __future__ import annotations

import binascii
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from codemode_mcp.catalog.apps import SCHEME, app_uri, is_app_uri, is_for_apps, is_for_apps_only
from upstream_clients.jsonrpc import APP_MIME_TYPE as MIME_TYPE
from upstream_clients.jsonrpc import APPS_EXTENSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from upstream_clients.tools import JsonObject, Tool

DECLARATION: Final[Mapping[str, Any]] = {APPS_EXTENSION: {"mimeTypes": [MIME_TYPE]}}
"""The extension in the capabilities of this server."""

MAX_HTML: Final = 8 * 1024 * 1024
"""Maximum size of an app in bytes."""

MAX_DOMAINS: Final = 50
"""Maximum number of domains of each kind that an app may name."""

_DOMAIN_LISTS: Final = ("connectDomains", "resourceDomains", "frameDomains", "baseUriDomains")
_PERMISSIONS: Final = ("camera", "microphone", "geolocation", "clipboardWrite")
_DOMAIN: Final = re.compile(
    r"(?:(?:https?|wss?)://)?(?:\*\.)?[A-Za-z0-9._-]{1,253}(?::(?:\d{1,5}|\*))?|(?:https?|wss?):|\*"
)


class AppError(Exception):
    """Error for an app that cannot be passed on. The text says why."""


def shows_apps(capabilities: Mapping[str, Any] | None) -> bool:
    """Return True if a client with these capabilities shows apps."""
    extensions = (capabilities or {}).get("extensions")
    declared = extensions.get(APPS_EXTENSION) if isinstance(extensions, dict) else None
    types = declared.get("mimeTypes") if isinstance(declared, dict) else None
    return isinstance(types, list) and any(isinstance(each, str) and _is_app_type(each) for each in types)


def exposed_uri(server: str, uri: str) -> str:
    """Return the URI under which clients get an app of a server."""
    return f"{SCHEME}{quote(server, safe='')}/{uri.removeprefix(SCHEME)}"


def original_uri(exposed: str) -> tuple[str, str] | None:
    """Return the server of an app, and the URI that the server uses; None if a URI is not that of an app."""
    if not is_app_uri(exposed):
        return None
    server, slash, rest = exposed.removeprefix(SCHEME).partition("/")
    return (unquote(server), SCHEME + rest) if slash and rest else None


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
    """Return the entry of `resources/list` for an app of a server; None if it is not a valid app."""
    uri, mime_type = resource.get("uri"), resource.get("mimeType", MIME_TYPE)
    if not is_app_uri(uri) or not isinstance(mime_type, str) or not _is_app_type(mime_type):
        return None
    ui = _ui_of(resource)
    return {
        **{name: resource[name] for name in _RESOURCE_MEMBERS if resource.get(name) is not None},
        "uri": exposed_uri(server, uri),
        "mimeType": MIME_TYPE,
        **({"_meta": {"ui": ui}} if ui else {}),
    }


_RESOURCE_MEMBERS: Final = ("name", "title", "description", "size", "annotations", "icons")


def exposed_contents(server: str, uri: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of `resources/read` for an app.

    Args:
        uri: the URI of the app, as the server uses it.
        result: the result of the server.

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
    shown: dict[str, Any] = {"uri": exposed_uri(server, uri), "mimeType": MIME_TYPE, "text": _html(item)}
    ui = _ui_of(item)
    if ui:
        shown["_meta"] = {"ui": ui}
    return {"contents": [shown]}


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
    """Return the members of `_meta.ui` that hosts may get."""
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
