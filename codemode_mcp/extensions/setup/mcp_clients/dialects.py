"""Server entries of clients: their forms, their literal secrets, and functions for JSON values. Pure.

Most clients have `command`, `args`, `env`, `url` and `headers` in an entry. Codex, opencode, Goose, Zed and others have
different keys. `common_form` translates these keys first, and then `entries` converts the entry into one of ours. So
only this module depends on the differences. A key that limits or permits what a server does is never dropped without a
note.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from codemode_mcp.audit.redaction import without_tokens
from codemode_mcp.config.literals import REFERENCE, SCHEME, Secret, replace_secrets
from upstream_clients.json_values import map_json
from upstream_clients.redaction import HIDDEN, PLAIN_VALUES, WORD

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from codemode_mcp.extensions.setup.mcp_clients.locations import ClientName

    Translated = tuple[dict[str, Any], tuple[str, ...]]
    """An entry in the common form, and notes for the user."""


class NotImportable(Exception):
    """The entry cannot be imported. The message says why, and holds no secret."""


TOOL_LIST_KEYS: Final[Mapping[ClientName | None, Mapping[str, str]]] = {
    "codex": {"enabledTools": "enabled_tools", "disabledTools": "disabled_tools"},
    "copilot-cli": {"enabledTools": "tools"},
    "goose": {"enabledTools": "available_tools"},
}
"""The keys of each client for lists of tools, by the common keys. Notes to the user name the client's key."""

_APPROVALS: Final = "what needs approval here is up to `tools.ask`"

_DOLLAR: Final = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_BRACED: Final = re.compile(r"\{(env|file):([^{}]+)\}")

_GOOSE_BUILT_IN: Final = frozenset(("builtin", "platform", "frontend", "inline_python"))


def common_form(client: ClientName | None, entry: Mapping[str, Any]) -> Translated:
    """Return an entry in the form that most clients share, and notes on the differences for the user.

    Raises:
        NotImportable: only the client can start this server.
    """
    match client:
        case "codex":
            return _from_codex(entry)
        case "opencode":
            return _from_opencode(entry)
        case "gemini-cli" | "qwen-code":
            return _from_gemini(entry)
        case "copilot-cli":
            return _from_copilot(entry)
        case "zed":
            return _from_zed(entry)
        case "goose":
            return _from_goose(entry)
    return dict(entry), ()


def _from_codex(entry: Mapping[str, Any]) -> Translated:
    common = dict(entry)
    notes: list[str] = []
    variables = _pop_list(common, "env_vars")
    names = [each if isinstance(each, str) else each.get("name") for each in variables if isinstance(each, str | dict)]
    if names := [name for name in names if isinstance(name, str)]:
        common["env"] = {**{name: f"${{{name}:-}}" for name in names}, **_pop_object(common, "env")}
    headers = _pop_object(common, "http_headers")
    headers |= {header: f"${{{name}}}" for header, name in _pop_object(common, "env_http_headers").items()}
    if token := common.pop("bearer_token_env_var", None):
        headers["Authorization"] = f"Bearer ${{{token}}}"
    if headers:
        common["headers"] = headers
    _rename_seconds(common, "startup_timeout_sec", "connectTimeoutMs")
    _rename_seconds(common, "tool_timeout_sec", "timeoutMs")
    if "startup_timeout_ms" in common:
        common["connectTimeoutMs"] = common.pop("startup_timeout_ms")
    _rename(common, "enabled_tools", "enabledTools")
    _rename(common, "disabled_tools", "disabledTools")
    if "scopes" in common and "oauth" not in common:
        common["oauth"] = {"scopes": common.pop("scopes")}
    if common.pop("required", None):
        notes.append("`required` is not imported: codemode-mcp starts without a server that fails, and says so")
    approvals = [key for key in ("default_tools_approval_mode", "tools") if common.pop(key, None) is not None]
    notes += [f"`{key}` is not imported: {_APPROVALS}" for key in approvals]
    _require_tools(common)
    return common, tuple(notes)


