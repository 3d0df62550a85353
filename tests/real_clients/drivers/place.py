"""The surroundings of one client under test, and the form of a driver."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.real_clients.protocols import ModelApi

REPOSITORY = Path(__file__).resolve().parent.parent.parent.parent
CLIENTS = REPOSITORY / ".cache" / "clients"
AGENTS = Path(__file__).resolve().parent / "agents"
PROMPT = "Follow the script."


@dataclass(frozen=True)
class Place:
    """The surroundings of one client.

    Attributes:
        home: Its temporary home, which is its working folder too.
        url: The model endpoint.
        command: The server to put behind the client, the program first.
        env: Variables that the server needs.
    """

    home: Path
    url: str
    command: tuple[str, ...]
    env: dict[str, str]

    @property
    def entry(self) -> dict[str, Any]:
        """The server as most clients write it down."""
        return {"command": self.command[0], "args": list(self.command[1:]), "env": self.env}


@dataclass(frozen=True)
class Launch:
    """A command to run, with variables beside those that every client gets."""

    command: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Driver:
    """One client.

    Attributes:
        name: Its name in the table.
        folder: The environment in `.cache/clients` that it is installed in.
        launch: Writes its configuration and returns its command.
        wrapper: A pattern of what the client puts around an answer, which are no bytes of ours.
        added: Arguments that the client adds to our tools for the model, which fills them in.
        nulls: The model can give null for an optional argument; otherwise the client itself refuses that.
        shows_pictures: Whether the client can show a picture to its model at all.
    """

    name: str
    folder: str
    api: ModelApi
    launch: Callable[[Place], Launch]
    wrapper: str = ""
    added: dict[str, Any] = field(default_factory=dict)
    nulls: bool = True
    shows_pictures: bool = True


def npm_program(folder: str, name: str) -> str:
    return str(CLIENTS / folder / "node_modules" / ".bin" / name)


def python_of(folder: str) -> str:
    return str(CLIENTS / folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))
