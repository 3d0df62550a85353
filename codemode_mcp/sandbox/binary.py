"""The engine binary, pinned by its digest, and the four edits made to it. Pure, except for reading the file.

The package has QuickJS-NG, built as a WASI reactor. Later versions do not export the QuickJS C API, so only this one is
accepted. As shipped it has a 64 KiB stack placed above its own static data, so that deep
recursion would overwrite that data; `prepare` gives it a real stack, and lets our glue module in:

1. memory section: the minimum grows by `STACK_PAGES`;
2. global section: the stack pointer starts at the end of that new region (the allocator never touches it, because it
   only uses what `memory.grow` returns later);
3. table section: room for the functions of the glue module that the engine calls;
4. export section: the function table, and the stack pointer for the test which proves that it is at rest between turns.

`with_clock` makes a fifth edit, only when the binary is compiled: the one function that reads the clock is replaced by
that of `clock.wat`, so that the times of a run can be recorded and replayed.
"""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from codemode_mcp.errors import RuntimeUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

FOLDER: Final = Path(__file__).parent
"""The files of the sandbox."""

PACKAGE = "qjs-wasi-reactor"
VERSION = "0.15.1.1"
DIGEST = "718f30dac3b2b42f2ab18d622f8ca11139e193e40f941519165710e4a9b168a3"

PAGE = 65536
SHIPPED_PAGES = 3
"""Minimum pages of the shipped memory."""
STACK_PAGES = 13
USABLE_STACK = 800 * 1024
"""Usable bytes of the stack region. The rest is headroom for functions of the engine that do not check the stack.

By measurement, a thousand nested asynchronous calls take 770 KiB, and a thousand callbacks of arrays 620 KiB. A larger
stack would let JSON.stringify of endless nesting run too long: its time grows with the square of the depth, to 4 s
here."""

STACK_START = SHIPPED_PAGES * PAGE
STACK_END = STACK_START + STACK_PAGES * PAGE
"""End of the stack in memory; it grows downwards from here."""

GLUE_SLOTS = 26
FIRST_GLUE_SLOT = 580
"""Number of entries in the shipped table; `glue.wat` has it too."""


def load() -> bytes:
    """Return the shipped binary.

    Raises:
        RuntimeUnavailable: the package is missing or its file is not the one this version was made for.
    """
    # `importlib.resources` would import readers for a folder without `__init__.py`, which takes 9 ms.
    spec = find_spec(PACKAGE)
    folders = [] if spec is None else spec.submodule_search_locations or []
    try:
        data = next(filter(Path.is_file, (Path(folder, f"{PACKAGE}.wasm") for folder in folders))).read_bytes()
    except (StopIteration, OSError):
        raise RuntimeUnavailable(
            f"the JavaScript engine is missing; install the package qjs-wasi-reactor.wasm=={VERSION}"
        ) from None
    return verify(data)


def verify(data: bytes) -> bytes:
    """Return `data`, which must be the expected binary.

    Raises:
        RuntimeUnavailable: it is not.
    """
    found = hashlib.sha256(data).hexdigest()
    if found != DIGEST:
        raise RuntimeUnavailable(
            f"the JavaScript engine is not the expected one: sha256 {found[:16]}…, expected {DIGEST[:16]}…; "
            f"reinstall the package qjs-wasi-reactor.wasm=={VERSION}"
        )
    return data


def prepare(data: bytes) -> bytes:
    """Return the binary with the four edits of this module's docstring."""
    return _edited(data, {4: _grow_table, 5: _grow_memory, 6: _move_stack, 7: _add_exports})


def with_memory(prepared: bytes, segments: Sequence[tuple[int, bytes]], pages: int) -> bytes:
    """Return a prepared binary with another initial memory. Its instances share that memory, copy on write.

    Args:
        segments: offsets and bytes of the memory; the rest is zeros.
    """
    data = _uleb(len(segments))
    for offset, content in segments:
        data += b"\x00\x41" + _sleb(offset) + b"\x0b" + _uleb(len(content)) + content
    return _edited(prepared, {5: lambda body: body[:2] + _uleb(pages), 11: lambda _: data})


