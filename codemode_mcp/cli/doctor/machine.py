"""The installation and its machine: versions, Python, nesting, the trajectory, HTTP, other clients. Blocks."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from codemode_mcp.cli.doctor.check import Check
from codemode_mcp.control.display import counted
from codemode_mcp.settings import HttpSettings
from upstream_clients.environment import system_variables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from codemode_mcp.config import Config

_PARTS = ("mcp", "wasmtime", "anyio", "pydantic")


def version() -> Iterable[Check]:
    """Yield this package; whether the command that clients find is this one."""
    parts = ", ".join(f"{name} {metadata.version(name)}" for name in _PARTS)
    yield Check("version", "ok", f"codemode-mcp {metadata.version('codemode-mcp')}; {parts}")
    found = shutil.which("codemode-mcp")
    if found is not None and not is_here(Path(found), Path(sys.prefix)):
        detail = f"the codemode-mcp on PATH is another installation: {found}; this one is in {sys.prefix}"
        advice = "give clients the full path of the one that you mean, or uninstall the other"
        yield Check("version", "info", detail, advice)


def is_here(command: Path, prefix: Path) -> bool:
    """Return True if a command belongs to an installation, be it by a link (pipx, uv tool)."""
    folders = {command.parent, command.resolve().parent}
    return any(folder in (prefix / "bin", prefix / "Scripts") for folder in folders)


def python() -> Iterable[Check]:
    kind = f"{platform.python_implementation()} {platform.python_version()}"
    where = f"{platform.system()} {platform.release()}, {platform.machine()}"
    if platform.python_implementation() != "CPython":
        yield Check("python", "warn", f"{kind} on {where} is not tested", "use CPython 3.11 or newer")
    elif sys.maxsize < 2**32:
        yield Check(
            "python", "warn", f"{kind}, 32 bit, on {where}: the engine has no such build", "use a 64 bit Python"
        )
    else:
        yield Check("python", "ok", f"{kind} on {where}")


def nesting() -> Iterable[Check]:
    from codemode_mcp.nesting import DEPTH_VARIABLE, MAX_DEPTH, depth

    deep = depth(os.environ)
    if not deep:
        yield Check("nesting", "ok", "not started by another codemode-mcp")
    elif deep < MAX_DEPTH:
        yield Check(
            "nesting",
            "info",
            f"started by a server behind codemode-mcp, {deep} deep; from {MAX_DEPTH} on serve refuses",
        )
    else:
        detail = f"{DEPTH_VARIABLE} says {deep} deep, or is no number: serve refuses to start from {MAX_DEPTH} on"
        advice = f"look for a server entry that starts codemode-mcp; in a terminal: unset {DEPTH_VARIABLE}"
        yield Check("nesting", "fail", detail, advice)


def trajectory(config: Config) -> Iterable[Check]:
    if config.audit.trajectory is None:
        yield Check("trajectory", "ok", "nothing is recorded")
        return
    from codemode_mcp.audit.trajectory import problem_with

    problem = problem_with(Path(config.audit.trajectory))
    if problem is not None:
        yield Check("trajectory", "fail", problem, 'correct "audit.trajectory", or make its folder')
    else:
        what = "with inputs" if config.audit.include_inputs else "without inputs"
        yield Check("trajectory", "ok", f"written to {config.audit.trajectory}, {what}")


def http(config: Config) -> Iterable[Check]:
    """Yield the section alone: host and port are given on the command line."""
    settings = config.http
    if settings == HttpSettings():
        yield Check("http", "ok", "not configured; over HTTP only this machine would be served")
        return
    if settings.oauth is not None:
        yield Check("http", "ok", f"access tokens of {settings.oauth.issuer} are asked for")
    elif settings.tokens:
        yield Check("http", "ok", f"{counted(len(settings.tokens), 'bearer token')} let in")
    elif settings.allow_unauthenticated:
        detail = (
            "every client that reaches the address can run programs against all servers: there is no authentication"
        )
        yield Check("http", "warn", detail, 'set "http.auth", or remove "http.allowUnauthenticated"')
    else:
        detail = "no authentication: only 127.0.0.1 and localhost are served"
        yield Check("http", "info", detail, 'for other addresses set "http.auth"; docs/http.md shows how')
    if settings.authenticates and settings.allow_unauthenticated:
        detail = '"http.allowUnauthenticated" has no effect beside "http.auth"'
        yield Check("http", "warn", detail, 'remove "http.allowUnauthenticated"')
    plain = [each for each in settings.allowed_origins if each.startswith("http://") and "localhost" not in each]
    if plain:
        detail = f"pages of {', '.join(plain)} are let in, and come without TLS: who is on their way can change them"
        yield Check("http", "warn", detail, 'name https origins in "http.allowedOrigins"')


def notify(config: Config) -> Iterable[Check]:
    """Report whether the command of `tools.approval.notify` is there. It is not run."""
    command = config.tools.approval.notify
    if not command:
        return
    found = shutil.which(command[0], path=system_variables(os.environ).get("PATH"))
    if found is None:
        detail = f"{command[0]} was not found or cannot be run, so no person is notified of approvals"
        yield Check("notify", "warn", detail, 'give the whole path of the program in "tools.approval.notify"')
    else:
        yield Check("notify", "ok", f"{found} is run when a program begins to wait for approvals")


def other_clients(config: Config, others: Callable[[Config], Iterable[str]]) -> Iterable[Check]:
    """Servers that another client starts too: two processes, and a way round the policy."""
    found = list(others(config))
    for sentence in found:
        yield Check("other clients", "warn", sentence, "codemode-mcp install --client NAME --move-servers does that")
    if not found:
        yield Check("other clients", "ok", "none that starts codemode-mcp starts a server of this configuration too")


def own_code_mode(titles: Callable[[], Iterable[str]]) -> Iterable[Check]:
    """Say what this server adds in clients that start it and can run programs over tools themselves."""
    for title in titles():
        yield Check(
            "client code mode",
            "info",
            f"{title} has a code mode of its own and starts codemode-mcp too; codemode-mcp adds durable runs there, "
            "and one place for policy, approval and audit that is the same for all clients",
        )
