"""MCP clients: their profiles, what each of them sees, and those that are connected. Pure.

A client is recognised by the name in its `clientInfo`. Each row of `PROFILES` was measured with the real client and a
scripted model. Answers and lists are adapted to the profile, so that the model can read them. A client without a row
gets the default, which sends a result in all forms that MCP has.
"""

from __future__ import annotations

import re
from dataclasses import fields, replace
from fnmatch import translate
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from codemode_mcp.base.settings import ExposeMode, ExposeSettings, ProfileOverride, ToolSettings, key_of
from codemode_mcp.base.settings import Profile as Profile
from codemode_mcp.rules.policy.policy import Caller, Policies, Policy
from codemode_mcp.server.exposure.selection import PASS_THROUGH, Exposure, ItemKind, exposure_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from codemode_mcp.server.exchange import Session


MAX_NAME: Final = 200
"""Characters of a client's name that are compared with globs."""


PROFILES: Final[tuple[Profile, ...]] = (
    Profile(
        "claude-code",
        shows_structured=True,
        defers_tools=True,
        max_output_bytes=45_000,
        evidence="Claude Code 2.1.330: shows structuredContent of a success and text of a failure; shows names of "
        "tools alone unless they are always loaded; puts a result over 45 to 50 kB into a file and shows 2 kB of it; "
        "shows a resource link as a line.",
    ),
    Profile(
        "codex-mcp-client",
        shows_structured=True,
        loses_pictures=True,
        defers_tools=True,
        max_output_bytes=45_000,
        mishandles_links=True,
        evidence="Codex 0.169.0: shows structuredContent of successes and failures, where a picture is a line of JSON, "
        "and real pictures without it; hides tools from models that have tool search, which finds exec by its task; "
        "cuts a result in the middle at 48 kB, and for a model that it does not know shows its first and last 6 kB; "
        "shows a resource link as JSON. By public reports, Codex Desktop fails on one. It has the same engine.",
    ),
    Profile(
        "gemini-cli*",
        max_output_bytes=40_000,
        adds_arguments=("wait_for_previous",),
        repeats_failures=True,
        evidence="Gemini CLI 0.61.0: says gemini-cli-mcp-client; shows text; cuts it at 40,000 characters; adds "
        "wait_for_previous to every tool and forwards it; of a failure it shows the program and the whole result as "
        "JSON, with structuredContent and _meta; shows a resource link as a line.",
    ),
    Profile(
        "opencode",
        max_output_bytes=50_000,
        evidence="opencode 1.18.33: shows text; shows the first 2,000 lines or 51,200 bytes of a longer one, only "
        "whole lines, so nothing of a line that is longer; puts the whole into a file; ignores resource links.",
    ),
    Profile(
        "qwen-cli-mcp-client*",
        defers_tools=True,
        repeats_failures=True,
        evidence="Qwen Code 0.15.10: says qwen-cli-mcp-client- and its name of the server; shows text; of a failure it "
        "shows the program and the whole result as JSON; shows names and first lines of tools alone, whether they are "
        "always loaded or not; its search finds exec by its task.",
    ),
    Profile(
        "mcp",
        mishandles_links=True,
        evidence="langchain-mcp-adapters 0.3.2: says mcp, as other clients with the Python SDK; makes a file of a "
        "resource link, which langchain-openai 1.7.3 refuses with an error that ends the agent.",
    ),
    Profile(
        "mcp-use",
        sends_null=True,
        evidence="mcp-use 1.7: shows text; sends cancel: null and fromStart: null to wait.",
    ),
)
"""The measured profiles. The first one whose glob matches is used."""

KEYS: Final = {each.name: key_of(each) for each in fields(Profile) if each.name not in ("client", "evidence")}
"""The names of the fields in the configuration and in JSON."""


def profile_of(name: str | None, overrides: Sequence[ProfileOverride] = ()) -> Profile:
    """Return the profile of a client.

    Args:
        name: `clientInfo.name`; None if the client has not sent one.
        overrides: from the configuration. The first override whose glob matches replaces the fields that it sets.
    """
    return _profile_of((name or "")[:MAX_NAME], tuple(overrides))


@lru_cache(maxsize=64)
def _profile_of(name: str, overrides: tuple[ProfileOverride, ...]) -> Profile:
    found = next((each for each in PROFILES if _matches(each.client, name)), Profile())
    override = override_of(name, overrides)
    if override is None:
        return found
    evidence = " ".join(filter(None, ("Set in the configuration.", found.evidence)))
    return replace(found, **dict(override.values), client=override.client, evidence=evidence)


def override_of(name: str | None, overrides: Sequence[ProfileOverride]) -> ProfileOverride | None:
    """Return the first override whose glob matches a client."""
    name = (name or "")[:MAX_NAME]
    return next((each for each in overrides if _matches(each.client, name)), None)


def profile_json(profile: Profile) -> dict[str, Any]:
    """Return a profile as JSON, with the names of the configuration."""
    values = {key: getattr(profile, field) for field, key in KEYS.items()}
    return {"client": profile.client, **values, "evidence": profile.evidence}


