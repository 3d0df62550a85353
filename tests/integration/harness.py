"""Parts that these tests share: the real command as a process, its clients, and upstream servers behind it.

Everything goes over real pipes. `serve` gives the SDK's own client, `raw` one of bare JSON lines that sees every byte.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import jsonschema_rs
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import CallToolResult
from typer.testing import CliRunner, Result

from codemode_mcp.cli import app
from tests.sdk_servers import SdkServer, forked, forked_serve

REPOSITORY = Path(__file__).resolve().parent.parent.parent
SERVERS = Path(__file__).resolve().parent / "servers"
OTHER_SERVERS = REPOSITORY / "tests" / "upstream_clients" / "servers"
QUICKSTART = REPOSITORY / "examples" / "quickstart"
NODE_MODULES = REPOSITORY / ".cache" / "node" / "node_modules"
COMMAND = (sys.executable, "-m", "codemode_mcp")

TYPES = "interface Point {\n  x: number;\n}\ntype Name = string;\n"
"""Lines that TypeScript takes away: behind them a program has other lines than what it becomes."""

LANGUAGES = ("javascript", "typescript")

SECONDS = 60
"""No test waits longer for anything than this; a healthy one waits for a fraction of it."""

ENDS_WITHIN = 10
"""Seconds for the end of a process. 5 are promised; this machine runs other tests meanwhile."""

ERROR_CODES = (
    *("runtime_unavailable", "invalid_config", "invalid_input", "unsupported_language", "typescript_transform_failed"),
    *("module_access_denied", "timeout", "memory_limit_exceeded", "output_limit_exceeded", "snapshot_limit_exceeded"),
    *("snapshot_expired", "snapshot_restore_failed", "too_many_pending_tool_calls", "nested_tool_failed", "aborted"),
    "internal_error",
)

_OUTPUT = {
    "type": "array",
    "items": {
        "oneOf": [
            {"required": ["type", "text"], "properties": {"type": {"const": "text"}, "text": {"type": "string"}}},
            {"required": ["type", "value"], "properties": {"type": {"const": "json"}}},
            {
                "required": ["type", "mimeType", "bytes"],
                "properties": {"type": {"const": "image"}, "bytes": {"type": "integer"}},
            },
        ]
    },
}
_PENDING = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["id", "tool", "status", "elapsedMs"],
        "additionalProperties": False,
        "properties": {
            "id": {"type": "string"},
            "tool": {"type": "string"},
            "status": {"enum": ["queued", "executing", "needs_approval", "needs_input"]},
            "elapsedMs": {"type": "integer", "minimum": 0},
        },
    },
}


def _variant(status: str, required: list[str], **properties: Any) -> dict[str, Any]:
    shared = {
        "status": {"const": status},
        "output": _OUTPUT,
        "notes": {"type": "array", "minItems": 1, "items": {"type": "string"}},
    }
    return {
        "type": "object",
        "required": ["status", *required],
        "properties": shared | properties,
        "additionalProperties": False,
    }


CODE_MODE_RESULT = jsonschema_rs.Draft202012Validator(
    {
        "oneOf": [
            _variant("completed", ["value"], value={}),
            _variant(
                "waiting",
                ["runId", "reason", "next"],
                next={"type": "string"},
                runId={"type": "string", "minLength": 22},
                reason={"enum": ["pending_tools", "yield"]},
                pendingToolCalls=_PENDING,
            ),
            _variant("failed", ["error", "code"], error={"type": "string"}, code={"enum": list(ERROR_CODES)}),
        ]
    }
)
"""`CodeModeResult` as it is documented, and nothing more."""


# configuration


def counting(log: Path, *flags: str, **more: Any) -> dict[str, Any]:
    """Return the entry of a counting upstream that writes into `log`."""
    return {"command": sys.executable, "args": [str(SERVERS / "counting.py"), str(log), *flags], **more}


def other(script: str, *flags: str, **more: Any) -> dict[str, Any]:
    """Return the entry of one of the servers that `upstream_clients` is tested with."""
    path = OTHER_SERVERS / script
    command, *arguments = forked(path, *flags) if script == "sdk_server.py" else [sys.executable, str(path), *flags]
    return {"command": command, "args": arguments, **more}


def quickstart() -> dict[str, Any]:
    """Return the entries of the two servers of the quick start."""
    commands = {name: forked(QUICKSTART / f"{name}.py") for name in ("tracker", "reports")}
    return {name: {"command": command, "args": arguments} for name, (command, *arguments) in commands.items()}


def npm_server(name: str, *arguments: str, **more: Any) -> dict[str, Any]:
    """Return the entry of an npm server; skips the test when it is not installed."""
    if shutil.which("node") is None:
        pytest.skip("node is not on PATH")
    script = NODE_MODULES / "@modelcontextprotocol" / f"server-{name}" / "dist" / "index.js"
    if not script.is_file():
        pytest.skip(f"server-{name} is not installed; python3 tests/run.py installs it where npm is on PATH")
    return {"command": "node", "args": [str(script), *arguments], **more}


DOWN = {"down": {"command": "no-such-command"}}
"""A server that never comes up: with nothing configured there are no tools."""


def write_config(folder: Path, servers: dict[str, Any], *, name: str = "config.json", **tools: Any) -> Path:
    """Return a configuration with these servers; what else is given are fields of `tools`, `codeMode` among them."""
    path = folder / name
    path.write_text(json.dumps({"mcpServers": servers, "tools": tools}), "utf-8")
    return path


def events(log: Path) -> list[str]:
    """Return the log of a counting upstream so far, without its process ids."""
    return [line for line in _lines(log) if not line.startswith("pid ")]


def pids(log: Path) -> list[int]:
    """Return the process ids that a counting upstream has had."""
    return [int(line.removeprefix("pid ")) for line in _lines(log) if line.startswith("pid ")]


def _lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines() if path.exists() else []


def is_running(pid: int) -> bool:
    """Return True if the process exists and is no zombie.

    A killed process is a zombie as soon as its first thread has ended. Its files and locks are released with the last
    thread, so the process counts as running until then.
    """
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            # Fields 3 and 20 of proc_pid_stat(5), after the name in parentheses.
            fields = stat.read_text("utf-8").rpartition(")")[2].split()
            return fields[0] != "Z" or int(fields[17]) > 1
        except (OSError, IndexError):
            return False
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


async def until(condition: Callable[[], object]) -> None:
    """Return once `condition` holds: for what happens in other processes, which nothing announces."""
    with anyio.fail_after(SECONDS):
        while not condition():  # noqa: ASYNC110 - other processes set no events
            await anyio.sleep(0.01)


@asynccontextmanager
async def http_server(*flags: str) -> AsyncIterator[str]:
    """Yield an HTTP server of `upstream_clients`' tests on loopback; the URL of its endpoint."""
    server = SdkServer(OTHER_SERVERS / "http_server.py", *flags)
    await server.start()
    try:
        yield f"http://127.0.0.1:{server.port}/mcp"
    finally:
        with anyio.CancelScope(shield=True):
            await server.kill()


