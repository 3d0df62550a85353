"""The installation and the machine: versions, Python, nesting, the trajectory, HTTP, other clients. Blocks."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from codemode_mcp.cli.doctor.check import Check
from codemode_mcp.control.display import counted
from codemode_mcp.settings import HttpSettings
from upstream_clients.environment import system_variables
from upstream_clients.executables import find_executable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from codemode_mcp.config import Config

_PARTS = ("mcp", "wasmtime", "anyio", "pydantic")
"""Packages whose versions are reported."""


def version() -> Iterable[Check]:
    """Report the versions, and check that `codemode-mcp` on PATH is this installation."""
    parts = ", ".join(f"{name} {metadata.version(name)}" for name in _PARTS)
    yield Check("version", "ok", f"codemode-mcp {metadata.version('codemode-mcp')}; {parts}")
    found = find_executable("codemode-mcp")
    if found is not None and not is_here(Path(found), Path(sys.prefix)):
        detail = f"the codemode-mcp on PATH is another installation: {found}; this one is in {sys.prefix}"
        advice = "give clients the full path of the installation that you want, or uninstall the other one"
        yield Check("version", "info", detail, advice)


def is_here(command: Path, prefix: Path) -> bool:
    """Return True if a command belongs to an installation.

    The command may be a link into the installation, as with pipx and `uv tool`.

    Args:
        prefix: the folder of the installation.
    """
    folders = {command.parent, command.resolve().parent}
    return any(folder in (prefix / "bin", prefix / "Scripts") for folder in folders)


def python() -> Iterable[Check]:
    """Check the Python interpreter and the system."""
    kind = f"{platform.python_implementation()} {platform.python_version()}"
    where = f"{platform.system()} {platform.release()}, {platform.machine()}"
    if platform.python_implementation() != "CPython":
        yield Check("python", "warn", f"{kind} on {where} is not tested", "use CPython 3.11 or newer")
    elif sys.maxsize < 2**32:
        detail = f"{kind}, 32 bit, on {where}: the engine needs 64 bit"
        yield Check("python", "warn", detail, "use a 64 bit Python")
    else:
        yield Check("python", "ok", f"{kind} on {where}")


def nesting() -> Iterable[Check]:
    """Check if another `codemode-mcp` has started this process, directly or through other processes."""
    from codemode_mcp.nesting import DEPTH_VARIABLE, MAX_DEPTH, depth

    deep = depth(os.environ)
    if not deep:
        yield Check("nesting", "ok", "not started by another codemode-mcp")
    elif deep < MAX_DEPTH:
        detail = f"started by a server behind codemode-mcp, at depth {deep}; serve refuses to start at {MAX_DEPTH}"
        yield Check("nesting", "info", detail)
    else:
        detail = f"{DEPTH_VARIABLE} is {deep} or more, or not a number: serve refuses to start at depth {MAX_DEPTH}"
        advice = f"remove the server entry that starts codemode-mcp; in a terminal: unset {DEPTH_VARIABLE}"
        yield Check("nesting", "fail", detail, advice)


def trajectory(config: Config) -> Iterable[Check]:
    """Check that the file of `audit.trajectory` can be written."""
    if config.audit.trajectory is None:
        yield Check("trajectory", "ok", "nothing is recorded")
        return
    from codemode_mcp.audit.trajectory import problem_with

    problem = problem_with(Path(config.audit.trajectory))
    if problem is not None:
        yield Check("trajectory", "fail", problem, 'correct "audit.trajectory", or make its folder')
    else:
        inputs = "with inputs" if config.audit.include_inputs else "without inputs"
        yield Check("trajectory", "ok", f"written to {config.audit.trajectory}, {inputs}")


def http(config: Config) -> Iterable[Check]:
    """Check the section `http`. Host and port are not checked, because they are on the command line."""
    settings = config.http
    if settings == HttpSettings():
        yield Check("http", "ok", "not configured; over HTTP, only this machine is served")
        return
    if settings.oauth is not None:
        yield Check("http", "ok", f"callers need an access token of {settings.oauth.issuer}")
    elif settings.tokens:
        yield Check("http", "ok", f"callers need a token; {counted(len(settings.tokens), 'bearer token')} configured")
    elif settings.allow_unauthenticated:
        detail = "there is no authentication: every client that reaches the address can run programs"
        yield Check("http", "warn", detail, 'set "http.auth", or remove "http.allowUnauthenticated"')
    else:
        detail = "there is no authentication: only 127.0.0.1 and localhost are served"
        yield Check("http", "info", detail, 'to serve other addresses, set "http.auth"; docs/http.md shows how')
    if settings.authenticates and settings.allow_unauthenticated:
        detail = '"http.allowUnauthenticated" has no effect beside "http.auth"'
        yield Check("http", "warn", detail, 'remove "http.allowUnauthenticated"')
    plain = [each for each in settings.allowed_origins if each.startswith("http://") and "localhost" not in each]
    if plain:
        detail = f"pages of {', '.join(plain)} are allowed, but without TLS others on the network can change them"
        yield Check("http", "warn", detail, 'use https origins in "http.allowedOrigins"')


def notify(config: Config) -> Iterable[Check]:
    """Check that the command of `tools.approval.notify` exists, without running it."""
    command = config.tools.approval.notify
    if not command:
        return
    found = find_executable(command[0], system_variables(os.environ).get("PATH"))
    if found is None:
        detail = f"{command[0]} was not found or cannot be run, so no person is notified of approvals"
        yield Check("notify", "warn", detail, 'give the full path of the program in "tools.approval.notify"')
    else:
        yield Check("notify", "ok", f"{found} is run when a program begins to wait for approvals")


def other_clients(config: Config, others: Callable[[Config], Iterable[str]]) -> Iterable[Check]:
    """Check for clients that start a server of this configuration directly.

    Such a server runs twice, and the client's calls to it bypass the policy.

    Args:
        others: returns a sentence for each such client.
    """
    sentences = list(others(config))
    for sentence in sentences:
        yield Check("other clients", "warn", sentence, "codemode-mcp install --client NAME --move-servers does that")
    if not sentences:
        yield Check("other clients", "ok", "no client that starts codemode-mcp also starts one of its servers")


def own_code_mode(titles: Callable[[], Iterable[str]]) -> Iterable[Check]:
    """Explain what this server adds to clients that have a code mode of their own."""
    for title in titles():
        detail = (
            f"{title} has a code mode of its own and starts codemode-mcp too; codemode-mcp adds durable runs, and the "
            "same policy, approval and audit for all clients"
        )
        yield Check("client code mode", "info", detail)
