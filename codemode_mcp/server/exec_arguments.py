"""The arguments of `exec` and `wait`: validation, aliases, and messages for mistakes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from codemode_mcp.base.did_you_mean import nearest
from codemode_mcp.base.errors import ProgramError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from codemode_mcp.base.settings import Language


class ExecArguments(Struct, frozen=True):
    """The arguments of an `exec`. If `language` is None, it is detected."""

    source: str
    language: Language | None


class WaitArguments(Struct, frozen=True):
    """The arguments of a `wait`."""

    run_id: str
    cancel: bool = False
    from_start: bool = False


ARGUMENTS: Final = {"exec": ("code", "command", "language"), "wait": ("runId", "run_id", "cancel", "fromStart")}
"""Names of arguments by tool. The first two are the required argument and its alias."""

_LANGUAGES: Mapping[str, Language] = {
    "javascript": "javascript",
    "js": "javascript",
    "typescript": "typescript",
    "ts": "typescript",
}


def exec_arguments(arguments: Mapping[str, Any]) -> ExecArguments:
    """Read the arguments of an `exec`. An argument that is null is absent.

    Raises:
        ProgramError: `invalid_input` or `unsupported_language`.
    """
    code = _text(arguments, "exec", "code")
    command = _text(arguments, "exec", "command")
    if code and command and code != command:
        raise _invalid("exec: code and command differ; command is an alias of code, so pass only code")
    source = code or command
    if not source or not source.strip():
        _refuse_unknown(arguments, "exec")
        raise _invalid('exec: code is empty; pass a program, e.g. {"code": "return 1 + 1"}')
    language = _text(arguments, "exec", "language")
    if language is not None and language not in _LANGUAGES:
        raise ProgramError(
            "unsupported_language",
            f"exec: language {language[:60]!r} is not supported; use javascript or typescript",
        )
    return ExecArguments(source, _LANGUAGES[language] if language else None)


def wait_arguments(arguments: Mapping[str, Any]) -> WaitArguments:
    """Read the arguments of a `wait`. An argument that is null is absent.

    Raises:
        ProgramError: `invalid_input`.
    """
    run_id = _text(arguments, "wait", "runId") or _text(arguments, "wait", "run_id")
    if not run_id:
        _refuse_unknown(arguments, "wait")
        raise _invalid('wait: runId is missing; pass the runId of the result with status "waiting"')
    cancel, from_start = (_flag(arguments, "wait", name) for name in ("cancel", "fromStart"))
    return WaitArguments(run_id, cancel, from_start)


def ignored_arguments(tool: str, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a note about unknown arguments. They are ignored, because some clients add arguments to every call.

    Without the required argument, nothing is ignored: an unknown argument may be a misspelling of its name.
    """
    names = ARGUMENTS.get(tool, ())
    unknown = [name for name, value in arguments.items() if name not in names and value is not None]
    if not unknown or not any(arguments.get(name) for name in names[:2]):
        return ()
    named = ", ".join(repr(name[:60]) for name in unknown[:5]) + (", ..." if len(unknown) > 5 else "")
    return (f"Ignored unknown arguments: {named}; {tool} takes {', '.join(_shown_arguments(tool))}",)


def _refuse_unknown(arguments: Mapping[str, Any], tool: str) -> None:
    """Raise `ProgramError` for the first unknown argument of a call without the required one."""
    for name in arguments:
        if name not in ARGUMENTS[tool]:
            near = nearest(name, ARGUMENTS[tool], count=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; it takes {', '.join(_shown_arguments(tool))}"
            raise _invalid(f"{tool}: unknown argument {name[:60]!r}{hint}")


def _shown_arguments(tool: str) -> list[str]:
    """Return the names of a tool's arguments without the alias."""
    first, _alias, *others = ARGUMENTS[tool]
    return [first, *others]


def _flag(arguments: Mapping[str, Any], tool: str, name: str) -> bool:
    given = arguments.get(name)
    if given is None or isinstance(given, bool):
        return given is True
    raise _invalid(f"{tool}: {name} must be true or false, not {_kind(given)}")


def _text(arguments: Mapping[str, Any], tool: str, name: str) -> str | None:
    given = arguments.get(name)
    if given is None or isinstance(given, str):
        return given
    raise _invalid(f"{tool}: {name} must be a string, not {_kind(given)}")


def _invalid(message: str) -> ProgramError:
    return ProgramError("invalid_input", message)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    return {int: "a number", float: "a number", str: "a string", list: "an array", dict: "an object"}[type(value)]


def drop_added_arguments(tool: str, given: Mapping[str, Any], added: Collection[str]) -> dict[str, Any]:
    """Return the arguments of a call without those that only the client adds, to every call."""
    own = ARGUMENTS.get(tool, ())
    return {name: value for name, value in given.items() if name in own or name not in added}
