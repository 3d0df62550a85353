"""The check of programs with one compiler process, which is started for the first check and ended when it is idle.

Checks are done one after the other. A check that takes too long is given up, and its process is killed; the program
then runs unchecked. The next check starts a new process, as after a crash.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
import anyio.to_thread
from msgspec import Struct

from codemode_mcp.base.errors import RuntimeUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.extensions.type_check.declared import CheckedText, Declared
    from codemode_mcp.extensions.type_check.problems import TypeProblem
    from codemode_mcp.extensions.type_check.session import Session
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


class CompilerFailed(Exception):
    """Error for a process that has ended, refused a request, or sent something else than an answer."""


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
        from codemode_mcp.extensions.type_check.declared import of_cell
        from codemode_mcp.extensions.type_check.problems import lines, signatures
        from codemode_mcp.program.prepare import has_types

        found = prepared.preflight
        language = prepared.cell.language or ("typescript" if has_types(found.source) else "javascript")
        text = of_cell(found, language)
        checked = await self.check(text, catalog)
        if checked.problems:
            count = "a type error" if len(checked.problems) == 1 else f"{len(checked.problems)} type errors"
            return f"The type check found {count}:\n" + "\n".join(lines(text, checked.problems, signatures(catalog)))
        return f"The types of the program were not checked: {checked.gave_up}." if checked.gave_up else None

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
        from codemode_mcp.extensions.type_check.problems import find_problems

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
