"""The engine: QuickJS on WebAssembly, compiled once, with warm images that guests start from.

Why it is built so:

- A guest never calls the host. The prelude keeps the requests of a program as text, and the host takes it at the end of
  a turn, when the job queue is dry. So parallel calls cost one turn, and between turns no WebAssembly frame is live:
  linear memory is the whole state. That is why a program can be suspended anywhere. Host functions were considered and
  rejected: a program that waits in one has frames on the stack, which no snapshot can store.
- The engine is booted and the prelude evaluated once (`images`). For each catalog the guest's `MCP` objects are built
  once on top, and a run starts as a copy of that memory. A large image slows every run down.
  So if there are more than 300 tools that are not MCP tools, the image has only their text, and a program that uses
  them builds their list and their functions.
- Images are the same in every process, so a snapshot is the XOR with its image, about 7 KB for a small program. Free
  memory in an image is zero, which keeps snapshots small.
- Programs are written for Node.js. Where the engine differs from the standard, or from V8 where the standard leaves a
  choice, functions of the engine jump to the glue (`binary.with_hooks`), which may call the prelude.
- The compiled form is kept on disk (`compiled`), since compiling takes seconds. It is machine code, so a file is used
  only from a folder that no other user can write to.
- wasmtime's pooling allocator keeps the memory and the stack of a guest for the next one, and restores them first. New
  memory costs a page fault for each touched page, which took half of the time of a small program. Memory that no guest
  has used for some seconds goes back to the system (`PooledMemory`), and so does the copy of an image that snapshots
  are compared with. Where address space is limited, or for very many guests, each guest has memory of its own.

How a program is stopped. The engine asks our interrupt handler, in WebAssembly, every few thousand operations. Past the
deadline the program ends with its state intact, so that its output is kept and its function is known. Code that
swallows the interruption, such as an executor of a promise, does not change the verdict. The epoch stops code that does
not ask: while it advances, a callback looks at the clock. Afterwards, the engine is asked once more for the output. The
engine's own stack check makes deep recursion a `RangeError`. If the memory limit is reached, it throws an error, which
can be distinguished from a guest's imitation.

Invariants:

- A snapshot of another format, engine, prelude or catalog is refused by name. It is never migrated.
- A guest continues after a snapshot as if there had been none. A restored guest does the same with the same deliveries,
  because its random generator is in its memory. Only its clock is that of the machine, or of a recording (`clock`).
- Everything here is synchronous and belongs on a worker thread. Guests run on `Engine.threads`.

Also rejected: `wasmtime` snapshots of whole processes, and CRIU. Linear memory is enough, portable, and a thousand
times smaller.
"""

from __future__ import annotations

import functools
import hashlib
import mmap
import os
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeAlias, TypeVar

import wasmtime
from wasmtime import _ffi as ffi

from codemode_mcp.base.errors import InternalError, RuntimeUnavailable
from codemode_mcp.sandbox.boot import add_intl
from codemode_mcp.sandbox.compiled import ASYNC_STACK, NATIVE_STACK, compile_engine, keep_intl, read_intl
from codemode_mcp.sandbox.images import (
    BOOT_MEMORY,
    INTL_BYTES,
    Entries,
    Image,
    at_rest,
    image_of,
    intl_of,
    load_image,
    tidy,
    with_intl,
)
from codemode_mcp.sandbox.instance import Instance, Modules, PooledMemory

_MAX_IMAGE_MEMORY = 2 * 1024 * 1024 * 1024
"""Maximum bytes of memory of an instance that makes an image."""

UNUSED_SECONDS = 5.0
"""Time without use after which an image's memory is forgotten."""

_CACHED_IMAGES = 8
"""Maximum number of cached images. The least recently used one is dropped first."""

GUESTS_PER_THREAD = 16
"""Maximum number of guests in memory for each thread. Most guests wait for calls, and each may use `memoryLimitBytes`.
More programs begin only after one of these has ended or was suspended."""

_MORE_GUESTS = 64
"""Further instances in the pool: for images and snapshots in progress, and for guests about to be freed."""

_MAX_POOLED = 640
"""Maximum number of pooled guests; beyond it there is no pool. Each takes `_SLOT_BYTES` of the 128 TiB of address space
that systems have."""

_MAX_MEMORY = 1 << 32
_SLOT_BYTES = _MAX_MEMORY + (1 << 28)
"""Address space of one guest, including the guard after it."""

