"""Server entries in each client's own words, and the same entries in the words that most clients share. Pure.

Most clients have `command`, `args`, `env`, `url` and `headers` in an entry. Codex, opencode, Goose and Zed have others.
`shared` turns an entry into the common form before `entries` makes it one of ours, so that only this module knows the
differences. `own` makes the entry of this server in the client's words. No key is dropped here without a note.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from codemode_mcp.cli.mcp_clients.places import ClientName


class LeftOut(Exception):
    """The entry cannot be taken over. The message says why, and holds nothing secret."""


LISTS_OF_TOOLS: Final[Mapping[ClientName | None, Mapping[str, str]]] = {
    "codex": {"enabledTools": "enabled_tools", "disabledTools": "disabled_tools"},
    "copilot-cli": {"enabledTools": "tools"},
    "goose": {"enabledTools": "available_tools"},
}
"""Each client's own keys for lists of tools, by the shared ones: notes name the key that is in the user's file."""

_APPROVALS: Final = "what needs approval here is up to `tools.ask`"

_DOLLAR: Final = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_BRACED: Final = re.compile(r"\{(env|file):([^{}]+)\}")

_OF_GOOSE: Final = frozenset(("builtin", "platform", "frontend", "inline_python"))


def shared(client: ClientName | None, given: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return an entry in the words that most clients share, and notes about what is different here.

    Raises:
        LeftOut: only the client itself can start it.
    """
    match client:
        case "codex":
            return _from_codex(given)
        case "opencode":
            return _from_opencode(given)
        case "gemini-cli" | "qwen-code":
            return _from_gemini(given)
        case "copilot-cli":
            return _from_copilot(given)
        case "zed":
            return _from_zed(given)
        case "goose":
            return _from_goose(given)
    return dict(given), ()


