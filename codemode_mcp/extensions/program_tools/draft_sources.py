"""The programs of which `codemode-mcp new --from` makes saved programs: files and recordings."""

from __future__ import annotations

import io
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from codemode_mcp.cli.command_service import read_program
from codemode_mcp.cli.messages import stop_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from codemode_mcp.audit.recordings.format import Recording
    from codemode_mcp.base.settings import Language
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.extensions.program_tools.drafts.parameters import ValueSchema
    from upstream_clients.tools import JsonObject


_RUN = re.compile(r"run_[A-Za-z0-9_-]{4,80}")


@dataclass(frozen=True, slots=True)
class DraftSource:
    """A program of which a saved program is made.

    Attributes:
        origin: words for it in the new file.
        args: the values of `args` in the run.
        schema_of: the schemas of the called tools; None if they are not known.
        recording: the file of its recorded run; None if it is only a text.
    """

    text: str
    language: Language
    origin: str
    args: Sequence[str] = ()
    schema_of: ValueSchema | None = None
    recording: bytes | None = None


def read_source(source: str, config: str | None) -> DraftSource:
    """Return the program of a file, of a recording or of a run. End the command if there is none.

    Args:
        source: the path of a file, or the id of a run.
        config: the value of `--config`.
    """
    path = Path(source)
    if _RUN.fullmatch(source) and not path.exists():
        from codemode_mcp.cli.recording_files import exported_run

        found = exported_run(source, config)
        return _recorded(found.data, f"the recording of run {found.run_id}")
    if not path.exists():
        stop_line(2, f"there is no run and no file {source}; codemode-mcp runs list shows the runs")
    if path.suffix == ".jsonl":
        return _recorded(_read(path), str(path))
    text, language = read_program(path, None)
    if language is None:
        stop_line(2, f"{source} is no program and no recording: their names end in .ts, .js and .jsonl")
    return DraftSource(text, "typescript" if language == "typescript" else "javascript", path.name)


def _read(path: Path) -> bytes:
    from codemode_mcp.audit.recordings.format import MAX_BYTES

    try:
        # Opening a pipe would wait for a writer.
        with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        stop_line(1, f"cannot read {path}: {error.strerror}")
    if len(data) > MAX_BYTES:
        stop_line(1, f"{path} has more than {MAX_BYTES} bytes; record a shorter run")
    return data


def _recorded(data: bytes, name: str) -> DraftSource:
    from codemode_mcp.audit.recordings.format import NotReadable, recording_of
    from codemode_mcp.base.errors import CodeModeError
    from codemode_mcp.catalog.serialize import read_catalog

    try:
        recording = recording_of(io.BytesIO(data))
        catalog = read_catalog(recording.catalog.text)
    except (NotReadable, ValueError, CodeModeError) as error:
        stop_line(1, f"{name} is no recording that can be read: {error}")
    return source_of(recording, catalog, data)


def source_of(recording: Recording, catalog: Catalog, data: bytes) -> DraftSource:
    """Return the program of a recording.

    Args:
        catalog: the catalog of the recording.
        data: the file.
    """
    opening = recording.opening
    return DraftSource(
        opening.source,
        opening.language,
        f"run {opening.run}",
        opening.args,
        _Schemas(catalog),
        data,
    )


class _Schemas:
    """The schemas of the tools of a catalog, by the members of calls."""

    def __init__(self, catalog: Catalog) -> None:
        entries = (*catalog.index.by_id.values(), *catalog.toolset.entries)
        self._by_path = {entry.path: entry.tool.input_schema for entry in entries}
        self._by_id = {entry.id: entry.tool.input_schema for entry in entries}

    def __call__(self, call: tuple[str, ...], path: tuple[str, ...]) -> JsonObject | None:
        from codemode_mcp.extensions.program_tools.drafts.parameters import value_schema

        schema = self._by_path.get(".".join(call)) or self._by_id.get(call[-1])
        return None if schema is None else value_schema(schema, path)