_KEPT_BYTES = 2560 * 1024
_KEPT_STACK_BYTES = 64 * 1024
"""Memory and stack of an ended guest that stay resident, until `PooledMemory` gives the memory back. An image has
2.4 MB, and each page that is not kept costs the next guest a fault."""

_UNUSED_GUESTS = 1
"""Number of free memories up to which the pool gives a guest a memory that no guest of its module has used."""


class Engine:
    """The compiled engine, opened by `open_engine`. Thread-safe."""

    def __init__(
        self,
        engine: wasmtime.Engine,
        modules: Modules,
        threads: GuestThreads,
        entries: Entries,
        *,
        intl: Callable[[], bytes],
        cache_dir: Path | None,
    ) -> None:
        self._read_intl = intl
        self._cache_dir = cache_dir
        self._intl_lock = threading.Lock()
        self._intl_bundle: tuple[str, bytes] | None = None
        self._intl_base: Image | None = None
        self.modules = modules
        self.threads = threads
        self._ticker = Ticker(engine)
        self._images: OrderedDict[str, Image] = OrderedDict()
        self._images_lock = threading.Lock()
        self.base = self._read_base(entries)

    def ticking(self) -> AbstractContextManager[None]:
        """Return a context in which `Instance.limit` has effect."""
        return self._ticker

    def image(self, manifest: str) -> Image:
        """Return the warm image for a catalog's manifest (JSON text, see `prelude/70_api.js`), made once per text.

        Raises:
            RuntimeUnavailable: the manifest is of an image with `Intl`, and its bundle is missing or another one.
        """
        image = self.cached_image(manifest)
        if image is not None:
            return image
        image = self._make_image(manifest)
        with self._images_lock:
            self._images[manifest] = image
            while len(self._images) > _CACHED_IMAGES:
                self._images.popitem(last=False)
        return image

    def with_intl(self, manifest: str) -> str:
        """Return the manifest of the image that has `Intl`, too.

        Raises:
            RuntimeUnavailable: the bundle is missing.
        """
        return with_intl(manifest, self._bundle()[0])

    def cached_image(self, manifest: str) -> Image | None:
        """Return the warm image for a manifest; None if it is not made yet."""
        with self._images_lock:
            image = self._images.get(manifest)
            if image is not None:
                self._images.move_to_end(manifest)
            return image

    def forget_unused(self, seconds: float = UNUSED_SECONDS) -> bool:
        """Give back memory that was not used for `seconds` and can be restored. Return True if there was any."""
        with self._images_lock:
            images = [self.base, *self._images.values()]
            if self._intl_base is not None:
                images.append(self._intl_base)
        return sum(image.forget_unused(seconds) for image in images) + self.modules.pool.give_back(seconds) > 0

    def close(self) -> None:
        """Stop the threads. Guests that still compute are stopped within a few ticks."""
        self.modules.closing.set()
        self._ticker.close()
        self.threads.close()

    def _read_base(self, entries: Entries) -> Image:
        instance = Instance(self.modules, BOOT_MEMORY)
        try:
            base = image_of(instance.image(), entries)
        finally:
            instance.close()
        base.read = self._read_again
        return base

    def _read_again(self, image: Image) -> bytes:
        instance = Instance(self.modules, _MAX_IMAGE_MEMORY)
        try:
            if not instance.grow_to(image.pages):
                raise InternalError("there is no memory for an image of the sandbox")
            instance.write_all(image.changes)
            memory = instance.image()
        finally:
            instance.close()
        return at_rest(memory, image.entries)

    def _bundle(self) -> tuple[str, bytes]:
        """Return the digest of the bundle with `Intl`, and the bundle, read once."""
        if self._intl_bundle is None:
            content = self._read_intl()
            self._intl_bundle = hashlib.sha256(content).hexdigest(), content
        return self._intl_bundle

    def _base_with_intl(self, digest: str) -> Image:
        """Return the image without a catalog that has `Intl`, made once: it takes 0.2 s."""
        here, bundle = self._bundle()
        if here != digest:
            raise RuntimeUnavailable(
                f"the program uses Intl {digest[:8]}, and here is {here[:8]}; continue it with the version of "
                "codemode-mcp that started it"
            )
        with self._intl_lock:
            if self._intl_base is None:
                image = read_intl(self._cache_dir, digest, self.base)
                if image is None:
                    image = self._make_base_with_intl(bundle)
                    keep_intl(self._cache_dir, digest, self.base, image)
                image.read = self._read_again
                self._intl_base = image
            return self._intl_base

    def _make_base_with_intl(self, bundle: bytes) -> Image:
        instance = Instance(self.modules, _MAX_IMAGE_MEMORY)
        try:
            load_image(instance, self.base)
            with self.ticking():
                instance.limit(60)
                add_intl(instance, self.base.entries, bundle)
            return image_of(tidy(instance), self.base.entries, self.base, beside=INTL_BYTES)
        finally:
            instance.close()

    def _make_image(self, manifest: str) -> Image:
        intl = intl_of(manifest)
        base = self.base if intl is None else self._base_with_intl(intl)
        instance = Instance(self.modules, _MAX_IMAGE_MEMORY)
        entries = base.entries
        try:
            load_image(instance, base)
            with self.ticking():
                instance.limit(60)
                raw = manifest.encode()
                at = instance.call("malloc", len(raw) + 1)
                instance.write(at, raw + b"\0")
                minute = 60_000_000_000
                status = instance.glue("run", entries.install, at, len(raw), minute, entries.collect, minute)
                instance.call("free", at)
                instance.glue("release")
                if status & 0xFFFFFFFF:
                    raise InternalError("the catalog could not be installed in the sandbox")
            image = image_of(tidy(instance), entries, base)
        finally:
            instance.close()
        image.read = self._read_again
        return image


