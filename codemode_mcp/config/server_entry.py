"""One enabled server entry: transport, document of an API, variables, headers, login and limits."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from codemode_mcp.base.settings import keys_of, ranges, setting, whole
from codemode_mcp.config import nodes
from codemode_mcp.config.expand import Expander, read_env_file
from codemode_mcp.config.literals import secret_args
from codemode_mcp.config.server_auth import HEADER_NAME, NOT_IN_A_HEADER, AuthReader, ServerAuth
from codemode_mcp.rules.trust.comparison import Mode  # noqa: TC001 - the types of fields are read
from upstream_clients.environment import plain_values, secrets_passed_on
from upstream_clients.spec import (
    CONNECT_SECONDS,
    DEFAULT_LIMIT,
    IDLE_SECONDS,
    REFRESH_SECONDS,
    TransportKind,
    UpstreamSpec,
    is_url,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from codemode_mcp.config.secret_values import SecretValues


@dataclass(init=False, repr=False, eq=False)
class EntryKeys:
    """The keys of an entry, as the file has them: types, defaults and texts of the reference."""

    command: str | None = None
    """The program of a local server."""
    args: tuple[str, ...] = ()
    """Its arguments."""
    env: Any = setting("object", "`{}`")
    """Variables of the program, before those of `envFile`; each value a string, `{"command": [...]}` or
    `{"keyring": "name"}`."""
    cwd: str = setting(default="the file's folder; with `--private`, where `serve` runs")
    """Folder it runs in, relative to the file's."""
    env_file: str | None = None
    """A file of further variables, relative to the file's folder."""
    url: str | None = None
    """The address of a server over HTTP."""
    server_url: str | None = None
    """The same as `url`, as Windsurf writes it."""
    openapi: str | None = None
    """The OpenAPI document of an [HTTP API](../openapi.md): a file, relative to the file's folder, or a URL."""
    base_url: str = setting(default="what the document names")
    """The address of the API. Credentials are sent only there, and to `otherOrigins`."""
    other_origins: tuple[str, ...] = ()
    """Further origins for operations with [servers of their own](../openapi.md#servers-of-single-operations)."""
    refresh_seconds: int = whole(int(REFRESH_SECONDS), 1, 86_400)
    """Seconds after which a document at a URL is read again, if the server is used."""
    headers: Any = setting("object", "`{}`")
    """Headers of every request to it; each value a string, `{"command": [...]}` or `{"keyring": "name"}`."""
    auth: Any = setting('`"oauth"` or object')
    """The server wants a [login](../logins.md#auth); or the [credentials](../openapi.md#credentials) of an API."""
    type: Literal["stdio", "http", "streamable-http", "sse", "openapi"] = setting(default="what the entry needs")
    """The way to reach it."""
    transport: Any = setting("as `type`")
    """The same as `type`."""
    timeout_ms: Any = setting("whole number, 1 or more", "no limit")
    """Limit of one call."""
    disabled: bool = False
    """`true` leaves the entry out."""
    allow: Any = setting("list of names or globs", "all")
    """This server's tools that there are."""
    deny: Any = setting("list of names or globs", "`[]`")
    """Those that there are not."""
    description: str | None = None
    """Shown in the declaration files."""
    trust_annotations: bool = True
    """`false`: what it says of its tools counts for nothing."""
    expose: Any = setting("`prompts`, `resources`", "`{}`")
    """`false` for one of them: clients do not see this server's; see [below](#expose)."""
    override: Any = setting("object", "`{}`")
    """Changes to its tools, as programs see them; see [below](#mcpserversnameoverridename)."""
    trust: Mode = "pin"
    """Parts that are held until you accept them: changes; with `strict` also changed texts; with `ask` also the first
    list; with `follow` nothing."""
    start: Literal["lazy", "eager"] = "lazy"
    """Connected when first needed, or at the start."""
    share: Literal["user", "client"] = "user"
    """One process for all clients of the user, or one for each client."""
    idle_seconds: Any = setting("whole number, 0 or more", f"{IDLE_SECONDS:.0f} for programs, 0 over HTTP")
    """Stopped after so long without calls; 0 is never."""
    max_concurrent_calls: Any = setting("whole number, 1 or more", f"{DEFAULT_LIMIT} of each caller")
    """Calls that it is sent at the same time. A number that you set counts for all callers together."""
    connect_timeout_ms: Any = setting("whole number, 1 or more", f"{CONNECT_SECONDS * 1000:.0f}")
    """Time limit from the start of the server to its list of tools."""


KEYS = keys_of(EntryKeys)
"""Keys of an entry."""

Table = Literal["env", "headers", "auth"]

_KINDS: Mapping[str, TransportKind] = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "sse": "sse",
    "openapi": "openapi",
}

