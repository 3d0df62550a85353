"""Our upstream client in each of the suite's client scenarios, used as programs use it, through `UpstreamPool`.

A scenario is a server that checks its requests. In most of them the client connects, lists tools, and calls each tool
with arguments that fit its schema. `browse` plays a person at a browser.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.abc
import httpx2

from codemode_mcp.cli.browser_login import log_in
from upstream_clients.errors import LoginError, UpstreamCallError, UpstreamClientError
from upstream_clients.pool import UpstreamPool
from upstream_clients.spec import OAuthSettings, UpstreamSpec
from upstream_clients.tools import Asking, JsonObject, Question, Tool

log = logging.getLogger(__name__)

METADATA_URL = "https://conformance-test.local/client-metadata.json"
"""Address of a document about this client; the suite expects this address and never fetches it."""

LOGINS = 3
"""Number of times that the person at the browser logs in."""

SECONDS = 60
"""Time limit of one scenario."""

CONCURRENT = 6
"""The suite starts all scenarios at the same time, which is too much for a busy machine."""


@dataclass(frozen=True)
class Task:
    """One scenario of the suite."""

    url: str
    scenario: str
    revision: str
    context: Mapping[str, Any]


@asynccontextmanager
async def client() -> AsyncIterator[str]:
    """Yield the address of a client that performs scenarios for `relay.py` concurrently."""

    async def serve(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            try:
                task = await _read_task(stream)
                async with limiter:
                    with anyio.fail_after(SECONDS):
                        await perform(task, tasks)
                said = "done"
            except (UpstreamClientError, LoginError, TimeoutError) as error:
                said = f"{type(error).__name__}: {error}"
            except Exception as error:
                log.exception("a scenario failed in an unexpected way")
                said = f"unexpected {type(error).__name__}: {error}"
            with suppress(anyio.BrokenResourceError):
                await stream.send(said.encode())

    limiter = anyio.Semaphore(CONCURRENT)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield f"127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}"
        tasks.cancel_scope.cancel()


async def _read_task(stream: anyio.abc.SocketStream) -> Task:
    line = b""
    while not line.endswith(b"\n"):
        line += await stream.receive()
    return Task(**json.loads(line))


async def perform(task: Task, tasks: anyio.abc.TaskGroup) -> None:
    """Perform a scenario. Errors of the product are raised, and the suite reports them as failures."""
    settings = None
    if task.scenario.startswith("auth/"):
        settings = OAuthSettings(
            client_id=task.context.get("client_id"),
            client_secret=task.context.get("client_secret"),
            client_metadata_url=METADATA_URL if task.scenario == "auth/basic-cimd" else None,
        )
    spec = UpstreamSpec("suite", transport="http", url=task.url, oauth=settings, timeout_ms=SECONDS * 1000)
    refusal: Exception | None = None
    news = News()
    async with UpstreamPool([spec], on_change=news.tell) as pool:
        try:
            await _use_logged_in(pool, news, spec, task, tasks)
        except (UpstreamClientError, LoginError) as error:
            refusal = error  # raised outside the task group, which would wrap it
    if refusal is not None:
        raise refusal


class News:
    """A signal that the view of the server has changed."""

    def __init__(self) -> None:
        self.came = anyio.Event()

    def tell(self) -> None:
        self.came.set()
        self.came = anyio.Event()


async def _use_logged_in(
    pool: UpstreamPool, news: News, spec: UpstreamSpec, task: Task, tasks: anyio.abc.TaskGroup
) -> None:
    for logins in range(LOGINS + 1):
        await pool.connect(None, SECONDS)
        [view] = pool.views()
        refusal = view.error or ""
        if view.state == "ready":
            try:
                await use(pool, task)
                return
            except UpstreamCallError as error:
                refusal = error.message
        if not task.scenario.startswith("auth/") or "login" not in refusal or logins == LOGINS:
            raise UpstreamClientError("suite", refusal)
        log.info("%s: %s", task.scenario, refusal)
        await log_in(spec, lambda url: tasks.start_soon(browse, url), timeout=SECONDS)
        while pool.views()[0].login_required:
            await news.came.wait()


async def browse(url: str) -> None:
    """A browser with a person who agrees to everything."""
    with suppress(httpx2.HTTPError):
        async with httpx2.AsyncClient(follow_redirects=True, timeout=SECONDS, verify=False) as browser:
            await browser.get(url)


async def use(pool: UpstreamPool, task: Task) -> None:
    source = pool.source("suite")
    view = source.view()
    asking = Asking("suite", answer)
    if task.scenario == "json-schema-2020-12-preservation":
        schema = next(tool.input_schema for tool in view.tools if tool.name == "json_schema_2020_12_tool")
        await source.call_tool("json_schema_echo", {"schema": schema}, asking=asking)
        return
    calls = [(each["name"], each["arguments"]) for each in task.context.get("toolCalls", ())]
    for name, arguments in calls or [(tool.name, fitting(tool)) for tool in view.tools]:
        await source.call_tool(name, arguments, asking=asking)
    if view.resources:
        for resource in (await source.request("resources/list", {}))["resources"]:
            await source.request("resources/read", {"uri": resource["uri"]})
    if view.prompts:
        for prompt in (await source.request("prompts/list", {}))["prompts"]:
            await source.request("prompts/get", {"name": prompt["name"]})


def fitting(tool: Tool) -> dict[str, Any]:
    """Arguments that the tool's schema requires."""
    samples = {"number": 2, "integer": 3, "boolean": True, "object": {}, "array": [], "null": None}
    properties = tool.input_schema.get("properties", {})
    return {
        name: samples.get(properties.get(name, {}).get("type"), "text")
        for name in tool.input_schema.get("required", ())
    }


async def answer(question: Question) -> JsonObject:
    """Return a person who accepts what a form proposes and agrees to everything else."""
    if question.method == "roots/list":
        return {"roots": []}
    if question.method == "sampling/createMessage":
        return {"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "none"}
    fields = question.params.get("requestedSchema", {}).get("properties", {})
    agreed = {name: True for name, field in fields.items() if field.get("type") == "boolean"}
    return {"action": "accept", "content": agreed | {n: f["default"] for n, f in fields.items() if "default" in f}}
