"""The suite's server scenarios, with the fixture server on the product's transport, and with the product."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from tests.integration.harness import DOWN
from tests.integration.http_harness import serve_http, write_http_config
from tests.mcp_conformance.suite import REVISIONS, ROOT, Expected, Report, cases, revisions, run

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Return the backend, in module scope: the tests of one revision share a run."""
    return "asyncio"


@asynccontextmanager
async def fixture_server() -> AsyncIterator[str]:
    """Yield the URL of a fixture server, in a process of its own."""
    command = [sys.executable, "-m", "tests.mcp_conformance.fixture_server"]
    process = await anyio.open_process(command, cwd=ROOT, stderr=None)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        with anyio.fail_after(30):
            url = (await process.stdout.receive()).decode().strip()
        yield url
        await process.stdin.aclose()
        with anyio.fail_after(30):
            assert await process.wait() == 0
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()


@pytest.fixture(scope="module")
async def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Report]:
    """Run the suite and return its reports by revision."""
    folder, expected = tmp_path_factory.mktemp("suite"), Expected.read("fixture")
    async with fixture_server() as url:
        return {revision: await run("server", revision, expected, folder, "--url", url) for revision in REVISIONS}


@pytest.mark.parametrize(("revision", "scenario"), cases("server"))
async def test_the_fixture_server_passes(reports: dict[str, Report], revision: str, scenario: str) -> None:
    assert not reports[revision].surprises(scenario), "\n".join(reports[revision].surprises(scenario))


@pytest.mark.parametrize("revision", revisions())
async def test_the_suite_agrees(reports: dict[str, Report], revision: str) -> None:
    assert reports[revision].code == 0, reports[revision].output


@pytest.fixture(scope="module")
async def two_tool_reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Report]:
    """Run the suite on `codemode-mcp serve --transport http` and return its reports by revision."""
    folder = tmp_path_factory.mktemp("two-tools")
    async with serve_http(write_http_config(folder, DOWN)) as served:
        return {
            revision: await run("server", revision, Expected.read(f"two-tools-{revision}"), folder, "--url", served.url)
            for revision in REVISIONS
        }


@pytest.mark.parametrize(("revision", "scenario"), cases("server"))
async def test_the_two_tool_server_passes_what_applies_to_it(
    two_tool_reports: dict[str, Report], revision: str, scenario: str
) -> None:
    surprises = two_tool_reports[revision].surprises(scenario)
    assert not surprises, "\n".join(surprises)


@pytest.mark.parametrize("revision", revisions())
async def test_the_suite_agrees_about_the_two_tool_server(two_tool_reports: dict[str, Report], revision: str) -> None:
    assert two_tool_reports[revision].code == 0, two_tool_reports[revision].output
