"""Upstream servers whose lists are files, with the pins of their user. Many can be in one configuration."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from codemode_mcp.rules.trust.comparison import ServerPins, accept
from codemode_mcp.rules.trust.items import Key
from codemode_mcp.rules.trust.pins_file import PinsFolder
from tests.integration.harness import SERVERS, until, write_config


class User:
    """A configuration in a folder, and the state of its user beside it."""

    def __init__(self, folder: Path, own_cache: dict[str, str]) -> None:
        self.folder = folder
        self.env = {**own_cache, "XDG_STATE_HOME": str(folder / "state")}
        self.servers: dict[str, dict[str, Any]] = {}
        self.config = folder / "config.json"

    def configure(self, **tools: Any) -> None:
        """Write the configuration with all servers that were added."""
        write_config(self.folder, self.servers, **tools)

    def add(self, name: str, script: str, **entry: Any) -> Upstream:
        """Add a server: `scripted.py` has a list of tools, `items.py` prompts, templates and resources."""
        folder = self.folder / name
        folder.mkdir()
        self.servers[name] = {"command": sys.executable, "args": [str(SERVERS / script), str(folder)], **entry}
        return Upstream(self, name, folder)


class Upstream:
    """One server, its lists, and its pins."""

    def __init__(self, user: User, name: str, folder: Path) -> None:
        self.user = user
        self.name = name
        self.folder = folder
        self._pins = PinsFolder(user.folder / "state" / "codemode-mcp" / "pins", user.config)

    def has_tools(self, *tools: dict[str, Any]) -> None:
        (self.folder / "tools.json").write_text(json.dumps(tools), "utf-8")

    def has_items(self, **lists: Any) -> None:
        """Set the lists `prompts`, `resourceTemplates` and `resources`. None is never answered."""
        present = {name: items for name, items in lists.items() if items is not None}
        (self.folder / "items.json").write_text(json.dumps(present), "utf-8")

    @property
    def called(self) -> list[str]:
        """The tools that were called, or the methods of requests about items."""
        path = self.folder / "called"
        return path.read_text("utf-8").split() if path.exists() else []

    @property
    def pins_path(self) -> Path:
        return self._pins.path(self.name)

    def pins(self) -> ServerPins | None:
        return self._pins.load(self.name)

    async def until_stored(self, *keys: Key) -> None:
        """Return once the pins have these items as present ones."""

        def stored() -> bool:
            pins = self.pins()
            return pins is not None and all(key in pins.present.items for key in keys)

        await until(stored)

    async def until_tools(self, *tools: dict[str, Any]) -> None:
        """Return once the pins have exactly these tools as present ones."""
        expected = [each["description"] for each in tools]

        def stored() -> bool:
            pins = self.pins()
            items = {} if pins is None else pins.present.items
            return expected == [
                (item.definition or {}).get("description") for key, item in items.items() if key[0] == "tool"
            ]

        await until(stored)

    def accept(self, keys: Iterable[Key]) -> None:
        """Accept present items as another process does."""
        pins = self.pins()
        assert pins is not None
        choices = {key: pins.present.items[key].digest for key in keys}
        self._pins.update(
            self.name, lambda stored: accept(stored or pins, choices, "a person at a terminal", time.time())
        )

    def held(self, item: str, why: str, *, shown: str = "") -> str:
        """Return the message about an item that is held.

        Args:
            item: its name behind that of the server, as commands have it.
            why: why it is held.
            shown: what the message calls it.
        """
        config = self.user.config
        return (
            f"{shown or f'MCP.{self.name}.{item}'} is held: {why}. Ask the user to look at it with: codemode-mcp "
            f"trust diff {self.name}.{item} --config {config}, and to accept it with: codemode-mcp trust accept "
            f"{self.name}.{item} --config {config}"
        )


CHANGED = "its server has changed it since it was accepted"
NEW = "no person has accepted this new item"
