"""`codemode-mcp runs`: what serving processes of this user are doing, what is suspended in their stores, and a person's
decisions, from a terminal.

Listings go to stdout, what is asked of a person to stderr. Whatever programs and servers have made up is escaped.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from codemode_mcp.cli.completion import live_runs
from codemode_mcp.cli.shared import COLUMNS, fitted
from codemode_mcp.cli.terminal import forget_typed as _forget_typed
from codemode_mcp.cli.terminal import is_at_terminal as _is_at_terminal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from codemode_mcp.cli.stored import Stored
    from codemode_mcp.control.endpoints import Endpoint
    from codemode_mcp.control.merging import ReportedRun
    from codemode_mcp.control.protocol import Request
    from codemode_mcp.policy.approval import Remember

app = typer.Typer(
    name="runs",
    no_args_is_help=True,
    help="Look at the runs of serving processes, and decide about calls that wait for approval.",
    epilog="Example: codemode-mcp runs list\n\nExample: codemode-mcp runs approve run_4fK2mQ8xZ1",
)

LEAST_PREFIX = 12
"""Characters of a run's id that stand for the whole, where no other begins so."""

MOST_TOGETHER = 20
"""Calls that a person is asked to approve in one go."""

MOST_LISTED = 1000
"""Runs in a table."""

MAX_SHOWN = 20_000
"""Characters of the arguments of one call that a terminal shows."""

_DIGITS = "0123456789"

