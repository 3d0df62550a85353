"""The text of `codemode-mcp trust` for people.

Servers choose their names and texts. All of them are escaped, so that none can pass for a line of ours, or for one of
the marks `{+added+}` and `[-removed-]`. Colours are only an addition to the marks.
"""

from __future__ import annotations

import re
import shlex
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import asdict
from rich.text import Text

from codemode_mcp.base.display import columns, counted, cut, plain
from codemode_mcp.base.text import listed
from codemode_mcp.rules.trust.findings import Examples, grouped
from codemode_mcp.rules.trust.items import Finding, reference
from codemode_mcp.rules.trust.text_diff import Part, differences_of, shortened
from codemode_mcp.rules.trust.views import state_of
from declarations.untrusted_text import json_escape

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console

    from codemode_mcp.cli.pinned_items import Difference, PinnedItems, PinnedServer
    from codemode_mcp.rules.trust.comparison import ItemReport

MAX_VALUE: Final = 20_000
"""Characters of one value that a terminal shows."""

MAX_VALUES: Final = 500
"""Values of one item that a terminal shows."""

MAX_NAMES: Final = 8
"""Names that one sentence lists."""

SERVER_HEAD: Final = ("SERVER", "TRUST", "USABLE", "HELD", "NEW TEXTS", "REMOVED", "LISTED")
ITEM_HEAD: Final = ("ITEM", "FINDINGS", "STATE")

_SEVERITIES: Final = {"high": "bold red", "medium": "bold yellow", "low": "bold"}
_STYLES: Final = {"added": "green", "removed": "red", "omitted": "dim"}
_MARKS: Final = {"added": ("{+", "+}"), "removed": ("[-", "-]")}

_FORGED: Final = re.compile(r"(?<=\{)\+|\+(?=\})|(?<=\[)-|-(?=\])")
"""Characters of a text that would look like a mark."""

_FORGED_AT_MARK: Final = re.compile(rf"^[}}\]]|[{{\[]$|{_FORGED.pattern}")
"""The same for a text between marks."""

LOCK_STATES: Final = {
    "text_changed": "its texts differ from those in the lock file",
    "changed": "it differs from the lock file",
    "new": "it is not in the lock file",
    "removed": "it is in the lock file, and its server does not list it",
    "unlocked": "the lock file does not have this server",
    "unconfigured": "the lock file has this server, and the configuration does not",
    "unreachable": "it cannot be compared",
}
"""A difference from the lock file in words."""


def name_of(report: ItemReport) -> str:
    """Return the name of an item, escaped."""
    return plain(reference(report.server, report.kind, report.name))


def command(verb: str, name: str, config: str | None) -> str:
    """Return a `trust` command to copy, for the configuration that was named with `--config`, if any."""
    option = "" if config is None else f" --config {shlex.quote(plain(config))}"
    return f"codemode-mcp trust {verb} {shlex.quote(name)}{option}"


def server_row(server: PinnedServer) -> tuple[str, ...]:
    if not server.is_listed:
        return server.name, server.mode, "", "", "", "", "not recorded" if server.mode == "follow" else "not listed yet"
    reports = [report for report in server.reports if report.kind != "entry"]
    removed = sum(report.status == "removed" for report in reports)
    held = sum(report.held for report in reports)
    texts = sum(not report.held and report.status in ("text_changed", "rejected") for report in reports)
    usable = len(reports) - removed - held
    return (server.name, server.mode, *map(str, (usable, held, texts, removed)), _date(server.pins.present.at))


def item_row(server: PinnedServer, report: ItemReport) -> tuple[str, ...]:
    counts: Counter[str] = Counter(finding.severity for finding in server.findings(report))
    findings = ", ".join(f"{counts[severity]} {severity}" for severity in _SEVERITIES if counts[severity])
    return name_of(report), findings, state_of(report)


def server_lines(server: PinnedServer, reports: Sequence[ItemReport]) -> Iterator[Text]:
    """Yield the lines about items of a server. Of many findings of one rule, the first are shown, and their number."""
    examples = Examples() if len(reports) > 1 else None
    for report in reports:
        yield from report_lines(server, report, examples)
    if examples is not None and examples.is_cut:
        yield Text(f"{plain(server.name)}: findings by rule", "bold")
        for group in grouped(examples.every):
            first, places = group.first, counted(len(group.found), "place")
            items = counted(len({report.name for report, _ in group.found}), "item")
            yield Text(f"  {first.severity}  {first.rule}, {places} in {items}", _SEVERITIES[first.severity])
        yield Text()


def report_lines(server: PinnedServer, report: ItemReport, examples: Examples | None = None) -> Iterator[Text]:
    """Yield the lines about one item: its state, each difference, and the findings in what is new.

    Args:
        examples: the findings that were shown for other items; None to show all findings.
    """
    yield Text(f"{name_of(report)}: {state_of(report)}", "bold")
    acceptance = server.pins.accepted.get((report.kind, report.name))
    if acceptance is not None:
        by = f"by {plain(acceptance.by)}" if acceptance.by else "as the first listing of the server"
        yield Text(f"  accepted {by}, {_date(acceptance.at)}")
    if not report.is_comparable:
        return
    items = {"accepted": report.accepted, "present": report.present}
    unknown = [which for which, item in items.items() if item is not None and item.definition is None]
    if unknown:
        yield Text(f"  the {' and the '.join(unknown)} definition is not stored: it quotes a secret, or is too large")
    differences = differences_of(report)
    if differences is None:
        yield Text("  what the server lists cannot be shown, so it cannot be accepted", "bold red")
        return
    for diff in differences[:MAX_VALUES]:
        yield Text(f"  {diff.where or '/'}", "bold")
        yield from _difference_lines(diff.parts)
    if len(differences) > MAX_VALUES:
        yield Text(f"  CUT: {len(differences) - MAX_VALUES} more values; trust diff --json has all of them", "bold red")
    findings: Sequence[Finding] = server.findings(report)
    others: Sequence[Finding] = ()
    if examples is not None:
        findings, others = examples.split(report, findings)
    for finding in findings:
        line = Text("  ")
        line.append(f"{finding.severity}  {finding.rule}  {plain(finding.where)}", _SEVERITIES[finding.severity])
        yield line
        yield Text(f"    {finding.message}")
        yield Text(f"    {_without_marks(_FORGED, plain(finding.excerpt))}", "italic")
    if others:
        rules = ", ".join(f"{count} of {rule}" for rule, count in Counter(each.rule for each in others).items())
        yield Text(f"  more findings, of rules with examples: {rules}; name the item to see them", "bold")
    yield Text()


