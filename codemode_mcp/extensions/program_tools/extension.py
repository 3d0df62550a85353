"""The parts that this extension adds to the core."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from codemode_mcp.extension_points import Command, Extension


def _replay(
    file: Path, code: str | None, language: str | None, args: tuple[str, ...] | None, *, loose: bool, as_json: bool
) -> NoReturn:
    from codemode_mcp.extensions.program_tools.replaying import replay_and_exit

    replay_and_exit(file, code, language, args, loose=loose, as_json=as_json)


EXTENSION = Extension(
    commands={"new": Command(f"{__package__}.command", 110), "test": Command(f"{__package__}.command", 120)},
    replay=_replay,
)
