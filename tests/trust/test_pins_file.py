"""The files with pins: read as written, private, bounded, and changed by several processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from codemode_mcp.rules.trust import pins_file
from codemode_mcp.rules.trust.comparison import Acceptance, Listing, ServerPins
from codemode_mcp.rules.trust.items import Item, item_of
from codemode_mcp.rules.trust.pins_file import PinsDamaged, PinsFolder, PinsUnavailable
from tests.values import replace

CREATE = item_of("tool", "create", {"name": "create", "inputSchema": {"type": "object", "maximum": 10**30}})
CHANGED = item_of("tool", "create", {"name": "create", "description": "\ud800 and \u202e", "inputSchema": {}})
SECRET = Item("tool", "secret", None, "0" * 64, "1" * 64)
PINS = ServerPins(
    "github",
    {CREATE.key: Acceptance(CREATE, "a person at a terminal", 7.5), SECRET.key: Acceptance(SECRET)},
    {"ab" * 32: "a person at the page"},
    Listing({CHANGED.key: CHANGED, SECRET.key: SECRET}, frozenset(("tool", "server")), 8.5),
    logged_in=True,
    baseline=frozenset(("tool",)),
)


@pytest.fixture
def folder(tmp_path: Path) -> PinsFolder:
    return PinsFolder(tmp_path / "pins", tmp_path / "codemode.json")


def digests(pins: ServerPins) -> object:
    accepted = {key: (each.item.digest, each.item.shape_digest, each.by) for key, each in pins.accepted.items()}
    return accepted, {key: item.digest for key, item in pins.present.items.items()}


def test_pins_are_read_as_they_were_written(folder: PinsFolder) -> None:
    assert folder.load("github") is None
    assert folder.stamp("github") is None
    folder.update("github", lambda _: PINS)
    read = folder.load("github")
    assert read is not None
    assert digests(read) == digests(PINS)
    assert read.present.items[CHANGED.key].definition == CHANGED.definition
    assert replace(read, accepted={}, present=Listing()) == replace(PINS, accepted={}, present=Listing())
    assert folder.servers() == ["github"]
    assert PinsFolder(folder.folder, None).servers() == []


def test_a_definition_that_is_accepted_and_present_is_written_once(folder: PinsFolder) -> None:
    folder.update("github", lambda _: replace(PINS, present=Listing({CREATE.key: CREATE})))
    assert folder.path("github").read_text().count(str(10**30)) == 1
    read = folder.load("github")
    assert read is not None
    assert read.present.items[CREATE.key].definition == CREATE.definition


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has access lists instead of modes")
def test_the_file_is_private_and_one_that_others_can_change_is_refused(folder: PinsFolder) -> None:
    folder.update("github", lambda _: PINS)
    path = folder.path("github")
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0
    path.chmod(0o666)
    with pytest.raises(PinsUnavailable, match="can be written by others"):
        folder.load("github")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 1}', '{"format": 1, "server": 3}', "[" * 100_000])
def test_a_damaged_file_is_refused_and_can_be_replaced(folder: PinsFolder, text: str) -> None:
    folder.update("github", lambda _: PINS)
    folder.path("github").write_text(text)
    with pytest.raises(PinsDamaged, match="damaged"):
        folder.load("github")
    with pytest.raises(PinsDamaged):
        folder.update("github", lambda _: PINS)
    folder.replace_damaged("github", PINS)
    assert folder.load("github") is not None


def test_the_file_of_another_server_is_refused(folder: PinsFolder) -> None:
    folder.update("github", lambda _: PINS)
    os.rename(folder.path("github"), folder.path("gitlab"))
    with pytest.raises(PinsDamaged, match="another server"):
        folder.load("gitlab")
    assert folder.servers() == []


def test_the_file_of_another_version_is_refused_and_not_replaced(folder: PinsFolder) -> None:
    folder.update("github", lambda _: PINS)
    path = folder.path("github")
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
    with pytest.raises(PinsUnavailable, match="another version") as caught:
        folder.update("github", lambda _: PINS)
    assert not isinstance(caught.value, PinsDamaged)
    assert json.loads(path.read_text())["format"] == 99


def test_a_list_that_is_too_large_is_written_without_definitions(
    folder: PinsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pins_file, "MAX_FILE_BYTES", 1200)
    large = item_of("tool", "large", {"description": "x" * 1000})
    folder.update("github", lambda _: replace(PINS, accepted={large.key: Acceptance(large)}, present=Listing()))
    read = folder.load("github")
    assert read is not None
    assert read.accepted[large.key].item.definition is None
    assert read.accepted[large.key].item.digest == large.digest
    monkeypatch.setattr(pins_file, "MAX_FILE_BYTES", 100)
    with pytest.raises(PinsUnavailable, match="too large"):
        folder.update("gitlab", lambda _: replace(PINS, server="gitlab"))


def test_an_exception_of_the_change_leaves_the_file_as_it_was(folder: PinsFolder) -> None:
    folder.update("github", lambda _: PINS)
    stamp = folder.stamp("github")

    def fail(_: ServerPins | None) -> ServerPins:
        raise KeyError("x")

    with pytest.raises(KeyError):
        folder.update("github", fail)
    folder.update("github", lambda pins: pins or PINS)
    assert folder.stamp("github") == stamp


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PinsUnavailable, match="cannot be written"):
        PinsFolder(tmp_path / "file", None).update("github", lambda _: PINS)


WRITER = """
import sys
from msgspec.structs import replace
from pathlib import Path
from codemode_mcp.rules.trust.comparison import ServerPins
from codemode_mcp.rules.trust.pins_file import PinsFolder
folder = PinsFolder(Path(sys.argv[1]), None)
for number in range(20):
    digest = (sys.argv[2] + str(number)).rjust(64, "0")
    def add(pins):
        pins = pins or ServerPins("s")
        return replace(pins, rejected={**pins.rejected, digest: ''})
    folder.update("s", add)
