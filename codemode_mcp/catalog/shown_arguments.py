"""The input schema that programs see if the configuration sets or hides arguments of a tool. Pure.

The shown schema accepts the input of a program if the tool's own schema may accept the same input together with the
arguments of the configuration. It is no promise: before a call is sent, the complete arguments are checked against the
tool's own schema. So where a keyword says something about a reserved argument that cannot be said without it (`not`,
`if`), the shown schema leaves the keyword out.

Arguments may be declared at the top, and in the alternatives and references that apply to the whole input (`allOf`,
`anyOf`, `oneOf`, `$ref`). An alternative that contradicts a fixed value, such as another `kind` of a union, is left
out. A secret value decides nothing, because the shown schema would reveal it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

from codemode_mcp.base.did_you_mean import one_hint
from upstream_clients.json_values import pointer_part, values_in
from upstream_clients.schema_expansion import follow_pointer
from upstream_clients.schemas import SchemaParts, is_legacy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from codemode_mcp.base.settings import ToolOverride
    from upstream_clients.tools import JsonObject

MAX_STEPS: Final = 2_000
"""Maximum number of subschemas that are rewritten. References may repeat a subschema."""

_DEFINITIONS: Final = ("$defs", "definitions")
_BESIDE_A_REFERENCE: Final = frozenset({"$ref", "$schema", "$id", "$comment", "title", "description", *_DEFINITIONS})
"""Keywords that accept every value, so that the target of a reference can take their place."""

_COMBINING: Final = (
    *("$ref", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "const", "enum", "$dynamicRef", "$recursiveRef"),
    *("dependentRequired", "dependentSchemas", "dependencies", "minProperties", "maxProperties"),
)
_ON_ALL_MEMBERS: Final = frozenset(
    (
        *("additionalProperties", "unevaluatedProperties", "patternProperties", "propertyNames"),
        *("minProperties", "maxProperties", "$ref"),
    )
)
_BY_CONFIGURATION: Final = "The configuration sets a value if you leave it out."


class ShownSchema(NamedTuple):
    """The rewritten schema of a tool.

    Attributes:
        problems: what does not fit between the schema and the configuration. Each is a clause about the override.
    """

    schema: JsonObject
    problems: tuple[str, ...]


def shown_schema(schema: JsonObject, override: ToolOverride) -> ShownSchema:
    """Return the schema of a tool without reserved arguments, and with the defaults of the configuration."""
    rewriting = _Rewriting(schema, override)
    try:
        shown = rewriting.rewrite(schema, ())
    except _TooComplex as error:
        rewriting.problems.append(
            f"is applied in part: the schema of the tool {error}, so programs see only its plain arguments"
        )
        shown = False
    else:
        if shown is False:
            rewriting.problems.append("leaves no input that fits the schema of the tool, so that every call fails")
    if shown is False:
        plain = {key: value for key, value in schema.items() if key not in _COMBINING}
        shown = _Rewriting(plain, override).rewrite(plain, ())
    if not isinstance(shown, dict):
        shown = {"type": "object"}
    if rewriting.inlined:
        _drop_unused_definitions(shown)
    return ShownSchema(shown, (*rewriting.problems, *_misfits(schema, override, rewriting.declared)))


class _TooComplex(Exception):
    """Error for a schema that is not rewritten. The text follows "the schema of the tool"."""


class _Rewriting:
    """The rewriting of one schema. The last three attributes are the mutable state.

    Attributes:
        declared: the names of arguments that the schema declares for the whole input.
        inlined: True if the target of a reference has replaced the reference.
    """

    def __init__(self, root: JsonObject, override: ToolOverride) -> None:
        self._root = root
        self._override = override
        self._given = {*override.fixed, *override.default, *(required_defaults(root).keys() & override.hidden)}
        self._known = {name: value for name, value in override.fixed.items() if name not in override.secret}
        self._steps = 0
        self.declared: dict[str, None] = {}
        self.problems: list[str] = []
        self.inlined = False

    def rewrite(self, schema: Any, followed: tuple[str, ...], *, always: bool = True) -> Any:
        """Return the subschema for the input of a program; False if no input fits.

        Args:
            followed: the references that lead to this subschema.
            always: True if every input has to fit this subschema, because it is not one of several alternatives.
        """
        self._steps += 1
        if self._steps > MAX_STEPS or len(followed) > 100:
            raise _TooComplex("has too many references and alternatives")
        if not isinstance(schema, dict):
            return schema
        shown = dict(schema)
        fits = self._properties(shown) and self._required(shown, always=always)
        fits = fits and self._dependencies(shown, followed) and self._alternatives(shown, followed, always=always)
        if not fits:
            return False
        self._conditions(shown, followed)
        if not self._counts(shown):
            return False
        return self._reference(shown, followed, always=always)

    def _properties(self, shown: dict[str, Any]) -> bool:
        properties = shown.get("properties")
        if not isinstance(properties, dict):
            return True
        self.declared |= dict.fromkeys(properties)
        override = self._override
        if not (override.reserved.union(override.default) & properties.keys()):
            return True
        kept = {}
        for name, part in properties.items():
            if name in override.default:
                kept[name] = self._with_default(name, part)
            elif name not in override.reserved:
                kept[name] = part
            elif name in self._known and _excludes(part, self._known[name]):
                return False
        shown["properties"] = kept
        for key in ("default", "examples", "example"):  # whole inputs, with all arguments
            shown.pop(key, None)
        return True

    def _with_default(self, name: str, part: Any) -> Any:
        part = part if isinstance(part, dict) else {}
        if name not in self._override.secret:
            return {**part, "default": self._override.default[name]}
        described = part.get("description")
        text = f"{described.rstrip()} {_BY_CONFIGURATION}" if isinstance(described, str) else _BY_CONFIGURATION
        return {key: value for key, value in part.items() if key != "default"} | {"description": text}

    def _required(self, shown: dict[str, Any], *, always: bool) -> bool:
        required = shown.get("required")
        if not isinstance(required, list):
            return True
        left = [name for name in required if name not in self._given]
        missing = [name for name in left if name in self._override.hidden]
        if missing and not always:
            return False
        for name in missing:
            self.problems.append(
                f'hides the argument "{name}", which the tool requires, so that every call fails; give it a value in '
                "`fixed` instead"
            )
        left = [name for name in left if name not in missing]
        if left != required:
            shown["required"] = left
            if not left:
                del shown["required"]
        return True

    def _dependencies(self, shown: dict[str, Any], followed: tuple[str, ...]) -> bool:
        """Apply what depends on an argument of the configuration, which is always or never there."""
        required: list[Any] = []
        for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
            table = shown.get(keyword)
            if not isinstance(table, dict):
                continue
            left = {}
            for name, needed in table.items():
                part: Any = {"required": needed} if isinstance(needed, list) else needed
                if name in self._given:
                    required.append(part)  # `_alternatives` rewrites it
                elif name in self._override.hidden:
                    continue
                elif isinstance(needed, list):
                    self._required(part, always=False)
                    left[name] = part.get("required", [])
                else:
                    left[name] = self.rewrite(needed, followed, always=False)
            if left != table:
                shown[keyword] = left
                if not left:
                    del shown[keyword]
        if any(part is False for part in required):
            return False
        if required := [part for part in required if part not in ({}, True)]:
            shown["allOf"] = [*shown.get("allOf", ()), *required]
        return True

    def _alternatives(self, shown: dict[str, Any], followed: tuple[str, ...], *, always: bool) -> bool:
        for keyword in ("allOf", "anyOf", "oneOf"):
            branches = shown.get(keyword)
            if not isinstance(branches, list):
                continue
            among = keyword != "allOf"
            rewritten = [self.rewrite(branch, followed, always=always and not among) for branch in branches]
            if rewritten == branches and not (keyword == "oneOf" and _counts_all_members(branches)):
                continue
            left = [branch for branch in rewritten if branch is not False]
            if not left or (not among and len(left) < len(rewritten)):
                return False
            del shown[keyword]
            if among and any(branch in ({}, True) for branch in left):
                continue
            if keyword != "oneOf":
                shown[keyword] = left
            # Without an argument that told them apart, several alternatives of `oneOf` may fit.
            elif "anyOf" in shown:
                shown["allOf"] = [*shown.get("allOf", ()), {"anyOf": left}]
            else:
                shown["anyOf"] = left
        return True

    def _conditions(self, shown: dict[str, Any], followed: tuple[str, ...]) -> None:
        def depends(part: Any) -> bool:
            return _counts_all_members(part) or self.rewrite(part, followed, always=False) != part

        if "not" in shown and depends(shown["not"]):
            del shown["not"]
        keys = [key for key in ("if", "then", "else") if key in shown]
        if any(depends(shown[key]) for key in keys):
            for key in keys:
                del shown[key]
        for keyword in ("const", "enum"):
            if keyword in shown:
                self.problems.append(f"has arguments for a tool whose schema lists whole inputs (`{keyword}`)")
                del shown[keyword]

    def _counts(self, shown: dict[str, Any]) -> bool:
        lowest, highest = shown.get("minProperties"), shown.get("maxProperties")
        if self._given and isinstance(lowest, int | float):
            shown["minProperties"] = max(0, lowest - len(self._given))
        if self._override.fixed and isinstance(highest, int | float):
            shown["maxProperties"] = highest - len(self._override.fixed)
            return bool(shown["maxProperties"] >= 0)
        return True

    def _reference(self, shown: dict[str, Any], followed: tuple[str, ...], *, always: bool) -> Any:
        """Put the target of a reference in its place if the target has arguments of the configuration."""
        reference = shown.get("$ref")
        for keyword in ("$dynamicRef", "$recursiveRef"):
            if keyword in shown:
                raise _TooComplex(f"uses `{keyword}`")
        if not isinstance(reference, str) or reference in followed:
            return shown
        target: Any = None
        if reference.startswith("#") and (reference == "#" or reference[1] == "/"):
            target = next((node for node, _ in follow_pointer((self._root,), unquote(reference[1:]))), None)
        if target is None:
            raise _TooComplex(f"refers to {reference[:60]!r}, which is not a part of it")
        rewritten = self.rewrite(target, (*followed, reference), always=always)
        if rewritten is False:
            return False
        if rewritten == target:
            return shown
        self.inlined = True
        del shown["$ref"]
        if not isinstance(rewritten, dict):
            return shown
        if shown.keys() <= _BESIDE_A_REFERENCE or is_legacy(self._root):
            beside = {key: value for key, value in shown.items() if key in _BESIDE_A_REFERENCE}
            return {**rewritten, **beside}
        return {**shown, "allOf": [*shown.get("allOf", ()), rewritten]}


def required_defaults(schema: JsonObject) -> dict[str, Any]:
    """Return the defaults of the arguments that the tool requires. If one is hidden, its default is sent."""
    required, properties = schema.get("required"), schema.get("properties")
    if not isinstance(required, list) or not isinstance(properties, dict):
        return {}
    parts = {name: properties.get(name) for name in required if isinstance(name, str)}
    return {name: part["default"] for name, part in parts.items() if isinstance(part, dict) and "default" in part}


def _counts_all_members(part: Any) -> bool:
    """Return True if a keyword in a subschema may depend on any member of the input, whatever its name."""
    return any(isinstance(each, dict) and not _ON_ALL_MEMBERS.isdisjoint(each) for each in values_in(part))


def _excludes(part: Any, value: Any) -> bool:
    """Return True if a subschema certainly does not accept a value: a constant, or one of a few choices."""
    if not isinstance(part, dict):
        return part is False
    choices = [part["const"]] if "const" in part else part.get("enum")
    return isinstance(choices, list) and not any(_same(each, value) for each in choices)


def _same(one: Any, other: Any) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _drop_unused_definitions(schema: dict[str, Any]) -> None:
    while True:
        used = {
            unquote(each["$ref"])
            for each in values_in(schema)
            if isinstance(each, dict) and isinstance(each.get("$ref"), str)
        }
        unused = [
            (table, name)
            for table in _DEFINITIONS
            if isinstance(schema.get(table), dict)
            for name in schema[table]
            if not any(each.startswith(f"#/{table}/{pointer_part(name)}") for each in used)
        ]
        if not unused or any(not each.startswith("#/") for each in used):
            return
        for table, name in unused:
            schema[table] = {key: value for key, value in schema[table].items() if key != name}
            if not schema[table]:
                del schema[table]


def _misfits(schema: JsonObject, override: ToolOverride, declared: Mapping[str, None]) -> Iterator[str]:
    """Yield the arguments of the configuration that the schema does not declare, and values that do not fit it."""
    for name in (*override.fixed, *override.default, *override.hidden):
        if name not in declared:
            yield f'names the argument "{name}", which the tool does not declare{one_hint(name, declared)}'
    properties = schema.get("properties")
    parts = SchemaParts(schema)
    for key, values in (("fixed", override.fixed), ("default", override.default)):
        for name, value in values.items():
            is_declared = isinstance(properties, dict) and name in properties
            if is_declared and parts.is_valid(f"/properties/{pointer_part(name)}", value) is False:
                yield f'gives the argument "{name}" in `{key}` a value that does not fit the schema of the tool'
