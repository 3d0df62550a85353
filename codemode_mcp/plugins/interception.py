"""Hooks of plugins, before a call is sent, and their middleware, after its result has come.

They run in the order of their registration, each on what those before it have left. What raises, hangs or answers
nonsense fails the call that it was asked about, by the plugin's name, and nothing else.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn

import anyio

from codemode_mcp.errors import PluginError, PolicyDenied, ProgramError
from codemode_mcp.json_text import json_text
from codemode_mcp.plugins.api import EXEC_ID, ChangeInput, DenyCall, NoteCall, ToolCallEvent, ToolError
from codemode_mcp.plugins.running import is_async, run_async, run_code, text_of
from codemode_mcp.plugins.threads import Threads
from codemode_mcp.policy.rules import glob_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from upstream_clients.tools import JsonObject

log = logging.getLogger("codemode_mcp.plugins")

HOOK_SECONDS: Final = 5.0
"""Seconds for a hook or a middleware, unless its plugin's entry in the configuration says otherwise."""

THREADS: Final = 4
"""Threads in which the sync hooks of one plugin run."""

MAX_TEXT: Final = 2_000
"""Characters of a reason or a note."""

_MAX_REMEMBERED = 20_000
"""Tools of which it is remembered who wants to see their calls."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A hook or a middleware.

    Attributes:
        declared: ids, or globs of them, whose calls it wants to see; none: those of the plugin's own tools.
        granted: those that the operator lets it see. The plugin's own tools need no grant.
        core: a part of this product: called after those of plugins, without a thread and without a time limit.
        timeout: seconds.
    """

    plugin: str
    callback: Callable[..., Any]
    declared: tuple[str, ...] = ()
    granted: tuple[str, ...] = ()
    core: bool = False
    timeout: float = HOOK_SECONDS
    is_async: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_async", is_async(self.callback))

    def sees(self, tool_id: str) -> bool:
        """Tell whether calls of this tool are shown to it."""
        if self.core and tool_id == EXEC_ID:
            return False  # hooks of this product judge calls, never programs
        own = tool_id.startswith(f"{'core' if self.core else 'plugin'}:{self.plugin}:")
        if not self.declared:
            return own
        return _any_matches(self.declared, tool_id) and (own or _any_matches(self.granted, tool_id))


@dataclass(frozen=True, slots=True)
class _Seers:
    """Hooks and middleware for the calls of one tool."""

    hooks: tuple[Registered, ...]
    middleware: tuple[Registered, ...]
    missing: tuple[str, ...]
    waits: bool = field(init=False)
    """A plugin is asked, or missing."""

    def __post_init__(self) -> None:
        waits = bool(self.middleware or self.missing) or not all(each.core for each in self.hooks)
        object.__setattr__(self, "waits", waits)


@dataclass(frozen=True, slots=True)
class _Owner:
    """The owner of code that runs; see `running.Owner`."""

    name: str
    threads: Threads


