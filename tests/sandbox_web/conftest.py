from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from engine_harness import Engine
from node_harness import NODE_CACHE, OLDEST_NODE, Node


@pytest.fixture(scope="session")
def engine() -> Engine:
    """Return a guest for all tests that do not change the globals."""
    return Engine()


@pytest.fixture
def fresh_engine() -> Engine:
    """Return a new guest, for a test that breaks built-ins."""
    return Engine()


@pytest.fixture(scope="session")
def node() -> Node:
    executable = shutil.which("node")
    if executable is None:
        pytest.skip("node is not installed, so there is nothing to compare with")
    version = subprocess.run([executable, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.removeprefix("v").split(".")[0]) < OLDEST_NODE:
        pytest.skip(f"node {version} is older than {OLDEST_NODE}, the oldest one compared with")
    return Node(executable)


@pytest.fixture(scope="session")
def reference(node: Node) -> Node:
    """Node with the URL classes of the npm package whatwg-url, which follows the standard's text step by step."""
    for folder in (os.environ.get("CODEMODE_NODE_MODULES"), NODE_CACHE / "node_modules"):
        if folder and (package := Path(folder) / "whatwg-url").is_dir():
            return node.with_setup(f"Object.assign(globalThis, require({json.dumps(str(package))}))")
    pytest.skip("npm's whatwg-url is not in .cache/node/node_modules or $CODEMODE_NODE_MODULES")
