"""Secrets of servers in the system keyring, and the references to them in the configuration."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

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
    """Store secrets, and return their references for the configuration.

    Raises:
        NoKeychain: one cannot be stored. Then none is.
    """
    references: dict[Setting, dict[str, str]] = {}
    try:
        for setting, value in values.items():
            name = _free_name(reference(server, setting)["keyring"])
            references[setting] = {"keyring": name}
            keychain.write(keychain.SECRETS, name, value)
            if keychain.read(keychain.SECRETS, name) != value:
                raise keychain.NoKeychain("the system keyring does not return what it has stored")
    except keychain.NoKeychain:
        forget(each["keyring"] for each in references.values())
        raise
    return references


def forget(names: Iterable[str]) -> list[str]:
    """Delete entries of the keyring. Return the names of those that could not be deleted."""
    left = []
    for name in names:
        try:
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


def _free_name(name: str) -> str:
    """Return a name that no entry has: another configuration may have a server of the same name."""
    for number in count(1):
        numbered = name if number == 1 else f"{name}-{number}"
        if keychain.read(keychain.SECRETS, numbered) is None:
            return numbered
    raise AssertionError
