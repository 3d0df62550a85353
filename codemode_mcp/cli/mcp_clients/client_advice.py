"""Advice on each client after its file was changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from codemode_mcp.cli.mcp_clients.locations import ClientName

RESTART: Final[Mapping[ClientName, str]] = {
    "claude-desktop": "quit Claude Desktop from its menu or tray icon (closing the window is not enough) and start it",
    "claude-code": "end the session and start `claude` again; `/mcp` then lists the server",
    "cursor": "in Cursor's settings under MCP switch the server on, or restart Cursor",
    "vscode": "run `MCP: List Servers` from VS Code's command palette, choose the server, and start it",
    "windsurf": "press refresh among the MCP servers of Cascade, or restart Windsurf",
    "codex": "end the session and start `codex` again; `/mcp` then lists the server",
    "gemini-cli": "end the session and start `gemini` again; `/mcp` then lists the server",
    "opencode": "end the session and start `opencode` again; `opencode mcp list` shows the server",
    "copilot-cli": "end the session and start `copilot` again; `/mcp show` then lists the server",
    "zed": "open the settings of Zed's agent panel; the dot beside the server is green when it runs",
    "goose": "end the session and start `goose session` again, or restart Goose Desktop",
    "qwen-code": "end the session and start `qwen` again; `/mcp` then lists the server",
}
"""The way to make each client read its changed file."""

RESTART_AFTER_UNDO: Final[Mapping[ClientName, str]] = {
    **RESTART,
    "claude-code": "end the session and start `claude` again",
    "cursor": "restart Cursor",
    "vscode": "run `Developer: Reload Window` from VS Code's command palette",
    "codex": "end the session and start `codex` again",
    "gemini-cli": "end the session and start `gemini` again",
    "opencode": "end the session and start `opencode` again",
    "copilot-cli": "end the session and start `copilot` again",
    "zed": "open the settings of Zed's agent panel; they list the servers that Zed has now",
    "qwen-code": "end the session and start `qwen` again",
}
"""The way to make each client read its file after this server was removed from it."""

REMARKS: Final[Mapping[ClientName, str]] = {
    "codex": (
        "`codex exec` cannot ask you and refuses this server's `exec`. To allow it, add "
        '`default_tools_approval_mode = "approve"` to the entry: Codex then asks about no call to this server. '
        "`tools.ask` of codemode-mcp still asks; `codex exec` has no one who could answer, so set "
        '`tools.approval.via` to "terminal" and approve there'
    ),
}
"""A setting of the client that `install` leaves to the user, with its consequences."""
