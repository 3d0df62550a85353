"""Changed copies of values, of dataclasses and of `msgspec.Struct` alike."""

from __future__ import annotations

import dataclasses
from typing import Any

from msgspec import Struct, structs


def replace(value: Any, /, **changes: Any) -> Any:
    """Return a copy of a value with other members."""
    made = structs.replace if isinstance(value, Struct) else dataclasses.replace
    return made(value, **changes)
