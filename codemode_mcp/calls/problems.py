"""Problems of a value with a schema, and the order and form in which a message lists them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from codemode_mcp.calls.phrases import MAX_EXPECTED, MAX_OPTIONS, Path, clip, either, path_text, shown_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

THERE_ARE = "; there are "
"""The beginning of the list of declared names in a message. The list appears only once for each path."""

_MAX_ALIKE = 3
"""Maximum number of listed problems of one kind among the items of an array. Further ones are only counted."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a value, at a path in it.

    Attributes:
        kind: "missing" for a required property, and "unknown" for an undeclared one: their paths end with the name of
            the property. "kind" for a value of the wrong type. "choice" for a value that is not among the choices.
        expected: a few words for a valid value, if known.
        near: the name that was probably meant, for "unknown".
    """

    path: Path
    text: str
    kind: Literal["missing", "unknown", "kind", "choice", "other"] = "other"
    expected: str = ""
    near: str | None = None


def merged(found: Iterable[Problem]) -> list[Problem]:
    """Return each problem once. The problem of a misspelt name replaces the problem of the missing name."""
    problems = list(dict.fromkeys(found))
    meant = {(*p.path[:-1], p.near): p for p in reversed(problems) if p.kind == "unknown" and p.near is not None}
    listed: list[Problem] = []
    placed: set[Problem] = set()
    for problem in problems:
        unknown = meant.get(problem.path) if problem.kind == "missing" else None
        if unknown is not None and unknown not in placed:
            placed.add(unknown)
            about = f"missing, {problem.expected}" if problem.expected else "missing"
            listed.append(replace(unknown, text=did_you_mean(unknown.path[:-1], str(problem.path[-1]), f" ({about})")))
        else:
            listed.append(problem)
    return _gathered(_names_listed_once(problem for problem in listed if problem not in placed))


def _names_listed_once(problems: Iterable[Problem]) -> Iterator[Problem]:
    """Yield the problems. The names that are declared at a path are listed only once."""
    listed: set[tuple[Path, str]] = set()
    for problem in problems:
        text, _, names = problem.text.partition(THERE_ARE) if problem.kind == "unknown" else (problem.text, "", "")
        key = (problem.path[:-1], names)
        yield replace(problem, text=text) if key in listed else problem
        if names:
            listed.add(key)


def _gathered(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems. Among the items of an array, only the first few of one kind are listed, with a count."""
    counts: dict[tuple[Any, ...], int] = {}
    listed: list[Problem] = []
    ends: dict[tuple[Any, ...], int] = {}
    for problem in problems:
        inside = next((n for n, part in enumerate(problem.path) if isinstance(part, int)), None)
        if inside is None:
            listed.append(problem)
            continue
        # Paths that differ only in the numbers of items have the same form.
        form = tuple(-1 if isinstance(part, int) else part for part in problem.path)
        key = (form, problem.kind, problem.expected or problem.text.partition(", got ")[0])
        counts[key] = counts.get(key, 0) + 1
        if counts[key] <= _MAX_ALIKE:
            listed.append(problem)
        elif counts[key] == _MAX_ALIKE + 1:
            ends[key] = len(listed)
            listed.append(Problem(problem.path[:inside], ""))
    for key, n in ends.items():
        listed[n] = replace(listed[n], text=f"{counts[key] - _MAX_ALIKE} more like the last")
    return listed


def no_such(path: Path) -> str:
    """Return the words for an undeclared name. The properties of the input itself are called arguments."""
    return f"no such {'property' if path else 'argument'}"


def did_you_mean(path: Path, near: str, about: str = "") -> str:
    """Return the words for an undeclared name if another name was probably meant."""
    return f"{no_such(path)}; did you mean {shown_name(near)}{about}?"


def distance(problems: Sequence[Problem], path: Path) -> tuple[int, int, int]:
    """Return the distance of a value from a branch, by the value's type, the number of problems, and their depth.

    The program most likely meant the branch with the smallest distance.
    """
    of_kind = any(p.path == path and p.kind in ("kind", "choice") for p in problems)
    return of_kind, len(problems), -min(len(p.path) for p in problems)


def with_others(problems: list[Problem], others: Sequence[str], path: Path) -> list[Problem]:
    """Return the problems of the branch that fits best. The first one also names the other branches."""
    named = clip(either(others), MAX_EXPECTED)
    first = problems[0]
    if "(or " in first.text:  # it already names inner alternatives, which are more likely meant
        return problems
    where = "" if first.path == path else f"{path_text(path)}: "
    return [replace(first, text=f"{first.text} (or {where}{named})", kind="other"), *problems[1:]]


def lacks(branches: Sequence[Sequence[str]], path: Path) -> Problem:
    """Return the problem of a value that lacks a required property of every branch."""
    lacking = [" and ".join(shown_name(name) for name in names[:4]) for names in branches[:6]]
    more = ["…"] if len(branches) > 6 else []
    return Problem(path, f"missing {clip(', or '.join(dict.fromkeys([*lacking, *more])), MAX_OPTIONS)}")
