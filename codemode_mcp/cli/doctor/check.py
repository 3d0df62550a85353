"""The nouns: one line of the report, and which lines there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Status = Literal["ok", "info", "warn", "fail"]

CHECKS: Final = {
    "config": "the configuration file",
    "variables": "the environment variables that it refers to",
    "version": "this package, and what it is made of",
    "python": "the interpreter and the system",
    "nesting": "whether codemode-mcp has started this process itself",
    "cache folder": "where compiled and listed things are kept",
    "data folder": "where logins are kept",
    "control folder": "where `codemode-mcp runs` finds serving processes",
    "engine": "the sandbox",
    "compile cache": "the compiled engine on disk",
    "esbuild": "TypeScript",
    "search": "search by meaning, the extra `semantic`",
    "store": "where suspended programs are kept",
    "trajectory": "the file of `audit.trajectory`",
    "http": "the section `http`",
    "notify": "the command of `tools.approval.notify`",
    "server": "one upstream server each: `server NAME`",
    "other clients": "clients that start the same servers themselves",
    "client entry": "each entry of this server in the file of a client",
    "client code mode": "clients that start this server and have a code mode of their own",
    "client": "one connected client each, with its profile: `client NAME`",
    "plugin": "one plugin each: `plugin NAME`",
    "policy": "rules and contexts",
    "byte budget": "what a client is shown before any program has run",
}
"""The subject of each check, in the order of the report. Checks of servers, clients and plugins carry a name too."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report.

    Attributes:
        status: `ok`, `info` (nothing is wrong, but you may want to know), `warn` (works, but look at it) or `fail`.
        advice: what to do about it; empty when there is nothing to do.
        ms: how long it took; None where it was found together with another one.
    """

    name: str
    status: Status
    detail: str
    advice: str = ""
    ms: int | None = None


def some(names: list[str], most: int = 5) -> str:
    """Return the first of the names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
