"""A server like `serve` whose client has a relay: `noting_server.py CONFIG NOTES`.

Every note about a run is appended to NOTES as a line of JSON: `[request, run, dispatched]`. The requests that an
earlier process has left unanswered are in the variable INTERRUPTED, in the same form.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import anyio

from codemode_mcp.config import load_config
from codemode_mcp.process.app.app import open_app
from codemode_mcp.server.code_mode import Surface
from codemode_mcp.server.stdio import reserve, serve_surface
from upstream_clients.jsonrpc import RequestId


class Notes:
    are_written = True

    def __init__(self, file: int, request: RequestId) -> None:
        self._file = file
        self._request = request

    def write(self, run_id: str | None, *, dispatched: bool) -> bool:
        os.write(self._file, json.dumps([self._request, run_id, dispatched]).encode() + b"\n")
        return True

    async def written(self) -> None:
        return


async def main(config: Path, notes: Path) -> None:
    streams = reserve()
    file = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    async with open_app(load_config(config, environ=os.environ), None, "stdio") as app:
        surface = Surface(app, app.operator, lasting=True)
        surface.notes_of = lambda request: Notes(file, request)
        for request, run, dispatched in json.loads(os.environ.get("INTERRUPTED", "[]")):
            surface.note_interrupted(request, run, dispatched=dispatched)
        await serve_surface(surface, app.operator, streams, anyio.Event())


if __name__ == "__main__":
    anyio.run(main, *map(Path, sys.argv[1:]))
