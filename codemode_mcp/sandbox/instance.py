"""One WebAssembly instance of the engine with its glue: its calls, its memory and its deadline.

Instances use wasmtime's C API directly for speed: `Instance.exports` builds a dict of 290 entries (8 ms), and
`Func.__call__` reads the type of the function on every call. An instance must not be used by two threads at the same
time, except for `interrupt`. The module is long because calls of the C API stay beside the object that frees what they
allocate.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import struct
import sys
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain
from typing import Any, Final

import wasmtime
from msgspec import Struct, field
from wasmtime import _ffi as ffi

from codemode_mcp.base.errors import InternalError
from codemode_mcp.sandbox.binary import PAGE

_LIBC: Final[Any] = ctypes.CDLL(None) if sys.platform == "linux" else None

_BATCH: Final = 16
"""Maximum number of memories that are given back in one call. Each takes 0.2 ms."""


class PooledMemory:
    """The memories that wasmtime's pool keeps for later instances, some of which can be given back to the system.

    After an instance, the pool resets its memory and keeps it resident: 2.4 MB for each guest of the largest number of
    concurrent guests so far. The pages are a private mapping of the module's image and of zeros, so the kernel can drop
    them and restore them when they are next used. Memory is given back only while no instance is made, since the pool
    may choose any free memory for that. Thread-safe.

    Args:
        kept: bytes of each memory that the pool keeps resident; 0 without a pool.
    """

    def __init__(self, kept: int) -> None:
        self._kept = 0 if _LIBC is None else kept
        self._lock = threading.Lock()
        self._users: dict[int, object] = {}
        """An object for each live instance, by the address of its memory."""
        self._free: dict[int, float] = {}
        """Monotonic seconds at which each free memory was last used, by address."""

    @contextmanager
    def making(self) -> Iterator[None]:
        """Give back no memory for the duration of the context."""
        with self._lock:
            yield

    def take(self, address: int, user: object) -> None:
        """Record that an instance has the memory at an address. Must be called within `making`."""
        self._users[address] = user
        self._free.pop(address, None)

    def leave(self, address: int, user: object) -> None:
        """Record that an instance is freed. Another one may have its memory already."""
        with self._lock:
            if self._users.get(address) is user:
                del self._users[address]
                self._free[address] = time.monotonic()

    def give_back(self, seconds: float) -> bool:
        """Give back memories that were not used for so long. Return True if there were any."""
        if not self._kept or not self._free:
            return False
        with self._lock:
            latest = time.monotonic() - seconds
            unused = [address for address, since in self._free.items() if since <= latest][:_BATCH]
            for address in unused:
                del self._free[address]
                _LIBC.madvise(ctypes.c_void_p(address), ctypes.c_size_t(self._kept), mmap.MADV_DONTNEED)
        return bool(unused)


class GuestTrap(Exception):
    """Error for WebAssembly that stopped while it computed. The instance must be dropped.

    Attributes:
        interrupted: True if it was stopped because its time was over.
    """

    def __init__(self, message: str, *, interrupted: bool) -> None:
        super().__init__(message)
        self.interrupted = interrupted


class Modules(Struct, frozen=True):
    """The compiled modules of instances, and what the instances share."""

    engine: wasmtime.Engine
    linker: wasmtime.Linker
    main: wasmtime.InstancePre
    glue: wasmtime.Module
    pool: PooledMemory
    """The memory that all modules of the engine share."""
    closing: threading.Event = field(default_factory=threading.Event)
    """Set when the engine closes, which stops all instances."""


class Instance:
    """A live instance in its own store.

    Args:
        memory_limit: maximum bytes of its linear memory.
    """

    def __init__(self, modules: Modules, memory_limit: int) -> None:
        self._store = wasmtime.Store(modules.engine)
        self._store.set_limits(memory_size=memory_limit, instances=2, tables=1, memories=1)
        # Without arguments, environment, directories and inherited streams, only the clock remains.
        self._store.set_wasi(wasmtime.WasiConfig())
        self._alarm = _Alarm(modules.closing)
        self._epoch_callback = _epoch_callback(self._alarm)
        ffi.wasmtime_store_epoch_deadline_callback(self._store.ptr(), self._epoch_callback, None, _FINALIZER())
        self._store.set_epoch_deadline(_LOOK_EVERY)
        self._context = self._store._context()
        self._pool = modules.pool
        with modules.pool.making():
            self._main = modules.main.instantiate(self._store)._instance
            self._memory = self._export(self._main, "memory").of.memory
            # All of its address space is reserved, so the memory keeps its address when it grows.
            data = ffi.wasmtime_memory_data(self._context, ctypes.byref(self._memory))
            self._address, self._user = ctypes.addressof(data.contents), object()
            modules.pool.take(self._address, self._user)
        self._size = 0
        self._glue = self._instantiate(modules.glue, self._glue_imports())
        self._functions: dict[str, ffi.wasmtime_func_t] = {}
        self._calls: dict[str, _AsyncCall] = {}
        self._interruption: int | None = None

    def close(self) -> None:
        """Free the store. The instance must not be used afterwards."""
        self._store.close()
        self._pool.leave(self._address, self._user)

    def limit(self, seconds: float) -> None:
        """Make later calls trap `seconds` from now.

        This stops code that does not ask the glue for the time. The deadline is checked while the engine's epoch
        advances.
        """
        self._alarm.deadline = time.monotonic() + seconds
        self._store.set_epoch_deadline(_LOOK_EVERY)

    def pause_after(self, seconds: float) -> None:
        """Make the next call of `steps` pause after about `seconds`. No other call may come before it."""
        self._alarm.pause_at = time.monotonic() + seconds
        ffi.wasmtime_context_set_epoch_deadline(self._context, 1)

    def watch(self, at: int) -> None:
        """Enable `interrupt`. `at`: the word of guest memory that the glue reads when it checks the time."""
        self._interruption = self._address + at

    def interrupt(self) -> None:
        """Stop the computation in progress, if any. May be called from any thread while the instance is open."""
        self._alarm.stopped = True
        if self._interruption is not None:
            ctypes.c_uint32.from_address(self._interruption).value = 1

    # calls

    def call(self, name: str, *arguments: int) -> int:
        """Call an exported function of the engine. Both i32 and i64 are passed and returned as 64-bit patterns.

        Raises:
            GuestTrap: it trapped.
        """
        return self._call(self._function(self._main, name), arguments)

    def glue(self, name: str, *arguments: int) -> int:
        """Call an exported function of the glue module. Raises as `call`."""
        return self._call(self._function(self._glue, name), arguments)

    def steps(self, name: str, *arguments: int) -> Generator[None, None, int]:
        """Call an exported function of the glue module that takes long. Yield when it pauses.

        It pauses at most once, as set by `pause_after`, and may be continued on another thread. The generator must be
        run to its end before any other use of the instance.

        Raises:
            GuestTrap: it trapped.
        """
        call = self._calls.get(name)
        if call is None:
            call = self._calls[name] = _AsyncCall(self._function(self._glue, name), _SIGNATURES[name])
        future = call.begin(self._context, arguments)
        try:
            while not ffi.wasmtime_call_future_poll(future):
                yield
        finally:
            ffi.wasmtime_call_future_delete(future)
            self._alarm.pause_at = math.inf
        if call.trap or call.error:
            del self._calls[name]
            self._raise_for(call.trap, call.error)
        return int(call.result.of.i32)

    def _function(self, instance: Any, name: str) -> Any:
        function = self._functions.get(name)
        if function is None:
            function = self._functions[name] = self._export(instance, name).of.func
        return function

    def _call(self, function: Any, arguments: tuple[int, ...]) -> int:
        values = (ffi.wasmtime_val_raw_t * max(1, len(arguments)))()
        for value, argument in zip(values, arguments, strict=False):
            value.i64 = argument
        trap = ctypes.POINTER(ffi.wasm_trap_t)()
        error = ffi.wasmtime_func_call_unchecked(
            self._context, ctypes.byref(function), values, len(values), ctypes.byref(trap)
        )
        self._raise_for(trap, error)
        return int(values[0].i64)

    def _raise_for(self, trap: Any, error: Any) -> None:
        if trap:
            stopped = wasmtime.Trap._from_ptr(trap)
            code = stopped.trap_code
            name = "an abort" if code is None else code.name.lower().replace("_", " ")
            raise GuestTrap(name, interrupted=code is wasmtime.TrapCode.INTERRUPT)
        if error:
            message = str(wasmtime.WasmtimeError._from_ptr(error))
            if self._alarm.rang:
                raise GuestTrap("out of time", interrupted=True)
            raise InternalError("the sandbox failed: " + message.splitlines()[0])

    # memory

    @property
    def pages(self) -> int:
        return int(ffi.wasmtime_memory_size(self._context, ctypes.byref(self._memory)))

    def read(self, at: int, size: int) -> bytes:
        """Return bytes of the memory. Raise `InternalError` if the range is outside."""
        self._check(at, size)
        return ctypes.string_at(self._address + at, size)

    def write(self, at: int, data: bytes) -> None:
        """Write bytes into the memory. Raise `InternalError` if the range is outside."""
        self._check(at, len(data))
        ctypes.memmove(self._address + at, data, len(data))

    def write_all(self, pieces: Sequence[tuple[int, bytes]]) -> None:
        """Write pieces in ascending order. Raise `InternalError` if one is outside the memory."""
        if pieces:
            self._check(pieces[0][0], pieces[-1][0] + len(pieces[-1][1]) - pieces[0][0])
        address, move = self._address, ctypes.memmove
        for at, data in pieces:
            move(address + at, data, len(data))

    def _check(self, at: int, size: int) -> None:
        if at < 0 or size < 0 or at + size > self._size:
            self._size = self.pages * PAGE  # memory never shrinks
            if at < 0 or size < 0 or at + size > self._size:
                raise InternalError("the sandbox answered with an address outside its memory")

    def image(self) -> bytearray:
        """Return a copy of the memory."""
        copy = bytearray(self.pages * PAGE)
        ctypes.memmove((ctypes.c_char * len(copy)).from_buffer(copy), self._address, len(copy))
        return copy

    def grow_to(self, pages: int) -> bool:
        """Grow the memory to at least so many pages. Return False if the memory limit does not allow that."""
        missing = pages - self.pages
        if missing <= 0:
            return True
        previous = ctypes.c_uint64(0)
        error = ffi.wasmtime_memory_grow(self._context, ctypes.byref(self._memory), missing, ctypes.byref(previous))
        if error:
            wasmtime.WasmtimeError._from_ptr(error)  # takes ownership, to free it
            return False
        return True

    def stack_pointer(self) -> int:
        """Return the stack pointer. At rest it has its initial value, so that the memory is the whole state."""
        value = ffi.wasmtime_val_t()
        ffi.wasmtime_global_get(
            self._context, ctypes.byref(self._export(self._main, "stack_pointer").of.global_), ctypes.byref(value)
        )
        return int(value.of.i32)

    # foreign function details

    def _export(self, instance: Any, name: str) -> Any:
        item = ffi.wasmtime_extern_t()
        if not ffi.wasmtime_instance_export_get(
            self._context, ctypes.byref(instance), _c_name(name), len(name), ctypes.byref(item)
        ):
            raise InternalError(f"the JavaScript engine does not export {name!r}")
        return item

    def _glue_imports(self) -> Any:
        imports = (ffi.wasmtime_extern_t * len(GLUE_IMPORTS))()
        for at, name in enumerate(GLUE_IMPORTS):
            imports[at] = self._export(self._main, name)
        return imports

    def _instantiate(self, module: wasmtime.Module, imports: Any) -> Any:
        instance = ffi.wasmtime_instance_t()
        trap = ctypes.POINTER(ffi.wasm_trap_t)()
        error = ffi.wasmtime_instance_new(
            self._context, module.ptr(), imports, len(imports), ctypes.byref(instance), ctypes.byref(trap)
        )
        if error:
            raise wasmtime.WasmtimeError._from_ptr(error)
        if trap:
            raise wasmtime.Trap._from_ptr(trap)
        return instance


@cache
def _c_name(name: str) -> Any:
    return ctypes.create_string_buffer(name.encode())


GLUE_IMPORTS: Final = ("memory", "table", "stack_pointer")
"""Exports of the engine in the order of the imports that `binary.with_calls` leaves in `glue.wat`."""

_LOOK_EVERY = 25
"""Ticks of the epoch between two checks of the deadline."""

_I32: Final = 0
_I64: Final = 1
_SIGNATURES: Final = {"run": (_I64, _I32, _I32, _I64, _I64, _I64)}
"""Types of the parameters of the functions of the glue for `steps`. Their result is an i32."""

_CONTINUE = 0
_YIELD = 1
_FINALIZER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_size_t,
    ctypes.POINTER(ffi.wasmtime_context_t),
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_uint64),
    ctypes.POINTER(ffi.wasmtime_update_deadline_kind_t),
)


class _AsyncCall:
    """A function that is called often, with the memory that its calls need.

    Attributes:
        result: the result of the last call.
        trap, error: the failure of the last call, or null pointers. After a failure it must not be called again.
    """

    def __init__(self, function: Any, kinds: Sequence[int]) -> None:
        self._values = (ffi.wasmtime_val_t * len(kinds))()
        # One call of `pack_into` writes all values. Each is its kind, followed by its content.
        before = ffi.wasmtime_val_t.of.offset
        whole = ctypes.sizeof(ffi.wasmtime_val_t) - before
        forms = {_I32: f"I{whole - 4}x", _I64: f"q{whole - 8}x"}
        self._pack = struct.Struct("=" + "".join(f"B{before - 1}x{forms[kind]}" for kind in kinds))
        self._kinds = tuple(kinds)
        self.result = ffi.wasmtime_val_t()
        self.trap = ctypes.POINTER(ffi.wasm_trap_t)()
        self.error = ctypes.POINTER(ffi.wasmtime_error_t)()
        self._arguments = (
            ctypes.byref(function),
            self._values,
            len(kinds),
            ctypes.byref(self.result),
            1,
            ctypes.byref(self.trap),
            ctypes.byref(self.error),
        )

    def begin(self, context: Any, arguments: tuple[int, ...]) -> Any:
        self._pack.pack_into(self._values, 0, *chain.from_iterable(zip(self._kinds, arguments, strict=True)))
        return ffi.wasmtime_func_call_async(context, *self._arguments)


class _Alarm:
    """The deadline of an instance. Any thread may set `stopped`; the rest belongs to the owner."""

    def __init__(self, closing: threading.Event) -> None:
        self._closing = closing
        self.deadline = math.inf
        self.pause_at = math.inf
        self.stopped = False
        self.rang = False

    def check(self) -> bool:
        self.rang = self.stopped or self._closing.is_set() or time.monotonic() >= self.deadline
        return self.rang


def _epoch_callback(alarm: _Alarm) -> Any:
    def callback(_context: Any, _data: Any, delta: Any, kind: Any) -> int:
        if alarm.check():
            error = ffi.wasmtime_error_new(ctypes.create_string_buffer(b"out of time"))
            return ctypes.cast(error, ctypes.c_void_p).value or 0
        if alarm.pause_at == math.inf:
            delta[0], kind[0] = _LOOK_EVERY, _CONTINUE
        elif time.monotonic() < alarm.pause_at:
            delta[0], kind[0] = 1, _CONTINUE
        else:
            alarm.pause_at = math.inf
            delta[0], kind[0] = _LOOK_EVERY, _YIELD
        return 0

    return _CALLBACK(callback)
