"""Transform of TypeScript to JavaScript with esbuild, and of positions back to the author's text.

Each transform runs one process and talks to it over standard streams (5 ms for a short program). It executes nothing of
the program and reads no file. The author's code is the body of an async function, which has no form of its own at the
top level of TypeScript:

1. The code is transformed inside `return (async () => {L:{ ... break L}})()` with a random label, so that an
   unbalanced closing brace is a syntax error and cannot end the wrapper. The wrapper is strict if possible, since
   esbuild renames functions in blocks of sloppy code. The result is strict only if the program asks for it. If the
   program may have functions in blocks of its own, the wrapper is not strict, so that they can be used outside of
   their blocks as in JavaScript, and esbuild adds code that keeps their names.
2. `namespace` and `declare module` do not parse there, and some mistakes are reported only at the end of the wrapper.
   The bare text is transformed then. The sandbox's `AsyncFunction` wraps the result.
3. esbuild takes bare text with a top-level `await` for a module, and refuses `return` in it. Each `return` that it
   reports is replaced by `throw <random name>, ...` and restored afterwards.

Alternatives that were rejected: esbuild's service mode (4 ms faster, but needs a protocol and a managed process); its
WASI build (10 s to compile); type-stripping tools (no enums, decorators or parameter properties).
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
import anyio.abc
from msgspec import Struct, structs

from codemode_mcp.base.errors import ProgramError, RuntimeUnavailable
from codemode_mcp.program.inspection import Insertion, SourceMap
from codemode_mcp.program.syntax import LINE_END

__all__ = ["Transformed", "transform"]

_FLAGS = (
    "--loader=ts",
    "--target=es2024",
    # The engine supports `using`, but neither decorators nor `accessor`.
    "--supported:decorators=false",
    "--sourcemap=inline",
    "--sources-content=false",
    "--sourcefile=cell.ts",
    "--log-level=error",
    "--color=false",
    "--charset=utf8",
    # A tsconfig.json in the working directory of the server must not affect programs.
    "--tsconfig-raw={}",
)
_BLOCK_FUNCTION = re.compile(r"(?:^[ \t]+|[{};:)][ \t]*|\belse[ \t]+)function\b[ \t]+[\w$]", re.MULTILINE)
"""A declaration that may be in a block. In a function, it makes no difference."""
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


class _Input(Struct, frozen=True):
    """Input of esbuild.

    Attributes:
        author: the lines of the author's text.
        before: the number of our lines before them.
        rewritten: the replaced `return`s.
    """

    text: str
    author: tuple[str, ...]
    before: int = 0
    rewritten: tuple[Insertion, ...] = ()

    @property
    def flags(self) -> tuple[str, ...]:
        has_block_functions = any(_BLOCK_FUNCTION.search(line) for line in self.author)
        return (*_FLAGS, "--keep-names") if has_block_functions else _FLAGS

    def source_map(self, mappings: str = "") -> SourceMap:
        """Return the map to the author's text. Raises `ValueError` or `TypeError` for mappings that are not valid."""
        return SourceMap(mappings, len(self.author), self.before, self.rewritten)


@dataclass(frozen=True, slots=True)
class Transformed:
    """The JavaScript of a TypeScript program.

    Attributes:
        code: the body of an async function that returns the value of the program.
        source_map: the map from `code` to the author's text.
    """

    code: str
    source_map: SourceMap = field(repr=False)

    def author_position(self, line: int, column: int) -> tuple[int, int]:
        return self.source_map(line, column)


async def transform(esbuild: Path, source: str, *, timeout: float) -> Transformed:
    """Transform one program.

    Args:
        esbuild: the path that `find_esbuild` has returned.
        source: the author's text.
        timeout: seconds for the whole transform.

    Raises:
        ProgramError: `typescript_transform_failed` with at most five diagnostics at the author's positions; `timeout`.
        RuntimeUnavailable: the binary cannot run, or does not take the options.
    """
    # esbuild reads UTF-8, which has no lone surrogates. Replacing them one by one keeps the columns.
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
    is_strict = _STARTS_STRICT.match(source) is not None
    wrapped = _Input(f"return (async () => {{{body}}})()", author, before=1)
    if is_strict or wrapped.flags == _FLAGS:
        strict = structs.replace(wrapped, text=f"return (async () => {{{_USE_STRICT}{body}}})()")
        outcome = await _run(esbuild, strict)
        if isinstance(outcome, Transformed):
            return outcome if is_strict else replace(outcome, code=_without_directive(outcome.code))
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
    replaced = _replace_returns(bare, returns, marker)
    outcome = await _run(esbuild, replaced)
    if isinstance(outcome, Transformed):
        return Transformed(_restore_returns(outcome.code, marker), replaced.source_map(outcome.source_map.mappings))
    raise _failure(outcome, replaced)


# --- Wrapper and returns ---------------------------------------------------------------------------------------------


def _without_directive(code: str) -> str:
    """Replace the directive of the wrapper, which is the first one, by spaces, so that positions stay the same."""
    return code.replace(_USE_STRICT, " " * len(_USE_STRICT), 1)


