"""JSON files with or without comments and trailing commas: reading and parsing."""

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

MAX_BYTES = 256 * 1024
"""Size limit of a file. The JSON5 reader needs about a second for 100 KB."""

_SYNTAX_ERROR = re.compile(r"<string>:(\d+) Unexpected (.*) at column (\d+)", re.DOTALL)
_COMMENTS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\Z)|//[^\r\n\u2028\u2029]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_TRAILING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\Z)|[{\[]\s*,|,(?=\s*[}\]])', re.DOTALL)
"""A trailing comma. The pattern also matches strings and commas after an opening bracket, to pass over them: a comma in
a string is not a trailing comma, and `[,]` is invalid."""

FileState = tuple[int, ...] | None
"""Numbers that change when a file changes; None for a missing file."""


class SourceError(Exception):
    """Error for a file that cannot be read or parsed.

    The message continues a sentence that begins with the name of the file. It does not quote the content of the file.
    """


class JsonObject(dict[str, Any]):
    """A JSON object.

    Attributes:
        repeated: keys that the text has more than once.
    """

    def __init__(self, pairs: Iterable[tuple[str, Any]]) -> None:
        listed = list(pairs)
        super().__init__(listed)
        self.repeated: list[str] = []
        if len(self) != len(listed):
            self.repeated = [key for key, count in Counter(key for key, _ in listed).items() if count > 1]


def file_states(paths: Iterable[Path]) -> tuple[FileState, ...]:
    """Return the state of each file. The state of a symbolic link is that of its target."""
    return tuple(map(_file_state, paths))


def _file_state(path: Path) -> FileState:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(status.st_mode):
        return None  # reading from a pipe may never end
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_dev


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file, with or without a byte order mark.

    Raises:
        SourceError: the file cannot be read, is larger than `MAX_BYTES` or is not text.
    """
    return read_file(path)[0]


def read_file(path: Path) -> tuple[str, os.stat_result]:
    """Return the text of a file as `read_text` does, and the status of the file that was read.

    Raises:
        SourceError: see `read_text`.
    """
    try:
        # The status is that of the open file: the path may lead to another file a moment later.
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            data = file.read(MAX_BYTES + 1)
    except IsADirectoryError:
        raise SourceError("cannot be read: it is a folder; name a file in it, such as codemode-mcp.json") from None
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror}") from None
    except ValueError:  # a NUL in the name
        raise SourceError("cannot be read: this is not a file name") from None
    if len(data) > MAX_BYTES:
        raise SourceError(f"is larger than {MAX_BYTES // 1024} KiB; check that it is the right file")
    return text_of(data), status


def text_of(data: bytes) -> str:
    """Decode UTF-8, with or without a byte order mark.

    Raises:
        SourceError: the data is not text.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceError(f"is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    if "\0" in text:
        raise SourceError("has NUL bytes, so it is not text; save it as UTF-8")
    return text


def parse(text: str) -> Any:
    """Return the JSON value of a text, with objects as `JsonObject`.

    Raises:
        SourceError: the text is not JSON.
    """
    if not text.strip():
        raise SourceError('is empty; write at least {"mcpServers": {}}')
    try:
        return _parse(text)
    except RecursionError:
        raise SourceError("is nested too deeply") from None
    except ValueError as error:
        first = text.lstrip("\ufeff").lstrip()[0]
        if first.isalpha() or (first in "[-#" and not text.lstrip().startswith(("[{", "[]"))):
            raise SourceError(
                "is not valid JSON: it looks like YAML or TOML; write it as JSON, which begins with {, "
                'as in {"mcpServers": {}}'
            ) from None
        raise SourceError(_syntax_message(str(error), text)) from None


def _parse(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=JsonObject)
    except json.JSONDecodeError:
        pass
    try:
        return json.loads(without_comments(text), object_pairs_hook=JsonObject)
    except json.JSONDecodeError as error:
        if len(text) > MAX_BYTES:
            raise SourceError(f"is not valid JSON: line {error.lineno}, column {error.colno}: {error.msg}") from None
        # The JSON5 reader is a thousand times slower, so it is used only for files that need it. Its error is reported.
        import json5

        return _join_surrogates(json5.loads(text, object_pairs_hook=JsonObject))


def without_comments(text: str) -> str:
    """Return the text with spaces in place of comments and trailing commas. All positions stay the same."""
    return _TRAILING.sub(_blanks, _COMMENTS.sub(_blanks, text))


def _blanks(match: re.Match[str]) -> str:
    found = match[0]
    # Strings, invalid commas and comments that are not closed stay as they are.
    if found[0] not in "/," or (found.startswith("/*") and (len(found) < 4 or not found.endswith("*/"))):
        return found
    return re.sub(r"[^\r\n]", " ", found)


def _join_surrogates(value: Any) -> Any:
    """Return the value with surrogate pairs as characters. The JSON5 reader does not join escaped pairs."""
    match value:
        case str():
            return (
                value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
            )
        case list():
            return [_join_surrogates(item) for item in value]
        case JsonObject():
            joined = JsonObject((_join_surrogates(key), _join_surrogates(item)) for key, item in value.items())
            joined.repeated += value.repeated
            return joined
    return value


def _syntax_message(message: str, text: str) -> str:
    match = _SYNTAX_ERROR.fullmatch(message)
    if match is None:  # the only other error of both readers
        return "is not valid JSON: a number in it is too long"
    line, found, column = match.groups()
    if found.startswith('"'):
        found = json.dumps(found[1:-1])
    hint = _missing_comma(text, int(line), int(column))
    return f"is not valid JSON: line {line}, column {column}: unexpected {found}{hint}"


def _missing_comma(text: str, line: int, column: int) -> str:
    lines = without_comments(text).split("\n")
    if line > len(lines):
        return ""
    before = "\n".join([*lines[: line - 1], lines[line - 1][: column - 1]])
    begins = re.match(r'["\w{\[]', lines[line - 1][column - 1 :])
    if not begins or not re.search(r'["\w}\]]\s*\Z', before):
        return ""
    end = before.rstrip().count("\n") + 1
    return "; a comma is missing before it" if end == line else f"; a comma is missing at the end of line {end}"
