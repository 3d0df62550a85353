"""The parts of a server beside its entry: pins, a login, stored secrets, and rules that name it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from codemode_mcp.cli.adding import keyring_entries, pins
from codemode_mcp.cli.adding.proposal import Refused
from codemode_mcp.cli.adding.trial import spec_of
from codemode_mcp.config.servers import ROOT_KEYS
from codemode_mcp.trust.lock_file import LockFileError, lock_path, read_lock_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from upstream_clients.spec import UpstreamSpec


def login_spec(name: str, entry: Mapping[str, Any], folder: Path) -> UpstreamSpec | None:
    """Return the spec of a server that has a stored login; None if it has none, or its entry does not load."""
    from upstream_clients.token_store import LoginStore

    if "command" in entry:
        return None
    try:
        spec = spec_of(name, entry, folder)
    except Refused:
        return None
    return spec if not spec.is_process and LoginStore(spec).stamp() is not None else None


def own_secrets(name: str, value: Any) -> list[str]:
    """Return the names of the stored secrets to which only the entry of a server refers.

    Args:
        value: the value of the configuration.
    """
    own: set[str] = set()
    others: set[str] = set()
    for key, part in value.items():
        if key not in ROOT_KEYS or not isinstance(part, dict):
            others.update(keyring_entries.names_in(part))
            continue
        for server, entry in part.items():
            (own if server == name else others).update(keyring_entries.names_in(entry))
    return sorted(own - others)


def forget(name: str, path: Path, spec: UpstreamSpec | None, secrets: list[str]) -> Iterator[str]:
    """Delete the pins, the login and the secrets of a server. Yield a sentence for each that is left.

    Args:
        spec: the server, if it has a login to delete.
        secrets: the names of stored secrets to delete.
    """
    from codemode_mcp.cli.browser_login import log_out
    from upstream_clients.errors import LoginError

    if not pins.forget_pins(name, path):
        yield "its pins could not be deleted; a new server of this name is compared with them"
    if spec is not None:
        try:
            anyio.run(log_out, spec)
        except LoginError as error:
            yield f"its login is left: {spec.redact(str(error))}"
    for each in keyring_entries.forget(secrets):
        yield f"the secret {each} could not be deleted"


def left_behind(name: str, value: Any, path: Path) -> Iterator[str]:
    """Yield a sentence for each part of the configuration that still names a server after its entry is gone."""
    for key, part in value.items():
        count = sum(f":{name}:" in text for text in _strings(part)) if key not in ROOT_KEYS else 0
        if count:
            yield f"section `{key}` still names it {count} times; such rules apply again to a new server of this name"
    lock = lock_path(path)
    if lock.exists():
        try:
            is_locked = name in read_lock_file(lock).servers
        except LockFileError:
            is_locked = False
        if is_locked:
            yield f"{lock} still has it; codemode-mcp trust lock writes that file again"


def _strings(value: Any) -> Iterator[str]:
    pending = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            pending += [*each.keys(), *each.values()]
        elif isinstance(each, list):
            pending += each
