"""The prompts and resources of all servers, and saved programs as prompts, as clients get them without a program.

Lists are made from the views of the servers, under the policy of the caller. Each request about one item takes the
dispatch path, as an operation of its server: policy, hooks, approval, pins, budgets and the audit are the same as for
programs. An item that policy denies, or whose server the client does not see, is answered like one that does not exist.

A URI without a server in it is searched for in the lists of resources, and then in the resource templates. If neither
has it, it belongs to the only server with resources, if there is only one, and no accepted template of another server
makes it.

The module is long because lists, the search for a URI and requests must agree on what a caller sees.
"""

from __future__ import annotations

import json
import logging
import time
from contextlib import suppress
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Any, Final

import anyio

from codemode_mcp.base.strict_json import as_javascript, join_surrogates, json_text
from codemode_mcp.base.text import clip
from codemode_mcp.rules.policy.policy import Ask, Caller, Deny
from codemode_mcp.rules.trust.items import makes, may_make
from codemode_mcp.server.direct_calls import MAX_TEXT, Answer, DirectCalls, Target, unknown_resource
from codemode_mcp.server.exposure import items
from codemode_mcp.server.exposure.items import (
    BadCursor,
    Listings,
    Located,
    Seniority,
    ServerList,
    exposed_contents_uri,
    identifier_key,
    page_of,
    prompt_name,
    template_matches,
)
from codemode_mcp.server.profiles import MAX_NAME, ClientExposure
from declarations.untrusted_text import drop_hidden, escape_hidden, escape_line
from upstream_clients.errors import UpstreamClientError
from upstream_clients.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, SERVER_INFO, JsonRpcError, sendable
from upstream_clients.redaction import cut

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

    from codemode_mcp.base.settings import ExposeMode
    from codemode_mcp.catalog.saved_programs.saved_program import SavedProgram
    from codemode_mcp.server.exchange import Exchange
    from codemode_mcp.server.exposure.items import Kind, Listing
    from codemode_mcp.server.exposure.selection import Exposure, ItemKind
    from codemode_mcp.server.notifications import Announcer
    from codemode_mcp.server.services import App
    from upstream_clients.tools import JsonObject, UpstreamView

    Viewer = tuple[Caller, str | None, ExposeMode | None]
    """The caller, the name of the client and the mode of the path, on which lists depend."""


log = logging.getLogger("codemode_mcp.server")

LIST_SECONDS: Final = 5.0
"""Seconds that a request waits for each server to list its resources."""

SILENT_SECONDS: Final = 60.0
"""Seconds for which reads do not wait again for a server that did not list its resources in time."""

MAX_COMPARED_PARTS: Final = 100
"""Parts of a read resource whose URIs are compared with those of other servers. The URIs of further ones name their
server."""

FIRST_LIST_SECONDS: Final = 2.0
"""Seconds that the first lists wait for servers that were never listed. What comes later is announced."""

_OPERATIONS: Final[Mapping[Kind, tuple[str, ...]]] = {
    "prompts": ("prompts/list", "prompts/get"),
    "resources": ("resources/list", "resources/read"),
    "templates": ("resources/templates/list", "resources/read"),
}
"""The operations that a caller may use, if it sees the items of a kind."""

_METHODS: Final[Mapping[str, ItemKind | None]] = {
    "prompts/list": "prompts",
    "prompts/get": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resources",
    "resources/read": "resources",
    "completion/complete": None,
}
"""The kind of items that each method is about; None for both."""


