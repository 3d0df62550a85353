"""The points at which an extension adds to the core.

The core knows no extension by name. It asks this module for all that add to a point, and works without any. An
extension is a folder in `codemode_mcp/extensions` with a module `extension`, whose `EXTENSION` names its parts. This
module is read when the core first asks, so it imports nothing but this one. Its functions import the rest when they
are called.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from starlette.routing import Route

    from codemode_mcp.app.app import App
    from codemode_mcp.instance.clients import CommandTerminal
    from codemode_mcp.page.site import Site
    from codemode_mcp.policy.policy import Caller

    RunCommand = Callable[[App, Caller, CommandTerminal], Awaitable[Mapping[str, Any]]]
    """The part of a command that the shared instance runs. It returns a result as JSON."""

T = TypeVar("T")

FOLDER: Final = Path(__file__).parent / "extensions"


class Command(NamedTuple):
    """A command of the command line.

    Attributes:
        module: the name of the module whose `app` has the command.
        place: a number by which commands are ordered in `--help`.
    """

    module: str
    place: int


class Page(NamedTuple):
    """A page that a browser shows.

    Attributes:
        address: the address of its link in the navigation.
        title: the text of this link.
        routes: returns all addresses.
        templates: the folder of its templates.
    """

    address: str
    title: str
    routes: Callable[[Site], Sequence[Route]]
    templates: Path


class Extension(NamedTuple):
    """The parts of an extension.

    Attributes:
        commands: commands of the command line, by name.
        instance_commands: the parts of commands that the shared instance runs, by the name of the command.
        pages: pages that are shown beside those of the serving process.
    """

    commands: Mapping[str, Command] = {}
    instance_commands: Mapping[str, RunCommand] = {}
    pages: Sequence[Page] = ()


@cache
def extensions() -> tuple[Extension, ...]:
    """Return the extensions of this installation, in the order of their names."""
    names = sorted(each.parent.name for each in FOLDER.glob("*/extension.py"))
    return tuple(import_module(f"codemode_mcp.extensions.{name}.extension").EXTENSION for name in names)


def first(part: Callable[[Extension], T | None]) -> T | None:
    """Return a part of the first extension that has it; None if none has."""
    return next((found for each in extensions() if (found := part(each)) is not None), None)
