"""A relay passes lines on in both directions, and brings its client to the next instance when one ends."""

from __future__ import annotations

import json
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from codemode_mcp.process.instance import attaching, relay, wire
from codemode_mcp.process.instance.attaching import Attached, NoInstance, Refused
from codemode_mcp.process.instance.relay import Relay
from tests.instance.fake_instance import BOUND, Connection, close_all

INITIALIZE = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def request(number: object, method: str = "tools/call", **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def result(number: object, **values: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "result": values}


class Client:
    """A client with its relay, whose instances are sockets in the hands of the test."""

    def __init__(self, *, loopback: bool = False) -> None:
        source, self.input = os.pipe()
        output, self.sink = os.pipe()
        self.output = os.fdopen(output, "rb")
        self.source = source
        self.says: list[str] = []
        self.left: queue.Queue[int] = queue.Queue()
        self.attempts = 0
        self.before_attach: Callable[[], object] | None = None
        self._loopback = loopback
        self._instances: queue.Queue[Attached | Exception] = queue.Queue()
        self.relay = Relay(source, self.sink, self._attach, self.says.append, self._leave)
        self.instance = self.new_instance()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def new_instance(self) -> Connection:
        """Prepare another instance, and return its side of the connection."""
        if self._loopback:
            with socket.create_server(("127.0.0.1", 0)) as listener:
                ours = socket.create_connection(listener.getsockname())
                theirs, _ = listener.accept()
        else:
            ours, theirs = socket.socketpair()
        self._instances.put(Attached(ours, 1, b"", {}))
        return Connection(theirs)

    def refuse(self, error: Exception) -> None:
        """Let the next attempt to attach fail."""
        self._instances.put(error)

    def send(self, *messages: Any) -> None:
        for message in messages:
            data = message if isinstance(message, bytes) else json.dumps(message, separators=(",", ":")).encode()
            self.write(data + b"\n")

    def write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.input, data) :]

    def read(self) -> Any:
        """Return the next message; None at the end."""
        line = self.read_line()
        return json.loads(line) if line else None

    def read_line(self) -> bytes:
        return self.output.readline().removesuffix(b"\n")

    def close_input(self) -> None:
        os.close(self.input)
        self.input = -1

    def end(self) -> int:
        """Return the exit code of the relay."""
        return self.left.get(timeout=BOUND)

    def close(self) -> None:
        with suppress(queue.Empty):
            while isinstance(unused := self._instances.get_nowait(), Attached):
                unused.connection.close()
        self.refuse(NoInstance("the test is over"))
        for descriptor in (self.input, self.sink):
            with suppress(OSError):
                os.close(descriptor)
        self.output.close()

    def _attach(self) -> Attached:
        self.attempts += 1
        if self.attempts > 1 and self.before_attach is not None:
            self.before_attach()
        try:
            found = self._instances.get(timeout=BOUND)
        except queue.Empty:
            raise NoInstance("the test has no other instance") from None
        if isinstance(found, Exception):
            raise found
        return found

    def _run(self) -> None:
        self._leave(self.relay.run(self._attach()))

    def _leave(self, code: int) -> None:
        self.left.put(code)


@pytest.fixture(params=[False, True], ids=["socket", "port"])
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    found = Client(loopback=request.param)
    yield found
    found.close()
    close_all()
    found.thread.join(BOUND)
    # The source stays open. The thread that reads it may still be about to, and would read what has its number next.


def greet(client: Client) -> None:
    client.send(INITIALIZE, INITIALIZED)
    assert [client.instance.receive_json() for _ in range(2)] == [INITIALIZE, INITIALIZED]
    client.instance.send(result(0))
    assert client.read() == result(0)


def next_instance(client: Client) -> None:
    """End the instance, and prepare another one."""
    old, client.instance = client.instance, client.new_instance()
    old.close()


def replace_instance(client: Client) -> list[Any]:
    """End the instance. Return the greeting and notes that the next one gets before new lines."""
    next_instance(client)
    return [client.instance.receive_json() for _ in range(2)]


def hold_attaching(client: Client) -> tuple[threading.Event, threading.Event]:
    """Let the relay wait when it attaches again. Return the events that it does, and that it may continue."""
    attaching_now, go = threading.Event(), threading.Event()

    def hold() -> None:
        attaching_now.set()
        assert go.wait(BOUND)

    client.before_attach = hold
    return attaching_now, go


def pass_in_both_directions(client: Client, large: bytes) -> None:
    for send, receive in ((client.send, client.instance.receive), (client.instance.send, client.read_line)):
        sending = threading.Thread(target=send, args=(large,))
        sending.start()
        assert receive() == large
        sending.join()


def test_lines_are_passed_on_unchanged_and_in_order(client: Client) -> None:
    lines = [b'{"a": 1}', b"not json", b"\xff", b'[{"jsonrpc":"2.0"}]', b'  {"id" : 1 } \r']
    client.send(*lines)
    assert [client.instance.receive() for _ in lines] == lines
    client.instance.send(*lines)
    assert [client.read_line() for _ in lines] == lines


