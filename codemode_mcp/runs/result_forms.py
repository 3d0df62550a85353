"""The forms in which clients save stored results: text, JSON, or binary data. Pure.

A result is stored as JSON, which programs load. A client gets a string as plain text, a picture as bytes, and any other
value as JSON. Programs choose their values, so a MIME type in a result is only a claim. It is used if it is on a list
of types that no client executes. Other binary data is `application/octet-stream`.
"""

from __future__ import annotations

import binascii
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.json_text import join_surrogates

if TYPE_CHECKING:
    from collections.abc import Mapping

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


@dataclass(frozen=True, slots=True)
class ResultForm:
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


@dataclass(frozen=True, slots=True)
class ResultContents:
    """A result as a client gets it. Exactly one of `text` and `blob`, which is base64, is not None."""

    form: ResultForm
    text: str | None = None
    blob: str | None = None


@dataclass(frozen=True, slots=True)
class StoredResult:
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
    """Return the contents of a value with binary data; None if it is another value."""
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
