"""One client, started once, that plays all cases."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.real_clients.cases import Seen, conversation
from tests.real_clients.drivers.place import Driver, Place
from tests.real_clients.endpoint import Model, find_tool, serving

HERE = Path(__file__).resolve().parent
MOST_SECONDS = 600
"""The Inspector needs the most: a process for each call."""
END_SECONDS = 10
PASSED_ON = ("PATH", "LANG", "SYSTEMROOT", "COMSPEC", "PATHEXT")
"""Variables of ours that clients get; all others would bring proxies, keys and settings of this machine."""


@dataclass(frozen=True)
class Played:
    """Everything that is known after one client has played.

    Attributes:
        wire: Messages between the client and our server: who sent each, and the message.
        left: Processes that were still there after the client had ended; they are ended then.
        output: The end of what the client printed, for a person who looks for a fault.
    """

    seen: Seen
    model: Model
    wire: list[tuple[str, dict[str, Any]]]
    exit_code: int
    seconds: float
    left: list[str]
    output: str

    @property
    def tools(self) -> str:
        """The way in which the model gets our tools: "up front", "by a search" for its task, or "by name" alone."""
        first = self.model.first
        if first is not None and all(find_tool(first.tools, name) for name in ("exec", "wait")):
            return "up front"
        return "by a search" if self.model.found_by_words else "by name"

    @property
    def client_info(self) -> dict[str, Any]:
        """Name and version that the client gives in its first message that has them."""
        for sender, message in self.wire:
            params = message.get("params") or {}
            meta = params.get("_meta") or {}
            info = params.get("clientInfo") or meta.get("io.modelcontextprotocol/clientInfo")
            if sender == "client" and info:
                return dict(info)
        return {}


def play(driver: Driver, folder: Path) -> Played:
    """Run the client in `folder` until the script has ended."""
    home, log = folder / "home", folder / "wire.jsonl"
    home.mkdir()
    seen = Seen()
    model = Model(driver.api, conversation(seen, folder, driver))
    # The store is the default, a file: the Inspector starts a server for each call.
    server = (
        sys.executable,
        str(HERE / "recording.py"),
        str(log),
        sys.executable,
        "-m",
        "codemode_mcp",
        "serve",
        "--private",
    )
    command = (*server, "--config", str(_config(folder)))
    with serving(model) as url:
        launch = driver.launch(Place(home, url, command, _server_env(folder)))
        env = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        env |= {"HOME": str(home), "USERPROFILE": str(home), "TMPDIR": str(folder), "NO_COLOR": "1", "CI": "1"}
        env |= {"XDG_RUNTIME_DIR": str(folder), "NO_PROXY": "*"}
        env |= {f"XDG_{kind}_HOME": str(home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA", "STATE")}
        exit_code, seconds, output = _run(launch.command, env | launch.env, home)
    left = _end_what_is_left(folder)
    wire = [(line["from"], json.loads(line["line"])) for line in map(json.loads, _lines(log)) if line["line"].strip()]
    return Played(seen, model, wire, exit_code, seconds, left, output)


def _config(folder: Path) -> Path:
    upstream = {"command": sys.executable, "args": [str(HERE / "upstream.py"), str(folder)]}
    # The question has a server of its own, because it keeps later calls waiting.
    tools = {"ask": ["mcp:bench:erase"], "codeMode": {"timeoutMs": 4000, "connectWaitMs": 30_000}}
    servers = dict.fromkeys(("bench", "asker", "googleCalendar"), upstream)
    path = folder / "codemode-mcp.json"
    path.write_text(json.dumps({"mcpServers": servers, "tools": tools}), "utf-8")
    return path


def _server_env(folder: Path) -> dict[str, str]:
    cache = os.environ.get("XDG_CACHE_HOME")
    return {
        **({"XDG_CACHE_HOME": cache} if cache else {}),
        "XDG_STATE_HOME": str(folder / "state"),
        "XDG_RUNTIME_DIR": str(folder),
    }


def _run(command: tuple[str, ...], env: dict[str, str], home: Path) -> tuple[int, float, str]:
    began = time.monotonic()
    path = home.parent / "output"
    with path.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=home,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(MOST_SECONDS)
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return code, time.monotonic() - began, path.read_text("utf-8", "replace")[-6000:]


def _end_what_is_left(folder: Path) -> list[str]:
    """End processes that still name the folder in their command or their variables, and name them.

    A server may take a moment to end after its client has closed its input.
    """
    give_up = time.monotonic() + END_SECONDS
    while (left := _naming(str(folder))) and time.monotonic() < give_up:
        time.sleep(0.05)
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return sorted(left.values())


def _naming(text: str) -> dict[int, str]:
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            env = (process / "environ").read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
        if int(process.name) != os.getpid() and command and (text in command or text in env):
            found[int(process.name)] = command.strip()
    return found


def _lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines() if path.exists() else []
