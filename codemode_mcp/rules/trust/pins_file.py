"""The files with the pins of servers, and the lock file. The functions block on disk operations.

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
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, get_args

import msgspec
from msgspec import Struct, field, structs

from codemode_mcp.base.errors import ConfigError
from codemode_mcp.base.strict_json import Form, parse_json
from codemode_mcp.rules.trust.comparison import Acceptance, Listing, Mode, ServerPins, baseline_of
from codemode_mcp.rules.trust.items import ENTRY_KEY, SERVER_KEY, Item, Key, Kind
from declarations.names import NOTHING_KEPT, identifiers, is_displaced
from upstream_clients import private_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path


log = logging.getLogger("codemode_mcp.rules.trust")

MAX_FILE_BYTES: Final = 32 * 1024 * 1024
KINDS: Final[frozenset[Kind]] = frozenset(get_args(Kind))


class PinsUnavailable(Exception):
    """Error for pins that cannot be read or written. The message says why, and names the file."""


class PinsDamaged(PinsUnavailable):
    """Error for a file that is not as this version writes it. A person may replace it by accepting items."""


class PinsFolder(Struct, frozen=True):
    """The files with the pins of one configuration file.

    Attributes:
        folder: contains a folder for each configuration file. It is created when it is needed.
        config: the path of the configuration file; None for the defaults.
    """

    folder: Path
    config: Path | None

    def path(self, server: str) -> Path:
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

    def stamp(self, server: str) -> private_files.Stamp:
        return private_files.stamp_of(self.path(server))

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
            private_files.make_private_folder(path.parent)
            with private_files.locked(path.with_suffix(".lock")):
                before = self.load(server)
                after = change(before)
                if after != before:
                    private_files.replace_file(path, encode(after))
                return after
        except OSError as error:
            raise PinsUnavailable(f"the pins of server {server!r} cannot be written to {path}: {error}") from error

    def replace_damaged(self, server: str, pins: ServerPins) -> None:
        """Replace a file, whatever is in it. Raises `PinsUnavailable`."""
        path = self.path(server)
        try:
            private_files.make_private_folder(path.parent)
            _check_folder(path)
            with private_files.locked(path.with_suffix(".lock")):
                private_files.replace_file(path, encode(pins))
        except OSError as error:
            raise PinsUnavailable(f"the pins of server {server!r} cannot be written to {path}: {error}") from error

    def forget(self, server: str) -> None:
        """Delete the pins of a server, if it has any. Raises `PinsUnavailable`."""
        path = self.path(server)
        if not path.parent.is_dir():
            return
        try:
            with private_files.locked(path.with_suffix(".lock")):
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
            with private_files.open_private(self._names_path) as file:
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
            private_files.make_private_folder(self._own_folder)
            self._change_names(merged)
        except OSError as error:
            raise PinsUnavailable(f"the names of servers cannot be written to {self._names_path}: {error}") from error

    def _change_names(self, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
        with private_files.locked(self._names_path.with_suffix(".lock")):
            before = self.stored_names()
            after = change(before)
            if after != before:
                private_files.replace_file(self._names_path, json.dumps(after).encode())


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
    why = private_files.exposure(path.parent)
    if why is not None:
        raise PinsUnavailable(f"the pins in {path} are not used, because {why}; make its folders yours alone")


def _read(path: Path) -> ServerPins | None:
    try:
        _check_folder(path)
        with private_files.open_private(path) as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):  # where the folder is a file, nothing can ever have been kept
        return None
    except OSError as error:
        raise PinsUnavailable(f"the pins in {path} cannot be read: {error.strerror or error}") from error
    try:
        if len(data) > MAX_FILE_BYTES:
            raise ValueError
        pins = decode(data)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise PinsDamaged(f"the pins in {path} are damaged") from error
    if pins is None:
        raise PinsUnavailable(f"the pins in {path} were written by another version of codemode-mcp")
    return pins


def _name_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


# Pins in files, as an application uses them: files that fail, and other processes that write them too.


class LoadedPins(NamedTuple):
    """The content of a file.

    Attributes:
        problem: the reason why the file cannot be used. Everything is held then.
        is_damaged: True if the file may be replaced.
    """

    pins: ServerPins | None
    stamp: private_files.Stamp
    problem: str | None = None
    is_damaged: bool = False


def load_pins(folder: PinsFolder, server: str) -> LoadedPins:
    """Return the content of a file. If it cannot be used, everything is held. Blocks."""
    # The stamp is taken first, so that a change during the reading is noticed.
    stamp = folder.stamp(server)
    try:
        return LoadedPins(folder.load(server), stamp)
    except PinsUnavailable as error:
        log.warning("%s; all tools of server %r are held until a person accepts them", error, server)
        is_damaged = isinstance(error, PinsDamaged)
        held = ServerPins(server, baseline=KINDS)
        return LoadedPins(held, stamp, None if is_damaged else str(error), is_damaged)


def store_pins(folder: PinsFolder, pins: ServerPins, mode: Mode) -> tuple[ServerPins, private_files.Stamp]:
    """Write pins, together with what other processes have stored. Blocks."""
    try:
        after = folder.update(pins.server, lambda stored: merge_pins(stored, pins, mode))
    except PinsDamaged:
        folder.replace_damaged(pins.server, pins)
        after = pins
    return after, folder.stamp(pins.server)


def load_changed_pins(folder: PinsFolder, known: Mapping[str, private_files.Stamp]) -> dict[str, LoadedPins]:
    """Return the content of the files that are no longer in a known version, by server. Blocks."""
    return {name: load_pins(folder, name) for name, stamp in known.items() if folder.stamp(name) != stamp}


def merge_pins(stored: ServerPins | None, own: ServerPins, mode: Mode) -> ServerPins:
    """Return the stored pins together with the listing that this process has seen."""
    if stored is None:
        return own
    if mode == "follow":
        return structs.replace(stored, names=own.names)
    refused = own.baseline - own.present.complete
    merged = baseline_of(stored, own.server, own.present, mode, logged_in=own.logged_in, refused=refused)
    return structs.replace(merged, present=stored.present) if stored.present.has_same_items(own.present) else merged


# The content of a file with the pins of a server, as JSON.


PINS_FORMAT: Final = 3

_READABLE_PINS: Final = (1, 2, PINS_FORMAT)
"""Formats that this version reads. Format 1 has no entries of the configuration, and format 2 has no identifiers."""

_Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]

_DigestIfAny = Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{64})?$")]
"""Empty for a definition that is nested too deeply to be compared."""


class _StoredItem(Form, omit_defaults=True):
    """An item. `definition` is not set if the definition is not stored, or if it is that of the accepted item."""

    kind: Kind
    name: str
    digest: _DigestIfAny
    shape: _DigestIfAny
    definition: dict[str, Any] | None = None
    by: str = ""
    at: float = 0.0


class _StoredPins(Form):
    """The content of a file, without its format."""

    server: str
    logged_in: bool
    baseline: list[Kind]
    accepted: list[_StoredItem]
    rejected: dict[_Digest, str]
    present: list[_StoredItem]
    complete: list[Kind]
    seen_at: float
    names: dict[str, str] | None = None
    """None in formats before 3."""
    since: dict[str, float] | None = None
    """None in formats before 3."""


def decode(data: bytes) -> ServerPins | None:
    """Return the pins in a file; None if they have another format.

    Raises:
        Exception: the content is damaged.
    """
    raw = json.loads(data)
    if raw.pop("format") not in _READABLE_PINS:
        return None
    stored = msgspec.convert(raw, _StoredPins)
    accepted = {}
    for each in stored.accepted:
        item = _item(each)
        accepted[item.key] = Acceptance(item, each.by, each.at)
    present = {}
    for each in stored.present:
        known = accepted.get((each.kind, each.name))
        item = _item(each) if known is None or known.item.digest != each.digest else known.item
        present[item.key] = item
    listing = Listing(present, frozenset(stored.complete), stored.seen_at)
    baseline = frozenset(stored.baseline)
    names, since = stored.names or {}, stored.since or {}
    return ServerPins(stored.server, accepted, stored.rejected, listing, stored.logged_in, baseline, names, since)


def encode(pins: ServerPins) -> bytes:
    """Return the content of a file, in at most `MAX_FILE_BYTES`. Raises `OSError` if the digests alone need more."""
    for with_definitions in (True, False):
        accepted = [_stored(each.item, with_definitions, by=each.by, at=each.at) for each in pins.accepted.values()]
        digests = {key: each.item.digest for key, each in pins.accepted.items()}
        present = [
            _stored(item, with_definitions and item.is_comparable and digests.get(key) != item.digest)
            for key, item in pins.present.items.items()
        ]
        stored = _StoredPins(
            server=pins.server,
            logged_in=pins.logged_in,
            baseline=sorted(pins.baseline),
            accepted=accepted,
            rejected=dict(sorted(pins.rejected.items())),
            present=present,
            complete=sorted(pins.present.complete),
            seen_at=pins.present.at,
            names=dict(pins.names),
            since=dict(pins.since),
        )
        # Not by msgspec, which refuses integers of more than 64 bits.
        data = json.dumps({"format": PINS_FORMAT, **msgspec.to_builtins(stored)}).encode()
        if len(data) <= MAX_FILE_BYTES:
            return data
    raise OSError("the list of the server is too large")


def _item(stored: _StoredItem) -> Item:
    return Item(stored.kind, stored.name, stored.definition, stored.digest, stored.shape)


def _stored(item: Item, with_definition: bool, *, by: str = "", at: float = 0.0) -> _StoredItem:
    definition = dict(item.definition) if with_definition and item.definition is not None else None
    return _StoredItem(item.kind, item.name, item.digest, item.shape_digest, definition, by, at)


# The lock file: the digests of what a team has accepted of its servers, for version control.
#
# It stands beside the configuration. It has names and digests only, since definitions could quote secrets. Digests of
# entries of the configuration are made without secrets. The members are sorted, so that two versions can be compared
# and merged. Of servers and tools whose names collide in programs, it has the identifiers with a number.


NAME: Final = "codemode-mcp.lock.json"
FORMAT: Final = 2

_READABLE: Final = (1, FORMAT)
"""Formats that this version reads. Format 1 has no entries of the configuration."""

MAX_BYTES: Final = 8 * 1024 * 1024

_GROUPS: Final[tuple[tuple[str, Kind], ...]] = (("tools", "tool"), ("prompts", "prompt"), ("templates", "template"))
"""Members of a server in the file, and the kind of their items."""


class LockFileError(ConfigError):
    """Error for a lock file that cannot be used."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__((f"{path} {problem}",))


