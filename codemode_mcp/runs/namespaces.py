"""The namespaces of one run: their scopes, which are made when the run begins, and the calls of their functions.

The guest gets the data of a scope and the paths of its functions. The scope itself stays in this process. A function is
called by its path, which is looked up in the scope. So a program can call nothing else.
"""

from __future__ import annotations

import copy
import logging
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any

import anyio
from msgspec import Struct

from codemode_mcp.base.did_you_mean import nearest
from codemode_mcp.base.errors import CodeModeError, PluginError, ProgramError
from codemode_mcp.base.strict_json import json_text, parse_json, replace_lone_surrogates
from codemode_mcp.base.text import quoted
from codemode_mcp.catalog.plugins.api import NamespaceContext, NamespaceTool, ToolError
from codemode_mcp.catalog.plugins.running import Owner, is_async, removal_message, run_code
from codemode_mcp.catalog.plugins.scopes import SEPARATOR, Namespace, Scope, read_input, read_scope
from codemode_mcp.sandbox.messages import NamespaceCall, Through, ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from codemode_mcp.catalog.entries import OfferedNamespace
    from codemode_mcp.catalog.plugins.host import Plugins
    from declarations.functions import ScopeObject

log = logging.getLogger("codemode_mcp.runs")

SCOPE_SECONDS = 2.0
"""Timeout for the scopes of a run, which are made at the same time. The program waits for them."""

MAPPER_SECONDS = 2.0
"""Timeout for the input mapper of one call."""

MAX_SCOPES_SHARE = 8
"""Divisor of a program's memory limit in bytes. The result is the maximum number of characters of all its scopes."""


class OpenNamespace(Struct, frozen=True):
    """One namespace in one run.

    Attributes:
        plugin: the plugin that registered the namespace; None if the plugin was removed.
        functions: the functions by path; empty if there is a `refusal`.
        shape: the shape of the scope, for its declaration; None if there is a `refusal`.
        refusal: the reason why the namespace cannot be used; empty if it can be used.
    """

    offered: OfferedNamespace
    plugin: Owner | None
    functions: Mapping[str, NamespaceTool]
    shape: ScopeObject | None = None
    refusal: str = ""


class OpenNamespaces:
    """The namespaces of one run.

    Args:
        registered: the plugins that are registered when a function is called.

    Attributes:
        text: JSON of the scopes for the guest; `[]` after `forget_text`.
    """

    def __init__(
        self, opened: Sequence[OpenNamespace] = (), text: str = "[]", registered: Plugins | None = None
    ) -> None:
        self.text = text
        self._opened = {each.offered.id: each for each in opened}
        self._registered = registered

    def __repr__(self) -> str:
        return f"<OpenNamespaces: {', '.join(self._opened) or 'none'}>"

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._opened)

    @property
    def shapes(self) -> Mapping[str, ScopeObject]:
        return {each.offered.id: each.shape for each in self._opened.values() if each.shape is not None}

    def nearest_function(self, expression: str) -> str | None:
        """Return the path, without the global name, of the function that a program most likely meant, or None.

        Args:
            expression: the expression in the program, such as `issues.lsit` or `namespaces.issues.lsit`.
        """
        name, _, path = expression.removeprefix("namespaces.").partition(SEPARATOR)
        for each in self._opened.values():
            if each.offered.global_name == name and path not in each.functions:
                return next(iter(nearest(path, each.functions, count=1)), None)
        return None

    def forget_text(self) -> None:
        """Forget the text, because the guest has it."""
        self.text = "[]"

    def tool_call(self, call: NamespaceCall) -> ToolCall:
        """Return the tool call for a call of a function. If that is impossible, return a call that is refused."""
        opened = self._opened.get(call.namespace)
        if opened is None:
            return _refused(call, call.namespace, f"there is no namespace {quoted(call.namespace)}")
        name = opened.offered.global_name
        path = f"{name}{SEPARATOR}{call.path}"
        if opened.refusal:
            return _refused(call, path, f"{path[:200]}: {opened.refusal}")
        function = opened.functions.get(call.path)
        if function is None or opened.plugin is None:
            return _refused(call, path, f"{quoted(path)} is not a function of the namespace {name!r}")
        gone = partial(self._gone, opened, function, path[:200])
        if gone():
            return _refused(call, path, gone())
        target = f"plugin:{opened.offered.plugin}:{function.name}"
        if function.input_mapper is None:
            given = call.arguments[0] if call.arguments else None
            return ToolCall(call.id, target, given, through=Through(path, request=call))
        map_input = partial(_map_input, opened.plugin, path, function.input_mapper, call.arguments, gone)
        given = f"[{','.join('null' if each is None else each for each in call.arguments)}]"
        return ToolCall(call.id, target, given, through=Through(path, map_input, request=call))

    def _gone(self, opened: OpenNamespace, function: NamespaceTool, path: str) -> str:
        """Return why a function can no longer be called: its plugin was removed or changed. Empty if it can."""
        if self._registered is None or opened.plugin is None:
            return ""
        name = opened.plugin.name
        plugin = self._registered.find(name)
        if plugin is None:
            return f"{path}: {removal_message(name)}"
        # If the plugin was loaded again, the mapper is code of the previous plugin.
        if function.input_mapper is not None and plugin.threads is not opened.plugin.threads:
            return f"{path}: plugin {name!r} was loaded again while this program ran; run the program again"
        return ""


def _refused(call: NamespaceCall, path: str, why: str) -> ToolCall:
    return ToolCall(
        call.id, f"namespace:{call.namespace[:100]}", through=Through(path[:200], refusal=why, request=call)
    )


