"""Proposals of models to save their programs: the file that a cell becomes, and the bounds of what is kept."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.catalog.saved_programs import versions
from codemode_mcp.catalog.saved_programs.program_file import read_program
from codemode_mcp.catalog.saved_programs.program_state import (
    LEFT_SECONDS,
    NotWritten,
    ProgramState,
    StateUnavailable,
    accept,
    pin,
    present_file,
)
from codemode_mcp.catalog.saved_programs.proposing import Proposer, proposed_text
from codemode_mcp.catalog.saved_programs.saved_program import MAX_TEXT, OF_REPL, digest_of
from codemode_mcp.catalog.saved_programs.versions import BY_FILE, Author, Proposal, Proposals, propose, settle
from codemode_mcp.cli.saved_lookup import SavedPrograms, saved_state_text

pytestmark = pytest.mark.anyio

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"repo": {"type": "string", "description": "*/ @output {} \u202e"}, "max": {"type": "integer"}},
    "required": ["repo"],
}
PERSON = Author("stdio:1:x", "ann", "stdio", "run_1")


def text_of(source: str, schema: dict[str, Any] | None = SCHEMA, description: str = "Reports.") -> str:
    return proposed_text(source, "typescript", name="weekly", description=description, schema=schema)[0]


def test_a_cell_becomes_a_function_with_its_schema_and_without_its_example_and_its_proposal() -> None:
    cell = 'const input = { repo: "a" };\nconst n = input.repo.length;\nawait save_program("weekly", {});\n({ n })\n'
    text = text_of(cell)
    assert text.endswith(
        "export default async function weekly(input: { repo: string; max?: number }) {\n"
        "const n = input.repo.length;\nreturn (({ n }))\n}\n"
    )
    program = read_program("weekly", "typescript", text)
    assert (program.input_schema, program.description) == (SCHEMA, "Reports.")


def test_a_proposal_within_an_expression_becomes_undefined() -> None:
    text = text_of("const made = await save_program('weekly', { description: 'x' });\nreturn { made }", None)
    assert text.endswith("{\nconst made = undefined;\nreturn { made }\n}\n")


@pytest.mark.parametrize(
    "description",
    [
        "Ends */ here\n*/ export default 1",
        "One\n@input {}\n  @output {}",
        "\u202eHidden\u0000",
        "long " * 40 + "@input {}",
    ],
)
def test_no_description_ends_its_comment_or_adds_a_tag(description: str) -> None:
    program = read_program("weekly", "typescript", text_of("return input.repo", description=description))
    assert program.input_schema == SCHEMA
    assert program.output_schema is None
    assert program.description.isprintable() or "\n" in program.description


async def proposed(keeper: Proposer, name: str = "weekly", source: str = "return 1", **changes: Any) -> Any:
    given = {"language": "javascript", "description": "Reports.", "schema": None, "author": PERSON, "read_only": False}
    given["find"] = lambda _: None
    return await keeper.propose(name, source=source, **{**given, **changes})


def proposal_of(text: str) -> Proposal:
    return Proposal("weekly", "javascript", text, digest_of(text), "Counts.", PERSON, 0.0, (), True)


def parts_time(folder: Path) -> float:
    return max(each.stat().st_mtime for each in folder.glob("*.part"))


@pytest.fixture
def keeper(tmp_path: Path) -> Proposer:
    state = ProgramState(tmp_path / "state", tmp_path / "config.json")
    return Proposer(state, tmp_path / "programs", enabled=lambda: True, clock=lambda: 5.0)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"name": "__proto__"}, "another meaning"),
        ({"name": "größe"}, "ASCII"),
        ({"name": "../x"}, "identifier"),
        ({"author": None}, "login or a session"),
        ({"read_only": True}, "may only read"),
        ({"schema": '{"repo": "string"}'}, "not an example"),
        ({"schema": '{"type": "string"}'}, "of an object"),
        ({"schema": '{"type": "object", "properties": 1}'}, "no JSON Schema"),
        ({"source": f"let {OF_REPL} = 1"}, "belongs to its session"),
        ({"source": " " * (MAX_TEXT + 1)}, "more than 256 KiB"),
        ({"source": "namespace A.B { export const c = 1 } return A.B.c"}, "use an object instead"),
        ({"source": "declare module 'x' { export const y: number } return 1"}, "use an object instead"),
        ({"source": "} fetch(1); async function f() {"}, "does not fit into one function"),
        ({"source": "1 <!-- `\n} fetch(1); async function f() {\n//`"}, "comments that begin with <!--"),
        ({"source": "/**/ --> `\n} fetch(1); async function f() {\n//`"}, "comments that begin with <!--"),
        ({"source": "const input = 1, b = 2; return b", "schema": '{"type": "object"}'}, "declare it alone"),
    ],
)
async def test_what_cannot_be_a_saved_program_is_refused(keeper: Proposer, changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ProgramError, match=why):
        await proposed(keeper, **changes)


async def test_the_same_text_is_the_same_proposal_and_another_one_replaces_it(tmp_path: Path, keeper: Any) -> None:
    first, again = await proposed(keeper), await proposed(keeper)
    assert first == again
    assert first["status"] == "proposed"
    assert "programs accept weekly" in first["message"]
    other = await proposed(keeper, source="return 2")
    state = ProgramState(tmp_path / "state", tmp_path / "config.json")
    (kept,) = state.proposals().waiting
    assert (kept.digest, kept.author, kept.at) == (other["digest"], PERSON, 5.0)
    assert (state.path("proposals").stat().st_mode & 0o077) == 0
    state.change_proposals(lambda known: settle(known, "weekly", kept.digest, rejected=True))
    assert (await proposed(keeper, source="return 2"))["status"] == "rejected"
    assert state.proposals().waiting == ()


async def test_a_text_that_is_saved_already_is_not_proposed(tmp_path: Path, keeper: Any) -> None:
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "weekly.js").write_text(text_of("return 1", None).replace("Reports.", "Reports."))
    assert (await proposed(keeper))["status"] == "saved"


async def test_a_name_that_differs_from_a_saved_one_in_case_alone_is_refused(tmp_path: Path, keeper: Any) -> None:
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "Weekly.ts").write_text("export default () => 1;")
    with pytest.raises(ProgramError, match="saved program Weekly, and names must differ"):
        await proposed(keeper)
    (tmp_path / "programs" / "Weekly.ts").unlink()
    await proposed(keeper)
    state = ProgramState(tmp_path / "state", tmp_path / "config.json")
    (proposal,) = state.proposals().waiting
    for file in ("Weekly.ts", "weekly.ts"):
        (tmp_path / "programs" / file).write_text("export default () => 1;")
        with pytest.raises(NotWritten, match="has this name too"):
            accept(state, tmp_path / "programs", proposal, None, by="a person", at=1.0)
        (tmp_path / "programs" / file).unlink()
    assert state.history("weekly").versions == ()
    assert state.proposals().waiting == (proposal,)


def test_a_process_killed_in_accept_leaves_the_truth_and_accept_removes_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (f"/** Counts. */\nexport default () => {number};\n" for number in (1, 2))
    disk, killed, config = tmp_path / "disk", tmp_path / "killed", tmp_path / "config.json"
    (disk / "programs").mkdir(parents=True)
    state = ProgramState(disk / "state", config)
    for text in (old, new):
        state.change_proposals(lambda known, text=text: propose(known, proposal_of(text))[0])
        if text is old:
            accept(state, disk / "programs", proposal_of(old), None, by="ann", at=1.0)
    replace = os.replace

    def copy_and_replace(*names: Any) -> None:
        shutil.copytree(disk, killed / f"{len(os.listdir(killed))}")
        replace(*names)

    killed.mkdir()
    before = present_file(disk / "programs", "weekly")
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", copy_and_replace)
        accept(state, disk / "programs", proposal_of(new), before, by="bob", at=2.0)
    shutil.copytree(disk, killed / "end")

    authors, left = [], 0
    for each in sorted(killed.iterdir()):
        state, folder = ProgramState(each / "state", config), each / "programs"
        found = SavedPrograms(config, folder, state, {}, state.proposals(), ())
        (program,) = found.library.programs
        assert (saved_state_text(found, program), found.library.problems) == ("ok", ())
        version = found.version(program)
        assert version is not None
        assert (
            pin(state, "weekly", program.text, (), complete=True, by=BY_FILE, at=3.0, again=False).of(program.digest)
            == version
        )
        authors.append((version.by, program.text == new, bool(found.proposals.waiting)))
        parts = list(folder.glob("*.part"))
        left += len(parts)
        (folder / "tmpnotes.part").touch()
        if found.proposals.waiting:
            accept(state, folder, proposal_of(new), found.file("weekly"), by="bob", at=parts_time(folder) + 10)
            assert sorted(folder.glob("*.part")) == sorted([*parts, folder / "tmpnotes.part"]), "they are new"
            state.change_proposals(lambda known: propose(known, proposal_of(old))[0])
            late = parts_time(folder) + LEFT_SECONDS + 10
            accept(state, folder, proposal_of(old), found.file("weekly"), by="bob", at=late)
            assert sorted(os.listdir(folder)) == ["tmpnotes.part", "weekly.js"]
            assert [every.by for every in state.history("weekly").versions] == ["ann", "bob", "bob"]
    assert authors == [
        ("ann", False, True),
        ("ann", False, True),
        ("bob", True, True),
        ("bob", True, False),
        ("bob", True, False),
    ]
    assert left == 1


def test_owners_have_bounds_of_their_own_and_share_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "MAX_PROPOSALS_PER_OWNER", 2)
    monkeypatch.setattr(versions, "MAX_PROPOSALS", 3)

    def add(known: Proposals, name: str, owner: str) -> Proposals:
        author = Author(owner, None, "http", "run_1")
        return propose(known, Proposal(name, "javascript", name, digest_of(name), "", author, 0.0))[0]

    known = add(add(Proposals(), "a", "one"), "b", "one")
    with pytest.raises(ProgramError, match="no room"):
        add(known, "c", "one")
    known = add(known, "c", "two")
    with pytest.raises(ProgramError, match="no room"):
        add(known, "d", "three")
    assert add(known, "b", "one") == known


def test_a_changed_file_of_proposals_is_refused_as_a_whole(tmp_path: Path) -> None:
    state = ProgramState(tmp_path, tmp_path / "config.json")
    proposal = Proposal("a", "javascript", "x", digest_of("x"), "", PERSON, 0.0)
    state.change_proposals(lambda known: propose(known, proposal)[0])
    path = state.path("proposals")
    changed = json.loads(path.read_text("utf-8"))
    changed["waiting"][0]["text"] = "y"
    path.write_text(json.dumps(changed), "utf-8")
    with pytest.raises(StateUnavailable, match="damaged"):
        state.proposals()
