"""The several wishes of one request. Pure.

Models often put all that a task needs into one search: "create a spreadsheet, add a chart and send it by email". Ranked
as a whole, a tool that has a little of each wish comes before the tool for one of them. Each wish is therefore ranked
alone, too. A full sentence is taken for one wish: its commas and conjunctions mostly join reasons to what is asked for.
"""

from __future__ import annotations

import re
from typing import Final

from codemode_mcp.search.words import STOP_WORDS, telling_words, tokens

MAX_WISHES: Final = 4
"""Wishes of a request that are ranked alone; the first ones."""
MIN_WORDS: Final = 2
"""Telling words of a wish. What has fewer belongs to the next one: "create, edit and delete files" is one wish."""
KEYWORDS: Final = 0.35
"""Largest share of stop words in a request that is a list of keywords and no sentence."""

_MAX_TEXT: Final = 1_000
_BETWEEN: Final = re.compile(r"[;,\n]|\s/\s|[.!?]\s|\b(?:and|or|then|plus)\b", re.IGNORECASE)
_EXAMPLES: Final = re.compile(
    r"\([^)]*\)?|\b(?:like|such as|e\.?g\b|for example|including)\b.*", re.IGNORECASE | re.DOTALL
)
_JOINING: Final = frozenset(("and", "or", "then", "plus"))


def wishes(request: str) -> list[str]:
    """Split a request into the wishes to rank beside the whole; none where the whole says it all.

    Examples are left out of a wish: "run commands such as PDF converters" is the wish to run commands.
    """
    request = request[:_MAX_TEXT]
    if not _BETWEEN.search(request) and not _EXAMPLES.search(request):
        return []
    plain = [token for token in map(str.lower, tokens(request)) if token not in _JOINING]
    if sum(token in STOP_WORDS for token in plain) > KEYWORDS * len(plain):
        return []
    whole = telling_words(request)
    found: dict[str, None] = {}
    rest = ""
    for part in _BETWEEN.split(request):
        said = _EXAMPLES.sub("", part).strip()
        wish = f"{rest} {said}".strip()
        if len(set(telling_words(said))) < MIN_WORDS:
            rest = wish
            continue
        rest = ""
        if telling_words(wish) != whole:
            found.setdefault(wish)
    return list(found)[:MAX_WISHES]
