"""References to variables and files in the configuration file.

An expanded value or a line of an `envFile` may be a secret. Therefore no message in this module quotes one.
"""

from __future__ import annotations

import errno
import re
import subprocess
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from codemode_mcp.base.config_path import resolve
from codemode_mcp.config.nodes import Node, quote
from codemode_mcp.config.source import SourceError, read_text
from upstream_clients.environment import PLAIN, path_to_start
from upstream_clients.redaction import counts_as_secret

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_REFERENCE = re.compile(r"\$\{([^}]*)(\}?)")
_VARIABLE = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_()]*)(?::-(.*))?", re.DOTALL)
_ENV_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*=\s*(.*)")
_QUOTED = re.compile(r"""(?:'([^']*)'|"((?:[^"\\]|\\.)*)")(?:\s+#.*)?""")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}

MAX_DEPTH = 100
"""Maximum depth of nested objects and arrays in a value such as the settings of a plugin."""

PROGRAM_SECONDS = 10
"""Time limit of a program that prints a value, in seconds."""


class Reading:
    """The files and programs that are used while the configuration is read once.

    The configuration is read in a thread. `stop` is called from another thread, when the process is shutting down.

    Attributes:
        files: the files that the configuration file refers to, including unreadable files.
    """

    def __init__(self) -> None:
        self.files: list[Path] = []
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def run(self, argv: tuple[str, ...], folder: Path, environ: Mapping[str, str]) -> tuple[int, bytes]:
        """Run a program, and return its exit code and output.

        Raises:
            OSError: the program cannot be run.
            subprocess.TimeoutExpired: the program did not end within `PROGRAM_SECONDS`.
        """
        # With the lock, `stop` comes either before the start, which then fails, or after it, and ends the program.
        with self._lock:
            if self._stopped:
                raise InterruptedError(errno.EINTR, "codemode-mcp is shutting down")
            self._process = process = subprocess.Popen(
                (path_to_start(argv[0], environ.get("PATH")), *argv[1:]),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=folder,
                env=dict(environ),
            )
        with process:
            try:
                output, _ = process.communicate(timeout=PROGRAM_SECONDS)
            except BaseException:
                process.kill()
                raise
        return process.returncode, output

    def stop(self) -> None:
        """End the running program, and prevent the start of others. May be called from any thread."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.kill()


@dataclass(frozen=True, slots=True)
class Expander:
    """The expansion of references in one section or one server entry.

    Attributes:
        environ: the variables.
        folder: the folder of the configuration file.
        used: the values of expanded variables that count as secret, in order. The list is mutable state.
    """

    environ: Mapping[str, str]
    folder: Path
    reading: Reading = field(default_factory=Reading)
    used: list[str] = field(default_factory=list)

    def fresh(self) -> Expander:
        """Return an expander for another entry, so that each entry has only the secrets that it uses itself."""
        return replace(self, used=[])

    def text(self, node: Node) -> str:
        """Return the string with its references expanded.

        `${VAR}` and `${env:VAR}` require that the variable is set. `${VAR:-default}` uses the default if the variable
        is unset or empty, as a shell does. `${workspaceFolder}` is the folder of the workspace in VS Code.
        """
        # One pass only. A reference in the value of a variable is not expanded: the value may come from another program
        # than the file, and could name any variable.
        return _REFERENCE.sub(lambda match: self._value(node, match), node.text())

    def nonblank(self, node: Node) -> str:
        """Return the expanded string. Report a problem if it is blank."""
        text = self.text(node)
        if node.valid and not text.strip():
            node.refuse("must not be empty")
        return text

    def path(self, node: Node) -> Path:
        """Return the expanded string as an absolute path. A relative path starts in the folder of the file."""
        return resolve(self.text(node), self.folder)

    def unexpanded_path(self, node: Node) -> str:
        """Return the string as an absolute path, without expanding references. Report a problem if it is blank."""
        return str(resolve(node.nonblank(), self.folder))

    def value(self, node: Node, depth: int = 0) -> Any:
        """Return the value with the references in its strings expanded. Report a problem if it is nested too deep."""
        if depth > MAX_DEPTH:
            node.fail(f"is nested deeper than {MAX_DEPTH} levels")
            return None
        if isinstance(node.value, dict):
            return {key: self.value(each, depth + 1) for key, each in node.entries().items()}
        if isinstance(node.value, list):
            return [self.value(each, depth + 1) for each in node.items()]
        return self.text(node) if isinstance(node.value, str) else node.value

    def _value(self, node: Node, match: re.Match[str]) -> str:
        """Return the value of a reference. Report a problem, and return an empty text, if there is no value."""
        inside, brace = match.groups()
        if not brace or "${" in inside:
            node.fail("`${` has no closing `}`, or contains another `${`; references cannot be nested")
        elif inside == "workspaceFolder":
            return str(self.folder.parent if self.folder.name == ".vscode" else self.folder)
        elif inside.startswith("input:"):
            node.fail(
                f"{quote(match[0])} asks a person for the value, which is not possible here; "
                "use an environment variable instead: `${NAME}`"
            )
        elif variable := _VARIABLE.fullmatch(inside):
            name, default = variable.groups()
            if value := self.environ.get(name):
                if name not in PLAIN and counts_as_secret(name, value):
                    self.used.append(value)
                return value
            # As in a shell, a variable that is set to an empty value is not an error.
            if default is None and value is None:
                node.miss(f"the variable {name} is not set; set it, or give a default: `${{{name}:-default}}`")
            return default or ""
        else:
            node.fail("`${...}` does not contain the name of a variable; allowed: ${VAR}, ${VAR:-default}, ${env:VAR}")
        return ""


def read_env_file(node: Node, expander: Expander) -> dict[str, str]:
    """Return the variables of an `envFile`. Its lines are `KEY=VALUE`, with `#` comments, `export` and quotes.

    References in values are not expanded.
    """
    path = expander.path(node)
    if not node.valid:
        return {}
    expander.reading.files.append(path)  # before it is read: a missing file is watched too, until it appears
    try:
        lines = read_text(path).splitlines()
    except SourceError as error:
        node.miss(f"{quote(node.value)} {error}")
        return {}
    values: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue
        match = _ENV_LINE.fullmatch(line)
        value = _unquote(match[2]) if match else None
        if match is None or value is None:
            node.miss(f"line {number} of the file is not KEY=VALUE, or has a quote that is not closed")
        else:
            values[match[1]] = value
    return values


def _unquote(text: str) -> str | None:
    """Return the value of a line `KEY=VALUE`; None if a quote is not closed."""
    if not text.startswith(("'", '"')):
        # A `#` begins a comment only after a space: passwords and URLs may contain the character.
        return re.sub(r"(^|\s+)#.*$", "", text)
    quoted = _QUOTED.fullmatch(text)
    if quoted is None:
        return None
    single, double = quoted.groups()
    return single if double is None else re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), double)
