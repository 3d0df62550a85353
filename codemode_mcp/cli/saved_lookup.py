"""The saved programs, proposals and versions of a configuration, and their text for people.

Everything comes from files. No server is started and no variable is expanded, so that a person can decide in a shell
that has none of the variables of a client.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.base.display import counted, cut, plain, wrapped
from codemode_mcp.catalog.saved_programs.folder import Library, folder_of, read_folder
from codemode_mcp.catalog.saved_programs.program_file import syntax_error_line
from codemode_mcp.catalog.saved_programs.program_state import StateUnavailable, present_file, state_of
from codemode_mcp.catalog.saved_programs.versions import (
    BY_FILE,
    History,
    UsedTool,
    Version,
    changes_since,
    different_lines,
)
from codemode_mcp.cli.messages import stop, stop_line, suggestion
from codemode_mcp.cli.pinned_items import read_modes
from codemode_mcp.rules.trust.comparison import Mode, ServerPins, compare_item
from codemode_mcp.rules.trust.pins_file import PinsFolder, PinsUnavailable
from declarations.untrusted_text import count_blanks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from codemode_mcp.catalog.saved_programs.program_state import PresentFile, ProgramState
    from codemode_mcp.catalog.saved_programs.saved_program import SavedProgram
    from codemode_mcp.catalog.saved_programs.versions import DefinitionChange, Proposal, Proposals
    from codemode_mcp.rules.trust.items import Key


MIN_DIGEST = 8
"""Minimum number of characters of a digest in `NAME@DIGEST`."""


@dataclass(frozen=True)
class SavedPrograms:
    """The saved programs of one configuration.

    Attributes:
        config: the path of the configuration file.
        modes: the trust mode of each server.
        proposals: may be empty.
        problems: sentences about state that cannot be read.
    """

    config: Path
    folder: Path
    state: ProgramState
    modes: Mapping[str, Mode]
    proposals: Proposals
    problems: Sequence[str]

    @cached_property
    def library(self) -> Library:
        return read_folder(self.folder)

    @cached_property
    def _pins(self) -> dict[str, ServerPins | None]:
        return {}

    def file(self, name: str) -> PresentFile | None:
        return present_file(self.folder, name)

    def history(self, name: str) -> History:
        """Return the versions of a program. End the command if they cannot be read."""
        try:
            return self.state.history(name)
        except StateUnavailable as error:
            stop_line(1, str(error))

    def version(self, program: SavedProgram) -> Version | None:
        """Return the version of the present text; None if no process has seen it yet."""
        return self.history(program.name).of(program.digest)

    def is_edited(self, program: SavedProgram) -> bool:
        """Return True if a person has edited the file since a version of it was accepted."""
        history = self.history(program.name)
        return history.latest is not None and history.latest.by != BY_FILE and history.of(program.digest) is None

    def tools(self, program: SavedProgram) -> Sequence[UsedTool]:
        """Return the tools of the present version; empty if they are not known yet."""
        version = self.version(program)
        return () if version is None else version.tools or ()

    def all_known(self, version: Version | None) -> bool:
        """Return True if the present definitions of all tools of a version are known without connecting to servers."""
        tools = None if version is None else version.tools
        return tools is not None and all(not each.server or self.present(each) is not None for each in tools)

    def changes(self, version: Version | None) -> Sequence[DefinitionChange]:
        return changes_since(version, self.present)

    def present(self, used: UsedTool) -> UsedTool | None:
        """Return the tool of a path with its present definition, as the pins of its server have it.

        None if it is not known.
        """
        if not used.server:
            return None
        server, tool = self._named(used)
        if server not in self.modes:
            return UsedTool(used.path, server, tool)
        pins, mode = self._pins_of(server), self.modes[server]
        if pins is None or mode == "follow" or "tool" not in pins.present.complete:
            return None
        key: Key = ("tool", tool)
        listed = pins.present.items.get(key)
        item = None if listed is None else compare_item(pins, listed, mode).usable
        if item is None:  # it is held, or not listed
            return UsedTool(used.path, server, tool)
        return UsedTool(used.path, server, tool, item.digest, item.shape_digest)

    def _named(self, used: UsedTool) -> tuple[str, str]:
        """Return the server and the tool that a path names now. What is not known is as it was."""
        _, identifier, member = used.path.split(".", 2)
        server = self._servers.get(identifier, used.server)
        pins = self._pins_of(server)
        names = {} if pins is None else {each: name for name, each in pins.names.items()}
        return server, names.get(member, used.tool)

    @cached_property
    def _servers(self) -> Mapping[str, str]:
        """The names of servers by their identifiers in programs."""
        from codemode_mcp.base.paths import state_dir

        names = PinsFolder(state_dir() / "pins", self.config).server_names([*self.modes])
        return {identifier: name for name, identifier in names.items() if name in self.modes}

    def _pins_of(self, server: str) -> ServerPins | None:
        from codemode_mcp.base.paths import state_dir

        if server not in self._pins:
            try:
                self._pins[server] = PinsFolder(state_dir() / "pins", self.config).load(server)
            except PinsUnavailable:
                self._pins[server] = None
        return self._pins[server]

    def proposal(self, reference: str) -> Proposal | None:
        """Return the proposal that `NAME` or `NAME@DIGEST` names; None if there is none.

        End the command if there are several.
        """
        name, _, digest = reference.partition("@")
        found = [each for each in self.proposals.named(name) if each.digest.startswith(digest)]
        if digest and len(digest) < MIN_DIGEST:
            stop(2, f"{reference}: give at least {MIN_DIGEST} characters of the digest")
        if len(found) > 1:
            names = ", ".join(f"{name}@{each.digest[:MIN_DIGEST]} (of {each.author.words})" for each in found)
            stop_line(2, f"there are {len(found)} proposals of {name}; name one of them: {names}")
        return found[0] if found else None

    def unknown(self, reference: str) -> str:
        name = reference.partition("@")[0]
        known = [*(each.name for each in self.library.programs), *(each.name for each in self.proposals.waiting)]
        return f"there is no saved program and no proposal {name!r}; {suggestion(name, dict.fromkeys(known))}"


def find_programs(config: str | None) -> SavedPrograms:
    """Return the saved programs beside a configuration file. End the command if there is no such file.

    Args:
        config: the value of `--config`.
    """
    from codemode_mcp.catalog.saved_programs.versions import Proposals

    path, modes = read_modes(config)
    folder = folder_of(path)
    if path is None or folder is None:
        stop(2, "saved programs stand beside a configuration file, and there is none; name one with --config FILE")
    state = state_of(path)
    try:
        proposals, problems = state.proposals(), ()
    except StateUnavailable as error:
        return SavedPrograms(path, folder, state, modes, Proposals(), (str(error),))
    return SavedPrograms(path, folder, state, modes, proposals, problems)


# The text of `codemode-mcp programs` for people.
#
# Models choose names, descriptions and texts of proposals. All of them are escaped, and each line has a margin, so that
# none can pass for a line of ours.


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
    return program.name, saved_state_text(found, program), _first_line(program.description)


def saved_state_text(found: SavedPrograms, program: SavedProgram) -> str:
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
    name = f"{proposal.name}@{proposal.digest[:8]}"
    return name, proposal.author.words, date(proposal.at), _first_line(proposal.description)


def program_lines(found: SavedPrograms, program: SavedProgram) -> Iterator[str]:
    version = found.version(program)
    yield f"{plain(program.name)}: {saved_state_text(found, program)}"
    yield f"  file     {plain(str(found.folder / program.file))}"
    yield f"  digest   {program.digest}"
    if version is not None:
        yield f"  version  {plain(version.by)}, {date(version.at)}{_proposed(version)}"
    yield from _tool_lines(None if version is None else version.tools, complete=version is None or version.complete)
    for change in found.changes(version):
        yield f"  CHANGED  {plain(str(change))}"
    yield from text_lines(program.text)


def proposal_lines(found: SavedPrograms, proposal: Proposal) -> Iterator[str]:
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