# the SDK's client


@dataclass(frozen=True)
class Answer:
    """The result of one `exec` or `wait`, already held against what every result promises."""

    structured: dict[str, Any]
    content: list[Any]
    is_error: bool
    telemetry: dict[str, Any]

    @property
    def status(self) -> str:
        return self.structured["status"]

    @property
    def value(self) -> Any:
        assert self.status == "completed", self.structured
        return self.structured["value"]

    @property
    def code(self) -> str:
        assert self.status == "failed", self.structured
        return self.structured["code"]

    @property
    def error(self) -> str:
        assert self.status == "failed", self.structured
        return self.structured["error"]

    @property
    def run_id(self) -> str:
        assert self.status == "waiting", self.structured
        return self.structured["runId"]

    @property
    def pending(self) -> list[str]:
        return [call["tool"] for call in self.structured.get("pendingToolCalls", [])]

    @property
    def texts(self) -> list[str]:
        return [item["text"] for item in self.structured.get("output", []) if item["type"] == "text"]

    @property
    def read(self) -> str:
        """Return the text that a model reads."""
        return "\n".join(block.text for block in self.content if block.type == "text")


def checked(result: CallToolResult) -> Answer:
    """Hold a result against the promises that all of them share."""
    answer = Answer(
        result.structured_content or {},
        list(result.content),
        bool(result.is_error),
        (result.meta or {})["codemode-mcp/telemetry"],
    )
    CODE_MODE_RESULT.validate(answer.structured)
    assert answer.content, "a model has nothing to read"
    assert answer.is_error == (answer.status == "failed")
    assert len(json.dumps(answer.telemetry, ensure_ascii=False, separators=(",", ":")).encode()) <= 900
    for guidance in (*answer.structured.get("notes", []), answer.structured.get("next", "")):
        assert guidance in answer.read, "the two forms do not say the same"
    if answer.status == "failed":
        assert answer.code in answer.read
        assert answer.error in answer.read
        for foreign in ("Traceback (most", 'File "', str(REPOSITORY), sys.prefix):
            assert foreign not in answer.read
    if answer.status == "waiting":
        assert answer.run_id in answer.read
        assert "wait" in answer.read
    return answer


