"""Recordings of runs that another process continues: one file, which replays as one run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio

from codemode_mcp.audit.recordings import format as recorded
from codemode_mcp.audit.recordings.format import Recording, read_recording
from codemode_mcp.audit.recordings.recordings import KeptRecordings, MaskSource, RecordingFolder, Recordings, use_folder
from codemode_mcp.audit.recordings.writer import RecordingWriter
from codemode_mcp.base.errors import CodeModeError
from codemode_mcp.extensions.program_tools.replay.replay import Options, replay
from tests.stores.replicas import Replicas, fast, slow
from tests.waiting import until
from upstream_clients.testing import ScriptedSource, SlowSource


class SlowReads(SlowSource):
    """A source that answers writes immediately."""

    async def call_tool(self, tool: str, arguments: Any, **options: Any) -> Any:
        ancestor = ScriptedSource if tool == "write" else SlowSource
        return await ancestor.call_tool(self, tool, arguments, **options)


@contextmanager
def recording(folder: Path) -> Iterator[Recordings]:
    mask = MaskSource(dict)
    with RecordingWriter(mask) as writer:
        use_folder(folder)
        yield Recordings(
            "1.0", KeptRecordings(0), mask, RecordingFolder(writer, folder, max_files=9, max_bytes=1 << 30)
        )


def recording_in(folder: Path) -> Recording:
    (path,) = folder.iterdir()
    return read_recording(path)


async def no_typescript(source: str) -> Any:
    raise AssertionError(source)


async def test_a_run_that_another_process_resumes_has_one_recording(replicas: Replicas) -> None:
    code = "const a = Math.random(); await yield_control(); return [a, unwrap(await MCP.files.read({n: 1})).text]"
    folder = replicas.path / "recordings"
    with recording(folder) as earlier, recording(folder) as later:
        async with replicas(slow(), recordings=earlier) as first:
            waiting = await first.execute(code)
            outcome = await replicas.end(fast(), waiting.run_id, recordings=later)
    found = recording_in(folder)
    assert found.notes == ()
    assert sum(isinstance(step, recorded.TakenOver) for step in found.steps) == 1
    done = await replay(replicas.engine, found, no_typescript, None, Options())
    assert (done.divergence, done.outcome.value) == (None, outcome.value)


async def test_what_a_process_did_after_its_last_checkpoint_is_left_out(replicas: Replicas) -> None:
    code = """
        await yield_control();
        const written = unwrap(await MCP.files.write({n: 1})).text;
        return [written, unwrap(await MCP.files.read({n: 2})).text, Date.now()];
    """
    folder = replicas.path / "recordings"
    source = SlowReads("files", slow()._answers, tools=slow().view().tools)
    with recording(folder) as earlier:
        async with replicas(source, recordings=earlier, timeout_ms=20_000) as first:
            waiting = await first.execute(code)

            async def wait() -> None:
                with suppress(CodeModeError):
                    await first.observe(waiting.run_id)

            async with anyio.create_task_group() as group:
                group.start_soon(wait)
                await until(lambda: source.pending >= 1)
                first.manager.close()
    before = recording_in(folder)
    assert [type(step).__name__ for step in before.steps].count("Checkpoint") == 1
    assert not isinstance(before.steps[-1], recorded.Checkpoint), "nothing happened after the checkpoint"
    with recording(folder) as later:
        outcome = await replicas.end(fast(), waiting.run_id, recordings=later)
    found = recording_in(folder)
    kinds = [type(step).__name__ for step in found.steps]
    assert kinds[kinds.index("Checkpoint") + 1] == "TakenOver"
    assert outcome.value[1] == "done 2"
    done = await replay(replicas.engine, found, no_typescript, None, Options())
    assert (done.divergence, done.outcome.value) == (None, outcome.value)
