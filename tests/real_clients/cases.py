"""The cases: what the scripted model has our server do, and what it has to read then.

All cases of a client are one conversation, so that a client is started once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.real_clients.drivers.place import Driver
from tests.real_clients.endpoint import Call, Reading

MOST_WAITS = 8
BIG_LINES = 500
BIG_LINE = 80
LISTED = 250
LISTED_BYTES = 17_500
PICTURES = 2
REASON = "look at the chart first"
OWN_BYTES = 60


@dataclass(frozen=True)
class Case:
    """One program that the model has run.

    Attributes:
        heading: Its column in the table.
        ends: The model gives the run up by `wait` with `cancel`, as it would when a person has to decide.
        releases: `slow` answers once the model has read the first answer.
        every_argument: The model gives every argument that it is shown, null for those that it does not need, as
            strict schemas have models do.
    """

    key: str
    heading: str
    code: str
    ends: bool = False
    releases: bool = False
    every_argument: bool = False


# Some clients repeat the program when it fails, so no program holds the words that its success is known by.
CASES = (
    Case("value", "bytes of `return 1`", "return 1"),
    Case("success", "success", 'return unwrap(await MCP.bench.echo({text: ["the", "quick", "answer"].join(" ")}))'),
    Case("failure", "failure", "return unwrap(await MCP.bench.fail({}))"),
    Case(
        "picture",
        "pictures",
        'for (const side of [16, 24]) image((await MCP.bench.picture({side})).content[0]); return "dra" + "wn"',
    ),
    Case("unawaited", "call not awaited", 'MCP.bench.slow({}); return "left " + "early"'),
    Case("unchecked", "`isError` not checked", 'await MCP.bench.fail({}); return "carried " + "along"'),
    Case("yielded", "yield", f'await yield_control("{REASON}"); return "after " + "the yield"'),
    Case("arguments", "every argument given", 'await yield_control(); return "all " + "given"', every_argument=True),
    Case("waiting", "waiting", "return unwrap(await MCP.bench.slow({}))", releases=True),
    Case("approval", "approval", 'return unwrap(await MCP.bench.erase({path: "/tmp/marbles"}))', ends=True),
    Case(
        "listed",
        "list of 250 objects",
        f"return Array.from({{length: {LISTED}}}, (_, id) => "
        '({id, name: `item number ${id}`, state: "open", labels: ["a", "b"]}))',
    ),
    Case(
        "big",
        "40 kB of output",
        f'text(Array.from({{length: {BIG_LINES}}}, (_, n) => `line ${{n}} `.padEnd({BIG_LINE - 1}, "x")).join("\\n"))',
    ),
    Case("input", "question of a server", "return unwrap(await MCP.asker.ask({}))", ends=True),
)


@dataclass
class Seen:
    """The readings of each case, in order: that of `exec`, then one for each `wait`."""

    readings: dict[str, list[Reading]] = field(default_factory=dict)

    def first(self, key: str) -> Reading:
        """Return the answer to `exec`."""
        assert self.readings.get(key), f"the client never came to the case {key!r}"
        return self.readings[key][0]

    def last(self, key: str) -> Reading:
        self.first(key)
        return self.readings[key][-1]


def conversation(seen: Seen, folder: Path, driver: Driver) -> Generator[Call, Reading, None]:
    """Play all cases. The model waits only where it reads a run id, and with that one."""
    for case in CASES:
        more: dict[str, Any] = driver.added if case.every_argument else {}
        nulls = case.every_argument and driver.nulls
        arguments: dict[str, Any] = {"code": case.code, **more}
        if nulls:
            arguments |= {"command": None, "language": None}
        readings = seen.readings.setdefault(case.key, [])
        readings.append((yield Call("exec", arguments)))
        if case.releases:
            (folder / "released").touch()
        while (run_id := readings[-1].run_id) and len(readings) <= MOST_WAITS:
            arguments = {"runId": run_id, **more}
            if nulls:
                arguments |= {"cancel": None, "fromStart": None}
            if case.ends:
                arguments["cancel"] = True
            readings.append((yield Call("wait", arguments)))
            if case.ends:
                break


# Checks of what has to be read. Each returns a cell of the table, or raises an AssertionError that says what is
# missing. The last answer counts where a slow machine may suspend a program that is soon over.


def _tells_how_to_continue(reading: Reading) -> None:
    assert reading.run_id, f"no run id is to be read in {reading.plain!r}"
    # Not the name of a field, such as a count of waits.
    assert re.search(r'\bwait\b(?!"?:)', reading.plain), f"the tool wait is not named in {reading.plain!r}"


def value(seen: Seen, driver: Driver) -> str:
    ours = "\n".join(re.sub(driver.wrapper, "", text) for text in seen.last("value").strings).strip()
    assert "1" in ours
    size = len(ours.encode())
    assert size <= OWN_BYTES, f"{size} bytes for the value 1: {ours!r}"
    return str(size)


def success(seen: Seen, driver: Driver) -> str:
    assert "the quick answer" in seen.last("success").plain, seen.last("success").plain
    return "yes"


def failure(seen: Seen, driver: Driver) -> str:
    read = seen.last("failure").plain
    assert "the disk is full of marbles" in read, read
    assert "nested_tool_failed" in read, read
    return "yes"


def picture(seen: Seen, driver: Driver) -> str:
    reading = seen.last("picture")
    assert "drawn" in reading.plain, reading.plain
    if not driver.shows_pictures:
        return "-"
    assert reading.pictures == PICTURES, f"{reading.pictures} pictures in {reading.items!r}"
    return "yes"


def unawaited(seen: Seen, driver: Driver) -> str:
    read = seen.last("unawaited").plain
    assert "left early" in read, read
    assert re.search(r"\bawait|waited for", read), f"nothing about a call that was not awaited in {read!r}"
    assert "bench" in read, read
    assert "slow" in read, read
    return "yes"


def unchecked(seen: Seen, driver: Driver) -> str:
    read = seen.last("unchecked").plain
    assert "carried along" in read, read
    assert re.search(r"bench\W+fail\b.*\bisError\b", read), f"nothing about a result with isError in {read!r}"
    assert "marbles" in read, f"the text of the error is not in {read!r}"
    return "yes"


def yielded(seen: Seen, driver: Driver) -> str:
    reading = seen.first("yielded")
    assert REASON in reading.plain, f"the reason is not in {reading.plain!r}"
    _tells_how_to_continue(reading)
    assert "after the yield" in seen.last("yielded").plain, seen.last("yielded").plain
    return "yes"


def arguments(seen: Seen, driver: Driver) -> str:
    read = seen.last("arguments").plain
    assert "all given" in read, read
    for name in driver.added:
        assert name not in read, f"a note about an argument that the client itself adds: {read!r}"
    return "yes"


def waiting(seen: Seen, driver: Driver) -> str:
    reading = seen.first("waiting")
    _tells_how_to_continue(reading)
    assert "slow" in reading.plain, reading.plain
    assert "the late answer" in seen.last("waiting").plain, seen.last("waiting").plain
    return "yes"


def approval(seen: Seen, driver: Driver) -> str:
    read = seen.first("approval").plain
    assert "erase" in read, read
    assert re.search(r"approve", read), f"nothing about an approval in {read!r}"
    assert re.search(r"runs approve|tools\.approved", read), f"not told how to have the call approved: {read!r}"
    return "yes"


def listed(seen: Seen, driver: Driver) -> str:
    read = seen.last("listed").plain
    return _share(len(set(re.findall(r'"id": ?(\d+),', read))), LISTED, LISTED_BYTES, read)


def big(seen: Seen, driver: Driver) -> str:
    read = seen.last("big").plain
    return _share(len(set(re.findall(r"\bline \d+ x", read))), BIG_LINES, BIG_LINES * BIG_LINE, read)


def _share(count: int, total: int, size: int, read: str) -> str:
    """Return the cell for an output of which `count` of `total` parts are to be read."""
    if count == total:
        return "whole"
    assert re.search(r"truncat|omitted|saved|too large|left out|cut", read, re.IGNORECASE), (
        f"{count} of {total} parts, and nothing says so"
    )
    return f"{count / total * size / 1000:.1f} kB, told"


def question(seen: Seen, driver: Driver) -> str:
    read = seen.first("input").plain
    if re.search(r"declin|dismiss|cancel\b.*action|action.*cancel", read):
        return "answered by the client"
    assert "asker" in read, read
    assert "What is your name" in read, f"the question is not in {read!r}"
    return "yes"


CHECKS: dict[str, Callable[[Seen, Driver], str]] = {
    "value": value,
    "success": success,
    "failure": failure,
    "picture": picture,
    "unawaited": unawaited,
    "unchecked": unchecked,
    "yielded": yielded,
    "arguments": arguments,
    "waiting": waiting,
    "approval": approval,
    "listed": listed,
    "big": big,
    "input": question,
}
"""Expectations by the key of the case."""
