"""Promise 5: whatever a program did to its own built-ins, its calls leave as anyone's would, results get to where they
belong, and nothing of ours is handed to it.

A program attacks first. What it does then must bring the very messages that a program without an attack brings.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from guest_harness import MANIFEST, MIB

from codemode_mcp.sandbox.engine import Engine
from codemode_mcp.sandbox.guest import Guest
from codemode_mcp.sandbox.images import Image
from codemode_mcp.sandbox.messages import Completion, GuestError, deliver_message, start_message
from tests.integration.harness import counting, events, serve, write_config
from tests.sandbox_escape.reach import FIND, WALK

TAKE = """
const { MCP: { files: { readFile, remove } } } = globalThis, emit = json, say = text, timer = setTimeout, keep = store;
const fetchBack = load, listFiles = API.list, log = console.log, ownKeys = Reflect.ownKeys;
const define = Object.defineProperty, erase = Reflect.deleteProperty, describe = Object.getOwnPropertyDescriptor;
const touched = [];
let touches = 0;
const note = (what) => { define(touched, touches++, { __proto__: null, value: what, enumerable: true }) };
"""
"""Before the attack: the program keeps what it wants to use, and has `note` to remember what it was handed."""

ACT = """
const first = readFile({ path: "a", deep: [1, { two: "2" }] });
const second = readFile({ path: "b" });
emit([1, "x", { y: null }]);
say("said");
log("logged", 1, { z: [true] });
timer(() => say("rang"), 5);
keep("key", { v: 1 });
const files = listFiles("mcp/");
const b = await second;
const a = await first;
const found = await files;
const back = await fetchBack("key");
let failed = "nothing";
try { await remove({ path: "c" }) } catch (error) { failed = error.code + "/" + error.message + "/" + error.data.tool }
return { a, b, found, back, failed, touched };
"""
"""After it, syntax and our functions alone."""

ERROR = GuestError("no such file", name="ToolCallError", data='{"tool":"mcp:my-files:remove","dispatched":true}')
ANSWERS = (
    (Completion(2, '{"content":[{"type":"text","text":"two"}]}'),),
    (Completion(5, '{"files":[]}'), Completion(4), Completion(1, '["one",{"then":"one"}]')),
    (Completion(6, '[{"v":1}]'),),
    (Completion(7, error=ERROR), Completion(3)),
)

VALUE = {
    "a": ["one", {"then": "one"}],
    "b": {"content": [{"type": "text", "text": "two"}]},
    "found": {"files": []},
    "back": {"v": 1},
    "failed": "nested_tool_failed/no such file/mcp:my-files:remove",
    "touched": [],
}


def turns(engine: Engine, image: Image, code: str) -> list[Any]:
    """Return the texts of all turns of a program, computed on a thread of the engine."""
    seed = bytes(32)
    start = start_message(code=code, fallback=None, seed=seed, output_limit=MIB, call_limit=100, elapsed_ms=0)
    with Guest(engine, image, memory_limit=64 * MIB) as guest:
        told = [guest.start(start, 5.0)]
        told += [guest.deliver(deliver_message(answers, elapsed_ms=0), 5.0) for answers in ANSWERS]
    return [json.loads(turn.text) if turn.text is not None and turn.stopped is None else turn for turn in told]


def all_turns(engine: Engine, programs: dict[str, str]) -> dict[str, list[Any]]:
    """Return the turns of each program, by its name."""

    def play() -> dict[str, list[Any]]:
        image = engine.image(MANIFEST)
        return {name: turns(engine, image, code) for name, code in programs.items()}

    return engine.threads.submit(play).result(timeout=300)


class Attack(NamedTuple):
    """One change: the text that finds what is changed, and the one that changes it. `{0}` is a number of its own."""

    find: str
    change: str


TOGETHER = 10
"""Number of attacks that one program makes. None of them changes anything if they change nothing together."""


def program(attacks: Iterable[Attack]) -> str:
    numbered = list(enumerate(attacks))
    found = "".join(each.find.replace("{0}", str(number)) for number, each in numbered)
    return TAKE + found + "".join(each.change.replace("{0}", str(number)) for number, each in numbered) + ACT


def different_turns(
    engine: Engine, innocent: list[Any], attacks: dict[str, Attack], before: str = ""
) -> dict[str, list[Any]]:
    """Return the turns of programs that differ from those of the innocent program, after attacks."""
    names = list(attacks)
    groups = [names[start : start + TOGETHER] for start in range(0, len(names), TOGETHER)]
    programs = {", ".join(group): before + program(attacks[name] for name in group) for group in groups}
    return {name: got for name, got in all_turns(engine, programs).items() if got != innocent}


@pytest.fixture(scope="module")
def innocent(engine: Engine) -> list[Any]:
    """Return the turns of a program without an attack."""
    (told,) = all_turns(engine, {"innocent": TAKE + ACT}).values()
    assert told[-1]["state"] == "done"
    assert told[-1]["value"] == VALUE
    assert [call["op"] for call in told[0]["calls"]] == ["call", "call", "timer", "store", "api_list"]
    return told


# one property at a time

HOSTILE = {
    "a function that notes and throws": (
        "{ __proto__: null, configurable: true, writable: true, value: function (...given) {"
        " note(['called', this === undefined ? 0 : this, ...given]); throw 'hostile' } }"
    ),
    "a function that gives a thenable": (
        "{ __proto__: null, configurable: true, writable: true, value: function (...given) {"
        " note(['called', ...given]); return { then(...taken) { note(['then', ...taken]) } } } }"
    ),
    "an accessor that notes and throws": (
        "{ __proto__: null, configurable: true, get() { note(['get']); throw 'hostile' },"
        " set(given) { note(['set', given]) } }"
    ),
    "null": "{ __proto__: null, configurable: true, writable: true, value: null }",
    "nothing": None,
}

# A function's name and length are left out: nothing else depends on them, and they are two thirds of all.
PLACES = (
    WALK
    + """
