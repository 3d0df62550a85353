"""Logins to servers that a person begins on the page. `codemode-mcp login` makes them, as a child of this process.

The command prints the address of the login, which the page shows as a link. The person opens it in the browser that
shows the page, and the command ends when the server has sent the browser back to it.
"""

from __future__ import annotations

import logging
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import anyio
import anyio.abc

from codemode_mcp.page.child_commands import child_command

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import TaskGroup, TaskStatus

    from codemode_mcp.page.application import Application

log = logging.getLogger("codemode_mcp.page")

SECONDS: Final = 300
"""Seconds that a login may take."""

MAX_BYTES: Final = 64 * 1024
"""Maximum bytes of the output of the command."""

MAX_LOGINS: Final = 8
"""Maximum number of logins at the same time."""


@dataclass(slots=True)
class Login:
    """One login.

    Attributes:
        url: the address to open; None before it is known, and in the end.
        outcome: the end of the login as a sentence; None until then.
    """

    url: str | None = None
    outcome: str | None = None

    @property
    def host(self) -> str:
        """The host of the address."""
        return "" if self.url is None else urlsplit(self.url).netloc


class Logins:
    """The latest login to each server.

    Args:
        on_change: called when a login has got its address, or has ended.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._logins: dict[str, Login] = {}

    def of(self, server: str) -> Login | None:
        """Return the latest login to a server."""
        return self._logins.get(server)

    async def begin(self, application: Application, server: str, group: TaskGroup) -> Login | None:
        """Begin a login, unless one is open. Return it when its address is known, or when it has ended.

        Args:
            group: the login continues in it.

        Returns:
            The login; None if there are too many.
        """
        known = self._logins.get(server)
        if known is not None and known.outcome is None:
            return known
        if sum(each.outcome is None for each in self._logins.values()) >= MAX_LOGINS:
            return None
        login = self._logins[server] = Login()
        await group.start(self._run, application, server, login)
        return login

    async def _run(self, application: Application, server: str, login: Login, *, task_status: TaskStatus[None]) -> None:
        options = ("--no-browser", "--timeout", str(SECONDS))
        output, begun = b"", False
        try:
            with anyio.move_on_after(SECONDS + 10):
                async with child_command(
                    application, "login", *options, arguments=(server,), stderr=subprocess.STDOUT
                ) as process:
                    assert process.stdout is not None
                    async for chunk in process.stdout:
                        output = (output + chunk)[:MAX_BYTES]
                        login.url = login.url or _address_in(output)
                        if login.url is not None and not begun:
                            begun = True
                            self._on_change()
                            task_status.started()
                    await process.wait()
        except OSError as error:
            output = str(error).encode()
        except Exception:
            log.exception("a login that was begun on the page failed in an unexpected way")
        finally:
            said = [line.strip() for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
            login.outcome = said[-1] if said and said[-1] != login.url else "the login did not end in time"
            login.url = None
            self._on_change()
        if not begun:
            task_status.started()


def _address_in(output: bytes) -> str | None:
    """Return the address that the command has printed on a line of its own; None if there is none yet."""
    for line in output.decode("utf-8", "replace").splitlines(keepends=True):
        text = line.strip()
        if line.startswith("  ") and line.endswith("\n") and urlsplit(text).scheme in ("http", "https"):
            return text
    return None
