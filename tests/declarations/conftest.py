"""What the tests here share: a TypeScript compiler and the corpus beside the repository, if they are there."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
REPOSITORY = HERE.parent.parent
CORPUS = REPOSITORY.parent / "shared" / "corpus"

Problems = dict[str, list[tuple[int, str]]]
"""By file: line, counted from 0, and message of each error."""


@pytest.fixture(scope="session")
def typescript() -> Path:
    """The folder of an installed npm package `typescript`, with node there to run it."""
    candidates = [os.environ.get("TYPESCRIPT_DIR"), REPOSITORY / ".cache" / "node" / "node_modules" / "typescript"]
    found = next((Path(c).resolve() for c in candidates if c and Path(c).is_dir()), None)
    if found is None or shutil.which("node") is None:
        pytest.skip("no TypeScript: set TYPESCRIPT_DIR to an installed npm package `typescript`, and have node on PATH")
    return found


@pytest.fixture(scope="session")
def type_check(typescript: Path) -> Callable[..., Problems]:
    """`type_check(files, together=False)`: what `tsc --strict` says of files given as text."""

    def check(files: dict[str, str], *, together: bool = False) -> Problems:
        answer = subprocess.run(
            ["node", str(HERE / "check_types.cjs")],
            input=json.dumps(
                {"files": {f"/virtual/{name}": text for name, text in files.items()}, "together": together}
            ),
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "TYPESCRIPT_DIR": str(typescript)},
        )
        found = json.loads(answer.stdout)
        return {
            name.removeprefix("/virtual/"): [(line, message) for line, message in problems]
            for name, problems in found.items()
        }

    return check


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The directory of recorded tool lists and schema cases."""
    if not CORPUS.is_dir():
        pytest.skip(f"the corpus is not there: {CORPUS}")
    return CORPUS
