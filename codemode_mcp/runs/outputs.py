"""The outputs of programs, in answers and for the operator, cut to the limits. Pure.

An output is a dict as the guest sends it, with "type": "text", "json", "image" or "app". Apps of `show()` are not part
of the text: the client gets them in the `_meta` of the answer.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, structs

from codemode_mcp.base.strict_json import compact_json
from codemode_mcp.runs.values import plain_base64
from declarations.untrusted_text import escape_line

# Texts and JSON values cut to a number of bytes, for the limits of answers. JSON escapes are counted.


_MIN_NOTE = 60
"""Minimum bytes of a note. With less room, a note would say nothing."""

_MIN_MEMBER = 128
"""Minimum bytes of a member of an array or object that is cut. With less room, members are left out."""

_MAX_CUTS = 32
"""Maximum number of members of one array or object that are cut. Of more long members, the middle ones are left out."""

_MAX_DEPTH = 12
"""Levels of nesting in which members are cut."""


def size(text: str) -> int:
    """Return the size of a text in bytes of UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def escaped_size(text: str) -> int:
    """Return the size in bytes of a text inside JSON. A control character takes six, and a quotation mark two."""
    return size(compact_json(text)) - 2


def shorten(text: str, limit: int, end: int = 4) -> str:
    """Cut out the middle of a text that is longer than `limit` bytes, and mark how much is left out.

    The end is kept, because an error has its stack frames there.

    Args:
        end: the fraction of the shown text that is its end: 4 for a quarter.
    """
    whole = escaped_size(text)
    if whole <= limit:
        return text
    mark = f" ... [{whole - limit} of {whole} bytes left out] ... "
    room = max(0, limit - len(mark) - len(str(whole)))
    tail = room // end
    return _prefix(text, room - tail) + mark + _prefix(text[: -tail - 1 : -1], tail)[::-1]


def _prefix(text: str, room: int) -> str:
    """Return the longest prefix of a text that fits into `room` bytes."""
    text = text[:room]  # a character takes at least one byte
    fitting = bisect_right(range(len(text) + 1), room, key=lambda length: escaped_size(text[:length])) - 1
    return text[:fitting]


