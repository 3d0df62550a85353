"""Promise 1: no network, files, processes, environment, modules or host objects.

`reachable.txt` is all that a program can reach: a line for every object with its own properties, and one for every
function of ours. A new line is a decision: add it there when it is meant to be reached.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from guest_harness import MANIFEST, Completion, ok

from codemode_mcp.sandbox.boot import prelude_source
from codemode_mcp.sandbox.engine import Engine
from codemode_mcp.sandbox.messages import GuestError
from tests.sandbox.conftest import OpenCell, RunCode
from tests.sandbox_escape.reach import WALK

ALLOWED = Path(__file__).parent / "reachable.txt"

REACH = (
    WALK
    + """
const lines = [];
for (const [object, place] of walk(ROOTS)) {
  const native = typeof object !== "function" || Function.prototype.toString.call(object).includes("[native code]");
  if (!native) lines.push(place.join(" ") + " is ours");
  const names = Reflect.ownKeys(object).map((key) => typeof key === "symbol" ? "@" + key.description : key);
  const own = typeof object === "function" ? names.filter((name) => name !== "name" && name !== "length") : names;
  if (own.length > 0 || typeof object !== "function") lines.push([place.join(" ") + ":", ...own].join(" "));
}
return lines;
"""
)


def test_all_that_can_be_reached_is_known(run: RunCode) -> None:
    assert run(REACH).value == ALLOWED.read_text("utf-8").splitlines()


WITH_INTL = Path(__file__).parent / "reachable_with_intl.txt"
"""All lines that a program with `Intl` has instead of others, or in addition."""


@pytest.mark.usefixtures("intl")
def test_all_that_a_program_with_intl_can_reach_is_known(engine: Engine, cell: OpenCell) -> None:
    lines = cell(manifest=engine.with_intl(MANIFEST)).start(REACH).value
    known = ALLOWED.read_text("utf-8").splitlines()
    assert [line for line in lines if line not in known] == WITH_INTL.read_text("utf-8").splitlines()
    assert [line for line in known if line not in lines] == [line for line in known if line.startswith("globalThis: ")]


WAYS_OUT = """
    std os bjson print scriptArgs gc InternalError Atomics Worker WebAssembly process Deno Bun require module exports
    fetch XMLHttpRequest WebSocket EventSource navigator location window self document localStorage host wasi fs path
    open exec system environ loadScript evalScript Realm ShadowRealm qjs quickjs
