"""Types of which no value fits another type, also when it is sent as JSON. Pure."""

from __future__ import annotations

from typing import Final

from codemode_mcp.type_check.type_text import are_literals, is_literal, union_of

PRIMITIVES: Final = frozenset(("string", "number", "boolean"))
_JSON_TEXTS: Final = frozenset(("Date", "URL"))
"""Objects that become strings when they are sent."""


def never_fits(source: str, target: str) -> bool:
    """Return True if no value of the source type fits the target, which the compiler has refused."""
    parts = union_of(source)
    if source in _JSON_TEXTS or source in ("{}", "object", "void", "never", "unknown", "Object"):
        return False
    if len(parts) > 1 and not are_literals(source) and source != "boolean":
        return False
    if source in PRIMITIVES:
        # A string may be one of some literals. It is no number and no object.
        return all(base_of(each) != source for each in union_of(target) if is_literal(each))
    return True


def base_of(literal: str) -> str:
    """Return the type of a literal."""
    return "string" if literal.startswith('"') else "boolean" if literal in ("true", "false") else "number"


def is_no_object(type_: str) -> bool:
    """Return True for an array, and for a type without members."""
    return type_ in PRIMITIVES or is_literal(type_) or (type_.endswith("[]") and len(union_of(type_)) == 1)
