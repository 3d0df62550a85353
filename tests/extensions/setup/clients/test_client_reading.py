"""Tests of reading files of clients as clients write them, and anything else at their path."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codemode_mcp.extensions.setup.mcp_clients.client_files import read_clients, read_file, read_named
from codemode_mcp.extensions.setup.mcp_clients.locations import Machine
from tests.values import replace

ENTRY = {"command": "npx", "args": ["-y", "server"]}


def here(home: Path, folder: Path | None = None) -> Machine:
    return Machine("linux", home, {}, folder or home / "work")


def put(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_comments_trailing_commas_byte_order_marks_and_windows_line_ends_are_read(tmp_path: Path) -> None:
    text = '{\r\n\t// mine\r\n\t"mcpServers": {\r\n\t\t"a": {"command": "x", /* why */ },\r\n\t},\r\n}\r\n'
    put(tmp_path / ".cursor" / "mcp.json", b"\xef\xbb\xbf" + text.encode())
    (source,) = read_clients(here(tmp_path))
    assert (source.title, source.servers) == ("Cursor, user", {"a": {"command": "x"}})
    assert read_file(source.path).data.startswith(b"\xef\xbb\xbf{\r\n")


def test_all_scopes_of_claude_code_are_found_in_a_file_full_of_history(tmp_path: Path) -> None:
    history = [{"display": "x" * 200, "pastedContents": {}} for _ in range(5_000)]
    folder = tmp_path / "work"
    value = {
        "numStartups": 312,
        "mcpServers": {"user-one": ENTRY},
        "projects": {
            str(folder): {"allowedTools": [], "history": history, "mcpServers": {"local-one": ENTRY}},
            "/elsewhere": {"mcpServers": {"other": ENTRY}},
            "/nothing": {"mcpServers": {}},
        },
    }
    put(tmp_path / ".claude.json", json.dumps(value))
    put(folder / ".mcp.json", json.dumps({"mcpServers": {"project-one": ENTRY}}))
    found = read_clients(here(tmp_path), ["claude-code"])
    assert {each.scope: list(each.servers) for each in found} == {
        "user": ["user-one"],
        "local": ["local-one"],
        "project": ["project-one"],
    }
    (note,) = found[0].notes
    assert note.startswith("1 other project has its own servers in this file")


def test_cursors_file_in_the_home_folder_is_read_once(tmp_path: Path) -> None:
    put(tmp_path / ".cursor" / "mcp.json", json.dumps({"mcpServers": {"one": ENTRY}}))
    found = read_clients(replace(here(tmp_path), folder=tmp_path))
    assert [each.title for each in found] == ["Cursor, user"]


def test_inputs_of_vs_code_are_read_from_both_of_its_files(tmp_path: Path) -> None:
    asked = {"id": "key", "type": "promptString", "password": True}
    value = {"servers": {"a": ENTRY}, "inputs": [asked, "no input", {"id": 3}]}
    put(tmp_path / ".config/Code/User/mcp.json", json.dumps(value))
    put(tmp_path / ".config/Code/User/settings.json", json.dumps({"editor.fontSize": 14, "mcp": value}))
    for source in read_clients(here(tmp_path), ["vscode"]):
        assert source.inputs == {"key": asked}
        assert source.servers == {"a": ENTRY}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param('{\n  "mcpServers": {\n    "a": {"command" "x"}\n', "line 3, column", id="syntax"),
        pytest.param("", "is empty", id="empty"),
        pytest.param("[]", "holds an array; expected an object", id="array"),
        pytest.param('{"mcpServers": ["s3cret"]}', "has an array as `mcpServers`; expected an object", id="servers"),
        pytest.param('{"mcpServers": "s3cret"}', "has a string as `mcpServers`; expected an object", id="text"),
        pytest.param(b'\xff\xfe{"\x00', "is not UTF-8 text", id="utf-16"),
        pytest.param(b"{}\x00", "NUL bytes", id="nul"),
        pytest.param("[" * 200_000, "nested too deeply", id="deep"),
        pytest.param("// x\n" * 80_000 + '{"a": s3cret}', "line 80001, column 7", id="large and wrong"),
    ],
)
def test_unusable_files_are_named_without_their_content(tmp_path: Path, text: str | bytes, problem: str) -> None:
    put(tmp_path / ".cursor" / "mcp.json", text)
    (source,) = read_clients(here(tmp_path))
    assert source.problem is not None
    assert problem in source.problem
    assert "s3cret" not in source.problem
    assert source.servers == {}


@pytest.mark.parametrize("servers", [pytest.param(None, id="null"), pytest.param({}, id="empty")])
def test_a_file_without_servers_is_not_a_problem(tmp_path: Path, servers: object) -> None:
    put(tmp_path / ".cursor" / "mcp.json", json.dumps({"mcpServers": servers}))
    (source,) = read_clients(here(tmp_path))
    assert (source.problem, source.servers) == (None, {})


@pytest.mark.skipif(sys.platform == "win32", reason="links and pipes of POSIX")
def test_folders_pipes_dead_links_and_devices_neither_hang_nor_crash(tmp_path: Path) -> None:
    (tmp_path / ".cursor" / "mcp.json").mkdir(parents=True)
    (tmp_path / ".codeium" / "windsurf").mkdir(parents=True)
    os.mkfifo(tmp_path / ".codeium" / "windsurf" / "mcp_config.json")
    (tmp_path / ".claude.json").symlink_to(tmp_path / "nowhere")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / ".mcp.json").symlink_to(tmp_path / "work" / ".mcp.json")
    problems = {each.path.name: each.problem for each in read_clients(here(tmp_path))}
    assert problems["mcp.json"] == "is a folder, not a file"
    assert problems["mcp_config.json"] == "is not a regular file"
    assert problems[".claude.json"] == "cannot be read: No such file or directory"
    assert problems[".mcp.json"] == "cannot be read: Too many levels of symbolic links"


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_read_permission_is_reported(tmp_path: Path) -> None:
    put(tmp_path / ".cursor" / "mcp.json", "{}").chmod(0)
    (source,) = read_clients(here(tmp_path))
    assert source.problem == "cannot be read: Permission denied"


def test_a_symbolic_link_is_followed(tmp_path: Path) -> None:
    target = put(tmp_path / "dotfiles.json", json.dumps({"mcpServers": {"a": ENTRY}}))
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor" / "mcp.json").symlink_to(target)
    (source,) = read_clients(here(tmp_path))
    assert list(source.servers) == ["a"]


def test_a_repeated_name_is_reported(tmp_path: Path) -> None:
    put(tmp_path / ".cursor" / "mcp.json", '{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}')
    (source,) = read_clients(here(tmp_path))
    assert source.servers == {"a": {"command": "y"}}
    assert source.notes == ("'a' is there more than once; the last one counts",)


def test_extensions_of_claude_desktop_are_reported_and_not_read(tmp_path: Path) -> None:
    file = put(tmp_path / ".config/Claude/claude_desktop_config.json", '{"mcpServers": {}}')
    assert read_clients(here(tmp_path))[0].notes == ()
    (file.parent / "Claude Extensions" / "ant.dir.gh.someone.pdf").mkdir(parents=True)
    (note,) = read_clients(here(tmp_path))[0].notes
    assert note.startswith("1 of its servers is an extension, not in this file")


def test_a_named_file_is_read_by_its_keys(tmp_path: Path) -> None:
    plain = put(tmp_path / "some" / "mcp.json", json.dumps({"mcpServers": {"a": ENTRY}}))
    (source,) = read_named(plain, here(tmp_path))
    assert (source.client, source.scope, source.folder) == (None, "file", tmp_path / "some")
    workspace = put(tmp_path / "other" / ".vscode" / "mcp.json", json.dumps({"servers": {"a": ENTRY}}))
    (source,) = read_named(workspace, here(tmp_path))
    assert (source.client, source.folder) == ("vscode", tmp_path / "other")
    known = put(tmp_path / ".cursor" / "mcp.json", json.dumps({"mcpServers": {"a": ENTRY}}))
    assert read_named(known, here(tmp_path))[0].title == "Cursor, user"
    (source,) = read_named(put(tmp_path / "package.json", '{"name": "x"}'), here(tmp_path))
    assert source.problem is not None
    assert "check that it is the right file" in source.problem
    (source,) = read_named(tmp_path / "gone.json", here(tmp_path))
    assert source.problem == "cannot be read: No such file or directory"


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from(("mcpServers", "servers", "mcp", "inputs", "projects", "id")) | st.text(), inner
        )
    ),
    max_leaves=12,
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(data=st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_file_is_read_or_its_problem_reported(tmp_path: Path, data: bytes) -> None:
    file = put(tmp_path / ".config/Code/User/settings.json", data)
    put(tmp_path / ".claude.json", data)
    for source in (*read_clients(here(tmp_path)), *read_named(file, here(tmp_path))):
        assert source.problem is None or source.servers == {}
