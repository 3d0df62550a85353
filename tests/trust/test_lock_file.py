"""The lock file: digests of accepted items, for version control."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codemode_mcp.rules.trust.items import SERVER_KEY, item_of
from codemode_mcp.rules.trust.pins_file import (
    LockFile,
    LockFileError,
    LockFileMissing,
    lock_path,
    lock_text,
    read_lock_file,
    write_lock_file,
)


def lock_of(*names: str) -> LockFile:
    """Return a lock file with one server that has these tools, a prompt and a template."""
    items = [
        item_of("entry", "", {"command": "demo"}),
        item_of("server", "", {"name": "demo"}),
        *(item_of("tool", name, {"name": name}) for name in names),
        item_of("prompt", "greet", {"name": "greet"}),
        item_of("template", "file:///{path}", {"uriTemplate": "file:///{path}"}),
    ]
    return LockFile({"demo": {item.key: item for item in items}})


def test_a_lock_file_stands_beside_its_configuration() -> None:
    assert lock_path(Path("/team/mcp.json")) == Path("/team/codemode-mcp.lock.json")


def test_a_lock_file_keeps_names_and_digests_and_no_definition(tmp_path: Path) -> None:
    path = tmp_path / "codemode-mcp.lock.json"
    lock = lock_of("b", "a")
    assert write_lock_file(path, lock)
    found = read_lock_file(path).servers["demo"]
    assert {key: (item.digest, item.shape_digest) for key, item in found.items()} == {
        key: (item.digest, item.shape_digest) for key, item in lock.servers["demo"].items()
    }
    assert all(item.definition is None for item in found.values())
    assert list(json.loads(path.read_text())["servers"]["demo"]["tools"]) == ["a", "b"]


def test_a_lock_file_of_format_1_has_no_entries(tmp_path: Path) -> None:
    path = tmp_path / "codemode-mcp.lock.json"
    content = json.loads(lock_text(lock_of("a")))
    del content["servers"]["demo"]["entry"]
    path.write_text(json.dumps({**content, "format": 1}))
    found = read_lock_file(path)
    assert sorted({kind for kind, _ in found.servers["demo"]}) == ["prompt", "server", "template", "tool"]
    assert "entry" not in lock_text(found)


def test_the_same_items_have_the_same_text_in_any_order() -> None:
    assert lock_text(lock_of("a", "b", "c")) == lock_text(lock_of("c", "a", "b"))


def test_an_unchanged_lock_file_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "codemode-mcp.lock.json"
    write_lock_file(path, lock_of("a"))
    before = path.stat().st_ino
    assert not write_lock_file(path, lock_of("a"))
    assert path.stat().st_ino == before
    assert write_lock_file(path, lock_of("b"))
    assert os.listdir(tmp_path) == ["codemode-mcp.lock.json"]


def test_a_missing_lock_file_names_the_command_that_writes_it(tmp_path: Path) -> None:
    with pytest.raises(LockFileMissing, match="does not exist; write it with: codemode-mcp trust lock"):
        read_lock_file(tmp_path / "codemode-mcp.lock.json")


SHA = "0" * 64


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"format": 1}',
        '{"format": 3, "servers": {}}',
        '{"format": 1, "servers": {"a": {}}}',
        '{"format": 1, "servers": {}, "more": 1}',
        f'{{"format": 1, "servers": {{"a": {{"server": {{"digest": "{SHA}", "shape": "x"}}}}}}}}',
        "[" * 100_000,
        "\ud800",
    ],
)
def test_anything_else_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "codemode-mcp.lock.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(LockFileError, match="codemode-mcp trust lock"):
        read_lock_file(path)


def test_a_lock_file_that_is_no_regular_file_is_refused_without_waiting(tmp_path: Path) -> None:
    path = tmp_path / "codemode-mcp.lock.json"
    os.mkfifo(path)
    with pytest.raises(LockFileError, match="is not a regular file"):
        read_lock_file(path)


def test_names_that_collide_are_locked_and_no_others(tmp_path: Path) -> None:
    tools = {("tool", name): item_of("tool", name, {}) for name in ("get_item", "getItem", "plain")}
    server = {SERVER_KEY: item_of(*SERVER_KEY, {})}
    names = {"foo-bar": "fooBar", "FooBar": "fooBar_2"}
    of_tools = {"get_item": "getItem", "getItem": "getItem_2", "plain": "plain", "gone": "gone_2"}
    lock = LockFile({"foo-bar": server, "FooBar": server | tools}, names, {"FooBar": of_tools})
    path = tmp_path / "codemode-mcp.lock.json"
    write_lock_file(path, lock)
    read = read_lock_file(path)
    assert read.server_names == {"FooBar": "fooBar_2"}
    assert read.tool_names == {"FooBar": {"getItem": "getItem_2"}, "foo-bar": {}}
    plain = lock_text(LockFile({"foo-bar": server}, {"foo-bar": "fooBar"}, {"foo-bar": {}}))
    assert plain == lock_text(LockFile({"foo-bar": server}))


@settings(deadline=None)
@given(st.dictionaries(st.text(), st.text()))
def test_any_names_survive(names: dict[str, str]) -> None:
    lock = LockFile(
        {"demo": {SERVER_KEY: item_of(*SERVER_KEY, {})}}
        | {
            name: {SERVER_KEY: item_of(*SERVER_KEY, {}), ("tool", tool): item_of("tool", tool, {})}
            for name, tool in names.items()
        }
    )
    value = json.loads(lock_text(lock))
    assert set(value["servers"]) == {"demo", *names}
