"""Values of an owner between programs: values that programs have stored, and results that were too large to show.

An owner has room for `storeMaxBytes`. To make room, the oldest results are dropped, but never values that a program has
stored. If there are too many owners, those that were not active for the longest time lose everything. `Values` is the
interface. `MemoryValues` keeps values until the process ends.
"""

from __future__ import annotations

import binascii
import json
import secrets
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final, Protocol

from msgspec import Struct, field

from codemode_mcp.base.errors import CodeModeError, ProgramError
from codemode_mcp.base.strict_json import join_surrogates
from codemode_mcp.base.text import clip

# The forms in which clients save stored results: text, JSON, or binary data.
#
# A result is stored as JSON, which programs load. A client gets a string as plain text, a picture as bytes, and any
# other value as JSON. Programs choose their values, so a MIME type in a result is only a claim. It is used if it is on
# a list of types that no client executes. Other binary data is `application/octet-stream`.


TEXT: Final = "text/plain"
JSON: Final = "application/json"
OTHER: Final = "application/octet-stream"

_EXTENSIONS: Final[Mapping[str, str]] = {
    TEXT: "txt",
    JSON: "json",
    "application/gzip": "gz",
    "application/pdf": "pdf",
    "application/zip": "zip",
    "audio/aac": "aac",
    "audio/flac": "flac",
    "audio/mp4": "m4a",
    "audio/mpeg": "mp3",
    "audio/ogg": "ogg",
    "audio/wav": "wav",
    "audio/webm": "weba",
    "image/avif": "avif",
    "image/bmp": "bmp",
    "image/gif": "gif",
    "image/jpeg": "jpg",
    "image/png": "png",
    "image/tiff": "tiff",
    "image/webp": "webp",
    "video/mp4": "mp4",
    "video/webm": "webm",
}
"""The MIME types that clients are told, with their usual file extensions. SVG and HTML can have scripts, so they are
not among them."""

_TEXTS: Final = '[{"type":"text","text":"'
"""Beginning of a list of printed texts, as `compact_json` writes it."""

_MEMBERS: Final = frozenset(("type", "mimeType", "data", "blob", "uri"))
_MAX_QUOTES: Final = 2 * 2 * len(_MEMBERS)
"""Quotation marks of JSON with these members alone, whose values have none. Other JSON need not be parsed."""

_PLAIN_BASE64 = str.maketrans({"-": "+", "_": "/", "\n": None, "\r": None, " ": None, "\t": None})


class ResultForm(Struct, frozen=True):
    """The form of a result.

    Attributes:
        size: bytes of the text, or of the binary data before its base64.
    """

    mime_type: str
    size: int

    @property
    def extension(self) -> str:
        """The usual file extension, without the dot."""
        return _EXTENSIONS.get(self.mime_type, "bin")


class ResultContents(Struct, frozen=True):
    """A result as a client gets it. Exactly one of `text` and `blob`, which is base64, is not None."""

    form: ResultForm
    text: str | None = None
    blob: str | None = None


class StoredResult(Struct, frozen=True):
    """A result that was stored for the client of an answer."""

    ref: str
    form: ResultForm


def contents_of(stored: str) -> ResultContents:
    """Return a stored JSON text as a client gets it. A text of several megabytes takes some hundredths of a second."""
    if stored.startswith('"'):
        return _text_contents(TEXT, json.loads(stored))
    if stored.startswith(_TEXTS):
        items = json.loads(stored)
        if all(isinstance(each, dict) and each.keys() == {"type", "text"} for each in items):
            texts = [each["text"] for each in items]
            if all(isinstance(each, str) for each in texts):
                return _text_contents(TEXT, "\n".join(texts))
    elif stored.startswith("{") and stored.count('"') <= _MAX_QUOTES:
        binary = _binary_contents(json.loads(stored))
        if binary is not None:
            return binary
    return _text_contents(JSON, stored)


def plain_base64(data: str) -> tuple[str, int] | None:
    """Return base64 on one line, in the standard alphabet, with padding, and its number of bytes; None if invalid."""
    data = data.translate(_PLAIN_BASE64).rstrip("=")
    data += "=" * (-len(data) % 4)
    try:
        return data, len(binascii.a2b_base64(data.encode(), strict_mode=True))
    except ValueError:
        return None


