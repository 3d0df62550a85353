"""The lock file of a configuration, for `codemode-mcp trust lock` and `codemode-mcp trust check`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from codemode_mcp.cli.messages import stop_line
from codemode_mcp.cli.pinned_items import not_listed, pins_folder
from codemode_mcp.control.display import counted
from codemode_mcp.trust.comparison import Acceptance, Listing, ServerPins, compare
from codemode_mcp.trust.items import ENTRY_KEY, SERVER_KEY, Item, Kind, entry_item, items_of
from codemode_mcp.trust.lock_file import LockFile, LockFileError, lock_path, read_lock_file
from codemode_mcp.trust.pins_file import KINDS, PinsFolder
from codemode_mcp.trust.references import reference

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from codemode_mcp.cli.pinned_items import PinnedItems
    from codemode_mcp.config import Config
    from codemode_mcp.trust.comparison import Status
    from codemode_mcp.trust.items import Key
    from upstream_clients.tools import JsonObject, UpstreamView

CONNECT_SECONDS: Final = 30.0
"""Timeout for connecting servers and for their lists of prompts and resource templates."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between the lock file and what servers list.

    Attributes:
        name: the name of the server or item, as a person types it.
        status: `unlocked`: the server is not in the lock file. `unconfigured`: it is only in the lock file.
            `unreachable`: it could not be compared.
        detail: more about `unreachable`.
    """

    name: str
    status: Status | Literal["unlocked", "unconfigured", "unreachable"]
    detail: str = ""

    def to_json(self) -> dict[str, str]:
        return {"name": self.name, "status": self.status, "detail": self.detail}


def path_of(config: Path | None) -> Path:
    """Return the path of the lock file. End the command if there is no configuration file."""
    if config is None:
        stop_line(2, "a lock file stands beside a configuration file, and there is none; name one with --config FILE")
    return lock_path(config)


def lock_of(found: PinnedItems) -> tuple[LockFile, list[str], list[str]]:
    """Return the lock file for all accepted items, sentences about what is missing in it, and about what is held."""
    servers: dict[str, Mapping[Key, Item]] = {}
    missing, held = [], []
    for server in found.servers:
        accepted = server.pins.accepted
        items = {key: each.item for key, each in accepted.items() if key in server.pins.present.items}
        if not server.is_listed:
            missing.append(f"{not_listed(server)}; it is not in the lock file")
        elif SERVER_KEY not in items:
            missing.append(
                f"{server.name} is not in the lock file: its own texts are held; accept them with codemode-mcp trust "
                f"accept {server.name}"
            )
        elif any(item.definition is None for item in items.values()):
            missing.append(
                f"{server.name} is not in the lock file: one of its definitions quotes a secret or is too large"
            )
        else:
            servers[server.name] = items
            count = sum(report.held for report in server.reports)
            if count:
                held.append(
                    f"{counted(count, 'item')} of {server.name} held: the lock file has only what was accepted; look "
                    f"with codemode-mcp trust diff {server.name}"
                )
    folder = PinsFolder(pins_folder(), found.config)
    names = folder.server_names([server.name for server in found.servers])
    return LockFile(servers, names, {server.name: server.pins.names for server in found.servers}), missing, held


def check_servers(config: str | None) -> tuple[Path, list[Difference]]:
    """Connect all servers, and return the path of the lock file, and the differences. End the command without one."""
    import anyio

    from codemode_mcp.cli.loading import load, logging_of, plugins_on_stderr

    loaded = load(config, "warning", None)
    path = path_of(loaded.path)
    try:
        lock = read_lock_file(path)
    except LockFileError as error:
        stop_line(2, error.problems[0])
    with logging_of(loaded, level="error"), plugins_on_stderr():
        views = anyio.run(_views_of, loaded)
    return path, list(_differences(lock, views, loaded.written))


async def _views_of(config: Config) -> list[UpstreamView]:
    from codemode_mcp.app.app import open_app

    async with open_app(config) as opened:
        pool = await opened.pool()
        await pool.wait_listed([spec.name for spec in config.upstreams], CONNECT_SECONDS)
        return list(pool.views())


def _differences(lock: LockFile, views: list[UpstreamView], written: Mapping[str, JsonObject]) -> Iterator[Difference]:
    configured = {view.name for view in views}
    for name in lock.servers:
        if name not in configured:
            yield Difference(name, "unconfigured")
    for view in views:
        locked = lock.servers.get(view.name)
        complete = _complete(view)
        if locked is None:
            yield Difference(view.name, "unlocked")
        elif view.state != "ready" or complete != KINDS - {ENTRY_KEY[0]}:
            failed = (problem for problem in view.problems if problem.startswith(("prompts/", "resources/")))
            yield Difference(view.name, "unreachable", view.error or next(failed, "it has not answered in time"))
        else:
            pins = ServerPins(view.name, {key: Acceptance(item) for key, item in locked.items()})
            entry = entry_item(written.get(view.name)) if ENTRY_KEY in locked else None
            for report in compare(pins, Listing(items_of(view, entry), complete), "strict"):
                if report.status != "accepted":
                    yield Difference(reference(report.server, report.kind, report.name), report.status)


def _complete(view: UpstreamView) -> frozenset[Kind]:
    """Return the kinds of items whose lists are known."""
    kinds: set[Kind] = {"server", "tool"}
    if view.prompt_list is not None or not view.prompts:
        kinds.add("prompt")
    if view.template_list is not None or not view.resources:
        kinds.add("template")
    return frozenset(kinds)
