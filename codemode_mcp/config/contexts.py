"""`tools.contexts`: other rules for some callers. A faulty one fails closed: no caller gets its rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from codemode_mcp.config.nodes import did_you_mean, quote
from codemode_mcp.config.patterns import id_pattern
from codemode_mcp.settings import PolicyContext, PolicyRules

if TYPE_CHECKING:
    from codemode_mcp.config.nodes import Node

RULE_KEYS = ("allow", "deny", "ask", "approved")
"""The lists of rules of `tools`, and of a context."""

_KINDS = ("stdio", "principal", "group", "anonymous")
_ALLOWED = 'allowed: "stdio", "stdio:<login name>", "principal:<name>", "group:<name>" and "anonymous"'


def rules_of(fields: dict[str, Node]) -> dict[str, Any]:
    """Return the lists of rules that are given, by key."""
    return {key: tuple(map(id_pattern, fields[key].items())) for key in RULE_KEYS if key in fields}


def read_contexts(node: Node, base: PolicyRules) -> tuple[PolicyContext, ...]:
    """Return the contexts in the order of the file; `base` are the rules of `tools`, by which they are completed."""
    if node.value is None:
        return ()
    return tuple(_context(name, entry, base) for name, entry in node.entries().items())


def _context(name: str, node: Node, base: PolicyRules) -> PolicyContext:
    if not name.strip() or not name.isprintable():
        node.fail("a context needs a name that can be printed")
    fields = node.fields(("for", *RULE_KEYS, "readOnly"))
    callers: tuple[str, ...] = ()
    if "for" in fields:
        callers = tuple(map(_caller, fields["for"].items()))
        if isinstance(fields["for"].value, list) and not callers:
            fields["for"].fail(f"names no caller; {_ALLOWED}")
    elif isinstance(node.value, dict):
        node.fail(f"needs `for`: whom it is about; {_ALLOWED}")
    rules: dict[str, Any] = {
        "allow": base.allow,
        "deny": base.deny,
        "ask": base.ask,
        "approved": base.approved,
    }
    given = rules_of(fields)
    rules |= given
    rules["deny"] = (*base.deny, *given.get("deny", ()))
    if "readOnly" in fields:
        rules["read_only"] = fields["readOnly"].flag()
    return PolicyContext(name, callers, PolicyRules(**rules), frozenset(given))


def _caller(node: Node) -> str:
    """Return one of `for`: a kind of caller, and a name or a glob of it."""
    described = node.filled()
    if not node.sound:
        return described
    kind, colon, name = described.partition(":")
    if kind not in _KINDS:
        node.fail(f"{quote(described)} describes no caller{did_you_mean(kind, _KINDS)}; {_ALLOWED}")
    elif kind == "anonymous" and colon:
        node.fail('"anonymous" takes no name: it is every caller over HTTP without credentials')
    elif kind in ("principal", "group") and not name.strip():
        node.fail(f'needs a name: "{kind}:<name>"')
    elif kind == "stdio" and colon and not name.strip():
        node.fail('needs a name after the colon, or no colon: "stdio" is the user who started this server')
    return described
