"""The system keyring (Keychain, Credential Manager, Secret Service), where there is one.

Every function blocks, perhaps until a person has unlocked the keyring. Call them in a thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

SECRETS = "codemode-mcp"
"""The service of values that people store themselves."""

LOGINS = "codemode-mcp login"
"""The service of logins. A name in the configuration cannot reach them."""

_MIN_PRIORITY = 1
"""Priority of a backend that protects its entries. Backends that write plain files have less."""


class NoKeychain(Exception):
    """The keyring cannot be used, or has refused the request. The text says why."""


def protects() -> bool:
    """Return True if this system has a keyring that protects logins."""
    try:
        return float(_backend().priority) >= _MIN_PRIORITY
    except NoKeychain:
        return False


def read(service: str, user: str) -> str | None:
    """Return an entry, if there is one. Raises `NoKeychain`."""
    found: str | None = _guarded(lambda backend: backend.get_password(service, user))
    return found


def write(service: str, user: str, value: str) -> None:
    """Store an entry. Raises `NoKeychain`, also for a value that is too long for this keyring."""
    _guarded(lambda backend: backend.set_password(service, user, value))


def remove(service: str, user: str) -> None:
    """Delete an entry, if there is one. Raises `NoKeychain`."""
    from keyring.errors import PasswordDeleteError

    def delete(backend: KeyringBackend) -> None:
        try:
            backend.delete_password(service, user)
        except PasswordDeleteError:
            if backend.get_password(service, user) is not None:
                raise

    _guarded(delete)


def _backend() -> KeyringBackend:
    try:
        import keyring  # takes almost 0.1 s, and few need it
        from keyring.backends import fail, null

        backend = keyring.get_keyring()
    except Exception as error:  # loads backends of all kinds
        raise NoKeychain(f"the system keyring cannot be used ({type(error).__name__})") from None
    if isinstance(backend, fail.Keyring | null.Keyring):
        raise NoKeychain("this system has no keyring that can be used")
    return backend


def _guarded(action: Any) -> Any:
    backend = _backend()
    try:
        return action(backend)
    except Exception as error:  # from D-Bus, Windows or macOS; its text might quote the value
        raise NoKeychain(f"the system keyring refused ({type(error).__name__})") from None
