"""`codemode-mcp policy`: why policy decides as it does, tools that are off, and who decided what."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from codemode_mcp.cli.messages import print_json, say_line, stop, stop_line
from codemode_mcp.cli.options import ConfigOption, JsonOption, TrajectoryOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from codemode_mcp.config import Config
    from codemode_mcp.rules.trust.comparison import ServerPins
    from upstream_clients.tools import Annotations, Tool

app = typer.Typer(
    name="policy",
    no_args_is_help=True,
    help="Show why policy decides as it does, and turn tools off and on.",
    epilog="Example: codemode-mcp policy explain github.delete_repository\n\n"
    "Example: codemode-mcp policy deny github.delete_repository",
)

ToolArgument = Annotated[str, typer.Argument(metavar="TOOL", help="SERVER.TOOL, or an id such as mcp:github:search.")]
ToolsArgument = Annotated[
    list[str], typer.Argument(metavar="TOOL...", help="SERVER.TOOL each, or an id such as mcp:github:search.")
]


@app.command(epilog="Example: codemode-mcp policy explain github.delete_repository")
def explain(tool: ToolArgument, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show what policy decides about a tool, and by which rule, for each kind of caller."""
    from codemode_mcp.base.config_path import command_option
    from codemode_mcp.base.display import table
    from codemode_mcp.base.paths import config_dir
    from codemode_mcp.cli.loading import load
    from codemode_mcp.rules.policy.unused_rules import explain as explanations

    loaded = load(config, "warning", None)
    tool_id = _id_of(tool, loaded)
    annotations, known, held = _known(loaded, tool_id)
    found = explanations(loaded.tools, tool_id, annotations)
    if held is not None:
        found = [
            each if each.decision == "deny" else replace(each, decision="held", why=f"{held}; then: {each.decision}")
            for each in found
        ]
    if as_json:
        print_json(
            {
                "id": tool_id,
                "known": known,
                "held": held is not None,
                "decisions": [
                    {"context": each.context, "for": each.callers, "decision": each.decision, "why": each.why}
                    for each in found
                ],
            }
        )
        return
    others = "all" if len(found) == 1 else "in no context"
    rows = [[others if each.context is None else each.context, each.decision, each.why] for each in found]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 1000
    for line in table(("CALLERS", "DECISION", "WHY"), rows, width):
        print(line)
    if held is not None:
        target = shlex.quote(tool_id.removeprefix("mcp:").replace(":", ".", 1)) + command_option(
            loaded.path, config_dir()
        )
        say_line(f"to see it: codemode-mcp trust diff {target}; to accept it: codemode-mcp trust accept {target}")
    elif not known:
        say_line(
            f"no list of this server with {tool_id} is known, so the tool counts as one without annotations; "
            "codemode-mcp tools connects to the servers"
        )


@app.command(epilog="Example: codemode-mcp policy deny github.delete_repository")
def deny(tools: ToolsArgument, config: ConfigOption = None) -> None:
    """Turn tools off: add their ids to tools.deny, and keep a backup. Serving processes notice the change."""
    _set_denied(tools, config, denied=True)


@app.command(epilog="Example: codemode-mcp policy undeny github.delete_repository")
def undeny(tools: ToolsArgument, config: ConfigOption = None) -> None:
    """Turn tools on again, after a confirmation: remove their ids from tools.deny, and keep a backup."""
    from codemode_mcp.cli.deciding import confirm, require_person

    require_person("policy undeny")
    say_line(f"Programs will be able to call, as far as other rules allow it: {', '.join(tools)}")
    confirm("undeny", "the tools named above")
    _set_denied(tools, config, denied=False)


