"""The section `store` of the configuration: what it means, and what each mistake is told."""

import base64
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp.audit import Redactor
from codemode_mcp.base.errors import ConfigError
from codemode_mcp.base.settings import StoreSettings
from codemode_mcp.config import Config, load_config
from codemode_mcp.config.load import is_random, key_of
from codemode_mcp.config.reload import needs_restart

KEY, OTHER = (random.Random(seed).randbytes(32) for seed in (1, 2))
TEXT = base64.b64encode(KEY).decode()
URL = "postgresql://me:pass%40word@db.example:5433/runs?sslmode=verify-full"


def load(folder: Path, section: object, **environ: str) -> Config:
    path = folder / "codemode-mcp.json"
    path.write_text(json.dumps({"store": section}), "utf-8")
    return load_config(path, environ=environ)


def problem(folder: Path, section: object, **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(folder, section, **environ)
    (only,) = caught.value.problems
    return only


@pytest.mark.parametrize("section", [None, {}])
def test_a_section_that_says_nothing_leaves_the_choice_to_the_command(tmp_path: Path, section: object) -> None:
    assert load(tmp_path, section).store is None


def test_the_file_of_sqlite_is_beside_the_configuration_unless_its_path_is_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    assert load(tmp_path, {"kind": "sqlite"}).store == StoreSettings("sqlite")
    assert load(tmp_path, {"kind": "sqlite", "path": None}).store == StoreSettings("sqlite")
    for given, expected in (
        ("state/runs.db", tmp_path / "state" / "runs.db"),
        ("~/runs.db", tmp_path / "home" / "runs.db"),
        (str(tmp_path / "x" / "runs.db"), tmp_path / "x" / "runs.db"),
        ("${WHERE}/runs.db", tmp_path / "there" / "runs.db"),
    ):
        config = load(tmp_path, {"kind": "sqlite", "path": given}, WHERE="there")
        assert config.store == StoreSettings("sqlite", path=str(expected))


def test_keys_are_given_in_base64_or_hexadecimal_one_or_several(tmp_path: Path) -> None:
    section: dict[str, Any] = {"kind": "sqlite", "encryptionKey": "${KEY}"}
    for text in (TEXT, TEXT.rstrip("="), base64.urlsafe_b64encode(KEY).decode(), KEY.hex(), KEY.hex().upper() + "\n"):
        store = load(tmp_path, section, KEY=text).store
        assert store == StoreSettings("sqlite", encryption_keys=(KEY,))
    section["encryptionKey"] = ["${NEW}", "${KEY}"]
    store = load(tmp_path, section, KEY=TEXT, NEW=OTHER.hex()).store
    assert store == StoreSettings("sqlite", encryption_keys=(OTHER, KEY))


def test_secrets_may_come_from_programs(tmp_path: Path) -> None:
    section = {
        "kind": "postgres",
        "url": {"command": [sys.executable, "-c", f"print('{URL}')"]},
        "encryptionKey": {"command": [sys.executable, "-c", f"print('{TEXT}')"]},
    }
    config = load(tmp_path, section)
    assert config.store == StoreSettings("postgres", url=URL, encryption_keys=(KEY,))
    assert "pass%40word" in config.secrets


def test_neither_key_nor_password_is_shown_anywhere(tmp_path: Path) -> None:
    section = {"kind": "postgres", "url": "${URL}", "encryptionKey": ["${KEY}", OTHER.hex()]}
    config = load(tmp_path, section, URL=URL + "&sslpassword=quite-secret", KEY=TEXT)
    shown = repr(config) + repr(config.store) + str(config.store)
    redact = Redactor()
    redact.know(config.secretive)
    shown += redact(f"cannot connect to {config.store and config.store.url} as pass@word, quite-secret, {TEXT}")
    shown += redact(f"{OTHER.hex()}")
    for secret in ("pass%40word", "pass@word", TEXT, OTHER.hex(), repr(KEY), "quite-secret"):
        assert secret not in shown
    assert "cannot connect to ***" in shown


def test_what_a_program_prints_is_checked_like_what_the_file_says(tmp_path: Path) -> None:
    printing = {"command": [sys.executable, "-c", "print('too-short')"]}
    only = problem(tmp_path, {"kind": "sqlite", "encryptionKey": printing})
    assert only.startswith("store.encryptionKey: ")
    assert "too-short" not in only


def test_keys_that_random_bytes_make_are_taken() -> None:
    for _ in range(200):
        key = os.urandom(32)
        for text in (key.hex(), base64.b64encode(key).decode()):
            assert key_of(text) == key
            assert is_random(text, key)


def test_another_store_counts_after_a_restart_only(tmp_path: Path) -> None:
    before = load(tmp_path, {"kind": "sqlite"})
    assert needs_restart(before, load(tmp_path, {"kind": "sqlite"})) == []
    assert needs_restart(before, load(tmp_path, {"kind": "sqlite", "encryptionKey": TEXT})) == ["store"]
    assert needs_restart(before, load(tmp_path, {})) == ["store"]


def test_doctor_finds_its_variables_and_the_secrets_that_are_written_out() -> None:
    checks = pytest.importorskip("codemode_mcp.extensions.setup.doctor.configuration")
    section = {"kind": "postgres", "url": URL, "encryptionKey": ["${KEY}", TEXT]}
    assert list(checks.literal_secrets({"store": section})) == ["store.url", "store.encryptionKey[1]"]
    assert list(checks.literal_secrets({"store": {"encryptionKey": {"keyring": "codemode-key"}}})) == []
    (check,) = checks.variables({"store": section}, {"KEY": ""})
    assert (check.status, check.detail) == ("warn", "KEY is set, but empty, in store.encryptionKey[0]")
