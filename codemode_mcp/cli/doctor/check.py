"""The result of one check, and the list of all checks. Pure, except for reading the clock."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final, Literal

Status = Literal["ok", "info", "warn", "fail"]

CHECKS: Final = {
    "config": "the configuration file",
    "variables": "the environment variables that it refers to",
    "version": "this package and its parts",
    "python": "the interpreter and the system",
    "nesting": "whether codemode-mcp has started this process itself",
    "cache folder": "the folder for the compiled engine and for tool lists",
    "data folder": "the folder for logins",
    "control folder": "the folder in which `codemode-mcp runs` finds serving processes",
    "instance": "the shared instance of this configuration",
    "engine": "the sandbox",
    "compile cache": "the compiled engine on disk",
    "esbuild": "TypeScript",
    "intl": "`Intl`, and locales and options of `toLocaleString` and its kin, in programs",
    "type check": "the compiler of TypeScript, for `tools.codeMode.check`",
    "search": "search by meaning, the extra `semantic`",
    "store": "the store of suspended programs",
    "trajectory": "the file of `audit.trajectory`",
    "http": "the section `http`",
    "notify": "the command of `tools.approval.notify`",
    "server": "one upstream server each: `server NAME`",
    "other clients": "clients that start the same servers themselves",
    "client entry": "each entry of this server in the file of a client",
    "client code mode": "clients that start this server and have a code mode of their own",
    "client": "one connected client each, with its profile: `client NAME`",
    "names": "names that several servers or tools would have in programs",
    "plugin": "one plugin each: `plugin NAME`",
    "saved programs": "the folder `programs`, and changed definitions of tools that its programs use",
    "policy": "rules and contexts",
    "byte budget": "the texts that a client gets before any program has run",
}
"""The subject of each check, by the name of the check, in the order of the report.

The names of checks of servers, clients and plugins end with the name of one server, client or plugin.
"""


CORRECT: Final = "correct the configuration file; docs/configuration.md has every key"
"""Advice for a mistake in the configuration."""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check, which is one line of the report.

    Attributes:
        status: `ok`, `info` (no problem, but worth knowing), `warn` (works, but needs attention) or `fail`.
        advice: what to do; empty if nothing has to be done.
        ms: the duration in milliseconds; None if the duration is counted in another result of the same check.
    """

    name: str
    status: Status
    detail: str
    advice: str = ""
    ms: int | None = None


def listed(names: list[str], shown: int = 5) -> str:
    """Return the first `shown` names, and the number of the others, as one text."""
    more = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {more} more" if more > 0 else "")


def elapsed_ms(began: float) -> int:
    """Return the milliseconds since `began`, a time of `time.monotonic`."""
    return round((time.monotonic() - began) * 1000)
