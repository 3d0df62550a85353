"""The identity of the process at the other end of the control socket.

On a Unix socket, the system names the user of a process. On a loopback port, each side proves that it knows the token
in the endpoint's file. A relay uses this module while its client waits, so it imports little.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from hashlib import sha256
else:
    # `hashlib` loads OpenSSL, which takes 8 ms and 4 MB. `random` of the standard library does the same.
    try:
        from _sha2 import sha256
    except ImportError:
        try:
            from _sha256 import sha256  # before Python 3.12
        except ImportError:
            from hashlib import sha256

__all__ = ["peer_user", "proof", "proves", "sha256"]


def peer_user(connected: socket.socket) -> int | None:
    """Return the user id of the process at the other end of a Unix socket; None if the system does not know it."""
    try:
        if hasattr(socket, "SO_PEERCRED"):
            found = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            uid: int = struct.unpack("3i", found)[1]
            return uid
        # Level 0 is `SOL_LOCAL`. `struct xucred` of macOS and FreeBSD begins with a version and the user id.
        found = connected.getsockopt(0, getattr(socket, "LOCAL_PEERCRED", 1), 128)
        return int(struct.unpack_from("=II", found)[1])
    except (OSError, struct.error):
        return None


def proof(token: str, side: Literal["client", "server"], nonces: tuple[str, str]) -> str:
    """Return a proof that a side knows the token. The proof does not disclose the token.

    Each proof contains the side and the nonces of both sides, so that it cannot be used by the other side, or again.

    Args:
        nonces: those of the server and of the client.
    """
    import hmac  # only loopback ports need it

    return hmac.new(token.encode(), "\n".join((side, *nonces)).encode(), "sha256").hexdigest()


def proves(given: object, token: str, side: Literal["client", "server"], nonces: tuple[str, str]) -> bool:
    """Return True if `given` is the proof of a side."""
    import hmac

    # The comparison takes the same time for all wrong proofs, so that it gives no hint at the right proof.
    return isinstance(given, str) and hmac.compare_digest(given.encode(), proof(token, side, nonces).encode())
