"""The comparison of definitions: differences, texts that mean the same, and names of items as people type them."""

import copy
import random
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codemode_mcp.rules.trust.items import (
    MAX_DEPTH,
    SERVER_KEY,
    Key,
    Kind,
    item_of,
    items_of,
    listed_item,
    parse_reference,
    reference,
    tool_item,
)
from upstream_clients.tools import Annotations, Tool, UpstreamView

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS,
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(alphabet="xyz"), each, max_size=3),
    max_leaves=6,
)
NAMES = st.text(alphabet="abcdtitle", min_size=1, max_size=5) | st.sampled_from(["title", "description", "$comment"])


def _schema(below: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["string", "object", "array", ["string", "null"]]),
            "description": st.text(max_size=5),
            "title": st.text(max_size=5),
            "enum": st.lists(SCALARS, max_size=3),
            "default": VALUES,
            "required": st.lists(NAMES, max_size=3),
            "minimum": st.integers(0, 9),
            "properties": st.dictionaries(NAMES, below, max_size=3),
            "items": below,
            "anyOf": st.lists(below, max_size=2),
            "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, max_size=3), max_size=2),
            "$defs": st.dictionaries(NAMES, below, max_size=2),
        },
    )


SCHEMAS = st.recursive(_schema(st.just({})), _schema, max_leaves=6)
DEFINITIONS = st.fixed_dictionaries(
    {"name": st.just("create"), "inputSchema": SCHEMAS},
    optional={
        "description": st.text(max_size=9),
        "title": st.text(max_size=9),
        "outputSchema": SCHEMAS,
        "annotations": st.fixed_dictionaries(
            {}, optional={"title": st.text(max_size=4), "readOnlyHint": st.booleans()}
        ),
    },
)


def reordered(value: Any, pick: random.Random, key: str = "") -> Any:
    """Return an equal definition with its members, and lists that are sets, in another order."""
    match value:
        case dict():
            members = list(value.items())
            pick.shuffle(members)
            return {name: reordered(member, pick, name) for name, member in members}
        case list():
            items = [reordered(item, pick) for item in value]
            if key in ("required", "type"):
                pick.shuffle(items)
            return items
        case int() if not isinstance(value, bool) and abs(value) < 2**53 and pick.random() < 0.5:
            return float(value)
    return value


@given(DEFINITIONS, st.randoms(use_true_random=False))
def test_another_order_of_members_and_sets_is_no_difference(definition: dict[str, Any], pick: random.Random) -> None:
    other = reordered(definition, pick)
    assert item_of("tool", "create", other).digest == item_of("tool", "create", definition).digest
    assert item_of("tool", "create", other).shape_digest == item_of("tool", "create", definition).shape_digest


