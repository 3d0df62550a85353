"""Changing TOML and YAML: what is not asked for stays as it is written, and what cannot be changed is refused."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codemode_mcp.config.source import SourceError
from codemode_mcp.extensions.setup.mcp_clients import formats

KEYS = ("mcp_servers",)
names = st.sampled_from(["a", "b-c", "d.e", "with space", "ü", "true"])
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
entries = st.fixed_dictionaries(
    {"command": texts, "args": st.lists(texts, max_size=3), "on": st.booleans(), "n": st.integers(0, 9)},
    optional={"env": st.dictionaries(names, texts, max_size=3)},
)


@settings(deadline=None, max_examples=60)
@given(before=st.dictionaries(names, entries, max_size=3), name=names, value=entries)
def test_what_is_added_to_toml_and_removed_leaves_the_rest(before: dict[str, Any], name: str, value: Any) -> None:
    text = "# mine\nx = 1\n\n" + "\n".join(formats.toml_member_text(KEYS, *each) for each in before.items())
    added = formats.toml_with_members(text, KEYS, {name: value})
    assert formats.parse_toml(added)["mcp_servers"] == {**before, name: value}
    if name not in before:
        assert added.startswith(text)
    removed = formats.toml_with_members(added, KEYS, {}, (name,))
    rest = {key: each for key, each in before.items() if key != name}
    assert formats.parse_toml(removed) == {"x": 1, **({"mcp_servers": rest} if rest else {})}
    assert removed.startswith("# mine\nx = 1\n")


@settings(deadline=None, max_examples=60)
@given(before=st.dictionaries(names, entries, max_size=3), name=names, value=entries)
def test_what_is_added_to_yaml_and_removed_leaves_the_rest(before: dict[str, Any], name: str, value: Any) -> None:
    inner = "".join(formats.yaml_member_text(key, each, "  ") for key, each in before.items())
    text = f"# mine\nx: 1\nextensions:{'' if inner else ' {}'}\n{inner}# the end\ny: 2\n"
    added = formats.yaml_with_members(text, ("extensions",), {name: value})
    assert formats.parse_yaml(added) == {"x": 1, "extensions": {**before, name: value}, "y": 2}
    assert added.startswith("# mine\nx: 1\n")
    assert added.endswith("# the end\ny: 2\n")
    rest = {key: each for key, each in before.items() if key != name}
    removed = formats.yaml_with_members(added, ("extensions",), {}, (name,))
    assert formats.parse_yaml(removed) == {"x": 1, "extensions": rest, "y": 2}
    assert removed.endswith("# the end\ny: 2\n")


@pytest.mark.parametrize("character", ["\0", "\x7f", "\x85", "\u2028", "\ufeff", "\ufffe", "\uffff", "\U0010ffff"])
def test_characters_that_yaml_does_not_allow_are_escaped(character: str) -> None:
    entry = {"command": f"{character}a{character}# b{character}"}
    text = formats.yaml_with_members("x: 1\n", ("extensions",), {"c": entry})
    assert formats.parse_yaml(text) == {"x": 1, "extensions": {"c": entry}}
    assert formats.yaml_with_members(text, ("extensions",), {}, ("c",)) == "x: 1\nextensions: {}\n"


def test_line_ends_of_windows_stay() -> None:
    toml = formats.toml_with_members("x = 1\r\n", KEYS, {"a": {"command": "b"}})
    assert toml == 'x = 1\r\n\r\n[mcp_servers.a]\r\ncommand = "b"\r\n'
    yaml = formats.yaml_with_members("x: 1\r\nextensions:\r\n  b: {}\r\n", ("extensions",), {"a": {"cmd": "b"}})
    assert yaml == "x: 1\r\nextensions:\r\n  b: {}\r\n  a:\r\n    cmd: b\r\n"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("[mcp_servers.a]\nx = 1\n# about b\n[mcp_servers.b]\nx = 2\n", "# about b\n[mcp_servers.b]\nx = 2\n"),
        ('mcp_servers.a.command = "x"\ny = 1\n', "y = 1\n"),
        ("[mcp_servers]\na.command = 'x'\nb.command = 'y'\n", "[mcp_servers]\nb.command = 'y'\n"),
        ('[mcp_servers.a]\nx = """\n[b]\n"""\ny = [\n  "]", # ]\n]\n[z]\n', "[z]\n"),
    ],
)
def test_a_table_is_removed_however_it_is_written(text: str, kept: str) -> None:
    assert formats.toml_with_members(text, KEYS, {}, ("a",)) == kept


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (formats.toml_with_members, 'mcp_servers = { a = { command = "x" }, c = { command = "z" } }\n'),
        (formats.toml_with_members, "mcp_servers = 1\n"),
    ],
)
def test_toml_that_cannot_be_changed_is_refused(change: Any, text: str) -> None:
    with pytest.raises(SourceError, match="could not be changed"):
        change(text, KEYS, {"b": {"command": "y"}}, ("a",))


@pytest.mark.parametrize("text", ["extensions: {a: {cmd: x}}\n", "extensions: 1\n", "- a\n"])
def test_yaml_that_cannot_be_changed_is_refused(text: str) -> None:
    with pytest.raises(SourceError):
        formats.yaml_with_members(text, ("extensions",), {"b": {"cmd": "y"}})


def test_an_anchor_keeps_every_place_that_it_stands_for() -> None:
    with pytest.raises(SourceError, match="change it by hand"):
        formats.yaml_with_members("extensions: &x\n  a: 1\nb: *x\n", ("extensions",), {"c": {"cmd": "y"}})


def test_words_that_yaml_1_1_reads_as_switches_stay_words() -> None:
    assert formats.parse_yaml("a: yes\nb: on\n") == {"a": "yes", "b": "on"}
