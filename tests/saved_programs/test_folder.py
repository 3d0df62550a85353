"""Tests for the folder of saved programs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest

from codemode_mcp.base.settings import Language
from codemode_mcp.catalog.saved_programs import folder, program_file
from codemode_mcp.catalog.saved_programs.folder import (
    EMPTY,
    MAX_PROGRAMS,
    Library,
    LibraryWatcher,
    folder_state,
    read_folder,
)
from codemode_mcp.catalog.saved_programs.saved_program import MAX_TEXT, SavedProgram

RIGHT = "export default () => 1;"


def folder_with(tmp_path: Path, files: Mapping[str, str | bytes]) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def problems_of(library: Library) -> dict[str, str]:
    return {problem.file: str(problem) for problem in library.problems}


@pytest.mark.skipif(os.name == "nt", reason="pipes, links and modes of files")
def test_a_broken_file_is_reported_and_does_not_hide_the_others(tmp_path: Path) -> None:
    folder = folder_with(
        tmp_path,
        {
            "b.ts": RIGHT,
            "a.js": "\ufeff" + RIGHT,
            "types.d.ts": "x",
            "a.json": "{}",
            ".hidden.ts": "x",
            "broken.ts": "\nexport default 1",
            "my-report.ts": RIGHT,
            "Same.ts": RIGHT,
            "same.js": RIGHT,
            "binary.js": b"\xff",
            "large.js": "a" * (MAX_TEXT + 1),
        },
    )
    os.mkfifo(folder / "pipe.ts")
    (folder / "link.ts").symlink_to(folder / "b.ts")
    (folder / "shared.ts").write_text(RIGHT)
    (folder / "shared.ts").chmod(0o646)
    library = read_folder(folder)
    assert [(each.name, each.language) for each in library.programs] == [("a", "javascript"), ("b", "typescript")]
    found = problems_of(library)
    assert found.pop("broken.ts").startswith("programs/broken.ts:2: export default is no function")
    for name, words in {
        "my-report.ts": "no JavaScript identifier",
        "Same.ts": "Same.ts and same.js",
        "same.js": "Same.ts and same.js",
        "binary.js": "not UTF-8",
        "large.js": "larger than",
        "pipe.ts": "not a regular file",
        "link.ts": "symbolic link",
        "shared.ts": "written by every user",
    }.items():
        assert words in found.pop(name)
    assert not found


def test_files_of_another_user_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_with(tmp_path, {"a.ts": RIGHT})
    monkeypatch.setattr(
        "codemode_mcp.catalog.saved_programs.folder.belongs_to_another", lambda about: about.st_size == len(RIGHT)
    )
    assert "belongs to another user" in problems_of(read_folder(folder))["a.ts"]
    monkeypatch.setattr("codemode_mcp.catalog.saved_programs.folder.belongs_to_another", lambda about: True)
    assert "the folder belongs to another user" in problems_of(read_folder(folder))[""]


@pytest.mark.skipif(os.name == "nt", reason="links")
def test_a_link_is_not_the_folder_and_no_folder_is_no_problem(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, {"a.ts": RIGHT})
    (tmp_path / "link").symlink_to(folder)
    assert "symbolic link" in problems_of(read_folder(tmp_path / "link"))[""]
    assert read_folder(tmp_path / "none") == EMPTY


def test_the_number_of_programs_is_limited(tmp_path: Path) -> None:
    library = read_folder(folder_with(tmp_path, {f"p{number:03}.js": RIGHT for number in range(MAX_PROGRAMS + 2)}))
    assert len(library.programs) == MAX_PROGRAMS
    assert "more than 500" in problems_of(library)["p500.js"]


@pytest.mark.anyio
async def test_a_changed_folder_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codemode_mcp.catalog.saved_programs.folder.POLL_SECONDS", 0.01)
    monkeypatch.setattr("codemode_mcp.catalog.saved_programs.folder.QUIET_SECONDS", 0.01)
    folder = folder_with(tmp_path, {"a.ts": RIGHT})
    state, library = folder_state(folder), read_folder(folder)
    send, receive = anyio.create_memory_object_stream[Library](10)
    async with send, receive, anyio.create_task_group() as tasks:
        tasks.start_soon(LibraryWatcher(folder, library, state, send.send_nowait).run)
        with anyio.fail_after(10):
            (folder / "b.ts").write_text(RIGHT)
            assert [each.name for each in (await receive.receive()).programs] == ["a", "b"]
            (folder / "a.ts").write_text("export default () => 2;")
            assert "2" in (await receive.receive()).programs[0].text
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()
            assert (await receive.receive()) == EMPTY
        tasks.cancel_scope.cancel()


def test_a_file_that_makes_our_reader_fail_is_reported_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = program_file.read_program

    def fail(name: str, language: Language, text: str) -> SavedProgram:
        if name == "deep":
            raise RecursionError
        return read(name, language, text)

    monkeypatch.setattr(program_file, "read_program", fail)
    library = read_folder(folder_with(tmp_path, {"deep.ts": RIGHT, "right.ts": RIGHT}))
    assert [each.name for each in library.programs] == ["right"]
    assert "cannot be read (RecursionError)" in problems_of(library)["deep.ts"]


@pytest.mark.anyio
async def test_a_changed_folder_is_read_immediately_on_demand(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, {"a.ts": RIGHT})
    applied: list[Library] = []
    watcher = LibraryWatcher(folder, read_folder(folder), folder_state(folder), applied.append)
    await watcher.refresh()
    assert not applied
    (folder / "b.ts").write_text(RIGHT)
    await watcher.refresh()
    assert [each.name for each in applied[0].programs] == ["a", "b"]


def test_the_long_texts_of_saved_programs_are_searched_once_for_the_programs_that_they_call(tmp_path: Path) -> None:
    files = {
        "a.js": "export default () => programs.b();",
        "b.js": "export default () => programs.a() + programs.c();",
        "c.js": RIGHT,
        "d.js": RIGHT,
    }
    library = read_folder(folder_with(tmp_path, files))
    folder._named.cache_clear()
    for _ in range(3):
        assert [each.name for each in library.named_in("return programs.a()")] == ["a", "b", "c"]
        assert [each.name for each in library.named_in("return programs[name]()")] == ["a", "b", "c", "d"]
        assert library.named_in("return a") == ()
    assert folder._named.cache_info().misses == 2
