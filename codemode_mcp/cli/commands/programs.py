"""`codemode-mcp programs`: saved programs, and decisions about those that models propose.

Listings go to stdout, questions to a person to stderr.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from codemode_mcp.cli.deciding import confirm, require_person
from codemode_mcp.cli.messages import end, print_json, say, say_command, say_line, stop_line
from codemode_mcp.cli.options import ConfigOption, JsonOption
from codemode_mcp.cli.parser import saved_programs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from codemode_mcp.audit.events import EventKind
    from codemode_mcp.catalog.saved_programs.saved_program import SavedProgram
    from codemode_mcp.catalog.saved_programs.versions import DefinitionChange, UsedTool
    from codemode_mcp.cli.saved_lookup import SavedPrograms

app = typer.Typer(
    name="programs",
    no_args_is_help=True,
    help="Show saved programs, and decide about those that models propose.",
    epilog="Example: codemode-mcp programs list\n\nExample: codemode-mcp programs accept weeklyReport",
)

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="A saved program, or a proposal.", autocompletion=saved_programs)
]
NameOrAll = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="A saved program; default: all.", autocompletion=saved_programs),
]


@app.command("list", epilog="Example: codemode-mcp programs list")
def list_(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show all saved programs and proposals, and which definitions of tools have changed. No server is started."""
    from codemode_mcp.base.display import table
    from codemode_mcp.cli import saved_lookup
    from codemode_mcp.cli.saved_lookup import find_programs

    found = find_programs(config)
    if as_json:
        print_json(saved_lookup.programs_json(found))
        return
    width = saved_lookup.width_of(sys.stdout)
    programs = [saved_lookup.program_row(found, each) for each in found.library.programs]
    proposals = [saved_lookup.proposal_row(each) for each in found.proposals.waiting]
    for head, rows in ((saved_lookup.PROGRAM_HEAD, programs), (saved_lookup.PROPOSAL_HEAD, proposals)):
        if rows:
            for line in table(head, rows, width):
                print(line)
    for problem in (*map(str, found.library.problems), *found.problems):
        say_line(problem)
    if not programs and not proposals:
        say(f"there are no saved programs in {found.folder}; to write one: codemode-mcp new NAME")
    if proposals:
        say("to read a proposal, and to accept or reject it:")
        for verb in ("show", "accept", "reject"):
            say_command(saved_lookup.command(verb, "NAME", config))


