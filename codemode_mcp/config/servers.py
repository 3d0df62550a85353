"""The server entries, in the shape that Claude Desktop, Claude Code, Cursor and VS Code share."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from codemode_mcp.config.expand import Expander, Reading, read_env_file, read_keyring, run_program
from codemode_mcp.config.literals import secret_args
from codemode_mcp.config.nodes import Node, describe, nearest
from codemode_mcp.config.patterns import tool_pattern
from declarations.untrusted_text import HIDDEN
from upstream_clients.environment import plain_values, secrets_passed_on
from upstream_clients.spec import OAuthSettings, TransportKind, UpstreamSpec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from codemode_mcp.settings import PolicyRules

ROOT_KEYS = ("mcpServers", "servers")

_KEYS = (
    *("command", "args", "env", "cwd", "envFile"),
    *("url", "serverUrl", "headers", "auth", "type", "transport"),
    *("timeoutMs", "disabled", "allow", "deny", "description", "trustAnnotations"),
    *("start", "idleSeconds", "maxConcurrentCalls", "connectTimeoutMs"),
)
_ECHOED_KEYS = (
    *("type", "transport", "timeoutMs", "disabled", "allow", "deny", "trustAnnotations"),
    *("start", "idleSeconds", "maxConcurrentCalls", "connectTimeoutMs"),
)
FOREIGN_KEYS: Mapping[str, str] = {
    "autoApprove": "`tools.approved`",
    "alwaysAllow": "`tools.approved`",
    "disabledTools": "`deny`",
    "envVars": "`env`",
    **dict.fromkeys(("icon", "gallery", "dev", "version"), ""),
}
"""Keys of other clients' files, and the keys to use here instead, if there are any."""
_KINDS: Mapping[str, TransportKind] = {"stdio": "stdio", "http": "http", "streamable-http": "http", "sse": "sse"}

EXAMPLE = '{"command": "npx", "args": ["-y", "PACKAGE"]}'
"""An entry, for messages."""

_LONGEST = 10**9
"""Longest time in milliseconds: more means never, and has to stay a number that clocks can add."""

_NOT_IN_A_NAME = re.compile("[:*?\0-\x1f\x7f\ud800-\udfff]")
_NOT_IN_A_VARIABLE = re.compile("[=\0\ud800-\udfff]")
_PROGRAM = re.compile(r"[\s\[]*the\s+program\s*(?:\]|$)", re.IGNORECASE)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
_NOT_IN_A_HEADER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")

Table = Literal["env", "headers", "auth"]


@dataclass(frozen=True, slots=True)
class _Program:
    """A program whose output becomes one value of `env`, `headers` or `auth`; or an entry of the keyring for it."""

    server: str
    table: Table
    key: str
    node: Node
    argv: tuple[str, ...]
    expander: Expander
    keyring: str | None = None


@dataclass(frozen=True, slots=True)
class Servers:
    """The server entries. The collections are the mutable state; each entry adds to them."""

    specs: dict[str, UpstreamSpec] = field(default_factory=dict)
    disabled: list[str] = field(default_factory=list)
    distrusted: list[str] = field(default_factory=list)
    allow: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    deny: list[str] = field(default_factory=list)
    programs: list[_Program] = field(default_factory=list)
    reading: Reading = field(default_factory=Reading)

    def add_to(self, rules: PolicyRules) -> PolicyRules:
        """Return the rules of `tools` together with those of the entries."""
        return replace(
            rules,
            deny=(*rules.deny, *self.deny),
            distrusted_servers=frozenset(self.distrusted),
            server_allow=tuple(self.allow),
        )

    def run_programs(self) -> None:
        """Fill in the values that programs print and the keyring has; equal ones are asked for once."""
        outputs: dict[tuple[str | None, tuple[str, ...]], str | None] = {}
        for program in self.programs:
            asked = (program.keyring, program.argv)
            if asked not in outputs and program.keyring is not None:
                outputs[asked] = read_keyring(program.node, program.keyring)
            elif asked not in outputs:
                outputs[asked] = run_program(program.node, program.argv, program.expander)
            value = outputs[asked]
            if value is None or not _fits(program.table, program.node, value):
                continue
            spec = self.specs[program.server]
            if program.table == "env":
                self.specs[program.server] = replace(spec, env={**spec.env, program.key: value})
            elif program.table == "auth":
                self.specs[program.server] = replace(
                    spec, oauth=replace(spec.oauth or OAuthSettings(), client_secret=value)
                )
            else:
                self.specs[program.server] = replace(spec, headers={**spec.headers, program.key: value})


