"""Similarity in meaning of requests to the texts of catalogs. One model for the process, for any number of catalogs."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
import weakref
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.installation import install_command
from codemode_mcp.search.semantic.model import DIMENSIONS, Embedder, Unavailable
from codemode_mcp.search.semantic.vector_file import VectorFile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

log = logging.getLogger("codemode_mcp.semantic")

MAX_REQUEST: Final = 500
"""Characters of a request that are read."""
_REQUESTS: Final = 256
"""Requests whose vectors are remembered."""
_TEXTS: Final = 32
"""Embedded between two looks at whether to stop."""
_SAVE_SECONDS: Final = 20.0
_WIDTH: Final = 2 * DIMENSIONS
"""Bytes of a vector as it is kept: half-precision floats, little-endian."""


class Meaning:
    """Compares requests with texts, once `fill` has made the texts' vectors.

    `fill` is for a thread in the background, everything else for the event loop. An error is logged once; from
    then on there are no similarities, and callers do without.

    Args:
        folder: where vectors are kept.
    """

    def __init__(self, folder: Path, embedder: Embedder | None = None) -> None:
        self._embedder = embedder or Embedder()
        self._file = VectorFile(folder, _WIDTH)
        self._compared: weakref.WeakSet[Compared] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._failed = False
        self._last: tuple[dict[bytes, int], Any] = ({}, None)
        self._ask = lru_cache(_REQUESTS)(lambda request: self._embedder.embed([request])[0])

    def over(self, texts: Callable[[], Sequence[str]]) -> Compared:
        """Texts to compare with; they are asked for when they are filled in, once, in another thread."""
        compared = Compared(self, texts)
        with self._lock:
            self._compared.add(compared)
        return compared

    def ask(self, request: str) -> Any:
        """Return the vector of a request, or None when something went wrong."""
        if self._failed:
            return None
        try:
            return self._ask(request[:MAX_REQUEST])
        except Exception as error:
            self._give_up(error)
            return None

    def fill(self, stopped: Callable[[], bool]) -> None:
        """Load the model and make all vectors that are missing; returns soon after `stopped`."""
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
        """Return a matrix with the vector of each text; None if there was no time for it."""
        import numpy as np

        began = time.monotonic()
        keys = [_key(self._embedder.identity, text) for text in texts]
        places, last = self._last
        known = {key: last[places[key]].tobytes() for key in keys if key in places}
        known |= {
            key: vector
            for key, vector in self._file.read(set(keys) - known.keys()).items()
            # Whatever wrote it, it must be a direction. What is not a number is not near 1 either.
            if abs(np.linalg.norm(np.frombuffer(vector, "<f2").astype(np.float32)) - 1) < 0.01
        }
        missing = list({key: text for key, text in zip(keys, texts, strict=True) if key not in known}.items())
        saved = began
        for start in range(0, len(missing), _TEXTS):
            if stopped():
                break
            some = missing[start : start + _TEXTS]
            for (key, _), vector in zip(some, self._embedder.embed([text for _, text in some]), strict=True):
                known[key] = vector.astype("<f2").tobytes()
            if time.monotonic() - saved > _SAVE_SECONDS:
                self._file.keep(known)
                saved = time.monotonic()
        self._file.keep(known)
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
            "search continues without the extra `semantic`: %s. To mend it: %s",
            what,
            install_command("semantic", again=True),
        )


class Compared:
    """Texts that requests are compared with.

    Attributes:
        texts: gives them.
        vectors: a matrix with one row per text, once it is known.
    """

    def __init__(self, meaning: Meaning, texts: Callable[[], Sequence[str]]) -> None:
        self._meaning = meaning
        self.texts = texts
        self.vectors: Any = None

    def similarities(self, request: str) -> Sequence[float] | None:
        """Return how near a request is to each text, from -1 to 1; None while that is not known."""
        vectors = self.vectors
        if vectors is None:
            return None
        asked = self._meaning.ask(request)
        if asked is None:
            return None
        import numpy as np

        # Not a matrix product: its threads wait for one another where others compute too.
        cosines: list[float] = np.einsum("ij,j->i", vectors, asked).tolist()
        return cosines


def _key(identity: str, text: str) -> bytes:
    return hashlib.sha256(f"{identity}\0{text}".encode("utf-8", "surrogatepass")).digest()
