"""The three hosts of a test. All are the same binary, and every test gets a fresh one.

- `Realm.bare`: the engine as it comes, with tests as the scripts they are.
- `Program`: a program in a guest, as the server runs one. A program is no script, so the test is given to indirect
  `eval`, the nearest thing: declarations of an `eval` can be deleted again, and those of a strict one are its own.
- `Realm.hardened`: the guest's globals, with tests as scripts. It tells what `eval` changes from what the prelude does.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import wasmtime

from codemode_mcp.sandbox import binary
from codemode_mcp.sandbox.boot import _set_stack_limit
from codemode_mcp.sandbox.engine import Engine
from codemode_mcp.sandbox.guest import Guest
from codemode_mcp.sandbox.images import changed_blocks, load_image
from codemode_mcp.sandbox.instance import GuestTrap, Instance, Modules
from codemode_mcp.sandbox.messages import decode_turn, start_message
from tests.conformance.suite import Case

SECONDS = 60.0
"""Time limit of a test: far more than the longest takes, so that a busy machine changes no answer."""
MEMORY = 512 * 1024 * 1024

HOST = """
const describe = (thrown) => {
  try {
    return thrown.constructor.name + "\\n" + (typeof thrown === "string" ? thrown : thrown.message);
  } catch {
    return "?\\n";
  }
};
globalThis.$262 = {
  global: globalThis,
  detachArrayBuffer: Function.prototype.call.bind(ArrayBuffer.prototype.transfer),
  gc() {},
};
"""
"""Functions that the suite asks of a host; `print` is each one's own."""

DONE = "Test262:AsyncTestComplete"

EMPTY_CATALOG = json.dumps({"servers": [], "tools": [], "named": []})


def judge(case: Case, thrown: str | None, printed: str) -> str | None:
    """Return the reason for which a test failed, or None when it passed.

    Args:
        thrown: what a script threw, as `describe` tells it, or None.
        printed: by the time all jobs had run.
    """
    kind, _, message = (thrown or "").partition("\n")
    if thrown is not None and kind != case.error:
        return f"{kind}: {message}"
    if thrown is None and case.error is not None:
        return f"no {case.error} was thrown"
    if case.done and case.error is None and printed.strip() != DONE:
        return printed.strip() or "never done"
    return None


