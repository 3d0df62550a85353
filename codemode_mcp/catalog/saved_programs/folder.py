"""The folder of saved programs: reading its files, and noticing changes."""

from __future__ import annotations

import logging
import os
import re
import stat
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread
from msgspec import Struct

from codemode_mcp.catalog.saved_programs import saved_program
from upstream_clients.private_files import belongs_to_another

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path


FOLDER: Final = "programs"
"""The name of the folder beside the configuration file."""

MAX_PROGRAMS: Final = 500
"""Maximum number of saved programs in one folder."""

_MAX_ENTRIES: Final = 5_000
"""Maximum number of files and folders in the folder that are looked at."""

_WORD: Final = "programs"
_NAMES: Final = re.compile(r"[\w$]+")

FolderState = tuple[tuple[str, int, int, int, int], ...] | None
"""Numbers that change when a file of the folder changes; None if there is no folder."""


class Library(Struct, frozen=True):
    """The saved programs of one folder, as they were read.

    Attributes:
        programs: the programs in the order of their names.
        problems: the reasons why other files, or the whole folder, are not used.
    """

    programs: tuple[saved_program.SavedProgram, ...] = ()
    problems: tuple[saved_program.FileProblem, ...] = ()

    def get(self, name: str) -> saved_program.SavedProgram | None:
        return next((each for each in self.programs if each.name == name), None)

    @property
    def broken(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(_stem(each.file) for each in self.problems if each.file))

    def named_in(self, text: str) -> tuple[saved_program.SavedProgram, ...]:
        """Return the programs that a text may call, and those that these may call; all if it names none."""
        if not self.programs or _WORD not in text:
            return ()
        names = frozenset(each.name for each in self.programs)
        found: set[str] = set()
        left = names.intersection(_NAMES.findall(text))
        while left:
            found |= left
            texts = [each.text for each in self.programs if each.name in left and _WORD in each.text]
            left = frozenset[str]().union(*(_named(each, names) for each in texts)) - found
        return tuple(each for each in self.programs if each.name in found) or self.programs

    def servers_in(self, text: str, own: frozenset[str] | None) -> frozenset[str] | None:
        """Return the servers that a text uses, itself and through saved programs; None if any may be used.

        Args:
            own: the servers that it uses itself.
        """
        used = [own, *(each.servers for each in self.named_in(text))]
        return None if None in used else frozenset().union(*(each for each in used if each is not None))


@lru_cache(maxsize=MAX_PROGRAMS)
def _named(text: str, names: frozenset[str]) -> frozenset[str]:
    """Return the names that are in the text of a saved program. Every run asks, and the texts are long."""
    return names.intersection(_NAMES.findall(text))


EMPTY: Final = Library()


def folder_of(config: Path | None) -> Path | None:
    """Return the folder of saved programs beside a configuration file."""
    return None if config is None else config.parent / FOLDER


def folder_state(folder: Path) -> FolderState:
    """Return the state of the files of the folder, without reading them."""
    try:
        with os.scandir(folder) as entries:
            states = []
            for entry, _ in zip(entries, range(_MAX_ENTRIES), strict=False):
                if entry.name.endswith(tuple(saved_program.SUFFIXES)):
                    about = entry.stat(follow_symlinks=False)
                    states.append((entry.name, about.st_mtime_ns, about.st_ctime_ns, about.st_size, about.st_ino))
    except OSError:
        return None
    return tuple(sorted(states))


def program_files(folder: Path) -> list[str]:
    """Return the names of the files of programs in the folder, without reading them."""
    return [name for name, *_ in folder_state(folder) or () if _is_program(name)]


def name_of(file: str) -> str:
    return _stem(file)


def read_folder(folder: Path, previous: Library = EMPTY) -> Library:
    """Return the saved programs of a folder. A broken file is reported, and does not hide the others.

    Args:
        previous: the library that was read before. Unchanged texts are not parsed again.
    """
    try:
        about = os.lstat(folder)
    except OSError:
        return EMPTY
    problem = _problem_of_folder(about)
    if problem is not None:
        return Library(problems=(saved_program.FileProblem("", 0, problem),))
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry, _ in zip(entries, range(_MAX_ENTRIES), strict=False)]
    except OSError as error:
        return Library(problems=(saved_program.FileProblem("", 0, f"the folder cannot be read: {error.strerror}"),))
    return _read_files(folder, sorted(filter(_is_program, names)), previous)


