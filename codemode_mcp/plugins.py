"""Plugins. This package exports the interface that plugins are written against; `host` loads them."""

from codemode_mcp.catalog.plugins.api import (
    EXEC_ID,
    BeforeToolCall,
    CallInfo,
    ChangeInput,
    DenyCall,
    Middleware,
    NamespaceContext,
    NamespaceTool,
    NoteCall,
    PluginApi,
    PluginTool,
    ToolCallEvent,
    ToolContext,
    ToolError,
    ToolFactory,
    namespace_tool,
)
from upstream_clients.tools import Annotations

__all__ = [
    "EXEC_ID",
    "Annotations",
    "BeforeToolCall",
    "CallInfo",
    "ChangeInput",
    "DenyCall",
    "Middleware",
    "NamespaceContext",
    "NamespaceTool",
    "NoteCall",
    "PluginApi",
    "PluginTool",
    "ToolCallEvent",
    "ToolContext",
    "ToolError",
    "ToolFactory",
    "namespace_tool",
]
