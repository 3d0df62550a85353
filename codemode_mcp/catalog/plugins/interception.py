"""Hooks of plugins, which run before a call is sent, and middleware, which runs on its result.

They run in the order of their registration, each on the output of the one before. If one raises, hangs or returns an
invalid value, only that call fails, with an error that names the plugin.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn

import anyio
from msgspec import Struct

from codemode_mcp.base.errors import PluginError, PolicyDenied, ProgramError
from codemode_mcp.base.strict_json import json_text
from codemode_mcp.base.text import clip
from codemode_mcp.catalog.plugins.api import EXEC_ID, ChangeInput, DenyCall, NoteCall, ToolCallEvent, ToolError
from codemode_mcp.catalog.plugins.running import Owner, Threads, is_async, run_async, run_code, text_of
from codemode_mcp.rules.policy.rule_patterns import glob_pattern

if TYPE_CHECKING:
    from upstream_clients.tools import JsonObject

log = logging.getLogger("codemode_mcp.plugins")

HOOK_SECONDS: Final = 5.0
"""Seconds for a hook or a middleware, unless its plugin's entry in the configuration says otherwise."""

THREADS: Final = 4
"""Number of threads for the hooks of one plugin that are not async."""

MAX_TEXT: Final = 2_000
"""Maximum number of characters of a reason or a note."""

