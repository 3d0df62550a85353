"""A relay attaches to instances of its user only, starts at most one, and names what it refuses."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp import __version__
from codemode_mcp.process.instance import attaching, registry
from codemode_mcp.process.instance.attaching import Attached, Client, NoInstance, Refused, attach
from tests.instance.fake_instance import BOUND, Connection, FakeInstance, close_all

KEY = "0123456789abcdef"
CLIENT = Client(None, found=False, folder="/work", options={"readOnly": True})
unix = pytest.mark.skipif(sys.platform == "win32", reason="sockets, owners and modes of Unix")
DOORS = [pytest.param(False, id="socket", marks=unix), pytest.param(True, id="port")]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the cache folder of the user, with a path that leaves room for a socket's name."""
    with tempfile.TemporaryDirectory(dir=None if sys.platform == "win32" else "/tmp") as short:
        cache = Path(short).resolve()
        monkeypatch.setattr(registry, "cache_dir", lambda: cache)
        monkeypatch.setattr(attaching, "start", refuse_to_start)
        yield cache
        close_all()


def refuse_to_start(*_: object) -> None:
    raise NoInstance("nothing is started in this test")


def publish(fake: FakeInstance) -> None:
    registry.write_record(KEY, registry.Record(**fake.record))


def attached(**environ: str) -> Attached:
    return attach(KEY, CLIENT, environ)


def refused(words: str, **environ: str) -> None:
    with pytest.raises(NoInstance, match=words):
        attached(**environ)


@pytest.mark.parametrize("loopback", DOORS)
def test_a_relay_attaches_and_sends_its_variables_only_after_the_first_answer(folder: Path, loopback: bool) -> None:
    config = folder / "codemode-mcp.json"
    config.write_bytes(b"{} // \xff")
    fake = FakeInstance(folder / "control", loopback=loopback)
    publish(fake)
    client = Client(str(config), found=True, folder="/f", options={"context": "ci"})
    found = attach(KEY, client, {"TOKEN": "secret \udcff", "PATH": "/bin"})
    relay = fake.relay()
    assert relay.attach == {
        "version": 1,
        "operation": "attach",
        "product": __version__,
        "pid": os.getpid(),
        "config": str(config),
        "found": True,
        "digest": hashlib.sha256(config.read_bytes()).hexdigest(),
        "folder": "/f",
        "options": {"context": "ci"},
    }
    assert "secret" not in json.dumps(relay.attach)
    assert (relay.environ, found.pid) == ({"TOKEN": "secret \udcff", "PATH": "/bin"}, 4711)
    with found.connection:
        found.connection.sendall(b"hello\n")
        assert relay.receive() == b"hello"
        assert found.connection.gettimeout() is None


def test_what_follows_the_last_answer_is_not_lost(folder: Path) -> None:
    def hasten(relay: Connection) -> None:
        relay.receive()
        relay.send({"ok": True})
        relay.receive()
        relay.send({"ok": True}, b"a", b"b")

    publish(FakeInstance(folder / "control", loopback=True, behave=hasten))
    found = attached()
    with found.connection as connection:
        seen = found.received
        while seen.count(b"\n") < 2:
            seen += connection.recv(100)
    assert seen == b"a\nb\n"


@pytest.mark.parametrize("code", ["version", "private", "invalid_config", "not_confirmed", "failed"])
def test_a_refusal_has_its_code_and_its_sentences(folder: Path, code: str) -> None:
    refusal = {"ok": False, "code": code, "lines": ["one", "two"]}
    publish(FakeInstance(folder / "control", loopback=True, refusals=(refusal,)))
    with pytest.raises(Refused) as caught:
        attached()
    assert (caught.value.code, caught.value.lines) == (code, ("one", "two"))


@pytest.mark.parametrize("answer", [{"ok": False}, {"ok": False, "error": "no such operation"}, {"ok": 1, "code": 7}])
def test_a_refusal_in_an_unknown_form_is_a_failure(folder: Path, answer: dict[str, Any]) -> None:
    publish(FakeInstance(folder / "control", loopback=True, refusals=(answer,)))
    with pytest.raises(Refused) as caught:
        attached()
    said = answer.get("error", "the shared instance gave no reason")
    assert (caught.value.code, caught.value.lines) == ("failed", (said,))


