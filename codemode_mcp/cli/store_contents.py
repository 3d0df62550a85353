"""The contents of a configuration's store, for `codemode-mcp runs`, which only reads it and never creates one."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio

from codemode_mcp.errors import CodeModeError, ConfigError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from codemode_mcp.settings import StoreSettings

READ_SECONDS = 10.0
"""Timeout for reading a database."""


@dataclass(frozen=True, slots=True)
class StoreContents:
    """The runs in a store.

    Attributes:
        name: the name of the store; empty if there is none, or it was not read.
        runs, totals: in the form in which serving processes report them.
        problem: why the store could not be read.
    """

    name: str = ""
    runs: tuple[dict[str, Any], ...] = ()
    totals: dict[str, Any] | None = None
    problem: str | None = None


def read_store(config: str | None, known: Collection[str]) -> StoreContents:
    """Return the contents of the store that `serve` would use with this configuration.

    Args:
        known: names of stores that were reported by serving processes. They are not read.
    """
    from codemode_mcp.cli.confirming import find, refuse_unknown
    from codemode_mcp.config import load_store
    from codemode_mcp.config.confirmation import Gate
    from codemode_mcp.paths import state_dir
    from codemode_mcp.settings import StoreSettings
    from codemode_mcp.stores.opening import file_of, name_of

    gate = Gate(refuse_unknown)
    try:
        settings = load_store(find(config, gate.remember), environ=os.environ, admit=gate.admit) or StoreSettings(
            "sqlite"
        )
    except ConfigError as error:
        return StoreContents(problem=f"the store of suspended runs was not read: {error.problems[0]}")
    if settings.kind == "memory":
        return StoreContents()
    folder = state_dir()
    name = name_of(settings, folder)
    if name in known or (settings.kind == "sqlite" and not file_of(settings, folder).is_file()):
        return StoreContents()
    # Errors are part of the result. Without a handler, log records would go to the terminal.
    logging.getLogger("codemode_mcp").addHandler(logging.NullHandler())
    return anyio.run(_read, settings, name, folder)


async def _read(settings: StoreSettings, name: str, folder: Path) -> StoreContents:
    from codemode_mcp.control.answers import place_of_stored, run_report, store_report
    from codemode_mcp.settings import CodeModeSettings
    from codemode_mcp.stores.opening import open_database
    from codemode_mcp.stores.runs import DurableStore
    from codemode_mcp.stores.seal import Seal

    try:
        with anyio.fail_after(READ_SECONDS):
            async with open_database(settings, wall=time.time, folder=folder) as database:
                seal = Seal(settings.encryption_keys)
                store = DurableStore(database, seal, CodeModeSettings(), clock=time.monotonic, kind=settings.kind)
                views, totals = await store.views(), await store.totals()
    except StoreUnavailable as error:
        return StoreContents(problem=error.detail)
    except CodeModeError as error:
        return StoreContents(problem=error.message)
    except TimeoutError:
        return StoreContents(problem=f"the store {name} has not answered within {READ_SECONDS:g} s; try again")
    runs = tuple(run_report(view, place_of_stored(view), lambda _: False) for view in views)
    return StoreContents(name, runs, {"kind": settings.kind, "name": name, **store_report(totals)})
