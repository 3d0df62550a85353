"""The files with the pins of servers. The functions block on disk operations.

Each server of a configuration file has its own file. Several processes may use it, so a file is changed under a lock,
and replaced in one step. A definition that is both accepted and present is written once. If a file would be too large,
it is written without definitions, so that only the digests are compared.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, get_args

from codemode_mcp.trust.items import Kind
from upstream_clients.private_files import make_private_folder, open_private
from upstream_clients.state_files import locked, replace_file, stamp_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from codemode_mcp.trust.comparison import ServerPins
    from upstream_clients.state_files import Stamp

MAX_FILE_BYTES: Final = 32 * 1024 * 1024
KINDS: Final[frozenset[Kind]] = frozenset(get_args(Kind))


class PinsUnavailable(Exception):
    """Error for pins that cannot be read or written. The message says why, and names the file."""


class PinsDamaged(PinsUnavailable):
    """Error for a file that is not as this version writes it. A person may replace it by accepting items."""


@dataclass(frozen=True, slots=True)
class PinsFolder:
    """The files with the pins of one configuration file.

    Attributes:
        folder: contains a folder for each configuration file. It is created when it is needed.
        config: the path of the configuration file; None for the defaults.
    """

    folder: Path
    config: Path | None

    def path(self, server: str) -> Path:
        """Return the path of the file of a server."""
        return self._own_folder / f"{_name_of(server)}.json"

    @property
    def _own_folder(self) -> Path:
        return self.folder / _name_of("" if self.config is None else os.path.realpath(self.config))

    def servers(self) -> list[str]:
        """Return the names of all servers with readable pins, in alphabetical order."""
        found = []
        with suppress(OSError):
            for path in self._own_folder.glob("*.json"):
                with suppress(PinsUnavailable):
                    pins = _read(path)
                    if pins is not None and self.path(pins.server) == path:
                        found.append(pins.server)
        return sorted(found)

    def stamp(self, server: str) -> Stamp:
        """Return the identity of the present version of a file."""
        return stamp_of(self.path(server))

    def load(self, server: str) -> ServerPins | None:
        """Return the pins of a server; None if it has none.

        Raises:
            PinsDamaged: the file is damaged.
            PinsUnavailable: the file cannot be read, or others can change it.
        """
        path = self.path(server)
        pins = _read(path)
        if pins is not None and pins.server != server:
            raise PinsDamaged(f"the pins of server {server!r} in {path} are those of another server")
        return pins

    def update(self, server: str, change: Callable[[ServerPins | None], ServerPins]) -> ServerPins:
        """Change the pins of a server, and return the new ones.

        Args:
            change: returns the new pins from the stored ones. Its exceptions are passed on, and nothing is changed.

        Raises:
            PinsDamaged: the file is damaged.
            PinsUnavailable: the file cannot be read or written.
        """
        path = self.path(server)
        try:
            make_private_folder(path.parent)
            with locked(path.with_suffix(".lock")):
                before = self.load(server)
                after = change(before)
                if after != before:
                    replace_file(path, _to_bytes(after))
                return after
        except OSError as error:
            raise PinsUnavailable(f"the pins of server {server!r} cannot be written to {path}: {error}") from error

    def replace_damaged(self, server: str, pins: ServerPins) -> None:
        """Replace a file, whatever is in it. Raises `PinsUnavailable`."""
        path = self.path(server)
        try:
            make_private_folder(path.parent)
            with locked(path.with_suffix(".lock")):
                replace_file(path, _to_bytes(pins))
        except OSError as error:
            raise PinsUnavailable(f"the pins of server {server!r} cannot be written to {path}: {error}") from error

    def forget(self, server: str) -> None:
        """Delete the pins of a server, if it has any. Raises `PinsUnavailable`."""
        path = self.path(server)
        if not path.parent.is_dir():
            return
        try:
            with locked(path.with_suffix(".lock")):
                path.unlink(missing_ok=True)
        except OSError as error:
            raise PinsUnavailable(f"the pins of server {server!r} in {path} cannot be deleted: {error}") from error


def _read(path: Path) -> ServerPins | None:
    try:
        with open_private(path) as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):  # where the folder is a file, nothing can ever have been kept
        return None
    except OSError as error:
        raise PinsUnavailable(f"the pins in {path} cannot be read: {error.strerror or error}") from error
    # Imported late, since most of the time of this import is that of `msgspec`.
    from codemode_mcp.trust.pins_format import decode

    try:
        if len(data) > MAX_FILE_BYTES:
            raise ValueError
        pins = decode(data)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise PinsDamaged(f"the pins in {path} are damaged") from error
    if pins is None:
        raise PinsUnavailable(f"the pins in {path} were written by another version of codemode-mcp")
    return pins


def _to_bytes(pins: ServerPins) -> bytes:
    from codemode_mcp.trust.pins_format import encode

    return encode(pins, MAX_FILE_BYTES)


def _name_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]
