"""Mistakes in configuration files, each with the beginning of the one message about it.

`mistakes.txt` has a heading for each part of a file. Below it are values of this part, as JSON, with their messages.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp.base.errors import ConfigError
from codemode_mcp.config import load_config

SECRETS = ("hunter2", "pass%40word", "pass@word", "9bFlIkpYt5Hf", "f5b165224a58", "quickbrown", "abab")
"""Parts of passwords, tokens and keys in `mistakes.txt`."""


def mistakes() -> Iterator[Any]:
    part, value = "", ""
    for line in (Path(__file__).parent / "mistakes.txt").read_text("utf-8").split("\n"):
        if line.startswith("    "):
            yield pytest.param(part, value, line[4:], id=f"{part} {value}"[:60])
        elif line.startswith("#"):
            part = line[2:]
        else:
            value = line


@pytest.mark.parametrize(("part", "value", "message"), list(mistakes()))
def test_a_mistake_is_one_message_with_its_path_and_without_secrets(
    tmp_path: Path, part: str, value: str, message: str
) -> None:
    content = json.loads(value)
    for key in reversed(part.split(".") if part else []):
        content = {key: content}
    path = tmp_path / "codemode-mcp.json"
    path.write_text(json.dumps(content), "utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config(path, environ={})
    (problem,) = caught.value.problems
    assert caught.value.code == "invalid_config"
    assert problem.startswith(message)
    assert "\n" not in problem
    assert not any(secret in problem for secret in SECRETS)