"""


def test_nothing_global_is_a_way_out(run: RunCode) -> None:
    [known] = [line for line in ALLOWED.read_text("utf-8").splitlines() if line.startswith("globalThis: ")]
    assert set(known.split()) & set(WAYS_OUT.split()) == set()
    names = json.dumps(WAYS_OUT.split())
    code = f"return {names}.filter((name) => name in globalThis || eval('typeof ' + name) !== 'undefined')"
    assert run(code).value == []


def test_functions_of_the_prelude_that_are_not_for_programs_cannot_be_reached(run: RunCode) -> None:
    declared = set(re.findall(r"(?m)^ {0,2}(?:async )?function\*? (\w+)", prelude_source()))
    assert {"start", "deliver", "collect", "install", "fault", "settle", "post", "bridgeError"} <= declared
    sources = run(
        WALK
        + "const sources = []; for (const it of walk(ROOTS).keys())"
        + "  if (typeof it === 'function') sources.push(Function.prototype.toString.call(it)); return sources"
    ).value
    reached = {found[1] for source in sources if (found := re.match(r"(?:async )?function\*? (\w+)\(", source))}
    reached = {name for name in reached if f"function {name}() {{\n    [native code]\n}}" not in sources}
    assert reached == {"getRandomValues"}
    by_name = f"{json.dumps(sorted(declared))}.filter((name) => eval('typeof ' + name) !== 'undefined')"
    assert run(f"return {by_name}").value == []


ROADS_BACK = {
    "the constructor of functions": "(() => {}).constructor",
    "the constructor of async functions": "(async () => {}).constructor",
    "the constructor of generators": "(function* () {}).constructor",
    "the constructor of async generators": "(async function* () {}).constructor",
    "the constructor of a function of ours": "MCP.files.readFile.constructor",
    "the constructor of a promise's then": "MCP.files.remove({}).then.constructor",
    "the constructor of a bound function": "text.bind().constructor",
    "the constructor of a method of console": "console.log.constructor",
    "the constructor of a getter": "Object.getOwnPropertyDescriptor(URL.prototype, 'href').get.constructor",
    "eval": "function () { return (0, eval)(arguments[arguments.length - 1]) }",
}


@pytest.mark.parametrize("road", ROADS_BACK)
def test_code_made_from_text_runs_in_the_same_sandbox(run: RunCode, road: str) -> None:
    names = ["start", "deliver", "collect", "install", "pending", "settle", "post", "internalErrorPrototype", "calls"]
    body = (
        f"return [this === globalThis, {json.dumps(names)}.filter((name) => {{ try {{ eval(name); return true }} "
        "catch { return false } })]"
    )
    if road == "eval":
        code = f"return (0, eval)({json.dumps(f'(function () {{ {body} }})()')})"
    elif "generator" in road:
        code = f"return (await ({ROADS_BACK[road]})({json.dumps(body)})().next()).value"
    else:
        code = f"return await ({ROADS_BACK[road]})({json.dumps(body)})()"
    assert run(code).value == [True, []]


def test_a_program_that_closes_its_own_function_is_still_in_the_sandbox(run: RunCode) -> None:
    """Try texts that close the function into which the engine puts them."""
    names = "[typeof start, typeof deliver, typeof settle, typeof pending, typeof message]"
    told = run(f"}}); globalThis.outside = {names}; (async function () {{ return [outside, {names}]")
    assert told.value == [["undefined"] * 5] * 2


def test_what_a_program_gives_in_place_of_its_function_is_used_as_a_value_alone(run: RunCode) -> None:
    told = run(
        "}), (() => { return new Proxy({ then(resolve) { resolve('own') } }, { defineProperty(t, key, d) {"
        "text(key + Object.keys(d)); return true } })"
    )
    assert told.value == "own"
    assert told.texts == ["constructorvalue,writable,enumerable,configurable"]


# errors and stacks


def test_no_hook_sees_the_frames_of_the_prelude(run: RunCode) -> None:
    told = run(
        "const seen = []; const hook = (error, frames) => { seen.push(frames); return 'hooked' };"
        "try { Error.prepareStackTrace = hook } catch {}"
        "try { Object.defineProperty(Error, 'prepareStackTrace', { value: hook }) } catch {}"
        "for (const it of [TypeError, Function.prototype, Object.prototype]) it.prepareStackTrace = hook;"
        "class Own extends Error {} Own.prepareStackTrace = hook;"
        "const held = {}; const stacks = [new Error('x').stack, new Own('x').stack, new TypeError('x').stack,"
        "  (() => { try { null.x } catch (e) { return e.stack } })(), (Error.captureStackTrace(held), held.stack)];"
        "await MCP.files.readFile(() => 1).catch((e) => stacks.push(e.stack));"
        "return [seen, stacks.map((stack) => typeof stack), stacks.some((stack) => stack.includes('hooked'))]"
    )
    assert told.value == [[], ["string"] * 6, False]


def test_a_stack_names_no_file_of_the_host(run: RunCode) -> None:
    told = run(
        "const held = {}; Error.captureStackTrace(held); const stacks = [held.stack];"
        "await MCP.files.readFile({ toJSON() { stacks.push(new Error('x').stack); return () => 1 } }).catch((e) =>"
        "  stacks.push(e.stack)); try { structuredClone(() => 1) } catch (e) { stacks.push(e.stack) }"
        "try { new URL('::') } catch (e) { stacks.push(e.stack) } return stacks",
        file="cell.js",
    )
    for stack in told.value:
        headline, *frames = stack.splitlines()
        assert re.fullmatch(r"[A-Z]\w+(: .+)?", headline), headline
        for frame in frames:
            assert re.fullmatch(r"    at .+ \(cell\.js:1:\d+\)", frame), frame


@pytest.mark.parametrize(
    "way", ["caller.caller", "caller.arguments", "arguments.callee.caller", "MCP.files.readFile.caller"]
)
def test_no_function_tells_who_called_it(run: RunCode, way: str) -> None:
    told = run(
        "const seen = []; const note = (v) => { if (v !== undefined && v !== null) seen.push(typeof v) };"
        f"function caller() {{ try {{ note({way}) }} catch {{}} return 1 }}"
        "text({ toJSON: caller }); json([{ toJSON: caller }]); [1].map(caller); return seen"
    )
    assert told.value == []


# modules, shared memory, garbage

MODULES = {
    "import()": "await import('fs')",
    "import() in eval": "await (0, eval)('import(\"fs\")')",
    "import() in a function from text": "await new Function('return import(\"os\")')()",
    "import() of a proxy": "await import(new Proxy({}, { get: () => () => 'std' }))",
    "import() of a URL of data": "await import('data:text/javascript,export default 1')",
    "import() with attributes": "await import('x', { with: { type: 'json' } })",
}


@pytest.mark.parametrize("form", MODULES)
def test_no_form_of_import_loads_anything(run: RunCode, form: str) -> None:
    told = run(f"try {{ {MODULES[form]}; return 'loaded' }} catch (error) {{ return [error.name, error.code] }}")
    assert told.value == ["TypeError", "module_access_denied"]
    assert told.requests == []


@pytest.mark.parametrize("form", ["import x from 'fs'", "export const a = 1", "import.meta.url", "import 'std'"])
@pytest.mark.parametrize("road", ["eval(text)", "(0, eval)(text)", "new Function(text)"])
def test_static_forms_of_import_are_syntax_errors_in_code_made_from_text(run: RunCode, form: str, road: str) -> None:
    told = run(
        f"const text = {json.dumps(form)}; try {{ {road}; return 'made' }} catch (error) {{ return error.name }}"
    )
    assert told.value == "SyntaxError"


def test_there_is_nothing_to_share_memory_with_or_to_wait_on(run: RunCode) -> None:
    code = (
        "const shared = new SharedArrayBuffer(16); new Int32Array(shared)[0] = 7;"
        "let cloned; try { cloned = structuredClone(shared) } catch (error) { cloned = error.name }"
        "return [typeof Atomics, typeof Worker, typeof WebAssembly, new Int32Array(shared)[0], cloned]"
    )
    assert run(code).value == ["undefined", "undefined", "undefined", 7, "DataCloneError"]


def test_weak_references_and_finalizers_see_the_programs_own_objects_alone(cell: OpenCell) -> None:
    guest = cell()
    guest.start(
        "const seen = []; const registry = new FinalizationRegistry((held) => seen.push(held));"
        "const make = () => { const own = {}; registry.register(own, 'own'); return new WeakRef(own) };"
        "const weak = make(); const call = MCP.files.readFile({}); const kept = new WeakRef(call);"
        "registry.register(call, 'call'); await call; await null;"
        "return [seen, kept.deref() === call, weak.deref() === undefined]"
    )
    assert guest.deliver(ok(1)).value == [["own"], True, True]


def test_an_error_of_a_call_leads_nowhere_but_to_its_own_fields(cell: OpenCell) -> None:
    guest = cell()
    guest.start(
        "const error = await MCP.files.readFile({}).catch((error) => error);"
        "return [Reflect.ownKeys(error), Object.getPrototypeOf(error) === Error.prototype, Reflect.ownKeys(error.data),"
        "  Object.getPrototypeOf(error.data) === Object.prototype]"
    )
    told = guest.deliver(Completion(1, error=GuestError("no", data='{"tool":"t"}')))
    assert [sorted(told.value[0]), *told.value[1:]] == [
        ["code", "data", "message", "name", "stack"], True, ["tool"], True,
    ]  # fmt: skip
