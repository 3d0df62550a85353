"""Links that add this server to a client hold what `codemode-mcp install` writes, decoded as the client decodes it."""

from __future__ import annotations

import base64
import inspect
import json
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from codemode_mcp.extensions.setup.command_install import install
from codemode_mcp.extensions.setup.mcp_clients import installing
from codemode_mcp.extensions.setup.mcp_clients.launch import Program, launch
from codemode_mcp.extensions.setup.mcp_clients.locations import ClientName, Machine, install_location
from scripts import deep_links

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/install.md")
LINKS = {
    "cursor": r"https://cursor\.com/[^\s)|`]+|cursor://[^\s)|`]+",
    "vscode": r"https://vscode\.dev/redirect/[^\s)|`]+|vscode:mcp[^\s)|`]+",
}


def decoded(link: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the entry of a link."""
    url = urlsplit(link)
    if url.scheme == "vscode":
        value = json.loads(unquote(url.query))
        return value.pop("name"), value
    # Not `parse_qs` of base64 with a bare +, which would become a space.
    assert "+" not in url.query
    query = parse_qs(url.query, strict_parsing=True)
    text = query["config"][0]
    return query["name"][0], json.loads(text if text.startswith("{") else base64.b64decode(text, validate=True))


def written_by_install(client: ClientName, folder: Path) -> tuple[str, dict[str, Any]]:
    """Return the name and the entry that `install` writes if `uvx` has started it, without what is this machine's."""
    machine = Machine("linux", folder, {}, folder)
    location = install_location(client, "user", machine, os.path.exists)
    assert location is not None
    name = inspect.signature(install).parameters["name"].default
    command = launch(
        Program("/x", "/home/me/.cache/uv/archive-v0/Zx81_b/bin/python"),
        "linux",
        lambda _: True,
        lambda program: f"/usr/bin/{program}",
    )
    config = folder / "codemode-mcp.json"
    plan = installing.plan(location, installing.read_document(location), name, command, config, machine, move=False)
    entry = dict(plan.entry)
    assert entry["args"][-2:] == ["--config", str(config)]
    return plan.name, {**entry, "command": Path(entry["command"]).name, "args": entry["args"][:-2]}


@pytest.mark.parametrize("client", deep_links.CLIENTS)
def test_the_links_of_the_pages_hold_the_entry_that_install_writes(client: ClientName, tmp_path: Path) -> None:
    (tmp_path / "codemode-mcp.json").write_text('{"mcpServers": {}}', "utf-8")
    wanted = written_by_install(client, tmp_path)
    made = [deep_links.web_link(client), deep_links.direct_link(client)]
    assert [decoded(link) for link in made] == [wanted, wanted]
    for page in PAGES:
        links = re.findall(LINKS[client], (ROOT / page).read_text("utf-8"))
        assert links, f"{page} has no link for {client}"
        assert {*links} <= {*made}, "run scripts/deep_links.py"