class Interceptors:
    """All hooks and middleware there are. Satisfies `dispatch.Interception`.

    Until the first `apply` the hooks are unknown, and calls wait.
    """

    def __init__(self) -> None:
        # The mutable state.
        self._hooks: tuple[Registered, ...] = ()
        self._middleware: tuple[Registered, ...] = ()
        self._missing: Mapping[str, tuple[str, ...]] = {}
        self._seers: dict[str, _Seers] = {}
        self._owners: dict[str, _Owner] = {}
        self._applied = anyio.Event()
        self.is_ready = False

    def __repr__(self) -> str:
        return f"<Interceptors: {len(self._hooks)} hooks, {len(self._middleware)} middleware>"

    def apply(
        self,
        hooks: Sequence[Registered],
        middleware: Sequence[Registered],
        missing: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        """Ask these from now on, in this order.

        Args:
            missing: plugins that are configured and could not be loaded, with the ids or globs that the operator
                grants their hooks and middleware. Calls of these tools are refused: what was to be guarded is not
                called without its guard.
        """
        self._hooks = tuple(sorted(hooks, key=lambda each: each.core))
        self._middleware = tuple(middleware)
        self._missing = dict(missing or {})
        self._seers.clear()
        present = {each.plugin for each in (*hooks, *middleware)}
        for plugin in [name for name in self._owners if name not in present]:
            self._owners.pop(plugin).threads.close()
        self.is_ready = True
        self._applied.set()

    def close(self) -> None:
        """Let the threads go."""
        for owner in self._owners.values():
            owner.threads.close()
        self._owners.clear()

    async def ready(self) -> None:
        """Return once it is known who wants to see calls."""
        await self._applied.wait()

    def hooks(self, tool_id: str) -> bool:
        """Return True if any hook wants to see calls of this tool."""
        seers = self._of(tool_id)
        return bool(seers.hooks or seers.missing)

    def middleware(self, tool_id: str) -> bool:
        """Return True if any middleware wants to see results of this tool."""
        return bool(self._of(tool_id).middleware)

    async def before(
        self,
        event: ToolCallEvent,
        called: str,
        note: Callable[[str], None],
        accept: Callable[[str], JsonObject],
    ) -> JsonObject:
        """Implement `dispatch.Interception`."""
        seers = self._of(event.tool_id)
        for plugin in seers.missing:
            raise PluginError(
                f"{called}: plugin {plugin!r}, which has to see its calls, could not be loaded; "
                "`codemode-mcp doctor` says why"
            )
        for each in seers.hooks:
            if each.core:
                answer = each.callback(event)
            else:
                # Of its own: nothing that it does to the object reaches the call but as an answer.
                answer = await self._ask(each, called, "its hook", _with_input(event, _copy(event.input)))
            event = _follow(each, answer, event, called, note, accept)
        return event.input

    def before_now(
        self,
        event: ToolCallEvent,
        called: str,
        note: Callable[[str], None],
        accept: Callable[[str], JsonObject],
    ) -> JsonObject:
        """Implement `dispatch.Interception`."""
        for each in self._of(event.tool_id).hooks:
            event = _follow(each, each.callback(event), event, called, note, accept)
        return event.input

    def waits(self, tool_id: str) -> bool:
        """Tell whether a call of this tool, or its result, is shown to a plugin, which takes time."""
        return self._of(tool_id).waits

    async def after(self, event: ToolCallEvent, called: str, result: Any, limit: int) -> str:
        """Implement `dispatch.Interception`."""
        text: str | None = None
        for each in self._of(event.tool_id).middleware:
            if text is not None:
                result = json.loads(text)  # plain JSON, whatever the one before has made it of
            answer = await self._ask(each, called, "its middleware", event, result)
            try:
                text = json_text(answer)
            except BaseException as error:  # as there
                _fail(each, called, "its middleware returned what is not JSON", text_of(error))
            if event.tool_kind == "mcp" and not _is_mcp_result(answer):
                _fail(each, called, "its middleware returned what is no result of an MCP tool", type(answer).__name__)
            size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
            if size > limit:
                _fail(each, called, f"its middleware returned {size} bytes, more than maxToolResultBytes ({limit})")
        return json_text(result) if text is None else text

    def _of(self, tool_id: str) -> _Seers:
        found = self._seers.get(tool_id)
        if found is None:
            if len(self._seers) >= _MAX_REMEMBERED:
                self._seers.clear()
            found = self._seers[tool_id] = _Seers(
                tuple(each for each in self._hooks if each.sees(tool_id)),
                tuple(each for each in self._middleware if each.sees(tool_id)),
                tuple(plugin for plugin, granted in self._missing.items() if _any_matches(granted, tool_id)),
            )
        return found

    async def _ask(self, each: Registered, called: str, what: str, *arguments: Any) -> Any:
        """Return what a plugin's function answers. Raises `PluginError` when it does not."""
        owner = self._owners.get(each.plugin)
        if owner is None:
            # Not the threads that its tools run in: these may take long.
            owner = self._owners[each.plugin] = _Owner(each.plugin, Threads(THREADS, f"hooks of {each.plugin}"))
        try:
            run = run_async if each.is_async else run_code
            return await run(owner, what, each.timeout, each.callback, *arguments)
        except ToolError as error:
            raise PluginError(f"{called}: plugin {each.plugin!r}: {error}") from None
        except PluginError as error:
            raise PluginError(f"{called}: {error.message}") from None


def _follow(
    each: Registered,
    answer: Any,
    event: ToolCallEvent,
    called: str,
    note: Callable[[str], None],
    accept: Callable[[str], JsonObject],
) -> ToolCallEvent:
    """Do what a hook has answered, and return the call as it is from then on."""
    match answer:
        case None:
            pass
        case ChangeInput(input=changed):
            event = _with_input(event, _accepted(each, called, changed, accept))
        case DenyCall(reason=str(reason)):
            by = "" if each.core else f" by plugin {each.plugin!r}"
            raise PolicyDenied(f"{called} was denied{by}: {_cut(reason)}")
        case NoteCall(text=str(text)):
            note(_cut(text) if each.core else f"Plugin {each.plugin!r}: {_cut(text)}")
        case _:
            _fail(each, called, "its hook answered with something that is no answer", type(answer).__name__)
    return event


def _fail(each: Registered, called: str, what: str, detail: str = "") -> NoReturn:
    log.error("plugin %r at a call of %s: %s%s", each.plugin, called, what, f" ({detail})" if detail else "")
    raise PluginError(f"{called}: plugin {each.plugin!r} failed: {what}")


def _accepted(each: Registered, called: str, changed: Any, accept: Callable[[str], JsonObject]) -> JsonObject:
    if not isinstance(changed, Mapping):
        _fail(each, called, "its hook changed the input to what is no JSON object", type(changed).__name__)
    try:
        text = json.dumps(dict(changed), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except BaseException as error:  # objects of the plugin's may do anything when they are looked at
        _fail(each, called, "its hook changed the input to what is no JSON object", text_of(error))
    try:
        return accept(text)
    except ProgramError as error:
        raise PluginError(
            f"{called}: plugin {each.plugin!r} changed the input to what does not fit: {error.message}"
        ) from error


def _is_mcp_result(result: Any) -> bool:
    return isinstance(result, dict) and isinstance(result.get("content", []), list | tuple)


def _with_input(event: ToolCallEvent, given: JsonObject) -> ToolCallEvent:
    # Not dataclasses.replace, which takes three times as long.
    return ToolCallEvent(
        event.tool_id,
        event.tool_kind,
        event.tool_input_kind,
        given,
        event.run_id,
        event.owner,
        event.principal,
        event.read_only,
        event.destructive,
        event.idempotent,
        event.open_world,
        event.call,
    )


def _copy(value: Any) -> Any:
    """JSON of its own."""
    if isinstance(value, dict):
        return {key: _copy(item) if isinstance(item, dict | list) else item for key, item in value.items()}
    if isinstance(value, list):
        return [_copy(item) if isinstance(item, dict | list) else item for item in value]
    return value


def _cut(text: str) -> str:
    # What a plugin repeats of a server's words begins no line of its own.
    return (text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…").replace("\n", "\n  ")


def _any_matches(globs: Sequence[str], tool_id: str) -> bool:
    return any(glob_pattern(glob).fullmatch(tool_id) is not None for glob in globs)
