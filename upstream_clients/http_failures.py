"""Failures of an HTTP client, for the task that owns the connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from upstream_clients.token_store import Stamp


@dataclass(slots=True)
class HttpWatch:
    """The latest failures.

    Attributes:
        on_lost: called when the connection cannot be used any more and no call gets an error for it.
        refused_status: HTTP status of the latest POST that was refused.
        failure: reason of the latest failed POST, for a person.
        logged_out: the latest request was refused because a login is needed first.
        login: stamp of the login that this request was made with; another login is a reason to try again.
    """

    on_lost: Callable[[], None]
    refused_status: int | None = None
    failure: str | None = None
    logged_out: bool = False
    login: Stamp = None
