"""The section `plugins` of the configuration."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp.base.errors import ConfigError
from codemode_mcp.config import Config, load_config

SECRET = "hunter2-hunter2-hunter2"


@pytest.fixture
def load(tmp_path: Path) -> Callable[[Any], Config]:
    def load(plugins: Any) -> Config:
        path = tmp_path / "codemode-mcp.json"
        path.write_text(json.dumps({"plugins": plugins}), "utf-8")
        return load_config(path, environ={"TOKEN": SECRET})

    return load


def problem(load: Callable[[Any], Config], plugins: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        load(plugins)
    (found,) = caught.value.problems
    return found


def test_all_that_can_be_said_of_a_plugin_is_read(load: Callable[[Any], Config]) -> None:
    (plugin, other) = load(
        {
            "issues": {
                "module": "my_plugin.main:register",
                "config": {"file": "a.json", "n": [1, None]},
                "hooks": ["mcp:*", "core:code_mode:exec"],
                "middleware": ["mcp:github:*"],
            },
            "other": {},
        }
    ).plugins
    assert (plugin.name, plugin.module, plugin.enabled) == ("issues", "my_plugin.main:register", True)
    assert plugin.config == {"file": "a.json", "n": [1, None]}
    assert (plugin.hooks, plugin.middleware) == (("mcp:*", "core:code_mode:exec"), ("mcp:github:*",))
    assert (other.name, other.module, other.config, other.hooks) == ("other", None, {}, ())


def test_a_file_with_a_plugin_that_is_read_twice_has_equal_settings(load: Callable[[Any], Config]) -> None:
    # Clients with equal configurations share one application.
    value = {"redact": {"middleware": ["mcp:*"], "config": {"except": ["token"]}}}
    assert load(value).plugins == load(value).plugins
    assert load(value).plugins != load({"redact": {"middleware": ["mcp:*"]}}).plugins


@pytest.mark.parametrize("empty", [None, {}])
def test_there_may_be_no_plugins(load: Callable[[Any], Config], empty: object) -> None:
    assert load(empty).plugins == ()


@pytest.mark.parametrize(
    ("module", "meant"),
    [
        ("my_plugin", "my_plugin:register"),
        ("my_plugin:Plugin.register", "my_plugin:Plugin.register"),
        ("./plugins/mine.py", "./plugins/mine.py:register"),
        ("./plugins/mine.py:setup", "./plugins/mine.py:setup"),
        ("C:\\plugins\\mine.py:setup", "C:\\plugins\\mine.py:setup"),
        ("C:\\plugins\\mine.py", "C:\\plugins\\mine.py:register"),
    ],
)
def test_a_plugin_is_a_module_or_a_file_and_a_function_in_it(
    load: Callable[[Any], Config], module: str, meant: str
) -> None:
    assert load({"p": {"module": module}}).plugins[0].module == meant


@pytest.mark.parametrize("module", ["a b", "a:", ":a", "a:b:c", "./plugins/mine", "a..b", "1a:b", "a:1b"])
def test_what_is_neither_is_refused_with_the_two_forms(load: Callable[[Any], Config], module: str) -> None:
    found = problem(load, {"p": {"module": module}})
    assert found.startswith("plugins.p.module: ")
    assert '"package.module:function"' in found
    assert '"folder/file.py:function"' in found


def test_a_key_that_is_given_twice_is_a_mistake_also_inside_a_plugins_own_configuration(tmp_path: Path) -> None:
    path = tmp_path / "codemode-mcp.json"
    path.write_text('{"plugins": {"p": {"config": {"inner": {"a": 1, "a": 2}}}}}', "utf-8")
    with pytest.raises(ConfigError, match="more than once"):
        load_config(path, environ={})


def test_a_variable_that_is_not_set_makes_its_plugin_unusable_alone(load: Callable[[Any], Config]) -> None:
    first, second = load({"p": {"config": {"token": "${NOT_SET}"}, "hooks": ["mcp:*"]}, "q": {}}).plugins
    assert first.unusable.startswith("the variable NOT_SET is not set (plugins.p.config.token); set it")
    assert (first.hooks, second.unusable) == (("mcp:*",), "")


def test_variables_are_expanded_in_a_plugins_configuration_and_hidden_afterwards(load: Callable[[Any], Config]) -> None:
    config = load({"p": {"config": {"auth": {"token": "Bearer ${TOKEN}"}, "list": ["${MISSING:-none}"]}}})
    assert config.plugins[0].config == {"auth": {"token": f"Bearer {SECRET}"}, "list": ["none"]}
    assert SECRET not in repr(config.plugins[0].secrets and config)
    (holder,) = config.secretive
    assert SECRET not in holder.redact(f"it is {SECRET}!")


def test_what_stands_under_the_name_of_a_secret_is_hidden_without_a_variable_too(load: Callable[[Any], Config]) -> None:
    given = {"apiKey": "key-in-the-file", "tokens": ["one-token"], "label": "work", "auth": {"user": "alice"}}
    (holder,) = load({"p": {"config": given}}).secretive
    assert holder.redact("key-in-the-file, one-token, work, alice") == "***, ***, work, alice"
