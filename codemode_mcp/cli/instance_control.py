"""The shared instance as commands see it: whether it runs, its answers, its report, and its end."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.base.display import counted, cut, plain, rough
from codemode_mcp.cli.messages import stop

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from codemode_mcp.process.instance.registry import Record
    from codemode_mcp.server.control.protocol import Operation


STOP_SECONDS: Final = 15.0
"""Seconds that `stop` waits for the end of an instance."""

ANSWER_SECONDS: Final = 5.0
"""Seconds that an instance may take to answer. One that takes longer hangs, or its process is stopped."""

POLL_SECONDS: Final = 0.05
"""Seconds between two looks whether an instance runs."""


def running_record(key: str) -> Record | None:
    from codemode_mcp.process.instance import registry

    with folder_errors():
        record = registry.read_record(key)
        return record if record is not None and registry.is_running(key) else None


@contextmanager
def folder_errors() -> Iterator[None]:
    """End the command if the folder of the instance cannot be used."""
    from codemode_mcp.process.instance import registry

    try:
        yield
    except registry.Unusable as error:
        stop(1, str(error))
    except OSError as error:
        stop(1, f"{error.filename or 'the folder of the shared instance'}: {error.strerror or error}")


def answer_of(record: Record, operation: Operation) -> dict[str, Any]:
    """Return the answer of an instance. Raise `client.NoAnswer`."""
    import anyio

    from codemode_mcp.server.control import client
    from codemode_mcp.server.control.endpoints import endpoint_at
    from codemode_mcp.server.control.protocol import Request

    endpoint = endpoint_at(Path(record.endpoint), record.pid)
    return anyio.run(client.ask, endpoint, Request(operation), ANSWER_SECONDS)


def ask_instance(record: Record, operation: Operation) -> dict[str, Any]:
    """Return the answer of an instance. End the command if there is none."""
    from codemode_mcp.server.control.client import NoAnswer

    try:
        return answer_of(record, operation)
    except NoAnswer as error:
        stop(1, f"{error}. {advice_for(record)}")


def advice_for(record: Record) -> str:
    resume = "" if sys.platform == "win32" else f"If it was suspended, resume it: kill -CONT {record.pid}. "
    return f"{resume}To end it: codemode-mcp instance stop --kill"


def end_instance(record: Record, key: str, *, kill: bool) -> None:
    """Let an instance end, and wait for that. End the command if it does not end.

    Args:
        kill: kill the process if it does not answer, or does not end.
    """
    from codemode_mcp.server.control.client import NoAnswer, NotListening

    listens = True
    try:
        answer_of(record, "stop")
    except NotListening:
        listens = False  # it has just ended, and another process may have its id by now
    except NoAnswer as error:
        if not kill:
            stop(1, f"{error}. {advice_for(record)}")
        _kill(record)
    if _has_ended(record, key):
        return
    if kill and listens:
        _kill(record)
        if _has_ended(record, key):
            return
    stop(
        1,
        f"process {record.pid}, the shared instance, has not ended within {STOP_SECONDS:g} s. "
        "To end it: codemode-mcp instance stop --kill",
    )


def _has_ended(record: Record, key: str) -> bool:
    """Return True once an instance has ended, also if there is another one by then; False after `STOP_SECONDS`."""
    from codemode_mcp.process.instance import registry

    until = time.monotonic() + STOP_SECONDS
    while registry.is_running(key) and registry.read_record(key) in (record, None):
        if time.monotonic() > until:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _kill(record: Record) -> None:
    """Kill an instance. It holds its lock and listens at its socket, so no other process has its id."""
    try:
        os.kill(record.pid, signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL)
    except ProcessLookupError:
        pass
    except OSError as error:
        stop(1, f"process {record.pid} cannot be ended: {error.strerror}")


# The report on the shared instance as text.


MAX_CLIENTS: Final = 50
"""Clients that the report lists."""


def lines(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the report. `facts`: see `process.instance.host.Host`."""
    size = _size(facts.get("memoryBytes"))
    ending = f" It is ending: {facts['leaving']}." if facts["leaving"] else ""
    yield f"The shared instance runs: process {facts['pid']}, version {facts['version']}{size}.{ending}"
    served = plain(facts["config"] or "no configuration file")
    yield f"It has served {served} for {rough(facts['uptimeSeconds'])}."
    if facts["http"]:
        yield f"It serves MCP at {plain(facts['http'])} too."
    clients, servers, saved = facts["clients"], facts["servers"], facts["saved"]
    yield f"{counted(len(clients), 'client')}{':' if clients else ''}"
    for client in clients[:MAX_CLIENTS]:
        yield _client_line(client)
    if len(clients) > MAX_CLIENTS:
        yield f"  and {len(clients) - MAX_CLIENTS} more; --json lists all"
    yield f"{counted(len(servers), 'server')}{':' if servers else ''}"
    for server in servers:
        pids = ", ".join(map(str, server["pids"]))
        process = f", process {pids}" if pids else ""
        yield f"  {cut(plain(server['name']), 60)}: {server['state']}{process}{_size(server['memoryBytes'])}"
    if saved is not None:
        yield saved_text(saved)


def saved_text(saved: Mapping[str, Any]) -> str:
    count = saved["processes"]
    memory = "" if saved["bytes"] is None else f" and {saved['bytes'] / 1e6:,.0f} MB"
    processes = f"{count} process{'' if count == 1 else 'es'}"
    return f"Estimate: a private server for each client would take {processes}{memory} more."


def _client_line(client: Mapping[str, Any]) -> str:
    name = cut(plain(client["name"] or "(no name yet)"), 60)
    version = f" {cut(plain(client['clientVersion']), 30)}" if client["clientVersion"] else ""
    limits = ["read-only"] if client["readOnly"] else []
    limits += ["locked"] if client.get("locked") else []
    limits += [f"context {client['context']}"] if client["context"] else []
    suffix = f" ({cut(plain(', '.join(limits)), 80)})" if limits else ""
    role = "relay" if client["command"] is None else "process"
    return f"  {name}{version}, {role} {client['pid']}, in {cut(plain(client['folder']), 200)}{suffix}"


def _size(size: int | None) -> str:
    return "" if size is None else f", {size / 1e6:.0f} MB"
