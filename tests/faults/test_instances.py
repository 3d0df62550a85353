"""A few rounds of kills and stops; see `instances` for the promises. Many more: `python -m tests.faults instance`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import pytest

from tests.faults.books import Books
from tests.faults.histories import Broken
from tests.faults.instances import Instances, Orders
from tests.faults.servers.ledger import Ledger

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_every_promise_is_kept(engine_cache: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="cm-") as folder:  # paths of sockets have to be short
        orders = Orders(6, 1, {"kind": "sqlite"}, Path(folder), engine_cache, clients=4, programs=3, calls=96)
        figures = asyncio.run(Instances(orders).run())
    assert figures.done == 6
    # Whatever the machine did meanwhile: much of what this is about has happened.
    assert figures.faults["instance kill"] > 0
    assert figures.counts["suspensions"] > 5
    assert figures.counts["calls done"] > 100


def test_a_call_that_is_executed_twice_is_found(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    calls = Books(tmp_path / "ledger")
    for tool, key in (("put", "a/1"), ("put", "a/1"), ("append", "a/2")):
        ledger.write(what="act", server="box", tool=tool, key=key, serial="1-1")
    calls.read()
    calls.check({"a/2": "append"}, {"a/2": ("done", "1-1")})
    with pytest.raises(Broken, match="a/2 has succeeded with 1-2"):
        calls.check({"a/2": "append"}, {"a/2": ("done", "1-2")})
    with pytest.raises(Broken, match="a/2 was not sent"):
        calls.note_unsent(["a/2"], "No call to a tool was sent")
    ledger.write(what="act", server="box", tool="append", key="a/2", serial="1-2")
    with pytest.raises(Broken, match="a/2 was executed more than once"):
        calls.read()
    for each in (ledger, calls):
        each.close()
