"""TypeScript to JavaScript with esbuild's own binary, and positions back to the author's text.

One process per transform, over its standard streams (5 ms for a short program). Nothing of the program is executed and
no file is read. The author's code is the body of an async function, which TypeScript cannot say at the top level:

1. It is transformed inside `return (async () => {L:{ ... break L}})()` with a random label, so that a brace which
   closes more than the program opened is a syntax error, and cannot end the wrapper. If possible as strict code: in a
   block of other code esbuild gives functions another name. The program is strict only if it says so.
2. `namespace` and `declare module` do not parse there, and some mistakes are only reported at the wrapper's end. Then
   the bare text is transformed; the sandbox's `AsyncFunction` is wrapper enough for the result.
3. esbuild takes bare text with a top-level `await` for a module and refuses `return` in it. Each such `return`, which
   it points at, is disguised as `throw <random name>, ...` and put back afterwards.

Roads not taken: esbuild's service mode (4 ms faster, a protocol and a process to look after); its WASI build (10 s to
compile); type-stripping tools (no enums, decorators or parameter properties).
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import json
import os
import re
import secrets
import shutil
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.abc

from codemode_mcp.errors import ProgramError, RuntimeUnavailable
from codemode_mcp.program import esbuild_pin
from codemode_mcp.program.source_map import Author, Grown, SourceMap, are_mappings
from codemode_mcp.program.syntax import LINE_END
from upstream_clients.private_files import exposure, open_private

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Transformed", "fetch_esbuild", "find_esbuild", "transform"]

_FLAGS = (
    "--loader=ts",
    "--target=es2024",
    # The engine runs `using` itself; it has neither decorators nor `accessor`.
    "--supported:decorators=false",
    "--sourcemap=inline",
    "--sources-content=false",
    "--sourcefile=cell.ts",
    "--log-level=error",
    "--color=false",
    "--charset=utf8",
    # Whatever tsconfig.json lies around where the server was started is not the program's.
    "--tsconfig-raw={}",
)
_MAX_DIAGNOSTICS = 5
_MAX_RETURNS = 200
_MAX_OUTPUT_BYTES = 64 << 20
_MAX_ERROR_BYTES = 1 << 20
_MAX_EXCERPT = 160
_USE_STRICT = '"use strict";'
_STARTS_STRICT = re.compile(
    r"""
    (?: [\s\ufeff] | //[^\n\r\u2028\u2029]*+ | /\*(?:[^*]|\*(?!/))*+\*/ )*+
    (['"])use\ strict\1 [^\S\n\r\u2028\u2029]*+ (?: ; | [\n\r\u2028\u2029] | /[/*] | \Z )
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class _Input:
    """Input of esbuild, with the map of its positions to the author's."""

    text: str
    author: tuple[str, ...]
    """The author's lines."""
    before: int = 0
    """Lines of ours before the first."""
    rewritten: tuple[Grown, ...] = ()
    """The `return`s that were made longer."""

    @property
    def places(self) -> Author:
        """Return where a position in `text` is the author's."""
        return Author(len(self.author), self.before, self.rewritten)


@dataclass(frozen=True, slots=True)
class Transformed:
    """JavaScript made of a TypeScript program."""

    code: str
    """The body of an async function that returns what the program returns."""
    _mappings: str = field(repr=False)
    _input: _Input = field(repr=False)

    def author_position(self, line: int, column: int) -> tuple[int, int]:
        """Return the author's 1-based line and column (UTF-16 units) for one in `code`; lines are exact, columns
        nearly.

        Line 0 when that place is not the author's: the wrapper, or a helper of esbuild's.
        """
        return self.source_map(line, column)

    @property
    def source_map(self) -> SourceMap:
        """Return the map from `code` to the author's text."""
        return SourceMap(self._mappings, self._input.places)


async def transform(esbuild: Path, source: str, *, timeout: float) -> Transformed:
    """Transform one program.

    Args:
        esbuild: what `find_esbuild` gave.
        source: the author's text.
        timeout: seconds for all of it.

    Raises:
        ProgramError: `typescript_transform_failed` with at most five diagnostics in the author's positions; `timeout`.
        RuntimeUnavailable: the binary cannot run or does not understand us.
    """
    # esbuild reads UTF-8, which has no lone surrogates; one unit for one keeps the columns.
    source = re.sub("[\ud800-\udfff]", "\ufffd", source)
    try:
        with anyio.fail_after(timeout):
            return await _transform(esbuild, source)
    except TimeoutError as error:
        raise ProgramError("timeout", f"The program could not be transformed within {timeout:g} s.") from error


async def _transform(esbuild: Path, source: str) -> Transformed:
    author = tuple(LINE_END.split(source))
    label = f"__L{secrets.token_hex(8)}"
    body = f"{label}:{{\n{source}\nbreak {label}}}"
    outcome = await _run(esbuild, _Input(f"return (async () => {{{_USE_STRICT}{body}}})()", author, before=1))
    if isinstance(outcome, Transformed):
        is_strict = _STARTS_STRICT.match(source) is not None
        return outcome if is_strict else replace(outcome, code=_without_directive(outcome.code))
    wrapped = _Input(f"return (async () => {{{body}}})()", author, before=1)
    outcome = await _run(esbuild, wrapped)
    if isinstance(outcome, Transformed):
        return outcome
    if not any(_blames_wrapper(diagnostic, wrapped) for diagnostic in outcome):
        raise _failure(outcome, wrapped)

    bare = _Input(source, author)
    outcome = await _run(esbuild, bare, limit=_MAX_RETURNS)
    if isinstance(outcome, Transformed):
        return outcome
    returns = [diagnostic for diagnostic in outcome if diagnostic.text.startswith("Top-level return cannot")]
    if len(returns) < len(outcome) or len(returns) == _MAX_RETURNS:
        rest = [diagnostic for diagnostic in outcome if diagnostic not in returns]
        raise _failure(rest, bare) if rest else _too_many_returns()

    marker = f"__R{secrets.token_hex(8)}"
    disguised = _disguise_returns(bare, returns, marker)
    outcome = await _run(esbuild, disguised)
    if isinstance(outcome, Transformed):
        return Transformed(_restore_returns(outcome.code, marker), outcome._mappings, disguised)
    raise _failure(outcome, disguised)


# --- Wrapper and returns ---------------------------------------------------------------------------------------------


def _without_directive(code: str) -> str:
    """Blank the first directive, which is the wrapper's; every position stays."""
    return code.replace(_USE_STRICT, " " * len(_USE_STRICT), 1)


def _blames_wrapper(diagnostic: _Diagnostic, wrapped: _Input) -> bool:
    """Return True if the bare text is to be asked instead: at a `namespace`, or outside the author's lines."""
    line = diagnostic.line - wrapped.before
    if not 1 <= line <= len(wrapped.author):
        return True
    before = wrapped.author[line - 1][: diagnostic.column - 1]
    return re.search(r"(?<![\w$.])(?:namespace|module)\s+\Z", before) is not None


def _too_many_returns() -> ProgramError:
    return ProgramError(
        "typescript_transform_failed",
        "A namespace together with top-level `await` allows fewer than "
        f"{_MAX_RETURNS} top-level `return`s. Move code into functions, or make the namespace a `const` object.",
    )


_NOTHING_RETURNED = re.compile(
    r"(?:[^\S\n\r\u2028\u2029]|/\*[^\n\r\u2028\u2029]*?\*/)*+(?:[;}\n\r\u2028\u2029]|/[/*]|$)"
)
"""Text after a `return` without an operand; a comment of several lines, the last kind, ends it too."""


def _disguise_returns(bare: _Input, returns: Sequence[_Diagnostic], marker: str) -> _Input:
    """`return x` as `throw marker, x`: the same grammar, in bare text that has an `await` too."""
    starts = [0, *(match.end() for match in LINE_END.finditer(bare.text))]
    parts: list[str] = []
    rewritten: list[Grown] = []
    done = 0
    for line, column in sorted({(diagnostic.line, diagnostic.column) for diagnostic in returns}):
        # From UTF-16 units to Python's index into the line.
        text_before = bare.author[line - 1].encode("utf-16-le")[: 2 * (column - 1)].decode("utf-16-le")
        at = starts[line - 1] + len(text_before)
        end = at + len("return")
        substitute = f"throw {marker}" if _NOTHING_RETURNED.match(bare.text, end) else f"throw {marker},"
        parts += [bare.text[done:at], substitute]
        rewritten.append(Grown(line, column, len(substitute) - len("return")))
        done = end
    return _Input("".join(parts) + bare.text[done:], bare.author, rewritten=tuple(rewritten))


def _restore_returns(code: str, marker: str) -> str:
    """Return the reverse, in as many characters, so that the source map stays true.

    `return 0, x` because esbuild may break the line after the comma, where a plain `return` would end.
    """

    def restore(match: re.Match[str]) -> str:
        width = len(match[0])
        return "return 0".ljust(width - 1) + "," if match[0].endswith(",") else "return".ljust(width)

    return re.sub(rf"throw {marker},?", restore, code)


# --- Running esbuild -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Diagnostic:
    text: str
    line: int
    """1-based, in what esbuild was given."""
    column: int
    """1-based, in UTF-16 units."""


async def _run(esbuild: Path, given: _Input, limit: int = _MAX_DIAGNOSTICS) -> Transformed | list[_Diagnostic]:
    try:
        code, out, err = await _communicate([str(esbuild), *_FLAGS, f"--log-limit={limit}"], given.text.encode())
    except OSError as error:
        raise RuntimeUnavailable(
            f"esbuild at {esbuild} cannot run ({error.strerror}). Run `codemode-mcp setup`, or write JavaScript."
        ) from error
    if code == 0:
        text, _, encoded = out.decode("utf-8", "replace").rpartition(
            "//# sourceMappingURL=data:application/json;base64,"
        )
        return Transformed(text.rstrip("\n"), _mappings_of(encoded), given)
    complaint = err.decode("utf-8", "replace")
    diagnostics = _read_diagnostics(complaint, given)
    if diagnostics:
        return diagnostics
    first = complaint.strip().partition("\n")[0][:200] or f"exit {code}"
    if "[ERROR]" in first:  # about our flags, as there is no position
        raise RuntimeUnavailable(f"esbuild at {esbuild} does not do what is needed: {first}. Run `codemode-mcp setup`.")
    raise ProgramError(
        "typescript_transform_failed", f"esbuild gave up on this program ({first}). Is it nested very deeply?"
    )


async def _communicate(command: list[str], stdin: bytes) -> tuple[int, bytes, bytes]:
    """Like `anyio.run_process`, but what comes back is bounded."""
    received: dict[str, bytes] = {}

    async def feed(stream: anyio.abc.ByteSendStream) -> None:
        try:
            await stream.send(stdin)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # it ended early; its exit code tells why
        finally:
            with anyio.CancelScope(shield=True):
                await stream.aclose()

    async def drain(stream: anyio.abc.ByteReceiveStream, name: str, limit: int) -> None:
        chunks: list[bytes] = []
        size = 0
        async for chunk in stream:
            if size < limit:
                chunks.append(chunk)
            size += len(chunk)
        received[name] = b"".join(chunks)[:limit]

    async with await anyio.open_process(command) as process:
        try:
            async with anyio.create_task_group() as tasks:
                if process.stdin is not None and process.stdout is not None and process.stderr is not None:
                    tasks.start_soon(feed, process.stdin)
                    tasks.start_soon(drain, process.stdout, "out", _MAX_OUTPUT_BYTES)
                    tasks.start_soon(drain, process.stderr, "err", _MAX_ERROR_BYTES)
            code = await process.wait()
        except BaseException:
            process.kill()
            raise
    return code, received["out"], received["err"]


_DIAGNOSTIC = re.compile(r"^\S+ \[ERROR\] (.*)\n\n    cell\.ts:(\d+):(\d+):\n", re.MULTILINE)
"""Author's text comes after a line number and a bar, so it cannot pass for one."""


def _read_diagnostics(text: str, given: _Input) -> list[_Diagnostic]:
    lines = LINE_END.split(given.text)
    diagnostics = []
    for message, line, byte_column in _DIAGNOSTIC.findall(text):
        row = int(line)
        before = lines[row - 1].encode()[: int(byte_column)] if row <= len(lines) else b""
        column = len(before.decode("utf-8", "ignore").encode("utf-16-le")) // 2 + 1
        diagnostics.append(_Diagnostic(message, row, column))
    return diagnostics


def _failure(diagnostics: Sequence[_Diagnostic], given: _Input) -> ProgramError:
    told: dict[str, None] = {}
    for diagnostic in diagnostics[:_MAX_DIAGNOSTICS]:
        # Only bare text gets here with a place outside it: its end.
        end = len(given.author), len(given.author[-1]) + 1
        line, column = given.places(diagnostic.line, diagnostic.column) or end
        told[f"cell.ts:{line}:{column}: {diagnostic.text}\n  {_excerpt(given.author[line - 1], column)}"] = None
    return ProgramError("typescript_transform_failed", "\n".join(told))


def _excerpt(line: str, column: int) -> str:
    start = max(0, column - 1 - _MAX_EXCERPT // 2) if len(line) > _MAX_EXCERPT else 0
    shown = line[start : start + _MAX_EXCERPT].strip()
    return f"{'...' if start else ''}{shown}{'...' if start + _MAX_EXCERPT < len(line) else ''}"


# --- Source map ------------------------------------------------------------------------------------------------------


def _mappings_of(encoded: str) -> str:
    try:
        mappings = json.loads(base64.b64decode(encoded.strip()))["mappings"]
    except (binascii.Error, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RuntimeUnavailable("esbuild gave no source map. Run `codemode-mcp setup`.") from error
    if not are_mappings(mappings):
        raise RuntimeUnavailable("esbuild gave no source map that can be read. Run `codemode-mcp setup`.")
    return mappings


# --- Finding and fetching --------------------------------------------------------------------------------------------

_BUNDLED = Path(__file__).parents[1] / "_bundled" / esbuild_pin.executable_name()
_FAMILY = esbuild_pin.VERSION.rpartition(".")[0]


def find_esbuild(configured: str | None, *, environ: Mapping[str, str], cache_dir: Path) -> Path:
    """Return the esbuild to use: the configured one, the bundled one, one on `PATH`, the one in the user's cache.

    A configured one is the operator's choice and only has to run. One found on `PATH` has to be of the pinned
    major.minor family, for before 1.0 esbuild changes behaviour between minor versions; another is passed over.
    The bundled one is a part of the installation. The cached one is executed only while it is the pinned executable,
    in a place that no other user can write.

    Raises:
        RuntimeUnavailable: there is none; says where it was looked for and how to get it.
    """
    if configured is not None:
        path = Path(configured).expanduser()
        if version_of(path) is None:
            raise RuntimeUnavailable(f"The configured esbuild, {path}, is missing or does not run.")
        return path
    looked = [f"bundled ({_BUNDLED})"]
    if _BUNDLED.is_file():
        return _BUNDLED
    on_path = shutil.which("esbuild", path=environ.get("PATH", ""))
    version = version_of(Path(on_path)) if on_path is not None and Path(on_path).is_absolute() else None
    if on_path is not None and version is not None and version.rpartition(".")[0] == _FAMILY:
        return Path(on_path)
    looked.append(f"PATH ({on_path} is {version or 'unusable'}, not {_FAMILY}.x)" if on_path else "PATH")
    cached = _cached(cache_dir)
    if cached.is_file():
        why = _untrusted(cached)
        if why is None:
            return cached
        looked.append(f"cache ({cached} is not used: {why})")
    else:
        looked.append(f"cache ({cached})")
    raise RuntimeUnavailable(
        "TypeScript needs esbuild, which is not there. Run `codemode-mcp setup` to fetch it, or write JavaScript. "
        f"Looked for it: {', '.join(looked)}."
    )


def fetch_esbuild(cache_dir: Path, *, registry: str | None) -> Path:
    """Fetch the pinned esbuild with npm into the user's cache (`codemode-mcp setup`).

    Raises:
        RuntimeUnavailable: no npm, offline, no package for this platform, or not the pinned content.
    """
    try:
        why = exposure(cache_dir)
    except OSError as error:
        why = f"{cache_dir} cannot be looked at: {error.strerror}"
    if why is not None:
        raise RuntimeUnavailable(f"esbuild was not fetched, for it could not be trusted in the cache folder: {why}.")
    try:
        return esbuild_pin.fetch(_cached(cache_dir), registry=registry)
    except esbuild_pin.EsbuildFetchError as error:
        raise RuntimeUnavailable(
            f"Cannot fetch esbuild {esbuild_pin.VERSION}: {error} "
            "It is needed for TypeScript only; `tools.esbuild` can name a binary that is there already."
        ) from error


def _cached(cache_dir: Path) -> Path:
    # The version in the name: after an upgrade of ours the old one is not taken for the new.
    name = Path(esbuild_pin.executable_name())
    return cache_dir / f"{name.stem}-{esbuild_pin.VERSION}{name.suffix}"


def _untrusted(cached: Path) -> str | None:
    """Return why a cached esbuild must not be executed; None when it may."""
    try:
        why = exposure(cached)
        if why is not None:
            return why
        with open_private(cached) as file:
            about = os.fstat(file.fileno())
            key = (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
            if key not in _verified:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                if digest != esbuild_pin.EXECUTABLE_SHA256.get(esbuild_pin.platform_key() or ""):
                    return f"it is not esbuild {esbuild_pin.VERSION} as pinned, its SHA-256 is {digest}"
                _verified.add(key)
    except OSError as error:
        return error.strerror or type(error).__name__
    return None


_verified: set[tuple[int, ...]] = set()
"""Executables whose digest this process has checked."""


@functools.cache
def version_of(path: Path) -> str | None:
    """Return what `--version` of an esbuild says; `None` when it cannot run. Blocks; asked once per path and
    process."""
    try:
        done = subprocess.run(
            [str(path), "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = done.stdout.decode("utf-8", "replace").strip()
    return said if done.returncode == 0 and re.fullmatch(r"\d+\.\d+\.\d+\S*", said) else None
