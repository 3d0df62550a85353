"""Plugins are loaded whole or not at all, whatever their code does."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from codemode_mcp.base.settings import PluginSettings
from codemode_mcp.catalog.plugins import host as host_module
from codemode_mcp.catalog.plugins.loading import installed, load
from tests.plugins.host import plugin, plugins

GOOD = """
    def register(api):
        api.tool(PluginTool(name="hello", description="Says hello.", run=lambda input: "hello"))
"""
TOOL = 'PluginTool(name="a", description="A tool.", run=lambda input: 1)'


def made(more: str) -> str:
    """Return the registration of a tool with these fields."""
    return f'api.tool(PluginTool(name="a", description="x", {more}))'


def namespace(more: str) -> str:
    return f'api.tool({TOOL}); api.namespace("n", description="x", {more})'


async def refusal(folder: Path, code: str, **settings: Any) -> str:
    """Return why a plugin is refused; one beside it is there, and nothing of it."""
    async with plugins(folder, plugin("bad", code, **settings), plugin("good", GOOD)) as host:
        assert await host.ids() == ["plugin:good:hello"]
        assert [each.name for each in host.plugins.loaded] == ["good"]
        assert list(host.plugins.refused) == ["bad"]
        assert host.plugins.namespaces() == ()
        return host.plugins.refused["bad"]


async def test_a_plugins_tool_is_offered_and_called(tmp_path: Path) -> None:
    async with plugins(tmp_path, plugin("good", GOOD)) as host:
        assert await host.ids() == ["plugin:good:hello"]
        assert await host.call("plugin:good:hello") == "hello"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import nothing_of_this_name\n", "ModuleNotFoundError: No module named 'nothing_of_this_name' (bad.py:4)"),
        ("def register(api) return", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("def register(api): sys.exit()", "SystemExit"),
        ("def register(api): raise KeyboardInterrupt", "KeyboardInterrupt"),
        (
            "class Silent(Exception):\n    def __str__(self): sys.exit(3)\ndef register(api): raise Silent()",
            "it raised Silent: (no message",
        ),
        ("def register(api): 1 / 0", "ZeroDivisionError: division by zero (bad.py:4)"),
        ("def register(api): raise ValueError('no file in config')", "ValueError: no file in config"),
        ("def register(): pass", "TypeError: register() takes 0 positional arguments"),
        ("async def register(api): pass", "its register is async"),
        ("register = 3", "register is not a function"),
        ("", "has no 'register'"),
    ],
)
async def test_a_plugin_whose_code_fails_is_refused_and_says_where(tmp_path: Path, code: str, words: str) -> None:
    assert words in await refusal(tmp_path, code)


@pytest.mark.parametrize(
    ("attribute", "words"),
    [
        ("on_unlaod", "the plugin API has no 'on_unlaod'; did you mean 'on_unload'?"),
        ("Namespace", "did you mean 'namespace'?"),
        ("zzz", "it has: before_tool_call, config, name, namespace, on_unload, tool, tool_result_middleware, tools"),
    ],
)
async def test_a_misspelt_method_is_answered_with_the_nearest(tmp_path: Path, attribute: str, words: str) -> None:
    why = await refusal(tmp_path, f"def register(api): api.{attribute}(print)")
    assert words in why
    assert "(bad.py:4)" in why


async def test_what_is_wrong_with_a_schema_is_said_on_one_line(tmp_path: Path) -> None:
    tool = 'PluginTool(name="a", description="A tool.", run=print, input={"type": "objct"})'
    why = await refusal(tmp_path, f"def register(api): api.tool({tool})")
    assert "'a': input is not a usable JSON Schema: " in why
    assert '"objct"' in why
    assert why.isprintable()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ('api.tool("a")', "tool(): a tool must be a PluginTool, not str"),
        ("api.tool(None)", "not None"),
        ('api.tool(PluginTool(name="a b", description="x", run=print))', "'a b' is not a valid tool name"),
        ('api.tool(PluginTool(name="a:b", description="x", run=print))', "'a:b' is not a valid tool name"),
        ('api.tool(PluginTool(name="", description="x", run=print))', "'' is not a valid tool name"),
        ('api.tool(PluginTool(name="a" * 129, description="x", run=print))', "up to 128 letters"),
        ('api.tool(PluginTool(name="a", description=" ", run=print))', "tool 'a': it needs a description"),
        (made("run=3"), "tool 'a': run must be a function, not int"),
        (made("run=lambda: 1"), "run must take one or two positional"),
        (made("run=lambda a, b, c: 1"), "run must take one or two positional"),
        (made("run=lambda a, *, b: 1"), "run must take one or two positional"),
        (made("run=print, timeout=0"), "timeout must be a number of seconds"),
        (made("run=print, input=3"), "input must be a pydantic model or"),
        (made('run=print, input={"type": "objekt"}'), "tool 'a': input is not a usable JSON Schema"),
        (made('run=print, input={"type": "array"}'), "tool 'a': input must be the schema of an object"),
        (made('run=print, input={"$ref": "https://x.example/s.json"}'), "tool 'a': input is not a usable JSON Schema"),
        (made('run=print, output={"minimum": "a"}'), "tool 'a': output is not a usable JSON Schema"),
        (made("run=print, annotations={}"), "annotations must be Annotations"),
        (f"api.tool({TOOL}); api.tool({TOOL})", "the tool 'a' is registered already"),
        (f'api.tool({TOOL}); api.tools(["b", "a"], lambda c: None)', "tools(): the tool 'a' is registered already"),
        ('api.tools("abc", lambda c: None)', "names must be a list"),
        ("api.tools([], lambda c: None)", "names must be a list"),
        ("api.tools([1], lambda c: None)", "1 is not a valid tool name"),
        ('api.tools(["a"], None)', "the factory must be a function, not None"),
        ("api.before_tool_call(None)", "before_tool_call(): the hook must be a function"),
        ('api.before_tool_call(print, tools="mcp:*")', "tools must be a list"),
        ('api.before_tool_call(print, tools=["github"])', "'github' is neither a tool id"),
        ("api.tool_result_middleware(7)", "tool_result_middleware(): the middleware must be a function"),
        ("api.on_unload(7)", "on_unload(): the callback must be a function"),
        ('api.tools(["a"])', "TypeError"),
        (namespace('global_name="n-n", required_tools=["a"], create_scope=print'), "not an identifier"),
        (namespace('global_name="n", required_tools=["missing"], create_scope=print'), "'missing'"),
        (namespace('global_name="n", required_tools=["a"], create_scope=3'), "create_scope"),
    ],
)
async def test_what_cannot_be_registered_is_refused_by_name(tmp_path: Path, call: str, words: str) -> None:
    assert words in await refusal(tmp_path, f"def register(api): {call}")


async def test_a_plugin_cannot_pass_over_what_was_refused(tmp_path: Path) -> None:
    code = f"""
        def register(api):
            api.tool({TOOL})
            try:
                api.tool("nonsense")
            except Exception:
                pass
    """
    assert "a tool must be a PluginTool" in await refusal(tmp_path, code)


async def test_what_was_registered_before_a_failure_is_rolled_back_and_its_plugin_told(tmp_path: Path) -> None:
    code = f"""
        def register(api):
            api.tool({TOOL})
            api.namespace("n", "n", description="x", required_tools=["a"], create_scope=lambda ctx: {{}})
            api.before_tool_call(lambda event: DenyCall("no"), tools=["*"])
            api.on_unload(lambda: note({str(tmp_path / "unloaded")!r}, "1"))
            api.on_unload(lambda: note({str(tmp_path / "unloaded")!r}, "2"))
            raise RuntimeError("late")
    """
    assert "RuntimeError: late" in await refusal(tmp_path, code, hooks=("mcp:*",))
    assert (tmp_path / "unloaded").read_text() == "21"


async def test_nothing_can_be_registered_after_register_has_returned(tmp_path: Path) -> None:
    code = f"""
        kept = []
        def register(api):
            kept.append(api)
            api.tool(PluginTool(name="later", description="Registers another.", run=later))
        def later(input):
            try:
                kept[0].tool({TOOL})
            except ValueError as error:
                return str(error)
    """
    async with plugins(tmp_path, plugin("p", code)) as host:
        assert "it is too late" in await host.call("plugin:p:later")
        assert await host.ids() == ["plugin:p:later"]


async def test_what_is_registered_too_late_leaves_no_stack_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """End the server while its plugins are being loaded."""
    began, proceed = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def register(api: Any) -> None:
        threads.append(threading.current_thread())
        began.set()
        proceed.wait(5)
        api.before_tool_call(lambda event: None, tools=("*",))

    with caplog.at_level("DEBUG"):
        async with anyio.create_task_group() as group:
            group.start_soon(load, PluginSettings("p"), lambda: register, (), 5.0)
            await anyio.to_thread.run_sync(began.wait)
            group.cancel_scope.cancel()
        proceed.set()
        await anyio.to_thread.run_sync(threads[0].join, 5)
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_plugin_that_hangs_is_refused_in_time_and_what_it_registers_later_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_module, "LOAD_SECONDS", 0.2)
    monkeypatch.setattr(host_module, "MIN_LOAD_SECONDS", 0.2)
    proceed, ended = threading.Event(), threading.Event()
    monkeypatch.setattr(sys, "proceed", proceed, raising=False)
    monkeypatch.setattr(sys, "ended", ended, raising=False)
    code = f"""
        def register(api):
            sys.proceed.wait()
            try:
                api.tool({TOOL})
            finally:
                sys.ended.set()
    """
    # The other one is loaded in time as well.
    async with plugins(tmp_path, plugin("bad", code), plugin("good", GOOD)) as host:
        assert "took longer than 0.2 s" in host.plugins.refused["bad"]
        proceed.set()
        assert await anyio.to_thread.run_sync(lambda: ended.wait(10))
        assert await host.ids() == ["plugin:good:hello"]


async def test_what_a_plugin_prints_is_no_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with plugins(tmp_path, plugin("p", "print('from the module')\ndef register(api): print('from register')")):
        pass
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "from the module\nfrom register\n" in captured.err


async def test_a_plugin_gets_its_name_and_a_copy_of_its_configuration(tmp_path: Path) -> None:
    code = """
        def register(api):
            api.tools(["a"], lambda context: PluginTool(
                name="a", description="x", run=lambda input: [api.name, api.config["file"], context.config["file"]]))
            api.config["inner"]["n"] = 2
    """
    given = {"file": "a.json", "inner": {"n": 1}}
    async with plugins(tmp_path, plugin("p", code, config=given)) as host:
        assert await host.call("plugin:p:a") == ["p", "a.json", "a.json"]
    assert given["inner"] == {"n": 1}


async def test_plugins_are_in_the_order_of_the_configuration_after_those_of_the_product(tmp_path: Path) -> None:
    def bundled(api: Any) -> None:
        from codemode_mcp.plugins import PluginTool

        api.tool(PluginTool(name="list", description="x", run=lambda _: "core"))

    made = [plugin(name, GOOD) for name in ("z", "a", "m")]
    async with plugins(tmp_path, *made, bundled={"results": bundled}) as host:
        assert await host.ids() == ["core:results:list", "plugin:z:hello", "plugin:a:hello", "plugin:m:hello"]
        assert await host.call("core:results:list") == "core"
        with pytest.raises(KeyError):
            await host.call("plugin:results:list")


async def test_two_plugins_with_one_global_name_are_one_too_many(tmp_path: Path) -> None:
    code = f"""
        def register(api):
            api.tool({TOOL})
            api.namespace(api.name, "shared", description="x", required_tools=["a"], create_scope=lambda ctx: {{}})
    """
    async with plugins(tmp_path, plugin("one", code), plugin("two", code)) as host:
        assert await host.ids() == ["plugin:one:a"]
        assert [each.plugin for each in host.plugins.namespaces()] == ["one"]
        assert "'shared' is taken by namespace 'one' of plugin 'one'" in host.plugins.refused["two"]


async def test_a_disabled_plugin_is_not_imported(tmp_path: Path) -> None:
    code = f"note({str(tmp_path / 'imported')!r}, '1')\n"
    async with plugins(tmp_path, plugin("p", code, enabled=False)) as host:
        assert await host.ids() == []
        assert host.plugins.refused == {}
    assert not (tmp_path / "imported").exists()


async def test_a_plugin_that_lacks_a_value_is_refused_and_the_calls_that_it_must_see_with_it(tmp_path: Path) -> None:
    code = f"note({str(tmp_path / 'imported')!r}, '1')\n"
    why = "the variable A is not set"
    async with plugins(tmp_path, plugin("p", code, unusable=why, hooks=("mcp:a:*",)), plugin("q", GOOD)) as host:
        assert host.plugins.refused == {"p": why}
        assert [host.plugins.interceptors.has_hooks(each) for each in ("mcp:a:x", "mcp:b:x")] == [True, False]
    assert not (tmp_path / "imported").exists()


async def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    async with plugins(tmp_path, lambda _: PluginSettings("p", "nowhere.py:register")) as host:
        assert host.plugins.refused["p"] == f"the file {tmp_path / 'nowhere.py'} does not exist"


# entry points


def distribution(folder: Path, name: str, *entries: str) -> None:
    """An installed package, as much of one as entry points need."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", "utf-8")
    (info / "entry_points.txt").write_text("\n".join(["[codemode_mcp.plugins]", *entries, ""]), "utf-8")


