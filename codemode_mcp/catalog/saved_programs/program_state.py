"""The proposals and versions of one configuration, and decisions about them. Blocks on disk operations.

Several processes may use it, so each file is changed under a lock, and replaced in one step.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec import Struct, structs

from codemode_mcp.base.paths import state_dir
from codemode_mcp.catalog.saved_programs.folder import name_of, program_files, read_text
from codemode_mcp.catalog.saved_programs.saved_program import SUFFIXES, ProgramFileError, digest_of, file_name
from codemode_mcp.catalog.saved_programs.versions import History, Proposal, Proposals, UsedTool, Version, settle
from upstream_clients import private_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from codemode_mcp.base.settings import Language


FORMAT: Final = 1

MAX_FILE_BYTES: Final = 32 * 1024 * 1024

Content = TypeVar("Content")


class StateUnavailable(Exception):
    """Error for a file that cannot be read or written. The message says why, and names the file."""


class ProgramState(Struct, frozen=True):
    """The files of one configuration.

    Attributes:
        folder: contains a folder for each configuration file. It is created when it is needed.
        config: the path of the configuration file.
    """

    folder: Path
    config: Path

    def path(self, file: str) -> Path:
        name = os.path.realpath(self.config).encode("utf-8", "surrogateescape")
        return self.folder / hashlib.sha256(name).hexdigest()[:32] / f"{file}.json"

    def proposals(self) -> Proposals:
        """Return the proposals. Raises `StateUnavailable`."""
        return self.load("proposals", Proposals, Proposals())

    def change_proposals(self, change: Callable[[Proposals], Proposals]) -> Proposals:
        """Change the proposals, and return the new ones.

        Args:
            change: returns the new proposals. Its exceptions are passed on, and nothing is changed.

        Raises:
            StateUnavailable: they cannot be read or written.
        """
        return self.change("proposals", Proposals, Proposals(), change)

    def history(self, name: str) -> History:
        """Return the versions of a program. Raises `StateUnavailable`."""
        found = self.load(_history_file(name), History, History(name))
        return found if found.name == name else History(name)

    def versions_stamp(self, name: str) -> private_files.Stamp:
        return private_files.stamp_of(self.path(_history_file(name)))

    def change_history(self, name: str, change: Callable[[History], History]) -> History:
        """Change the versions of a program, and return the new ones. See `change_proposals`."""
        return self.change(_history_file(name), History, History(name), change)

    def load(self, file: str, kind: type[Content], absent: Content) -> Content:
        """Return the content of a file; `absent` if there is no file. Raises `StateUnavailable`."""
        path = self.path(file)
        try:
            with private_files.open_private(path) as opened:
                data = opened.read(MAX_FILE_BYTES + 1)
        except (FileNotFoundError, NotADirectoryError):
            return absent
        except OSError as error:
            raise StateUnavailable(f"{path} cannot be read: {error.strerror or error}") from error
        try:
            return _decode(data, kind)
        except (msgspec.MsgspecError, ValueError, LookupError, TypeError, RecursionError) as error:
            raise StateUnavailable(
                f"{path} is damaged, or of another version of codemode-mcp; remove it to begin again"
            ) from error

    def change(self, file: str, kind: type[Content], absent: Content, change: Callable[[Content], Content]) -> Content:
        """Change the content of a file, and return the new content. See `change_proposals`."""
        path = self.path(file)
        try:
            private_files.make_private_folder(path.parent)
            with private_files.locked(path.with_suffix(".lock")):
                before = self.load(file, kind, absent)
                after = change(before)
                if after != before:
                    data = json.dumps({"format": FORMAT, **_to_json(after)}).encode()
                    if len(data) > MAX_FILE_BYTES:
                        raise StateUnavailable(f"{path} would be larger than {MAX_FILE_BYTES} bytes")
                    private_files.replace_file(path, data)
                return after
        except OSError as error:
            raise StateUnavailable(f"{path} cannot be written: {error.strerror or error}") from error


def state_of(config: Path) -> ProgramState:
    """Return the files of a configuration, in the user's folder for state."""
    return ProgramState(state_dir() / "programs", config)


def _history_file(name: str) -> str:
    """Return the name of the file of a program, in any file system."""
    return f"versions-{digest_of(name)[:32]}"


def _to_json(content: object) -> dict[str, Any]:
    made = msgspec.to_builtins(content)
    assert isinstance(made, dict)
    return made


def _decode(data: bytes, kind: type[Content]) -> Content:
    """Return the content of a file. Raises one of many exceptions if it is not as this version writes it."""
    if len(data) > MAX_FILE_BYTES:
        raise ValueError
    raw = json.loads(data)
    if raw.pop("format") != FORMAT:
        raise ValueError
    found = msgspec.convert(raw, kind)
    if isinstance(found, Proposals) and any(each.digest != digest_of(each.text) for each in found.waiting):
        raise ValueError
    return found


# Decisions of a person about proposals and files of saved programs. The functions block on disk operations.
#
# A decision is about exactly the texts that the person was shown, by their digests.


LEFT_SECONDS: Final = 3600.0
"""Age at which a file that a killed process has left is removed. A write takes much less."""


class Stale(Exception):
    """Error for a decision about a text that is no longer the present one. Nothing was decided."""


