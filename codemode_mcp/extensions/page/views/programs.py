"""The pages about saved programs: their texts, the proposals of models, and the decisions of a person about these.

A decision is about exactly the texts that the person was shown, by their digests.
"""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import quote

import anyio.to_thread
from msgspec import Struct
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from codemode_mcp.catalog.saved_programs import program_state
from codemode_mcp.catalog.saved_programs.folder import folder_of
from codemode_mcp.catalog.saved_programs.program_file import syntax_error_line
from codemode_mcp.catalog.saved_programs.program_state import (
    NotWritten,
    PresentFile,
    ProgramState,
    Stale,
    StateUnavailable,
    present_file,
    state_of,
)
from codemode_mcp.catalog.saved_programs.versions import History, Proposal, Proposals, different_lines, unusable
from codemode_mcp.extensions.page.site import Problem, Site, one_of
from codemode_mcp.rules.policy.approval import AT_PAGE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from starlette.requests import Request

    from codemode_mcp.catalog.saved_programs.saved_program import SavedProgram
    from codemode_mcp.catalog.saved_programs.versions import UsedTool
    from codemode_mcp.server.services import App

MAX_LINES: Final = 20_000
"""Lines of a difference that are shown. A text has at most 256 KiB."""

Decision = Literal["accept", "reject", "pin"]


class _Folder(Struct, frozen=True):
    """The files of the configuration of an application."""

    application: App
    folder: Path
    state: ProgramState


def routes(site: Site) -> Sequence[Route]:
    async def list_programs(request: Request) -> Response:
        found = _folder(site)
        proposals, problem = await anyio.to_thread.run_sync(_proposals, found)
        library = found.application.library()
        lines = await anyio.to_thread.run_sync(_error_lines, library.programs)
        return site.page(
            request,
            "programs.html",
            folder=str(found.folder),
            programs=[_row(found.application, each, lines[each.name]) for each in library.programs],
            problems=[*map(str, library.problems), *([] if problem is None else [problem])],
            proposals=[_proposal_row(each) for each in proposals.waiting],
        )

    async def show_program(request: Request) -> Response:
        name = request.path_params["name"]
        found = _folder(site)
        program = found.application.library().get(name)
        proposals, problem = await anyio.to_thread.run_sync(_proposals, found)
        waiting = proposals.named(name)
        if program is None and not waiting:
            raise Problem("There is no such program.", 404)
        file = await anyio.to_thread.run_sync(present_file, found.folder, name)
        history = await anyio.to_thread.run_sync(_history, found, name)
        return site.page(
            request,
            "program.html",
            name=name,
            address=f"/programs/{quote(name, safe='')}",
            program=program,
            version=None if program is None else history.of(program.digest),
            changes=[] if program is None else list(map(str, found.application.program_changes(name))),
            tools="" if program is None else _digest_of(await found.application.tools_of_program(program)),
            proposals=[_proposal(each, file, history) for each in waiting],
            file_digest="" if file is None else file.digest,
            problems=[] if problem is None else [problem],
        )

    async def decide(request: Request) -> Response:
        body = await site.change(request)
        name = request.path_params["name"]
        decision = one_of(body.get("decision"), Decision, "decision")
        digest, before = body.get("digest"), body.get("file")
        if not isinstance(digest, str) or not isinstance(before, str):
            raise Problem("The request does not name the texts that were shown.")
        found = _folder(site)
        application = found.application
        try:
            if decision == "pin":
                program = application.library().get(name)
                if program is None or program.digest != digest:
                    raise Stale(f"the file of {name} has changed since it was shown")
                why_not = unusable(application.program_changes(name))
                if why_not is not None:
                    raise Problem(f"Nothing was decided: {why_not}.", 409)
                tools = await application.tools_of_program(program)
                if _digest_of(tools) != body.get("tools"):
                    raise Stale(f"the tools of {name} have changed since they were shown")
                await application.pin_program(program, tools, AT_PAGE)
            else:
                await anyio.to_thread.run_sync(_decide, found, name, digest, before, decision)
        except (Stale, NotWritten, StateUnavailable) as error:
            raise Problem(f"Nothing was decided: {error}.", 409) from None
        kind: Literal["program_accepted", "program_rejected"]
        kind = "program_rejected" if decision == "reject" else "program_accepted"
        application.auditor.emit(kind, f"programs.{name}", by=AT_PAGE, digest=digest)
        site.changes.tell("programs", "tools")
        done = {"accept": "is accepted", "reject": "is rejected", "pin": "is accepted with the present definitions"}
        return JSONResponse({"message": f"{name[:64]} {done[decision]}."})

    return (
        Route("/programs", list_programs),
        Route("/programs/{name}/decide", decide, methods=["POST"]),
        Route("/programs/{name}", show_program),
    )