ConfigOption = Annotated[
    str | None, typer.Option("--config", metavar="FILE", help="Only processes that serve this configuration.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="Id of a run, or how only one begins.", autocompletion=live_runs)
]
CallsArgument = Annotated[
    list[int] | None, typer.Argument(metavar="CALL", help="Numbers of calls; default: all that wait.")
]


@app.command("list", epilog="Example: codemode-mcp runs list --json")
def list_runs(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List the runs of all serving processes of this user, suspended ones in a store and ended ones included."""
    found = _ask_all(config)
    if as_json:
        _print_json(
            {
                "servers": [
                    {
                        **answer["server"],
                        "store": answer.get("store"),
                        "runs": [each.view for each in found.runs if each.source is place],
                        "omitted": answer["omitted"],
                    }
                    for place, answer in found.answers
                ],
                "store": found.stored.totals
                and {**found.stored.totals, "runs": [each.view for each in found.runs if each.source is None]},
                "problems": found.problems,
            }
        )
        return
    shown = found.runs[:MOST_LISTED]
    rows = [
        (
            each.view["id"],
            _state(each.view),
            _ago(each.view["ageMs"]),
            str(each.view["callCount"]),
            _wants(each.view),
            _process(each),
            f"{each.view['caller']}:{each.view['principal'] or '?'}",
        )
        for each in shown
    ]
    _table(("RUN", "STATE", "BEGAN", "CALLS", "WAITS FOR", "PROCESS", "CALLER"), rows)
    totals = _totals(found)
    if totals:
        _print(totals)
    if len(found.runs) > len(shown):
        _say(f"{len(found.runs) - len(shown)} more runs; runs list --json has all of them")
    for _, answer in found.answers:
        if answer["omitted"]:
            _say(f"process {answer['server']['pid']} has {answer['omitted']} more runs")
    if rows and not found.answers:
        _say(f"no codemode-mcp serve of this user is running, so nothing progresses; they are in {found.stored.name}")
    if not rows:
        count, which = len(found.answers), "" if config is None else f" with {config}"
        if count:
            _say(f"no runs; {count} serving process{'' if count == 1 else 'es'}{which}")
        elif found.problems:
            _say(f"no runs are known{which}")
        else:
            _say(f"no runs: no codemode-mcp serve of this user is running{which}; a client starts it")
    _say_all(found.problems)


@app.command(epilog="Example: codemode-mcp runs show run_4fK2mQ8xZ1")
def show(run: RunArgument, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show one run with all its calls, and what waits for approval."""
    from codemode_mcp.control.display import counted
    from codemode_mcp.control.merging import is_here as is_of_process

    place, answer = _find(run, config)
    if as_json:
        _print_json({"server": answer["server"], **answer["run"]})
        return
    view, server = answer["run"], answer["server"]
    is_here = place is not None and is_of_process(view)
    _print(f"{view['id']}  {_state(view)}")
    _print(
        f"  began {_ago(view['ageMs'])}"
        + (f", ended {_ago(view['endedMs'])}" if view["endedMs"] is not None else "")
        + (f", dropped in {_span(view['expiresMs'])} unless a wait comes" if view["expiresMs"] is not None else "")
    )
    held = f"{counted(view['waits'], 'wait')}, {counted(view['timers'], 'timer')}"
    _print(f"  caller {view['caller']}:{view['principal'] or '?'}, {held}")
    if is_here:
        _print(f"  process {server['pid']} ({server['transport']}, {server['mode']}), {server['config'] or 'no file'}")
    else:
        _print(f"  {_whereabouts(view)};")
        _print("  its calls are not known here")
        return
    _print("")
    calls = view["calls"]
    if view["callCount"] > len(calls):
        _print(f"the latest {len(calls)} of {view['callCount']} calls:")
    rows = [
        (
            str(call["call"]),
            call["tool"],
            call["status"],
            f"+{_span(call['atMs'])}",
            _span(call["ms"]),
            f"{call['bytes']:,}",
            "yes" if call["dispatched"] else "no",
            "yes" if call["repeatable"] else "no",
            _arguments(call["arguments"]),
        )
        for call in calls
    ]
    _table(("CALL", "TOOL", "STATUS", "AT", "TOOK", "BYTES", "SENT", "REPEATABLE", "ARGUMENTS"), rows)
    if not rows:
        _print("no calls")
    if view["waiting"]:
        _print("")
        _print("waiting for approval:")
        for line in _waiting_lines(view["waiting"]):
            _print(line)
        _print("")
        _print(f"decide with  codemode-mcp runs approve {view['id']}")
        _print(f"or           codemode-mcp runs deny {view['id']}")
    if view["waitingOmitted"]:
        _print(f"{view['waitingOmitted']} more calls wait; they are shown when these are decided")


@app.command(epilog="Example: codemode-mcp runs approve run_4fK2mQ8xZ1 2 3 --remember run")
def approve(
    run: RunArgument,
    calls: CallsArgument = None,
    remember: Annotated[
        str, typer.Option(metavar="<no|run|always>", help="For how long: these calls, this run's, or for ever.")
    ] = "no",
    config: ConfigOption = None,
) -> None:
    """Approve calls that wait, after showing them and asking back."""
    if remember not in ("no", "run", "always"):
        _stop(2, f"--remember {remember}: it is no, run or always")
    _decide(run, calls or [], config, approved=True, remember=remember)  # type: ignore[arg-type]


@app.command(epilog="Example: codemode-mcp runs deny run_4fK2mQ8xZ1")
def deny(run: RunArgument, calls: CallsArgument = None, config: ConfigOption = None) -> None:
    """Deny calls that wait, after showing them and asking back."""
    _decide(run, calls or [], config, approved=False, remember="no")


@app.command(epilog="Example: codemode-mcp runs cancel run_4fK2mQ8xZ1")
def cancel(run: RunArgument, config: ConfigOption = None) -> None:
    """End a run and cancel its calls, after asking back."""
    from codemode_mcp.control.display import counted
    from codemode_mcp.control.protocol import Request

    _need_terminal("cancel")
    place, answer = _find(run, config)
    view = answer["run"]
    if view["endedMs"] is not None:
        _stop(1, f"run {view['id']} has ended already; codemode-mcp runs list shows what has not")
    _say(f"run {view['id']}: {_state(view)}, began {_ago(view['ageMs'])}, {counted(view['callCount'], 'call')}")
    if place is None or view.get("where") == "stored":
        _stop_unserved("cancelled", view)
    _confirm("cancel", "this run")
    if not _ask(place, Request("cancel", view["id"]))["cancelled"]:
        _stop(1, f"run {view['id']} ended by itself meanwhile")
    _say(f"run {view['id']} is cancelled")


def _decide(run: str, calls: Sequence[int], config: str | None, *, approved: bool, remember: Remember) -> None:
    from codemode_mcp.control.display import cut
    from codemode_mcp.control.protocol import Request

    verb = "approve" if approved else "deny"
    _need_terminal(verb)
    place, answer = _find(run, config)
    view = answer["run"]
    waiting = view["waiting"]
    if place is None or (view.get("where") == "stored" and view["endedMs"] is None):
        _stop_unserved("decided", view)
    if view.get("where") == "elsewhere":
        _stop(1, f"run {view['id']} is {_whereabouts(view)}; decide there, or when it is suspended again")
    if not waiting:
        _stop(1, f"no call of run {view['id']} waits for approval; it is {_state(view)}; see codemode-mcp runs list")
    for number in calls:
        if number not in [each["call"] for each in waiting]:
            _stop(1, f"call {number} of run {view['id']} does not wait for approval; see codemode-mcp runs show RUN")
    chosen = [each for each in waiting if not calls or each["call"] in calls]
    if approved:
        chosen = chosen[:MOST_TOGETHER]
    left = len(calls or waiting) + (0 if calls else view["waitingOmitted"]) - len(chosen)
    _say(f"run {view['id']}, caller {view['caller']}:{view['principal'] or '?'}, process {place.pid}")
    _say_all(_waiting_lines(chosen))
    if remember == "run":
        _say(
            "Every other call of these tools in this run will be made without asking, those that wait now included, "
            "whatever their arguments."
        )
    elif remember == "always":
        _say(
            "Later calls of these tools will never be asked for again, whatever their arguments and their caller "
            f"is: they are added to tools.approved in {answer['server']['config'] or 'the configuration'}."
        )
    if left:
        _say(f"{left} more wait, which this does not decide about.")
    tools = Counter(each["tool"] for each in chosen)
    named = ", ".join(cut(tool, 50) + (f" {count} times" if count > 1 else "") for tool, count in tools.items())
    _say("")
    _confirm(verb, f"{named} as shown above")
    decided = _ask(
        place,
        Request("decide", view["id"], tuple((each["call"], each["digest"]) for each in chosen), approved, remember),
    )["decided"]
    done = "approved" if approved else "denied"
    if decided:
        _say(f"{done}: call{'' if len(decided) == 1 else 's'} {', '.join(str(each) for each in decided)}")
    missed = [each["call"] for each in chosen if each["call"] not in decided]
    if missed:
        numbers = ", ".join(map(str, missed))
        _stop(1, f"not {done}, for they do not wait any more: {numbers}; codemode-mcp runs show RUN says how they are")


# asking


@dataclass(frozen=True)
class _Listed:
    """Runs of all processes and stores.

    Attributes:
        answers: of the serving processes.
        stored: what is in the store of the configuration, where none of these has told of that.
        runs: of all of them, each once; its source is None where only `stored` has it.
    """

    answers: tuple[tuple[Endpoint, dict[str, Any]], ...]
    stored: Stored
    runs: list[ReportedRun[Endpoint | None]]
    problems: tuple[str, ...]


def _ask_all(config: str | None) -> _Listed:
    from functools import partial

    import anyio

    from codemode_mcp.cli import stored as stores
    from codemode_mcp.control.client import ask_all
    from codemode_mcp.control.merging import merge_reports
    from codemode_mcp.control.protocol import Request

    found = anyio.run(partial(ask_all, Request("list")))
    answers = [each for each in found.answers if _is_listing(each[1])]
    if config is not None:
        wanted = Path(config).expanduser().resolve()
        answers = [
            each
            for each in answers
            if each[1]["server"]["config"] and Path(each[1]["server"]["config"]).resolve() == wanted
        ]
    told = [(place, answer.get("store") or {}) for place, answer in answers]
    stored = stores.look(config, {str(store.get("name")) for _, store in told if "problem" not in store})
    problems = [f"process {place.pid}: {store['problem']}" for place, store in told if "problem" in store]
    if stored.problem is not None:
        problems.append(stored.problem)
    every: list[tuple[Endpoint | None, Any]] = [(place, answer["runs"]) for place, answer in answers]
    runs = merge_reports([*every, (None, stored.runs)])
    return _Listed(tuple(answers), stored, runs, (*found.problems, *problems))


def _is_listing(answer: dict[str, Any]) -> bool:
    return isinstance(answer.get("server"), dict) and isinstance(answer.get("runs"), list)


def _find(run: str, config: str | None) -> tuple[Endpoint | None, dict[str, Any]]:
    """Return the process of a run, or the first one that can resume it, and its view of the run.

    None for a run in a store that no process serves. Ends the command where there is not exactly one.
    """
    from codemode_mcp.control.protocol import Request

    found = _ask_all(config)
    matches = [
        (each, str(each.view["id"]))
        for each in found.runs
        if each.view["id"] == run or (len(run) >= LEAST_PREFIX and str(each.view["id"]).startswith(run))
    ]
    exact = [each for each in matches if each[1] == run]
    if len(exact or matches) > 1:
        names = ", ".join(sorted(name for _, name in matches)[:10])
        _stop(1, f"several runs begin with {run!r}: {names}; give more of the id")
    if any(each.disputed for each, _ in exact or matches):
        _stop(1, f"several processes say that they have the run {run!r}; run the command again in a moment")
    if not matches:
        _say_all(found.problems)
        short = f"; an id may be cut to {LEAST_PREFIX} characters at least" if len(run) < LEAST_PREFIX else ""
        _stop(1, f"no serving process of this user has a run {run!r}{short}; see codemode-mcp runs list")
    ((claimed, name),) = exact or matches
    if claimed.source is None:
        return None, {"server": None, "run": {**claimed.view, "calls": [], "waiting": [], "waitingOmitted": 0}}
    return claimed.source, _ask(claimed.source, Request("show", name))


def _ask(place: Endpoint, request: Request) -> dict[str, Any]:
    from functools import partial

    import anyio

    from codemode_mcp.control.client import NoAnswer, ask

    try:
        return anyio.run(partial(ask, place, request))
    except NoAnswer as error:
        _stop(1, str(error))


def _stop_unserved(done: str, view: dict[str, Any]) -> NoReturn:
    _stop(
        1,
        f"run {view['id']} is suspended, and no codemode-mcp serve of this user that could resume it is running; "
        f"nothing was {done}; start one with its configuration, then run this again",
    )


# a person


def _need_terminal(verb: str) -> None:
    """Decisions are a person's: what is piped in, or runs without a terminal, decides nothing, nor do programs that our
    own upstream servers start."""
    from codemode_mcp.nesting import DEPTH_VARIABLE

    if DEPTH_VARIABLE in os.environ:
        what = f"runs {verb} is not for what a server behind codemode-mcp has started"
        _stop(1, f"{what}; nothing was decided; open a terminal of your own")
    if not _is_at_terminal():
        _stop(1, f"runs {verb} needs a terminal, and a person at it who confirms; nothing was decided; run it in one")


def _confirm(verb: str, what: str) -> None:
    """Have a person type a code that was not known before it was shown. Ends the command otherwise."""
    import secrets

    answer = f"{verb} {''.join(secrets.choice(_DIGITS) for _ in range(4))}"
    _forget_typed()
    _say(f"To {verb} {what}, type: {answer}")
    sys.stderr.write("> ")
    sys.stderr.flush()
    try:
        typed = sys.stdin.readline(200)
    except KeyboardInterrupt:
        typed = ""
    if " ".join(typed.split()) != answer:
        _stop(1, "that is something else; nothing was decided; run the command again to be asked again")


# words


def _state(view: Mapping[str, Any]) -> str:
    return f"{view['state']} ({view['code']})" if view["code"] else str(view["state"])


def _process(claimed: ReportedRun[Endpoint | None]) -> str:
    """Return the process of a run, in a cell of a table."""
    from codemode_mcp.control.merging import is_here, where

    if claimed.source is not None and is_here(claimed.view):
        return str(claimed.source.pid)
    return "another" if where(claimed.view) == "elsewhere" else "none"


def _whereabouts(view: dict[str, Any]) -> str:
    if view.get("where") == "elsewhere":
        return "taken over by a process that cannot be asked from here"
    if view["endedMs"] is not None:
        return "kept in the store since it ended"
    return "suspended in the store, and no codemode-mcp serve of this user resumes it"


def _totals(found: _Listed) -> str:
    """Return one line about all stores together; empty where nothing is suspended."""
    from codemode_mcp.cli.trace.timeline import size

    stores: dict[tuple[str, int], dict[str, Any]] = {}
    for place, answer in found.answers:
        store = answer.get("store") or {}
        # What is in the memory of one process is not what is in that of another.
        stores[store.get("name", ""), place.pid if store.get("kind") == "memory" else 0] = store
    if found.stored.totals is not None:
        stores[found.stored.name, 0] = found.stored.totals
    known = [store for store in stores.values() if store.get("suspended")]
    if not known:
        return ""
    oldest = max(store["oldestMs"] or 0 for store in known)
    count, taken = (sum(store[key] for store in known) for key in ("suspended", "bytes"))
    return f"{count} suspended, the oldest for {_span(oldest)}, {size(taken)} in all"


def _wants(view: Mapping[str, Any]) -> str:
    found = []
    if view["approvals"]:
        found.append(f"approval of {view['approvals']}")
    if view["questions"]:
        found.append(f"answers to {view['questions']}")
    return ", ".join(found)


def _ago(ms: int) -> str:
    return f"{_span(ms) if ms >= 10_000 else f'{ms // 1000} s'} ago"


def _span(ms: int) -> str:
    if ms < 10_000:
        return f"{ms} ms"
    seconds = ms // 1000
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"


def _arguments(told: dict[str, Any]) -> str:
    """Return the arguments as far as they may be shown, in a cell of a table."""
    from codemode_mcp.control.display import cut

    known = told.get("value", told.get("shape", told.get("text", told.get("omitted", ""))))
    return cut(known if isinstance(known, str) else json.dumps(known, ensure_ascii=False), 100)


def _waiting_lines(waiting: Iterable[dict[str, Any]]) -> Iterable[str]:
    """Calls that wait, so that a person can judge them: nothing in them can look like a line of ours."""
    from codemode_mcp.control.display import columns, plain, wrapped
    from codemode_mcp.control.protocol import digest_of

    width = min(_columns(), COLUMNS)
    for each in waiting:
        effects = [name for name, is_so in each["effects"].items() if is_so]
        yield ""
        title = f"call {each['call']}: {plain(each['tool'])}"
        yield from [title] if columns(title) < width else [f"call {each['call']}:", *wrapped(each["tool"], width, "  ")]
        yield from wrapped(f"as {each['path']}", width, "  ")
        yield f"  {', '.join(effects).replace('_', ' ') or 'changes something, stays within its server'}"
        yield from wrapped(f"because: {each['reason']}", width, "  ")
        text, size = each["arguments"], each["characters"]
        if len(text) == size and digest_of(text) == each["digest"]:
            text = json.dumps(json.loads(text), ensure_ascii=False, indent=2)
        elif len(text) == size:
            _stop(1, f"the arguments of call {each['call']} are not what their digest says; nothing was decided")
        yield from wrapped(text[:MAX_SHOWN], width, "  │ ")
        if len(text) > MAX_SHOWN or len(each["arguments"]) < size:
            yield f"  ✂ CUT: the arguments have {size:,} characters,"
            yield f"    SHA-256 {each['digest']};"
            yield "    runs show RUN --json gives more of them"


# printing


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from codemode_mcp.control.display import columns, cut

    if not rows:
        return
    # Text that is too wide wraps in a terminal, and could be made to look like a line of ours.
    room = _columns() if sys.stdout.isatty() else 1000
    shown = [head, *([cut(cell, 100) for cell in row] for row in rows)]
    widths = [max(columns(row[number]) for row in shown) for number in range(len(head))]
    for row in shown:
        cells = [cell + " " * (width - columns(cell)) for cell, width in zip(row, widths, strict=True)]
        _print(cut("  ".join(cells).rstrip(), room))


def _columns() -> int:
    import shutil

    return shutil.get_terminal_size().columns


def _print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=True, indent=2))  # noqa: T201


def _print(text: str) -> None:
    print(_encodable(text, sys.stdout.encoding))  # noqa: T201


def _say(text: str) -> None:
    shown = _encodable(text, sys.stderr.encoding)
    # What has been wrapped stays as it is: the margin of each line tells what is not ours.
    print(shown if len(shown) <= COLUMNS else fitted(shown), file=sys.stderr)  # noqa: T201


def _encodable(text: str, encoding: str | None) -> str:
    from codemode_mcp.control.display import plain

    encoding = encoding or "utf-8"
    return plain(text).encode(encoding, "backslashreplace").decode(encoding)


def _say_all(lines: Iterable[str]) -> None:
    for line in lines:
        _say(line)


def _stop(code: int, text: str) -> NoReturn:
    _say(text)
    raise typer.Exit(code)