@given(DEFINITIONS, st.text(max_size=5))
def test_another_description_changes_the_digest_and_not_the_shape(definition: dict[str, Any], text: str) -> None:
    other = {**definition, "description": definition.get("description", "") + text + "x"}
    assert item_of("tool", "create", other).digest != item_of("tool", "create", definition).digest
    assert item_of("tool", "create", other).shape_digest == item_of("tool", "create", definition).shape_digest


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths to all scalars of a definition."""
    match value:
        case dict():
            return [each for key, member in value.items() for each in places(member, (*path, key))]
        case list():
            return [each for index, item in enumerate(value) for each in places(item, (*path, index))]
    return [path]


TOOL: dict[str, Any] = {
    "name": "create_issue",
    "title": "Create an issue",
    "description": "Creates an issue.",
    "annotations": {"readOnlyHint": False, "destructiveHint": True},
    "inputSchema": {
        "type": "object",
        "required": ["title", "owner"],
        "additionalProperties": False,
        "$comment": "for people",
        "properties": {
            "title": {"type": "string", "maxLength": 80, "description": "Its title.", "default": {"title": "x"}},
            "description": {"type": ["string", "null"], "enum": ["a", None], "title": "Text"},
            "labels": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$", "description": "A label."}},
            "when": {"anyOf": [{"const": "now"}, {"type": "integer", "minimum": 1, "description": "Seconds."}]},
        },
        "dependentRequired": {"labels": ["title", "owner"]},
    },
}
TEXTS = [
    ("title",),
    ("description",),
    ("inputSchema", "$comment"),
    ("inputSchema", "properties", "title", "description"),
    ("inputSchema", "properties", "description", "title"),
    ("inputSchema", "properties", "labels", "items", "description"),
    ("inputSchema", "properties", "when", "anyOf", 1, "description"),
]


@pytest.mark.parametrize("path", places(TOOL), ids=str)
def test_every_other_value_is_a_change_and_only_texts_keep_the_shape(path: tuple[Any, ...]) -> None:
    other = copy.deepcopy(TOOL)
    at: Any = other
    for step in path[:-1]:
        at = at[step]
    value = at[path[-1]]
    at[path[-1]] = not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else f"{value}\u200b"
    assert item_of("tool", "t", other).digest != item_of("tool", "t", TOOL).digest
    same_shape = item_of("tool", "t", other).shape_digest == item_of("tool", "t", TOOL).shape_digest
    assert same_shape == (path in TEXTS)


def test_a_property_that_is_called_description_belongs_to_the_shape() -> None:
    other = copy.deepcopy(TOOL)
    del other["inputSchema"]["properties"]["description"]
    assert item_of("tool", "t", other).shape_digest != item_of("tool", "t", TOOL).shape_digest


def test_the_order_of_an_enumeration_is_no_difference_and_that_of_a_default_is() -> None:
    def tool(key: str, values: list[Any]) -> str:
        return item_of("tool", "t", {"inputSchema": {"properties": {"a": {key: values}}}}).digest

    assert tool("enum", [1, 2]) == tool("enum", [2, 1.0])
    assert tool("default", [1, 2]) != tool("default", [2, 1])
    assert tool("enum", [1]) != tool("enum", [True])


def test_a_definition_that_is_nested_too_deeply_cannot_be_compared() -> None:
    schema: dict[str, Any] = {}
    for _ in range(MAX_DEPTH + 1):
        schema = {"items": schema}
    item = item_of("tool", "t", {"name": "t", "inputSchema": schema})
    assert not item.is_comparable
    assert item.shape_digest == ""


def test_an_integer_that_cannot_be_written_cannot_be_compared() -> None:
    assert not item_of("tool", "t", {"default": 10**5000}).is_comparable


def test_half_of_a_surrogate_pair_is_compared_like_other_text() -> None:
    assert item_of("tool", "t", {"description": "\ud800"}).is_comparable


def test_a_listing_has_an_item_for_each_part() -> None:
    view = UpstreamView(
        "github",
        "ready",
        server_name="github-mcp",
        instructions="Be brief.",
        tools=(Tool("a", "A.", annotations=Annotations(read_only=True)), Tool("b")),
        prompt_list=({"name": "p", "_meta": {"now": 1}}, {"name": "p", "description": "second"}),
        template_list=({"uriTemplate": "file:///{name}", "name": "files"},),
    )
    items = items_of(view)
    assert list(items) == [SERVER_KEY, ("tool", "a"), ("tool", "b"), ("prompt", "p"), ("template", "file:///{name}")]
    assert items[SERVER_KEY].definition == {"name": "github-mcp", "instructions": "Be brief."}
    assert items["tool", "a"].definition == {
        "name": "a",
        "description": "A.",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
    }
    assert items["prompt", "p"].definition == {"name": "p"}


def test_the_order_of_objects_has_a_meaning_since_references_may_name_a_position() -> None:
    def digest(listed: list[object]) -> str:
        schema = {"type": "object", "properties": {"p": {"$ref": "#/$defs/a/0"}}, "$defs": {"a": listed}}
        return tool_item(Tool("t", input_schema=schema)).digest

    assert digest([{"const": "safe"}, {"const": "rm"}]) != digest([{"const": "rm"}, {"const": "safe"}])


def test_metadata_is_no_difference_except_for_the_user_interface_of_a_tool() -> None:
    def tool(meta: dict[str, Any] | None, **more: Any) -> tuple[str, str]:
        item = tool_item(Tool("t", meta=meta, **more))
        return item.digest, item.shape_digest

    app = {"ui": {"resourceUri": "ui://t/app", "title": "T"}}
    assert tool(None) == tool({"at": 1}) == tool({"at": 2}, icons=({"src": "a"},))
    assert tool(app) == tool({**app, "at": 3})
    for other in (None, {"ui": {"resourceUri": "ui://t/other", "title": "T"}}, {"ui": {**app["ui"], "title": "U"}}):
        assert tool(app)[0] != tool(other)[0]
        assert tool(app)[1] != tool(other)[1]
    assert tool({"ui/resourceUri": "ui://a"})[1] != tool({"ui/resourceUri": "ui://b"})[1]


def test_metadata_of_prompts_and_templates_is_no_difference() -> None:
    metadata = {"_meta": {"at": 1}, "icons": [{"src": "a"}], "annotations": {"lastModified": "2026-01-01T00:00:00Z"}}
    prompt, template = {"name": "p"}, {"uriTemplate": "a:{b}"}
    assert listed_item("prompt", prompt) == listed_item("prompt", prompt | metadata)
    assert listed_item("template", template) == listed_item("template", template | metadata)


def test_a_title_of_the_annotations_is_a_text() -> None:
    def tool(title: str | None, shown: str | None) -> tuple[str, str]:
        item = tool_item(Tool("t", title=title, annotations=Annotations(title=shown)))
        return item.digest, item.shape_digest

    assert tool("T", "T") == tool("T", None)
    assert tool("T", "U")[0] != tool("T", "V")[0]
    assert tool("T", "U")[1] == tool("T", "V")[1] == tool("W", None)[1]


def test_values_that_are_equal_in_python_are_still_told_apart() -> None:
    digests = [item_of("tool", "look", {"inputSchema": {"default": value}}).digest for value in (1, True, 1.0, "1")]
    assert digests[0] == digests[2]
    assert len(set(digests)) == 3


# Names of items of servers, as people type them.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("github", ("github", None)),
        ("github.create_issue", ("github", ("tool", "create_issue"))),
        ("github.prompts/greet", ("github", ("prompt", "greet"))),
        ("github.templates/repo://{owner}", ("github", ("template", "repo://{owner}"))),
        ("github.server/", ("github", ("server", ""))),
        ("github.eu.list", ("github.eu", ("tool", "list"))),
        ("github.eu", ("github.eu", None)),
        ("gitlab.list", None),
        ("git", None),
    ],
)
def test_an_item_is_named_by_its_server_and_its_name(text: str, expected: tuple[str, Key | None] | None) -> None:
    assert parse_reference(text, ["github", "github.eu"]) == expected


@settings(deadline=None)
@given(st.sampled_from(get_args(Kind)), st.text() | st.sampled_from(["prompts/x", "tools/x", "server/"]))
def test_each_item_has_a_name_that_stands_for_nothing_else(kind: Kind, name: str) -> None:
    assert parse_reference(reference("a.b", kind, name), ["a", "a.b"]) == ("a.b", (kind, name))
