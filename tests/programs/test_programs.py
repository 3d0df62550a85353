"""Valid programs of many styles give their value, whatever is said of their language.

They stand in `javascript/` and `typescript/`, several in a file, each after a line

    // ---- TITLE => VALUE

with the expected value as JSON, or `nothing` for a program that returns nothing.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from harness import Session

from codemode_mcp.base.settings import Language
from codemode_mcp.catalog.saved_programs.program_file import read_program
from codemode_mcp.catalog.saved_programs.proposing import is_one_function, proposed_text
from codemode_mcp.extensions.program_tools.drafts import make_draft
from codemode_mcp.program.program_form import take_fence

pytestmark = pytest.mark.anyio

FOLDER = Path(__file__).parent
_HEADING = re.compile(r"^// ---- (?P<title>.+) => (?P<value>.+)\n", re.MULTILINE)


@dataclass(frozen=True)
class Written:
    """A program and what it gives."""

    id: str
    code: str
    value: Any
    """`None` for nothing."""


def read_programs(path: Path) -> list[Written]:
    """Return the programs of one file."""
    text = path.read_text("utf-8")
    headings = list(_HEADING.finditer(text))
    ends = [*(heading.start() for heading in headings[1:]), len(text)]
    return [
        Written(
            f"{path.stem}: {heading['title']}",
            text[heading.end() : end],
            None if heading["value"] == "nothing" else json.loads(heading["value"]),
        )
        for heading, end in zip(headings, ends, strict=True)
    ]


def every(language: str, pattern: str) -> list[Any]:
    return [
        pytest.param(program, id=program.id)
        for path in sorted((FOLDER / language).glob(pattern))
        for program in read_programs(path)
    ]


NOTHING = "nothing (undefined or null); use return, text() or json()."


async def hold(session: Session, program: Written, code: str, **arguments: str) -> None:
    """Run `code`, to the end if it yields, and compare."""
    answer = await session.finish(await session.exec(code, **arguments))
    assert answer.value == program.value
    if program.value is None and not answer.structured.get("output"):
        said = "NaN, which JSON has no form for; the value is null." if program.id == "returning: NaN" else NOTHING
        assert answer.read == f"The program returned {said}"


def from_elsewhere(code: str) -> str:
    """Return the text as an editor of another system saves it: a byte order mark, CR LF, none at the end."""
    mark = "" if code.startswith("#!") else "\ufeff"
    return mark + code.removesuffix("\n").replace("\n", "\r\n")


@pytest.mark.parametrize("program", every("javascript", "*.js"))
async def test_javascript_gives_its_value(session: Session, program: Written) -> None:
    await hold(session, program, program.code, language="javascript")


@pytest.mark.parametrize("program", every("javascript", "*.js"))
async def test_javascript_gives_the_same_when_no_language_is_named(session: Session, program: Written) -> None:
    await hold(session, program, program.code)


@pytest.mark.parametrize("program", every("javascript", "*.js"))
async def test_javascript_gives_the_same_from_an_editor_of_another_system(session: Session, program: Written) -> None:
    await hold(session, program, from_elsewhere(program.code), language="javascript")


@pytest.mark.usefixtures("esbuild")
@pytest.mark.parametrize("program", every("typescript", "*.ts"))
async def test_typescript_gives_its_value(session: Session, program: Written) -> None:
    await hold(session, program, program.code, language="typescript")


@pytest.mark.usefixtures("esbuild")
@pytest.mark.parametrize("program", every("typescript", "[!e]*.ts"))
async def test_typescript_is_recognised_when_no_language_is_named(session: Session, program: Written) -> None:
    await hold(session, program, program.code)


@pytest.mark.usefixtures("esbuild")
@pytest.mark.parametrize("program", every("typescript", "*.ts"))
async def test_typescript_gives_the_same_from_an_editor_of_another_system(session: Session, program: Written) -> None:
    await hold(session, program, from_elsewhere(program.code), language="typescript")


@pytest.mark.usefixtures("esbuild")
@pytest.mark.parametrize(("language", "pattern"), [("javascript", "*.js"), ("typescript", "*.ts")])
async def test_a_saved_program_that_is_made_of_a_program_gives_the_same(
    session: Session, language: Language, pattern: str
) -> None:
    for path in sorted((FOLDER / language).glob(pattern)):
        for program in read_programs(path):
            draft = make_draft(program.code, language, origin=program.id)
            read_program("saved", language, draft.text)
            before, _, function = draft.text.rpartition("\nexport default ")
            code = f"{before}\nreturn await ({function})({json.dumps(draft.old_input)});"
            await hold(session, program, code, language=language)


@pytest.mark.parametrize(("language", "pattern"), [("javascript", "*.js"), ("typescript", "*.ts")])
async def test_what_a_program_proposes_to_save_gives_the_same(
    session: Session, language: Language, pattern: str
) -> None:
    for path in sorted((FOLDER / language).glob(pattern)):
        for program in read_programs(path):
            if take_fence(program.code) is not None or program.id in NOT_PARSED:
                continue  # a program has no fence any more when it runs
            if "namespace" in program.id or "declar" in program.id:
                continue  # refused, since a function cannot have them
            text, _ = proposed_text(program.code, language, name="saved", description="", schema=None)
            if program.id in HTML_COMMENTS:
                assert not is_one_function(text), program.id
                continue  # refused, since such a comment could hide the end of the function from a parser
            assert is_one_function(text), program.id
            if path.stem == "forms":  # the other ones take the same way
                answer = await session.finish(await session.exec(text, language=language))
                assert answer.value == program.value, program.id


HTML_COMMENTS = ("comments: an HTML comment", "comments: the end of an HTML comment")

NOT_PARSED = ("names: private, public and protected as names", "names: override, accessor, out and asserts as names")
"""Valid programs that the tolerant parser does not read, so that a proposal of them is refused."""
