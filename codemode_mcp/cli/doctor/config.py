"""The configuration file, its permissions, and the variables that it refers to."""

from __future__ import annotations

import re
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.audit.redaction import without_tokens
from codemode_mcp.cli.doctor.check import CORRECT, Check, listed
from codemode_mcp.config.literals import secret_args
from codemode_mcp.control.display import counted
from codemode_mcp.errors import ConfigError
from upstream_clients.secret_values import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from codemode_mcp.config import Config
    from codemode_mcp.config.confirmation import Gate

_REFERENCE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_()]*)(:-[^}]*)?\}")
_EDITOR_VARIABLES: Final = ("workspaceFolder", "userHome", "pathSeparator")
"""Variables that editors replace. They are not in the environment."""


def check_config(path: str | None, environ: Mapping[str, str], gate: Gate) -> tuple[Config | None, list[Check]]:
    """Load the configuration and check its file.

    Args:
        path: the value of `--config`.
        gate: decides whether a file in the working directory may be used.

    Returns:
        The configuration, or None if it is invalid, and the results of the checks.
    """
    from codemode_mcp.config import find_config, load_config
    from codemode_mcp.config.confirmation import NotConfirmedError
    from codemode_mcp.paths import config_dir

    found = None
    try:
        found = find_config(path, environ=environ, cwd=Path.cwd(), user_config_dir=config_dir(), admit=gate.remember)
        config = load_config(found, environ=environ, admit=gate.admit)
    except NotConfirmedError as error:
        return None, [Check("config", "fail", error.problem, error.advice)]
    except ConfigError as error:
        checks = [Check("config", "fail", problem, _advice(problem, found)) for problem in error.problems]
        return None, [*checks, *_file(found, environ)]
    if found is None:
        advice = (
            "write codemode-mcp.json with mcpServers, name a file with --config, or see codemode-mcp import and add"
        )
        return config, [Check("config", "warn", "no file found, so nothing is configured", advice)]
    checks = [Check("config", "ok", f"{found}, {counted(len(config.upstreams), 'server')}")]
    if not config.upstreams and not config.plugins:
        detail = "no server is enabled and no plugin is configured, so programs can call nothing"
        checks.append(
            Check("config", "warn", detail, 'add servers to "mcpServers", or see codemode-mcp import and add')
        )
    checks += [Check("config", "info" if note.endswith(": disabled") else "warn", note) for note in config.notes]
    return config, [*checks, *_file(found, environ)]


def _advice(problem: str, found: Path | None) -> str:
    if found is None:
        return "give the path of an existing file"
    unset = re.search(r"the variable (\w+) is not set", problem)
    return CORRECT if unset is None else f"export {unset[1]}=... where codemode-mcp is started, or correct the file"


def _file(path: Path | None, environ: Mapping[str, str]) -> Iterable[Check]:
    """Check the permissions of a file, and the variables that it refers to."""
    from codemode_mcp.config.source import SourceError, parse, read_text

    if path is None:
        return
    try:
        value = parse(read_text(path))
        mode = path.stat().st_mode
    except (SourceError, OSError):
        return  # The failure to load the configuration is reported already.
    if isinstance(value, dict):
        yield from permissions(path, mode, list(literal_secrets(value)), sys.platform)
        yield from variables(value, environ)


def permissions(path: Path, mode: int, literal: list[str], system: str) -> Iterable[Check]:
    """Check if other users can read or write the configuration file.

    Args:
        mode: the mode of the file, as from `os.stat`.
        literal: the keys of secrets that are written out in the file.
        system: the value of `sys.platform`.
    """
    move = "put them into environment variables, as ${NAME}, or the keyring: docs/configuration.md"
    if system != "win32" and mode & (stat.S_IWGRP | stat.S_IWOTH):
        detail = f"others can write {path}, and so start programs as you"
        yield Check("config", "warn", detail, f"chmod go-w {path}")
    if not literal:
        return
    secrets = f"{counted(len(literal), 'secret')} written out in it: {listed(literal)}"
    if system != "win32" and mode & (stat.S_IRGRP | stat.S_IROTH):
        detail = f"others can read {path}, which has {secrets}"
        yield Check("config", "warn", detail, f"chmod 600 {path}; and better, {move}")
    else:
        yield Check("config", "info", f"only you can read {path}, but it has {secrets}", move)


def literal_secrets(value: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys of values that are secrets, and not references to variables."""
    for keys, text in strings(value):
        if _REFERENCE.search(text) or text.startswith(("/", "~")):
            continue
        name = next((key for key in reversed(keys) if not key.startswith("[")), "")
        in_secret_section = any(key in ("env", "headers", "auth", "http", "store") for key in keys[:-1])
        is_secret = keys[-2:] == ["auth", "value"] or (is_secret_name(name) and not name.endswith("Url"))
        has_secret_name = in_secret_section and len(text) >= 8 and is_secret
        if without_tokens(text) != text or has_secret_name or _is_secret_arg(value, keys):
            yield _path(keys)


def _is_secret_arg(value: Mapping[str, Any], keys: list[str]) -> bool:
    if len(keys) != 4 or keys[2] != "args":
        return False
    args = value[keys[0]][keys[1]]["args"]
    return isinstance(args, list) and int(keys[3].strip("[]")) in secret_args(args)


def variables(value: Mapping[str, Any], environ: Mapping[str, str]) -> Iterable[Check]:
    """Check for empty variables, and for unset variables with a default. The values of variables are never shown."""
    names = set()
    for keys, text in strings(value):
        for match in _REFERENCE.finditer(text):
            name, has_default = match[1], match[2] is not None
            if name in _EDITOR_VARIABLES:
                continue
            names.add(name)
            if name not in environ and has_default:
                detail = f"{name} is not set, so its default is used in {_path(keys)}"
                advice = f"export {name}=... where the client is started, if you want another value"
                yield Check("variables", "info", detail, advice)
            elif environ.get(name) == "" and not has_default:
                detail = f"{name} is set, but empty, in {_path(keys)}"
                yield Check("variables", "warn", detail, f"export {name}=... with its value")
    if not names:
        yield Check("variables", "ok", "the file refers to no variables")
    elif all(map(environ.get, names)):
        yield Check("variables", "ok", f"all {len(names)} are set" if len(names) > 1 else f"{min(names)} is set")


def _path(keys: list[str]) -> str:
    return ".".join(keys).replace(".[", "[")


def strings(value: Mapping[str, Any]) -> Iterator[tuple[list[str], str]]:
    """Yield each string in which references are allowed, with the keys that lead to it. Skip disabled entries."""
    rest: list[tuple[list[str], Any]] = [
        ([part], value[part]) for part in ("mcpServers", "servers", "plugins", "http", "store") if part in value
    ]
    while rest:
        keys, found = rest.pop(0)
        match found:
            case str():
                yield keys, found
            case dict():
                if len(keys) == 2 and (found.get("disabled") is True or found.get("enabled") is False):
                    continue
                rest += [([*keys, str(key)], item) for key, item in found.items()]
            case list():
                rest += [([*keys, f"[{number}]"], item) for number, item in enumerate(found)]