def binary_value(mime_type: str, data: str) -> dict[str, Any]:
    """Return binary data as the value that is stored. `image()` in a program takes it."""
    kind = mime_type.partition("/")[0].lower()
    if kind in ("image", "audio"):
        return {"type": kind, "mimeType": mime_type, "data": data}
    return {"mimeType": mime_type, "blob": data, "uri": f"data:{mime_type}"}


def _text_contents(mime_type: str, text: str) -> ResultContents:
    text = join_surrogates(text)
    return ResultContents(ResultForm(mime_type, len(text.encode())), text=text)


def _binary_contents(value: Mapping[str, Any]) -> ResultContents | None:
    data = value.get("data", value.get("blob"))
    mime_type = value.get("mimeType")
    if not isinstance(data, str) or not isinstance(mime_type, str) or not value.keys() <= _MEMBERS or not data:
        return None
    found = plain_base64(data)
    return None if found is None else ResultContents(ResultForm(_told(mime_type), found[1]), blob=found[0])


def _told(mime_type: str) -> str:
    """Return the MIME type that a client is told, for one that a program has chosen."""
    essence = mime_type.partition(";")[0].strip().lower()
    return essence if essence in _EXTENSIONS and essence not in (TEXT, JSON) else OTHER


REF_PREFIX = "result:"

PREVIEW = 80
"""Maximum characters of an entry's JSON that a listing shows."""

ENTRY = 256
"""Characters counted for each entry in addition to its key and text, so that many small entries are limited, too."""

MAX_OWNERS = 10_000

FULL_OWNERS = 8
"""Maximum size of all values together, as a multiple of the limit of one owner."""


class Put(Struct, frozen=True):
    """A request to store a JSON text under a key, in place of the text that is stored there."""

    key: str
    text: str


class Get(Struct, frozen=True):
    """A request for the JSON text that is stored under a key or a ref."""

    key: str


Answer = str | CodeModeError | None
"""The answer to a `Get`: the text, or None. The answer to a `Put`: None, or the error with which it was refused."""


class Listed(Struct, frozen=True):
    """An entry of a listing.

    Attributes:
        characters: the length of its JSON.
        preview: the beginning of its JSON.
    """

    key: str
    characters: int
    preview: str


class Page(Struct, frozen=True):
    """Some of the `total` entries of an owner: results, then stored values, the oldest first."""

    total: int
    entries: tuple[Listed, ...]


class ListedResult(Struct, frozen=True):
    """A result in a list.

    Attributes:
        number: later results of an owner have higher numbers.
        form: None for results of earlier versions, and for those that cannot be read.
    """

    ref: str
    number: int
    form: ResultForm | None


class Values(Protocol):
    """JSON texts by owner and key. If their database does not answer, every method raises `StoreUnavailable`."""

    async def execute(self, owner: str, requests: Sequence[Put | Get], room: int) -> list[Answer]:
        """Execute requests in order, at least the first one, until `room` characters or more are loaded.

        A `Put` that does not fit, or whose key is that of a result, is refused. It changes nothing, and later requests
        are still executed.

        Returns:
            The answers to the requests that were executed.
        """
        ...

    async def offload(self, owner: str, text: str) -> str | None:
        """Store a result that was too large to show. Return its ref, or None if it does not fit."""
        ...

    async def load(self, owner: str, key: str) -> str | None:
        """Return the JSON text under a key or a ref; None if there is none."""
        ...

    async def remove(self, owner: str, key: str) -> None: ...

    async def listed(self, owner: str, offset: int, limit: int) -> Page: ...

    async def results(self, owner: str, before: int | None, limit: int) -> Sequence[ListedResult]:
        """Return results of an owner, the latest first. `before`: a number, to return results with lower ones alone."""
        ...

    async def sweep(self) -> None:
        """Drop values that were not used for a long time, a limited number in each call."""
        ...


def size_of(key: str, text: str) -> int:
    return len(key) + len(text) + ENTRY


def new_ref() -> str:
    """Return a new, unguessable ref for a result."""
    return REF_PREFIX + secrets.token_hex(8)


def preview_of(text: str) -> str:
    return clip(text, PREVIEW)


def reserved_key() -> ProgramError:
    return ProgramError("nested_tool_failed", f"store(): keys that start with {REF_PREFIX!r} belong to results")


def full(put: Put, used: int, limit: int) -> ProgramError:
    """Return the error for a value that does not fit. `used`: the size of the owner's values."""
    return ProgramError(
        "nested_tool_failed",
        f"store({put.key[:100]!r}): {len(put.text)} bytes do not fit; {used} of {limit} are in use; "
        "store less, or replace a stored value by a smaller one",
    )


