"""The choice of what a client sees directly."""

from __future__ import annotations

from codemode_mcp.base.settings import ExposeSettings, PolicyContext, PolicyRules, ProfileOverride, ToolSettings
from codemode_mcp.server.exposure.selection import Exposure, exposure_of


def test_without_settings_clients_get_exec_and_wait_with_prompts_and_resources() -> None:
    assert exposure_of(ToolSettings(), None, None) == Exposure("code", prompts=True, resources=True, direct=())


def test_each_value_comes_from_the_first_part_that_sets_it() -> None:
    tools = ToolSettings(expose=ExposeSettings("search", prompts=False, resources=False, direct=("mcp:a:*",)))
    context = PolicyContext("team", ("stdio",), PolicyRules(), expose=ExposeSettings(resources=True))
    client = ProfileOverride("cursor*", (), ExposeSettings("auto", resources=False))
    assert exposure_of(tools, context, client) == Exposure("auto", prompts=False, resources=True, direct=("mcp:a:*",))
    assert exposure_of(tools, None, None).mode == "search"


def test_the_path_decides_the_mode_alone() -> None:
    tools = ToolSettings(expose=ExposeSettings("search", prompts=False))
    context = PolicyContext("team", ("stdio",), PolicyRules(), expose=ExposeSettings("code"))
    assert exposure_of(tools, context, None, "direct") == Exposure("direct", prompts=False, direct=("*",))


def test_the_mode_direct_lists_all_tools_unless_patterns_choose_some() -> None:
    assert exposure_of(ToolSettings(expose=ExposeSettings("direct")), None, None).direct == ("*",)
    chosen = ToolSettings(expose=ExposeSettings("direct", direct=("readOnly",)))
    assert exposure_of(chosen, None, None).direct == ("readOnly",)
    assert exposure_of(ToolSettings(expose=ExposeSettings(direct=("ui",))), None, None).direct == ("ui",)
