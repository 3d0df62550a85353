"""The boot of the engine: the prelude is evaluated in an empty instance, which makes the base image.

All addresses and values that later guests need are read from the booted memory. Where the engine does not export what
is needed (its stack limit, its iterator helpers), a known marker shows where it is; a boot that does not find it fails.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Final

from codemode_mcp.base.errors import InternalError, RuntimeUnavailable
from codemode_mcp.sandbox import binary
from codemode_mcp.sandbox.images import BOOT_MEMORY, SCRATCH, Entries, Image, image_of, tidy
from codemode_mcp.sandbox.instance import Instance, Modules

GC_THRESHOLD = 1024 * 1024
"""Bytes that the engine allocates before it first looks for cycles. Its default is 256 KiB, about the size of what the
warm image holds already."""

NATIVES: Final = (
    ("seed", 1),
    ("random", 0),
    ("randomBytes", 1),
    ("randomUUID", 0),
    ("encodeUtf8", 1),
    ("decodeUtf8", 2),
    ("plainJson", 3),
    ("isProxy", 1),
    ("setCollation", 1),
    ("compare", 2),
    ("grouped", 1),
    ("dateText", 2),
    ("setFunction", 2),
    ("next", 0),
    ("return", 0),
    ("numberText", 0),
    ("bigIntText", 0),
    ("queueMicrotask", 1),
    ("parse", 2),
    ("deferred", 0),
    ("evaluate", 2),
    ("longDigits", 1),
    ("rawStack", 1),
    ("setRawStack", 2),
)
"""Names and lengths of the functions of the glue for the prelude, in the order of their slots."""

INTL_FORM: Final = 1
"""Version of the way in which `add_intl` makes an image."""

STATE = 480
"""Bytes of guest memory that the glue's natives use for the whole life of a guest."""

# Offsets within `STATE`.

_ATOMS_OFFSET = 232
"""Offset of the atoms of property names, for the natives."""

_STACK_LIMIT_OFFSET = 360
_HELPER_NEXT_OFFSET = 364
_CONSTRUCTOR_OFFSET = 368
_HELPER_CLASS_OFFSET = 372
_RETURN_OFFSET = 376
_STACK_OFFSET = 464

_ITERATOR_NEXT: Final = 12
"""`JS_CFUNC_iterator_next`: the kind of a function that returns a value and whether the iteration is done."""


def prelude_source() -> str:
    """Return all prelude files as one function, which takes the natives.

    The web globals come first. They use nothing of the rest, and the rest captures nothing of them. The numbered files
    share one scope, which no guest code can reach. Lines of comments and indentation are left out, since an image has
    the text of every function.
    """
    folder = binary.FOLDER / "prelude"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".js")), key=lambda f: f.name)
    web = [f.read_text("utf-8") for f in files if f.name.startswith("web_")]
    core = [f.read_text("utf-8") for f in files if f.name[:1].isdigit()]
    whole = "\n;".join(web) + '\n;return (function () {\n"use strict";\n' + "\n".join(core) + "\n})()"
    return "(function (natives) {\n" + _COMMENT_OR_INDENT.sub("", whole) + "\n})"


_COMMENT_OR_INDENT: Final = re.compile(r"^[ \t]*(?://.*)?\n?", re.MULTILINE)
"""Beginning of a line of the prelude, which has no texts of several lines."""


def make_base(cold: Modules) -> Image:
    # A snapshot names its image, so every process has to make the same one. Two boots differ only in what the engine
    # took from the clock: its random seed, which the prelude replaces, and its time origin, of which only differences
    # are used. Zeros replace both.
    first, second = _boot_image(cold), _boot_image(cold)
    memory = bytearray(first.memory)
    for offset in _differing_words(first.memory, second.memory):
        memory[offset : offset + 8] = bytes(8)
    return image_of(memory, first.entries)


def _boot_image(cold: Modules) -> Image:
    instance = Instance(cold, BOOT_MEMORY)
    try:
        entries = _boot(instance)
        return image_of(tidy(instance), entries)
    finally:
        instance.close()


