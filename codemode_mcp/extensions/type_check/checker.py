"""The check of programs with one compiler process, which is started for the first check and ended when it is idle.

Checks are done one after the other. A check that takes too long is given up, and its process is killed; the program
then runs unchecked. The next check starts a new process, as after a crash.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
import anyio.to_thread
from msgspec import Struct

from codemode_mcp.base.errors import RuntimeUnavailable
from codemode_mcp.extensions.type_check.compiler import CompilerFailed
from codemode_mcp.extensions.type_check.declared import CheckedText, entry_of, of_cell
from codemode_mcp.extensions.type_check.problems import (
    Judge,
    async_callback,
    ignored_call,
    is_candidate,
    printed_promise,
)
from codemode_mcp.extensions.type_check.program_tree import ProgramTree
from codemode_mcp.program.inspection import CELL_FILES
from codemode_mcp.program.prepare import Prepared, has_types
from codemode_mcp.program.syntax import TRANSPARENT, span_of
from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tree_sitter import Node

    from codemode_mcp.base.settings import Language
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.extensions.type_check.declared import CheckedText, Declared, Variant
    from codemode_mcp.extensions.type_check.problems import TypeProblem
    from codemode_mcp.extensions.type_check.session import Diagnostic, Session
    from codemode_mcp.program.prepare import Prepared


Result = TypeVar("Result")

log = logging.getLogger(__name__)

CHECK_SECONDS: Final = 2.0
"""Time limit of one check, and for the others that it waits for."""

OPEN_SECONDS: Final = 8.0
"""Time limit for reading the declarations of a catalog, before the first check against it."""

IDLE_SECONDS: Final = 60.0
"""Time after the last check at which the process is ended."""

MAX_CATALOGS: Final = 8
"""Maximum number of catalogs whose declarations are kept."""

MAX_CHARACTERS: Final = 200_000
"""Maximum length of a program that is checked."""


class Checked(Struct, frozen=True):
    """The result of a check.

    Attributes:
        problems: the type errors, in the order of their positions.
        unchecked: the reason why the program could not be checked; None if it was.
        gave_up: the same reason, if the check has begun and was given up.
    """

    problems: tuple[TypeProblem, ...] = ()
    unchecked: str | None = None
    gave_up: str | None = None


class _SlowDeclarations(Exception):
    """Error for a compiler that has not read the declarations of a catalog in time."""


def _key(catalog: Catalog) -> tuple[int, int]:
    """Return a key of the catalog's tools. It is valid while the index and the toolset exist."""
    return id(catalog.index), id(catalog.toolset)


def _given_up(reason: str) -> Checked:
    return Checked(unchecked=reason, gave_up=reason)


