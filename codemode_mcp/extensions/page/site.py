"""The addresses of the page, and what all of its pages have in common."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args
from urllib.parse import parse_qs

import anyio.to_thread
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from codemode_mcp.audit.trajectory_files import deadline, duration, moment, size, svg_number
from codemode_mcp.base.display import counted, plain, rough
from codemode_mcp.base.text import listed
from codemode_mcp.extension_points import Page, extensions
from codemode_mcp.extensions.page.changes import Changes, Full, StoredRuns
from codemode_mcp.extensions.page.guard import ASSETS_PATH, CLEAN_PATH, OPEN_PATH, cookie_name
from codemode_mcp.extensions.page.sessions import Sessions, remove_redirect
from codemode_mcp.rules.policy.approval import AT_PAGE
from codemode_mcp.runs.outputs import printed
from declarations.untrusted_text import count_blanks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from anyio.abc import TaskGroup
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from codemode_mcp.server.control.answers import Control
    from codemode_mcp.server.control.protocol import Request as ControlRequest
    from codemode_mcp.server.services import App


log = logging.getLogger("codemode_mcp.extensions.page")

MAX_BODY: Final = 256 * 1024
"""Maximum bytes of the body of a request."""

MAX_TOPICS: Final = 200
"""Maximum number of topics of one page. The page of a server has one for each process of the server."""

MAX_CLIENTS: Final = 3
"""Maximum number of clients in the name of a configuration."""

MAX_CLIENT: Final = 40
"""Maximum characters of each of them."""

NAVIGATION: Final = (
    ("/", "Overview"),
    ("/runs", "Runs"),
    ("/approvals", "Approvals"),
    ("/servers", "Servers"),
    ("/clients", "Clients"),
    ("/programs", "Programs"),
    ("/trust", "Trust"),
    ("/tools", "Tools"),
    ("/policy", "Policy"),
    ("/doctor", "Doctor"),
)
"""The main pages: address and name, in the order in which they are shown. Those of extensions follow."""


Row = TypeVar("Row")


class Problem(Exception):
    """Error that is shown to the person: a sentence, and the status of the answer."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class Site:
    """The applications of this process, and how pages show and change them.

    Args:
        applications: returns the open applications.
        connected: returns the clients that are connected to this process, as JSON; None if it serves its own clients
            only.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        applications: Callable[[], Sequence[App]],
        connected: Callable[[], list[dict[str, Any]] | None],
        sessions: Sessions,
        clock: Callable[[], float],
    ) -> None:
        self.connected = connected
        self.tasks: TaskGroup | None = None
        """Tasks that a page has begun and that outlive its request; None while the page is not open."""
        self._applications = applications
        self._sessions = sessions
        self._clock = clock
        self._templates = environment()
        self._navigation = [*NAVIGATION, *((each.address, each.title) for each in pages())]
        self.changes = Changes(applications, clock)
        self.stored_runs = StoredRuns(clock, lambda: self.changes.tell("runs", "approvals"))

    # the applications

    @property
    def applications(self) -> list[App]:
        """The applications that answer."""
        return [each for each in self._applications() if each.control is not None]

    @property
    def controls(self) -> list[Control]:
        """The answers to requests of terminals, of each application."""
        return [each.control for each in self.applications if each.control is not None]

    @property
    def decides(self) -> bool:
        """True if a person may decide and change things on the page."""
        found = self.applications
        return bool(found) and all(each.config.ui.decide for each in found)

    def first(self) -> App:
        """Return the first application, for pages about tools and rules. Raise `Problem` if there is none."""
        found = self.applications
        if not found:
            raise Problem("No client is connected, so nothing is served now.", 503)
        return found[0]

    def chosen(self, request: Request) -> App:
        """Return the application whose number, from 1, is the parameter `app`; the first one without it."""
        first, number = self.first(), request.query_params.get("app", "1")
        found = self.applications
        if not (number.isascii() and number.isdecimal() and 0 < int(number[:6]) <= len(found)):
            return first
        return found[int(number[:6]) - 1]

    async def ask(self, request: ControlRequest) -> dict[str, Any]:
        """Return the answer to a request about a run, as a terminal gets it. Raise `Problem`."""
        # The application that has the run is asked first. Any of them can answer for runs in the store.
        for control in sorted(self.controls, key=lambda each: not each.has(request.run)):
            answer = await control.handle(request, AT_PAGE)
            if not answer.pop("ok"):
                raise Problem(str(answer["error"]), 404)
            return answer
        raise Problem("No client is connected, so nothing is served now.", 503)

    # pages

    def page(self, request: Request, template: str, status: int = 200, **values: Any) -> Response:
        shared = {
            "navigation": self._navigation,
            "here": "/" + request.url.path.split("/")[1],
            "path": request.url.path,
            "decides": self.decides,
            "served": bool(self.applications),
            "application": self._number_of(request),
            "configurations": self._configurations(),
        }
        return HTMLResponse(rendered(self._templates, template, {**shared, **values}), status)

    def _number_of(self, request: Request) -> int:
        found = self.applications
        return found.index(self.chosen(request)) + 1 if found else 1

    def _configurations(self) -> list[str]:
        """Return a name for each application.

        All of them have the same file. Values of the variables in which they differ may be secret, so the name has the
        clients that have sent requests.
        """
        names = []
        for number, control in enumerate(controls := self.controls, 1):
            clients = list(dict.fromkeys(each["name"][:MAX_CLIENT] for each in control.clients() if each["name"]))
            names.append(f"{number} of {len(controls)}: {listed(clients, MAX_CLIENTS) or 'no client yet'}")
        return names

    def plain_page(self, template: str, status: int, **values: Any) -> Response:
        """Return a page without navigation, for a browser that is not admitted."""
        return HTMLResponse(rendered(self._templates, template, values), status)

    def locked(self) -> Response:
        """Return the page for a browser without a session."""
        return self.plain_page("locked.html", 401)

    async def change(self, request: Request) -> dict[str, Any]:
        """Return the JSON object in the body of a request that changes something. Raise `Problem`."""
        if not self.decides:
            raise Problem("The configuration has ui.decide: false, so nothing can be changed on this page.", 403)
        try:
            found = json.loads(await body_of(request))
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise Problem("The body of this request is not a JSON object.")
        return found

    # what is not a page

    async def open(self, request: Request) -> Response:
        """Admit a browser that sends a token, and leave the secret of the page with it."""
        if request.method != "POST":
            return self.plain_page("locked.html", 405)
        fields = parse_qs((await body_of(request)).decode("utf-8", "replace"))
        session = self._sessions.redeem(fields.get("token", [""])[0], self._clock())
        if session is None:
            return self.plain_page("locked.html", 403, reason="This address was used before, or is too old.")
        await anyio.to_thread.run_sync(remove_redirect, fields["token"][0])
        wanted = fields.get("path", ["/"])[0]
        local = wanted.startswith("/") and not wanted.startswith("//") and wanted.isascii() and "\\" not in wanted
        answer = self.plain_page("open.html", 200, secret=session.secret, wanted=wanted if local else "/")
        port = request.scope["server"][1]
        answer.set_cookie(cookie_name(port), session.cookie, path="/", httponly=True, samesite="strict")
        return answer

    async def clean(self, request: Request) -> Response:
        """Have the browser remove what is stored for this origin, such as a service worker of an earlier server.

        The cookie stays. Other windows with the page read its secret from the storage, where the next page leaves it.
        """
        if not self._sessions.awaits(request.url.query, self._clock()):
            return Response(status_code=404)
        headers = {"clear-site-data": '"storage"', "cross-origin-resource-policy": "cross-origin"}
        return Response(status_code=204, headers=headers)

    async def events(self, request: Request) -> Response:
        """Tell a page when one of its topics changes, as server-sent events."""
        topics = request.query_params.get("topics", "").split(" ", MAX_TOPICS)[:MAX_TOPICS]

        async def messages() -> AsyncIterator[bytes]:
            try:
                async with self.changes.stream(topics) as stream:
                    yield b"retry: 1000\ndata: hello\n\n"
                    while True:
                        await stream.next()
                        yield b"data: changed\n\n"
            except Full:
                yield b"retry: 30000\ndata: full\n\n"

        return StreamingResponse(messages(), media_type="text/event-stream")


async def body_of(request: Request) -> bytes:
    """Return the body of a request. Raise `Problem`."""
    data = b""
    async for part in request.stream():
        data += part
        if len(data) > MAX_BODY:
            raise Problem(f"The body of this request is larger than {MAX_BODY} bytes.", 413)
    return data


def one_of(value: Any, kind: Any, name: str) -> Any:
    """Return a value of a `Literal` type. Raise `Problem`."""
    if value not in get_args(kind):
        raise Problem(f"{name} is not one of {', '.join(map(repr, get_args(kind)))}.")
    return value


def paged(request: Request, found: Sequence[Row], size: int) -> tuple[Sequence[Row], int, int]:
    """Return the rows of the page that a request names, the number of the page, and the number of pages."""
    wanted, pages = request.query_params.get("page", "1"), max(1, -(-len(found) // size))
    number = min(pages, max(1, int(wanted) if wanted.isascii() and wanted.isdecimal() else 1))
    return found[(number - 1) * size : number * size], number, pages


def pages() -> list[Page]:
    return [page for each in extensions() for page in each.pages]


def build(site: Site, routes: Sequence[Route]) -> ASGIApp:
    def problem(request: Request, error: Exception) -> Response:
        if isinstance(error, Problem):
            text, status = str(error), error.status
        elif isinstance(error, HTTPException):
            status = error.status_code
            text = "There is no such page." if status == 404 else str(error.detail)
        else:
            log.error("a request to the page failed in an unexpected way", exc_info=error)
            status = 500
            text = "This page failed inside codemode-mcp; see its log."
        if request.method == "POST":
            return JSONResponse({"error": text}, status)
        return site.page(request, "problem.html", status, text=text[:1].upper() + text[1:], missing=status == 404)

    return Starlette(
        routes=[
            Route(OPEN_PATH, site.open, methods=["GET", "POST"]),
            Route(CLEAN_PATH, site.clean),
            Route("/events", site.events),
            Mount(ASSETS_PATH.rstrip("/"), StaticFiles(directory=ASSETS)),
            *routes,
        ],
        exception_handlers={Problem: problem, HTTPException: problem, Exception: problem},
    )


# The templates of the page.
#
# Every text that a template shows is made harmless: first its hidden and misleading characters are escaped, then it is
# escaped for HTML. A template has to do nothing for this, so that it can forget nothing.


ASSETS: Final = Path(__file__).parent / "assets"
_TEMPLATES: Final = Path(__file__).parent / "templates"

MAX_TEXT: Final = 256 * 1024
"""Characters of one text that a page shows."""


def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader([_TEMPLATES, *(each.templates for each in pages())]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=harmless,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "ago": ago,
        "rough": lambda seconds: "" if seconds is None else rough(seconds),
        "exact": exact,
        "milliseconds": milliseconds,
        "moment": moment,
        "from_now": from_now,
        "bytes": size,
        "lines": lines,
        "printed": printed,
        "pretty": pretty,
        "svg_number": svg_number,
        "json_text": json.dumps,
    }
    made.globals |= {"counted": counted}
    return made


def harmless(value: Any) -> Any:
    """Return a value for a template. The hidden and misleading characters of a text are escaped."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return plain(value)
    return "" if value is None else value


