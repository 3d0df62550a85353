"""The versions of saved programs, and the definitions of tools to which they are pinned."""

from __future__ import annotations

from pathlib import Path

import pytest

from codemode_mcp.catalog.saved_programs.folder import Library
from codemode_mcp.catalog.saved_programs.program_state import ProgramState
from codemode_mcp.catalog.saved_programs.saved_program import SavedProgram
from codemode_mcp.catalog.saved_programs.version_keeper import VersionKeeper
from codemode_mcp.catalog.saved_programs.versions import MAX_TEXTS, MAX_VERSIONS, History, Names, Version, names_in
from upstream_clients.tools import Tool

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("body", "paths", "complete"),
    [
        ("await MCP.github.listIssues({}); MCP['a b'].c()", ("MCP.a b.c", "MCP.github.listIssues"), True),
        ("if (MCP.fs.read) await MCP.fs.resources.read({})", ("MCP.fs.read", "MCP.fs.resources.read"), True),
        ("const { github } = MCP; github.listIssues()", (), False),
        ("MCP.github[input.name]()", (), False),
        ("for (const name of Object.keys(MCP.github)) name", (), False),
        ("MCP[input.name].x(); MCP.a.b()", (), False),
        ("tools.call('plugin:x:y'); MCP.a.b()", ("MCP.a.b",), False),
        ("const MCP = { a: { b() {} } }; MCP.a.b()", (), True),
    ],
)
def test_the_text_of_a_program_names_its_tools_or_is_known_to_be_open(
    body: str, paths: tuple[str, ...], complete: bool
) -> None:
    text = f"export default async function f(input: {{ name: string }}) {{ {body} }}"
    assert names_in(text) == Names(paths, complete)


class Servers:
    """`version_keeper.Definitions` of one server `s`, whose list may be unknown."""

    def __init__(self) -> None:
        self.name = "s"
        self.tools: dict[str, Tool] | None = None

    def list(self, **descriptions: str) -> None:
        schema = {"type": "object", "properties": {"to": {"type": "string"}}}
        self.tools = {name: Tool(name, text, schema) for name, text in descriptions.items()}

    def at(self, path: str) -> tuple[str, Tool] | None:
        tool = (self.tools or {}).get(path.removeprefix("MCP.s."))
        return None if tool is None else (self.name, tool)

    def present(self) -> object:
        return self.tools

    def is_known(self, path: str) -> bool:
        return self.tools is not None or not path.startswith("MCP.s.")


async def test_a_program_is_pinned_once_its_servers_are_listed_and_names_what_has_changed_since(
    tmp_path: Path,
) -> None:
    text = "export default async function f() { await MCP.s.send({}); await MCP.s.read({}); }"
    program = SavedProgram("f", "javascript", text, "", {"type": "object"})
    servers, state = Servers(), ProgramState(tmp_path, tmp_path / "config.json")
    keeper = VersionKeeper(state, lambda: Library((program,)), servers, clock=lambda: 7.0)
    assert await keeper.look(program) == ()
    assert state.history("f").latest is None
    servers.list(send="Send.", read="Read.")
    assert await keeper.look(program) == ()
    pinned = state.history("f").latest
    assert pinned is not None
    assert (pinned.by, pinned.at, pinned.complete, pinned.text) == ("a person, in the file", 7.0, True, text)

    servers.list(send="Send it all.", other="Other.")
    changes = await keeper.look(program)
    assert [(each.path, each.what) for each in changes] == [("MCP.s.read", "gone"), ("MCP.s.send", "text_changed")]
    # Another process sees the same, and an unknown list counts as no change.
    assert await VersionKeeper(state, lambda: Library((program,)), servers).look(program) == changes
    servers.tools = None
    assert await keeper.look(program) == []
    servers.list(send="Send it all.")
    await keeper.pin_again(program, await keeper.tools_now(program), "a person")
    assert await keeper.look(program) == []
    servers.list(send="Send it all.", read="Read.")
    assert [each.what for each in await keeper.look(program)] == ["new"]


async def test_a_program_whose_text_means_another_server_by_now_is_refused(tmp_path: Path) -> None:
    text = "export default async () => MCP.s.send({})"
    library = Library((SavedProgram("f", "javascript", text, "", {"type": "object"}),))
    (program,) = library.programs
    servers, state = Servers(), ProgramState(tmp_path, tmp_path / "config.json")
    servers.list(send="Send.")
    keeper = VersionKeeper(state, lambda: library, servers, option=" --config c.json")
    await keeper.look(program)
    assert keeper.shown(library) is library

    servers.name = "S"
    servers.list(send="Send.")
    (change,) = await keeper.look(program)
    assert (change.what, str(change)) == (
        "other",
        "MCP.s.send was 'send' of server 's', and is 'send' of server 'S' now",
    )
    for each in (keeper, VersionKeeper(state, lambda: library, servers)):
        await each.read(library.programs)
        (shown,) = each.shown(library).programs
        assert str(change) in shown.refusal
        assert "codemode-mcp programs accept f" in shown.refusal
    keeper.permits_other_tools = True
    await keeper.pin_again(program, await keeper.tools_now(program), "a person")
    assert await keeper.look(program) == []
    keeper.permits_other_tools = False
    assert keeper.shown(library) is library


def test_versions_and_their_texts_are_bounded() -> None:
    history = History("f")
    for number in range(MAX_VERSIONS + 5):
        history = history.with_version(Version(str(number), "a person", 0.0, "text"))
    assert len(history.versions) == MAX_VERSIONS
    assert [each.text is not None for each in history.versions[-3:]] == [False, *[True] * MAX_TEXTS]
    assert history.of("24") == history.latest
    assert history.of("23") is None