_PROCESS_KEYS = ("args", "env", "cwd", "envFile")

_MAX_TIME = 10**9
"""Largest number of seconds or milliseconds. It is as good as "never", and can still be added to a time."""

_NOT_IN_A_VARIABLE = re.compile("[=\0\ud800-\udfff]")


def _positive(node: nodes.Node) -> int:
    return node.integer("a positive integer", lowest=1)


_LIMITS: nodes.Readers = {
    "timeoutMs": _positive,
    "description": nodes.Node.text,
    **{key: nodes.readers_of(EntryKeys)[key] for key in ("start", "share")},
    "idleSeconds": lambda node: min(node.integer("an integer of 0 or more", lowest=0), _MAX_TIME),
    "maxConcurrentCalls": _positive,
}


@dataclass(frozen=True, slots=True)
class EntryReader:
    """The reader of one entry.

    Attributes:
        fields: the members of the entry.
        secrets: reads the values of `env` and `headers`, and the client secret.
        set_value: called by `secrets` with each value that is known only after the spec was made.
    """

    name: str
    node: nodes.Node
    fields: Mapping[str, nodes.Node]
    expander: Expander
    secrets: SecretValues
    set_value: Callable[[Table, str, str], None]

    def spec(self) -> UpstreamSpec | None:
        """Return the spec of the server; None if any problem was reported. It is not usable if a value is missing."""
        fields, expander = self.fields, self.expander
        transport = self._transport()
        command, args = self._command_line()
        env = read_env_file(fields["envFile"], expander) if "envFile" in fields else {}
        env |= self._table("env")
        withheld = self._withheld()
        cwd = str(expander.path(fields["cwd"])) if "cwd" in fields else None
        api = read_api_document(fields, expander)
        url = self._url() if api is None else api.base_url
        headers = self._table("headers")
        auth = self._auth(is_api=api is not None)
        limits = nodes.read_fields(fields, _LIMITS)
        if api is not None:
            limits["refresh_seconds"] = api.refresh_seconds
        if "connectTimeoutMs" in fields:
            limits["connect_timeout"] = min(_positive(fields["connectTimeoutMs"]), _MAX_TIME) / 1000
        if self.node.report.is_invalid:
            return None  # some values are stand-ins, which `UpstreamSpec` would refuse
        if self.node.report.missing:
            return unusable_spec(self.name, transport, self.node.report.missing)
        return UpstreamSpec(
            name=self.name,
            transport=transport,
            command=command,
            args=args,
            env=env,
            withheld=withheld,
            cwd=cwd,
            url=url,
            document=None if api is None else api.document,
            document_version=None if api is None else api.version,
            other_origins=() if api is None else api.other_origins,
            credentials=auth.credentials,
            headers=headers,
            secrets=(
                *expander.used,
                *(value for each in secret_args(args).values() for value in each),
                *(secrets_passed_on(expander.environ, withheld) if command is not None else ()),
            ),
            plain=plain_values(expander.environ),
            oauth=auth.oauth,
            **limits,
        )

    def _transport(self) -> TransportKind:
        fields = self.fields
        kinds = [fields[key] for key in ("type", "transport") if key in fields]
        for each in kinds:
            if each.value in ("websocket", "ws"):
                each.fail("WebSocket is not supported; use the URL of the server that begins with https://")
                return "auto"
        declared = [(each, _KINDS[kind]) for each in kinds if (kind := each.choice(*_KINDS)) is not None]
        if len({kind for _, kind in declared}) > 1:
            self.node.fail("`type` and `transport` contradict each other; keep one")
        local, remote, api = "command" in fields, "url" in fields or "serverUrl" in fields, "openapi" in fields
        if local and remote:
            self.node.fail("has `command` and `url`; keep `command` for a local server, or `url` for a remote server")
        elif api and (local or remote):
            other = "command" if local else "url"
            self.node.fail(f"has `openapi` and `{other}`; keep `openapi` for an API, or `{other}` for an MCP server")
        elif local:
            self._refuse(("headers", "auth"), "url")
            for each, kind in declared:
                if kind != "stdio":
                    each.fail(f'{nodes.describe(each.value)} contradicts `command`; allowed: "stdio"')
            return "stdio"
        elif api:
            self._refuse(_PROCESS_KEYS, "command")
            for each, kind in declared:
                if kind != "openapi":
                    each.fail(f'{nodes.describe(each.value)} contradicts `openapi`; allowed: "openapi"')
            return "openapi"
        elif remote:
            self._refuse(_PROCESS_KEYS, "command")
            for each, kind in declared:
                if kind in ("stdio", "openapi"):
                    each.fail(f'{nodes.describe(each.value)} contradicts `url`; allowed: "http", "sse"')
        elif not any(nodes.nearest(key, KEYS) in ("command", "url", "serverUrl", "openapi") for key in self.node.value):
            self.node.fail("needs `command` for a local server, `url` for a remote server, or `openapi` for an API")
        return declared[0][1] if declared else "auto"

    def _refuse(self, keys: tuple[str, ...], owner: str) -> None:
        for key in keys:
            if key in self.fields and self.fields[key].value not in ({}, [], None):
                self.fields[key].fail(f"`{key}` is only for a server with `{owner}`")

    def _command_line(self) -> tuple[str | None, tuple[str, ...]]:
        args = nodes.array_of(self.expander.text)(self.fields["args"]) if "args" in self.fields else ()
        if "command" not in self.fields:
            return None, args
        command = self.expander.nonblank(self.fields["command"])
        if starts_this_server(command, args):
            self.node.fail("this entry would start codemode-mcp within itself; remove the entry")
        return command, args

    def _url(self) -> str | None:
        urls = {key: self.expander.text(self.fields[key]) for key in ("url", "serverUrl") if key in self.fields}
        if len(set(urls.values())) > 1 and all(self.fields[key].valid for key in urls):
            self.node.fail("`url` and `serverUrl` differ; keep one")
        for key, url in urls.items():
            if self.fields[key].valid and not nodes.is_http_url(url):
                self.fields[key].refuse("expected a URL like https://host/path; allowed: http and https")
        return next(iter(urls.values()), None)

    def _table(self, table: Literal["env", "headers"]) -> dict[str, str]:
        """Return the values of `env` or `headers`. Values of programs and the keyring are added later."""
        values: dict[str, str] = {}
        if table not in self.fields:
            return values
        node = self.fields[table]
        for key, item in node.entries().items():
            # Messages do not quote a malformed name. In `"Authorization: Bearer ..."`, the secret is in the name.
            if table == "env" and (not key or _NOT_IN_A_VARIABLE.search(key)):
                node.fail("the name of a variable is empty, or has a character that is not allowed, such as `=`")
            elif table == "headers" and not HEADER_NAME.fullmatch(key):
                node.fail("the name of a header is empty, or has a character that is not allowed, such as `:`")
            elif item.value is not None or table == "headers":
                self._read_secret(item, table, key, values)
        return values

    def _withheld(self) -> frozenset[str]:
        """Return the variables that `env` sets to null, which the server does not get."""
        given = self.fields["env"].value if "env" in self.fields else None
        members = given.items() if isinstance(given, dict) else ()
        return frozenset(key for key, value in members if value is None)

    def _read_secret(self, node: nodes.Node, table: Table, key: str, values: dict[str, Any]) -> None:
        """Add a value to `values`, or pass it to `set_value` later if a program or the keyring has it."""
        is_literal = isinstance(node.value, str)

        def take(node: nodes.Node, value: str) -> None:
            if table == "headers" and NOT_IN_A_HEADER.search(value):
                node.refuse("the value has a character that is not allowed in headers, such as a line break")
            elif is_literal:
                values[key] = value
            else:
                self.set_value(table, key, value)

        self.secrets.read(node, self.expander, take)

    def _auth(self, *, is_api: bool) -> ServerAuth:
        node = self.fields.get("auth")
        if node is None or node.value is None:
            return ServerAuth()
        headers = self.fields["headers"].value if "headers" in self.fields else None
        names = frozenset(map(str.lower, headers)) if isinstance(headers, dict) else frozenset()
        set_value = partial(self.set_value, "auth")
        return AuthReader(node, is_api, names, self.expander, self.secrets, set_value).read()


