"""Conversion of a client's server entry, with its references, into an entry of our configuration.

Settings that our configuration does not have become notes. An entry that our configuration could not load is refused
with the reason. Pure, except that an `envFile` is opened to check that it can be read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from codemode_mcp.base.text import listed
from codemode_mcp.config.expand import Expander
from codemode_mcp.config.literals import REFERENCE
from codemode_mcp.config.nodes import ANNOTATION_TESTS, Node, Report, describe, quote
from codemode_mcp.config.secret_values import SecretValues
from codemode_mcp.config.server_entry import starts_this_server
from codemode_mcp.config.servers import read_servers
from codemode_mcp.extensions.setup.mcp_clients.dialects import TOOL_LIST_KEYS, NotImportable, common_form, variable_name
from codemode_mcp.rules.policy.policy import SOURCES
from upstream_clients.json_values import map_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from codemode_mcp.extensions.setup.mcp_clients.client_files import Source
    from codemode_mcp.extensions.setup.mcp_clients.dialects import VariableNames
    from codemode_mcp.extensions.setup.mcp_clients.locations import ClientName, Machine


# Translation of references, inputs and relative paths in a client's entry into our configuration.
#
# A reference is `${...}`. In clients it can stand for a variable, the folder of a project, a value that the client asks
# its user for, and more. In our configuration it can stand only for a variable.


_EDITOR_VARIABLES: Final = frozenset(
    (
        *("file", "fileWorkspaceFolder", "relativeFile", "relativeFileDirname", "fileBasename", "fileDirname"),
        *("fileBasenameNoExtension", "fileExtname", "fileDirnameBasename", "lineNumber", "columnNumber"),
        *("selectedText", "execPath", "defaultBuildTask"),
    )
)
_PROJECT_FOLDERS: Final = ("cwd", "CLAUDE_PROJECT_DIR", "CLAUDE_PROJECT_DIR:-.")
_VARIABLE: Final = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_()]*)(:-.*)?", re.DOTALL)

_UNSET_IS_EMPTY: Final[tuple[ClientName, ...]] = (
    *("vscode", "cursor", "windsurf", "copilot-cli", "gemini-cli", "qwen-code"),
)
"""Clients that replace a reference to an unset variable by an empty text, and start the server."""


class TextConverter(Struct):
    """Converter for the texts of one entry. The fields with defaults are its mutable state.

    Attributes:
        server: the name of the entry.
        names: the names of the variables that replace inputs.
        notes: remarks for the user.
        inputs: variables that stand for inputs of the client, each with a description of the input.
        references: the client's references for our variables, by the name of the variable.
    """

    server: str
    source: Source
    machine: Machine
    names: VariableNames
    notes: list[str] = msgspec.field(default_factory=list)
    inputs: list[tuple[str, str]] = msgspec.field(default_factory=list)
    references: dict[str, str] = msgspec.field(default_factory=dict)

    def value(self, value: object, key: str) -> Any:
        """Convert a JSON value; `key` names it in messages."""
        return map_json(value, lambda text: self.text(text, key), keys=False)

    def path(self, text: str) -> str:
        """Return a path made absolute, because our configuration would resolve it against its own folder."""
        if text.startswith(("~", "${", "/", "\\")) or re.match("[A-Za-z]:", text):
            return text
        return str(self._folder / text)

    def text(self, value: object, key: str, variable: str | None = None) -> str:
        """Convert one text.

        Args:
            key: names the text in messages.
            variable: the environment variable or header whose value the text is.

        Raises:
            NotImportable: it is not a text, or holds a reference that only the client can resolve.
        """
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int | float):
            return str(value)
        if not isinstance(value, str):
            raise NotImportable(f"`{key}` is {describe(value, secret=True)}; expected a string")
        whole = variable if REFERENCE.fullmatch(value) else None
        return REFERENCE.sub(lambda match: self._reference(match[1], whole), value)

    @property
    def _folder(self) -> Path:
        return self.source.folder or self.machine.folder

    def _reference(self, inside: str, whole: str | None) -> str:
        """Convert a reference, given without `${` and `}`.

        Args:
            whole: the variable whose whole value is the reference, if there is one.
        """
        folder = self._folder
        kind, _, rest = inside.partition(":")
        if kind == "input":
            return self._input(rest, whole)
        if kind in ("workspaceFolder", "workspaceRoot") or inside in _PROJECT_FOLDERS:
            if self.source.folder is None:
                self.notes.append(f"`${{{kind}}}` is {folder} here, not the folder that the client has open")
            return str(folder)
        separator = "\\" if self.machine.system == "win32" else "/"
        fixed = {
            "workspaceFolderBasename": folder.name,
            "userHome": str(self.machine.home),
            "pathSeparator": separator,
            "/": separator,
        }
        if inside in fixed:
            return fixed[inside]
        variable = _VARIABLE.fullmatch(inside)
        if inside in _EDITOR_VARIABLES or variable is None or (":" in inside and kind != "env" and ":-" not in inside):
            known = inside.partition(":-")[0]  # a default may be secret
            raise NotImportable(f"only the client knows {quote('${' + known + '}')}; write what it stands for")
        name, default = variable.groups()
        if default is None and self.source.client in _UNSET_IS_EMPTY:
            default = ":-"
        self.references[name] = f"{{env:{name}}}" if self.source.client == "opencode" else f"${{{inside}}}"
        return f"${{{name}{default or ''}}}"

    def _input(self, input_id: str, whole: str | None) -> str:
        definition = self.source.inputs.get(input_id, {})
        hint = whole or input_id
        short = "_" in variable_name(hint)
        name = self.names.name_for(hint, self.server, ("input", str(self.source.path), input_id), short=short)
        self.references[name] = f"${{input:{input_id}}}"
        default = definition.get("default")
        described = definition.get("description")
        if isinstance(default, str) and default and not definition.get("password") and not re.search(r"[{}]", default):
            self.notes.append(f"`${{input:{input_id}}}` is now the variable {name}, with the same default")
            return f"${{{name}:-{default}}}"
        more = f": {described}" if isinstance(described, str) and described.strip() else ""
        self.inputs.append((name, f"what the client asks for as {quote(input_id)}{more}"))
        return f"${{{name}:-}}"  # without a default, an unset variable would stop all servers


_SAME_KEYS: Final = (
    *("timeoutMs", "disabled", "allow", "deny", "description", "trustAnnotations"),
    *("start", "idleSeconds", "maxConcurrentCalls", "connectTimeoutMs", "auth", "cwd", "envFile"),
)
"""Keys with the same meaning in clients and in our configuration."""

_TOOL_LISTS: Final = {"disabledTools": "deny", "excludeTools": "deny", "enabledTools": "allow", "includeTools": "allow"}
"""Our keys for lists of tools, by the clients' keys."""

