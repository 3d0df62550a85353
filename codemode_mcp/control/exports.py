"""The recordings of runs for a terminal, sent in pieces: one line of the control socket has a limited size."""

from __future__ import annotations

import base64
import zlib
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread

from codemode_mcp.control.protocol import BadMessage
from codemode_mcp.recordings.recordings import NotKept

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.control.protocol import Request

PIECE: Final = 8 * 1024 * 1024
"""Maximum bytes of one piece, compressed."""


class Exports:
    """The answers to `export`. The latest recording is remembered until its last piece is sent.

    Args:
        export: see `Control`.
    """

    def __init__(self, export: Callable[[str], bytes] | None) -> None:
        self._export = export
        self._run = ""
        self._packed = b""

    async def answer(self, request: Request) -> dict[str, Any]:
        """Return a piece of a recording: its compressed bytes as Base64, and whether it is the last one.

        Raises:
            BadMessage: the recording is not kept.
        """
        if request.after == 0:
            self._packed = await anyio.to_thread.run_sync(self._pack, request.run)
            self._run = request.run
        elif request.run != self._run or request.after >= len(self._packed):
            raise BadMessage("another terminal has exported a recording meanwhile; repeat the command")
        piece = self._packed[request.after : request.after + PIECE]
        last = request.after + len(piece) >= len(self._packed)
        if last:
            self._run, self._packed = "", b""
        return {"piece": base64.b64encode(piece).decode(), "last": last}

    def _pack(self, run_id: str) -> bytes:
        try:
            if self._export is None:
                raise NotKept("audit.keepRecordingBytes is 0")
            return zlib.compress(self._export(run_id), 3)
        except NotKept as error:
            why = f": {error}" if str(error) else ""
            raise BadMessage(
                f"the recording of run {run_id[:80]!r} is not kept{why}; to record programs in files, set "
                "audit.recordings, or start the server with serve --record DIR"
            ) from None
