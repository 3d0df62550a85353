"""The compiler of TypeScript in the user's cache: finds it, or fetches the pinned one."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from codemode_mcp.errors import RuntimeUnavailable
from codemode_mcp.program import npm_package
from codemode_mcp.program.npm_package import FetchError
from codemode_mcp.program.pinned_files import why_untrusted
from codemode_mcp.type_check.typescript_pin import EXECUTABLE_SHA256, INTEGRITY, LIBRARY_SHA256, VERSION
from upstream_clients.private_files import exposure

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_LIBRARY: Final = "library.json"
_MARK: Final = "lib.d.ts"
"""A file that the compiler expects beside its executable. It is never read."""

_HOW: Final = "run codemode-mcp setup --check to fetch it with npm"

_OF_LANGUAGE: Final = re.compile(r"package/lib/(lib\.(?!dom|webworker|scripthost)[\w.]*d\.ts)")
"""The declarations of the language. Programs have neither the globals of browsers nor those of Windows Script Host."""


@dataclass(frozen=True, slots=True)
class Compiler:
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
