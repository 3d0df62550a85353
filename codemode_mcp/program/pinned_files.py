"""Files in the user's cache whose content is pinned by a hash."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from upstream_clients.private_files import exposure, open_private


def why_untrusted(path: Path, sha256: str | None, thing: str) -> str | None:
    """Return why a cached file must not be used; None if it may be. The digest is computed once for each version.

    Args:
        sha256: the pinned digest; None if there is none for this machine, so that no content is the pinned one.
        thing: what the file should be, for the message.
    """
    try:
        why = exposure(path)
        if why is not None:
            return why
        with open_private(path) as file:
            status = os.fstat(file.fileno())
            key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            if (key, sha256) not in _verified:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                if digest != sha256:
                    return f"it is not {thing} as pinned; its SHA-256 is {digest}"
                _verified.add((key, sha256))
    except OSError as error:
        return error.strerror or type(error).__name__
    return None


_verified: set[tuple[tuple[int, ...], str | None]] = set()
"""Files whose digest this process has checked, by identity and times of the file."""
