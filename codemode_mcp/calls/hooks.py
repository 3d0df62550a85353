"""The events that hooks and middleware see, and the hooks on the outer `exec`, which may deny or replace a program."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import TYPE_CHECKING

from codemode_mcp.errors import InternalError, PluginError, PolicyDenied, ProgramError
from codemode_mcp.plugins.api import EXEC_ID, ToolCallEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.calls.context import CallContext
    from codemode_mcp.catalog.entries import Entry
    from codemode_mcp.plugins.interception import Interceptors
    from codemode_mcp.policy.callers import Caller
    from codemode_mcp.settings import Language
    from upstream_clients.tools import JsonObject


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
    """Return the event of a call for hooks and middleware."""
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