class ExposedItems:
    """The prompts and resources of all servers, for the clients of one surface."""

    def __init__(self, servers: App, direct: DirectCalls, exposures: ClientExposure, announcer: Announcer) -> None:
        self._servers = servers
        self._direct = direct
        self._exposures = exposures
        self._announcer = announcer
        self._listings = Listings()
        self._latest: dict[tuple[str, Kind], Sequence[JsonObject]] = {}
        """The latest lists of servers, which hold while a server connects again."""
        self._seen: dict[tuple[str, Kind], dict[str, float]] = {}
        """The times, in Unix seconds, at which items of the latest lists were first seen; `_started` for the first."""
        self._started: dict[str, float] = {}
        """The times at which the first list of each server was seen."""
        self._failures: dict[str, str] = {}
        """The reasons in the log why resources of servers are left out."""
        self._silent: dict[str, float] = {}
        """The servers that did not list their resources in time, and when, in monotonic seconds."""
        self._deadline: float | None = None
        announcer.watch("prompts", self._describe_prompts)
        announcer.watch("resources", self._describe_resources)

    async def answer(self, exchange: Exchange, method: str) -> dict[str, Any]:
        """Return the result of a request.

        Raises:
            JsonRpcError: the client does not see the item, or the request has failed.
        """
        exposure, params = self._exposure(_viewer(exchange)), exchange.params
        kind = _METHODS.get(method, "prompts")
        kinds: tuple[ItemKind, ...] = ("prompts", "resources") if kind is None else (kind,)
        shown = [each for each in kinds if self._exposures.shows(exposure, each, self._servers.configured())]
        if method not in _METHODS or not shown:
            raise JsonRpcError(METHOD_NOT_FOUND, "Method not found", method)
        match method:
            case "prompts/list":
                return await self._list(exchange, "prompts")
            case "resources/list":
                return await self._list(exchange, "resources")
            case "resources/templates/list":
                return await self._list(exchange, "templates")
            case "prompts/get":
                return await self._get(exchange, params["name"])
            case "resources/read":
                return await self._read(exchange, params["uri"])
        return await self._complete(exchange, params["ref"])

    # which servers and lists a client sees

    def _exposure(self, viewer: Viewer) -> Exposure:
        return self._exposures.of(*viewer)

    def _visible(self, viewer: Viewer, kind: Kind) -> list[UpstreamView]:
        item_kind: ItemKind = "prompts" if kind == "prompts" else "resources"
        exposure, policy = self._exposure(viewer), self._exposures.policy_of(viewer[0])
        return [
            view
            for view in self._servers.trusted_views()
            if exposure.shows(item_kind, self._exposures.server_settings(view.name))
            and not any(
                isinstance(policy.decide(f"mcp:{view.name}:{each}", policy.operation_effects(view.name)), Deny)
                for each in _OPERATIONS[kind]
            )
        ]

    def _server_list(self, view: UpstreamView, kind: Kind) -> ServerList:
        """Return the list of a server; while the server connects, its latest one."""
        listed = _listed(view, kind)
        key = view.name, kind
        if listed is not None:
            if self._latest.get(key) is not listed:
                now = time.time()
                started = self._started.setdefault(view.name, now)
                before, identifier = self._seen.get(key), identifier_key(kind)
                at, before = (started, {}) if before is None else (now, before)
                self._seen[key] = {item[identifier]: before.get(item[identifier], at) for item in listed}
            self._latest[key] = listed
        elif view.state == "ready" and not (view.prompts if kind == "prompts" else view.resources):
            self._latest.pop(key, None)
        return ServerList(view.name, self._latest.get(key, ()))

    def _listing(self, viewer: Viewer, kind: Kind) -> Listing:
        templates = () if kind == "prompts" else self._all_templates(viewer)
        return self._listings.of(kind, self._lists(viewer, kind), self._seniority, templates)

    def _all_templates(self, viewer: Viewer) -> list[ServerList]:
        """Return the templates of servers, and accepted ones that are not listed now: a server may be down."""
        found = []
        for each in self._lists(viewer, "templates"):
            listed = {item["uriTemplate"] for item in each.items}
            _, accepted = self._servers.accepted_since(each.server) or (inf, {})
            unlisted = tuple(template for template in accepted if template not in listed)
            found += [each, ServerList(each.server, _bare(unlisted))] if unlisted else [each]
        return found

    def _lists(self, viewer: Viewer, kind: Kind) -> list[ServerList]:
        return [self._server_list(view, kind) for view in self._visible(viewer, kind)]

    def _seniority(self, server: str) -> Seniority:
        configured = [*self._servers.configured()]
        position = configured.index(server) if server in configured else len(configured)
        started, resources = self._started.get(server, inf), self._seen.get((server, "resources"), {})
        first, templates = self._servers.accepted_since(server) or (started, self._seen.get((server, "templates"), {}))
        return Seniority(position, first, templates, started, resources)

    def _describe_prompts(self, viewer: Any) -> Hashable:
        programs = tuple(program.digest for program, _ in self._programs(viewer).values())
        return self._listing(viewer, "prompts").digest, programs

    def _programs(self, viewer: Viewer) -> Mapping[str, tuple[SavedProgram, dict[str, Any]]]:
        if not self._exposure(viewer).programs:
            return {}
        from codemode_mcp.catalog.toolset import select_programs  # imported late: few clients see programs

        programs = select_programs(self._servers.library().programs, self._exposures.policy_of(viewer[0])).programs
        servers = self._listing(viewer, "prompts").located
        return {name: found for name, found in prompts_of(programs).items() if name not in servers}

    def _describe_resources(self, viewer: Any) -> Hashable:
        return self._listing(viewer, "resources").digest, self._listing(viewer, "templates").digest

    # lists

    async def _list(self, exchange: Exchange, kind: Kind) -> dict[str, Any]:
        viewer = _viewer(exchange)
        await self._servers.ready_to_list()
        hints = {}
        if kind == "resources":
            hints = await self._update_resources(viewer, self._limit_first(LIST_SECONDS))
        else:
            await self._wait_for_first(viewer, kind)
        listing = self._listing(viewer, kind)
        items = listing.items
        if kind == "prompts":
            items = [*items, *(prompt for _, prompt in self._programs(viewer).values())]
        # Nothing is awaited after this, so the recorded list is the one that is sent.
        self._announcer.listed_for("prompts" if kind == "prompts" else "resources", viewer)
        try:
            page, cursor = page_of(kind, items, exchange.params.get("cursor"))
        except BadCursor as error:
            raise JsonRpcError(INVALID_PARAMS, str(error)) from None
        result: dict[str, Any] = {"resourceTemplates" if kind == "templates" else kind: page}
        if cursor is not None:
            result["nextCursor"] = cursor
        return {**result, **hints} if exchange.session.modern else result

    def _limit_first(self, seconds: float) -> float:
        """Return the seconds that a list may wait: fewer while clients start."""
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + FIRST_LIST_SECONDS
        return self._deadline - now if now < self._deadline else seconds

    async def _wait_for_first(self, viewer: Viewer, kind: Kind) -> None:
        """Wait until servers that were never listed have listed their items. Later requests do not wait."""
        with anyio.move_on_after(max(0.0, self._limit_first(0.0))):
            while True:
                change = self._servers.change()
                views = {view.name: view for view in self._servers.trusted_views()}
                if not any(self._is_unknown(views.get(name), kind) for name in self._servers.configured()):
                    return
                await change.wait()

    def _is_unknown(self, view: UpstreamView | None, kind: Kind) -> bool:
        if view is None:
            return True
        if _listed(view, kind) is not None or (view.name, kind) in self._latest:
            return False
        has_items = view.prompts if kind == "prompts" else view.resources
        return view.state == "connecting" or (view.state == "ready" and has_items)

    async def _update_resources(
        self, viewer: Viewer, seconds: float, only: Collection[str] | None = None
    ) -> dict[str, Any]:
        """Have visible servers list their resources, at the same time. Return hints about caching for the list."""
        fresh: list[int] = []

        async def update(server: str) -> None:
            with anyio.move_on_after(seconds) as scope:
                source = await self._servers.item_source(server, viewer[0])
                if source is not None:
                    try:
                        fresh.append((await source.list_resources()).ttl_ms)
                        self._failures.pop(server, None)
                        self._silent.pop(server, None)
                    except UpstreamClientError as error:
                        self._note_failure(server, error.message)
            if scope.cancelled_caught:
                self._silent[server] = time.monotonic()
                self._note_failure(server, f"they were not listed within {seconds:.0f} s")

        with anyio.move_on_after(seconds):
            await self._servers.dispatcher()  # before the servers are started, some have no view
        views = self._visible(viewer, "resources")
        async with anyio.create_task_group() as group:
            for view in views:
                if (view.resources or view.state == "connecting") and (only is None or view.name in only):
                    group.start_soon(update, view.name)
        return {"ttlMs": min(fresh)} if fresh else {}

    def _note_failure(self, server: str, why: str) -> None:
        """Log why the resources of a server are left out of a list, once for each reason."""
        if self._failures.get(server) != why:
            self._failures[server] = why
            shown = escape_hidden(cut(why, MAX_TEXT))
            log.warning("the resources of server %s are left out: %s", escape_line(server), shown)

    # one item

    async def _get(self, exchange: Exchange, name: str) -> dict[str, Any]:
        viewer = _viewer(exchange)
        program = self._programs(viewer).get(name)
        if program is not None:
            given = exchange.params.get("arguments")
            return prompt_result(program[0], given if isinstance(given, dict) else {})
        located = await self._located_prompt(viewer, name)
        arguments: dict[str, Any] = {"name": located.identifier}
        if exchange.params.get("arguments"):
            arguments["arguments"] = exchange.params["arguments"]
        unknown = JsonRpcError(INVALID_PARAMS, f"Unknown prompt: {escape_line(name)}")
        result = await self._request(exchange, located.server, "prompts/get", arguments, unknown)
        messages = result.get("messages")
        if isinstance(messages, list):
            result["messages"] = [self._with_exposed_uri(viewer, located.server, each) for each in messages]
        return result

    async def _located_prompt(self, viewer: Viewer, name: str) -> Located:
        """Return the prompt with a name. A prompt that no server lists is for its server to refuse."""
        located = self._listing(viewer, "prompts").located.get(name)
        if located is not None:
            return located
        found = items.split_prompt_name(name)
        if found is None or not await self._sees(viewer, "prompts", found[0]):
            raise JsonRpcError(INVALID_PARAMS, f"Unknown prompt: {escape_line(name)}")
        return self._listing(viewer, "prompts").located.get(name) or Located(*found)

    async def _read(self, exchange: Exchange, uri: str) -> dict[str, Any]:
        located = await self.located_resource(exchange, uri)
        result = await self._request(
            exchange, located.server, "resources/read", {"uri": located.identifier}, unknown_resource(exchange, uri)
        )
        contents = result.get("contents")
        if isinstance(contents, list):
            viewer = _viewer(exchange)
            result["contents"] = [self._with_uri(viewer, each, located, at) for at, each in enumerate(contents)]
        return result

    async def located_resource(self, exchange: Exchange, uri: str) -> Located:
        """Return the server of a resource, and the URI that the server uses.

        Raises:
            JsonRpcError: no server that the client sees has the resource, or several may have it.
        """
        viewer = _viewer(exchange)
        unknown = unknown_resource(exchange, uri)
        wrapped = items.unwrap_uri(uri)
        if items.is_app_uri(uri) or (wrapped is None and items.is_own_uri(uri)):
            raise unknown
        if wrapped is not None:
            if items.is_app_uri(wrapped[1]) or not await self._sees(viewer, "resources", wrapped[0]):
                raise unknown
            listed = self._listing(viewer, "resources").located.get(uri)
            return listed or Located(*wrapped, is_wrapped=True)
        await self._servers.dispatcher()
        views = self._visible(viewer, "resources")
        # A server whose resources are not known may list the URI, or list it too. One that does not answer must not
        # delay each read from the others.
        unlisted = {view.name for view in views if view.state == "connecting" or view.resource_list is None}
        unlisted -= {name for name, at in self._silent.items() if time.monotonic() - at < SILENT_SECONDS}
        if unlisted and (len(views) > 1 or views[0].state == "connecting"):
            await self._update_resources(viewer, LIST_SECONDS, unlisted)
        listing = self._listing(viewer, "resources")
        if (listed := listing.located.get(uri)) is not None:
            return listed
        candidates = listing.shared.get(uri)
        if candidates is None:
            found = template_matches(uri, self._listing(viewer, "templates").located, makes)
            if len(found) == 1:
                return found[0]
            candidates = [located.server for located in found]
        if not candidates:
            others = [view.name for view in self._visible(viewer, "resources") if view.resources]
            if len(others) == 1 and not any(
                may_make(item["uriTemplate"], uri)
                for each in self._all_templates(viewer)
                for item in each.items
                if each.server != others[0]
            ):
                return Located(others[0], uri)
            raise unknown
        forms = " or ".join(items.wrapped_uri(server, uri) for server in candidates[:5])
        message = f"several servers have the resource {escape_line(uri)}; name one of them: {forms}"
        raise JsonRpcError(INVALID_PARAMS, message, {"uri": uri})

    async def _sees(self, viewer: Viewer, kind: Kind, server: str) -> bool:
        await self._servers.dispatcher()
        return any(view.name == server for view in self._visible(viewer, kind))

    async def _complete(self, exchange: Exchange, ref: Mapping[str, Any]) -> dict[str, Any]:
        viewer, argument = _viewer(exchange), exchange.params["argument"]
        arguments: dict[str, Any]
        if ref["type"] == "ref/prompt":
            if ref["name"] in self._programs(viewer):
                return {"completion": {"values": []}}
            located = await self._located_prompt(viewer, ref["name"])
            operation, arguments = "prompts/complete", {"name": located.identifier}
        else:
            uri = ref["uri"]
            await self._servers.dispatcher()
            template = self._listing(viewer, "templates").located.get(uri)
            located = template or await self.located_resource(exchange, uri)
            operation, arguments = "resources/complete", {"uri": located.identifier}
        arguments["argument"] = {"name": argument["name"], "value": argument["value"]}
        context = exchange.params.get("context")
        if isinstance(context, dict) and isinstance(context.get("arguments"), dict):
            arguments["context"] = {"arguments": context["arguments"]}
        policy = self._exposures.policy_of(viewer[0])
        entry = self._servers.catalog_of(viewer[0]).get(f"mcp:{located.server}:{operation}")
        # A person is never asked about a completion, which clients request with each key.
        if entry is None or isinstance(policy.decide(entry.id, entry.effects), Ask):
            return {"completion": {"values": []}}
        unknown = JsonRpcError(INVALID_PARAMS, "Unknown prompt or resource")
        return await self._request(exchange, located.server, operation, arguments, unknown)

    async def _request(
        self, exchange: Exchange, server: str, operation: str, arguments: JsonObject, unknown: JsonRpcError
    ) -> dict[str, Any]:
        async def find() -> Target:
            await self._servers.dispatcher()
            entry_id = f"mcp:{server}:{operation}"
            catalog = self._servers.catalog_of(exchange.caller)
            if catalog.get(entry_id) is None:  # the server may be connecting for the first time
                seconds = self._servers.settings().code_mode.connect_wait_ms / 1000
                with suppress(KeyError):
                    await self._servers.wait_settled([server], seconds)
                catalog = self._servers.catalog_of(exchange.caller)
            entry = catalog.get(entry_id)
            if entry is None:
                raise unknown
            return Target(entry, catalog, json_text(arguments))

        answer = await self._direct.request(exchange, find)
        if answer.questions is not None:
            return answer.questions
        return _result(answer, modern=exchange.session.modern)

    def _with_uri(self, viewer: Viewer, contents: Any, located: Located, position: int) -> Any:
        """Return a part of a read resource. A server cannot answer in the name of another one by the URI of a part."""
        if not isinstance(contents, dict) or not isinstance(contents.get("uri"), str):
            return contents
        uri = contents["uri"]
        if located.is_wrapped or uri == located.identifier or position >= MAX_COMPARED_PARTS:
            is_wrapped = located.is_wrapped or uri != located.identifier
            return {**contents, "uri": exposed_contents_uri(located.server, uri, is_wrapped=is_wrapped)}
        return {**contents, "uri": self._exposed_uri(viewer, located.server, uri)}

    def _with_exposed_uri(self, viewer: Viewer, server: str, message: Any) -> Any:
        """Return a message of a prompt. A resource in it has the URI under which the client can read it."""
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(content, dict):
            return message
        if content.get("type") == "resource_link" and isinstance(content.get("uri"), str):
            return {**message, "content": {**content, "uri": self._exposed_uri(viewer, server, content["uri"])}}
        resource = content.get("resource")
        if content.get("type") == "resource" and isinstance(resource, dict) and isinstance(resource.get("uri"), str):
            resource = {**resource, "uri": self._exposed_uri(viewer, server, resource["uri"])}
            return {**message, "content": {**content, "resource": resource}}
        return message

    def _exposed_uri(self, viewer: Viewer, server: str, uri: str) -> str:
        """Return a URI of a server for clients. It names the server if a client would read it from another one."""
        listing = self._listing(viewer, "resources")
        listed = listing.located.get(uri)
        templates = self._listing(viewer, "templates").located
        owners = [listed] if listed is not None else template_matches(uri, templates, makes)
        is_wrapped = uri in listing.shared or any(each.server != server for each in owners)
        return exposed_contents_uri(server, uri, is_wrapped=is_wrapped)