class Session:
    """A client that is connected to `codemode-mcp serve`."""

    def __init__(self, client: Client, stderr: Path) -> None:
        self.client = client
        self._stderr = stderr

    async def exec(self, code: str, **arguments: Any) -> Answer:
        return await self.call("exec", {"code": code, **arguments})

    async def wait(self, run_id: str, **arguments: Any) -> Answer:
        return await self.call("wait", {"runId": run_id, **arguments})

    async def call(self, tool: str, arguments: dict[str, Any] | None, **options: Any) -> Answer:
        with anyio.fail_after(SECONDS):
            return checked(await self.client.call_tool(tool, arguments, **options))

    async def value(self, code: str, **arguments: Any) -> Any:
        return (await self.exec(code, **arguments)).value

    async def finish(self, answer: Answer) -> Answer:
        """Follow a run to its end."""
        while answer.status == "waiting":
            answer = await self.wait(answer.run_id)
        return answer

    @property
    def stderr(self) -> str:
        return self._stderr.read_text("utf-8", "replace")


@asynccontextmanager
async def serve(
    config: Path,
    *flags: str,
    mode: str = "legacy",
    env: dict[str, str] | None = None,
    private: bool = True,
    **callbacks: Any,
) -> AsyncIterator[Session]:
    """`codemode-mcp serve` and a client of it. Its stderr never holds a traceback.

    `callbacks` are the SDK client's for what a server may ask of it. A client of the handshake is the default: for one
    of 2026-07-28, `mode="auto"`, the process imports the SDK's server, which takes longer than most tests. Tests of
    what differs between the two, or is most used, have both.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stderr"
        with path.open("w", encoding="utf-8") as errlog:
            forks = private and not any(name.startswith("PYTHON") for name in env or ())
            command, *arguments = forked_serve("stdio") if forks else [*COMMAND, "serve"]
            parameters = StdioServerParameters(
                command=command,
                args=[*arguments, *(PRIVATE if private else ()), "--config", str(config), *flags],
                env={**os.environ, **(env or {})},
                cwd=config.parent,
            )
            try:
                async with Client(stdio_client(parameters, errlog=errlog), mode=mode, **callbacks) as client:
                    session = Session(client, path)
                    yield session
            except Exception as error:
                error.add_note(f"Its stderr was: {path.read_text('utf-8', 'replace')}")
                raise
        assert "Traceback" not in session.stderr, session.stderr


PRIVATE: Final = ("--private",)
"""Options of `serve`. Most tests are about a server of their own; `test_contract.py` has every way to one."""

# bare JSON lines


class Raw:
    """A client that writes and reads lines, and keeps every byte."""

    def __init__(self, process: Any, stderr: Path) -> None:
        self.process = process
        self._stderr = stderr
        self.sent = 0
        self.received = b""
        self.notifications: list[dict[str, Any]] = []
        self.envelope = MODERN
        self._rest = b""
        self._last_stderr = ""

    async def send_bytes(self, data: bytes) -> None:
        await self.process.stdin.send(data)

    async def send(self, **message: Any) -> None:
        await self.send_bytes(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def line(self) -> bytes:
        """Return the next line, without its end."""
        with anyio.fail_after(SECONDS):
            while b"\n" not in self._rest:
                chunk = await self.process.stdout.receive()
                self.received += chunk
                self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    async def message(self) -> dict[str, Any]:
        """Return the next message."""
        return parse_message(await self.line())

    async def answer_to(self, request: int) -> dict[str, Any]:
        """Return the answer to one request; notifications before it are kept, anything else is a failure."""
        while True:
            message = await self.message()
            if "method" in message:
                self.notifications.append(message)
                continue
            assert message["id"] == request, message
            return message

    async def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        self.sent += 1
        await self.send(id=self.sent, method=method, **({} if params is None else {"params": params}))
        return await self.answer_to(self.sent)

    async def initialize(self, version: str) -> dict[str, Any]:
        client = {"name": "raw", "version": "1"}
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": client}
        answer = await self.request("initialize", params)
        await self.send(method="notifications/initialized")
        self.envelope = {}
        return answer["result"]

    async def call(self, tool: str, arguments: Any) -> dict[str, Any]:
        """Return the answer to a call of a tool."""
        return await self.request("tools/call", {**self.envelope, "name": tool, "arguments": arguments})

    async def send_call(self, request: int, tool: str, arguments: Any) -> None:
        """Send a call of a tool with this id, and leave its answer to `answer_to`."""
        await self.send(id=request, method="tools/call", params={**self.envelope, "name": tool, "arguments": arguments})

    async def end(self) -> int:
        """Close its input; its exit code. What it still writes is kept."""
        await self.process.stdin.aclose()
        return await self.exit_code()

    async def exit_code(self) -> int:
        with anyio.fail_after(SECONDS):
            async for chunk in self.process.stdout:
                self.received += chunk
            return await self.process.wait()

    @property
    def stderr(self) -> str:
        if self._stderr.exists():
            self._last_stderr = self._stderr.read_text("utf-8", "replace")
        return self._last_stderr


def parse_message(line: bytes) -> dict[str, Any]:
    """Return a JSON-RPC message, or a failure of the test."""
    message = json.loads(line)
    assert isinstance(message, dict)
    assert message["jsonrpc"] == "2.0"
    assert ("method" in message) != ("result" in message or "error" in message), message
    return message


MODERN = {
    "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
}


@asynccontextmanager
async def raw(
    config: Path, *flags: str, env: dict[str, str] | None = None, serve: Sequence[str] = PRIVATE
) -> AsyncIterator[Raw]:
    """`codemode-mcp serve` and a client of bare lines. It is killed in the end if it has not ended by itself.

    Args:
        serve: options that decide between a private server and a relay.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stderr"
        with path.open("wb") as errlog:
            process = await anyio.open_process(
                [*COMMAND, "serve", *serve, "--config", str(config), *flags],
                stderr=errlog,
                env={**os.environ, **(env or {})},
                cwd=config.parent,
            )
            client = Raw(process, path)
            try:
                yield client
            finally:
                with anyio.CancelScope(shield=True):
                    if process.returncode is None:
                        process.terminate()
                        with anyio.move_on_after(5):
                            await process.wait()
                    if process.returncode is None:
                        process.kill()
                    await process.aclose()
                    assert "debug" in flags or "Traceback" not in client.stderr, client.stderr


