"""The interface through which a session runs its programs: in an application of this process, or in the instance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

from codemode_mcp.base.errors import ErrorCode
from codemode_mcp.base.strict_json import Form
from codemode_mcp.runs.calls.outcome import PendingCall, WaitingReason
from codemode_mcp.runs.state import RunState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from codemode_mcp.base.settings import Language
    from codemode_mcp.catalog.catalog import Catalog


class Answer(Form):
    """The parts of an `Outcome` that a session shows. Output is not among them."""

    run_id: str
    status: Literal["completed", "waiting", "failed"]
    notes: tuple[str, ...]
    asked: tuple[str, ...]
    dropped: int
    value: Any
    error: str
    code: ErrorCode
    reason: WaitingReason
    pending: tuple[PendingCall, ...]
    yielded: str | None


class SessionRun(Form):
    """The parts of a `RunView` that a session shows."""

    id: str
    state: RunState
    age_ms: int
    code: str | None
    call_count: int


class Hit(Form):
    """A tool that a search has found.

    Attributes:
        signature: its signature, or else how it is called.
    """

    signature: str
    description: str


class Programs(Protocol):
    """The programs of one session, and the values and tools that they use. All methods may raise `CodeModeError`."""

    @property
    def key(self) -> str:
        """The key under which `store` keeps the names of the session. No other session has it."""
        ...

    async def execute(self, source: str, language: Language | None, on_output: Callable[[str], None]) -> Answer:
        """Run a program until it ends, yields or has run for as long as one request may take.

        If no person can approve calls, calls that need it are denied.

        Args:
            on_output: called with each output of the program, during this request and later ones for the run.

        Raises:
            CodeModeError: the program was refused before it ran.
        """
        ...

    async def observe(self, run_id: str, *, cancel: bool = False) -> Answer:
        """Continue a run as `execute` does, or cancel it."""
        ...

    async def cancel(self, run_id: str) -> None: ...

    async def runs(self) -> Sequence[SessionRun]:
        """Return the runs of the session that are still known, the latest first."""
        ...

    async def offload(self, text: str) -> str | None:
        """Store a JSON text for the next program, in place of the previous one. Return the key to `load` it.

        Return None if there is no room for it.
        """
        ...

    async def names(self) -> str | None:
        """Return the JSON text that is stored under `key`."""
        ...

    async def forget_names(self) -> None: ...

    async def connect(self, seconds: float) -> None:
        """Connect to all servers. Wait for at most `seconds`."""
        ...

    async def catalog(self) -> Catalog: ...

    async def declarations(self, name: str) -> str:
        """Return TypeScript declarations.

        Args:
            name: `SERVER`, `SERVER#TOOL`, `tools` for the tools of plugins, or "" for the list of servers.
        """
        ...

    async def search(self, words: str) -> Sequence[Hit]: ...
