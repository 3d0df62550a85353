"""The compiler of TypeScript: the pinned version, its file in the user's cache, and its process."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from codemode_mcp.base.errors import RuntimeUnavailable
from codemode_mcp.extensions.type_check.checker import CompilerFailed
from codemode_mcp.program import npm_package
from codemode_mcp.program.npm_package import FetchError, why_untrusted
from upstream_clients.private_files import exposure

_LIBRARY: Final = "library.json"
_MARK: Final = "lib.d.ts"
"""A file that the compiler expects beside its executable. It is never read."""

_HOW: Final = "run codemode-mcp setup --check to fetch it with npm"

_OF_LANGUAGE: Final = re.compile(r"package/lib/(lib\.(?!dom|webworker|scripthost)[\w.]*d\.ts)")
"""The declarations of the language. Programs have neither the globals of browsers nor those of Windows Script Host."""


class Compiler(Struct, frozen=True):
    """A compiler that may be executed.

    Attributes:
        executable: the path of the executable, whose content was checked.
        library: the declarations of the language, by file name.
    """

    executable: Path
    library: Mapping[str, str]


def find_compiler(cache_dir: Path) -> Compiler:
    """Return the pinned compiler from the user's cache. Blocks.

    Raises:
        RuntimeUnavailable: it is not there, or a file is not the pinned one. The message says what to do.
    """
    folder = _folder(cache_dir)
    thing = f"TypeScript {VERSION}"
    executable, library = folder / npm_package.executable_name("tsc"), folder / _LIBRARY
    pinned = EXECUTABLE_SHA256.get(npm_package.machine_key())
    for path, digest in ((executable, pinned), (library, LIBRARY_SHA256)):
        if not path.is_file() or not (folder / _MARK).is_file():
            raise RuntimeUnavailable(f"Type checks need {thing}, which is not in {folder}; {_HOW}.")
        why = why_untrusted(path, digest, f"the {path.name} of {thing}")
        if why is not None:
            raise RuntimeUnavailable(f"{path} is not used: {why}; delete it, and {_HOW}.")
    return Compiler(executable, _read_library(library))


@functools.cache
def _read_library(path: Path) -> Mapping[str, str]:
    return msgspec.json.decode(path.read_bytes(), type=dict[str, str])


def fetch_compiler(cache_dir: Path, *, registry: str | None = None) -> Compiler:
    """Fetch the pinned compiler with npm into the user's cache, for `codemode-mcp setup --check`.

    Raises:
        RuntimeUnavailable: npm is missing or offline, there is no package for this platform, its content is not the
            pinned one, or the cache folder is exposed to other users.
    """
    key = npm_package.machine_key()
    package = f"@typescript/typescript-{key}@{VERSION}"
    try:
        why = exposure(cache_dir)
        if why is not None:
            raise FetchError(f"the cache folder is not safe: {why}.")
        if key not in INTEGRITY:
            raise FetchError(f"there is no package for this machine ({key}).")
        files = npm_package.fetch_files(package, INTEGRITY[key], registry)
        name = npm_package.executable_name("tsc")
        executable = files.get(f"package/lib/{name}")
        if executable is None:
            raise FetchError(f"{package} has no {name}.")
        written = {_MARK: b"", _LIBRARY: library_file(files), name: executable}
        npm_package.write_files(_folder(cache_dir), written)
    except OSError as error:
        raise RuntimeUnavailable(f"Cannot fetch TypeScript {VERSION}: {error.strerror}.") from error
    except FetchError as error:
        raise RuntimeUnavailable(
            f"Cannot fetch TypeScript {VERSION}: {error} It is needed for type checks only."
        ) from error
    return find_compiler(cache_dir)


def library_file(files: Mapping[str, bytes]) -> bytes:
    """Return the declarations of the language in a package as one JSON file."""
    named = ((_OF_LANGUAGE.fullmatch(name), content) for name, content in files.items())
    texts = {match[1]: content.decode("utf-8") for match, content in named if match is not None}
    return json.dumps(texts, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def _folder(cache_dir: Path) -> Path:
    # The name has the version, so that an upgrade does not use the earlier files.
    return cache_dir / f"typescript-{VERSION}"


VERSION: Final = "7.0.2"

INTEGRITY: Final[dict[str, str]] = {
    "linux-x64": "EYdf2cNg7rgCWJnxCdJ+F3V39O8ihb37eHAu1LK8oAFizgTQbPOK7zHHXbPt8rX24COqODXeI3sIf0fCXG7H/A==",
    "linux-arm64": "Qh4eU4/y3yDjnfjjyPYihMj5/ODIlmt+Bzu17OI+fiSRDW57QmU5SiN63exPRNJPKUzcc1INa1NXdrJ+MqHjUQ==",
    "darwin-x64": "SZ9xZInqApNlNGc9s0W1VSsktYSOe9cFqNOIqmN1Gs8SmkjKZYFt017G4VwPxASInODuAdbTW7sXiFUf893RgA==",
    "darwin-arm64": "gowzar9MwS/aRWp6f3a4KUqzRjAZjOsmGNCM6LcTgXum+dBfgsBVMN+AgvOCCbguXyick6LJhpBszxMebJ8syA==",
    "win32-x64": "0BQ3HkAHHlKLSp1qRvf3SUhGpGsDuhB/jgFw75guyqbxJqEaS0Cw/VFO8i2nHglJUzQCRtMMR/IBAKE3ETMC4g==",
    "win32-arm64": "Gyl1Vy6OsWesLzmq+EP0Fb7b4Nid5232AvcA2SFcdYreldpNtYFFofPjnt62y9hQy7VTaZp65ICJjuAQRaVcIQ==",
}
"""SHA-512 of the package of each platform, as npm publishes it."""

EXECUTABLE_SHA256: Final[dict[str, str]] = {
    "linux-x64": "4f2de678286401759b3fb4475bafe35b8f32b4b3a07d92642bbf37eadc9b34a4",
    "linux-arm64": "f86e8070c267b12d6c119bf567cb82d8b245e9d93da1864bc7c603cea10a8b2f",
    "darwin-x64": "76e4987d060ef8207875a53a73619ce665ff16fb2800c0d57a452e21c829bd7b",
    "darwin-arm64": "a82f731365ad69d5c4c15f5e18fba4584bf3b7b839960172a76c3462b5114bf2",
    "win32-x64": "f9ecfbdc93753d2c972d66a8d0d75f5bd737fd4a5f88b422d9091ea282bcb2c7",
    "win32-arm64": "2ec832b3d17ce25676fe92b3810ecc0a7580ffb9287d4972bc9a5acc4da2aa50",
}
"""SHA-256 of the executable in each package, by which a cached copy is checked."""

LIBRARY_SHA256: Final = "419e1572f11bca2d04251d834b86e72d80b47f732b1cde5c52f0adfc7567195d"
"""SHA-256 of the file that `compiler.library_file` makes of the declarations. It is the same on all platforms."""


# One process of the compiler, which reads no files: everything that it opens is answered from memory.
#
# `tsc --api` serves the compiler's own programming interface on its standard streams. With `--callbacks`, each access
# of the compiler to a file system becomes a question to this process. We answer all five kinds of questions from a
# table of texts. So a program cannot make the compiler read a file of this machine, whatever it references or imports.
#
# Messages are arrays of MessagePack: a kind, a name, and a payload of JSON. The compiler answers one request at a time,
# and asks its questions in between. The interface is not versioned, so it is tied to the pinned version.
#
# All methods block, and are called by one thread at a time. `kill` may be called by any thread. It ends a request that
# takes too long.


MEMORY_BYTES: Final = 768 << 20
"""Maximum memory of the process. A check of 1,000 tools takes 60 MB."""

PROCESSOR_SECONDS: Final = 120
"""Maximum processor time of one process. It is replaced then. A check takes about two milliseconds."""

_MAX_PAYLOAD: Final = 64 << 20
_REQUEST, _ANSWER, _RESPONSE, _ERROR, _QUESTION = 1, 2, 4, 5, 6
_QUESTIONS: Final = ("readFile", "fileExists", "directoryExists", "getAccessibleEntries", "realpath")


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
