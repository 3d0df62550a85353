"""Checks of the installation, the machine, folders, the shared instance and clients. Blocks."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import sys
import time
from collections import Counter
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import anyio
import anyio.to_thread

from codemode_mcp import __version__
from codemode_mcp.base.display import counted, cut, plain
from codemode_mcp.base.nesting import DEPTH_VARIABLE
from codemode_mcp.base.settings import HttpSettings
from codemode_mcp.base.text import listed
from codemode_mcp.cli.check import CORRECT, Check, Status
from codemode_mcp.process.instance import registry
from codemode_mcp.server.control.client import NoAnswer, ask, ask_all
from codemode_mcp.server.control.endpoints import endpoint_at
from codemode_mcp.server.control.protocol import Request
from codemode_mcp.server.profiles import traits
from upstream_clients.environment import find_executable, system_variables
from upstream_clients.private_files import exposure
from upstream_clients.spec import UpstreamSpec
from upstream_clients.stdio import shake_hands

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from codemode_mcp.config import Config
    from codemode_mcp.extensions.setup.mcp_clients.own_entries import OwnEntry
    from codemode_mcp.process.instance.registry import Record


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
    from codemode_mcp.base.nesting import MAX_DEPTH, depth

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


# Checks of the user's folders: write access, no write access for others, and free space. Blocks.


MIN_FREE: Final = 100 * 1024 * 1024
"""Bytes that should be free. The compiled engine, esbuild and the tool lists take about 20 MB."""


def check_folders() -> Iterable[Check]:
    from codemode_mcp.base.paths import cache_dir
    from upstream_clients.token_store import logins_folder

    without = "every process compiles the engine and starts every server"
    yield from folder("cache folder", cache_dir(), without)
    yield from folder("data folder", logins_folder(), "logins can be stored in the system keyring only")
    yield control()


def folder(name: str, path: Path, without: str) -> Iterable[Check]:
    """Check one folder, which may not exist yet.

    Args:
        without: the consequence if nothing can be stored in the folder.
    """
    existing = nearest_existing(path)
    if not existing.is_dir():
        yield Check(name, "warn", f"{existing} is a file, so {without}", "move that file away")
        return
    if not os.access(existing, os.W_OK | os.X_OK):
        advice = f"chmod u+rwx {existing}, or set XDG_CACHE_HOME/XDG_DATA_HOME to a folder of yours"
        yield Check(name, "warn", f"{existing} cannot be written, so {without}", advice)
        return
    why = exposure(path)
    if why is not None:
        advice = f"chmod 700 {path} (as its owner), or remove it: it is made again"
        if not why.startswith(f"{path} "):
            advice = f"chmod go-w that folder (as its owner), so that only you can write {path}"
        yield Check(name, "warn", f"{why}, so {without}", advice)
    free = shutil.disk_usage(existing).free
    if free < MIN_FREE:
        yield full_disk(name, existing, free, f"less than {MIN_FREE // 1_000_000} MB may not be enough")
    elif why is None:
        state = "" if path.exists() else ", made when it is needed"
        yield Check(name, "ok", f"{path}{state}; {free / 1e9:.1f} GB free")


def nearest_existing(path: Path) -> Path:
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def full_disk(name: str, folder: Path, free: int, reason: str) -> Check:
    return Check(name, "warn", f"only {free // 1_000_000} MB are free at {folder}", f"free some space: {reason}")


def control() -> Check:
    from codemode_mcp.server.control.endpoints import NoPrivateFolder, new_endpoint

    try:
        endpoint = new_endpoint("json" if sys.platform == "win32" else "sock")
    except NoPrivateFolder as error:
        advice = "make one of them yours alone, or set XDG_RUNTIME_DIR to a short folder of yours"
        detail = f"codemode-mcp runs will not find the processes of this user: {error}"
        return Check("control folder", "warn", detail, advice)
    return Check("control folder", "ok", str(endpoint.path.parent))


INSTANCE_CHECK: Final = "instance"

ANSWER_SECONDS: Final = 5.0
"""Seconds that the instance may take to answer."""

_OWN_PROCESS: Final = "each client has a server process of its own"


async def check_instance(config: Config) -> Iterable[Check]:
    """Check the instance of a configuration. Start none."""
    result = partial(Check, INSTANCE_CHECK)
    key = registry.key_of(config.path)
    try:
        record, is_running = await anyio.to_thread.run_sync(_look, key)
    except registry.Unusable as error:
        return [result("warn", f"no instance can be shared, so {_OWN_PROCESS}: {error}")]
    except OSError as error:
        reason = f"{error.filename or 'its folder'}: {error.strerror or error}"
        return [result("warn", f"no instance can be shared, so {_OWN_PROCESS}: {reason}", "make that folder yours")]
    if not is_running:
        if not config.instance.shared:
            return [result("ok", f"off (instance.shared is false): {_OWN_PROCESS}")]
        left = ""
        if record is not None:
            left = f"; process {record.pid} was killed and has left its record, which the next instance replaces"
        return [result("ok", f"none runs for this configuration; the first client starts it{left}")]
    if record is None:
        return [result("info", "a process is the instance, but has no record: it is starting or ending")]
    try:
        endpoint = endpoint_at(Path(record.endpoint), record.pid)
        facts = (await ask(endpoint, Request("instance"), ANSWER_SECONDS))["instance"]
    except NoAnswer as error:
        resume = "" if sys.platform == "win32" else f"kill -CONT {record.pid} if it was suspended, or "
        advice = f"{resume}codemode-mcp instance stop --kill; clients start the next one"
        return [result("warn", f"the instance does not serve: {error}", advice)]
    found = [result("ok", _summary(facts))]
    if not config.instance.shared:
        detail = "it runs although instance.shared is false: its clients started before that was set"
        found.append(result("info", detail, "codemode-mcp instance stop; its clients then have their own servers"))
    if record.version != __version__:
        detail = f"process {record.pid} has version {cut(record.version, 40)}, and this program has {__version__}"
        found.append(result("warn", detail, "codemode-mcp instance restart, or restart all clients"))
    return found


def _look(key: str) -> tuple[Record | None, bool]:
    """Return the record of an instance, and True if it runs. Raises `OSError` or `Unusable`."""
    return registry.read_record(key), registry.is_running(key)


def _summary(facts: Mapping[str, Any]) -> str:
    from codemode_mcp.cli.instance_control import saved_text

    clients = Counter(cut(plain(client["name"] or "(no name yet)"), 40) for client in facts["clients"])
    names = listed([name if count == 1 else f"{name} ({count})" for name, count in clients.items()])
    running = sum(bool(server["pids"]) for server in facts["servers"])
    size = facts["memoryBytes"]
    parts = [
        f"process {facts['pid']}, version {cut(facts['version'], 40)}",
        *([] if size is None else [f"{size / 1e6:.0f} MB"]),
        f"{counted(len(facts['clients']), 'client')}{f': {names}' if names else ''}",
        f"{counted(len(facts['servers']), 'server')}, {running} of them as processes",
        *([f"serves over HTTP at {plain(facts['http'])}"] if facts["http"] else []),
        *([f"is ending: {cut(facts['leaving'], 200)}"] if facts["leaving"] else []),
        *([saved_text(facts["saved"]).rstrip(".")] if facts["saved"] else []),
    ]
    return "; ".join(parts)


MAX_LINES = 20
"""Maximum number of clients that the report shows."""


async def check_clients(config: Config) -> Iterable[Check]:
    """Ask the processes that serve this configuration for their clients. Processes that do not answer are left out."""
    found = await ask_all(Request("clients"))
    served = _resolved(config.path)
    connected = [
        (answer["server"], client)
        for _, answer in found.answers
        if answer["server"] is not None and _resolved(answer["server"]["config"]) == served
        for client in answer["clients"]
    ]
    if not connected:
        return [Check("client", "ok", "no client is connected to a process that serves this configuration")]
    checks = [_check_client(server, client) for server, client in connected[:MAX_LINES]]
    if len(connected) > MAX_LINES:
        more = f"{len(connected) - MAX_LINES} more clients; codemode-mcp clients lists all of them"
        checks.append(Check("client", "info", more))
    return checks


def _check_client(server: Mapping[str, Any], client: Mapping[str, Any]) -> Check:
    overrides = client["overrides"]
    changed = f"; changed by the configuration: {', '.join(overrides)}" if overrides else ""
    version, protocol = cut(client["version"], 40), cut(client["protocol"], 20)
    return Check(
        f"client {cut(client['name'] or '(no name)', 60)}",
        "ok",
        f"version {version}, MCP {protocol}, {server['transport']}, process {server['pid']}; "
        f"profile {cut(client['profile']['client'], 60)}: {traits(client['profile'])}{changed}",
    )


def _resolved(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path).resolve()


# Checks of this server's entries in the files of clients.
#
# The command of an entry must exist and start, or its address must accept connections.


ENTRY_CHECK: Final = "client entry"

START_SECONDS: Final = 60.0
"""Time limit in seconds for an entry's server to answer `initialize`."""