# what is not the instance


@unix
def test_a_socket_of_another_user_is_refused_by_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeInstance(folder / "control")
    publish(fake)
    for user in (os.geteuid() + 1, None):
        monkeypatch.setattr(attaching, "peer_user", lambda _, user=user: user)
        with pytest.raises(NoInstance, match=f"{fake.path} is not the shared instance: it belongs to another user"):
            attached()
    assert fake.relays.empty()


@unix
@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_an_endpoint_in_a_folder_that_others_can_open_is_refused_by_name(folder: Path, mode: int) -> None:
    fake = FakeInstance(folder / "control")
    publish(fake)
    (folder / "control").chmod(mode)
    refused("control is open to other users; run chmod 700 on it")
    assert fake.connections == 0


@unix
@pytest.mark.parametrize("loopback", [False, True])
def test_a_link_in_the_place_of_an_endpoint_is_refused_by_name(folder: Path, loopback: bool) -> None:
    fake = FakeInstance(folder / "control", loopback=loopback)
    link = folder / "control" / f"link{fake.path.suffix}"
    link.symlink_to(fake.path)
    registry.write_record(KEY, registry.Record(1, "0.1.0", str(link)))
    refused(f"{link} is a link in the place of a .*; remove it")
    assert fake.connections == 0


@unix
def test_a_file_in_the_place_of_a_socket_is_refused_by_name(folder: Path) -> None:
    (folder / "control").mkdir(mode=0o700)
    path = folder / "control" / "x.sock"
    path.write_text("", "utf-8")
    registry.write_record(KEY, registry.Record(1, "0.1.0", str(path)))
    refused(f"{path} is something else in the place of a socket; remove it")


@pytest.mark.parametrize("text", ["", "{}", '{"port": 70000, "token": "' + "t" * 64 + '"}'])
def test_a_damaged_file_of_a_port_is_refused_by_name(folder: Path, text: str) -> None:
    fake = FakeInstance(folder / "control", loopback=True)
    publish(fake)
    fake.path.write_text(text, "utf-8")
    refused("has no port and token; remove it")


def test_a_record_with_a_relative_path_is_refused(folder: Path) -> None:
    registry.write_record(KEY, registry.Record(1, "0.1.0", "fake.sock"))
    refused(r"names 'fake.sock', which is not an absolute path")


@unix
def test_a_link_in_the_place_of_the_record_is_refused_by_name(folder: Path) -> None:
    publish(FakeInstance(folder / "control"))
    record = folder / "instance" / f"{KEY}.json"
    record.rename(folder / "moved.json")
    record.symlink_to(folder / "moved.json")
    refused(f"{record} is a link")


def pretending(*answers: bytes) -> Any:
    """Return a behaviour that sends a line for every line that it gets."""

    def behave(relay: Connection) -> None:
        for answer in answers:
            relay.receive()
            relay.send(answer)
        while relay.receive():
            pass

    return behave


@pytest.mark.parametrize("loopback", DOORS)
@pytest.mark.parametrize("answer", [b"rubbish", b"[]", b"HTTP/1.1 400 Bad Request\r\n\r", b"[" * 100_000])
def test_a_process_that_answers_rubbish_is_refused_by_name(folder: Path, loopback: bool, answer: bytes) -> None:
    fake = FakeInstance(folder / "control", loopback=loopback, behave=pretending(answer))
    publish(fake)
    refused(f"{fake.path} is not the shared instance: it has sent .*; remove", TOKEN="secret")


@pytest.mark.parametrize("loopback", DOORS)
def test_a_line_without_an_end_is_refused(folder: Path, loopback: bool) -> None:
    def flood(relay: Connection) -> None:
        while True:
            relay.socket.sendall(b"x" * 65536)

    publish(FakeInstance(folder / "control", loopback=loopback, behave=flood))
    refused(f"a line of more than {attaching.MAX_ANSWER} bytes")


