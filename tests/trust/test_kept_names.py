"""The identifiers of servers and tools in programs: the one that has an identifier keeps it when a collision comes."""

import json
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from codemode_mcp.audit.events import Auditor
from codemode_mcp.rules.trust.comparison import Mode, ServerPins, accept, with_names
from codemode_mcp.rules.trust.items import SERVER_KEY, item_of
from codemode_mcp.rules.trust.pins_file import LockFile, PinsFolder
from codemode_mcp.rules.trust.service import Trust
from tests.values import replace
from upstream_clients.spec import UpstreamSpec
from upstream_clients.tools import Tool, UpstreamView

pytestmark = pytest.mark.anyio

UNDERSCORE, CAMEL = Tool("get_item", "Gets."), Tool("getItem", "Gets more.")
KEPT = {"get_item": "getItem", "getItem": "getItem_2"}


class World:
    """A process of an application, with servers that list these tools."""

    def __init__(self, folder: PinsFolder | None, *servers: str, mode: Mode = "pin") -> None:
        self.views = {name: UpstreamView(name, "ready", era="legacy", server_name="S") for name in servers}
        self.trust = Trust(folder, self.views.values, Auditor(), lambda: None)
        self.mode: Mode = mode
        self.configure(*servers)

    def configure(self, *enabled: str, disabled: tuple[str, ...] = (), locked: LockFile | None = None) -> None:
        specs = [UpstreamSpec(name, "stdio", command="server") for name in enabled]
        self.trust.apply(dict.fromkeys(enabled, self.mode), specs, locked, None, enabled, disabled)

    def lists(self, *tools: Tool, server: str = "s") -> dict[str, str]:
        """Have a server list these tools, and return their identifiers."""
        self.views[server] = replace(self.views[server], tools=tools)
        self.trust.trusted(self.views[server])
        return dict(self.trust.tool_names(server))

    async def stores(self) -> None:
        """Run until everything is stored, as at the end of a command."""
        async with anyio.create_task_group() as group:
            group.start_soon(self.trust.run, anyio.Event)
            await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()


@pytest.fixture
def process(tmp_path: Path) -> Callable[..., World]:
    """Return a function that makes the next process of the same configuration."""
    folder = PinsFolder(tmp_path / "pins", tmp_path / "config.json")
    return lambda *servers, mode="pin": World(folder, *(servers or ("s",)), mode=mode)


# tools


async def test_a_tool_keeps_its_name_when_a_new_one_is_accepted(process: Callable[..., World]) -> None:
    first = process()
    assert first.lists(UNDERSCORE) == {"get_item": "getItem"}
    assert first.lists(CAMEL, UNDERSCORE) == {"get_item": "getItem"}, "it is held"
    await first.stores()
    second = process()
    second.lists(CAMEL, UNDERSCORE)
    (new,) = (each for each in second.trust.reports("s") if each.status == "new")
    assert new.present is not None
    await second.trust.accept("s", {("tool", "getItem"): new.present.digest}, "a person")
    for world in (second, process(), process(mode="follow"), process(mode="strict")):
        assert world.lists(CAMEL, UNDERSCORE) == KEPT


async def test_with_follow_the_names_of_listed_tools_are_kept_too(process: Callable[..., World]) -> None:
    first = process(mode="follow")
    first.lists(UNDERSCORE)
    assert first.lists(CAMEL, UNDERSCORE) == KEPT
    await first.stores()
    second = process(mode="follow")
    assert second.lists(CAMEL, UNDERSCORE) == KEPT
    assert second.lists(CAMEL) == {"getItem": "getItem_2"}
    assert second.lists(CAMEL, UNDERSCORE) == KEPT
    assert second.trust.reports("s") == ()
    await second.stores()
    # With other trust, what is listed now is the first list.
    third = process(mode="pin")
    assert third.lists(CAMEL, UNDERSCORE) == KEPT
    assert {each.status for each in third.trust.reports("s")} == {"accepted"}


def test_a_tool_that_is_gone_keeps_its_name_until_a_person_accepts_that() -> None:
    get, more = (item_of("tool", tool.name, {"name": tool.name}) for tool in (UNDERSCORE, CAMEL))

    def listed(pins: ServerPins, *items: object) -> ServerPins:
        return replace(pins, present=replace(pins.present, items={item.key: item for item in items}))  # type: ignore[attr-defined]

    pins = accept(listed(ServerPins("s"), get), {get.key: get.digest}, "me", 1.0)
    pins = accept(listed(pins, get, more), {more.key: more.digest}, "me", 2.0)
    assert pins.names == KEPT
    gone = listed(pins, more)
    assert with_names(gone).names == KEPT
    ended = accept(gone, {get.key: get.digest}, "me", 3.0)
    assert ended.names == {"getItem": "getItem_2"}, "the other tool does not move up"
    again = accept(listed(ended, get, more), {get.key: get.digest}, "me", 4.0)
    assert again.names == KEPT
    # A renamed tool that is accepted in one step takes over the name.
    renamed = accept(listed(ServerPins("s"), get), {get.key: get.digest}, "me", 1.0)
    renamed = accept(listed(renamed, more), {get.key: get.digest, more.key: more.digest}, "me", 2.0)
    assert renamed.names == {"getItem": "getItem"}