"""


def test_changes_of_several_processes_are_all_kept(tmp_path: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), name]) for name in "abcd"]
    assert [each.wait(60) for each in writers] == [0] * 4
    pins = PinsFolder(tmp_path, None).load("s")
    assert pins is not None
    assert len(pins.rejected) == 80


def test_a_folder_that_cannot_be_read_is_no_empty_one(folder: PinsFolder) -> None:
    folder.update("s", lambda _: ServerPins("s", baseline=frozenset({"tool"})))
    own = folder.path("s").parent
    own.rename(own.with_name("elsewhere"))
    own.symlink_to(own.name)  # a link to itself
    with pytest.raises(PinsUnavailable, match="cannot be read"):
        folder.load("s")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has access lists instead of modes")
@pytest.mark.parametrize("exists", [True, False], ids=["with pins", "without pins"])
@pytest.mark.parametrize("above", ["own", "pins", "state"])
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o757, "another user", "a link of another user"])
def test_pins_in_a_folder_that_others_can_change_are_not_used(
    tmp_path: Path, mode: int | str, above: str, exists: bool
) -> None:
    root = tmp_path / "state"
    folder = PinsFolder(root / "pins", tmp_path / "codemode.json")
    folder.update("github", lambda _: PINS)
    own = folder.path("github").parent
    exposed = {"own": own, "pins": root / "pins", "state": root}[above]
    if not exists:
        folder.path("github").unlink()
    if isinstance(mode, int):
        exposed.chmod(mode)
        sticky = mode & 0o1000 and above != "own"
    else:
        if os.geteuid():
            pytest.skip("only root can give a folder away")
        sticky = False
        if mode == "another user":
            os.chown(exposed, 4711, -1)
        else:
            exposed.rename(tmp_path / "elsewhere")
            exposed.symlink_to(tmp_path / "elsewhere")
            os.lchown(exposed, 4711, -1)
    if sticky:  # only the owner of an entry can delete it there
        assert (folder.load("github") is not None) is exists
        return
    why = "can be written by others" if isinstance(mode, int) else "belongs to another user"
    for use in (folder.load, lambda name: folder.update(name, lambda _: PINS)):
        with pytest.raises(
            PinsUnavailable, match=f"are not used, because .*{why}; make its folders yours alone"
        ) as raised:
            use("github")
        assert not isinstance(raised.value, PinsDamaged), "it is not replaced"
    assert folder.servers() == []
    with pytest.raises(PinsUnavailable):
        folder.replace_damaged("github", PINS)
