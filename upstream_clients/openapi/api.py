"""An HTTP API as tools: the one door to the pure part of this package. Pure: no I/O."""

from __future__ import annotations

import base64
import codecs
import re
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
from msgspec import Struct, structs

from upstream_clients.openapi.arguments import Arguments, Credentials, read_arguments
from upstream_clients.openapi.bodies import media_kind
from upstream_clients.openapi.document import PER_OPERATION, BudgetError, DocumentError, UnsupportedError, plain_text
from upstream_clients.openapi.operations import (
    Addresses,
    Operation,
    Skipped,
    http_address,
    logins,
    read_operations,
    server_address,
)
from upstream_clients.openapi.reading import read_document
from upstream_clients.openapi.requests import ApiRequest, ArgumentProblem, make_request
from upstream_clients.openapi.schemas import Bounds, Converted, Schemas
from upstream_clients.redaction import Secrets, secrets_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from upstream_clients.openapi.document import Document


__all__ = ["Api", "ApiRequest", "ApiResponse", "ArgumentProblem", "DocumentError", "Skipped"]

MAX_INPUT: Final = 16_000
MAX_OUTPUT: Final = 12_000
"""Maximum length, as JSON, of the schemas of a tool. Larger ones are cut (`schemas`)."""
MAX_TOOLS_BYTES: Final = 64 * 1024 * 1024
"""Maximum length, as JSON, of all tools of a document, as in the list of an MCP server."""
REQUEST_KEY: Final = "x-request"
"""Member of an input schema with the method, the path, and the address if the document decides it."""
ENCODING_KEY: Final = "x-encoding"
"""Member of an input schema with a digest of how the arguments are sent."""
_MAX_TITLE: Final = 200

_READ_ONLY: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_IDEMPOTENT: Final = _READ_ONLY | {"PUT", "DELETE"}

_FORGOTTEN: Final = Converted({}, (), 0)


class _Tool(Struct, frozen=True):
    """The parts of an operation that its calls need.

    Neither the document nor its schemas, as they were before they were cut, stay in memory with it.
    """

    operation: Operation
    arguments: Arguments
    accept: str
    is_json: bool
    server: str


