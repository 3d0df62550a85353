"""A minimal QuickJS-NG instance for the prelude's own tests.

It stands alone on purpose: these tests judge the scripts in `codemode_mcp/sandbox/prelude/web_*.js` and must not depend
on how the real guest is started, limited or snapshotted. What they share with it is the glue's natives.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
from pathlib import Path
from typing import Any

import wasmtime

from codemode_mcp.sandbox import binary
from codemode_mcp.sandbox.boot import NATIVES, STATE
from codemode_mcp.sandbox.instance import GLUE_IMPORTS

SANDBOX = Path(__file__).parents[2] / "codemode_mcp" / "sandbox"
PRELUDE = SANDBOX / "prelude"
ENGINE_PACKAGE = "qjs-wasi-reactor.wasm"

_TAG_EXCEPTION = 6
_EVAL_FLAGS_GLOBAL = 0

# The shipped build has a 64 KiB shadow stack above its static data and checks nothing. The real guest enlarges it; here
# it is only guarded, which makes these tests stricter about depth than production is.
_USABLE_STACK = 48 * 1024
_NATIVE_STACK = 1_900_000


class GuestFailure(Exception):
    """The script ended with an uncaught exception; the text is the guest's own `String(error)` and stack."""


def engine_path() -> Path:
    for file in importlib.metadata.files(ENGINE_PACKAGE) or ():
        if file.name.endswith(".wasm"):
            return Path(str(file.locate()))
    raise FileNotFoundError(f"{ENGINE_PACKAGE} carries no .wasm file")


def prelude_scripts() -> list[Path]:
    return sorted(PRELUDE.glob("web_*.js"))


