"""The text of `add`, `remove` and `enable`: what would run, and what a server lists.

Names, commands and texts may come from a registry or from a server. All of them are escaped, and take one line each.
"""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.cli.adding.proposal import MARK
from codemode_mcp.cli.mcp_clients.secrets import without_secrets
from codemode_mcp.control.display import counted, cut, exact, plain
from codemode_mcp.trust.finding_groups import MAX_EXAMPLES, grouped
from codemode_mcp.trust.references import reference

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from codemode_mcp.cli.adding.pins import Shown
    from codemode_mcp.cli.adding.proposal import Proposal, Setting
    from upstream_clients.tools import Tool, UpstreamView

MAX_TOOLS: Final = 300
"""Tools that a terminal lists."""

MAX_TEXT: Final = 110
"""Characters of a description in a list."""

MAX_ENTRY: Final = 4000
"""Characters about an entry. A longer one is refused, since a part of it would not be seen."""

_TABLES: Final = {"env": "variables", "headers": "headers", "args": "arguments", "auth": "credentials"}


def show(lines: Iterable[str]) -> None:
    """Print lines to stderr. On a terminal, the margin of a line is repeated where it is wrapped.

    So no text of a server or a registry begins at the edge, as the lines of this command do.
    """
    from rich.text import Text

    from codemode_mcp.cli import trust_views

    trust_views.show(trust_views.console_for(sys.stderr), (Text(f"  {line}") for line in lines))


def proposal_lines(proposal: Proposal, path: Path) -> Iterator[str]:
    """Yield the lines about a proposal, before anything of it starts."""
    yield f"server {plain(proposal.name)}, {exact(proposal.origin)}"
    yield from entry_lines(proposal.entry, hide=False)
    for table, title in _TABLES.items():
        names = [_named(each) for each in proposal.settings if each.table == table]
        if names:
            yield f"  {title} that it gets: {', '.join(names)}"
    for note in proposal.notes:
        yield f"  {exact(note)}"
    for warning in proposal.warnings:
        yield f"  CAUTION: {exact(warning)}"
    yield f"  is added to {plain(str(path))}"


def entry_lines(entry: Mapping[str, Any], *, hide: bool = True) -> Iterator[str]:
    """Yield the lines about what an entry starts or reaches.

    Args:
        hide: hide literal secrets. A proposal has none, and a person should see each value in it.
    """
    lines = list(_entry_lines(without_secrets(entry) if hide else entry))
    yield from lines
    if any("xn--" in line for line in lines):
        yield "  CAUTION: xn-- stands for letters beyond ASCII, which can look like another host; check the address"


def _entry_lines(entry: Mapping[str, Any]) -> Iterator[str]:
    if "command" in entry:
        yield f"  starts, as you: {command_line(entry)}"
    for key, title in (
        ("url", "connects to"),
        ("serverUrl", "connects to"),
        ("openapi", "reads the API document"),
        ("baseUrl", "requests go to"),
        ("cwd", "cwd"),
        ("envFile", "envFile"),
    ):
        if entry.get(key):
            yield f"  {title}: {exact(str(entry[key]))}"
    for table in ("env", "headers"):
        values = entry.get(table)
        if isinstance(values, dict) and values:
            texts = {name: f"={value}" if isinstance(value, str) else "" for name, value in values.items()}
            yield f"  {table}: {', '.join(_word(name + text) for name, text in texts.items())}"


def command_line(entry: Mapping[str, Any]) -> str:
    """Return the command line of an entry as a shell would read it, with the names of missing values as `<NAME>`."""
    words = [entry.get("command", ""), *(entry.get("args") or ())]
    return " ".join(map(_word, map(str, words)))


def listing_lines(view: UpstreamView, shown: Shown, *, long: bool = False) -> Iterator[str]:
    """Yield the lines about what a server has listed.

    Args:
        long: show all tools and findings.
    """
    version = f" {cut(view.server_version, 40)}" if view.server_version else ""
    own = f" ({cut(view.server_name, 60)}{version})" if view.server_name else ""
    counts = [counted(len(view.tools), "tool")]
    counts += [counted(len(view.prompt_list), "prompt")] if view.prompt_list else []
    counts += [counted(len(view.template_list), "resource template")] if view.template_list else []
    yield f"{plain(view.name)}{own} lists {', '.join(counts)}"
    limit = len(view.tools) if long else MAX_TOOLS
    for tool in view.tools[:limit]:
        first_line = tool.description.strip().partition("\n")[0]
        text = f": {cut(first_line, MAX_TEXT)}" if first_line else ""
        yield f"  {cut(tool.name, 80)}{_hints(tool)}{text}"
    if len(view.tools) > limit:
        yield f"  and {len(view.tools) - limit:,} more; --long shows all of them"
    for problem in view.problems[:10]:
        yield f"  note: {cut(problem, 200)}"
    yield from _finding_lines(shown, long=long)


def _finding_lines(shown: Shown, *, long: bool) -> Iterator[str]:
    """Yield the findings, one group for each rule: documents of large APIs have hundreds of a few rules."""
    for group in grouped(shown.findings):
        first, found = group.first, group.found
        count = f", {counted(len(found), 'place')}" if len(found) > 1 else ""
        yield f"  {first.severity}  {first.rule}{count}: {first.message}"
        for report, finding in found if long else group.examples:
            name = cut(reference(report.server, report.kind, report.name), 100)
            yield f"    {name} {plain(finding.where)}: {plain(finding.excerpt)}"
        if not long and len(found) > MAX_EXAMPLES:
            yield "    --long shows all of them"
    if shown.unread:
        yield f"  {counted(shown.unread, 'definition')} not searched for findings; --long searches all of them"


def _hints(tool: Tool) -> str:
    found = [
        word
        for word, is_said in (
            ("read-only", tool.annotations.read_only),
            ("destructive", tool.annotations.destructive and not tool.annotations.read_only),
        )
        if is_said
    ]
    return f" ({', '.join(found)})" if found else ""


def _named(setting: Setting) -> str:
    words = [word for word, holds in (("secret", setting.secret), ("optional", not setting.required)) if holds]
    return exact(setting.title) + (f" ({', '.join(words)})" if words else "")


def _word(text: str) -> str:
    if MARK in text:
        parts = text.split(MARK)
        parts[1::2] = [f"<{each}>" for each in parts[1::2]]
        return exact("".join(parts))
    return exact(shlex.quote(text))