class Api:
    """An API as its document describes it.

    Attributes:
        base_url: the configured address, else that of the document; None if there is neither. It has no final slash.
            The target of a request is appended to it, except for operations with a server of their own.
        base_from_document: True if the address comes from the document.
        tools: as in `tools/list`, in the order of the paths of the document.
        skipped: operations that are no tools.
        own_servers: the addresses of the servers that only single operations have, without a final slash.
        security: sentences about the logins that the document names.
    """

    def __init__(
        self,
        document: Document,
        *,
        base_url: str | None,
        source: str,
        given: Iterable[tuple[str, str]] = (),
        other_origins: Iterable[str] = (),
    ) -> None:
        info = document.root.get("info")
        info = info if isinstance(info, dict) else {}
        self.title = plain_text(info.get("title"), _MAX_TITLE) or ""
        self.version = plain_text(str(info.get("version", "")), _MAX_TITLE) or ""
        self.description = plain_text(info.get("description"), 4_000) or ""
        self.security: tuple[str, ...] = logins(document)
        credentials = Credentials(document, given)
        operations, skipped = read_operations(document)
        stated = document.root.get("servers")
        if not stated and operations and all(each.servers for each in operations):
            stated = operations[0].servers  # otherwise, those without servers are at the document's own host
        from_document = server_address(stated, source)
        self.base_url = http_address(base_url) if base_url is not None else from_document
        self.base_from_document = base_url is None and self.base_url is not None
        addresses = Addresses(self.base_url, stated, from_document, tuple(other_origins))
        schemas = Schemas(document)
        bounds = Bounds(schemas)
        self._tools: dict[str, _Tool] = {}
        listed: list[Mapping[str, Any]] = []
        room, budget = MAX_TOOLS_BYTES, document.budget
        for operation in operations:
            try:
                budget.spend(PER_OPERATION, 2 * operation.length)
                server = addresses.own_server(operation.servers, source)
                arguments = read_arguments(operation, document, schemas, credentials)
                answers = read_answers(operation, document, schemas)
                tool, size = self._listed(operation, server, arguments, answers, bounds)
                if size > room:
                    raise UnsupportedError(f"the operations before it have schemas of {MAX_TOOLS_BYTES} bytes")
            except (UnsupportedError, BudgetError) as error:
                skipped.append(Skipped(f"{operation.method} {operation.path}", str(error)))
                continue
            room -= size
            self._tools[operation.name] = _Tool(
                structs.replace(operation, node={}, parameters=()),
                structs.replace(arguments, schema=_FORGOTTEN),
                answers.accept,
                answers.schema is not None,
                server,
            )
            listed.append(tool)
        self.tools: tuple[Mapping[str, Any], ...] = tuple(listed)
        self.skipped: tuple[Skipped, ...] = tuple(skipped)
        self.own_servers = tuple(dict.fromkeys(each.server for each in self._tools.values() if each.server))

    @classmethod
    def read(
        cls,
        data: bytes,
        *,
        base_url: str | None,
        source: str,
        given: Iterable[tuple[str, str]] = (),
        other_origins: Iterable[str] = (),
    ) -> Self:
        """Return the API that a document describes.

        Args:
            base_url: the configured address of the API; None if the document states it.
            source: the document's own address or path.
            given: places and names of the parameters that the entry of the configuration sets, such as
                `("header", "X-Key")`. They are no arguments.
            other_origins: origins other than that of the API to which operations with a server of their own may go.

        Raises:
            DocumentError: the document cannot be used. The message is a sentence for a person.
        """
        try:
            document = read_document(data)
            return cls(document, base_url=base_url, source=source, given=given, other_origins=other_origins)
        except RecursionError:
            raise DocumentError("the document is nested too deeply") from None
        except BudgetError as error:
            raise DocumentError(str(error)) from None
        except (TypeError, ValueError, AttributeError, LookupError):
            # Parts of a wrong type are expected everywhere. This is for those that are not.
            raise DocumentError("the document has a part of a type that OpenAPI does not allow there") from None

    def request(self, tool: str, arguments: Mapping[str, Any]) -> ApiRequest:
        """Return the request of a call.

        Raises:
            ArgumentProblem: the arguments cannot be sent. The message says what to do.
            KeyError: the tool is unknown.
        """
        found = self._tools[tool]
        operation = found.operation
        return make_request(operation.method, operation.path, operation.query, found.accept, found.arguments, arguments)

    def result(
        self,
        tool: str,
        response: ApiResponse,
        read_json: Callable[[bytes], Any] = msgspec.json.decode,
        secrets: tuple[str, ...] = (),
    ) -> dict[str, Any]:
        """Return the result of `tools/call` for the answer to a request. `read_json`: see `result_of`.

        Args:
            secrets: the values that are replaced in the answer.
        """
        is_json_expected = self._tools[tool].is_json
        return result_of(
            response, tool, is_json_expected=is_json_expected, read_json=read_json, secrets=secrets_of(secrets)
        )

    def is_repeatable(self, tool: str) -> bool:
        """Return True if a request has the same effect when it is sent again."""
        return self._tools[tool].operation.method in _IDEMPOTENT

    def server_of(self, tool: str) -> str:
        """Return the address of the server that an operation has of its own; empty for the base address."""
        return self._tools[tool].server

    def _listed(
        self, operation: Operation, server: str, arguments: Arguments, answers: Answers, bounds: Bounds
    ) -> tuple[dict[str, Any], int]:
        base = server or (self.base_url if self.base_from_document else "")
        query = f"?{operation.query}" if operation.query else ""
        place = f"{operation.method} {base}{operation.path}{query}"
        schema, size = bounds.bounded(arguments.schema, "input", MAX_INPUT)
        tool: dict[str, Any] = {
            "name": operation.name,
            "description": f"{operation.description}\n{place}".lstrip(),
            # Pins do not hold a tool of which only texts have changed. So the request is not only in a text.
            "inputSchema": {**schema, REQUEST_KEY: place, ENCODING_KEY: arguments.digest},
            "annotations": _annotations(operation.method),
        }
        if answers.schema is not None:
            try:
                tool["outputSchema"], more = bounds.bounded(answers.schema, "output", MAX_OUTPUT)
                size += more
            except UnsupportedError:
                pass  # the value is not described
        return tool, size + len(tool["description"])


def _annotations(method: str) -> dict[str, bool]:
    found = {"readOnlyHint": method in _READ_ONLY, "openWorldHint": True}
    if method in _IDEMPOTENT:
        found["idempotentHint"] = True
    if method == "DELETE":
        found["destructiveHint"] = True
    return found


# Answers of an API as results of tools, and the schema of their values.
#
# A body in JSON is `structuredContent`, whatever its type. A text is a text block, a picture a picture, and any other
# body an embedded resource with its bytes in base64. Status and a few headers are in `_meta.http`.


