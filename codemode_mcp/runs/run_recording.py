"""The recording of a run, and its latest results as JSON text.

Without recordings, `Run.recorder` is None, and nothing here is called.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from codemode_mcp.audit.recordings.format import Answer, CatalogText, End, Start
from codemode_mcp.audit.recordings.format import Question as AskedFor
from codemode_mcp.base.did_you_mean import normalize_name
from codemode_mcp.base.strict_json import ascii_json, json_text, parse_json, replace_lone_surrogates
from codemode_mcp.catalog.serialize import catalog_hash, catalog_text
from codemode_mcp.runs.calls.outcome import is_error
from declarations.untrusted_text import escape_line
from upstream_clients.errors import QuestionRefused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from codemode_mcp.audit.recordings.recordings import Recordings
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.program.described_values import Result
    from codemode_mcp.program.positions import Positions
    from codemode_mcp.program.prepare import Cell
    from codemode_mcp.rules.policy.approval import ApprovalRequest, Verdict
    from codemode_mcp.runs.calls.outcome import Outcome
    from codemode_mcp.runs.live_call import LiveCall
    from codemode_mcp.runs.run import Run
    from codemode_mcp.sandbox.messages import StartParts
    from upstream_clients.tools import JsonObject, Question


_TEXTS: Final = 4
"""Maximum number of texts of catalogs that are kept for further runs."""

_texts: OrderedDict[str, CatalogText] = OrderedDict()
_lock = threading.Lock()


def begin_recording(recordings: Recordings, run: Run, cell: Cell, wall: float) -> None:
    """Give a new run its recorder, if the run is recorded. `wall`: seconds since the epoch."""
    catalog = run.context.catalog
    run.recorder = recordings.begin(
        run.id,
        source=cell.source,
        language=cell.language or "javascript",
        args=cell.args,
        began=wall,
        # The catalogs of runs with namespaces differ, but share the index.
        catalog=catalog.index,
        tools=len(catalog),
        catalog_text=partial(_catalog_line, catalog),
    )


def _catalog_line(catalog: Catalog) -> CatalogText:
    digest = catalog_hash(catalog)
    with _lock:
        found = _texts.get(digest)
        if found is None:
            found = _texts[digest] = CatalogText(digest, catalog_text(catalog))
            while len(_texts) > _TEXTS:
                _texts.popitem(last=False)
    return found


def record_start(run: Run, parts: StartParts) -> None:
    assert run.recorder is not None
    run.recorder.add(
        Start(
            code=parts["code"],
            fallback=parts["fallback"],
            seed=parts["seed"].hex(),
            output_limit=parts["output_limit"],
            call_limit=parts["call_limit"],
            memory_limit=run.memory_limit,
            elapsed=parts["elapsed_ms"],
            file=parts["file"],
            lines=parts["lines"],
            label=parts["label"],
            zones={name: tuple(each) for name, each in parts["zones"].items()},
            args=tuple(parts["args"]),
            namespaces=parts["namespaces"],
            saving=parts["saving"],
            positions=_positions_text(run.positions),
        )
    )


def _positions_text(positions: Positions | None) -> str:
    # Without the program, which is in the same line.
    return "" if positions is None else ascii_json(replace(positions, code=""))


def record_end(run: Run, outcome: Outcome, elapsed_ms: float) -> None:
    assert run.recorder is not None
    failed = outcome.status == "failed"
    run.recorder.end(
        End(
            "failed" if failed else "completed",
            outcome.value,
            tuple(run.history),
            run.dropped,
            outcome.error,
            outcome.code if failed else None,
            outcome.notes,
            elapsed_ms,
        )
    )


async def recorded_answer(
    run: Run, live: LiveCall, question: Question, ask: Callable[[], Awaitable[JsonObject]]
) -> JsonObject:
    assert run.recorder is not None
    run.recorder.add(AskedFor(live.call.id, live.record.tool, question.method, json_text(question.params)))
    try:
        answer = await ask()
    except QuestionRefused as error:
        run.recorder.add(Answer(live.call.id, "", json_text({"refused": str(error)})))
        raise
    run.recorder.add(Answer(live.call.id, "client", json_text(answer)))
    return answer


def record_approval(run: Run, request: ApprovalRequest, verdict: Verdict) -> None:
    """Record a decision about a call. The recorded call has its arguments."""
    assert run.recorder is not None
    run.recorder.add(AskedFor(request.call, request.tool, "approval", json_text({"reason": request.reason})))
    decided = {"approved": verdict.approved, "why": verdict.why, "remember": verdict.remember}
    run.recorder.add(Answer(request.call, verdict.by, json_text(decided)))


# The latest results of a run, as JSON text.
#
# An error of its program is explained with them. If the program fails, the results of its calls are stored for the next
# program of its owner. A run that succeeds only keeps references to texts that it has received anyway, up to a limit.
# They are not part of a suspended run, so a run that another process takes over begins without results.


MAX_CHARACTERS: Final = 1024 * 1024
MAX_RESULTS: Final = 100

EXPLAINING_CHARACTERS: Final = 256 * 1024
EXPLAINING_RESULTS: Final = 32
"""Maximum characters and number of the results with which an error is explained. Each of them is parsed."""

LISTED: Final = 20
LISTED_INPUT: Final = 60
"""Maximum number of calls that a note lists, and of characters of each input."""

MAX_READ: Final = 10 * LISTED_INPUT
"""Maximum characters of an input whose values are looked up in the program."""

SMALL: Final = 1000
"""Numbers below this one are shown, since they count pages and steps."""


class RecentResults:
    """The latest results, at most `MAX_RESULTS` with at most `MAX_CHARACTERS` together."""

    def __init__(self) -> None:
        self._received: deque[tuple[str, str, str | None, int]] = deque()
        """Names, results, inputs, and the characters of the last two. Tuples, because each call adds one."""
        self._size = 0

    def add(self, called: str, text: str, given: str | None = None) -> None:
        """Add a result.

        Args:
            called: the id of its tool, or the expression of a look-up.
            given: the input of the call as JSON text; None for a look-up.
        """
        size = len(text) if given is None else len(text) + len(given)
        if size > MAX_CHARACTERS:
            return
        self._received.append((called, text, given, size))
        self._size += size
        while self._size > MAX_CHARACTERS or len(self._received) > MAX_RESULTS:
            self._size -= self._received.popleft()[3]

    def clear(self) -> None:
        self._received.clear()
        self._size = 0

    def of(self, catalog: Catalog) -> list[Result]:
        """Return the results that explain an error, with the names by which a program calls their tools."""
        from codemode_mcp.program.described_values import Result  # only programs that fail need it

        found: list[Result] = []
        room = EXPLAINING_CHARACTERS
        for called, text, *_ in reversed(self._received):
            room -= len(text)
            if room < 0 or len(found) == EXPLAINING_RESULTS:
                break
            found.append(Result(_names(called, catalog), text, _path(called, catalog)))
        return found[::-1]

    def finished_calls(self, catalog: Catalog) -> FinishedCalls | None:
        """Return the calls that have succeeded, in the order of their ends; None if there are none."""
        calls = [
            (_path(called, catalog), _valid(given), text)
            for called, text, given, _ in self._received
            if given is not None and not is_error(text)
        ]
        return FinishedCalls(tuple(calls)) if calls else None


class FinishedCalls(NamedTuple):
    """Calls of a failed program that have succeeded.

    Attributes:
        calls: the path, the input and the result of each. The last two are JSON text.
    """

    calls: tuple[tuple[str, str, str], ...]

    @property
    def text(self) -> str:
        # Results are long, and JSON already, so they are not parsed.
        return f"[{','.join(map(_stored, self.calls))}]"

    def note(self, ref: str, program: str) -> str:
        """Return the note that names the calls.

        Args:
            ref: the key under which their text is stored.
            program: the text of the program. Other values of inputs are not shown, because the program may have got
                them from a tool, and has not printed them.
        """
        shown = ", ".join(
            f"[{number}] {escape_line(path)}({_shown_input(given, program)})"
            for number, (path, given, _) in enumerate(self.calls[:LISTED])
        )
        left = len(self.calls) - LISTED
        return (
            f'Finished calls are kept: await load("{ref}") gives the next program an array of {{ tool, input, result }}'
            f": {shown}{f' and {left} more' if left > 0 else ''}."
        )


def _stored(call: tuple[str, str, str]) -> str:
    path, given, text = call
    return f'{{"tool":{json_text(path)},"input":{given},"result":{text}}}'


def _shown_input(given: str, program: str) -> str:
    if given == "null":
        return ""
    return escape_line(json_text(_known(parse_json(given), program)), LISTED_INPUT) if len(given) <= MAX_READ else "…"


def _known(value: Any, program: str) -> Any:
    """Return a value with `…` in place of what is not in the text of the program."""
    if isinstance(value, dict):
        return {_known(name, program): _known(each, program) for name, each in value.items()}
    if isinstance(value, list):
        return [_known(each, program) for each in value]
    if isinstance(value, bool) or value is None or (isinstance(value, (int, float)) and abs(value) < SMALL):
        return value
    return value if str(value) in program else "…"


def _valid(given: str) -> str:
    """Return an input as JSON that later programs can read. The guest has written it, so it is not trusted."""
    try:
        parse_json(given)
    except (ValueError, RecursionError):
        return "null"
    return replace_lone_surrogates(given)


def _path(called: str, catalog: Catalog) -> str:
    entry = catalog.get(called)
    return called if entry is None else entry.path


def _names(called: str, catalog: Catalog) -> frozenset[str]:
    entry = catalog.get(called)
    if entry is None:
        return frozenset((normalize_name(called),))
    names = (entry.path, entry.id, f"MCP.{entry.source_name}.{entry.tool.name}", f"tools.{entry.tool.name}")
    return frozenset(map(normalize_name, names))