@pytest.mark.parametrize("loopback", DOORS)
def test_a_process_that_never_answers_is_left(folder: Path, loopback: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attaching, "ATTACH_SECONDS", 0.3)

    def drip(relay: Connection) -> None:
        while True:
            relay.socket.sendall(b" ")
            time.sleep(0.01)

    for number, behave in enumerate((pretending(), drip)):
        publish(FakeInstance(folder / "control", loopback=loopback, behave=behave, name=f"fake{number}"))
        began = time.monotonic()
        refused(f"process {os.getpid()}, .* does not answer at .*instance stop --kill ends it")
        assert time.monotonic() - began < BOUND


def test_a_process_that_closes_every_connection_is_given_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attaching, "ATTACH_SECONDS", 0.3)
    publish(FakeInstance(folder / "control", loopback=True, behave=lambda relay: relay.close()))
    refused(f"process {os.getpid()}, .*closes connections without an answer")


def test_a_squatter_on_a_port_learns_nothing_and_is_refused_by_name(folder: Path) -> None:
    heard = []
    squatter = socket.create_server(("127.0.0.1", 0))

    def squat() -> None:
        while True:
            try:
                connection, _ = squatter.accept()
            except OSError:
                return
            with connection:
                connection.sendall(b'{"nonce": "n"}\n')
                heard.append(connection.recv(65536))
                connection.sendall(b'{"proof": "p"}\n')
                heard.append(connection.recv(65536))

    threading.Thread(target=squat, daemon=True).start()
    (folder / "control").mkdir(mode=0o700)
    path = folder / "control" / "x.json"
    token = "t" * 64
    path.write_text(json.dumps({"port": squatter.getsockname()[1], "token": token}), "utf-8")
    registry.write_record(KEY, registry.Record(os.getpid(), "0.1.0", str(path)))
    with squatter, pytest.raises(NoInstance, match=f"at {path} is not the shared instance: it does not know the token"):
        attached(SECRET="variable")
    assert b"variable" not in b"".join(heard)
    assert token.encode() not in b"".join(heard)
    assert path.exists(), "the process of the record is alive"


