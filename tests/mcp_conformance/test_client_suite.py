"""The suite's client scenarios, with the client for upstream servers."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import AsyncIterator

import pytest

from tests.mcp_conformance.client import client
from tests.mcp_conformance.suite import PATIENCE, REVISIONS, ROOT, Expected, Report, cases, revisions, run
from upstream_clients import negotiate

pytestmark = [
    pytest.mark.anyio,
    # Of connections that are cut off in mid-handshake, some streams between tasks are left to the garbage collector.
    pytest.mark.filterwarnings("ignore:.*MemoryObjectSendStream.__del__:pytest.PytestUnraisableExceptionWarning"),
]

RELAY = [sys.executable, "-I", "-S", str(ROOT / "tests" / "mcp_conformance" / "relay.py")]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Return the backend, in module scope: the tests share the runs."""
    return "asyncio"


@pytest.fixture(scope="module")
async def reports(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, Report]]:
    """Run the suite and return its reports by revision."""
    folder = tmp_path_factory.mktemp("suite")
    # The suite splits the command at spaces and gives it to a shell.
    command = shlex.join(RELAY) if os.name == "posix" else " ".join(f'"{part}"' for part in RELAY)
    found: dict[str, Report] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
        # The suite runs all scenarios together. On a busy machine, a modern server would look like a legacy one.
        patch.setattr(negotiate, "PROBE_TIMEOUT", PATIENCE)
        async with client() as address:
            for revision in REVISIONS:
                # Logins are stored here and not in a keyring, in a folder for each revision: a server of the next
                # revision may listen on the address of an earlier one, and would get its login.
                for name in ("XDG_DATA_HOME", "LOCALAPPDATA", "HOME"):
                    patch.setenv(name, str(folder / "data" / revision))
                found[revision] = await run(
                    "client",
                    revision,
                    Expected.read(f"client-{revision}"),
                    folder,
                    "--command",
                    command,
                    f"--timeout={PATIENCE * 1000}",
                    environ={"CONFORMANCE_CLIENT": address},
                )
            yield found


@pytest.mark.parametrize(("revision", "scenario"), cases("client"))
async def test_the_client_passes(reports: dict[str, Report], revision: str, scenario: str) -> None:
    assert not reports[revision].surprises(scenario), "\n".join(reports[revision].surprises(scenario))


@pytest.mark.parametrize("revision", revisions())
async def test_the_suite_agrees(reports: dict[str, Report], revision: str) -> None:
    assert reports[revision].code == 0, reports[revision].output
