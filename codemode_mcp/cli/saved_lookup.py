"""The saved programs, proposals and versions of a configuration, for `codemode-mcp programs`.

Everything comes from files. No server is started and no variable is expanded, so that a person can decide in a shell
that has none of the variables of a client.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from codemode_mcp.cli.messages import stop, stop_line, suggestion
from codemode_mcp.cli.pinned_items import read_modes
from codemode_mcp.saved_programs.deciding import present_file
from codemode_mcp.saved_programs.folder import folder_of, read_folder
from codemode_mcp.saved_programs.program_state import StateUnavailable, state_of
from codemode_mcp.saved_programs.used_tools import UsedTool
from codemode_mcp.saved_programs.versions import BY_FILE, History, Version, changes_since
from codemode_mcp.trust.comparison import compare_item
from codemode_mcp.trust.pins_file import PinsFolder, PinsUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from codemode_mcp.saved_programs.deciding import PresentFile
    from codemode_mcp.saved_programs.folder import Library
    from codemode_mcp.saved_programs.program_state import ProgramState
    from codemode_mcp.saved_programs.proposals import Proposal, Proposals
    from codemode_mcp.saved_programs.saved_program import SavedProgram
    from codemode_mcp.saved_programs.used_tools import DefinitionChange
    from codemode_mcp.trust.comparison import Mode, ServerPins
    from codemode_mcp.trust.items import Key

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
        """The programs in the folder."""
        return read_folder(self.folder)

    @cached_property
    def _pins(self) -> dict[str, ServerPins | None]:
        return {}

    def file(self, name: str) -> PresentFile | None:
        """Return the file of a program; None if there is none."""
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
        """Return the changes of definitions since a version was pinned."""
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
        from codemode_mcp.paths import state_dir

        names = PinsFolder(state_dir() / "pins", self.config).server_names([*self.modes])
        return {identifier: name for name, identifier in names.items() if name in self.modes}

    def _pins_of(self, server: str) -> ServerPins | None:
        from codemode_mcp.paths import state_dir

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
        """Return the message about a name for which there is neither a file nor a proposal."""
        name = reference.partition("@")[0]
        known = [*(each.name for each in self.library.programs), *(each.name for each in self.proposals.waiting)]
        return f"there is no saved program and no proposal {name!r}; {suggestion(name, dict.fromkeys(known))}"


def find_programs(config: str | None) -> SavedPrograms:
    """Return the saved programs beside a configuration file. End the command if there is no such file.

    Args:
        config: the value of `--config`.
    """
    from codemode_mcp.saved_programs.proposals import Proposals

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
