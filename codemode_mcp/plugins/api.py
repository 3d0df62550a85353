"""The interface for plugins: `register(api)` gets a `PluginApi`. `codemode_mcp.plugins` exports all of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from upstream_clients.tools import Annotations, JsonObject

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import BaseModel


class ToolError(Exception):
    """Raised by a tool, a hook or a middleware to say what is wrong, in words fit for the program that called.

    Anything else that they raise is logged, and the program learns only that the plugin has failed.
    """


# tools


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The caller for whom a factory makes tools.

    Attributes:
        config: the plugin's own, of the configuration file.
        workspace_dir: the folder of the configuration file, else the working directory.
        owner: the owner of runs; stable, and no two callers share one. Empty for an unknown caller.
        principal: the caller's name, where there is one.
        sandboxed: whether calls come from a program in the sandbox; false in pass-through.
    """

    config: JsonObject
    workspace_dir: Path
    owner: str
    principal: str | None = None
    groups: frozenset[str] = frozenset()
    sandboxed: bool = True


class Progress(Protocol):
    """`await progress(1, 3, "message")` reaches the client while its request is open; for tools that are async."""

    async def __call__(self, progress: float, total: float | None = None, message: str | None = None) -> None: ...


@dataclass(frozen=True, slots=True)
class CallInfo:
    """The call that a tool is run for.

    Attributes:
        owner: the owner of the run; empty for an unknown caller, whose run belongs to each holder of its id.
    """

    run_id: str
    owner: str
    progress: Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginTool:
    """One tool.

    Attributes:
        description: programs find the tool by it.
        run: called with the input, a model's instance or the plain object, and with a `CallInfo` if it takes a second
            parameter that has no default. Functions that are not async are run in threads. What it returns is the value
            that the program gets: JSON, or a model.
        input, output: a pydantic model or a JSON Schema, the input that of an object. What does not fit fails the call.
        label: for people; None: made from the name.
        annotations: what policy goes by. What is not said is taken for the worst: destructive, open world.
        timeout: seconds. A program may ask for less.
    """

    name: str
    description: str
    run: Callable[..., Any]
    input: type[BaseModel] | JsonObject = field(default_factory=lambda: {"type": "object"})
    output: type[BaseModel] | JsonObject | None = None
    label: str | None = None
    annotations: Annotations = field(default_factory=Annotations)
    timeout: float = 30.0


Made = PluginTool | Sequence[PluginTool] | None

ToolFactory = Callable[[ToolContext], Made | Awaitable[Made]]
"""Returns the tools for one owner, or nothing."""


# hooks and middleware


@dataclass(frozen=True, slots=True)
class ToolCallEvent:
    """A call, right before it is sent or right after.

    Attributes:
        tool_id: e.g. `mcp:github:create_issue`; `core:code_mode:exec` for the outer `exec`.
        tool_kind: what the tool comes from; `code_mode_exec` for the outer `exec`.
        tool_input_kind: what `input` is: arguments, or of the outer `exec` the language of `input["code"]`.
        input: the arguments, checked; of the outer `exec` `{"code": ...}`.
        read_only, destructive, idempotent, open_world: its annotations, MCP's defaults filled in.
        call: the number of the call within its run, from 1; 0 of the outer `exec`.
    """

    tool_id: str
    tool_kind: Literal["core", "plugin", "mcp", "client", "code_mode_exec"]
    tool_input_kind: Literal["json", "javascript", "typescript"]
    input: JsonObject
    run_id: str
    owner: str
    principal: str | None
    read_only: bool = False
    destructive: bool = True
    idempotent: bool = False
    open_world: bool = True
    call: int = 0


EXEC_ID = "core:code_mode:exec"
"""Id of the outer `exec` in hooks."""


@dataclass(frozen=True, slots=True)
class ChangeInput:
    """Call with this input instead; it is checked against the tool's schema again."""

    input: JsonObject


@dataclass(frozen=True, slots=True)
class DenyCall:
    """Do not call. `reason` is what the program is told."""

    reason: str


@dataclass(frozen=True, slots=True)
class NoteCall:
    """Call, and tell the reader of the program's result."""

    text: str


HookAnswer = ChangeInput | DenyCall | NoteCall | None

BeforeToolCall = Callable[[ToolCallEvent], HookAnswer | Awaitable[HookAnswer]]

Middleware = Callable[[ToolCallEvent, Any], Awaitable[Any]]
"""Returns the result that the program gets: the one it was given, or another. JSON: of an MCP tool the MCP result."""


# namespaces


@dataclass(frozen=True, slots=True)
class NamespaceTool:
    """A place in a scope that is a function for programs. Made by `namespace_tool`.

    Attributes:
        input_mapper: called with the arguments as the program gave them; returns the tool's input. None: the first
            argument, or `{}`.
    """

    name: str
    input_mapper: Callable[..., JsonObject] | None = None


def namespace_tool(name: str, input_mapper: Callable[..., JsonObject] | None = None) -> NamespaceTool:
    """Return a function in a scope that calls the plugin's own tool `name`."""
    return NamespaceTool(name, input_mapper)


@dataclass(frozen=True, slots=True)
class NamespaceContext:
    """The run for which a scope is made.

    Attributes:
        aborted: whether the run has been given up meanwhile.
    """

    owner: str
    run_id: str
    config: JsonObject
    aborted: Callable[[], bool]


CreateScope = Callable[[NamespaceContext], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]


class PluginApi(Protocol):
    """The object with which a plugin registers. A method raises `ValueError` for a wrong value; the plugin fails."""

    @property
    def name(self) -> str:
        """The plugin's, as configured."""
        ...

    @property
    def config(self) -> JsonObject:
        """A copy, variables expanded. What is wrong in it is best told by a `ValueError`."""
        ...

    def tool(self, tool: PluginTool, *, optional: bool = False) -> None:
        """Add a tool that is the same for everybody; an `optional` one is there only where a rule names it."""
        ...

    def tools(self, names: Sequence[str], factory: ToolFactory, *, optional: bool = False) -> None:
        """Add tools that a factory makes for each caller, from among these names: all of them, some or none.

        It is called once for each caller, again when its plugin is configured again, or after it has failed.
        """
        ...

    def before_tool_call(self, hook: BeforeToolCall, *, tools: Sequence[str] = ()) -> None:
        """Have a hook called before calls of these tools (ids or globs), as far as the operator grants it; without any:
        of the plugin's own."""
        ...

    def tool_result_middleware(self, middleware: Middleware, *, tools: Sequence[str] = ()) -> None:
        """Register a middleware for results, in the same way."""
        ...

    def namespace(
        self,
        namespace_id: str,
        global_name: str,
        *,
        description: str,
        required_tools: Sequence[str],
        create_scope: CreateScope,
        prompt: str = "",
    ) -> None:
        """Add a namespace: an object for programs, with data and functions that are the plugin's own tools."""
        ...

    def on_unload(self, callback: Callable[[], object]) -> None:
        """Have this called when the plugin is removed, or when its loading fails later on."""
        ...
