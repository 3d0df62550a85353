"""The way of a relay to an instance: find its record, connect, prove the identity of both sides, and attach.

If no instance runs, the relay starts one. A process that is no instance of this user, and does not behave as one, is
refused by name. It is neither believed nor ended, and gets no environment variable.

The module is long because its steps share one deadline, and a failure of any step decides which one comes next.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from codemode_mcp import __version__
from codemode_mcp.process.instance import registry, wire
from codemode_mcp.server.control import endpoints
from codemode_mcp.server.control.endpoints import peer_user, proof, proves, sha256

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping

ATTACH_SECONDS = 10.0
"""Timeout for the first answer of an instance."""

COMMAND_SECONDS = 2.0
"""The same for a command, which can do without an instance."""

LOAD_SECONDS = 60.0
"""Timeout for the second answer: the instance loads the configuration, which may run programs that print values."""

START_SECONDS = 25.0
"""Timeout for an instance that is being started, or being replaced by a newer one."""

PAUSE_SECONDS: Final = 0.02
"""Pause before another look at an instance that another process starts, or that is ending. The pause grows."""

MAX_PAUSE_SECONDS: Final = 0.25
"""Maximum pause between two looks."""

MAX_ANSWER: Final = 1024 * 1024
"""Maximum bytes of an answer."""

MAX_READY: Final = 1000
"""Maximum bytes of the line that a new instance prints when it can be attached to."""


class NoInstance(Exception):
    """Error for an instance that can be neither reached nor started. The message says why, and what to do."""


class Refused(Exception):
    """Error for a client that the instance does not serve.

    Attributes:
        code: one of `wire.REFUSALS`.
        lines: sentences for the user.
    """

    def __init__(self, code: str, lines: tuple[str, ...]) -> None:
        super().__init__("; ".join(lines))
        self.code = code
        self.lines = lines


class Client(NamedTuple):
    """The client of a relay, and the configuration that it asks for.

    Attributes:
        config: the absolute path of the configuration file; None for the defaults.
        found: True if the file was found in the working directory, so that a person has to confirm it.
        folder: the working directory.
        options: the options of `serve` that bind this client; see `wire.attach_request`.
    """

    config: str | None
    found: bool
    folder: str
    options: Mapping[str, Any]


class Attached(NamedTuple):
    """A connection to an instance that serves the client.

    Attributes:
        pid: the process of the instance.
        received: bytes that the instance has sent after its answer.
        answer: the last message of the handshake.
    """

    connection: socket.socket
    pid: int
    received: bytes
    answer: Mapping[str, Any]


class _Ended(Exception):
    """Error for a record whose instance has ended."""


class _Leaving(Exception):
    """Error for an instance that is ending."""


_started: list[subprocess.Popen[bytes]] = []
"""The children of this process that have started instances. A child that has ended has to be waited for."""


def attach(key: str, client: Client, environ: Mapping[str, str]) -> Attached:
    """Attach a client to the instance with a key, which is started if it does not run.

    Args:
        environ: the environment variables of the client.

    Raises:
        NoInstance: no instance can be started or reached.
        Refused: the instance does not serve this client.
    """
    for process in _started:
        process.poll()
    try:
        return _attach_or_start(key, client, environ)
    except (registry.Unusable, endpoints.NotPrivate) as error:
        raise NoInstance(str(error)) from None
    except OSError as error:
        raise NoInstance(f"{error.filename or 'the shared instance'}: {error.strerror or error}") from None


def attach_running(key: str, client: Client, environ: Mapping[str, str]) -> Attached | None:
    """Attach a client to the instance with a key, if it runs, has exactly this version, and serves the client.

    Return None otherwise. An instance of an older version would end for a newer client, so it is not asked.
    """
    try:
        record = registry.read_record(key)
        if record is None or record.version != __version__:
            return None
        return _attach(record, client, environ, COMMAND_SECONDS)
    except (_Ended, _Leaving, NoInstance, Refused, registry.Unusable, endpoints.NotPrivate, OSError, EOFError):
        return None


def _attach_or_start(key: str, client: Client, environ: Mapping[str, str]) -> Attached:
    deadline = time.monotonic() + START_SECONDS
    closing_deadline = None
    pause = PAUSE_SECONDS
    ended: registry.Record | None = None
    problem = "another process is starting it"
    while time.monotonic() < deadline:
        record = registry.read_record(key)
        if record is not None and record != ended:
            try:
                return _attach(record, client, environ)
            except _Ended:
                ended = record
                continue
            except _Leaving:
                problem = f"process {record.pid} takes no more clients, and has not ended"
            except (ConnectionError, EOFError):
                # The process has ended just now, or has too many connections.
                now = time.monotonic()
                closing_deadline = closing_deadline or now + ATTACH_SECONDS
                if now > closing_deadline:
                    raise NoInstance(
                        f"process {record.pid}, the shared instance, closes connections without an answer at "
                        f"{record.endpoint}; codemode-mcp instance stop --kill ends it"
                    ) from None
        else:
            with suppress(registry.Busy), registry.start_lock(key):
                if registry.read_record(key) == record:
                    start(key, client.config, deadline - time.monotonic())
                continue
        time.sleep(pause)
        pause = min(MAX_PAUSE_SECONDS, pause * 1.5)
    raise NoInstance(f"the shared instance could not be reached within {START_SECONDS:g} s: {problem}")


# a running instance


def _attach(
    record: registry.Record, client: Client, environ: Mapping[str, str], seconds: float | None = None
) -> Attached:
    """Attach to the instance of a record.

    Args:
        seconds: the timeout for the first answer; None for `ATTACH_SECONDS`.

    Raises:
        _Ended, _Leaving, Refused
        ConnectionError, EOFError: the process has closed the connection without an answer.
        NoInstance: the process is no instance of this user, or does not behave as one.
    """
    path = Path(record.endpoint)
    connection = None
    try:
        connection, token = _connect(path)
        lines = _Lines(connection, seconds or ATTACH_SECONDS)
        if token is not None:
            _authenticate(lines, token, path)
        request = wire.attach_request(
            product=__version__, pid=os.getpid(), digest=_digest(client.config), **client._asdict()
        )
        answer = _ask(lines, request)
        lines.set_timeout(LOAD_SECONDS)
        last = _ask(lines, {"environ": dict(environ)})
        connection.settimeout(None)
        return Attached(connection, _pid_in(answer, record), lines.rest, last)
    except BaseException as error:
        if connection is not None:
            connection.close()
        if isinstance(error, TimeoutError):
            raise NoInstance(
                f"process {record.pid}, the shared instance, does not answer at {path}; "
                "codemode-mcp instance stop --kill ends it"
            ) from None
        if isinstance(error, _Squatter):
            # Another program may have the port of an instance that was killed.
            if path.suffix == ".json" and endpoints.remove_stale(_endpoint(path, record.pid)):
                raise _Ended from None
            raise NoInstance(f"what listens at {path} is not the shared instance: {error}; remove {path}") from None
        raise


class _Squatter(Exception):
    """Error for a process that is no instance of this user. The message says how this is known."""


def _connect(path: Path) -> tuple[socket.socket, str | None]:
    """Return a connection to an endpoint, and the token of both sides if the endpoint is a port."""
    if not path.is_absolute():
        raise NoInstance(f"the record of the shared instance names {str(path)!r}, which is not an absolute path")
    try:
        endpoints.check_private(path.parent)
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise _Ended from None
    is_port = path.suffix == ".json"
    if not (stat.S_ISREG if is_port else stat.S_ISSOCK)(status.st_mode):
        kind = "a link" if stat.S_ISLNK(status.st_mode) else "something else"
        raise NoInstance(f"{path} is {kind} in the place of a {'file' if is_port else 'socket'}; remove it")
    if is_port:
        return _connect_to_port(path)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _connect_to_socket(connection, path)
        if peer_user(connection) != os.geteuid():
            raise _Squatter("it belongs to another user")
    except BaseException:
        connection.close()
        raise
    return connection, None


def _connect_to_socket(connection: socket.socket, path: Path) -> None:
    deadline = time.monotonic() + ATTACH_SECONDS
    while True:
        connection.settimeout(ATTACH_SECONDS)
        try:
            connection.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            raise _Ended from None
        except BlockingIOError:  # Linux: the queue of connections is full
            if time.monotonic() > deadline:
                raise TimeoutError from None
            time.sleep(PAUSE_SECONDS)
        else:
            return


def _connect_to_port(path: Path) -> tuple[socket.socket, str]:
    try:
        port, token = endpoints.read_token(path)
    except ValueError:
        raise NoInstance(f"{path} has no port and token; remove it") from None
    try:
        connection = socket.create_connection(("127.0.0.1", port), ATTACH_SECONDS)
    except ConnectionRefusedError:
        raise _Ended from None
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection, token


def _authenticate(lines: _Lines, token: str, path: Path) -> None:
    """Prove that this side knows the token, and check the proof of the other side. Nothing else is sent before."""
    theirs, ours = lines.next().get("nonce"), os.urandom(16).hex()
    if not isinstance(theirs, str):
        raise _Squatter("its first message has no nonce")
    lines.send({"nonce": ours, "proof": proof(token, "client", (theirs, ours))})
    try:
        given = lines.next().get("proof")
    except (ConnectionError, EOFError):
        raise _Squatter("it does not accept the token") from None
    if not proves(given, token, "server", (theirs, ours)):
        raise _Squatter(f"it does not know the token in {path.name}")


def _ask(lines: _Lines, message: Mapping[str, Any]) -> dict[str, Any]:
    lines.send(message)
    answer = lines.next()
    if answer.get("ok") is True:
        return answer
    if answer.get("code") == wire.LEAVING:
        raise _Leaving
    given = answer.get("lines", answer.get("error"))
    texts = given if isinstance(given, list) and given else [given or "the shared instance gave no reason"]
    code = answer.get("code")
    raise Refused(code if code in wire.REFUSALS else "failed", tuple(str(text)[:2000] for text in texts[:100]))


def _digest(config: str | None) -> str | None:
    if config is None:
        return None
    try:
        with open(config, "rb") as file:
            return sha256(file.read()).hexdigest()
    except OSError:
        return None  # the instance says what is wrong with the file


def _pid_in(answer: Mapping[str, Any], record: registry.Record) -> int:
    pid = answer.get("pid")
    return pid if isinstance(pid, int) else record.pid


def _endpoint(path: Path, pid: int) -> endpoints.Endpoint:
    return endpoints.Endpoint(path, pid, "json", local=True)


class _Lines:
    """JSON objects in both directions of a connection, as lines, within a time."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection = connection
        self.rest = b""
        self.set_timeout(seconds)

    def set_timeout(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds

    def send(self, message: Mapping[str, Any]) -> None:
        self._limit_time()
        self._connection.sendall(wire.encode_line(message))

    def next(self) -> dict[str, Any]:
        """Return the next object.

        Raises:
            TimeoutError, OSError
            EOFError: the other side has closed the connection.
            _Squatter: the next line is too long, or no object.
        """
        parts = [self.rest]
        size = len(self.rest)
        while b"\n" not in parts[-1]:
            if size > MAX_ANSWER:
                raise _Squatter(f"it has sent a line of more than {MAX_ANSWER} bytes")
            self._limit_time()
            parts.append(self._connection.recv(64 * 1024))
            size += len(parts[-1])
            if not parts[-1]:
                raise EOFError
        line, _, self.rest = b"".join(parts).partition(b"\n")
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise _Squatter("it has sent a line that is not a JSON object")
        return answer

    def _limit_time(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)


# an instance that is started


def start(key: str, config: str | None, seconds: float = START_SECONDS) -> None:
    """Start an instance as a process of its own, and wait until clients can attach to it.

    Nothing happens if an instance runs. The new process notices that, and exits.

    Args:
        config: the absolute path of the configuration file; None for the defaults.
        seconds: the timeout.

    Raises:
        NoInstance: the process has ended, or was not ready in time.
    """
    import subprocess  # only the first relay starts an instance

    if not sys.executable:
        raise NoInstance("the shared instance could not be started: Python does not know the path of its own program")
    windows = sys.platform == "win32"
    # With -P, no file in the folder where the instance starts is taken for a module.
    command = [sys.executable, "-P", "-m", "codemode_mcp", "instance", "run", "--key", key, "--detach"]
    if config is not None:
        command += ["--config", config]
    log = registry.open_log(key)

    def popen(flags: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=_lasting_folder(),
            start_new_session=not windows,
            creationflags=flags,
        )

    try:
        flags = _flag("DETACHED_PROCESS") | _flag("CREATE_NEW_PROCESS_GROUP")
        try:
            # Clients put a server into a job of Windows, whose end would be the end of the instance.
            process = popen(flags | _flag("CREATE_BREAKAWAY_FROM_JOB"))
        except PermissionError:
            if not windows:
                raise
            process = popen(flags)  # the job does not allow it
    finally:
        os.close(log)
    _started.append(process)
    assert process.stdout is not None
    line = _first_line(process.stdout, seconds).decode("utf-8", "replace").strip()
    if line == "ready":
        process.stdout.close()
        process.poll()
        return
    with suppress(OSError):
        # The instance is a child of this child, which has ended.
        process.kill() if windows else os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    reason = f": {line}" if line else ""
    raise NoInstance(f"the shared instance could not be started{reason}; see {registry.log_path(key)}")


def _flag(name: str) -> int:
    """Return a flag of Windows; 0 on other systems."""
    import subprocess

    return getattr(subprocess, name, 0)


def _lasting_folder() -> Path:
    """Return a folder that outlives the working directory of the client."""
    home = Path(os.path.expanduser("~"))
    return home if home.is_dir() else Path(home.anchor or os.sep)


def _first_line(output: Any, seconds: float) -> bytes:
    import threading

    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.append(output.readline(MAX_READY)), daemon=True)
    thread.start()
    thread.join(max(0.0, seconds))
    return found[0] if found else b""