def read_text(path: Path) -> str:
    """Return the text of one file of the folder. A link is not followed.

    Raises:
        ProgramFileError: it cannot be read, belongs to another user, or is too large.
    """
    # Opening a pipe without O_NONBLOCK would wait for a writer.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    flags |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    try:
        if stat.S_ISLNK(os.lstat(path).st_mode):
            raise saved_program.ProgramFileError(0, "the file is a symbolic link; put the file itself into the folder")
        descriptor = os.open(path, flags)
    except OSError as error:
        raise saved_program.ProgramFileError(0, f"the file cannot be read: {error.strerror}") from None
    # The open file is checked: the path may lead to another file a moment later.
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise saved_program.ProgramFileError(0, "this is not a regular file; remove it")
        if (problem := _exposure(about)) is not None:
            raise saved_program.ProgramFileError(0, f"the file {problem}")
        data = file.read(saved_program.MAX_TEXT + 1)
    if len(data) > saved_program.MAX_TEXT:
        raise saved_program.ProgramFileError(
            0, f"the file is larger than {saved_program.MAX_TEXT // 1024} KiB; write a shorter program"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise saved_program.ProgramFileError(
            0, f"the file is not UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from None
    if "\0" in text:
        raise saved_program.ProgramFileError(0, "the file has NUL bytes, so it is not text; save it as UTF-8")
    return text


def _is_program(name: str) -> bool:
    return not name.startswith(".") and not name.endswith(".d.ts") and name.endswith(tuple(saved_program.SUFFIXES))


def _problem_of_folder(about: os.stat_result) -> str | None:
    if stat.S_ISLNK(about.st_mode):
        return "the folder is a symbolic link; use the folder itself"
    if not stat.S_ISDIR(about.st_mode):
        return "this is not a folder; move the file, or rename it"
    problem = _exposure(about)
    return None if problem is None else f"the folder {problem}"


def _exposure(about: os.stat_result) -> str | None:
    if belongs_to_another(about):
        return "belongs to another user; copy it, after you have read it"
    if os.name == "posix" and about.st_mode & stat.S_IWOTH:
        return "can be written by every user; remove this permission with chmod o-w"
    return None


def _read_files(folder: Path, names: Iterable[str], previous: Library) -> Library:
    programs: list[saved_program.SavedProgram] = []
    problems: list[saved_program.FileProblem] = []
    by_spelling: dict[str, list[str]] = {}
    for name in names:
        by_spelling.setdefault(_stem(name).casefold(), []).append(name)
    for same in by_spelling.values():
        if len(same) > 1:
            text = f"there are {' and '.join(same)}, and names must differ in more than case; rename or remove one"
            problems += [saved_program.FileProblem(name, 0, text) for name in same]
            continue
        name = same[0]
        if len(programs) == MAX_PROGRAMS:
            problems.append(
                saved_program.FileProblem(name, 0, f"there are more than {MAX_PROGRAMS} saved programs; remove some")
            )
            break
        try:
            programs.append(_read_file(folder / name, previous))
        except saved_program.ProgramFileError as error:
            problems.append(saved_program.FileProblem(name, error.line, error.text))
        except Exception as error:  # no file of the folder may stop the server
            text = f"the file cannot be read ({type(error).__name__}); this is a mistake of codemode-mcp"
            problems.append(saved_program.FileProblem(name, 0, text))
    return Library(tuple(sorted(programs, key=lambda each: each.name)), tuple(problems))


def _read_file(path: Path, previous: Library) -> saved_program.SavedProgram:
    from codemode_mcp.catalog.saved_programs.program_file import (
        read_program,  # imported for the first file: most have none
    )

    text = read_text(path)
    name, language = _stem(path.name), saved_program.SUFFIXES[path.suffix]
    known = previous.get(name)
    if known is not None and known.language == language and known.digest == saved_program.digest_of(text):
        return known
    return read_program(name, language, text)


def _stem(name: str) -> str:
    return name[: -len(next(suffix for suffix in saved_program.SUFFIXES if name.endswith(suffix)))]


# The watcher of the folder of saved programs. A changed file is read again.
#
# The folder is polled every second, as the configuration is. A poll reads no files.


log = logging.getLogger("codemode_mcp.programs")

POLL_SECONDS: Final = 1.0
"""Seconds between two polls of the folder."""

QUIET_SECONDS: Final = 0.2
"""Seconds without a change before changed files are read. An editor may write a file in several steps."""

MAX_QUIET_POLLS: Final = 25
"""Maximum number of polls for a time without a change. Then the files are read although they still change."""


class LibraryWatcher:
    """The watcher of one folder.

    Args:
        library: the programs that were read before.
        state: the state of the folder, taken before they were read.
        apply: called with the programs of a changed folder.
    """

    def __init__(self, folder: Path, library: Library, state: FolderState, apply: Callable[[Library], None]) -> None:
        self._folder = folder
        self._library = library
        self._state = state
        self._apply = apply
        self._reading = anyio.Lock()

    async def run(self) -> None:
        while True:
            await anyio.sleep(POLL_SECONDS)
            await self.refresh(MAX_QUIET_POLLS)

    async def refresh(self, quiet_polls: int = 0) -> None:
        """Read a changed folder now.

        Args:
            quiet_polls: the maximum number of polls for a time without a change.
        """
        async with self._reading:
            if folder_state(self._folder) != self._state:
                await self._read(quiet_polls)

    async def _read(self, quiet_polls: int) -> None:
        state = folder_state(self._folder)
        for _ in range(quiet_polls):
            await anyio.sleep(QUIET_SECONDS)
            before, state = state, folder_state(self._folder)
            if state == before:
                break
        # The state was taken before the files are read, so that a change during the reading is noticed.
        self._state = state
        before_reading = self._library
        self._library = await anyio.to_thread.run_sync(read_folder, self._folder, before_reading)
        report_problems(self._library, before_reading)
        if self._library != before_reading:
            self._apply(self._library)


def report_problems(library: Library, previous: Library | None = None) -> None:
    known = () if previous is None else previous.problems
    for problem in library.problems:
        if problem not in known:
            log.warning("%s", problem)
