"""A plugin of codemode-mcp: tools, a hook, a middleware and a namespace around a small issue tracker."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, Field

from codemode_mcp.plugins import Annotations, ChangeInput, DenyCall, PluginTool, ToolError, namespace_tool
from issues_plugin.tracker import Issue, NoSuchIssue, Tracker

if TYPE_CHECKING:
    from codemode_mcp.plugins import CallInfo, NamespaceContext, PluginApi, ToolCallEvent, ToolContext

_KEYS = {"file", "labels"}
_SECRET = re.compile(r"\b(ghp_|sk-)\w{8,}")


class ListInput(BaseModel):
    state: Literal["open", "closed"] | None = Field(None, description="Only issues in this state.")
    label: str | None = Field(None, description="Only issues with this label.")


class CreateInput(BaseModel):
    title: str = Field(min_length=1, max_length=200, description="What the issue is about, in one line.")
    labels: list[str] = Field(default_factory=list, description="Out of the tracker's labels.")


class CloseInput(BaseModel):
    numbers: list[int] = Field(min_length=1, description="The issues to close.")


class Issues(BaseModel):
    issues: list[Issue]


def register(api: PluginApi) -> None:
    """Called once with the plugin's configuration; again when that has changed."""
    unknown = api.config.keys() - _KEYS
    if unknown:
        raise ValueError(f"unknown keys {sorted(unknown)} in the config; there are {sorted(_KEYS)}")
    file = api.config.get("file")
    labels = list(api.config.get("labels", ["bug", "idea"]))
    tracker = Tracker(None if file is None else Path(file).expanduser())

    # The same for everybody. A plain function runs in a thread, so it may read files.
    def list_issues(wanted: ListInput) -> Issues:
        return Issues(issues=tracker.find(wanted.state, wanted.label))

    api.tool(
        PluginTool(
            name="list",
            description="List issues, oldest first.",
            run=list_issues,
            input=ListInput,
            output=Issues,
            annotations=Annotations(read_only=True, open_world=False),
        )
    )

    # Made for each caller, whom the factory knows: no caller can write in the name of another one.
    def for_caller(context: ToolContext) -> list[PluginTool]:
        def create(new: CreateInput) -> Issue:
            for label in new.labels:
                if label not in labels:
                    raise ToolError(f"there is no label {label!r}; labels are {', '.join(labels)}")
            return tracker.create(new.title, new.labels, context.principal)

        async def close(chosen: CloseInput, call: CallInfo) -> Issues:
            closed = []
            for done, number in enumerate(chosen.numbers):
                await call.progress(done, len(chosen.numbers), f"closing #{number}")
                try:
                    closed.append(tracker.close(number))
                except NoSuchIssue:
                    raise ToolError(f"there is no issue #{number}; closed so far: {done}") from None
            return Issues(issues=closed)

        write = Annotations(read_only=False, destructive=False, open_world=False)
        return [
            PluginTool(
                name="create",
                description="Create an issue.",
                run=create,
                input=CreateInput,
                output=Issue,
                annotations=write,
            ),
            PluginTool(
                name="close",
                description="Close issues.",
                run=close,
                input=CloseInput,
                output=Issues,
                annotations=Annotations(read_only=False, destructive=False, idempotent=True, open_world=False),
            ),
        ]

    api.tools(["create", "close"], for_caller)

    # Optional: there only where the operator names it, e.g. "allow": ["plugin:issues:purge", ...].
    api.tool(
        PluginTool(
            name="purge",
            description="Delete closed issues for good.",
            run=lambda _: {"deleted": tracker.purge()},
            output={"type": "object", "properties": {"deleted": {"type": "integer"}}, "required": ["deleted"]},
            annotations=Annotations(read_only=False, destructive=True, open_world=False),
        ),
        optional=True,
    )

    # Hooks see a call before it is sent; this one only those of its own tool.
    def tidy(event: ToolCallEvent) -> ChangeInput | DenyCall | None:
        title = event.input["title"]
        if _SECRET.search(title):
            return DenyCall("the title holds what looks like a secret")
        tidied = " ".join(title.split())
        return None if tidied == title else ChangeInput({**event.input, "title": tidied})

    api.before_tool_call(tidy, tools=[f"plugin:{api.name}:create"])

    # Middleware sees results; this one wants those of other tools too, as far as the operator grants it.
    async def point_to_issues(event: ToolCallEvent, result: Any) -> Any:
        if not isinstance(result, dict) or not result.get("isError"):
            return result
        known = [issue for issue in tracker.find("open") if event.tool_id in issue.title]
        if not known:
            return result
        text = "; ".join(f"#{issue.number} {issue.title}" for issue in known[:5])
        note = {"type": "text", "text": f"Known issues: {text}"}
        return {**result, "content": [*result.get("content", []), note]}

    api.tool_result_middleware(point_to_issues, tools=["mcp:*"])

    # The object `issues` in every program: data, and functions that are the tools above.
    def create_scope(context: NamespaceContext) -> dict[str, Any]:
        return {
            "labels": labels,
            "list": namespace_tool("list"),
            "create": namespace_tool("create", lambda title, *labels: {"title": title, "labels": list(labels)}),
            "closeAll": namespace_tool("close", lambda *numbers: {"numbers": list(numbers)}),
        }

    api.namespace(
        "issues",
        "issues",
        description="The issue tracker.",
        required_tools=["list", "create", "close"],
        create_scope=create_scope,
        prompt="issues.create(title, ...labels), issues.list({ state }), issues.closeAll(...numbers); issues.labels",
    )
