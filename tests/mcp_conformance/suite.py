"""The official conformance suite of MCP: its scenarios, how to run it, and its reports.

It is an npm package that `tests/run.py` installs and pins, with the Node it needs; it is not in this repository. A
scenario has checks. A check that is neither passed nor skipped is a failure, also if it is a warning (a SHOULD).
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = ROOT / ".cache" / "conformance" / "node_modules"
SUITE = MODULES / "@modelcontextprotocol" / "conformance"
NODE = MODULES / ".bin" / ("node.cmd" if os.name == "nt" else "node")
EXPECTED = Path(__file__).parent / "expected"

REVISIONS = ("2025-11-25", "2026-07-28")

Role = Literal["server", "client"]

PATIENCE = 240
"""Seconds for a whole run; a healthy one takes a few."""

_MISSING = pytest.mark.skip(reason="no conformance suite; python3 tests/run.py installs it where npm is on PATH")

_STAMP = re.compile(r"-\d{4}-\d\d-\d\dT[\d-]+Z$")


def required(revision: str, role: Role) -> list[str]:
    """Return the scenarios that a revision requires."""
    path = SUITE / "requirements" / f"{revision}.yaml"
    section = re.search(rf"^{role}:\n((?:  - .*\n)+)", path.read_text("utf-8"), re.MULTILINE)
    assert section is not None, f"{path} has no list for {role}s"
    return [line.removeprefix("  - ") for line in section[1].splitlines()]


@dataclass(frozen=True)
class Expected:
    """Known failures: scenarios, or `scenario:check`, each with its reason."""

    path: Path
    reasons: dict[str, str]

    @classmethod
    def read(cls, name: str) -> Expected:
        """Return a file of expected failures in the format of the suite. The comment above entries is their reason."""
        path = EXPECTED / f"{name}.yaml"
        reasons: dict[str, str] = {}
        comment: list[str] = []
        before = ""
        for line in path.read_text("utf-8").splitlines():
            if line.startswith("  # "):
                comment = [*(comment if before.startswith("  # ") else ()), line.removeprefix("  # ")]
            elif line.startswith("  - "):
                entry = line.removeprefix("  - ").strip("'\"")
                assert entry not in reasons, f"{path.name} has {entry} twice"
                assert comment, f"{path.name} gives no reason for {entry}"
                reasons[entry] = " ".join(comment)
            else:
                assert not line or line.startswith("#") or re.fullmatch(r"(server|client):( \[\])?", line), line
                comment = []
            before = line
        return cls(path, reasons)

    def covers(self, scenario: str, check: str) -> bool:
        return scenario in self.reasons or f"{scenario}:{check}" in self.reasons


@dataclass(frozen=True)
class Report:
    """One run of the suite."""

    code: int
    output: str
    checks: dict[str, list[dict[str, Any]]]
    expected: Expected

    def surprises(self, scenario: str) -> list[str]:
        """Return unexpected failures and unexpected passes as text."""
        checks = self.checks.get(scenario)
        if not checks:
            return [f"the suite made no check in {scenario}\n{self.output[-3000:]}"]
        failed = [check for check in checks if check["status"] in ("FAILURE", "WARNING")]
        found = [
            f"{check['status']} {scenario}:{check['id']}: {check['description']}\n"
            f"    {check.get('errorMessage')}\n    {json.dumps(check.get('details'))[:1500]}"
            for check in failed
            if not self.expected.covers(scenario, check["id"])
        ]
        for entry in self.expected.reasons:
            of, _, check_id = entry.partition(":")
            if of == scenario and not any(not check_id or check["id"] == check_id for check in failed):
                found.append(f"{self.expected.path.name} expects {entry} to fail, but it passes: take it out")
        return found


def cases(role: Role) -> list[Any]:
    """Return `revision` and `scenario` of all required scenarios as parameters of a test; skipped without the suite."""
    if not SUITE.is_dir():
        return [pytest.param(revision, "-", marks=_MISSING) for revision in REVISIONS]
    return [
        pytest.param(revision, scenario, id=f"{revision}-{scenario}")
        for revision in REVISIONS
        for scenario in required(revision, role)
    ]


def revisions() -> list[Any]:
    """Return the parameter `revision` of a test."""
    return [pytest.param(revision, marks=() if SUITE.is_dir() else _MISSING) for revision in REVISIONS]


async def run(
    role: Role, revision: str, expected: Expected, folder: Path, *flags: str, environ: dict[str, str] | None = None
) -> Report:
    """Run all scenarios that a revision requires of a role."""
    output = folder / f"{role}-{revision}"
    command = [str(NODE), str(SUITE / "dist" / "index.js"), role, "--requirements", revision, "-o", str(output)]
    command += ["--expected-failures", str(expected.path), *flags]
    with anyio.fail_after(PATIENCE):
        done = await anyio.run_process(
            command, check=False, cwd=ROOT, stderr=-2, env={**os.environ, "NO_COLOR": "1", **(environ or {})}
        )
    return Report(done.returncode, done.stdout.decode("utf-8", "replace"), _read_checks(role, output), expected)


async def run_scenario(scenario: str, url: str, expected: Expected, output: Path) -> Report:
    """Run one scenario with a server, also if no revision requires it."""
    command = [str(NODE), str(SUITE / "dist" / "index.js"), "server", "--url", url, "--scenario", scenario]
    command += ["--timeout", str(PATIENCE * 1000)]
    with anyio.fail_after(PATIENCE):
        done = await anyio.run_process(
            [*command, "-o", str(output)], check=False, cwd=ROOT, stderr=-2, env={**os.environ, "NO_COLOR": "1"}
        )
    text = done.stdout.decode("utf-8", "replace")
    return Report(done.returncode, text, _read_checks("server", output), expected)


def _read_checks(role: Role, output: Path) -> dict[str, list[dict[str, Any]]]:
    found = {}
    for path in sorted(output.rglob("checks.json")):
        name = _STAMP.sub("", path.parent.relative_to(output).as_posix())
        found[name.removeprefix("server-") if role == "server" else name] = json.loads(path.read_text("utf-8"))
    return found
