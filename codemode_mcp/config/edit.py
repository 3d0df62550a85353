"""Change the configuration file as its reader would by hand: what is there stays as it is written, comments included.

Only what is added is new text. The file before is kept as a backup, and the new one takes its place at once, so that
nobody reads half of it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from codemode_mcp.config.source import MAX_BYTES, SourceError, parse, read_text
from codemode_mcp.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ATTEMPTS = 5
"""To change a file that another process changes at the same moment."""

MAX_BACKUPS = 10
"""Of one file; the oldest go."""

_TOKEN = re.compile(
    r"""(?P<blank>[\s\ufeff]+|//[^\r\n\u2028\u2029]*|/\*.*?\*/)"""
    r"""|(?P<mark>[{}\[\]:,])"""
    r"""|(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
    r"""|(?P<word>[^\s{}\[\]:,"'/]+)""",
    re.DOTALL,
)
_writing = threading.Lock()


def add_approved(path: Path, ids: Iterable[str], context: str | None = None) -> bool:
    """Add tools to `tools.approved`, or to the `approved` of one of `tools.contexts`; whether any was missing.

    Raises:
        ConfigError: the file cannot be read, changed or written; it is as before.
    """
    keys = ("tools", "approved") if context is None else ("tools", "contexts", context, "approved")
    items = tuple(dict.fromkeys(ids))
    with _writing:
        for _ in range(ATTEMPTS):
            with suppress(_ChangedMeanwhileError):
                return _add_items(path, keys, items)
    raise ConfigError((f"{path} is being changed by somebody else all the time; add the tools by hand",))


class _ChangedMeanwhileError(Exception):
    """Another process has written the file since it was read."""


def _add_items(path: Path, keys: Sequence[str], items: Sequence[str]) -> bool:
    """See `add_approved`."""
    # Behind a symbolic link: what it leads to is changed, and it stays a link.
    path = Path(os.path.realpath(path))
    try:
        before = path.read_bytes()
        text = read_text(path)
        changed = with_items(text, keys, items)
    except OSError as error:
        raise ConfigError((f"{path} cannot be read: {error.strerror}",)) from None
    except SourceError as error:
        raise ConfigError((f"{path} {error}",)) from None
    if changed == text:
        return False
    try:
        _replace(path, before, ("\ufeff" if before.startswith(b"\xef\xbb\xbf") else "") + changed)
    except OSError as error:
        raise ConfigError((f"{path} could not be written: {error.strerror}",)) from None
    return True


def with_items(text: str, keys: Sequence[str], items: Sequence[str]) -> str:
    """The text of a configuration whose list at `keys` also holds these items, in front of which nothing changes.

    Raises:
        SourceError: it is not one, or holds something else there.
    """
    value = parse(text)
    for key in keys:
        if not isinstance(value, dict):
            raise SourceError(f"could not be changed: {'.'.join(keys)} does not lead to a list")
        if key in getattr(value, "repeated", ()):
            raise SourceError(f"could not be changed: {json.dumps(key)} is given twice")
        value = value.get(key)
        if value is None:
            break
    if value is not None and not isinstance(value, list):
        raise SourceError(f"could not be changed: {'.'.join(keys)} is not a list")
    new = [item for item in items if item not in (value or ())]
    if not new:
        return text
    changed = _inserted(text, keys, new)
    expected = parse(text)
    _add(expected, keys, new)
    # Whatever was overlooked, the file must not mean anything else.
    if parse(changed) != expected:
        raise SourceError("could not be changed; add the tools by hand")
    if len(changed.encode()) > MAX_BYTES:
        raise SourceError("has no room for more")
    return changed


def _add(value: dict[str, object], keys: Sequence[str], items: Sequence[str]) -> None:
    inner: object = value
    for key in keys[:-1]:
        assert isinstance(inner, dict)
        if inner.get(key) is None:
            inner[key] = {}
        inner = inner[key]
    assert isinstance(inner, dict)
    inner[keys[-1]] = [*(inner.get(keys[-1]) or ()), *items]


# where the text is


@dataclass(slots=True)
class _Place:
    """An object or a list in the text: where it begins and where its closing bracket is.

    Attributes:
        end: of its last member, or of its opening bracket where it is empty.
        comma: whether a comma follows that already.
        indent: of its first member where that begins a line; None otherwise.
    """

    begin: int
    close: int
    end: int
    comma: bool
    empty: bool
    indent: str | None


def _inserted(text: str, keys: Sequence[str], items: Sequence[str]) -> str:
    reader = _Text(text)
    place = reader.value(0)
    for depth, key in enumerate(keys):
        inner = reader.member(place, key)
        if inner is None or reader.kind(inner) == "null":
            return _new_member(text, reader.place(place), keys[depth:], items, inner, reader)
        place = inner
    listed = reader.place(place)
    lines = [json.dumps(item, ensure_ascii=False) for item in items]
    return _put(text, listed, lines)


def _new_member(
    text: str, place: _Place, keys: Sequence[str], items: Sequence[str], null: int | None, reader: _Text
) -> str:
    added = "[" + ", ".join(json.dumps(item, ensure_ascii=False) for item in items) + "]"
    for key in reversed(keys[1:]):
        added = "{ " + json.dumps(key, ensure_ascii=False) + ": " + added + " }"
    if null is not None:
        return text[:null] + added + text[reader.after(null) :]
    return _put(text, place, [f"{json.dumps(keys[0], ensure_ascii=False)}: {added}"])


def _put(text: str, place: _Place, members: Sequence[str]) -> str:
    """Add members after the last one, each on a line of its own where the others are."""
    newline = "\r\n" if "\r\n" in text else "\n"
    if place.indent is not None:
        separator = newline + place.indent
        added = ("" if place.comma or place.empty else ",") + "".join(
            separator + member + ("," if number < len(members) - 1 else "") for number, member in enumerate(members)
        )
        at = place.end
        if place.comma:
            # After the comma, which then is not the last one; another ends what is added, as it was.
            at = text.index(",", _skip(text, place.end)) + 1
            added += ","
        return text[:at] + added + text[at:]
    joined = ", ".join(members)
    if place.empty:
        # Before whatever stands between the brackets: a line comment there must not swallow what is added.
        return text[: place.end] + joined + text[place.end :]
    at = place.end
    if place.comma:
        at = text.index(",", _skip(text, place.end)) + 1
        return text[:at] + " " + joined + text[at:]
    return text[:at] + ", " + joined + text[at:]


def _skip(text: str, at: int) -> int:
    while (match := _TOKEN.match(text, at)) is not None and match.lastgroup == "blank":
        at = match.end()
    return at


class _Text:
    """Finds its way in JSON with comments, which has been parsed already and so is known to be well-formed."""

    def __init__(self, text: str) -> None:
        self._text = text

    def value(self, at: int) -> int:
        """Where the next thing begins that is neither blank nor comment."""
        return _skip(self._text, at)

    def kind(self, at: int) -> str:
        return self._token(at)[0]

    def after(self, at: int) -> int:
        """Where the value that begins at `at` ends."""
        depth = 0
        while True:
            found, at = self._token(self.value(at))
            depth += (found in "{[") - (found in "}]")
            if depth == 0:
                return at

    def member(self, at: int, key: str) -> int | None:
        """Where the value of a member of the object at `at` begins."""
        for name, begin, _ in self._members(at):
            if name == key:
                return begin
        return None

    def place(self, at: int) -> _Place:
        end = self._token(at)[1]
        place = _Place(at, 0, end, comma=False, empty=True, indent=None)
        for _, begin, over in self._members(at) if self.kind(at) == "{" else self._items(at):
            if place.empty:
                first = self._first(at)
                line = max(self._text.rfind("\n", 0, first), self._text.rfind("\r", 0, first)) + 1
                if not self._text[line:first].strip() and line > at:
                    place.indent = self._text[line:first]
            assert begin <= over
            place.end, place.empty = over, False
        place.close = self.value(place.end)
        place.comma = self.kind(place.close) == ","
        return place

    def _first(self, at: int) -> int:
        return self.value(self._token(at)[1])

    def _members(self, at: int) -> Iterable[tuple[str, int, int]]:
        at = self.value(self._token(at)[1])
        while self.kind(at) != "}":
            name, at = self._token(at)
            colon = self._token(self.value(at))[1]
            begin = self.value(colon)
            at = self.after(begin)
            yield _name(name), begin, at
            at = self._next(at)

    def _items(self, at: int) -> Iterable[tuple[str, int, int]]:
        at = self.value(self._token(at)[1])
        while self.kind(at) != "]":
            begin, at = at, self.after(at)
            yield "", begin, at
            at = self._next(at)

    def _next(self, at: int) -> int:
        at = self.value(at)
        return self.value(at + 1) if self.kind(at) == "," else at

    def _token(self, at: int) -> tuple[str, int]:
        match = _TOKEN.match(self._text, at)
        if match is None or match.lastgroup == "blank":
            raise SourceError("could not be changed; add the tools by hand")
        return match[0], match.end()


def _name(token: str) -> str:
    if token[0] not in "\"'":
        return token
    try:
        name = parse(token)
    except SourceError:
        return ""
    return name if isinstance(name, str) else ""


# the file


def _replace(path: Path, before: bytes, text: str) -> None:
    """Put `text` in the place of a file that holds `before`.

    Raises:
        _ChangedMeanwhileError: it does not.
    """
    backup = path.with_name(f"{path.name}.{time.strftime('%Y-%m-%d-%H%M%S')}.bak")
    number = 1
    while backup.exists():
        backup = path.with_name(f"{path.name}.{time.strftime('%Y-%m-%d-%H%M%S')}-{number}.bak")
        number += 1
    with open(os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(before)
    shutil.copystat(path, backup)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        shutil.copymode(path, name)
        with suppress(OSError, AttributeError):
            status = path.stat()
            os.chown(name, status.st_uid, status.st_gid)
        if path.read_bytes() != before:
            backup.unlink()
            raise _ChangedMeanwhileError
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
    _forget_oldest(path)


def _forget_oldest(path: Path) -> None:
    pattern = re.compile(re.escape(path.name) + r"\.\d{4}-\d\d-\d\d-\d{6}(-\d+)?\.bak")
    backups = [each for each in path.parent.iterdir() if pattern.fullmatch(each.name)]
    for each in sorted(backups, key=lambda each: each.stat().st_mtime_ns)[: -MAX_BACKUPS or None]:
        with suppress(OSError):
            each.unlink()
