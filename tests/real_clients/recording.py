"""A server of standard streams that passes every line on to another one and back: `recording.py LOG COMMAND...`.

LOG gets one JSON object per line: `from` is "client" or "server", `line` the message.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import IO

lock = threading.Lock()


def copy(source: IO[bytes], target: IO[bytes], sender: str, log: IO[str]) -> None:
    """Copy lines until `source` ends or the reader of `target` is gone."""
    try:
        for line in source:
            with lock:
                log.write(json.dumps({"from": sender, "line": line.decode("utf-8", "replace").rstrip("\n")}) + "\n")
                log.flush()
            target.write(line)
            target.flush()
        target.close()
    except (BrokenPipeError, ValueError):
        return


def main() -> int:
    path, *command = sys.argv[1:]
    with (
        open(path, "a", encoding="utf-8") as log,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server,
    ):
        assert server.stdin is not None
        assert server.stdout is not None
        reader = threading.Thread(target=copy, args=(sys.stdin.buffer, server.stdin, "client", log), daemon=True)
        reader.start()
        copy(server.stdout, sys.stdout.buffer, "server", log)
        return server.wait()


if __name__ == "__main__":
    sys.exit(main())
