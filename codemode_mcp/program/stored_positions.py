"""The positions of a program as JSON data, for stored runs and recordings. Pure."""

from __future__ import annotations

from dataclasses import astuple

from codemode_mcp.program.positions import Positions
from codemode_mcp.program.source_map import Author, Insertion, SourceMap, are_mappings
from codemode_mcp.settings import Language
from codemode_mcp.strict_json import Form, Integer, form_from

_Grown = tuple[Integer, Integer, Integer]


class _SourceMap(Form):
    mappings: str
    lines: Integer
    before: Integer
    grown: list[_Grown]


class PositionsForm(Form):
    """The form of `Positions`."""

    language: Language
    lines: Integer
    code: str
    transformed: _SourceMap | None
    rewritten: _Grown | None


def positions_form(positions: Positions) -> PositionsForm:
    """Return the form of positions."""
    made, rewritten = positions.transformed, positions.rewritten
    transformed = None
    if made is not None:
        author = made.author
        transformed = _SourceMap(made.mappings, author.lines, author.before, [astuple(each) for each in author.grown])
    return form_from(
        PositionsForm, positions, transformed=transformed, rewritten=None if rewritten is None else astuple(rewritten)
    )


def positions_in(form: PositionsForm) -> Positions:
    """Return the positions of a form.

    Raises:
        ValueError: its source map is damaged.
    """
    made, rewritten = form.transformed, form.rewritten
    transformed = None
    if made is not None:
        if not are_mappings(made.mappings):
            raise ValueError
        author = Author(made.lines, made.before, tuple(Insertion(*each) for each in made.grown))
        transformed = SourceMap(made.mappings, author)
    return Positions(
        form.language, form.lines, form.code, transformed, None if rewritten is None else Insertion(*rewritten)
    )
