"""Fixtures that keep these tests away from the logins and the keyring of the user who runs them."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import keyring
import pytest
from keyring.backends import null
from protected import SERVER, SHARED, Protected

from upstream_clients import token_store


@pytest.fixture(autouse=True, scope="session")
def _server() -> Iterator[None]:
    server = Protected()
    command = [sys.executable, str(SERVER), str(server.port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        SHARED.append(server)
        yield
        SHARED.clear()
        process.kill()


@pytest.fixture(autouse=True)
def logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder where logins are kept."""
    folder = tmp_path / "data" / "logins"
    monkeypatch.setattr(token_store, "logins_folder", lambda: folder)
    return folder


@pytest.fixture(autouse=True)
def _no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    # Not what `get_keyring` gives: it would choose among all that tests define.
    monkeypatch.setattr(keyring.core, "_keyring_backend", null.Keyring())
