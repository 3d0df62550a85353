"""Every error this product raises on purpose, split by who is at fault.

Each carries one `code` of the table in docs/errors.md and a message that names the thing, says what is
wrong and what to do next: the message is what a model reads. Foreign exceptions are mapped to these once, at the
edge of the room that meets them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

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
"""The codes a `failed` result can carry."""

ERROR_CODES: tuple[ErrorCode, ...] = get_args(ErrorCode)


@dataclass(frozen=True, slots=True)
class Exceeded:
    """A cap that something was beyond.

    Attributes:
        cap: its key in the configuration, or what it limits where no setting does.
        figure: what there was, in the unit of the cap.
    """

    cap: str
    figure: int
    limit: int


class CodeModeError(Exception):
    """Base of all errors here; not raised itself.

    Attributes:
        code: one of `ERROR_CODES`.
        message: the text for the reader, without a traceback, path or class name of ours.
        exceeded: the cap that is the reason, where one is.
    """

    def __init__(self, code: ErrorCode, message: str, exceeded: Exceeded | None = None) -> None:
        super().__init__(message)
        self.code: ErrorCode = code
        self.message = message
        self.exceeded = exceeded


class ProgramError(CodeModeError):
    """The program, or the request that carried it, is at fault."""


class PolicyDenied(CodeModeError):
    """The operator's policy refuses a call. Reaches the guest as a rejection."""

    def __init__(self, message: str) -> None:
        super().__init__("nested_tool_failed", message)


class UpstreamError(CodeModeError):
    """A nested call failed at or on the way to its tool. Reaches the guest as a rejection.

    Attributes:
        dispatched: whether the request may have reached the tool.
    """

    def __init__(self, message: str, *, dispatched: bool, exceeded: Exceeded | None = None) -> None:
        super().__init__("nested_tool_failed", message, exceeded)
        self.dispatched = dispatched


class PluginError(CodeModeError):
    """A plugin has failed where a call passed it. Reaches the guest as a rejection that names the plugin."""

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
    """Something the sandbox needs is missing: the engine, or esbuild. There is no fallback."""

    def __init__(self, message: str) -> None:
        super().__init__("runtime_unavailable", message)


class StoreUnavailable(RuntimeUnavailable):
    """The store of suspended programs does not answer, or does not take what it is given; nothing was changed, unless
    that is `unsure`.

    Args:
        message: `{at}` in it stands for where the store is.
        at: where it is, which is nothing for clients: in `detail` alone, for the operator.
        unsure: it is not known whether anything was changed.
    """

    def __init__(self, message: str, *, at: str = "", unsure: bool = False) -> None:
        super().__init__(message.replace("{at}", ""))
        self.unsure = unsure
        self.detail = message.replace("{at}", at)
        self.args = (self.detail,)

    def again(self) -> StoreUnavailable:
        """Return the same as a new one: one that is raised twice would collect tracebacks."""
        new = StoreUnavailable(self.message, unsure=self.unsure)
        new.detail, new.args = self.detail, self.args
        return new


class InternalError(CodeModeError):
    """Our own fault."""

    def __init__(self, message: str) -> None:
        super().__init__("internal_error", message)