def shorten_value(value: Any, limit: int, end: int = 4, depth: int = _MAX_DEPTH) -> Any:
    """Cut the longest texts, arrays and objects of a JSON value so that its JSON has at most `limit` bytes.

    A text is cut by `shorten`. An array or object keeps its first and last members, and a mark is between them. Short
    members stay as they are, and the long ones share the room.
    """
    if isinstance(value, str):
        return shorten(value, limit - 2, end)
    if not isinstance(value, list | dict) or depth == 0:
        text = compact_json(value)
        return value if size(text) <= limit else shorten(text, limit - 2, end)
    keys = list(value) if isinstance(value, dict) else range(len(value))
    least = max(min(_MIN_MEMBER, limit // 2), limit // _MAX_CUTS)
    sizes: dict[Any, int] = {}

    def count_fitting(room: int, step: int = 1) -> int:
        for number, key in enumerate(keys[::step]):
            if key not in sizes:
                sizes[key] = _bounded_size(value[key], least)
            room -= min(sizes[key], least) + _key_size(key)
            if room < 0:
                return number
        return len(keys)

    room, mark = limit - 2, ""
    head, tail = count_fitting(room), 0
    if head < len(keys):
        mark = "... [{} of {} {} left out] ..."
        room -= len(mark) + 2 * len(str(len(keys))) + 10
        tail = count_fitting(room // end, -1)
        head = min(count_fitting(room - room // end), len(keys) - tail)
        mark = mark.format(len(keys) - head - tail, len(keys), "items" if isinstance(value, list) else "members")
    shown = [*keys[:head], *keys[len(keys) - tail :]]
    room -= sum(map(_key_size, shown))
    long = [key for key in shown if sizes[key] > least]
    for key in long:
        sizes[key] = _bounded_size(value[key], room // len(long))
        if sizes[key] > room // len(long):
            sizes[key] = limit  # or more
    share, left = room, len(shown)
    for each in sorted(sizes[key] for key in shown):
        share = room // left
        if each > share:
            break
        room, left = room - each, left - 1
    cut = [
        (key, value[key] if sizes[key] <= share else shorten_value(value[key], share, end, depth - 1)) for key in shown
    ]
    if mark:
        cut.insert(head, ("...", mark))
    return dict(cut) if isinstance(value, dict) else [each for _, each in cut]


def _bounded_size(value: Any, limit: int) -> int:
    """Return the size in bytes of a value as JSON, or any number above `limit` if it is larger."""
    if isinstance(value, str) and len(value) > limit:
        return len(value)
    if not isinstance(value, list | dict):
        return size(compact_json(value))
    count = 2
    for key, member in value.items() if isinstance(value, dict) else enumerate(value):
        if count > limit:
            break
        count += _key_size(key) + _bounded_size(member, limit - count)
    return count


def _key_size(key: str | int) -> int:
    """Return the size in bytes of a key of an object, or of the comma after an element of an array."""
    return 1 if isinstance(key, int) else size(compact_json(key)) + 2


def fit_texts(texts: Sequence[str], room: int, *, end: int = 4, min_bytes: int = 0) -> list[str]:
    """Fit texts into `room` bytes together. Each gets an equal share of the room that the texts before it have left.

    Args:
        end: see `shorten`.
        min_bytes: minimum bytes of a text. With less room, the remaining texts are only counted.
    """
    fitted: list[str] = []
    for number, text in enumerate(texts):
        share = room // (len(texts) - number)
        if share < min_bytes:
            return [*fitted, f"{len(texts) - number} more notes were left out."]
        fitted.append(shorten(text, share, end))
        room -= escaped_size(fitted[-1])
    return fitted


def fit_notes(notes: Sequence[str], room: int) -> list[str]:
    """Fit notes into `room` bytes together. Notes that would be too short are only counted."""
    return fit_texts(notes, room, min_bytes=_MIN_NOTE)


LINE_BYTES = 2 * 1024
"""Longer JSON is written on several lines, one for each element of an array of objects. Clients cut or hide long lines.
"""

_LINE_DEPTH = 4
"""Levels of nesting that are written on several lines."""

MAX_ITEMS = 1000
"""Maximum number of outputs in one answer."""

PICTURE_BYTES = 8 * 1024 * 1024
"""Maximum bytes of base64 in one answer."""

MAX_PICTURES = 100
"""Maximum number of pictures in one answer. Some models refuse a conversation with more pictures."""

MIN_PREVIEW = 400
"""Minimum bytes that are shown of a value or of outputs that are cut."""

_ANSWER = 100
"""Approximate bytes of an answer around a value that is cut."""

_FRAME = 20
"""Approximate bytes of the JSON around an output, which are not counted."""

_PICTURE_ROOM = f"{PICTURE_BYTES * 3 // 4 // 1024 // 1024} MiB, {MAX_PICTURES} pictures"

TOO_MANY_PICTURES = f"there are more pictures than an answer has room for ({_PICTURE_ROOM}); show fewer or smaller ones"


def exceeds(outputs: Iterable[dict[str, Any]], cap: int) -> str | None:
    """Return why an answer cannot show all outputs; None if they fit."""
    _, left, crowded = fit_outputs(map(readable, map(output_once, without_apps(outputs))), cap)
    return too_much(cap) if left else TOO_MANY_PICTURES if crowded else None


def too_much(cap: int) -> str:
    return f"value and output together are larger than maxOutputBytes ({cap}); return or print less"


def without_apps(outputs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the outputs that are part of the text."""
    return [item for item in outputs if item["type"] != "app"]


def readable(item: dict[str, Any]) -> dict[str, Any]:
    """Return an output in a form that clients accept.

    The base64 of an image is written on one line, in the standard alphabet, with padding. Otherwise clients refuse the
    whole answer. The member `bytes` is added to an image. An image without valid data is replaced by a text that says
    so. Pictures inside texts and JSON are replaced by words.
    """
    if item["type"] == "text":
        return {**item, "text": without_base64(item["text"])}
    if item["type"] == "json":
        text = compact_json(item["value"])
        marked = strings_without_base64(text)
        return item if marked == text else {**item, "value": json.loads(marked)}
    found = plain_base64(item["data"])
    if found is None:
        return {"type": "text", "text": f"[{item['mimeType']}: cannot be shown, its data is not valid base64]"}
    return {**item, "data": found[0], "bytes": found[1]}


REPEATED = "result.content is not shown where it repeats structuredContent."
"""Note for an answer with a result that is shown without such texts. Programs have the whole result."""

_JSON = re.compile(r'[\[{]\s*[\[{"]')
"""Beginning of JSON in a text. A word in brackets is none."""

STRUCTURED = '"structuredContent":'
"""A text that JSON with such a result contains."""


def output_once(item: dict[str, Any]) -> dict[str, Any]:
    """Return an output without the texts of results that repeat their structured content; the same if there are none.

    A text is such an output if it ends with the JSON of results, as `text(result)` and `console.log("got", result)`
    write it.
    """
    if item["type"] == "json" and STRUCTURED in compact_json(item["value"]):
        value = value_once(item["value"])
        return item if value is item["value"] else {**item, "value": value}
    if item["type"] == "text" and STRUCTURED in item["text"]:
        begin = next((found.start() for found in _JSON.finditer(item["text"])), 0)
        before, text = item["text"][:begin], item["text"][begin:]
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return item
        shown = value_once(value)
        if shown is not value:
            written = json.dumps(shown, ensure_ascii=False, indent=2) if "\n" in text else compact_json(shown)
            return {**item, "text": before + written}
    return item


def value_once(value: Any, depth: int = 8) -> Any:
    """Return a value without the texts of results that repeat their structured content; the same if there are none."""
    match value:
        case {"content": [*blocks], "structuredContent": data} if data is not None:
            texts = [each["text"] for each in blocks if _is_text(each)]
            if not texts or not _repeats(texts, data):
                return value
            shown = {**value, "content": [each for each in blocks if not _is_text(each)]}
            if not shown["content"]:
                del shown["content"]
            return shown
        case dict() | list() if depth:
            members = value.items() if isinstance(value, dict) else enumerate(value)
            changed = {key: shown for key, each in members if (shown := value_once(each, depth - 1)) is not each}
            if changed and isinstance(value, dict):
                return value | changed
            return [changed.get(key, each) for key, each in enumerate(value)] if changed else value
    return value


def _is_text(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)


def _repeats(texts: list[str], data: Any) -> bool:
    """Return True if texts say what structured content says: its JSON, a string in it, or its one member."""
    forms = [data]
    if isinstance(data, dict):
        forms += [each for each in data.values() if len(data) == 1 or isinstance(each, str)]
    return any(
        _says("\n".join(texts), form)
        or (isinstance(form, list) and len(form) == len(texts) and all(map(_says, texts, form)))
        for form in forms
    )


def _says(text: str, value: Any) -> bool:
    if text == value:
        return True
    try:
        return bool(json.loads(text) == value)
    except (ValueError, RecursionError):
        return False


def structured(item: dict[str, Any]) -> dict[str, Any]:
    """Return a readable output as `CodeModeOutput`. The data of an image is sent in `content` only.

    An image that is not sent has the `ref` under which it is stored, if it is stored.
    """
    if item["type"] == "cut":
        return {"type": "json", "value": item["cut"].marker}
    if item["type"] != "image":
        return item
    return {name: item[name] for name in ("type", "mimeType", "bytes", "ref") if name in item}


def printed(item: Mapping[str, Any]) -> str:
    """Return one output for a person, of any size: text unchanged, JSON on one line, pictures and apps in words."""
    if item["type"] == "app":
        return f"[app of {escape_line(item['target'])}: clients with MCP Apps show it]"
    shown = structured(readable(dict(item)))
    match shown["type"]:
        case "text":
            return str(shown["text"])
        case "json":
            return json.dumps(shown["value"], ensure_ascii=False)
        case _:
            return _in_words(shown)


def fit_outputs(
    outputs: Iterable[dict[str, Any]], room: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], bool]:
    """Return the readable outputs that fit into `room` bytes, the other outputs, and True if pictures were left out.

    The data of pictures is not text and has limits of its own. A picture beyond these limits is replaced by words.
    """
    outputs = list(outputs)
    pictures, count = PICTURE_BYTES, 0
    fitting: list[dict[str, Any]] = []
    crowded = False
    for number, item in enumerate(outputs):
        room -= size(compact_json(structured(item))) - _FRAME
        if room < 0 or number == MAX_ITEMS:
            return fitting, outputs[number:], crowded
        if item["type"] == "image":
            if count == MAX_PICTURES or len(item["data"]) > pictures:
                item, crowded = {**item, "left_out": True}, True
            else:
                pictures -= len(item["data"])
                count += 1
        fitting.append(item)
    return fitting, [], crowded


class Cut(Struct, frozen=True):
    """A value, or the last outputs of a program, of which an answer shows the beginning and the end.

    Attributes:
        preview: the value with its long parts cut, or the list of what was printed.
        size: bytes of the whole value as JSON.
        ref: the key under which the whole value is stored; None if it is not.
    """

    preview: Any
    size: int
    ref: str | None

    @classmethod
    def made(cls, value: Any, size: int, ref: str | None, room: int, end: int = 4) -> Cut:
        """Return a value cut to `room` bytes with its marker, but at least to `MIN_PREVIEW` bytes.

        Args:
            end: see `shorten`.
        """
        room -= len(compact_json(cls("", size, ref).marker)) + _ANSWER
        return cls(shorten_value(value, max(MIN_PREVIEW, room), end), size, ref)

    @property
    def marker(self) -> dict[str, Any]:
        stored = {} if self.ref is None else {"ref": self.ref, "read": f"await load({json.dumps(self.ref)})"}
        return {"truncated": True, "bytes": self.size, "preview": self.preview, **stored}

    @property
    def last_line(self) -> str:
        """The marker without the preview, which precedes it in text."""
        return compact_json({name: value for name, value in self.marker.items() if name != "preview"})


def content(outputs: Iterable[dict[str, Any]], tail: Sequence[str], *, markdown: bool) -> list[dict[str, Any]]:
    """Return MCP content blocks: the outputs, followed by the lines of `tail`. Consecutive texts are joined."""
    blocks: list[dict[str, Any]] = []
    lines: list[str] = []

    def flush() -> None:
        if lines:
            blocks.append({"type": "text", "text": "\n".join(lines)})
            lines.clear()

    for item in outputs:
        match item["type"]:
            case "text":
                lines.append(item["text"])
            case "json":
                lines.append(value_text(item["value"], markdown=markdown))
            case "cut":
                lines += (value_text(each, markdown=markdown) for each in item["cut"].preview)
                lines.append(item["cut"].last_line)
            case _ if item.get("left_out"):
                lines.append(_in_words(item, f": left out, an answer has room for {_PICTURE_ROOM}"))
            case _:
                flush()
                blocks.append(_block(item))
    lines.extend(tail)
    flush()
    return blocks


def shown_values(outputs: Iterable[dict[str, Any]]) -> list[Any]:
    """Return what outputs show: texts, JSON values, and words for pictures."""
    member = {"text": "text", "json": "value"}
    return [item[member[item["type"]]] if item["type"] in member else _in_words(item) for item in outputs]


def _in_words(item: Mapping[str, Any], why: str = "") -> str:
    show = f"; image(await load({json.dumps(item['ref'])})) shows it" if "ref" in item else ""
    return f"[{item['mimeType']}, {item['bytes']:,} bytes{why}{show}]"


def _block(item: dict[str, Any]) -> dict[str, Any]:
    kind, mime_type = item["mimeType"].partition("/")[0].lower(), item["mimeType"]
    if kind in ("image", "audio"):
        return {"type": kind, "mimeType": mime_type, "data": item["data"]}
    resource = {"uri": item.get("uri", f"data:{mime_type}"), "mimeType": mime_type, "blob": item["data"]}
    return {"type": "resource", "resource": resource}


def value_text(value: Any, *, markdown: bool) -> str:
    """Return a JSON value as text for a model. A string stays as it is."""
    if isinstance(value, str):
        return value
    text = _laid_out(value, _LINE_DEPTH)
    return f"```json\n{text}\n```" if markdown and isinstance(value, dict | list) and value else text


def _laid_out(value: Any, depth: int) -> str:
    """Return JSON on one line, or on several lines where it is long."""
    text = compact_json(value)
    if not depth or len(text) <= LINE_BYTES:
        return text
    match value:
        case list() if any(isinstance(each, dict) for each in value):
            return "[\n" + ",\n".join(_laid_out(each, depth - 1) for each in value) + "\n]"
        case dict() if any(isinstance(each, dict | list) for each in value.values()):
            members = (f"{compact_json(key)}:{_laid_out(each, depth - 1)}" for key, each in value.items())
            return "{" + ",\n".join(members) + "}"
    return text


# The programs and outputs of runs that ended recently, for the operator, within a limit.


MAX_ONE: Final = 64 * 1024
"""Maximum characters of one program, and of one output. Longer ones are not kept."""

MAX_ALL: Final = 8 * 1024 * 1024
"""Maximum characters of everything that is kept. The oldest is dropped first."""

_MAX_VALUES: Final = 2000
"""A value with more members is not kept."""


class Transcript(Struct, frozen=True):
    """The program of a run, and its output.

    Attributes:
        source: empty if it is not known.
        outputs: as `Outcome.outputs`; None if they were too large to keep.
        value: the result of a completed run.
        error: the error of a failed run.
        ended: True if value and error are known.
    """

    source: str
    outputs: tuple[dict[str, Any], ...] | None = ()
    value: Any = None
    error: str = ""
    ended: bool = False


class Transcripts:
    """The transcripts of ended runs."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[Transcript, int]] = OrderedDict()
        self._size = 0

    def __repr__(self) -> str:
        return f"<Transcripts: {len(self._kept)} runs, about {self._size} characters>"

    def keep(self, run_id: str, transcript: Transcript) -> None:
        """Keep a transcript, without what is too large."""
        source, outputs, value = transcript.source, transcript.outputs, transcript.value
        used = approximate_size(outputs, MAX_ONE)
        result = approximate_size(value, MAX_ONE)
        if used > MAX_ONE or result > MAX_ONE:
            transcript = structs.replace(transcript, outputs=None, value=None)
            used = result = 0
        if len(source) > MAX_ONE:
            transcript = structs.replace(transcript, source=source[:MAX_ONE])
        size = used + result + len(transcript.source) + len(transcript.error)
        self._kept[run_id] = transcript, size
        self._size += size
        while self._size > MAX_ALL:
            self._size -= self._kept.popitem(last=False)[1][1]

    def of(self, run_id: str) -> Transcript | None:
        found = self._kept.get(run_id)
        return None if found is None else found[0]


def approximate_size(value: Any, most: int) -> int:
    """Return the approximate number of characters of a JSON value. Stop when it is larger than `most`."""
    size = 0
    values = [value]
    count = 0
    while values and size <= most:
        each = values.pop()
        count += 1
        size += 8
        if isinstance(each, str):
            size += len(each)
        elif isinstance(each, dict):
            if count + len(values) + len(each) > _MAX_VALUES:
                return most + 1
            size += sum(map(len, each))
            values.extend(each.values())
        elif isinstance(each, list | tuple):
            if count + len(values) + len(each) > _MAX_VALUES:
                return most + 1
            values.extend(each)
    return size


# Removal of base64 from texts that a program made from a result, such as `JSON.stringify(result)`.
#
# A model cannot use base64 and pays for every character. It is found in members `data` and `blob` of JSON that have a
# `mimeType` nearby. Content that is not text yet is marked by the guest (`prelude/20_values.js`).


_MIN_BASE64: Final = 100
"""Minimum characters of base64 to be replaced."""
_NEAR: Final = 300
"""Maximum characters between the data and its MIME type."""

_NAME: Final = "mimeType"
"""A string that a text with a picture contains. Searching it takes a hundredth of the time of the patterns."""


def _data(min_backslashes: int) -> re.Pattern[str]:
    # The pattern begins with the key, which is fast to find. A pattern that begins with backslashes would be tried at
    # each character, so `_mark` checks the quote before the key.
    return re.compile(
        rf"""(?P<key>data|blob)(?P<quote>\\{{{min_backslashes},15}}")\s*:\s*(?P=quote)"""
        rf"""(?P<base64>[A-Za-z0-9+/_-]{{{_MIN_BASE64},}}={{0,2}})(?P=quote)"""
    )


_IN_TEXT: Final = _data(0)
_IN_STRINGS: Final = _data(1)
_MIME_TYPE: Final = re.compile(r"""\\*"mimeType\\*"\s*:\s*\\*"([\w.+/-]{1,100})\\*\"""")


def without_base64(text: str) -> str:
    """Return a text with a mark in place of the base64 of each MCP content in it."""
    return _IN_TEXT.sub(_mark, text) if _NAME in text else text


def strings_without_base64(text: str) -> str:
    """Return a JSON text with such marks only in its strings. Members of the JSON itself are the program's and stay."""
    return _IN_STRINGS.sub(_mark, text) if _NAME in text else text


def _mark(found: re.Match[str]) -> str:
    # The quote before the key must have the same number of backslashes as the one after it.
    opened = found.start() - len(found["quote"])
    if opened < 0 or not found.string.startswith(found["quote"], opened) or found.string[opened - 1 : opened] == "\\":
        return found[0]
    before = found.string[max(0, found.start() - _NEAR) : found.start()]
    after = found.string[found.end() : found.end() + _NEAR]
    mime_type = _MIME_TYPE.search(after.partition("}")[0]) or _MIME_TYPE.search(before.rpartition("{")[2])
    if mime_type is None:
        return found[0]
    size = len(found["base64"].rstrip("=")) * 3 // 4
    show = "image(contents) passes it on" if found["key"] == "blob" else "show it with image(block)"
    quote, mark = found["quote"], f"[{mime_type[1]}, {size:,} bytes; {show}]"
    return f"{found['key']}{quote}:{quote}{mark}{quote}"