@contextmanager
def open_engine(
    cache_dir: Path | None, *, max_threads: int, intl: Callable[[], bytes] | None = None
) -> Iterator[Engine]:
    """Yield the engine, compiled or from `cache_dir`. Compiling takes about a second.

    Args:
        cache_dir: the folder for the compiled form; None to compile without a cache.
        max_threads: maximum number of guests that compute concurrently. A few more threads take snapshots.
        intl: reads the bundle with `Intl`; None if there is none. It may raise `RuntimeUnavailable`.

    Raises:
        RuntimeUnavailable: the binary is missing, not the expected one, or does not start.
    """
    config, pooled = _config(GUESTS_PER_THREAD * max_threads + _MORE_GUESTS)
    pool = PooledMemory(_KEPT_BYTES if pooled else 0)
    with _one_processor():
        engine = wasmtime.Engine(config)
    linker = wasmtime.Linker(engine)
    linker.define_wasi()
    threads = GuestThreads(max_threads + SNAPSHOT_THREADS)
    try:
        compiled = threads.submit(compile_engine, engine, linker, pool, cache_dir).result()
        modules = Modules(engine, linker, linker.instantiate_pre(compiled.main), compiled.glue, pool)
        opened = Engine(engine, modules, threads, compiled.entries, intl=intl or _no_intl, cache_dir=cache_dir)
    except BaseException:
        threads.close()
        raise
    try:
        yield opened
    finally:
        opened.close()


def _no_intl() -> bytes:
    raise RuntimeUnavailable("Intl is not available here")


def _config(guests: int) -> tuple[wasmtime.Config, bool]:
    """Return the settings of an engine with up to so many concurrent guests, and whether it has a pool for them."""
    config = wasmtime.Config()
    config.epoch_interruption = True
    ffi.wasmtime_config_async_stack_size_set(config.ptr(), ASYNC_STACK)
    config.max_wasm_stack = NATIVE_STACK
    pooled = guests <= _MAX_POOLED and _can_reserve(guests * (_SLOT_BYTES + ASYNC_STACK))
    if pooled:
        _pool(config, guests)
    return config, pooled


@contextmanager
def _one_processor() -> Iterator[None]:
    """Let the thread see one processor for the duration of the context.

    wasmtime divides its pool into a part for each processor and assigns threads to them in turn. Each part keeps the
    memory of an ended guest. Guest threads come and go, so with many processors that would be much memory.
    """
    try:
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(before)})
    except (AttributeError, OSError):  # not Linux, or not permitted
        yield
        return
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _pool(config: wasmtime.Config, guests: int) -> None:
    """Let guests use the memory and the stack of ended ones.

    wasmtime resets these, in a third of the time that new memory takes: new memory is copied page by page when it is
    first used (https://docs.wasmtime.dev/examples-fast-instantiation.html).
    """
    pool = ffi.wasmtime_pooling_allocation_config_new()
    try:
        for name, value in (
            ("total_core_instances", 2 * guests),  # the engine and its glue
            ("total_memories", guests),
            ("total_tables", guests),
            ("total_stacks", guests),
            ("max_memory_size", _MAX_MEMORY),
            ("linear_memory_keep_resident", _KEPT_BYTES),
            ("async_stack_keep_resident", _KEPT_STACK_BYTES),
            ("max_unused_warm_slots", _UNUSED_GUESTS),
        ):
            getattr(ffi, f"wasmtime_pooling_allocation_config_{name}_set")(pool, value)
        ffi.wasmtime_pooling_allocation_strategy_set(config.ptr(), pool)
    finally:
        ffi.wasmtime_pooling_allocation_config_delete(pool)


