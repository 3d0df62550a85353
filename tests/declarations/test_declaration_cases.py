"""The cases of `schema_cases`: each type accepts, refuses and documents what it should."""

import re
from collections.abc import Callable

import pytest

from declarations import render_schema
from tests.declarations.conftest import Comments, Problems
from tests.declarations.schema_cases import CASES, Case


def program(case: Case) -> tuple[str, int]:
    """Return a program with one snippet a line, and the number of the first such line."""
    text = render_schema(case.schema, "T", of_input=case.of_input)
    lines = [
        f"{{ const _: T = {snippet[1:]}; }}" if snippet.startswith("=") else f"{{ {snippet}; }}"
        for snippet in (*case.accepts, *case.refuses)
    ]
    return "\n".join([text, "declare const v: T;", *lines, "export {};"]), text.count("\n") + 2


@pytest.fixture(scope="module")
def answers(type_check: Callable[..., Problems], comments: Callable[..., Comments]) -> tuple[Problems, Comments]:
    files = {f"{number}.ts": program(case)[0] for number, case in enumerate(CASES)}
    return type_check(files), comments({f"{n}.ts": files[f"{n}.ts"] for n, case in enumerate(CASES) if case.comments})


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case.name for case in CASES])
def test_a_type_accepts_and_refuses_what_its_case_lists(number: int, answers: tuple[Problems, Comments]) -> None:
    case = CASES[number]
    first = program(case)[1]
    problems: dict[int, str] = {}
    for line, message in answers[0][f"{number}.ts"]:
        problems.setdefault(line - first, message)
    seen = {
        "the type itself": [message for line, message in problems.items() if line < 0],
        "refused": [snippet for n, snippet in enumerate(case.accepts) if n in problems],
        "accepted": [snippet for n, snippet in enumerate(case.refuses) if n + len(case.accepts) not in problems],
    }
    assert seen == {"the type itself": [], "refused": [], "accepted": []}, render_schema(case.schema, "T")[:2000]
    for name, expected in case.comments.items():
        said = answers[1][f"{number}.ts"].get(name, [])
        assert any(re.search(expected, text) for text in said), (name, said)


def test_case_names_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 100
