"""A real PostgreSQL for tests, benchmarks and examples: in a temporary folder, on a loopback port, started, stopped,
killed, frozen and cut off as they like.

    with postgres_server() as server:
        async with open_postgres(server.url()) as database: ...
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.ports import reserved_port
from tests.run import postgres_binaries

WAIT = 30
USER = "codemode"


class NoServer(Exception):
    """There is none on this machine; says what is missing."""


class PostgresServer:
    """One cluster, whose port and password stay the same however often it is started.

    Attributes:
        password: of `USER`, its superuser.
    """

    def __init__(self, binaries: Path, folder: Path, *, safe: bool) -> None:
        self.password = secrets.token_urlsafe(18)
        self.port = reserved_port()
        self._binaries = binaries
        self._folder = folder
        self._safe = safe
        self._process: subprocess.Popen[str] | None = None
        self._ready = threading.Event()
        self._reader: threading.Thread | None = None
        self._log: list[str] = []

    def __repr__(self) -> str:
        return f"<PostgresServer on port {self.port}>"

    def url(self, schema: str = "codemode_mcp", *, port: int | None = None) -> str:
        return f"postgresql://{USER}:{self.password}@127.0.0.1:{port or self.port}/postgres?schema={schema}"

    def prepare(self) -> None:
        """A new cluster, in seconds."""
        secret = self._folder / "password"
        secret.write_text(self.password, "utf-8")
        _give(secret)
        command = ["initdb", "--no-sync", "-U", USER, f"--pwfile={secret}", "--auth=scram-sha-256", "-E", "UTF8"]
        made = self._run(*command, "--locale=C", "-D", str(self._folder / "data"))
        secret.unlink()
        if made.returncode != 0:
            raise NoServer(f"initdb: {made.stdout[-2000:]}{made.stderr[-2000:]}")

    def start(self) -> None:
        """Return when it takes connections."""
        settings = ["listen_addresses=127.0.0.1", f"port={self.port}", "unix_socket_directories=", "log_timezone=UTC"]
        settings += ["max_connections=60", "shared_buffers=32MB", "lc_messages=C", "deadlock_timeout=50ms"]
        if not self._safe:
            settings += ["fsync=off", "full_page_writes=off"]  # a killed server has lost nothing all the same
        options = [part for setting in settings for part in ("-c", setting)]
        self._ready.clear()
        self._process = subprocess.Popen(
            [str(self._binaries / "postgres"), "-D", str(self._folder / "data"), *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=self._folder,
            **_as_a_user(),
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()
        if not self._ready.wait(WAIT) or self._process.poll() is not None:
            self.kill()
            raise NoServer(f"postgres did not start: {self.log()[-2000:]}")

    def stop(self) -> None:
        """Stop in order: connections are ended, everything is written."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(WAIT)
            except subprocess.TimeoutExpired:
                self.kill()
            self._ended()

    def kill(self) -> None:
        """kill -9, of all its processes."""
        if self._process is not None:
            everyone = [*self._children(), self._process.pid]
            _signal(everyone, signal.SIGKILL)
            self._process.wait(WAIT)
            self._ended()

    def restart(self) -> None:
        self.stop()
        self.start()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Nothing of it answers, and nothing is refused."""
        assert self._process is not None
        everyone = [self._process.pid, *self._children()]
        _signal(everyone, signal.SIGSTOP)
        try:
            yield
        finally:
            _signal(everyone, signal.SIGCONT)

    def cut_off(self) -> int:
        """End all connections of clients, as an operator would; how many."""
        return int(
            self.sql(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
        )

    def sql(self, statement: str) -> str:
        """Return what psql prints of it, without headings."""
        done = self._run("psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", self.url().partition("?")[0], "-c", statement)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return done.stdout.strip()

    def log(self) -> str:
        return "".join(self._log)

    def _run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self._binaries / program), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            cwd=self._folder,
            **_as_a_user(),
        )

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            self._log.append(line)
            if "ready to accept connections" in line:
                self._ready.set()
        self._ready.set()

    def _ended(self) -> None:
        assert self._process is not None
        assert self._reader is not None
        self._reader.join(WAIT)
        assert self._process.stderr is not None
        self._process.stderr.close()
        self._process = None

    def _children(self) -> list[int]:
        assert self._process is not None
        pid = self._process.pid
        try:
            return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()]
        except OSError:
            return []  # not on Linux: they end by themselves when it is gone


@contextmanager
def postgres_server(*, safe: bool = False) -> Iterator[PostgresServer]:
    """Yield a server that runs, until the end of the block.

    Args:
        safe: it waits for the disk, as it should anywhere but in tests.

    Raises:
        NoServer: there is none on this machine.
    """
    binaries = postgres_binaries()
    if binaries is None:
        raise NoServer("no PostgreSQL server is installed; on Debian: apt-get install postgresql")
    # Not beneath pytest's folders, which its user may not enter.
    folder = Path(tempfile.mkdtemp(prefix="cm-pg-"))
    try:
        _give(folder)
        server = PostgresServer(binaries, folder, safe=safe)
        server.prepare()
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _as_a_user() -> dict[str, Any]:
    """Return a server refuses to run as root."""
    owner = _a_user()
    return {} if owner is None else {"user": owner[0], "group": owner[1], "extra_groups": []}


def _give(path: Path) -> None:
    owner = _a_user()
    if owner is not None:
        os.chown(path, *owner)


def _a_user() -> tuple[int, int] | None:
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return None
    import pwd

    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            found = pwd.getpwnam(name)
            return found.pw_uid, found.pw_gid
    raise NoServer("there is no user but root to run it as")


def _signal(processes: list[int], number: int) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)