class Program:
    """A program in a guest with an empty catalog."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._image = engine.image(EMPTY_CATALOG)

    def run(self, case: Case) -> str | None:
        """Return the reason for which the test failed, or None. Call it on a thread of the engine."""
        code = f"""{HOST}
            const say = console.log, script = eval, [harness, test] = {json.dumps([case.harness, case.script])};
            globalThis.print = (message) => say(String(message));
            try {{
                script(harness);
                script(test);
                return null;
            }} catch (thrown) {{
                return describe(thrown);
            }}
        """
        message = start_message(
            code=code, fallback=None, seed=bytes(32), output_limit=100_000, call_limit=10, elapsed_ms=0
        )
        with Guest(self._engine, self._image, memory_limit=MEMORY) as guest:
            turn = guest.start(message, SECONDS)
        if turn.stopped is not None or turn.text is None:
            return f"stopped: {turn.stopped} {turn.detail}"
        report = decode_turn(turn.text)
        if report.state != "done" or report.error is not None or report.fault is not None:
            return f"the program ended as {report.state}: {report.error or report.fault}"
        return judge(case, report.value, "\n".join(item.get("text", "") for item in report.outputs))


class Realm:
    """A context whose scripts are tests."""

    def __init__(
        self, engine: Engine, modules: Modules, prepare: Callable[[Instance], object], context: int, runtime: int
    ) -> None:
        self._engine = engine
        self._modules = modules
        self._prepare = prepare
        self._context = context
        self._runtime = runtime

    @classmethod
    def bare(cls, engine: Engine) -> Realm:
        used = engine.modules
        module = wasmtime.Module(used.engine, binary.prepare(binary.load()))
        modules = Modules(used.engine, used.linker, used.linker.instantiate_pre(module), used.glue, used.pool)
        empty, started = Instance(modules, MEMORY), Instance(modules, MEMORY)
        try:
            started.call("_initialize")
            runtime = started.call("JS_NewRuntime") & 0xFFFFFFFF
            _set_stack_limit(started, runtime)
            context = started.call("JS_NewContext", runtime) & 0xFFFFFFFF
            pages, changes = started.pages, tuple(changed_blocks(bytes(started.image()), bytes(empty.image())))
        finally:
            empty.close()
            started.close()

        def prepare(instance: Instance) -> None:
            instance.grow_to(pages)
            for offset, data in changes:
                instance.write(offset, data)

        return cls(engine, modules, prepare, context, runtime)

    @classmethod
    def hardened(cls, engine: Engine) -> Realm:
        image = engine.image(EMPTY_CATALOG)
        context, runtime = image.entries.ctx, image.entries.rt
        return cls(engine, engine.modules, lambda instance: load_image(instance, image), context, runtime)

    def run(self, case: Case) -> str | None:
        """Return the reason for which the test failed, or None. Call it on a thread of the engine."""
        instance = Instance(self._modules, MEMORY)
        try:
            self._prepare(instance)
            with self._engine.ticking():
                instance.limit(SECONDS)
                thrown, printed = _Scripts(instance, self._context, self._runtime).run(case)
        except GuestTrap as trap:
            return f"stopped: {trap}"
        finally:
            instance.close()
        return judge(case, thrown, printed)


class _Scripts:
    """Runs scripts in the context of an instance, by the engine's C interface."""

    _PRINT = """
        let printed = "";
        globalThis.print = (message) => { printed += message + "\\n"; };
        return [describe, () => printed];
    """

    def __init__(self, instance: Instance, context: int, runtime: int) -> None:
        self._call = instance.call
        self._instance = instance
        self._context = context
        self._runtime = runtime
        self._scratch = instance.call("calloc", 1, 64) & 0xFFFFFFFF
        pair = self._eval(f"(() => {{ {HOST} {self._PRINT} }})()")
        self._describe, self._printed = (instance.call("JS_GetPropertyUint32", context, pair, i) for i in range(2))

    def run(self, case: Case) -> tuple[str | None, str]:
        """Return what was thrown, as `describe` words it, and what was printed."""
        thrown = self._script(case.harness) or self._script(case.script)
        while (status := self._call("JS_ExecutePendingJob", self._runtime, self._scratch) & 0xFFFFFFFF) != 0:
            if status != 1:  # a job threw
                self._call("JS_FreeValue", self._context, self._call("JS_GetException", self._context))
        return thrown, self._text(self._apply(self._printed))

    def _script(self, source: str) -> str | None:
        if not _is_exception(self._eval(source)):
            return None
        return self._text(self._apply(self._describe, self._call("JS_GetException", self._context)))

    def _eval(self, source: str) -> int:
        raw = source.encode("utf-8", "surrogatepass")
        at = self._call("malloc", len(raw) + 1) & 0xFFFFFFFF
        self._instance.write(at, raw + b"\0")
        self._instance.write(self._scratch, b"test\0")
        value = self._call("JS_Eval", self._context, at, len(raw), self._scratch, 0)
        self._call("free", at)
        return value

    def _apply(self, function: int, *arguments: int) -> int:
        at = self._scratch + 16
        self._instance.write(at, b"".join((one & (1 << 64) - 1).to_bytes(8, "little") for one in arguments))
        undefined = 3 << 32
        return self._call("JS_Call", self._context, function, undefined, len(arguments), at)

    def _text(self, value: int) -> str:
        at = self._call("JS_ToCStringLen2", self._context, self._scratch, value, 0) & 0xFFFFFFFF
        size = int.from_bytes(self._instance.read(self._scratch, 4), "little")
        return self._instance.read(at, size).decode("utf-8", "replace") if at else "?\n"


def _is_exception(value: int) -> bool:
    return (value >> 32) & 0xFFFFFFFF == 6
