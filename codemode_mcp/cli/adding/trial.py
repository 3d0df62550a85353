"""The trial of a server that is not in the configuration yet: it is started or connected, and lists its tools.

Nothing is pinned or written. The server gets exactly the entry that a person has agreed to.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import anyio

from codemode_mcp.cli.adding.proposal import Refused
from codemode_mcp.config.expand import Expander
from codemode_mcp.config.nodes import Node, Report
from codemode_mcp.config.secret_values import SecretValues
from codemode_mcp.config.servers import ROOT_KEYS, read_servers
from codemode_mcp.nesting import with_depth

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from codemode_mcp.cli.adding.proposal import Setting
    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.tools import UpstreamView

START_SECONDS: Final = 180.0
"""Timeout for the first start. `npx` and `uvx` may have to fetch the package first."""

LIST_SECONDS: Final = 10.0
"""Timeout for the lists of prompts and resource templates, once the tools are listed."""


def spec_of(
    name: str, entry: Mapping[str, Any], folder: Path, values: Mapping[Setting, str] | None = None
) -> UpstreamSpec:
    """Return the spec of an entry. The keyring is not read, and no program of the entry runs.

    Args:
        folder: the folder of the configuration file.
        values: values of settings, for which the entry itself has references to the keyring.

    Raises:
        Refused: this entry cannot be used.
    """
    report = Report()
    root = Node({name: {**entry, "disabled": False}}, ROOT_KEYS[0], report)
    servers = read_servers({ROOT_KEYS[0]: root}, Expander(os.environ, folder), SecretValues())
    for path, messages in report.problems.items():
        raise Refused(f"{path}: {next(iter(messages))}")
    for setting, value in (values or {}).items():
        if setting.table != "args":
            servers.set_value(name, setting.table, setting.name, value)
    return servers.specs[name]


def list_server(spec: UpstreamSpec) -> UpstreamView:
    """Start or connect a server, and return its view. The server is ended before this function returns."""
    return anyio.run(_list_server, spec)


async def _list_server(spec: UpstreamSpec) -> UpstreamView:
    from importlib import metadata

    from upstream_clients.pool import UpstreamPool

    spec = with_depth(replace(spec, start="eager", connect_timeout=max(spec.connect_timeout, START_SECONDS)))
    async with UpstreamPool([spec], client_version=metadata.version("codemode-mcp")) as pool:
        await pool.connect([spec.name], spec.connect_timeout + LIST_SECONDS)
        (view,) = pool.views()
        if view.state == "ready":
            await pool.wait_listed([spec.name], LIST_SECONDS)
            (view,) = pool.views()
        return view
