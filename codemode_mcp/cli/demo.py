"""The demo: a real `serve` process with the bundled servers, driven by the SDK's client over stdio."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from rich.console import Console
from rich.syntax import Syntax

from codemode_mcp.server.descriptions import prompt_bytes

WITHOUT_TYPESCRIPT = """\
const [{ people }, { issues }, week] = await Promise.all([
  MCP.tracker.listPeople().then(unwrap),
  MCP.tracker.listIssues({ state: "open" }).then(unwrap),
  MCP.reports.teamHours({ week: "2026-W23" }).then(unwrap),
]);
return people.map(({ name, email }) => ({
  name,
  openIssues: issues.filter((issue) => issue.assignee === email).length,
  hours: week.people.find((person) => person.email === email)?.hours ?? 0,
}));"""

SUSPENDED = """\
text("asking for the report");
const report = unwrap(await MCP.reports.generateReport({ kind: "hours", seconds: 3 }));
text("the report is there");
return report.totals.slice(0, 3);"""

FAILING = """\
const issues = unwrap(await MCP.tracker.listIsues({ state: "open" }));
return issues.length;"""

INVALID = """\
return await MCP.tracker.createIssue({ titel: "Dark mode", label: "feature" });"""


async def show() -> bool:
    """Run the demo and print it. Return whether everything worked."""
    console = Console(highlight=False, soft_wrap=True)
    folder = servers_folder()
    if folder is None:
        console.print("The demo's servers are not part of this installation; run the demo from a checkout.")
        return False
    with tempfile.TemporaryDirectory(prefix="codemode-mcp-") as scratch:
        config = Path(scratch) / "codemode-mcp.json"
        config.write_text(json.dumps(_config(folder)), "utf-8")
        command = ["-m", "codemode_mcp", "serve", "--private", "--config", str(config), "--log-level", "error"]
        async with Client(StdioServerParameters(command=sys.executable, args=command)) as client:
            return await _Demo(console, client, folder).run()


def servers_folder() -> Path | None:
    """Return the folder of the bundled servers: in the installed package, or else in the checkout."""
    packaged = Path(str(resources.files("codemode_mcp"))) / "demo_servers"
    checkout = Path(__file__).parents[2] / "examples" / "quickstart"
    return next((folder for folder in (packaged, checkout) if (folder / "tracker.py").is_file()), None)


def _config(folder: Path) -> dict[str, Any]:
    def server(file: str, description: str) -> dict[str, Any]:
        return {"command": sys.executable, "args": [str(folder / file)], "description": description}

    return {
        "mcpServers": {
            "tracker": server("tracker.py", "Issues and the people who work on them"),
            "reports": server("reports.py", "Working hours, and reports that take a while"),
        },
        # The runs of the demo do not belong among the runs of the user.
        "store": {"kind": "memory"},
        # Shorter than the slow report takes, so that its program is suspended.
        "tools": {"codeMode": {"timeoutMs": 2000, "connectWaitMs": 60_000}},
    }


@dataclass(frozen=True)
class _Demo:
    _console: Console
    _client: Client
    _folder: Path

    async def run(self) -> bool:
        say = self._console.print
        say("[bold]codemode-mcp[/bold]: two MCP servers behind two tools, over real stdio MCP.\n")
        tools = (await self._client.list_tools()).tools
        self._headline(f"1. What the client sees: {len(tools)} tools")
        for tool in tools:
            say(f"[bold]{tool.name}[/bold]: {(tool.description or '').splitlines()[0]}")

        self._headline("2. A declaration file, read by a program")
        read = await self._exec('return (await API.read("mcp/tracker.d.ts")).content', quiet=True)
        declarations = str(_field(read, "value"))
        self._console.print(Syntax("\n".join(declarations.splitlines()[:22]) + "\n…", "typescript", theme="ansi_dark"))

        self._headline("3. A TypeScript program that joins the data of both servers")
        joined = await self._exec((self._folder / "join.ts").read_text("utf-8"), language="typescript")
        typescript = _field(joined, "code") != "runtime_unavailable"
        if not typescript:
            say("\nTypeScript needs esbuild, which is not installed. Here is the same program in JavaScript.")
            joined = await self._exec(WITHOUT_TYPESCRIPT)
        # On a slow machine the servers may still be starting.
        joined, _ = await self._finish(joined)

        self._headline("4. A program that takes long is suspended, and resumed by wait")
        result, waits = await self._finish(await self._exec(SUSPENDED))

        self._headline("5. Mistakes cost nothing, and the error says what to do")
        misspelt = await self._exec(FAILING)
        invalid, _ = await self._finish(await self._exec(INVALID))

        self._headline("6. What it saves")
        await self._savings(tools)

        good = (
            [tool.name for tool in tools] == ["exec", "wait"]
            and "listIssues" in declarations
            and _field(joined, "status") == "completed"
            and waits > 0
            and _field(result, "status") == "completed"
            and _field(misspelt, "code") == "invalid_input"
            and _field(invalid, "code") == "nested_tool_failed"
        )
        if not good:
            say("\n[red]Something did not work as expected.[/red]")
        elif typescript:
            say("\n[green]All of it worked.[/green]")
        else:
            say("\n[green]All of it worked, except TypeScript.[/green]")
            say("For TypeScript, run `codemode-mcp setup` where npm is installed, or set tools.esbuild.")
        return good

    async def _savings(self, tools: list[types.Tool]) -> None:
        direct = 0
        for file in ("tracker.py", "reports.py"):
            command = StdioServerParameters(command=sys.executable, args=[str(self._folder / file)])
            async with Client(command) as client:
                direct += _bytes((await client.list_tools()).tools)
        shown = _bytes(tools)
        self._console.print(
            f"Tool definitions in the prompt: {direct} bytes when both servers are added directly, {shown} bytes here. "
            "With more servers the first figure grows; the second has a fixed bound. "
            "For your own servers: codemode-mcp savings."
        )
        if shown >= direct:
            self._console.print("With servers this small there is nothing to save yet.")

    async def _exec(self, code: str, *, language: str | None = None, quiet: bool = False) -> types.CallToolResult:
        if not quiet:
            self._console.print(Syntax(code.strip(), language or "javascript", theme="ansi_dark"))
            self._console.print("[dim]→ exec[/dim]")
        arguments = {"code": code} if language is None else {"code": code, "language": language}
        result = await self._client.call_tool("exec", arguments)
        if not quiet:
            self._show(result)
        return result

    async def _finish(self, result: types.CallToolResult) -> tuple[types.CallToolResult, int]:
        """Wait until a program ends. Return its result and the number of waits."""
        waits = 0
        while _field(result, "status") == "waiting" and waits < 10:
            waits += 1
            self._console.print("[dim]→ wait[/dim]")
            result = await self._client.call_tool("wait", {"runId": _field(result, "runId")})
            self._show(result)
        return result, waits

    def _show(self, result: types.CallToolResult) -> None:
        for block in result.content:
            if isinstance(block, types.TextContent):
                style = "red" if result.is_error else "cyan"
                self._console.print(block.text, style=style, markup=False)

    def _headline(self, text: str) -> None:
        self._console.print(f"\n[bold]{text}[/bold]")


def _field(result: types.CallToolResult, name: str) -> Any:
    return (result.structured_content or {}).get(name)


def _bytes(tools: list[types.Tool]) -> int:
    return prompt_bytes(tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in tools)
