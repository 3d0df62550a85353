"""The replacement of secrets in texts, also of encoded secrets, and the cutting of texts that may have secrets. Pure.

A redaction cannot find half a secret. So a text is redacted before it is cut. Where the secrets are not known yet, or a
long text must not be searched as a whole, it is cut so that no part of a secret is left at its end.
"""

from __future__ import annotations

import base64
import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, quote_plus

if TYPE_CHECKING:
    from collections.abc import Callable

HIDDEN = "***"

MAX_SECRET: Final = 8 * 1024
"""Characters that are searched behind the end of a text that is cut, so that a secret across the end is found."""

_MAX_NESTED_JSON = 3
"""Maximum number of JSON texts within each other in which a secret is searched."""

_MIN_BASE64_BYTES = 8
"""Minimum size in bytes of a secret that is also searched in Base64. Shorter ones would match other text."""


def hide(text: str, secrets: tuple[str, ...]) -> str:
    """Return the text with `***` for each of the secrets, plain or encoded: in JSON or Python, in a URL, in Base64."""
    for form in _forms(secrets):
        text = text.replace(form, HIDDEN)
    return text


def encodings(secret: str) -> frozenset[str]:
    """Return a secret in all forms that `hide` replaces: plain, in JSON or Python, in a URL, in Base64."""
    return _encodings(secret)


def cut(text: str, limit: int, secrets: tuple[str, ...] = ()) -> str:
    """Return at most `limit` characters of a text, without a part of a secret at the end.

    The text ends before a known secret that the limit would cut in two. It also ends before a word that would be cut,
    since unknown tokens are words of ASCII characters. If half of the text would be lost by that, it ends before the
    letters and digits that would be cut, or else at the limit: no token is that long.
    """
    if len(text) <= limit:
        return text
    end, before = limit, -1
    while end != before:
        before = end
        for form in _forms(secrets):
            found = text.find(form, max(0, end - len(form) + 1), end + len(form) - 1)
            end = end if found < 0 else found
    for kind in (_IN_WORD, _IN_NAME):
        start = end
        while start and kind.match(text, start) and kind.match(text, start - 1):
            start -= 1
        if start > end // 2:
            return text[:start]
    return text[:end]


_IN_WORD: Final = re.compile("[!#-&(-_a-~]")
"""A character of a word: printable ASCII, but no quote."""

_IN_NAME: Final = re.compile("[A-Za-z0-9_-]")


def redacted_start(text: str, limit: int, redact: Callable[[str], str]) -> str:
    """Return at most `limit` characters of a text without its secrets. Only the beginning of a long text is searched.

    Args:
        redact: replaces the secrets in a text.
    """
    return cut(redact(cut(text, limit + MAX_SECRET)), limit)


def basic_credentials(header: str) -> list[str]:
    """Return `user:password` of an `Authorization` header for basic authentication; nothing of any other header."""
    scheme, _, encoded = header.strip().partition(" ")
    if scheme.lower() != "basic":
        return []
    try:
        return [base64.b64decode(encoded).decode()]
    except ValueError:
        return []


@lru_cache(maxsize=256)
def _forms(secrets: tuple[str, ...]) -> tuple[str, ...]:
    # Longest first, so that a secret within another leaves no remainder.
    return tuple(sorted({form for secret in secrets for form in _encodings(secret)}, key=len, reverse=True))


@lru_cache(maxsize=4096)
def _encodings(secret: str) -> frozenset[str]:
    data = secret.encode("utf-8", "surrogatepass")
    # Some writers of JSON, such as PHP, escape each slash. A JSON text is often a string in another one.
    texts = {secret}
    for _ in range(_MAX_NESTED_JSON):
        texts |= {json.dumps(text, ensure_ascii=ascii_)[1:-1] for text in texts for ascii_ in (True, False)}
        texts |= {text.replace("/", "\\/") for text in texts if "\\/" not in text}
    forms = {*texts, repr(secret)[1:-1], quote(data), quote(data, safe=""), quote_plus(data)}
    if len(data) >= _MIN_BASE64_BYTES:
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            forms.add(encode(data).decode())
            # Inside a longer encoded text, the secret begins at one of three positions within a group of three bytes.
            # Only the characters that do not depend on the bytes around the secret are searched.
            for before, first in ((0, 0), (1, 2), (2, 3)):
                shifted = bytes(before) + data
                forms.add(encode(shifted).decode()[first : len(shifted) * 8 // 6])
    return frozenset(forms)
