"""The sending of an admitted call to the source of its tool, its result, and the hooks that see both."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.audit import sizes
from codemode_mcp.base.errors import Exceeded, InternalError, PluginError, PolicyDenied, ProgramError, UpstreamError
from codemode_mcp.base.strict_json import json_text
from codemode_mcp.base.text import utf8_size
from codemode_mcp.catalog.plugins.api import EXEC_ID, ToolCallEvent
from codemode_mcp.runs.calls.outcome import CallContext, CallRecord, challenges_of
from codemode_mcp.sandbox.messages import GuestError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from codemode_mcp.base.settings import CodeModeSettings, Language
    from codemode_mcp.catalog.entries import Entry
    from codemode_mcp.catalog.observed_types import ObservedTypes
    from codemode_mcp.catalog.plugins.interception import Interceptors
    from codemode_mcp.rules.policy.policy import Caller
    from upstream_clients.tools import JsonObject


_LISTED: Final = {
    "resources/list": ("resources", "uri"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate"),
}
"""The members of the results of lists, and the members of their items that have the URI, by method."""

LARGE_RESULT = 100_000
"""Maximum characters of a result from middleware from which a type is learned. To learn it, the result is parsed."""


class Results:
    """The maker of the text that programs get for results."""

    def __init__(
        self,
        settings: Callable[[], CodeModeSettings],
        observed: ObservedTypes | None,
        interception: Interceptors | None,
    ) -> None:
        self._settings = settings
        self._observed = observed
        self._interception = interception

    @staticmethod
    def note(record: CallRecord, result: Any) -> None:
        record.challenges = challenges_of(result)
        if record.watched:
            record.seen = sizes.seen(result)

    async def text(
        self,
        entry: Entry,
        number: int,
        arguments: JsonObject,
        context: CallContext,
        event: ToolCallEvent | None,
        result: Any,
        source_text: str | None,
    ) -> str:
        """Return a result as JSON text, after middleware.

        Args:
            source_text: the JSON text that the source itself has sent, which saves making it again; None if unknown.
        """
        interception = self._interception
        replaced = interception is not None and interception.has_middleware(entry.id)
        if interception is not None and replaced:
            event = event or event_of(entry, number, arguments, context)
            text = await interception.after(event, entry.path, result, self._settings().max_tool_result_bytes)
        else:
            text = json_text(result) if source_text is None else source_text
        self.check_size(entry, text)
        if not replaced:
            self.learn(entry, context, result)
        elif len(text) <= LARGE_RESULT:
            self.learn(entry, context, text)
        return text

    def check_size(self, entry: Entry, text: str) -> None:
        size, limit = utf8_size(text), self._settings().max_tool_result_bytes
        if size > limit:
            raise UpstreamError(
                f"{entry.path}: the result has {size} bytes, more than maxToolResultBytes "
                f"({limit}); ask the tool for less at a time",
                dispatched=True,
                exceeded=Exceeded("maxToolResultBytes", size, limit),
            )

    def learn(self, entry: Entry, context: CallContext, result: Any) -> None:
        """Learn the type of a result, if the tool declares none."""
        of_mcp_tool = entry.source == "mcp" and entry.method == "tools/call"
        if self._observed is not None and of_mcp_tool and entry.tool.output_schema is None:
            self._observed.learn(context.owner, entry.id, result)


def tool_call_error(record: CallRecord, message: str, code: str) -> GuestError:
    data: dict[str, object] = {
        "tool": record.tool,
        "dispatched": record.dispatched,
        "repeatable": record.may_be_repeated,
        **({"outcome": "unknown"} if record.is_unknown else {}),
    }
    return GuestError(message, name="ToolCallError", code=code, data=json_text(data))


# Resources of MCP Apps, which programs can neither list nor read.


def refuse_app(entry: Entry, arguments: Mapping[str, Any]) -> None:
    if entry.operation is not None and _is_of_app(arguments.get("uri")):
        raise ProgramError(
            "nested_tool_failed",
            f"{entry.path}: ui:// resources are apps, which programs cannot read. "
            "show(result) shows the user the app of the tool that returned the result",
        )


def without_apps(entry: Entry, result: Any) -> Any:
    key, member = _LISTED.get(entry.method, ("", ""))
    items = result.get(key) if isinstance(result, dict) else None
    if not isinstance(items, list):
        return result
    left = [item for item in items if not (isinstance(item, dict) and _is_of_app(item.get(member)))]
    return result if len(left) == len(items) else {**result, key: left}


def _is_of_app(uri: object) -> bool:
    # Servers may compare schemes without regard to case, and ignore white space.
    return isinstance(uri, str) and uri.strip().casefold().startswith("ui:")


# The events that hooks and middleware see, and the hooks on the outer `exec`, which may deny or replace a program.


async def admit_program(
    interception: Interceptors | None,
    run_id: str,
    owner: str,
    caller: Caller,
    code: str,
    language: Language,
    note: Callable[[str], None],
) -> str:
    """Return the program to run for an `exec`: the given code, or the code with which a hook replaces it.

    Raises:
        ProgramError: `invalid_input`: a hook denies the program.
        InternalError: a hook failed.
    """
    if interception is None:
        return code
    if not interception.is_ready:
        await interception.ready()
    if not interception.has_hooks(EXEC_ID):
        return code
    event = ToolCallEvent(
        tool_id=EXEC_ID,
        tool_kind="code_mode_exec",
        tool_input_kind=language,
        input={"code": code},
        run_id=run_id,
        owner=owner,
        principal=caller.principal,
    )
    try:
        admitted: str = (await interception.before(event, "exec", note, _replacement))["code"]
    except PolicyDenied as error:
        raise ProgramError("invalid_input", error.message) from None
    except PluginError as error:
        raise InternalError(error.message) from None
    return admitted


def _replacement(text: str) -> JsonObject:
    """Return the program from the JSON text of a hook. Raises `ProgramError`, `invalid_input`."""
    changed = json.loads(text)
    if changed.keys() != {"code"} or not isinstance(changed["code"], str):
        raise ProgramError("invalid_input", "expected {code}, a string")
    code: str = changed["code"]
    if not code.strip():
        raise ProgramError("invalid_input", "the code is empty")
    return {"code": code}


def event_of(entry: Entry, number: int, arguments: JsonObject, context: CallContext) -> ToolCallEvent:
    effects = entry.effects
    return ToolCallEvent(
        tool_id=entry.id,
        tool_kind=entry.source,
        tool_input_kind="json",
        input=arguments,
        run_id=context.run_id,
        owner=context.owner,
        principal=context.caller.principal,
        read_only=effects.read_only,
        destructive=effects.destructive,
        idempotent=effects.idempotent,
        open_world=effects.open_world,
        call=number,
        defaults=_defaults(entry.tool.input_schema),
    )


def _defaults(schema: JsonObject) -> JsonObject:
    """Return the defaults of top-level arguments. They are copies, which a plugin may change."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    stated = {name: rule for name, rule in properties.items() if isinstance(rule, dict) and "default" in rule}
    return {name: deepcopy(rule["default"]) for name, rule in stated.items()}
