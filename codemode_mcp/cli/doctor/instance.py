"""The check of the shared instance: its process, its clients and servers, and what it saves."""

from __future__ import annotations

import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread

from codemode_mcp import __version__
from codemode_mcp.cli.doctor.check import Check, listed
from codemode_mcp.control.client import NoAnswer, ask
from codemode_mcp.control.display import counted, cut, plain
from codemode_mcp.control.endpoints import endpoint_at
from codemode_mcp.control.protocol import Request
from codemode_mcp.instance import registry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from codemode_mcp.config import Config
    from codemode_mcp.instance.registry import Record

NAME: Final = "instance"

ANSWER_SECONDS: Final = 5.0
"""Seconds that the instance may take to answer."""

_PRIVATE: Final = "each client has a server process of its own"


async def check(config: Config) -> Iterable[Check]:
    """Check the instance of a configuration. Start none."""
    result = partial(Check, NAME)
    key = registry.key_of(config.path)
    try:
        record, is_running = await anyio.to_thread.run_sync(_look, key)
    except registry.Unusable as error:
        return [result("warn", f"no instance can be shared, so {_PRIVATE}: {error}")]
    except OSError as error:
        reason = f"{error.filename or 'its folder'}: {error.strerror or error}"
        return [result("warn", f"no instance can be shared, so {_PRIVATE}: {reason}", "make that folder yours")]
    if not is_running:
        if not config.instance.shared:
            return [result("ok", f"off (instance.shared is false): {_PRIVATE}")]
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
    from codemode_mcp.cli.instance_view import saved_text

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
