"""The readings of the clock by a program: recorded in one run, and given again in another. Pure.

`clock.wat` is the clock of programs. It has three modes. Without a recording it passes on the system's time. While a
run is recorded, it also keeps the readings of a turn in guest memory. In a replay it answers with readings that the
host has written there. The memory belongs to the host: snapshots and images have zeros there.

A turn keeps at most `PAIRS` different readings of each clock. So that a program which waits in a loop can be recorded,
equal readings are kept as one, the wall clock of a recorded run has whole milliseconds (as `Date` shows), and after
`FINE_PAIRS` different readings in a turn both clocks advance in steps of 50 ms. A replay that reads the clock more
often than the recorded run gets times that advance by one millisecond with each reading.
"""

from __future__ import annotations

import struct
from typing import Final, Literal, TypeAlias

from msgspec import Struct

Pairs: TypeAlias = "tuple[tuple[int, int], ...]"
"""Readings in nanoseconds, each with the number of times that it was read one after another."""

Mode = Literal["system", "record", "replay"]

ADDRESS: Final = 109232
"""Beginning of the clock's memory: the stack of the engine as shipped, which nothing uses after `binary.prepare`."""

SIZE: Final = 65536
"""Bytes of that memory."""

PAIRS: Final = 2040
"""Maximum number of different readings of one clock in a turn."""

FINE_PAIRS: Final = 1024
"""Number of different readings in a turn after which a recorded clock becomes coarse."""

_MODES: Final = {"system": 0, "record": 1, "replay": 2}
_MODE = struct.Struct("<I12x")
_BLOCK = struct.Struct("<IIqqq")
_PAIR = struct.Struct("<qq")
_STRIDE: Final = _BLOCK.size + PAIRS * _PAIR.size
BLOCKS: Final = (ADDRESS + _MODE.size, ADDRESS + _MODE.size + _STRIDE)
"""Addresses of the blocks of the wall clock and the monotonic clock."""

HEADER: Final = _BLOCK.size


class Readings(Struct, frozen=True):
    """The readings of one turn.

    Attributes:
        wall: readings of the wall clock (`Date`), since 1970.
        monotonic: readings of the monotonic clock (`performance.now`). The first is the beginning of the turn.
        lost: number of readings beyond `PAIRS`. In a replay: readings that were not recorded.
    """

    wall: Pairs = ()
    monotonic: Pairs = ()
    lost: int = 0

    @property
    def seen(self) -> Readings:
        """The readings that a program can have seen; a turn that reads no time has none.

        Each turn reads the monotonic clock once at its beginning, and programs see only differences from there.
        """
        return self if sum(number for _, number in self.monotonic) > 1 else Readings(self.wall, (), self.lost)


def mode(of: Mode) -> bytes:
    """Return the memory at `ADDRESS` for a mode."""
    return _MODE.pack(_MODES[of])


def block(pairs: Pairs, *, start: int) -> bytes:
    """Return the beginning of a block from which a replay reads.

    Args:
        start: nanoseconds from which the time continues if there is no reading.
    """
    taken = pairs[:PAIRS]
    return _BLOCK.pack(len(taken), 0, 0, start, 0) + b"".join(_PAIR.pack(*pair) for pair in taken)


def pairs_in(header: bytes) -> tuple[int, int]:
    """Return the size of the pairs after the header of a block, and the number of readings beyond them."""
    count, _, _, _, beyond = _BLOCK.unpack(header)
    return min(count, PAIRS) * _PAIR.size, beyond


def read_pairs(data: bytes) -> Pairs:
    return tuple(_PAIR.iter_unpack(data))


EMPTY: Final = block((), start=0)
"""A block without readings, at the beginning of a turn that is recorded."""

RECORDING: Final = mode("record") + EMPTY
"""The memory at `ADDRESS` at the beginning of a turn that is recorded: the mode and the block of the wall clock."""

FIRST: Final = struct.Struct("<I36xq")
"""A block to its first pair: the number of pairs, and how often the first one was read."""
