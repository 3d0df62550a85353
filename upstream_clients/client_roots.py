"""The connected clients and their roots: the folders that a client works in (MCP 2025-11-25, Roots)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio

if TYPE_CHECKING:
    from collections.abc import Iterator

    from upstream_clients.tools import JsonObject, RootsFn

ROOTS_SECONDS: Final = 5.0
"""Timeout for a client to name its roots. Without an answer, it has none."""

_NONE: Final[frozenset[str]] = frozenset()


class _Client:
    """One connected client.

    Attributes:
        list_roots: asks the client; None if it cannot be asked outside its requests.
        uris: the URIs of its roots, as far as they are known.
        is_current: False if the client has other roots, which are not known yet.
        answer: its last answer to `roots/list`.
    """

    def __init__(self) -> None:
        self.list_roots: RootsFn | None = None
        self.uris: frozenset[str] | None = None
        self.is_current = True
        self.answer: JsonObject = {"roots": []}
        self.asking = anyio.Lock()


class ClientRoots:
    """The connected clients by their keys, in the order in which they came.

    The key None is for the only client of a process.
    """

    def __init__(self) -> None:
        self._clients: dict[str | None, _Client] = {}

    def __contains__(self, client: str | None) -> bool:
        return client in self._clients

    def __iter__(self) -> Iterator[str | None]:
        return iter(self._clients)

    def offer(self, client: str | None, list_roots: RootsFn | None) -> None:
        """Note a connected client; see `_Client.list_roots`."""
        self._clients.setdefault(client, _Client()).list_roots = list_roots

    def forget(self, client: str | None) -> None:
        """Note that a client has left."""
        self._clients.pop(client, None)

    def can_list(self, client: str | None) -> bool:
        """Return True if a client is connected, and can be asked for its roots outside its requests."""
        known = self._clients.get(client)
        return known is not None and known.list_roots is not None

    def uris(self, client: str | None) -> frozenset[str] | None:
        """Return the roots of a connected client; None while they are not known. Raises `KeyError`."""
        known = self._clients[client]
        if known.list_roots is None:
            return known.uris or _NONE
        return known.uris if known.is_current else None

    def last_uris(self, client: str | None) -> frozenset[str] | None:
        """Return the last known roots of a connected client, which it may still have. Raises `KeyError`."""
        known = self._clients[client]
        return known.uris or _NONE if known.list_roots is None else known.uris

    def changed(self, client: str | None) -> bool:
        """Note that a client has reported other roots. Return True if its earlier roots were known."""
        known = self._clients.get(client)
        if known is None or known.uris is None:
            return False
        known.is_current = False
        return True

    def note(self, client: str | None, answer: JsonObject) -> None:
        """Note the answer of a client to `roots/list`."""
        if (known := self._clients.get(client)) is not None:
            known.uris, known.is_current, known.answer = _uris(answer), True, answer

    async def learn(self, client: str | None) -> None:
        """Ask a client for its roots if they are not known, within `ROOTS_SECONDS`."""
        if (known := self._clients.get(client)) is not None:
            async with known.asking:  # several calls may wait for one answer
                if client in self._clients and self.uris(client) is None:
                    await self._ask(client, known)

    async def ask(self, client: str | None) -> JsonObject:
        """Ask a client for its roots, within `ROOTS_SECONDS`. Return the result of `roots/list`.

        A client that cannot be asked now has the roots that it has named during its calls.
        """
        known = self._clients.get(client)
        if known is None:
            return {"roots": []}
        async with known.asking:
            return await self._ask(client, known)

    async def _ask(self, client: str | None, known: _Client) -> JsonObject:
        if known.list_roots is None:
            return known.answer
        answer: JsonObject = {"roots": []}
        with anyio.move_on_after(ROOTS_SECONDS):
            answer = await known.list_roots()
        self.note(client, answer)
        return answer


def _uris(answer: JsonObject) -> frozenset[str]:
    roots = answer.get("roots")
    named = [root.get("uri") for root in roots if isinstance(root, dict)] if isinstance(roots, list) else []
    return frozenset(uri for uri in named if isinstance(uri, str))
