"""The servers of an application and the definitions of their tools, as a person sees them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.audit.redaction import without_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.catalog.saved_programs.versions import Definition
    from codemode_mcp.server.services import App
    from upstream_clients.pool import UpstreamPool
    from upstream_clients.server_log import LogLine
    from upstream_clients.tools import UpstreamView


MAX_PROBLEMS: Final = 20
"""Problems of a server's lists in one report."""

MAX_TEXT: Final = 200
"""Characters of a name or version that a server has chosen."""


class ServerControl:
    """The servers of one application, as `server.control.protocol.Servers`."""

    def __init__(self, app: App, pool: UpstreamPool) -> None:
        self._app = app
        self._pool = pool

    def reports(self) -> list[dict[str, Any]]:
        usable = {view.name: view for view in self._app.trusted_views()}
        found = [self._report(view, usable.get(view.name, view)) for view in self._pool.views()]
        return found + [{**_DISABLED, "name": name} for name in self._app.config.disabled]

    def number_of(self, name: str) -> int | None:
        try:
            return self._pool.status(name).number
        except KeyError:
            return None

    def lines_after(self, name: str, number: int) -> list[dict[str, Any]]:
        """Return the latest lines of a server after a number, as JSON. Raise `KeyError` for an unknown server."""
        return [
            {"number": line.number, "time": line.time, "source": line.source, "text": self._shown(line.text)}
            for line in self._pool.status(name).log.after(number)
        ]

    def latest_lines(self) -> dict[int, int]:
        found = (self._pool.status(view.name) for view in self._pool.views())
        return {status.number: status.log.count for status in found}

    def restart(self, name: str, by: str) -> None:
        """End the processes and calls of a server, and start it again. Raise `KeyError` for an unknown server."""
        self._pool.restart(name, f"server {name!r} was restarted by {by}")
        self._app.auditor.emit("server_restarted", name, by=by)

    def _report(self, view: UpstreamView, usable: UpstreamView) -> dict[str, Any]:
        status, spec = self._pool.status(view.name), self._pool.spec(view.name)
        return {
            "name": view.name,
            "number": status.number,
            "state": view.state,
            "transport": spec.transport,
            "era": view.era,
            "protocolVersion": None if spec.is_api else view.protocol_version,
            "serverName": _short(view.server_name),
            "serverVersion": _short(view.server_version),
            "tools": len(usable.tools),
            "held": len(usable.withheld),
            "pids": list(status.pids),
            "calls": status.calls,
            "uptimeSeconds": None if status.ready_seconds is None else round(status.ready_seconds),
            "error": None if view.error is None else self._shown(view.error),
            "lastError": self._last_error(status.log.last_error),
            "loginRequired": view.login_required,
            "loggedIn": view.logged_in,
            "problems": [self._shown(each) for each in view.problems[:MAX_PROBLEMS]],
        }

    def _last_error(self, line: LogLine | None) -> dict[str, Any] | None:
        if line is None:
            return None
        return {"text": self._shown(line.text), "secondsAgo": max(0, round(time.time() - line.time))}

    def _shown(self, text: str) -> str:
        return without_tokens(self._app.redact.own(text))


_DISABLED: Final[Mapping[str, Any]] = {
    "number": None,
    "state": "disabled",
    "transport": None,
    "era": None,
    "protocolVersion": None,
    "serverName": None,
    "serverVersion": None,
    "tools": 0,
    "held": 0,
    "pids": [],
    "calls": 0,
    "uptimeSeconds": None,
    "error": None,
    "lastError": None,
    "loginRequired": False,
    "loggedIn": False,
    "problems": [],
}


def _short(text: str | None) -> str | None:
    return None if text is None else text[:MAX_TEXT]


class LiveDefinitions:
    """The implementation of `version_keeper.Definitions` by a catalog.

    Args:
        catalog: returns the present catalog.
        servers: returns the configured names of servers, by identifier.
        views: returns the views of servers.
    """

    def __init__(
        self,
        catalog: Callable[[], Catalog],
        servers: Callable[[], Mapping[str, str]],
        views: Callable[[], Sequence[UpstreamView]],
    ) -> None:
        self._catalog = catalog
        self._servers = servers
        self._views = views

    def at(self, path: str) -> Definition | None:
        return self._catalog().definition_at(path)

    def present(self) -> object:
        """Return the present catalog, which is another object after each change."""
        return self._catalog()

    def is_known(self, path: str) -> bool:
        identifier = path.removeprefix("MCP.").partition(".")[0]
        name = self._servers().get(identifier)
        return name is None or any(view.name == name and view.is_listed for view in self._views())
