"""Adding to the configuration file: all that is there stays as it was written, and no one reads half of it."""

import errno
import json
import os
import stat
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codemode_mcp.base.errors import ConfigError
from codemode_mcp.config import load_config
from codemode_mcp.config.edit import MAX_BACKUPS, add_approved, backup_folder, replace_file
from codemode_mcp.config.edit_json import with_items
from codemode_mcp.config.source import SourceError, parse
from tests.config.test_edit_json import before_and_after

KEYS = ("tools", "approved")

CASES = {
    "an empty object": '{«→"tools": { "approved": ["mcp:a:b"] }»}',
    "an empty list": '{"tools": {"approved": [«→"mcp:a:b"»]}}',
    "one line": '{"tools": {"approved": ["mcp:x:y"«→, "mcp:a:b"»]}}',
    "null": '{"tools": {"approved": «null→["mcp:a:b"]», "deny": []}}',
    "no tools but null": '{"tools": «null→{ "approved": ["mcp:a:b"] }»}',
    "a trailing comma on one line": '{"tools": {"approved": ["x:y",«→ "mcp:a:b",»],},}',
    "lines": '{\n  "tools": {\n    "approved": [\n      "mcp:x:y"« // why→, // why\n      "mcp:a:b"»\n    ]\n  }\n}\n',
    "lines with a trailing comma": (
        '{\n  "tools": {\n    "approved": [\n      "mcp:x:y", // why\n    «→  "mcp:a:b",\n    »],\n  },\n}\n'
    ),
    "other keys": '{\n  // servers\n  "mcpServers": {}«→,\n  "tools": { "approved": ["mcp:a:b"] }»\n}\n',
    "lines that end as on Windows": (
        '{\r\n\t"tools": {\r\n\t\t"ask": ["destructive"]«→,\r\n\t\t"approved": ["mcp:a:b"]»\r\n\t}\r\n}\r\n'
    ),
    "brackets in texts and comments": (
        '{"note": "]}", /* "tools": { */ "tools": {"approved": [/* ] */ "mcp:x:\\"]y"«→, "mcp:a:b"» /* } */]}}'
    ),
    "only a comment inside": '{"tools": {"approved": [«→"mcp:a:b"» // none yet\n]}}',
    "keys without quotes": "{tools: {approved: ['mcp:x:y'«→, \"mcp:a:b\"»]}}",
    "a key written with an escape": '{"\\u0074ools": {"approved": ["mcp:x:y"«→, "mcp:a:b"»]}}',
    "the same words deeper": (
        '{"a": {"tools": {"approved": ["no"]}}, "tools": {"contexts": {"approved": {}}«→, "approved": ["mcp:a:b"]»}}'
    ),
}


@pytest.mark.parametrize(("before", "after"), [before_and_after(text) for text in CASES.values()], ids=CASES)
def test_what_is_there_stays_as_it_was_written(before: str, after: str) -> None:
    assert with_items(before, KEYS, ["mcp:a:b"]) == after


def test_what_is_in_the_list_already_changes_nothing() -> None:
    text = "{tools: {approved: ['mcp:a:b',]}}"
    assert with_items(text, KEYS, ["mcp:a:b"]) == text


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"tools": []}', '{"tools": {"approved": "x"}}', '{"tools": {}, "tools": {}}', "", "1"]
)
def test_what_cannot_be_changed_is_refused(text: str) -> None:
    with pytest.raises(SourceError):
        with_items(text, KEYS, ["mcp:a:b"])


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_tools = st.fixed_dictionaries({}, optional={"approved": st.lists(st.text(max_size=8), max_size=4), "deny": _values})
_blanks = st.sampled_from(["", " ", "\n", "\n  ", "/* ]}, */", ' // "}]\n', "\r\n\t"])


