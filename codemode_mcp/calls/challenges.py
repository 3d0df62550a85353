"""Authentication challenges in the results of tools. Pure.

A tool that needs a login of the user may answer with `_meta["mcp/www_authenticate"]`: values of the HTTP header
`WWW-Authenticate` (RFC 9110, section 11.6.1). Clients that know this key then let the user log in. The result of a
nested call ends in a program, so the challenges are passed on with the answer to its request.
"""

from __future__ import annotations

import re
from typing import Any, Final

CHALLENGES_KEY: Final = "mcp/www_authenticate"
"""Key in the `_meta` of a tool result."""

MAX_CHALLENGES: Final = 8
"""Maximum number of challenges of one result, and of one answer."""

MAX_LENGTH: Final = 2_000
"""Maximum length of one challenge in characters."""

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_VALUE = rf'(?:{_TOKEN}|"(?:[\t !\x23-\x5b\x5d-\x7e]|\\[\t\x20-\x7e])*")'
_PARAMETER = rf"{_TOKEN}[ \t]*=[ \t]*{_VALUE}"
_CHALLENGE: Final = re.compile(rf"{_TOKEN} +{_PARAMETER}(?:[ \t]*,[ \t]*{_PARAMETER})*")
"""A scheme with parameters."""


def challenges_of(result: Any) -> tuple[str, ...]:
    """Return the challenges in the result of a tool. Malformed ones are left out."""
    meta = result.get("_meta") if isinstance(result, dict) else None
    found = meta.get(CHALLENGES_KEY) if isinstance(meta, dict) else None
    if found is None:
        return ()
    listed = found if isinstance(found, list) else [found]
    return tuple(filter(_is_challenge, listed[:MAX_CHALLENGES]))


def _is_challenge(value: object) -> bool:
    return isinstance(value, str) and len(value) <= MAX_LENGTH and _CHALLENGE.fullmatch(value) is not None
