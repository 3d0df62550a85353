"""The search for programs, with programs of the same name in the current folder. No program is run."""

import os
import shutil
from pathlib import Path

import pytest

from upstream_clients.environment import find_executable, path_to_start


def executable(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a planted `npm` of each form."""
    monkeypatch.setenv("PATHEXT", os.pathsep.join((".EXE", ".CMD")))
    monkeypatch.chdir(tmp_path)
    for planted in ("npm", "npm.EXE", "npm.exe", "npm.cmd", "bin/npm"):
        executable(tmp_path / planted)
    return tmp_path


@pytest.mark.parametrize("entry", ["", ".", "bin"])
def test_a_relative_or_empty_entry_of_path_is_not_searched(project: Path, entry: str) -> None:
    wanted = executable(project / "installed" / ("npm.exe" if os.name == "nt" else "npm"))
    path = os.pathsep.join((entry, str(project / "installed")))
    assert find_executable("npm", path) == wanted
    assert find_executable("npm", entry) is None
    with pytest.raises(FileNotFoundError) as raised:
        path_to_start("npm", entry)
    assert raised.value.filename == "npm"


def test_on_windows_a_program_has_an_ending_and_is_not_of_the_current_folder(project: Path) -> None:
    installed = project / "installed"
    executable(installed / "npm")  # the shell script for other systems, which Node.js puts beside the other file
    wanted = executable(installed / "npm.cmd")
    for name in ("npm", "npm.cmd"):
        assert find_executable(name, str(installed), "win32") == wanted
    assert find_executable("npm", "", "win32") is None
    assert find_executable(str(installed / "npm"), "", "win32") == wanted


def test_without_a_path_the_folders_of_this_process_are_searched(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(project / "bin"))
    assert find_executable("npm", system="linux") == str(project / "bin" / "npm")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no permission to execute")
def test_what_cannot_be_run_is_not_found_and_a_path_is_not_searched_for(project: Path) -> None:
    path = str(project / "bin")
    (project / "bin" / "npm").chmod(0o644)
    (project / "bin" / "folder").mkdir()
    for name in ("npm", "folder", "", "missing", "./missing"):
        assert find_executable(name, path) is None
    assert find_executable("./npm", path) == "./npm" == shutil.which("./npm", path=path)
    assert path_to_start("./missing", path) == "./missing", "the system says why it cannot be started"
