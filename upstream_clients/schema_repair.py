"""Schemas that the validator refuses, in a form that it can read. Pure.

The validator refuses a whole schema because of one keyword with a wrong value. Here, only this keyword is left out: a
value of the wrong type, a pattern that does not match in linear time, a reference that leads nowhere or outside.
Declarations ignore these anyway. Forms of older drafts are converted if the schema does not state its draft.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from upstream_clients.schema_expansion import SchemaExpansion
from upstream_clients.schema_walk import (
    ANNOTATIONS,
    BY_NAME,
    LISTS,
    NEGATIVE,
    POSITIVE,
    Path,
    Rewritten,
    Walk,
    names,
    number,
    without,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from upstream_clients.tools import JsonObject

_DIALECT: Final = re.compile(r"https?://json-schema\.org/(?:draft-0[467]/|draft/20(?:19-09|20-12)/)?schema#?")
_TYPES: Final = frozenset(("null", "boolean", "number", "integer", "string", "array", "object"))
_UNEVALUATED: Final = ("unevaluatedProperties", "unevaluatedItems")
_BOUNDS: Final = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))


def repair(schema: JsonObject) -> Rewritten:
    """Return a schema without what the validator cannot read, as far as that is known."""
    return _Repairing(schema).run()


def _is_schema(value: Any) -> bool:
    return isinstance(value, (dict, bool))


def _is_count(value: Any) -> bool:
    found = number(value)
    return found is not None and found >= 0 and (isinstance(found, int) or found.is_integer())


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_type(value: Any) -> bool:
    stated = value if isinstance(value, list) else [value]
    return bool(stated) and all(isinstance(each, str) and each in _TYPES for each in stated)


_READABLE: Final[dict[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("title", "description", "$comment", "format", "contentEncoding", "contentMediaType"), _is_text),
    **dict.fromkeys(("minimum", "maximum"), lambda each: number(each) is not None),
    **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), lambda each: isinstance(each, int | float)),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _is_count),
    **dict.fromkeys(("minContains", "maxContains"), _is_count),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _is_flag),
    **dict.fromkeys(("enum", "examples", "required"), lambda each: isinstance(each, list)),
    **dict.fromkeys(POSITIVE | NEGATIVE, _is_schema),
    **dict.fromkeys((*BY_NAME, "dependentRequired"), lambda each: isinstance(each, dict)),
    **dict.fromkeys(LISTS, lambda each: isinstance(each, list) and bool(each)),
    "multipleOf": lambda each: (number(each) or 0) > 0,
    "type": _is_type,
    "pattern": _is_text,
    "$id": lambda each: isinstance(each, str) and re.search(r"\s", each) is None,
}
"""Conditions for the values of keywords."""


class _Repairing(Walk):
    """The walk of `repair`."""

    def __init__(self, root: JsonObject) -> None:
        super().__init__(root)
        self._is_draft_04 = "draft-04" in str(root.get("$schema"))
        self._expansion = SchemaExpansion(root)

    def step(self, node: dict[str, Any], path: Path, *, is_positive: bool) -> dict[str, Any]:
        node = self._in_dialect(node, path)
        wrong = [keyword for keyword in node.keys() & _READABLE.keys() if not _READABLE[keyword](node[keyword])]
        if isinstance(node.get("pattern"), str) and self.validator({"pattern": node["pattern"]}) is None:
            wrong.append("pattern")
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            if keyword in node and not self._expansion.leads_somewhere(keyword, node[keyword]):
                # In older drafts, other keywords have no effect beside a reference. In later ones, what it leads to may
                # declare members.
                beside = [each for each in node if each not in ANNOTATIONS] if self.is_legacy else _UNEVALUATED
                wrong += [keyword, *(each for each in beside if each in node)]
        if wrong:
            shown = ", ".join(f'"{keyword}"' for keyword in sorted(set(wrong)))
            node = self.weakened(without(node, wrong), path, f"{shown} cannot be read and is left out")
        return self._with_readable_members(node, path)

    def _in_dialect(self, node: dict[str, Any], path: Path) -> dict[str, Any]:
        """Return a schema in the forms of the draft by which it is read."""
        node = dict(node)
        dialect = node.get("$schema")
        if dialect is not None and not (isinstance(dialect, str) and _DIALECT.fullmatch(dialect)):
            del node["$schema"]
            if self.is_legacy and not path:
                node["$schema"] = "http://json-schema.org/draft-07/schema#"
        items = node.get("items")
        if isinstance(items, list) and not self.is_legacy:
            del node["items"]
            if "additionalItems" in node:
                node["items"] = node.pop("additionalItems")
            if items:
                node.setdefault("prefixItems", items)
        for strict, bound in _BOUNDS:
            if self._is_draft_04 and number(node.get(strict)) is not None:
                node |= {bound: node[strict], strict: True}
            elif isinstance(node.get(strict), bool) and not self._is_draft_04 and (node.pop(strict) and bound in node):
                node[strict] = node.pop(bound)
        anchor = node.get("$id")
        if isinstance(anchor, str) and anchor.startswith("#") and not self.is_legacy:
            node["$anchor"] = node.pop("$id")[1:]
        if isinstance(node.get("required"), list):
            self.spend(len(node["required"]) // 20)
            node["required"] = list(dict.fromkeys(names(node["required"])))
            if not node["required"]:
                del node["required"]
        if isinstance(node.get("type"), list):
            node["type"] = list(dict.fromkeys(map(str, node["type"])))
        return node

    def _with_readable_members(self, node: dict[str, Any], path: Path) -> dict[str, Any]:
        """Return a schema whose subschemas are schemas. Everything is accepted in place of one that is none."""
        for keyword in node.keys() & (BY_NAME | LISTS):
            value = node[keyword]
            if isinstance(value, list):
                node[keyword] = [each if _is_schema(each) else {} for each in value]
            else:
                node[keyword] = {
                    name: each if _is_schema(each) or (keyword == "dependencies" and isinstance(each, list)) else {}
                    for name, each in value.items()
                }
        if "dependentRequired" in node:
            node["dependentRequired"] = {name: names(each) for name, each in node["dependentRequired"].items()}
        rules = node.get("patternProperties", {})
        bad = [pattern for pattern in rules if self.validator({"pattern": pattern}) is None]
        if bad:
            # Names that match are not known, so other members may have these schemas.
            others = node.get("additionalProperties", True)
            node["patternProperties"] = without(rules, bad)
            node["additionalProperties"] = others in (True, {}) or {"anyOf": [*(rules[each] for each in bad), others]}
            self.weakened(node, path, '"patternProperties" has patterns that cannot be read and are left out')
        return node
