"""The arguments that the configuration sets or hides: programs may not give them, and calls are sent with them."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any

from codemode_mcp.calls.phrases import path_text
from codemode_mcp.calls.repeated_secrets import secrets_of
from codemode_mcp.did_you_mean import normalize_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from codemode_mcp.calls.arguments import ArgumentChecker
    from codemode_mcp.calls.repeated_secrets import RepeatedSecrets
    from codemode_mcp.catalog.entries import Entry
    from codemode_mcp.sandbox.messages import ToolCall
    from codemode_mcp.tool_override import ToolOverride
    from upstream_clients.tools import JsonObject


class ConfiguredArguments:
    """The current overrides, applied to the arguments of calls.

    A run may have begun under other overrides, so its catalog decides nothing here.

    Attributes:
        overrides: the overrides by the id of the tool.
    """

    def __init__(self, checker: ArgumentChecker, overrides: Mapping[str, ToolOverride]) -> None:
        self._checker = checker
        self.apply(overrides)

    def apply(self, overrides: Mapping[str, ToolOverride]) -> None:
        """Use these overrides from now on, also for runs that have begun."""
        self.overrides = overrides
        self._secrets: dict[str, RepeatedSecrets | None] = {}

    def secrets(self, entry: Entry) -> RepeatedSecrets | None:
        """Return the secret values that the server of a tool may repeat; None if there are none."""
        if not self.overrides or entry.source != "mcp":
            return None
        server = entry.source_name
        if server not in self._secrets:
            self._secrets[server] = secrets_of(server, self.overrides)
        return self._secrets[server]

    def prepare(
        self,
        call: ToolCall,
        entry: Entry,
        override: ToolOverride | None,
        signature: Callable[[], str],
        note: Callable[[str], None] | None = None,
    ) -> dict[str, Any]:
        """Return the input of a program, checked against the schema that it sees; see `ArgumentChecker.prepare`."""
        refuse = None
        if override is not None and override.reserved:
            own = override

            def refuse(given: JsonObject) -> Mapping[str, str]:
                return {name: f"{path_text((name,))}: {_REFUSED}" for name in _reserved(given, own, entry)}

        keeps, schema = entry.source == "program", entry.tool.input_schema
        return self._checker.prepare(call, entry.path, schema, signature, refuse, note, keeps_numbers=keeps)

    def complete(
        self, entry: Entry, override: ToolOverride | None, arguments: dict[str, Any], signature: Callable[[], str]
    ) -> dict[str, Any]:
        """Return the arguments to send: those of the program with those of the configuration.

        They are checked against the tool's own schema, if the program sees another one.

        Raises:
            ProgramError: see `ArgumentChecker.check_complete`.
        """
        if override is None and entry.listed is None:
            return arguments  # as nearly all calls
        is_changed = override is not None and override.changes_arguments
        if not is_changed and entry.original.input_schema is entry.tool.input_schema:
            return arguments
        schema = entry.original.input_schema
        if override is not None:
            arguments = {**_hidden_defaults(schema, override), **override.default, **arguments, **override.fixed}
        reserved = () if override is None else (*override.reserved, *override.secret)
        self._checker.check_complete(arguments, schema, reserved, entry.path, signature)
        return arguments


def _hidden_defaults(schema: JsonObject, override: ToolOverride) -> JsonObject:
    """Return the defaults of hidden arguments that the tool requires, since programs cannot give them."""
    if not override.hidden:
        return {}
    from codemode_mcp.catalog.shown_arguments import required_defaults  # not needed at the start

    return {name: value for name, value in required_defaults(schema).items() if name in override.hidden}


_REFUSED = "only the configuration of codemode-mcp may set this argument; leave it out"


def _reserved(given: JsonObject, override: ToolOverride, entry: Entry) -> list[str]:
    """Return the given arguments that are reserved, or that a server could take for a reserved one.

    Some servers accept `repoName`, `REPO_NAME` and `repo_name` for the same argument. Such a name is refused, unless
    the tool declares it.
    """
    properties = entry.original.input_schema.get("properties")
    declared = properties if isinstance(properties, dict) else {}
    spellings = {spelling for name in override.reserved if (spelling := _spelling(name))}
    return [
        name for name in given if name in override.reserved or (name not in declared and _spelling(name) in spellings)
    ]


def _spelling(name: str) -> str:
    return normalize_name(unicodedata.normalize("NFKC", name).casefold())
