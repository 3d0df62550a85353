"""The engine binary, pinned by its digest, and the four edits made to it. Pure, except for reading the file.

The package has QuickJS-NG, built as a WASI reactor. Later versions do not export the QuickJS C API, so only this one is
accepted. As shipped it has a 64 KiB stack placed above its own static data, so that deep
recursion would overwrite that data; `prepare` gives it a real stack, and lets our glue module in:

1. memory section: the minimum grows by `STACK_PAGES`;
2. global section: the stack pointer starts at the end of that new region (the allocator never touches it, because it
   only uses what `memory.grow` returns later);
3. table section: room for the functions of the glue module that the engine calls, and for those of the engine that
   the glue calls;
4. export section: the function table, and the stack pointer for the test which proves that it is at rest between turns.

Two more edits are made only when the binary is compiled. `with_clock` replaces the one function that reads the clock by
that of `clock.wat`, so that the times of a run can be recorded and replayed. `with_hooks` replaces functions of the
engine by those of the glue, which can call the original ones. So a program gets what the standard or Node.js says where
the engine says something else, and sees no wrapper: constructors, prototypes and literals are the engine's own.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Final

from codemode_mcp.base.errors import RuntimeUnavailable

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

GLUE_SLOTS = 28
FIRST_GLUE_SLOT = 580
"""Number of entries in the shipped table; `glue.wat` has it too."""

HOOKED: Final = (
    "js_compile_regexp",
    "js_regexp_get_flag",
    "js_Date_parse",
    "get_date_string",
    "build_backtrace",
    "js_weakref_constructor",
    "js_weakref_deref",
    "js_aggregate_error_constructor",
    "js_regexp_exec",
    "string_advance_index",
    "set_date_field",
    "JS_CopyDataProperties",
)
"""Functions that `with_hooks` replaces, by their names in the binary, in the order of their slots. In the table, the
functions of the glue follow its others, and then the original ones."""
FIRST_HOOK_SLOT = FIRST_GLUE_SLOT + GLUE_SLOTS

CALLED = 40
"""Number of functions that the glue calls, which are its imports in `glue.wat`."""
FIRST_CALLED_SLOT = FIRST_HOOK_SLOT + 2 * len(HOOKED)

_IMPORT: Final = re.compile(
    r'\(import "(\w+)" "(\w+)"\s+\(func (\$\w+)((?: \(param[^()]*\))?)((?: \(result[^()]*\))?)\)\)'
)
"""An import of a function in `glue.wat`: its module, name, variable, parameters and result."""


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


def glue_source() -> str:
    return (FOLDER / "glue.wat").read_text("utf-8")


def with_calls(glue: str) -> str:
    """Return the source of the glue with calls through the table in place of its imports of functions.

    Each new instance would look its imports up, which would take half of the time of a new guest.
    """
    slots = count(FIRST_CALLED_SLOT)

    def call(found: re.Match[str]) -> str:
        _, _, name, parameters, result = found.groups()
        passed = "".join(f" (local.get {n})" for n in range(len(parameters.split()) - 1))
        kind = parameters + result
        return f"(func {name}{kind} (call_indirect{kind}{passed} (i32.const {next(slots)})))"

    return _IMPORT.sub(call, glue)


def clock_source() -> str:
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


def with_hooks(prepared: bytes) -> bytes:
    """Return a prepared binary in which the functions `HOOKED` jump to the glue.

    The table has the original ones, and those that the glue calls.
    """
    sections = {number: body for number, body in _sections(prepared) if number or body.startswith(_NAMES)}
    names, (imported, _) = _function_names(sections[0]), _leb(sections[2], 0)
    parameters, types, bodies = _parameter_counts(sections[1]), _numbers(sections[3]), _bodies(sections[10])
    for name, before, after in _mended(_uleb(names["dbuf_insert"])):
        number = names[name] - imported
        if bodies[number].count(before) != 1:
            raise RuntimeUnavailable("the JavaScript engine has unexpected code")
        bodies[number] = bodies[number].replace(before, after)
    for slot, name in enumerate(HOOKED, FIRST_HOOK_SLOT):
        number = names[name] - imported
        kind, original = types[number], bodies[number]
        passed = b"".join(b"\x20" + _uleb(n) for n in range(parameters[kind]))
        bodies[number] = b"\0" + passed + b"\x41" + _sleb(slot) + b"\x11" + _uleb(kind) + b"\0\x0b"
        types.append(kind)
        bodies.append(original)
    originals = range(imported + len(bodies) - len(HOOKED), imported + len(bodies))
    called = (
        names[name if module == "engine" else f"__imported_{module}_{name}"]
        for module, name, *_ in _IMPORT.findall(glue_source())
    )
    elements = _element(FIRST_HOOK_SLOT + len(HOOKED), originals) + _element(FIRST_CALLED_SLOT, called)
    known, start = _leb(sections[9], 0)
    return _edited(
        prepared,
        {
            3: lambda _: _vector(map(_uleb, types)),
            9: lambda body: _uleb(known + 2) + body[start:] + elements,
            10: lambda _: _vector(_uleb(len(body)) + body for body in bodies),
        },
    )


def _mended(insert: bytes) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield a function, a part of its code that occurs once, and that part as it should be.

    Args:
        insert: the number of the engine's function that makes room in the code of a regular expression.
    """
    # The flag `v` sets the bits of both `v` and `u` (256 and 16), since the engine reads patterns by the latter alone.
    yield "js_compile_regexp", b"\x41\x80\x02", b"\x41\x90\x02"
    # The test for both flags is never true then. Both together set the bit of `u` twice, which is refused as well.
    yield "js_compile_regexp", b"\x41\x90\x02\x46", b"\x41\x91\x02\x46"
    # Each repetition forgets the groups of the one before. What is repeated, from local 3 on, begins with the operation
    # 14, from the first group (local 6) to the last one (at 44 of the state, local 0), if it has any.
    at = b"\x20\x00\x28\x02\x00\x20\x03\x6a"
    begins = b"\x41\x01\x21\x08\x02\x40\x20\x00\x28\x02\x04\x20\x03\x6b\x22\x11"
    has_groups = b"\x20\x06\x20\x00\x28\x02\x2c\x47\x04\x40"
    made_room = b"\x20\x00\x20\x03\x41\x03\x10" + insert + b"\x45\x04\x40"
    first = at + b"\x20\x06\x41\x08\x74\x41\x0e\x72\x3b\x00\x00"
    last = at + b"\x20\x00\x2d\x00\x2c\x41\x01\x6b\x3a\x00\x02\x0b\x0b"
    yield "re_parse_term", begins, has_groups + made_room + first + last + begins
    # The short way of `push` is only for an array (local 6) that has as many elements (at 40) as its length (local 9).
    # On an array with holes at its end, it would make elements of memory that nothing has written.
    fits = b"\x20\x0a\x41\x00\x48\x0d\x00"
    yield "js_array_push", fits, fits + b"\x20\x09\x20\x06\x28\x02\x28\x47\x0d\x00"


