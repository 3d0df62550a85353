"""The lock file beside a configuration, with `serve --locked`."""

from pathlib import Path

import pytest

from codemode_mcp.base.errors import ConfigError
from codemode_mcp.config import Reading, load_config
from codemode_mcp.rules.trust.items import SERVER_KEY, item_of
from codemode_mcp.rules.trust.pins_file import LockFile, write_lock_file


def written(folder: Path) -> Path:
    path = folder / "mcp.json"
    path.write_text("{}")
    return path


def test_the_lock_file_is_read_only_on_request(tmp_path: Path) -> None:
    path = written(tmp_path)
    lock = LockFile({"github": {SERVER_KEY: item_of(*SERVER_KEY, {"name": "github"})}})
    write_lock_file(tmp_path / "codemode-mcp.lock.json", lock)
    assert load_config(path, environ={}).lock is None
    found = load_config(path, environ={}, locked=True).lock
    assert found is not None
    assert found.servers["github"][SERVER_KEY].digest == lock.servers["github"][SERVER_KEY].digest


def test_a_change_of_the_lock_file_is_a_change_of_the_configuration(tmp_path: Path) -> None:
    path, lock = written(tmp_path), tmp_path / "codemode-mcp.lock.json"
    write_lock_file(lock, LockFile({}))
    reading = Reading()
    config = load_config(path, environ={}, reading=reading, locked=True)
    assert config.files == (lock,)
    assert reading.files == [lock]


@pytest.mark.parametrize("content", [None, "{}"])
def test_a_missing_or_damaged_lock_file_is_a_problem_of_the_configuration(tmp_path: Path, content: str | None) -> None:
    path, lock = written(tmp_path), tmp_path / "codemode-mcp.lock.json"
    if content is not None:
        lock.write_text(content)
    reading = Reading()
    with pytest.raises(ConfigError, match="codemode-mcp trust lock"):
        load_config(path, environ={}, reading=reading, locked=True)
    assert reading.files == [lock], "it is watched, so that it is read as soon as it is there"


def test_without_a_configuration_there_is_no_lock_file() -> None:
    with pytest.raises(ConfigError, match="--locked needs a configuration file"):
        load_config(None, environ={}, locked=True)
