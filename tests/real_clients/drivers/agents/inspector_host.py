"""A program that makes each call with the Inspector's command line: `inspector_host.py URL INSPECTOR SERVERS`."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from typing import Any


def post(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(f"{url}/direct", json.dumps(body).encode())
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["call"]


def inspect(*arguments: str) -> dict[str, Any]:
    """Return what one process of the Inspector prints."""
    program, servers = sys.argv[2:4]
    command = [program, "--cli", "--config", servers, "--server", "codemode", *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, encoding="utf-8", check=False)
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise SystemExit(f"exit code {done.returncode}: {done.stdout}") from None


def main() -> None:
    url = sys.argv[1]
    names = [tool["name"] for tool in inspect("--method", "tools/list")["tools"]]
    results: list[Any] = []
    while call := post(url, {"tools": names, "results": results}):
        arguments = (f"{name}={json.dumps(value)}" for name, value in call["arguments"].items())
        flags = [part for argument in arguments for part in ("--tool-arg", argument)]
        result = inspect("--method", "tools/call", "--tool-name", call["name"], *flags)
        results = list(result.get("content") or [])
        if "structuredContent" in result:
            results.append(json.dumps(result["structuredContent"], ensure_ascii=False, separators=(",", ":")))


main()
