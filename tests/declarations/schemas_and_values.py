"""Random JSON Schemas, values for them, and the two schemas between which a TypeScript type has to lie.

`as_meant` is the schema with the rules of `declarations.schema` that go beyond JSON Schema. The type must accept every
value that is valid under it. `as_sayable` is the schema without keywords that TypeScript cannot express. Every value
that the type accepts must be valid under it. Together they list the allowed differences, in a form that a validator can
decide.
"""

import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Schema = dict[str, Any] | bool

NAMES = ("a", "b", "c", "x-1", "d e", "7")
CONSTANTS: tuple[Any, ...] = (
    "a",
    "b",
    "",
    0,
    1,
    -2.5,
    True,
    False,
    None,
    [],
    [1, "a"],
    {},
    {"a": "a"},
    {"a": 1, "b": [None]},
)
DEFINITIONS = ("P", "Q", "R")
PATTERNS = {"^x-": "x-9", "1$": "z1", "e": "e", "^[a-c]$": "c"}
"""Patterns of names, each with a name that matches."""

# ---------------------------------------------------------------------------------------------------------------------
# Schemas, of draft 2020-12


@st.composite
def documents(draw: Callable[..., Any]) -> Schema:
    """Draw a schema with definitions, `#/$defs/P` and so on, to which any part of it may refer."""
    root: Schema = draw(schemas(3))
    if isinstance(root, dict):
        text = json.dumps(root)
        used = [name for name in DEFINITIONS if f'"#/$defs/{name}"' in text]
        if used:
            # A definition may use all three.
            root["$defs"] = {name: draw(schemas(2)) for name in DEFINITIONS}
    return root


@st.composite
def schemas(draw: Callable[..., Any], depth: int) -> Schema:
    kinds = ["scalar", "scalar", "scalar", "choice", "any"]
    if depth:
        kinds += ["object"] * 6 + ["array"] * 3 + ["combined"] * 5 + ["reference"] * 2
    kind = draw(st.sampled_from(kinds))
    schema: dict[str, Any]
    plain: Schema
    if kind == "scalar":
        schema = draw(_scalars())
    elif kind == "choice":
        schema = draw(
            st.builds(lambda v: {"const": v}, st.sampled_from(CONSTANTS))
            | st.builds(lambda v: {"enum": v}, st.lists(st.sampled_from(CONSTANTS), min_size=1, max_size=4))
        )
    elif kind == "any":
        plain = draw(st.sampled_from([True, False, {}, {"description": "x"}, {"not": {"type": "null"}}]))
        return plain
    elif kind == "object":
        schema = draw(_objects(depth - 1))
    elif kind == "array":
        schema = draw(_arrays(depth - 1))
    elif kind == "reference":
        schema = {"$ref": draw(st.sampled_from([*(f"#/$defs/{name}" for name in DEFINITIONS), "#"]))}
    else:
        schema = draw(_combined(depth - 1))
    if draw(st.integers(0, 9)) == 0:
        schema["type"] = draw(
            st.sampled_from([["object", "null"], ["string", "array"], ["number", "object"], "object"])
        )
    return schema


