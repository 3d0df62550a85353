"""The application as the page needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from codemode_mcp.audit import Auditor
    from codemode_mcp.config import Config
    from codemode_mcp.control.answers import Control
    from upstream_clients.tools import UpstreamView

PERSON = "a person at the page"
"""The source of decisions on the page, for records."""


class Application(Protocol):
    """An open application of this process. `app.App` implements it.

    Attributes:
        control: the answers to requests of terminals; None until everything is open.
        auditor: reports events.
    """

    control: Control | None
    auditor: Auditor

    @property
    def config(self) -> Config: ...

    def server_views(self) -> Sequence[UpstreamView]: ...

    def change(self) -> Any:
        """Return an object that is replaced whenever the catalog or the configuration changes."""
        ...
