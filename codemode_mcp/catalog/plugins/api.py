"""The interface for plugins, whose `register(api)` receives a `PluginApi`. `codemode_mcp.plugins` exports it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from upstream_clients.tools import Annotations, JsonObject

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import BaseModel


class ToolError(Exception):
    """An error of a tool, a hook or a middleware, with a message for the calling program.

    Other exceptions are logged, and the program gets only the fact that the plugin has failed.
    """


# tools


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The caller for whom a factory returns tools.

    Attributes:
        config: the configuration of the plugin.
        workspace_dir: the folder of the configuration file, or else the working directory.
        owner: the owner of the caller's runs, stable and unique to the caller. Empty for an unknown caller.
        principal: the caller's name, if it has one.
        groups: the groups of the caller.
        sandboxed: whether calls come from a program in the sandbox; false in pass-through.
    """

    config: JsonObject
    workspace_dir: Path
    owner: str
    principal: str | None = None
    groups: frozenset[str] = frozenset()
    sandboxed: bool = True


class Progress(Protocol):
    """A function that reports progress to the client during its request, as in `await progress(1, 3, "message")`.

    Only async tools can report progress.
    """

    async def __call__(self, progress: float, total: float | None = None, message: str | None = None) -> None: ...


@dataclass(frozen=True, slots=True)
class CallInfo:
    """The call that runs a tool.

    Attributes:
        run_id: the id of the run that made the call.
        owner: the owner of the run; empty for an unknown caller, whose run belongs to each holder of its id.
        progress: reports progress to the client.
    """

    run_id: str
    owner: str
    progress: Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginTool:
    """One tool.

    Attributes:
        name: up to 128 letters, digits and `_ . -`; unique within the plugin.
        description: the text by which programs find the tool.
        run: the function to call with the input, which is an instance of the input model or a plain object. If it has a
            second parameter without a default, it gets a `CallInfo` too. Functions that are not async run in threads.
            The program gets the result: JSON, or a model.
        input: a pydantic model or the JSON Schema of an object. A call with another input fails.
        output: a pydantic model or a JSON Schema. A call with another result fails.
        label: a title for people; None to derive it from the name.
        annotations: hints for policy. Missing ones count as the worst case: destructive, open world.
        timeout: seconds for one call. A program may set a shorter time.
    """

    name: str
    description: str
    run: Callable[..., Any]
    input: type[BaseModel] | JsonObject = field(default_factory=lambda: {"type": "object"})
    output: type[BaseModel] | JsonObject | None = None
    label: str | None = None
    annotations: Annotations = field(default_factory=Annotations)
    timeout: float = 30.0


FactoryTools = PluginTool | Sequence[PluginTool] | None

ToolFactory = Callable[[ToolContext], FactoryTools | Awaitable[FactoryTools]]
"""A function that returns the tools for one caller, or None."""


# hooks and middleware


@dataclass(frozen=True, slots=True)
class ToolCallEvent:
    """A call right before it is sent, or right after its result has arrived.

    Attributes:
        tool_id: an id such as `mcp:github:create_issue`; `core:code_mode:exec` for the outer `exec`.
        tool_kind: the source of the tool; `code_mode_exec` for the outer `exec`.
        tool_input_kind: `json` for arguments; the language of `input["code"]` for the outer `exec`.
        input: the checked arguments, as they will be sent; `{"code": ...}` for the outer `exec`.
        run_id: the id of the run that makes the call.
        owner: the owner of the run; empty for an unknown caller.
        principal: the caller's name, if it has one.
        read_only, destructive, idempotent, open_world: the annotations of the tool, with MCP's defaults filled in.
        call: the number of the call within its run, from 1; 0 for the outer `exec`.
        defaults: the defaults that the tool's schema states, by argument. They are not sent. The server assumes them
            for arguments that `input` leaves out.
    """

    tool_id: str
    tool_kind: Literal["core", "plugin", "mcp", "client", "program", "code_mode_exec"]
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
    defaults: JsonObject = field(default_factory=dict)


EXEC_ID = "core:code_mode:exec"
"""The id of the outer `exec` in hooks."""


@dataclass(frozen=True, slots=True)
class ChangeInput:
    """An answer that changes the input, which is checked against the tool's schema again."""

    input: JsonObject


@dataclass(frozen=True, slots=True)
class DenyCall:
    """An answer that denies the call. The program gets `reason` in the error."""

    reason: str


@dataclass(frozen=True, slots=True)
class NoteCall:
    """An answer that allows the call, and adds `text` to the program's result for its reader."""

    text: str


HookAnswer = ChangeInput | DenyCall | NoteCall | None

BeforeToolCall = Callable[[ToolCallEvent], HookAnswer | Awaitable[HookAnswer]]

Middleware = Callable[[ToolCallEvent, Any], Awaitable[Any]]
"""A function that returns the result for the program: the given one or another, as JSON.

For an MCP tool, this is the whole result of `tools/call`.
"""


# namespaces


@dataclass(frozen=True, slots=True)
class NamespaceTool:
    """A function in a scope, as `namespace_tool` returns it.

    Attributes:
        name: the plugin's own tool that the function calls.
        input_mapper: converts the arguments of the program to the input of the tool; None to pass the first argument,
            or `{}`.
    """

    name: str
    input_mapper: Callable[..., JsonObject] | None = None


def namespace_tool(name: str, input_mapper: Callable[..., JsonObject] | None = None) -> NamespaceTool:
    """Return a function in a scope that calls the plugin's own tool `name`."""
    return NamespaceTool(name, input_mapper)


@dataclass(frozen=True, slots=True)
class NamespaceContext:
    """The run for which a scope is created.

    Attributes:
        owner: the owner of the run; empty for an unknown caller.
        run_id: the id of the run.
        config: the configuration of the plugin.
        aborted: returns True if the run was cancelled in the meantime.
    """

    owner: str
    run_id: str
    config: JsonObject
    aborted: Callable[[], bool]


CreateScope = Callable[[NamespaceContext], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]


class PluginApi(Protocol):
    """The object by which a plugin registers.

    A method raises `ValueError` for an invalid value, and the plugin is then refused.
    """

    @property
    def name(self) -> str:
        """The name of the plugin in the configuration."""
        ...

    @property
    def config(self) -> JsonObject:
        """A copy of the plugin's configuration, with variables expanded. A plugin may refuse it with `ValueError`."""
        ...

    def tool(self, tool: PluginTool, *, optional: bool = False) -> None:
        """Add a tool that is the same for all callers. An `optional` tool exists only if a policy rule names it."""
        ...

    def tools(self, names: Sequence[str], factory: ToolFactory, *, optional: bool = False) -> None:
        """Add tools that a factory returns for each caller, with some or all of these names.

        The factory is called once for each caller, and again after it has failed or its configuration has changed.
        """
        ...

    def before_tool_call(self, hook: BeforeToolCall, *, tools: Sequence[str] = ()) -> None:
        """Register a hook to be called before calls of these tools (ids or globs).

        The hook sees calls of other plugins' and servers' tools only if the operator grants it. Without `tools`, it
        sees calls of the plugin's own tools.
        """
        ...

    def tool_result_middleware(self, middleware: Middleware, *, tools: Sequence[str] = ()) -> None:
        """Register a middleware for results of these tools, as `before_tool_call` registers a hook."""
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
        """Add a namespace: an object for programs, with data and with functions that call the plugin's own tools."""
        ...

    def on_unload(self, callback: Callable[[], object]) -> None:
        """Register a callback for when the plugin is removed, or fails to load after this call."""
        ...
