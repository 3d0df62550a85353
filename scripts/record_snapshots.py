"""Records what suspended programs of this version are stored as, for the tests of later versions.

    .venv/bin/python scripts/record_snapshots.py

Run it when the prelude, the engine or the form of snapshots has changed and the version in `codemode_mcp/__init__.py`
is not released yet. `tests/sandbox/test_recorded_snapshots.py` resumes every recording that this version can
take, and has the others refused by name.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp import __version__
from codemode_mcp.sandbox import snapshot
from codemode_mcp.sandbox.engine import open_engine
from codemode_mcp.sandbox.guest import Guest
from codemode_mcp.sandbox.messages import Completion, GuestError, deliver_message, start_message

if TYPE_CHECKING:
    from codemode_mcp.sandbox.engine import Engine
    from codemode_mcp.sandbox.guest import Turn

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "sandbox" / "snapshots"

SECONDS: Final = 20.0
MEMORY: Final = 64 * 1024 * 1024

CATALOG: Final = json.dumps(
    {
        "servers": [
            {
                "identifier": "files",
                "alias": None,
                "name": "files",
                "down": False,
                "tools": [["readFile", "read_file", "mcp:files:read_file"]],
                "groups": [],
            }
        ],
        "tools": [],
        "named": [],
    }
)

WAITS_FOR_A_CALL: Final = """
class Reader {
  #read = [];
  async *all(paths) {
    for (const path of paths) {
      try {
        const { text } = await MCP.files.readFile({ path });
        this.#read.push(text);
        yield text.length;
      } catch (error) {
        yield `${error.code}: ${error.message}`;
      } finally {
        text(`tried ${path}`);
      }
    }
  }
  get read() { return this.#read.join(" "); }
}
const reader = new Reader(), lengths = [];
for await (const length of reader.all(["a", "b"])) lengths.push(length);
return { lengths, read: reader.read };
"""

IN_A_TIMER: Final = """
const order = [];
const every = setInterval(() => order.push("tick"), 50);
Promise.reject(new Error("not handled"));
await new Promise((done) => setTimeout(done, 1000, order.push("begun")));
clearInterval(every);
return order;
"""

WITH_DATA: Final = """
const item = (i) => [`item ${i}`, { squares: [i, i * i], when: new Date(i) }];
const items = new Map(Array.from({ length: 20 }, (_, i) => item(i)));
const bytes = crypto.getRandomValues(new Uint8Array(16)), first = Math.random();
const counter = (function* () { let n = 0n; for (;;) yield n += 7n; })();
counter.next();
const { pattern } = await MCP.files.readFile({ path: "pattern" });
const found = [...items].filter(([name]) => new RegExp(pattern, "u").test(name));
return {
  found: found.map(([name, { squares, when }]) => [name, squares[1], when.toISOString()]),
  bytes: [...bytes], first, second: Math.random(), uuid: crypto.randomUUID(),
  counted: String(counter.next().value), url: new URL("?q=1", "https://example.com/a").href,
};
"""

PROGRAMS: Final[dict[str, tuple[str, list[list[Completion]]]]] = {
    "waits-for-a-call": (
        WAITS_FOR_A_CALL,
        [
            [Completion(1, '{"text":"one"}')],
            [Completion(2, error=GuestError("no such file", "ToolCallError", "nested_tool_failed", "null"))],
        ],
    ),
    "in-a-timer": (IN_A_TIMER, [[Completion(1)], [Completion(1)], [Completion(2)]]),
    "with-data": (WITH_DATA, [[Completion(1, '{"pattern":"1[0-3]$"}')]]),
}
"""Each up to where it is stored, and what is delivered from then on."""


def main() -> None:
    with open_engine(None, max_threads=1) as engine:
        folder = FOLDER / __version__
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        engine.threads.submit(record, engine, folder).result()
    print(f"recorded in {folder}")


def record(engine: Engine, folder: Path) -> None:
    """Write a recording. On one of the engine's threads."""
    image = engine.image(CATALOG)
    programs = {}
    made = None
    for name, (code, batches) in PROGRAMS.items():
        with Guest(engine, image, memory_limit=MEMORY) as guest:
            message = start_message(
                code=code,
                fallback=None,
                seed=bytes(range(32)),
                output_limit=100_000,
                call_limit=100,
                elapsed_ms=0.0,
                file="cell.js",
            )
            started = told(guest.start(message, SECONDS))
            if started["state"] != "pending":
                raise RuntimeError(f"{name} does not wait: {started}")
            data = guest.snapshot()
            messages = [deliver_message(batch, elapsed_ms=1000.0 * turn) for turn, batch in enumerate(batches, 1)]
            turns = [told(guest.deliver(each, SECONDS)) for each in messages]
        if turns[-1]["state"] != "done":
            raise RuntimeError(f"{name} does not end: {turns[-1]}")
        (folder / f"{name}.bin").write_bytes(data)
        made = snapshot.about(data)
        programs[name] = {"deliver": messages, "turns": turns}
    assert made is not None
    recording = {
        "format": made.format,
        "engine": made.engine,
        "prelude": made.prelude,
        "catalog": CATALOG,
        "programs": programs,
    }
    (folder / "recording.json").write_text(json.dumps(recording, indent=1) + "\n", "utf-8", newline="\n")


def told(turn: Turn) -> Any:
    """Return the result of a turn, as the prelude reports it."""
    if turn.stopped is not None or turn.text is None:
        raise RuntimeError(f"the program was stopped: {turn}")
    return json.loads(turn.text)


if __name__ == "__main__":
    main()
