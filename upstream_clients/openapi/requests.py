"""Requests: an operation and its arguments as method, target, headers and body. Pure: no I/O."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

from msgspec import Struct

from upstream_clients.openapi import bodies
from upstream_clients.openapi.arguments import METHOD_PARAMETER, Arguments, Parameter
from upstream_clients.openapi.bodies import (
    ArgumentProblem,
    form_pairs,
    header_value,
    json_text,
    path_value,
    quoted_literal,
)

__all__ = ["ApiRequest", "ArgumentProblem", "make_request"]

MAX_TARGET: Final = 60_000
"""Maximum length of path and query. Servers accept less."""


class ApiRequest(Struct, frozen=True):
    """A request without credentials.

    Attributes:
        target: path and query, percent-encoded. It begins with "/", and is appended to the base address.
        headers: names as the document writes them.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes | None


def make_request(
    method: str, path: str, query: str, accept: str, arguments: Arguments, values: Mapping[str, Any]
) -> ApiRequest:
    """Return the request of a call.

    Args:
        path: template of the path.
        query: fixed part of the query.

    Raises:
        ArgumentProblem: an argument is missing, or cannot be sent.
    """
    headers = {"Accept": accept}
    names = _MemberNames(arguments, query)
    pairs: list[str] = [query] if query else []
    cookies: list[str] = []
    replaced: dict[str, str] = {}
    for parameter in arguments.parameters:
        value = values.get(parameter.argument)
        if value is None:
            if parameter.is_required and parameter.argument not in values:
                raise ArgumentProblem(f"`{parameter.argument}` is missing; give it")
            if parameter.place == "path":
                raise ArgumentProblem(f"`{parameter.argument}` is null, which a path cannot have; give a value")
            continue
        if parameter.is_json:
            value = json_text(value)
        if parameter.place == "path":
            if isinstance(value, dict) and parameter.explode and parameter.style == "matrix":
                names.add(parameter.argument, "path", parameter.name, map(str, value))
            replaced[parameter.name] = path_value(parameter.name, value, parameter.style, explode=parameter.explode)
        elif parameter.place == "header":
            headers[parameter.name] = _header(parameter, value)
        else:
            is_reserved = parameter.is_reserved and parameter.place == "query"
            found = form_pairs(parameter.name, value, parameter.style, parameter.explode, is_reserved=is_reserved)
            names.add(parameter.argument, parameter.place, parameter.name, (unquote(key) for key, _ in found))
            (pairs if parameter.place == "query" else cookies).extend(f"{key}={text}" for key, text in found)
    target = _path(path, replaced, arguments) + ("?" + "&".join(pairs) if pairs else "")
    if len(target) > MAX_TARGET:
        raise ArgumentProblem(f"path and query have {len(target)} characters, more than {MAX_TARGET}; give less")
    if cookies:
        headers["Cookie"] = "; ".join(cookies)
    content = None
    if arguments.body is not None:
        encoded = bodies.encode(arguments.body, values, names)
        if encoded is not None:
            headers["Content-Type"], content = encoded
        elif arguments.body.is_required:
            raise ArgumentProblem(f"`{arguments.body.whole}` is missing; give it")
    return ApiRequest(method, target, headers, content)


_TOGETHER: Final = {
    "query": ("query", "form"),
    "form": ("query", "form", "path"),
    "cookie": ("cookie",),
    "path": ("path",),
}
"""Places whose names many servers put in one table, by the place of a name."""

_Name = tuple[str, ...]


