"""Prints the links that add this server to a client: `python scripts/deep_links.py`.

A link holds the entry that `codemode-mcp install` writes when `uvx` has started it, without the path of a
configuration: a link is the same for every user. `tests/test_deep_links.py` compares the links of the pages with these.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from codemode_mcp.extensions.setup.mcp_clients.launch import PROGRAM, Launch  # noqa: E402
from codemode_mcp.extensions.setup.mcp_clients.own_entries import new_entry  # noqa: E402

if TYPE_CHECKING:
    from codemode_mcp.extensions.setup.mcp_clients.locations import ClientName

NAME: Final = "codemode"
"""The name that `install` gives the entry."""

CLIENTS: Final[tuple[ClientName, ...]] = ("cursor", "vscode")


def entry(client: ClientName) -> dict[str, Any]:
    """Return the entry for a client, with the configuration that the server finds itself."""
    made = new_entry(client, Launch("uvx", (PROGRAM, "serve")), "")
    return {**made, "args": made["args"][: made["args"].index("--config")]}


def web_link(client: ClientName) -> str:
    """Return the link for pages that show only links of the web: it leads to the client by the client's own site."""
    text = json.dumps(entry(client), separators=(",", ":"))
    if client == "cursor":
        encoded = quote(base64.b64encode(text.encode()).decode(), safe="")
        return f"https://cursor.com/en/install-mcp?name={NAME}&config={encoded}"
    return f"https://vscode.dev/redirect/mcp/install?name={NAME}&config={quote(text, safe='')}"


def direct_link(client: ClientName) -> str:
    """Return the link that opens the client without a site."""
    text = json.dumps({"name": NAME, **entry(client)} if client == "vscode" else entry(client), separators=(",", ":"))
    if client == "cursor":
        encoded = quote(base64.b64encode(text.encode()).decode(), safe="")
        return f"cursor://anysphere.cursor-deeplink/mcp/install?name={NAME}&config={encoded}"
    return f"vscode:mcp/install?{quote(text, safe='')}"


if __name__ == "__main__":
    for each in CLIENTS:
        print(web_link(each), direct_link(each), sep="\n")