def _viewer(exchange: Exchange) -> Viewer:
    return exchange.caller, (exchange.session.client_name or "")[:MAX_NAME], exchange.path_mode


@lru_cache(maxsize=64)
def _bare(templates: tuple[str, ...]) -> tuple[JsonObject, ...]:
    """Return templates as items of a list: the same object for the same templates, as lists are compared by it."""
    return tuple({"uriTemplate": each} for each in templates)


def _listed(view: UpstreamView, kind: Kind) -> Sequence[JsonObject] | None:
    match kind:
        case "prompts":
            return view.prompt_list
        case "templates":
            return view.template_list
    return view.resource_list


def _result(answer: Answer, *, modern: bool) -> dict[str, Any]:
    result = dict(sendable(json.loads(join_surrogates(answer.value))))
    for name in ("resultType", "cacheScope") if modern else ("resultType", "cacheScope", "ttlMs"):
        result.pop(name, None)  # results depend on the caller, so they are always private
    meta = result.get("_meta")
    if isinstance(meta, dict):
        meta.pop(SERVER_INFO, None)  # the server that the client is connected to is this one
        if not meta:
            del result["_meta"]
    if answer.notes:
        notes = [join_surrogates(note) for note in answer.notes]
        result["_meta"] = {**result.get("_meta", {}), "codemode-mcp/notes": notes}
    return result


