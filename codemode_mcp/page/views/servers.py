"""The pages about servers: the list, and one server with its state, its last error and its latest lines."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final, Literal

from starlette.responses import JSONResponse
from starlette.routing import Route

from codemode_mcp.audit.timeline import moment
from codemode_mcp.control.protocol import Request as ControlRequest
from codemode_mcp.control.servers import holders, merged_servers
from codemode_mcp.page.logins import Logins
from codemode_mcp.page.site import Problem, one_of
from codemode_mcp.policy.approval import AT_PAGE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from codemode_mcp.page.site import Site

Change = Literal["restart", "login"]

MAX_LINES: Final = 200
"""Lines of a server's log on its page."""


def routes(site: Site) -> Sequence[Route]:
    """Return the addresses of these pages."""
    logins = Logins(lambda: site.changes.tell("servers"))

    async def list_servers(request: Request) -> Response:
        return site.page(request, "servers.html", servers=await servers_of(site))

    async def show_server(request: Request) -> Response:
        name = request.path_params["name"]
        servers = [each for each in await servers_of(site) if each["name"] == name]
        if not servers:
            raise Problem("The configuration has no server of this name.", 404)
        answers = await _ask(site, ControlRequest("logs", server=name))
        latest = sorted((line for answer in answers for line in answer["lines"]), key=lambda line: line["time"])
        shown = [
            f"{moment(line['time'])}  {line['source']:10}  {line['text']}" for line in latest[: -MAX_LINES - 1 : -1]
        ]
        config = site.first().config.path
        options = [] if config is None else ["--config", str(config)]
        return site.page(
            request,
            "server.html",
            name=name,
            servers=servers,
            lines="\n".join(shown),
            login=logins.of(name),
            live=" ".join(f"log:{each['number']}" for each in servers),
            login_command=shlex.join(["codemode-mcp", "login", *options, name]),
        )

    async def change(request: Request) -> Response:
        body = await site.change(request)
        name = request.path_params["name"]
        wanted: Change = one_of(body.get("do"), Change, "do")
        return await (restart if wanted == "restart" else log_in)(name)

    async def restart(name: str) -> Response:
        if not await _ask(site, ControlRequest("restart", server=name)):
            raise Problem("No enabled server has this name. Look at the list of servers.", 404)
        site.changes.tell("servers")
        return JSONResponse({"message": f"Server {name[:60]} is restarted. Its state is shown above."})

    async def log_in(name: str) -> Response:
        application = next((each for each in site.applications if each.control in holders(site.controls, name)), None)
        if application is None or site.tasks is None:
            raise Problem("No enabled server has this name. Look at the list of servers.", 404)
        login = await logins.begin(application, name, site.tasks)
        if login is None:
            raise Problem("Too many logins are open. Finish one of them first.", 409)
        if login.outcome is not None:
            raise Problem(f"The login has failed: {login.outcome}", 409)
        return JSONResponse({"message": "Open the link that is shown to log in."})

    return (
        Route("/servers", list_servers),
        Route("/servers/{name:path}", show_server),
        Route("/servers/{name:path}", change, methods=["POST"]),
    )


async def servers_of(site: Site) -> list[Mapping[str, Any]]:
    """Return the servers of all applications. Raise `Problem`."""
    answers = [await control.handle(ControlRequest("servers"), AT_PAGE) for control in site.controls]
    return merged_servers(_checked(answer)["servers"] for answer in answers)


async def _ask(site: Site, request: ControlRequest) -> list[dict[str, Any]]:
    """Return the answers to a request about one server, of each application that has another server of this name."""
    return [_checked(await each.handle(request, AT_PAGE)) for each in holders(site.controls, request.server)]


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    if not answer["ok"]:
        raise Problem(str(answer["error"]), 500)
    return answer
