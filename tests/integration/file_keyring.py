"""A keyring in a file, for commands under test: `PYTHON_KEYRING_BACKEND=file_keyring.FileKeyring`."""

from __future__ import annotations

import json
import os
from pathlib import Path

from keyring.backend import KeyringBackend
from keyring.errors import PasswordDeleteError


def environment(path: Path) -> dict[str, str]:
    """Return the environment of a user whose keyring is this file."""
    modules = os.pathsep.join((os.environ.get("PYTHONPATH", ""), str(Path(__file__).parent)))
    return {"PYTHON_KEYRING_BACKEND": "file_keyring.FileKeyring", "TEST_KEYRING": str(path), "PYTHONPATH": modules}


class FileKeyring(KeyringBackend):
    """A keyring whose entries are the JSON object in the file `$TEST_KEYRING`, by `SERVICE NAME`."""

    priority = 5  # type: ignore[assignment]  # the base class makes it a property of the class

    def get_password(self, service: str, username: str) -> str | None:
        return self._entries().get(f"{service} {username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        self._write(self._entries() | {f"{service} {username}": password})

    def delete_password(self, service: str, username: str) -> None:
        entries = self._entries()
        if entries.pop(f"{service} {username}", None) is None:
            raise PasswordDeleteError
        self._write(entries)

    def _entries(self) -> dict[str, str]:
        path = Path(os.environ["TEST_KEYRING"])
        entries: dict[str, str] = json.loads(path.read_text("utf-8")) if path.exists() else {}
        return entries

    def _write(self, entries: dict[str, str]) -> None:
        Path(os.environ["TEST_KEYRING"]).write_text(json.dumps(entries), "utf-8")
