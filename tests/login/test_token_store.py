"""Tests of storing logins: the place, the permissions and damaged files."""

import json
import os
import stat
import sys
from itertools import pairwise
from pathlib import Path

import anyio
import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.backends import null
from keyring.errors import PasswordDeleteError, PasswordSetError

from tests.values import replace
from upstream_clients import UpstreamSpec, token_store
from upstream_clients.errors import StoreError
from upstream_clients.spec import OAuthSettings
from upstream_clients.token_store import Login, LoginStore

SPEC = UpstreamSpec("srv", "http", url="https://mcp.example/mcp")
LOGIN = Login(
    access_token="access-secret", refresh_token="refresh-secret", expires_at=1.5, issuer="https://mcp.example"
)

posix = pytest.mark.skipif(sys.platform == "win32", reason="the user's data folder is private there by its own rules")


class MemoryKeyring(KeyringBackend):
    """A keyring that protects what it keeps, up to a length, as the one of Windows does."""

    priority = 5  # type: ignore[assignment]  # the base class makes it a property of the class

    def __init__(self, longest: int = 100_000) -> None:
        super().__init__()
        self.entries: dict[tuple[str, str], str] = {}
        self.longest = longest

    def get_password(self, service: str, username: str) -> str | None:
        return self.entries.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        if len(password) > self.longest:
            raise PasswordSetError(f"{password} is too long")
        self.entries[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        if self.entries.pop((service, username), None) is None:
            raise PasswordDeleteError("not there")


class PlainKeyring(MemoryKeyring):
    priority = 0.5  # type: ignore[assignment]


class LockedKeyring(MemoryKeyring):
    def get_password(self, service: str, username: str) -> str | None:
        raise RuntimeError("locked; the value was access-secret")


def test_a_stored_login_is_loaded_unchanged(logins: Path) -> None:
    store = LoginStore(SPEC)
    assert (store.load(), store.stamp()) == (None, None)
    assert store.save(LOGIN) == "file"
    assert LoginStore(SPEC).load() == LOGIN
    assert store.path.parent == logins


def test_every_change_changes_the_stamp() -> None:
    store = LoginStore(SPEC)
    stamps = [store.stamp()]
    for _ in range(20):
        store.save(LOGIN)
        stamps.append(store.stamp())
    store.forget()
    stamps.append(store.stamp())
    assert all(before != after for before, after in pairwise(stamps))


@posix
def test_file_and_folder_are_private(logins: Path) -> None:
    before = os.umask(0)
    try:
        LoginStore(SPEC).save(LOGIN)
    finally:
        os.umask(before)
    assert stat.S_IMODE(logins.stat().st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in logins.iterdir()] == [0o600]


@posix
def test_a_file_that_others_can_read_is_refused_with_advice(logins: Path) -> None:
    store = LoginStore(SPEC)
    store.save(LOGIN)
    store.path.chmod(0o640)
    with pytest.raises(StoreError, match="can be read by other users, so it is not used; run chmod 600"):
        store.load()
    store.path.chmod(0o600)
    logins.chmod(0o755)
    with pytest.raises(StoreError, match="run chmod 700"):
        store.load()
    with pytest.raises(StoreError, match="run chmod 700"):
        store.save(LOGIN)


@posix
def test_a_pipe_instead_of_the_login_file_does_not_block(tmp_path: Path) -> None:
    store = LoginStore(SPEC, tmp_path / "logins")
    store.path.parent.mkdir(0o700)
    os.mkfifo(store.path, 0o600)
    with pytest.raises(StoreError, match="not a regular file"):
        store.load()


@posix
def test_a_symbolic_link_instead_of_the_file_is_not_followed(tmp_path: Path) -> None:
    store = LoginStore(SPEC)
    store.save(LOGIN)
    elsewhere = tmp_path / "elsewhere"
    store.path.rename(elsewhere)
    store.path.symlink_to(elsewhere)
    with pytest.raises(StoreError, match="cannot be read"):
        store.load()


@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "[]", "null", '"x"', "{}", '{"kept": "file", "login": []}', '{"kept": "file", "login": "x"}'),
        '{"kept": "file", "login": {"access_token": 7}}',
        '{"kept": "file", "login": {"expires_at": "soon"}}',
        "[" * 100_000,
        "\0\xff",
    ],
    ids=lambda content: content[:40],
)
def test_a_damaged_file_is_reported_and_never_used(content: str) -> None:
    store = LoginStore(SPEC)
    store.save(LOGIN)
    store.path.write_text(content, "utf-8")
    with pytest.raises(StoreError, match="is damaged; delete it and log in again"):
        store.load()
    store.save(LOGIN)
    assert store.load() == LOGIN