def read_servers(roots: Mapping[str, Node], *, environ: Mapping[str, str], folder: Path, reading: Reading) -> Servers:
    """Read all entries; `roots` are the values of `ROOT_KEYS` that the file has."""
    found = Servers(reading=reading)
    names: set[str] = set()
    for root in roots.values():
        for name, node in replace(root, secret=True).entries(f'{{"files": {EXAMPLE}}}').items():
            if name in names:
                node.fail("a server of this name is in `mcpServers` too; keep one")
                continue
            names.add(name)
            if not name.strip():
                node.fail("a server needs a name")
            elif _NOT_IN_A_NAME.search(name):
                # They have a meaning in ids and patterns: a rule for one server could come to match another's tools.
                node.fail("a server name cannot contain `:`, `*`, `?` or control characters")
            elif any(_PROGRAM.match(HIDDEN.sub(blank, name)) for blank in ("", " ")):
                # What a server asks the user begins with its name, what a program asks with this.
                node.fail('"the program" cannot be the name of a server: questions of programs are shown under it')
            fields = {
                key: replace(member, secret=key not in _ECHOED_KEYS)
                for key, member in node.fields(_KEYS, foreign=FOREIGN_KEYS, example=EXAMPLE).items()
            }
            if "disabled" in fields and fields["disabled"].flag():
                # Not looked at further: its variables or files are often the very thing that is missing.
                node.note("disabled")
                found.disabled.append(name)
            else:
                _Entry(name, node, fields, Expander(environ, folder, reading=found.reading), found).read()
    return found