@settings(max_examples=60, deadline=None)
@given(
    st.fixed_dictionaries({}, optional={"tools": _tools, "a": _values, "mcpServers": _values}),
    st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=3, unique=True),
    st.data(),
)
def test_any_file_means_the_same_and_has_the_new_items(
    value: dict[str, Any], items: list[str], data: st.DataObject
) -> None:
    text = _spaced(json.dumps(value), data)
    found = parse(with_items(text, KEYS, items))
    expected = dict(parse(text))
    approved = expected.setdefault("tools", {}).setdefault("approved", [])
    approved += [item for item in items if item not in approved]
    assert found == expected


def _spaced(text: str, data: st.DataObject) -> str:
    """Return the same JSON with blanks and comments between its tokens."""
    parts: list[str] = []
    quoted = escaped = False
    for character in text:
        if not quoted and character in '{}[],:"':
            parts.append(data.draw(_blanks))
        parts.append(character)
        if character == '"' and not escaped:
            quoted = not quoted
        escaped = quoted and character == "\\" and not escaped
        if not quoted and character in "{[,:":
            parts.append(data.draw(_blanks))
    return "".join(parts)


# the file


def test_the_file_is_replaced_with_a_dated_backup_and_its_permissions_kept(tmp_path: Path) -> None:
    path = tmp_path / "codemode-mcp.json"
    path.write_text('{"tools": {"ask": ["destructive"]}} // mine\n')
    path.chmod(0o600)
    assert add_approved(path, ["mcp:a:b", "mcp:a:b"])
    assert load_config(path, environ={}).tools.policy.approved == ("mcp:a:b",)
    assert path.read_text().endswith("// mine\n")
    (backup,) = backup_folder(path).glob("codemode-mcp.json.????-??-??-??????.bak")
    assert backup.read_text() == '{"tools": {"ask": ["destructive"]}} // mine\n'
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    if sys.platform != "win32":
        assert [stat.S_IMODE(each.stat().st_mode) for each in (path, backup)] == [0o600, 0o600]


def test_what_is_there_already_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "codemode-mcp.json"
    path.write_text('{"tools": {"approved": ["mcp:a:b"]}}')
    before = path.stat()
    assert not add_approved(path, ["mcp:a:b"])
    assert path.stat() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_context_with_a_list_of_its_own_gets_the_tool_there(tmp_path: Path) -> None:
    path = tmp_path / "codemode-mcp.json"
    path.write_text('{"tools": {"contexts": {"me": {"for": ["stdio"], "approved": []}}}}')
    add_approved(path, ["mcp:a:b"], "me")
    assert path.read_text() == '{"tools": {"contexts": {"me": {"for": ["stdio"], "approved": ["mcp:a:b"]}}}}'


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need rights there")
def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    real = tmp_path / "dotfiles" / "real.json"
    real.write_text("{}")
    link = tmp_path / "codemode-mcp.json"
    link.symlink_to(real)
    add_approved(link, ["mcp:a:b"])
    assert link.is_symlink()
    assert json.loads(real.read_text()) == {"tools": {"approved": ["mcp:a:b"]}}


def test_a_byte_order_mark_stays(tmp_path: Path) -> None:
    path = tmp_path / "codemode-mcp.json"
    path.write_bytes(b'\xef\xbb\xbf{"tools": {"approved": []}}')
    add_approved(path, ["mcp:a:b"])
    assert path.read_bytes() == b'\xef\xbb\xbf{"tools": {"approved": ["mcp:a:b"]}}'


def test_a_file_that_cannot_be_read_is_reported_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "codemode-mcp.json"
    with pytest.raises(ConfigError, match="cannot be read"):
        add_approved(path, ["mcp:a:b"])
    path.write_text("{ broken")
    with pytest.raises(ConfigError, match="is not valid JSON"):
        add_approved(path, ["mcp:a:b"])
    assert path.read_text() == "{ broken"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_reported_and_the_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "codemode-mcp.json"
    path.write_text("{}")
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(ConfigError, match="could not be written"):
            add_approved(path, ["mcp:a:b"])
    finally:
        tmp_path.chmod(0o700)
    assert path.read_text() == "{}"


