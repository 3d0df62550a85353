"""`namespaces.d.ts`: the scope of a namespace as types that compile."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import declarations
from declarations.functions import NamespaceSummary, ScopeFunction, ScopeObject, render_namespaces
from upstream_clients.tools import Tool

GUEST = (Path(declarations.__file__).parent / "guest.d.ts").read_text("utf-8")
TREE = {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/T"}}}}
FIND = Tool(
    "find",
    "Find a book. */ declare const stolen: 1;",
    input_schema={"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
    output_schema={"type": "array", "items": {"type": "object", "properties": {"id": {"type": "integer"}}}},
)
GROW = Tool("grow", "Grow a tree.", output_schema={"$ref": "#/$defs/T", "$defs": {"T": TREE}})
SCOPE = ScopeObject(
    {
        "find": ScopeFunction("find"),
        "by-title": ScopeFunction("find", mapped=True),
        "unknown": ScopeFunction("gone"),
        "deep": ScopeObject({"er": ScopeObject({"grow": ScopeFunction("grow")}), "name": "string"}),
        "many": ScopeObject({"m1": "number"}, more=True),
        "*/ x: 1 //": "readonly number[]",
        "__proto__": "null",
    }
)


def rendered(*names: str, scope: ScopeObject | None = SCOPE) -> str:
    tools = {"plugin:shop:find": FIND, "plugin:shop:grow": GROW, "plugin:shop:gone": None}
    return render_namespaces([NamespaceSummary(name, "Books", tools, scope=scope) for name in names])


def problems(type_check: Callable[..., Any], use: str, *names: str, scope: ScopeObject | None = SCOPE) -> list[str]:
    files = {
        "guest.d.ts": GUEST,
        "namespaces.d.ts": rendered(*names, scope=scope),
        "use.ts": f"async () => {{ {use} }}",
    }
    found = type_check(files, together=True)
    assert found["guest.d.ts"] == found["namespaces.d.ts"] == []
    return [message for _, message in found["use.ts"]]


def test_functions_have_the_types_of_their_tools(type_check: Callable[..., Any]) -> None:
    sound = (
        "const [book] = await Shop.find({ q: 'x' }); const id: number | undefined = book?.id;"
        "const tree = await Shop.deep.er.grow(); tree.kids?.[0]?.kids;"
        "const other = await Shop['by-title'](1, 2); const n: number | undefined = other[0]?.id;"
        "const name: string = Shop.deep.name; await Shop.unknown(1); Shop.many.m999; const m: number = Shop.many.m1;"
    )
    assert problems(type_check, sound, "Shop") == []
    assert problems(type_check, sound.replace("Shop", "Other"), "Shop", "Other") == []


def test_wrong_arguments_are_type_errors(type_check: Callable[..., Any]) -> None:
    for wrong in (
        "await Shop.find({ p: 1 });",
        "await Shop.find();",
        "await Shop.find({ q: 'x' }, { timeoutMs: 1 });",
        "await Shop.fnd({ q: 'x' });",
        "const n: number = Shop.deep.name;",
        "Shop.deep.name = 'x';",
    ):
        assert len(problems(type_check, wrong, "Shop")) == 1, wrong


def test_without_a_program_everything_is_any(type_check: Callable[..., Any]) -> None:
    assert "declare const Shop: { readonly [name: string]: any };" in rendered("Shop", scope=None)
    assert problems(type_check, "Shop.what.ever(1).x.y;", "Shop", scope=None) == []
