"""Text that is cut, joined and quoted for a message. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence


def clip(text: str, limit: int) -> str:
    """Return at most `limit` characters of a text, the last one `…` if the text is longer."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def one_line(text: str, limit: int = 200) -> str:
    return clip(" ".join(text[: 4 * limit].split()), limit)


def quoted(text: str) -> str:
    """Return the first 100 characters of a text as JSON."""
    return json.dumps(text if len(text) <= 100 else text[:100] + "…", ensure_ascii=False)


def listed(names: Sequence[str], limit: int = 5) -> str:
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def utf8_size(text: str) -> int:
    """Return the size of a text in bytes of UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