_IGNORED_KEYS: Final = ("icon", "gallery", "version", "dev", "name", "registry", "id", "source")
"""Keys that say nothing about how the server is reached."""

_KNOWN_KEYS: Final = frozenset(
    (
        *_SAME_KEYS,
        *_TOOL_LISTS,
        *_IGNORED_KEYS,
        *("command", "args", "env", "url", "serverUrl", "httpUrl", "headers", "type", "transport", "oauth"),
        *("autoApprove", "alwaysAllow", "enabled", "timeout", "headersHelper"),
    )
)
_TRANSPORTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("http", "streamable-http", "streamablehttp", "streamable_http", "http-stream"), "http"),
    "sse": "sse",
}
_RELATIVE: Final = re.compile(
    r"\.{1,2}(?:[/\\].*)?|(?![/\\~$-]|[A-Za-z]:)[^:@$]*[\w-]\.(?:py|js|mjs|cjs|ts|sh|jar|exe)"
)
_NOT_IN_NAMES: Final = re.compile("[:*?\0-\x1f\x7f\ud800-\udfff]+")
_PATTERN_MARKS: Final = re.compile(r"[*?]")

_MIN_MILLISECONDS: Final = 1000
"""Smallest `timeout` that is certainly in milliseconds. Some clients would take a smaller number as seconds."""


class IsThisServer(Exception):
    """The entry starts this server."""


@dataclass(frozen=True, slots=True)
class Converted:
    """A server entry of our configuration.

    Attributes:
        entry: the entry, with its literal secrets.
        notes: remarks on settings that were not imported or have another meaning here.
        inputs: variables that stand for inputs of the client, each with a description of the input.
        references: the client's references for our variables, by the name of the variable.
    """

    entry: dict[str, Any] = field(repr=False)
    notes: tuple[str, ...] = ()
    inputs: tuple[tuple[str, str], ...] = ()
    references: Mapping[str, str] = field(default_factory=dict)


def convert(name: str, entry: object, source: Source, machine: Machine, names: VariableNames) -> Converted:
    """Convert the entry of a client.

    Raises:
        NotImportable: our configuration could not load the converted entry.
        IsThisServer: the entry starts this server.
    """
    if not isinstance(entry, dict):
        raise NotImportable(f"it is {describe(entry, secret=True)}; expected an object")
    if is_this_server(entry, source.client):
        raise IsThisServer
    common, notes = common_form(source.client, entry)
    texts = TextConverter(name, source, machine, names, list(notes))
    converted = _Converter(common, texts).convert()
    if is_this_server(converted):
        raise IsThisServer
    problem = _load_problem(converted, machine)
    if problem is not None:
        raise NotImportable(problem)
    notes, inputs = tuple(dict.fromkeys(texts.notes)), tuple(dict.fromkeys(texts.inputs))
    return Converted(converted, notes, inputs, texts.references)