def unshown(found: PinnedItems) -> list[str]:
    """Return the names of items that differ, and whose differences cannot be shown."""
    reports = [report for server in found.servers for report in found.reports_of(server)]
    return [name_of(each) for each in reports if each.status != "accepted" and differences_of(each) is None]


def items_json(found: PinnedItems, *, whole: bool) -> dict[str, Any]:
    """Return servers and their items as JSON.

    Args:
        whole: True to add the definitions and their differences.
    """
    servers = [
        {
            "server": server.name,
            "trust": server.mode,
            "listedAt": server.pins.present.at if server.is_listed else None,
            "items": [_report_json(server, report, whole=whole) for report in found.reports_of(server)],
        }
        for server in found.servers
    ]
    return {"servers": servers, "problems": list(found.problems)}


def _report_json(server: PinnedServer, report: ItemReport, *, whole: bool) -> dict[str, Any]:
    acceptance = server.pins.accepted.get((report.kind, report.name))
    value: dict[str, Any] = {
        "name": reference(report.server, report.kind, report.name),
        "kind": report.kind,
        "status": report.status,
        "held": report.held,
        "acceptedDigest": None if report.accepted is None else report.accepted.digest,
        "presentDigest": None if report.present is None else report.present.digest,
        "acceptedBy": None if acceptance is None else acceptance.by or None,
        "acceptedAt": None if acceptance is None else acceptance.at,
        "findings": [asdict(finding) for finding in server.findings(report)],
    }
    if whole:
        value["accepted"] = None if report.accepted is None else report.accepted.definition
        value["present"] = None if report.present is None else report.present.definition
        value["differences"] = [
            {"where": diff.where, "parts": [{"change": part.change, "text": part.text} for part in diff.parts]}
            for diff in differences_of(report) or ()
        ]
    return value


def difference_line(difference: Difference) -> str:
    detail = f": {plain(difference.detail)}" if difference.detail else ""
    return f"{plain(difference.name)}: {LOCK_STATES[difference.status]}{detail}"


def shown_names(names: Sequence[str]) -> str:
    """Return names in one sentence; the rest of many names as their number."""
    return listed([cut(name, 60) for name in names], MAX_NAMES)


def show(console: Console, lines: Iterable[Text]) -> None:
    """Print lines; on a terminal, in its width, with the margin of each line repeated."""
    for line in lines:
        rest = line.plain.lstrip(" ")
        margin = len(line.plain) - len(rest)
        if not console.is_terminal:
            console.print(line, soft_wrap=True, end="\n")
            continue
        for part in _wrapped(line[margin:], max(8, console.width - margin - 1)):
            console.print(Text(" " * margin) + part, no_wrap=True, overflow="ignore", crop=False)


def _wrapped(line: Text, width: int) -> Iterator[Text]:
    """Yield the parts of a line that fit, broken between words if possible.

    Not by `rich`, which counts one column for characters that some terminals show in two.
    """
    text, start = line.plain, 0
    while start < len(text) or not start:
        end, used, blank = start, 0, start
        while end < len(text) and used + columns(text[end]) <= width:
            used += columns(text[end])
            end += 1
            blank = end if text[end - 1] == " " else blank
        if end < len(text) and blank > start:
            end = blank
        yield line[start:end]
        if not text:
            return
        start = end


def console_for(stream: Any) -> Console:
    """Return the writer for a stream. It writes colours only to a terminal, and not if `NO_COLOR` is set."""
    from rich.console import Console

    return Console(file=stream, highlight=False, markup=False, emoji=False)


def _difference_lines(parts: Iterable[Part]) -> Iterator[Text]:
    """Yield the lines of one value. A change of several lines is marked on each of them."""
    line = Text("    ")
    shown = 0
    for part in shortened(tuple(parts)):
        style = _STYLES.get(part.change, "")
        first, last = _MARKS.get(part.change, ("", ""))
        text = part.text
        if first and not text.strip():
            text = text.replace("\n", "\\n").replace(" ", "\\x20")
        cut = text[: max(0, MAX_VALUE - shown)]
        shown += len(cut)
        for index, piece in enumerate(cut.split("\n")):
            if index:
                yield line
                line = Text("    ")
            if piece:
                line.append(f"{first}{_without_marks(_FORGED_AT_MARK if first else _FORGED, piece)}{last}", style)
        if len(cut) < len(text):
            yield line
            yield Text(f"    CUT: {len(text) - len(cut):,} more characters; add --json to see all of them", "bold red")
            return
    yield line


def _without_marks(forged: re.Pattern[str], text: str) -> str:
    return forged.sub(lambda found: json_escape(found[0]), text)


def _date(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