_MAX_CACHED = 20_000
"""Maximum number of tools whose hooks and middleware are cached."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A hook or a middleware.

    Attributes:
        declared: ids or globs of the tools whose calls it wants to see; empty for the plugin's own tools.
        granted: ids or globs of the tools that the operator lets it see. The plugin's own tools need no grant.
        core: whether it is a part of this product. It then runs after those of plugins, without thread and time limit.
        timeout: seconds for one call.
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
        if self.core and tool_id == EXEC_ID:
            return False  # hooks of this product see calls, never programs
        own = tool_id.startswith(f"{'core' if self.core else 'plugin'}:{self.plugin}:")
        if not self.declared:
            return own
        return _any_matches(self.declared, tool_id) and (own or _any_matches(self.granted, tool_id))


class _ToolInterceptors(Struct, frozen=True):
    """The hooks and middleware for the calls of one tool.

    Attributes:
        missing: plugins that may see these calls and could not be loaded.
    """

    hooks: tuple[Registered, ...]
    middleware: tuple[Registered, ...]
    missing: tuple[str, ...]


class Interceptors:
    """The hooks and middleware of all plugins. Until the first `apply` they are unknown, and calls wait.

    Attributes:
        is_ready: all plugins are loaded.
    """

    def __init__(self) -> None:
        # The mutable state.
        self._hooks: tuple[Registered, ...] = ()
        self._middleware: tuple[Registered, ...] = ()
        self._missing: Mapping[str, tuple[str, ...]] = {}
        self._by_tool: dict[str, _ToolInterceptors] = {}
        self._owners: dict[str, Owner] = {}
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
        """Use these hooks and middleware from now on, in this order.

        Args:
            missing: the configured plugins that could not be loaded, with the ids or globs that the operator grants
                their hooks and middleware. Calls of these tools are refused, since a plugin that may guard them is
                missing.
        """
        self._hooks = tuple(sorted(hooks, key=lambda each: each.core))
        self._middleware = tuple(middleware)
        self._missing = dict(missing or {})
        self._by_tool.clear()
        present = {each.plugin for each in (*hooks, *middleware)}
        for plugin in [name for name in self._owners if name not in present]:
            self._owners.pop(plugin).threads.close()
        self.is_ready = True
        self._applied.set()

    def close(self) -> None:
        for owner in self._owners.values():
            owner.threads.close()
        self._owners.clear()

    async def ready(self) -> None:
        """Wait for the first `apply`."""
        await self._applied.wait()

    def has_hooks(self, tool_id: str) -> bool:
        interceptors = self._of(tool_id)
        return bool(interceptors.hooks or interceptors.missing)

    def has_middleware(self, tool_id: str) -> bool:
        return bool(self._of(tool_id).middleware)

    async def before(
        self, event: ToolCallEvent, called: str, note: Callable[[str], None], accept: Callable[[str], JsonObject]
    ) -> JsonObject:
        """Run the hooks, and return the input of the call.

        Args:
            called: the program's expression for the tool, for messages.
            note: takes a note for the reader of the run's result.
            accept: returns the input for the JSON text that a hook returns instead. It raises `ProgramError` if the
                input is invalid.

        Raises:
            PolicyDenied: a hook denies the call.
            PluginError: a hook failed.
        """
        interceptors = self._of(event.tool_id)
        for plugin in interceptors.missing:
            raise PluginError(
                f"{called}: plugin {plugin!r}, which must see its calls, could not be loaded; "
                "`codemode-mcp doctor` says why"
            )
        for each in interceptors.hooks:
            if each.core:
                answer = each.callback(event)
            else:
                # The hook gets a copy: it changes the call only through its answer.
                answer = await self._ask(each, called, "its hook", _with_input(event, _copy(event.input)))
            event = _apply_answer(each, answer, event, called, note, accept)
        return event.input

    async def after(self, event: ToolCallEvent, called: str, result: Any, limit: int) -> str:
        """Run the middleware, and return the result as JSON. A replaced result has at most `limit` bytes.

        Raises:
            PluginError: a middleware failed.
        """
        text: str | None = None
        for each in self._of(event.tool_id).middleware:
            if text is not None:
                result = json.loads(text)  # the middleware before may have returned any objects
            answer = await self._ask(each, called, "its middleware", event, result)
            try:
                text = json_text(answer)
            except BaseException as error:  # the answer may hold objects whose code raises anything
                _fail(each, called, "its middleware returned a value that is not JSON", text_of(error))
            if event.tool_kind == "mcp" and not _is_mcp_result(answer):
                _fail(
                    each,
                    called,
                    "its middleware returned a value that is not a result of an MCP tool",
                    type(answer).__name__,
                )
            size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
            if size > limit:
                _fail(each, called, f"its middleware returned {size} bytes, more than maxToolResultBytes ({limit})")
        return json_text(result) if text is None else text

    def _of(self, tool_id: str) -> _ToolInterceptors:
        found = self._by_tool.get(tool_id)
        if found is None:
            if len(self._by_tool) >= _MAX_CACHED:
                self._by_tool.clear()
            found = self._by_tool[tool_id] = _ToolInterceptors(
                tuple(each for each in self._hooks if each.sees(tool_id)),
                tuple(each for each in self._middleware if each.sees(tool_id)),
                tuple(plugin for plugin, granted in self._missing.items() if _any_matches(granted, tool_id)),
            )
        return found

    async def _ask(self, each: Registered, called: str, what: str, *arguments: Any) -> Any:
        owner = self._owners.get(each.plugin)
        if owner is None:
            # Hooks have threads of their own, since tools may take long.
            owner = self._owners[each.plugin] = Owner(each.plugin, Threads(THREADS, f"hooks of {each.plugin}"))
        try:
            run = run_async if each.is_async else run_code
            return await run(owner, what, each.timeout, each.callback, *arguments)
        except ToolError as error:
            raise PluginError(f"{called}: plugin {each.plugin!r}: {error}") from None
        except PluginError as error:
            raise PluginError(f"{called}: {error.message}") from None


def _apply_answer(
    each: Registered,
    answer: Any,
    event: ToolCallEvent,
    called: str,
    note: Callable[[str], None],
    accept: Callable[[str], JsonObject],
) -> ToolCallEvent:
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
            _fail(each, called, "its hook returned a value that is not an answer", type(answer).__name__)
    return event


def _fail(each: Registered, called: str, what: str, detail: str = "") -> NoReturn:
    log.error("plugin %r at a call of %s: %s%s", each.plugin, called, what, f" ({detail})" if detail else "")
    raise PluginError(f"{called}: plugin {each.plugin!r} failed: {what}")


def _accepted(each: Registered, called: str, changed: Any, accept: Callable[[str], JsonObject]) -> JsonObject:
    if not isinstance(changed, Mapping):
        _fail(each, called, "its hook changed the input to a value that is not a JSON object", type(changed).__name__)
    try:
        text = json.dumps(dict(changed), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except BaseException as error:  # the input may hold objects whose code raises anything
        _fail(each, called, "its hook changed the input to a value that is not a JSON object", text_of(error))
    try:
        return accept(text)
    except ProgramError as error:
        raise PluginError(
            f"{called}: plugin {each.plugin!r} changed the input to an invalid one: {error.message}"
        ) from error


def _is_mcp_result(result: Any) -> bool:
    return isinstance(result, dict) and isinstance(result.get("content", []), list | tuple)


def _with_input(event: ToolCallEvent, given: JsonObject) -> ToolCallEvent:
    # dataclasses.replace takes three times as long.
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
        event.defaults,
    )


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) if isinstance(item, dict | list) else item for key, item in value.items()}
    if isinstance(value, list):
        return [_copy(item) if isinstance(item, dict | list) else item for item in value]
    return value


def _cut(text: str) -> str:
    # A plugin may repeat words of a server, which must not begin a line.
    return clip(text, MAX_TEXT).replace("\n", "\n  ")


def _any_matches(globs: Sequence[str], tool_id: str) -> bool:
    return any(glob_pattern(glob).fullmatch(tool_id) is not None for glob in globs)
