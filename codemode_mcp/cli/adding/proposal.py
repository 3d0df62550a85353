"""A server that a person is asked about: its entry in the configuration, and the values that the entry still needs.

Pure. A proposal may come from a registry, so nothing of it is trusted: `views` shows all of it before anything starts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from codemode_mcp.cli.mcp_clients.entries import valid_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Table = Literal["env", "headers", "args", "auth"]

MARK: Final = "\0"
"""The character on both sides of the name of a setting in a text of an entry. No argument can contain it."""

CONTAINER_COMMAND: Final = ("run", "-i", "--rm")
"""The arguments of `docker` for each server."""

_AFFIXES: Final = re.compile(
    r"^(?:mcp[-_.])?server[-_.](?:mcp[-_.])?|^mcp[-_.]|[-_.](?:mcp[-_.]server|server|mcp)$", re.I
)
"""Parts of a package's name that only say that it is an MCP server."""

_NOT_IN_IDENTIFIERS: Final = re.compile(r"[^A-Za-z0-9_-]+")


class Refused(Exception):
    """Error for a source of which no server can be made. The message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A value that a person gives before a server starts.

    Attributes:
        table: the part of the entry that gets the value. In `args`, the value replaces its name between two `MARK`s.
        name: the name of the variable, of the header or of the argument.
        secret: True if the value must not be written into the configuration.
        description: the registry's text about the value; not escaped.
        choices: the possible values; empty for any value.
    """

    table: Table
    name: str
    secret: bool = False
    required: bool = True
    description: str = ""
    default: str | None = None
    choices: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Name of the value for a person. Credentials of an API have descriptions of our own; not escaped."""
        return self.description if self.table == "auth" else self.name


@dataclass(frozen=True, slots=True)
class Proposal:
    """A server to add.

    Attributes:
        name: the name of the server in the configuration.
        entry: the entry without the values of `settings`.
        origin: where the entry comes from, as the end of a sentence.
        notes: sentences about the server.
        warnings: sentences that a person should read before the server starts.
        is_container: True if `docker` has to be told which variables the server gets.
    """

    name: str
    entry: Mapping[str, Any]
    origin: str
    settings: tuple[Setting, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    is_container: bool = False

    @property
    def verb(self) -> Literal["start", "connect", "read"]:
        """The word for the first thing that is done with the server."""
        return "start" if "command" in self.entry else "read" if "openapi" in self.entry else "connect"


@dataclass(frozen=True, slots=True, repr=False)
class Answers:
    """The values that a person has given.

    Attributes:
        plain: values for the entry, by setting.
        secret: values that must not be written into the configuration, by setting.
    """

    plain: Mapping[Setting, str] = field(default_factory=dict)
    secret: Mapping[Setting, str] = field(default_factory=dict)


def with_values(entry: Mapping[str, Any], values: Mapping[Setting, object]) -> dict[str, Any]:
    """Return an entry with values for its settings. Arguments whose setting has no value are left out."""
    made = dict(entry)
    texts = {setting.name: str(value) for setting, value in values.items() if setting.table == "args"}
    if "args" in made:
        filled = [_filled(each, texts) for each in made["args"]]
        made["args"] = [each for each in filled if each is not None]
    for setting, value in values.items():
        if setting.table != "args":
            made[setting.table] = {**made.get(setting.table, {}), setting.name: value}
    return made


def _filled(text: str, values: Mapping[str, str]) -> str | None:
    """Return a text with the values of its settings; None if one of them has no value."""
    parts = text.split(MARK)
    if any(name not in values for name in parts[1::2]):
        return None
    parts[1::2] = [values[name] for name in parts[1::2]]
    return "".join(parts)


def with_settings(proposal: Proposal, given: Sequence[Setting]) -> Proposal:
    """Return a proposal with settings that the command line has. They replace settings of the same name."""
    named = {(each.table, each.name) for each in given}
    kept = (each for each in proposal.settings if (each.table, each.name) not in named)
    entry = proposal.entry
    if proposal.is_container:
        command, args = CONTAINER_COMMAND, entry["args"]
        passed = (each.name for each in given if each.table == "env" and each.name not in args)
        options = [word for name in passed for word in ("-e", name)]
        entry = {**entry, "args": [*args[: len(command)], *options, *args[len(command) :]]}
    return replace(proposal, entry=entry, settings=(*kept, *given))


def short_name(text: str) -> str:
    """Return a name for a server from the name of its package or the title of its document."""
    last = text.rstrip("/").rpartition("/")[2]
    name = _NOT_IN_IDENTIFIERS.sub("-", _AFFIXES.sub("", _AFFIXES.sub("", last)) or last).strip("-_")
    return valid_name(name or "server")