async def test_pins_without_names_give_those_that_the_tools_had(tmp_path: Path) -> None:
    folder = PinsFolder(tmp_path / "pins", tmp_path / "config.json")
    world = World(folder, "s")
    world.lists(CAMEL, UNDERSCORE)
    await world.stores()
    path = folder.path("s")
    stored = json.loads(path.read_text("utf-8"))
    assert stored.pop("names") == {"getItem": "getItem", "get_item": "getItem_2"}
    path.write_text(json.dumps({**stored, "format": 2}), "utf-8")
    assert World(folder, "s").lists(CAMEL, UNDERSCORE, Tool("get-item")) == {
        "getItem": "getItem",
        "get_item": "getItem_2",
    }


# servers


async def test_a_server_keeps_its_name_wherever_a_new_one_stands(process: Callable[..., World]) -> None:
    first = process("foo-bar")
    assert first.trust.server_names == {"foo-bar": "fooBar"}
    await first.stores()
    kept = {"foo-bar": "fooBar", "FooBar": "fooBar_2"}
    second = process("FooBar", "foo-bar")
    assert second.trust.server_names == kept
    await second.stores()
    assert process("FooBar").trust.server_names == {"FooBar": "fooBar_2"}, "it does not move up"
    third = process("fooBar", "FooBar", "foo-bar")
    assert third.trust.server_names == kept | {"fooBar": "fooBar_3"}
    third.configure("FooBar", disabled=("foo-bar",))
    assert third.trust.server_names == kept, "a disabled server keeps its name"
    third.configure("fooBar")
    assert third.trust.server_names == {"fooBar": "fooBar_3"}


async def test_a_server_that_is_removed_gives_its_name_to_the_next_new_one(process: Callable[..., World]) -> None:
    first = process("foo-bar")
    await first.stores()
    renamed = process("foo_bar")
    await renamed.stores()
    assert renamed.trust.server_names == {"foo_bar": "fooBar"}
    assert process("foo-bar", "foo_bar").trust.server_names == {"foo_bar": "fooBar", "foo-bar": "fooBar_2"}


def test_without_anything_known_the_earlier_entry_has_the_name(process: Callable[..., World]) -> None:
    assert process("foo-bar", "fooBar").trust.server_names == {"foo-bar": "fooBar", "fooBar": "fooBar_2"}
    assert World(None, "FooBar", "foo-bar").trust.server_names == {"FooBar": "fooBar", "foo-bar": "fooBar_2"}


async def test_pins_know_which_server_was_there_before(tmp_path: Path) -> None:
    folder = PinsFolder(tmp_path / "pins", tmp_path / "config.json")
    earlier = World(folder, "foo-bar")
    earlier.lists(UNDERSCORE, server="foo-bar")
    await earlier.stores()
    # An earlier version has not stored names of servers.
    (folder.path("foo-bar").parent / "server-names").unlink()
    assert World(folder, "FooBar", "foo-bar").trust.server_names == {"foo-bar": "fooBar", "FooBar": "fooBar_2"}


async def test_a_process_that_cannot_store_names_keeps_them(tmp_path: Path) -> None:
    (tmp_path / "pins").write_text("no folder", "utf-8")
    world = World(PinsFolder(tmp_path / "pins", tmp_path / "config.json"), "foo-bar")
    await world.stores()
    world.configure("FooBar", "foo-bar")
    assert world.trust.server_names == {"foo-bar": "fooBar", "FooBar": "fooBar_2"}


async def test_a_server_that_is_forgotten_comes_later_than_those_that_are_known(tmp_path: Path) -> None:
    folder = PinsFolder(tmp_path / "pins", tmp_path / "config.json")
    world = World(folder, "foo-bar", "FooBar")
    world.lists(UNDERSCORE, server="foo-bar")
    await world.stores()
    folder.forget("foo-bar")
    assert folder.stored_names() == {"FooBar": "fooBar_2"}
    assert World(folder, "foo-bar", "FooBar").trust.server_names == {"foo-bar": "fooBar", "FooBar": "fooBar_2"}


def test_with_a_lock_file_its_names_count_and_no_others(tmp_path: Path) -> None:
    folder = PinsFolder(tmp_path / "pins", tmp_path / "config.json")
    tools = {("tool", tool.name): item_of("tool", tool.name, {}) for tool in (UNDERSCORE, CAMEL)}
    items = {SERVER_KEY: item_of(*SERVER_KEY, {}), **tools}
    lock = LockFile({"FooBar": items, "foo-bar": items}, {"FooBar": "fooBar_2"}, {"foo-bar": {"getItem": "getItem_2"}})
    world = World(folder, "FooBar", "foo-bar")
    assert world.trust.server_names == {"FooBar": "fooBar", "foo-bar": "fooBar_2"}
    world.configure("other", "fooBar", "FooBar", "foo-bar", locked=lock)
    assert world.trust.server_names == {
        "foo-bar": "fooBar",
        "FooBar": "fooBar_2",
        "fooBar": "fooBar_3",
        "other": "other",
    }
    assert world.trust.tool_names("foo-bar") == KEPT
    assert world.trust.tool_names("FooBar") == {"getItem": "getItem", "get_item": "getItem_2"}
