"""Figures of the page on promises are those of the code, where the tests that it names set others to be fast."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from codemode_mcp.base.errors import ERROR_CODES
from codemode_mcp.base.settings import (
    GIB,
    KIB,
    MIB,
    CodeModeSettings,
    DuplicateSettings,
    HttpSettings,
    InstanceSettings,
)
from codemode_mcp.catalog import entries, topics
from codemode_mcp.catalog.plugins import host, interception, scopes
from codemode_mcp.catalog.plugins.api import PluginTool
from codemode_mcp.catalog.saved_programs import versions
from codemode_mcp.cli import instance_control
from codemode_mcp.extensions.type_check import checker, compiler
from codemode_mcp.process.app import terminal_access
from codemode_mcp.process.instance import attaching, clients
from codemode_mcp.rules.policy import approval
from codemode_mcp.rules.trust import service
from codemode_mcp.runs import questions as questions_of_runs
from codemode_mcp.runs import rendering
from codemode_mcp.runs.calls import arguments
from codemode_mcp.runs.store import MemoryStore
from codemode_mcp.sandbox import guest
from codemode_mcp.server import descriptions, direct_forms, forwarded_logs
from codemode_mcp.server.http import oauth, sockets
from codemode_mcp.server.http.listener import BodyBudget
from codemode_mcp.stores import postgres, suspending, values
from codemode_mcp.stores.schema import Lease
from tests.instance import test_serve_by_relay
from upstream_clients import (
    line_messages,
    list_repair,
    live_connection,
    question_routing,
    questions,
    resource_state,
    schema_expansion,
    spec,
)

PAGE = (Path(__file__).parents[1] / "docs" / "promises.md").read_text("utf-8")

code_mode = CodeModeSettings()
http = HttpSettings()
budget = BodyBudget.for_bodies_of(http.max_request_bytes)
lease = Lease()


def size(count: int) -> str:
    """Return a number of bytes as the page writes it."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if count >= unit and count % unit == 0:
            return f"{count // unit} {name}"
    return f"{count:,} bytes"


