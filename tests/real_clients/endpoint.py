"""A model on loopback that follows a script: it calls our tools, and reads nothing but what its client sends.

A script is a generator. It yields the call that the model makes next, and is sent what the model then reads. When it
ends, the model says so in text, and the client is done.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.real_clients.protocols import ModelApi, Reply, Request, Tool, ToolCall

WORDS = "google calendar events"
"""A task in the words of a user; one server of the cases is named `googleCalendar`."""

SEARCHES: dict[str, tuple[dict[str, Any], ...]] = {
    "ToolSearch": (
        {"query": WORDS, "max_results": 5},
        {"query": "select:mcp__codemode__exec,mcp__codemode__wait", "max_results": 5},
    ),
    "tool_search": ({"query": WORDS, "limit": 8}, {"query": "run a program exec wait", "limit": 8}),
}
"""Tools by which a model finds deferred tools, each with what it looks for: first its task, then our tools by name."""


@dataclass(frozen=True)
class Call:
    """A call of one of our tools, by the name that we give it."""

    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Reading:
    """The answer to one call, as the model was sent it."""

    items: tuple[Any, ...]

    @property
    def strings(self) -> list[str]:
        """All texts in it, pictures left out."""
        return [text for item in self.items for text in _strings(item)]

    @property
    def text(self) -> str:
        return "\n".join(self.strings)

    @property
    def plain(self) -> str:
        """Text with the quotes of nested JSON taken away, as a model reads through them."""
        return re.sub(r'\\+(["n])', lambda found: '"' if found[1] == '"' else "\n", self.text)

    @property
    def pictures(self) -> int:
        """Pictures that the model can see: bytes within a text are none."""
        return sum(1 for item in self.items for _ in _pictures(item))

    @property
    def run_id(self) -> str | None:
        """The id of a suspended run, where a model would look for it."""
        found = re.search(r'run_?id"?\W{1,4}([A-Za-z0-9_-]{22,})', self.plain, re.IGNORECASE)
        return found[1] if found else None


Script = "Generator[Call, Reading, None]"

_NO_TEXT = frozenset(
    {"type", "role", "id", "call_id", "tool_call_id", "tool_use_id", "name", "status", "cache_control"}
)


def _is_picture(value: dict[str, Any]) -> bool:
    match value:
        case {"type": "image", "source": {"data": str(data)}} | {"type": "image", "data": str(data)}:
            return bool(data)
        case {"type": "input_image", "image_url": str(url)} | {"type": "image_url", "image_url": {"url": str(url)}}:
            return url.startswith("data:image/")
        case {"inlineData": {"mimeType": str(kind), "data": str(data)}}:
            return kind.startswith("image/") and bool(data)
    return False


def _pictures(value: Any) -> Iterator[Any]:
    match value:
        case dict() if _is_picture(value):
            yield value
        case dict():
            for each in value.values():
                yield from _pictures(each)
        case list():
            for each in value:
                yield from _pictures(each)


def _strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict() if _is_picture(value):
            return
        case dict():
            for key, each in value.items():
                if key not in _NO_TEXT or not isinstance(each, str):
                    yield from _strings(each)
        case list():
            for each in value:
                yield from _strings(each)
        case int() | float() if not isinstance(value, bool):
            yield str(value)


@dataclass
class Model:
    """The scripted model: one conversation with one client.

    Attributes:
        first: The first request that showed tools.
        requests: Paths and bodies of all requests.
        problems: What the client did that no script foresees.
        searches: Searches for deferred tools that the model has made.
        found_by_words: The search for the task has found `exec`.
    """

    api: ModelApi
    script: Generator[Call, Reading, None]
    requests: list[tuple[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    first: Request | None = None
    searches: int = 0
    found_by_words: bool = False
    done: bool = False
    _wanted: Call | None = None
    _made: ToolCall | None = None
    _calls: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, path: str, body: dict[str, Any]) -> tuple[str, bytes]:
        with self._lock:
            self.requests.append((path, body))
            request = self.api.request(body)
            return self.api.reply(path, body, self._reply(request))

    def _reply(self, request: Request) -> Reply:
        if not request.tools or self.done:
            return "{}"  # a title, a summary, a check whether the model is there
        if self.first is None:
            self.first = request
        try:
            if self._made is None and self._wanted is None:
                self._wanted = next(self.script)
            elif self._made is not None and self._made.tool.name not in SEARCHES:
                self._wanted = self.script.send(Reading(request.news))
        except StopIteration:
            self.done = True
            return "The script has ended."
        return self._call(request)

    def _call(self, request: Request) -> Reply:
        assert self._wanted is not None
        arguments = self._wanted.arguments
        tool = find_tool(request.tools, self._wanted.tool) or _referenced(request, self._wanted.tool)
        if tool is not None:
            self.found_by_words |= self.searches == 1
        else:
            search = next((each for each in request.tools if each.name in SEARCHES), None)
            if search is not None and self.searches < len(SEARCHES[search.name]):
                tool, arguments = search, SEARCHES[search.name][self.searches]
                self.searches += 1
        if tool is None:
            self.done = True
            self.problems.append(f"{self._wanted.tool} is not among {[each.name for each in request.tools]}")
            return "There is no such tool."
        self._calls += 1
        self._made = ToolCall(f"call_{self._calls:04}", tool, arguments)
        return self._made


def find_tool(tools: tuple[Tool, ...], name: str) -> Tool | None:
    """Return our tool under the name that its client gives it."""
    for tool in tools:
        if re.fullmatch(rf"(.*codemode[_.-]+)?{name}", f"{tool.namespace or ''}{tool.name}"):
            return tool
        if tool.namespace and "codemode" in tool.namespace and tool.name == name:
            return tool
    return None


def _referenced(request: Request, name: str) -> Tool | None:
    """Return our tool where a search has loaded it without its entry in the list of tools."""
    found = re.search(rf'"tool_name": "(mcp__codemode__{name})"', request.text)
    return Tool(found[1]) if found else None


@contextmanager
def serving(model: Model) -> Iterator[str]:
    """Serve the model on a free port of loopback; the URL of it."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
            if model.api.reads(self.path):
                self._send(200, *model.answer(self.path, body))
            elif self.path.split("?")[0].endswith(("count_tokens", ":countTokens")):
                self._send(200, "application/json", b'{"input_tokens": 1, "totalTokens": 1}')
            else:
                self._send(404, "application/json", b"{}")

        def do_GET(self) -> None:
            self._send(404, "application/json", b"{}")

        def _send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
