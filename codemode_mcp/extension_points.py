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
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

    from anyio.abc import TaskGroup
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from codemode_mcp.audit.events import Event
    from codemode_mcp.audit.trajectory_files import Trace
    from codemode_mcp.base.settings import Language, UiSettings
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.catalog.saved_programs.saved_program import SavedProgram
    from codemode_mcp.catalog.search.finder import Meaning
    from codemode_mcp.cli.check import Check
    from codemode_mcp.config import Config
    from codemode_mcp.process.instance.clients import CommandTerminal
    from codemode_mcp.program.prepare import Prepared
    from codemode_mcp.rules.policy.policy import Caller
    from codemode_mcp.rules.trust.items import Finding
    from codemode_mcp.server.services import App
    from upstream_clients.tools import UpstreamView

    RunCommand = Callable[[App, Caller, CommandTerminal], Awaitable[Mapping[str, Any]]]
    """The part of a command that the shared instance runs. It returns a result as JSON."""

    class RunDrawing(Protocol):
        """A drawing of one run of a command, made from its events."""

        def listen(self, event: Event) -> None:
            """Note an event."""

        def show(self, config: Config, html: Path | None, *, draw: bool) -> None:
            """Draw the run at the terminal, and write its page."""

    class Replay(Protocol):
        """Runs the program of a recording, or another one, with the recorded answers, and ends the command."""

        def __call__(
            self,
            file: Path,
            code: str | None,
            language: str | None,
            args: tuple[str, ...] | None,
            *,
            loose: bool,
            as_json: bool,
        ) -> NoReturn: ...

    CheckPart = Callable[[App, Config], Awaitable[Iterable[Check]]]
    """A check of an installation."""

    class Site(Protocol):
        """The pages that a browser shows."""

        def chosen(self, request: Request) -> Any:
            """Return the application that a request is about."""

        def page(self, request: Request, template: str, **values: Any) -> Response:
            """Return a page from its template."""

    class BrowserPage(Protocol):
        """The page of a process, in a browser."""

        @property
        def is_watched(self) -> bool:
            """True if a browser shows the page now."""

        def address_of(self, run_id: str) -> str | None:
            """Return the address of the page about the approvals of a run; None if the page is not open."""

        async def admit(self, settings: UiSettings, group: TaskGroup) -> dict[str, Any]:
            """Open the page, and return its address and a token for one browser, as JSON. Raise `BadMessage`."""

    Connected = Callable[[], list[dict[str, Any]] | None]
    """A function that returns the connected clients, as JSON; None in a process that serves its own clients only."""

    class SentenceModel(Meaning, Protocol):
        """A sentence model with vectors on disk."""

        def fill(self, stop: Callable[[], bool]) -> None:
            """Make the vectors of all catalogs, until `stop` returns True."""

    class Find(Protocol):
        """Finds what a person should look at in a definition."""

        def __call__(
            self, kind: str, definition: Mapping[str, object], *, server: str, others: Collection[str]
        ) -> tuple[Finding, ...]: ...

    class Checker(Protocol):
        """Checks the types of programs while it is open."""

        async def note_on(self, prepared: Prepared, catalog: Catalog) -> str | None:
            """Return a note on a cell for the reader of its result; None if there is nothing to say."""

        async def end_when_idle(self) -> None:
            """Free what a check leaves behind when no check follows, and when this is cancelled."""


T = TypeVar("T")

FOLDER: Final = Path(__file__).parent / "extensions"


class Command(NamedTuple):
    """A command of the command line.

    Attributes:
        module: the name of the module whose `app` has the command.
        place: a number by which commands are ordered in `--help`.
        example: a command line, for the message if a required argument is missing.
        extra: the message about an argument too many, which stands for `{}` in it.
        similar: the command line to write, by the names of similar commands in other programs.
    """

    module: str
    place: int
    example: str = ""
    extra: str = ""
    similar: Mapping[str, str] = {}


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


class TypeCheck(NamedTuple):
    """The check of the types of programs.

    Attributes:
        open: returns the checker of an application. The argument is the folder for caches.
        check_cell_and_end: checks a program for a terminal. The last argument is the name of its file.
        check_saved: checks saved programs for a terminal.
    """

    open: Callable[[Path], Checker]
    check_cell_and_end: Callable[[Config, str, Language | None, str], NoReturn]
    check_saved: Callable[[Config, Sequence[SavedProgram]], None]


class Extension(NamedTuple):
    """The parts of an extension.

    Attributes:
        commands: commands of the command line, by name.
        instance_commands: the parts of commands that the shared instance runs, by the name of the command.
        pages: pages that are shown beside those of the serving process.
        open_page: returns the page of the applications of a process.
        timeline_page: returns the HTML of the timeline of a run. The second argument has lines with its facts.
        type_check: the check of the types of programs.
        draw_run: returns a new drawing of a run, for `run --trace`.
        replay: runs a program with the answers of a recording, for `run --replay`.
        open_model: returns a sentence model for searches; None if it is not installed. The argument is the folder for
            its vectors.
        find: returns what a person should look at in a definition that a server lists.
        checks: checks of the installation, by their names.
        prepare: does ahead of time what programs would wait for. It reports each step; the last argument is true if a
            person wants it although the configuration does not.
        prepare_tools: does ahead of time what depends on the tools of servers, in the same way.
    """

    commands: Mapping[str, Command] = {}
    instance_commands: Mapping[str, RunCommand] = {}
    pages: Sequence[Page] = ()
    open_page: Callable[[Callable[[], Sequence[App]], Connected], BrowserPage] | None = None
    timeline_page: Callable[[Trace, Sequence[str]], str] | None = None
    type_check: TypeCheck | None = None
    draw_run: Callable[[], RunDrawing] | None = None
    replay: Replay | None = None
    open_model: Callable[[Path], SentenceModel | None] | None = None
    find: Find | None = None
    checks: Mapping[str, CheckPart] = {}
    prepare: Callable[[Config, Callable[[Check], None], bool], Awaitable[None]] | None = None
    prepare_tools: Callable[[Config, Callable[[Check], None], Sequence[UpstreamView]], Awaitable[None]] | None = None


@cache
def extensions() -> tuple[Extension, ...]:
    """Return the extensions of this installation, in the order of their names."""
    names = sorted(each.parent.name for each in FOLDER.glob("*/extension.py"))
    return tuple(import_module(f"codemode_mcp.extensions.{name}.extension").EXTENSION for name in names)


def first(part: Callable[[Extension], T | None]) -> T | None:
    """Return a part of the first extension that has it; None if none has."""
    return next((found for each in extensions() if (found := part(each)) is not None), None)
