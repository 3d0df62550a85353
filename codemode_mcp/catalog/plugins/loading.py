"""Loading of plugins, as a whole or not at all, and the registrations of each."""

from __future__ import annotations

import asyncio
import copy
import importlib
import importlib.util
import inspect
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio
from msgspec import Struct

from codemode_mcp.base.did_you_mean import nearest
from codemode_mcp.base.errors import PluginError
from codemode_mcp.catalog.plugins.api import PluginApi, ToolError
from codemode_mcp.catalog.plugins.interception import THREADS
from codemode_mcp.catalog.plugins.running import Owner, Threads, describe_error, run_code, text_of
from codemode_mcp.catalog.plugins.scopes import Namespace, check_namespace
from codemode_mcp.catalog.plugins.tools import BadTool, CheckedTool, check_name, check_tool

if TYPE_CHECKING:
    from codemode_mcp.base.settings import PluginSettings
    from codemode_mcp.catalog.plugins.api import BeforeToolCall, CreateScope, Middleware, PluginTool, ToolFactory
    from upstream_clients.tools import JsonObject


log = logging.getLogger("codemode_mcp.plugins")

GROUP: Final = "codemode_mcp.plugins"
"""Group of the entry points of plugins."""

UNLOAD_SECONDS: Final = 2.0
"""Seconds for the `on_unload` callbacks of a plugin."""


class LoadError(Exception):
    """A plugin is refused. The message tells the operator why."""


def installed() -> dict[str, list[str]]:
    """Return the names of installed entry points, each with the distributions that define it."""
    from importlib import metadata  # takes 12 ms, and most servers have no plugins

    found: dict[str, list[str]] = {}
    for entry in metadata.entry_points(group=GROUP):
        found.setdefault(entry.name, []).append("?" if entry.dist is None else entry.dist.name)
    return found


def find_register(settings: PluginSettings, folder: Path, host: int = 1) -> Callable[[PluginApi], object]:
    """Import the module of a plugin, and return its `register` function.

    Args:
        folder: the folder that the path of a file is relative to.
        host: the number of the host of the plugin among those of this process. Each loads a module of its own from the
            same file, with a name of its own.

    Raises:
        LoadError: the entry point, module, file or function does not exist, or a value of the entry is missing.
            Importing may raise anything.
    """
    if settings.unusable:
        raise LoadError(settings.unusable)
    if settings.module is not None:
        return _from_module(settings.name, settings.module, folder, host)
    from importlib import metadata  # takes 12 ms, and most servers have no plugins

    entries = list(metadata.entry_points(group=GROUP, name=settings.name))
    if not entries:
        known = ", ".join(sorted(installed())) or "none"
        raise LoadError(
            f"no installed package has an entry point {settings.name!r} in the group {GROUP!r} (found: {known}); "
            'install the plugin beside codemode-mcp, or set its "module"'
        )
    # A package may be on the path twice, for example when it is installed for development.
    values = {entry.value for entry in entries}
    if len(values) > 1:
        owners = ", ".join(sorted({"?" if entry.dist is None else entry.dist.name for entry in entries}))
        raise LoadError(f'several packages have an entry point of this name: {owners}; set the "module" of one')
    entry = entries[0]
    return _attribute(importlib.import_module(entry.module), entry.module, entry.attr or "register")


def _from_module(name: str, module: str, folder: Path, host: int) -> Callable[[PluginApi], object]:
    where, _, attribute = module.rpartition(":")
    if not where.endswith(".py"):
        return _attribute(importlib.import_module(where), where, attribute)
    path = Path(folder, where)
    if not path.is_file():
        raise LoadError(f"the file {path} does not exist")
    module_name = f"codemode_mcp_plugin_{name.replace('-', '_')}" + (f"__{host}" if host > 1 else "")
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise LoadError(f"the file {path} cannot be imported")
    loaded = importlib.util.module_from_spec(spec)
    before = sys.modules.get(module_name)
    sys.modules[module_name] = loaded  # models and dataclasses look their module up there
    try:
        spec.loader.exec_module(loaded)
    except BaseException:
        if before is None:
            sys.modules.pop(module_name, None)
        else:
            sys.modules[module_name] = before
        raise
    return _attribute(loaded, where, attribute)


def _attribute(module: object, where: str, path: str) -> Callable[[PluginApi], object]:
    found: Any = module
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise LoadError(f"{where} has no {path!r}") from None
    if not callable(found):
        raise LoadError(f"{where}:{path} is not a function")
    return found  # type: ignore[no-any-return]