class _MemberNames:
    """The names under which members of objects are sent. None of them may be that of something else.

    Servers read names in different ways: `a[b]` and `a.b` may be a member of `a`, and `a.b` the same name as `a_b`. A
    name is taken if it is the same in any of these ways, or if one of both is within the other.
    """

    def __init__(self, arguments: Arguments, query: str) -> None:
        """`query`: the fixed part of the query."""
        self._arguments = arguments
        self._query = query
        self._owners: dict[str, tuple[dict[_Name, set[str]], dict[_Name, set[str]]]] = {}
        """The arguments that have a name, and those that have a name within it, by place. Made when needed."""

    def add(self, argument: str, place: str, own: str, sent: Iterable[str]) -> None:
        """Add the names under which an argument is sent, of which its own name is none of a member.

        Raises:
            ArgumentProblem: a member would be sent in place of a credential, or of another parameter or its members.
        """
        for name in dict.fromkeys(sent):
            if name == own:
                continue
            if place not in self._owners:
                self._owners[place] = ({}, {})
                for owner, reserved in self._reserved(place):
                    self._enter(place, owner, reserved)
            names, above = self._owners[place]
            path = _path_of(name)
            found = [names.get(each) for each in (_flat(name), *(path[:end] for end in range(1, len(path) + 1)))]
            if _is_of_all(path) or any(each and each != {argument} for each in (*found, above.get(path))):
                raise _taken(argument, name)
            self._enter(place, argument, name)

    def _reserved(self, place: str) -> Iterator[tuple[str, str]]:
        """Yield names that no member may have, each with the argument that has it; an empty text if none has it."""
        yield "", METHOD_PARAMETER
        for name in self._arguments.credentials.names:
            yield "", name
        places = _TOGETHER[place]
        if "query" in places:
            for name, _ in parse_qsl(self._query, keep_blank_values=True):
                yield "", name
        for parameter in self._arguments.parameters:
            if parameter.place in places:
                yield parameter.argument, parameter.name
        body = self._arguments.body
        if "form" in places and body is not None and body.kind in ("form", "multipart"):
            for member in body.members:
                yield member.argument, member.name

    def _enter(self, place: str, owner: str, name: str) -> None:
        names, above = self._owners[place]
        path = _path_of(name)
        for each in (_flat(name), path):
            names.setdefault(each, set()).add(owner)
        for end in range(1, len(path)):
            above.setdefault(path[:end], set()).add(owner)


def _taken(argument: str, name: str) -> ArgumentProblem:
    return ArgumentProblem(
        f"`{argument}` has the member `{name[:100]}`, which is sent as another parameter; leave it out"
    )


def _is_of_all(path: _Name) -> bool:
    """Return True for a name that servers in JavaScript may read as a member of all objects: `__proto__[role]`."""
    return "__proto__" in path or path[:2] == ("constructor", "prototype")


def _path_of(name: str) -> _Name:
    """Return the parts of a name, as servers read it that put members into objects."""
    return tuple(part for part in re.split(r"[\[\].]+", _plain_name(name)) if part)


def _flat(name: str) -> _Name:
    """Return a name as servers read it that have `_` in place of other separators."""
    return (re.sub(r"[\s\[\].-]+", "_", _plain_name(name).strip(" \t[].-")),)


def _plain_name(name: str) -> str:
    """Return a name without differences that servers do not see: of capitals, of width, and spaces around it."""
    return unicodedata.normalize("NFKC", name.partition("\0")[0]).casefold().strip()


def _header(parameter: Parameter, value: Any) -> str:
    text = header_value(value, explode=parameter.explode).strip(" ")
    if not text.isascii() or not text.isprintable():
        raise ArgumentProblem(
            f"`{parameter.argument}` has a character that a header cannot have; give printable ASCII characters"
        )
    return text


def _path(template: str, replaced: Mapping[str, str], arguments: Arguments) -> str:
    """Return the path of a request. A value cannot leave its segment of the path."""
    segments = []
    for segment in template.split("/"):
        first, *others = segment.split("{")
        text = quoted_literal(first)
        used = []
        for part in others:
            name, _, rest = part.partition("}")
            if name not in replaced:
                raise ArgumentProblem(f"`{name}` is missing; give it")
            used.append(name)
            text += replaced[name] + quoted_literal(rest)
        if used and text.lower().replace("%2e", ".") in ("", ".", ".."):
            found = next(each.argument for each in arguments.parameters if each.name == used[0])
            raise ArgumentProblem(f"`{found}` is {text!r}, which cannot be a part of a path; give another value")
        segments.append(text)
    return "/".join(segments)