const places = [];
for (const [object, place] of walk(ROOTS)) {
  for (const key of Reflect.ownKeys(object)) {
    if (typeof object === "function" && (key === "name" || key === "length")) continue;
    const d = Object.getOwnPropertyDescriptor(object, key);
    if (!d.configurable) continue;
    places.push([place, typeof key === "symbol" ? "@" + key.description : "." + key]);
  }
}
return places;
"""
)


@pytest.fixture(scope="module")
def places(engine: Engine) -> list[tuple[list[str], str]]:
    """Return the object and name of every property that a program can change."""
    [first, *_] = next(iter(all_turns(engine, {"places": PLACES}).values()))
    found: list[tuple[list[str], str]] = first["value"]
    assert len(found) > 700
    return found


def attack(place: list[str], name: str, how: str | None) -> Attack:
    return Attack(
        f"const object{{0}} = find({json.dumps(place)}), key{{0}} = keyOf({json.dumps(name)});\n",
        ("erase(object{0}, key{0})" if how is None else f"define(object{{0}}, key{{0}}, {how})") + ";\n",
    )


@pytest.mark.parametrize("kind", HOSTILE)
def test_any_one_property_may_be_overwritten(
    engine: Engine, innocent: list[Any], places: list[tuple[list[str], str]], kind: str
) -> None:
    attacks = {" ".join([*place, name]): attack(place, name, HOSTILE[kind]) for place, name in places}
    assert different_turns(engine, innocent, attacks, WALK + FIND) == {}


# all of them immediately

EVERYTHING = (
    WALK
    + """
const changes = [];
for (const object of walk(ROOTS).keys()) for (const key of ownKeys(object)) changes.push(object, key);
const count = changes.length;
let changed = 0;
for (let i = 0; i < count; i += 2) {
  const before = describe(changes[i], changes[i + 1]);
  if (before === undefined || !before.configurable) continue;
  CHANGE;
  changed++;
}
if (changed < 1500) throw "too little was attacked";
"""
)


def everything(how: str | None) -> str:
    return EVERYTHING.replace(
        "CHANGE", "erase(changes[i], changes[i + 1])" if how is None else f"define(changes[i], changes[i + 1], {how})"
    )


@pytest.mark.parametrize("kind", HOSTILE)
def test_all_properties_may_be_overwritten_together(engine: Engine, innocent: list[Any], kind: str) -> None:
    assert different_turns(engine, innocent, {kind: Attack("", everything(HOSTILE[kind]))}) == {}


# properties that were not there

PROTOTYPES = {
    "Object": "Object.prototype",
    "Array": "Array.prototype",
    "Function": "Function.prototype",
    "AsyncFunction": "Object.getPrototypeOf(async () => {})",
    "Promise": "Promise.prototype",
    "Error": "Error.prototype",
    "String": "String.prototype",
    "Number": "Number.prototype",
    "Map": "Map.prototype",
    "WeakMap": "WeakMap.prototype",
    "Proxy": "Function.prototype",
}
NAMES = """
    id op target input count call site resolve reject boxed timer value get set writable enumerable configurable error
    code data message name reason ms callback args up prefix path query limit server schema tool fallback seed
    outputLimit callLimit file elapsed completions stack cause length content structuredContent isError type text
    mimeType key state identifier alias down tools groups named fixed apply construct has deleteProperty ownKeys
    defineProperty getOwnPropertyDescriptor getPrototypeOf prepareStackTrace stackTraceLimit return next done raw
    index lastIndex flags exec constructor 0 1 2 3 -1
