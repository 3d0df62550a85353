"""The rules of namespaces: what may be registered, what a scope may hold, and the end of what is not JSON."""

from __future__ import annotations

import json
from collections import OrderedDict, deque, namedtuple
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from functools import partial
from pathlib import PurePosixPath
from types import MappingProxyType, SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from codemode_mcp.catalog.plugins.api import namespace_tool
from codemode_mcp.catalog.plugins.scopes import (
    MAX_DEPTH,
    MAX_KEY,
    MAX_NAME,
    MAX_PROMPT,
    MAX_SCOPE_CHARACTERS,
    MAX_VALUES,
    Namespace,
    check_namespace,
    read_input,
    read_scope,
)
from tests.values import replace

TOOLS = ("list", "add", "close")
GOOD = Namespace("issues", "tracker", "issues", "Issues of the team", ("list", "add"), lambda context: {})


# registration


def check(*others: Namespace, **changes: Any) -> None:
    check_namespace(replace(GOOD, **changes), TOOLS, others)


def test_a_namespace_may_be_registered_and_is_offered_as_it_is() -> None:
    check()
    check(id="issue-tracker_2", global_name="$Issues_2", prompt="x" * MAX_PROMPT, required_tools=["list"])
    offered = GOOD.offered
    found = (offered.id, offered.plugin, offered.global_name, offered.required_tools)
    assert found == ("issues", "tracker", "issues", ("list", "add"))


@pytest.mark.parametrize(
    "bad",
    ["", "1st", "a.b", "a b", "_x", "-x", "ü", "a" * (MAX_NAME + 1), "constructor", "prototype", "then", "toString",
     "hasOwnProperty", "toJSON", "valueOf", "a\n", None, 7],
)  # fmt: skip
def test_ids_that_cannot_be_members_of_namespaces_are_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match="is not a valid namespace id"):
        check(id=bad)


@pytest.mark.parametrize(
    "bad", ["", "1st", "a-b", "a.b", "a b", "é", "issues ", "issues\n", "x" * (MAX_NAME + 1), "a\u200db", None, 3]
)
def test_global_names_that_are_no_identifiers_are_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"namespace 'issues': the global name .* is not an identifier"):
        check(global_name=bad)


@pytest.mark.parametrize("bad", ["class", "await", "let", "arguments", "eval", "null", "true", "undefined", "enum"])
def test_global_names_that_javascript_reserves_or_needs_are_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="is a reserved word of JavaScript"):
        check(global_name=bad)


@pytest.mark.parametrize(
    "bad",
    ["MCP", "API", "tools", "ALL_TOOLS", "namespaces", "text", "json", "image", "console", "unwrap", "store", "load",
     "yield_control", "setTimeout", "URL", "Object", "Promise", "JSON", "Array", "globalThis", "NaN", "Proxy",
     "__proto__", "constructor", "toString", "hasOwnProperty", "process", "require", "window", "prototype", "then"],
)  # fmt: skip
def test_global_names_that_programs_have_already_are_refused(bad: str) -> None:
    with pytest.raises(ValueError, match=r"namespace 'issues': the global name .* is taken"):
        check(global_name=bad)


def test_an_id_is_registered_once_by_any_owner() -> None:
    other = replace(GOOD, plugin="another", global_name="others")
    with pytest.raises(ValueError, match="namespace 'issues' exists already, in plugin 'another'"):
        check(other)


def test_a_global_name_is_registered_once_by_any_owner() -> None:
    other = replace(GOOD, id="others", plugin="another")
    with pytest.raises(ValueError, match="global name 'issues' is taken by namespace 'others' of plugin 'another'"):
        check(other)