async def load(
    settings: PluginSettings,
    find: Callable[[], Callable[[PluginApi], object]],
    taken: tuple[Namespace, ...],
    seconds: float,
    *,
    source: Literal["plugin", "core"] = "plugin",
) -> Plugin:
    """Load a plugin, and return it with its registrations.

    Args:
        find: returns the `register` function.
        taken: the namespaces of other plugins.
        seconds: time limit for importing and registering.

    Raises:
        LoadError: the plugin is refused. Only the side effects of importing its module remain.
    """
    threads = Threads(THREADS, f"plugin {settings.name}")
    registration = Registration(settings.name, settings.config, taken)
    try:
        await _register(find, registration, threads, seconds)
        registration.check()
    except BaseException as error:
        registration.close()
        await unload(Owner(settings.name, threads), registration.unload)
        if isinstance(error, LoadError | asyncio.CancelledError):
            raise
        if isinstance(error, ValueError):
            raise LoadError(text_of(error)) from None
        raise _failed(error) from None
    return Plugin(
        name=settings.name,
        source=source,
        config=registration.config,
        threads=threads,
        groups=tuple(registration.groups),
        hooks=tuple(registration.hooks),
        middleware=tuple(registration.middleware),
        namespaces=tuple(registration.namespaces),
        unload=tuple(registration.unload),
        hook_grants=settings.hooks,
        middleware_grants=settings.middleware,
    )


async def _register(
    find: Callable[[], Callable[[PluginApi], object]], registration: Registration, threads: Threads, seconds: float
) -> None:
    def register() -> None:
        try:
            function = find()
            if inspect.iscoroutinefunction(function):
                raise LoadError("its register is async; it must be a plain function")
            function(registration)
        except LoadError:
            raise
        except ValueError as error:
            # The error says what could not be registered, unless the plugin has raised it itself.
            if registration.refused(error) or registration.is_closed:
                raise LoadError(text_of(error)) from None
            raise _failed(error) from None
        except BaseException as error:  # SystemExit and KeyboardInterrupt too
            raise _failed(error) from None
        finally:
            registration.close()

    with anyio.move_on_after(seconds), redirect_stdout(sys.stderr):  # stdout is for MCP and for the output of commands
        await threads.run(register)
        return
    raise LoadError(f"importing and registering took longer than {seconds:g} s")


def _failed(error: BaseException) -> LoadError:
    log.debug("full stack trace", exc_info=error)
    return LoadError(f"it raised {describe_error(error)}")


async def unload(plugin: Owner, callbacks: Iterable[Callable[[], object]], seconds: float = UNLOAD_SECONDS) -> None:
    """Call the `on_unload` callbacks of a plugin, the latest first, within `seconds`. Failures are logged."""
    what = "its on_unload callback"
    with anyio.move_on_after(seconds, shield=True) as scope:
        for callback in reversed(list(callbacks)):
            with suppress(ToolError, PluginError):
                await run_code(plugin, what, 2 * seconds, callback)
    if scope.cancelled_caught:
        log.error("plugin %r failed: %s took longer than %g s", plugin.name, what, seconds)
    plugin.threads.close()


# Registrations of one plugin as frozen records, and the `PluginApi` that collects them while `register` runs.


MAX_TOOLS = 10_000
"""Maximum number of tools of one plugin."""

MAX_PATTERNS = 1_000
"""Maximum number of patterns of one hook or middleware."""

_PATTERN = re.compile(r"[^\s\x00-\x1f]{1,500}")


class ToolGroup(Struct, frozen=True, eq=False):
    """The tools of one factory.

    Attributes:
        names: the names of all tools that the factory may return.
        fixed: the one tool that is the same for all callers; None if the factory is called for each caller.
    """

    names: tuple[str, ...]
    factory: ToolFactory
    optional: bool = False
    fixed: CheckedTool | None = None


class Intercept(Struct, frozen=True):
    """A hook or a middleware.

    Attributes:
        tools: ids or globs of the tools whose calls it sees; empty for the plugin's own tools.
    """

    callback: BeforeToolCall | Middleware
    tools: tuple[str, ...] = ()


class Plugin(Owner, frozen=True, eq=False):
    """A loaded plugin.

    Attributes:
        source: `core` for a plugin that comes with this product.
        hook_grants: ids or globs of other tools whose calls the operator lets its hooks see.
        middleware_grants: the same for its middleware.
    """

    source: Literal["plugin", "core"]
    config: JsonObject
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