def _blames_wrapper(diagnostic: _Diagnostic, wrapped: _Input) -> bool:
    """Return True if the wrapper may have caused an error: at a `namespace`, or outside the author's lines."""
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
"""Text after a `return` without an operand. A comment of several lines ends the statement too."""


def _replace_returns(bare: _Input, returns: Sequence[_Diagnostic], marker: str) -> _Input:
    """Replace each `return x` by `throw marker, x`, which has the same grammar and is allowed beside `await`."""
    starts = [0, *(match.end() for match in LINE_END.finditer(bare.text))]
    parts: list[str] = []
    rewritten: list[Insertion] = []
    done = 0
    for line, column in sorted({(diagnostic.line, diagnostic.column) for diagnostic in returns}):
        # Columns count UTF-16 units, Python indices characters.
        text_before = bare.author[line - 1].encode("utf-16-le")[: 2 * (column - 1)].decode("utf-16-le")
        at = starts[line - 1] + len(text_before)
        end = at + len("return")
        substitute = f"throw {marker}" if _NOTHING_RETURNED.match(bare.text, end) else f"throw {marker},"
        parts += [bare.text[done:at], substitute]
        rewritten.append(Insertion(line, column, len(substitute) - len("return")))
        done = end
    return _Input("".join(parts) + bare.text[done:], bare.author, rewritten=tuple(rewritten))


def _restore_returns(code: str, marker: str) -> str:
    """Restore the `return`s with the same number of characters, so that the source map stays valid.

    They become `return 0, x`, since esbuild may break the line after the comma, where a plain `return` would end.
    """

    def restore(match: re.Match[str]) -> str:
        width = len(match[0])
        return "return 0".ljust(width - 1) + "," if match[0].endswith(",") else "return".ljust(width)

    return re.sub(rf"throw {marker},?", restore, code)


# --- Running esbuild -------------------------------------------------------------------------------------------------


class _Diagnostic(Struct, frozen=True):
    """An error of esbuild, at a 1-based line and column (UTF-16 units) of its input."""

    text: str
    line: int
    column: int


async def _run(esbuild: Path, given: _Input, limit: int = _MAX_DIAGNOSTICS) -> Transformed | list[_Diagnostic]:
    try:
        code, out, err = await _communicate([str(esbuild), *given.flags, f"--log-limit={limit}"], given.text.encode())
    except OSError as error:
        raise RuntimeUnavailable(
            f"esbuild at {esbuild} cannot run ({error.strerror}). Run `codemode-mcp setup`, or write JavaScript."
        ) from error
    if code == 0:
        text, _, encoded = out.decode("utf-8", "replace").rpartition(
            "//# sourceMappingURL=data:application/json;base64,"
        )
        return Transformed(text.rstrip("\n"), _source_map(encoded, given))
    complaint = err.decode("utf-8", "replace")
    diagnostics = _read_diagnostics(complaint, given)
    if diagnostics:
        return diagnostics
    first = complaint.strip().partition("\n")[0][:200] or f"exit {code}"
    if "[ERROR]" in first:  # an error without a position is about the options
        raise RuntimeUnavailable(f"esbuild at {esbuild} refuses the options: {first}. Run `codemode-mcp setup`.")
    raise ProgramError(
        "typescript_transform_failed", f"esbuild failed on this program ({first}). It may be nested too deeply."
    )


async def _communicate(command: list[str], stdin: bytes) -> tuple[int, bytes, bytes]:
    """Run a command as `anyio.run_process` does, with bounded output. Return its exit code, stdout and stderr."""
    received: dict[str, bytes] = {}

    async def feed(stream: anyio.abc.ByteSendStream) -> None:
        try:
            await stream.send(stdin)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the process has ended early, and its exit code says why
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
"""A diagnostic. The author's text follows a line number and a bar, so it cannot look like one."""


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
    lines: dict[str, None] = {}
    for diagnostic in diagnostics[:_MAX_DIAGNOSTICS]:
        # A position outside the author's text is the end of bare text.
        end = len(given.author), len(given.author[-1]) + 1
        line, column = given.source_map().author(diagnostic.line, diagnostic.column) or end
        lines[f"cell.ts:{line}:{column}: {diagnostic.text}\n  {_excerpt(given.author[line - 1], column)}"] = None
    return ProgramError("typescript_transform_failed", "\n".join(lines))


def _excerpt(line: str, column: int) -> str:
    start = max(0, column - 1 - _MAX_EXCERPT // 2) if len(line) > _MAX_EXCERPT else 0
    shown = line[start : start + _MAX_EXCERPT].strip()
    return f"{'...' if start else ''}{shown}{'...' if start + _MAX_EXCERPT < len(line) else ''}"


# --- Source map ------------------------------------------------------------------------------------------------------


def _source_map(encoded: str, given: _Input) -> SourceMap:
    try:
        mappings = json.loads(base64.b64decode(encoded.strip()))["mappings"]
    except (binascii.Error, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RuntimeUnavailable("esbuild returned no source map. Run `codemode-mcp setup`.") from error
    try:
        return given.source_map(mappings)
    except (ValueError, TypeError):
        raise RuntimeUnavailable("esbuild returned a source map that is not valid. Run `codemode-mcp setup`.") from None
