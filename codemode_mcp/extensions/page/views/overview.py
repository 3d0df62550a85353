"""The first page, and the pages about servers, clients and the doctor."""

from __future__ import annotations

import shlex
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Literal

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from codemode_mcp.audit.trajectory_files import moment
from codemode_mcp.base.display import counted
from codemode_mcp.extensions.page.child_commands import Checkups, Failed, Logins
from codemode_mcp.extensions.page.site import Problem, Site, one_of
from codemode_mcp.extensions.page.views.programs import proposed_names
from codemode_mcp.extensions.page.views.runs import runs_of, waiting_runs
from codemode_mcp.rules.policy.approval import AT_PAGE
from codemode_mcp.server.control.answers import holders
from codemode_mcp.server.control.protocol import Request as ControlRequest
from codemode_mcp.server.control.protocol import merged_servers
from codemode_mcp.server.profiles import traits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.requests import Request


LATEST: Final = 8
"""Runs on the first page."""


def routes(site: Site) -> Sequence[Route]:
    async def overview(request: Request) -> Response:
        found, problems = await runs_of(site)
        latest = sorted(found, key=lambda each: each.age_ms)[:LATEST]
        servers = await servers_of(site)
        states = Counter("needs a login" if each["loginRequired"] else each["state"] for each in servers)
        return site.page(
            request,
            "overview.html",
            waiting=list(waiting_runs(found)),
            runs=[each.report() for each in latest],
            running=sum(each.view.state == "running" for each in found),
            suspended=sum(each.view.state == "waiting" for each in found),
            total=len(found),
            held=[each for each in servers if each["held"]],
            proposals=await proposed_names(site),
            logins=[each for each in servers if each["loginRequired"]],
            enabled=len(servers) - states["disabled"],
            usable=states["ready"] + states["idle"],
            down=states["down"],
            problems=problems,
        )

    return (Route("/", overview),)


def client_routes(site: Site) -> Sequence[Route]:
    async def list_clients(request: Request) -> Response:
        known = []
        for control in site.controls:
            answer = await control.handle(ControlRequest("clients"), AT_PAGE)
            if not answer["ok"]:
                raise Problem(str(answer["error"]), 500)
            known += [{**each, "traits": traits(each["profile"])} for each in answer["clients"]]
        return site.page(request, "clients.html", connected=site.connected(), clients=known)

    return (Route("/clients", list_clients),)


GROUPS: Final = (("fail", "Failed"), ("warn", "Warnings"), ("info", "Good to know"), ("ok", "In order"))
"""Status and heading of the groups of findings, the most urgent first."""


def doctor_routes(site: Site) -> Sequence[Route]:
    checkups = Checkups()

    async def show(request: Request) -> Response:
        reports = [
            (
                report,
                [
                    (status, heading, [each for each in report.checks if each["status"] == status])
                    for status, heading in GROUPS
                ],
            )
            for report in checkups.reports
        ]
        return site.page(request, "doctor.html", reports=reports, running=checkups.is_running)

    async def run(request: Request) -> Response:
        # This changes nothing, so `ui.decide` does not matter. It starts servers, so it needs the secret of the page.
        done = {}
        try:
            for application in site.applications:
                if application.config.path not in done:
                    done[application.config.path] = await checkups.run(application)
        except Failed as error:
            raise Problem(str(error), 409) from None
        finally:
            site.changes.tell("doctor")
        checks = [check for report in done.values() for check in report.checks]
        failed, warnings = (sum(each["status"] == status for each in checks) for status in ("fail", "warn"))
        return JSONResponse(
            {"message": f"{counted(len(checks), 'check')}: {failed} failed, {counted(warnings, 'warning')}."}
        )

    return (Route("/doctor", show), Route("/doctor", run, methods=["POST"]))


# The pages about servers: the list, and one server with its state, its last error and its latest lines.


Change = Literal["restart", "login"]

MAX_LINES: Final = 200
"""Lines of a server's log on its page."""


def server_routes(site: Site) -> Sequence[Route]:
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
