"""`codemode-mcp doctor` and `codemode-mcp setup`."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import typer

from codemode_mcp.cli.shared import ConfigOption, JsonOption, load, logging_as
from codemode_mcp.errors import CodeModeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


app = typer.Typer()


@app.command()
def doctor(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Check the configuration, the engine, esbuild and every server; say what to do."""
    from codemode_mcp.doctor import check_config, check_everything

    loaded, checks = check_config(config, os.environ)
    if loaded is not None:
        # What the checks are about is said by them.
        with logging_as(loaded, level="error"), without("plugin %r is refused"):
            checks += anyio.run(check_everything, loaded)
    if as_json:
        shown = [{"name": c.name, "status": c.status, "detail": c.detail, "advice": c.advice} for c in checks]
        print(json.dumps(shown, ensure_ascii=False, indent=2))  # noqa: T201
    else:
        for number, check in enumerate(checks):
            print(f"{check.status:<5} {check.name}: {check.detail}")  # noqa: T201
            # Once for all that it is about.
            if check.advice and check.advice not in [following.advice for following in checks[number + 1 : number + 2]]:
                print(f"      → {check.advice}")  # noqa: T201
    if loaded is None:
        raise typer.Exit(2)
    if any(check.status == "fail" for check in checks):
        raise typer.Exit(1)


@app.command()
def setup(config: ConfigOption = None) -> None:
    """Fetch esbuild into the user's cache and compile the engine."""
    from codemode_mcp.app import cache_dir
    from codemode_mcp.sandbox.engine import open_engine
    from codemode_mcp.typescript import fetch_esbuild, find_esbuild

    configured = load(config, None, None).tools.esbuild
    failed = False
    steps: list[tuple[str, Callable[[], str]]] = [
        ("esbuild", lambda: str(_found(configured, find_esbuild, fetch_esbuild, cache_dir()))),
        ("engine", lambda: _compiled(open_engine, cache_dir())),
    ]
    for name, step in steps:
        try:
            print(f"ok    {name}: {step()}")  # noqa: T201
        except CodeModeError as error:
            failed = True
            print(f"fail  {name}: {error.message}")  # noqa: T201
    if failed:
        raise typer.Exit(1)


def _found(configured: str | None, find: Callable[..., Path], fetch: Callable[..., Path], cache: Path) -> Path:
    try:
        return find(configured, environ=os.environ, cache_dir=cache)
    except CodeModeError:
        if configured is not None:
            raise
        return fetch(cache, registry=None)


def _compiled(open_engine: Callable[..., Any], cache: Path) -> str:
    with open_engine(cache, max_threads=1):
        return f"compiled, kept in {cache}"


@contextmanager
def without(beginning: str) -> Iterator[None]:
    """Keep messages of plugins that begin so out of the log."""
    import logging

    def others(record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(beginning)

    log = logging.getLogger("codemode_mcp.plugins")
    log.addFilter(others)
    try:
        yield
    finally:
        log.removeFilter(others)
