"""The commands that the running shared instance carries out, and their common command lines.

If no instance runs, the modules in `commands` read the command line and carry it out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.cli.command_requests import ProgramRequest, read_call, read_program, read_tools
from codemode_mcp.cli.common_options import read_options, spelled
from codemode_mcp.cli.running_instance import ask_instance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from codemode_mcp.cli.command_requests import CallRequest, ToolsRequest

_CALL_OPTIONS: Final = spelled(("config", "json"))
_TOOLS_OPTIONS: Final = spelled(("config", "server"))
_RUN_OPTIONS: Final = spelled(("config", "language")) | {"-e": "code"}
_PROGRAM_FLAGS: Final = spelled(("read_only", "quiet")) | {"-q": "quiet"}
_TOOLS_FLAGS: Final = spelled(("json", "long")) | {"-l": "long"}


def run_quickly(arguments: Sequence[str]) -> int | None:
    """Have the shared instance carry out a command that is not unusual. Return the exit code.

    Return None for any other command line, and if no instance runs: then typer has to read it.
    """
    match arguments:
        case ["call", *rest] if (read := read_options(rest, _CALL_OPTIONS, _PROGRAM_FLAGS)) and read[0]:
            (tool, *words), found = read
            return call_there(read_call(tool, words, found.pop("json", None)), **found)
        case ["tools", *rest] if read := read_options(rest, _TOOLS_OPTIONS, _TOOLS_FLAGS):
            words, found = read
            tools = read_tools(
                words, found.get("server"), long=found.get("long", False), as_json=found.get("json", False)
            )
            return tools_there(tools, config=found.get("config"))
        case ["run", *rest] if read := read_options(rest, _RUN_OPTIONS, _PROGRAM_FLAGS | spelled(("json",))):
            return _run_quickly(*read)
    return None


def _run_quickly(
    words: Sequence[str],
    found: dict[str, Any],
) -> int | None:
    code, language = found.get("code"), found.get("language")
    if len(words) + (code is not None) != 1:
        return None
    if words:
        from pathlib import Path

        code, language = read_program(Path(words[0]), language)
    request = ProgramRequest(code, language, (), found.get("json", False), found.get("quiet", False))
    return run_there(request, config=found.get("config"), read_only=found.get("read_only", False))


def call_there(
    request: CallRequest, *, config: str | None = None, read_only: bool = False, quiet: bool = False
) -> int | None:
    """Have the shared instance make a call. Return the exit code; None as `ask_instance` does."""
    arguments = {"request": request._asdict(), "quiet": quiet}
    return _code(ask_instance("call", arguments, config=config, read_only=read_only))


def tools_there(request: ToolsRequest, *, config: str | None) -> int | None:
    """Have the shared instance list or search tools. Return the exit code; None as `ask_instance` does."""
    return _code(ask_instance("tools", {"request": request._asdict()}, config=config, log_level="error"))


def run_there(request: ProgramRequest, *, config: str | None, read_only: bool) -> int | None:
    """Have the shared instance run a program. Return the exit code; None as `ask_instance` does."""
    return _code(ask_instance("run", {"request": request._asdict()}, config=config, read_only=read_only))


def _code(result: dict[str, Any] | None) -> int | None:
    return None if result is None else result["code"]