# Saved programs as MCP prompts, which clients show as slash commands.
#
# The text of a prompt asks the model to run the program by `exec`. So a program runs in the same way as any other, with
# the policy and the approvals of its caller.


SERVER: Final = "programs"
"""The part before the slash in the names of these prompts."""

MAX_DESCRIPTION: Final = 1_000
MAX_ARGUMENT: Final = 200


def prompts_of(programs: Iterable[SavedProgram]) -> dict[str, tuple[SavedProgram, dict[str, Any]]]:
    return {prompt_name(SERVER, each.name): (each, _prompt(each)) for each in programs}


def prompt_result(program: SavedProgram, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of `prompts/get`.

    Args:
        given: the arguments, which are strings in MCP. Arguments that the program does not declare are left out.
    """
    properties = _properties(program)
    values = {name: _value(text, properties[name]) for name, text in given.items() if name in properties}
    argument = as_javascript(values, ensure_ascii=False) if values or program.takes_input else ""
    required = [name for name in program.input_schema.get("required", ()) if name not in values]
    missing = f"\n\nAsk the user for what is missing first: {', '.join(required)}." if required else ""
    about = f"\n\nWhat it does: {_line(program.description, MAX_DESCRIPTION)}" if program.description else ""
    text = (
        f"Run the saved program {program.name} with the tool exec, with this code:\n\n"
        f"return await programs.{program.name}({argument});{missing}{about}\n\n"
        'If the result has status "waiting", call wait with its runId. Then report the result.'
    )
    return {
        "description": _line(program.description, MAX_DESCRIPTION),
        "messages": [{"role": "user", "content": {"type": "text", "text": text}}],
    }


def _prompt(program: SavedProgram) -> dict[str, Any]:
    required = program.input_schema.get("required", ())
    arguments = [
        {"name": name, **_description(schema), "required": name in required}
        for name, schema in _properties(program).items()
    ]
    return {
        "name": prompt_name(SERVER, program.name),
        "title": program.name,
        **({"description": _line(program.description, MAX_DESCRIPTION)} if program.description else {}),
        **({"arguments": arguments} if arguments else {}),
    }


def _properties(program: SavedProgram) -> Mapping[str, Any]:
    found = program.input_schema.get("properties")
    return found if isinstance(found, dict) else {}


def _description(schema: Any) -> dict[str, str]:
    text = schema.get("description") if isinstance(schema, dict) else None
    return {"description": _line(text, MAX_ARGUMENT)} if isinstance(text, str) and text else {}


def _value(text: Any, schema: Any) -> Any:
    """Return the value of an argument: a string if the schema takes strings, otherwise JSON if it is JSON."""
    kinds = schema.get("type") if isinstance(schema, dict) else None
    if not isinstance(text, str) or kinds == "string" or (isinstance(kinds, list) and "string" in kinds):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _line(text: str, limit: int) -> str:
    """Return a text on one line, without hidden characters."""
    return clip(drop_hidden(" ".join(text.split())), limit)
