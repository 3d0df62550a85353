"""From a file to JSON values: plain JSON, or JSON with comments and trailing commas."""

from __future__ import annotations

import json
import os
import re
import stat
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MAX_BYTES = 256 * 1024  # the JSON5 reader needs about a second for 100 KB
_SYNTAX_ERROR = re.compile(r"<string>:(\d+) Unexpected (.*) at column (\d+)", re.DOTALL)

Seen = tuple[int, ...] | None
"""How a file was; None for one that is not there."""


class SourceError(Exception):
    """The file is not what it should be. The message follows the file's name and holds nothing of its content."""


class JsonObject(dict[str, Any]):
    """A JSON object that remembers which of its keys were given more than once."""

    def __init__(self, pairs: Iterable[tuple[str, Any]]) -> None:
        super().__init__()
        self.repeated: list[str] = []
        for key, value in pairs:
            if key in self and key not in self.repeated:
                self.repeated.append(key)
            self[key] = value


def look(paths: Iterable[Path]) -> tuple[Seen, ...]:
    """How each file is, behind symbolic links: equal for equal files."""
    found: list[Seen] = []
    for path in paths:
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            found.append(None)
            continue
        if not stat.S_ISREG(status.st_mode):
            found.append(None)  # reading a pipe may never end
        else:
            found.append((status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_dev))
    return tuple(found)


def read_text(path: Path) -> str:
    """The text of a small UTF-8 file, with or without a byte order mark."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror}") from None
    except ValueError:  # a NUL in the name
        raise SourceError("cannot be read: this is not a file name") from None
    if len(data) > MAX_BYTES:
        raise SourceError(f"is larger than {MAX_BYTES // 1024} KiB; is it the right file?")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceError(f"is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    if "\0" in text:
        raise SourceError("is not text, it holds NUL bytes; save it as UTF-8")
    return text


def parse(text: str) -> Any:
    """The JSON value that `text` holds, its objects as `JsonObject`."""
    if not text.strip():
        raise SourceError('is empty; the least it can hold is {"mcpServers": {}}')
    try:
        return _parse(text)
    except RecursionError:
        raise SourceError("is nested too deeply") from None
    except ValueError as error:
        raise SourceError(_syntax_message(str(error))) from None


def _parse(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=JsonObject)
    except json.JSONDecodeError:
        # Slower by a factor of a thousand, so only for what is no plain JSON; its verdict is the one reported.
        import json5

        return _joined(json5.loads(text, object_pairs_hook=JsonObject))


def _joined(value: Any) -> Any:
    """`value` with pairs of halves as the characters they stand for: the JSON5 reader leaves escaped ones apart."""
    match value:
        case str():
            return (
                value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
            )
        case list():
            return [_joined(item) for item in value]
        case JsonObject():
            whole = JsonObject((_joined(key), _joined(item)) for key, item in value.items())
            whole.repeated += value.repeated
            return whole
    return value


def _syntax_message(message: str) -> str:
    match = _SYNTAX_ERROR.fullmatch(message)
    if match is None:  # the one other refusal of either reader
        return "is not valid JSON: a number in it is too long"
    line, found, column = match.groups()
    if found.startswith('"'):
        found = json.dumps(found[1:-1])
    return f"is not valid JSON: line {line}, column {column}: unexpected {found}"
