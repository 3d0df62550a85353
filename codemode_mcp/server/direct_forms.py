"""Tools and results of direct calls, in the form of a client's protocol revision, within bounds. Pure."""

from __future__ import annotations

import hashlib
import json
import logging
from typing import TYPE_CHECKING, Any, Final

import mcp_types as types
from mcp_types import methods
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from msgspec.structs import replace
from pydantic import BaseModel, ValidationError

from codemode_mcp.base.strict_json import join_surrogates, json_text
from codemode_mcp.catalog.catalog import Catalog
from codemode_mcp.catalog.servers import ServerIndex
from codemode_mcp.catalog.toolset import Toolset
from codemode_mcp.server.exposure.apps import icons_form
from codemode_mcp.server.exposure.names import _entries_by_name, exposed_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from codemode_mcp.base.settings import PolicyRules
    from codemode_mcp.catalog.entries import Entry
    from codemode_mcp.server.direct_calls import Answer
    from upstream_clients.tools import Annotations, Tool


MAX_PARTS: Final = 10_000
"""Most content blocks of a result."""

MAX_VALUES: Final = 100_000
"""Most JSON values in a result. The SDK validates each value several times, and blocks all clients meanwhile."""

MAX_DEPTH: Final = 200
"""Most levels of JSON within a part of a result. The SDK fails to serialize 250 levels."""

TOOL = types.Tool.model_validate


def fit_tool(tool: dict[str, Any], version: str) -> dict[str, Any] | None:
    """Return a tool in a form that is valid in a revision, without its schemas if necessary; None if there is none."""
    without_output = {key: value for key, value in tool.items() if key != "outputSchema"}
    any_object = {**without_output, "inputSchema": {"type": "object"}}
    for form in (tool, without_output, any_object):
        if _is_valid("tools/list", {"tools": [form], "ttlMs": 0, "cacheScope": "private"}, version):
            return form
    return None


def result_for(name: str, text: str, version: str) -> dict[str, Any]:
    """Return a tool's result, given as JSON, in the form of the client's protocol revision.

    A content block of an unknown type becomes text, so that nothing is lost. The work blocks the event loop, so the
    size of the result is bounded.
    """
    if (count := _count_values(text)) > MAX_VALUES:
        return failure(f"{name}: the result has {count} values, more than {MAX_VALUES}; {_ASK_FOR_LESS}", version)
    result = json.loads(join_surrogates(text))
    blocks = result.get("content", [])
    if len(blocks) > MAX_PARTS:
        return failure(f"{name}: the result has {len(blocks)} parts, more than {MAX_PARTS}; {_ASK_FOR_LESS}", version)
    content = [block if _is_known(block) else text_block(json_text(block)) for block in blocks]
    fitted: dict[str, Any] = {"content": content}
    if "isError" in result:
        fitted["isError"] = result["isError"]
    if _is_meta(result.get("_meta")):
        fitted["_meta"] = result["_meta"]
    structured = result.get("structuredContent")
    if structured is not None:
        # Until 2025-11-25, structured content is an object.
        if (isinstance(structured, dict) or version in MODERN_PROTOCOL_VERSIONS) and not _is_deep(structured):
            fitted["structuredContent"] = structured
        if not content:
            # Many clients show their model only the content.
            content.append(text_block(json_text(structured)))
    return _complete(fitted, version)


def result_of(value: str) -> str:
    """Return data as a tool's result with structured content and text. Both are JSON."""
    shown = json.loads(value)
    text = shown if isinstance(shown, str) else value
    return f'{{"content":[{{"type":"text","text":{json_text(text)}}}],"structuredContent":{value}}}'


_ASK_FOR_LESS = "ask the tool for less at a time"


def _count_values(text: str) -> int:
    """Return the number of JSON values in a text, nested ones included, or an upper bound if that is within the limit.

    Counting characters is enough: each value follows a comma or an opening bracket, except the outermost one.
    """
    at_most = 1 + sum(map(text.count, ",[{"))
    if at_most <= MAX_VALUES:
        return at_most
    # Ignore the contents of strings.
    outside = '"'.join(text.replace(r"\\", "").replace(r"\"", "").split('"')[::2])
    return 1 + sum(map(outside.count, ",[{")) - outside.count("[]") - outside.count("{}")


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return False
    return True


def _is_known(block: Any) -> bool:
    # One model is chosen by the type. The union of all models is slow if each of them refuses a block.
    model = _BLOCKS.get(str(block.get("type"))) if isinstance(block, dict) else None
    if model is None or _is_deep(block):
        return False
    try:
        model.model_validate(block, by_name=False)
    except ValidationError:
        return False
    return True


_BLOCKS: Final[Mapping[str, type[BaseModel]]] = {
    "text": types.TextContent,
    "image": types.ImageContent,
    "audio": types.AudioContent,
    "resource_link": types.ResourceLink,
    "resource": types.EmbeddedResource,
}


