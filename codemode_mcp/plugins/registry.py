"""Registrations of one plugin as frozen records, and the `PluginApi` that collects them while `register` runs."""

from __future__ import annotations

import copy
import re
import threading
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from codemode_mcp.did_you_mean import nearest
from codemode_mcp.plugins.api import PluginApi
from codemode_mcp.plugins.namespaces import Namespace, check_namespace
from codemode_mcp.plugins.tools import BadTool, CheckedTool, check_name, check_tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from codemode_mcp.plugins.api import BeforeToolCall, CreateScope, Middleware, PluginTool, ToolFactory
    from codemode_mcp.plugins.threads import Threads
    from upstream_clients.tools import JsonObject

MAX_TOOLS = 10_000
"""Maximum number of tools of one plugin."""

MAX_PATTERNS = 1_000
"""Maximum number of patterns of one hook or middleware."""

_PATTERN = re.compile(r"[^\s\x00-\x1f]{1,500}")


@dataclass(frozen=True, slots=True, eq=False)
class ToolGroup:
    """The tools of one factory.

    Attributes:
        names: the names of all tools that the factory may return.
        fixed: the one tool that is the same for all callers; None if the factory is called for each caller.
    """

    names: tuple[str, ...]
    factory: ToolFactory
    optional: bool = False
    fixed: CheckedTool | None = None


@dataclass(frozen=True, slots=True)
class Intercept:
    """A hook or a middleware.

    Attributes:
        tools: ids or globs of the tools whose calls it sees; empty for the plugin's own tools.
    """

    callback: BeforeToolCall | Middleware
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Plugin:
    """A loaded plugin.

    Attributes:
        source: `core` for a plugin that comes with this product.
        threads: threads for its code that is not async.
        hook_grants: ids or globs of other tools whose calls the operator lets its hooks see.
        middleware_grants: the same for its middleware.
    """

    name: str
    source: Literal["plugin", "core"]
    config: JsonObject
    threads: Threads
    groups: tuple[ToolGroup, ...] = ()
    hooks: tuple[Intercept, ...] = ()
    middleware: tuple[Intercept, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    unload: tuple[Callable[[], object], ...] = ()
    hook_grants: tuple[str, ...] = ()
    middleware_grants: tuple[str, ...] = ()


@dataclass(eq=False)
class Registration:
    """The `PluginApi` of one plugin. It refuses registrations after `close`.

    A `register` that takes too long still runs in its thread when `close` is called, so both take a lock.

    Attributes:
        settings: the configuration of the plugin.
        taken: the namespaces of other plugins.
    """

    name: str
    settings: JsonObject
    taken: tuple[Namespace, ...] = ()
    groups: list[ToolGroup] = field(default_factory=list)
    hooks: list[Intercept] = field(default_factory=list)
    middleware: list[Intercept] = field(default_factory=list)
    namespaces: list[Namespace] = field(default_factory=list)
    unload: list[Callable[[], object]] = field(default_factory=list)
    config: JsonObject = field(init=False)
    _names: dict[str, None] = field(default_factory=dict)
    _closed: bool = False
    _problem: ValueError | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.config = copy.deepcopy(dict(self.settings))  # a plugin may change its copy

    def __getattr__(self, name: str) -> Any:
        known = ("name", "config", *(each for each in vars(PluginApi) if not each.startswith("_")))
        near = next(iter(nearest(name, known, count=1)), None)
        hint = f"did you mean {near!r}?" if near else f"it has: {', '.join(sorted(set(known)))}"
        raise AttributeError(f"the plugin API has no {name!r}; {hint}")

    # what a plugin calls

    def tool(self, tool: PluginTool, *, optional: bool = False) -> None:
        with self._registering("tool()"):
            checked = check_tool(tool)
            name = checked.tool.name
            self._add_names([name])
            self.groups.append(ToolGroup((name,), lambda _: tool, optional is True, checked))

    def tools(self, names: Sequence[str], factory: ToolFactory, *, optional: bool = False) -> None:
        with self._registering("tools()"):
            if not _is_list(names) or not names:
                raise ValueError(f"names must be a list of at least one tool name, not {names!r:.100}")
            _need_callable("the factory", factory)
            self._add_names(names)
            self.groups.append(ToolGroup(tuple(names), factory, optional is True))

    def before_tool_call(self, hook: BeforeToolCall, *, tools: Sequence[str] = ()) -> None:
        with self._registering("before_tool_call()"):
            _need_callable("the hook", hook)
            self.hooks.append(Intercept(hook, _patterns(tools)))

    def tool_result_middleware(self, middleware: Middleware, *, tools: Sequence[str] = ()) -> None:
        with self._registering("tool_result_middleware()"):
            _need_callable("the middleware", middleware)
            self.middleware.append(Intercept(middleware, _patterns(tools)))

    def namespace(
        self,
        namespace_id: str,
        global_name: str,
        *,
        description: str,
        required_tools: Sequence[str],
        create_scope: CreateScope,
        prompt: str = "",
    ) -> None:
        with self._registering("namespace()"):
            namespace = Namespace(
                id=namespace_id,
                plugin=self.name,
                global_name=global_name,
                description=description,
                required_tools=tuple(required_tools) if _is_list(required_tools) else required_tools,  # type: ignore[arg-type]
                create_scope=create_scope,
                prompt=prompt,
                config=self.config,
            )
            self.namespaces.append(namespace)

    def on_unload(self, callback: Callable[[], object]) -> None:
        with self._registering("on_unload()"):
            _need_callable("the callback", callback)
            self.unload.append(callback)

    # what the host calls

    def close(self) -> None:
        """Refuse registrations from now on."""
        with self._lock:
            self._closed = True

    def refused(self, error: ValueError) -> bool:
        """Return True if this object raised the error, and not other code of the plugin."""
        return error is self._problem

    @property
    def is_closed(self) -> bool:
        return self._closed

    def check(self) -> None:
        """Check all registrations together.

        Raises:
            ValueError: a registration was refused, even if the plugin has caught the error, or a namespace is not
                valid.
        """
        if self._problem is not None:
            raise self._problem
        known = list(self.taken)
        for namespace in self.namespaces:
            check_namespace(namespace, self._names, known)
            known.append(namespace)

    @contextmanager
    def _registering(self, method: str) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise ValueError(
                    f"{method}: it is too late to register, since register(api) has ended or taken too long"
                )
            try:
                yield
            except (BadTool, ValueError, TypeError) as error:
                problem = ValueError(f"{method}: {error}")
                self._problem = self._problem or problem
                raise problem from None

    def _add_names(self, names: Sequence[str]) -> None:
        for name in names:
            if check_name(name) in self._names:
                raise ValueError(f"the tool {name!r} is registered already")
            self._names[name] = None
        if len(self._names) > MAX_TOOLS:
            raise ValueError(f"a plugin may have at most {MAX_TOOLS} tools")


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _need_callable(what: str, value: object) -> None:
    if not callable(value):
        raise ValueError(f"{what} must be a function, not {value!r:.100}")


def _patterns(tools: Any) -> tuple[str, ...]:
    if not _is_list(tools) or len(tools) > MAX_PATTERNS:
        raise ValueError(f"tools must be a list of at most {MAX_PATTERNS} ids or globs, not {tools!r:.100}")
    for each in tools:
        if not isinstance(each, str) or not _PATTERN.fullmatch(each) or ("*" not in each and each.count(":") < 2):
            raise ValueError(f"{each!r:.100} is neither a tool id such as 'mcp:github:create_issue' nor a glob of ids")
    return tuple(tools)
