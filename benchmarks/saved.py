"""The cost of a saved program, compared with the same text in a cell."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from mcp.client.client import Client
from measure import ours, report, write_config

ROUNDS = 150
SIZES = (1, 10, 100)
BAR = 1.05
BAR_CALLS = 10
"""The number of calls of the program to which the bar applies."""

TEXT = """async function report({ calls }) {
  const lines = [];
  for (let i = 0; i < calls; i++) {
    const { text } = unwrap(await MCP.echo.echo({ text: `{"text": "line ${i}"}` }));
    lines.push(text);
  }
  const lengths = lines.map((line) => line.length);
  return { lines: lines.length, longest: Math.max(...lengths), sorted: lines.toSorted().slice(0, 3) };
}"""
SAVED = f"/** @param {{{{ calls: number }}}} input */\nexport default {TEXT}\n"


async def saved() -> None:
    """Run both forms in turn, with an echo server."""
    with tempfile.TemporaryDirectory() as folder:
        config = write_config(folder)
        programs = Path(folder) / "programs"
        programs.mkdir()
        (programs / "report.js").write_text(SAVED)
        async with Client(ours(config)) as client:
            for calls in SIZES:
                await compare(client, calls)


async def compare(client: Client, calls: int) -> None:
    """Report how long both forms take, for one number of calls."""
    forms = {
        "inline": f"{TEXT}\nreturn await report({{ calls: {calls} }})",
        "saved": f"return await programs.report({{ calls: {calls} }})",
    }
    times: dict[str, list[float]] = {name: [] for name in forms}
    values = []
    rounds = max(20, ROUNDS * 10 // (10 + calls))
    for round_ in range(rounds + 5):
        for name, code in forms.items():
            began = time.perf_counter()
            result = await client.call_tool("exec", {"code": code})
            if round_ >= 5:
                times[name].append(time.perf_counter() - began)
            values.append((result.structured_content or {}).get("value"))
    assert values[0] is not None, result
    assert all(value == values[0] for value in values), "the two forms must have the same result"
    inline, own = (statistics.median(times[name]) for name in forms)
    ratio = own / inline
    figure = f"{1e3 * own:.2f} ms, inline {1e3 * inline:.2f} ms: {ratio:.3f}x"
    bar = f"at most {BAR}x" if calls == BAR_CALLS else "none"
    report(
        f"a saved program, {calls} call{'' if calls == 1 else 's'} in a row",
        figure,
        bar,
        calls != BAR_CALLS or ratio <= BAR,
    )
