"""The states of tasks for clients, and the clients that know tasks."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal, cast

import pytest

from codemode_mcp.base.settings import ToolSettings
from codemode_mcp.rules.policy.policy import Caller
from codemode_mcp.runs.calls.outcome import Outcome, Usage
from codemode_mcp.runs.observation import Polled
from codemode_mcp.server import client_tasks
from codemode_mcp.server.client import knows_tasks
from codemode_mcp.server.client_tasks import ClientTasks, Status, status_of
from codemode_mcp.server.exchange import METHODS, TASK_METHODS
from codemode_mcp.server.exposure.selection import Exposure
from tests.values import replace
from upstream_clients.jsonrpc import METHOD_NOT_FOUND, JsonRpcError
from upstream_clients.tools import Question

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


class Served:
    """One ended or suspended run for each id, as `services.App` and as its polling."""

    def __init__(self) -> None:
        self.set = ToolSettings()
        self.rendered = 0
        self.auditor = SimpleNamespace(listening=False, emit=lambda *_, **__: None)
        self.tasks = ClientTasks(cast("Any", self), lambda _: Exposure(), self._render, lambda: False)

    def settings(self) -> ToolSettings:
        return self.set

    def admits_nothing(self, caller: Caller) -> bool:
        return False

    async def manager(self) -> Any:
        return SimpleNamespace(polling=SimpleNamespace(poll=self._poll))

    async def _poll(self, *_: Any) -> Polled:
        return Polled(outcome("completed"), 1.0, 1.0)

    async def _render(self, *_: Any) -> Any:
        self.rendered += 1
        return {"content": []}

    async def get(self, caller: Caller, name: str = "one", **capabilities: Any) -> Any:
        known = {"extensions": {"io.modelcontextprotocol/tasks": {}}, **capabilities}
        session, params = Client(known, client_name=name), {"taskId": "run_x"}
        exchange: Any = SimpleNamespace(session=session, caller=caller, params=params, path_mode=None, request_id=1)
        return (await self.tasks.answer(exchange, "tasks/get"))["result"]


@pytest.mark.anyio
async def test_a_result_is_kept_for_one_form_and_one_kind_of_caller_until_the_settings_change() -> None:
    served, me = Served(), Caller("me")
    for rendered in (1, 1):
        await served.get(me)
        assert served.rendered == rendered
    await served.get(Caller("me", read_only=True))
    await served.get(Caller("me", context="guests"))
    await served.get(me, "two")
    assert served.rendered == 4
    served.set = ToolSettings()
    await served.get(me)
    assert served.rendered == 5


@pytest.mark.anyio
async def test_a_client_cannot_have_much_kept_beside_a_result() -> None:
    served = Served()
    await served.get(Caller("me"), "x" * 10_000, experimental={"y" * 10_000: {}})
    assert len(repr(served.tasks._results)) < 1000


def test_the_tasks_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_tasks, "MAX_KNOWN", 3)
    tasks = Served().tasks
    for number in range(10):
        tasks.created(replace(outcome("waiting"), run_id=f"run_{number}"))
    assert len(tasks._known) == 3
