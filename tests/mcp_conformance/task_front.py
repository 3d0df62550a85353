"""An HTTP front of `codemode-mcp serve` with the tools of the suite's scenarios about tasks.

The suite calls tools of its own. The front sends a program to `exec` for each of them. Everything else passes
unchanged, so that the answers are those of the product.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import httpx2

PROGRAMS: Final = {
    "greet": "return `Hello, ${given.name}!`",
    "slow_compute": (
        "if (given.seconds) await yield_control(); await new Promise((done) => setTimeout(done, given.seconds * 1000));"
        " return `computed ${given.label}`"
    ),
    "failing_job": "await yield_control(); throw new Error('the job has failed')",
    "protocol_error_job": "await yield_control(); throw new Error('the job has failed')",
    "confirm_delete": (
        "await yield_control();"
        " const said = await tools.elicit({ message: 'Delete?', fields: { confirm: 'boolean' } });"
        " return said.content?.confirm ? 'deleted' : 'kept'"
    ),
    "multi_input": (
        "await yield_control(); const ask = (message) => tools.elicit({ message, fields: { name: 'string' } });"
        " return (await Promise.all([ask('One?'), ask('Two?')])).map((said) => said.content?.name)"
    ),
    "test_tool_with_task": (
        "const said = await tools.elicit({ message: 'Who?', fields: { name: 'string' } });"
        " await yield_control(); return `Hello, ${said.content.name}!`"
    ),
}
"""The program for each tool. `given` has the arguments of the call."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    target = ""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        for name in ("host", "content-length", "connection", "accept-encoding"):
            headers.pop(name, None)
        with httpx2.Client(timeout=httpx2.Timeout(60)) as client:
            answer = client.post(self.target, content=_translated(body, headers), headers=headers)
        self.send_response(answer.status_code)
        self.send_header("content-type", answer.headers.get("content-type", "application/json"))
        self.send_header("content-length", str(len(answer.content)))
        self.end_headers()
        with suppress(ConnectionError):
            self.wfile.write(answer.content)

    def log_request(self, *_: object) -> None:
        """Log nothing."""


def _translated(body: bytes, headers: dict[str, str]) -> bytes:
    """Return a request in which a program stands for the tool. Its header with the tool is changed, too."""
    message = json.loads(body)
    params: dict[str, Any] = message.get("params") or {}
    program = PROGRAMS.get(params.get("name", "")) if message.get("method") == "tools/call" else None
    if program is None:
        return body
    if headers.get("mcp-name") == params["name"]:
        headers["mcp-name"] = "exec"
    code = f"const given = {json.dumps(params.get('arguments') or {})}; {program}"
    return json.dumps({**message, "params": {**params, "name": "exec", "arguments": {"code": code}}}).encode()


@contextmanager
def task_front(target: str) -> Iterator[str]:
    """Serve the front of a server. Yield its URL."""
    handler = type("_Front", (_Handler,), {"target": target})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/mcp"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