@pytest.mark.parametrize(
    ("required", "message"),
    [
        ((), "requires no tools"),
        ("list", "must be a list of tool names, not a str"),
        (None, "must be a list of tool names, not nothing"),
        ({"list"}, "must be a list of tool names, not a set"),
        ((1,), "contains a int"),
        (("list", "list"), "names a tool twice"),
        (("list", "delete"), "requires 'delete', which is not a tool of plugin 'tracker'; its tools: add, close, list"),
        (("mcp:github:delete",), "is not a tool of plugin 'tracker'"),
        (("plugin:tracker:list",), "is not a tool of plugin 'tracker'"),
    ],
)
def test_required_tools_are_tools_of_the_same_plugin(required: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(required_tools=required)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"description": ""}, "needs a description"),
        ({"description": " \n"}, "needs a description"),
        ({"description": None}, "the description must be a string, not nothing"),
        ({"prompt": 5}, "the prompt must be a string, not a int"),
        ({"prompt": "x" * (MAX_PROMPT + 1)}, "more than 1000"),
        ({"create_scope": {}}, "create_scope must be a function of one context, not a dict"),
    ],
)
def test_the_other_fields_are_checked_too(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(**changes)


# scopes: what is refused


def scope(made: Any) -> Any:
    return json.loads(read_scope(made, TOOLS).text)


class Called:
    def __call__(self) -> None:
        raise AssertionError("nothing in a scope is called")

    def method(self) -> None:
        raise AssertionError("nothing in a scope is called")


FUNCTIONS: dict[str, Any] = {
    "a function": lambda: 1,
    "a method": Called().method,
    "an object that can be called": Called(),
    "a class": Called,
    "a built-in": print,
    "a partial": partial(print, 1),
    "namespace_tool itself": namespace_tool,
    "an input mapper": lambda arguments: arguments,
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_raw_functions_are_refused_by_their_place(kind: str) -> None:
    with pytest.raises(ValueError, match=r"^scope\.a\.0\.b is a raw function; use namespace_tool"):
        scope({"a": [{"b": FUNCTIONS[kind]}]})


async def _never() -> None: ...


def test_a_coroutine_that_no_user_has_awaited_is_refused() -> None:
    with pytest.raises(ValueError, match=r"scope\.a is a coroutine that was not awaited"):
        scope({"a": _never()})


@pytest.mark.parametrize("made", [None, [], "text", 5, ({},), Decimal(1), {1, 2}, b"x"])
def test_a_scope_is_an_object(made: Any) -> None:
    with pytest.raises(ValueError, match="a scope must be an object, not"):
        scope(made)


def test_a_scope_is_not_one_function() -> None:
    with pytest.raises(ValueError, match="not one function"):
        scope(namespace_tool("list"))


def _cycle(kind: str) -> Any:
    made: dict[str, Any] = {"a": {}}
    match kind:
        case "itself":
            made["a"] = made
        case "a list":
            made["a"] = [made]
        case "a list in itself":
            made["a"] = []
            made["a"].append(made["a"])
        case "far down":
            made["a"]["b"] = [{"c": made["a"]}]
        case "a dataclass":
            made["a"] = Linked(None)
            made["a"].other = made["a"]
        case "a proxy":
            made["a"] = MappingProxyType(made)
    return made


@dataclass
class Linked:
    other: Any


@pytest.mark.parametrize("kind", ["itself", "a list", "a list in itself", "far down", "a dataclass", "a proxy"])
def test_cycles_are_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="contains itself"):
        scope(_cycle(kind))


def test_shared_references_are_no_cycles() -> None:
    shared = {"labels": ["a", "b"], "add": namespace_tool("add")}
    read = read_scope({"mine": shared, "theirs": shared, "all": [shared, shared]}, TOOLS)
    told = {"labels": ["a", "b"], "add": None}
    assert json.loads(read.text) == {"mine": told, "theirs": told, "all": [told, told]}
    assert set(read.functions) == {"mine.add", "theirs.add", "all.0.add", "all.1.add"}


def test_shared_references_cannot_blow_up() -> None:
    made: Any = {"x": 1}
    for _ in range(25):
        made = {"a": made, "b": made}
    with pytest.raises(ValueError, match=f"more than {MAX_VALUES} values"):
        scope(made)


@pytest.mark.parametrize("key", ["__proto__", "constructor", "prototype"])
@pytest.mark.parametrize("value", [1, {"polluted": True}, namespace_tool("list")])
def test_keys_that_lead_to_prototypes_are_refused(key: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^scope\.a has the key '{key}'"):
        scope({"a": {key: value}})


def test_empty_keys_and_keys_with_the_separator_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^scope has an empty key"):
        scope({"": 1})
    with pytest.raises(ValueError, match=r'^scope\.a has the key "b\.c"'):
        scope({"a": {"b.c": namespace_tool("list")}})
    with pytest.raises(ValueError, match=r'^scope has the key "1\.5"'):
        scope({1.5: "a number is a key like any other"})


@pytest.mark.parametrize("key", [None, (1, 2), True, frozenset()])
def test_keys_that_are_neither_strings_nor_numbers_are_refused(key: Any) -> None:
    with pytest.raises(ValueError, match="scope has a key that is"):
        scope({key: 1})


def test_keys_that_become_the_same_are_refused() -> None:
    with pytest.raises(ValueError, match='has the key "1" twice'):
        scope({1: "a", "1": "b"})


@pytest.mark.parametrize("key", ["then", "toJSON", "toString", "valueOf", "hasOwnProperty", "toLocaleString"])
def test_what_the_language_calls_by_itself_is_no_function_but_may_be_data(key: str) -> None:
    with pytest.raises(ValueError, match=rf"scope\.{key}: JavaScript itself calls {key}"):
        scope({key: namespace_tool("list")})
    assert scope({key: 1}) == {key: 1}


@pytest.mark.parametrize("tool", ["close", "delete", "plugin:tracker:list", "mcp:github:delete", "", None, 5])
def test_a_marker_targets_required_tools_alone(tool: Any) -> None:
    with pytest.raises(ValueError, match=r"scope\.a calls .* not among required_tools \(add, list\)"):
        read_scope({"a": namespace_tool(tool)}, ("list", "add"))


def test_input_mappers_are_plain_functions() -> None:
    async def mapper(given: Any) -> Any:
        return given

    with pytest.raises(ValueError, match=r"scope\.a: the input mapper is async"):
        scope({"a": namespace_tool("list", mapper)})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"scope\.a: the input mapper must be a function, not a dict"):
        scope({"a": namespace_tool("list", {})})  # type: ignore[arg-type]


def test_scopes_are_bounded() -> None:
    deep: Any = 1
    for _ in range(MAX_DEPTH):
        deep = {"a": deep}
    assert scope(deep)
    with pytest.raises(ValueError, match=f"more than {MAX_DEPTH} levels"):
        scope({"a": deep})
    with pytest.raises(ValueError, match="characters"):
        scope({"a": "x" * MAX_SCOPE_CHARACTERS})
    with pytest.raises(ValueError, match="characters"):
        scope({"a": ["\n" * 1000] * (MAX_SCOPE_CHARACTERS // 2000 + 10)})
    with pytest.raises(ValueError, match="values"):
        scope({"a": range(10**12)})
    with pytest.raises(ValueError, match=f"more than {MAX_KEY}"):
        scope({"a" * (MAX_KEY + 1): 1})
    with pytest.raises(ValueError, match="too large"):
        scope({"a": 10**5000})


@pytest.mark.parametrize("value", [object(), SimpleNamespace(a=1), (n for n in ()), iter([]), 1j, ValueError("x")])
def test_what_has_no_form_is_refused_and_not_shown(value: Any) -> None:
    with pytest.raises(ValueError, match=r"scope\.a is a \w+, which has no JSON form") as refusal:
        scope({"a": value})
    assert "0x" not in str(refusal.value)


# scopes: the end of what is not JSON


class Colour(Enum):
    RED = "red"


class Size(IntEnum):
    BIG = 3


class Label(BaseModel):
    name: str
    since: date


@dataclass
class Person:
    name: str
    born: date


Point = namedtuple("Point", "x y")

FORMS: dict[str, tuple[Any, Any]] = {
    "null": (None, None),
    "booleans": ([True, False], [True, False]),
    "numbers": ([0, -1, 1.5, 2**53 - 1], [0, -1, 1.5, 2**53 - 1]),
    "large whole numbers": ([2**53, -(2**63)], [2**53, -(2**63)]),
    "what JSON has not got": ([float("nan"), float("inf"), float("-inf"), Decimal("NaN")], [None] * 4),
    "decimals": (Decimal("1.10"), "1.10"),
    "fractions": (Fraction(1, 3), "1/3"),
    "times": (datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc), "2026-01-02T03:04:05+00:00"),  # noqa: UP017
    "times without a zone": (datetime(2026, 1, 2, 3, 4, 5), "2026-01-02T03:04:05"),  # noqa: DTZ001
    "dates": (date(2026, 1, 2), "2026-01-02"),
    "times of day": (time(3, 4), "03:04:00"),
    "lengths of time": (timedelta(minutes=1, milliseconds=500), 60.5),
    "unique ids": (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    "paths": (PurePosixPath("a/b"), "a/b"),
    "bytes": ([b"\x00\xff", bytearray(b"a"), memoryview(b"b")], ["AP8=", "YQ==", "Yg=="]),
    "enumerations": ([Colour.RED, Size.BIG], ["red", 3]),
    "tuples": ((1, (2,)), [1, [2]]),
    "other sequences": ([deque([1]), range(3)], [[1], [0, 1, 2]]),
    "sets": ([{3, 1, 2}, frozenset("ba")], [[1, 2, 3], ["a", "b"]]),
    "views of objects": ({"a": 1}.keys(), ["a"]),
    "other mappings": ([OrderedDict(b=1, a=2), MappingProxyType({"x": 1})], [{"b": 1, "a": 2}, {"x": 1}]),
    "models": (Label(name="x", since=date(2026, 1, 2)), {"name": "x", "since": "2026-01-02"}),
    "dataclasses": (Person("Ada", date(1815, 12, 10)), {"name": "Ada", "born": "1815-12-10"}),
    "named tuples": (Point(1, {2}), {"x": 1, "y": [2]}),
    "keys": ({1: 0, Colour.RED: 0, date(2026, 1, 2): 0, b"x": 0}, {"1": 0, "red": 0, "2026-01-02": 0, "eA==": 0}),
    "halves of characters": ("a\ud83d", "a\ufffd"),
    "halves that belong together": ("\ud83d\ude00", "\U0001f600"),
    "text of any kind": ("\u2028</script>\0", "\u2028</script>\0"),
}


@pytest.mark.parametrize("kind", FORMS)
def test_what_is_not_json_becomes_json_by_fixed_rules(kind: str) -> None:
    value, expected = FORMS[kind]
    assert scope({"it": value, "deep": [{"it": value}]}) == {"it": expected, "deep": [{"it": expected}]}


def test_a_scope_may_be_a_model_or_a_dataclass() -> None:
    assert scope(Label(name="x", since=date(2026, 1, 2))) == {"name": "x", "since": "2026-01-02"}
    read = read_scope(Linked(namespace_tool("list")), TOOLS)
    assert (json.loads(read.text), list(read.functions)) == ({"other": None}, ["other"])


def test_functions_are_kept_by_path_and_are_null_in_the_data() -> None:
    add = namespace_tool("add", lambda title: {"title": title})
    read = read_scope({"list": namespace_tool("list"), "repos": [{"name": "a", "add": add}]}, TOOLS)
    assert json.loads(read.text) == {"list": None, "repos": [{"name": "a", "add": None}]}
    assert read.functions == {"list": namespace_tool("list"), "repos.0.add": add}


# what input mappers return


def test_an_input_may_have_any_key() -> None:
    given = {"__proto__": 1, "a.b": {"constructor": [date(2026, 1, 2)]}, "": {1: Decimal("1.5")}}
    assert read_input(given) == {"__proto__": 1, "a.b": {"constructor": ["2026-01-02"]}, "": {"1": "1.5"}}


@pytest.mark.parametrize("mapped", [None, [], "x", 5])
def test_an_input_is_an_object(mapped: Any) -> None:
    with pytest.raises(ValueError, match="an input mapper must return the tool's input, an object, not"):
        read_input(mapped)


def test_an_input_holds_no_functions() -> None:
    with pytest.raises(ValueError, match=r"^input\.a is a raw function"):
        read_input({"a": print})
    with pytest.raises(ValueError, match="which only a scope may contain"):
        read_input({"a": namespace_tool("list")})