def unusable_spec(name: str, transport: TransportKind, missing: Mapping[str, Mapping[str, None]]) -> UpstreamSpec:
    """Return the spec of a server that is not started, because values to which its entry refers are missing.

    Args:
        missing: messages by the path of their key.
    """
    return UpstreamSpec(name, transport, unusable=f"server {name!r} is disabled: {nodes.missing_reasons(missing)}")


_LAUNCHERS = frozenset(
    (
        *("uv", "uvx", "pipx", "npx", "npm", "bunx", "bun", "pnpm", "yarn"),
        *("poetry", "pdm", "hatch", "rye", "pixi", "mise", "conda", "mamba"),
        *("op", "doppler", "dotenv", "direnv", "wsl"),
        *("env", "cmd", "sh", "bash", "zsh", "fish", "pwsh", "powershell", "sudo", "nohup", "nice", "time"),
    )
)
"""Programs whose arguments name the program to start."""

_CONTAINERS = frozenset(("docker", "podman", "nerdctl"))
_PYTHON = re.compile(r"(python|pythonw|py|pypy)[\d.]*")
_OWN_NAME = re.compile(r"codemode[-_.]mcp(?:$|[@=<>!~\[])", re.IGNORECASE)
_OWN_IMAGE = re.compile(r"(?![./~])(?:[\w.:-]+/)*codemode[-_]mcp(?:[:@][\w.:-]+)?", re.IGNORECASE)


