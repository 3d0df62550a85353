"""The configuration file, who can read it, and the variables that it refers to."""

from __future__ import annotations

import re
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from codemode_mcp.audit.redaction import is_secret_name, without_tokens
from codemode_mcp.cli.doctor.check import Check, some
from codemode_mcp.config.literals import secret_args
from codemode_mcp.control.display import counted
from codemode_mcp.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from codemode_mcp.config import Config
    from codemode_mcp.config.trust import Gate

_REFERENCE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_()]*)(:-[^}]*)?\}")
_OURS: Final = ("workspaceFolder", "userHome", "pathSeparator")

CORRECT: Final = "correct the configuration file; docs/configuration.md has every key"


def check_config(path: str | None, environ: Mapping[str, str], gate: Gate) -> tuple[Config | None, list[Check]]:
    """Find and load the configuration, and look at its file; None when it is invalid.

    Args:
        gate: decides on a configuration of the working directory.
    """
    from codemode_mcp.config import find_config, load_config
    from codemode_mcp.config.trust import NotConfirmedError
    from codemode_mcp.paths import config_dir

    found = None
    try:
        found = find_config(path, environ=environ, cwd=Path.cwd(), user_config_dir=config_dir(), admit=gate.find)
        config = load_config(found, environ=environ, admit=gate.admit)
    except NotConfirmedError as error:
        return None, [Check("config", "fail", error.problem, error.advice)]
    except ConfigError as error:
        checks = [Check("config", "fail", problem, _cure(problem, found)) for problem in error.problems]
        return None, [*checks, *_file(found, environ)]
    if found is None:
        advice = "write codemode-mcp.json with your mcpServers, name one with --config, or see codemode-mcp import"
        return config, [Check("config", "warn", "no file found, nothing is configured", advice)]
    count = len(config.upstreams)
    checks = [Check("config", "ok", f"{found}, {count} server{'' if count == 1 else 's'}")]
    if not count and not config.plugins:
        detail = "no server is enabled and no plugin is there: programs can call nothing"
        checks.append(Check("config", "warn", detail, 'add servers to "mcpServers", or see codemode-mcp import'))
    checks += [Check("config", "info" if note.endswith(": disabled") else "warn", note) for note in config.notes]
    return config, [*checks, *_file(found, environ)]


def _cure(problem: str, found: Path | None) -> str:
    if found is None:
        return "give the path of a file that is there"
    unset = re.search(r"the variable (\w+) is not set", problem)
    return CORRECT if unset is None else f"export {unset[1]}=... where codemode-mcp is started, or correct the file"


def _file(path: Path | None, environ: Mapping[str, str]) -> Iterable[Check]:
    """Yield the problems of a file apart from its content."""
    from codemode_mcp.config.source import SourceError, parse, read_text

    if path is None:
        return
    try:
        value = parse(read_text(path))
    except SourceError:
        return  # told already
    if not isinstance(value, dict):
        return
    literal = list(literal_secrets(value))
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    yield from permissions(path, mode, literal, sys.platform)
    yield from variables(value, environ)


def permissions(path: Path, mode: int, literal: list[str], system: str) -> Iterable[Check]:
    """Check the rights of others to read and write the file. `literal`: keys of secrets that stand in it."""
    kept = "put them into environment variables, as ${NAME}, or the keyring: docs/configuration.md"
    if system != "win32" and mode & (stat.S_IWGRP | stat.S_IWOTH):
        detail = f"others can write {path}, and so start programs as you"
        yield Check("config", "warn", detail, f"chmod go-w {path}")
    if not literal:
        return
    held = f"{counted(len(literal), 'secret')} written out in it: {some(literal)}"
    if system != "win32" and mode & (stat.S_IRGRP | stat.S_IROTH):
        yield Check(
            "config", "warn", f"others can read {path}, which has {held}", f"chmod 600 {path}; and better, {kept}"
        )
    else:
        yield Check("config", "info", f"{path} is readable by you alone, but has {held}", kept)


def literal_secrets(value: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys under which a secret stands as it is, not as a reference. Disabled servers have them too."""
    for keys, text in strings(value):
        if _REFERENCE.search(text) or text.startswith(("/", "~")):
            continue
        name = next((key for key in reversed(keys) if not key.startswith("[")), "")
        secret_place = any(key in ("env", "headers", "auth", "http", "store") for key in keys[:-1])
        is_named = secret_place and len(text) >= 8 and is_secret_name(name)
        if without_tokens(text) != text or is_named or _is_secret_arg(value, keys):
            yield ".".join(keys).replace(".[", "[")


def _is_secret_arg(value: Mapping[str, Any], keys: list[str]) -> bool:
    if len(keys) != 4 or keys[2] != "args":
        return False
    args = value[keys[0]][keys[1]]["args"]
    return isinstance(args, list) and int(keys[3].strip("[]")) in secret_args(args)


class Use(NamedTuple):
    """One place that refers to a variable."""

    variable: str
    has_default: bool
    key: str


def variables(value: Mapping[str, Any], environ: Mapping[str, str]) -> Iterable[Check]:
    """Those that are unset, so that a default stands in, and those that are set to nothing. Never what they hold."""
    uses = list(_uses(value))
    for use in uses:
        if use.variable not in environ and use.has_default:
            detail = f"{use.variable} is not set, so that its default is used in {use.key}"
            advice = f"export {use.variable}=... where the client is started, if you want another value"
            yield Check("variables", "info", detail, advice)
        elif environ.get(use.variable) == "" and not use.has_default:
            detail = f"{use.variable} is set, but empty, in {use.key}"
            yield Check("variables", "warn", detail, f"export {use.variable}=... with its value")
    names = {use.variable for use in uses}
    filled = sum(bool(environ.get(name)) for name in names)
    if not names:
        yield Check("variables", "ok", "the file refers to none")
    elif filled == len(names):
        yield Check("variables", "ok", f"all {len(names)} are set" if len(names) > 1 else f"{min(names)} is set")


def _uses(value: Mapping[str, Any]) -> Iterator[Use]:
    for keys, text in strings(value):
        for match in _REFERENCE.finditer(text):
            if match[1] not in _OURS:
                yield Use(match[1], match[2] is not None, ".".join(keys).replace(".[", "["))


def strings(value: Mapping[str, Any]) -> Iterator[tuple[list[str], str]]:
    """Yield every text of the parts in which references are expanded, with the way to it. Not of what is disabled."""
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
