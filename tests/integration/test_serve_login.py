"""`login`, `logout`, `doctor` and `serve` as processes, against a server that wants a login."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from harness import COMMAND, OTHER_SERVERS, SECONDS, cli, counting, serve, until, write_config
from terminal import terminal

from codemode_mcp.rules.trust.comparison import ServerPins
from codemode_mcp.rules.trust.pins_file import PinsFolder
from tests.ports import reserved_port

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="where the user's data is can be set there alone")


@pytest.fixture(scope="module")
def protected() -> Iterator[str]:
    with oauth_server() as address:
        yield address


@contextmanager
def oauth_server(*flags: str) -> Iterator[str]:
    port = reserved_port()
    command = [sys.executable, str(OTHER_SERVERS / "oauth_server.py"), str(port), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield f"http://127.0.0.1:{port}"
        process.kill()


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a user of one's own, without a keyring or a browser."""
    return {
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
        **dict.fromkeys(("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"), ""),
    }


@pytest.fixture
def config(tmp_path: Path, protected: str) -> Path:
    servers = {
        "tracker": {"url": f"{protected}/mcp"},
        "local": counting(tmp_path / "log"),
    }
    return write_config(tmp_path, servers)


async def log_in(config: Path, env: dict[str, str]) -> tuple[int, str, str]:
    """Run the command, with a person who opens the address that it prints."""
    command = [*COMMAND, "login", "tracker", "--config", str(config), "--no-browser", "--timeout", str(SECONDS)]
    process = await anyio.open_process(command, env={**os.environ, **env})
    assert process.stdout is not None
    assert process.stderr is not None
    printed = b""
    async with process:
        with anyio.fail_after(2 * SECONDS):
            while not (found := re.search(rb"\n\n  (http\S+)\n\n", printed)):
                printed += await process.stdout.receive()
            async with httpx2.AsyncClient(follow_redirects=True) as client:
                await client.get(found[1].decode())
            async for chunk in process.stdout:
                printed += chunk
            errors = b"".join([chunk async for chunk in process.stderr])
            code = await process.wait()
    return code, printed.decode(), errors.decode()


@pytest.mark.anyio
async def test_a_login_in_a_terminal_serves_a_server_that_is_already_running(
    config: Path, home: dict[str, str]
) -> None:
    code = "return unwrap(await MCP.tracker.echo({ text: 'hello' }))"
    async with serve(config, env=home) as session:
        refused = await session.exec(code)
        # The first name is that of a server that is known to need one when the program starts.
        needs = r"(MCP\.tracker|server 'tracker') needs a login; ask the user to run: codemode-mcp login tracker"
        assert re.search(needs, refused.error)
        assert pins_of(config, home) is None
        status, printed, errors = await log_in(config, home)
        assert (status, errors) == (0, "")
        assert printed.startswith("Open in a browser:\n\n  http://127.0.0.1:")
        assert "logged in to server 'tracker'; the login is kept in " in printed
        assert not re.search(r"access-|refresh-", printed)
        with anyio.fail_after(SECONDS):
            while (answer := await session.exec(code)).status == "failed":  # noqa: ASYNC110 - nothing announces it
                await anyio.sleep(0.1)
        assert answer.value == "hello"
        await until(lambda: accepted_tools(config, home) == {"echo", "leak", "leak_as_result", "write"})
        assert not re.search(r"access-|refresh-", session.stderr)


@pytest.mark.anyio
async def test_a_list_from_before_a_login_is_no_baseline(tmp_path: Path, home: dict[str, str]) -> None:
    """A server lists one tool to strangers. Its list after the login is the one that later lists are compared with."""
    keys, grown = "return Object.keys(MCP.tracker)", ["echo", "leak", "leakAsResult", "write"]
    with oauth_server("--greet") as address:
        config = write_config(tmp_path, {"tracker": {"url": f"{address}/mcp"}})
        async with serve(config, env=home) as session:
            assert await session.value("await MCP.tracker.echo({}); " + keys) == ["echo"]
            await until(lambda: accepted_tools(config, home) == {"echo"})
            pins = pins_of(config, home)
            assert pins is not None
            assert not pins.logged_in
            assert (await log_in(config, home))[0] == 0
            with anyio.fail_after(SECONDS):
                while await session.value(keys) != grown:  # noqa: ASYNC110 - nothing announces it
                    await anyio.sleep(0.1)
            assert "held" not in session.stderr
            await until(lambda: accepted_tools(config, home) == {"echo", "leak", "leak_as_result", "write"})
        pins = pins_of(config, home)
        assert pins is not None
        assert pins.logged_in
        httpx2.post(f"{address}/change")
        async with serve(config, env=home) as session:
            answer = await session.exec("return MCP.tracker.echo({}).catch((error) => error.message)")
            said = answer.structured.get("value") or answer.structured.get("error")
            assert "MCP.tracker.echo is held: its server has changed it since it was accepted" in said
            assert await session.value(keys) == grown[1:]


