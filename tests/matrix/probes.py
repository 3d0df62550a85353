"""Probes of each feature of MCP: one observation as JSON for each, or None if the server does not offer the feature.

The same probes run against a server directly and through `codemode-mcp serve`. `compare` says whether both have seen
the same. Names of ours are undone before the comparison; everything else has to be equal.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from tests.matrix.subjects import Call, Subject
from tests.matrix.wire import PREFIX, ROOT, Json, Refused, Wire

NEWS_SECONDS = 8
"""Seconds to wait for a notification. The reference server sends them every five seconds."""

ROOTS_SECONDS = 10
"""Seconds in which a server gets the roots of its client."""

FEATURES = (
    *("tools", "prompts", "resources", "templates", "subscriptions", "list changes", "completion", "logging"),
    *("progress", "cancellation", "elicitation", "sampling", "roots", "tasks", "apps", "icons", "titles"),
    *("annotations", "_meta"),
)
LISTS = (
    ("tools", "tools/list", "tools"),
    ("prompts", "prompts/list", "prompts"),
    ("resources", "resources/list", "resources"),
    ("resources", "resources/templates/list", "resourceTemplates"),
)
HINTS = ("resultType", "ttlMs", "cacheScope")
MEMBERS = {"icons": ("icons",), "titles": ("title",), "annotations": ("annotations",), "_meta": ("_meta",)}
LEFT_OUT = {*HINTS, *(name for names in MEMBERS.values() for name in names), "execution"}


@dataclass
class Probe:
    """A connected client and the names by which it knows the items of one server.

    Attributes:
        through: False for a client that is connected to the server itself. Through us, there are other servers too.
    """

    wire: Wire
    subject: Subject
    folder: Path
    through: bool

    @property
    def server(self) -> str:
        """Return the name of the server in our configuration."""
        return self.subject.name

    def tool(self, name: str) -> str:
        return f"{self.server}__{name}" if self.through else name

    def prompt(self, name: str) -> str:
        return f"{self.server}/{name}" if self.through else name

    def _is_listed(self, kind: str, item: Json) -> bool:
        """Return True if an item of a list is of this server."""
        if kind in ("resources", "resourceTemplates"):
            uri = item["uri" if kind == "resources" else "uriTemplate"]
            app = f"ui://{self.server}/" if self.through else "ui:"
            return uri.startswith(app) or (self.subject.scheme != "" and uri.startswith(self.subject.scheme))
        return item["name"].startswith(self.tool("") if kind == "tools" else self.prompt(""))

    async def is_ready(self) -> bool:
        """Return True if the server is listed. A list does not wait for long for servers that are starting."""
        lists, subject = await self._lists(), self.subject
        prompts = {prompt["name"] for prompt in lists["prompts"]}
        has_resources = any(each["uri"].startswith(subject.scheme or "-") for each in lists["resources"])
        return (
            bool(lists["tools"])
            and prompts >= {*map(self.prompt, subject.prompts)}
            and (not subject.scheme or has_resources)
            and (not subject.address or bool(lists["resourceTemplates"]))
        )

    async def observe(self) -> dict[str, Json | None]:
        """Return the observations of all features."""
        lists = await self._lists()
        results = {name: await self._call((name, arguments)) for name, arguments in self.subject.calls}
        found: dict[str, Json | None] = {
            "tools": {"list": _without(lists["tools"], LEFT_OUT), "results": _without(results, {"_meta"})}
        }
        for feature, probe in self._probes(lists).items():
            try:
                found[feature] = await probe()
            except (Refused, TimeoutError) as error:
                found[feature] = {"failed": str(error)}
        items = {**lists, "results": {name: _parts(result) for name, result in results.items()}}
        for feature, names in MEMBERS.items():
            chosen = {kind: _only(value, names) for kind, value in items.items()}
            chosen = {kind: value for kind, value in chosen.items() if value}
            found[feature] = chosen or None
        return {feature: found.get(feature) for feature in FEATURES}

    def _probes(self, lists: Json) -> dict[str, Callable[[], Any]]:
        subject = self.subject
        return {
            # First, since the answer to another call may have to ask for roots, and then reports no progress meanwhile.
            "roots": self._roots,
            "prompts": lambda: self._prompts(lists["prompts"]),
            "resources": lambda: self._resources(lists["resources"]),
            "templates": lambda: self._templates(lists["resourceTemplates"]),
            "completion": self._completion,
            "progress": self._progress,
            "elicitation": lambda: self._asked(subject.elicitation),
            "sampling": lambda: self._asked(subject.sampling),
            "tasks": self._tasks,
            "apps": lambda: self._apps(lists),
            "cancellation": self._cancellation,
            "logging": self._logging,
            "subscriptions": self._subscriptions,
            "list changes": self._changes,
        }

    async def _lists(self) -> Json:
        capabilities = self.wire.server["capabilities"]
        lists: Json = {}
        for capability, method, member in LISTS:
            lists[member] = []
            if capability in capabilities:
                try:
                    found = await self.wire.pages(method, member)
                except Refused as refused:
                    if self.through or refused.error["code"] != -32601:
                        raise
                    found = []  # a server that has resources may have no templates
                key = "uri" if member == "resources" else "uriTemplate" if member == "resourceTemplates" else "name"
                found = [item for item in found if self._is_listed(member, item)]
                lists[member] = sorted(found, key=lambda item: str(item[key]))
        return lists

    async def _request(self, method: str, params: Json, **meta: Any) -> Json:
        result = await self.wire.request(method, params, **meta)
        return {name: value for name, value in result.items() if name not in HINTS}

    async def _call(self, call: Call, **meta: Any) -> Json:
        name, arguments = call
        arguments = json.loads(json.dumps(arguments).replace("FOLDER", self.folder.as_posix()))
        try:
            return await self._request("tools/call", {"name": self.tool(name), "arguments": arguments}, **meta)
        except Refused as refused:
            return {"refused": str(refused)}

    async def _prompts(self, listed: list[Json]) -> Json | None:
        if not listed:
            return None
        got = {}
        for name, arguments in self.subject.prompts.items():
            got[name] = await self._request("prompts/get", {"name": self.prompt(name), "arguments": arguments})
        return {"list": _without(listed, LEFT_OUT), "got": got}

    async def _resources(self, listed: list[Json]) -> Json | None:
        listed = [each for each in listed if not each["uri"].startswith("ui:")]
        if not listed:
            return None
        read = {each["uri"]: await self._request("resources/read", {"uri": each["uri"]}) for each in listed[:4]}
        try:
            unknown: Any = await self._request("resources/read", {"uri": "test://unknown"})
        except Refused:
            unknown = "refused"  # with a code that depends on the era and the server
        return {"list": _without(listed, LEFT_OUT), "read": read, "unknown": unknown}

    async def _templates(self, listed: list[Json]) -> Json | None:
        if not listed:
            return None
        read = await self._request("resources/read", {"uri": self.subject.address}) if self.subject.address else None
        return {"list": _without(listed, LEFT_OUT), "read": read}

    async def _completion(self) -> Json | None:
        if not self.subject.completions:
            return None
        found = []
        for params in self.subject.completions:
            ref = dict(params["ref"])
            if ref["type"] == "ref/prompt":
                ref["name"] = self.prompt(ref["name"])
            found.append((await self._request("completion/complete", {**params, "ref": ref}))["completion"])
        return {"values": found}

    async def _progress(self) -> Json | None:
        if self.subject.progress is None:
            return None
        before = len(self.wire.noted("notifications/progress"))
        await self._call(self.subject.progress, progressToken="progress")
        steps = self.wire.noted("notifications/progress")[before:]
        return {"steps": [{name: step.get(name) for name in ("progress", "total", "message")} for step in steps]}

    async def _asked(self, calls: Iterable[Call]) -> Json | None:
        """Return the results of tools that ask, and their questions.

        Questions for roots are left out, since servers ask for them at any time.
        """
        if not calls:
            return None
        found = []
        for call in calls:
            before = len(self.wire.questions)
            result = await self._call(call)
            asked = [each for each in self.wire.questions[before:] if each["method"] != "roots/list"]
            found.append({"result": result, "questions": _questions(asked)})
        return {"calls": found}

    async def _roots(self) -> Json | None:
        """Return the results of tools that show the roots of the client."""
        if not self.subject.roots:
            return None
        results: list[Json] = []
        for call in self.subject.roots:
            # A server asks soon after its start. It may not have got the answer yet.
            with anyio.move_on_after(ROOTS_SECONDS):
                while ROOT not in json.dumps(await self._call(call)):  # noqa: ASYNC110 - another process
                    await anyio.sleep(0.2)
            results.append(await self._call(call))
            if ROOT not in json.dumps(results[-1]):
                return {"failed": "the server has not got the roots", "results": results}
        return {"results": results}

    async def _tasks(self) -> Json | None:
        """Return the results of calls that the server answers with tasks."""
        if not self.subject.tasks:
            return None
        found = []
        for name, arguments in self.subject.tasks:
            params: Json = {"name": self.tool(name), "arguments": arguments}
            if not self.through and self.wire.era == "legacy":
                params["task"] = {"ttl": 60_000}
            result = await self.wire.request("tools/call", params)
            found.append(await self._outcome(result))
        return {"results": found}

    async def _outcome(self, result: Json) -> Json:
        """Follow a task to its end."""
        task = result.get("task") or (result if result.get("resultType") == "task" else None)
        with anyio.fail_after(30):
            while task is not None:
                if task["status"] == "completed":
                    legacy = self.wire.era == "legacy"
                    identity = {"taskId": task["taskId"]}
                    result = await self.wire.request("tasks/result", identity) if legacy else task["result"]
                    break
                if task["status"] == "input_required" and task.get("inputRequests"):
                    answers = {key: self.wire.answer(each)["result"] for key, each in task["inputRequests"].items()}
                    await self.wire.request("tasks/update", {"taskId": task["taskId"], "inputResponses": answers})
                await anyio.sleep(0.1)
                task = await self.wire.request("tasks/get", {"taskId": task["taskId"]})
        return {name: value for name, value in result.items() if name in ("content", "structuredContent", "isError")}

    async def _apps(self, lists: Json) -> Json | None:
        """Return the tools that have an app, and what a host reads of these."""
        tools = {}
        for tool in lists["tools"]:
            if ui := (tool.get("_meta") or {}).get("ui"):
                tools[tool["name"]] = {name: ui[name] for name in ("resourceUri", "visibility") if name in ui}
        uris = sorted({meta["resourceUri"] for meta in tools.values() if "resourceUri" in meta})
        read = {}
        for uri in uris:
            contents = (await self._request("resources/read", {"uri": uri}))["contents"]
            read[uri] = [{"mimeType": each.get("mimeType"), "document": self._document(each)} for each in contents]
        listed = [each["uri"] for each in lists["resources"] if each["uri"].startswith("ui:")]
        return {"tools": tools, "read": read, "listed": listed} if tools else None

    def _document(self, contents: Json) -> str:
        """Return the document of an app: through us, that in the frame of our page."""
        text: str = contents["text"] if "text" in contents else base64.b64decode(contents["blob"]).decode()
        if not self.through:
            return text
        frame = text.partition('<script type="application/json" id="app">')[2].partition("</script>")[0]
        html: str = json.loads(frame)["html"]
        return html

    async def _cancellation(self) -> Json | None:
        """Cancel a call once it has reported progress. Return what is seen of it then."""
        if self.subject.slow is None:
            return None
        name, arguments = self.subject.slow
        before = len(self.wire.noted("notifications/progress"))
        params = {"name": self.tool(name), "arguments": arguments}
        request = await self.wire.begin("tools/call", params, progressToken="cancel")
        begun = await self.wire.until("notifications/progress", before + 1)
        await self.wire.cancel(request)
        try:
            await self.wire.end_of(request, 1)
            answered = True
        except TimeoutError:
            answered = False
        except Refused:
            answered = False
        found: Json = {"begun": len(begun) > before, "answered": answered}
        if self.subject.count:
            found["cancelled"] = (await self._call((self.subject.count, {}))).get("content")
        return found

    async def _logging(self) -> Json | None:
        if self.subject.log is None:
            return None
        before = len(self.wire.noted("notifications/message"))
        meta = {f"{PREFIX}logLevel": "debug"} if self.wire.era == "modern" else {}
        if self.wire.era == "legacy":
            await self.wire.request("logging/setLevel", {"level": "debug"})
        await self._call(self.subject.log, **meta)
        messages: list[Json] = []
        with anyio.move_on_after(NEWS_SECONDS):
            while len(messages) < (1 if self.subject.random else 3):
                await self.wire.until("notifications/message", before + len(messages) + 1, NEWS_SECONDS)
                messages = [each for each in self.wire.noted("notifications/message")[before:] if self._logs(each)]
        if self.subject.random:
            return {"messages": bool(messages)}
        return {"messages": [{"level": each["level"], "data": each["data"]} for each in messages]}

    def _logs(self, message: Json) -> bool:
        logger = message.get("logger", "")
        return not self.through or logger == self.server or logger.startswith(f"{self.server}/")

    async def _subscriptions(self) -> Json | None:
        if self.subject.update is None:
            return None
        uri, call = self.subject.update
        before = len(self.wire.noted("notifications/resources/updated"))
        request = await self.wire.listen(uri)
        await self._call(call)
        updates = (await self.wire.until("notifications/resources/updated", before + 1, NEWS_SECONDS))[before:]
        if request is not None:
            await self.wire.cancel(request)
        else:
            await self.wire.request("resources/unsubscribe", {"uri": uri})
        return {"updated": sorted({each["uri"] for each in updates})}

    async def _changes(self) -> Json | None:
        """Return the lists of which changes are reported, and the names that are new in them."""
        if self.subject.changes is None:
            return None
        kinds = ("tools", "prompts", "resources")
        before = {kind: len(self.wire.noted(f"notifications/{kind}/list_changed")) for kind in kinds}
        names = _names(await self._lists())
        request = await self.wire.listen()
        await self._call(self.subject.changes)
        found: Json = {"changed": []}
        for kind in kinds:
            method = f"notifications/{kind}/list_changed"
            if len(await self.wire.until(method, before[kind] + 1, NEWS_SECONDS)) > before[kind]:
                found["changed"].append(kind)
        if request is not None:
            await self.wire.cancel(request)
        now = _names(await self._lists())
        return {**found, "new": {kind: sorted(now[kind] - names[kind]) for kind in now}}


def _names(lists: Json) -> dict[str, set[str]]:
    """Return the names or addresses of all items by kind."""
    return {
        kind: {item.get("uri") or item.get("uriTemplate") or item["name"] for item in items}
        for kind, items in lists.items()
    }


def _questions(questions: list[Json]) -> list[Json]:
    """Return questions without members that only one era has, in an order of their own."""
    found = []
    for question in questions:
        params = {k: v for k, v in question["params"].items() if k != "elicitationId" and (k, v) != ("mode", "form")}
        found.append({"method": question["method"], "params": params})
    return sorted(found, key=json.dumps)


def _without(value: Any, names: set[str]) -> Any:
    """Return items or results without some members; schemas and data stay whole."""
    if isinstance(value, list):
        return [_without(each, names) for each in value]
    return {k: v for k, v in value.items() if k not in names} if isinstance(value, dict) else value


def _parts(result: Json) -> list[Json]:
    """Return a result and its blocks, as items that can have metadata."""
    return [result, *result.get("content", ())]


def _only(items: Any, names: tuple[str, ...]) -> Any:
    """Return the chosen members of items by the names of the items, without items that have none."""
    if isinstance(items, dict):
        return {k: chosen for k, value in items.items() if (chosen := _only(value, names))}
    found = []
    for item in items:
        name = item.get("uri") or item.get("uriTemplate") or item.get("name") or ""
        members = {member: _meaning(item[member]) for member in names if item.get(member)}
        if members := {member: value for member, value in members.items() if value}:
            found.append([name, members])
    return found


def _meaning(value: Any) -> Any:
    """Return metadata without what is compared elsewhere: the server that answers, and the apps of tools."""
    if isinstance(value, dict):
        return {k: v for k, v in value.items() if k not in (f"{PREFIX}serverInfo", "ui", "ui/resourceUri")}
    return value


# comparison

_TIME = re.compile(r"\d{1,2}:\d\d:\d\d( [AP]M)?(\.\d+Z)?|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*Z")
_FOLDER = re.compile(r"[^\s\"']*/(direct|legacy|modern)-[a-z0-9_]{8}")


def _clean(value: Any, undo: str) -> Any:
    """Return a value without times, folders and the server that answers.

    Args:
        undo: the name of the server in our configuration, to use the names of the server; empty to keep all names.
    """
    if isinstance(value, dict):
        return {
            _clean(k, undo): _clean(v, undo)
            for k, v in value.items()
            if k != f"{PREFIX}serverInfo" and not (k == "_meta" and isinstance(v, dict) and not _meaning(v))
        }
    if isinstance(value, list):
        return [_clean(each, undo) for each in value]
    if not isinstance(value, str):
        return value
    value = _FOLDER.sub("FOLDER", _TIME.sub("TIME", value))
    names = ((f"ui://{undo}/", "ui://"), (f"{undo}__", ""), (f"{undo}/", ""), (f"[{undo}] ", ""))
    for ours, theirs in names if undo else ():
        if value.startswith(ours):
            renamed: str = theirs + value.removeprefix(ours)
            return renamed
    return value


def compare(server: str, direct: Json | None, through: Json | None) -> tuple[str, str]:
    """Return the cell, and for a lost one what was seen."""
    if direct is None:
        return "-", ""
    if not any(direct.values()) or "failed" in direct or direct.get("begun") is False or direct.get("changed") == []:
        return "lost", f"nothing was seen directly: {direct}"
    if _clean(direct, "") == _clean(through, ""):
        return "same", ""
    if _clean(direct, "") == _clean(through, server):
        return "renamed", ""
    return "lost", _difference(_clean(direct, ""), _clean(through, server))


def _difference(direct: Any, through: Any, path: str = "") -> str:
    """Return the first places where two values differ."""
    if isinstance(direct, dict) and isinstance(through, dict):
        keys = [*direct, *(key for key in through if key not in direct)]
        pairs = [(key, direct.get(key, "(absent)"), through.get(key, "(absent)")) for key in keys]
    elif isinstance(direct, list) and isinstance(through, list) and len(direct) == len(through):
        pairs = [(str(index), *pair) for index, pair in enumerate(zip(direct, through, strict=True))]
    else:
        return f"{path}: direct {json.dumps(direct)[:300]}, through us {json.dumps(through)[:300]}"
    parts = [_difference(one, other, f"{path}/{key}") for key, one, other in pairs if one != other]
    return "\n".join(parts[:4])
