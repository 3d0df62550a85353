"""Requests that ask for several things, split into their wishes. Pure.

Models often put a whole task into one search: "create a spreadsheet, add a chart and send it by email". If it is ranked
as a whole, a tool that matches a little of each wish precedes the tools for single wishes. So each wish is also ranked
alone. A full sentence counts as one wish, because its commas and conjunctions mostly add reasons.
"""

from __future__ import annotations

import re
from typing import Final

from codemode_mcp.search.words import STOP_WORDS, content_words, tokens

MAX_WISHES: Final = 6
"""Maximum number of wishes of a request that are ranked alone."""
MIN_WORDS: Final = 2
"""Minimum number of content words of a wish. "create, edit and delete files" is one wish: short parts join the next."""
MAX_STOP_SHARE: Final = 0.35
"""Maximum share of stop words in a list of keywords. A request with more of them is a sentence."""

_MAX_TEXT: Final = 1_000
_BETWEEN: Final = re.compile(r"[;,\n]|\s/\s|[.!?]\s|\b(?:and|or|then|plus)\b", re.IGNORECASE)
_EXAMPLES: Final = re.compile(
    r"\([^)]*\)?|\b(?:like|such as|e\.?g\b|for example|including)\b.*", re.IGNORECASE | re.DOTALL
)
_JOINING: Final = frozenset(("and", "or", "then", "plus"))


def wishes(request: str) -> list[str]:
    """Return the wishes to rank besides the whole request; none if it has only one.

    Examples are not part of a wish: "run commands such as PDF converters" is the wish to run commands.
    """
    request = request[:_MAX_TEXT]
    if not _BETWEEN.search(request) and not _EXAMPLES.search(request):
        return []
    plain = [token for token in map(str.lower, tokens(request)) if token not in _JOINING]
    if sum(token in STOP_WORDS for token in plain) > MAX_STOP_SHARE * len(plain):
        return []
    whole = content_words(request)
    found: dict[str, None] = {}
    rest = ""
    for part in _BETWEEN.split(request):
        text = _EXAMPLES.sub("", part).strip()
        wish = f"{rest} {text}".strip()
        if len(set(content_words(text))) < MIN_WORDS:
            rest = wish
            continue
        rest = ""
        if content_words(wish) != whole:
            found.setdefault(wish)
    return list(found)[:MAX_WISHES]
