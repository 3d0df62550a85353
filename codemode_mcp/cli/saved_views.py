"""The text of `codemode-mcp programs` for people.

Models choose names, descriptions and texts of proposals. All of them are escaped, and each line has a margin, so that
none can pass for a line of ours.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.control.display import counted, cut, plain, wrapped
from codemode_mcp.saved_programs.differences import different_lines
from codemode_mcp.saved_programs.program_file import syntax_error_line
from declarations.untrusted_text import count_blanks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from codemode_mcp.cli.saved_lookup import SavedPrograms
    from codemode_mcp.saved_programs.proposals import Proposal
    from codemode_mcp.saved_programs.saved_program import SavedProgram
    from codemode_mcp.saved_programs.used_tools import UsedTool
    from codemode_mcp.saved_programs.versions import Version

PROGRAM_HEAD: Final = ("PROGRAM", "STATE", "DESCRIPTION")
PROPOSAL_HEAD: Final = ("PROPOSED", "BY", "AT", "DESCRIPTION")

MAX_DESCRIPTION: Final = 80
UNCUT: Final = 10_000
"""Width for output to a pipe, which is not wrapped."""


def command(verb: str, name: str, config: str | None) -> str:
    """Return a `programs` command to copy, for the configuration that was named with `--config`, if any."""
    option = "" if config is None else f" --config {shlex.quote(plain(config))}"
    return f"codemode-mcp programs {verb} {shlex.quote(plain(name))}{option}"


def width_of(stream: Any) -> int:
    """Return the columns of a terminal; `UNCUT` for a pipe."""
    return shutil.get_terminal_size().columns if stream.isatty() else UNCUT


def program_row(found: SavedPrograms, program: SavedProgram) -> tuple[str, ...]:
    """Return the row of `PROGRAM_HEAD` about a saved program."""
    return program.name, state_of(found, program), _first_line(program.description)


def state_of(found: SavedPrograms, program: SavedProgram) -> str:
    """Return the state of a saved program in words, with the line of a syntax error if there is one."""
    line = syntax_error_line(program.text)
    state = _version_state(found, program)
    return state if line is None else f"syntax error in line {line}? See programs check; {state}"


def _version_state(found: SavedPrograms, program: SavedProgram) -> str:
    version = found.version(program)
    changes = found.changes(version)
    if changes:
        return f"{counted(len(changes), 'definition')} changed"
    if found.is_edited(program):
        return "edited since it was accepted"
    if version is None or version.tools is None:
        return "not pinned yet"
    if not found.all_known(version):
        return "ok as far as known; run compares it"  # such as servers with `trust: "follow"`
    return "ok" if version.complete else "ok; tools not all known"


def proposal_row(proposal: Proposal) -> tuple[str, ...]:
    """Return the row of `PROPOSAL_HEAD` about a proposal."""
    name = f"{proposal.name}@{proposal.digest[:8]}"
    return name, proposal.author.words, date(proposal.at), _first_line(proposal.description)


def program_lines(found: SavedPrograms, program: SavedProgram) -> Iterator[str]:
    """Yield the lines about a saved program."""
    version = found.version(program)
    yield f"{plain(program.name)}: {state_of(found, program)}"
    yield f"  file     {plain(str(found.folder / program.file))}"
    yield f"  digest   {program.digest}"
    if version is not None:
        yield f"  version  {plain(version.by)}, {date(version.at)}{_proposed(version)}"
    yield from _tool_lines(None if version is None else version.tools, complete=version is None or version.complete)
    for change in found.changes(version):
        yield f"  CHANGED  {plain(str(change))}"
    yield from text_lines(program.text)


def proposal_lines(found: SavedPrograms, proposal: Proposal) -> Iterator[str]:
    """Yield the lines about a proposal: its origin, its tools, its text, and what it changes."""
    before = found.file(proposal.name)
    yield f"{plain(proposal.name)}: proposed by {plain(proposal.author.words)}, {date(proposal.at)}"
    yield f"  run      {plain(proposal.author.run)}"
    yield f"  digest   {proposal.digest}"
    yield f"  file     {plain(str(found.folder / proposal.file))}"
    yield from _tool_lines(proposal.tools, complete=proposal.complete)
    yield from text_lines(proposal.text)
    if before is None:
        yield "  There is no such file yet."
        return
    if before.text is None:
        yield f"  It REPLACES {plain(str(before.path))}, which cannot be read."
        return
    if found.history(proposal.name).of(before.digest) is None:
        yield f"  It REPLACES {plain(str(before.path))}, which a person has edited since the last accepted version."
    else:
        yield f"  It replaces {plain(str(before.path))}:"
    yield from difference_lines(before.text, proposal.text)


def text_lines(text: str) -> Iterator[str]:
    """Yield the lines of a program with their numbers."""
    width = width_of(sys.stderr)
    lines = text.removesuffix("\n").split("\n")
    for number, line in enumerate(lines, 1):
        first = True
        for part in wrapped(_counted(line), width, ""):
            yield (f"{number:>6} | " if first else f"{'':>6} | ") + part
            first = False


def difference_lines(before: str, after: str) -> Iterator[str]:
    """Yield the differences of two texts, each line with `+`, `-` or a blank before it."""
    if before == after:
        yield "  The text is the same."
        return
    width = width_of(sys.stderr)
    for line in different_lines(before, after):
        mark, rest = (" ", line) if line.startswith("@@") else (line[:1], line[1:])
        yield from wrapped(_counted(rest), width, f"  {mark} ")


def programs_json(found: SavedPrograms) -> dict[str, Any]:
    """Return all programs, problems and proposals as JSON."""
    return {
        "programs": [program_json(found, each) for each in found.library.programs],
        "problems": [{"file": each.file, "line": each.line, "text": each.text} for each in found.library.problems],
        "proposals": [proposal_json(each) for each in found.proposals.waiting],
    }


def program_json(found: SavedPrograms, program: SavedProgram) -> dict[str, Any]:
    """Return one program as JSON, without its text."""
    version = found.version(program)
    return {
        "name": program.name,
        "file": str(found.folder / program.file),
        "digest": program.digest,
        "description": program.description,
        "inputSchema": program.input_schema,
        "by": None if version is None else version.by,
        "at": None if version is None else version.at,
        "edited": found.is_edited(program),
        "syntaxErrorLine": syntax_error_line(program.text),
        "tools": _tools_json(None if version is None else version.tools),
        "complete": version is not None and version.complete,
        "changes": [{"path": each.path, "what": each.what} for each in found.changes(version)],
    }


def proposal_json(proposal: Proposal) -> dict[str, Any]:
    """Return one proposal as JSON."""
    return {
        "name": proposal.name,
        "digest": proposal.digest,
        "description": proposal.description,
        "by": proposal.author.words,
        "run": proposal.author.run,
        "at": proposal.at,
        "tools": _tools_json(proposal.tools),
        "complete": proposal.complete,
        "text": proposal.text,
    }


def date(at: float) -> str:
    """Return a time for people."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def _tools_json(tools: Sequence[UsedTool] | None) -> list[dict[str, str]] | None:
    if tools is None:
        return None
    return [{"path": each.path, "server": each.server, "tool": each.tool, "digest": each.digest} for each in tools]


def _tool_lines(tools: Sequence[UsedTool] | None, *, complete: bool) -> Iterator[str]:
    names = ["not known yet"] if tools is None else [each.path for each in tools]
    if not complete:
        names.append("tools that its text does not name")
    yield f"  uses     {plain(', '.join(names) or 'no tools')}"


def _proposed(version: Version) -> str:
    return "" if version.proposed_by is None else f"; proposed by {plain(version.proposed_by)}"


def _counted(line: str) -> str:
    return count_blanks(line.replace("\t", "    "), is_code=True)


def _first_line(text: str) -> str:
    return cut(text.strip().split("\n", 1)[0], MAX_DESCRIPTION)
