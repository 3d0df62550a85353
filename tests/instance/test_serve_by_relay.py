"""`codemode-mcp serve` as a process: what it tells the shared instance, how it ends, and when it serves by itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp.base.nesting import DEPTH_VARIABLE
from tests.instance.fake_instance import BOUND
from tests.instance.relay_processes import INITIALIZE, User, read_line, user_with_folders, write_line

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the user's folders are set by variables of Unix")

MAX_RESIDENT = 25 * 1024
"""Kilobytes of a relay."""


@pytest.fixture
def user(monkeypatch: pytest.MonkeyPatch) -> Iterator[User]:
    with user_with_folders(monkeypatch) as found:
        yield found


def test_the_client_and_its_options_are_introduced_and_lines_passed_on(user: User) -> None:
    config = user.home / "some.json"
    config.write_text('{"instance": {"shared": true}}', "utf-8")
    user.publish(config)
    options = "--config ../some.json --read-only --locked --context careful --log-level error --log-file l"
    process = user.serve(*options.split(), SOME_TOKEN="secret")
    relay = user.fake.relay()
    assert relay.attach["pid"] == process.pid
    assert (relay.attach["config"], relay.attach["found"]) == (str(config), False)
    assert relay.attach["folder"] == str(user.work)
    assert relay.attach["options"] == {
        "readOnly": True,
        "locked": True,
        "context": "careful",
        "logLevel": "error",
        "logFile": str(user.work / "l"),
    }
    assert relay.environ["SOME_TOKEN"] == "secret"
    write_line(process, INITIALIZE)
    assert relay.receive_json() == INITIALIZE
    relay.send({"jsonrpc": "2.0", "id": 0, "result": {}})
    assert read_line(process) == {"jsonrpc": "2.0", "id": 0, "result": {}}
    relay.note(log="a line of the log")
    assert process.stdin is not None
    process.stdin.close()
    assert relay.receive() == b""
    relay.close()
    assert process.wait(BOUND) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b"a line of the log\n"


@pytest.mark.skipif(not os.path.exists("/dev/stderr"), reason="this system has no such file")
def test_a_log_on_a_pipe_of_the_client_is_written_by_a_private_server(user: User) -> None:
    user.publish(None)
    process = user.serve("--log-file", "/dev/stderr", "--log-level", "debug")
    write_line(process, INITIALIZE)
    assert read_line(process)["id"] == 0
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(BOUND) == 0
    assert user.fake.connections == 0


def test_a_file_of_the_working_directory_is_marked_as_found(user: User) -> None:
    config = user.work / "codemode-mcp.json"
    config.write_text("{}", "utf-8")
    user.publish(config)
    user.serve()
    relay = user.fake.relay()
    assert (relay.attach["config"], relay.attach["found"]) == (str(config), True)


def test_without_a_file_the_instance_of_the_defaults_is_used(user: User) -> None:
    user.publish(None)
    user.serve("--transport", "stdio")  # an option that the parser takes
    relay = user.fake.relay()
    assert (relay.attach["config"], relay.attach["digest"]) == (None, None)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_relay_needs_little_memory(user: User) -> None:
    user.publish(None)
    process = user.serve()
    relay = user.fake.relay()
    write_line(process, INITIALIZE)
    assert relay.receive_json() == INITIALIZE
    status = Path(f"/proc/{process.pid}/status").read_text("utf-8")
    (resident,) = (int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    assert resident < MAX_RESIDENT


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_session_as_a_client_that_left(user: User, number: int) -> None:
    user.publish(None)
    process = user.serve()
    relay = user.fake.relay()
    write_line(process, INITIALIZE)
    assert relay.receive_json() == INITIALIZE
    process.send_signal(number)
    assert relay.receive() == b""
    relay.send({"last": "words"})
    process.send_signal(number)  # to the process and to its group: the same signal
    relay.close()
    assert read_line(process) == {"last": "words"}
    assert process.wait(BOUND) == 0


SIGNAL_IN_ANOTHER_THREAD = """\
import os, signal, socket, threading
from codemode_mcp.process.instance import relay
from codemode_mcp.process.instance.attaching import Attached

instance, connection = socket.socketpair()
source, client_writes = os.pipe()
client_reads, sink = os.pipe()
relayed = relay.Relay(source, sink, lambda: None, print)
relay.end_on_signals(relayed)

def end():
    instance.sendall(b'{"first":"line"}\\n')
    os.read(client_reads, 100)  # the relay waits for the next line after this one
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    assert instance.recv(1) == b""
    instance.close()