async def test_without_a_module_an_entry_point_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    distribution(tmp_path / "site", "acme-plugin", "acme = acme_plugin_of_a_test:setup")
    (tmp_path / "site" / "acme_plugin_of_a_test.py").write_text(
        "from codemode_mcp.plugins import PluginTool\n"
        "def setup(api): api.tool(PluginTool(name='a', description='x', run=lambda input: 'acme'))\n",
        "utf-8",
    )
    async with plugins(tmp_path, lambda _: PluginSettings("acme")) as host:
        assert await host.call("plugin:acme:a") == "acme"
    assert installed()["acme"] == ["acme-plugin"]
    monkeypatch.delitem(sys.modules, "acme_plugin_of_a_test")


async def test_an_entry_point_that_no_user_has_or_several_packages_have_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    distribution(tmp_path / "site", "first-plugin", "twice = first:register")
    distribution(tmp_path / "site", "second-plugin", "twice = second:register")
    async with plugins(tmp_path, lambda _: PluginSettings("twice"), lambda _: PluginSettings("never")) as host:
        assert "first-plugin, second-plugin" in host.plugins.refused["twice"]
        assert "no installed package has an entry point 'never'" in host.plugins.refused["never"]
        assert "twice" in host.plugins.refused["never"]


# changes while everything runs


