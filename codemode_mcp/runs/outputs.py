"""The outputs of a program in an answer: readable, within the limits, and as MCP content. Pure.

An output is a dict as the guest sends it, with "type": "text", "json", "image" or "app". Apps of `show()` are not part
of the text: the client gets them in the `_meta` of the answer.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from codemode_mcp.json_text import compact_json
from codemode_mcp.runs.result_forms import plain_base64
from codemode_mcp.runs.truncation import shorten_value, size
from codemode_mcp.sandbox.pictures import strings_without_base64, without_base64
from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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
    """Return the message for a program whose value and output do not fit into an answer."""
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


@dataclass(frozen=True, slots=True)
class Cut:
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
        """The JSON that stands for the value in an answer."""
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
    """Return the content block of an image, or of other media that `image()` accepts."""
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