@dataclass(frozen=True, slots=True)
class _Entry:
    """One enabled entry, on its way into `found`."""

    name: str
    node: Node
    fields: Mapping[str, Node]
    expander: Expander
    found: Servers

    def read(self) -> None:
        if not isinstance(self.node.value, dict):
            return
        self._read_rules()
        fields = self.fields
        transport = self._transport()
        command, args = self._command_line()
        env = read_env_file(fields["envFile"], self.expander) if "envFile" in fields else {}
        env |= self._table("env")
        withheld = self._withheld()
        cwd = str(self.expander.path(fields["cwd"])) if "cwd" in fields else None
        url = self._url()
        headers = self._table("headers")
        oauth = self._oauth(headers)
        timeout_ms = self._positive("timeoutMs")
        life = self._life()
        description = fields["description"].text() if "description" in fields else None
        if self.node.report.problems:
            return  # a spec refuses to be made of stand-ins
        self.found.specs[self.name] = UpstreamSpec(
            name=self.name,
            transport=transport,
            command=command,
            args=args,
            env=env,
            withheld=withheld,
            cwd=cwd,
            url=url,
            headers=headers,
            timeout_ms=timeout_ms,
            description=description,
            secrets=(
                *self.expander.used,
                *(value for each in secret_args(args).values() for value in each),
                *(secrets_passed_on(self.expander.environ, withheld) if command is not None else ()),
            ),
            plain=plain_values(self.expander.environ),
            oauth=oauth,
            **life,
        )

    def _read_rules(self) -> None:
        fields = self.fields
        if "trustAnnotations" in fields and not fields["trustAnnotations"].flag():
            self.found.distrusted.append(self.name)
        if "allow" in fields:
            globs = tuple(tool_pattern(self.name, item) for item in fields["allow"].items())
            self.found.allow.append((self.name, globs))
        if "deny" in fields:
            self.found.deny.extend(tool_pattern(self.name, item) for item in fields["deny"].items())

    def _transport(self) -> TransportKind:
        """Return how the entry says that the server is reached; contradictions are problems."""
        fields = self.fields
        for key in ("type", "transport"):
            if key in fields and fields[key].value in ("websocket", "ws"):
                fields[key].fail("WebSocket is not supported; use the URL of the server that begins with https://")
                return "auto"
        declared = [
            (fields[key], _KINDS[kind])
            for key in ("type", "transport")
            if key in fields and (kind := fields[key].choice(*_KINDS)) is not None
        ]
        if len({kind for _, kind in declared}) > 1:
            self.node.fail("`type` and `transport` contradict each other; keep one")
        local, remote = "command" in fields, "url" in fields or "serverUrl" in fields
        if local and remote:
            self.node.fail("has `command` and `url`; keep `command` for a local server, `url` for a remote one")
        elif local:
            self._refuse(("headers", "auth"), "url")
            for given, kind in declared:
                if kind != "stdio":
                    given.fail(f'{describe(given.value)} contradicts `command`; allowed: "stdio"')
            return "stdio"
        elif remote:
            self._refuse(("args", "env", "cwd", "envFile"), "command")
            for given, kind in declared:
                if kind == "stdio":
                    given.fail('"stdio" contradicts `url`; allowed: "http", "sse"')
        elif not any(nearest(key, _KEYS) in ("command", "url", "serverUrl") for key in self.node.value):
            self.node.fail("needs `command` (a local server) or `url` (a remote one)")
        return declared[0][1] if declared else "auto"

    def _refuse(self, keys: tuple[str, ...], owner: str) -> None:
        for key in keys:
            if key in self.fields and self.fields[key].value not in ({}, [], None):
                self.fields[key].fail(f"only a server with `{owner}` has `{key}`")

    def _command_line(self) -> tuple[str | None, tuple[str, ...]]:
        args = tuple(map(self.expander.text, self.fields["args"].items())) if "args" in self.fields else ()
        if "command" not in self.fields:
            return None, args
        node = self.fields["command"]
        command = self.expander.text(node)
        if node.sound and not command.strip():
            node.fail("must not be empty")
        if starts_this_server(command, args):
            self.node.fail("this would start codemode-mcp within itself; remove the entry")
        return command, args

    def _url(self) -> str | None:
        urls = {key: self.expander.text(self.fields[key]) for key in ("url", "serverUrl") if key in self.fields}
        if len(set(urls.values())) > 1:
            self.node.fail("`url` and `serverUrl` differ; keep one")
        for key, url in urls.items():
            if self.fields[key].sound and not _is_http_url(url):
                self.fields[key].fail("expected a URL like https://host/path; allowed: http and https")
        return next(iter(urls.values()), None)

    def _positive(self, key: str) -> int | None:
        if key not in self.fields:
            return None
        value = self.fields[key].integer("a positive integer")
        if value is not None and value <= 0:
            self.fields[key].fail_type("a positive integer")
        return value

    def _life(self) -> dict[str, Any]:
        """Return the settings for the start and stop of the server, and for its concurrent calls."""
        fields = self.fields
        life: dict[str, Any] = {}
        if "start" in fields:
            life["start"] = fields["start"].choice("lazy", "eager")
        if "idleSeconds" in fields:
            seconds = fields["idleSeconds"].integer("an integer of 0 or more")
            if seconds is not None and seconds < 0:
                fields["idleSeconds"].fail_type("an integer of 0 or more")
            life["idle_seconds"] = None if seconds is None else min(seconds, _LONGEST)
        if (calls := self._positive("maxConcurrentCalls")) is not None:
            life["max_concurrent_calls"] = calls
        if (milliseconds := self._positive("connectTimeoutMs")) is not None:
            life["connect_timeout"] = min(milliseconds, _LONGEST) / 1000
        return life

    def _table(self, table: Table) -> dict[str, str]:
        """Return the values of `env` or `headers`, except those that programs print: these are put on the list."""
        values: dict[str, str] = {}
        if table not in self.fields:
            return values
        node = self.fields[table]
        for key, item in node.entries().items():
            # A malformed name is not echoed: `"Authorization: Bearer ..."` holds the secret.
            if table == "env" and (not key or _NOT_IN_A_VARIABLE.search(key)):
                node.fail("the name of a variable is empty or has a character that is not allowed, like `=`")
            elif table == "headers" and not _HEADER_NAME.fullmatch(key):
                node.fail("the name of a header is empty or has a character that is not allowed, like `:` or a space")
            elif item.value is None and table == "env":
                continue
            elif isinstance(item.value, dict):
                self._program(table, key, item)
            elif not isinstance(item.value, str):
                item.fail_type('a string, {"command": [...]} or {"keyring": "name"}')
            else:
                values[key] = self.expander.text(item)
                _fits(table, item, values[key])
        return values

    def _withheld(self) -> frozenset[str]:
        """Return the names of variables that `env` gives as null: the server does not get them."""
        given = self.fields["env"].value if "env" in self.fields else None
        return (
            frozenset(key for key, value in given.items() if value is None) if isinstance(given, dict) else frozenset()
        )

    def _program(self, table: Table, key: str, node: Node) -> None:
        """Put `{"command": [...]}` or `{"keyring": "name"}` on the list."""
        fields = node.fields(("command", "keyring"))
        argv: tuple[str, ...] = ()
        keyring = None
        if "command" in fields and "keyring" in fields:
            node.fail("has `command` and `keyring`; keep one")
        elif "keyring" in fields:
            keyring = fields["keyring"].filled()
        elif "command" in fields:
            argv = tuple(map(self.expander.text, fields["command"].items()))
            if fields["command"].sound and not (argv and argv[0].strip()):
                fields["command"].fail("names no program")
        elif not node.value:
            node.fail_type('a string, {"command": [...]} or {"keyring": "name"}')
        if argv or keyring is not None:
            self.found.programs.append(_Program(self.name, table, key, node, argv, self.expander, keyring))

    def _oauth(self, headers: Mapping[str, str]) -> OAuthSettings | None:
        """`auth`: "oauth", or an object where the authorization server has to be told more."""
        node = self.fields.get("auth")
        if node is None or node.value is None:
            return None
        given: dict[str, Any] = {}
        if isinstance(node.value, dict):
            fields = node.fields(("type", "clientId", "clientSecret", "clientMetadataUrl", "scopes", "redirectPort"))
            if "type" not in fields:
                node.fail('needs `type`: "oauth"')
            else:
                fields["type"].choice("oauth")
            if "clientId" in fields:
                given["client_id"] = self.expander.text(fields["clientId"])
                if fields["clientId"].sound and not given["client_id"].strip():
                    fields["clientId"].fail("must not be empty")
            self._client_secret(fields, given)
            if "clientMetadataUrl" in fields:
                given["client_metadata_url"] = url = self.expander.text(fields["clientMetadataUrl"])
                if fields["clientMetadataUrl"].sound and not _is_document_url(url):
                    fields["clientMetadataUrl"].fail("expected a URL like https://host/path")
                if "clientId" in fields:
                    node.fail("has `clientId` and `clientMetadataUrl`; keep one")
            if "scopes" in fields:
                scopes = tuple(item.text() for item in fields["scopes"].items())
                if fields["scopes"].sound and not all(map(_SCOPE.fullmatch, scopes)):
                    fields["scopes"].fail("each scope is one word")
                given["scopes"] = scopes
            if "redirectPort" in fields:
                port = fields["redirectPort"].integer("a port from 1 to 65535")
                if port is not None and not 0 < port < 65536:
                    fields["redirectPort"].fail("expected a port from 1 to 65535")
                given["redirect_port"] = port
        elif node.value != "oauth":
            node.fail('expected "oauth" or {"type": "oauth", ...}')
        programs = {each.key for each in self.found.programs if each.server == self.name and each.table == "headers"}
        if any(name.lower() == "authorization" for name in (*headers, *programs)):
            node.fail("contradicts the Authorization header in `headers`; keep one")
        return OAuthSettings(**given)

    def _client_secret(self, fields: Mapping[str, Node], given: dict[str, Any]) -> None:
        if "clientSecret" not in fields:
            return
        node = fields["clientSecret"]
        if "clientId" not in fields:
            node.fail("needs `clientId` too")
        if isinstance(node.value, dict):
            self._program("auth", "clientSecret", node)
        else:
            given["client_secret"] = self.expander.text(node)


