"""The `Bearer` challenge of a 401 or 403 (RFC 6750, RFC 9728). Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Challenge:
    """The parameters of a challenge."""

    resource_metadata: str | None = None
    scope: str | None = None
    error: str | None = None


def read_challenge(header: str | None) -> Challenge | None:
    """Return the `Bearer` challenge of a `WWW-Authenticate` header, if there is one."""
    if header is None or not re.search(r"(?:^|,)\s*bearer(?:\s|,|$)", header, re.IGNORECASE):
        return None
    found = {
        name.lower(): quoted or plain
        for name, quoted, plain in re.findall(r'(?:^|[\s,])([A-Za-z_]+)\s*=\s*(?:"([^"]*)"|([^\s,"]+))', header)
    }
    return Challenge(found.get("resource_metadata"), found.get("scope"), found.get("error"))
