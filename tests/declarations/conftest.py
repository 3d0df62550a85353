"""A TypeScript compiler, and the corpus beside the repository, if they are installed."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
REPOSITORY = HERE.parent.parent
CORPUS = REPOSITORY.parent / "shared" / "corpus"

Problems = dict[str, list[tuple[int, str]]]
"""The errors by file: line, counted from 0, and message."""
Comments = dict[str, dict[str, list[str]]]
"""The comments of properties by file and name, one for each declaration."""


@pytest.fixture(scope="session")
def typescript() -> Path:
    """Return the folder of an installed npm package `typescript`, if node is installed too."""
    candidates = [os.environ.get("TYPESCRIPT_DIR"), REPOSITORY / ".cache" / "node" / "node_modules" / "typescript"]
    found = next((Path(c).resolve() for c in candidates if c and Path(c).is_dir()), None)
    if found is None or shutil.which("node") is None:
        pytest.skip("no TypeScript: set TYPESCRIPT_DIR to an installed npm package `typescript`, and have node on PATH")
    return found


@pytest.fixture(scope="session")
def compiler(typescript: Path) -> Iterator[Callable[[dict[str, Any]], Any]]:
    """A client of `check_types.cjs`, which reads the compiler's libraries once: a small file takes about 30 ms."""
    with subprocess.Popen(
        ["node", str(HERE / "check_types.cjs")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, "TYPESCRIPT_DIR": str(typescript)},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        questions, answers = process.stdin, process.stdout

        def ask(request: dict[str, Any]) -> Any:
            questions.write(json.dumps(request) + "\n")
            questions.flush()
            answer = answers.readline()
            assert answer, "the compiler ended; what it said is on stderr"
            return json.loads(answer)

        yield ask
        questions.close()


@pytest.fixture(scope="session")
def type_check(compiler: Callable[[dict[str, Any]], Any]) -> Callable[..., Problems]:
    """Return `type_check(files, together=False)`: the errors of `tsc --strict` for files given as text."""

    def check(files: dict[str, str], *, together: bool = False) -> Problems:
        found = compiler({"files": {f"/virtual/{name}": text for name, text in files.items()}, "together": together})
        return {
            name.removeprefix("/virtual/"): [(line, message) for line, message in problems]
            for name, problems in found.items()
        }

    return check


@pytest.fixture(scope="session")
def comments(compiler: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, str]], Comments]:
    """Return `comments(files)`, which returns the JSDoc of each property."""
    return lambda files: compiler({"comments": files})


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Return the directory of recorded tool lists and schema cases."""
    if not CORPUS.is_dir():
        pytest.skip(f"the corpus is not there: {CORPUS}")
    return CORPUS
