"""Programs that propose to be saved, and a person who decides about them: real processes, and real terminals."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from codemode_mcp.catalog.saved_programs.program_state import ProgramState
from codemode_mcp.catalog.saved_programs.saved_program import digest_of
from codemode_mcp.catalog.saved_programs.versions import Author, Proposal, UsedTool, propose
from tests.integration.harness import SECONDS, SERVERS, command, invoke, serve, until, write_config
from tests.integration.terminal import terminal

pytestmark = pytest.mark.anyio

DOUBLE = """const input = { n: 2 };
await yield_control();
const made = await save_program("double", { description: "Doubles a number.", input: SCHEMA });
return { twice: input.n * 2, made };
""".replace("SCHEMA", '{ type: "object", properties: { n: { type: "integer" } }, required: ["n"] }')


async def test_a_proposal_is_kept_for_a_person_also_after_a_suspension(
    tmp_path: Path, own_cache: dict[str, str]
) -> None:
    config = write_config(tmp_path, {})
    state = ProgramState(tmp_path / "state" / "codemode-mcp" / "programs", config)
    async with serve(config, env={**own_cache, "XDG_STATE_HOME": str(tmp_path / "state")}) as session:
        answer = await session.finish(await session.exec(DOUBLE))
        made = answer.value["made"]
        assert (answer.value["twice"], made["status"]) == (4, "proposed")
        assert f"codemode-mcp programs accept double --config {config}" in made["message"]
        (kept,) = state.proposals().waiting
        assert (kept.name, kept.digest, kept.language) == ("double", made["digest"], "javascript")
        assert "const input" not in kept.text
        assert "save_program" not in kept.text
        # Without `await`, the program ends first, and its reader is told.
        answer = await session.exec('const a = 1; save_program("other", { description: "Other." }); return a')
        assert any("other is proposed" in note for note in answer.structured["notes"])
        assert [each.name for each in state.proposals().waiting] == ["double", "other"]
        flood = "for (let i = 0; i < 40; i++) save_program('other', { description: `${i}` }).catch(() => 0); return 1"
        notes = (await session.exec(flood)).structured["notes"]
        assert any("a program may do this 10x" in note for note in notes)
        assert [each.description for each in state.proposals().waiting] == ["Doubles a number.", "9"]
        # The name is no global of programs that do not write it.
        assert await session.value('return typeof globalThis["save" + "_program"]') == "undefined"
        refused = await session.exec('return save_program("constructor", { description: "x" })')
        assert "choose another one" in refused.error


def proposal(name: str, body: str, principal: str = "ann", tools: tuple[UsedTool, ...] = ()) -> Proposal:
    text = f"/** Reports. */\nexport default async function {name}() {{\n{body}\n}}\n"
    author = Author(f"stdio:{principal}", principal, "stdio", "run_1")
    return Proposal(name, "javascript", text, digest_of(text), "Reports.", author, 0.0, tools)


@pytest.mark.skipif(os.name == "nt", reason="pseudo-terminals")
async def test_a_person_decides_about_exactly_the_text_that_was_shown(tmp_path: Path) -> None:
    config = write_config(tmp_path, {})
    env = {"XDG_STATE_HOME": str(tmp_path / "state")}
    state = ProgramState(tmp_path / "state" / "codemode-mcp" / "programs", config)
    file = tmp_path / "programs" / "report.js"

    def propose_text(made: Proposal) -> Proposal:
        state.change_proposals(lambda known: propose(known, made)[0])
        return made

    async def programs(*arguments: str, sees: str = "", code: int = 0, confirms: bool = True) -> str:
        async with terminal("programs", *arguments, "--config", str(config), env=env) as person:
            if sees:
                await person.see(sees)
            if confirms and arguments[0] in ("accept", "reject", "remove"):
                await person.confirm()
            assert await person.end() == code, person.text
        return person.text

    tool = UsedTool("MCP.s.look", "s", "look", "a" * 64, "b" * 64)
    first = propose_text(proposal("report", "return 'one\u202e'", tools=(tool,)))
    shown = await programs("accept", "report", sees=r"2 \| export default async function report")
    assert "return 'one\\u202e'" in shown
    assert "uses     MCP.s.look" in shown
    assert file.read_text("utf-8") == first.text
    assert file.stat().st_mode & 0o077 == 0
    assert "1 definition changed" in await programs("list")  # no such server is configured
    accepted = state.history("report").latest
    assert accepted is not None
    assert (accepted.digest, accepted.by, accepted.proposed_by) == (first.digest, "a person at a terminal", "ann")

    file.write_text(first.text.replace("one", "mine"), "utf-8")
    propose_text(proposal("report", "return 'two'"))
    other = propose_text(proposal("report", "return 'three'", "bob"))
    assert "there are 2 proposals of report" in await programs("accept", "report", code=2, confirms=False)
    reference = f"report@{other.digest[:8]}"
    async with terminal("programs", "accept", reference, "--config", str(config), env=env) as person:
        await person.see("a person has edited since the last accepted version")
        await person.see(r"- return 'mine.*\+ return 'three'")
        file.write_text("// changed while the person reads", "utf-8")
        await person.confirm()
        assert await person.end() == 1
        assert "has changed since it was shown" in person.text
    assert file.read_text("utf-8") == "// changed while the person reads"
    assert state.history("report").latest == accepted

    await programs("reject", reference)
    assert propose(state.proposals(), other)[1] == "rejected"
    assert [each.author.principal for each in state.proposals().waiting] == ["ann"]
    await programs("remove", "report")
    assert not file.exists()
    assert state.history("report").latest is None
    await programs("accept", "report")
    assert "return 'two'" in await programs("show", "report")


@pytest.mark.parametrize("verb", ["accept", "reject", "remove"])
def test_no_one_decides_without_a_terminal(tmp_path: Path, verb: str) -> None:
    ended = invoke("programs", verb, "report", "--config", str(write_config(tmp_path, {})), text="yes\n")
    assert ended.exit_code == 1
    assert "needs a terminal" in ended.stderr


async def test_saved_programs_are_prompts_where_a_client_is_to_see_them(
    tmp_path: Path, own_cache: dict[str, str]
) -> None:
    config = write_config(tmp_path, {}, deny=["program:saved:hidden"])
    (tmp_path / "programs").mkdir()
    for name in ("report", "hidden"):
        text = f"/** Reports. */\nexport default ({{ to }}) => `{name} to ${{to}}`;\n"
        text = text.replace("/** Reports. */", "/**\n * Reports.\n * @param {{ to: string }} input\n */")
        (tmp_path / "programs" / f"{name}.js").write_text(text, "utf-8")
    value = json.loads(config.read_text("utf-8"))
    config.write_text(json.dumps({**value, "expose": {"programs": True}}), "utf-8")
    async with serve(config, env=own_cache) as session:
        found = (await session.client.list_prompts()).prompts
        assert [each.name for each in found] == ["programs/report"]
        got = await session.client.get_prompt("programs/report", {"to": "ann"})
        text = got.messages[0].content.text
        code = text.split("\n\n")[1]
        assert code == 'return await programs.report({"to": "ann"});'
        assert await session.value(code) == "report to ann"
        with pytest.raises(MCPError, match="Unknown prompt"):
            await session.client.get_prompt("programs/hidden", {"to": "ann"})


async def test_programs_and_doctor_are_warned_of_a_saved_one_whose_tools_have_changed(
    tmp_path: Path, own_cache: dict[str, str]
) -> None:
    def lists(description: str) -> None:
        every = [("look", description), ("relist", "Lists again.")]
        found = [{"name": name, "description": text, "inputSchema": {"type": "object"}} for name, text in every]
        (tmp_path / "tools.json").write_text(json.dumps(found), "utf-8")

    async def findings() -> list[str]:
        checks = json.loads((await command("doctor", "--json", "--config", str(config), env=env)).stdout)
        return [each["detail"] for each in checks if each["name"] == "saved programs"]

    entry = {"command": sys.executable, "args": [str(SERVERS / "scripted.py"), str(tmp_path)], "trust": "follow"}
    config = write_config(tmp_path, {"s": entry})
    env = {**own_cache, "XDG_STATE_HOME": str(tmp_path / "state")}
    state = ProgramState(tmp_path / "state" / "codemode-mcp" / "programs", config)
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "used.js").write_text("export default () => MCP.s.look({});\n", "utf-8")
    (tmp_path / "programs" / "broken.js").write_text("export const one = 1\n", "utf-8")
    lists("Looks.")
    (broken,) = await findings()
    assert broken.startswith("programs/broken.js:1: ")
    reads = "return [(await API.read('programs/used.d.ts')).content, await API.search('used')]"
    async with serve(config, env=env) as session:
        text, hits = await session.value(reads)
        assert "changed since" not in text
        assert "warning" not in hits[0]
        await until(lambda: state.history("used").latest)
        lists("Looks, and tells.")
        await session.exec("await MCP.s.relist({})")
        with anyio.fail_after(SECONDS):
            while "changed since" not in text:
                text, hits = await session.value(reads)
        warning = "// Tools of this program have changed since it was saved: MCP.s.look has another description."
        assert text.startswith(warning)
        assert text.count("\n//") == 0
        assert hits[0]["warning"] == text.partition("\n")[0].removeprefix("// ")
    assert await findings() == [broken, "programs.used: MCP.s.look has another description"]
