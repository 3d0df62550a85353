"""The file with what a test expects, beside its recording. Pure.

The file `report.first.expect.json` belongs to the recording `report.first.recording.jsonl`. All members are optional:

- `input`: the input of the saved program. Without it, the test uses the recorded input.
- `result`: a value that the result must contain: objects may have more members than these, lists may not.
- `calls`: how often each of these tools is called. `{"MCP.tracker.listIssues": 2}`
- `error`: a part of the error with which the program must fail.
- `loose`: true to answer calls by their tool alone, whatever their arguments are.
- `snapshot`: what `--update` has written. It replaces the recorded result, outputs and calls.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from codemode_mcp.json_text import json_text
from codemode_mcp.strict_json import parse_json

if TYPE_CHECKING:
    from collections.abc import Mapping

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_SHOWN = 160
"""Characters of a value that are shown."""

Count = Annotated[int, Meta(ge=0, le=1_000_000)]


class ExpectationError(Exception):
    """Error for a text that is no expectation. The message is for the user."""


class Failure(Struct, frozen=True, forbid_unknown_fields=True):
    """The error of a program that failed, without positions."""

    code: str
    message: str


class Snapshot(Struct, frozen=True, forbid_unknown_fields=True):
    """The end of a program and its calls, compared exactly.

    Attributes:
        calls: how often each tool is called.
        error: None if the program completed.
    """

    result: Any = None
    outputs: tuple[dict[str, Any], ...] = ()
    calls: dict[str, Count] = msgspec.field(default_factory=dict)
    error: Failure | None = None


class Expectation(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The content of the file. The docstring of this module has the members."""

    input: dict[str, Any] | UnsetType = UNSET
    result: Any | UnsetType = UNSET
    calls: dict[str, Count] | UnsetType = UNSET
    error: str | UnsetType = UNSET
    loose: bool = False
    snapshot: Snapshot | UnsetType = UNSET

    @property
    def is_empty(self) -> bool:
        """Return True if nothing is expected, so that no file is needed."""
        return self == Expectation()


NOTHING = Expectation()
"""The expectation of a recording without a file."""


def read_expectation(text: str) -> Expectation:
    """Return the expectation of a file.

    Raises:
        ExpectationError: the text is no JSON, or has other members.
    """
    try:
        found = msgspec.convert(parse_json(text), Expectation)
    except msgspec.ValidationError as error:
        raise ExpectationError(f"{error}; the members are input, result, calls, error and loose") from None
    except (ValueError, RecursionError) as error:
        raise ExpectationError(f"this is not JSON: {error}") from None
    if found.result is not UNSET and found.error is not UNSET:
        raise ExpectationError("it expects both a result and an error; keep one of them")
    return found


def written(expectation: Expectation) -> str:
    """Return the text of a file."""
    text = json.dumps(msgspec.to_builtins(expectation), ensure_ascii=False, indent=2) + "\n"
    # A result may have lone surrogates, which UTF-8 cannot encode.
    return _LONE_SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def missing_parts(expected: Any, actual: Any, path: str = "result") -> list[str]:
    """Return a line for each part of `expected` that `actual` does not contain."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        found = []
        for key, value in expected.items():
            inner = f"{path}.{key}" if key.isidentifier() else f"{path}[{json_text(key)}]"
            if key not in actual:
                found.append(f"{inner}: expected {_shown(value)}, there is no such member")
            else:
                found += missing_parts(value, actual[key], inner)
        return found
    if isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            return [f"{path}: expected {_items(expected)}, got {_items(actual)}: {_shown(actual)}"]
        pairs = enumerate(zip(expected, actual, strict=True))
        return [line for index, (old, new) in pairs for line in missing_parts(old, new, f"{path}[{index}]")]
    # In Python, True equals 1.
    if isinstance(expected, bool) == isinstance(actual, bool) and expected == actual:
        return []
    return [f"{path}: expected {_shown(expected)}, got {_shown(actual)}"]


def _items(values: list[Any]) -> str:
    return f"{len(values)} item{'' if len(values) == 1 else 's'}"


def _shown(value: Any) -> str:
    text = json_text(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"


def wrong_counts(expected: Mapping[str, int], actual: Mapping[str, int]) -> list[str]:
    """Return a line for each tool that is called more or less often than expected."""
    wrong = [(tool, count) for tool, count in expected.items() if actual.get(tool, 0) != count]
    return [f"{tool}: expected {_times(count)}, got {_times(actual.get(tool, 0))}" for tool, count in wrong]


def _times(count: int) -> str:
    return "no call" if count == 0 else f"{count} call{'' if count == 1 else 's'}"
