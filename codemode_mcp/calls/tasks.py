"""The rest of a call whose server has answered an earlier process with a task."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from codemode_mcp.audit import sizes
from codemode_mcp.calls.challenges import challenges_of
from codemode_mcp.calls.context import entry_by_id
from codemode_mcp.errors import CodeModeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.calls.configured_arguments import ConfiguredArguments
    from codemode_mcp.calls.context import CallContext
    from codemode_mcp.calls.outcome import CallRecord
    from codemode_mcp.calls.repeated_secrets import RepeatedSecrets
    from codemode_mcp.calls.results import Results
    from codemode_mcp.calls.sending import Sender
    from codemode_mcp.plugins.interception import Interceptors
    from codemode_mcp.sandbox.messages import ToolCall
    from upstream_clients.tools import Asking, JsonObject, ProgressFn, TaskOptions


async def follow_task(
    call: ToolCall,
    context: CallContext,
    record: CallRecord,
    on_progress: ProgressFn | None,
    asking: Callable[[RepeatedSecrets | None], Asking],
    task: TaskOptions,
    sender: Sender,
    configured: ConfiguredArguments,
    interception: Interceptors | None,
    results: Results,
) -> str:
    """Follow a task to its end. Return the result of its call as JSON text, after middleware.

    The rules do not decide again: the call was sent when they allowed it.

    Raises:
        Exception: as for any call that was sent.
    """
    entry = entry_by_id(call.target, context) if call.by_id else context.catalog.resolve(call.target)
    secrets = configured.secrets(entry)
    if secrets is not None and on_progress is not None:
        on_progress = secrets.hide_in_progress(on_progress)
    result = await sender.follow(entry, context, record, on_progress, asking(secrets), secrets, task)
    record.challenges = challenges_of(result)
    if record.watched:
        record.seen = sizes.seen(result)
    if interception is not None and not interception.is_ready:
        await interception.ready()
    arguments: JsonObject = {}
    if interception is not None and interception.has_middleware(entry.id):
        # As the program gave them. Changes of hooks are not known any more.
        with suppress(CodeModeError):
            override = configured.overrides.get(entry.id)
            arguments = configured.prepare(call, entry, override, lambda: context.catalog.signature(entry))
    return await results.text(entry, call.id, arguments, context, None, result, None)
