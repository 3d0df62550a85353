"""Reads JSON values from a file: plain JSON, or JSON with comments and trailing commas."""

from __future__ import annotations

import json
import os
import re
import stat
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MAX_BYTES = 256 * 1024  # the JSON5 reader needs about a second for 100 KB
_SYNTAX_ERROR = re.compile(r"<string>:(\d+) Unexpected (.*) at column (\d+)", re.DOTALL)
_COMMENTS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\Z)|//[^\r\n\u2028\u2029]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_TRAILING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\Z)|[{\[]\s*,|,(?=\s*[}\]])', re.DOTALL)
"""A comma before a closing bracket; texts are passed over, and so is a comma behind an opening one, which is wrong."""

Seen = tuple[int, ...] | None
"""State of a file; None for a missing one."""


class SourceError(Exception):
    """The file is not what it should be. The message follows the file's name and holds nothing of its content."""


class JsonObject(dict[str, Any]):
    """A JSON object that remembers which of its keys were given more than once."""

    def __init__(self, pairs: Iterable[tuple[str, Any]]) -> None:
        listed = list(pairs)
        super().__init__(listed)
        self.repeated: list[str] = []
        if len(self) != len(listed):
            self.repeated = [key for key, count in Counter(key for key, _ in listed).items() if count > 1]


def look(paths: Iterable[Path]) -> tuple[Seen, ...]:
    """Return how each file is, behind symbolic links: equal for equal files."""
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
    """Return the text of a small UTF-8 file, with or without a byte order mark."""
    return read_file(path)[0]


def read_file(path: Path) -> tuple[str, os.stat_result]:
    """Return the text of a small UTF-8 file, and whose file it was that the text was read from."""
    try:
        with open(path, "rb") as file:
            about = os.fstat(file.fileno())
            data = file.read(MAX_BYTES + 1)
    except IsADirectoryError:
        raise SourceError("cannot be read: it is a folder; name a file in it, such as codemode-mcp.json") from None
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror}") from None
    except ValueError:  # a NUL in the name
        raise SourceError("cannot be read: this is not a file name") from None
    if len(data) > MAX_BYTES:
        raise SourceError(f"is larger than {MAX_BYTES // 1024} KiB; is it the right file?")
    return text_of(data), about


def text_of(data: bytes) -> str:
    """UTF-8 as text, with or without a byte order mark."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceError(f"is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    if "\0" in text:
        raise SourceError("is not text, it holds NUL bytes; save it as UTF-8")
    return text


def parse(text: str) -> Any:
    """Return the JSON value that `text` holds, its objects as `JsonObject`."""
    if not text.strip():
        raise SourceError('is empty; the least it can hold is {"mcpServers": {}}')
    try:
        return _parse(text)
    except RecursionError:
        raise SourceError("is nested too deeply") from None
    except ValueError as error:
        first = text.lstrip("\ufeff").lstrip()[0]
        if first.isalpha() or (first in "[-#" and not text.lstrip().startswith(("[{", "[]"))):
            raise SourceError(
                'is not valid JSON: it has to begin with {, as in {"mcpServers": {}}; this looks like YAML or TOML, '
                "so write it as JSON"
            ) from None
        raise SourceError(_syntax_message(str(error), text)) from None


def _parse(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=JsonObject)
    except json.JSONDecodeError:
        pass
    try:
        return json.loads(plain(text), object_pairs_hook=JsonObject)
    except json.JSONDecodeError as error:
        if len(text) > MAX_BYTES:
            raise SourceError(f"is not valid JSON: line {error.lineno}, column {error.colno}: {error.msg}") from None
        # Slower by a factor of a thousand, so only for what needs it; its verdict is the one reported.
        import json5

        return _joined(json5.loads(text, object_pairs_hook=JsonObject))


def plain(text: str) -> str:
    """Return the text with blanks for its comments and trailing commas: everything else stays where it is."""
    return _TRAILING.sub(_blanks, _COMMENTS.sub(_blanks, text))


def _blanks(match: re.Match[str]) -> str:
    found = match[0]
    if found[0] not in "/," or (found.startswith("/*") and (len(found) < 4 or not found.endswith("*/"))):
        return found
    return re.sub(r"[^\r\n]", " ", found)


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


def _syntax_message(message: str, text: str) -> str:
    match = _SYNTAX_ERROR.fullmatch(message)
    if match is None:  # the one other refusal of either reader
        return "is not valid JSON: a number in it is too long"
    line, found, column = match.groups()
    if found.startswith('"'):
        found = json.dumps(found[1:-1])
    hint = _missing_comma(text, int(line), int(column))
    return f"is not valid JSON: line {line}, column {column}: unexpected {found}{hint}"


def _missing_comma(text: str, line: int, column: int) -> str:
    """Return a hint where a value ends and the next one begins, or nothing."""
    lines = plain(text).split("\n")
    if line > len(lines):
        return ""
    before = "\n".join([*lines[: line - 1], lines[line - 1][: column - 1]])
    begins = re.match(r'["\w{\[]', lines[line - 1][column - 1 :])
    if not begins or not re.search(r'["\w}\]]\s*\Z', before):
        return ""
    end = before.rstrip().count("\n") + 1
    return "; a comma is missing before it" if end == line else f"; a comma is missing at the end of line {end}"
