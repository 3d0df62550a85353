"""Secrets of servers in the system keyring, or in files in its place, and the references to them."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from codemode_mcp.config import secret_files
from upstream_clients import keychain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from codemode_mcp.cli.adding.proposal import Setting


def can_keep() -> bool:
    """Return True if this system has a keyring that protects secrets."""
    return keychain.protects()


def reference(server: str, setting: Setting) -> dict[str, str]:
    """Return the reference to a secret for the configuration, if no other entry has its name."""
    return {"keyring": f"{server}/{setting.name}"}


def store(server: str, values: Mapping[Setting, str]) -> dict[Setting, dict[str, str]]:
    """Store secrets, in files if no keyring protects them. Return their references for the configuration.

    Raises:
        NoKeychain: one cannot be stored. Then none is.
    """
    references: dict[Setting, dict[str, str]] = {}
    in_keyring = can_keep()
    try:
        for setting, value in values.items():
            name = _free_name(reference(server, setting)["keyring"], in_keyring=in_keyring)
            references[setting] = {"keyring": name}
            if not in_keyring:
                secret_files.write(name, value)
                continue
            keychain.write(keychain.SECRETS, name, value)
            if keychain.read(keychain.SECRETS, name) != value:
                raise keychain.NoKeychain("the system keyring does not return what it has stored")
    except keychain.NoKeychain:
        forget(each["keyring"] for each in references.values())
        raise
    return references


def forget(names: Iterable[str]) -> list[str]:
    """Delete stored secrets. Return the names of those that could not be deleted."""
    left = []
    for name in names:
        try:
            if not secret_files.remove(name):
                keychain.remove(keychain.SECRETS, name)
        except keychain.NoKeychain:
            left.append(name)
    return left


def names_in(value: Any) -> Iterator[str]:
    """Yield the names of the keyring entries to which a part of a configuration refers."""
    pending = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, dict):
            if isinstance(each.get("keyring"), str):
                yield each["keyring"]
            pending += each.values()
        elif isinstance(each, list):
            pending += each


def _free_name(name: str, *, in_keyring: bool) -> str:
    """Return a name that no secret has: another configuration may have a server of the same name."""
    for number in count(1):
        numbered = name if number == 1 else f"{name}-{number}"
        is_taken = secret_files.read(numbered) is not None
        if not is_taken and not (in_keyring and keychain.read(keychain.SECRETS, numbered) is not None):
            return numbered
    raise AssertionError
