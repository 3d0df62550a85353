"""The programs of `tests/programs`, which were written before the type check, and others: none has a type error."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from codemode_mcp.base.errors import CodeModeError
from codemode_mcp.base.paths import cache_dir
from codemode_mcp.base.settings import Language
from codemode_mcp.catalog.catalog import Catalog
from codemode_mcp.config import load_config
from codemode_mcp.extensions.type_check.checker import TypeChecker
from codemode_mcp.process.app.app import open_app
from tests.extensions.type_check.checks import cell, installed_compiler
from tests.extensions.type_check.sets import older_programs
from tests.integration.harness import quickstart, write_config

CORPUS = Path(__file__).parents[4] / "shared" / "corpus" / "cells" / "typescript.json"


def programs() -> Iterator[tuple[str, str, Language]]:
    """Yield names, texts and languages. JavaScript is checked as TypeScript too."""
    for each in older_programs():
        yield each.name, each.code, each.language
        if each.language == "javascript":
            yield f"{each.name}, as TypeScript", each.code, "typescript"
    if CORPUS.is_file():
        for each in json.loads(CORPUS.read_text("utf-8")):
            yield each["name"], each["code"], "typescript"


async def quickstart_catalog(folder: Path) -> Catalog:
    """Return the catalog that these programs use."""
    servers = quickstart()
    config = load_config(write_config(folder, {**servers, "scratch": servers["tracker"]}), environ=os.environ)
    async with open_app(config) as app:
        await app.connect(30)
        return await app.catalog_for(app.operator, None)


@pytest.mark.anyio
async def test_no_program_that_runs_has_a_type_error(tmp_path: Path) -> None:
    installed_compiler()
    catalog = await quickstart_catalog(tmp_path)
    checker = TypeChecker(cache_dir(), seconds=60)
    wrong, checked = {}, 0
    for name, code, language in programs():
        try:
            text = cell(code, language)
        except CodeModeError:
            continue  # the preflight refuses it in this language
        found = await checker.check(text, catalog)
        checked += found.unchecked is None
        if found.problems:
            wrong[name] = [each.text for each in found.problems]
    await checker.close()
    assert wrong == {}
    assert checked > (1200 if CORPUS.is_file() else 1150)
