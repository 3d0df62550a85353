"""Helpers for `codemode-mcp add`: a registry, package managers with given answers, and what would be written."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from codemode_mcp.cli import app

OFFICIAL = "io.modelcontextprotocol.registry/official"
PACKAGE = {"registryType": "npm", "identifier": "@acme/weather", "version": "1.2.3", "transport": {"type": "stdio"}}
MANAGER = """
import json, os, pathlib, sys
file = pathlib.Path(__file__)
words, given = sys.argv[1:], sys.stdin.read().strip()
key = " ".join((file.stem, given or (words[words.index("--") + 1] if "--" in words else ""))).strip()
project = pathlib.Path(".npmrc")
if key.endswith("registry") and project.exists():
    print(project.read_text())
    sys.exit(0)
if not key.endswith("registry") and sorted(os.listdir()) != ["package.json", "uv.toml"]:
    sys.exit("not in an empty folder")
code, out, err = json.loads(file.with_name("answers.json").read_text()).get(key) or (
    (1, json.dumps({"error": {"code": "E404", "summary": "Not Found"}}), "npm error code E404")
    if file.stem == "npm"
    else (1, "", "error: No solution found\\n  cause: Because a was not found in\\n    the package registry and")
)
print(out)
print(err, file=sys.stderr)
sys.exit(code)
"""
"""A package manager with the answers of a file, in the form of npm 11 and uv 0.13."""


class Managers:
    """The programs `npm` and `uv` in a folder, with the answers that they give."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("npm", "uv"):
            script = folder / f"{name}.py"
            script.write_text(MANAGER)
            if sys.platform == "win32":
                (folder / f"{name}.cmd").write_text(f'@"{sys.executable}" -I -S "{script}" %*\n')
            else:
                (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{script}" "$@"\n')
                (folder / name).chmod(0o755)
        self._answers: dict[str, tuple[int, str, str]] = {}
        self.answers("npm registry", "https://user:PLANTED@npm.example/PLANTED/")
        self.answers("npm @acme:registry", "https://acme.example/")
        self.answers("uv", "--index-url https://user:PLANTED@pypi.example/simple\n")

    def answers(self, key: str, output: str, code: int = 0, errors: str = "") -> None:
        """Have a manager give an answer: to `npm NAME`, `npm KEY` of its settings, or `uv REQUIREMENT`."""
        self._answers[key] = (code, output, errors)
        (self.folder / "answers.json").write_text(json.dumps(self._answers))

    def has(self, name: str, **more: Any) -> None:
        """Have npm find a package."""
        self.answers(f"npm {name}", json.dumps({"name": name, "version": "2.0.1", "bin": {"x": "x.js"}, **more}))


class Web(ThreadingHTTPServer):
    """A registry and other documents, by path with query. A text is the address of a redirect."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pages: dict[str, Any] = {}
        self.url = f"http://127.0.0.1:{self.server_port}"

    def lists(self, *servers: dict[str, Any]) -> None:
        """Have the registry list these servers, and find them by every word."""
        records = [{"server": each, "_meta": {OFFICIAL: {"status": "active"}}} for each in servers]
        for record in records:
            name = record["server"]["name"].replace("/", "%2F")
            self.pages[f"/v0.1/servers/{name}/versions/latest"] = record
        self.pages["/v0.1/servers"] = {"servers": records, "metadata": {"count": len(records)}}


class _Handler(BaseHTTPRequestHandler):
    server: Web

    def do_GET(self) -> None:
        page = self.server.pages.get(self.path, self.server.pages.get(self.path.partition("?")[0]))
        self.send_response(404 if page is None else 302 if isinstance(page, str) else 200)
        if isinstance(page, str):
            self.send_header("Location", page)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(page if isinstance(page, bytes) else json.dumps(page).encode())

    def log_message(self, *_: object) -> None:
        pass


def would_add(*words: str, config: Path, code: int = 0) -> tuple[dict[str, Any], str]:
    """Return the entries that would be written, and the messages."""
    done = CliRunner().invoke(app, ["add", "--dry-run", "--config", str(config), *words], prog_name="codemode-mcp")
    assert done.exit_code == code, done.output
    assert not config.exists()
    entries = json.loads(done.stdout)["mcpServers"] if code == 0 else {}
    return entries, " ".join(done.stderr.split())


def server(name: str = "io.github.acme/weather", **more: Any) -> dict[str, Any]:
    return {"name": name, "description": "Weather.", "version": "1.2.3", **more}
