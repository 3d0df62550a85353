"""Ports on loopback for servers that other processes start."""

from __future__ import annotations

import socket
import sys


def reserved_port() -> int:
    """Return a port on loopback that no other process is given before this process ends.

    A port that is only looked up may be given to another process before its server listens. So the port stays bound.
    Connections to it are refused until a server listens. A server may do so if it sets SO_REUSEADDR, as servers do.
    Only Linux has this rule; on other systems the port is only looked up.
    """
    kept = socket.socket()
    if sys.platform == "linux":
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", 0))
    port = int(kept.getsockname()[1])
    if sys.platform == "linux":
        kept.detach()
    else:
        kept.close()
    return port