@asynccontextmanager
async def handshaken(
    config: Path, *flags: str, env: dict[str, str] | None = None, serve: Sequence[str] = PRIVATE
) -> AsyncIterator[Raw]:
    """`raw` after the handshake. The process does not import the SDK, as it would for requests of 2026-07-28."""
    async with raw(config, *flags, env=env, serve=serve) as client:
        await client.initialize("2025-11-25")
        yield client


# the command line


def tsc(folder: Path, *, as_written: bool = False) -> list[str]:
    """Return the errors that `tsc --strict` finds in the TypeScript files of a folder; `as_written`: with the
    `tsconfig.json` that is in it. Skips the test when there is no compiler."""
    node = shutil.which("node")
    compiler = Path(os.environ.get("TYPESCRIPT_DIR") or NODE_MODULES / "typescript") / "lib" / "tsc.js"
    if node is None or not compiler.is_file():
        pytest.skip("no TypeScript; python3 tests/run.py installs it where npm is on PATH")
    options = {"strict": True, "noEmit": True, "target": "es2023", "lib": ["es2023"], "types": [], "module": "esnext"}
    project = {"compilerOptions": options | {"moduleDetection": "force"}, "include": ["**/*.ts"]}
    if not as_written:
        (folder / "tsconfig.json").write_text(json.dumps(project), "utf-8")
    done = subprocess.run(
        [node, str(compiler), "--pretty", "false"],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS * 2,
        check=False,
    )
    return [line for line in done.stdout.splitlines() if "error TS" in line]


def invoke(*arguments: str, env: dict[str, str] | None = None, text: str | None = None) -> Result:
    """Run `codemode-mcp` with these arguments in this process, to its end. It takes a tenth of the time of `cli`."""

    def run() -> Result:
        options: dict[str, Any] = {"prog_name": "codemode-mcp", "catch_exceptions": False}
        return CliRunner().invoke(app, list(arguments), input=text, env=env, **options)

    # A command runs an event loop, and a thread can have only one.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(run).result()


async def command(*arguments: str, env: dict[str, str] | None = None) -> Result:
    """Do the same while other tasks of this process continue."""
    return await anyio.to_thread.run_sync(lambda: invoke(*arguments, env=env))


def cli(
    *arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None, text: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `codemode-mcp` with these arguments to its end."""
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        input=text or "",
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS * 2,
        check=False,
    )
