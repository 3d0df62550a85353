"""The check of the program of `codemode-mcp run`, before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from codemode_mcp.errors import CodeModeError
from codemode_mcp.server.exec_arguments import exec_arguments

if TYPE_CHECKING:
    from codemode_mcp.cli.command_requests import ProgramRequest
    from codemode_mcp.server.exec_arguments import ExecArguments

NO_SERVERS: Final = (
    "no configuration: programs have no servers; codemode-mcp import adds those of your clients, and codemode-mcp add "
    "another one"
)


class BadProgram(Exception):
    """Error for a program that cannot run. The message says why.

    Attributes:
        exit_code: the exit code of the command.
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def check(request: ProgramRequest) -> ExecArguments:
    """Return the program and its language. Raise `BadProgram`."""
    try:
        return exec_arguments({"code": request.code, "language": request.language})
    except CodeModeError as error:
        if error.code == "unsupported_language":
            raise BadProgram(
                f"--language {request.language}: use javascript or typescript, or leave it out", 2
            ) from None
        raise BadProgram(error.message, 1) from None