def _boot(instance: Instance) -> Entries:
    instance.call("_initialize")
    rt = instance.call("JS_NewRuntime") & 0xFFFFFFFF
    stack_limit = _set_stack_limit(instance, rt)
    instance.call("JS_SetInterruptHandler", rt, binary.FIRST_GLUE_SLOT, 0)
    instance.call("JS_SetHostPromiseRejectionTracker", rt, binary.FIRST_GLUE_SLOT + 1, 0)
    instance.call("JS_SetModuleLoaderFunc", rt, 0, binary.FIRST_GLUE_SLOT + 2, 0)
    instance.call("JS_SetGCThreshold", rt, GC_THRESHOLD)
    ctx = instance.call("JS_NewContext", rt) & 0xFFFFFFFF
    scratch = instance.call("calloc", 1, SCRATCH) & 0xFFFFFFFF
    state = instance.call("calloc", 1, STATE) & 0xFFFFFFFF
    _write_atoms(instance, ctx, state)
    instance.write(state + _STACK_LIMIT_OFFSET, struct.pack("<I", stack_limit))
    instance.write(state + _HELPER_NEXT_OFFSET, struct.pack("<I", _helper_next(instance, ctx)))
    instance.write(state + _HELPER_CLASS_OFFSET, struct.pack("<I", _helper_class(instance, ctx)))
    # Until the prelude's functions are known, only the clock and the natives are needed.
    instance.glue("bind", ctx, rt, scratch, state, 0, 0)
    prelude = _evaluated(instance, ctx, prelude_source().encode(), b"prelude")
    result = prelude if _is_exception(prelude) else _call(instance, ctx, prelude, _natives(instance, ctx))
    if _is_exception(result):
        raise InternalError("the prelude failed: " + _exception_text(instance, ctx, scratch))
    functions = [instance.call("JS_GetPropertyUint32", ctx, result, i) for i in range(8)]
    instance.call("JS_FreeValue", ctx, result)
    instance.call("JS_RunGC", rt)
    return Entries(ctx, rt, scratch, state, *functions)


def add_intl(instance: Instance, entries: Entries, bundle: bytes) -> None:
    """Add `Intl` to a guest of the base image. `bundle`: the script, which evaluates to a function.

    The guest then has no clock and no random numbers yet, so that all processes make the same image.
    """
    ctx = entries.ctx
    function = _evaluated(instance, ctx, bundle, b"intl")
    result = (
        function if _is_exception(function) else _call(instance, ctx, entries.add_intl, function, frees_function=False)
    )
    if _is_exception(result):
        raise InternalError("the bundle with Intl failed: " + _exception_text(instance, ctx, entries.scratch))
    instance.call("JS_RunGC", entries.rt)


def _evaluated(instance: Instance, ctx: int, source: bytes, name: bytes) -> int:
    """Return the value of a script, or the exception."""
    at = instance.call("malloc", len(source) + len(name) + 2) & 0xFFFFFFFF
    instance.write(at, source + b"\0" + name + b"\0")
    value = instance.call("JS_Eval", ctx, at, len(source), at + len(source) + 1, 0)
    instance.call("free", at)
    return value


def _set_stack_limit(instance: Instance, rt: int) -> int:
    """Turn on the engine's stack check. Return the address that its stack must not reach."""
    # On WASI the stack check is off: JSRuntime.stack_limit is 0. A marker in JSRuntime.stack_size shows its address,
    # since stack_top and stack_limit follow that field.
    marker = 0x5EED1234
    instance.call("JS_SetMaxStackSize", rt, marker)
    words = instance.read(rt, 512)
    offset = words.find(marker.to_bytes(4, "little"))
    if offset < 0 or offset % 4:
        raise RuntimeUnavailable("the JavaScript engine's stack limit was not found")
    top = int.from_bytes(words[offset + 4 : offset + 8], "little")
    if not binary.STACK_START < top <= binary.STACK_END:
        raise RuntimeUnavailable("the JavaScript engine's stack is not where it was expected")
    limit = top - binary.USABLE_STACK
    instance.write(rt + offset, binary.USABLE_STACK.to_bytes(4, "little"))
    instance.write(rt + offset + 8, limit.to_bytes(4, "little"))
    return limit