def counting(folder: Path, name: str) -> str:
    log = str(folder / "log")
    return f"""
        def register(api):
            note({log!r}, f"load {name} {{api.config.get('n')}}\\n")
            api.on_unload(lambda: note({log!r}, f"unload {name} {{api.config.get('n')}}\\n"))
            api.tool(PluginTool(name="n", description="x", run=lambda input: api.config.get("n")))
    """


async def test_plugins_are_added_removed_and_configured_in_another_way_while_the_rest_continues(tmp_path: Path) -> None:
    async with plugins(tmp_path, plugin("a", counting(tmp_path, "a"), config={"n": 1})) as host:
        first = await host.plugins.offered(host_me())
        assert await host.plugins.offered(host_me()) is first
        b = host.write("b", counting(tmp_path, "b"), config={"n": 5})
        await host.change(PluginSettings("a", "a.py:register", config={"n": 1}), b)
        assert await host.ids() == ["plugin:a:n", "plugin:b:n"]
        await host.change(PluginSettings("a", "a.py:register", config={"n": 2}), b)
        assert await host.call("plugin:a:n") == 2
        await host.change(b)
        assert await host.ids() == ["plugin:b:n"]
        with pytest.raises(KeyError):
            await host.call("plugin:a:n")
        assert host.changes >= 4
        await host.change(b)  # whatever else has changed: done after all that was asked before
    assert (tmp_path / "log").read_text().splitlines() == [
        "load a 1",
        "load b 5",
        "load a 2",  # before the other is unloaded: there is no moment without its hooks
        "unload a 1",
        "unload a 2",
        "unload b 5",
    ]


