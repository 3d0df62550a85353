"""JSON Schemas as TypeScript types: their text, what they accept and refuse, and bounds for hostile schemas."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, example, given, seed, settings
from hypothesis import strategies as st

from declarations import render_schema

HERE = Path(__file__).parent


def schema_texts() -> list[tuple[Any, str]]:
    """Return the schemas of `schema_texts.txt`, one a line, with the type that is indented below each."""
    text = (HERE / "schema_texts.txt").read_text("utf-8").rstrip()
    cases = [case.split("\n    ") for case in re.split(r"\n(?=\{|true|false)", text)]
    return [(json.loads(schema), "\n".join(lines)) for schema, *lines in cases]


TEXTS = schema_texts()


@pytest.mark.parametrize(("schema", "text"), TEXTS)
def test_a_schema_reads_as_this_type(schema: Any, text: str) -> None:
    assert render_schema(schema) == text


def test_a_name_makes_a_declaration() -> None:
    assert render_schema({"type": "string"}, "Name") == "type Name = string;"


def test_a_definition_keeps_clear_of_the_name_that_was_asked_for() -> None:
    schema = {"properties": {"n": {"$ref": "#/$defs/T"}}, "$defs": {"T": {"properties": {"n": {"$ref": "#/$defs/T"}}}}}
    assert render_schema(schema) == "type T = { n?: T2 };\ntype T2 = { n?: T2 };"


def test_every_text_compiles(type_check: Callable[..., Any]) -> None:
    files = {f"{n}.ts": render_schema(schema, "T") + "\nexport {};" for n, (schema, _) in enumerate(TEXTS)}
    assert {name: problems for name, problems in type_check(files).items() if problems} == {}


def test_the_cases_of_the_corpus_are_all_met(corpus: Path, typescript: Path) -> None:
    command = [sys.executable, str(HERE / "render_cases.py")]
    answer = subprocess.run(
        [sys.executable, str(corpus / "schemas" / "score.py"), "-v", "--batch", "--", *command],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(HERE.parent.parent), "TYPESCRIPT_DIR": str(typescript)},
    )
    met = re.search(r"cases (\d+)/(\d+).*docs (\d+)/(\d+)", answer.stdout)
    assert met is not None, answer.stdout + answer.stderr
    assert (met[1], met[3]) == (met[2], met[4]), answer.stdout


# ---------------------------------------------------------------------------------------------------------------------
# Bounds for hostile schemas


def nested(levels: int, around: Callable[[Any], Any]) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(levels):
        schema = around(schema)
    return schema


def definitions(count: int, each: Callable[[str, str], Any]) -> Any:
    return {
        "$ref": "#/$defs/d0",
        "$defs": {f"d{n}": each(f"#/$defs/d{n + 1}", f"#/$defs/d{n + 2}") for n in range(count)},
    }


def two_ways(levels: int) -> Any:
    if not levels:
        return {"type": "string"}
    return {"properties": {"p": two_ways(levels - 1)}, "anyOf": [{"required": ["p"]}, {"required": ["q"]}]}


HOSTILE: dict[str, Callable[[], Any]] = {
    "deep properties": lambda: nested(10_000, lambda s: {"type": "object", "properties": {"k": s}}),
    "deep items": lambda: nested(10_000, lambda s: {"items": s}),
    "deep tuples": lambda: nested(10_000, lambda s: {"prefixItems": [s]}),
    "deep maps": lambda: nested(10_000, lambda s: {"additionalProperties": s}),
    "deep allOf": lambda: nested(10_000, lambda s: {"allOf": [s, {"required": ["a"]}]}),
    "deep anyOf": lambda: nested(10_000, lambda s: {"type": "object", "anyOf": [s, {"required": ["a"]}]}),
    "deep constant": lambda: {"const": nested(10_000, lambda s: [s])},
    "deep default": lambda: {"properties": {"a": {"default": nested(10_000, lambda s: [s]), "examples": [[[]]]}}},
    "long chain": lambda: definitions(10_000, lambda a, _: {"properties": {"x": {"$ref": a}}}),
    "bare chain": lambda: definitions(10_000, lambda a, _: {"$ref": a}),
    "doubling definitions": lambda: definitions(300, lambda a, b: {"properties": {"x": {"$ref": a}, "y": {"$ref": b}}}),
    "doubling unions": lambda: definitions(300, lambda a, b: {"anyOf": [{"$ref": a}, {"$ref": b}]}),
    "doubling intersections": lambda: definitions(
        300, lambda a, b: {"allOf": [{"$ref": a}, {"$ref": b}, {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}]}
    ),
    "many alternatives": lambda: {"allOf": [{"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}] * 60},
    "many constants": lambda: {"allOf": [{"enum": list(range(n, n + 500))} for n in range(64)]},
    "nested alternatives": lambda: two_ways(40),
    "many properties": lambda: {"properties": {f"p{n}": {"description": "x" * 100} for n in range(100_000)}},
    "many required": lambda: {"required": [f"p{n}" for n in range(100_000)]},
    "large enum": lambda: {"enum": [f"v{n}" for n in range(100_000)]},
    "many patterns": lambda: {"patternProperties": {f"^x{n}": {"type": "string"} for n in range(10_000)}},
    "long description": lambda: {"properties": {"a": {"description": "*/ \u2028" * 2_000_000}}},
    "long name": lambda: {"properties": {"x" * 10_000_000: {}}, "required": ["x" * 10_000_000]},
    "large numbers": lambda: {"properties": {"a": {"const": 10**5000, "default": 10**5000, "minimum": 10**5000}}},
    "no numbers": lambda: {"enum": [float("nan"), float("inf")], "minItems": float("nan"), "items": {}},
    "nested maps with properties": lambda: nested(
        38, lambda s: {"properties": {"a": {"type": "string"}, "z": s}, "additionalProperties": {"type": "number"}}
    ),
    "all definitions in all": lambda: {
        "$ref": "#/$defs/d0",
        "$defs": {
            f"d{n}": {"properties": {f"p{m}": {"$ref": f"#/$defs/d{m}"} for m in range(300)}} for n in range(300)
        },
    },
    "joins of joins": lambda: {
        "$ref": "#/$defs/d0",
        "$defs": {
            f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{m}"} for m in range(n + 1, min(200, n + 60))]} for n in range(200)
        },
    },
    "dangling references": lambda: {"properties": {f"p{n}": {"$ref": f"#nowhere{n}"} for n in range(100_000)}},
    "long references": lambda: {"properties": {f"p{n}": {"$ref": "#/" + "a/" * 900} for n in range(10_000)}},
    "identities in identities": lambda: nested(5_000, lambda s: {"$id": "http://a/x/../y", "properties": {"a": s}}),
    "ten megabytes of properties": lambda: {
        "properties": {
            f"p{n}": {"type": "object", "properties": {f"q{m}": {"enum": ["a" * 30, "b" * 30]} for m in range(100)}}
            for n in range(1_000)
        }
    },
    "ten megabytes of definitions": lambda: {
        "properties": {f"p{n}": {"$ref": f"#/$defs/d{n}"} for n in range(5_000)},
        "$defs": {
            f"d{n}": {"properties": {f"q{m}": {"type": "string", "description": "y" * 30} for m in range(30)}}
            for n in range(5_000)
        },
    },
    "half characters": lambda: {"properties": {"\ud800": {"description": "\udc00", "enum": ["\ud800", "\U000e0041"]}}},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_schema_costs_little_time_and_text(case: str) -> None:
    schema = HOSTILE[case]()
    started = time.thread_time()
    text = render_schema(schema)
    assert time.thread_time() - started < 2  # milliseconds usually
    assert len(text.encode()) < 2_000_000


def test_hostile_schemas_compile(type_check: Callable[..., Any]) -> None:
    names = [name for name in HOSTILE if name != "many properties"]
    files = {f"{name}.ts": render_schema(HOSTILE[name](), "T") + "\nexport {};" for name in names}
    assert {name: problems for name, problems in type_check(files).items() if problems} == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=8), children, max_size=3),
    max_leaves=8,
)
KEYWORDS = st.sampled_from(
    """
    type properties required additionalProperties patternProperties propertyNames unevaluatedProperties
    dependentRequired dependencies items prefixItems additionalItems minItems maxItems enum const allOf anyOf oneOf not
    $ref $defs definitions $id $anchor $schema nullable description title default deprecated examples format minimum
    pattern
    """.split()  # noqa: SIM905
)
VALUES = st.sampled_from(
    ["object", "string", "array", "null", "#", "#/$defs/a", "#/properties/a", "a", "^x-", 0, 1, 2, True, False]
)
NEAR_SCHEMAS = st.recursive(
    VALUES | JSON,
    lambda children: (
        st.dictionaries(KEYWORDS | st.sampled_from(["a", "b"]), children, max_size=5) | st.lists(children, max_size=3)
    ),
    max_leaves=25,
)


@given(NEAR_SCHEMAS)
@example({"required": [[], {}], "enum": [[]], "type": [{}]})
@example({"$ref": "http://[/#x", "$id": "http://["})
def test_any_json_renders(schema: Any) -> None:
    render_schema(schema).encode()
    render_schema({"type": "object", "properties": {"a": schema}, "allOf": [schema]}, "T").encode()


def test_any_json_makes_a_type_that_compiles(type_check: Callable[..., Any]) -> None:
    texts = []

    @seed(0)
    @settings(max_examples=400, database=None, phases=[Phase.generate], deadline=2000)
    @given(NEAR_SCHEMAS)
    def collect(schema: Any) -> None:
        texts.append(
            render_schema({"properties": {"a": schema, "b": {"$ref": "#/properties/a"}}, "allOf": [schema]}, "T")
        )

    collect()
    files = {f"{n}.ts": text + "\nexport {};" for n, text in enumerate(texts)}
    found = type_check(files)
    assert {files[name]: problems for name, problems in found.items() if problems} == {}