class NotWritten(Exception):
    """Error for a file that cannot be written or removed. The message says why."""


class PresentFile(Struct, frozen=True):
    """The file of a program, as it is now.

    Attributes:
        text: None for a file that cannot be read.
    """

    path: Path
    language: Language
    text: str | None

    @property
    def digest(self) -> str:
        """The digest of the text; empty for a file that cannot be read."""
        return "" if self.text is None else digest_of(self.text)


def present_file(folder: Path, name: str) -> PresentFile | None:
    for language in SUFFIXES.values():
        path = folder / file_name(name, language)
        if os.path.lexists(path):
            try:
                return PresentFile(path, language, read_text(path))
            except ProgramFileError:
                return PresentFile(path, language, None)
    return None


def same_name(folder: Path, name: str, but: str | None = None) -> str | None:
    """Return a file with the same name in another spelling or language; None if there is none.

    Args:
        but: a file that does not count.
    """
    return next(
        (each for each in program_files(folder) if name_of(each).casefold() == name.casefold() and each != but), None
    )


def accept(
    state: ProgramState, folder: Path, proposal: Proposal, before: PresentFile | None, *, by: str, at: float
) -> None:
    """Write a proposed program to the folder.

    Args:
        before: the file that the person was shown.
        by: who has decided, in words.
        at: Unix seconds.

    Raises:
        Stale: the proposal or the file has changed.
        NotWritten: the file cannot be written.
        StateUnavailable: the decision cannot be stored.
    """
    version = Version(
        proposal.digest,
        by,
        at,
        proposal.text,
        proposal.tools,
        proposal.complete,
        proposal.author.words,
        proposal.author.run,
    )

    def change(known: Proposals) -> Proposals:
        if not any((each.name, each.digest) == (proposal.name, proposal.digest) for each in known.waiting):
            raise Stale(f"the proposal of {proposal.name} is no longer there; look at it again")
        other = same_name(folder, proposal.name, None if before is None else before.path.name)
        if other is not None:
            raise NotWritten(f"{folder / other} has this name too; rename or remove it first")
        if _digest(present_file(folder, proposal.name)) != _digest(before):
            raise Stale(f"the file of {proposal.name} has changed since it was shown; look at it again")
        path = folder / proposal.file
        try:
            private_files.make_private_folder(folder)
            if folder.is_symlink():
                raise NotWritten(f"{folder} is a symbolic link; use the folder itself")
            private_files.replace_file(path, proposal.text.encode("utf-8", "replace"))
            if before is not None and before.path != path:
                before.path.unlink()
        except OSError as error:
            raise NotWritten(f"{path} cannot be written: {error.strerror or error}") from error
        return settle(known, proposal.name, proposal.digest, rejected=False)

    # The version is announced first: without it, the file would count as written by a person. It counts from the moment
    # at which the file has its text, so a process that is killed at any step leaves the truth.
    state.change_history(proposal.name, lambda known: known.announcing(version, _digest(before)))
    try:
        state.change_proposals(change)
    except BaseException:
        if _digest(present_file(folder, proposal.name)) != proposal.digest:
            state.change_history(proposal.name, lambda known: known.without_announced(version))
        raise
    with suppress(StateUnavailable):  # the announced version counts too, now that the file has its text
        state.change_history(proposal.name, lambda known: known.with_version(version))
    private_files.remove_left_files(folder, before=at - LEFT_SECONDS)


def reject(state: ProgramState, name: str, digest: str) -> None:
    """Reject a proposal. The same text is not proposed again. Raises `Stale` and `StateUnavailable`."""

    def change(known: Proposals) -> Proposals:
        if not any((each.name, each.digest) == (name, digest) for each in known.waiting):
            raise Stale(f"the proposal of {name} is no longer there; look at it again")
        return settle(known, name, digest, rejected=True)

    state.change_proposals(change)


def remove(state: ProgramState, file: PresentFile, name: str) -> None:
    """Remove the file of a program, and its versions.

    Raises:
        Stale: the file has changed.
        NotWritten: the file cannot be removed.
        StateUnavailable: the versions cannot be removed.
    """
    if _digest(present_file(file.path.parent, name)) != file.digest:
        raise Stale(f"the file of {name} has changed since it was shown; look at it again")
    try:
        file.path.unlink()
    except OSError as error:
        raise NotWritten(f"{file.path} cannot be removed: {error.strerror or error}") from error
    state.change_history(name, lambda known: structs.replace(known, versions=(), announced=None))


def pin(
    state: ProgramState,
    name: str,
    text: str,
    tools: tuple[UsedTool, ...],
    *,
    complete: bool,
    by: str,
    at: float,
    again: bool = True,
) -> History:
    """Pin the present text of a program to definitions of its tools. Raises `StateUnavailable`.

    Args:
        by: who has accepted the definitions, or written the text, in words.
        again: False to leave a version that is pinned already as it is.
    """
    digest = digest_of(text)

    def change(known: History) -> History:
        version = known.of(digest)
        if version is not None and version.tools is not None and not again:
            return known
        proposed = (None, None) if version is None else (version.proposed_by, version.run)
        return known.with_version(Version(digest, by, at, text, tools, complete, *proposed))

    return state.change_history(name, change)


def _digest(file: PresentFile | None) -> str | None:
    return None if file is None else file.digest
