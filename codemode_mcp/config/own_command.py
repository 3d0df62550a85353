"""The recognition of command lines that would start this server within itself, and so without end."""

from __future__ import annotations

import re
from itertools import pairwise

_LAUNCHERS = frozenset(
    (
        *("uv", "uvx", "pipx", "npx", "npm", "bunx", "bun", "pnpm", "yarn"),
        *("poetry", "pdm", "hatch", "rye", "pixi", "mise", "conda", "mamba"),
        *("op", "doppler", "dotenv", "direnv", "wsl"),
        *("env", "cmd", "sh", "bash", "zsh", "fish", "pwsh", "powershell", "sudo", "nohup", "nice", "time"),
    )
)
"""Programs whose arguments name the program to start."""

_CONTAINERS = frozenset(("docker", "podman", "nerdctl"))
_PYTHON = re.compile(r"(python|pythonw|py|pypy)[\d.]*")
_OWN_NAME = re.compile(r"codemode[-_.]mcp(?:$|[@=<>!~\[])", re.IGNORECASE)
_OWN_IMAGE = re.compile(r"(?![./~])(?:[\w.:-]+/)*codemode[-_]mcp(?:[:@][\w.:-]+)?", re.IGNORECASE)


def starts_this_server(command: str, args: tuple[str, ...]) -> bool:
    """Return True if a command line would start `codemode-mcp` again.

    This is a guess from names. If it is wrong, `nesting` still limits the depth at run time. A path that ends in our
    name does not count, because it may be a folder for another server to work in.
    """
    program = _program_name(command)
    words = [word.strip("'\"") for arg in args for word in arg.split()]
    if _OWN_NAME.match(program) or any(
        option == "-m" and module.partition(".")[0] == "codemode_mcp" for option, module in pairwise(words)
    ):
        return True
    if _PYTHON.fullmatch(program):
        script = next((word for word in words if not word.startswith("-")), "")
        return "-mcodemode_mcp" in words or bool(_OWN_NAME.match(_program_name(script)))
    if program in _CONTAINERS:
        return any(map(_OWN_IMAGE.fullmatch, words))
    return program in _LAUNCHERS and (
        any(map(_OWN_NAME.match, words))
        or any(next_word == "serve" and _OWN_NAME.match(_program_name(word)) for word, next_word in pairwise(words))
    )


def _program_name(command: str) -> str:
    return re.sub(r"\.(exe|cmd|bat|ps1)$", "", re.split(r"[/\\]", command.strip())[-1].lower())
