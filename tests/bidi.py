"""The order in which a display shows a line, by the Unicode Bidirectional Algorithm (Unicode Standard Annex 9).

For text without explicit formatting characters, which the product escapes anyway. Rules X1 to X8 and N0 (pairs of
brackets) are left out: a display that has not got N0 reorders more.
"""

from __future__ import annotations

import unicodedata

_NEUTRAL = {"B", "S", "WS", "ON"}


def displayed(line: str, base: int = 0) -> str:
    """The characters of a line from left to right. `base`: 0 for a paragraph from left to right, 1 for the other."""
    levels = _levels(line, base)
    order = list(range(len(line)))
    for level in range(max(levels, default=0), 0, -1):  # L2
        start = None
        for at in range(len(order) + 1):
            inside = at < len(order) and levels[at] >= level
            if inside and start is None:
                start = at
            elif not inside and start is not None:
                order[start:at] = reversed(order[start:at])
                levels[start:at] = reversed(levels[start:at])
                start = None
    return "".join(line[at] for at in order)


def _levels(line: str, base: int) -> list[int]:
    given = [unicodedata.bidirectional(character) or "L" for character in line]
    side = "R" if base else "L"
    kinds = _weak(list(given), side)
    _neutral(kinds, side, base)
    levels = [base + _raised(kind, base) for kind in kinds]
    for at in range(len(line) - 1, -1, -1):  # L1
        if given[at] not in ("WS", "S", "B"):
            break
        levels[at] = base
    return levels


def _raised(kind: str, base: int) -> int:  # I1, I2
    if kind == "L":
        return base
    if kind == "R":
        return 1 - base
    return 1 if base else 2


def _weak(kinds: list[str], side: str) -> list[str]:
    before = side
    for at, kind in enumerate(kinds):  # W1
        if kind == "NSM":
            kinds[at] = before
        before = kinds[at]
    strong = side
    for at, kind in enumerate(kinds):  # W2, W3
        if kind in ("L", "R", "AL"):
            strong = kind
        elif kind == "EN" and strong == "AL":
            kinds[at] = "AN"
    kinds = ["R" if kind == "AL" else kind for kind in kinds]
    for at in range(1, len(kinds) - 1):  # W4
        around = {kinds[at - 1], kinds[at + 1]}
        if (kinds[at] in ("ES", "CS") and around == {"EN"}) or (kinds[at] == "CS" and around == {"AN"}):
            (kinds[at],) = around
    at = 0
    while at < len(kinds):  # W5
        end = at
        while end < len(kinds) and kinds[end] == "ET":
            end += 1
        if end > at and ((at > 0 and kinds[at - 1] == "EN") or (end < len(kinds) and kinds[end] == "EN")):
            kinds[at:end] = ["EN"] * (end - at)
        at = max(end, at + 1)
    kinds = ["ON" if kind in ("ES", "ET", "CS") else kind for kind in kinds]  # W6
    strong = side
    for at, kind in enumerate(kinds):  # W7
        if kind in ("L", "R"):
            strong = kind
        elif kind == "EN" and strong == "L":
            kinds[at] = "L"
    return kinds


def _neutral(kinds: list[str], side: str, base: int) -> None:
    at = 0
    while at < len(kinds):  # N1, N2
        end = at
        while end < len(kinds) and (kinds[end] in _NEUTRAL or kinds[end] == "BN"):
            end += 1
        if end > at:
            left = side if at == 0 else _strong(kinds[at - 1])
            right = side if end == len(kinds) else _strong(kinds[end])
            kinds[at:end] = [left if left == right else ("R" if base else "L")] * (end - at)
        at = max(end, at + 1)


def _strong(kind: str) -> str:
    return "R" if kind in ("R", "EN", "AN") else "L"
