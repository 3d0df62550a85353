"""An HTTP API as tools: the one door to the pure part of this package. Pure: no I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from upstream_clients.openapi.answers import Answers, ApiResponse, read_answers, result_of
from upstream_clients.openapi.arguments import Arguments, Credentials, read_arguments
from upstream_clients.openapi.bounds import Bounds
from upstream_clients.openapi.budget import PER_OPERATION, BudgetError
from upstream_clients.openapi.document import DocumentError, UnsupportedError
from upstream_clients.openapi.keywords import plain_text
from upstream_clients.openapi.operations import Operation, Skipped, read_operations
from upstream_clients.openapi.reading import read_document
from upstream_clients.openapi.requests import ApiRequest, ArgumentProblem, make_request
from upstream_clients.openapi.schemas import Converted, Schemas
from upstream_clients.openapi.servers import Addresses, http_address, logins, server_address
from upstream_clients.redaction import secrets_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from upstream_clients.openapi.document import Document

__all__ = ["Api", "ApiRequest", "ApiResponse", "ArgumentProblem", "DocumentError", "Skipped"]

MAX_INPUT: Final = 16_000
MAX_OUTPUT: Final = 12_000
"""Maximum length, as JSON, of the schemas of a tool. Larger ones are cut (`bounds`)."""
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


@dataclass(frozen=True, slots=True)
class _Tool:
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
                replace(operation, node={}, parameters=()),
                replace(arguments, schema=_FORGOTTEN),
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
        """Return the tool of an operation, and about its size as JSON."""
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
