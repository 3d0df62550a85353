"""Keeps programs that models propose to save, until a person decides about them."""

from __future__ import annotations

import json
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from codemode_mcp.audit.events import Auditor
from codemode_mcp.errors import ProgramError
from codemode_mcp.saved_programs.folder import name_of, program_files, read_text
from codemode_mcp.saved_programs.program_file import read_program
from codemode_mcp.saved_programs.program_state import StateUnavailable
from codemode_mcp.saved_programs.proposals import Proposal, Proposals, propose
from codemode_mcp.saved_programs.proposed_text import is_one_function, proposed_text
from codemode_mcp.saved_programs.saved_program import MAX_TEXT, OF_REPL, ProgramFileError, digest_of, name_problem
from codemode_mcp.saved_programs.used_tools import names_in, used_tools

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from codemode_mcp.saved_programs.program_state import ProgramState
    from codemode_mcp.saved_programs.proposals import Author, Status
    from codemode_mcp.saved_programs.used_tools import Definition, Names
    from codemode_mcp.settings import Language

log = logging.getLogger("codemode_mcp.programs")

_SCHEMA_FORM = 'input: { type: "object", properties: { repo: { type: "string" } }, required: ["repo"] }'


class Proposer:
    """The keeper of the proposals for one configuration.

    Args:
        state: the files; None without a configuration file.
        enabled: returns whether programs may be proposed.
        folder: the folder of the saved programs.
        command: the command with which a person accepts, up to the name.
        option: the end of the command, such as ` --config PATH`; may be empty.
        auditor: reports new proposals.
        clock: Unix seconds.
    """

    def __init__(
        self,
        state: ProgramState | None,
        folder: Path | None,
        *,
        enabled: Callable[[], bool],
        command: str = "codemode-mcp programs accept",
        option: str = "",
        auditor: Auditor | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._state = state
        self._enabled = enabled
        self._folder = folder
        self._command = command
        self._option = option
        self._auditor = auditor or Auditor()
        self._clock = clock
        # A syntax tree takes much memory and time, and models decide how many are built.
        self._parsing = anyio.CapacityLimiter(1)

    async def propose(
        self,
        name: str,
        *,
        source: str,
        language: Language,
        description: str,
        schema: str | None,
        author: Author | None,
        read_only: bool,
        find: Callable[[str], Definition | None],
    ) -> dict[str, Any]:
        """Keep a program until a person accepts it. Return the answer for the program, as JSON.

        Args:
            schema: the JSON Schema of its input, as JSON text.
            author: None for a caller that is known only by the id of its run.
            read_only: True if the caller may use read-only tools only.
            find: returns the tool at a path such as `MCP.github.createIssue`, as the program sees it.

        Raises:
            ProgramError: it cannot be kept. The message says why.
        """
        if not self._enabled():
            raise _refused("saving programs is switched off here (tools.codeMode.savePrograms); tell the user")
        if self._state is None or self._folder is None:
            raise _refused("there is no configuration file, and saved programs stand beside it; tell the user")
        if read_only:
            raise _refused("this client may only read (--read-only), and a proposal is written to the disk")
        if author is None:
            raise _refused("it needs a client with a login or a session, and this one has none")
        if OF_REPL in source:
            raise _refused("a program of the prompt belongs to its session; .save FILE writes all of it to a file")
        problem = name_problem(name)
        if problem is None and not name.isascii():
            problem = "the name is no ASCII identifier; use letters, digits and _, such as weeklyReport"
        if problem is not None:
            raise _refused(problem)
        if len(source) > MAX_TEXT:
            raise _refused(f"the program has more than {MAX_TEXT // 1024} KiB; save a shorter one")
        read = _read_schema(schema)
        text, notes, names = await anyio.to_thread.run_sync(
            lambda: _checked_text(source, language, name=name, description=description, schema=read),
            limiter=self._parsing,
        )
        tools = used_tools(names, find)
        proposal = Proposal(
            name, language, text, digest_of(text), description, author, self._clock(), tools, names.complete
        )
        status = await anyio.to_thread.run_sync(_keep, self._state, self._folder, proposal)
        if status == "proposed":
            self._auditor.emit("program_proposed", f"programs.{name}", author.run, digest=proposal.digest)
        answer = {"status": status, "name": name, "digest": proposal.digest, "message": self._message(name, status)}
        return {**answer, "notes": list(notes)} if notes else answer

    def _message(self, name: str, status: Status) -> str:
        match status:
            case "saved":
                return f"programs.{name} is saved with this text already"
            case "rejected":
                return f"a person has rejected this text of {name}; propose another one only if the user wants it"
        return (
            f"{name} is proposed, not saved yet: a person has to accept it, in a terminal with {self._command} {name}"
            f"{self._option} or on the page of codemode-mcp ui; tell the user"
        )


def _checked_text(source: str, language: Language, *, name: str, **about: Any) -> tuple[str, tuple[str, ...], Names]:
    """Return what `proposed_text` does, and the names in it.

    Raises:
        ProgramError: the cell cannot be the body of a function, or the folder would refuse the file.
    """
    text, notes = proposed_text(source, language, name=name, **about)
    try:
        read_program(name, language, text)
    except ProgramFileError as error:
        raise _refused(f"the file would not be a saved program: {error.text}") from None
    if not is_one_function(text):
        raise _refused(
            "the text of this program does not fit into one function; remove unmatched brackets, and comments that "
            "begin with <!-- or -->"
        )
    return text, notes, names_in(text)


def _keep(state: ProgramState, folder: Path, proposal: Proposal) -> Status:
    """Add a proposal to the file, unless it is saved already. Raises `ProgramError`."""
    with suppress(ProgramFileError):
        if read_text(folder / proposal.file) == proposal.text:
            return "saved"
    other = next((each for each in map(name_of, program_files(folder)) if _differs_in_case(each, proposal.name)), None)
    if other is not None:
        raise _refused(f"there is a saved program {other}, and names must differ in more than case; use another name")
    status: Status = "proposed"

    def change(known: Proposals) -> Proposals:
        nonlocal status
        after, status = propose(known, proposal)
        return after

    try:
        state.change_proposals(change)
    except StateUnavailable as error:
        log.warning("a proposed program cannot be kept: %s", error)
        raise _refused("the proposal cannot be kept; the log of codemode-mcp says why; tell the user") from error
    return status


def _differs_in_case(one: str, other: str) -> bool:
    return one != other and one.casefold() == other.casefold()


def _read_schema(text: str | None) -> dict[str, Any] | None:
    """Return the schema of the input. Raises `ProgramError` if it is not one of an object."""
    if text is None:
        return None
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError):
        schema = None
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        raise _refused(f"the option input is a JSON Schema of an object, such as {_SCHEMA_FORM}")
    if not {"type", "properties", "$ref", "anyOf", "oneOf", "allOf"} & schema.keys() and schema:
        raise _refused(f"the option input is a JSON Schema, not an example: {_SCHEMA_FORM}")
    return {"type": "object", **schema}


def _refused(why: str) -> ProgramError:
    return ProgramError("nested_tool_failed", f"save_program(): {why}")