def is_this_server(entry: object, client: ClientName | None = None) -> bool:
    """Return True if an entry of a client, or of our configuration, starts this server."""
    if not isinstance(entry, dict):
        return False
    try:
        entry, _ = common_form(client, entry)
    except NotImportable:
        return False
    if not isinstance(entry.get("command"), str):
        return False
    return starts_this_server(entry["command"], string_args(entry))


def string_args(entry: Mapping[str, Any]) -> tuple[str, ...]:
    args = entry.get("args")
    return tuple(each for each in args if isinstance(each, str)) if isinstance(args, list) else ()


def valid_name(name: str) -> str:
    valid = _NOT_IN_NAMES.sub("-", name).strip()
    return valid if valid.strip("- ") and "the program" not in valid.lower() else "server"


class _Converter(Struct, frozen=True):
    """Converter for the keys of one entry in the common form."""

    common: Mapping[str, Any]
    texts: TextConverter

    def convert(self) -> dict[str, Any]:
        common = self.common
        url = common.get("url") or common.get("serverUrl") or common.get("httpUrl")
        if common.get("command") is None and url is None:
            raise NotImportable("it has neither `command` nor `url`")
        if common.get("command") is not None and url is not None:
            raise NotImportable("it has `command` and `url`; keep one")
        entry = self._started() if url is None else self._remote(url)
        for key in _SAME_KEYS:
            if common.get(key) is not None and key not in entry and not (key == "auth" and url is not None):
                entry[key] = self.texts.value(common[key], key)
        self._convert_tool_lists(entry)
        self._convert_state(entry)
        self._note_unknown_keys()
        return entry

    def _started(self) -> dict[str, Any]:
        common, texts = self.common, self.texts
        entry: dict[str, Any] = {"command": texts.text(common["command"], "command")}
        args = common.get("args") or []
        if not isinstance(args, list):
            raise NotImportable(f"`args` is {describe(args, secret=True)}; expected an array")
        if args:
            entry["args"] = [texts.text(each, f"args[{index}]") for index, each in enumerate(args)]
        self._convert_table("env", entry)
        for key in ("cwd", "envFile"):
            if common.get(key) is not None:
                entry[key] = texts.path(texts.text(common[key], key))
        folder = texts.source.folder
        # A command without a slash is found in PATH, so it is not a relative path.
        words = [*([entry["command"]] if re.search(r"[/\\]", entry["command"]) else []), *entry.get("args", ())]
        if folder is not None and "cwd" not in entry and any(map(_RELATIVE.fullmatch, words)):
            entry["cwd"] = str(folder)
            texts.notes.append("`cwd` is set to the folder of the project, since its paths are relative")
        return entry

    def _remote(self, url: object) -> dict[str, Any]:
        common, notes = self.common, self.texts.notes
        entry: dict[str, Any] = {}
        transport = common.get("type") or common.get("transport")
        if isinstance(transport, str) and transport.lower() in ("ws", "websocket"):
            raise NotImportable("it is reached by WebSocket, which is not supported; give it a URL of http or https")
        if isinstance(transport, str) and transport.lower() in _TRANSPORTS:
            entry["type"] = _TRANSPORTS[transport.lower()]
        entry["url"] = self.texts.text(url, "url")
        self._convert_table("headers", entry)
        auth = self._auth(common.get("auth") or common.get("oauth"))
        if auth is not None and any(key.lower() == "authorization" for key in entry.get("headers", ())):
            notes.append("its login settings are left out: it has an Authorization header")
        elif auth is not None:
            entry["auth"] = auth
        if "headersHelper" in common:
            notes.append(
                '`headersHelper` is not imported: give the header as {"command": [...]}, a program that prints it'
            )
        return entry

    def _auth(self, auth: object) -> object:
        if auth == "oauth":
            return auth
        if not isinstance(auth, dict):
            return None
        if auth.get("type") == "oauth":
            return self.texts.value(auth, "auth")
        converted: dict[str, Any] = {"type": "oauth"}
        for key, our_key in (("clientId", "clientId"), ("CLIENT_ID", "clientId"), ("CLIENT_SECRET", "clientSecret")):
            if isinstance(auth.get(key), str) and auth[key]:
                converted[our_key] = self.texts.text(auth[key], f"auth.{key}")
        scopes = auth.get("scopes")
        words = scopes.split() if isinstance(scopes, str) else scopes if isinstance(scopes, list) else []
        if words:
            converted["scopes"] = [self.texts.text(each, "auth.scopes") for each in words]
        if isinstance(auth.get("callbackPort"), int):
            converted["redirectPort"] = auth["callbackPort"]
        if "authServerMetadataUrl" in auth:
            self.texts.notes.append(
                "`authServerMetadataUrl` is not imported: the server is asked for its authorization server"
            )
        return converted if len(converted) > 1 else "oauth"

    def _convert_table(self, table: str, entry: dict[str, Any]) -> None:
        values = self.common.get(table)
        if values is None or values == {}:
            return
        if not isinstance(values, dict):
            raise NotImportable(f"`{table}` is {describe(values, secret=True)}; expected an object")
        entry[table] = {
            # In VS Code and in our configuration, null withholds a variable from the server.
            key: None if value is None else self._dynamic(key, value) or self.texts.text(value, f"{table}.{key}", key)
            for key, value in values.items()
            if value is not None or table == "env"
        }

    def _dynamic(self, key: str, value: object) -> dict[str, Any] | None:
        """Convert a value that is read from a file or printed by a program. Return None for any other value."""
        if isinstance(value, dict):
            return {inner: self.texts.value(each, key) for inner, each in value.items()}
        match = re.fullmatch(r"\$\{file:([^{}]+)\}", value) if isinstance(value, str) else None
        if match is None or self.texts.machine.system == "win32":
            return None
        return {"command": ["cat", self.texts.path(match[1])]}

    def _convert_tool_lists(self, entry: dict[str, Any]) -> None:
        notes = self.texts.notes
        for key, our_key in _TOOL_LISTS.items():
            listed = self.common.get(key)
            if not isinstance(listed, list) or not listed:
                continue
            tools = [each for each in listed if isinstance(each, str) and _is_tool_name(each)]
            client_key = TOOL_LIST_KEYS.get(self.texts.source.client, {}).get(key, key)
            if len(tools) < len(listed) and our_key == "allow":
                raise NotImportable(f"`{client_key}` has names that our rules cannot express")
            if len(tools) < len(listed):
                notes.append(
                    f"{len(listed) - len(tools)} of `{client_key}` cannot be names of tools; they are left out"
                )
            if tools:
                entry[our_key] = list(dict.fromkeys([*(entry.get(our_key) or []), *tools]))
                notes.append(
                    f"`{client_key}` became `{our_key}`: {len(tools)} {'tool' if len(tools) == 1 else 'tools'}"
                )
        for key in ("autoApprove", "alwaysAllow"):
            if self.common.get(key):
                notes.append(f"`{key}` is not imported: only calls that match `tools.ask` need approval here")

    def _convert_state(self, entry: dict[str, Any]) -> None:
        if self.common.get("enabled") is False or self.common.get("disabled") is True:
            entry["disabled"] = True
        elif entry.get("disabled") is False:
            del entry["disabled"]
        timeout = self.common.get("timeout")
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or "timeoutMs" in entry:
            return
        if timeout >= _MIN_MILLISECONDS and isinstance(timeout, int):
            entry["timeoutMs"] = timeout
        else:
            self.texts.notes.append(
                f"`timeout` {describe(timeout)} is not imported: it may be seconds; use `timeoutMs`"
            )

    def _note_unknown_keys(self) -> None:
        unknown = [key for key in self.common if key not in _KNOWN_KEYS and not key.startswith(("_", "$", "//"))]
        if unknown:
            self.texts.notes.append(f"keys of the client, not imported: {listed([*map(quote, unknown)])}")


