"""The files with the pins of servers. The functions block on disk operations.

Each server of a configuration file has its own file. Several processes may use it, so a file is changed under a lock,
and replaced in one step. A definition that is both accepted and present is written once. If a file would be too large,
it is written without definitions, so that only the digests are compared.

The identifiers of servers in programs are in one file for all of them, because they depend on each other.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, get_args

from codemode_mcp.trust.items import Kind
from declarations.names import NOTHING_KEPT, identifiers
from upstream_clients.private_files import exposure, make_private_folder, open_private
from upstream_clients.state_files import locked, replace_file, stamp_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from codemode_mcp.trust.comparison import ServerPins
    from upstream_clients.state_files import Stamp

log = logging.getLogger("codemode_mcp.trust")

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
            _check_folder(path)
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
            self._change_names(lambda names: {name: names[name] for name in names if name != server})
        except OSError as error:
            raise PinsUnavailable(f"the pins of server {server!r} in {path} cannot be deleted: {error}") from error

    # the identifiers of servers in programs

    @property
    def _names_path(self) -> Path:
        return self._own_folder / "server-names"

    def server_names(
        self, enabled: Sequence[str], disabled: Iterable[str] = (), known: Mapping[str, str] = NOTHING_KEPT
    ) -> dict[str, str]:
        """Return the identifiers of servers in programs, as `names_of` does.

        Args:
            known: identifiers that are perhaps not stored yet.
        """
        return names_of(enabled, disabled, {**known, **self.stored_names()}, lambda name: self.path(name).exists())

    def stored_names(self) -> dict[str, str]:
        """Return the stored identifiers of servers. If they cannot be read, there are none."""
        try:
            with open_private(self._names_path) as file:
                found = json.loads(file.read(MAX_FILE_BYTES))
            return {str(name): str(identifier) for name, identifier in found.items()}
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, ValueError, AttributeError, RecursionError) as error:
            log.warning("%s cannot be read, so names of servers may change: %s", self._names_path, error)
            return {}

    def keep_names(self, names: Mapping[str, str]) -> None:
        """Store the identifiers of servers, unless others are stored for them. Raises `PinsUnavailable`."""

        def merged(stored: Mapping[str, str]) -> dict[str, str]:
            given = set(names.values())
            others = {name: each for name, each in stored.items() if name in names or each not in given}
            return {**names, **others}

        try:
            make_private_folder(self._own_folder)
            self._change_names(merged)
        except OSError as error:
            raise PinsUnavailable(f"the names of servers cannot be written to {self._names_path}: {error}") from error

    def _change_names(self, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
        with locked(self._names_path.with_suffix(".lock")):
            before = self.stored_names()
            after = change(before)
            if after != before:
                replace_file(self._names_path, json.dumps(after).encode())


def names_of(
    enabled: Sequence[str], disabled: Iterable[str], stored: Mapping[str, str], is_known: Callable[[str], bool]
) -> dict[str, str]:
    """Return the identifiers of enabled servers in programs, and those that disabled ones had.

    A server keeps the identifier that it has had. Of the others, those that were known before come first, and then the
    earlier one in the configuration.

    Args:
        enabled: the names of servers, in the order of the configuration.
        stored: identifiers, by the name of the server.
        is_known: returns True for a server that was listed before identifiers were stored.
    """
    kept = {name: stored[name] for name in (*enabled, *disabled) if name in stored}
    known = [name for name in enabled if name not in kept and is_known(name)]
    kept |= identifiers(known, kind="server", kept=kept)
    return {**kept, **identifiers(enabled, kind="server", kept=kept, in_order=True)}


def _check_folder(path: Path) -> None:
    """Raise `PinsUnavailable` if another user could delete or replace a file; `OSError` if that cannot be found out.

    Without its file, a server has a new first list, which is accepted.
    """
    why = exposure(path.parent)
    if why is not None:
        raise PinsUnavailable(f"the pins in {path} are not used, because {why}; make its folders yours alone")


def _read(path: Path) -> ServerPins | None:
    try:
        _check_folder(path)
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