def traits(profile: Mapping[str, Any]) -> str:
    """Describe a profile, as `profile_json` returns it, in one line for a person."""
    limit = profile["maxOutputBytes"]
    added = ", ".join(map(str, profile["addsArguments"]))
    said = (
        "shows structured content instead of text" if profile["showsStructured"] else "",
        "loses pictures beside structured content" if profile["losesPictures"] else "",
        "defers tools" if profile["defersTools"] else "",
        f"shows at most {limit:,} bytes" if limit is not None else "",
        "sends null for absent arguments" if profile["sendsNull"] else "",
        f"adds the arguments {added}" if added else "",
        "repeats all forms of a failure" if profile["repeatsFailures"] else "",
        "mishandles resource links" if profile["mishandlesLinks"] else "",
    )
    return "; ".join(filter(None, said)) or "plain default"


def _matches(glob: str, name: str) -> bool:
    return bool(name) and _pattern(glob).match(name) is not None


@lru_cache(maxsize=256)
def _pattern(glob: str) -> re.Pattern[str]:
    return re.compile(translate(glob), re.IGNORECASE)


class ClientExposure:
    """The choices for all clients.

    Args:
        settings: returns the current settings.
        code_mode: False for clients that get only the tools of servers and plugins.
    """

    def __init__(self, settings: Callable[[], ToolSettings], *, code_mode: bool = True) -> None:
        self._settings = settings
        self._code_mode = code_mode
        self._policies: tuple[ToolSettings, Policies] | None = None

    def of(self, caller: Caller | None, client_name: str | None, path: ExposeMode | None) -> Exposure:
        """Return what a client sees directly.

        Args:
            caller: None for a client that has sent no request yet and may be any caller.
            client_name: `clientInfo.name`; None if it is not known.
            path: the mode that the path of the request names.
        """
        if not self._code_mode:
            return PASS_THROUGH
        settings = self._settings()
        context = None if caller is None else self._current().context_of(caller)
        return exposure_of(settings, context, override_of(client_name, settings.clients), path)

    def server_settings(self, server: str) -> ExposeSettings | None:
        return self._settings().expose_servers.get(server)

    def shows(self, exposure: Exposure, kind: ItemKind, servers: Collection[str]) -> bool:
        """Return True if a client sees prompts or resources of any server, once the server has some, or programs.

        Args:
            servers: the configured servers. Without any, a later configuration may have some.
        """
        if kind == "prompts" and exposure.programs:
            return True
        return exposure.shows(kind) and (
            not servers or any(exposure.shows(kind, self.server_settings(server)) for server in servers)
        )

    def capabilities(self, exposure: Exposure, servers: Collection[str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.shows(exposure, "prompts", servers):
            found["prompts"] = {"listChanged": True}
        if self.shows(exposure, "resources", servers):
            found["resources"] = {"subscribe": True, "listChanged": True}
        return {**found, "completions": {}} if found else found

    def policy_of(self, caller: Caller) -> Policy:
        return self._current().of(caller)

    def _current(self) -> Policies:
        settings = self._settings()
        if self._policies is None or self._policies[0] is not settings:
            self._policies = settings, Policies(settings)
        return self._policies[1]


# The clients that have sent requests to this process, bounded in number and size.


MAX_CLIENTS: Final = 200
"""Most clients that are remembered. The least recently active client is forgotten first."""

MAX_TEXT: Final = 200
"""Longest name or version that is kept, in characters."""


class ConnectedClient(Struct, frozen=True):
    """A client as its `clientInfo` describes it."""

    name: str
    """The name; empty if the client has not sent one."""
    version: str
    protocol: str
    """Revision of MCP."""

    @staticmethod
    def of(session: Session) -> ConnectedClient:
        return ConnectedClient.described(session.client_name, session.client_version, session.protocol_version)

    @staticmethod
    def described(name: str | None, version: str | None, protocol: str | None) -> ConnectedClient:
        """Return a client with bounded texts."""
        return ConnectedClient((name or "")[:MAX_TEXT], (version or "")[:MAX_TEXT], (protocol or "")[:MAX_TEXT])


class ClientActivity(Struct, frozen=True):
    """A client with the number and the time of its requests."""

    client: ConnectedClient
    requests: int
    idle_seconds: float
    """Time since its latest request."""


class ConnectedClients:
    """The clients of one process. Sessions with equal descriptions count as one client.

    Args:
        clock: returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: dict[ConnectedClient, tuple[int, float]] = {}

    def record(self, name: str | None, version: str | None, protocol: str | None) -> None:
        client = ConnectedClient.described(name, version, protocol)
        requests, _ = self._seen.pop(client, (0, 0.0))
        self._seen[client] = (requests + 1, self._clock())  # the order is that of the latest requests
        if len(self._seen) > MAX_CLIENTS:
            del self._seen[next(iter(self._seen))]

    def listed(self) -> list[ClientActivity]:
        """Return all clients, the most recently active first."""
        now = self._clock()
        return [
            ClientActivity(client, requests, now - latest)
            for client, (requests, latest) in reversed(self._seen.items())
        ]
