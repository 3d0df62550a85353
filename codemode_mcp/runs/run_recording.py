"""The recording of runs: what the recorders of `recordings` need to know about a run.

Without recordings, `Run.recorder` is None, and nothing here is called.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from codemode_mcp.catalog.serialize import catalog_hash, catalog_text
from codemode_mcp.json_text import json_text
from codemode_mcp.program.stored_positions import positions_form
from codemode_mcp.recordings.format import CatalogText, Start
from codemode_mcp.strict_json import ascii_json
from upstream_clients.errors import QuestionRefused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from codemode_mcp.calls.outcome import Outcome
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.policy.approval import ApprovalRequest, Verdict
    from codemode_mcp.program.positions import Positions
    from codemode_mcp.program.prepare import Cell
    from codemode_mcp.recordings.recordings import Recordings
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
    """Record the start of the guest."""
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
    return "" if positions is None else ascii_json(replace(positions_form(positions), code=""))


def record_end(run: Run, outcome: Outcome, elapsed_ms: float) -> None:
    """Record the end of a run, with all of its output."""
    assert run.recorder is not None
    run.recorder.end(
        completed=outcome.status == "completed",
        value=outcome.value,
        outputs=run.history,
        dropped=run.dropped,
        error=outcome.error,
        code=outcome.code if outcome.status == "failed" else None,
        notes=outcome.notes,
        elapsed_ms=elapsed_ms,
    )


async def recorded_answer(
    run: Run, live: LiveCall, question: Question, ask: Callable[[], Awaitable[JsonObject]]
) -> JsonObject:
    """Ask a question of a server, and return the answer. Record both."""
    assert run.recorder is not None
    run.recorder.question(live.call.id, live.record.tool, question.method, json_text(question.params))
    try:
        answer = await ask()
    except QuestionRefused as error:
        run.recorder.answer(live.call.id, "", json_text({"refused": str(error)}))
        raise
    run.recorder.answer(live.call.id, "client", json_text(answer))
    return answer


def record_approval(run: Run, request: ApprovalRequest, verdict: Verdict) -> None:
    """Record a decision about a call. The recorded call has its arguments."""
    assert run.recorder is not None
    run.recorder.question(request.call, request.tool, "approval", json_text({"reason": request.reason}))
    decided = {"approved": verdict.approved, "why": verdict.why, "remember": verdict.remember}
    run.recorder.answer(request.call, verdict.by, json_text(decided))
