"""The folder of saved programs: broken files, proposals that wait, and changed definitions of tools."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import anyio.to_thread

from codemode_mcp.cli.doctor.check import Check, listed
from codemode_mcp.control.display import counted, plain
from codemode_mcp.saved_programs.folder import folder_of, read_folder
from codemode_mcp.saved_programs.program_state import StateUnavailable, state_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from codemode_mcp.app.app import App
    from codemode_mcp.config import Config

_NAME = "saved programs"


async def check(app: App, config: Config) -> Iterable[Check]:
    """Check the saved programs. The lists of servers are known already."""
    folder = folder_of(config.path)
    if config.path is None or folder is None:
        return ()
    option = f" --config {shlex.quote(plain(str(config.path)))}"
    library = await anyio.to_thread.run_sync(read_folder, folder)
    found = [
        Check(_NAME, "warn", str(each), f"correct the file; codemode-mcp programs check{option}")
        for each in library.problems
    ]
    try:
        proposals = await anyio.to_thread.run_sync(state_of(config.path).proposals)
        for program in library.programs:
            changes = await app.look_at_program(program)
            if changes:
                detail = f"programs.{program.name}: {listed([str(each) for each in changes])}"
                advice = f"read it, then: codemode-mcp programs accept {plain(program.name)}{option}"
                found.append(Check(_NAME, "warn", detail, advice))
    except StateUnavailable as error:
        return [*found, Check(_NAME, "warn", str(error), "correct the permissions, or remove the file")]
    if proposals.waiting:
        detail = f"{counted(len(proposals.waiting), 'proposal')}: {listed([each.name for each in proposals.waiting])}"
        found.append(Check(_NAME, "info", detail, f"decide about it: codemode-mcp programs list{option}"))
    if library.programs and not found:
        found.append(Check(_NAME, "ok", f"{counted(len(library.programs), 'program')} in {folder}"))
    return found
