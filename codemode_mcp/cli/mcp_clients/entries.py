"""One server entry of a client as an entry of our configuration. Pure, but for an `envFile` that is looked at.

What our configuration has no way to say is told, and an entry that could not be loaded is refused with the reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.cli.mcp_clients.dialects import LISTS_OF_TOOLS, LeftOut, shared
from codemode_mcp.cli.mcp_clients.secrets import variable_name
from codemode_mcp.config.expand import Expander
from codemode_mcp.config.literals import REFERENCE
from codemode_mcp.config.nodes import Node, Report, describe, quote
from codemode_mcp.config.own_command import starts_this_server
from codemode_mcp.config.patterns import ANNOTATION_TESTS
from codemode_mcp.config.secret_values import SecretValues
from codemode_mcp.config.servers import read_servers
from codemode_mcp.policy.policy import SOURCES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from codemode_mcp.cli.mcp_clients.places import ClientName
    from codemode_mcp.cli.mcp_clients.reading import Here, Source
    from codemode_mcp.cli.mcp_clients.secrets import Names

_OURS: Final = (
    *("timeoutMs", "disabled", "allow", "deny", "description", "trustAnnotations"),
    *("start", "idleSeconds", "maxConcurrentCalls", "connectTimeoutMs", "auth", "cwd", "envFile"),
)
"""Keys that mean here what they mean there."""

_KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("http", "streamable-http", "streamablehttp", "streamable_http", "http-stream"), "http"),
    "sse": "sse",
}
_SILENT: Final = frozenset(("icon", "gallery", "version", "dev", "name", "registry", "id", "source"))
"""Keys that say nothing about how the server is reached."""

_EDITOR: Final = frozenset(
    (
        *("file", "fileWorkspaceFolder", "relativeFile", "relativeFileDirname", "fileBasename", "fileDirname"),
        *("fileBasenameNoExtension", "fileExtname", "fileDirnameBasename", "lineNumber", "columnNumber"),
        *("selectedText", "execPath", "defaultBuildTask"),
    )
)
_VARIABLE: Final = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_()]*)(:-.*)?", re.DOTALL)
_RELATIVE: Final = re.compile(
    r"\.{1,2}(?:[/\\].*)?|(?![/\\~$-]|[A-Za-z]:)[^:@$]*[\w-]\.(?:py|js|mjs|cjs|ts|sh|jar|exe)"
)
_NOT_IN_A_NAME: Final = re.compile("[:*?\0-\x1f\x7f\ud800-\udfff]+")
_PATTERN_MARKS: Final = re.compile(r"[*?]")
_MILLISECONDS: Final = 1000
"""A `timeout` of at least so much is one in milliseconds; what less would be, clients do not agree."""


class Itself(Exception):
    """The entry is this server."""


@dataclass(frozen=True, slots=True)
class Converted:
    """A server as our configuration has it.

    Attributes:
        entry: with whatever is literal in it.
        notes: what was not taken over, or is different here.
        asked: variables that stand for what the client asks its user, and what it asks.
        references: how the client writes what a variable of ours stands for, by its name.
    """

    entry: dict[str, Any] = field(repr=False)
    notes: tuple[str, ...] = ()
    asked: tuple[tuple[str, str], ...] = ()
    references: Mapping[str, str] = field(default_factory=dict)


def convert(name: str, given: object, source: Source, here: Here, names: Names) -> Converted:
    """Return the entry as ours.

    Raises:
        LeftOut: our configuration could not load it.
        Itself: it would start this server.
    """
    if not isinstance(given, dict):
        raise LeftOut(f"it is {describe(given, secret=True)}; expected an object")
    if is_this_server(given, source.client):
        raise Itself
    given, different = shared(source.client, given)
    converter = _Converter(name, given, source, here, names, list(different))
    entry = converter.entry()
    if is_this_server(entry):
        raise Itself
    problem = _problem(entry, here)
    if problem is not None:
        raise LeftOut(problem)
    notes = tuple(dict.fromkeys(converter.notes))
    return Converted(entry, notes, tuple(dict.fromkeys(converter.asked)), converter.references)


def is_this_server(given: object, client: ClientName | None = None) -> bool:
    """Return whether an entry, of a client or of our configuration, starts this server."""
    if not isinstance(given, dict):
        return False
    try:
        given, _ = shared(client, given)
    except LeftOut:
        return False
    if not isinstance(given.get("command"), str):
        return False
    args = given.get("args")
    words = tuple(each for each in args if isinstance(each, str)) if isinstance(args, list) else ()
    return starts_this_server(given["command"], words)


def fitting_name(name: str) -> str:
    """Return the name, without what no name of ours may have."""
    fitting = _NOT_IN_A_NAME.sub("-", name).strip()
    return fitting if fitting.strip("- ") and "the program" not in fitting.lower() else "server"


@dataclass(slots=True)
class _Converter:
    """One entry on its way. The collections with defaults are the mutable state."""

    name: str
    given: Mapping[str, Any]
    source: Source
    here: Here
    names: Names
    notes: list[str] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    references: dict[str, str] = field(default_factory=dict)

    def entry(self) -> dict[str, Any]:
        given = self.given
        url = given.get("url") or given.get("serverUrl") or given.get("httpUrl")
        made: dict[str, Any] = {}
        if given.get("command") is not None:
            if url is not None:
                raise LeftOut("it has `command` and `url`; keep one")
            self._program(made)
        elif url is not None:
            self._remote(made, url)
        else:
            raise LeftOut("it has neither `command` nor `url`")
        for key in _OURS:
            if given.get(key) is not None and key not in made and not (key == "auth" and url is not None):
                made[key] = self._value(given[key], key)
        self._rules(made)
        self._life(made)
        self._tell_the_rest()
        return made

    def _program(self, made: dict[str, Any]) -> None:
        given = self.given
        made["command"] = self._text(given["command"], "command")
        args = given.get("args") or []
        if not isinstance(args, list):
            raise LeftOut(f"`args` is {describe(args, secret=True)}; expected an array")
        if args:
            made["args"] = [self._text(each, f"args[{index}]") for index, each in enumerate(args)]
        self._table("env", made)
        for key in ("cwd", "envFile"):
            if given.get(key) is not None:
                made[key] = self._path(self._text(given[key], key))
        if self.source.folder is not None and "cwd" not in made and any(map(_is_relative, _words(made))):
            made["cwd"] = str(self.source.folder)
            self.notes.append("`cwd` is set to the folder of the project, since its paths are relative")

    def _remote(self, made: dict[str, Any], url: object) -> None:
        given = self.given
        kind = given.get("type") or given.get("transport")
        if isinstance(kind, str) and kind.lower() in ("ws", "websocket"):
            raise LeftOut("it is reached by WebSocket, which is not supported; give it a URL of http or https")
        if isinstance(kind, str) and kind.lower() in _KINDS:
            made["type"] = _KINDS[kind.lower()]
        made["url"] = self._text(url, "url")
        self._table("headers", made)
        auth = self._auth(given.get("auth") or given.get("oauth"))
        if auth is not None and any(key.lower() == "authorization" for key in made.get("headers", ())):
            self.notes.append("its login settings are left out: it has an Authorization header")
        elif auth is not None:
            made["auth"] = auth
        if "headersHelper" in given:
            self.notes.append(
                '`headersHelper` is not taken over: give the header as {"command": [...]}, a program that prints it'
            )

    def _auth(self, given: object) -> object:
        """Return the login of Cursor, VS Code and Claude Code as ours."""
        if given == "oauth":
            return given
        if not isinstance(given, dict):
            return None
        if given.get("type") == "oauth":
            return self._value(given, "auth")
        made: dict[str, Any] = {"type": "oauth"}
        for key, ours in (("clientId", "clientId"), ("CLIENT_ID", "clientId"), ("CLIENT_SECRET", "clientSecret")):
            if isinstance(given.get(key), str) and given[key]:
                made[ours] = self._text(given[key], f"auth.{key}")
        scopes = given.get("scopes")
        words = scopes.split() if isinstance(scopes, str) else scopes if isinstance(scopes, list) else []
        if words:
            made["scopes"] = [self._text(each, "auth.scopes") for each in words]
        if isinstance(given.get("callbackPort"), int):
            made["redirectPort"] = given["callbackPort"]
        if "authServerMetadataUrl" in given:
            self.notes.append("`authServerMetadataUrl` is not taken over: login servers are asked where theirs is")
        return made if len(made) > 1 else "oauth"

    def _table(self, table: str, made: dict[str, Any]) -> None:
        """`env` or `headers`."""
        given = self.given.get(table)
        if given is None or given == {}:
            return
        if not isinstance(given, dict):
            raise LeftOut(f"`{table}` is {describe(given, secret=True)}; expected an object")
        values: dict[str, Any] = {}
        for key, value in given.items():
            if value is None:
                if table == "env":
                    values[key] = None  # VS Code: withheld from the server, as here
                continue
            values[key] = self._printed(key, value) or self._text(value, f"{table}.{key}", key)
        made[table] = values

    def _printed(self, key: str, value: object) -> dict[str, Any] | None:
        """Return a value that comes from a file or a program, as ours does."""
        if isinstance(value, dict):
            return {inner: self._value(each, key) for inner, each in value.items()}
        match = re.fullmatch(r"\$\{file:([^{}]+)\}", value) if isinstance(value, str) else None
        if match is None or self.here.system == "win32":
            return None
        return {"command": ["cat", self._path(match[1])]}

    def _rules(self, made: dict[str, Any]) -> None:
        for theirs, ours in (
            ("disabledTools", "deny"),
            ("excludeTools", "deny"),
            ("enabledTools", "allow"),
            ("includeTools", "allow"),
        ):
            listed = self.given.get(theirs)
            if not isinstance(listed, list) or not listed:
                continue
            tools = [each for each in listed if isinstance(each, str) and _is_tool(each)]
            written = LISTS_OF_TOOLS.get(self.source.client, {}).get(theirs, theirs)
            if len(tools) < len(listed) and ours == "allow":
                raise LeftOut(f"`{written}` has names that no rule of ours can have")
            if len(tools) < len(listed):
                self.notes.append(
                    f"{len(listed) - len(tools)} of `{written}` cannot be names of tools; they are left out"
                )
            if tools:
                made[ours] = list(dict.fromkeys([*(made.get(ours) or []), *tools]))
                self.notes.append(f"`{written}` became `{ours}`: {len(tools)} {'tool' if len(tools) == 1 else 'tools'}")
        for key in ("autoApprove", "alwaysAllow"):
            if self.given.get(key):
                self.notes.append(f"`{key}` is not taken over: nothing is asked here but what `tools.ask` says")

    def _life(self, made: dict[str, Any]) -> None:
        if self.given.get("enabled") is False or self.given.get("disabled") is True:
            made["disabled"] = True
        elif made.get("disabled") is False:
            del made["disabled"]
        timeout = self.given.get("timeout")
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or "timeoutMs" in made:
            return
        if timeout >= _MILLISECONDS and isinstance(timeout, int):
            made["timeoutMs"] = timeout
        else:
            self.notes.append(f"`timeout` {describe(timeout)} is not taken over: it may be seconds; use `timeoutMs`")

    def _tell_the_rest(self) -> None:
        known = {
            *_OURS,
            *_SILENT,
            *("command", "args", "env", "url", "serverUrl", "httpUrl", "headers", "type", "transport", "oauth"),
            *("disabledTools", "excludeTools", "enabledTools", "includeTools", "autoApprove", "alwaysAllow"),
            *("enabled", "timeout", "headersHelper"),
        }
        rest = [key for key in self.given if key not in known and not key.startswith(("_", "$", "//"))]
        if rest:
            more = f" and {len(rest) - 5} more" if len(rest) > 5 else ""
            self.notes.append(f"not taken over, a key of the client: {', '.join(map(quote, rest[:5]))}{more}")

    def _value(self, value: object, key: str) -> Any:
        match value:
            case str():
                return self._text(value, key)
            case list():
                return [self._value(each, key) for each in value]
            case dict():
                return {inner: self._value(each, key) for inner, each in value.items()}
        return value

    def _path(self, text: str) -> str:
        """Paths of ours are relative to our file, theirs to the folder of the project."""
        folder = self.source.folder or self.here.folder
        if text.startswith(("~", "${", "/", "\\")) or re.match("[A-Za-z]:", text):
            return text
        return str(folder / text)

    def _text(self, value: object, key: str, variable: str | None = None) -> str:
        """Return a text with its references as ours.

        Args:
            variable: what it is the value of.
        """
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int | float):
            return str(value)
        if not isinstance(value, str):
            raise LeftOut(f"`{key}` is {describe(value, secret=True)}; expected a string")
        whole = variable if REFERENCE.fullmatch(value) else None
        return REFERENCE.sub(lambda match: self._reference(match[1], whole), value)

    def _reference(self, inside: str, whole: str | None) -> str:
        folder = self.source.folder or self.here.folder
        kind, _, rest = inside.partition(":")
        if kind == "input":
            return self._input(rest, whole)
        if kind in ("workspaceFolder", "workspaceRoot") or inside in (
            "cwd",
            "CLAUDE_PROJECT_DIR",
            "CLAUDE_PROJECT_DIR:-.",
        ):
            if self.source.folder is None:
                self.notes.append(f"`${{{kind}}}` is {folder} here, not the folder that the client has open")
            return str(folder)
        fixed = {
            "workspaceFolderBasename": folder.name,
            "userHome": str(self.here.home),
            "pathSeparator": "\\" if self.here.system == "win32" else "/",
        }
        fixed["/"] = fixed["pathSeparator"]
        if inside in fixed:
            return fixed[inside]
        variable = _VARIABLE.fullmatch(inside)
        if inside in _EDITOR or variable is None or (":" in inside and kind != "env" and ":-" not in inside):
            known = inside.partition(":-")[0]  # a default may be secret
            raise LeftOut(f"{quote('${' + known + '}')} is known to the client alone; write what it stands for")
        name, default = variable.groups()
        if default is None and self.source.client in (
            "vscode",
            "cursor",
            "windsurf",
            "copilot-cli",
            "gemini-cli",
            "qwen-code",
        ):
            default = ":-"  # what is not set is empty there, and no reason not to start
        said = f"{{env:{name}}}" if self.source.client == "opencode" else f"${{{inside}}}"
        self.references[name] = said
        return f"${{{name}{default or ''}}}"

    def _input(self, input_id: str, whole: str | None) -> str:
        """Return a variable in the place of a question."""
        asked = self.source.inputs.get(input_id, {})
        hint = whole or input_id
        own = "_" in variable_name(hint)
        name = self.names.give(hint, self.name, ("input", str(self.source.path), input_id), own=own)
        self.references[name] = f"${{input:{input_id}}}"
        default = asked.get("default")
        described = asked.get("description")
        said = f": {described}" if isinstance(described, str) and described.strip() else ""
        if isinstance(default, str) and default and not asked.get("password") and not re.search(r"[{}]", default):
            self.notes.append(f"`${{input:{input_id}}}` is the variable {name}, with the default it had")
            return f"${{{name}:-{default}}}"
        self.asked.append((name, f"what the client asks for as {quote(input_id)}{said}"))
        return f"${{{name}:-}}"  # until it is set, the other servers can do without


def _is_tool(name: str) -> bool:
    return bool(name.strip()) and not (
        _PATTERN_MARKS.search(name) or name in ANNOTATION_TESTS or name.startswith(SOURCES)
    )


def _words(entry: Mapping[str, Any]) -> list[str]:
    command = entry["command"]
    # A bare word is looked for in PATH.
    return [*([command] if "/" in command or "\\" in command else []), *entry.get("args", ())]


def _is_relative(word: str) -> bool:
    return _RELATIVE.fullmatch(word) is not None


# whether it loads


class _AllSet(dict[str, str]):
    """An environment in which every variable has a value."""

    def __init__(self, value: str) -> None:
        super().__init__()
        self._value = value

    def get(self, key: str, default: Any = None) -> Any:
        return self._value


def loads(entry: Mapping[str, Any], here: Here) -> bool:
    """Return True if our configuration would load the entry with the variables that are set here."""
    return _check(entry, here, here.environ) is None


def _problem(entry: Mapping[str, Any], here: Here) -> str | None:
    """Return the reason why our configuration does not load the entry, whatever its variables are."""
    problems = [_check(entry, here, _AllSet(value)) for value in ("1", "https://1.example")]
    return problems[0] if all(problems) else None


def _check(entry: Mapping[str, Any], here: Here, environ: Mapping[str, str]) -> str | None:
    report = Report()
    root = Node({"x": dict(entry)}, "servers", report)
    read_servers({"mcpServers": root}, Expander(environ, Path(here.folder)), SecretValues())
    if not report.problems:
        return None
    path, messages = next(iter(report.problems.items()))
    key = path.removeprefix("servers.x").lstrip(".")
    return (f"`{key}`: " if key else "") + next(iter(messages))
