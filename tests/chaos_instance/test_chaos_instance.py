"""A few rounds of kills and stops; see `campaign` for the promises. Many more: `python3 tests/run.py chaos`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import pytest

from tests.chaos_instance.campaign import Orders, campaign

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_every_promise_is_kept(engine_cache: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="cm-") as folder:  # paths of sockets have to be short
        orders = Orders(6, 1, {"kind": "sqlite"}, Path(folder), engine_cache, clients=4, programs=3, calls=96)
        figures = asyncio.run(campaign(orders))
    assert figures.rounds == 6
    # Whatever the machine did meanwhile: much of what this is about has happened.
    assert figures.faults["instance kill"] > 0
    assert figures.counts["suspensions"] > 5
    assert figures.counts["calls done"] > 100


def test_a_call_that_is_executed_twice_is_found(tmp_path: Path) -> None:
    from tests.chaos_instance.campaign import Calls
    from tests.crashes.histories import Broken
    from tests.crashes.ledger import Ledger

    ledger = Ledger(tmp_path / "ledger")
    calls = Calls(tmp_path / "ledger")
    for tool, key in (("put", "a/1"), ("put", "a/1"), ("append", "a/2")):
        ledger.write(what="executed", tool=tool, key=key, serial="1-1")
    calls.read()
    calls.check_outcome("a/2", "append", "done", "1-1")
    with pytest.raises(Broken, match="a/2 has succeeded with 1-2"):
        calls.check_outcome("a/2", "append", "done", "1-2")
    with pytest.raises(Broken, match="a/2 was not sent"):
        calls.note_unsent(["a/2"], "No call to a tool was sent")
    ledger.write(what="executed", tool="append", key="a/2", serial="1-2")
    with pytest.raises(Broken, match="a/2 was executed more than once"):
        calls.read()
    for each in (ledger, calls):
        each.close()
