"""Checks of single values in the configuration file, and the wording of their messages.

A message quotes a value only if the value cannot be a secret. For objects, arrays and values under a secret key, it
names only the type.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, fields
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

from codemode_mcp.base.did_you_mean import nearest as nearest_names
from codemode_mcp.base.errors import ConfigError
from codemode_mcp.base.settings import Clamp, key_of
from codemode_mcp.rules.policy.policy import SOURCES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    Readers = Mapping[str, Callable[["Node"], Any]]
    """Functions that check and return the value of a key, by the names of keys."""


_T = TypeVar("_T")
_Settings = TypeVar("_Settings")
_Text = TypeVar("_Text", bound=str)

_MAX_QUOTED = 60
"""Characters of a value that a message quotes."""

_NOT_FOR_THE_SYSTEM = re.compile("[\0\ud800-\udfff]")
"""Characters that cannot be passed to an operating system, in an argument, a variable or a path."""


@dataclass(frozen=True, slots=True)
class Report:
    """The problems and warnings that were found so far. The collections are the mutable state.

    Attributes:
        problems: messages by the path of their key. The inner dictionary is an ordered set: its keys are the messages.
        notes: warnings, in the order in which they were found.
        missing: the problems that make only the server or plugin of an entry unusable: values to which the entry refers
            cannot be had, such as an unset variable. None where such problems make the file invalid.
        set_aside: the paths and messages of all problems that are in `missing` of some entry.
    """

    problems: dict[str, dict[str, None]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    missing: dict[str, dict[str, None]] | None = None
    set_aside: set[tuple[str, str]] = field(default_factory=set)

    @property
    def is_invalid(self) -> bool:
        return sum(map(len, self.problems.values())) > len(self.set_aside)

    def raise_problems(self) -> None:
        """Raise `ConfigError` if the file cannot be used."""
        if self.is_invalid:
            raise ConfigError(
                tuple(f"{path}: {message}" for path, messages in self.problems.items() for message in messages)
            )


def missing_reasons(missing: Mapping[str, Mapping[str, None]]) -> str:
    reasons = []
    for path, messages in missing.items():
        for message in messages:
            what, mark, advice = message.partition("; ")
            reasons.append(f"{what} ({path}){mark}{advice}")
    return "; ".join(reasons)


@dataclass(frozen=True, slots=True)
class Node:
    """One value of the file, with the path of its key.

    A check that fails reports a problem and returns a stand-in of the right type, so that the remaining values are
    checked too. Call `Report.raise_problems` before the values are used, because some may be stand-ins.
    """

    value: Any
    path: str
    report: Report
    secret: bool = False
    """True if messages must not quote the value."""

    @property
    def valid(self) -> bool:
        return self.path not in self.report.problems

    def fail(self, message: str) -> None:
        self.report.problems.setdefault(self.path, {})[message] = None

    def miss(self, message: str) -> None:
        """Report that a value to which the file refers cannot be had, such as an unset variable."""
        self.fail(message)
        if self.report.missing is not None:
            self.report.missing.setdefault(self.path, {})[message] = None
            self.report.set_aside.add((self.path, message))

    def refuse(self, message: str) -> None:
        """Report a problem with the resolved value, which is not in the file if it has a reference."""
        refers = isinstance(self.value, dict) or (isinstance(self.value, str) and "${" in self.value)
        (self.miss if refers else self.fail)(message)

    def note(self, message: str) -> None:
        """Report a warning."""
        self.report.notes.append(f"{self.path}: {message}")

    def fail_type(self, expected: str) -> None:
        self.fail(f"expected {expected}, got {describe(self.value, secret=self.secret)}{_repair(expected, self.value)}")

    def entries(self, example: str = "") -> dict[str, Node]:
        """Return the members of an object that may have any keys.

        Args:
            example: a valid object, for the message if the value is not an object.
        """
        if not isinstance(self.value, dict):
            self.fail_type(f"an object such as {example}" if example else "an object")
            return {}
        members = {
            key: Node(value, _join(self.path, key), self.report, self.secret) for key, value in self.value.items()
        }
        for key in getattr(self.value, "repeated", ()):
            members[key].fail("this key is given more than once; keep one")
        return members

    def fields(
        self, known: Collection[str], *, foreign: Mapping[str, str | None] | None = None, example: str = ""
    ) -> dict[str, Node]:
        """Return the members of an object. Unknown keys are problems.

        Args:
            foreign: keys of other programs, which are ignored. Each has the key to use instead, or an empty string. A
                key with None is ignored without a warning.
            example: a valid object, for the message if the value is not an object.
        """
        members = self.entries(example)
        for key, node in members.items():
            if foreign and key in foreign:
                instead = foreign[key]
                if instead is not None:
                    node.note(f"ignored, because it is a key of other clients{instead and f'; use {instead} instead'}")
            elif key not in known:
                node.fail(f"unknown key{did_you_mean(key, known)}; allowed: {', '.join(known)}")
        return {key: node for key, node in members.items() if key in known}

    def settings(self, readers: Readers) -> dict[str, Any]:
        """Return the values of an object as arguments of a settings class. `maxBytes` becomes `max_bytes`.

        Args:
            readers: all keys that the object may have.
        """
        return read_fields(self.fields(tuple(readers)), readers)

    def items(self) -> Iterator[Node]:
        if not isinstance(self.value, list):
            self.fail_type("an array of strings")
            return
        for index, value in enumerate(self.value):
            yield Node(value, f"{self.path}[{index}]", self.report, self.secret)

    def text(self) -> str:
        """Return a string that can be passed to the operating system."""
        if not isinstance(self.value, str):
            self.fail_type("a string")
            return ""
        if _NOT_FOR_THE_SYSTEM.search(self.value):
            self.fail("the string contains NUL or half of a surrogate pair; remove that character")
        return self.value

    def nonblank(self) -> str:
        text = self.text()
        if self.valid and not text.strip():
            self.fail("must not be empty")
        return text

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            self.fail_type("true or false")
        return self.value is True

    def integer(self, expected: str = "an integer", lowest: int | None = None, highest: int | None = None) -> int:
        """Return an integer. It may be written as `1e4`, as in JSON Schema.

        Args:
            expected: a description of valid values, for the message.
            lowest, highest: the bounds; None if there is no bound.
        """
        value = self.value
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        if is_integer and (lowest is None or value >= lowest) and (highest is None or value <= highest):
            return int(value)
        self.fail_type(expected)
        return lowest or 0

    def clamped(self, clamp: Clamp, expected: str = "an integer") -> int:
        """Return an integer within a range. A number outside is replaced by the nearest bound, with a warning."""
        value = self.integer(expected)
        inside = min(max(value, clamp.lowest), clamp.highest)
        if inside != value:
            self.note(f"{describe(value)} is outside {clamp.lowest} - {clamp.highest}; {inside} is used")
        return inside

    def choice(self, *allowed: _Text) -> _Text | None:
        """Return the string if it is allowed. Otherwise report a problem and return None."""
        for each in allowed:
            if each == self.value:
                return each
        hint = did_you_mean(self.value, allowed) if isinstance(self.value, str) and len(allowed) > 1 else ""
        listed = " or ".join(map(quote, allowed))
        self.fail(f"expected {listed}, got {describe(self.value, secret=self.secret)}{hint}")
        return None


def read_fields(fields: Mapping[str, Node], readers: Readers) -> dict[str, Any]:
    """Return the values of some members by field name, in the order of the readers. `maxBytes` becomes `max_bytes`."""
    return {
        re.sub("[A-Z]", lambda match: f"_{match[0].lower()}", key): read(fields[key])
        for key, read in readers.items()
        if key in fields
    }


def one_of(*allowed: str) -> Callable[[Node], str | None]:
    return lambda node: node.choice(*allowed)


def text_that(is_valid: Callable[[str], object], problem: str) -> Callable[[Node], str]:
    def read(node: Node) -> str:
        text = node.text()
        if node.valid and not is_valid(text):
            node.fail(problem)
        return text

    return read


def array_of(read: Callable[[Node], _T]) -> Callable[[Node], tuple[_T, ...]]:
    return lambda node: tuple(map(read, node.items()))


def section(node: Node, model: type[_Settings], **special: Callable[[Node], Any]) -> _Settings:
    """Return a section as its settings. Null stands for the defaults."""
    return model() if node.value is None else model(**node.settings(readers_of(model, **special)))


def readers_of(model: type[Any], **special: Callable[[Node], Any]) -> Readers:
    """Return readers for the keys of a section, from the types and ranges of its fields.

    Only booleans, numbers with a range and `Literal` have a reader. A field of another type is not a key of the file,
    unless `special` has its reader, by name.
    """
    hints = get_type_hints(model)
    found = {key_of(each): special.get(each.name) or _reader(hints[each.name], each.metadata) for each in fields(model)}
    return {key: read for key, read in found.items() if read is not None}


def _reader(hint: Any, metadata: Mapping[str, Any]) -> Callable[[Node], Any] | None:
    if NoneType in get_args(hint):
        hint, *_ = get_args(hint)  # None: the file does not have the key
    if "range" in metadata:
        return partial(Node.clamped, clamp=metadata["range"])
    if get_origin(hint) is Literal:
        return one_of(*get_args(hint))
    return Node.flag if hint is bool else None


def nearest(name: str, allowed: Collection[str]) -> str | None:
    return next(iter(nearest_names(name, allowed, count=1)), None)


def quote(text: str) -> str:
    """Return a text in double quotes on one line. It is shortened, and control characters are escaped."""
    cut = text if len(text) <= _MAX_QUOTED else text[: _MAX_QUOTED - 3] + "..."
    return json.dumps(cut, ensure_ascii=not cut.isprintable())


def describe(value: object, *, secret: bool = False) -> str:
    """Return a value in a few words for a message. A secret value is described only by its type."""
    match value:
        case None:
            return "null"
        case dict():
            return "an object"
        case list():
            return "an array"
        case str():
            return "a string" if secret else quote(value)
        case bool():
            return "a boolean" if secret else json.dumps(value)
        case int() if value.bit_length() > 128:  # Python refuses to print the longest integers
            return "a very large number"
        case _:
            return "a number" if secret else str(value)


def _repair(expected: str, value: object) -> str:
    """Return a hint if only the type of the value is wrong. The hint does not quote the value."""
    match value:
        case bool() | int() | float() if expected.startswith("a string"):
            return "; write it in quotes"
        case str() if expected == "an array of strings":
            return "; write it in brackets, each word as a string"
        case str() if expected == "true or false" and value.strip().lower() in ("true", "false"):
            return "; write it without quotes"
        case str() if "integer" in expected and value.strip().isdecimal():
            return "; write it without quotes"
    return ""


def did_you_mean(name: str, allowed: Collection[str]) -> str:
    """Return ` (did you mean "..."?)`, or an empty string if no allowed name is close."""
    close = nearest(name, allowed)
    return f" (did you mean {quote(close)}?)" if close is not None else ""


def _join(path: str, key: str) -> str:
    """Return the path of a member, such as `mcpServers.github` or `mcpServers["my server"]`."""
    if re.fullmatch(r"[A-Za-z0-9_$-]+", key):
        return f"{path}.{key}" if path else key
    return f"{path}[{quote(key)}]"


# Rules: the patterns of `allow`, `deny`, `ask` and `approved`.
#
# A pattern that can match no tool is an error. In `deny`, a misspelled pattern would otherwise allow the tool.


ANNOTATION_TESTS = ("readOnly", "destructive", "idempotent", "openWorld")
"""Tests of annotations that `rules.matches` knows."""

_ALLOWED = (
    f'allowed: the annotation tests {", ".join(ANNOTATION_TESTS)} and id patterns like "mcp:github:*", '
    f"which start with {' '.join(SOURCES)} or *"
)


def id_pattern(node: Node) -> str:
    """Return an annotation test or a glob on whole ids."""
    pattern = node.text()
    literal = re.split(r"[*?]", pattern, maxsplit=1)[0]
    if literal == pattern:
        possible = pattern in ANNOTATION_TESTS or (pattern.startswith(SOURCES) and pattern.count(":") >= 2)
    else:
        possible = literal.startswith(SOURCES) or any(source.startswith(literal) for source in SOURCES)
    if node.valid and not possible:
        node.fail(f"{quote(pattern)} can match no tool{did_you_mean(pattern, ANNOTATION_TESTS)}; {_ALLOWED}")
    return pattern


RULES: Readers = dict.fromkeys(("allow", "deny", "ask", "approved"), array_of(id_pattern))
"""Readers for the lists of rules of `tools` and of a context."""


def tool_pattern(server: str, node: Node) -> str:
    """Return a glob on ids for a tool name, or a glob on tool names, in the `allow` or `deny` of a server."""
    pattern = node.nonblank()
    if pattern in ANNOTATION_TESTS:
        node.fail(f"{quote(pattern)} is an annotation test; write it in the lists under `tools`")
    elif pattern.startswith(SOURCES):
        node.fail(f'{quote(pattern)} is an id; write the tool name alone, or a glob like "delete_*"')
    return f"mcp:{server}:{pattern}"


# URLs and scopes in the OAuth settings of servers and of `http`.


scope = text_that(
    re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+").fullmatch,
    "a scope is one word, without spaces and quotes; write each scope as a string",
)
"""A reader for a scope token of RFC 6749, section 3.3. Messages do not quote it: `auth` is a secret section."""


def is_http_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        has_host = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return has_host and url.isprintable() and " " not in url


def is_metadata_url(url: str) -> bool:
    """Return True for a URL that can be a client id: `https` with a path."""
    return is_http_url(url) and url.startswith("https://") and url.count("/") > 2 and not url.endswith("/")


def is_resource_url(url: str) -> bool:
    """Return True for a URL that can name a server: without a query and a fragment."""
    if not is_http_url(url) or not url.isascii() or re.search(r'["\\]', url):
        return False
    parts = urlsplit(url)
    return not parts.fragment and not parts.query


def is_safe_url(url: str) -> bool:
    """Return True if others cannot read or change the traffic of a URL: it uses `https`, or is on this machine."""
    parts = urlsplit(url) if is_resource_url(url) else None
    return parts is not None and (parts.scheme == "https" or parts.hostname in ("localhost", "127.0.0.1", "::1"))
