"""JSON Schemas, with snippets that must and must not compile against their type `T`, and comments on properties.

A snippet that begins with `=` is a value assigned to `T`; others are statements that use `declare const v: T`.
`schema_cases.txt` has most cases, one in each paragraph: a name, the schema, snippets that compile (`+`), snippets that
do not (`-`), and regular expressions for comments (`@ PROPERTY: EXPRESSION`). Cases that are large, hostile or one of
many are made here.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STRING, NUMBER, INTEGER = ({"type": kind} for kind in ("string", "number", "integer"))


@dataclass(frozen=True, slots=True)
class Case:
    """Return a case.

    Attributes:
        comments: regular expressions for the JSDoc of properties.
        of_input: True for the schema of values that programs give.
    """

    name: str
    schema: Any
    accepts: list[str]
    refuses: list[str] = field(default_factory=list)
    comments: dict[str, str] = field(default_factory=dict)
    of_input: bool = False


def properties(**members: Any) -> dict[str, Any]:
    return {"type": "object", "properties": members}


def all_required(**members: Any) -> dict[str, Any]:
    return {**properties(**members), "required": list(members)}


def ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


def nested(levels: int, leaf: Any) -> Any:
    schema = leaf
    for _ in range(levels):
        schema = all_required(k=schema)
    return schema


def nested_value(levels: int, leaf: str) -> str:
    return "=" + "{k:" * levels + leaf + "}" * levels


HOSTILE = "*/ declare const PWNED: 1; /* \u2028declare const PWNED: 2;\r\u202e\u2066\u200b `${PWNED}` \" ' \\ \x00 end"


def written_cases() -> Iterator[Case]:
    for paragraph in (Path(__file__).parent / "schema_cases.txt").read_text("utf-8").rstrip().split("\n\n"):
        name, *lines = paragraph.split("\n")
        parts = {mark: [line[4:] for line in lines if line.startswith(f"  {mark} ")] for mark in " +-@"}
        comments = dict(line.split(": ", 1) for line in parts["@"])
        yield Case(name, json.loads(" ".join(parts[" "])), parts["+"], parts["-"], comments)


GENERATED = [
    Case(
        "definitions whose names make the same identifier, or none",
        {
            **all_required(a=ref("my-def"), b=ref("my_def"), c=ref("日本"), d=ref("1"), e=ref("string")),
            "$defs": {
                name: {**all_required(**{f"k{n}": {"type": "array", "items": ref(name)}}), "description": "long " * 10}
                for n, name in enumerate(["my-def", "my_def", "日本", "1", "string"])
            },
        },
        ["={a:{k0:[]},b:{k1:[{k1:[]}]},c:{k2:[]},d:{k3:[]},e:{k4:[]}}"],
        ["={a:{k0:[]},b:{k0:[]},c:{k2:[]},d:{k3:[]},e:{k4:[]}}", "={a:{k0:[]},b:{k1:[]},c:{k2:[]},d:{k3:[]},e:''}"],
    ),
    Case(
        "dependentRequired of many does not blow up",
        {
            **properties(**{f"p{n}": STRING for n in range(30)}),
            "dependentRequired": {f"p{n}": [f"p{n + 1}"] for n in range(29)},
        },
        ["={}", "={p0:'',p1:''}"],
        ["={p0:1}"],
    ),
    Case(
        "more members of allOf than are looked at",
        {"allOf": [properties(**{f"p{n}": STRING}) for n in range(70)]},
        ["={p0:'',p69:''}"],
        ["={p0:1}"],
    ),
    Case(
        "more patterns than are looked at",
        {
            "type": "object",
            "patternProperties": {f"^p{n}$": {"enum": ["x"]} for n in range(600)} | {"^z$": NUMBER},
            "additionalProperties": False,
        },
        ["={p0:'x',z:1}"],
        ["=1"],
    ),
    Case(
        "an index signature beside very many properties",
        {**properties(**{f"p{n}": {"enum": [f"only{n}"]} for n in range(60)}), "additionalProperties": NUMBER},
        ["={p7:'only7',z:1}"],
        ["={p7:'only8'}"],
    ),
    Case(
        "a thousand properties",
        {
            **properties(**{f"p{n}": {"type": "string", "description": f"number {n}"} for n in range(1000)}),
            "required": ["p999"],
        },
        ["={p999:''}", "={p0:'',p500:'',p999:''}"],
        ["={}", "={p999:1}", "={p999:'',p500:1}", "={p999:'',p1000:''}"],
        {"p0": "number 0", "p999": "number 999"},
    ),
    Case(
        "a schema of ten megabytes",
        {
            **all_required(first=STRING),
            "$defs": {f"d{n}": {"description": "x" * 10_000, "properties": {"a": STRING}} for n in range(1000)},
            "allOf": [properties(last=ref("d999"))],
        },
        ["={first:''}", "={first:'',last:{a:''}}"],
        ["={}", "={first:'',last:{a:1}}"],
    ),
    Case(
        "names that try to leave their quotes",
        {
            "type": "object",
            "properties": {
                n: {"type": "number", "description": n}
                for n in ("'", '"', "`", "${x}", "\\", "a\u2028b", "\u202e", "x?: 1; y", "//", "/*", HOSTILE)
            },
            "required": ['"'],
        },
        ["={'\"':1,'`':1,'${x}':1,'\\\\':1,'a\\u2028b':1,'\\u202e':1}"],
        ["={}", "={'\"':''}", "={'\"':1,'`':''}", "={'\"':1,'a\\u2028b':''}", "PWNED"],
    ),
    Case(
        "a name too long to write",
        {"type": "object", "properties": {"x" * 100_000: STRING, "a": NUMBER}, "required": ["x" * 100_000]},
        ["={}", "={a:1}", "={['" + "x" * 100_000 + "']:'',a:1}"],
        ["={a:''}"],
    ),
    Case("depth", nested(30, STRING), [nested_value(30, "''")], [nested_value(30, "1"), nested_value(29, "1")]),
    Case(
        "more depth than is written", nested(300, STRING), [nested_value(300, "''")], ["={k:1}", nested_value(20, "1")]
    ),
    Case(
        "a union with very many members",
        {"anyOf": [all_required(**{f"k{n}": NUMBER}) for n in range(400)]},
        ["={k0:1}", "={k399:1}"],
        ["={}", "={k0:''}", "={zzz:1}"],
    ),
    Case("a union with too many members", {"anyOf": [{"const": n} for n in range(5000)]}, ["=1", "=4999"]),
    Case("a choice with too many members", {"enum": [f"v{n}" for n in range(20_000)]}, ["='v19999'"], ["=1", "=null"]),
    Case("a tuple of a thousand", {"prefixItems": [STRING] * 1000}, ["=['']", "=[]"], ["=''"]),
    Case(
        "hostile descriptions",
        properties(
            a={"type": "string", "description": HOSTILE},
            b=properties(c={"title": HOSTILE, "default": HOSTILE, "examples": [HOSTILE]}),
        ),
        ["={}"],
        ["={a:1}", "PWNED"],
        {"a": r"declare const PWNED: 1[\s\S]*end", "c": "@default"},
    ),
    Case(
        "hostile formats and patterns",
        properties(
            a={"type": "string", "format": "*/;PWNED", "pattern": "^[*]/*/.*/$"},
            b={"type": "string", "pattern": "\u2028*/`${x}"},
        ),
        ["={a:''}"],
        ["={a:1}", "PWNED"],
        {"a": r"@format \*\\/;PWNED @pattern", "b": "@pattern"},
    ),
    Case(
        "a very long description",
        properties(a={"description": "word " * 100_000}),
        ["={a:1}"],
        [],
        {"a": r"word… \*/$"},
    ),
    Case(
        "a long description without a blank",
        properties(a={"description": "x" * 100_000}),
        ["={a:1}"],
        [],
        {"a": r"^/\*\* x{100,300}… \*/$"},
    ),
]

LARGE = {
    "of 64 bits": {"type": "integer", "format": "int64"},
    "of 64 bits without a sign": {"type": "integer", "format": "uint64", "minimum": 0},
    "of 64 bits, as numbers": {"type": "number", "format": "int64"},
    "with a large bound": {"type": "integer", "minimum": -5, "maximum": 2**63 - 1},
    "with a large bound that is excluded": {"type": "integer", "exclusiveMaximum": 2**64},
    "that may be null": {"type": ["integer", "null"], "format": "int64"},
    "of several types": {"anyOf": [{"type": "integer", "format": "int64"}, STRING]},
    "of a reference": {"$ref": "#/$defs/Id", "$defs": {"Id": {"type": "integer", "format": "int64"}}},
}
SMALL = {
    "with bounds": {"type": "integer", "minimum": 1, "maximum": 100},
    "with the bounds of Numbers": {"type": "integer", "minimum": 1 - 2**53, "maximum": 2**53 - 1},
    "with bounds that are excluded": {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 10},
    "of 32 bits": {"type": "integer", "format": "int32"},
    "of 64 bits, with bounds": {"type": "integer", "format": "int64", "minimum": 0, "maximum": 100},
    "that may be fractions": NUMBER,
}
BOUNDLESS = {
    "without bounds": INTEGER,
    "with one bound": {"type": "integer", "minimum": 1},
    "or null": {"type": ["integer", "null"]},
    "in a list": {"type": "array", "items": INTEGER},
    "beside a choice": {"anyOf": [{"type": "integer", "minimum": 1}, {"const": "all"}]},
}
BOTH, ONE = ["=5", "=5n", "=725653563933458433n"], ["=5n", "=725653563933458433n"]
INTEGERS = [
    *(Case(f"integers {name}", schema, BOTH, ["=true"]) for name, schema in LARGE.items()),
    *(Case(f"given integers {name}", schema, BOTH, ["=true"], of_input=True) for name, schema in LARGE.items()),
    *(Case(f"small integers {name}", schema, ["=5"], ONE) for name, schema in SMALL.items()),
    *(Case(f"given small integers {name}", schema, ["=5"], ONE, of_input=True) for name, schema in SMALL.items()),
    *(
        Case(f"integers {name}, which a program calculates with", schema, ["=[5]" if "list" in name else "=5"], ONE)
        for name, schema in BOUNDLESS.items()
    ),
    *(
        Case(f"given integers {name}", schema, ["=[5, 5n]"] if "list" in name else BOTH, ["=true"], of_input=True)
        for name, schema in BOUNDLESS.items()
    ),
    Case("a large constant", {"const": 725653563933458433}, ["=725653563933458433n"], ["=725653563933458433", "=5n"]),
    Case(
        "a large constant that is an integer",
        {"allOf": [INTEGER, {"const": 725653563933458433}]},
        ["=725653563933458433n"],
        ["=5n"],
    ),
    Case("too many large constants", {"enum": [2**60 + n for n in range(1_100)]}, ["=5", "=5n"], ["=''"]),
]

CASES = [*written_cases(), *GENERATED, *INTEGERS]