def _write_atoms(instance: Instance, ctx: int, state: int) -> None:
    at = state + _ATOMS_OFFSET

    def atom(name: bytes) -> int:
        instance.write(at, name + b"\0")
        return instance.call("JS_NewAtom", ctx, at) & 0xFFFFFFFF

    instance.write(state + _CONSTRUCTOR_OFFSET, struct.pack("<I", atom(b"constructor")))
    instance.write(state + _RETURN_OFFSET, struct.pack("<I", atom(b"return")))
    to_json, data, blob, stack, message = map(atom, (b"toJSON", b"data", b"blob", b"stack", b"message"))
    symbols = _property(instance, ctx, instance.call("JS_GetGlobalObject", ctx), b"Symbol")
    tag = instance.call("JS_ValueToAtom", ctx, _property(instance, ctx, symbols, b"toStringTag"))
    hidden = _private_name(instance, ctx, at, symbols)
    instance.write(state + _STACK_OFFSET, struct.pack("<3I", stack, message, hidden))
    instance.write(at, struct.pack("<4I", to_json, tag & 0xFFFFFFFF, data, blob))


def _private_name(instance: Instance, ctx: int, at: int, symbols: int) -> int:
    """Return the atom of a new name as that of a private member, which no program can list or use as a key.

    A private name is a symbol with a certain hash (30 bits at 8). It is copied from the engine's name `<brand>`, whose
    atom comes right before those of the symbols.
    """
    brand = instance.call("JS_ValueToAtom", ctx, _property(instance, ctx, symbols, b"toPrimitive")) - 1
    text = instance.call("JS_AtomToCStringLen", ctx, at, brand) & 0xFFFFFFFF
    known = instance.read(text, 8) == b"<brand>\0"
    instance.call("JS_FreeCString", ctx, text)
    instance.write(at, b"frames\0")
    name = instance.call("JS_NewSymbol", ctx, at, 0)
    private = instance.read((instance.call("JS_AtomToValue", ctx, brand) & 0xFFFFFFFF) + 8, 4)
    plain = instance.read((name & 0xFFFFFFFF) + 8, 4)
    if not known or plain == private or (plain[3] ^ private[3]) & 0xC0 or plain[3] < 0xC0:
        raise RuntimeUnavailable("the JavaScript engine's private names are not as expected")
    instance.write((name & 0xFFFFFFFF) + 8, private)
    return instance.call("JS_ValueToAtom", ctx, name) & 0xFFFFFFFF


def _natives(instance: Instance, ctx: int) -> int:
    natives = instance.call("JS_NewObject", ctx)
    first = binary.FIRST_GLUE_SLOT + binary.GLUE_SLOTS - len(NATIVES)
    for slot, (name, length) in enumerate(NATIVES, first):
        at = instance.call("malloc", len(name) + 1) & 0xFFFFFFFF
        instance.write(at, name.encode() + b"\0")
        kind = _ITERATOR_NEXT if name == "next" else 0
        function = instance.call("JS_NewCFunction2", ctx, slot, at, length, kind, 0)
        instance.call("JS_SetPropertyStr", ctx, natives, at, function)
        instance.call("free", at)
    return natives


