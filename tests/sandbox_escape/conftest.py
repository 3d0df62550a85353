"""Guests of `tests/sandbox`, for programs that try to break out of them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "sandbox"))

from tests.sandbox.conftest import cell, run

__all__ = ["cell", "run"]