SLOW_SECONDS: Final = 15.0
"""Seconds after which an answer is slow. Some clients do not wait longer."""

_MAX_STARTING: Final = 2
"""Maximum number of entries whose servers are started at the same time."""

_PRIVATE: Final = {DEPTH_VARIABLE: "1"}
"""The variable with which `serve` shares no instance, so that no instance is left behind."""

REACH_SECONDS: Final = 3.0
"""Time limit in seconds for an address to accept a connection."""

_INVALID: Final = re.compile(r"invalid_config: .* - ")
"""The beginning of the mistakes in the configuration file of an entry."""

MAX_ENTRIES: Final = 30
"""Maximum number of entries that are checked."""


async def check_entries(find: Callable[[], Sequence[OwnEntry]]) -> Iterable[Check]:
    """Check the entries, up to `MAX_ENTRIES`.

    A server that is started from an entry is stopped again. Such a server starts no upstream servers.

    Args:
        find: returns the entries. It may block.
    """
    entries = list(await anyio.to_thread.run_sync(find))[:MAX_ENTRIES]
    if not entries:
        return [
            Check(ENTRY_CHECK, "info", "no client has an entry for this server", "codemode-mcp install --client NAME")
        ]
    checks: dict[int, Check] = {}
    places = anyio.CapacityLimiter(_MAX_STARTING)

    async def check_one(number: int, entry: OwnEntry) -> None:
        async with places:
            checks[number] = await _check_entry(entry)

    async with anyio.create_task_group() as group:
        for number, entry in enumerate(entries):
            group.start_soon(check_one, number, entry)
    return [checks[number] for number in range(len(entries))]