def _is_tool_name(name: str) -> bool:
    return bool(name.strip()) and not (
        _PATTERN_MARKS.search(name) or name in ANNOTATION_TESTS or name.startswith(SOURCES)
    )


class _AllVariables(dict[str, str]):
    """An environment in which every variable has the same value."""

    def __init__(self, value: str) -> None:
        super().__init__()
        self._value = value

    def get(self, key: str, default: Any = None) -> Any:
        return self._value


def _load_problem(entry: Mapping[str, Any], machine: Machine) -> str | None:
    """Return the reason why our configuration cannot load the entry, whatever the values of its variables are.

    The values are unknown here, so the entry is loaded twice: with a number and with a URL for every variable. Return
    None if one of the two loads.
    """
    problems = [_error_loading(entry, machine, _AllVariables(value)) for value in ("1", "https://1.example")]
    return problems[0] if all(problems) else None


def _error_loading(entry: Mapping[str, Any], machine: Machine, environ: Mapping[str, str]) -> str | None:
    report = Report()
    root = Node({"x": dict(entry)}, "servers", report)
    read_servers({"mcpServers": root}, Expander(environ, machine.folder), SecretValues())
    if not report.problems:
        return None
    path, messages = next(iter(report.problems.items()))
    key = path.removeprefix("servers.x").lstrip(".")
    return (f"`{key}`: " if key else "") + next(iter(messages))
