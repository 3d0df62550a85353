"""Loading of plugins: finds the `register` function and calls it. A plugin is loaded as a whole, or refused."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import logging
import sys
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio

from codemode_mcp.errors import PluginError
from codemode_mcp.plugins.api import ToolError
from codemode_mcp.plugins.interception import THREADS
from codemode_mcp.plugins.registry import Plugin, Registration
from codemode_mcp.plugins.running import CodeOwner, describe_error, run_code, text_of
from codemode_mcp.plugins.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from codemode_mcp.plugins.api import PluginApi
    from codemode_mcp.plugins.namespaces import Namespace
    from codemode_mcp.plugins.running import Owner
    from codemode_mcp.settings import PluginSettings

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
        await unload(CodeOwner(settings.name, threads), registration.unload)
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
