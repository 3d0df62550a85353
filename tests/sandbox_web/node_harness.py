"""Node as the oracle, and where the things it needs may lie."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

OLDEST_NODE = 20
NODE_CACHE = Path(__file__).parents[2] / ".cache" / "node"


class Node:
    """Applies a JavaScript function, given as source, to a JSON argument, in one Node process per call."""

    def __init__(self, executable: str, setup: str = "") -> None:
        self._executable = executable
        self._setup = setup

    def with_setup(self, setup: str) -> Node:
        return Node(self._executable, setup)

    def __call__(self, function: str, argument: Any) -> Any:
        script = (
            f"{self._setup}; const input = JSON.parse(require('fs').readFileSync(0, 'utf8'));"
            f"process.stdout.write(JSON.stringify(({function})(input)));"
        )
        command = [self._executable, "--no-warnings", "-e", script]
        done = subprocess.run(command, input=json.dumps(argument), capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr[:2000]
        return json.loads(done.stdout)
