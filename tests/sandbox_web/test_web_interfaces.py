# ruff: noqa: E501 - the tables of JavaScript and of foreign scripts read better unbroken
"""Tests of what a program sees of the classes themselves: shape, receivers, arguments."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_harness import Engine, GuestFailure, prelude_scripts

CLASSES = ["TextEncoder", "TextDecoder", "URL", "URLSearchParams"]


@pytest.mark.parametrize("name", [*CLASSES, "structuredClone", "Proxy"])
def test_a_global_is_writable_configurable_and_not_enumerable(engine: Engine, name: str) -> None:
    descriptor = engine.json(f"(({{ value, ...rest }}) => rest)(Object.getOwnPropertyDescriptor(globalThis, '{name}'))")
    assert descriptor == {"writable": True, "enumerable": False, "configurable": True}


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_needs_new_and_tags_its_instances(engine: Engine, name: str) -> None:
    with pytest.raises(GuestFailure, match="TypeError"):
        engine.eval(f"{name}('http://h')")
    tag = engine.eval(
        f"{name}.prototype[Symbol.toStringTag] + Object.getOwnPropertyDescriptor({name}, 'prototype').writable"
    )
    assert tag == f"{name}false"


@pytest.mark.parametrize("name", CLASSES)
def test_every_member_is_enumerable_and_refuses_a_foreign_receiver(engine: Engine, name: str) -> None:
    source = f"""(() => {{
        const wrong = [];
        for (const key of Object.getOwnPropertyNames({name}.prototype)) {{
            if (key === 'constructor') continue;
            const descriptor = Object.getOwnPropertyDescriptor({name}.prototype, key);
            if (!descriptor.enumerable) wrong.push(key);
            for (const member of [descriptor.value, descriptor.get, descriptor.set]) {{
                if (member === undefined) continue;
                try {{ member.call({{}}, 'a', new Uint8Array(1)); wrong.push(key + ' ran'); }}
                catch (e) {{ if (!(e instanceof TypeError)) wrong.push(key + e); }}
            }}
        }}
        return wrong;
    }})()"""
    assert engine.json(source) == []


@pytest.mark.parametrize(
    ("function", "length"),
    [
        ("URL", 1), ("URL.parse", 1), ("URL.canParse", 1), ("URLSearchParams", 0), ("URLSearchParams.prototype.append", 2),
        ("URLSearchParams.prototype.delete", 1), ("URLSearchParams.prototype.has", 1), ("URLSearchParams.prototype.forEach", 1),
        ("TextEncoder", 0), ("TextEncoder.prototype.encode", 0), ("TextEncoder.prototype.encodeInto", 2), ("TextDecoder", 0),
        ("TextDecoder.prototype.decode", 0), ("structuredClone", 1), ("Proxy", 2), ("Proxy.revocable", 2),
    ],
)  # fmt: skip
def test_a_function_has_its_web_idl_length(engine: Engine, function: str, length: int) -> None:
    assert engine.json(f"{function}.length") == length


@pytest.mark.parametrize(
    "call",
    ["new URL()", "URL.parse()", "URL.canParse()", "new URLSearchParams().append('a')", "new URLSearchParams().get()",
     "new URLSearchParams().forEach({})", "new TextEncoder().encodeInto('a')", "structuredClone()", "new structuredClone(1)",
     "new TextDecoder().decode([1])", "new TextDecoder('utf-8', 1)", "new TextEncoder().encodeInto('a', new Uint16Array(1))",
     "new URL(Symbol())"],
)  # fmt: skip
def test_a_missing_or_wrong_argument_is_a_type_error(engine: Engine, call: str) -> None:
    with pytest.raises(GuestFailure, match="TypeError"):
        engine.eval(call)


def test_the_params_iterator_stands_on_the_iterator_prototype(engine: Engine) -> None:
    source = """(() => {
        const it = new URLSearchParams('a=1').entries(), proto = Object.getPrototypeOf(it);
        return [it instanceof Iterator, String(it), Object.keys(proto), it[Symbol.iterator]() === it,
            URLSearchParams.prototype[Symbol.iterator] === URLSearchParams.prototype.entries, Object.hasOwn(proto, 'constructor')];
    })()"""
    assert engine.json(source) == [True, "[object URLSearchParams Iterator]", ["next"], True, True, False]


def test_subclasses_work(engine: Engine) -> None:
    source = "class MyURL extends URL { get x() { return this.host + 1 } }; new MyURL('http://h').x + (MyURL.parse('a:b') instanceof URL)"
    assert engine.eval(source) == "h1true"


@pytest.mark.parametrize("script", prelude_scripts(), ids=lambda script: script.name)
def test_a_script_adds_nothing_but_its_globals(script: Path) -> None:
    known = {
        "web_encoding.js": {"TextDecoder", "TextEncoder"},
        "web_structured_clone.js": {"structuredClone"},
        "web_url.js": {"URL", "URLSearchParams"},
    }
    names = "Object.getOwnPropertyNames(globalThis)"
    before = prelude_scripts()[: prelude_scripts().index(script)]
    engine = Engine(scripts=before)
    old = set(engine.json(names))
    engine.load(script)
    assert set(engine.json(names)) - old == known[script.name]


def test_the_network_is_not_there(engine: Engine) -> None:
    names = [
        "fetch",
        "Headers",
        "Request",
        "Response",
        "XMLHttpRequest",
        "WebSocket",
        "ReadableStream",
        "AbortController",
    ]
    assert engine.json(f"{names}.filter((name) => name in globalThis)") == []