def _helper_next(instance: Instance, ctx: int) -> int:
    """Return the index in the function table of the engine's `next` of iterator helpers.

    A function object has that index in one word, and its length, kind and magic number in the next. The offset of these
    words is found with a function of the glue, whose index is known.
    """
    known = binary.FIRST_GLUE_SLOT
    at = instance.call("malloc", 64) & 0xFFFFFFFF
    instance.write(at, b"[].values().map((item) => item).next\0")
    name = at + 48
    instance.write(name, b"boot\0")
    probe = instance.call("JS_NewCFunction2", ctx, known, name, 1, _ITERATOR_NEXT, 0)
    own = instance.call("JS_Eval", ctx, at, 36, name, 0)
    marker = struct.pack("<IBBH", known, 1, _ITERATOR_NEXT, 0)
    offset = instance.read(probe & 0xFFFFFFFF, 64).find(marker)
    place: int
    place, kind = struct.unpack("<II", instance.read((own & 0xFFFFFFFF) + max(offset, 0), 8))
    for value in (probe, own):
        instance.call("JS_FreeValue", ctx, value)
    instance.call("free", at)
    if offset < 0 or offset % 4 or kind != _ITERATOR_NEXT << 8 or not 0 < place < known:
        raise RuntimeUnavailable("the JavaScript engine's iterator helpers were not found")
    return place


def _helper_class(instance: Instance, ctx: int) -> int:
    """Return the class id of iterator helpers. The layout of their data must be the one that `glue.wat` relies on."""
    source = b"((it) => [it, it.flatMap(() => [])])({ __proto__: Iterator.prototype, return: () => ({}) })"
    at = instance.call("malloc", 128) & 0xFFFFFFFF
    instance.write(at, source + b"\0")
    name = at + 112
    instance.write(name, b"boot\0")
    both = instance.call("JS_Eval", ctx, at, len(source), name, 0)
    iterator, helper = (instance.call("JS_GetPropertyUint32", ctx, both, i) for i in range(2))
    data = instance.call("JS_GetAnyOpaque", helper, at) & 0xFFFFFFFF
    kind = int.from_bytes(instance.read(at, 4), "little")
    before = instance.read(data, 42)
    instance.write(at, b"return\0")
    method = instance.call("JS_GetPropertyStr", ctx, helper, at)
    ended = instance.call("JS_Call", ctx, method, helper, 0, 0)
    after = instance.read(data, 42)
    for value in (iterator, helper, both, method, ended):
        instance.call("JS_FreeValue", ctx, value)
    instance.call("free", at)
    known = before[:8] == struct.pack("<q", iterator) and before[24:32] == struct.pack("<q", 3 << 32)
    if not known or before[40] != 4 or before[41] & 3 or after[41] != before[41] | 2:
        raise RuntimeUnavailable("the JavaScript engine's iterator helpers are not as expected")
    return kind


def _call(instance: Instance, ctx: int, function: int, argument: int, *, frees_function: bool = True) -> int:
    """Call a function with one argument, and free both, or the argument alone."""
    at = instance.call("malloc", 8) & 0xFFFFFFFF
    instance.write(at, (argument & (1 << 64) - 1).to_bytes(8, "little"))
    result = instance.call("JS_Call", ctx, function, 3 << 32, 1, at)
    for value in (function, argument) if frees_function else (argument,):
        instance.call("JS_FreeValue", ctx, value)
    instance.call("free", at)
    return result


def _property(instance: Instance, ctx: int, value: int, name: bytes) -> int:
    at = instance.call("malloc", len(name) + 1) & 0xFFFFFFFF
    instance.write(at, name + b"\0")
    return instance.call("JS_GetPropertyStr", ctx, value, at)


def _is_exception(value: int) -> bool:
    return (value >> 32) & 0xFFFFFFFF == 6


def _exception_text(instance: Instance, ctx: int, scratch: int) -> str:
    error = instance.call("JS_GetException", ctx)
    texts = []
    for value in (error, _property(instance, ctx, error, b"stack")):
        at = instance.call("JS_ToCStringLen2", ctx, scratch, value, 0) & 0xFFFFFFFF
        size = int.from_bytes(instance.read(scratch, 4), "little")
        texts.append(instance.read(at, size).decode("utf-8", "replace") if at else "?")
    return " ".join(texts)


def _differing_words(a: bytes, b: bytes) -> Iterator[int]:
    for start in range(0, len(a), 4096):
        if a[start : start + 4096] != b[start : start + 4096]:
            yield from (at for at in range(start, start + 4096, 8) if a[at : at + 8] != b[at : at + 8])
