"""Contents of the store of a configuration, for `codemode-mcp runs`, which reads it and never makes one."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from codemode_mcp.errors import CodeModeError, ConfigError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Collection

    from codemode_mcp.settings import StoreSettings

LOOK_SECONDS = 10.0
"""Seconds to read a database."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Contents of a store.

    Attributes:
        name: empty where there is no store, or it was not looked at.
        runs, totals: as serving processes tell them.
        problem: why it could not be looked at.
    """

    name: str = ""
    runs: tuple[dict[str, Any], ...] = ()
    totals: dict[str, Any] | None = None
    problem: str | None = None


def look(config: str | None, known: Collection[str]) -> Stored:
    """Return the store that `serve` with this configuration would use, unless it is one of those `known` by name."""
    from codemode_mcp.cli.confirming import refuse_unknown
    from codemode_mcp.config import find_config, load_store
    from codemode_mcp.config.trust import Gate
    from codemode_mcp.paths import config_dir, state_dir
    from codemode_mcp.settings import StoreSettings
    from codemode_mcp.stores.opening import file_of, name_of

    gate = Gate(refuse_unknown)
    try:
        path = find_config(config, environ=os.environ, cwd=Path.cwd(), user_config_dir=config_dir(), admit=gate.find)
        settings = load_store(path, environ=os.environ, admit=gate.admit) or StoreSettings("sqlite")
    except ConfigError as error:
        return Stored(problem=f"the store of suspended runs was not looked at: {error.problems[0]}")
    if settings.kind == "memory":
        return Stored()
    name = name_of(settings, state_dir())
    # Errors are part of the answer; logging is not set up, so records would go to the terminal.
    logging.getLogger("codemode_mcp").addHandler(logging.NullHandler())
    if name in known or (settings.kind == "sqlite" and not file_of(settings, state_dir()).is_file()):
        return Stored()
    return anyio.run(_look, settings, name, state_dir())


async def _look(settings: StoreSettings, name: str, folder: Path) -> Stored:
    from codemode_mcp.control.answers import place_of_stored, run_report, store_report
    from codemode_mcp.settings import CodeModeSettings
    from codemode_mcp.stores.opening import open_database
    from codemode_mcp.stores.runs import DurableStore
    from codemode_mcp.stores.seal import Seal

    try:
        with anyio.fail_after(LOOK_SECONDS):
            async with open_database(settings, wall=time.time, folder=folder) as database:
                store = DurableStore(
                    database,
                    Seal(settings.encryption_keys),
                    CodeModeSettings(),
                    clock=time.monotonic,
                    kind=settings.kind,
                )
                views, totals = await store.views(), await store.totals()
    except StoreUnavailable as error:
        return Stored(problem=error.detail)
    except CodeModeError as error:
        return Stored(problem=error.message)
    except TimeoutError:
        return Stored(problem=f"the store {name} has not answered within {LOOK_SECONDS:g} s; try again")
    runs = tuple(run_report(view, place_of_stored(view), lambda _: False) for view in views)
    return Stored(name, runs, {"kind": settings.kind, "name": name, **store_report(totals)})