def _from_opencode(entry: Mapping[str, Any]) -> Translated:
    # In opencode, `{env:X}` is empty for an unset variable.
    common = map_json(
        dict(entry),
        lambda text: _BRACED.sub(
            lambda match: f"${{{match[2]}:-}}" if match[1] == "env" else f"${{file:{match[2]}}}", text
        ),
        keys=False,
    )
    kind = common.pop("type", None)
    words = common.get("command")
    if isinstance(words, list):
        if not words:
            raise NotImportable("its `command` is empty")
        common["command"], common["args"] = words[0], words[1:]
    _rename(common, "environment", "env")
    _rename(common, "timeout", "connectTimeoutMs")
    if common.get("oauth") is False:
        del common["oauth"]
    if isinstance(common.get("oauth"), dict):
        _rename(common["oauth"], "scope", "scopes")
    if kind is None and "command" not in common and "url" not in common:
        raise NotImportable("it only switches on or off a server that another file of opencode has")
    return common, ()


def _from_gemini(entry: Mapping[str, Any]) -> Translated:
    common = map_json(dict(entry), _brace_variables, keys=False)
    if common.get("tcp") is not None:
        raise NotImportable("it is reached by WebSocket, which is not supported; give it a URL of http or https")
    if "httpUrl" in common:
        common["url"], common["type"] = common.pop("httpUrl"), "http"
    elif "url" in common and "type" not in common:
        common["type"] = "sse"
    _rename_milliseconds(common)
    notes = (f"`trust` is not imported: {_APPROVALS}",) if common.pop("trust", None) else ()
    _require_tools(common, "includeTools")
    return common, notes


def _from_copilot(entry: Mapping[str, Any]) -> Translated:
    common = map_json(dict(entry), _brace_variables, keys=False)
    tools = common.pop("tools", None)
    if isinstance(tools, list) and "*" not in tools:
        common["enabledTools"] = tools
        _require_tools(common)
    common.pop("deferTools", None)
    if common.get("type") in ("local", "stdio"):
        del common["type"]
    _rename_milliseconds(common)
    return common, ()


def _from_zed(entry: Mapping[str, Any]) -> Translated:
    common = dict(entry)
    nested = common.get("command")
    if isinstance(nested, dict):
        common["command"] = nested.get("path")
        common |= {key: nested[key] for key in ("args", "env") if nested.get(key)}
    if common.get("command") is None and common.get("url") is None:
        raise NotImportable("it is an extension of Zed, and only Zed can start it")
    settings = common.pop("settings", None)
    _rename_seconds(common, "timeout", "timeoutMs")
    return common, ("`settings` is not imported: Zed gives it to extensions only",) if settings else ()


def _from_goose(entry: Mapping[str, Any]) -> Translated:
    inner = entry.get("config")
    common = {**entry, **inner} if isinstance(inner, dict) else dict(entry)
    common.pop("config", None)
    kind = common.get("type")
    if (isinstance(kind, str) and kind in _GOOSE_BUILT_IN) or (common.get("cmd") is None and common.get("uri") is None):
        raise NotImportable("it is a part of Goose, and only Goose can start it")
    notes = []
    _rename(common, "cmd", "command")
    _rename(common, "uri", "url")
    env = _pop_object(common, "envs")
    in_keyring = [name for name in _pop_list(common, "env_keys") if isinstance(name, str) and name not in env]
    if in_keyring:
        env |= {name: f"${{{name}:-}}" for name in in_keyring}
        notes.append(f"set {', '.join(in_keyring)} where codemode-mcp starts: Goose has the value in its keyring")
    if env:
        common["env"] = env
    if kind == "stdio":
        del common["type"]
    _rename_seconds(common, "timeout", "timeoutMs")
    _rename(common, "available_tools", "enabledTools")
    if not common.get("enabledTools"):
        # In Goose an empty list means all tools.
        common.pop("enabledTools", None)
    for key in ("bundled", "display_name"):
        common.pop(key, None)
    return common, tuple(notes)


def _brace_variables(text: str) -> str:
    """Replace `$X` by `${X:-}`, because an unset variable is empty in the clients that write `$X`."""
    return _DOLLAR.sub(r"${\1:-}", text)


def _pop_object(entry: dict[str, Any], key: str) -> dict[str, Any]:
    """Remove and return an object; a missing one is empty.

    Raises:
        NotImportable: the value is not an object.
    """
    value = entry.pop(key, None) or {}
    if not isinstance(value, dict):
        raise NotImportable(f"its `{key}` is not an object")
    return dict(value)


def _pop_list(entry: dict[str, Any], key: str) -> list[Any]:
    """Remove and return a list; a missing one is empty.

    Raises:
        NotImportable: the value is not a list.
    """
    value = entry.pop(key, None) or []
    if not isinstance(value, list):
        raise NotImportable(f"its `{key}` is not a list")
    return value


