"""Programs that call an API, through the real command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from loopback_api import loopback_api, reply, write_document

from tests.integration.harness import serve, write_config

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

PROGRAM = """
const [pets, missing] = await Promise.all([MCP.api.fetch({ case: "pets" }), MCP.api.fetch({ case: "missing" })]);
const made = unwrap(await MCP.api.send({ case: "pets", text: "é" }));
return [unwrap(pets), missing.isError, made.length];
"""


async def test_a_program_calls_operations_of_an_api_by_its_document(tmp_path: Path) -> None:
    async with loopback_api() as api:
        api.script("/v1/pets", reply(body=[{"name": "Rex"}]))
        write_document(tmp_path)
        config = write_config(tmp_path, {"api": {"openapi": "api.json", "baseUrl": f"{api.url}/v1"}})
        async with serve(config) as session:
            assert await session.value(PROGRAM) == [[{"name": "Rex"}], True, 1]
            with_list = await session.value("return await MCP.api.$api()")
    assert "fetch" in str(with_list)
    assert [each.method for each in api.requests("/v1/pets")] == ["GET", "POST"]