def _can_reserve(size: int) -> bool:
    """Return True if so much address space can be reserved. Otherwise wasmtime would end the process."""
    if sys.platform == "win32" or sys.maxsize < 2**32:
        return False
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    try:
        mmap.mmap(-1, size, flags=flags, prot=0).close()
    except (OSError, ValueError, OverflowError):
        return False
    return True


P = ParamSpec("P")
T = TypeVar("T")
_Job: TypeAlias = "tuple[Future[Any], Callable[[], Any]]"

THREAD_STACK = 128 * 1024 * 1024
"""Virtual bytes of a thread's stack. The default for secondary threads is 512 KiB on macOS."""

IDLE_SECONDS = 2.0
"""Time without work after which a thread ends."""

EPOCH_SECONDS = 0.004
"""Period of the epoch. It limits how late the epoch stops a guest, or pauses a turn that takes too long for the event
loop."""

SNAPSHOT_THREADS = 2
"""Number of additional threads for snapshots. Without them, a request whose time is over would queue behind guests that
compute."""


class GuestThreads:
    """The threads of guests, at most `count`, each with a stack that is larger than a guest can use.

    A thread ends after a while without work, which frees the memory of its stack.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._jobs: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._threads = 0
        self._waiting = 0
        self._closed = False

    def submit(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue `work`, and start a thread for it if all others are busy.

        Raises:
            RuntimeError: the threads are closed.
        """
        future: Future[T] = Future()
        with self._changed:
            if self._closed:
                raise RuntimeError("the engine is closed")
            self._jobs.append((future, functools.partial(work, *args, **kwargs)))
            if self._waiting >= len(self._jobs):
                self._changed.notify()
            elif self._threads < self._count:
                self._threads += 1
                # The stack size is a setting of the process, so it is changed only for the start of the thread.
                previous = threading.stack_size(THREAD_STACK)
                try:
                    threading.Thread(target=self._run, name="guest").start()
                except RuntimeError:
                    self._threads -= 1
                    # Another thread would do the work later. If there is none, the work is not accepted.
                    if not self._threads:
                        self._jobs.pop()
                        raise
                finally:
                    threading.stack_size(previous)
        return future

    def close(self) -> None:
        """Take no more work, cancel queued work, and let the threads end."""
        with self._changed:
            self._closed = True
            while self._jobs:
                self._jobs.popleft()[0].cancel()
            self._changed.notify_all()

    def _run(self) -> None:
        while (job := self._next()) is not None:
            future, work = job
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:
                    future.set_exception(error)
            del future, work, job  # a thread that waits for work must not keep the last guest alive

    def _next(self) -> _Job | None:
        with self._changed:
            while not self._jobs:
                self._waiting += 1
                woken = not self._closed and self._changed.wait(IDLE_SECONDS)
                self._waiting -= 1
                if not woken and not self._jobs:
                    self._threads -= 1
                    return None
            return self._jobs.popleft()


class Ticker(AbstractContextManager[None]):
    """A thread that advances the engine's epoch as long as at least one caller is in the context."""

    _CLOSING_TICKS = 1000
    _IDLE_TICKS = 50
    """Ticks without callers after which the thread sleeps. Waking it for every turn would cost more than the turn."""

    def __init__(self, engine: wasmtime.Engine) -> None:
        self._engine = engine
        self._inside = 0
        self._asleep = True
        self._closed = False
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="epoch", daemon=True).start()

    def __enter__(self) -> None:
        with self._changed:
            self._inside += 1
            if self._asleep:
                self._changed.notify()

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._inside -= 1

    def close(self) -> None:
        """Let the thread end, after it has let the callers see their deadlines."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        idle = 0
        while True:
            with self._changed:
                if self._inside:
                    idle = 0
                while idle >= self._IDLE_TICKS and not self._inside and not self._closed:
                    self._asleep = True
                    self._changed.wait()
                self._asleep = False
                if self._closed:
                    break
            idle += 1
            time.sleep(EPOCH_SECONDS)
            self._engine.increment_epoch()
        # Callers that are still inside check their deadlines when the epoch advances.
        for _ in range(self._CLOSING_TICKS):
            if not self._inside:
                break
            time.sleep(EPOCH_SECONDS)
            self._engine.increment_epoch()