def _rename(entry: dict[str, Any], key: str, common_key: str) -> None:
    if key in entry:
        value = entry.pop(key)
        entry.setdefault(common_key, value)


def _rename_seconds(entry: dict[str, Any], key: str, common_key: str) -> None:
    value = entry.get(key)
    if isinstance(value, int | float) and not isinstance(value, bool):
        del entry[key]
        entry[common_key] = round(value * 1000)


def _rename_milliseconds(entry: dict[str, Any]) -> None:
    if isinstance(entry.get("timeout"), int):
        entry["timeoutMs"] = entry.pop("timeout")


def _require_tools(entry: Mapping[str, Any], key: str = "enabledTools") -> None:
    """Raise `NotImportable` for an empty list of allowed tools. In our configuration it would allow all tools."""
    if entry.get(key) == []:
        raise NotImportable("it allows no tool at all; say in the client which ones it may have, or switch it off")


# Functions that change, find and collect parts of JSON values.


def value_at(value: Any, keys: Iterable[str]) -> Any:
    """Return the value at nested keys; None if one of them is missing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


# Server entries with their literal secrets hidden, or replaced by variables.


class VariableNames(Struct, frozen=True):
    """Names for environment variables. Each value has one name, and no two values share a name.

    Attributes:
        taken: the values by name. This is the mutable state.
    """

    taken: dict[str, Hashable] = field(default_factory=dict)

    def name_for(self, hint: str, server: str, value: Hashable, *, short: bool) -> str:
        """Return the name for a value: the hint, after the server's name if the hint alone is unclear or taken.

        Args:
            short: whether the hint alone is clear enough.
        """
        hint, prefix = variable_name(hint), variable_name(server)
        full = hint if f"{hint}_".startswith(f"{prefix}_") else f"{prefix}_{hint}"
        names = [*([hint] if short else []), full, *(f"{full}_{number}" for number in range(2, len(self.taken) + 3))]
        name = next(each for each in names if self.taken.get(each, value) == value)
        self.taken[name] = value
        return name


def variable_name(text: str) -> str:
    """Return the text in the form of a variable's name: `api-key` and `apiKey` become `API_KEY`."""
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text) and (text.isupper() or text.islower()):
        name = text.upper()
    else:
        name = "_".join(WORD.findall(text)).upper()
    return f"_{name}" if name[:1].isdigit() else name or "VALUE"


def without_secrets(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry in a form that may be shown.

    Every literal value of `env` and `headers` is hidden, except words like `true`, because it may be a secret.
    """
    shown = replace_secrets(entry, lambda _, text: f":-{HIDDEN}" if text.startswith(":-") else HIDDEN)
    for table in ("env", "headers"):
        if isinstance(shown.get(table), dict):
            shown[table] = {
                key: _hide_literals(value) if isinstance(value, str) else value for key, value in shown[table].items()
            }
    hidden: dict[str, Any] = map_json(shown, without_tokens)
    return hidden


def with_variables(
    entry: Mapping[str, Any], server: str, names: VariableNames
) -> tuple[dict[str, Any], tuple[tuple[str, Secret], ...]]:
    """Return the entry with variables in place of literal secrets, and pairs of a variable's name and its secret."""
    uses: list[tuple[str, Secret]] = []

    def reference(secret: Secret, text: str) -> str:
        if text.startswith(":-"):
            return ""
        short = secret.hint == secret.hint.upper() and "_" in secret.hint
        name = names.name_for(re.sub(r"(?i)^x-", "", secret.hint), server, ("value", text), short=short)
        uses.append((name, secret))
        return f"${{{name}}}"

    return replace_secrets(entry, reference), tuple(uses)


def _hide_literals(text: str) -> str:
    """Return a value with everything hidden except references, schemes such as `Bearer`, and plain words."""
    if text.lower() in PLAIN_VALUES:
        return text
    scheme = SCHEME.match(text)
    at = scheme.end() if scheme else 0
    shown = [text[:at]]
    for match in REFERENCE.finditer(text, at):
        name, mark, default = match[1].partition(":-")
        shown += [HIDDEN if match.start() > at else "", f"${{{name}{mark}{default and HIDDEN}}}"]
        at = match.end()
    shown.append(HIDDEN if at < len(text) else "")
    return "".join(shown)
