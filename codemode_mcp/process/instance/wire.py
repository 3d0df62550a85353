"""The messages between a relay and the shared instance. Pure.

The relay connects to the control socket of the instance. When both sides know that the other one belongs to this user
(peer credentials of a Unix socket, or proofs with the token of a loopback port), they exchange lines of JSON:

| from | message | meaning |
|---|---|---|
| relay | `{"version": 1, "operation": "attach", "product": ..., "pid": ..., ...}` | `attach_request`: nothing secret |
| instance | `{"ok": true, "product": ..., "pid": ...}` or a refusal | |
| relay | `{"environ": {...}}` | all environment variables of the relay |
| instance | `{"ok": true, "key": ...}` or a refusal | the configuration is loaded with these variables |

A refusal is `{"ok": false, "code": CODE, "lines": [TEXT, ...]}` with one of `REFUSALS`. From then on, both directions
carry the lines of MCP. A line that begins with `MARK` is no line of MCP but a note of one side to the other:

| from | note | meaning |
|---|---|---|
| relay | `{"interrupted": MESSAGE, "run": ID or null, "dispatched": BOOL}` | a request that an earlier instance left |
| instance | `{"progress": REQUEST_ID, "run": ID or null, "dispatched": BOOL}` | its run; whether calls were sent |
| instance | `{"log": TEXT}` | a line for the standard error of the relay |
| instance | `{"leaving": REASON}` | the relay sends nothing more, and attaches again when the connection ends |

When the client has closed its input, the relay closes its sending side. The instance then ends the session of the
client, and closes the connection.

A command at a terminal attaches, too, with the option `command`. Instead of MCP, the lines carry these messages:

| from | message | meaning |
|---|---|---|
| command | `{"arguments": {...}}` | the arguments of the command, first |
| instance | `{"print": TEXT}`, `{"say": TEXT}` | a line of output, a line for a person |
| instance | `{"status": TEXT}` | the new text of the progress line |
| instance | `{"ask": NUMBER, "text": TEXT}`, `{"withdraw": NUMBER}` | a question for the person; it is closed |
| command | `{"answer": NUMBER, "text": TEXT}` | the line that the person has typed |
| instance | `{"result": {...}}` | the result of the command, last |

The command `repl` exchanges more messages, which `extensions.repl.app_programs` lists.

When a person interrupts the command, it closes its sending side. The instance then cancels the program, and closes the
connection without a result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

VERSION: Final = 1
"""Version of the messages on the control socket, the same as `server.control.protocol.VERSION`."""

MARK: Final = b"\x01"
"""First byte of a note. No line of JSON begins with it."""

MAX_LINE: Final = 256 * 1024 * 1024
"""Maximum bytes of one message, in both directions."""

MAX_NOTE: Final = 64 * 1024
"""Maximum bytes of a note of an instance. A note of a relay contains a message of the client, which may be larger."""

LEAVING: Final = "leaving"
"""The code of a refusal by an instance that is ending. The relay waits for its end, and starts another instance."""

REFUSALS: Final = (LEAVING, "version", "private", "invalid_config", "not_confirmed", "failed")
"""Codes of refusals.

- `version`: the instance has another minor version, and is not older than the relay.
- `private`: the configuration has `instance.shared: false`.
"""


def attach_request(
    *,
    product: str,
    pid: int,
    config: str | None,
    found: bool,
    digest: str | None,
    folder: str,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the first message of a relay.

    Args:
        product: the version of codemode-mcp.
        config: the absolute path of the configuration file; None for the defaults.
        found: True if the file was found in the working directory, so that a person has to confirm it.
        digest: SHA-256 of the file.
        folder: the working directory of the client.
        options: the options of `serve` for this client: `readOnly`, `locked`, `context`, `logLevel`, `logFile`.
    """
    return {
        "version": VERSION,
        "operation": "attach",
        "product": product,
        "pid": pid,
        "config": config,
        "found": found,
        "digest": digest,
        "folder": folder,
        "options": dict(options),
    }


def encode_line(message: Mapping[str, Any]) -> bytes:
    """Return a message as a line of ASCII, with its line feed."""
    return json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"


def encode_note(note: Mapping[str, Any]) -> bytes:
    return MARK + encode_line(note)


def decode_note(line: bytes) -> dict[str, Any]:
    """Return the note in a line that begins with `MARK`; empty if the note is not valid."""
    try:
        note = json.loads(line[len(MARK) :].decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return {}
    return note if isinstance(note, dict) else {}


def minor_version(version: str) -> tuple[str, ...]:
    """Return the major and minor number of a version. Relays and instances that agree in them understand each other."""
    return tuple(version.split(".")[:2])
