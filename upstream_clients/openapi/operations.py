"""Operations of an OpenAPI document, their addresses, and the logins that it names. Pure: no I/O.

The name of a tool is the `operationId` in camel case, or is made of method and path. If several operations have one
name, each of them gets method and path after it, so that no name depends on the order of the document.

An operation that cannot be called is skipped with the reason, and the others are not affected.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, urljoin, urlsplit

from msgspec import Struct, field, structs

from upstream_clients.openapi.document import PER_OPERATION, BudgetError, Document, UnsupportedError, plain_text, shown
from upstream_clients.openapi.next_request import origin_of

METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
MAX_OPERATIONS: Final = 5_000
MAX_SKIPPED: Final = 1_000
MAX_PARAMETERS: Final = 300
MAX_NAME: Final = 64
MAX_PATH: Final = 1_000
MAX_DESCRIPTION: Final = 4_000


class Skipped(Struct, frozen=True):
    """An operation that is no tool.

    Attributes:
        operation: method and path, such as `GET /pets`.
        reason: a part of a sentence, such as "it has a body of an unknown type".
    """

    operation: str
    reason: str


class Operation(Struct, frozen=True):
    """An operation as the document describes it.

    Attributes:
        name: the name of its tool.
        key: method and path as the document writes them, which no two operations have.
        method: in capitals.
        path: template that begins with `/`, as the document writes it.
        query: fixed part of the query, which a few documents have in the path.
        servers: the servers of the operation or of its path; None if there are none.
        node: the operation in the document.
        parameters: the parameters of the path and the operation, with references followed.
    """

    name: str
    key: str
    method: str
    path: str
    query: str
    servers: Any
    node: Mapping[str, Any]
    parameters: tuple[Mapping[str, Any], ...]

    @property
    def length(self) -> int:
        texts = (self.node.get("summary"), 500), (self.node.get("description"), MAX_DESCRIPTION)
        return sum(min(len(text), 4 * limit) for text, limit in texts if isinstance(text, str))

    @property
    def description(self) -> str:
        summary = plain_text(self.node.get("summary"), 500) or ""
        text = plain_text(self.node.get("description"), MAX_DESCRIPTION) or ""
        if text.startswith(summary.rstrip(".")):
            summary = ""
        parts = [summary, text, "Deprecated." if self.node.get("deprecated") is True else ""]
        return "\n".join(part for part in parts if part)


def read_operations(document: Document) -> tuple[list[Operation], list[Skipped]]:
    found: list[Operation] = []
    skipped: list[Skipped] = []
    for count, (method, path, item, node) in enumerate(_all_operations(document, skipped)):
        title = f"{method.upper()} {_shown_path(path)}"
        if count == MAX_OPERATIONS:
            skipped.append(Skipped(title, f"the document has more than {MAX_OPERATIONS} operations"))
            break
        if len(skipped) >= MAX_SKIPPED:
            skipped.append(Skipped(title, f"{MAX_SKIPPED} operations before it were skipped; the rest is not read"))
            break
        try:
            found.append(_operation(document, method, path, item, node))
        except (UnsupportedError, BudgetError) as error:
            skipped.append(Skipped(title, str(error)))
    return _with_distinct_names(found), skipped


def _shown_path(path: str) -> str:
    line = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in path[:200])
    return line if len(path) <= 200 else line + "..."


def _all_operations(
    document: Document, skipped: list[Skipped]
) -> Iterator[tuple[str, str, Mapping[str, Any], Mapping[str, Any]]]:
    paths = document.root.get("paths")
    for path, item in paths.items() if isinstance(paths, dict) else ():
        if path.startswith("x-"):
            continue
        if len(skipped) > MAX_SKIPPED:
            return
        try:
            item = document.follow(item)
        except (UnsupportedError, BudgetError) as error:
            skipped.append(Skipped(_shown_path(path), str(error)))
            continue
        if not isinstance(item, dict):
            skipped.append(Skipped(_shown_path(path), "it is not an object"))
            continue
        for method in METHODS:
            if method in item:
                yield method, path, item, item[method]


def _operation(document: Document, method: str, path: str, item: Mapping[str, Any], node: object) -> Operation:
    document.budget.spend(PER_OPERATION, len(path))
    if not isinstance(node, dict):
        raise UnsupportedError("it is not an object")
    if method == "trace":
        raise UnsupportedError("its method TRACE is not allowed")
    template, _, query = path.partition("#")[0].partition("?")
    if not template.startswith("/"):
        template = "/" + template
    if len(template) + len(query) > MAX_PATH:
        raise UnsupportedError(f"its path has more than {MAX_PATH} characters")
    if not template.isprintable():
        raise UnsupportedError("its path has a character that cannot be shown")
    if any(segment.lower().replace("%2e", ".") in (".", "..") for segment in template.split("/")):
        raise UnsupportedError("its path has a segment `.` or `..`")
    parameters: dict[tuple[str, str], Mapping[str, Any]] = {}
    for holder in (item, node):
        listed = holder.get("parameters") or []
        if not isinstance(listed, list):
            raise UnsupportedError("its `parameters` are not a list")
        for each in listed[: MAX_PARAMETERS + 1]:
            document.budget.spend(1)
            parameter = document.follow(each)
            name = parameter.get("name") if isinstance(parameter, dict) else None
            place = parameter.get("in") if isinstance(parameter, dict) else None
            if not isinstance(name, str) or not isinstance(place, str) or not name:
                raise UnsupportedError("it has a parameter without `name` and `in`")
            if len(name) > 200 or not name.isprintable():
                raise UnsupportedError(f"it has a parameter with the name {shown(name)}")
            parameters[place, name] = parameter
    if len(parameters) > MAX_PARAMETERS:
        raise UnsupportedError(f"it has more than {MAX_PARAMETERS} parameters")
    servers = node.get("servers") or item.get("servers")
    return Operation(
        _name(node.get("operationId"), method, template),
        f"{method} {path}",
        method.upper(),
        template,
        quote(query, safe="=&/:@!$'()*+,;-._~%"),
        servers or None,
        node,
        tuple(parameters.values()),
    )


# Names


_WORD: Final = re.compile(r"[A-Za-z0-9]+")


def _name(operation_id: object, method: str, path: str) -> str:
    words = _WORD.findall(operation_id[:500]) if isinstance(operation_id, str) else []
    return _bounded_name(_camel_case(words) if words else name_of_path(method, path))


def name_of_path(method: str, path: str) -> str:
    """Return a name made of method and path, such as `getPetsById`."""
    words = [method.lower()]
    for segment in path.split("/"):
        for part in re.split(r"(\{[^{}]*\})", segment):
            found = _WORD.findall(part)
            words += ["By", *found] if part.startswith("{") else found
    return _camel_case(words)


def _camel_case(words: list[str]) -> str:
    """Return words as an identifier, in the way in which declarations write the names of all tools."""
    first = words[0]
    if not (first[0].isupper() and first[1:2].isupper()):
        first = first[0].lower() + first[1:]
    name = first + "".join(_capitalised(word) for word in words[1:])
    return f"_{name}" if name[0].isdigit() else name


def _bounded_name(name: str) -> str:
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 6]}{_digest(name)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:6]


def _with_distinct_names(operations: list[Operation]) -> list[Operation]:
    """Return the operations with different names. Names that clash get method and path, and a digest if they still do.

    All names that clash are changed, so that the order does not count.
    """
    counts = Counter(operation.name for operation in operations)
    longer = {
        id(operation): _bounded_name(operation.name + _capitalised(name_of_path(operation.method, operation.path)))
        for operation in operations
        if counts[operation.name] > 1
    }
    counts.update(longer.values())
    result = []
    for operation in operations:
        name = longer.get(id(operation))
        if name is not None:
            name = name if counts[name] == 1 else f"{name[: MAX_NAME - 6]}{_digest(operation.key)}"
            operation = structs.replace(operation, name=name)
        result.append(operation)
    return result


def _capitalised(word: str) -> str:
    return word[0].upper() + word[1:]


# The address of an API, the servers of single operations, and the logins that its document names.


MAX_ADDRESS: Final = 2_000
_VARIABLE: Final = re.compile(r"\{([^{}]*)\}")


def server_address(servers: Any, source: str) -> str | None:
    """Return the address of the first server of a list, without a final slash. Return None if it is not usable.

    Args:
        source: the document's own address, to which the server's may be relative; any other text if it is a file.
    """
    first = servers[0] if isinstance(servers, list) and servers else {"url": "/"}
    url = first.get("url") if isinstance(first, dict) else None
    if not isinstance(url, str) or len(url) > MAX_ADDRESS:
        return None
    variables = first.get("variables")
    if isinstance(variables, dict):
        for name in dict.fromkeys(_VARIABLE.findall(url)):
            variable = variables.get(name)
            default = variable.get("default") if isinstance(variable, dict) else None
            if isinstance(default, (str, int)) and not isinstance(default, bool):
                url = url.replace(f"{{{name}}}", str(default)[:MAX_ADDRESS])
                if len(url) > MAX_ADDRESS:
                    return None
    return http_address(url, source)


def http_address(url: str, source: str = "") -> str | None:
    """Return an absolute address of HTTP without a final slash, query and fragment. Return None for any other."""
    url = url.strip()
    try:
        if urlsplit(source).scheme in ("http", "https"):
            url = urljoin(source, url)
        elif url.startswith("//"):
            url = f"https:{url}"
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        return None
    if not url.isprintable() or re.search(r"[\s{}\\]", url) or len(url) > MAX_ADDRESS:
        return None
    return f"{parts.scheme}://{parts.netloc.lower()}{parts.path.rstrip('/')}"


_PLAIN_ORIGIN: Final = re.compile(r"https?://(?:[a-z0-9._-]{1,255}|\[[0-9a-f:.]{2,45}\])(?::[0-9]{1,5})?(?=/|$)")
"""An origin that all readers of addresses read in the same way."""


class Addresses(Struct, frozen=True):
    """The addresses by which the place of each operation is decided.

    A document decides the path of an operation, and never its origin: that is the one of the base address, or one that
    the configuration names. A `baseUrl` that differs from the document's address may stand for a test server. So no
    server of an operation, which belongs to the document's address, is used beside it.

    Attributes:
        base: the base address of the API.
        servers: the servers that the document has for the whole API.
        stated: the address of the first of these.
        other_origins: further origins that the configuration names.
    """

    base: str | None
    servers: Any
    stated: str | None
    other_origins: tuple[str, ...] = ()
    _known: dict[int, tuple[Any, str | UnsupportedError]] = field(default_factory=dict)
    """Answers by the identities of lists of servers, which thousands of operations may share."""

    def own_server(self, servers: Any, source: str) -> str:
        """Return the address of the server of an operation; empty if the operation is at the base address.

        Args:
            servers: the servers of the operation or of its path, as the document has them.
            source: see `server_address`.

        Raises:
            UnsupportedError: no request may be sent there.
        """
        if not servers:
            return ""
        known = self._known.get(id(servers))
        if known is None:
            answer: str | UnsupportedError
            try:
                answer = self._own_server(servers, source)
            except UnsupportedError as error:
                answer = error
            known = self._known[id(servers)] = servers, answer
        if isinstance(known[1], UnsupportedError):
            raise UnsupportedError(*known[1].args)
        return known[1]

    def _own_server(self, servers: Any, source: str) -> str:
        if servers == self.servers:
            return ""
        address = server_address(servers, source)
        if address is not None and address in (self.stated, self.base):
            return ""
        found = _PLAIN_ORIGIN.match(address or "")
        if address is None or found is None:
            raise UnsupportedError("it has a server of its own without a usable address")
        if any(each.lower().replace("%2e", ".") in (".", "..") for each in address.split("/")):
            raise UnsupportedError("it has a server of its own whose path has a segment `.` or `..`")
        origin = origin_of(address)
        if origin in map(origin_of, self.other_origins):
            return address
        advice = f'if you trust it, add "{found[0]}" to "otherOrigins" of the entry'
        if self.base is None or origin != origin_of(self.base):
            raise UnsupportedError(f"it has a server of its own; {advice}")
        if self.base != self.stated:
            raise UnsupportedError(f"it has a server of its own, and `baseUrl` is not the document's address; {advice}")
        return address


_MAX_LOGINS: Final = 20


def logins(document: Document) -> tuple[str, ...]:
    """Return sentences about the logins that a document names."""
    components = document.root.get("components")
    schemes = components.get("securitySchemes") if isinstance(components, dict) else None
    found: dict[str, None] = {}
    for node in list(schemes.values())[:_MAX_LOGINS] if isinstance(schemes, dict) else ():
        try:
            scheme = document.follow(node)
        except UnsupportedError:
            continue
        if isinstance(scheme, dict) and (text := _login(scheme)):
            found[text] = None
    return tuple(found)


def _login(scheme: Mapping[str, Any]) -> str | None:
    kind = scheme.get("type")
    if kind == "apiKey":
        place = {"header": "header", "query": "query parameter", "cookie": "cookie"}.get(str(scheme.get("in")))
        name = plain_text(scheme.get("name"), 100)
        return f"API key in the {place} {name}" if place and name else None
    if kind == "http":
        name = str(scheme.get("scheme")).lower()
        return {"basic": "Basic authentication", "bearer": "Bearer token"}.get(name) or (
            f"HTTP authentication {plain_text(name, 50)}"
        )
    if kind == "oauth2":
        return _oauth(scheme.get("flows"))
    if kind == "openIdConnect":
        address = plain_text(scheme.get("openIdConnectUrl"), 300)
        return f"OpenID Connect, configuration at {address}" if address else "OpenID Connect"
    return "Certificate of the client (mutual TLS)" if kind == "mutualTLS" else None


def _oauth(flows: Any) -> str:
    """Return a sentence about the flow with the most endpoints."""
    found = ["OAuth 2"]
    for flow in flows.values() if isinstance(flows, dict) else ():
        if isinstance(flow, dict):
            addresses = {
                "authorization": plain_text(flow.get("authorizationUrl"), 300),
                "token": plain_text(flow.get("tokenUrl"), 300),
            }
            found.append(", ".join(["OAuth 2", *(f"{what} at {where}" for what, where in addresses.items() if where)]))
    return max(found, key=lambda text: text.count(" at "))