class _Owned(Struct):
    stored: dict[str, str] = field(default_factory=dict)
    results: OrderedDict[str, str] = field(default_factory=OrderedDict)
    listed: dict[str, ListedResult] = field(default_factory=dict)
    latest: int = 0
    size: int = 0

    def drop(self, ref: str) -> int:
        """Remove a result, and return the size that it had."""
        text = self.results.pop(ref, None)
        self.listed.pop(ref, None)
        return 0 if text is None else size_of(ref, text)


class MemoryValues:
    """`Values` in the memory of this process.

    Args:
        max_bytes: maximum size of the values of one owner; see `size_of`.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self._owners: OrderedDict[str, _Owned] = OrderedDict()
        self._size = 0

    async def execute(self, owner: str, requests: Sequence[Put | Get], room: int) -> list[Answer]:
        answers: list[Answer] = []
        for each in requests:
            if answers and room <= 0:
                break
            if isinstance(each, Put):
                answers.append(self._store(owner, each))
            else:
                text = self._load(owner, each.key)
                room -= len(text or "")
                answers.append(text)
        return answers

    async def offload(self, owner: str, text: str) -> str | None:
        form = contents_of(text).form
        owned = self._of(owner)
        ref = new_ref()
        needed = size_of(ref, text)
        if not self._make_room(owned, needed):
            return None
        owned.latest += 1
        owned.results[ref] = text
        owned.listed[ref] = ListedResult(ref, owned.latest, form)
        self._grow(owned, needed)
        return ref

    async def load(self, owner: str, key: str) -> str | None:
        return self._load(owner, key)

    async def remove(self, owner: str, key: str) -> None:
        if owner in self._owners:
            owned = self._owners[owner]
            if key.startswith(REF_PREFIX):
                freed = owned.drop(key)
            else:
                text = owned.stored.pop(key, None)
                freed = 0 if text is None else size_of(key, text)
            owned.size -= freed
            self._size -= freed

    async def listed(self, owner: str, offset: int, limit: int) -> Page:
        owned = self._owners.get(owner)
        found = [] if owned is None else [*owned.results.items(), *owned.stored.items()]
        shown = found[offset : offset + limit]
        return Page(len(found), tuple(Listed(key, len(text), preview_of(text)) for key, text in shown))

    async def results(self, owner: str, before: int | None, limit: int) -> Sequence[ListedResult]:
        owned = self._owners.get(owner)
        found = () if owned is None else reversed(owned.listed.values())
        return list(islice((each for each in found if before is None or each.number < before), limit))

    async def sweep(self) -> None:
        """Do nothing: all values end with the process."""

    def _store(self, owner: str, put: Put) -> ProgramError | None:
        if put.key.startswith(REF_PREFIX):
            return reserved_key()
        owned = self._of(owner)
        freed = size_of(put.key, owned.stored[put.key]) if put.key in owned.stored else 0
        needed = size_of(put.key, put.text) - freed
        if not self._make_room(owned, needed):
            return full(put, owned.size, self._max)
        owned.stored[put.key] = put.text
        self._grow(owned, needed)
        return None

    def _load(self, owner: str, key: str) -> str | None:
        if owner not in self._owners:
            return None
        owned = self._of(owner)
        return owned.results.get(key) if key.startswith(REF_PREFIX) else owned.stored.get(key)

    def _of(self, owner: str) -> _Owned:
        owned = self._owners.setdefault(owner, _Owned())
        self._owners.move_to_end(owner)
        return owned

    def _grow(self, owned: _Owned, by: int) -> None:
        """Add to the size of an owner's values. Drop those of the least active owners if all are too large."""
        owned.size += by
        self._size += by
        while len(self._owners) > MAX_OWNERS or (self._size > FULL_OWNERS * self._max and len(self._owners) > 1):
            _, oldest = self._owners.popitem(last=False)
            self._size -= oldest.size

    def _make_room(self, owned: _Owned, needed: int) -> bool:
        over = owned.size + needed - self._max
        if needed <= 0 or over <= 0:
            return True
        if sum(size_of(*each) for each in owned.results.items()) < over:
            return False
        while over > 0:
            freed = owned.drop(next(iter(owned.results)))
            owned.size -= freed
            self._size -= freed
            over -= freed
        return True
