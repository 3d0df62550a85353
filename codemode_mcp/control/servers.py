"""The servers of an application, as the control socket reports and restarts them, and the choice of one report for a
server that several applications share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Servers(Protocol):
    """The servers of one application. `app.server_control` implements it."""

    def reports(self) -> list[dict[str, Any]]:
        """Return facts about all servers, as JSON.

        `number` identifies a server among all servers of this process; it is None for a disabled server.
        """
        ...

    def number_of(self, name: str) -> int | None:
        """Return the number of a server; None for an unknown or disabled server."""
        ...

    def lines_after(self, name: str, number: int) -> list[dict[str, Any]]:
        """Return the latest lines of a server after a number, as JSON. Raise `KeyError` for an unknown server."""
        ...

    def latest_lines(self) -> dict[int, int]:
        """Return the number of the latest line of each server, by the number of the server."""
        ...

    def restart(self, name: str, by: str) -> None:
        """End the processes and calls of a server, and start it again. Raise `KeyError` for an unknown server.

        Args:
            by: the person who restarts it, in words.
        """
        ...


class HasServers(Protocol):
    """An application that can tell its servers; see `answers.Control`."""

    def number_of(self, server: str) -> int | None: ...


Application = TypeVar("Application", bound=HasServers)


def holders(applications: Iterable[Application], server: str) -> list[Application]:
    """Return the applications that have a server of this name, without those that only share one with an earlier one.

    Applications whose configurations define the server differently have different servers of the same name.
    """
    found: dict[int, Application] = {}
    for application in applications:
        number = application.number_of(server)
        if number is not None:
            found.setdefault(number, application)
    return [*found.values()]


def merged_servers(reports: Iterable[Iterable[Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    """Return the servers of several applications of one process. A server that they share is listed once."""
    found: dict[tuple[str, int | None], Mapping[str, Any]] = {}
    for servers in reports:
        for server in servers:
            found.setdefault((server["name"], server["number"]), server)
    return [*found.values()]
