"""The text of an OpenAPI document, in JSON or YAML, as a document. Pure: no I/O."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import msgspec

from upstream_clients.openapi.document import Document, DocumentError, shown
from upstream_clients.openapi.swagger2 import to_version_3

if TYPE_CHECKING:
    from collections.abc import Mapping

    from upstream_clients.openapi.yaml_values import WrittenNumber

MAX_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of a document. GitHub's has 13 MB."""
MAX_YAML_BYTES: Final = 4 * 1024 * 1024
"""Maximum size of a document in YAML, of which a second of work reads about 500 kB."""
MAX_NODES: Final = 2_000_000
"""Maximum number of values of a document. Aliases of YAML count each time. The largest published one has a million."""
MAX_CONTAINERS: Final = 1_000_000
"""Maximum number of objects and lists of a document in JSON, which take most of the memory. GitHub's has 100,000."""
MAX_DEPTH: Final = 200
"""Maximum number of nested values of a document in YAML."""


def read_json_or_yaml(data: bytes) -> Mapping[str, Any]:
    """Return the object that a text in JSON or YAML describes.

    Raises:
        DocumentError: the text is too large, or is neither.
    """
    if len(data) > MAX_BYTES:
        raise DocumentError(f"the document has {len(data)} bytes, more than {MAX_BYTES}")
    text = data.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text:
        raise DocumentError("the document is empty")
    if text.startswith(b"{"):
        if text.count(b",") > MAX_NODES:
            raise DocumentError(f"the document has more than {MAX_NODES} values")
        if text.count(b"{") + text.count(b"[") > MAX_CONTAINERS:
            raise DocumentError(f"the document has more than {MAX_CONTAINERS} objects and lists")
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
            if len(text) > MAX_YAML_BYTES:
                raise DocumentError(f"the document is not valid JSON: {_reason(error)}") from None
            value = _read_yaml(text, or_json=_reason(error))
    else:
        value = _read_yaml(text)
    if not isinstance(value, dict):
        raise DocumentError("the document is not an object; give the address of an OpenAPI document in JSON or YAML")
    return value


def _reason(error: Exception) -> str:
    lines = str(error).splitlines()
    return "it is nested too deeply" if isinstance(error, RecursionError) else lines[0][:200] if lines else "an error"


def _read_yaml(text: bytes, or_json: str = "") -> Any:
    if text.startswith((b"<!", b"<html", b"<?xml")):
        raise DocumentError("the document is HTML or XML; give the address of the OpenAPI document in JSON or YAML")
    if len(text) > MAX_YAML_BYTES:
        raise DocumentError(
            f"the document in YAML has {len(text)} bytes, more than {MAX_YAML_BYTES}; give the same document in JSON"
        )
    from ruamel.yaml import YAML  # most documents are JSON
    from ruamel.yaml.error import YAMLError

    from upstream_clients.openapi.yaml_values import BoundedConstructor, BoundedScanner, WrittenNumber

    yaml = YAML(typ="safe", pure=True)
    yaml.Scanner, yaml.Constructor = BoundedScanner, BoundedConstructor
    yaml.allow_duplicate_keys = True
    try:
        return _Plain(WrittenNumber).value(yaml.load(text.decode("utf-8", "replace")), 0)
    except (YAMLError, RecursionError, ValueError, TypeError, AttributeError, KeyError, OverflowError) as error:
        if or_json:
            raise DocumentError(f"the document is not valid JSON: {or_json}") from None
        raise DocumentError(
            f"the document is neither JSON nor valid YAML: {_reason(error) or 'it has errors'}"
        ) from None


class _Plain:
    """The conversion of a value of YAML to JSON."""

    def __init__(self, written: type[WrittenNumber]) -> None:
        self._left = MAX_NODES
        self._written = written
        self._done: dict[int, tuple[Any, Any, int]] = {}

    def value(self, node: Any, depth: int) -> Any:
        """Return the value with keys that are strings, and without dates, sets and bytes.

        Raises:
            DocumentError: it has too many values, or is nested too deeply.
        """
        self._left -= 1
        if self._left < 0:
            raise DocumentError(f"the document has more than {MAX_NODES} values; its aliases may repeat too much")
        if depth > MAX_DEPTH:
            raise DocumentError(f"the document is nested deeper than {MAX_DEPTH} levels")
        if node is None or isinstance(node, (str, bool, int)):
            return node
        if isinstance(node, self._written):
            return node.value
        if isinstance(node, float):
            return node if math.isfinite(node) else None
        if not isinstance(node, (dict, list, tuple)):
            return str(node)
        # An alias is converted once, and counts each time.
        if known := self._done.get(id(node)):
            self._left -= known[2]
            return known[1]
        before = self._left
        result: Any
        if isinstance(node, dict):
            if node.get("type") == "string" and isinstance(node.get("enum"), list):
                # Authors leave out the quotes of texts that look like numbers.
                choices = [each.text if isinstance(each, self._written) else each for each in node["enum"]]
                node = {**node, "enum": choices}
            result = {_key(key): self.value(member, depth + 1) for key, member in node.items()}
        else:
            result = [self.value(member, depth + 1) for member in node]
        self._done[id(node)] = (node, result, before - self._left)
        return result


def _key(key: object) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return "null" if key is None else str(key)


def read_document(data: bytes) -> Document:
    """Return the document that a text describes. Swagger 2 is brought to the form of OpenAPI 3.

    Raises:
        DocumentError: the text is not such a document.
    """
    root = read_json_or_yaml(data)
    swagger, version = root.get("swagger"), root.get("openapi")
    if str(swagger).startswith("2"):
        return to_version_3(root)
    if not isinstance(version, (str, float, int)) or isinstance(version, bool):
        raise DocumentError(
            "the document is not OpenAPI: it has neither `openapi` (3.0, 3.1) nor `swagger` (2.0); "
            "give the address of an OpenAPI document"
        )
    if not str(version).startswith("3"):
        raise DocumentError(f"the document has version {shown(str(version))} of OpenAPI; 2.0, 3.0 and 3.1 can be read")
    return Document(root, is_legacy=str(version).startswith("3.0"))
