"""The first messages of a relay, as the instance reads them. Pure."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal

import msgspec

from codemode_mcp.base.settings import LogLevel  # noqa: TC001 - msgspec reads it

Code = Literal["leaving", "version", "private", "invalid_config", "not_confirmed", "failed"]
"""The reason of a refusal, for the relay."""


class Refusal(Exception):
    """Error for a relay that is not attached.

    Attributes:
        lines: sentences for the user.
    """

    def __init__(self, code: Code, *lines: str) -> None:
        super().__init__("; ".join(lines))
        self.code: Code = code
        self.lines = lines


class HttpOptions(msgspec.Struct, frozen=True, rename="camel"):
    """The options of `instance start --http`; see `serve --transport http`."""

    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 8808
    path: str = "/mcp"
    allow_unauthenticated: bool = False


class CommandOptions(msgspec.Struct, frozen=True, rename="camel"):
    """A command that the instance runs for a terminal, and facts about the terminal.

    Attributes:
        name: the name of the command, such as `call`.
        draws: the progress line is shown.
        attended: a person can answer questions.
        width: the columns of the progress line and of questions.
    """

    name: str
    draws: bool = False
    attended: bool = False
    width: Annotated[int, msgspec.Meta(ge=20, le=10_000)] = 79


class Options(msgspec.Struct, frozen=True, rename="camel"):
    """The options of `serve` that bind one client.

    Attributes:
        locked: the lock file beside the configuration replaces the pins.
        http: serve over HTTP instead of this connection, until the instance ends.
        ui: open the page instead of serving this connection.
        command: run a command instead of a session of MCP.
    """

    read_only: bool = False
    locked: bool = False
    context: str | None = None
    log_level: LogLevel | None = None
    log_file: str | None = None
    http: HttpOptions | None = None
    ui: bool = False
    command: CommandOptions | None = None


class Hello(msgspec.Struct, frozen=True):
    """The first message of a relay.

    Attributes:
        product: the version of the relay.
        pid: the process of the relay.
        config: the absolute path of the configuration file; None for the defaults.
        found: the file was found in the working directory of the client, so a person has to have confirmed it.
        digest: SHA-256 of the content of the file, as the relay has read it.
        folder: the working directory of the client.
    """

    product: str
    pid: int
    folder: str
    config: str | None = None
    found: bool = False
    digest: str | None = None
    options: Options = Options()

    @staticmethod
    def of(message: dict[str, Any]) -> Hello:
        """Return the message of a relay. Raise `Refusal` for an invalid one."""
        try:
            return msgspec.convert(message, Hello)
        except msgspec.ValidationError as error:
            raise Refusal("failed", f"not a message of a relay: {str(error)[:200]}") from None


def read_environment(line: bytes | None) -> dict[str, str]:
    """Return the environment variables of a client from the second message of its relay. Raise `Refusal`."""
    try:
        environ = json.loads(line or b"")["environ"]
        return {str(name): str(value) for name, value in environ.items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        raise Refusal("failed", "the relay has not sent its environment variables") from None


def is_newer(version: str, than: str) -> bool:
    return _release(version) > _release(than)


def _release(version: str) -> tuple[int, ...]:
    numbers = re.match(r"[0-9]+(?:\.[0-9]+)*", version)
    return () if numbers is None else tuple(map(int, numbers[0].split(".")))
