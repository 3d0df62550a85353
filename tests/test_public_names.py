"""The names that other code may import. A name leaves this list only with a note in CHANGELOG.md."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

PUBLIC = {
    "codemode_mcp.plugins": """
        EXEC_ID Annotations BeforeToolCall CallInfo ChangeInput DenyCall Middleware NamespaceContext NamespaceTool
        NoteCall PluginApi PluginTool ToolCallEvent ToolContext ToolError ToolFactory namespace_tool
    """,
    "declarations": """
        Renderable ServerSummary aliases identifiers render_index render_schema render_server signature
    """,
    "upstream_clients": """
        Annotations Asking JsonObject Operation ProgressFn Question QuestionMethod QuestionRefused Tool ToolOutcome
        ToolSource UpstreamCallError UpstreamClientError UpstreamPool UpstreamSpec UpstreamState UpstreamUnavailable
        UpstreamView
    """,
}


@pytest.mark.parametrize("package", PUBLIC)
def test_a_package_exports_its_public_names_and_no_others(package: str) -> None:
    assert sorted(import_module(package).__all__) == sorted(PUBLIC[package].split())


@pytest.mark.parametrize("package", PUBLIC)
def test_every_public_name_exists_and_is_documented(package: str) -> None:
    module = import_module(package)
    values = {name: getattr(module, name) for name in PUBLIC[package].split()}
    assert not [name for name, value in values.items() if isinstance(value, type) and not (value.__doc__ or "").strip()]
    assert module.__doc__


def test_the_package_says_its_version_and_nothing_else() -> None:
    package = import_module("codemode_mcp")
    assert [name for name, value in vars(package).items() if isinstance(value, str) and not name.startswith("__")] == []
    assert package.__version__.count(".") == 2


def test_no_private_module_of_the_sdk_is_imported() -> None:
    root = Path(__file__).parents[1]
    found = [
        f"{path.relative_to(root)}: {line}"
        for package in ("codemode_mcp", "upstream_clients", "declarations")
        for path in (root / package).rglob("*.py")
        for line in path.read_text("utf-8").splitlines()
        if re.match(r"\s*(?:from|import) mcp(?:_types)?[\w.]*\._", line)
    ]
    assert found == []
