"""Agreement of a JSON Schema validator and a TypeScript compiler on the values that a schema accepts.

CI runs a few hundred schemas. To run more:
`AGREEMENT_CASES=20000 AGREEMENT_SEED=7 python -m pytest tests/declarations/test_declaration_agreement.py`.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jsonschema_rs
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from declarations import render_schema
from tests.declarations.schemas_and_values import as_draft_07, as_meant, as_sayable, documents, meets_itself, values

CASES = int(os.environ.get("AGREEMENT_CASES", "250"))
SEED = int(os.environ.get("AGREEMENT_SEED", "0"))
BATCH = 400
"""Schemas in one run of the compiler."""
DRAFT_07 = "http://json-schema.org/draft-07/schema#"


@dataclass(frozen=True, slots=True)
class Case:
    """A schema of one draft, values to try, and those that its type must accept or may accept."""

    schema: Any
    values: list[Any]
    meant: Any
    sayable: Any
    must: list[bool]
    may: list[bool]


@st.composite
def schemas_with_values(draw: Any) -> tuple[Any, list[Any]]:
    document = draw(documents())
    return document, [draw(values(document)) for _ in range(8)]


def validator(schema: Any) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(schema, offline=True, pattern_options=jsonschema_rs.RegexOptions())


def generated(count: int, first_seed: int) -> list[Case]:
    # Hypothesis makes the cases, and many go through the compiler together. It shrinks nothing: the shortest is shown.
    made: list[Case] = []

    @seed(first_seed)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(schemas_with_values())
    def make(case: tuple[Any, list[Any]]) -> None:
        document, candidates = case
        if meets_itself(document):
            return
        meant, sayable = as_meant(document), as_sayable(document)
        try:
            exact, least, most = validator(document), validator(meant), validator(sayable)
            valid = [exact.is_valid(value) for value in candidates]
            must = [known and least.is_valid(value) for known, value in zip(valid, candidates, strict=True)]
            may = [most.is_valid(value) for value in candidates]
        except (ValueError, jsonschema_rs.ReferencingError):
            return
        made.append(Case(document, candidates, meant, sayable, must, may))
        if "unevaluated" not in json.dumps(document):
            old = as_draft_07(document)
            if isinstance(old, dict):
                old = {"$schema": DRAFT_07} | old
            assert [validator(old).is_valid(value) for value in candidates] == valid
            made.append(Case(old, candidates, meant, sayable, must, may))

    make()
    return made


def compiled(type_check: Callable[..., Any], cases: list[Case]) -> list[tuple[list[str], list[bool]]]:
    """Return for each case the errors of its type, and the values that it accepts."""
    files, first = {}, []
    for number, case in enumerate(cases):
        text = render_schema(case.schema, "T")
        first.append(text.count("\n") + 1)
        lines = [f"export const v{n}: T = {json.dumps(value)};" for n, value in enumerate(case.values)]
        files[f"{number}.ts"] = "\n".join([text, *lines])
    found = type_check(files)
    answers = []
    for number, case in enumerate(cases):
        wrong = {line for line, _ in found[f"{number}.ts"]}
        problems = [message for line, message in found[f"{number}.ts"] if line < first[number]]
        answers.append((problems, [first[number] + n not in wrong for n in range(len(case.values))]))
    return answers


def test_types_lie_between_the_meant_and_the_expressible_schema(type_check: Callable[..., Any]) -> None:
    cases = generated(CASES, SEED)
    disagreements = []
    for start in range(0, len(cases), BATCH):
        batch = cases[start : start + BATCH]
        for case, (problems, answers) in zip(batch, compiled(type_check, batch), strict=True):
            if problems:
                text = f"{json.dumps(case.schema)}\n{render_schema(case.schema, 'T')}"
                disagreements.append(f"does not compile: {problems[0]} {text}")
            for value, must, may, answer in zip(case.values, case.must, case.may, answers, strict=True):
                about = f"{json.dumps(value)} {json.dumps(case.schema)}\n{render_schema(case.schema, 'T')}"
                if must and not answer:
                    disagreements.append(f"refused, though meant: {about}\n{json.dumps(case.meant)}")
                if answer and not may:
                    disagreements.append(f"accepted, though sayable: {about}\n{json.dumps(case.sayable)}")
    disagreements.sort(key=len)
    assert disagreements == [], f"{len(disagreements)} of them; the shortest:\n\n" + "\n\n".join(disagreements[:8])
    # The comparison needs many values of both sorts.
    count = sum(len(case.values) for case in cases)
    assert sum(sum(case.must) for case in cases) > count / 4
    assert sum(not may for case in cases for may in case.may) > count / 4
