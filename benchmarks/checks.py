"""Time that the type check adds to an `exec`: .venv/bin/python benchmarks/checks.py [--rounds 100]

Two servers run, one with `codeMode.check: "note"` and one without, over one upstream with 145 tools and then with
1,000. They get the same programs in turn. No program calls a tool, so that the rest of an `exec` is small. The compiler
runs already: the first check, which starts it, takes some 100 ms more. Needs `codemode-mcp setup --check`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from measure import report

from codemode_mcp.extensions.type_check.compiler import find_compiler
from codemode_mcp.paths import cache_dir

if TYPE_CHECKING:
    from collections.abc import Sequence

UPSTREAM: Final = Path(__file__).parent / "upstream.py"
OWN_TOOLS: Final = 2
"""Tools that the upstream has besides those that it is asked for."""

BARS: Final = {145: 60.0, 1000: 150.0}
"""Milliseconds that a check may add, by the number of tools."""

PROGRAM: Final = """\
const workspace_id = "w{n}";
const open = [];
if (args.length > 0) {{
  const found = unwrap(await MCP.up.listIssue({{ workspace_id, state: "open", limit: 50 }}));
  open.push(found.id, found.title);
  for (const label of ["bug", "docs"]) {{
    const more = await MCP.up.searchIssue({{ workspace_id, labels: [label] }});
    if (!more.isError) open.push(more.structuredContent.id);
  }}
  const files = await Promise.all(open.map((id) => MCP.up.getFile({{ workspace_id, file_id: id }})));
  open.push(...files.map((file) => unwrap(file).title ?? "none"));
}}
return open.length + {n};
"""

WRONG: Final = "if (args.length > 0) await MCP.up.listIssue({ state: 1 }); return 1"


@dataclass(frozen=True, slots=True)
class Added:
    """Milliseconds of one number of tools.

    Attributes:
        without, checked: medians of an `exec`.
        added: the median of the differences between neighbours.
    """

    tools: int
    without: float
    checked: float
    added: float


async def measure(tools: int, rounds: int) -> Added:
    """Measure both servers in turn."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        clients = [await stack.enter_async_context(Client(_server(folder, mode, tools))) for mode in ("off", "note")]
        for client in clients:
            await client.call_tool("exec", {"code": 'await API.read("mcp/up.d.ts"); return 1'})
        answers = [await client.call_tool("exec", {"code": WRONG}) for client in clients]
        noted = ["The type check found" in str(answer.content) for answer in answers]
        assert noted == [False, True], "only the second server checks programs"
        pairs = []
        for number in range(rounds):
            order = clients if number % 2 else clients[::-1]
            times = [await _exec(client, number) for client in order]
            pairs.append(times if number % 2 else times[::-1])
    without, checked = (statistics.median(each) for each in zip(*pairs, strict=True))
    added = statistics.median(later - earlier for earlier, later in pairs)
    return Added(tools, without, checked, added)


def _server(folder: Path, mode: str, tools: int) -> StdioServerParameters:
    config = folder / f"{mode}.json"
    up = {"command": sys.executable, "args": [str(UPSTREAM), "--tools", str(tools - OWN_TOOLS)]}
    config.write_text(json.dumps({"mcpServers": {"up": up}, "tools": {"codeMode": {"check": mode}}}), "utf-8")
    command = ["-m", "codemode_mcp", "serve", "--private", "--config", str(config), "--log-level", "error"]
    return StdioServerParameters(
        command=sys.executable, args=command, env={"XDG_STATE_HOME": str(folder / mode), **_CACHE}
    )


_CACHE: Final = {"XDG_CACHE_HOME": str(cache_dir().parent)}


async def _exec(client: Client, number: int) -> float:
    began = time.perf_counter()
    result: Any = await client.call_tool("exec", {"code": PROGRAM.format(n=number)})
    took = (time.perf_counter() - began) * 1000
    assert not result.is_error, result
    return took


async def main(sizes: Sequence[int], rounds: int) -> list[Added]:
    """Measure and print all sizes."""
    find_compiler(cache_dir())
    found = [await measure(size, rounds) for size in sizes]
    for each in found:
        bar = BARS.get(each.tools)
        figure = f"{each.added:.1f} ms ({each.without:.1f} to {each.checked:.1f})"
        report(f"type check, {each.tools} tools", figure, f"< {bar} ms", bar is None or each.added < bar)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    anyio.run(main, tuple(BARS), parser.parse_args().rounds)