def starts_this_server(command: str, args: tuple[str, ...]) -> bool:
    """Return True if a command line would start `codemode-mcp` again.

    This is a guess from names. If it is wrong, `nesting` still limits the depth at run time. A path that ends in our
    name does not count, because it may be a folder for another server to work in.
    """
    program = _program_name(command)
    words = [word.strip("'\"") for arg in args for word in arg.split()]
    if _OWN_NAME.match(program) or any(
        option == "-m" and module.partition(".")[0] == "codemode_mcp" for option, module in pairwise(words)
    ):
        return True
    if _PYTHON.fullmatch(program):
        script = next((word for word in words if not word.startswith("-")), "")
        return "-mcodemode_mcp" in words or bool(_OWN_NAME.match(_program_name(script)))
    if program in _CONTAINERS:
        return any(map(_OWN_IMAGE.fullmatch, words))
    return program in _LAUNCHERS and (
        any(map(_OWN_NAME.match, words))
        or any(next_word == "serve" and _OWN_NAME.match(_program_name(word)) for word, next_word in pairwise(words))
    )


def _program_name(command: str) -> str:
    return re.sub(r"\.(exe|cmd|bat|ps1)$", "", re.split(r"[/\\]", command.strip())[-1].lower())


# The keys of an entry for an HTTP API with a document that describes it, except its credentials.


_ORIGIN = re.compile(r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(:[0-9]{1,5})?/?")


@dataclass(frozen=True, slots=True)
class ApiDocument:
    """The place of a document.

    Attributes:
        document: an absolute path or a URL.
        version: the time and the size of a file; None for a URL, and for a file that cannot be read.
        base_url: the base address of the API; None for the one that the document names.
        refresh_seconds: seconds after which a document at a URL is read again.
        other_origins: origins to which operations with a server of their own may be sent, too.
    """

    document: str
    version: tuple[int, int] | None
    base_url: str | None
    refresh_seconds: float
    other_origins: tuple[str, ...]


def read_api_document(fields: Mapping[str, nodes.Node], expander: Expander) -> ApiDocument | None:
    """Return the place of a document; None if the entry has none. Report problems."""
    if "openapi" not in fields:
        for key in ("baseUrl", "otherOrigins", "refreshSeconds"):
            if key in fields:
                fields[key].fail(f"`{key}` is only for a server with `openapi`")
        return None
    node = fields["openapi"]
    document, version = expander.nonblank(node), None
    if not node.valid:
        pass
    elif is_url(document):
        if not nodes.is_http_url(document):
            node.refuse("expected a file or a URL like https://host/openapi.json")
    elif "://" in document:
        node.refuse("expected a file or a URL like https://host/openapi.json; allowed: http and https")
    else:
        path = expander.path(node)
        # Before it is read: a missing file is watched too, until it appears.
        expander.reading.files.append(path)
        document, version = str(path), _version(path)
    base_url = _base_url(fields["baseUrl"], expander) if "baseUrl" in fields else None
    refresh_seconds = REFRESH_SECONDS
    if "refreshSeconds" in fields:
        refresh = fields["refreshSeconds"]
        refresh_seconds = float(refresh.clamped(ranges(EntryKeys)["refreshSeconds"]))
        if node.valid and not is_url(document):
            refresh.note("has no effect, because the document is a file, which is read when it changes")
    read_origins = nodes.array_of(lambda node: _origin(node, expander))
    origins = read_origins(fields["otherOrigins"]) if "otherOrigins" in fields else ()
    return ApiDocument(document, version, base_url, refresh_seconds, origins)


def _version(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _base_url(node: nodes.Node, expander: Expander) -> str:
    url = expander.text(node)
    if not node.valid:
        return url
    if not nodes.is_http_url(url):
        node.refuse("expected a URL like https://host/path; allowed: http and https")
        return url
    parts = urlsplit(url)
    if parts.username or parts.password:
        node.refuse('has a user name or a password; write them in `auth`: {"type": "basic", "username", "password"}')
    elif parts.query or parts.fragment:
        node.refuse(
            'has a query or a fragment; write a key in `auth`: {"type": "apiKey", "in": "query", "name", "value"}'
        )
    return url


def _origin(node: nodes.Node, expander: Expander) -> str:
    text = expander.text(node)
    if node.valid and not (_ORIGIN.fullmatch(text) and nodes.is_http_url(text)):
        node.refuse('expected an origin like "https://upload.example", without wildcards or a path')
    return text.removesuffix("/")