_HEADERS: Final = frozenset({"etag", "last-modified", "link", "location", "next-page", "retry-after"})
_HEADER_PREFIXES: Final = ("ratelimit", "x-ratelimit", "x-rate-limit", "x-total", "x-page", "x-per-page", "x-next-page")
_CHARSET: Final = re.compile(
    r"utf-?(?:8|16|32)(?:-?[bl]e)?|us-ascii|ascii|latin-?1|iso[-_]?8859[-_](?:[1-9]|1[0134-6])|windows-125[0-8]|cp125[0-8]"
    r"|koi8-[ru]|macintosh|gbk|gb2312|gb18030|big5|shift[-_]jis|euc-(?:jp|kr)|iso-2022-(?:jp|kr)|tis-620",
    re.IGNORECASE | re.ASCII,
)
"""Charsets of web pages. Other codecs of Python are no charsets, and some take quadratic time (`punycode`)."""
_MAX_HEADER: Final = 4_000
_MAX_HEADERS: Final = 30
_NO_SECRETS: Final = Secrets(())


class ApiResponse(Struct, frozen=True):
    """An answer of an API.

    Attributes:
        headers: names in lower case.
    """

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes


class Answers(Struct, frozen=True):
    """The answers that an operation describes for success.

    Attributes:
        accept: the header `Accept`.
        schema: the schema of the value; None if it may be something other than JSON, or is not described.
    """

    accept: str
    schema: Converted | None


def read_answers(operation: Operation, document: Document, schemas: Schemas) -> Answers:
    """Return the successful answers of an operation.

    An answer that cannot be read leaves the value undescribed, and the operation can be called.
    """
    responses = operation.node.get("responses")
    if isinstance(responses, dict):
        document.budget.spend(len(responses))
    try:
        found = [document.follow(each) for each in _successful(responses)] if isinstance(responses, dict) else []
        contents = [_content(each, document) for each in found]
    except UnsupportedError:
        contents = []
    types = list(dict.fromkeys(media_type for content in contents for media_type in content))
    chosen = [_json_content(content) for content in contents if content]
    accept = _accept([each[0] for each in chosen if each], types) if types else _accept_produced(operation.node)
    if operation.method == "HEAD" or not chosen or not all(chosen):
        return Answers(accept, None)
    parts: dict[str, Converted] = {}
    for _, media in filter(None, chosen):
        converted = schemas.convert(media.get("schema"), "output")
        if not isinstance(converted.schema, dict) or not converted.schema:
            return Answers(accept, None)
        document.budget.spend(1, 2 * converted.size)
        parts.setdefault(str(converted.schema), converted)
    if not all(contents):
        parts["null"] = Converted({"type": "null"}, (), 20)
    if len(parts) == 1:
        return Answers(accept, next(iter(parts.values())))
    names = tuple(dict.fromkeys(name for part in parts.values() for name in part.names))
    whole = {"anyOf": [part.schema for part in parts.values()]}
    return Answers(accept, Converted(whole, names, 20 + sum(part.size for part in parts.values())))


def _successful(responses: Mapping[str, Any]) -> list[Any]:
    found = [each for status, each in responses.items() if len(status) == 3 and status.startswith("2")]
    return found or [responses[each] for each in ("default",) if each in responses]


def _content(response: Any, document: Document) -> dict[str, Mapping[str, Any]]:
    content = response.get("content") if isinstance(response, dict) else None
    if not isinstance(content, dict):
        return {}
    document.budget.spend(5 * len(content), sum(map(len, content)))
    found = {media_type: document.follow(media) for media_type, media in content.items()}
    return {media_type: media for media_type, media in found.items() if isinstance(media, dict)}


def _json_content(content: dict[str, Mapping[str, Any]]) -> tuple[str, Mapping[str, Any]] | None:
    found = [each for each in content.items() if media_kind(each[0]) == "json"]
    if not found and "*/*" in content:
        schema = content["*/*"].get("schema")
        if isinstance(schema, dict) and schema.get("type") not in ("string", "file"):
            found = [("*/*", content["*/*"])]
    return min(found, key=lambda each: not each[0].lower().startswith("application/json"), default=None)


def _accept_produced(node: Mapping[str, Any]) -> str:
    """Return the header `Accept` for an operation of Swagger 2 whose answers have media types and no schemas."""
    produced = node.get("produces")
    types = [each for each in produced if isinstance(each, str)] if isinstance(produced, list) else []
    return _accept([each for each in types if media_kind(each) == "json"], types)


