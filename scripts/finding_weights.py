"""Learn `codemode_mcp/extensions/findings/finding_weights.toml`: python scripts/finding_weights.py RECORDED

RECORDED is a folder of recorded lists of tools, which are honest. The other definitions are in `tests/trust/labelled`,
but for the sets in `BLIND`, which measure what was learned. Each passage of up to three sentences is an example. Of a
poisoned definition it is not known which passage is the attack. So the first round weighs all of its passages, and the
next rounds only the two that were heaviest before.

The script first learns without one set and some of the recorded lists in turn, and prints how well the weights do on
those. That gives the sum from which honest definitions rarely have a finding. Then it learns from all definitions, and
writes the file. The least sum that is a finding is also above those of all recorded lists.

`--measure` writes no file. This needs scikit-learn: pip install scikit-learn
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.sparse import csr_matrix  # type: ignore[import-untyped]  # it carries no types
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]  # it carries no types

from codemode_mcp.extensions.findings.definition_texts import FoldedTexts, texts_of
from codemode_mcp.extensions.findings.finding_checks import WEIGHTS_FILE, passages
from codemode_mcp.extensions.findings.finding_rules import read_sentences

LABELLED: Final = Path(__file__).resolve().parents[1] / "tests" / "trust" / "labelled"
LINE: Final = 118

ROUNDS: Final = 5
HEAVIEST: Final = 2
"""Number of passages of a poisoned definition that count as its attack."""
LEAST_DEFINITIONS: Final = 2
"""Number of definitions that have to have a word."""
STRENGTH: Final = 10.0
"""Inverse of the regularization."""
LABELLED_HONEST: Final = 4.0
"""Weight of an honest labelled passage, compared with a recorded one. Those are longer and more alike."""
HARD: Final = 0.5
"""The sum from which a recorded passage counts more in the next round."""
HARD_TIMES: Final = 20
SHARE: Final = 0.3
"""Weight of all poisoned passages, compared with that of all honest ones."""
LEAST_WEIGHT: Final = 0.2
"""Smaller weights are left out of the file."""
FALSE_ALARMS: Final = 0.03
"""Share of honest labelled definitions that may have a finding, when they are held out."""


RECORDED: Final = "recorded"
"""The groups of recorded lists begin so."""

WORDINGS: Final = "wordings"
"""The set of single wordings, which is harder than definitions are."""


BLIND: Final = ("fifth",)
"""Sets that nothing is learned from."""


class Example:
    """One labelled definition."""

    def __init__(self, group: str, poisoned: bool, definition: dict[str, Any], others: frozenset[str]) -> None:
        texts, _ = texts_of(definition)
        folded = FoldedTexts(texts)
        arguments = {text.raw.lower() for text in texts if text.is_name and text.where != "/name"}
        names = {text.raw for text in texts if text.is_name}
        read = read_sentences(folded.lower, folded.sentences, arguments)
        self.group = group
        self.poisoned = poisoned
        self.passages = [passage.features for passage in passages(folded, read, others - names)]


def main() -> None:
    """Read, learn, and write or measure."""
    parser = argparse.ArgumentParser(description="Learn the weights of words in definitions.")
    parser.add_argument("recorded", type=Path)
    parser.add_argument("--measure", action="store_true", help="write no file")
    given = parser.parse_args()
    labelled, recorded = read_labelled(), read_recorded(given.recorded)
    threshold = measure(labelled, recorded)
    if not given.measure:
        write(labelled + recorded, threshold)


def read_labelled() -> list[Example]:
    """Return the labelled definitions, in groups by the set that they are of."""
    return [
        Example(
            path.stem.partition("_")[2], entry["label"] == "poisoned", entry["definition"], frozenset(entry["others"])
        )
        for path in sorted(LABELLED.glob("*.json"))
        if path.stem.partition("_")[2] not in BLIND
        for entry in json.loads(path.read_text("utf-8"))
    ]


def read_recorded(folder: Path) -> list[Example]:
    """Return the definitions of recorded lists, in groups by their server."""
    lists = [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))]
    names = {each["server"]: {tool["name"] for tool in each["tools"]} for each in lists}
    found = []
    for each in lists:
        others = frozenset(set().union(*names.values()) - names[each["server"]])
        texts = {"name": each["serverInfo"]["name"], "instructions": each["instructions"] or ""}
        found += [Example(f"{RECORDED} {each['server']}", False, one, others) for one in (*each["tools"], texts)]
    return found


def learn(examples: list[Example]) -> tuple[float, dict[str, float]]:
    """Return the sum of no words, and the weight of each feature."""
    counted = Counter(feature for each in examples for feature in set().union(*each.passages, frozenset()))
    known = {name: n for n, name in enumerate(sorted(f for f, n in counted.items() if n >= LEAST_DEFINITIONS))}
    owner = np.array([n for n, each in enumerate(examples) for _ in each.passages])
    matrix = as_matrix([passage for each in examples for passage in each.passages], known)
    poisoned = np.array([examples[n].poisoned for n in owner])
    recorded = np.array([examples[n].group.startswith(RECORDED) for n in owner])
    passages_of = defaultdict(list)
    for row, number in enumerate(owner):
        passages_of[number].append(row)
    model = None
    for _ in range(ROUNDS):
        counts = np.where(poisoned, 0.0, np.where(recorded, 1.0, LABELLED_HONEST))
        heavy = matrix @ model.coef_[0] + model.intercept_[0] if model else None
        if heavy is not None:
            counts[recorded & (heavy > HARD)] *= HARD_TIMES
        for number, rows in passages_of.items():
            if examples[number].poisoned:
                chosen = rows if heavy is None else sorted(rows, key=lambda row: -heavy[row])[:HEAVIEST]
                counts[chosen] = 1 / len(chosen)
        counts[poisoned] *= SHARE * counts[~poisoned].sum() / counts[poisoned].sum()
        counts *= 3 * len(examples) / counts.sum()
        model = LogisticRegression(C=STRENGTH, solver="liblinear", max_iter=300)
        model.fit(matrix[counts > 0], poisoned[counts > 0], sample_weight=counts[counts > 0])
    return float(model.intercept_[0]), dict(zip(known, map(float, model.coef_[0]), strict=True))


def as_matrix(passages_: list[frozenset[str]], known: dict[str, int]) -> Any:
    """Return one row for each passage. The values are such that a product with the weights is the sum of a passage."""
    rows, columns, values = [], [], []
    for row, passage in enumerate(passages_):
        found = sorted(known[feature] for feature in passage if feature in known)
        rows += [row] * len(found)
        columns += found
        values += [1 / math.sqrt(len(passage))] * len(found)
    return csr_matrix((values, (rows, columns)), shape=(len(passages_), len(known)))


def heaviest(example: Example, start: float, of: dict[str, float]) -> float:
    """Return the sum of the heaviest passage."""
    return max(
        (
            start + sum(of.get(each, 0.0) for each in sorted(passage)) / math.sqrt(len(passage) or 1)
            for passage in example.passages
        ),
        default=-math.inf,
    )


def measure(labelled: list[Example], recorded: list[Example]) -> float:
    """Print how well weights do on sets that they were not learned from. Return the least sum that is a finding."""
    servers = sorted({each.group for each in recorded})
    sets = sorted({each.group for each in labelled} - {""})
    held: list[tuple[Example, float]] = []
    for number, name in enumerate(sets):
        left_out = {name, *servers[number :: len(sets)]}
        start, of = learn([each for each in labelled + recorded if each.group not in left_out])
        held += [(each, heaviest(each, start, of)) for each in labelled + recorded if each.group in left_out]
    honest = sorted(
        (s for each, s in held if not each.poisoned and each.group in sets and each.group != WORDINGS), reverse=True
    )
    threshold = honest[int(FALSE_ALARMS * len(honest))]
    for name in (*sets, RECORDED):
        for is_poisoned in (True, False):
            sums = [s for each, s in held if each.group.startswith(name) and each.poisoned is is_poisoned]
            found = sum(each > threshold for each in sums)
            print(f"{name:12} {'poisoned' if is_poisoned else 'honest':9} {found:4} of {len(sums)}")
    return threshold


def write(examples: list[Example], threshold: float) -> None:
    """Learn from all, and write the file."""
    start, of = learn(examples)
    rounded = {name: round(weight, 1) for name, weight in of.items() if abs(weight) >= LEAST_WEIGHT}
    above = max(heaviest(each, start, rounded) for each in examples if each.group.startswith(RECORDED))
    print(f"the heaviest recorded one has {above:.2f}; held out ones needed {threshold:.2f}")
    by_weight = defaultdict(list)
    for name, weight in rounded.items():
        by_weight[weight].append(name)
    lines = [HEAD, f"at_least = {max(threshold, above + 0.05):.2f}", f"start = {start:.3f}", "", "[weights]"]
    for weight in sorted(by_weight, reverse=True):
        lines.append(f'"{weight:+.1f}" = """')
        line = ""
        for name in sorted(by_weight[weight]):
            if len(line) + len(name) > LINE:
                lines.append(line)
                line = ""
            line += f"{' ' if line else ''}{name}"
        lines += [f'{line}"""']
    WEIGHTS_FILE.write_text("\n".join(lines) + "\n", "utf-8")


HEAD: Final = """\
# Weights of words for `finding_weights`, written by scripts/finding_weights.py.
#
# A word stands for all words with its stem. `+tell` is a word of the class `tell` of finding_words.toml, `-tell` one
# that is negated. `=path` and others that begin so are properties of a sentence, from `finding_weights._features`.
# Sentences are a finding if `start`, plus the sum of the weights divided by the square root of the number of different
# features, is at least `at_least`.
"""

if __name__ == "__main__":
    main()
