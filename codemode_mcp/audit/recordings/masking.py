"""The masking of secrets in recordings: each secret value is replaced by a placeholder. Pure.

Only known secrets are masked, those of the configuration and of logins. Results are otherwise recorded as they were,
because a replay needs them. A placeholder such as `__SECRET_github_GITHUB_TOKEN__` has the name of the server and of
the secret, so it is the same in every file. It is a valid identifier and needs no escapes in JSON. So a masked program
is still a program, and a masked JSON text is still JSON.

A secret may be a word that programs need. If it was masked, they would not run any more. So words of JavaScript and of
common JSON data (`true`, `text`) are never masked. Numbers with fewer than eight digits (`8080`) are masked in strings,
but neither in programs nor as JSON numbers.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from codemode_mcp.audit.recordings import format as recorded
from codemode_mcp.sandbox.messages import RequestMessage, Thrown
from upstream_clients.json_values import map_json
from upstream_clients.redaction import secrets_of

PLACEHOLDER: Final = re.compile(r"__SECRET_((?:[A-Za-z0-9]|_(?!_)){1,120})__")
"""A placeholder, with the name of the secret."""

_UNMASKED: Final = """
arguments array async await boolean break case catch class connecting const content continue data debugger
default delete description down else enum error eval export extends false finally format function globalthis
implements import infinity input instanceof integer interface items json label length listed name namespaces
null number object output package private properties protected public ready required result return servers
static status string super switch symbol text this throw title tools true type typeof undefined value void while
with yield
"""
_WORDS: Final = frozenset(_UNMASKED.split())
"""Words that are not masked, in lower case: programs would no longer run, and catalogs could no longer be read."""

_MIN_DIGITS: Final = 8
_NOT_IN_NAMES: Final = re.compile(r"\W+", re.ASCII)
_MAX_NAME: Final = 100
_TOKEN: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|-?\d[\d.eE+-]*')
"""A string or a number in JSON text. It never goes back, since that takes a lot of memory in a long string."""

_decode_string: Final = json.JSONDecoder(strict=False).decode


class Mask:
    """The placeholders for a set of secrets.

    Args:
        named: the secret values, each with its name; see `Redactor.named_secrets`.
        key: the key of digests; None for a random one.

    Attributes:
        key: the key of digests.
    """

    def __init__(self, named: Mapping[str, str], key: bytes | None = None) -> None:
        self.key = secrets.token_bytes(32) if key is None else key
        named = {value: name for value, name in named.items() if value.lower() not in _WORDS}
        placeholders: dict[str, str] = {}
        for name in named.values():
            if name not in placeholders:
                placeholders[name] = _placeholder(name, placeholders.values())
        self._placeholders = {value: placeholders[name] for value, name in named.items()}
        self._secrets = secrets_of(tuple(named))
        self._in_code = secrets_of(tuple(value for value in named if not _is_short_number(value)))

    def __repr__(self) -> str:
        return f"<Mask: {len(self._placeholders)} values>"

    def digest(self, text: str) -> str:
        data = text.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(data, digest_size=16, key=self.key).hexdigest()

    def text(self, text: str) -> str:
        return self._secrets.replace(text, self._placeholders.__getitem__)

    def code(self, text: str) -> str:
        return self._in_code.replace(text, self._placeholders.__getitem__)

    def json(self, text: str) -> str:
        """Return a JSON text with placeholders in its strings, keys and long numbers. The rest stays as it is."""
        if not self._secrets.may_be_in_json(text):
            return text
        try:
            json.loads(text, strict=False)
        except (ValueError, RecursionError):
            return self.text(text)
        return _TOKEN.sub(self._token, text)

    def _token(self, found: re.Match[str]) -> str:
        token = found[0]
        if token[0] != '"':
            masked = self.code(token)
            return token if masked == token else f'"{masked}"'
        try:
            plain = _decode_string(token) if "\\" in token else token[1:-1]
        except ValueError:
            return self.text(token)
        masked = self.text(plain)
        return token if masked == plain else json.dumps(masked)

    def value(self, value: Any) -> Any:
        return map_json(value, self.text, self._number)

    def _number(self, value: float) -> Any:
        masked = self.code(str(value))
        return value if masked == str(value) else masked

    # lines

    def line(self, line: recorded.Line) -> recorded.Line:
        if not self._placeholders:
            return line
        match line:
            case recorded.Turn():
                completions = tuple(map(self._completed, line.completions))
                return recorded.Turn(line.elapsed, completions)
            case recorded.Requests():
                return self._requests(line)
            case recorded.Opening():
                args = tuple(map(self.text, line.args))
                return msgspec.structs.replace(line, source=self.code(line.source), args=args)
            case recorded.CatalogText():
                masked = self.json(line.text)
                # The usual digest of a known text with one short secret would tell the secret.
                return line if masked == line.text else recorded.CatalogText(self.digest(line.text), masked)
            case recorded.Start():
                return self._start(line)
            case recorded.Question():
                return msgspec.structs.replace(line, params=self.json(line.params))
            case recorded.Answer():
                return msgspec.structs.replace(line, by=self.text(line.by), result=self.json(line.result))
            case recorded.End():
                return self._end(line)
        return line

    def _start(self, line: recorded.Start) -> recorded.Start:
        return msgspec.structs.replace(
            line,
            code=self.code(line.code),
            fallback=None if line.fallback is None else self.code(line.fallback),
            args=tuple(map(self.text, line.args)),
            namespaces=self.json(line.namespaces),
            saving=None if line.saving is None else (line.saving[0], self.code(line.saving[1])),
        )

    def _completed(self, end: recorded.Completed) -> recorded.Completed:
        value = None if end.value is None else self.json(end.value)
        error = end.error
        if error is not None:
            error = msgspec.structs.replace(
                error, name=self.text(error.name), message=self.text(error.message), data=self.json(error.data)
            )
        if value == end.value and error == end.error:
            return end
        original = end.value if end.error is None else f"{end.error.message}\0{end.error.data}"
        return recorded.Completed(end.id, value, error, self.digest(original or ""))

    def _requests(self, line: recorded.Requests) -> recorded.Requests:
        found: list[RequestMessage] = []
        digests = []
        for request in line.requests:
            masked = self._request(request)
            if masked != request:
                digests.append((request.id, self.digest(msgspec.json.encode(request).decode())))
            found.append(masked)
        return recorded.Requests(tuple(found), tuple(digests)) if digests else line

    def _request(self, request: RequestMessage) -> RequestMessage:
        changes: dict[str, Any] = {}
        for name in request.__struct_fields__:
            value = getattr(request, name)
            if isinstance(value, str):
                changes[name] = self.json(value) if name in _JSON_FIELDS else self.text(value)
            elif name == "arguments":
                changes[name] = tuple(None if each is None else self.json(each) for each in value)
            elif isinstance(value, Thrown):
                kind, message, stack = map(self.text, (value.name, value.message, value.stack))
                changes[name] = replace(value, name=kind, message=message, stack=stack)
        return msgspec.structs.replace(request, **changes)

    def _end(self, line: recorded.End) -> recorded.End:
        return msgspec.structs.replace(
            line,
            value=self.value(line.value),
            outputs=tuple(self.value(each) for each in line.outputs),
            error=self.text(line.error),
            notes=tuple(map(self.text, line.notes)),
        )


_JSON_FIELDS: Final = frozenset({"input", "options", "value"})
"""Fields of requests that are JSON text."""


def masked_names(text: str) -> list[str]:
    """Return the names of the secrets whose placeholders are in a text, each once and in order."""
    return list(dict.fromkeys(found[1] for found in PLACEHOLDER.finditer(text)))


def _placeholder(name: str, taken: Collection[str]) -> str:
    """Return a new placeholder for a name. Names that differ only in other characters than letters get numbers."""
    plain = re.sub("_{2,}", "_", _NOT_IN_NAMES.sub("_", name)[:_MAX_NAME]).strip("_") or "1"
    for suffix in ("", *(f"_{number}" for number in range(2, len(taken) + 2))):
        if (found := f"__SECRET_{plain}{suffix}__") not in taken:
            return found
    raise AssertionError


def _is_short_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < _MIN_DIGITS
