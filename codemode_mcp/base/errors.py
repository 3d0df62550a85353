"""All errors that this product raises on purpose. Their classes tell who is at fault.

Each error has a code from the table in docs/errors.md, and a message for models and people. The message names the
thing, the problem and the next step. Exceptions of libraries are mapped to these errors at one place in each package.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

ErrorCode = Literal[
    "runtime_unavailable",
    "invalid_config",
    "invalid_input",
    "unsupported_language",
    "typescript_transform_failed",
    "module_access_denied",
    "timeout",
    "memory_limit_exceeded",
    "output_limit_exceeded",
    "snapshot_limit_exceeded",
    "snapshot_expired",
    "snapshot_restore_failed",
    "too_many_pending_tool_calls",
    "nested_tool_failed",
    "aborted",
    "internal_error",
]
"""Codes of a `failed` result."""

ERROR_CODES: tuple[ErrorCode, ...] = get_args(ErrorCode)


class Exceeded(NamedTuple):
    """A limit that was exceeded.

    Attributes:
        cap: the key of the limit in the configuration, or a description of a limit without a key.
        figure: the value that was too large, in the unit of the limit.
    """

    cap: str
    figure: int
    limit: int


class CodeModeError(Exception):
    """The base class of these errors. It is never raised itself.

    Attributes:
        message: the text for the reader, without tracebacks, paths and names of our classes.
        exceeded: the limit that was exceeded, if that is the reason.
    """

    def __init__(self, code: ErrorCode, message: str, exceeded: Exceeded | None = None) -> None:
        super().__init__(message)
        self.code: ErrorCode = code
        self.message = message
        self.exceeded = exceeded


class ProgramError(CodeModeError):
    """The program, or the request that has sent it, is at fault."""


class ShuttingDown(ProgramError):
    """The server takes no more requests. Nothing was done for this one, or its run was left to the next process.

    Args:
        more: a sentence about the run that ends with the process.
    """

    def __init__(self, more: str = "") -> None:
        super().__init__("aborted", f"the server is shutting down. {more}".rstrip(". "))


class PolicyDenied(CodeModeError):
    """The operator's policy refuses a call. The guest gets the error as a rejection."""

    def __init__(self, message: str) -> None:
        super().__init__("nested_tool_failed", message)


class BudgetExceeded(CodeModeError):
    """A budget of the operator refuses a call. The guest gets the error as a rejection."""

    def __init__(self, message: str, exceeded: Exceeded) -> None:
        super().__init__("nested_tool_failed", message, exceeded)


class UpstreamError(CodeModeError):
    """A nested call failed at its tool, or on the way to the tool. The guest gets the error as a rejection.

    Attributes:
        dispatched: True if the request may have reached the tool.
    """

    def __init__(self, message: str, *, dispatched: bool, exceeded: Exceeded | None = None) -> None:
        super().__init__("nested_tool_failed", message, exceeded)
        self.dispatched = dispatched


class PluginError(CodeModeError):
    """A plugin failed to handle a call. The guest gets the error as a rejection that names the plugin."""

    def __init__(self, message: str) -> None:
        super().__init__("nested_tool_failed", message)


class ConfigError(CodeModeError):
    """The operator's configuration is wrong.

    Attributes:
        problems: one message per problem.
    """

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("invalid_config", "\n".join(problems))
        self.problems = problems


class RuntimeUnavailable(CodeModeError):
    """The engine, esbuild or the store is missing, and there is no fallback."""

    def __init__(self, message: str) -> None:
        super().__init__("runtime_unavailable", message)


class StoreUnavailable(RuntimeUnavailable):
    """The store of suspended programs does not answer, or refuses to store something.

    Nothing was changed, unless `unsure` is True.

    Args:
        message: the text, with `{at}` where the location of the store may be inserted.
        at: the location of the store. Only the operator may see it, so it is in `detail` but not in `message`.
        unsure: True if the store may have made the change.
    """

    def __init__(self, message: str, *, at: str = "", unsure: bool = False) -> None:
        super().__init__(message.replace("{at}", ""))
        self.unsure = unsure
        self.detail = message.replace("{at}", at)
        self.args = (self.detail,)

    def copy(self) -> StoreUnavailable:
        """Return a copy to raise. An exception that is raised repeatedly would collect tracebacks."""
        new = StoreUnavailable(self.message, unsure=self.unsure)
        new.detail, new.args = self.detail, self.args
        return new


class InternalError(CodeModeError):
    """This product is at fault."""

    def __init__(self, message: str) -> None:
        super().__init__("internal_error", message)