def _accept(in_json: list[str], types: list[str]) -> str:
    chosen = [
        each
        for each in dict.fromkeys(in_json or types)
        if "*" not in each and "/" in each and each.isascii() and each.isprintable() and len(each) <= 200
    ]
    return ", ".join([*(chosen[:8] or ["application/json"]), "*/*;q=0.1"])


# Results


def result_of(
    response: ApiResponse,
    tool: str,
    *,
    is_json_expected: bool,
    read_json: Callable[[bytes], Any] = msgspec.json.decode,
    secrets: Secrets = _NO_SECRETS,
) -> dict[str, Any]:
    """Return the result of `tools/call` for an answer, without secrets that the answer repeats.

    The secrets are searched after the body is decoded: a reader sees the decoded text.

    Args:
        is_json_expected: True if the operation answers with JSON. Then a body of an unclear type is read as JSON.
        read_json: reads a body as JSON. Raises `ValueError` or `RecursionError` if it is none.
        secrets: the secrets that the request may have had.
    """
    meta = {"http": {"status": response.status, "headers": secrets.hide_in(_shown_headers(response.headers))}}
    media_type = response.headers.get("content-type", "")
    kind = media_kind(media_type) if media_type else None
    if not 200 <= response.status < 300:
        return {"content": _error(response, kind, secrets), "isError": True, "_meta": meta}
    if not response.body.strip():
        return {"content": [_text("null")], "structuredContent": None, "_meta": meta}
    if kind == "json" or is_json_expected or kind is None:
        try:
            value = read_json(response.body.removeprefix(codecs.BOM_UTF8))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
            pass
        else:
            value = secrets.hide_in(value, response.body.decode("utf-8", "replace"))
            content = [_text("null")] if value is None else []
            return {"content": content, "structuredContent": value, "_meta": meta}
    if kind in ("json", "text", "form") or (kind is None and _decoded(response, strict=True) is not None):
        return {"content": [_text(secrets.hide(_decoded(response) or ""))], "_meta": meta}
    hidden = structs.replace(response, body=secrets.hide_in_bytes(response.body))
    return {"content": [_binary(hidden, secrets.hide(media_type), tool)], "_meta": meta}


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _error(response: ApiResponse, kind: str | None, secrets: Secrets) -> list[dict[str, Any]]:
    # Secrets are replaced before a text is cut: half of one would not be found.
    reason = secrets.hide("".join(filter(str.isprintable, response.reason)))[:200]
    blocks = [_text(f"HTTP {response.status} {reason}".rstrip())]
    location = response.headers.get("location")
    if 300 <= response.status < 400 and location:
        blocks.append(_text(f"It redirects to {secrets.hide(location)[:_MAX_HEADER]}, which was not followed."))
    if response.body:
        readable = kind in ("json", "text", "form") or _decoded(response, strict=True) is not None
        body = _decoded(response) if readable else f"The body has {len(response.body)} bytes that are no text."
        blocks.append(_text(secrets.hide(body or "")))
    return blocks


def _decoded(response: ApiResponse, *, strict: bool = False) -> str | None:
    """Return the body as text. `strict`: return None if it is not valid."""
    _, _, parameters = response.headers.get("content-type", "").partition(";")
    charset = "utf-8"
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            charset = value.strip().strip('"')
    if not _CHARSET.fullmatch(charset):
        charset = "utf-8"
    try:
        text = response.body.removeprefix(codecs.BOM_UTF8).decode(charset, "strict" if strict else "replace")
    except (UnicodeError, ValueError, LookupError):
        return None
    return None if strict and "\0" in text else text


def _binary(response: ApiResponse, media_type: str, tool: str) -> dict[str, Any]:
    name = media_type.partition(";")[0].strip().lower() or "application/octet-stream"
    data = base64.b64encode(response.body).decode("ascii")
    if name.startswith("image/") and "svg" not in name:
        return {"type": "image", "data": data, "mimeType": name}
    if name.startswith("audio/"):
        return {"type": "audio", "data": data, "mimeType": name}
    return {"type": "resource", "resource": {"uri": f"openapi:{tool}", "mimeType": name, "blob": data}}


def _shown_headers(headers: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for name, value in headers.items():
        if (name in _HEADERS or name.startswith(_HEADER_PREFIXES)) and len(value) <= _MAX_HEADER:
            found[name] = value
            if len(found) == _MAX_HEADERS:
                break
    return found
