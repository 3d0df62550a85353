"""The checks that every value of the file goes through, and the wording of their messages.

A value is echoed only where it cannot be a secret; containers, and values under a secret key, are named by type.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from codemode_mcp.did_you_mean import nearest as nearest_names
from codemode_mcp.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

_MAX_ECHO = 60
_NOT_FOR_THE_SYSTEM = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Report:
    """Problems and warnings so far. The collections are the mutable state.

    Attributes:
        problems: the messages by the path of their key; the inner keys are the messages, each once.
    """

    problems: dict[str, dict[str, None]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def raise_problems(self) -> None:
        """Raise `ConfigError` if there are any."""
        if self.problems:
            raise ConfigError(
                tuple(f"{path}: {message}" for path, messages in self.problems.items() for message in messages)
            )


@dataclass(frozen=True, slots=True)
class Node:
    """One value of the file and the path of its key.

    A check that fails reports and returns a stand-in of the right type, so that the checks continue. No stand-in
    gets out: `Report.raise_problems` comes before any use of the values.
    """

    value: Any
    path: str
    report: Report
    secret: bool = False
    """True if the value must not be echoed."""

    @property
    def sound(self) -> bool:
        """Return True if no problem of this very key is known yet."""
        return self.path not in self.report.problems

    def fail(self, message: str) -> None:
        self.report.problems.setdefault(self.path, {})[message] = None

    def note(self, message: str) -> None:
        self.report.notes.append(f"{self.path}: {message}")

    def fail_type(self, expected: str) -> None:
        self.fail(f"expected {expected}, got {describe(self.value, secret=self.secret)}{_repair(expected, self.value)}")

    def entries(self, example: str = "") -> dict[str, Node]:
        """Return the members of an object, whatever their names. `example` is shown where the value is no object."""
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
        """Return the members of an object that has `known` keys only.

        `foreign` keys are noted and left out; each comes with the name of what to use instead, or an empty string. With
        None a key is left out without a note.
        """
        members = self.entries(example)
        for key, node in members.items():
            if foreign and key in foreign:
                instead = foreign[key]
                if instead is not None:
                    node.note(f"ignored, a key of other clients{instead and f'; use {instead} instead'}")
            elif key not in known:
                node.fail(f"unknown key{did_you_mean(key, known)}; allowed: {', '.join(known)}")
        return {key: node for key, node in members.items() if key in known}

    def items(self) -> Iterator[Node]:
        """Yield the members of an array."""
        if not isinstance(self.value, list):
            self.fail_type("an array of strings")
            return
        for index, value in enumerate(self.value):
            yield Node(value, f"{self.path}[{index}]", self.report, self.secret)

    def text(self) -> str:
        """Return a string that the operating system can take."""
        if not isinstance(self.value, str):
            self.fail_type("a string")
            return ""
        if _NOT_FOR_THE_SYSTEM.search(self.value):
            self.fail("the string holds NUL or half of a surrogate pair")
        return self.value

    def filled(self) -> str:
        """Like `text`, and not empty."""
        text = self.text()
        if self.sound and not text.strip():
            self.fail("must not be empty")
        return text

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            self.fail_type("true or false")
        return self.value is True

    def integer(self, expected: str = "an integer") -> int | None:
        """Return a whole number, `1e4` included as in JSON Schema; `None` when it is none."""
        if isinstance(self.value, int) and not isinstance(self.value, bool):
            return self.value
        if isinstance(self.value, float) and self.value.is_integer():
            return int(self.value)
        self.fail_type(expected)
        return None

    def choice(self, *allowed: str) -> str | None:
        """Return one of `allowed`; `None` when it is none of them."""
        if isinstance(self.value, str) and self.value in allowed:
            return self.value
        hint = did_you_mean(self.value, allowed) if isinstance(self.value, str) and len(allowed) > 1 else ""
        listed = " or ".join(map(quote, allowed))
        self.fail(f"expected {listed}, got {describe(self.value, secret=self.secret)}{hint}")
        return None


def nearest(name: str, allowed: Collection[str]) -> str | None:
    """Return the one of `allowed` that `name` most likely stands for, if any is close."""
    return next(iter(nearest_names(name, allowed, count=1)), None)


def quote(text: str) -> str:
    """`text` in double quotes on one line, cut to a readable length; what a terminal might obey is escaped."""
    cut = text if len(text) <= _MAX_ECHO else text[: _MAX_ECHO - 3] + "..."
    return json.dumps(cut, ensure_ascii=not cut.isprintable())


def describe(value: object, *, secret: bool = False) -> str:
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
        case int() if value.bit_length() > 128:  # Python refuses to print the longest ones
            return "a very large number"
        case _:
            return "a number" if secret else str(value)


def _repair(expected: str, value: object) -> str:
    """`; write it ...` where the kind of the value is all that is wrong. It holds nothing of the value."""
    match value:
        case bool() | int() | float() if expected.startswith("a string"):
            return "; write it in quotes"
        case str() if expected == "an array of strings":
            return "; write it in brackets, each word by itself"
        case str() if expected == "true or false" and value.strip().lower() in ("true", "false"):
            return "; write it without quotes"
        case str() if "integer" in expected and value.strip().isdecimal():
            return "; write it without quotes"
    return ""


def did_you_mean(name: str, allowed: Collection[str]) -> str:
    """` (did you mean "..."?)` when there is a nearest name, else nothing."""
    close = nearest(name, allowed)
    return f" (did you mean {quote(close)}?)" if close is not None else ""


def _join(path: str, key: str) -> str:
    """Return the path of a member: `mcpServers.github`, or `mcpServers["my server"]` where the name is no plain
    word."""
    if re.fullmatch(r"[A-Za-z0-9_$-]+", key):
        return f"{path}.{key}" if path else key
    return f"{path}[{quote(key)}]"