FIGURES = {
    "A program that computes past its deadline": f"`timeoutMs`, {code_mode.timeout_ms // 1000} s",
    "A program that takes too much memory": f"`memoryLimitBytes`, {size(code_mode.memory_limit_bytes)};",
    "Proposals are bounded": f"{versions.MAX_PROPOSALS_PER_OWNER} of one owner, {versions.MAX_PROPOSALS} in all",
    "An answer is no larger than its limit": f"`maxOutputBytes`, {size(code_mode.max_output_bytes)};",
    "`next` and `pendingToolCalls`": f"{size(rendering.NEXT_BYTES)} each",
    "A check ends, and the program then runs unchecked": f"{checker.CHECK_SECONDS:g} s",
    "The system limits the process of the compiler": f"{size(compiler.MEMORY_BYTES)} of data on Linux,",
    "A value that is too large to leave": f"{size(guest.MAX_TURN_BYTES)} of JSON",
    "Of a flood of calls": (
        f"`maxPendingToolCalls`, {code_mode.max_pending_tool_calls}, "
        f"and `maxQueuedToolCalls`, {code_mode.max_queued_tool_calls:,}"
    ),
    "A result over its limit": f"`maxToolResultBytes`, {size(code_mode.max_tool_result_bytes)}",
    "One owner cannot take the storage": f"`storeMaxBytes`, {size(code_mode.store_max_bytes)} for each owner;",
    "Results of ended programs": (
        f"{MemoryStore.MAX_ENDED} and {size(MemoryStore.MAX_ENDED_BYTES)} in memory; "
        f"{suspending.MAX_ENDED:,} and {size(suspending.MAX_ENDED_BYTES)} in a durable store"
    ),
    "A request is answered in time": f"`maxRequestMs`, {code_mode.max_request_ms // 1000} s",
    "A schema that refers to something outside": f"{schema_expansion.MAX_EXPANDED_NODES:,} nodes;",
    "Arguments may be nested": f"{arguments.MAX_DEPTH} levels",
    "A client gets each documented error code": f"{len(ERROR_CODES)} codes",
    "A call ends at its own timeout": f"`timeoutMs` of the call, 1 to {arguments.MAX_TIMEOUT_MS:,}",
    "An answer to `resources.read` is used again": f"{size(resource_state.MAX_CACHE_BYTES)} for each process",
    "A subscription continues": f"{resource_state.MAX_SUBSCRIPTIONS:,} resources",
    "No list of a server loses": f"up to {size(list_repair.MAX_METADATA_BYTES)} of metadata",
    "All pages of resources": f"up to {entries.MAX_PAGES} pages, {entries.MAX_ITEMS:,} items",
    "With `tools.duplicates`": f"after {DuplicateSettings().max} in {DuplicateSettings().window_seconds} s;",
    "All calls of a turn": f"{approval.MAX_SHOWN} calls,",
    "A program cannot ask again": f"{questions_of_runs.MAX_DENIED} denied questions",
    "A question that the client dismisses": f"in less than {questions_of_runs.MIN_DISMISS_SECONDS:.0f} s",
    "The `notify` command": f"1 argument, {terminal_access.LIMIT_SECONDS:.0f} s",
    "A person who thinks": f"under {2 * question_routing.TURN_SECONDS} s",
    "Questions of one call": f"{questions.MAX_QUESTIONS}, of up to {size(questions.MAX_QUESTION_BYTES)}",
    "A hung server is replaced": (
        f"probed after a timeout or {live_connection.QUIET:.0f} s of silence; "
        f"{live_connection.PROBE_TIMEOUT:.0f} s to react; "
        f"a call without a timeout may take {live_connection.PATIENCE_SECONDS / 60:.0f} min"
    ),
    "A message that is too large": size(line_messages.MAX_MESSAGE_BYTES),
    "A server whose tools are known": f"{spec.IDLE_SECONDS:.0f} s without calls",
    "A server cannot write a sentence": f"{topics.MAX_TOPICS} words,",
    "A program that is too large to suspend": f"`maxSnapshotBytes`, {size(code_mode.max_snapshot_bytes)}",
    "A program that waits for a person is kept": f"`approvalTtlSeconds`, {code_mode.approval_ttl_seconds}",
    "A suspended program is dropped": f"`snapshotTtlSeconds`, {code_mode.snapshot_ttl_seconds}",
    "A process that is cut off": f"after {lease.valid - lease.margin:.0f} s, others after {lease.valid:.0f} s",
    "A process opens a bounded number": str(postgres.CONNECTIONS + 1),
    "Values that are not used": f"{values.STORED_DAYS} days; results {values.RESULT_DAYS} days",
    "A token that is signed by a short key": f"RSA under {oauth.MIN_RSA_BITS} bits",
    "Headers and bodies": (
        f"{size(sockets.MAX_HEADER_BYTES)}, 431; `maxRequestBytes`, {size(http.max_request_bytes)}, 413"
    ),
    "A request that does not arrive": f"`requestReadMs`, {http.request_read_ms // 1000} s,",
    "Half-sent bodies": f"{size(budget.share)} of {size(budget.total)}",
    "A principal that sends too many": (
        f"`requestsPerSecond`, {http.requests_per_second}, after `requestBurst`, {http.request_burst:,};"
    ),
    "Sessions and connections": f"`maxSessions` and `maxConnections`, {http.max_sessions:,} each",
    "The answers that a client does not read": f"{size(clients.MAX_UNSENT)},",
    "A decision of another process takes effect": f"{service.POLL_SECONDS:g} s between two looks at the file",
    "A relay needs little memory": f"{test_serve_by_relay.MAX_RESIDENT // 1024} MB",
    "An instance without clients ends": f"`instance.idleSeconds`, {InstanceSettings().idle_seconds:.0f} s",
    "An instance that hangs": f"{attaching.ATTACH_SECONDS:.0f} s; terminals {instance_control.ANSWER_SECONDS:.0f} s",
    "A hook that hangs": f"{interception.HOOK_SECONDS:.0f} s",
    "A plugin that fails or hangs": f"{host.LOAD_SECONDS:.0f} s",
    "A tool of a plugin": f"`timeout`, {PluginTool.__dataclass_fields__['timeout'].default:.0f} s",
    "Scopes of namespaces": (
        f"{scopes.MAX_VALUES:,} values, {scopes.MAX_SCOPE_CHARACTERS:,} characters, {scopes.MAX_DEPTH} levels"
    ),
    "`tools/list` is": (
        f"2 descriptions of {descriptions.DESCRIPTION_BYTES:,} bytes; {descriptions.TOOLS_BYTES:,} bytes in all, "
        f"{descriptions.TOOLS_BYTES_NAMESPACES:,} with namespaces"
    ),
    "A server that floods its log": (
        f"{forwarded_logs.BURST:.0f} messages at a time, {forwarded_logs.RATE:.0f} per second"
    ),
    "A result in pass-through": f"{direct_forms.MAX_PARTS:,} parts, {direct_forms.MAX_VALUES:,} values",
}
"""The beginnings of promises and of their figures."""


@pytest.mark.parametrize("promise", FIGURES)
def test_the_figure_of_a_promise_matches_the_code(promise: str) -> None:
    found = re.findall(rf"^\| {re.escape(promise)}[^|]* \| ([^|]*) \|", PAGE, re.MULTILINE)
    assert len(found) == 1
    assert found[0].startswith(FIGURES[promise])


def test_no_promise_and_no_test_is_listed_twice() -> None:
    promises = re.findall(r"^\| ([^|]+) \| [^|]+ \| `tests/", PAGE, re.MULTILINE)
    assert len(promises) > 100
    assert len(set(promises)) == len(promises)
    tests = re.findall(r"`(tests/[\w/]+\.py::\w+)`", PAGE)
    assert len(set(tests)) == len(tests)
