"""Runs that were recorded over fakes are replayed byte for byte: their output, their result and what a reader sees."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest

from codemode_mcp.audit.recordings.format import NotReadable, Recording, recording_of
from codemode_mcp.audit.recordings.recordings import KeptRecordings, MaskSource, RecordingFolder, Recordings
from codemode_mcp.audit.recordings.writer import RecordingWriter
from codemode_mcp.base.errors import ProgramError
from codemode_mcp.base.settings import CodeModeSettings, ToolSettings
from codemode_mcp.catalog.plugins.api import namespace_tool
from codemode_mcp.catalog.saved_programs.compiling import ProgramCompiler
from codemode_mcp.catalog.saved_programs.folder import Library
from codemode_mcp.catalog.saved_programs.program_file import read_program
from codemode_mcp.catalog.saved_programs.saved_program import program_id
from codemode_mcp.extensions.program_tools.drafts import make_draft
from codemode_mcp.extensions.program_tools.program_tests.cases import Case
from codemode_mcp.extensions.program_tools.program_tests.comparison import Expectation, written
from codemode_mcp.extensions.program_tools.program_tests.running import Runner
from codemode_mcp.extensions.program_tools.replay.player import Restores
from codemode_mcp.extensions.program_tools.replay.replay import Options, OtherProgram, replay
from codemode_mcp.extensions.program_tools.replay.script import Divergence
from codemode_mcp.program.intl import intl_reader
from codemode_mcp.program.typescript import Transformed
from codemode_mcp.runs.calls.outcome import Outcome
from codemode_mcp.runs.manager import Cell
from codemode_mcp.runs.rendering import render
from codemode_mcp.sandbox.engine import Engine, open_engine
from tests.conftest import COMPILED
from tests.extensions.program_tools.replay.programs import PROGRAMS, SAVED
from tests.programs.test_programs import read_programs
from tests.runs.bench import CALLER, Bench, bench
from tests.runs.fake_plugins import FakePlugins
from tests.runs.saved_programs import DOUBLE, library
from tests.stores.replicas import fast, replica, slow, until_done
from tests.values import replace
from upstream_clients.errors import UpstreamCallError
from upstream_clients.testing import ScriptedSource, text_result
from upstream_clients.tools import JsonObject, ToolOutcome

pytestmark = pytest.mark.anyio


async def no_typescript(source: str) -> Transformed:
    raise AssertionError(source)


WRITTEN = Path(__file__).parents[3] / "programs" / "javascript"
ONE_IN = 6
"""Distance of the programs in `tests/programs` that are recorded. They only compute, and all are alike here."""

DRAFTED = 4
"""Distance of the runs of which drafts are made and tested."""

SETTINGS = ToolSettings(code_mode=CodeModeSettings(telemetry="off"))
SECRET = "s3cret-value-1"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
BEFORE = "const fake = new Proxy({}, { get: (_, n) => async (a) => unwrap(await MCP.fake[n](a)) });\n"


class FakeSource(ScriptedSource):
    """The server `fake`."""

    def __init__(self) -> None:
        answers = {
            "echo": lambda given: {"content": [], "structuredContent": given},
            "late": lambda given: {"content": [], "structuredContent": given},
            "fails": UpstreamCallError("fake", "it is out of order", dispatched=True),
            "isError": text_result("no such thing", isError=True),
            "picture": {"content": [{"type": "image", "mimeType": "image/png", "data": PIXEL}]},
            "big": lambda given: text_result("b" * int(given.get("size", 0))),
        }
        super().__init__("fake", answers)

    async def call_tool(self, tool: str, arguments: JsonObject, **options: Any) -> ToolOutcome:
        if tool == "late":
            await anyio.sleep(arguments.get("ms", 0) / 1000)
        return await super().call_tool(tool, arguments, **options)


def tracker() -> FakePlugins:
    """Return a plugin with the namespace `issues`."""
    made = FakePlugins()
    made.add_tools("tracker", "list", "add")
    add = namespace_tool("add", lambda title, *labels: {"title": title, "labels": list(labels)})
    made.add(lambda _: {"team": "core", "list": namespace_tool("list"), "add": add})
    return made


@dataclass(frozen=True)
class Recorded:
    """A recorded run. `shown`: its answer as a client gets it, and its whole output."""

    code: str
    file: bytes
    shown: str


async def shown(outcome: Outcome) -> str:
    """Return everything that a reader sees of a run."""

    async def keep_nothing(owner: str, text: str) -> str | None:
        return None

    answer = await render(outcome, SETTINGS, keep_nothing, 0.0)
    parts = [answer.structured, answer.content, answer.is_error, outcome.outputs, outcome.value]
    return json.dumps([*parts, outcome.error, outcome.code if outcome.error else None, outcome.dropped])


async def run_to_its_end(it: Bench, code: str) -> Outcome:
    """Return the end of a program, with all output and notes of its answers."""
    outcome = await it.manager.execute(Cell(code, "javascript", CALLER, None, ("given", "2")))
    outputs, notes = outcome.outputs, outcome.notes
    while outcome.status == "waiting":
        outcome = await it.observe(outcome.run_id)
        outputs, notes = outputs + outcome.outputs, notes + outcome.notes
    return replace(outcome, outputs=outputs, notes=notes)


async def record(engine: Engine, *codes: str, secrets: Mapping[str, str] | None = None) -> list[Recorded]:
    """Run programs, and return their recordings. `secrets`: names by values."""
    recordings = Recordings("0", KeptRecordings(64 << 20), MaskSource(lambda: secrets or {}))
    limits: dict[str, Any] = {"timeout_ms": 500, "memory_limit_bytes": 16 << 20}
    found = []
    async with bench(engine, FakeSource(), plugins=tracker(), recordings=recordings, **limits) as it:
        it.library = library(**SAVED)
        for code in codes:
            outcome = await run_to_its_end(it, code)
            found.append(Recorded(code, recordings.export(outcome.run_id), await shown(outcome)))
    return found


async def record_all() -> list[Recorded]:
    computing = [each.code for path in sorted(WRITTEN.glob("*.js")) for each in read_programs(path)]
    codes = [BEFORE + code for code in PROGRAMS]
    codes += [code for code in computing if "MCP" not in code][::ONE_IN]
    with open_engine(COMPILED, max_threads=2, intl=intl_reader(COMPILED)) as engine:
        return await record(engine, *codes)


@pytest.fixture(scope="module")
def recorded() -> list[Recorded]:
    """Return the runs."""
    return anyio.run(record_all)


def recording_in(file: bytes) -> Recording:
    return recording_of(file.splitlines(keepends=True))


async def replayed(engine: Engine, file: bytes, restores: Restores) -> tuple[str, Divergence | None]:
    done = await replay(engine, recording_in(file), no_typescript, None, Options(restores=restores))
    assert done.notes == ()
    return await shown(done.outcome), done.divergence


@pytest.mark.parametrize("restores", ["recorded", "always"])
async def test_a_replay_gives_every_byte_of_the_recorded_run(
    engine: Engine, recorded: list[Recorded], restores: Restores
) -> None:
    assert len(recorded) >= 150
    for each in recorded:
        text, divergence = await replayed(engine, each.file, restores)
        assert (text, divergence) == (each.shown, None), each.code


async def test_the_drafts_of_recorded_runs_pass_their_tests(
    engine: Engine, recorded: list[Recorded], tmp_path: Path
) -> None:
    runner = Runner(engine, no_typescript, ProgramCompiler(no_typescript))
    for number, each in enumerate(recorded[::DRAFTED]):
        recording = recording_in(each.file)
        if recording.end is not None and recording.end.code == "timeout":
            continue  # it would compute for seconds
        opening = recording.opening
        draft = make_draft(opening.source, "javascript", origin=opening.run, args=opening.args)
        case = Case(tmp_path, "draft", str(number), f"draft.{number}")
        case.recording.write_bytes(each.file)
        case.expectation.write_text(written(Expectation(input=draft.old_input)), "utf-8")
        programs = read_program("draft", draft.language, draft.text), *library(**SAVED).programs
        result = await runner.run(case, Library(programs))
        assert result.status == "passed", (result.lines, draft.text)


SCRIPT = """
import anyio, sys
from pathlib import Path
from codemode_mcp.program.intl import intl_reader
from codemode_mcp.sandbox.engine import open_engine
from tests.conftest import COMPILED
from tests.extensions.program_tools.replay.test_recorded_runs import replayed

