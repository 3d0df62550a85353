"""Parts of sentences about type errors. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codemode_mcp.did_you_mean import nearest
from codemode_mcp.type_check.type_text import MAX_MEMBERS

if TYPE_CHECKING:
    from collections.abc import Sequence


def suggested(name: str, members: Sequence[str], near: str | None) -> str:
    """Return the nearest names as the end of a sentence, or else all names."""
    close = [near] if near else nearest(name, members, count=1)
    if close:
        return f"; did you mean `{close[0]}`?"
    if not members:
        return ""
    more = ", …" if len(members) > MAX_MEMBERS else ""
    return f"; its members are {', '.join(sorted(members)[:MAX_MEMBERS])}{more}"


def quoted_names(names: str) -> str:
    """Return names that commas separate, each in quotes."""
    return ", ".join(f"`{name.strip()}`" for name in names.split(","))


def short_source(source: str) -> str:
    """Return an expression as it can be quoted in a sentence; empty if it is long."""
    return source if len(source) <= 60 and "\n" not in source else ""


def clipped(text: str) -> str:
    """Return a message of the compiler as the end of a sentence."""
    return text.rstrip(".") if len(text) <= 300 else text[:300] + "…"
