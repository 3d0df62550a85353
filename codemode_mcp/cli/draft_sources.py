"""The programs of which `codemode-mcp new --from` makes saved programs: files and recordings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from codemode_mcp.cli.command_requests import read_program
from codemode_mcp.cli.messages import stop_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.drafts.parameters import ValueSchema
    from codemode_mcp.recordings.reader import Recording
    from codemode_mcp.settings import Language
    from upstream_clients.tools import JsonObject


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


def read_source(path: Path) -> DraftSource:
    """Return the program in a file, which may be a recording. End the command if there is none."""
    if path.suffix == ".jsonl":
        return _recorded(path)
    from codemode_mcp.program.type_annotations import has_types

    text, named = read_program(path, None)
    is_typescript = named == "typescript" or (named is None and has_types(text))
    return DraftSource(text, "typescript" if is_typescript else "javascript", path.name)


def _recorded(path: Path) -> DraftSource:
    from codemode_mcp.catalog.serialize import read_catalog
    from codemode_mcp.errors import CodeModeError
    from codemode_mcp.recordings.reader import NotReadable, read_recording

    try:
        recording = read_recording(path)
        catalog = read_catalog(recording.catalog.text)
        data = path.read_bytes()
    except FileNotFoundError:
        stop_line(
            2, f"there is no file {path}; codemode-mcp runs export RUN --output FILE writes the recording of a run"
        )
    except OSError as error:
        stop_line(1, f"cannot read {path}: {error.strerror}")
    except (NotReadable, ValueError, CodeModeError) as error:
        stop_line(1, f"{path} is no recording that can be read: {error}")
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
        from codemode_mcp.drafts.value_schemas import value_schema

        schema = self._by_path.get(".".join(call)) or self._by_id.get(call[-1])
        return None if schema is None else value_schema(schema, path)