@unix
def test_another_program_at_the_port_is_no_obstacle(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    stale = FakeInstance(folder / "control", loopback=True, name="stale")
    stale.path.write_text(json.dumps({"port": stale.listener.getsockname()[1], "token": "t" * 64}), "utf-8")
    registry.write_record(KEY, registry.Record(ended.pid, "0.1.0", str(stale.path)))
    started = Starter(folder, monkeypatch)
    attached().connection.close()
    assert started.count == 1
    assert not stale.path.exists()


# starting


class Starter:
    """Starts fakes instead of processes."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *, loopback: bool = True) -> None:
        self.count = 0
        self.fakes: list[FakeInstance] = []
        self._folder = folder
        self._loopback = loopback
        monkeypatch.setattr(attaching, "start", self._start)

    def _start(self, key: str, *_: object) -> None:
        self.count += 1
        time.sleep(0.05)
        self.fakes.append(FakeInstance(self._folder / "control", loopback=self._loopback, name=f"started{self.count}"))
        registry.write_record(key, registry.Record(**self.fakes[-1].record))


@pytest.mark.parametrize("loopback", DOORS)
@pytest.mark.parametrize("before", ["nothing", "a refused connection", "no endpoint", "a damaged record"])
def test_an_ended_one_is_replaced(folder: Path, loopback: bool, before: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if before != "nothing":
        fake = FakeInstance(folder / "control", loopback=loopback)
        publish(fake)
        fake.close()
        if before == "no endpoint":
            fake.path.unlink()
        if before == "a damaged record":
            (folder / "instance" / f"{KEY}.json").write_text("{", "utf-8")
    starter = Starter(folder, monkeypatch, loopback=loopback)
    attached().connection.close()
    attached().connection.close()
    assert starter.count == 1


def test_of_many_relays_one_starts_the_instance(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starter = Starter(folder, monkeypatch)
    found: list[Attached] = []
    threads = [threading.Thread(target=lambda: found.append(attached())) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND)
    assert (starter.count, len(found)) == (1, 12)
    for each in found:
        each.connection.close()


def test_a_leaving_instance_is_waited_for_and_not_doubled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leaving = {"ok": False, "code": "leaving", "lines": ["a newer version takes over"]}
    fake = FakeInstance(folder / "control", loopback=True, refusals=(leaving,) * 1000)
    publish(fake)
    starter = Starter(folder, monkeypatch)

    def end() -> None:
        while fake.connections < 3:
            time.sleep(0.01)
        assert starter.count == 0
        registry.remove_record(KEY, os.getpid())
        fake.close()

    ending = threading.Thread(target=end)
    ending.start()
    attached().connection.close()
    ending.join(BOUND)
    assert starter.count == 1


def test_an_instance_that_never_leaves_is_given_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attaching, "START_SECONDS", 0.5)
    leaving = {"ok": False, "code": "leaving", "lines": []}
    publish(FakeInstance(folder / "control", loopback=True, refusals=(leaving,) * 1000))
    refused(f"process {os.getpid()} takes no more clients, and has not ended")


def test_a_starting_process_that_hangs_is_given_up_by_the_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attaching, "START_SECONDS", 0.5)
    with registry.start_lock(KEY), pytest.raises(NoInstance, match="another process is starting it"):
        attached()


# the real start, of a program in the place of the product

PROGRAM = """
import json, os, pathlib, sys

def is_open(number):
    try:
        return bool(os.fstat(number))
    except OSError:
        return False

about = {
    "argv": sys.argv, "cwd": os.getcwd(), "session": os.getsid(0) == os.getpid(), "stdin": sys.stdin.read(),
    "descriptors": [*filter(is_open, range(256))], "safe": sys.flags.safe_path,
}
pathlib.Path(os.environ["REPORT"]).write_text(json.dumps(about), "utf-8")
print("a line of the log", file=sys.stderr)
"""


@pytest.fixture
def program(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the source of a package that is started instead of the product. It reports how it was started."""
    monkeypatch.undo()
    monkeypatch.setattr(registry, "cache_dir", lambda: folder)
    package = folder / "package" / "codemode_mcp"
    package.mkdir(parents=True)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.setenv("REPORT", str(folder / "report.json"))
    (package / "__init__.py").write_text("", "utf-8")
    return package / "__main__.py"


@unix
def test_an_instance_is_started_on_its_own_and_inherits_nothing(folder: Path, program: Path) -> None:
    program.write_text(PROGRAM + 'print("nothing listens", flush=True)', "utf-8")
    client = CLIENT._replace(config="/etc/codemode-mcp.json")
    with pytest.raises(NoInstance, match=rf"could not be started: nothing listens; see .*{KEY}\.log"):
        attach(KEY, client, {})
    about = json.loads((folder / "report.json").read_text("utf-8"))
    assert about["argv"][1:] == ["instance", "run", "--key", KEY, "--detach", "--config", client.config]
    assert about["descriptors"] == [0, 1, 2]
    assert (about["session"], about["stdin"], about["safe"]) == (True, "", True)
    assert about["cwd"] == str(Path.home().resolve())
    log = folder / "instance" / f"{KEY}.log"
    assert log.read_text("utf-8") == "a line of the log\n"
    assert log.stat().st_mode & 0o777 == 0o600


@unix
@pytest.mark.parametrize("end", ["raise SystemExit(1)", "import time; time.sleep(60)", "print('x' * 10**6)"])
def test_an_instance_that_does_not_get_ready_is_ended_and_named(
    folder: Path, program: Path, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program.write_text(end, "utf-8")
    monkeypatch.setattr(attaching, "START_SECONDS", 2.0)
    refused(r"could not be started.*; see .*\.log")
    with registry.start_lock(KEY):
        pass  # no process holds it


def test_a_folder_that_cannot_be_made_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "file").write_text("", "utf-8")
    monkeypatch.setattr(registry, "cache_dir", lambda: folder / "file" / "cache")
    refused(r"file.*cache.*: ")


@unix
def test_an_unusable_folder_or_log_is_named(folder: Path, program: Path) -> None:
    program.write_text("", "utf-8")
    registry.folder()
    (folder / "instance" / f"{KEY}.log").symlink_to(folder / "elsewhere")
    refused(rf"{KEY}\.log is a link, .*remove it")
    assert not (folder / "elsewhere").exists()
    (folder / "instance").rename(folder / "moved")
    (folder / "instance").write_text("", "utf-8")
    refused("instance is not a folder")