threading.Thread(target=end, daemon=True).start()
print(relayed.run(Attached(connection, 0, b"", {})))
"""


def test_a_signal_that_does_not_interrupt_the_reading_ends_the_session_too() -> None:
    """The system may give a signal to another thread, or right before the main thread reads."""
    command = [sys.executable, "-c", SIGNAL_IN_ANOTHER_THREAD]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


def test_an_instance_learns_of_a_relay_that_was_killed(user: User) -> None:
    user.publish(None)
    process = user.serve()
    relay = user.fake.relay()
    process.kill()
    assert relay.receive() == b""


def test_a_client_that_closes_its_output_ends_the_relay_quietly(user: User) -> None:
    user.publish(None)
    process = user.serve()
    relay = user.fake.relay()
    assert process.stdout is not None
    process.stdout.close()
    relay.send({"a": 1})
    assert process.wait(BOUND) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""


def test_without_another_instance_the_exit_code_is_1_and_open_requests_are_answered(user: User) -> None:
    user.publish(None)
    process = user.serve()
    relay = user.fake.relay()
    write_line(process, {"jsonrpc": "2.0", "id": 7, "method": "tools/list"})
    assert relay.receive_json()["id"] == 7
    folder = user.home / "cache" / "codemode-mcp" / "instance"
    folder.rename(user.home / "moved")
    folder.write_text("", "utf-8")
    relay.close()
    answer = read_line(process)
    assert answer["id"] == 7
    assert "instance is not a folder" in answer["error"]["message"]
    assert process.wait(BOUND) == 1


# when this process serves


def answer_of(process: subprocess.Popen[bytes]) -> Any:
    """Return the answer of a private server to the greeting, after it has ended."""
    output, _ = process.communicate(json.dumps(INITIALIZE).encode() + b"\n", BOUND)
    return json.loads(output.partition(b"\n")[0])


@pytest.mark.parametrize("why", ["option", "nested", "configuration", "refused", "pipe"])
def test_a_private_server_is_no_relay(user: User, why: str) -> None:
    config = user.home / "some.json"
    setting = "// no sharing\n'instance': {shared: false}".replace("'", '"').replace("shared", '"shared"')
    config.write_text("{" + (setting if why == "configuration" else "") + "}", "utf-8")
    user.publish(config)
    user.fake._refusals = [{"ok": False, "code": "private", "lines": []}]
    options = {"option": ["--private"], "pipe": ["--config", str(user.home / "pipe")]}.get(why, [])
    if why == "pipe":
        os.mkfifo(user.home / "pipe")
        user.publish(user.home / "pipe")
        held = os.open(user.home / "pipe", os.O_RDWR)
        os.write(held, b"{}")
    environ = {DEPTH_VARIABLE: "1"} if why == "nested" else {}
    process = user.serve(*options, *([] if why == "pipe" else ["--config", str(config)]), **environ)
    if why == "pipe":
        # The private server waits for the end of the pipe.
        opened = os.open(user.home / "pipe", os.O_RDONLY | os.O_NONBLOCK)
        os.close(held)
        os.close(opened)
        process.kill()
    else:
        assert answer_of(process)["result"]["serverInfo"]["name"] == "codemode-mcp"
    assert user.fake.connections == (1 if why == "refused" else 0)


def test_a_client_is_served_without_an_instance_and_told_why(user: User) -> None:
    (user.home / "cache").mkdir()
    (user.home / "cache" / "codemode-mcp").mkdir()
    (user.home / "cache" / "codemode-mcp" / "instance").symlink_to(user.home)
    process = user.serve()
    output, errors = process.communicate(json.dumps(INITIALIZE).encode() + b"\n", BOUND)
    assert json.loads(output.partition(b"\n")[0])["result"]["serverInfo"]["name"] == "codemode-mcp"
    assert process.returncode == 0
    said = " ".join(errors.decode().split())
    assert said.startswith("no shared instance can be used, so this process serves its client itself: ")
    assert "instance is not a folder" in said


@pytest.mark.parametrize("fault", ["missing", "invalid", "not confirmed"])
def test_faults_of_the_configuration_are_reported_as_by_a_private_server(user: User, fault: str) -> None:
    options = ["--config", "gone.json"] if fault == "missing" else []
    if fault == "invalid":
        options = ["--config", "some.json"]
        (user.work / "some.json").write_text('{"oops": 1}', "utf-8")
        user.publish(user.work / "some.json")
        user.fake._refusals = [{"ok": False, "code": "invalid_config", "lines": ["what the instance says"]}]
    if fault == "not confirmed":
        (user.work / "codemode-mcp.json").write_text('{"mcpServers": {"a": {"command": "b"}}}', "utf-8")
        user.publish(user.work / "codemode-mcp.json")
        user.fake._refusals = [{"ok": False, "code": "not_confirmed", "lines": ["what the instance says"]}]
    shared, private = user.serve(*options), user.serve("--private", *options)
    assert shared.communicate(timeout=BOUND) == private.communicate(timeout=BOUND)
    assert shared.returncode == private.returncode == 2
