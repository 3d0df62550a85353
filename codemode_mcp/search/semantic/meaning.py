"""Similarity in meaning of requests to the texts of catalogs, with one model for all catalogs of the process."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
import weakref
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.installation import install_command
from codemode_mcp.search.semantic.model import DIMENSIONS, Embedder, Unavailable
from codemode_mcp.search.semantic.vector_file import VectorFile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

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