def _from_codex(given: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    made = dict(given)
    notes: list[str] = []
    variables = _list(made, "env_vars")
    names = [each if isinstance(each, str) else each.get("name") for each in variables if isinstance(each, str | dict)]
    if names := [name for name in names if isinstance(name, str)]:
        made["env"] = {**{name: f"${{{name}:-}}" for name in names}, **_object(made, "env")}
    headers = _object(made, "http_headers")
    for header, variable in _object(made, "env_http_headers").items():
        headers[header] = f"${{{variable}}}"
    if token := made.pop("bearer_token_env_var", None):
        headers["Authorization"] = f"Bearer ${{{token}}}"
    if headers:
        made["headers"] = headers
    _seconds(made, "startup_timeout_sec", "connectTimeoutMs")
    _seconds(made, "tool_timeout_sec", "timeoutMs")
    if "startup_timeout_ms" in made:
        made["connectTimeoutMs"] = made.pop("startup_timeout_ms")
    _renamed(made, "enabled_tools", "enabledTools")
    _renamed(made, "disabled_tools", "disabledTools")
    if "scopes" in made and "oauth" not in made:
        made["oauth"] = {"scopes": made.pop("scopes")}
    if made.pop("required", None):
        notes.append("`required` is not taken over: codemode-mcp starts without a server that fails, and says so")
    approvals = [key for key in ("default_tools_approval_mode", "tools") if made.pop(key, None) is not None]
    notes += [f"`{key}` is not taken over: {_APPROVALS}" for key in approvals]
    _emptied(made, "enabledTools")
    return made, tuple(notes)


def _from_opencode(given: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    made = _mapped(given, _references_of_opencode)
    kind = made.pop("type", None)
    words = made.get("command")
    if isinstance(words, list):
        if not words:
            raise LeftOut("its `command` is empty")
        made["command"], made["args"] = words[0], words[1:]
    _renamed(made, "environment", "env")
    _renamed(made, "timeout", "connectTimeoutMs")
    if made.get("oauth") is False:
        del made["oauth"]
    if isinstance(made.get("oauth"), dict):
        oauth = made["oauth"]
        _renamed(oauth, "scope", "scopes")
    if kind is None and "command" not in made and "url" not in made:
        raise LeftOut("it only switches on or off a server that another file of opencode has")
    return made, ()


def _references_of_opencode(text: str) -> str:
    """Return the text with `{env:X}` and `{file:x}` as `${X:-}` and `${file:x}`: unset variables are empty there."""
    return _BRACED.sub(lambda match: f"${{{match[2]}:-}}" if match[1] == "env" else f"${{file:{match[2]}}}", text)


def _from_gemini(given: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    made = _mapped(given, lambda text: _DOLLAR.sub(r"${\1:-}", text))
    notes = []
    if made.get("tcp") is not None:
        raise LeftOut("it is reached by WebSocket, which is not supported; give it a URL of http or https")
    if "httpUrl" in made:
        made["url"], made["type"] = made.pop("httpUrl"), "http"
    elif "url" in made and "type" not in made:
        made["type"] = "sse"
    _milliseconds(made)
    if made.pop("trust", None):
        notes.append(f"`trust` is not taken over: {_APPROVALS}")
    _emptied(made, "includeTools")
    return made, tuple(notes)


def _from_copilot(given: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    made = _mapped(given, lambda text: _DOLLAR.sub(r"${\1:-}", text))
    tools = made.pop("tools", None)
    if isinstance(tools, list) and "*" not in tools:
        made["enabledTools"] = tools
        _emptied(made, "enabledTools")
    made.pop("deferTools", None)
    if made.get("type") in ("local", "stdio"):
        del made["type"]
    _milliseconds(made)
    return made, ()


def _from_zed(given: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    made = dict(given)
    nested = made.get("command")
    if isinstance(nested, dict):
        made["command"] = nested.get("path")
        for key in ("args", "env"):
            if nested.get(key):
                made[key] = nested[key]
    if made.get("command") is None and made.get("url") is None:
        raise LeftOut("it is an extension of Zed, and only Zed can start it")
    notes: tuple[str, ...] = ()
    if made.pop("settings", None):
        notes = ("`settings` is not taken over: Zed gives them to extensions only",)
    _seconds(made, "timeout", "timeoutMs")
    return made, notes


def _from_goose(given: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    inner = given.get("config")
    made = {**given, **inner} if isinstance(inner, dict) else dict(given)
    made.pop("config", None)
    kind = made.get("type")
    if (isinstance(kind, str) and kind in _OF_GOOSE) or (made.get("cmd") is None and made.get("uri") is None):
        raise LeftOut("it is a part of Goose, and only Goose can start it")
    notes = []
    _renamed(made, "cmd", "command")
    _renamed(made, "uri", "url")
    env = _object(made, "envs")
    kept = [name for name in _list(made, "env_keys") if isinstance(name, str) and name not in env]
    if kept:
        env |= {name: f"${{{name}:-}}" for name in kept}
        notes.append(f"set {', '.join(kept)} where codemode-mcp starts: Goose has the value in its keyring")
    if env:
        made["env"] = env
    if kind == "stdio":
        del made["type"]
    _seconds(made, "timeout", "timeoutMs")
    _renamed(made, "available_tools", "enabledTools")
    if not made.get("enabledTools"):
        # An empty list means all tools there.
        made.pop("enabledTools", None)
    for key in ("bundled", "display_name"):
        made.pop(key, None)
    return made, tuple(notes)


def _object(made: dict[str, Any], key: str) -> dict[str, Any]:
    """Take an object out of an entry; an absent one is empty.

    Raises:
        LeftOut: the value is no object.
    """
    value = made.pop(key, None) or {}
    if not isinstance(value, dict):
        raise LeftOut(f"its `{key}` is not an object")
    return dict(value)


def _list(made: dict[str, Any], key: str) -> list[Any]:
    """Take a list out of an entry; an absent one is empty.

    Raises:
        LeftOut: the value is no list.
    """
    value = made.pop(key, None) or []
    if not isinstance(value, list):
        raise LeftOut(f"its `{key}` is not a list")
    return value


def _renamed(made: dict[str, Any], theirs: str, common: str) -> None:
    if theirs in made:
        value = made.pop(theirs)
        made.setdefault(common, value)


def _seconds(made: dict[str, Any], theirs: str, common: str) -> None:
    value = made.get(theirs)
    if isinstance(value, int | float) and not isinstance(value, bool):
        del made[theirs]
        made[common] = round(value * 1000)


def _milliseconds(made: dict[str, Any]) -> None:
    if isinstance(made.get("timeout"), int):
        made["timeoutMs"] = made.pop("timeout")


def _emptied(made: dict[str, Any], key: str) -> None:
    """Refuse an empty list of allowed tools: here it would allow all of them."""
    if made.get(key) == []:
        raise LeftOut("it allows no tool at all; say in the client which ones it may have, or switch it off")


def _mapped(value: Mapping[str, Any], change: Any) -> dict[str, Any]:
    """Return a copy whose texts are changed."""

    def each(inner: Any) -> Any:
        match inner:
            case str():
                return change(inner)
            case list():
                return [each(item) for item in inner]
            case dict():
                return {key: each(item) for key, item in inner.items()}
        return inner

    return {key: each(item) for key, item in value.items()}


# this server

DESCRIPTION: Final = "Runs programs that call the tools of all other MCP servers."


def own(
    client: ClientName, name: str, made: Mapping[str, Any], handed: Mapping[str, str], old: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the entry of this server in the client's words.

    Args:
        made: in the shared words: `command`, `args`, and `env` of an entry that it replaces.
        handed: how the client writes the variables that servers behind this one need.
        old: the client's entry that it replaces, of which keys that say nothing about how it is started stay.
    """
    command, args = made["command"], list(made["args"])
    env = {**handed, **(made.get("env") or {})}
    match client:
        case "codex":
            kept = dict((old or {}).get("env") or {})
            names = [*dict.fromkeys((*((old or {}).get("env_vars") or ()), *handed))] if handed or old else []
            entry = {"command": command, "args": args, "required": True}
            entry |= {"env_vars": names} if names else {}
            entry |= {"env": kept} if kept else {}
            started = {"url", "bearer_token_env_var", "http_headers", "env_http_headers", "enabled"}
        case "opencode":
            entry = {"type": "local", "command": [command, *args], "enabled": True}
            kept = {**handed, **((old or {}).get("environment") or {})}
            entry |= {"environment": kept} if kept else {}
            started = {"url", "headers", "oauth"}
        case "copilot-cli":
            entry = {"type": "local", "command": command, "args": args, "tools": ["*"], "deferTools": "never"}
            entry |= {"env": env} if env else {}
            started = {"url", "headers"}
        case "goose":
            keys = [*dict.fromkeys((*((old or {}).get("env_keys") or ()), *handed))]
            entry = {"enabled": True, "type": "stdio", "name": name, "description": DESCRIPTION}
            entry |= {"cmd": command, "args": args, "envs": dict((old or {}).get("envs") or {}), "env_keys": keys}
            entry |= {"timeout": 300}
            started = {"uri", "headers", "config", "enabled", "name", "description"}
        case _:
            entry = {"command": command, "args": args, **({"env": env} if env else {})}
            started = {"url", "httpUrl", "headers", "type", "source", "disabled", "enabled"}
    fixed = {"type", "command", "args", "cmd", "env", "envs", "environment", "env_vars", "env_keys"}
    rest = {key: value for key, value in (old or {}).items() if key not in fixed and key not in started}
    return {**entry, **rest}