def _fits(table: Table, node: Node, value: str) -> bool:
    if table == "headers" and _NOT_IN_A_HEADER.search(value):
        node.fail("the value has a character that no header can have, like a line break")
        return False
    return True


def _is_document_url(url: str) -> bool:
    """Return True if `url` can be a client id: `https` with a path."""
    return _is_http_url(url) and url.startswith("https://") and url.count("/") > 2 and not url.endswith("/")


def _is_http_url(url: str) -> bool:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.port != 0
            and url.isprintable()
            and " " not in url
        )
    except ValueError:
        return False


_LAUNCHERS = frozenset(
    (
        *("uv", "uvx", "pipx", "npx", "npm", "bunx", "bun", "pnpm", "yarn"),
        *("poetry", "pdm", "hatch", "rye", "pixi", "mise", "conda", "mamba"),
        *("op", "doppler", "dotenv", "direnv", "wsl"),
        *("env", "cmd", "sh", "bash", "zsh", "fish", "pwsh", "powershell", "sudo", "nohup", "nice", "time"),
    )
)
_CONTAINERS = frozenset(("docker", "podman", "nerdctl"))
_PYTHON = re.compile(r"(python|pythonw|py|pypy)[\d.]*")
_OWN_NAME = re.compile(r"codemode[-_.]mcp(?:$|[@=<>!~\[])", re.IGNORECASE)
_OWN_IMAGE = re.compile(r"(?![./~])(?:[\w.:-]+/)*codemode[-_]mcp(?:[:@][\w.:-]+)?", re.IGNORECASE)


def starts_this_server(command: str, args: tuple[str, ...]) -> bool:
    """Return True if this command line would start `codemode-mcp` again.

    A guess by name, and only the first of two guards: an environment variable counts the depth. A path among the
    arguments that merely ends in our name is left alone: other servers are pointed at folders.
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
