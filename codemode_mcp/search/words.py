"""Texts as comparable words. Pure.

Names are split at case and punctuation, and words are reduced to their stems by Snowball's English stemmer, so that
`createIssue`, `create_issue` and "creating issues" are equal. Accents are removed. Scripts without spaces are split
into pairs of characters.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_WORD: Final = 40
"""Maximum number of letters of a word that are compared."""
MAX_TOKEN: Final = 128
"""Maximum number of characters of a token that are compared."""

_TOKEN: Final = re.compile(r"[^\W_]+")
_BETWEEN: Final = dict.fromkeys((code for code in range(128) if not chr(code).isalnum()), " ")
_PART: Final = re.compile(r"[A-Z]{2,}s(?![a-z])|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^a-zA-Z0-9]+")
_WEB: Final = re.compile(r"https?://.*|www\..*|[\w-]+\.(?:com|org|net|io|dev)(?:/.*)?", re.DOTALL)
_MAIL: Final = re.compile(r"[^@]+@[^@.]+\.[^@]+")
_FILE: Final = re.compile(r"[\w/.~-]*[\w/~-]\.[a-z]{2,4}")
_KINDS: Final = {
    **dict.fromkeys(("xls", "xlsx", "xlsm"), "excel workbook"),
    **dict.fromkeys(("doc", "docx"), "word document"),
    **dict.fromkeys(("ppt", "pptx"), "presentation"),
    **dict.fromkeys(("png", "jpg", "jpeg", "gif", "webp"), "image"),
    **dict.fromkeys(("mp4", "mov"), "video"),
    **dict.fromkeys(("db", "sqlite"), "database"),
    **{kind: kind for kind in ("csv", "html", "pdf", "zip")},
}
"""Words for the kinds of files that tools often name, by extension."""
_NUMBER: Final = re.compile(r"[^\w]*[0-9][0-9.,:%-]*[^\w]*")
_CODE_NAME: Final = re.compile(r"[A-Za-z]{1,3}[0-9]+[A-Za-z]?|[0-9][A-Za-z]{1,2}")
"""`s3`, `k8s`, `sha256`, `2fa`: single words, although letters and digits alternate."""
_ACRONYMS: Final = re.compile(r"[A-Z]{2,}s")
_UNSPACED: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]{3,}")

# The file has two paragraphs: filler words and vague words.
_FILLERS, _VAGUE_WORDS = (resources.files("codemode_mcp.search") / "stop_words.txt").read_text("utf-8").split("\n\n")
FILLERS: Final = frozenset(_FILLERS.split())
"""Words without meaning in a request."""
STOP_WORDS: Final = FILLERS | frozenset(_VAGUE_WORDS.split())
"""Words that do not distinguish tools, except within a phrase such as "log in" or "who is"."""


def words(text: str) -> list[str]:
    """Return the stems of a text, in order, stop words included."""
    return [stem for token in tokens(text) for stem in stems(token)]


def content_words(text: str) -> list[str]:
    """Return the stems of a request without stop words, unless it has only stop words."""
    return _without(STOP_WORDS, text)


def phrase_words(text: str) -> list[str]:
    """Return the stems of a request or a phrase without fillers, unless it has only fillers."""
    return _without(FILLERS, text)


def _without(unwanted: frozenset[str], text: str) -> list[str]:
    found = tokens(" ".join(map(_generalize, text.split()))) or tokens(text)
    kept = [token for token in found if token.lower() not in unwanted]
    return [stem for token in kept or found for stem in stems(token) if len(stem) > 1 or not stem.isalpha()]


def _generalize(word: str) -> str:
    """Replace an example by its kind: `url`, `email address` or `file`. Numbers are removed; other words stay."""
    if "." not in word and not word[:1].isdigit() and not word[-1:].isdigit():
        return word
    if len(word) > MAX_TOKEN:
        return word
    bare = word.strip(".,;:!?\"'()[]<>`")
    if _WEB.fullmatch(bare):
        return "url"
    if _MAIL.fullmatch(bare):
        return "email address"
    if _FILE.fullmatch(bare):
        return f"file {_KINDS.get(bare.rpartition('.')[2].lower(), '')}"
    return "" if _NUMBER.fullmatch(bare) else word


def tokens(text: str) -> list[str]:
    """Return the parts of a text between spaces and punctuation. A token can have several words; see `stems`."""
    if text.isascii():
        found = text.translate(_BETWEEN).split()
    else:
        # The stemmer knows letters without accents, and people type them. Marks are removed first, because
        # normalizing a long row of them takes quadratic time.
        plain = _without_marks(unicodedata.normalize("NFKD", _without_marks(text)))
        found = _TOKEN.findall(unicodedata.normalize("NFC", plain))
    return [token[:MAX_TOKEN] for token in found] if max(map(len, found), default=0) > MAX_TOKEN else found


def _without_marks(text: str) -> str:
    return "".join(c for c in text if not unicodedata.combining(c))


@lru_cache(maxsize=32_768)
def stems(token: str) -> tuple[str, ...]:
    """Return the stems of the words in one token: `create` and `issu` for `createIssues`."""
    if _CODE_NAME.fullmatch(token):
        return (token.lower(),)
    found: list[str] = []
    for part in _PART.findall(token):
        if _ACRONYMS.fullmatch(part):
            part = part[:-1]
        word = part.lower()
        if _UNSPACED.fullmatch(word):
            found.extend(word[i : i + 2] for i in range(len(word) - 1))
        else:
            found.append(_stemmer()(word[:MAX_WORD]))
    return tuple(found)


def _stemmer() -> Callable[[str], str]:
    """Return the stemmer of the current thread. Stemmers have mutable state."""
    stem: Callable[[str], str] | None = getattr(_thread_state, "stem", None)
    if stem is None:
        # Imported on demand, because many servers never search.
        import snowballstemmer  # type: ignore[import-untyped]  # it carries no types

        stem = _thread_state.stem = snowballstemmer.stemmer("english").stemWord
    return stem


_thread_state = threading.local()
