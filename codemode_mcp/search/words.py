"""Text as the words that are compared. Pure.

Names are split at case and punctuation, words are brought to their stem (Snowball's English stemmer), so that
`createIssue`, `create_issue` and "creating issues" give the same. Accents go; scripts without spaces are compared by
pairs of characters.
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
"""Letters of a word that count."""
MAX_TOKEN: Final = 128
"""Characters of what stands between spaces and punctuation that count."""

_TOKEN: Final = re.compile(r"[^\W_]+")
_BETWEEN: Final = dict.fromkeys((code for code in range(128) if not chr(code).isalnum()), " ")
_PART: Final = re.compile(r"[A-Z]{2,}s(?![a-z])|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^a-zA-Z0-9]+")
_WEB: Final = re.compile(r"https?://.*|www\..*|[\w-]+\.(?:com|org|net|io|dev)(?:/.*)?", re.DOTALL)
_MAIL: Final = re.compile(r"[^@]+@[^@.]+\.[^@]+")
_FILE: Final = re.compile(r"[\w/.~-]*[\w/~-]\.[a-z]{2,4}")
_NUMBER: Final = re.compile(r"[^\w]*[0-9][0-9.,:%-]*[^\w]*")
_CODE_NAME: Final = re.compile(r"[A-Za-z]{1,3}[0-9]+[A-Za-z]?|[0-9][A-Za-z]{1,2}")
"""`s3`, `k8s`, `sha256`, `2fa`: one word, which its parts are not."""
_ACRONYMS: Final = re.compile(r"[A-Z]{2,}s")
_UNSPACED: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]{3,}")

# Two paragraphs: words that fill a request, and vague words.
_FILLERS, _VAGUE_WORDS = (resources.files("codemode_mcp.search") / "stop_words.txt").read_text("utf-8").split("\n\n")
FILLERS: Final = frozenset(_FILLERS.split())
"""Words without a meaning of their own in a request."""
STOP_WORDS: Final = FILLERS | frozenset(_VAGUE_WORDS.split())
"""Words that say nothing about which tool is meant when they stand alone; in a phrase they may: "log in", "who is"."""


def words(text: str) -> list[str]:
    """Return the stems of a text, in order, stop words included."""
    return [stem for token in tokens(text) for stem in stems(token)]


def telling_words(text: str) -> list[str]:
    """Return the stems of a request without stop words; with them where there is nothing else."""
    return _without(STOP_WORDS, text)


def phrase_words(text: str) -> list[str]:
    """Return the stems of a request or a phrase without fillers; with them where there is nothing else."""
    return _without(FILLERS, text)


def _without(unwanted: frozenset[str], text: str) -> list[str]:
    found = tokens(" ".join(map(_named, text.split()))) or tokens(text)
    kept = [token for token in found if token.lower() not in unwanted]
    return [stem for token in kept or found for stem in stems(token) if len(stem) > 1 or not stem.isalpha()]


def _named(word: str) -> str:
    """Return what a word of a request is an example of: a page, an address, a file; numbers say nothing."""
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
        return "file"
    return "" if _NUMBER.fullmatch(bare) else word


def tokens(text: str) -> list[str]:
    """Return what stands between spaces and punctuation, as written; `stems` tells the words in it."""
    if text.isascii():
        found = text.translate(_BETWEEN).split()
    else:
        # Letters without their accents: what a stemmer for English knows, and what people type. Marks that stand alone
        # go first: to bring a long row of them into order takes quadratic time.
        plain = _without_marks(unicodedata.normalize("NFKD", _without_marks(text)))
        found = _TOKEN.findall(unicodedata.normalize("NFC", plain))
    return [token[:MAX_TOKEN] for token in found] if max(map(len, found), default=0) > MAX_TOKEN else found


def _without_marks(text: str) -> str:
    return "".join(c for c in text if not unicodedata.combining(c))


@lru_cache(maxsize=32_768)
def stems(token: str) -> tuple[str, ...]:
    """Return the stems of the words in one token: of `createIssues`, `create` and `issu`."""
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
    """Return one for each thread: stemmers keep the word they work on."""
    stem: Callable[[str], str] | None = getattr(_of_thread, "stem", None)
    if stem is None:
        # Imported when first needed: a server whose programs never search does without.
        import snowballstemmer  # type: ignore[import-untyped]  # it carries no types

        stem = _of_thread.stem = snowballstemmer.stemmer("english").stemWord
    return stem


_of_thread = threading.local()