async def main():
    with open_engine(COMPILED, max_threads=2, intl=intl_reader(COMPILED)) as engine:
        for path in sorted(Path(sys.argv[1]).iterdir()):
            print((await replayed(engine, path.read_bytes(), "never"))[0])

anyio.run(main)
"""


def test_another_process_elsewhere_gives_the_same_bytes(recorded: list[Recorded], tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    folder.mkdir()
    for number, each in enumerate(recorded):
        (folder / f"{number:04}.jsonl").write_bytes(each.file)
    elsewhere = {
        "TZ": "Pacific/Chatham",
        "HOME": str(tmp_path),
        "PYTHONHASHSEED": "99",
        "LC_ALL": "C",
        "PYTHONUTF8": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)],
        env={**os.environ, **elsewhere, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [each.shown for each in recorded]


async def test_a_run_that_another_process_takes_over_is_replayed(engine: Engine, tmp_path: Path) -> None:
    code = """
    const before = [Date.now(), Math.random(), unwrap(await MCP.files.read({ n: 1 })).text];
    await yield_control();
    const both = await Promise.allSettled([2, 3].map((n) => MCP.files.write({ n })));
    return [before, both.map((each) => each.status), Date.now(), Math.random()];
    """
    mask = MaskSource(dict)
    with RecordingWriter(mask) as writer:
        (tmp_path / "recordings").mkdir()
        folder = RecordingFolder(writer, tmp_path / "recordings", max_files=10, max_bytes=1 << 30)
        recordings = Recordings("0", KeptRecordings(0), mask, folder)
        async with replica(engine, tmp_path, fast(), recordings=recordings) as first:
            waiting = await first.execute(code)
            assert waiting.status == "waiting"
        # The second process ends with its calls in flight, and the third one continues from the last checkpoint.
        async with replica(engine, tmp_path, slow(), recordings=recordings) as second:
            assert (await second.observe(waiting.run_id)).status == "waiting"
        async with replica(engine, tmp_path, fast(), recordings=recordings) as third:
            ended = await until_done(third, waiting.run_id)
    assert (ended.status, ended.value[1]) == ("completed", ["rejected", "rejected"])
    file = (tmp_path / "recordings" / f"{waiting.run_id}.jsonl").read_bytes()
    assert file.count(b'"kind":"taken_over"') >= 2
    text, divergence = await replayed(engine, file, "recorded")
    assert divergence is None
    end = recording_in(file).end
    assert end is not None
    assert text == await shown(replace(ended, notes=end.notes))


async def test_another_program_gets_saved_programs_as_recorded_or_with_other_texts(engine: Engine) -> None:
    code = "await programs.double({ n: 1 }); return programs.double({ n: 2 })"
    (run,) = await record(engine, code)
    recording, other = recording_in(run.file), OtherProgram("return programs.double({ n: 2 })", "javascript")
    # The recorded answer to this call has no text, since the recorded guest had it from the earlier call.
    assert (await replay(engine, recording, no_typescript, other)).outcome.value == {"twice": 4}
    changed = read_program("double", "javascript", DOUBLE.replace("n * 2", "n * 20"))
    compiled = {program_id("double"): await ProgramCompiler(no_typescript).compile(changed)}
    for program in (other, OtherProgram("return programs.double({ n: 2, extra: 1 })", "javascript")):
        done = await replay(engine, recording, no_typescript, program, Options(programs=compiled))
        assert (done.divergence, done.outcome.value) == (None, {"twice": 40})


async def test_masked_secrets_are_placeholders_in_a_replay_too(engine: Engine) -> None:
    code = f"""
    const found = await MCP.fake.echo({{ token: "{SECRET}" }});
    text(unwrap(found).token);
    return unwrap(await MCP.fake.echo({{ size: args.length, again: unwrap(found).token }}));
    """
    (run,) = await record(engine, code, secrets={SECRET: "fake.TOKEN"})
    done = await replay(engine, recording_in(run.file), no_typescript)
    assert (done.divergence, done.outcome.value) == (None, {"size": 2, "again": "__SECRET_fake_TOKEN__"})
    (run,) = await record(
        engine, f"return MCP.fake.echo({{ size: '{SECRET}'.length }})", secrets={SECRET: "fake.TOKEN"}
    )
    done = await replay(engine, recording_in(run.file), no_typescript)
    assert done.divergence is not None
    assert done.notes == (
        "The recording has placeholders of secrets (fake_TOKEN); a program that computes with one may differ.",
    )


async def test_a_changed_recording_is_refused_or_replayed(engine: Engine) -> None:
    # A program that waits in a loop for a time would wait long with a changed clock.
    codes = [BEFORE + code for code in PROGRAMS if "for (" not in code and "while" not in code][:: len(PROGRAMS) // 12]
    files = [[json.loads(line) for line in run.file.splitlines()] for run in await record(engine, *codes)]
    random = Random(22)
    counts: Counter[str] = Counter()
    for _ in range(300):
        lines = list(random.choice(files))
        at = random.randrange(len(lines))
        lines[at] = changed(lines[at], random)
        try:
            recording = recording_in(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
            done = await replay(engine, recording, no_typescript, None, Options(restores="always"))
        except (NotReadable, ProgramError) as error:
            counts[type(error).__name__] += 1
        else:
            await shown(done.outcome)
            counts["replayed"] += 1
    assert min(counts["NotReadable"], counts["ProgramError"], counts["replayed"]) > 10, counts


def changed(value: Any, random: Random) -> Any:
    """Return JSON data with one change."""
    match value:
        case dict() if value:
            key = random.choice(list(value))
            return {**value, key: changed(value[key], random)}
        case list() if value and random.random() < 0.8:
            at = random.randrange(len(value))
            return [*value[:at], changed(value[at], random), *value[at + random.randrange(2) :]]
        case str() if value and random.random() < 0.7:
            at = random.randrange(len(value))
            return value[:at] + random.choice(["", '"', "}", "[", "0", "x", "\\"]) + value[at + 1 :]
        case int() | float() if not isinstance(value, bool):
            return random.choice([value + 1, -1, 0, 1e300, 2**62, value * 1000])
    return random.choice([None, "", "x", 0, -1, 2**70, [], {}, [[]], True, "[" * 2000 + "]" * 2000])