class TypeChecker:
    """Checks programs against the catalogs that they see.

    Args:
        cache_dir: the folder of the compiler.
        seconds: the time limit of one check.
        idle_seconds: the time after the last check at which the process is ended.
        open_seconds: the time limit for the declarations of a catalog that was not checked against before.
    """

    def __init__(
        self,
        cache_dir: Path,
        seconds: float = CHECK_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
        open_seconds: float = OPEN_SECONDS,
    ) -> None:
        self._cache_dir = cache_dir
        self._open_seconds = open_seconds
        self._idle_seconds = idle_seconds
        self._seconds = seconds
        self._turns = anyio.Lock()
        self._session: Session | None = None
        self._declared: OrderedDict[tuple[int, int], tuple[Any, Declared]] = OrderedDict()
        self._slow: OrderedDict[tuple[int, int], Any] = OrderedDict()
        self._generation = 0  # counts the processes that were given up
        self._used = anyio.Event()
        self._warned = False

    @property
    def pid(self) -> int | None:
        return None if self._session is None else self._session.process.pid

    async def check(self, text: CheckedText, catalog: Catalog) -> Checked:
        """Check a program. A program that cannot be checked has no errors."""
        if len(text.body) > MAX_CHARACTERS:
            return Checked(unchecked=f"it has more than {MAX_CHARACTERS:,} characters")
        try:
            if _key(catalog) in self._slow:
                raise _SlowDeclarations
            problems = await self._in_turn(text, catalog)
        except _SlowDeclarations:
            return _given_up("the declarations of its tools take too long to read")
        except TimeoutError:
            return _given_up(f"that took longer than {self._seconds:g} s")
        except CompilerFailed as error:
            log.warning("type check: %s", error)
            return _given_up("the compiler failed on it")
        except RuntimeUnavailable as error:
            if not self._warned:
                self._warned = True
                log.warning("programs are not checked: %s", error.message)
            return Checked(unchecked="the compiler is not installed; run codemode-mcp setup --check")
        except Exception as error:
            # A program never fails because its check did.
            log.warning("type check: %s in our own code", type(error).__name__)
            return _given_up("the check failed")
        return Checked(unchecked="its syntax is not understood") if problems is None else Checked(tuple(problems))

    async def note_on(self, prepared: Prepared, catalog: Catalog) -> str | None:
        """Check a cell, and return a note for the reader of its result; None if there is nothing to say."""
        return await check_cell(self, prepared, catalog)

    async def end_when_idle(self) -> None:
        """End the process when it is idle, and when this is cancelled."""
        try:
            while True:
                await self._used.wait()
                self._used = anyio.Event()
                with anyio.move_on_after(self._idle_seconds):
                    await self._used.wait()
                if not self._used.is_set():
                    async with self._turns:
                        await self.close()
        finally:
            with anyio.CancelScope(shield=True):
                await self.close()

    async def _in_turn(self, text: CheckedText, catalog: Catalog) -> list[TypeProblem] | None:
        with anyio.fail_after(self._seconds):
            await self._turns.acquire()
        try:
            with anyio.move_on_after(self._open_seconds) as opening:
                session, made = await self._in_thread(self._open, catalog)
            if opening.cancelled_caught:
                # Otherwise a server with such declarations would delay every program.
                self._slow[_key(catalog)] = (catalog.index, catalog.toolset)
                while len(self._slow) > MAX_CATALOGS:
                    self._slow.popitem(last=False)
                log.warning("type check: the declarations of %d tools take too long to read", len(catalog))
                raise _SlowDeclarations
            with anyio.fail_after(self._seconds):
                return await self._in_thread(self._check, session, made, text)
        finally:
            self._turns.release()
            self._used.set()

    async def _in_thread(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function in a thread. If it fails or is given up, the process is killed."""
        try:
            return await anyio.to_thread.run_sync(function, *arguments, abandon_on_cancel=True)
        except BaseException as error:
            # The thread waits for the process, or the process is in an unknown state.
            if not isinstance(error, RuntimeUnavailable):
                self._generation += 1
                session, self._session = self._session, None
                if session is not None:
                    session.process.kill()
            raise

    def _open(self, catalog: Catalog) -> tuple[Session, Declared]:
        # Imported in this thread and late: most servers check nothing.
        from codemode_mcp.extensions.type_check.compiler import find_compiler
        from codemode_mcp.extensions.type_check.session import Session

        generation, session = self._generation, self._session
        if session is None:
            session = Session(find_compiler(self._cache_dir))
            if generation == self._generation:
                self._session = session
        try:
            made = self._declarations(catalog)
            session.open(made, "exact")
            if generation != self._generation:
                raise CompilerFailed("given up")
        except BaseException:
            session.end()  # it waits until the process has ended
            raise
        return session, made

    def _check(self, session: Session, made: Declared, text: CheckedText) -> list[TypeProblem] | None:
        try:
            return find_problems(session, made, text)
        except BaseException:
            session.end()
            raise

    def _declarations(self, catalog: Catalog) -> Declared:
        from codemode_mcp.extensions.type_check.declared import declared

        key = _key(catalog)
        if key not in self._declared:
            # The index and the toolset are kept, so that no other objects get their ids.
            made = declared(catalog)
            # Equal declarations share their projects in the compiler.
            same = next((each for _, each in self._declared.values() if each == made), made)
            self._declared[key] = (catalog.index, catalog.toolset), same
        self._declared.move_to_end(key)
        while len(self._declared) > MAX_CATALOGS:
            self._declared.popitem(last=False)
        return self._declared[key][1]

    async def close(self) -> None:
        """End the process. The next check starts a new one."""
        session, self._session = self._session, None
        if session is not None:
            await anyio.to_thread.run_sync(session.end)


MAX_JUDGED: Final = 50
"""Maximum number of diagnostics of one program that are judged."""


def find_problems(session: Session, declared: Declared, text: CheckedText) -> list[TypeProblem] | None:
    """Return the type errors of a program, by position; None if the compiler cannot read its syntax.

    Raises:
        CompilerFailed: the process has to be ended.
    """
    tree = text.tree
    if tree is None:
        return None
    return _Inspection(session, declared, text, ProgramTree(text.units, tree.root_node)).problems()


class _Inspection:
    def __init__(self, session: Session, declared: Declared, text: CheckedText, tree: ProgramTree) -> None:
        self._session = session
        self._declared = declared
        self._text = text
        self._tree = tree
        self._exact = session.open(declared, "exact")

    @property
    def _language(self) -> Language:
        return self._text.language

    def problems(self) -> list[TypeProblem] | None:
        self._session.put(self._exact, self._text, self._language)
        try:
            if self._session.syntax_errors(self._exact, self._language):
                return None
            diagnostics = [each for each in self._type_errors(self._exact) if is_candidate(each)][:MAX_JUDGED]
            found = self._judged(diagnostics) + self._unawaited()
        finally:
            self._session.put(self._exact, None, self._language)
        first = {each.at: each for each in reversed(found)}
        return [first[at] for at in sorted(first)]

    def _judged(self, diagnostics: list[Diagnostic]) -> list[TypeProblem]:
        if not diagnostics:
            return []
        calls = [call for each in diagnostics for call, _ in self._tree.calls_around(self._tree.path(each.pos))]
        functions = dict(zip([call.id for call in calls], self._functions(calls), strict=True))
        return Judge(
            self._tree,
            self._keys("open"),
            self._keys("untyped"),
            lambda call: functions.get(call.id),
            self._declared.leeway,
        ).problems(diagnostics)

    def _unawaited(self) -> list[TypeProblem]:
        """Return the calls whose promises are ignored, and the promises that are printed."""
        ignored, printed = self._tree.ignored_calls(), self._tree.printed()
        found = [
            ignored_call(function, call)
            for call, function in zip(ignored, self._functions(ignored), strict=True)
            if function is not None and function not in ("unwrap", "text", "json")
        ]
        if len(found) == 1 and not self._tree.waits and not self._tree.is_repeated(found[0].at):
            found = []  # a program without any `await` may send its only call on purpose, and not wait for it
        called = [node for node in printed if node.type == "call_expression"]
        of_catalog = {
            node.id
            for node, function in zip(called, self._functions(called), strict=True)
            if function is not None and function not in ("unwrap", "text", "json")
        }
        named = [node for node in printed if node.type == "identifier"]
        types = self._session.type_texts(self._exact, self._language, [self._at(span_of(each).start) for each in named])
        promises = [
            node
            for node, type_ in zip(named, types, strict=True)
            if type_.startswith("Promise<") and type_.endswith(">")
        ]
        printed = [each for each in called if each.id in of_catalog or self._tree.calls_async_function(each)]
        found += [
            printed_promise(self._tree.text(node), node) for node in [*promises, *printed, *self._tree.async_conditions]
        ]
        callbacks = self._tree.async_callbacks()
        declared = self._session.declaration_files(
            self._exact, self._language, [self._at(each.method_at) for each in callbacks]
        )
        return found + [
            async_callback(callback)
            for callback, of in zip(callbacks, declared, strict=True)
            if of is None or not of[1].endswith(("cell.js", "cell.ts"))
        ]

    def _functions(self, calls: Sequence[Node]) -> list[str | None]:
        offsets = [self._at(offset) for offset in _callee_offsets(calls)]
        declared = self._session.declaration_files(self._exact, self._language, offsets)
        return [_called_function(each, call, self._tree) for each, call in zip(declared, calls, strict=True)]

    def _keys(self, variant: Variant) -> set[tuple[int, int]]:
        """Return the offsets and codes of the diagnostics in another variant of the declarations."""
        folder = self._session.open(self._declared, variant)
        self._session.put(folder, self._text, self._language)
        try:
            # Inference from `any` gives `unknown` in some places, which says nothing about the program. The promise of
            # a function that waits for calls stays a promise.
            return {
                (each.pos, each.code)
                for each in self._type_errors(folder)
                if variant != "untyped" or not each.text.endswith(("'unknown'.", "'Promise<any>'."))
            }
        finally:
            self._session.put(folder, None, self._language)

    def _type_errors(self, folder: str) -> list[Diagnostic]:
        """Return the diagnostics with offsets in the body of the text."""
        shift, end = len(self._text.before), len(self._text.units)
        moved = (each.moved(-shift) for each in self._session.type_errors(folder, self._language))
        return [each for each in moved if 0 <= each.pos < end]

    def _at(self, offset: int) -> int:
        return offset + len(self._text.before)


def _called_function(declared: tuple[str, str] | None, call: Node, tree: ProgramTree) -> str | None:
    """Return the function of the catalog that a call calls, as programs write it; None for other functions.

    Args:
        declared: the name and the file of the declaration of the called symbol.
    """
    if declared is None:
        return None
    name, file = declared
    if file == "guest.d.ts":
        return name if name in ("unwrap", "text", "json") else None
    if file.endswith(("cell.js", "cell.ts")) or file.startswith("/"):
        return None
    function = call.child_by_field_name("function")
    source = "" if function is None else tree.text(function)
    if source == name or re.fullmatch(r"(?:MCP|tools|programs)(?:\.[\w$]+)+", source):
        return source  # a variable of the program with the function, or the function itself
    if file.startswith("mcp/"):
        return f"MCP.{file.removeprefix('mcp/').removesuffix('.d.ts')}.{name}"
    return f"tools.{name}" if file == "tools.d.ts" else name


def _callee_offsets(calls: Sequence[Node]) -> list[int]:
    """Return the offset of the called name of each call; that of the call itself if it has no name."""
    return [span_of(call).start if (at := _callee_offset(call)) is None else at for call in calls]


def _callee_offset(call: Node) -> int | None:
    function = call.child_by_field_name("function")
    while function is not None and function.type in TRANSPARENT and function.named_children:
        function = function.named_children[0]
    if function is None:
        return None
    if function.type == "member_expression":
        function = function.child_by_field_name("property")
    elif function.type == "subscript_expression":
        index = function.child_by_field_name("index")
        return None if index is None or index.type != "string" else span_of(index).start + 1
    return None if function is None else span_of(function).start


MAX_SHOWN: Final = 5
"""Maximum number of errors in a message."""


_MAX_SIGNATURE: Final = 1_000


_MAX_TEXT: Final = 500


async def check_cell(checker: TypeChecker, prepared: Prepared, catalog: Catalog) -> str | None:
    found = prepared.preflight
    language = prepared.cell.language or ("typescript" if has_types(found.source) else "javascript")
    text = of_cell(found, language)
    checked = await checker.check(text, catalog)
    if checked.problems:
        count = "a type error" if len(checked.problems) == 1 else f"{len(checked.problems)} type errors"
        return f"The type check found {count}:\n" + "\n".join(lines(text, checked.problems, signatures(catalog)))
    return f"The types of the program were not checked: {checked.gave_up}." if checked.gave_up else None


def lines(text: CheckedText, problems: Sequence[TypeProblem], signature: Callable[[str], str]) -> list[str]:
    """Return a line for each of the first errors with its position, and the signatures of the functions in them.

    Args:
        signature: returns the signature of a function; empty if it is unknown.
    """
    shown = []
    for each in problems[:MAX_SHOWN]:
        line, column = text.position(each.at)
        shown.append(f"- {escape_line(each.text, _MAX_TEXT)} ({CELL_FILES[text.language]}:{line}:{column})")
    if len(problems) > MAX_SHOWN:
        shown.append(f"- … and {len(problems) - MAX_SHOWN} more")
    calls = dict.fromkeys(each.call for each in problems[:MAX_SHOWN] if each.call is not None)
    known = [found for call in calls if (found := signature(call))]
    return [*shown, *(f"Signature: {each}" for each in known if len(each) <= _MAX_SIGNATURE)]


def positions(
    text: CheckedText, problems: Sequence[TypeProblem], file: str, signature: Callable[[str], str]
) -> list[str]:
    shown = []
    for each in problems:
        line, column = text.position(each.at)
        known = "" if each.call is None else signature(each.call)
        end = "" if not known else f" Signature: {known}" if each.text.endswith("?") else f". Signature: {known}"
        shown.append(f"{file}:{line}:{column}: {escape_line(each.text, _MAX_TEXT)}{end}")
    return shown


def signatures(catalog: Catalog) -> Callable[[str], str]:
    """Return a function that returns the signature of a function of the catalog; empty if it is unknown."""

    def signature(call: str) -> str:
        entry = entry_of(catalog, call)
        return "" if entry is None else catalog.signature(entry)

    return signature
