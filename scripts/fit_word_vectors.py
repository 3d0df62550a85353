"""Fit `codemode_mcp/catalog/search/word_vectors.bin`: python scripts/fit_word_vectors.py TEXTS --words WORDS

TEXTS has one short text per line, about software and services; WORDS one common English word per line, the commonest
first. A sentence model (all-MiniLM-L6-v2, the one that the `semantic` extra installs) makes a vector of every text,
word and phrase of the thesaurus; then one vector per stem is fitted, by least squares, so that the sum of a text's word
vectors is near the model's vector of the text, in its 96 leading dimensions. What search asks of them, how near two
short texts are, is thus learned from the model, at the price of a sum.

The shipped file was made from 150,000 one-line summaries of packages on PyPI and npm and the 30,000 commonest English
words. Beside the extra this needs scipy: pip install 'codemode-mcp[semantic]' scipy
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse  # type: ignore[import-untyped]  # it carries no types

from codemode_mcp.catalog.search.finder import MAGIC
from codemode_mcp.catalog.search.index import content_words
from codemode_mcp.extensions.semantic.model import Embedder

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

ROOT = Path(__file__).parents[1]
STEMS = 10_000
DIMENSIONS = 96
LESS = 0.5
"""Weight of one word or phrase alone, beside a text."""
RIDGE = 1.0
STEPS = 40


def main() -> None:
    """Read, embed, fit, write."""
    parser = argparse.ArgumentParser(description="Fit the word vectors that search ships.")
    parser.add_argument("texts", type=Path)
    parser.add_argument("--words", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=ROOT / "codemode_mcp" / "catalog" / "search" / "word_vectors.bin")
    given = parser.parse_args()
    texts = given.texts.read_text("utf-8").splitlines()
    words = given.words.read_text("utf-8").split()
    phrases = thesaurus_phrases()
    vocabulary = choose(texts, words, phrases)
    vectors = Embedder().embed([*texts, *words, *phrases])
    vectors -= vectors[: len(texts)].mean(0)
    weights = np.ones(len(vectors), np.float32)
    weights[len(texts) :] = LESS
    fitted = fit([content_words(text) for text in (*texts, *words, *phrases)], vectors, weights, vocabulary)
    scale = np.percentile(np.abs(fitted), 99.9)
    rounded = np.clip(np.round(fitted / scale * 127), -127, 127).astype(np.int8)
    given.out.write_bytes(MAGIC + b"%d\n" % DIMENSIONS + " ".join(vocabulary).encode() + b"\n" + rounded.tobytes())


def thesaurus_phrases() -> list[str]:
    """Both sides of every line of the thesaurus."""
    found: dict[str, None] = {}
    for line in (ROOT / "codemode_mcp" / "catalog" / "search" / "thesaurus.txt").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            found.update(dict.fromkeys(part.strip() for part in line.replace(">", "|").replace("=", "|").split("|")))
    return list(found)


def choose(texts: Sequence[str], words: Sequence[str], phrases: Sequence[str]) -> dict[str, int]:
    """Return the stems that get a vector: frequent in texts, common in English, or in the thesaurus."""
    worth: Counter[str] = Counter()
    for text in texts:
        worth.update(set(content_words(text)))
    for rank, word in enumerate(words[:20_000]):
        for stem in content_words(word):
            worth[stem] += round(30 * (1 - rank / 20_000))
    for phrase in phrases:
        for stem in content_words(phrase):
            worth[stem] += 20
    return {stem: number for number, (stem, _) in enumerate(worth.most_common(STEMS))}


def fit(
    texts: Sequence[Sequence[str]],
    vectors: npt.NDArray[np.float32],
    weights: npt.NDArray[np.float32],
    vocabulary: dict[str, int],
) -> npt.NDArray[np.float32]:
    """Ridge regression of the vectors on the texts' words, by conjugate gradients."""
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    for row, (text, weight) in enumerate(zip(texts, weights, strict=True)):
        counts = Counter(vocabulary[stem] for stem in text if stem in vocabulary)
        for column, count in counts.items():
            rows.append(row)
            columns.append(column)
            values.append(float(weight) * count / counts.total() ** 0.5)
    words: Any = scipy.sparse.csr_matrix((values, (rows, columns)), (len(texts), len(vocabulary)), np.float32)
    target = vectors * weights[:, None]
    target = target @ np.linalg.eigh(target.T @ target)[1][:, ::-1][:, :DIMENSIONS]
    transposed = words.T.tocsr()
    residual = transposed @ target
    fitted = np.zeros_like(residual)
    direction = residual.copy()
    error = (residual * residual).sum(0)
    for _ in range(STEPS):
        moved = transposed @ (words @ direction) + RIDGE * direction
        step = error / ((direction * moved).sum(0) + 1e-9)
        fitted += step * direction
        residual -= step * moved
        before, error = error, (residual * residual).sum(0)
        direction = residual + error / (before + 1e-9) * direction
    explained = 1 - ((words @ fitted - target) ** 2).sum() / (target**2).sum()
    print(f"{len(texts)} texts, {len(vocabulary)} stems, {explained:.3f} of the variance explained")
    return np.asarray(fitted, np.float32)


if __name__ == "__main__":
    main()
