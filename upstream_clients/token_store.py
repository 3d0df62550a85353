"""The store of logins: the system keyring, or else a file that only the user can read.

Each login has its own file in a folder of the user, even if its tokens are in the keyring. Other processes notice a new
login by the change of this file, without asking the keyring. Functions that use the disk block.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Literal

import anyio
import msgspec
import platformdirs
from msgspec import Struct, structs

from upstream_clients import keychain
from upstream_clients.errors import StoreError
from upstream_clients.private_files import NO_LINK, make_private_folder, replace_file, try_lock
from upstream_clients.spec import OAuthSettings, UpstreamSpec

LOCK_TIMEOUT = 30.0
"""Seconds that a process waits for another process that renews the same login."""

_LOCK_POLL_INTERVAL = 0.02
_VERSION = 1
_MAX_FILE_BYTES = 1024 * 1024

Place = Literal["keyring", "file"]

Stamp = tuple[int, ...] | None
"""A value that changes whenever a login does; None without a login."""


class Login(Struct, frozen=True):
    """A login. Only its existence is ever shown.

    Attributes:
        access_token: None after the login has ended. The other fields are still useful for the next login.
        expires_at: seconds since the epoch; None if the server has not named a time.
        scope: granted scopes, separated by spaces.
        wanted: scopes that the server has required since the login. The next login requests them too.
        token_endpoint: address for renewals. It is found and checked at the login, and never looked up again.
        client_secret: secret of a client that was registered for this login. A configured secret is not stored here.
        resource: the resource indicator (RFC 8707) that the tokens are for.
    """

    access_token: str | None = None
    refresh_token: str | None = None
    expires_at: float | None = None
    scope: str | None = None
    wanted: str | None = None
    issuer: str | None = None
    token_endpoint: str | None = None
    revocation_endpoint: str | None = None
    client_id: str | None = None
    client_secret: str | None = None
    auth_method: str | None = None
    resource: str | None = None

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(value for value in (self.access_token, self.refresh_token, self.client_secret) if value)

    def __repr__(self) -> str:
        return f"<Login at {self.issuer}>"


def logins_folder() -> Path:
    return Path(platformdirs.user_data_dir("codemode-mcp", appauthor=False)) / "logins"


class LoginStore:
    """The stored login to one server. Its key is a hash of the server's name, address and OAuth settings."""

    def __init__(self, spec: UpstreamSpec, folder: Path | None = None) -> None:
        settings = spec.oauth or OAuthSettings()
        definition = [spec.name, spec.url, settings.client_id, settings.client_metadata_url, settings.scopes]
        if spec.document is not None:
            definition += [spec.document, settings.authorization_url, settings.token_url]
        self._key = hashlib.sha256(json.dumps(definition).encode()).hexdigest()[:32]
        self._server = spec.name
        self._folder = folder or logins_folder()
        self._path = self._folder / f"{self._key}.json"

    @property
    def path(self) -> Path:
        return self._path

    def stamp(self) -> Stamp:
        """Return the stamp of the stored login. Cheap enough for every request."""
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_size)

    def load(self) -> Login | None:
        """Return the stored login, if there is one.

        Raises:
            StoreError: the login cannot be read, or other users can read it.
        """
        try:
            text = self._read_private()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"{self._path} cannot be read: {error.strerror}") from None
        try:
            record = json.loads(text)
            if record["kept"] == "keyring":
                record = json.loads(keychain.read(keychain.LOGINS, self._key) or "{}")
            login = record.get("login")
            return None if login is None else msgspec.convert(login, Login)
        except keychain.NoKeychain as error:
            raise StoreError(f"the login to server {self._server!r} is in the keyring, but {error}") from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise StoreError(f"{self._path} is damaged; delete it and log in again") from None

    def save(self, login: Login) -> Place:
        """Store a login, or leave the old one unchanged. Return the place of the login. Raises `StoreError`."""
        # The keyring comes first: other processes read it as soon as the file changes.
        content = {"login": structs.asdict(login)}
        kept: Place = "file"
        if keychain.protects():
            with suppress(keychain.NoKeychain):  # the keyring is locked, or the tokens are too long for it
                text = json.dumps(content)
                keychain.write(keychain.LOGINS, self._key, text)
                # With a keyring that stores but does not return values, every process would need a new login.
                if keychain.read(keychain.LOGINS, self._key) == text:
                    kept = "keyring"
        # `change` makes each version of the file differ, also when the tokens are in the keyring.
        public = {"version": _VERSION, "server": self._server, "kept": kept, "change": secrets.token_hex(8)}
        try:
            self._write_private(json.dumps(public | (content if kept == "file" else {})))
        except OSError as error:
            raise StoreError(f"the login cannot be stored in {self._folder}: {error.strerror}") from None
        return kept

    def forget(self) -> bool:
        """Delete the login. Return False if there was none. Raises `StoreError`."""
        try:
            in_keyring = json.loads(self._read_private()).get("kept") == "keyring"
        except FileNotFoundError:
            return False
        except (OSError, StoreError, ValueError, AttributeError):
            in_keyring = False
        try:
            if in_keyring:
                keychain.remove(keychain.LOGINS, self._key)
            self._path.unlink(missing_ok=True)
        except keychain.NoKeychain as error:
            raise StoreError(f"the login to server {self._server!r} stays in the keyring: {error}") from None
        except OSError as error:
            raise StoreError(f"{self._path} cannot be deleted: {error.strerror}") from None
        return True

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Lock this login against renewals in other processes and tasks. Raises `StoreError` after `LOCK_TIMEOUT`."""
        try:
            self._make_folder()
            descriptor = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | NO_LINK, 0o600)
        except OSError as error:
            raise StoreError(f"logins cannot be stored in {self._folder}: {error.strerror}") from None
        try:
            with anyio.move_on_after(LOCK_TIMEOUT) as waiting:
                while not try_lock(descriptor):  # noqa: ASYNC110 - another process has no event to wait on
                    await anyio.sleep(_LOCK_POLL_INTERVAL)
            if waiting.cancelled_caught:
                raise StoreError(f"another process has held the login to server {self._server!r} for too long")
            yield
        finally:
            os.close(descriptor)  # releases the lock

    def _make_folder(self) -> None:
        make_private_folder(self._folder)

    def _read_private(self) -> str:
        descriptor = os.open(self._path, os.O_RDONLY | NO_LINK | getattr(os, "O_NONBLOCK", 0))  # a pipe would wait
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise StoreError(f"{self._path} is not a regular file; delete it and log in again")
            if sys.platform != "win32":
                for where, found, mode in (
                    (self._path, os.fstat(descriptor), 0o600),
                    (self._folder, os.stat(self._folder), 0o700),
                ):
                    if found.st_uid != os.getuid():
                        raise StoreError(f"{where} belongs to another user; delete it and log in again")
                    if stat.S_IMODE(found.st_mode) & 0o077:
                        raise StoreError(
                            f"{where} can be read by other users, so it is not used; "
                            f"run chmod {mode:o} on it, and log in again if others may have seen it"
                        )
            return file.read(_MAX_FILE_BYTES).decode("utf-8", "replace")

    def _write_private(self, text: str) -> None:
        self._make_folder()
        if sys.platform != "win32" and stat.S_IMODE(os.stat(self._folder).st_mode) & 0o077:
            raise StoreError(f"{self._folder} is open to other users; run chmod 700 on it")
        # So that a crash or a reader never sees half of a login.
        replace_file(self._path, text.encode())
