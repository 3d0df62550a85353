"""Suspended programs as tasks (extension `io.modelcontextprotocol/tasks`), over stdio and HTTP, with bare messages."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from codemode_mcp.process.instance import registry
from tests.integration.attached import killed_in_the_end
from tests.integration.harness import MODERN, SECONDS, Raw, counting, events, raw, until, write_config
from tests.integration.http_harness import ALICE, BOB, TWO_TOKENS, Served, serve_http

pytestmark = pytest.mark.anyio

EXTENSION = "io.modelcontextprotocol/tasks"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
DECLARING = {EXTENSION: {}}
UNKNOWN, NOT_FOUND, NOT_DECLARED, MISMATCH = -32602, -32601, -32021, -32020

HOLD = "text('first'); await MCP.up.hold({ name: '%s' }); text('second'); return 'done'"
APPROVED = {"action": "accept", "content": {"decision": "approve"}}
STATES = ("created", "working", "asking", "answered", "ended")
ASK = "await yield_control(); return unwrap(await MCP.asked.count({ name: '%s' }))"


class Tasks:
    """A client of revision 2026-07-28, over any transport."""

    def __init__(self, send: Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]) -> None:
        self._send = send

    async def answer(
        self, method: str, *, extensions: dict[str, Any] = DECLARING, token: str = ALICE, **params: Any
    ) -> dict[str, Any]:
        """Return the whole answer to a request."""
        meta = {**MODERN["_meta"], CAPABILITIES: {"elicitation": {}, "extensions": extensions}}
        with anyio.fail_after(SECONDS):
            return await self._send(method, {"_meta": meta, "token": token, **params})

    async def request(self, method: str, **params: Any) -> dict[str, Any]:
        answer = await self.answer(method, **params)
        assert "result" in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    async def error(self, method: str, **params: Any) -> tuple[int, str]:
        error = (await self.answer(method, **params))["error"]
        return error["code"], error["message"]

    async def exec(self, code: str, **options: Any) -> dict[str, Any]:
        return await self.request("tools/call", name="exec", arguments={"code": code}, **options)

    async def created(self, code: str) -> str:
        """Start a program that is suspended. Return the id of its task."""
        task = await self.exec(code)
        assert task["resultType"] == "task", task
        assert task["status"] == "working"
        assert not task.keys() & {"content", "result", "inputRequests", "requestState"}
        return str(task["taskId"])

    async def get(self, task: str) -> dict[str, Any]:
        found = await self.request("tasks/get", taskId=task)
        assert found["resultType"] == "complete"
        return found

    async def until(self, task: str, *statuses: str) -> dict[str, Any]:
        """Poll a task until it has one of these statuses."""
        with anyio.fail_after(SECONDS):
            while (found := await self.get(task))["status"] not in statuses:
                assert found["status"] in ("working", "input_required"), found
        return found


def over_stdio(client: Raw) -> Tasks:
    async def send(method: str, params: dict[str, Any]) -> dict[str, Any]:
        return await client.request(method, {name: value for name, value in params.items() if name != "token"})

    return Tasks(send)


def over_http(served: Served) -> Tasks:
    async def send(method: str, params: dict[str, Any]) -> dict[str, Any]:
        token, header = params.pop("token"), params.pop("header", None)
        name = header or params.get("taskId") or params.get("name")
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        headers = {"mcp-method": method, **({} if name is None else {"mcp-name": name})}
        answer = await served.request(json=message, content=None, headers=headers, token=token)
        found: dict[str, Any] = json.loads(answer.text.rpartition("data: ")[2])
        return found

    return Tasks(send)


def configure(folder: Path) -> Path:
    servers = {"up": counting(folder / "log"), "asked": counting(folder / "asked")}
    path = write_config(folder, servers, ask=["mcp:asked:*"], codeMode={"timeoutMs": 500})
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "http": TWO_TOKENS}), "utf-8")
    return path


@pytest.fixture(scope="module", params=["stdio", "http"])
async def tasks(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Tasks]:
    config, env = configure(folder), {"XDG_STATE_HOME": str(folder / request.param)}
    if request.param == "stdio":
        async with raw(config, env=env) as client:
            yield over_stdio(client)
    else:
        async with serve_http(config, env=env) as served:
            yield over_http(served)


async def test_a_suspended_program_is_a_task_whose_result_can_be_fetched_again(tasks: Tasks) -> None:
    task = await tasks.created(HOLD % "a")
    working = await tasks.get(task)
    assert working["status"] == "working"
    assert isinstance(working["ttlMs"], int)
    assert working["ttlMs"] >= 900_000
    assert isinstance(working["pollIntervalMs"], int)
    assert working["createdAt"] <= working["lastUpdatedAt"]
    await tasks.exec("return unwrap(await MCP.up.release({ name: 'a' }))")
    ended = await tasks.until(task, "completed")
    result = ended["result"]
    assert result["isError"] is False
    assert [item["text"] for item in result["structuredContent"]["output"]] == ["first", "second"]
    assert result["structuredContent"]["value"] == "done"
    for method, more in (("tasks/update", {"inputResponses": {}}), ("tasks/cancel", {})):
        answer = await tasks.request(method, taskId=task, **more)
        assert {**answer, "_meta": None} == {"resultType": "complete", "_meta": None}
    again = await tasks.get(task)
    assert again["result"] == result
    assert [again[name] for name in ("createdAt", "lastUpdatedAt")] == [
        ended[name] for name in ("createdAt", "lastUpdatedAt")
    ]


async def test_questions_are_answered_by_updates(tasks: Tasks, folder: Path) -> None:
    task = await tasks.created(ASK % f"approved {id(tasks)}")
    asking = await tasks.until(task, "input_required")
    ((key, question),) = asking["inputRequests"].items()
    assert question["method"] == "elicitation/create"
    assert (await tasks.get(task))["inputRequests"].keys() == {key}
    await tasks.request("tasks/update", taskId=task, inputResponses={"unknown": {"action": "cancel"}, "odd": 7})
    assert (await tasks.get(task))["status"] == "input_required"
    await tasks.request("tasks/update", taskId=task, inputResponses={key: APPROVED})
    await until(lambda: f"call approved {id(tasks)}" in events(folder / "asked"))
    ended = await tasks.until(task, "completed")
    assert ended["result"]["structuredContent"]["value"] == f"approved {id(tasks)}"


async def test_only_clients_that_declare_the_extension_get_tasks(tasks: Tasks) -> None:
    declared = await tasks.request("server/discover")
    assert declared["capabilities"]["extensions"] == DECLARING
    suspended = await tasks.exec(HOLD % "b", extensions={})
    assert suspended["structuredContent"]["status"] == "waiting"
    task = suspended["structuredContent"]["runId"]
    for method, more in (("tasks/get", {}), ("tasks/update", {"inputResponses": {}}), ("tasks/cancel", {})):
        answer = await tasks.answer(method, extensions={}, taskId=task, **more)
        assert answer["error"]["code"] == NOT_DECLARED
        assert answer["error"]["data"] == {"requiredCapabilities": {"extensions": DECLARING}}
    listening = {"notifications": {"taskIds": [task]}}
    assert (await tasks.error("subscriptions/listen", extensions={}, **listening))[0] == NOT_DECLARED
    for method in ("tasks/result", "tasks/list"):
        assert (await tasks.error(method, taskId=task))[0] == NOT_FOUND
    await tasks.request("tasks/cancel", taskId=task)


async def test_a_task_that_does_not_exist_is_an_error(tasks: Tasks) -> None:
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        for params in ({}, {"taskId": None}, {"taskId": "x" * 5000}, {"taskId": "run_AAAAAAAAAAAAAAAAAAAAAAAA"}):
            assert (await tasks.error(method, inputResponses={}, **params))[0] == UNKNOWN


async def test_answers_that_are_not_valid_are_refused(tasks: Tasks) -> None:
    task = await tasks.created(ASK % "never")
    ((key, _),) = (await tasks.until(task, "input_required"))["inputRequests"].items()
    for answers in (None, [], {key: None}, {key: {"action": "destroy"}}):
        assert (await tasks.error("tasks/update", taskId=task, inputResponses=answers))[0] == UNKNOWN
    assert (await tasks.get(task))["inputRequests"].keys() == {key}
    await tasks.request("tasks/cancel", taskId=task)
    assert (await tasks.get(task))["status"] == "cancelled"


@pytest.mark.parametrize("tasks", ["http"], indirect=True)
async def test_a_task_of_another_owner_is_unknown(tasks: Tasks) -> None:
    task = await tasks.created(HOLD % "mine")
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        foreign = await tasks.error(method, token=BOB, taskId=task, inputResponses={})
        absent = await tasks.error(method, token=BOB, taskId=task[:-1] + "_", inputResponses={})
        assert foreign == absent
        assert foreign[0] == UNKNOWN
        assert task not in foreign[1]
    assert (await tasks.error("tasks/get", taskId=task, header="run_other"))[0] == MISMATCH
    assert (await tasks.get(task))["status"] == "working"
    await tasks.request("tasks/cancel", taskId=task)


async def test_a_process_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    """The process is killed with tasks in all states, and another one takes them over."""
    config, env = configure(tmp_path), {"XDG_STATE_HOME": str(tmp_path / "state")}
    async with raw(config, env=env) as client:
        tasks = over_stdio(client)
        made = {name: await tasks.created(f"text('kept'); {ASK % name}") for name in STATES}
        keys = {}
        for name in ("asking", "answered", "ended"):
            keys[name] = next(iter((await tasks.until(made[name], "input_required"))["inputRequests"]))
        for name in ("answered", "ended"):
            await tasks.request("tasks/update", taskId=made[name], inputResponses={keys[name]: APPROVED})
        before = await tasks.until(made["ended"], "completed")
        await client.send(id=999, method="tasks/get", params={**client.envelope, "taskId": made["working"]})
        client.process.kill()
        await client.process.wait()
    async with raw(config, env=env) as client:
        tasks = over_stdio(client)
        # The next process has not put this question yet.
        await tasks.request("tasks/update", taskId=made["asking"], inputResponses={keys["asking"]: APPROVED})
        for name, task in made.items():
            found = await tasks.until(task, "completed", "input_required")
            if name in ("created", "working"):
                (key,) = found["inputRequests"]
                await tasks.request("tasks/update", taskId=task, inputResponses={key: APPROVED})
                found = await tasks.until(task, "completed")
            content = found["result"]["structuredContent"]
            assert content["output"] == [{"type": "text", "text": "kept"}]
            if name == "ended":
                assert content == before["result"]["structuredContent"]
            if name == "answered" and content["status"] == "failed":
                assert "unknown whether the tool has acted" in content["error"]
            else:
                assert content["value"] == name
        assert sorted(line for line in events(tmp_path / "asked") if "call" in line) == sorted(
            f"call {name}" for name in STATES
        )


@pytest.mark.skipif(sys.platform == "win32", reason="the instance is killed by a signal of Unix")
async def test_a_relay_brings_an_open_poll_to_the_next_shared_instance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    config = configure(tmp_path)
    with killed_in_the_end(config):
        async with raw(config, serve=()) as client:
            tasks = over_stdio(client)
            task = await tasks.created("await new Promise((done) => setTimeout(done, 3000)); return 'awake'")
            extensions = {**MODERN["_meta"], CAPABILITIES: {"extensions": DECLARING}}
            await client.send(id=999, method="tasks/get", params={"_meta": extensions, "taskId": task})
            record = registry.read_record(registry.key_of(config))
            assert record is not None
            os.kill(record.pid, signal.SIGKILL)
            found = (await client.answer_to(999))["result"]
            assert found["taskId"] == task
            assert (await tasks.until(task, "completed"))["result"]["structuredContent"]["value"] == "awake"
