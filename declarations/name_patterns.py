"""Patterns of property names as template literal types of TypeScript. Pure: no I/O."""

from __future__ import annotations

import re
from typing import Final

_SIMPLE_PATTERN: Final = re.compile(r"(?P<start>\^?)(?P<text>(?:[\w:@/ -]|\\[-./$])+)(?P<end>\$?)", re.ASCII)


def template_of(pattern: str) -> str | None:
    """Return the template literal type of names that match a simple pattern: `^x-` becomes `x-${string}`."""
    match = _SIMPLE_PATTERN.fullmatch(pattern)
    if match is None or (match["start"] and match["end"]):
        return None
    text = match["text"].replace("\\", "")
    return ("" if match["start"] else "${string}") + text + ("" if match["end"] else "${string}")


def matches(template: str, name: str) -> bool:
    """Return True if a name has a template literal type that `template_of` returned."""
    text = template.removeprefix("${string}").removesuffix("${string}")
    if not template.startswith("${string}"):
        return name.startswith(text)
    return text in name if template.endswith("${string}") else name.endswith(text)
