"""The states of tasks for clients, and the clients that know tasks."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import pytest

from codemode_mcp.calls.outcome import Outcome, Usage
from codemode_mcp.runs.polling import Polled
from codemode_mcp.server.client_tasks import ClientTasks, knows_tasks, status_of
from codemode_mcp.server.exchange import METHODS, TASK_METHODS
from upstream_clients.jsonrpc import METHOD_NOT_FOUND, JsonRpcError
from upstream_clients.tools import Question

if TYPE_CHECKING:
    from codemode_mcp.server.client_tasks import Status

QUESTION = ("question-1", Question("up", "elicitation/create", {"message": "name?"}))


def outcome(status: Literal["completed", "waiting", "failed"], **fields: Any) -> Outcome:
    return Outcome("run_x", "owner", status, Usage(), **fields)


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (None, "working"),
        (outcome("waiting"), "working"),
        (outcome("waiting", reason="yield", yielded="a moment"), "working"),
        (outcome("waiting", unanswerable=True), "working"),
        (outcome("waiting", questions=(QUESTION,)), "input_required"),
        (outcome("completed", value=1), "completed"),
        (outcome("failed", code="timeout"), "completed"),
        (outcome("failed", code="snapshot_restore_failed"), "completed"),
        (outcome("failed", code="internal_error"), "completed"),
        (outcome("failed", code="aborted"), "cancelled"),
    ],
)
def test_each_outcome_has_a_status(found: Outcome | None, status: Status) -> None:
    assert status_of(Polled(found, 1.0, 1.0)) == status


@dataclass
class Client:
    capabilities: dict[str, Any] | None
    modern: bool = True
    client_name: str | None = None
    client_version: str | None = None
    protocol_version: str = "2026-07-28"


@pytest.mark.parametrize(
    ("capabilities", "modern", "knows"),
    [
        ({"extensions": {"io.modelcontextprotocol/tasks": {}}}, True, True),
        ({"extensions": {"io.modelcontextprotocol/tasks": {}}}, False, False),
        ({"extensions": {"io.modelcontextprotocol/tasks": None}}, True, False),
        ({"extensions": {"io.modelcontextprotocol/ui": {}}}, True, False),
        ({"extensions": []}, True, False),
        ({"tasks": {}}, True, False),
        ({}, True, False),
        (None, True, False),
    ],
)
def test_clients_know_tasks_if_they_declare_the_extension(capabilities: Any, modern: bool, knows: bool) -> None:
    assert knows_tasks(Client(capabilities, modern)) is knows


@pytest.mark.anyio
async def test_clients_of_the_handshake_know_no_tasks() -> None:
    """`handshake` answers only `METHODS`. The SDK's server passes all methods on."""
    assert not set(METHODS) & set(TASK_METHODS)
    unused: Any = None
    tasks = ClientTasks(unused, unused, unused, unused)
    exchange: Any = SimpleNamespace(session=Client({"extensions": {"io.modelcontextprotocol/tasks": {}}}, modern=False))
    for method in TASK_METHODS:
        with pytest.raises(JsonRpcError) as refused:
            await tasks.answer(exchange, method)
        assert refused.value.code == METHOD_NOT_FOUND