def test_only_so_many_backups_are_kept_and_other_files_stay(tmp_path: Path) -> None:
    path = tmp_path / "codemode-mcp.json"
    path.write_text("{}")
    backup_folder(path).mkdir(parents=True)
    mine = backup_folder(path) / "codemode-mcp.json.mine.bak"
    mine.write_text("mine")
    for number in range(MAX_BACKUPS + 5):
        add_approved(path, [f"mcp:a:{number}"])
    assert len(list(backup_folder(path).iterdir())) == MAX_BACKUPS + 1
    assert mine.exists()
    assert len(parse(path.read_text())["tools"]["approved"]) == MAX_BACKUPS + 5


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need a privilege there")
def test_a_backup_that_cannot_be_looked_at_does_not_undo_what_is_written(tmp_path: Path) -> None:
    path = tmp_path / "codemode-mcp.json"
    path.write_text("{}")
    os.utime(path, (1, 1))
    folder = backup_folder(path)
    folder.mkdir(parents=True)
    for number in range(MAX_BACKUPS):
        (folder / f"codemode-mcp.json.2020-01-01-00000{number}.bak").symlink_to("/nowhere/at/all")
    backup = replace_file(path, b"{}", '{"a": 1}')
    assert path.read_text() == '{"a": 1}'
    # However old the file was: its copy is the newest.
    assert backup is not None
    assert backup.read_text() == "{}"
    assert not os.path.lexists(folder / "codemode-mcp.json.2020-01-01-000000.bak")
    assert len(list(folder.iterdir())) == MAX_BACKUPS


def test_a_copy_that_the_disk_has_no_room_for_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "codemode-mcp.json"
    path.write_text("{}")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, b"{}", '{"a": 1}')
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    assert path.read_text() == "{}"


def test_approvals_at_the_same_time_are_all_kept_and_no_reader_sees_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / "codemode-mcp.json"
    path.write_text("{}")
    done = threading.Event()
    broken: list[str] = []

    def read() -> None:
        while not done.is_set():
            text = path.read_text()
            if not text.endswith("}"):
                broken.append(text)

    reader = threading.Thread(target=read)
    reader.start()
    writers = [threading.Thread(target=add_approved, args=(path, [f"mcp:a:{n}"])) for n in range(20)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    done.set()
    reader.join()
    assert broken == []
    assert sorted(parse(path.read_text())["tools"]["approved"]) == sorted(f"mcp:a:{n}" for n in range(20))


def test_what_another_process_writes_meanwhile_is_kept_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.json"
    path.write_text("{}")
    real, once = os.fsync, iter([with_items("{}", ("tools", "approved"), ("mcp:other:b",))])

    def fsync(descriptor: int) -> None:
        real(descriptor)
        for text in once:
            path.write_text(text)
            break

    monkeypatch.setattr(os, "fsync", fsync)
    assert add_approved(path, ("mcp:mine:a",))
    assert json.loads(path.read_text())["tools"]["approved"] == ["mcp:other:b", "mcp:mine:a"]
    assert len(list(backup_folder(path).iterdir())) == 1


def test_a_file_that_never_comes_to_rest_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.json"
    path.write_text("{}")
    monkeypatch.setattr(os, "fsync", lambda _: path.write_text(path.read_text() + " "))
    with pytest.raises(ConfigError, match="changed by another process in every attempt; change it by hand"):
        add_approved(path, ("mcp:mine:a",))
    assert json.loads(path.read_text()) == {}


@pytest.mark.parametrize("repository", [True, False], ids=["in a repository", "in any folder"])
def test_no_copy_of_a_file_is_kept_beside_it(tmp_path: Path, own_folders: None, repository: bool) -> None:
    project = tmp_path / "project" / "deep"
    project.mkdir(parents=True)
    if repository:
        (tmp_path / "project" / ".git").mkdir()
    path = project / ".mcp.json"
    path.write_text('{"tools": {}}')
    path.chmod(0o644)
    add_approved(path, ["mcp:a:b"])
    assert [each.name for each in project.iterdir()] == [".mcp.json"]
    (copy,) = backup_folder(path).iterdir()
    assert copy.read_text() == '{"tools": {}}'
    assert stat.S_IMODE(backup_folder(path).stat().st_mode) == 0o700
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
