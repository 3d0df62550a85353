"""Programs that propose to be saved, and a person who decides about them: real processes, and real terminals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from codemode_mcp.saved_programs.program_state import ProgramState
from tests.integration.harness import serve, write_config

if TYPE_CHECKING:
    from pathlib import Path

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
        # The name is no global of programs that do not write it.
        assert await session.value('return typeof globalThis["save" + "_program"]') == "undefined"
        refused = await session.exec('return save_program("constructor", { description: "x" })')
        assert "choose another one" in refused.error