class Engine:
    """One runtime and one context with the web prelude evaluated. Not reusable after a trap."""

    def __init__(self, *, scripts: list[Path] | None = None) -> None:
        engine, module, glue = _compiled()
        linker = wasmtime.Linker(engine)
        linker.define_wasi()
        self._store = wasmtime.Store(engine)
        self._store.set_wasi(wasmtime.WasiConfig())
        instance = linker.instantiate(self._store, module)
        self._exports = instance.exports(self._store)
        self._memory = self._exports["memory"]
        self._call("_initialize")
        self._runtime = self._call("JS_NewRuntime")
        self._limit_stack()
        self._context = self._call("JS_NewContext", self._runtime)
        self._bind_glue(glue)
        for script in prelude_scripts() if scripts is None else scripts:
            self.load(script)

    def load(self, script: Path) -> None:
        """Evaluate a script of the prelude, which finds the natives as in the real guest."""
        self._call("JS_SetPropertyStr", self._context, self._globals, self._string("natives"), self._natives())
        self.eval(f"(function (natives) {{{script.read_text(encoding='utf-8')}\n}})(natives)", script.name)
        self.eval("delete globalThis.natives")

    def eval(self, source: str, filename: str = "test.js") -> str:
        """Run a classic script, then the job queue, and return `String(result)`."""
        code, name = self._string(source), self._string(filename)
        size = len(source.encode("utf-8"))
        value = self._call("JS_Eval", self._context, code, size, name, _EVAL_FLAGS_GLOBAL)
        self._call("free", code)
        self._call("free", name)
        if _tag(value) == _TAG_EXCEPTION:
            raise GuestFailure(self._pending_exception())
        text = self._text(value)
        self._free(value)
        return text

    def json(self, expression: str) -> Any:
        """Return the JSON value of an expression; `undefined` becomes None."""
        text = self.eval(f"JSON.stringify({expression})")
        return None if text == "undefined" else json.loads(text)

    def call_json(self, function: str, argument: Any) -> Any:
        """Apply a guest function to one JSON argument. ASCII only on the way in, so lone surrogates survive."""
        literal = json.dumps(json.dumps(argument))
        return json.loads(self.eval(f"JSON.stringify(({function})(JSON.parse({literal})))"))

    def break_prototypes(self, *classes: str) -> None:
        """Make every method of these classes throw, as a guest can."""
        self.eval(f"""{{
            const define = Object.defineProperty, targets = [];
            for (const C of [{", ".join(classes)}]) {{
                for (const key of Reflect.ownKeys(C.prototype)) targets.push({{ object: C.prototype, key }});
            }}
            for (let i = 0; i < targets.length; i++) {{
                const {{ object, key }} = targets[i];
                if (key === "constructor" || key === "length") continue;
                const value = () => {{ throw new Error("broken " + (typeof key === "symbol" ? "symbol" : key)); }};
                try {{ define(object, key, {{ value }}); }} catch {{}}
            }}
            "done";
        }}""")

    def memory_pages(self) -> int:
        return int(self._memory.size(self._store))

    def _limit_stack(self) -> None:
        # JSRuntime.stack_limit stays 0 on WASI. A marker given as the stack size reveals where the field lies; the
        # words after it are stack_top and stack_limit.
        marker = 0x5A5AA5A5
        self._call("JS_SetMaxStackSize", self._runtime, marker)
        for offset in range(0, 1024, 4):
            if self._word(self._runtime + offset) == marker:
                top = self._word(self._runtime + offset + 4)
                limit = (top - _USABLE_STACK).to_bytes(4, "little")
                self._memory.write(self._store, limit, self._runtime + offset + 8)
                return
        raise RuntimeError("the runtime's stack fields were not found")

    def _bind_glue(self, module: wasmtime.Module) -> None:
        glue = wasmtime.Instance(self._store, module, [self._exports[name] for name in GLUE_IMPORTS])
        scratch, state = self._call("calloc", 1, 128), self._call("calloc", 1, STATE)
        bind = glue.exports(self._store)["bind"]
        bind(self._store, self._context, self._runtime, scratch, state, 0, 0)  # type: ignore[operator]
        self._globals = self._call("JS_GetGlobalObject", self._context)

    def _natives(self) -> Any:
        natives = self._call("JS_NewObject", self._context)
        first = binary.FIRST_GLUE_SLOT + binary.GLUE_SLOTS - len(NATIVES)
        for slot, (name, length) in enumerate(NATIVES, first):
            at = self._string(name)
            native = self._call("JS_NewCFunction2", self._context, slot, at, length, 0, 0)
            self._call("JS_SetPropertyStr", self._context, natives, at, native)
        return natives

    def _word(self, address: int) -> int:
        return int.from_bytes(self._memory.read(self._store, address, address + 4), "little")

    def _call(self, name: str, *arguments: int) -> Any:
        return self._exports[name](self._store, *arguments)

    def _string(self, text: str) -> int:
        data = text.encode("utf-8") + b"\0"
        address = self._call("malloc", len(data))
        if not address:
            raise MemoryError("guest malloc failed")
        self._memory.write(self._store, data, address)
        return int(address)

    def _text(self, value: int) -> str:
        length_address = self._call("malloc", 4)
        address = self._call("JS_ToCStringLen2", self._context, length_address, value, 0)
        if not address:
            self._call("free", length_address)
            raise GuestFailure("the result has no string form")
        size = self._word(length_address)
        data = bytes(self._memory.read(self._store, address, address + size))
        self._call("JS_FreeCString", self._context, address)
        self._call("free", length_address)
        return data.decode("utf-8", "surrogatepass")

    def _pending_exception(self) -> str:
        error = self._call("JS_GetException", self._context)
        text = self._text(error)
        self._free(error)
        return text

    def _free(self, value: int) -> None:
        if "JS_FreeValue" in self._exports:
            self._call("JS_FreeValue", self._context, value)


def _tag(value: int) -> int:
    return (value >> 32) & 0xFFFFFFFF


@functools.cache
def _compiled() -> tuple[wasmtime.Engine, wasmtime.Module, wasmtime.Module]:
    config = wasmtime.Config()
    config.cache = True
    config.max_wasm_stack = _NATIVE_STACK
    engine = wasmtime.Engine(config)
    glue = wasmtime.wat2wasm(binary.with_calls(binary.glue_source()))
    prepared = binary.with_hooks(binary.prepare(engine_path().read_bytes()))
    return engine, wasmtime.Module(engine, prepared), wasmtime.Module(engine, bytes(glue))