async def _check_entry(entry: OwnEntry) -> Check:
    result = partial(_result, f"{entry.title}, {cut(entry.name, 60)!r} in {entry.path}")
    scope = " --scope project" if entry.comes_with_folder else ""
    again = f"codemode-mcp install --client {entry.client}{scope} writes the entry again"
    if entry.disabled:
        return result("info", "the entry is disabled there")
    if entry.url is not None:
        return await _check_url(entry.url, result)
    command = entry.command or ""
    path = entry.env.get("PATH") or os.environ.get("PATH", "")
    # A relative path starts in the folder of the client, which is not known here.
    program = find_executable(command, path)
    if program is None:
        return result("fail", f"the command {cut(command, 200)!r} was not found", again)
    if entry.comes_with_folder:
        # The author of the folder decides what this entry starts.
        return result("ok", f"{cut(program, 200)} exists; it is not started, because the file is part of the folder")
    if entry.folder is None and os.path.dirname(command) and not os.path.isabs(command):
        # The working directory may belong to other users, and may have a program with this name.
        return result(
            "info", f"the command {cut(command, 200)!r} is relative to the folder of the client; it is not started"
        )
    spec = UpstreamSpec(
        name=entry.name,
        command=program,
        args=entry.args,
        # A client of the same session passes the XDG variables on, so the server uses the user's folders.
        env={**{name: value for name, value in os.environ.items() if name.startswith("XDG_")}, **entry.env, **_PRIVATE},
        # Python, npx and uvx read files in the working directory, and ours may not be trusted.
        cwd=str(Path.home() if entry.folder is None else entry.folder),
    )
    began = time.monotonic()
    shaken = await shake_hands(spec, START_SECONDS)
    took = time.monotonic() - began
    if shaken.problem:
        if _INVALID.search(shaken.problem):
            return result("fail", cut(shaken.problem, 500), CORRECT)
        by_hand = cut(spec.redact(shlex.join([program, *entry.args])), 300)
        return result("fail", cut(shaken.problem, 500), f"{again}; to see more, run it by hand: {by_hand}")
    if entry.desktop and not Path(command).is_absolute() and "PATH" not in entry.env:
        why = f"it starts here as {cut(program, 200)}, but an app that was not started from a shell may not find it"
        return result("warn", why, f"{again}, with the full path")
    if took > SLOW_SECONDS:
        slow = (
            f"slow to start: {cut(shaken.server, 100)} answered after {took:.0f} s, which some clients do not wait for"
        )
        return result(
            "warn", slow, "if the machine was not busy, run codemode-mcp setup, which prepares the first start"
        )
    return result("ok", f"it starts: {cut(shaken.server, 100)}")


async def _check_url(url: str, result: Callable[..., Check]) -> Check:
    shown = cut(url.split("?")[0], 200)
    start = "start codemode-mcp serve --transport http, or correct the address"
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        host = parts.hostname
    except ValueError:
        host = None
    if host is None or parts.username is not None:
        return result("fail", "its address is not valid", start)
    try:
        with anyio.fail_after(REACH_SECONDS):
            stream = await anyio.connect_tcp(host, port)
            await stream.aclose()
    except (OSError, TimeoutError):
        return result("fail", f"{shown} cannot be reached", start)
    return result("ok", f"{shown} can be reached")


def _result(entry: str, status: Status, detail: str, advice: str = "") -> Check:
    return Check(ENTRY_CHECK, status, f"{entry}: {detail}", advice)
