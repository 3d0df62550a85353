"""The check of the model, and the vectors of all tools ahead of time."""

from __future__ import annotations

import importlib.util
import time
from typing import TYPE_CHECKING

import anyio.to_thread

from codemode_mcp.base.installation import install_command
from codemode_mcp.base.paths import vectors_dir
from codemode_mcp.catalog.overrides import Overrides
from codemode_mcp.catalog.per_caller import build
from codemode_mcp.cli.check import Check, elapsed_ms
from codemode_mcp.extensions.semantic.model import TOKENIZER, WEIGHTS, Embedder, Meaning, Unavailable, available
from codemode_mcp.rules.policy.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from codemode_mcp.config import Config
    from upstream_clients.tools import UpstreamView


def check_search() -> Iterable[Check]:
    """Check the packages of the extra `semantic`, and run its model."""
    again = install_command("semantic", again=True)
    if not available():
        parts = [each for each in (WEIGHTS.package, TOKENIZER.package) if importlib.util.find_spec(each) is not None]
        if parts:
            detail = f"by words: the extra `semantic` is incomplete, only {', '.join(parts)} is installed"
            yield Check("search", "warn", detail, again)
        else:
            advice = f"to search by meaning too (200 MB): {install_command('semantic')}"
            yield Check("search", "info", "by words; the extra `semantic` is not installed", advice)
        return
    began = time.monotonic()
    try:
        Embedder().embed(["open an issue"])
    except Unavailable as error:
        yield Check("search", "warn", f"by words: {error}", again)
    except Exception as error:
        yield Check("search", "warn", f"by words: the model does not run ({type(error).__name__})", again)
    else:
        yield Check("search", "ok", f"by words and by meaning; the model is loaded in {elapsed_ms(began):,} ms")


async def prepare(config: Config, report: Callable[[Check], None], views: Sequence[UpstreamView]) -> None:
    """Make the vectors of all tools."""
    if not available():
        return
    began = time.monotonic()
    try:
        folder = await anyio.to_thread.run_sync(_fill, config, views, abandon_on_cancel=True)
    except Exception as error:
        detail = f"vectors cannot be made ({type(error).__name__}); search goes by words"
        report(Check("search", "warn", detail, "run codemode-mcp doctor and see its line on search"))
        return
    report(
        Check("search", "ok", f"by meaning too: all tools were read in {elapsed_ms(began):,} ms, stored in {folder}")
    )


def _fill(config: Config, views: Sequence[UpstreamView]) -> Path:
    meaning = Meaning(vectors_dir())
    overrides = Overrides(config.tools.overrides)
    build(views, Policy(config.tools.policy), meaning, overrides=overrides).prepare_search()
    meaning.fill(lambda: False)
    return vectors_dir()
