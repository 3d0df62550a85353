"""Requests: an operation and its arguments as method, target, headers and body. Pure: no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from upstream_clients.openapi import bodies
from upstream_clients.openapi.styles import (
    ArgumentProblem,
    form_pairs,
    header_value,
    json_text,
    path_value,
    quoted_literal,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from upstream_clients.openapi.arguments import Arguments, Parameter

__all__ = ["ApiRequest", "ArgumentProblem", "make_request"]

MAX_TARGET: Final = 60_000
"""Maximum length of path and query. Servers accept less."""


@dataclass(frozen=True, slots=True)
class ApiRequest:
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
            replaced[parameter.name] = path_value(parameter.name, value, parameter.style, explode=parameter.explode)
        elif parameter.place == "header":
            headers[parameter.name] = _header(parameter, value)
        else:
            if isinstance(value, dict) and parameter.explode and parameter.style != "deepObject":
                _check_members(parameter, value, arguments)
            is_reserved = parameter.is_reserved and parameter.place == "query"  # a `;` would begin another cookie
            found = form_pairs(parameter.name, value, parameter.style, parameter.explode, is_reserved=is_reserved)
            (pairs if parameter.place == "query" else cookies).extend(f"{key}={text}" for key, text in found)
    target = _path(path, replaced, arguments) + ("?" + "&".join(pairs) if pairs else "")
    if len(target) > MAX_TARGET:
        raise ArgumentProblem(f"path and query have {len(target)} characters, more than {MAX_TARGET}; give less")
    if cookies:
        headers["Cookie"] = "; ".join(cookies)
    content = None
    if arguments.body is not None:
        encoded = bodies.encode(arguments.body, values)
        if encoded is not None:
            headers["Content-Type"], content = encoded
        elif arguments.body.is_required:
            raise ArgumentProblem(f"`{arguments.body.whole}` is missing; give it")
    return ApiRequest(method, target, headers, content)


def _check_members(parameter: Parameter, value: Mapping[str, Any], arguments: Arguments) -> None:
    """Raise `ArgumentProblem` if a member would be sent in place of a credential or of another parameter."""
    for key in value:
        if key != parameter.name and arguments.is_taken(parameter.place, key):
            raise ArgumentProblem(
                f"`{parameter.argument}` has the member `{key[:100]}`, which is sent as another parameter; leave it out"
            )


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