"""
"""Names that the bridge uses, that the language looks up on the way, and places in an array."""


@pytest.mark.parametrize("kind", [kind for kind, how in HOSTILE.items() if how is not None])
@pytest.mark.parametrize("prototype", PROTOTYPES)
def test_names_of_the_bridge_on_prototypes_change_nothing(
    engine: Engine, innocent: list[Any], prototype: str, kind: str
) -> None:
    attacks = {
        name: Attack("", f"define({PROTOTYPES[prototype]}, {json.dumps(name)}, {HOSTILE[kind]});\n")
        for name in NAMES.split()
        if not (name == "length" and prototype in ("Array", "String"))
        and not (prototype == "Array" and name in PUSHED and "get()" in str(HOSTILE[kind]))
    }
    assert different_turns(engine, innocent, attacks) == {}


PUSHED = ("0", "1", "2")


@pytest.mark.parametrize("place", PUSHED)
def test_a_setter_for_a_place_in_every_array_sees_the_programs_own_arguments_alone(
    engine: Engine, innocent: list[Any], place: str
) -> None:
    """The engine's JSON.stringify keeps the objects it is inside of in an array, and sets its places.

    It reads what is no plain data: here a date, which has a `toJSON`.
    """
    noting = "{ __proto__: null, configurable: true, get() { }, set(given) { note(given) } }"
    hook = TAKE + f"define(Array.prototype, '{place}', {noting});"
    (told,) = all_turns(engine, {"": hook + ACT}).values()
    assert told == innocent
    dated = 'path: "a", on: new Date(0),'
    (told,) = all_turns(engine, {"": hook + ACT.replace('path: "a",', dated)}).values()
    deep = [1, {"two": "2"}]
    argument = {"path": "a", "on": "1970-01-01T00:00:00.000Z", "deep": deep}
    touched = told[-1]["value"].pop("touched")
    assert touched == {"0": [argument], "1": [deep], "2": [deep[1]]}[place]


def test_a_then_on_every_object_sees_results_and_values_of_the_program_alone(
    engine: Engine, innocent: list[Any]
) -> None:
    noting = "{ __proto__: null, configurable: true, get() { note(ownKeys(this)) } }"
    (told,) = all_turns(engine, {"": TAKE + f"define(Object.prototype, 'then', {noting});" + ACT}).values()
    touched = told[-1]["value"].pop("touched")
    told[-1]["value"]["touched"] = []
    assert told == innocent
    own = ("content", "files", "a", "v", "0")
    assert touched
    assert [keys for keys in touched if keys[0] not in own] == []


def test_a_to_json_on_every_object_is_asked_of_values_of_the_program_alone(engine: Engine, innocent: list[Any]) -> None:
    noting = "{ __proto__: null, configurable: true, get() { note(ownKeys(this)) } }"
    (told,) = all_turns(engine, {"": TAKE + f"define(Object.prototype, 'toJSON', {noting});" + ACT}).values()
    touched = told[-1]["value"].pop("touched")
    told[-1]["value"]["touched"] = []
    assert told == innocent
    own = ("path", "two", "0", "y", "z", "v", "a", "then", "content", "type", "files", "length")
    assert touched
    assert [keys for keys in touched if keys[0] not in own] == []


# through the real server


@pytest.mark.anyio
async def test_calls_reach_their_upstream_whatever_was_overwritten(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"good": counting(tmp_path / "log")})
    done = []
    async with serve(config) as session:
        for number, how in enumerate(HOSTILE.values()):
            take = TAKE.replace("{ MCP: { files: { readFile, remove } } } = globalThis", "tally = MCP.good.count")
            code = (
                f"{take}{everything(how)}"
                f"say('said'); const a = tally({{ name: 'a{number}' }}), b = tally({{ name: 'b{number}' }});"
                "const second = await b, first = await a;"
                "let refused; try { await tally({ nome: 1 }) } catch (error) { refused = error.code }"
                "return [first.content[0].text, second.content[0].text, refused, touched]"
            )
            answer = await session.exec(code)
            assert answer.texts == ["said"]
            done.append(answer.value)
    assert done == [[f"a{n}", f"b{n}", "nested_tool_failed", []] for n in range(len(HOSTILE))]
    made = [f"call {name}{n}" for n in range(len(HOSTILE)) for name in "ab"]
    assert sorted(events(tmp_path / "log")) == sorted(made)
