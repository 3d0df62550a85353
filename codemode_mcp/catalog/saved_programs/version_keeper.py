"""Keeps the versions of the saved programs of an application: it pins new files, and notices changed definitions.

A file that a person has written is pinned to the definitions of its tools when they are all known for the first time.
A version of an accepted proposal is pinned already, to the definitions that the proposing program saw.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

import anyio
import anyio.to_thread
from msgspec.structs import replace

from codemode_mcp.catalog.saved_programs import program_state, versions
from codemode_mcp.catalog.saved_programs.program_state import ProgramState, StateUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from codemode_mcp.catalog.saved_programs.folder import Library
    from codemode_mcp.catalog.saved_programs.saved_program import SavedProgram
    from upstream_clients.private_files import Stamp

log = logging.getLogger("codemode_mcp.programs")

POLL_SECONDS: Final = 2.0
"""Seconds between two looks at the files with versions. A look is one `stat` for each program."""


MAX_WARNED: Final = 5
"""Maximum number of changes that a warning names."""


class Definitions(Protocol):
    """The tools of servers, as programs see them now."""

    def at(self, path: str) -> versions.Definition | None:
        """Return the tool at a path such as `MCP.github.createIssue`; None if there is none."""
        ...

    def is_known(self, path: str) -> bool:
        """Return True if the list of the server of a path is known, or if there is no such server."""
        ...

    def present(self) -> object:
        """Return an object that is another one after each change of the tools."""
        ...


class VersionKeeper:
    """The versions of all saved programs of an application.

    Args:
        library: returns the saved programs.
        on_change: called when a program has other changed definitions than before.
        clock: Unix seconds.
        option: the end of the commands in messages, such as ` --config PATH`; empty if they need no option.

    Attributes:
        permits_other_tools: True if programs may be called although their texts mean other tools now.
    """

    def __init__(
        self,
        state: ProgramState,
        library: Callable[[], Library],
        definitions: Definitions,
        on_change: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
        option: str = "",
    ) -> None:
        self.permits_other_tools = False
        self._option = option
        self._state = state
        self._library = library
        self._definitions = definitions
        self._on_change = on_change
        self._clock = clock
        self._histories: dict[str, tuple[Stamp, versions.History]] = {}
        self._changes: dict[str, tuple[versions.DefinitionChange, ...]] = {}
        self._shown: tuple[tuple[object, ...], Library] | None = None
        """The latest result of `shown`, with the objects on which it depends."""
        self._seen_stamps: Mapping[str, Stamp] = {}

    def shown(self, library: Library) -> Library:
        """Return saved programs with a warning for each whose tools have changed, and a refusal for each whose text
        means other tools now. Equal inputs give the same object.
        """
        if not self._histories:
            return library
        inputs = (library, self._changes, self._definitions.present())
        if self._shown is None or any(a is not b for a, b in zip(self._shown[0], inputs, strict=True)):
            programs = [self._shown_program(each) for each in library.programs]
            changed = any(a is not b for a, b in zip(programs, library.programs, strict=True))
            self._shown = inputs, replace(library, programs=tuple(programs)) if changed else library
        return self._shown[1]

    def _shown_program(self, program: SavedProgram) -> SavedProgram:
        if program.name in self._changes:
            program = replace(program, warning=_warning(self._changes[program.name]))
        known = self._histories.get(program.name)
        version = None if known is None else known[1].of(program.digest)
        # Compared here once more, since the look at all programs comes later than the change.
        pairs = [] if version is None else [(each, self._now(each)) for each in version.tools or ()]
        others = {before: now for before, now in pairs if now is not None and versions.is_redirected(before, now)}
        if not others or self.permits_other_tools:
            return program
        named = _listed(versions.compare_tools(others, others.get))
        target = f"{program.name}{self._option}"
        return replace(
            program,
            refusal=f"it was accepted for other tools: {named}. Ask the user to read it with: codemode-mcp programs "
            f"show {target}, and to accept it with: codemode-mcp programs accept {target}",
        )

    async def read(self, programs: Sequence[SavedProgram]) -> None:
        """Read the versions of programs that were not read yet."""
        for each in programs:
            if each.name not in self._histories:
                with suppress(StateUnavailable):
                    await anyio.to_thread.run_sync(self._read, each.name)

    def changes(self, name: str) -> Sequence[versions.DefinitionChange]:
        """Return the definitions that have changed since a program was pinned, as they were seen at the latest look."""
        return self._changes.get(name, ())

    async def look(self, program: SavedProgram) -> Sequence[versions.DefinitionChange]:
        """Return the definitions that have changed since a program was pinned. Pin a program that is not pinned yet."""
        history = await anyio.to_thread.run_sync(self._read, program.name)
        version = history.of(program.digest)
        if version is None or version.tools is None:
            await self._pin(program)
            return ()
        return versions.changes_since(version, self._present)

    async def tools_now(self, program: SavedProgram) -> tuple[versions.UsedTool, ...]:
        names = await anyio.to_thread.run_sync(versions.names_in, program.text)
        return tuple(versions.used_tool(path, self._definitions.at(path)) for path in names.paths)

    async def pin_again(self, program: SavedProgram, tools: tuple[versions.UsedTool, ...], by: str) -> None:
        """Pin a program to definitions of its tools that a person has seen. Raises `StateUnavailable`."""
        names = await anyio.to_thread.run_sync(versions.names_in, program.text)
        await self._write(program, tools, by, complete=names.complete, again=True)

    async def run(self, change: Callable[[], anyio.Event]) -> None:
        """Look at all programs when something has changed, until cancelled.

        Args:
            change: returns an event for the next change of the servers or the programs.
        """
        seen: object = None
        while True:
            changed = change()
            programs = self._library().programs
            stamps = await anyio.to_thread.run_sync(self._stamps, programs) if programs else {}
            # Polls in which nothing has changed look at no program.
            if changed is not seen or stamps != self._seen_stamps:
                seen, self._seen_stamps = changed, stamps
                await self._look_at_all(programs)
            with anyio.move_on_after(POLL_SECONDS if programs else None):
                await changed.wait()

    async def _look_at_all(self, programs: Sequence[SavedProgram]) -> None:
        found = {}
        for program in programs:
            try:
                found[program.name] = tuple(await self.look(program))
            except StateUnavailable as error:
                log.warning("the versions of %s are not known: %s", program.name, error)
        found = {name: changes for name, changes in found.items() if changes}
        if found != self._changes:
            for name in found.keys() - self._changes.keys():
                log.warning("programs.%s: %s", name, "; ".join(map(str, found[name])))
            self._changes = found
            self._on_change()

    def _stamps(self, programs: Sequence[SavedProgram]) -> dict[str, Stamp]:
        """Return the identities of the files with the versions of programs. Blocks."""
        return {each.name: self._state.versions_stamp(each.name) for each in programs}

    def _read(self, name: str) -> versions.History:
        """Return the versions of a program. Blocks."""
        stamp = self._state.versions_stamp(name)
        known = self._histories.get(name)
        if known is None or known[0] != stamp:
            known = self._histories[name] = stamp, self._state.history(name)
            self._shown = None
        return known[1]

    async def _pin(self, program: SavedProgram) -> None:
        names = await anyio.to_thread.run_sync(versions.names_in, program.text)
        if not all(map(self._definitions.is_known, names.paths)):
            return  # pinned once its servers are listed
        tools = tuple(versions.used_tool(path, self._definitions.at(path)) for path in names.paths)
        await self._write(program, tools, versions.BY_FILE, complete=names.complete, again=False)

    async def _write(
        self, program: SavedProgram, tools: tuple[versions.UsedTool, ...], by: str, *, complete: bool, again: bool
    ) -> None:
        at = self._clock()
        await anyio.to_thread.run_sync(
            lambda: program_state.pin(
                self._state, program.name, program.text, tools, complete=complete, by=by, at=at, again=again
            )
        )

    def _present(self, used: versions.UsedTool) -> versions.UsedTool | None:
        return self._now(used) if self._definitions.is_known(used.path) else None

    def _now(self, used: versions.UsedTool) -> versions.UsedTool | None:
        return versions.used_tool(used.path, self._definitions.at(used.path))


def _listed(changes: Sequence[versions.DefinitionChange]) -> str:
    more = len(changes) - MAX_WARNED
    return "; ".join([*map(str, changes[:MAX_WARNED]), *([f"and {more} more"] if more > 0 else [])])


def _warning(changes: Sequence[versions.DefinitionChange]) -> str:
    return (
        f"Tools of this program have changed since it was saved: {_listed(changes)}. It may fail or do something else, "
        "so read the declarations of these tools before you call it."
    )