@app.command(epilog="Example: codemode-mcp policy log --last 20")
def log(
    config: ConfigOption = None,
    trajectory: TrajectoryOption = None,
    last: Annotated[int, typer.Option(metavar="NUMBER", min=1, help="Number of decisions.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """Show who decided what and why, from the trajectory, newest first."""
    from msgspec.structs import asdict

    from codemode_mcp.audit.trajectory_files import decisions_in, moment
    from codemode_mcp.base.display import table
    from codemode_mcp.cli.loading import load

    loaded = load(config, "warning", None)
    path = trajectory or (None if loaded.audit.trajectory is None else Path(loaded.audit.trajectory))
    if path is None:
        stop(1, 'no decisions are recorded: add "audit": { "trajectory": "runs.jsonl" } to the configuration')
    try:
        found = decisions_in(path)[:last]
    except OSError as error:
        stop(1, f"cannot read {error.filename}: {error.strerror}")
    if as_json:
        print_json([asdict(each) for each in found])
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 1000
    rows = [[moment(each.time), each.subject, each.done, each.by, each.why] for each in found]
    for line in table(("WHEN", "WHAT", "DECISION", "BY", "WHY"), rows, width):
        print(line)


def _set_denied(tools: Sequence[str], config: str | None, *, denied: bool) -> None:
    from codemode_mcp.audit.events import Auditor
    from codemode_mcp.audit.listeners import recording
    from codemode_mcp.audit.redaction import Redactor
    from codemode_mcp.base.errors import ConfigError
    from codemode_mcp.cli.loading import load
    from codemode_mcp.config.edit import switch_tool
    from codemode_mcp.rules.policy.approval import AT_TERMINAL
    from codemode_mcp.rules.policy.unused_rules import explain as explanations

    loaded = load(config, "warning", None)
    if loaded.path is None:
        stop(1, "there is no configuration file to change; codemode-mcp import makes one")
    ids = [_id_of(each, loaded) for each in tools]
    try:
        changed = [each for each in ids if switch_tool(loaded.path, each, on=not denied)]
    except ConfigError as error:
        stop_line(1, error.message)
    if changed:
        auditor, redact = Auditor(), Redactor()
        redact.know(loaded.secretive)
        with recording(loaded.audit, auditor, redact):
            for each in changed:
                by = "codemode-mcp policy deny" if denied else AT_TERMINAL
                auditor.emit("tool_switched", each, by=by, on=not denied)
    say_line(f"{loaded.path} was changed" if changed else f"nothing to do: {loaded.path} stays as it is")
    if denied:
        return
    after = load(config, "warning", None)
    for each in ids:
        for decision in explanations(after.tools, each, None):
            if decision.decision == "deny":
                whom = "" if decision.context is None else f" in the context {decision.context!r}"
                say_line(f"{each} is still denied{whom}: {decision.why}")


def _id_of(tool: str, config: Config) -> str:
    """Return the id of a tool. End the command if there is no such server."""
    from codemode_mcp.catalog.saved_programs.saved_program import program_id
    from codemode_mcp.cli.loading import configured, unknown_server
    from codemode_mcp.rules.policy.policy import SOURCES
    from declarations.names import identifiers

    if tool.startswith(SOURCES) and tool.count(":") >= 2:
        return tool
    if tool.startswith("programs."):
        return program_id(tool.removeprefix("programs."))
    server, _, name = tool.removeprefix("MCP.").partition(".")
    if not name:
        stop(2, f"{tool!r} names no tool: write SERVER.TOOL, as in github.search; codemode-mcp tools lists them")
    known = configured(config)
    if server not in known:
        stop(2, unknown_server(server, config))
    pins = _pins(config, known[server])
    listed = {tool.name for tool in _saved_tools(config, known[server])}
    if name not in listed:
        # Programs know a tool by its identifier.
        kept = {} if pins is None else {**pins.names}
        found = [each for each, identifier in (kept | identifiers(listed, kept=kept)).items() if identifier == name]
        name = found[0] if len(found) == 1 else name
    return f"mcp:{known[server]}:{name}"


def _saved_tools(config: Config, server: str) -> Sequence[Tool]:
    from codemode_mcp.base.nesting import with_depth
    from codemode_mcp.base.paths import listings_dir
    from upstream_clients.listing import ListingCache

    spec = next((each for each in config.upstreams if each.name == server), None)
    saved = None if spec is None else ListingCache(listings_dir()).load(with_depth(spec))
    return () if saved is None else saved.view.tools


def _pins(config: Config, server: str) -> ServerPins | None:
    """Return the pins of a server, with its present entry in the configuration; None if there are none."""
    from codemode_mcp.base.paths import state_dir
    from codemode_mcp.rules.trust.comparison import with_entry
    from codemode_mcp.rules.trust.items import entry_item
    from codemode_mcp.rules.trust.pins_file import PinsFolder, PinsUnavailable

    try:
        pins = PinsFolder(state_dir() / "pins", config.path).load(server)
    except PinsUnavailable:
        return None
    return None if pins is None else with_entry(pins, entry_item(config.written.get(server)))


def _known(config: Config, tool_id: str) -> tuple[Annotations | None, bool, str | None]:
    """Return the annotations of a tool, whether they are known, and the reason why it is held; None if it is not.

    Of a tool that its server has changed, the annotations are the accepted ones.
    """
    from codemode_mcp.rules.trust.comparison import compare_item
    from codemode_mcp.rules.trust.views import accepted_tool, reason_of, why_held
    from upstream_clients.tools import Annotations

    source, _, rest = tool_id.partition(":")
    if source == "program":
        return Annotations(read_only=True, open_world=False), True, None
    if source != "mcp":
        return None, True, None
    server, _, name = rest.partition(":")
    pins, mode = _pins(config, server), config.trust.get(server, "pin")
    item = None if pins is None else pins.present.items.get(("tool", name))
    if pins is not None and item is not None and mode != "follow":
        report, accepted = compare_item(pins, item, mode), accepted_tool(pins, name)
        if report.held:
            why = reason_of(why_held(report, "file"))
            return None if accepted is None else accepted.annotations, accepted is not None, why
        if accepted is not None:
            return accepted.annotations, True, None
    found = next((tool for tool in _saved_tools(config, server) if tool.name == name), None)
    return (None, False, None) if found is None else (found.annotations, True, None)