class LockFileMissing(LockFileError):
    """Error for a lock file that does not exist."""


class LockFile(Struct, frozen=True):
    """The accepted items of servers, without their definitions, by the names of the servers.

    Attributes:
        server_names: the identifiers of servers in programs that have another one than their name gives.
        tool_names: those of tools, by the name of the server and the name of the tool.
    """

    servers: Mapping[str, Mapping[Key, Item]]
    server_names: Mapping[str, str] = field(default_factory=dict)
    tool_names: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


class _Digests(Form):
    digest: _Digest
    shape: _Digest


class _Server(Form):
    server: _Digests
    tools: dict[str, _Digests]
    prompts: dict[str, _Digests]
    templates: dict[str, _Digests]
    entry: _Digests | None = None
    """None if the server was listed last by a version without entries. Its entry is not compared then."""
    identifier: str = ""
    """The identifier of the server, if its name gives another one."""
    tool_identifiers: dict[str, str] | None = None
    """The identifiers of tools whose names give other ones."""


class _Content(Form):
    format: int
    servers: dict[str, _Server]


def lock_path(config: Path) -> Path:
    return config.with_name(NAME)


def read_lock_file(path: Path) -> LockFile:
    """Return the content of a lock file.

    Raises:
        LockFileMissing: there is no such file.
        LockFileError: the file cannot be read, or is not a lock file of this format.
    """
    try:
        # A pipe would block the opening.
        with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise LockFileError(path, "is not a regular file")
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise LockFileMissing(path, "does not exist; write it with: codemode-mcp trust lock") from None
    except OSError as error:
        raise LockFileError(path, f"cannot be read: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise LockFileError(path, f"has more than {MAX_BYTES:,} bytes")
    try:
        value = parse_json(data.decode())
        if value["format"] in _READABLE:
            servers = msgspec.convert(value, _Content).servers
            return LockFile(
                {name: _items(each) for name, each in servers.items()},
                {name: each.identifier for name, each in servers.items() if each.identifier},
                {name: each.tool_identifiers or {} for name, each in servers.items()},
            )
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise LockFileError(path, f"is not a lock file: {error}; write it with: codemode-mcp trust lock") from None
    raise LockFileError(
        path,
        f"has format {str(value['format'])[:20]}, and this version of codemode-mcp reads format {FORMAT}; write it "
        "with: codemode-mcp trust lock",
    )


def write_lock_file(path: Path, lock: LockFile) -> bool:
    """Replace a lock file in one step. Return False if it has this content already.

    Raises:
        OSError: the file cannot be written.
    """
    data = lock_text(lock).encode()
    with suppress(OSError):
        if path.read_bytes() == data:
            return False
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return True


def lock_text(lock: LockFile) -> str:
    """Return the text of a lock file. The same items always have the same text."""
    servers = {name: _server_json(items) | _names_json(lock, name) for name, items in sorted(lock.servers.items())}
    return json.dumps({"format": FORMAT, "servers": servers}, indent=2) + "\n"


def _server_json(items: Mapping[Key, Item]) -> dict[str, Any]:
    groups = {
        member: {name: _digests_json(item) for (each, name), item in sorted(items.items()) if each == kind}
        for member, kind in _GROUPS
    }
    entry = {"entry": _digests_json(items[ENTRY_KEY])} if ENTRY_KEY in items else {}
    return {**entry, "server": _digests_json(items[SERVER_KEY]), **groups}


def _names_json(lock: LockFile, server: str) -> dict[str, Any]:
    """Return the identifiers of a server and its tools that their names do not give; nothing in most cases."""
    identifier = lock.server_names.get(server, "")
    tools = {
        name: each
        for name, each in sorted(lock.tool_names.get(server, {}).items())
        if ("tool", name) in lock.servers[server] and is_displaced(name, each)
    }
    shown = {"identifier": identifier} if is_displaced(server, identifier, "server") else {}
    return {**shown, **({"toolIdentifiers": tools} if tools else {})}


def _digests_json(item: Item) -> dict[str, str]:
    return {"digest": item.digest, "shape": item.shape_digest}


def _items(server: _Server) -> Mapping[Key, Item]:
    found = {SERVER_KEY: Item(*SERVER_KEY, None, server.server.digest, server.server.shape)}
    if server.entry is not None:
        found[ENTRY_KEY] = Item(*ENTRY_KEY, None, server.entry.digest, server.entry.shape)
    for member, kind in _GROUPS:
        named: Mapping[str, _Digests] = getattr(server, member)
        for name, each in named.items():
            found[kind, name] = Item(kind, name, None, each.digest, each.shape)
    return found