def clock_source() -> str:
    """Return the source of the clock of programs."""
    return (FOLDER / "clock.wat").read_text("utf-8")


def with_clock(prepared: bytes, clock: bytes) -> bytes:
    """Return a prepared binary whose programs read the time by the only function of the module `clock`."""
    bodies: list[bytes] = []

    def take(body: bytes) -> bytes:
        bodies.append(body[1:])  # after the number of functions
        return body

    def replace(body: bytes) -> bytes:
        if body.count(_CLOCK_FUNCTION) != 1:
            raise RuntimeUnavailable("the JavaScript engine does not read the clock as expected")
        return body.replace(_CLOCK_FUNCTION, bodies[0])

    _edited(clock, {10: take})
    return _edited(prepared, {10: replace})


_CLOCK_FUNCTION: Final = bytes.fromhex("130020002001200210828080800041ffff03710b")
"""The function of the WASI library that calls `clock_time_get`, which is the import with number 2."""


def _edited(data: bytes, edits: Mapping[int, Callable[[bytes], bytes]]) -> bytes:
    """Return a binary with edits of the bodies of sections, by the numbers of the sections."""
    out = bytearray(data[:8])
    at = 8
    while at < len(data):
        section = data[at]
        size, start = _leb(data, at + 1)
        body = data[start : start + size]
        if section in edits:
            body = edits[section](body)
        out += bytes([section]) + _uleb(len(body)) + body
        at = start + size
    return bytes(out)


def _grow_table(body: bytes) -> bytes:
    # one table: count, funcref, flags 1, minimum, maximum
    if body[:3] != b"\x01\x70\x01":
        raise RuntimeUnavailable("the JavaScript engine's function table has an unexpected form")
    minimum, at = _leb(body, 3)
    maximum, _ = _leb(body, at)
    if (minimum, maximum) != (FIRST_GLUE_SLOT, FIRST_GLUE_SLOT):
        raise RuntimeUnavailable("the JavaScript engine's function table has an unexpected size")
    return body[:3] + _uleb(minimum + GLUE_SLOTS) + _uleb(maximum + GLUE_SLOTS)


def _grow_memory(body: bytes) -> bytes:
    # one memory: count, flags 0, minimum
    minimum, _ = _leb(body, 2)
    if minimum != SHIPPED_PAGES:
        raise RuntimeUnavailable("the JavaScript engine's memory has an unexpected size")
    return body[:2] + _uleb(minimum + STACK_PAGES)


def _move_stack(body: bytes) -> bytes:
    # two globals; the first is the stack pointer: i32, mutable, i32.const <sleb>, end
    _, after = _leb(body, 4)  # only to find its end: a signed value has the same length
    return body[:4] + _sleb(STACK_END) + body[after:]


def _add_exports(body: bytes) -> bytes:
    count, start = _leb(body, 0)
    added = _name("table") + b"\x01\x00" + _name("stack_pointer") + b"\x03\x00"
    return _uleb(count + 2) + body[start:] + added


def _name(text: str) -> bytes:
    raw = text.encode()
    return _uleb(len(raw)) + raw


def _leb(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _uleb(value: int) -> bytes:
    out = bytearray()
    while True:
        byte = value & 0x7F
        value >>= 7
        if not value:
            out.append(byte)
            return bytes(out)
        out.append(byte | 0x80)


def _sleb(value: int) -> bytes:
    out = bytearray()
    while True:
        byte = value & 0x7F
        value >>= 7
        if (value == 0 and not byte & 0x40) or (value == -1 and byte & 0x40):
            out.append(byte)
            return bytes(out)
        out.append(byte | 0x80)