def test_parts_of_lines_are_joined_and_blank_lines_and_notes_of_clients_dropped(client: Client) -> None:
    client.write(b'\n  \n\x01{"interrupted": {}}\n{"a"')
    client.write(b": 1")
    client.write(b'}\n{"b": 2}\n')
    assert [client.instance.receive() for _ in range(2)] == [b'{"a": 1}', b'{"b": 2}']
    client.write(b'{"c": 3}')
    client.close_input()
    assert client.instance.receive() == b'{"c": 3}'
    assert client.instance.receive() == b"", "the end of the client's input reaches the instance"
    client.instance.send({"last": "words"})
    assert client.read() == {"last": "words"}
    client.instance.close()
    assert client.end() == 0


def test_large_lines_pass_in_both_directions(client: Client) -> None:
    pass_in_both_directions(client, json.dumps(request(1, data="x" * 50_000_000)).encode())


def test_a_line_without_an_end_is_passed_on_in_parts(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "MAX_LINE", 1000)
    client.write(b"\x01" + b"x" * 1500)
    assert client.instance.socket.recv(1502, socket.MSG_WAITALL) == b" \x01" + b"x" * 1500
    client.write(b"y" * 10 + b"\n" + b'{"next": 1}\n')
    assert client.instance.receive() == b"y" * 10
    assert client.instance.receive() == b'{"next": 1}'
    client.instance.socket.sendall(b"z" * 1500)
    assert client.output.read(1501) == b" " + b"z" * 1500
    client.new_instance().send({"after": 1})
    client.instance.close()
    assert client.read_line() == b"", "the part that the client has seen is ended"
    assert client.read() == {"after": 1}


def test_a_client_that_stops_reading_stops_the_instance_and_not_the_other_direction(client: Client) -> None:
    client.instance.socket.settimeout(0.5)
    with pytest.raises(TimeoutError):
        client.instance.socket.sendall((b"x" * 99 + b"\n") * 1_000_000)
    client.instance.socket.settimeout(BOUND)
    client.send({"still": "sent"})
    assert client.instance.receive_json() == {"still": "sent"}


def test_logs_are_printed_and_invalid_notes_ignored(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    client.instance.note(log="a line of the log")
    client.instance.send(b"\x01", b"\x01[]", b"\x01{", b'\x01{"log": 7}', b'\x01{"progress": [], "run": 1}')
    client.instance.note(log="y" * wire.MAX_NOTE)
    client.instance.send({"a": 1})
    assert client.read() == {"a": 1}
    assert capsys.readouterr().err == "a line of the log\n"


def test_a_client_notices_only_the_failure_of_its_open_calls(client: Client) -> None:
    greet(client)
    client.send(request(1, name="exec"), request("1", "tools/list"), request(2, name="exec"))
    for _ in range(3):
        client.instance.receive()
    client.instance.note(progress=1, run="run_a", dispatched=True)
    client.instance.send(request(1, "elicitation/create"))
    assert client.read()["method"] == "elicitation/create"
    assert replace_instance(client) == [INITIALIZE, INITIALIZED]
    assert client.read()["params"]["requestId"] == 1
    known = {"interrupted": request(1, name="exec"), "run": "run_a", "dispatched": True}
    assert client.instance.receive_json() == known
    assert client.instance.receive_json() == request("1", "tools/list")
    assert client.instance.receive_json() == {"interrupted": request(2, name="exec"), "run": None, "dispatched": False}
    client.instance.send(result(0), result(1, isError=True), result("1"))
    assert client.read() == result(1, isError=True)
    assert client.read() == result("1")
    client.send(result(1, action="accept"))  # the answer to the question of the instance that has ended
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}
    client.send(cancel, request(3, "ping"))
    assert client.instance.receive_json() == cancel
    assert client.instance.receive_json() == request(3, "ping")


def test_lines_that_come_during_a_recovery_follow_the_repeated_ones(client: Client) -> None:
    greet(client)
    attaching_now, go = hold_attaching(client)
    client.send(request(1, name="exec"))
    client.instance.receive()
    client.instance.close()
    assert attaching_now.wait(BOUND)
    client.send(request(2, name="exec"))
    instance = client.new_instance()
    go.set()
    assert [instance.receive_json() for _ in range(2)] == [INITIALIZE, INITIALIZED]
    assert instance.receive_json()["interrupted"]["id"] == 1
    assert instance.receive_json() == request(2, name="exec"), "it reached no earlier instance"


def test_an_instance_that_dies_during_a_recovery_is_replaced_too(client: Client) -> None:
    greet(client)
    client.send(request(1, "tools/list"))
    client.instance.receive()
    for _ in range(2):
        client.new_instance().close()
    assert replace_instance(client) == [INITIALIZE, INITIALIZED]
    assert client.instance.receive_json() == request(1, "tools/list")
    client.instance.send(result(0), result(1))
    assert client.read() == result(1)