def _is_meta(value: Any) -> bool:
    return isinstance(value, dict) and not _is_deep(value)


def _is_valid(method: str, result: Mapping[str, Any], version: str) -> bool:
    try:
        methods.serialize_server_result(method, version, _complete(result, version))
    except ValueError:
        return False
    return True


def _complete(result: Mapping[str, Any], version: str) -> dict[str, Any]:
    return {**result, "resultType": "complete"} if version in MODERN_PROTOCOL_VERSIONS else dict(result)


def failure(message: str, version: str) -> dict[str, Any]:
    return _complete({"content": [text_block(join_surrogates(message))], "isError": True}, version)


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


# Names and fields of tools in pass-through mode.


log = logging.getLogger("codemode_mcp.server")


_HINTS = (
    ("readOnlyHint", "read_only"),
    ("destructiveHint", "destructive"),
    ("idempotentHint", "idempotent"),
    ("openWorldHint", "open_world"),
    ("title", "title"),
)


class Listing:
    """The list of tools of one catalog.

    Attributes:
        catalog: the tools, with the names for clients in its messages.
        entries: the tools by their names for clients.
        withheld: reasons why other tools are held, by their names for clients. They follow the name in a sentence.
        holders: the servers of held tools, by the same names.
        tools: the tools as JSON of MCP, ordered by name.
        fingerprint: equal for equal `tools`.
    """

    def __init__(
        self, catalog: Catalog, rules: PolicyRules, is_listed: Callable[[Entry], bool] = lambda _: True
    ) -> None:
        """`is_listed`: returns False for tools that are left out."""
        self.entries = {name: entry for name, entry in _entries_by_name(catalog).items() if is_listed(entry)}
        self.withheld = {
            exposed_name(server.name, tool): why for server in catalog.servers for tool, why in server.withheld.items()
        }
        shown = {entry.id: entry for entry in self.entries.values()}
        self.holders = {
            exposed_name(server.name, tool): server.name for server in catalog.servers for tool in server.withheld
        }
        servers = [
            replace(server, tools=tuple(shown[entry.id] for entry in server.tools if entry.id in shown), groups=())
            for server in catalog.servers
        ]
        toolset = Toolset(
            [(shown[entry.id], catalog.toolset.label(entry)) for entry in catalog.toolset.entries if entry.id in shown]
        )
        self.catalog = _Untyped(ServerIndex(tuple(servers)), toolset)
        text = json_text(
            [
                _tool_json(name, entry, rules, self._title(entry))
                for name, entry in sorted(self.entries.items(), key=lambda item: item[0])
            ]
        )
        self.tools: list[dict[str, Any]] = json.loads(join_surrogates(text))
        self.fingerprint = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        self._fitted: dict[str, list[dict[str, Any]]] = {}

    def _title(self, entry: Entry) -> str | None:
        return entry.tool.title if entry.source == "mcp" else self.catalog.toolset.label(entry)

    def of_version(self, version: str) -> list[dict[str, Any]]:
        """Return `tools` in the form of a protocol revision, without tools that have no such form."""
        found = self._fitted.get(version)
        if found is None:
            found = self._fitted[version] = [
                fitted for tool in self.tools if (fitted := fit_tool(tool, version)) is not None
            ]
        return found


class _Untyped(Catalog):
    """A catalog for clients that know tools by their schemas and write no programs."""

    def signature(self, entry: Entry) -> str:
        return ""


def _tool_json(name: str, entry: Entry, rules: PolicyRules, title: str | None) -> dict[str, Any]:
    tool = entry.tool
    shown: dict[str, Any] = {"name": name, "inputSchema": tool.input_schema}
    if tool.description:
        shown["description"] = tool.description
    if title is not None:
        shown["title"] = title
    if tool.output_schema is not None:
        shown["outputSchema"] = tool.output_schema
    shown_annotations: Annotations | None = tool.annotations
    if entry.source == "mcp" and entry.source_name in rules.distrusted_servers:
        shown_annotations = dict(rules.annotations).get(entry.id)
    if shown_annotations is not None:
        declared = ((key, getattr(shown_annotations, attribute)) for key, attribute in _HINTS)
        annotations = {key: value for key, value in declared if value is not None}
        if annotations:
            shown["annotations"] = annotations
    if icons := icons_form(tool.icons):
        shown["icons"] = icons
    if meta := _meta(tool):
        shown["_meta"] = meta
    return shown


def _meta(tool: Tool) -> dict[str, Any]:
    """Return the metadata of a tool, without the references to apps. `exposed_apps` adds these with our URIs."""
    meta = tool.meta or {}
    return {key: value for key, value in meta.items() if key != "ui" and not key.startswith("ui/")}


def tool_result(name: str, answer: Answer, version: str) -> dict[str, Any]:
    if answer.failure is not None:
        return failure(answer.failure, version)
    result = result_for(name, result_of(answer.value) if answer.plain else answer.value, version)
    result["content"].extend(text_block(join_surrogates(note)) for note in answer.notes)
    return result
