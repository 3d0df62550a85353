"""The system keyring (Keychain, Credential Manager, Secret Service), where there is one.

Every function blocks, perhaps until a person has unlocked it: call them in a thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

SECRETS = "codemode-mcp"
"""The service under which people put values of their own."""

LOGINS = "codemode-mcp login"
"""The service under which logins are kept: a name in the configuration cannot reach them."""

_TRUSTED = 1
"""Least priority of a backend that protects what it keeps; those that write plain files have less."""


class NoKeychain(Exception):
    """There is no keyring to use, or it refused; the text says why."""


def protects() -> bool:
    """Return True if this system has a keyring that logins can be kept in."""
    try:
        return float(_backend().priority) >= _TRUSTED
    except NoKeychain:
        return False


def read(service: str, user: str) -> str | None:
    """Return the entry, if there is one. Raises `NoKeychain`."""
    found: str | None = _guarded(lambda backend: backend.get_password(service, user))
    return found


def write(service: str, user: str, value: str) -> None:
    """Raises `NoKeychain`, also for a value that is too long for this keyring."""
    _guarded(lambda backend: backend.set_password(service, user, value))


def remove(service: str, user: str) -> None:
    """Raises `NoKeychain`; an entry that does not exist is no error."""
    from keyring.errors import PasswordDeleteError

    def delete(backend: KeyringBackend) -> None:
        try:
            backend.delete_password(service, user)
        except PasswordDeleteError:
            if backend.get_password(service, user) is not None:
                raise

    _guarded(delete)


def _backend() -> KeyringBackend:
    # Most of a tenth of a second, and needed by few.
    try:
        import keyring
        from keyring.backends import fail, null

        backend = keyring.get_keyring()
    except Exception as error:  # backends of all kinds are loaded here
        raise NoKeychain(f"the system keyring cannot be used ({type(error).__name__})") from None
    if isinstance(backend, fail.Keyring | null.Keyring):
        raise NoKeychain("this system has no keyring that can be used")
    return backend


def _guarded(action: Any) -> Any:
    backend = _backend()
    try:
        return action(backend)
    except Exception as error:  # of D-Bus, Windows, macOS; their texts might quote the value
        raise NoKeychain(f"the system keyring refused ({type(error).__name__})") from None