async def open_namespaces(
    visible: Sequence[OfferedNamespace],
    registered: Plugins | None,
    *,
    run_id: str,
    owner: str,
    aborted: Callable[[], bool],
    memory_limit: int,
) -> OpenNamespaces:
    """Make the scopes of a run that begins. If a scope fails or times out, the run cannot use its namespace.

    Args:
        visible: the namespaces in the run's catalog.
        registered: the registered plugins; None if there are no plugins.
        aborted: returns True if the run was given up.
        memory_limit: bytes that the program may use.
    """
    if not visible:
        return OpenNamespaces()
    cancelled = False

    def context_for(namespace: Namespace) -> NamespaceContext:
        return NamespaceContext(owner, run_id, copy.deepcopy(dict(namespace.config)), lambda: cancelled or aborted())

    made: dict[str, tuple[Owner | None, Scope | str]] = {}

    async def make(offered: OfferedNamespace) -> None:
        made[offered.id] = await _make(offered, registered, context_for)

    try:
        async with anyio.create_task_group() as group:
            for offered in visible:
                group.start_soon(make, offered)
    except anyio.get_cancelled_exc_class():
        cancelled = True  # seen by code of plugins that still runs in threads
        raise
    room = memory_limit // MAX_SCOPES_SHARE
    opened: list[OpenNamespace] = []
    texts: list[str] = []
    for offered in visible:
        plugin, scope = made[offered.id]
        if isinstance(scope, Scope) and len(scope.text) > room:
            scope = _unusable(offered, "there is no room for its data beside the data of other namespaces")
        if isinstance(scope, Scope):
            room -= len(scope.text)
            opened.append(OpenNamespace(offered, plugin, scope.functions, scope.shape))
            texts.append(_guest_text(offered, scope.text, [path.split(SEPARATOR) for path in scope.functions], None))
        else:
            opened.append(OpenNamespace(offered, plugin, {}, refusal=scope))
            texts.append(_guest_text(offered, "null", [], scope))
    return OpenNamespaces(opened, f"[{','.join(texts)}]", registered)


def _guest_text(offered: OfferedNamespace, data: str, functions: list[list[str]], reason: str | None) -> str:
    return (
        f'{{"id":{json_text(offered.id)},"global":{json_text(offered.global_name)},"data":{data},'
        f'"functions":{json_text(functions)},"reason":{json_text(reason)}}}'
    )


async def _make(
    offered: OfferedNamespace,
    registered: Plugins | None,
    context_for: Callable[[Namespace], NamespaceContext],
) -> tuple[Owner | None, Scope | str]:
    """Return the plugin of a namespace, and its scope or the reason why it cannot be used."""
    namespace = None if registered is None else registered.namespace(offered.id)
    plugin = None if registered is None else registered.find(offered.plugin)
    # If the namespace was registered again after the catalog was made, it may require other tools.
    if namespace is None or plugin is None or namespace.offered != offered:
        return None, _unusable(offered, "the plugin was removed or loaded again; run the program again")
    context = context_for(namespace)
    what = f"namespace {offered.id!r} (create_scope)"

    def read(made: Any) -> Scope | str:
        try:
            return read_scope(made, offered.required_tools)
        except ValueError as error:
            log.error("namespace %r of plugin %r: %s", offered.id, offered.plugin, error)
            return _unusable(offered, str(error))

    async def make() -> Scope | str:
        if is_async(namespace.create_scope):
            made = await namespace.create_scope(context)  # type: ignore[misc]
        else:
            made = await plugin.threads.run(namespace.create_scope, context)
            if hasattr(made, "__await__"):
                made = await made
        scope: Scope | str = await plugin.threads.run(read, made)
        return scope

    try:
        return plugin, await run_code(plugin, what, SCOPE_SECONDS, make)
    except ToolError as error:
        return plugin, _unusable(offered, str(error))
    except PluginError as error:
        return plugin, f"the namespace cannot be used in this run: {error.message}"


def _unusable(offered: OfferedNamespace, why: str) -> str:
    return f"the namespace cannot be used in this run: plugin {offered.plugin!r}: {why}"


async def _map_input(
    plugin: Owner,
    path: str,
    mapper: Callable[..., Any],
    given: tuple[str | None, ...],
    gone: Callable[[], str],
) -> str:
    if gone():  # the plugin may have changed while the call was queued
        raise ProgramError("nested_tool_failed", gone())
    arguments = [None if each is None else _read(each, path) for each in given]
    try:
        signature(mapper).bind(*arguments)
    except TypeError as error:
        raise ProgramError("nested_tool_failed", f"{path} takes other arguments: {error}") from None
    except ValueError:
        pass  # a built-in function may have no signature

    def map_and_read() -> str | ValueError:
        mapped = mapper(*arguments)
        try:
            return json_text(read_input(mapped))
        except ValueError as error:
            return error

    try:
        mapped = await run_code(plugin, f"the input mapper of {path}", MAPPER_SECONDS, map_and_read)
    except ToolError as error:
        raise ProgramError("nested_tool_failed", f"{path}: {error}") from None
    except CodeModeError as error:
        raise PluginError(f"{path}: {error.message}") from None
    if isinstance(mapped, ValueError):
        log.error("plugin %r failed: the input mapper of %s: %s", plugin.name, path, mapped)
        raise PluginError(
            f"{path}: plugin {plugin.name!r} failed: its input mapper returned an invalid input: {mapped}"
        )
    return str(mapped)


def _read(text: str, path: str) -> Any:
    try:
        return parse_json(replace_lone_surrogates(text))
    except (ValueError, RecursionError):
        raise ProgramError("nested_tool_failed", f"{path}: an argument is nested too deep, or is not JSON") from None