def host_me() -> Any:
    from tests.plugins.host import ME

    return ME


async def test_a_plugin_that_fails_with_its_new_configuration_is_gone_whole(tmp_path: Path) -> None:
    code = f"""
        def register(api):
            api.tool({TOOL})
            if api.config.get("break"):
                raise ValueError("broken")
    """
    async with plugins(tmp_path, plugin("p", code, hooks=("mcp:*",))) as host:
        assert await host.ids() == ["plugin:p:a"]
        await host.change(PluginSettings("p", "p.py:register", config={"break": True}, hooks=("mcp:*",)))
        assert await host.ids() == []
        assert "broken" in host.plugins.refused["p"]
        # What it was to see is not called without it.
        assert host.plugins.interceptors.has_hooks("mcp:github:x")
        await host.change(PluginSettings("p", "p.py:register", hooks=("mcp:*",)))
        assert await host.ids() == ["plugin:p:a"]
        assert host.plugins.refused == {}
        assert not host.plugins.interceptors.has_hooks("mcp:github:x")


async def test_a_refused_plugin_is_tried_again_when_the_configuration_changes(tmp_path: Path) -> None:
    async with plugins(tmp_path, plugin("p", "raise ValueError")) as host:
        settings = host.write("p", GOOD)
        await host.change(settings)
        assert await host.ids() == ["plugin:p:hello"]


