"""Programs that earlier versions and this one have suspended: resumed, or refused by name.

`snapshots` has a folder for each version; its README says what is in them.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp import __version__
from codemode_mcp.base.errors import ProgramError
from codemode_mcp.sandbox import snapshot
from codemode_mcp.sandbox.binary import DIGEST
from codemode_mcp.sandbox.engine import Engine
from codemode_mcp.sandbox.guest import Guest
from scripts.record_snapshots import FOLDER, MEMORY, PROGRAMS, SECONDS, record, told

VERSION = __version__
RECORDED = sorted(folder.name for folder in FOLDER.iterdir() if folder.is_dir())


def recording(folder: Path) -> Any:
    return json.loads((folder / "recording.json").read_text("utf-8"))


def resumed(engine: Engine, folder: Path, name: str) -> list[Any]:
    """Return the turn after each delivery of the recording."""
    noted = recording(folder)
    data = (folder / f"{name}.bin").read_bytes()
    with Guest(engine, engine.image(noted["catalog"]), memory_limit=MEMORY, suspended=data) as guest:
        return [told(guest.deliver(message, SECONDS)) for message in noted["programs"][name]["deliver"]]


def judge(engine: Engine, folder: Path, name: str) -> str:
    """Resume a recorded program. Return the message if it is refused, as it has to be, and else an empty text."""
    noted = recording(folder)
    data = (folder / f"{name}.bin").read_bytes()
    ours = (snapshot.FORMAT, DIGEST, engine.base.prelude)
    work = engine.threads.submit(resumed, engine, folder, name)
    if (noted["format"], noted["engine"], noted["prelude"]) == ours:
        assert work.result() == noted["programs"][name]["turns"]
        return ""
    with pytest.raises(ProgramError) as refused:
        work.result()
    assert refused.value.code == "snapshot_restore_failed"
    if noted["format"] != snapshot.FORMAT:
        theirs, mine = f"format {noted['format']}", f"format {snapshot.FORMAT}"
    else:
        made = snapshot.about(data)
        assert (made.engine, made.prelude) == (noted["engine"], noted["prelude"])
        what = "engine" if noted["engine"] != DIGEST else "prelude"
        theirs, mine = f"{what} {noted[what][:8]}…", f"this one is {(DIGEST if what == 'engine' else ours[2])[:8]}…"
    assert re.search(f"{re.escape(theirs)}, and .*{re.escape(mine)}$", refused.value.message)
    return refused.value.message


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("version", RECORDED)
def test_a_recorded_program_continues_as_it_did_or_is_refused_by_name(engine: Engine, version: str, name: str) -> None:
    judge(engine, FOLDER / version, name)


def test_this_version_is_recorded_as_it_is(engine: Engine) -> None:
    run = "run scripts/record_snapshots.py, and commit what it writes"
    assert VERSION in RECORDED, f"there is no recording of {VERSION}: {run}"
    noted = recording(FOLDER / VERSION)
    same = (noted["format"], noted["engine"], noted["prelude"]) == (snapshot.FORMAT, DIGEST, engine.base.prelude)
    assert same, (
        f"the prelude, the engine or the form of snapshots has changed since {VERSION} was recorded, so that programs "
        f"suspended before that cannot be resumed. If {VERSION} is not released yet, {run}. If it is, this "
        "belongs into another version: raise the one in codemode_mcp/__init__.py and do the same"
    )
    assert set(noted["programs"]) == set(PROGRAMS)


def test_a_new_recording_is_equal_to_the_kept_one(engine: Engine, tmp_path: Path) -> None:
    engine.threads.submit(record, engine, tmp_path).result()
    assert recording(tmp_path) == recording(FOLDER / VERSION)
    for name in PROGRAMS:
        ours, theirs = (snapshot.about((at / f"{name}.bin").read_bytes()) for at in (tmp_path, FOLDER / VERSION))
        assert ours == theirs


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Return a copy of this version's recording, to be made another version's."""
    return Path(shutil.copytree(FOLDER / VERSION, tmp_path / "foreign"))


@pytest.mark.parametrize(
    ("what", "at", "said"),
    [
        ("engine", 36, f"it was made by engine 01010101…, and this one is {DIGEST[:8]}…"),
        ("prelude", 68, "it was made with prelude 01010101…, and this one is "),
    ],
)
def test_a_recording_of_another_version_is_refused_by_name(
    engine: Engine, foreign: Path, what: str, at: int, said: str
) -> None:
    noted = recording(foreign)
    (foreign / "recording.json").write_text(json.dumps({**noted, what: "01" * 32}), "utf-8")
    for name in PROGRAMS:
        path = foreign / f"{name}.bin"
        data = path.read_bytes()
        rest = (data[:at] + b"\1" * 32 + data[at + 32 :])[36:]
        path.write_bytes(data[:4] + hashlib.sha256(rest).digest() + rest)
        assert said in judge(engine, foreign, name)


def test_a_recording_in_another_format_is_refused_by_name(engine: Engine, foreign: Path) -> None:
    noted, other = recording(foreign), snapshot.FORMAT - 1
    (foreign / "recording.json").write_text(json.dumps({**noted, "format": other}), "utf-8")
    for name in PROGRAMS:
        path = foreign / f"{name}.bin"
        path.write_bytes(b"CMS%d" % other + path.read_bytes()[4:])
        assert f"it has format {other}, and this version reads" in judge(engine, foreign, name)


def test_a_program_that_continues_otherwise_than_recorded_is_noticed(engine: Engine, foreign: Path) -> None:
    noted = recording(foreign)
    noted["programs"]["in-a-timer"]["turns"][-1]["value"].append("tock")
    (foreign / "recording.json").write_text(json.dumps(noted), "utf-8")
    with pytest.raises(AssertionError, match="tock"):
        judge(engine, foreign, "in-a-timer")
