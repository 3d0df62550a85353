"""The listener of the page: a loopback port that opens when a person asks for the page, and stays open."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import anyio

from codemode_mcp.extensions.page.guard import Guard
from codemode_mcp.extensions.page.sessions import Sessions, redirect_path
from codemode_mcp.extensions.page.site import Site, build, pages
from codemode_mcp.extensions.page.views import overview, programs, runs, tools, trust
from codemode_mcp.server.control.protocol import BadMessage
from codemode_mcp.server.http.sockets import CannotListen, accept_connections, open_socket

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anyio.abc import TaskGroup, TaskStatus
    from starlette.routing import Route

    from codemode_mcp.base.settings import UiSettings
    from codemode_mcp.server.services import App


log = logging.getLogger("codemode_mcp.extensions.page")

HOST: Final = "127.0.0.1"

MAX_CONNECTIONS: Final = 64
"""Maximum number of open connections. Further ones replace idle ones."""

READ_SECONDS: Final = 10.0
"""Timeout for the headers of a request."""


class Page:
    """The page of a process.

    Args:
        applications: returns the open applications of the process.
        connected: see `Site`.
    """

    def __init__(
        self,
        applications: Callable[[], Sequence[App]],
        connected: Callable[[], list[dict[str, Any]] | None] = lambda: None,
    ) -> None:
        self._sessions = Sessions()
        self._site = Site(applications, connected, self._sessions, time.monotonic)
        self._origin: str | None = None
        self._opening = anyio.Lock()

    def address_of(self, run_id: str) -> str | None:
        """Return the address of the page about the approvals of a run; None if the page is not open."""
        return None if self._origin is None else f"{self._origin}/approvals/{run_id}"

    @property
    def is_watched(self) -> bool:
        """True if a browser shows the page now."""
        return self._site.changes.streams > 0

    async def admit(self, settings: UiSettings, group: TaskGroup) -> dict[str, Any]:
        """Open the page if it is not open. Return its address, and a token with its file for one browser, as JSON.

        Args:
            group: the tasks of the page run in it.

        Raises:
            BadMessage: the page is disabled, or cannot listen.
        """
        if not settings.enabled:
            raise BadMessage("the configuration has ui.enabled: false, so the page cannot be opened")
        async with self._opening:
            if self._origin is None:
                try:
                    await group.start(self._serve, settings.port)
                except CannotListen as error:
                    raise BadMessage(f"the page {error}; change ui.port in the configuration") from None
        token = self._sessions.issue(time.monotonic())
        return {"url": self._origin, "token": token, "file": str(redirect_path(token))}

    async def _serve(self, port: int, *, task_status: TaskStatus[None]) -> None:
        opened = open_socket(HOST, port)
        try:
            port = opened.getsockname()[1]
            application = build(self._site, routes(self._site))
            guard = Guard(application, port, self._sessions, self._site.locked, time.monotonic)
            async with (
                anyio.create_task_group() as self._site.tasks,
                accept_connections(guard, opened, MAX_CONNECTIONS, READ_SECONDS),
            ):
                self._origin = f"http://{HOST}:{port}"
                log.info("the page is open at %s", self._origin)
                task_status.started()
                while True:
                    try:
                        await self._site.changes.run()
                    except Exception:
                        log.exception("changes could not be looked for")
        finally:
            self._origin = None
            with suppress(OSError):
                opened.close()


_ROUTES = (
    overview.routes,
    runs.routes,
    runs.approval_routes,
    overview.server_routes,
    overview.client_routes,
    programs.routes,
    trust.routes,
    tools.routes,
    tools.policy_routes,
    overview.doctor_routes,
)


def routes(site: Site) -> list[Route]:
    return [route for routes_of in (*_ROUTES, *(each.routes for each in pages())) for route in routes_of(site)]
