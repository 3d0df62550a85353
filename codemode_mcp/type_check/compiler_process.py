"""One process of the compiler, which reads no files: everything that it opens is answered from memory.

`tsc --api` serves the compiler's own programming interface on its standard streams. With `--callbacks`, each access of
the compiler to a file system becomes a question to this process. We answer all five kinds of questions from a table of
texts. So a program cannot make the compiler read a file of this machine, whatever it references or imports.

Messages are arrays of MessagePack: a kind, a name, and a payload of JSON. The compiler answers one request at a time,
and asks its questions in between. The interface is not versioned, so it is tied to the pinned version.

All methods block, and are called by one thread at a time. `kill` may be called by any thread. It ends a request that
takes too long.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from codemode_mcp.type_check.compiler import Compiler

MEMORY_BYTES: Final = 768 << 20
"""Maximum memory of the process. A check of 1,000 tools takes 60 MB."""

PROCESSOR_SECONDS: Final = 120
"""Maximum processor time of one process. It is replaced then. A check takes about two milliseconds."""

_MAX_PAYLOAD: Final = 64 << 20
_REQUEST, _ANSWER, _RESPONSE, _ERROR, _QUESTION = 1, 2, 4, 5, 6
_QUESTIONS: Final = ("readFile", "fileExists", "directoryExists", "getAccessibleEntries", "realpath")


class CompilerFailed(Exception):
    """Error for a process that has ended, refused a request, or sent something else than an answer."""


class CompilerProcess:
    """A running compiler with its table of files.

    Args:
        compiler: the executable and the declarations of the language.

    Attributes:
        has_read_library: whether the compiler has found the declarations of the language.

    Raises:
        CompilerFailed: the process cannot be started.
    """

    def __init__(self, compiler: Compiler) -> None:
        # The compiler expects the declarations of the language beside its executable, of which it knows the real path.
        executable = compiler.executable.resolve()
        beside = str(executable.parent).replace("\\", "/")
        self.has_read_library = False
        self._library = {f"{beside}/{name}": text for name, text in compiler.library.items()}
        self._files: dict[str, str] = {}
        command = [str(executable), "--api", "--cwd", "/", f"--callbacks={','.join(_QUESTIONS)}"]
        # No variable of ours is passed on: neither secrets, nor options of the Go runtime.
        environ = {"GOMEMLIMIT": f"{MEMORY_BYTES // 2}", "GOTRACEBACK": "none"}
        if sys.platform == "win32":
            environ["SYSTEMROOT"] = os.environ.get("SYSTEMROOT", "")
        try:
            self._process = subprocess.Popen(
                command,
                cwd=executable.parent,
                env=environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise CompilerFailed(f"the compiler cannot be started: {error.strerror}") from error
        try:
            _limit(self._process.pid)
            self.request("initialize", None)
        except BaseException:
            self.end()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def write(self, files: dict[str, str]) -> None:
        """Add files to the table, by absolute paths with `/`."""
        self._files.update(files)

    def remove(self, folder: str) -> None:
        """Remove all files of a folder from the table."""
        self._files = {path: text for path, text in self._files.items() if not path.startswith(f"{folder}/")}

    def request(self, method: str, parameters: Any) -> Any:
        """Send a request, answer the questions about files, and return the response.

        Raises:
            CompilerFailed: see there. The process has to be ended.
        """
        try:
            self._send(_REQUEST, method.encode(), json.dumps(parameters).encode())
            while True:
                kind, name, payload = self._receive()
                match kind:
                    case 4:
                        return json.loads(payload) if payload else None
                    case 5:
                        raise CompilerFailed(f"{method}: {payload[:200].decode('utf-8', 'replace')}")
                    case 6:
                        question = _ANSWERS.get(name.decode("ascii", "replace"))
                        path = json.loads(payload)
                        if question is None or not isinstance(path, str):
                            raise CompilerFailed(f"unknown question {name[:40]!r}")
                        self._send(_ANSWER, name, json.dumps(question(self, path)).encode())
                    case _:
                        raise CompilerFailed(f"unknown kind of message: {kind}")
        except (OSError, ValueError, RecursionError) as error:
            raise CompilerFailed(f"the compiler has ended or sent something else than an answer ({error})") from error

    def kill(self) -> None:
        """Kill the process. A request that waits for it fails."""
        with suppress(OSError):
            self._process.kill()

    def end(self) -> None:
        """Kill the process, and wait until it has ended."""
        self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(10)

    # files

    def _text(self, path: str) -> str | None:
        text = self._files.get(path)
        return self._library.get(path) if text is None else text

    def _read(self, path: str) -> dict[str, str | None]:
        self.has_read_library = self.has_read_library or path in self._library
        return {"content": self._text(path)}

    def _exists(self, path: str) -> bool:
        return self._text(path) is not None

    def _has_folder(self, path: str) -> bool:
        prefix = path.rstrip("/") + "/"
        return any(each.startswith(prefix) for each in self._paths())

    def _entries(self, path: str) -> dict[str, list[str]]:
        prefix = path.rstrip("/") + "/"
        below = [each.removeprefix(prefix) for each in self._paths() if each.startswith(prefix)]
        return {
            "files": sorted(each for each in below if "/" not in each),
            "directories": sorted({each.partition("/")[0] for each in below if "/" in each}),
        }

    def _real(self, path: str) -> str:
        return path

    def _paths(self) -> Iterator[str]:
        yield from self._files
        yield from self._library

    # messages

    def _send(self, kind: int, name: bytes, payload: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\x93\xcc" + bytes([kind]) + _binary(name) + _binary(payload))
        self._process.stdin.flush()

    def _receive(self) -> tuple[int, bytes, bytes]:
        if self._exactly(1) != b"\x93":
            raise ValueError("no array")
        kind = self._exactly(1)[0]
        if kind == 0xCC:
            kind = self._exactly(1)[0]
        return kind, self._bytes(), self._bytes()

    def _bytes(self) -> bytes:
        width = _WIDTHS.get(self._exactly(1)[0])
        if width is None:
            raise ValueError("no bytes")
        length = int.from_bytes(self._exactly(width), "big")
        if length > _MAX_PAYLOAD:
            raise ValueError(f"{length} bytes")
        return self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        assert self._process.stdout is not None
        data = self._process.stdout.read(count)
        if len(data) != count:
            raise ValueError("end of the stream")
        return data


_ANSWERS: Final[dict[str, Callable[[CompilerProcess, str], Any]]] = {
    "readFile": CompilerProcess._read,
    "fileExists": CompilerProcess._exists,
    "directoryExists": CompilerProcess._has_folder,
    "getAccessibleEntries": CompilerProcess._entries,
    "realpath": CompilerProcess._real,
}

_WIDTHS: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4}


def _binary(data: bytes) -> bytes:
    for head, width in ((0xC4, 1), (0xC5, 2), (0xC6, 4)):
        if len(data) < 1 << (8 * width):
            return bytes([head]) + len(data).to_bytes(width, "big") + data
    raise ValueError("too long")


def _limit(pid: int) -> None:
    """Limit the memory, the processor time and the files of the process, where the system can do that from outside."""
    if sys.platform != "linux":
        return
    import resource

    for kind, most in (
        (resource.RLIMIT_DATA, MEMORY_BYTES),
        (resource.RLIMIT_CPU, PROCESSOR_SECONDS),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        with suppress(OSError, ValueError):
            resource.prlimit(pid, kind, (most, most))
