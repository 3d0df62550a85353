"""The replacement of secrets in texts, also of encoded secrets. Pure."""

from __future__ import annotations

import base64
import json
from functools import lru_cache
from urllib.parse import quote, quote_plus

HIDDEN = "***"

_MIN_BASE64_BYTES = 8
"""Minimum size in bytes of a secret that is also searched in Base64. Shorter ones would match other text."""


def hide(text: str, secrets: tuple[str, ...]) -> str:
    """Return the text with `***` for each of the secrets, plain or encoded: in JSON or Python, in a URL, in Base64."""
    for form in _forms(secrets):
        text = text.replace(form, HIDDEN)
    return text


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
    forms = {
        *(secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]),
        *(quote(data), quote(data, safe=""), quote_plus(data)),
    }
    if len(data) >= _MIN_BASE64_BYTES:
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            forms.add(encode(data).decode())
            # Inside a longer encoded text, the secret begins at one of three positions within a group of three bytes.
            # Only the characters that do not depend on the bytes around the secret are searched.
            for before, first in ((0, 0), (1, 2), (2, 3)):
                shifted = bytes(before) + data
                forms.add(encode(shifted).decode()[first : len(shifted) * 8 // 6])
    return frozenset(forms)
