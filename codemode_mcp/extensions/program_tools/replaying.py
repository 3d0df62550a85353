"""`codemode-mcp run --replay`: a recorded program again, or another one with the recorded answers, without servers."""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

import anyio
import anyio.to_thread

from codemode_mcp import __version__
from codemode_mcp.audit.recordings.format import NotReadable, Recording, read_recording
from codemode_mcp.base.errors import CodeModeError
from codemode_mcp.base.paths import cache_dir
from codemode_mcp.base.text import listed
from codemode_mcp.cli.following import print_answer, print_outputs
from codemode_mcp.cli.messages import end, say, say_line, stop
from codemode_mcp.cli.terminal import Screen
from codemode_mcp.extensions.program_tools.replay.replay import Options, OtherProgram, replay
from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from pathlib import Path

    from codemode_mcp.extensions.program_tools.replay.ending import Replayed
    from codemode_mcp.program.typescript import Transformed

DIVERGED: Final = 7
"""Exit code of a replay that differs from its recording."""

SHOWN_CALLS: Final = 5
"""Maximum number of unused calls that a message names."""

TRANSFORM_SECONDS: Final = 60.0
"""Maximum seconds to compile the TypeScript of one program."""


def replay_and_exit(
    file: Path, code: str | None, language: str | None, args: tuple[str, ...] | None, *, loose: bool, as_json: bool
) -> NoReturn:
    """Replay a recording, print what `run` prints, and end the command.

    Args:
        code: the program to run instead of the recorded one; None for the recorded one.
        args: the value of `args` in that program; None for the recorded one.
    """
    try:
        recording = read_recording(file)
    except FileNotFoundError:
        stop(2, f"there is no file {file}; codemode-mcp run --record FILE makes a recording")
    except OSError as error:
        stop(1, f"cannot read {file}: {error.strerror}")
    except NotReadable as error:
        stop(2, f"{file} cannot be replayed: {error}")
    other = None if code is None else _other(code, language, args)
    try:
        done = anyio.run(partial(_replay, recording, other, loose=loose))
    except CodeModeError as error:
        stop(1, f"{error.code}: {error.message}")
    with Screen() as screen:
        _print(screen, done, as_json=as_json)
    for note in (*recording.notes, *done.notes):
        say_line(note)
    if done.divergence is not None:
        say(f"the replay differs from the recording {file}:\n{done.divergence}")
        made_by = recording.opening.version
        if made_by != __version__:
            maker = f"codemode-mcp {escape_line(made_by, 40)}"
            say(f"{maker} has made the recording, and this is {__version__}: it may run programs in another way")
        end(DIVERGED)
    if done.unused and other is not None:
        say(_unused(done))
    end(0 if done.outcome.status == "completed" else 1)


def _other(code: str, language: str | None, args: tuple[str, ...] | None) -> OtherProgram:
    from codemode_mcp.cli.command_programs import Refused, check
    from codemode_mcp.cli.command_service import ProgramRequest

    try:
        checked = check(ProgramRequest(code, language, args or (), as_json=False, quiet=True))
    except Refused as error:
        stop(error.exit_code, str(error))
    return OtherProgram(checked.source, checked.language, args)


async def _replay(recording: Recording, other: OtherProgram | None, *, loose: bool) -> Replayed:
    from codemode_mcp.program.intl import intl_reader
    from codemode_mcp.sandbox.engine import open_engine

    with open_engine(cache_dir(), max_threads=1, intl=intl_reader(cache_dir())) as engine:
        return await replay(engine, recording, compile_typescript, other, Options(loose=loose))


async def compile_typescript(source: str) -> Transformed:
    from codemode_mcp.program.esbuild import find_esbuild
    from codemode_mcp.program.typescript import transform

    found = await anyio.to_thread.run_sync(lambda: find_esbuild(None, environ=os.environ, cache_dir=cache_dir()))
    return await transform(found, source, timeout=TRANSFORM_SECONDS)


def _print(screen: Screen, done: Replayed, *, as_json: bool) -> None:
    from codemode_mcp.base.settings import ToolSettings
    from codemode_mcp.runs.rendering import render

    async def keep_nothing(owner: str, text: str) -> str | None:
        return None

    if not as_json:
        print_outputs(screen, done.outcome.outputs)
    if done.is_cut and not as_json:
        return  # the divergence says all that the answer would say
    answer = anyio.run(partial(render, done.outcome, ToolSettings(), keep_nothing, time.monotonic()))
    print_answer(screen, answer.structured, done.outcome, as_json=as_json)


def _unused(done: Replayed) -> str:
    names = [escape_line(each.identity.name) for each in done.unused]
    count = "1 recorded call was" if len(names) == 1 else f"{len(names)} recorded calls were"
    return f"{count} not made by this program: {listed(names, SHOWN_CALLS)}"