_CLOCK_FUNCTION: Final = bytes.fromhex("130020002001200210828080800041ffff03710b")
"""The function of the WASI library that calls `clock_time_get`, which is the import with number 2."""


def _edited(data: bytes, edits: Mapping[int, Callable[[bytes], bytes]]) -> bytes:
    """Return a binary with edits of the bodies of sections, by the numbers of the sections."""
    out = bytearray(data[:8])
    for number, body in _sections(data):
        edited = edits[number](body) if number in edits else body
        out += bytes([number]) + _uleb(len(edited)) + edited
    return bytes(out)


def _sections(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 8
    while at < len(data):
        size, start = _leb(data, at + 1)
        yield data[at], data[start : start + size]
        at = start + size


def _grow_table(body: bytes) -> bytes:
    # one table: count, funcref, flags 1, minimum, maximum
    if body[:3] != b"\x01\x70\x01":
        raise RuntimeUnavailable("the JavaScript engine's function table has an unexpected form")
    minimum, at = _leb(body, 3)
    maximum, _ = _leb(body, at)
    if (minimum, maximum) != (FIRST_GLUE_SLOT, FIRST_GLUE_SLOT):
        raise RuntimeUnavailable("the JavaScript engine's function table has an unexpected size")
    added = GLUE_SLOTS + 2 * len(HOOKED) + CALLED
    return body[:3] + _uleb(minimum + added) + _uleb(maximum + added)


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


_NAMES: Final = b"\x04name"
"""Beginning of the section with names."""


def _function_names(section: bytes) -> dict[str, int]:
    found: dict[str, int] = {}
    at = len(_NAMES)
    while at < len(section):
        part = section[at]
        size, at = _leb(section, at + 1)
        end = at + size
        if part == 1:
            count, at = _leb(section, at)
            for _ in range(count):
                number, at = _leb(section, at)
                length, at = _leb(section, at)
                found[section[at : at + length].decode()] = number
                at += length
        at = end
    return found


def _parameter_counts(section: bytes) -> list[int]:
    """Return the number of parameters of each type of functions. Every type of a value is one byte."""
    count, at = _leb(section, 0)
    found = []
    for _ in range(count):
        parameters, at = _leb(section, at + 1)
        found.append(parameters)
        results, at = _leb(section, at + parameters)
        at += results
    return found


def _numbers(section: bytes) -> list[int]:
    count, at = _leb(section, 0)
    found = []
    for _ in range(count):
        number, at = _leb(section, at)
        found.append(number)
    return found


def _bodies(section: bytes) -> list[bytes]:
    count, at = _leb(section, 0)
    found = []
    for _ in range(count):
        size, at = _leb(section, at)
        found.append(section[at : at + size])
        at += size
    return found


def _element(slot: int, functions: Iterable[int]) -> bytes:
    """Return a segment that fills the table from a slot on."""
    return b"\0\x41" + _sleb(slot) + b"\x0b" + _vector(map(_uleb, functions))


def _vector(items: Iterable[bytes]) -> bytes:
    each = tuple(items)
    return _uleb(len(each)) + b"".join(each)


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
