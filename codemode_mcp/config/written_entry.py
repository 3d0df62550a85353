"""The command line, the URL or the document of a server entry, as it is written, without secrets. Pure.

Pins compare it, so that a name that is given to another server is noticed. Variables stay as `${NAME}`. So the result
has none of their values, and is the same for each person and each machine with the same entry. Secrets that are written
into the entry are replaced, also in the query of a URL: a digest of a short secret could be guessed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.config.literals import secrets_of
from upstream_clients.redaction import HIDDEN
from upstream_clients.spec import KEY_IN_PATH, is_url

if TYPE_CHECKING:
    from collections.abc import Mapping

    from upstream_clients.tools import JsonObject

_KEYS: Final = ("command", "args", "cwd", "url", "openapi", "baseUrl")

_LOGIN: Final = re.compile(r"(?<=://)[^/?#]*@")
_FRAGMENT: Final = re.compile(r"#.*", re.DOTALL)
_PARAMETER: Final = re.compile(r"(?<=[?&])(?:([^=&]*=)[^&]*|[^=&]+)")
"""A parameter in the query of a URL, with or without a name."""


def written_entry(entry: Mapping[str, Any]) -> JsonObject:
    """Return the members of a valid entry that decide which server it is.

    These are `command`, `args` and `cwd`, or `url`, or `openapi` and `baseUrl`.
    """
    hidden = _without_secrets({key: entry[key] for key in _KEYS if key in entry})
    if "url" not in entry and "serverUrl" in entry:
        hidden |= _without_secrets({"url": entry["serverUrl"]})
    for key in ("url", "openapi", "baseUrl"):
        if isinstance(hidden.get(key), str) and (key == "url" or is_url(hidden[key])):
            hidden[key] = _without_parameters(hidden[key])
    # An empty list says the same as none.
    return {key: value for key, value in hidden.items() if value not in (None, [])}


def _without_secrets(members: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: [*value] if isinstance(value, list) else value for key, value in members.items()}
    # From the end, so that the positions of earlier secrets stay true.
    for secret in reversed(secrets_of(members)):
        holder: Any = found
        *way, last = secret.keys
        for key in way:
            holder = holder[key]
        holder[last] = holder[last][: secret.begin] + HIDDEN + holder[last][secret.end :]
    return found


def _without_parameters(url: str) -> str:
    """Return a URL without credentials, values of parameters, and parts of the path that look like a key."""
    beginning, mark, query = _FRAGMENT.sub("", url).partition("?")
    beginning = KEY_IN_PATH.sub(HIDDEN, _LOGIN.sub(f"{HIDDEN}@", beginning))
    return beginning + _PARAMETER.sub(lambda found: (found[1] or "") + HIDDEN, mark + query)
