"""The levels of the log. `settings` takes longer to import."""

from __future__ import annotations

from typing import Final, Literal, get_args

LogLevel = Literal["debug", "info", "warning", "error"]

LOG_LEVELS: Final[tuple[LogLevel, ...]] = get_args(LogLevel)
