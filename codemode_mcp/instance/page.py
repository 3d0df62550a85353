"""The page of the shared instance. It shows all applications of the instance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio

from codemode_mcp.control.protocol import BadMessage
from codemode_mcp.instance.hello import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anyio.abc import TaskGroup

    from codemode_mcp.app.app import App
    from codemode_mcp.page.listener import Page
    from codemode_mcp.settings import UiSettings

UNUSED_SECONDS: Final = 600.0
"""Seconds without a browser after which the page no longer keeps its application open."""

POLL_SECONDS: Final = 5.0
"""Interval of looks whether a browser shows the page."""


class InstancePage:
    """The page, which is imported and opened when a person asks for it.

    Args:
        applications: returns the open applications.
        connected: returns the connected clients, as JSON.
    """

    def __init__(
        self, applications: Callable[[], Sequence[App]], connected: Callable[[], list[dict[str, Any]]]
    ) -> None:
        self._connected = connected
        self._applications = applications
        self._page: Page | None = None

    def address_of(self, run_id: str) -> str | None:
        """Return the address of the page about the approvals of a run; None if the page is not open."""
        return None if self._page is None else self._page.address_of(run_id)

    async def admit(self, settings: UiSettings, group: TaskGroup) -> dict[str, Any]:
        """Return the address of the page and a token for one browser, as JSON. Raise `Refusal`."""
        from codemode_mcp.page.listener import Page

        if self._page is None:
            self._page = Page(self._applications, self._connected)
        try:
            return await self._page.admit(settings, group)
        except BadMessage as error:
            raise Refusal("failed", str(error)) from None

    async def unused(self) -> None:
        """Wait until no browser has shown the page for `UNUSED_SECONDS`."""
        left = UNUSED_SECONDS
        while left > 0:
            await anyio.sleep(POLL_SECONDS)
            left = UNUSED_SECONDS if self._page is not None and self._page.is_watched else left - POLL_SECONDS