async def proposed_names(site: Site) -> list[str]:
    """Return the names of programs that wait for a decision; empty if they cannot be read."""
    path = site.applications[0].config.path if site.applications else None
    if path is None:
        return []
    try:
        found = await anyio.to_thread.run_sync(state_of(path).proposals)
    except StateUnavailable:
        return []
    return list(dict.fromkeys(each.name for each in found.waiting))


def _folder(site: Site) -> _Folder:
    application = site.first()
    path = application.config.path
    folder = folder_of(path)
    if path is None or folder is None:
        raise Problem("There is no configuration file, and saved programs stand beside it.", 404)
    return _Folder(application, folder, state_of(path))


def _digest_of(tools: Sequence[UsedTool]) -> str:
    """Return a digest of definitions, by which a decision names what was shown."""
    return hashlib.sha256("\n".join(f"{each.path} {each.digest}" for each in tools).encode()).hexdigest()


def _proposals(found: _Folder) -> tuple[Proposals, str | None]:
    """Return the proposals, and the reason why they cannot be read. Blocks."""
    try:
        return found.state.proposals(), None
    except StateUnavailable as error:
        return Proposals(), str(error)


def _history(found: _Folder, name: str) -> History:
    """Return the versions of a program; none if they cannot be read. Blocks."""
    try:
        return found.state.history(name)
    except StateUnavailable:
        return History(name)


def _decide(found: _Folder, name: str, digest: str, before: str, decision: Literal["accept", "reject"]) -> None:
    """Decide about a proposal. Blocks. Raises as `deciding.accept`."""
    if decision == "reject":
        program_state.reject(found.state, name, digest)
        return
    proposal = next((each for each in found.state.proposals().named(name) if each.digest == digest), None)
    file = present_file(found.folder, name)
    if proposal is None or ("" if file is None else file.digest) != before:
        raise Stale(f"the proposal or the file of {name} has changed since it was shown")
    program_state.accept(found.state, found.folder, proposal, file, by=AT_PAGE, at=time.time())


def _error_lines(programs: Sequence[SavedProgram]) -> dict[str, int | None]:
    """Return the line of the first probable syntax error of each program. Blocks."""
    return {each.name: syntax_error_line(each.text) for each in programs}


def _row(application: App, program: SavedProgram, error_line: int | None) -> dict[str, Any]:
    return {
        "name": program.name,
        "address": f"/programs/{quote(program.name, safe='')}",
        "description": program.description.strip().split("\n", 1)[0][:200],
        "error_line": error_line,
        "changes": len(application.program_changes(program.name)),
    }


def _proposal_row(proposal: Proposal) -> dict[str, Any]:
    return {
        "name": proposal.name,
        "address": f"/programs/{quote(proposal.name, safe='')}",
        "description": proposal.description.strip().split("\n", 1)[0][:200],
        "by": proposal.author.words,
        "run": proposal.author.run,
        "ms": round((time.time() - proposal.at) * 1000),
    }


def _proposal(proposal: Proposal, file: PresentFile | None, history: History) -> dict[str, Any]:
    return {
        **_proposal_row(proposal),
        "digest": proposal.digest,
        "text": proposal.text,
        "tools": [each.path for each in proposal.tools],
        "complete": proposal.complete,
        "file": proposal.file,
        "replaces": file is not None,
        "unreadable": file is not None and file.text is None,
        "edited": file is not None and history.of(file.digest) is None,
        "difference": [] if file is None or file.text is None else [*_difference(file.text, proposal.text)],
    }


def _difference(before: str, after: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(different_lines(before, after)):
        if number >= MAX_LINES:
            return
        kind = {"+": "added", "-": "removed", "@": "omitted"}.get(line[:1], "same")
        yield kind, line if kind == "omitted" else line[1:]
