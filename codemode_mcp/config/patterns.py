"""Rules: the patterns of `allow`, `deny`, `ask` and `approved`.

A pattern that can match no tool is an error. In `deny`, a misspelled pattern would otherwise allow the tool.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from codemode_mcp.config.nodes import array_of, did_you_mean, quote
from codemode_mcp.policy.policy import SOURCES

if TYPE_CHECKING:
    from codemode_mcp.config.nodes import Node, Readers

ANNOTATION_TESTS = ("readOnly", "destructive", "idempotent", "openWorld")
"""Tests of annotations that `rules.matches` knows."""

_ALLOWED = (
    f'allowed: the annotation tests {", ".join(ANNOTATION_TESTS)} and id patterns like "mcp:github:*", '
    f"which start with {' '.join(SOURCES)} or *"
)


def id_pattern(node: Node) -> str:
    """Return an annotation test or a glob on whole ids."""
    pattern = node.text()
    literal = re.split(r"[*?]", pattern, maxsplit=1)[0]
    if literal == pattern:
        possible = pattern in ANNOTATION_TESTS or (pattern.startswith(SOURCES) and pattern.count(":") >= 2)
    else:
        possible = literal.startswith(SOURCES) or any(source.startswith(literal) for source in SOURCES)
    if node.valid and not possible:
        node.fail(f"{quote(pattern)} can match no tool{did_you_mean(pattern, ANNOTATION_TESTS)}; {_ALLOWED}")
    return pattern


RULES: Readers = dict.fromkeys(("allow", "deny", "ask", "approved"), array_of(id_pattern))
"""Readers for the lists of rules of `tools` and of a context."""


def tool_pattern(server: str, node: Node) -> str:
    """Return a glob on ids for a tool name, or a glob on tool names, in the `allow` or `deny` of a server."""
    pattern = node.nonblank()
    if pattern in ANNOTATION_TESTS:
        node.fail(f"{quote(pattern)} is an annotation test; write it in the lists under `tools`")
    elif pattern.startswith(SOURCES):
        node.fail(f'{quote(pattern)} is an id; write the tool name alone, or a glob like "delete_*"')
    return f"mcp:{server}:{pattern}"