@st.composite
def _scalars(draw: Callable[..., Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": draw(st.sampled_from(["string", "number", "integer", "boolean", "null"]))}
    extra: dict[str, Any] = draw(
        st.sampled_from([{}, {}, {}, {"minimum": 1}, {"maxLength": 0}, {"pattern": "^a"}, {"enum": ["a", 1, None]}])
    )
    return schema | extra


@st.composite
def _objects(draw: Callable[..., Any], depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    inner = schemas(depth)
    if draw(st.integers(0, 3)):
        schema["type"] = "object"
    names = draw(st.lists(st.sampled_from(NAMES), max_size=3, unique=True))
    if names:
        schema["properties"] = {name: draw(inner) for name in names}
    if draw(st.booleans()):
        schema["required"] = draw(st.lists(st.sampled_from(names or NAMES), max_size=2, unique=True))
    if draw(st.integers(0, 5)) == 0:
        schema["required"] = [*schema.get("required", []), "c"]
    others = draw(st.integers(0, 7))
    if others < 2:
        schema["additionalProperties"] = False
    elif others == 2:
        schema["additionalProperties"] = True
    elif others == 3:
        schema["additionalProperties"] = draw(inner)
    elif others == 4:
        schema["unevaluatedProperties"] = False
    rare = draw(st.integers(0, 16))
    if rare == 0:
        schema["patternProperties"] = {
            pattern: draw(inner) for pattern in draw(st.lists(st.sampled_from(list(PATTERNS)), min_size=1, max_size=2))
        }
    elif rare == 1:
        schema["propertyNames"] = draw(
            st.sampled_from([{"enum": ["a", "b", "x-1"]}, {"const": "a"}, {"pattern": "^x-"}, {"maxLength": 1}])
        )
    elif rare == 2:
        schema["dependentRequired"] = {draw(st.sampled_from(NAMES)): [draw(st.sampled_from(NAMES))]}
    elif rare == 3:
        schema["dependentSchemas"] = {draw(st.sampled_from(NAMES)): draw(inner)}
    elif rare == 4:
        schema |= draw(st.sampled_from([{"minProperties": 1}, {"maxProperties": 1}]))
    elif rare == 5:
        schema |= {"if": draw(inner), "then": draw(_objects(0)), "else": draw(inner)}
    return schema


@st.composite
def _arrays(draw: Callable[..., Any], depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    inner = schemas(depth)
    if draw(st.integers(0, 3)):
        schema["type"] = "array"
    if draw(st.booleans()):
        schema["prefixItems"] = [draw(inner) for _ in range(draw(st.integers(1, 3)))]
        schema |= draw(st.sampled_from([{}, {"items": False}, {"items": {"type": "string"}}]))
    else:
        schema["items"] = draw(inner)
    if draw(st.integers(0, 2)) == 0:
        schema["minItems"] = draw(st.integers(0, 3))
    if draw(st.integers(0, 2)) == 0:
        schema["maxItems"] = draw(st.integers(0, 3))
    rare = draw(st.integers(0, 9))
    if rare == 0:
        schema["contains"] = draw(inner)
    elif rare == 1:
        schema["uniqueItems"] = True
    elif rare == 2:
        schema["unevaluatedItems"] = False
    return schema


@st.composite
def _combined(draw: Callable[..., Any], depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    inner = schemas(depth)
    base = draw(st.integers(0, 3))
    if base == 0:
        schema = draw(_objects(0))
    elif base == 1:
        schema = {"type": draw(st.sampled_from(["object", "array", "string"]))}
    for keyword in draw(st.lists(st.sampled_from(["allOf", "anyOf", "oneOf"]), min_size=1, max_size=2, unique=True)):
        schema[keyword] = [draw(inner) for _ in range(draw(st.integers(1, 3)))]
    rare = draw(st.integers(0, 12))
    if rare == 0:
        schema["anyOf"] = [{"required": [name]} for name in ("a", "b")]
    elif rare == 1:
        schema |= {"if": draw(inner), "then": draw(inner), "else": draw(inner)}
    elif rare == 2:
        schema["not"] = draw(inner)
    elif rare == 3:
        schema["unevaluatedProperties"] = False
    elif rare == 4:
        schema["$ref"] = "#/$defs/P"
    return schema


def meets_itself(document: Schema) -> bool:
    """Return True if a schema depends on itself for the same value, to which JSON Schema gives no meaning."""
    places = {"#": document}
    if isinstance(document, dict):
        places |= {f"#/$defs/{name}": sub for name, sub in document.get("$defs", {}).items()}
    edges = {name: _targets(schema) for name, schema in places.items()}
    for start in edges:
        reached: set[str] = set()
        waiting = list(edges[start])
        while waiting:
            name = waiting.pop()
            if name not in reached:
                reached.add(name)
                waiting.extend(edges.get(name, ()))
        if start in reached:
            return True
    return False


def _targets(schema: Schema) -> list[str]:
    """Return the references of a schema that apply to the value itself, not to a part of it."""
    if isinstance(schema, bool):
        return []
    inner = [branch for keyword in ("allOf", "anyOf", "oneOf") for branch in schema.get(keyword, ())]
    inner += [schema[keyword] for keyword in ("if", "then", "else", "not") if keyword in schema]
    inner += schema.get("dependentSchemas", {}).values()
    own = [schema["$ref"]] if "$ref" in schema else []
    return own + [name for branch in inner for name in _targets(branch)]


def as_draft_07(schema: Schema) -> Schema:
    """Return a schema of draft 2020-12 in draft-07, without keywords that draft-07 does not have."""
    if isinstance(schema, bool):
        return schema
    result: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in ("properties", "patternProperties", "$defs"):
            name = "definitions" if keyword == "$defs" else keyword
            result[name] = {key: as_draft_07(sub) for key, sub in value.items()}
        elif keyword in ("allOf", "anyOf", "oneOf"):
            result[keyword] = [as_draft_07(branch) for branch in value]
        elif keyword in ("additionalProperties", "propertyNames", "not", "if", "then", "else", "contains"):
            result[keyword] = as_draft_07(value)
        elif keyword == "prefixItems":
            result["items"] = [as_draft_07(element) for element in value]
            if "items" in schema:
                result["additionalItems"] = as_draft_07(schema["items"])
        elif keyword == "items":
            result.setdefault("items", as_draft_07(value))
        elif keyword in ("dependentRequired", "dependentSchemas"):
            result.setdefault("dependencies", {}).update(
                {key: as_draft_07(sub) if isinstance(sub, (dict, bool)) else sub for key, sub in value.items()}
            )
        elif keyword == "$ref":
            result["$ref"] = value.replace("$defs", "definitions")
        elif not keyword.startswith("unevaluated"):
            result[keyword] = value
    if "$ref" in result and len(result) > 1 + ("definitions" in result):
        reference = {"$ref": result.pop("$ref")}
        result["allOf"] = [*result.get("allOf", []), reference]
    return result


# ---------------------------------------------------------------------------------------------------------------------
# Values

_ANYTHING = st.recursive(
    st.sampled_from(CONSTANTS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=4,
)


@st.composite
def values(draw: Callable[..., Any], document: Schema) -> Any:
    """Draw a value that follows the schema in part: many are valid, and many nearly valid."""
    return _value(draw, document, document, 6)


def _value(draw: Callable[..., Any], schema: Schema, root: Schema, depth: int) -> Any:
    if isinstance(schema, bool) or not schema or depth == 0 or draw(st.integers(0, 24)) == 0:
        return draw(_ANYTHING)
    if isinstance(schema.get("$ref"), str) and draw(st.integers(0, 5)):
        assert isinstance(root, dict)
        name = schema["$ref"].rpartition("/")[2]
        target = root if schema["$ref"] == "#" else root["$defs"][name]
        return _value(draw, target, root, depth - 1)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return draw(st.sampled_from(schema["enum"]))
    branches = [branch for keyword in ("allOf", "anyOf", "oneOf") for branch in schema.get(keyword, ())]
    own = {key: value for key, value in schema.items() if key not in ("allOf", "anyOf", "oneOf", "$ref")}
    if branches:
        chosen = draw(st.lists(st.sampled_from(branches), min_size=1, max_size=3))
        made = [_value(draw, branch, root, depth - 1) for branch in chosen]
        if own.get("properties") or own.get("required"):
            made.append(_value(draw, own, root, depth - 1))
        if all(isinstance(value, dict) for value in made):
            return {name: value for one in made for name, value in one.items()}
        return made[0]
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = draw(st.sampled_from(kind))
    if kind is None:
        kind = "array" if {"items", "prefixItems", "contains"} & schema.keys() else "object"
    match kind:
        case "array":
            prefix = schema.get("prefixItems", [])
            items = schema.get("items", True)
            if isinstance(items, list):
                prefix, items = items, schema.get("additionalItems", True)
            least = min(schema.get("minItems", 0), 4)
            most = min(schema.get("maxItems", 4), len(prefix) if items is False else 4)
            length = draw(st.integers(min(least, most), max(least, most)))
            return [
                _value(draw, prefix[n] if n < len(prefix) else items, root, depth - 1)
                for n in range(length + (draw(st.integers(0, 9)) == 0))
            ]
        case "object":
            return _object(draw, schema, root, depth)
        case "string":
            return draw(st.sampled_from(["a", "b", "", "1"]))
        case "null":
            return None
        case "boolean":
            return draw(st.booleans())
        case _:
            return draw(st.sampled_from([0, 1, -2, 3] if kind == "integer" else [0, 1, 2.5, 1e21]))


def _object(draw: Callable[..., Any], schema: dict[str, Any], root: Schema, depth: int) -> dict[str, Any]:
    declared = schema.get("properties", {})
    names = {name: draw(st.integers(0, 5)) > 0 for name in schema.get("required", ())}
    names |= {name: draw(st.booleans()) for name in declared if name not in names}
    for pattern in schema.get("patternProperties", ()):
        names[PATTERNS[pattern]] = draw(st.booleans())
    if draw(st.integers(0, 3 if "properties" not in schema or schema.get("additionalProperties") else 9)) == 0:
        names[draw(st.sampled_from([*NAMES, "extra"]))] = True
    result = {}
    for name, present in names.items():
        if present:
            others = schema.get("additionalProperties", True)
            sub = declared.get(name, next(iter(schema.get("patternProperties", {}).values()), others))
            result[name] = _value(draw, sub, root, depth - 1)
    return result


# ---------------------------------------------------------------------------------------------------------------------
# The two bounds

_OBJECT = {
    "properties", "required", "additionalProperties", "patternProperties", "propertyNames", "minProperties",
    "maxProperties", "dependentRequired", "unevaluatedProperties",
}  # fmt: skip
_ARRAY = {"items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains", "unevaluatedItems"}
_IN_PLACE = ("$ref", "allOf", "anyOf", "oneOf")


def as_meant(document: Schema) -> Schema:
    """Return the schema with the two rules written out as keywords.

    * A schema with keywords of one kind of values gets the `type` of that kind.
    * An object with declared properties and no rule for others gets `unevaluatedProperties: false`. It is put where a
      value begins, because properties of `allOf` and of references count too.
    """
    if isinstance(document, bool):
        return document
    result = _meant_value({key: sub for key, sub in document.items() if key != "$defs"})
    assert isinstance(result, dict)
    if "$defs" in document:
        result["$defs"] = {name: _meant(sub, shared=True) for name, sub in document["$defs"].items()}
    return result


def _meant_value(schema: Schema) -> Schema:
    """Draw a schema that a whole value must satisfy."""
    if isinstance(schema, bool):
        return schema
    result = _meant(schema, shared=False)
    assert isinstance(result, dict)
    combined = any(keyword in schema for keyword in _IN_PLACE)
    says = "additionalProperties" in schema or "unevaluatedProperties" in schema
    if (combined or "properties" in schema) and not says:
        result["unevaluatedProperties"] = False
    return result


def _meant(schema: Schema, *, shared: bool) -> Schema:
    """Draw a schema. If `shared`, others apply to the same value, and it must not forbid what they declare."""
    if isinstance(schema, bool):
        return schema
    result = dict(schema)
    if not any(keyword in schema for keyword in ("type", "const", "enum")):
        kinds = [kind for kind, words in (("object", _OBJECT), ("array", _ARRAY)) if words & schema.keys()]
        if kinds:
            result["type"] = kinds
    for keyword in ("properties", "patternProperties"):
        if keyword in schema:
            result[keyword] = {name: _meant_value(sub) for name, sub in schema[keyword].items()}
    for keyword in ("additionalProperties", "items"):
        if keyword in schema:
            result[keyword] = _meant_value(schema[keyword])
    if "prefixItems" in schema:
        result["prefixItems"] = [_meant_value(sub) for sub in schema["prefixItems"]]
    for keyword in ("allOf", "anyOf", "oneOf"):
        if keyword in schema:
            result[keyword] = [_meant(branch, shared=True) for branch in schema[keyword]]
    alone = not shared and not any(keyword in schema for keyword in _IN_PLACE)
    if alone and not _OBJECT & schema.keys() and "object" in _listed(schema.get("type")):
        result["additionalProperties"] = True
    return result


def _listed(declared: Any) -> list[str]:
    return declared if isinstance(declared, list) else [declared]


_UNSAYABLE = {
    "minimum", "maxLength", "pattern", "not", "if", "then", "else", "contains", "uniqueItems", "minProperties",
    "maxProperties", "dependentSchemas", "dependentRequired", "propertyNames", "unevaluatedItems",
    "unevaluatedProperties", "patternProperties",
}  # fmt: skip


def as_sayable(document: Schema) -> Schema:
    """Return the schema without what TypeScript, or this compiler with its short types, cannot express:

    * `_UNSAYABLE` keywords, and that a number is an integer; that only one branch of `oneOf` holds;
    * lengths of arrays other than those of a tuple, or of few short items;
    * of an object in a union or an intersection, that it has no other properties: TypeScript takes a property that any
      of the branches declares, and `allOf` joins closed objects;
    * in an intersection, that a value without required properties is no array: any value has all of none;
    * in an object with both declared and other properties, which of the types a property is of that is not declared;
      any, where these types are long.
    """
    return _sayable(document, closed=True, joined=False)


def _sayable(schema: Schema, *, closed: bool, joined: bool) -> Schema:
    """Widen a subschema. `closed`: outside unions and intersections; `joined`: inside an intersection."""
    if isinstance(schema, bool):
        return schema
    combined = sum(len(schema[keyword]) for keyword in ("allOf", "anyOf", "oneOf") if keyword in schema)
    combined += "$ref" in schema
    inside = closed and not combined
    own = bool(_OBJECT & schema.keys()) or "object" in _listed(schema.get("type"))
    parts = own + len(schema.get("allOf", ())) + sum(keyword in schema for keyword in ("anyOf", "oneOf", "$ref"))
    joined = joined or parts > 1
    result: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _UNSAYABLE:
            continue
        if keyword == "type":
            if joined and "object" in _listed(value) and not schema.get("required"):
                continue
            result["type"] = [("number" if kind == "integer" else kind) for kind in _listed(value)]
        elif keyword in ("properties", "$defs"):
            within = inside and keyword == "properties"
            within_join = joined or keyword == "$defs"
            result[keyword] = {name: _sayable(sub, closed=within, joined=within_join) for name, sub in value.items()}
        elif keyword in ("allOf", "anyOf", "oneOf"):
            name = "anyOf" if keyword == "oneOf" and "anyOf" not in schema else keyword
            branches = [_sayable(branch, closed=False, joined=joined) for branch in value]
            if keyword == "oneOf" and "anyOf" in schema:
                result.setdefault("allOf", []).append({"anyOf": branches})
            else:
                result.setdefault(name, []).extend(branches)
        elif keyword == "additionalProperties":
            if (
                "patternProperties" in schema
                or (joined and "propertyNames" in schema)
                or (value is False and not inside)
            ):
                continue
            declared = [_sayable(sub, closed=False, joined=joined) for sub in schema.get("properties", {}).values()]
            required = set(schema.get("required", ())) - schema.get("properties", {}).keys()
            if declared and _is_long([value, schema["properties"]]):
                value = True
            sub = _sayable(value, closed=inside and not declared, joined=joined)
            result[keyword] = True if required else sub if sub is False else {"anyOf": [sub, *declared]}
            if sub is False and required:
                result.pop(keyword)
        elif keyword == "items":
            result["items"] = _sayable(value, closed=inside, joined=joined)
        elif keyword == "prefixItems":
            result["prefixItems"] = [_sayable(sub, closed=inside, joined=joined) for sub in value]
        elif keyword in ("const", "enum"):
            given = [value] if keyword == "const" else value
            # Among several constants, an object may have the properties of another.
            exact = inside and len(given) == 1
            result.setdefault("allOf", []).append({"anyOf": [_constant(one, closed=exact) for one in given]})
        elif keyword not in ("minItems", "maxItems"):
            result[keyword] = value
    if not combined:
        result |= _sayable_lengths(schema)
    return result


def _is_long(schema: Any) -> bool:
    text = json.dumps(schema)
    return len(text) > 100 or "$ref" in text


def _constant(value: Any, *, closed: bool) -> Schema:
    if isinstance(value, list):
        elements = [_constant(element, closed=closed) for element in value]
        length = {"minItems": len(value), "maxItems": len(value)}
        return {"type": "array", **({"prefixItems": elements} if elements else {}), **length}
    if isinstance(value, dict):
        members = {name: _constant(member, closed=closed) for name, member in value.items()}
        return {"type": "object", "properties": members, "required": list(value)} | (
            {"additionalProperties": False} if closed else {}
        )
    return {"const": value}


def _sayable_lengths(schema: dict[str, Any]) -> dict[str, Any]:
    prefix, items = schema.get("prefixItems", ()), schema.get("items", True)
    least, most = schema.get("minItems", 0), schema.get("maxItems")
    if prefix:
        lengths = {"minItems": min(least, len(prefix))}
        return lengths | ({"maxItems": most} if most is not None and most <= len(prefix) else {})
    short = isinstance(items, dict) and items.keys() == {"type"} and items["type"] in ("string", "number", "boolean")
    if short and most != 0 and (most is None or least <= most):
        return {"minItems": least} | ({"maxItems": most} if most is not None else {})
    return {"maxItems": 0} if most == 0 else {}