def test_a_login_belongs_to_one_definition_only() -> None:
    LoginStore(SPEC).save(LOGIN)
    for other in (
        replace(SPEC, url="https://mcp.example/other"),
        replace(SPEC, url="https://evil.example/mcp"),
        replace(SPEC, name="other"),
        replace(SPEC, oauth=OAuthSettings(client_id="mine")),
        replace(SPEC, oauth=OAuthSettings(scopes=("read",))),
    ):
        assert LoginStore(other).load() is None
    assert LoginStore(replace(SPEC, oauth=OAuthSettings(), timeout_ms=5)).load() == LOGIN


def test_a_failed_write_leaves_the_old_login(logins: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LoginStore(SPEC)
    store.save(LOGIN)

    def full(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StoreError, match=r"cannot be stored in .*: No space left on device"):
        store.save(replace(LOGIN, access_token="new"))
    assert store.load() == LOGIN
    assert [path.suffix for path in logins.iterdir()] == [".json"]


def test_with_a_keyring_the_file_holds_no_token() -> None:
    ring = MemoryKeyring()
    keyring.set_keyring(ring)
    store = LoginStore(SPEC)
    assert store.save(LOGIN) == "keyring"
    assert "secret" not in store.path.read_text("utf-8")
    assert store.load() == LOGIN
    stamp = store.stamp()
    store.save(LOGIN)
    assert store.stamp() != stamp
    assert store.forget()
    assert ring.entries == {}
    assert store.load() is None


@pytest.mark.parametrize(
    "ring",
    [MemoryKeyring(longest=10), LockedKeyring(), PlainKeyring(), null.Keyring()],
    ids=["too long", "gives nothing back", "plain", "null"],
)
def test_a_keyring_that_rejects_or_does_not_protect_the_login_is_replaced_by_the_file(ring: KeyringBackend) -> None:
    keyring.set_keyring(ring)
    store = LoginStore(SPEC)
    assert store.save(LOGIN) == "file"
    assert store.load() == LOGIN


def test_a_locked_or_missing_keyring_is_reported_without_its_message() -> None:
    keyring.set_keyring(MemoryKeyring())
    store = LoginStore(SPEC)
    store.save(LOGIN)
    for ring in (LockedKeyring(), null.Keyring()):
        keyring.set_keyring(ring)
        with pytest.raises(StoreError, match="the login to server 'srv' is in the keyring, but") as refused:
            store.load()
        assert "secret" not in str(refused.value)


def test_a_login_shows_no_token() -> None:
    assert "secret" not in repr(LOGIN)


def test_the_file_says_which_server_it_is_for() -> None:
    store = LoginStore(SPEC)
    store.save(LOGIN)
    assert json.loads(store.path.read_text("utf-8"))["server"] == "srv"


@pytest.mark.anyio
async def test_one_login_is_locked_by_one_process_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = LoginStore(SPEC), LoginStore(SPEC)
    monkeypatch.setattr(token_store, "LOCK_TIMEOUT", 0.1)
    async with store.locked():
        with pytest.raises(StoreError, match="another process has held the login to server 'srv' for too long"):
            async with other.locked():
                raise AssertionError("two hold it")
    with anyio.fail_after(10):
        async with other.locked():
            pass
