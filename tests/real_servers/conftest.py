"""Nine published servers behind one `codemode-mcp serve`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.harness import REPOSITORY, Session, npm_server, serve, write_config


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Return the backend, in module scope: the tests of a module can share the servers."""
    return "asyncio"


@dataclass(frozen=True)
class Bench:
    """A connected client, and the folder that the servers work in."""

    session: Session
    folder: Path


def pypi_server(environment: str, name: str, *arguments: str, **more: Any) -> dict[str, Any]:
    """Return the entry of a server from PyPI; skips the test when it is not installed."""
    bin_folder, suffix = ("Scripts", ".exe") if os.name == "nt" else ("bin", "")
    command = REPOSITORY / ".cache" / "servers" / environment / bin_folder / f"{name}{suffix}"
    if not command.is_file():
        pytest.skip(f"{name} is not installed; python3 tests/run.py installs it")
    return {"command": str(command), "args": list(arguments), **more}


@pytest.fixture(scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    folder = tmp_path_factory.mktemp("real")
    (folder / "files").mkdir()
    _repository(folder / "repository")
    servers = {
        "everything": npm_server("everything", "stdio"),
        "filesystem": npm_server("filesystem", str(folder / "files")),
        "memory": npm_server("memory", env={"MEMORY_FILE_PATH": str(folder / "memory.jsonl")}),
        "sequential-thinking": npm_server("sequential-thinking"),
        "time": pypi_server("mcp-2", "mcp-server-time", "--local-timezone", "Etc/UTC"),
        "git": pypi_server("mcp-2", "mcp-server-git", "--repository", str(folder / "repository")),
        "excel": pypi_server("mcp-2", "excel-mcp-server", "stdio", "--allow-dir", str(folder / "files")),
        "sqlite": pypi_server("mcp-1", "mcp-server-sqlite", "--db-path", str(folder / "rows.db")),
        "calculator": pypi_server("mcp-1", "mcp-server-calculator"),
    }
    config = write_config(folder, servers, codeMode={"connectWaitMs": 25_000, "timeoutMs": 25_000})
    async with serve(config) as session:
        yield Bench(session, folder)


def _repository(folder: Path) -> None:
    """Create a repository with one commit and a configured author."""
    git(folder.parent, "init", "--quiet", "--initial-branch=main", str(folder))
    git(folder, "config", "user.name", "Ada")
    git(folder, "config", "user.email", "ada@example.org")
    git(folder, "config", "commit.gpgsign", "false")
    (folder / "first.txt").write_text("one\n", "utf-8")
    git(folder, "add", "first.txt")
    git(folder, "commit", "--quiet", "--message", "First")


def git(folder: Path, *arguments: str) -> str:
    """Return the output of git itself."""
    done = subprocess.run(
        ["git", *arguments], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", check=True
    )
    return done.stdout.strip()