def pins_of(config: Path, home: dict[str, str]) -> ServerPins | None:
    return PinsFolder(Path(home["XDG_STATE_HOME"]) / "codemode-mcp" / "pins", config).load("tracker")


def accepted_tools(config: Path, home: dict[str, str]) -> set[str]:
    pins = pins_of(config, home)
    return set() if pins is None else {name for kind, name in pins.accepted if kind == "tool"}


@pytest.mark.anyio
async def test_doctor_and_logout_know_of_the_login(config: Path, home: dict[str, str]) -> None:
    def check() -> dict[str, Any]:
        checks = json.loads(cli("doctor", "--json", "--config", str(config), env=home).stdout)
        return next(each for each in checks if each["name"] == "server tracker")

    before = await anyio.to_thread.run_sync(check)
    assert (before["status"], before["detail"]) == ("fail", "needs a login")
    assert before["advice"] == "run codemode-mcp login tracker"
    assert (await log_in(config, home))[0] == 0
    assert (await anyio.to_thread.run_sync(check))["status"] == "ok"
    out = [
        await anyio.to_thread.run_sync(lambda: cli("logout", "tracker", "--config", str(config), env=home).stdout)
        for _ in range(2)
    ]
    assert out == ["logged out of server 'tracker'\n", "there was no login to server 'tracker'\n"]


def test_a_browser_that_stays_in_the_foreground_keeps_no_login_waiting(
    config: Path, home: dict[str, str], tmp_path: Path
) -> None:
    browser, shown = tmp_path / "browser", tmp_path / "shown"
    browser.write_text(f'#!/bin/sh\nexec >/dev/null 2>&1\necho "$$ $1" > {shown}\nexec sleep 600\n', "utf-8")
    browser.chmod(0o755)
    try:
        done = cli(
            "login", "tracker", "--config", str(config), "--timeout", "3", env={**home, "BROWSER": f"{browser} %s"}
        )
        assert (done.returncode, done.stderr) == (
            1,
            "no login to server 'tracker': the browser did not return within 3 s\n",
        )
        url = re.fullmatch(r"If no browser opens, open:\n\n  (http\S+)\n\n", done.stdout)
        assert url is not None
        assert shown.read_text("utf-8").split()[1] == url[1]
    finally:
        os.kill(int(shown.read_text("utf-8").split()[0]), signal.SIGKILL)


@pytest.mark.anyio
async def test_a_server_is_added_with_its_login_and_removed_with_it(
    tmp_path: Path, protected: str, home: dict[str, str]
) -> None:
    config = tmp_path / "new.json"
    async with terminal("add", f"{protected}/mcp", "--name", "t", "--config", str(config), env=home) as shown:
        await shown.confirm("connect")
        await shown.see(r"t needs a login.*> ")
        shown.type("yes\n")
        address = (await shown.see(r"Open in a browser:\s+(http\S+)\s"))[1]
        async with httpx2.AsyncClient(follow_redirects=True) as client:
            await client.get(address)
        await shown.confirm("add")
        assert await shown.end() == 0
    assert json.loads(config.read_text("utf-8")) == {"mcpServers": {"t": {"url": f"{protected}/mcp"}}}
    logins = tmp_path / "data" / "codemode-mcp" / "logins"
    assert len(list(logins.glob("*.json"))) == 1
    async with terminal("remove", "t", "--config", str(config), env=home) as shown:
        await shown.see("Its pins and its login are deleted, too.")
        await shown.confirm("remove")
        assert await shown.end() == 0
    assert list(logins.glob("*.json")) == []
