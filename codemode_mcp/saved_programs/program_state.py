"""The private folder with the proposals and versions of one configuration. The functions block on disk operations.

Several processes may use it, so each file is changed under a lock, and replaced in one step.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from codemode_mcp.paths import state_dir
from codemode_mcp.saved_programs.proposals import Proposals
from codemode_mcp.saved_programs.saved_program import digest_of
from codemode_mcp.saved_programs.versions import History
from upstream_clients.private_files import make_private_folder, open_private
from upstream_clients.state_files import locked, replace_file, stamp_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from upstream_clients.state_files import Stamp

FORMAT: Final = 1

MAX_FILE_BYTES: Final = 32 * 1024 * 1024

Content = TypeVar("Content")


class StateUnavailable(Exception):
    """Error for a file that cannot be read or written. The message says why, and names the file."""


@dataclass(frozen=True, slots=True)
class ProgramState:
    """The files of one configuration.

    Attributes:
        folder: contains a folder for each configuration file. It is created when it is needed.
        config: the path of the configuration file.
    """

    folder: Path
    config: Path

    def path(self, file: str) -> Path:
        """Return the path of a file, such as `proposals`."""
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

    def versions_stamp(self, name: str) -> Stamp:
        """Return the identity of the present file with the versions of a program."""
        return stamp_of(self.path(_history_file(name)))

    def change_history(self, name: str, change: Callable[[History], History]) -> History:
        """Change the versions of a program, and return the new ones. See `change_proposals`."""
        return self.change(_history_file(name), History, History(name), change)

    def load(self, file: str, kind: type[Content], absent: Content) -> Content:
        """Return the content of a file; `absent` if there is no file. Raises `StateUnavailable`."""
        path = self.path(file)
        try:
            with open_private(path) as opened:
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
            make_private_folder(path.parent)
            with locked(path.with_suffix(".lock")):
                before = self.load(file, kind, absent)
                after = change(before)
                if after != before:
                    data = json.dumps({"format": FORMAT, **_to_json(after)}).encode()
                    if len(data) > MAX_FILE_BYTES:
                        raise StateUnavailable(f"{path} would be larger than {MAX_FILE_BYTES} bytes")
                    replace_file(path, data)
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