async def test_grants_count_immediately_and_load_nothing_again(tmp_path: Path) -> None:
    code = """
        def register(api):
            print("loaded")
            api.before_tool_call(lambda event: None, tools=["mcp:*"])
            api.tool_result_middleware(lambda event, result: result, tools=["mcp:*"])
    """
    async with plugins(tmp_path, plugin("p", code)) as host:
        asked = host.plugins.interceptors
        assert not asked.has_hooks("mcp:github:x")
        host.plugins.apply([PluginSettings("p", "p.py:register", hooks=("mcp:github:*",))])
        assert asked.has_hooks("mcp:github:x")
        assert not asked.has_hooks("mcp:other:x")
        assert not asked.has_middleware("mcp:github:x")
        host.plugins.apply([PluginSettings("p", "p.py:register", middleware=("mcp:*",))])
        assert not asked.has_hooks("mcp:github:x")
        assert asked.has_middleware("mcp:github:x")
        host.plugins.apply([])
        assert not asked.has_middleware("mcp:github:x")


async def test_what_is_asked_for_during_loading_counts_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, proceed = threading.Event(), threading.Event()
    monkeypatch.setattr(sys, "started", started, raising=False)
    monkeypatch.setattr(sys, "proceed", proceed, raising=False)
    code = f"""
        def register(api):
            sys.started.set()
            sys.proceed.wait(10)
            api.tool({TOOL})
            api.on_unload(lambda: note({str(tmp_path / "unloaded")!r}, "1"))
    """
    async with plugins(tmp_path, plugin("slow", code), wait=False) as host:
        await anyio.to_thread.run_sync(lambda: started.wait(10))
        good = host.write("good", GOOD)
        host.plugins.apply([good])
        proceed.set()
        assert await host.ids() == ["plugin:good:hello"]
        await host.change(good)
    assert (tmp_path / "unloaded").exists()


@pytest.mark.parametrize("callback", ["time.sleep(60)", "1 / 0", "sys.exit()"])
async def test_the_end_does_not_wait_for_a_plugin_that_will_not_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, callback: str
) -> None:
    monkeypatch.setattr(host_module, "CLOSE_SECONDS", 0.1)
    code = f"""
        def last(): {callback}
        def register(api):
            api.on_unload(last)
    """
    with anyio.fail_after(20):
        async with plugins(tmp_path, plugin("p", code)):
            pass


async def test_calls_wait_until_it_is_known_who_sees_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proceed = threading.Event()
    monkeypatch.setattr(sys, "proceed", proceed, raising=False)
    async with plugins(tmp_path, plugin("p", "def register(api): sys.proceed.wait(10)"), wait=False) as host:
        await anyio.lowlevel.checkpoint()
        assert not host.plugins.interceptors.is_ready
        proceed.set()
        await host.plugins.ready()
        assert host.plugins.interceptors.is_ready
