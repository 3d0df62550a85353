"""Names, types and defaults of the parameters of a draft. Pure.

A parameter has the name of the property or of the constant in which its literal stood. Literals with the same name and
the same value share one parameter. If another value has the name already, the parameter gets a number: `state`,
`state2`, `state3`. The variable in the program has the same name; it gets a number if the program uses that name for
something else.

A literal that looks like a secret becomes a required parameter. Its value is neither default nor example.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from codemode_mcp.base.text import clip
from codemode_mcp.extensions.program_tools.drafts.literals import UNKNOWN, Literal, _is_secret
from codemode_mcp.program.syntax import from_utf16_units
from declarations.names import OBJECT_PROTOTYPE, RESERVED_WORDS, SPECIAL_MEMBERS
from upstream_clients.schema_expansion import follow_pointer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from upstream_clients.tools import JsonObject

    ValueSchema = Callable[[tuple[str, ...], tuple[str, ...]], JsonObject | None]
    """A function that returns the JSON Schema of a value in the arguments of a tool, if it is known.

    It takes the members of the call, such as `("MCP", "github", "listIssues")`, and the path to the value.
    """


FALLBACK_NAME: Final = "value"
"""Name of the parameter for a literal that is no value of a property."""

MAX_NAME: Final = 40
MAX_EXAMPLE: Final = 60
MAX_CHOICES: Final = 20


class Parameter(Struct, frozen=True):
    """A member of the input of a draft.

    Attributes:
        variable: the name of the variable in the program.
        type: its TypeScript type.
        text: the literal as it was written, which is the default; None for a secret, which is required.
        value: the value of the literal; `UNKNOWN` if it cannot be read.
        used: the call and the property that the value is for, as words for a reader.
    """

    name: str
    variable: str
    type: str
    text: str | None
    value: Any
    used: str

    def whole(self) -> Parameter:
        """Return this parameter with whole characters instead of UTF-16 units."""
        return Parameter(
            name=from_utf16_units(self.name),
            variable=from_utf16_units(self.variable),
            type=from_utf16_units(self.type),
            text=None if self.text is None else from_utf16_units(self.text),
            value=UNKNOWN if self.value is UNKNOWN else json.loads(json.dumps(self.value)),
            used=from_utf16_units(self.used),
        )

    @property
    def is_required(self) -> bool:
        return self.text is None

    @property
    def example(self) -> str | None:
        """The old value as JSON on one line, cut; None for a secret and for a value that cannot be read."""
        if self.text is None or self.value is UNKNOWN:
            return None
        return clip(json.dumps(self.value, ensure_ascii=False), MAX_EXAMPLE)


class _Names:
    """The names that are taken."""

    def __init__(self, taken: Collection[str]) -> None:
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    def take(self, wanted: str) -> str:
        """Return the first of `wanted`, `wanted2`, `wanted3` that is not taken, and take it."""
        # No name becomes free again, so the search continues where it ended: thousands of values may have one name.
        name, number = wanted, self._next.get(wanted, 2)
        while name in self._taken:
            name, number = f"{wanted}{number}", number + 1
        self._next[wanted] = number
        self._taken.add(name)
        return name


def name_parameters(
    literals: Sequence[Literal], taken: Collection[str], schema_of: ValueSchema | None
) -> tuple[list[Parameter], list[Parameter]]:
    """Return the parameter of each literal, and the parameters without repetition.

    Args:
        taken: the names that the program declares or uses.
        schema_of: the schemas of the called tools; None if they are not known.
    """
    constants = {literal.name for literal in literals if literal.is_constant and literal.name}
    names, variables = _Names(constants), _Names({*taken, *RESERVED_WORDS, *constants})
    shared: dict[tuple[str, str, str, bool], Parameter] = {}
    each: list[Parameter] = []
    for literal in literals:
        wanted = literal.name if literal.is_constant and literal.name else _identifier(literal.name)
        kind = literal.declared or _type(literal, schema_of)
        key = (wanted, literal.text, kind, literal.is_constant)
        if key not in shared:
            name = wanted if literal.is_constant else names.take(wanted)
            variable = wanted if literal.is_constant else variables.take(name)
            text = None if _is_secret(literal) else literal.text
            shared[key] = Parameter(name, variable, kind, text, literal.value, _used(literal)).whole()
        each.append(shared[key])
    return each, list(shared.values())


def _identifier(name: str | None) -> str:
    parts = re.findall(r"[A-Za-z0-9_$]+", name or "")
    made = "".join([*parts[:1], *(part[0].upper() + part[1:] for part in parts[1:])])[:MAX_NAME]
    if not made or made in OBJECT_PROTOTYPE | SPECIAL_MEMBERS:
        return FALLBACK_NAME
    return f"_{made}" if made[0].isdigit() else made


def _type(literal: Literal, schema_of: ValueSchema | None) -> str:
    schema = None if schema_of is None or literal.is_constant else schema_of(literal.call, literal.path)
    if not literal.text.startswith("["):
        return _choices(schema, [literal.value]) or _scalar_type(literal.value, literal.text)
    values = literal.value if isinstance(literal.value, list) else [""]
    items = None if schema is None else schema.get("items")
    choices = _choices(items if isinstance(items, dict) else None, values)
    kinds = [choices] if choices else sorted({_scalar_type(value, "") for value in values})
    return f"{kinds[0]}[]" if len(kinds) == 1 and " " not in kinds[0] else f"({' | '.join(kinds)})[]"


def _choices(schema: JsonObject | None, values: Sequence[Any]) -> str | None:
    """Return the type of the few texts that a schema permits; None if it permits others."""
    if schema is None:
        return None
    parts = [schema, *(part for key in ("anyOf", "oneOf") for part in schema.get(key, ()))]
    found: list[Any] = next(
        (part["enum"] for part in parts if isinstance(part, dict) and isinstance(part.get("enum"), list)), []
    )
    texts = [each for each in found if each is not None]
    if not 0 < len(texts) <= MAX_CHOICES or not all(isinstance(each, str) for each in texts):
        return None
    return " | ".join(map(json.dumps, texts)) if all(value in texts for value in values) else None


def _scalar_type(value: Any, text: str) -> str:
    if value is UNKNOWN:
        return "string" if text[:1] in "'\"`" else "number"
    if text.endswith("n") and isinstance(value, int):
        return "bigint"
    return "string" if isinstance(value, str) else "number"


def _used(literal: Literal) -> str:
    if not literal.call:
        return f"the constant {literal.name}"
    return f"{'.'.join(part or '…' for part in literal.call)} ({'.'.join(literal.path) or 'its argument'})"


MAX_STEPS = 100
"""Maximum number of references that are followed."""


def value_schema(schema: JsonObject, path: Sequence[str]) -> JsonObject | None:
    """Return the schema of a value in the arguments of a tool; None if it is not known.

    Args:
        schema: the input schema of the tool.
        path: the properties from the argument to the value; `[]` for elements of an array.
    """
    here = _resolved(schema, schema)
    for step in path:
        if here is None:
            return None
        here = _inside(schema, here, step)
    return here


def _inside(root: JsonObject, schema: JsonObject, step: str) -> JsonObject | None:
    """Return the schema of a member or of the elements, also in the alternatives of a schema.

    A member that chooses between alternatives has a constant in each; the first of them is returned.
    """
    parts = [schema]
    for key in ("allOf", "anyOf", "oneOf"):
        alternatives = schema.get(key)
        for each in alternatives if isinstance(alternatives, list) else []:
            resolved = _resolved(root, each)
            parts += [] if resolved is None else [resolved]
    found: list[JsonObject] = []
    for part in parts:
        resolved = _resolved(root, part.get("items") if step == "[]" else _members(part).get(step))
        found += [] if resolved is None else [resolved]
    constant = next((each for each in found if "const" in each), None)
    return constant or next(iter(found), None)


def _members(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = schema.get("properties")
    return properties if isinstance(properties, dict) else {}


def _resolved(root: JsonObject, schema: Any) -> JsonObject | None:
    """Return a schema after its references within the same document; None if it is no object."""
    for _ in range(MAX_STEPS):
        if not isinstance(schema, dict):
            return None
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return schema
        schema = next((node for node, _ in follow_pointer((root,), reference[1:])), None)
    return None