def exact(value: str) -> Markup:
    """Return a text for an attribute that a script sends back as it is. Only HTML is escaped."""
    return escape(value)


def lines(text: str, *, to_decide: bool = False) -> Markup:
    """Return a text of several lines for a `<pre>`. Its misleading characters are escaped, except for line ends.

    Args:
        to_decide: True for a text on which a decision depends. Long runs of blanks are shown as their lengths.
    """
    shown = text[:MAX_TEXT]
    if to_decide:
        shown = count_blanks(shown, is_code=True)
    found = Markup("\n").join(plain(line) for line in shown.split("\n"))
    if len(text) > MAX_TEXT:
        found += Markup("\n… {} more characters").format(f"{len(text) - MAX_TEXT:,}")
    return found


def pretty(value: Any, *, to_decide: bool = False) -> Markup:
    """Return JSON in several lines for a `<pre>`, as `lines` does. `value`: JSON, or its text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return lines(value, to_decide=to_decide)
    return lines(json.dumps(value, ensure_ascii=False, indent=2), to_decide=to_decide)


def milliseconds(value: int | None) -> str:
    return "" if value is None else duration(value / 1000)


def from_now(value: int | None) -> str:
    """Return the time that is some milliseconds from now."""
    return "" if value is None else deadline(value, time.time())


def ago(value: int | None) -> str:
    """Return how long ago something was, in words, from its milliseconds."""
    return "" if value is None else f"{rough(value // 1000)} ago"


def rendered(made: Environment, template: str, values: Mapping[str, Any]) -> str:
    return made.get_template(template).render(values)
