"""Tests of the folder that `codemode-mcp types` writes for an editor."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from codemode_mcp.cli.commands.tools import EXAMPLE, MARK, PROJECT, WRITTEN, write_folder

FILES = {"guest.d.ts": "// guest\n", "mcp/index.d.ts": "// index\n", "mcp/github.d.ts": "// github ü\n"}


def times(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_writing_the_folder_again_changes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "a" / "types"
    first = write_folder(out, FILES)
    assert (first.declarations, first.example, first.project) == (tuple(FILES), True, True)
    assert {path: (out / path).read_text("utf-8") for path in FILES} == FILES
    before = times(out)
    again = write_folder(out, FILES)
    assert times(out) == before
    assert (again.declarations, again.removed, again.changed, again.example) == (tuple(FILES), (), (), False)


def test_files_of_deleted_servers_are_removed_unless_changed_by_hand(tmp_path: Path) -> None:
    gone = {"mcp/old.d.ts": "// old\n", "mcp/edited.d.ts": "// edited\n"}
    write_folder(tmp_path, FILES | gone)
    (tmp_path / "mcp" / "edited.d.ts").write_text("// mine\n", "utf-8")
    (tmp_path / "mcp" / "mine.d.ts").write_text("// mine\n", "utf-8")
    kept = write_folder(tmp_path, FILES)
    assert (kept.removed, kept.changed) == (("mcp/old.d.ts",), ("mcp/edited.d.ts",))
    assert not (tmp_path / "mcp" / "old.d.ts").exists()
    assert (tmp_path / "mcp" / "edited.d.ts").read_text("utf-8") == "// mine\n"
    assert (tmp_path / "mcp" / "mine.d.ts").exists()
    assert write_folder(tmp_path, FILES).changed == (), "it is told once"


@pytest.mark.parametrize(
    "path", ["../out.d.ts", "mcp/../../out.d.ts", "mcp/a/out.d.ts", "out.ts", ".d.ts", "\\out.d.ts"]
)
def test_a_list_that_names_other_files_removes_nothing(tmp_path: Path, path: str) -> None:
    from hashlib import sha256

    folder = tmp_path / "types"
    write_folder(folder, FILES)
    victim = folder / path
    victim.parent.mkdir(parents=True, exist_ok=True)
    victim.write_bytes(b"x")
    (folder / WRITTEN).write_text(json.dumps({path: sha256(b"x").hexdigest()}), "utf-8")
    assert write_folder(folder, FILES).removed == ()
    assert victim.read_bytes() == b"x"


@pytest.mark.parametrize("text", ["", "[1]", '{"mcp/github.d.ts": 1}', "[" * 100_000, "\x00"])
def test_a_damaged_list_is_written_again(tmp_path: Path, text: str) -> None:
    write_folder(tmp_path, FILES)
    (tmp_path / WRITTEN).write_text(text, "utf-8")
    assert write_folder(tmp_path, FILES).removed == ()
    assert set(json.loads((tmp_path / WRITTEN).read_text("utf-8"))) == set(FILES)


def test_files_of_others_are_kept(tmp_path: Path) -> None:
    (tmp_path / PROJECT).write_text("{}", "utf-8")
    (tmp_path / EXAMPLE).write_text("mine", "utf-8")
    kept = write_folder(tmp_path, FILES)
    assert (kept.project, kept.example) == (False, False)
    assert (tmp_path / PROJECT).read_text("utf-8") == "{}"
    assert (tmp_path / EXAMPLE).read_text("utf-8") == "mine"


def test_our_project_file_is_updated_and_a_deleted_example_is_not_restored(tmp_path: Path) -> None:
    write_folder(tmp_path, FILES)
    (tmp_path / PROJECT).write_text(f"{MARK}, of an older version\n{{}}", "utf-8")
    (tmp_path / EXAMPLE).unlink()
    assert write_folder(tmp_path, FILES).example is False
    marked, _, project = (tmp_path / PROJECT).read_text("utf-8").partition("\n")
    assert marked.startswith(MARK)
    options = json.loads(project)["compilerOptions"]
    assert (options["strict"], options["lib"], options["types"]) == (True, ["es2023"], [])
    assert not (tmp_path / EXAMPLE).exists()


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
@pytest.mark.parametrize("path", [WRITTEN, "mcp", "guest.d.ts", "mcp/github.d.ts"])
def test_nothing_is_written_through_a_link(tmp_path: Path, path: str) -> None:
    folder, other = tmp_path / "types", tmp_path / "other"
    other.mkdir()
    (folder / path).parent.mkdir(parents=True)
    target = other if path == "mcp" else other / "precious"
    (folder / path).symlink_to(target)
    with pytest.raises(OSError, match="it is a link"):
        write_folder(folder, FILES)
    assert [*other.iterdir()] == []


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
def test_a_project_or_a_first_program_that_is_a_link_is_not_ours(tmp_path: Path) -> None:
    folder, target = tmp_path / "types", tmp_path / "precious"
    folder.mkdir()
    (folder / EXAMPLE).symlink_to(target)
    assert write_folder(folder, FILES).example is False
    (folder / PROJECT).unlink()
    (folder / PROJECT).symlink_to(target)
    assert write_folder(folder, FILES).project is False
    assert not target.exists()


def test_file_names_differ_on_case_insensitive_systems_and_none_is_a_device(tmp_path: Path) -> None:
    paths = ["mcp/gitHub.d.ts", "mcp/github.d.ts", "mcp/CON.d.ts", "mcp/con.d.ts", "mcp/com1.d.ts", "mcp/console.d.ts"]
    kept = write_folder(tmp_path, {path: path for path in paths})
    assert kept.declarations == (
        *("mcp/gitHub.d.ts", "mcp/github~2.d.ts", "mcp/CON~.d.ts", "mcp/con~2.d.ts"),
        *("mcp/com1~.d.ts", "mcp/console.d.ts"),
    )
    assert [(tmp_path / path).read_text("utf-8") for path in kept.declarations] == paths
    assert write_folder(tmp_path, {}).removed == tuple(sorted(kept.declarations))