def test_an_instance_that_answers_before_it_reads_on_gets_all_repeated_lines(client: Client) -> None:
    greet(client)
    numbers = range(1, 1001)
    for number in numbers:
        client.send(request(number, "tools/list"))
        client.instance.receive()
    next_instance(client)
    padded = [result(number, pad="x" * 2000) for number in numbers]
    answers = threading.Thread(target=client.instance.send, args=padded, daemon=True)
    answers.start()
    answers.join(BOUND)  # the instance reads nothing meanwhile
    assert not answers.is_alive()
    repeated = [client.instance.receive_json() for _ in range(2 + len(numbers))]
    assert [each.get("id") for each in repeated] == [0, None, *numbers]
    assert [client.read()["id"] for _ in numbers] == [*numbers]


def test_a_leaving_instance_gets_no_more_lines(client: Client) -> None:
    greet(client)
    client.instance.note(leaving="a newer version takes over")
    client.instance.send({"before": "the end"})
    assert client.read() == {"before": "the end"}
    client.send(request(1, name="exec"))
    client.instance.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.instance.socket.recv(1)
    assert replace_instance(client) == [INITIALIZE, INITIALIZED]
    assert client.instance.receive_json() == request(1, name="exec")


def test_without_another_instance_open_requests_are_answered_and_the_exit_code_is_1(client: Client) -> None:
    greet(client)
    client.send(request(1, name="exec"), request(2, "tools/list"))
    for _ in range(2):
        client.instance.receive()
    client.instance.note(progress=1, run="run_a", dispatched=True)
    client.refuse(NoInstance("the folder is a link"))
    client.instance.close()
    first, second = client.read(), client.read()
    assert (first["id"], second["id"]) == (1, 2)
    assert "the folder is a link. Some calls to tools were sent" in first["error"]["message"]
    assert "call wait with runId run_a" in first["error"]["message"]
    assert client.end() == 1
    assert client.says == ["the shared instance has ended, and no other one could be started: the folder is a link"]


def test_a_refusal_by_the_next_instance_is_reported(client: Client) -> None:
    client.send(request(1, "tools/list"))
    client.instance.receive()
    client.refuse(Refused("version", ("upgrade codemode-mcp here too",)))
    client.instance.close()
    assert client.read()["error"]["message"].endswith("upgrade codemode-mcp here too")
    assert client.end() == 1


def test_instances_that_all_end_soon_are_given_up(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attaching, "START_SECONDS", 0.5)
    for _ in range(30):
        client.new_instance().close()
    client.instance.close()
    assert client.end() == 1
    assert client.attempts < 20
    assert "of them have ended within" in client.says[0]


def test_an_instance_that_has_answered_does_not_end_soon(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attaching, "START_SECONDS", 0.3)
    for number in range(12):
        client.send(request(number, "ping"))
        client.instance.receive()
        client.instance.send(result(number))
        assert client.read() == result(number)
        next_instance(client)
        time.sleep(0.05)
    client.send(request("last", "ping"))
    assert client.instance.receive_json() == request("last", "ping")


def test_a_client_that_leaves_during_a_recovery_ends_the_relay(client: Client) -> None:
    greet(client)
    client.before_attach = client.close_input
    client.instance.close()
    assert client.end() == 0


def test_a_client_that_closes_its_input_during_a_recovery_gets_its_answers(client: Client) -> None:
    client.send(request(1, "tools/list"))
    client.instance.receive()
    attaching_now, go = hold_attaching(client)
    client.instance.close()
    assert attaching_now.wait(BOUND)
    client.close_input()
    while not client.relay._ended:
        time.sleep(0.01)
    instance = client.new_instance()
    go.set()
    assert (instance.receive_json(), instance.receive()) == (request(1, "tools/list"), b"")
    instance.send(result(1))
    instance.close()
    assert client.read() == result(1)
    assert client.end() == 0


def test_an_instance_that_stops_reading_and_dies_blocks_nothing(client: Client) -> None:
    def flood() -> None:
        with suppress(OSError):
            for _ in range(300):
                client.send(b'{"x": "' + b"x" * 100_000 + b'"}')

    flooding = threading.Thread(target=flood)
    flooding.start()
    time.sleep(0.2)  # until the relay cannot send any more
    old = client.instance
    client.instance = client.new_instance()
    # The sending side alone is closed: the relay's sending would not fail by itself.
    old.socket.shutdown(socket.SHUT_WR)
    assert client.instance.receive().startswith(b'{"x": "x')
    draining = threading.Thread(target=lambda: [client.instance.receive() for _ in range(200)], daemon=True)
    draining.start()
    draining.join(BOUND)
    assert not draining.is_alive()
    client.instance.close()
    client.refuse(NoInstance("over"))
    assert client.end() == 1
    # The relay's thread waits for an instance, and reads no more. Without a reader, flooding ends.
    os.dup2(null := os.open(os.devnull, os.O_RDONLY), client.source)
    os.close(null)
    flooding.join(BOUND)


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of Windows always block")
def test_streams_that_do_not_block_are_waited_for(client: Client) -> None:
    os.set_blocking(client.source, False)
    os.set_blocking(client.sink, False)
    time.sleep(0.05)
    pass_in_both_directions(client, b'{"x": "' + b"x" * 1_000_000 + b'"}')
