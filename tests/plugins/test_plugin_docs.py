"""Tests of what the pages on plugins show works."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from codemode_mcp.config import load_config
from tests.plugins.host import plugin, plugins

DOCS = Path(__file__).parents[2] / "docs"


def snippets(language: str, page: str = "plugins.md") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL)


def test_the_configuration_of_the_page_is_valid(tmp_path: Path) -> None:
    (text,) = snippets("jsonc")
    path = tmp_path / "codemode-mcp.json"
    path.write_text(text, "utf-8")
    config = load_config(path, environ={"ISSUES_TOKEN": "a-token-of-mine"})
    assert [each.name for each in config.plugins if each.enabled] == ["issues", "local"]


async def test_the_code_of_the_page_can_be_registered_all_together(tmp_path: Path) -> None:
    first, *rest = snippets("python")
    code = (
        textwrap.dedent("""
            class Books:
                close = staticmethod(lambda: None)
                find = staticmethod(lambda text: [{"title": text}])
            open_books = lambda folder: Books()
            async def without_addresses(event, result): return result
        """)
        + first
        + "\nalone = register\ndef register(api):\n    alone(api)\n"
        + textwrap.indent("\n".join(rest), "    ")
    )
    async with plugins(tmp_path, plugin("books", code, config={"folder": "."}, hooks=("*",))) as host:
        assert host.plugins.refused == {}
        assert await host.call("plugin:books:find", {"text": "whale"}) == [{"title": "whale"}]
        assert [each.global_name for each in host.plugins.namespaces()] == ["books"]
        assert host.plugins.interceptors.has_hooks("core:code_mode:exec")


async def test_the_hook_and_the_middleware_of_their_page_see_what_they_are_granted(tmp_path: Path) -> None:
    (code,) = snippets("python", "hooks.md")
    made = plugin("guard", code, hooks=("mcp:*", "core:code_mode:exec"), middleware=("mcp:github:*",))
    async with plugins(tmp_path, made) as host:
        assert host.plugins.refused == {}
        seen = host.plugins.interceptors
        ids = ("mcp:git:push", "mcp:github:push", "core:code_mode:exec")
        assert [seen.has_hooks(each) for each in ids] == [True, False, False]
        assert seen.has_middleware("mcp:github:list_issues")
        assert not seen.has_middleware("mcp:github:push")


async def test_the_namespace_of_its_page_is_registered(tmp_path: Path) -> None:
    (code,) = snippets("python", "namespaces.md")
    async with plugins(tmp_path, plugin("tracker", code.replace("run=...", "run=lambda given: 1"))) as host:
        assert host.plugins.refused == {}
        assert [each.global_name for each in host.plugins.namespaces()] == ["issues"]