@app.command(epilog="Example: codemode-mcp programs show weeklyReport")
def show(name: NameArgument, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show a saved program: its version, the tools that it uses and its text. A proposal with its name follows."""
    from codemode_mcp.cli import saved_lookup
    from codemode_mcp.cli.saved_lookup import find_programs

    found = find_programs(config)
    program = None if "@" in name else found.library.get(name)
    proposals = [found.proposal(name)] if "@" in name else found.proposals.named(name)
    waiting = [each for each in proposals if each is not None]
    if program is None and not waiting:
        broken = [str(each) for each in found.library.problems if each.file.rpartition(".")[0] == name]
        stop_line(1 if broken else 2, "; ".join(broken) or found.unknown(name))
    if as_json:
        print_json(
            {
                "program": program and {**saved_lookup.program_json(found, program), "text": program.text},
                "proposals": [saved_lookup.proposal_json(each) for each in waiting],
            }
        )
        return
    if program is not None:
        _print(saved_lookup.program_lines(found, program))
    for each in waiting:
        _print(saved_lookup.proposal_lines(found, each))


@app.command(epilog="Example: codemode-mcp programs diff weeklyReport")
def diff(name: NameArgument, config: ConfigOption = None) -> None:
    """Show what a proposal changes; without one, what a person has edited since the program was accepted."""
    from codemode_mcp.cli import saved_lookup
    from codemode_mcp.cli.saved_lookup import find_programs

    found = find_programs(config)
    proposal, file = found.proposal(name), found.file(name.partition("@")[0])
    if proposal is not None:
        _print(saved_lookup.difference_lines("" if file is None else file.text or "", proposal.text))
        return
    if file is None or file.text is None:
        stop_line(2, found.unknown(name))
    versions = found.history(name).versions
    earlier = [each.text for each in versions if each.text is not None and each.digest != file.digest]
    if earlier:
        _print(saved_lookup.difference_lines(earlier[-1], file.text))
    else:
        say(f"no other text of {name} is kept")
    for change in found.changes(found.history(name).of(file.digest)):
        say_line(str(change))


@app.command(epilog="Example: codemode-mcp programs accept weeklyReport")
def accept(name: NameArgument, config: ConfigOption = None) -> None:
    """Show a proposal, and save it after a confirmation. Without one, accept changed definitions of its tools."""
    from codemode_mcp.catalog.saved_programs import program_state
    from codemode_mcp.cli import saved_lookup
    from codemode_mcp.cli.pinned_items import PERSON
    from codemode_mcp.cli.saved_lookup import find_programs

    require_person("programs accept")
    found = find_programs(config)
    proposal = found.proposal(name)
    if proposal is None:
        _accept_definitions(name, config)
        return
    before = found.file(proposal.name)
    _print(saved_lookup.proposal_lines(found, proposal), sys.stderr)
    confirm("accept", f"{proposal.name} as shown above")
    _decide(lambda: program_state.accept(found.state, found.folder, proposal, before, by=PERSON, at=time.time()))
    _record(found, "program_accepted", proposal.name, proposal.digest)
    say_line(f"accepted: {found.folder / proposal.file}; programs call it as programs.{proposal.name}(...)")


@app.command(epilog="Example: codemode-mcp programs reject weeklyReport")
def reject(name: NameArgument, config: ConfigOption = None) -> None:
    """Show a proposal, and reject it after a confirmation. The same text is not proposed again."""
    from codemode_mcp.catalog.saved_programs import program_state
    from codemode_mcp.cli import saved_lookup
    from codemode_mcp.cli.saved_lookup import find_programs

    require_person("programs reject")
    found = find_programs(config)
    proposal = found.proposal(name)
    if proposal is None:
        stop_line(2, f"there is no proposal of {name!r}; codemode-mcp programs list shows all")
    _print(saved_lookup.proposal_lines(found, proposal), sys.stderr)
    confirm("reject", f"{proposal.name} as shown above")
    _decide(lambda: program_state.reject(found.state, proposal.name, proposal.digest))
    _record(found, "program_rejected", proposal.name, proposal.digest)
    say_line(f"rejected: {proposal.name}@{proposal.digest[:8]}")


@app.command(epilog="Example: codemode-mcp programs remove weeklyReport")
def remove(name: NameArgument, config: ConfigOption = None) -> None:
    """Remove a saved program and its versions after a confirmation."""
    from codemode_mcp.catalog.saved_programs import program_state
    from codemode_mcp.cli.saved_lookup import find_programs

    require_person("programs remove")
    found = find_programs(config)
    file = found.file(name)
    if file is None:
        stop_line(2, found.unknown(name))
    say_line(str(file.path))
    confirm("remove", f"{name}, the file above")
    _decide(lambda: program_state.remove(found.state, file, name))
    _record(found, "program_removed", name, file.digest)
    say_line(f"removed: {file.path}")


@app.command(epilog="Example: codemode-mcp programs check")
def check(name: NameOrAll = None, config: ConfigOption = None) -> None:
    """Read the files of saved programs, check their types, and show the problems. Exit with 1 if there are any."""
    from codemode_mcp.catalog.saved_programs.program_file import unknown_members
    from codemode_mcp.cli.loading import load
    from codemode_mcp.cli.saved_lookup import find_programs
    from codemode_mcp.extension_points import first

    found = find_programs(config)
    problems = [each for each in found.library.problems if name in (None, each.file.rpartition(".")[0])]
    if name is not None and not problems and found.library.get(name) is None:
        stop_line(2, found.unknown(name))
    programs = [each for each in found.library.programs if name in (None, each.name)]
    problems += [problem for each in programs for problem in unknown_members(each)]
    for each in problems:
        say_line(str(each))
    type_check = first(lambda each: each.type_check)
    if programs and type_check is not None:
        type_check.check_saved(load(config, "error", None), programs)
    if problems:
        end(1)
    say(f"{len(found.library.programs) if name is None else name}: no problems")


def _accept_definitions(name: str, config: str | None) -> None:
    """Pin a saved program to the present definitions of its tools, after a confirmation."""
    from codemode_mcp.catalog.saved_programs import program_state
    from codemode_mcp.catalog.saved_programs.versions import unusable
    from codemode_mcp.cli.pinned_items import PERSON
    from codemode_mcp.cli.saved_lookup import find_programs

    found = find_programs(config)
    program = found.library.get(name)
    if program is None:
        stop_line(2, found.unknown(name))
    version = found.version(program)
    changes, tools = found.changes(version), tuple(found.present(each) or each for each in found.tools(program))
    if not changes and not found.all_known(version):
        changes, tools = _connect(program, config)
    if not changes:
        stop_line(1, f"there is no proposal of {name}, and no definition of its tools has changed; nothing was decided")
    for change in changes:
        say_line(f"  {change}")
    why_not = unusable(changes)
    if why_not is not None:
        stop_line(1, f"nothing was decided: {why_not}")
    confirm("accept", f"these definitions for {name}")
    complete = version is None or version.complete
    _decide(
        lambda: program_state.pin(found.state, name, program.text, tools, complete=complete, by=PERSON, at=time.time())
    )
    _record(found, "program_accepted", name, program.digest)
    say_line(f"accepted: the present definitions for {name}")


def _connect(program: SavedProgram, config: str | None) -> tuple[Sequence[DefinitionChange], tuple[UsedTool, ...]]:
    """Return what the servers of a program list now, where pins do not have it. End the command if one is down."""
    import anyio

    from codemode_mcp.cli.command_programs import Refused, present_definitions
    from codemode_mcp.cli.loading import load, logging_of, plugins_on_stderr

    loaded = load(config, "error", None)
    try:
        with logging_of(loaded, level="error"), plugins_on_stderr():
            return anyio.run(present_definitions, loaded, program)
    except Refused as error:
        stop_line(error.exit_code, error.message)


def _decide(decide: Callable[[], object]) -> None:
    """Make a decision. End the command if it cannot be made."""
    from codemode_mcp.catalog.saved_programs.program_state import NotWritten, Stale, StateUnavailable

    try:
        decide()
    except (Stale, NotWritten, StateUnavailable) as error:
        stop_line(1, f"nothing was decided: {error}")


def _record(found: SavedPrograms, kind: EventKind, name: str, digest: str) -> None:
    """Write a decision to the trajectory, if the configuration has one."""
    from codemode_mcp.cli.pinned_items import PERSON, recorded

    with recorded(found.config) as auditor:
        if auditor is not None:
            auditor.emit(kind, f"programs.{name}", by=PERSON, digest=digest)


def _print(lines: Iterable[str], stream: object = None) -> None:
    for line in lines:
        print(line, file=sys.stdout if stream is None else sys.stderr)
