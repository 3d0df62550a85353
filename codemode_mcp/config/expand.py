"""References in the file: variables, paths, `envFile`s and programs that print a value.

No message here holds an expanded value, a line of a file or the output of a program.
"""

from __future__ import annotations

import errno
import os
import queue
import re
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from codemode_mcp.config.nodes import Node, quote
from codemode_mcp.config.source import SourceError, read_text
from upstream_clients.environment import PLAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_REFERENCE = re.compile(r"\$\{([^}]*)(\}?)")
_VARIABLE = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_()]*)(?::-(.*))?", re.DOTALL)
_ENV_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*=\s*(.*)")
_QUOTED = re.compile(r"""(?:'([^']*)'|"((?:[^"\\]|\\.)*)")(?:\s+#.*)?""")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
SECRET_SOURCES = 'a string, {"command": [...]} or {"keyring": "name"}'
_PROGRAM_SECONDS = 10
_KEYRING_SECONDS = 20


class Reading:
    """Files and variables that one reading of the configuration uses besides its file.

    Attributes:
        files: those that it refers to, whether they could be read or not.
    """

    def __init__(self) -> None:
        self.files: list[Path] = []
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def run(self, argv: tuple[str, ...], folder: Path, environ: Mapping[str, str]) -> tuple[int, bytes]:
        """Exit code and output of a program.

        Raises:
            OSError: it cannot be run.
            subprocess.TimeoutExpired: it did not end.
        """
        with self._lock:
            if self._stopped:
                raise InterruptedError(errno.EINTR, "everything is ending")
            self._process = process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=folder,
                env=dict(environ),
            )
        with process:
            try:
                output, _ = process.communicate(timeout=_PROGRAM_SECONDS)
            except BaseException:
                process.kill()
                raise
        return process.returncode, output

    def stop(self) -> None:
        """End the program that runs, and start no more. May be called in any thread."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.kill()


@dataclass(frozen=True, slots=True)
class Expander:
    """Expands the values of one server entry.

    Attributes:
        folder: the folder of the configuration file.
        used: every value that a variable had, in order; the mutable state. None of them may ever be shown.
    """

    environ: Mapping[str, str]
    folder: Path
    used: list[str] = field(default_factory=list)
    reading: Reading = field(default_factory=Reading)

    def text(self, node: Node) -> str:
        """Return the string with its references expanded.

        `${VAR}` and `${env:VAR}` must be set, `${VAR:-default}` stands in for an unset or empty variable as in a
        shell, `${workspaceFolder}` is where VS Code looks from. What a variable holds is not expanded again.
        """
        return _REFERENCE.sub(lambda match: self._value(node, match), node.text())

    def path(self, node: Node) -> Path:
        """Return the string as an absolute path; what is relative starts in the folder of the configuration file."""
        return resolve(self.text(node), self.folder)

    def _value(self, node: Node, match: re.Match[str]) -> str:
        inside, brace = match.groups()
        if not brace or "${" in inside:
            node.fail("`${` without its `}`; references cannot be nested")
        elif inside == "workspaceFolder":
            return str(self.folder.parent if self.folder.name == ".vscode" else self.folder)
        elif inside.startswith("input:"):
            node.fail(f"{quote(match[0])}: no person can be asked here; use an environment variable, `${{NAME}}`")
        elif variable := _VARIABLE.fullmatch(inside):
            name, default = variable.groups()
            if value := self.environ.get(name):
                if name not in PLAIN:
                    self.used.append(value)
                return value
            if default is None and value is None:
                node.fail(f"the variable {name} is not set; set it or give a default, `${{{name}:-default}}`")
            return default or ""
        else:
            node.fail("`${...}` without a variable name; allowed: ${VAR}, ${VAR:-default}, ${env:VAR}")
        return ""


def resolve(name: str, folder: Path) -> Path:
    """`name` as an absolute path: `~` is the home directory, anything relative is inside `folder`."""
    return Path(os.path.abspath(folder / os.path.expanduser(name)))


def read_env_file(node: Node, expander: Expander) -> dict[str, str]:
    """`KEY=VALUE` lines as other clients read them: `#` comments, `export `, quotes; nothing is expanded."""
    path = expander.path(node)
    if not node.sound:
        return {}
    expander.reading.files.append(path)
    try:
        lines = read_text(path).splitlines()
    except SourceError as error:
        node.fail(f"{quote(node.value)} {error}")
        return {}
    values: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue
        match = _ENV_LINE.fullmatch(line)
        value = _unquote(match[2]) if match else None
        if match is None or value is None:
            node.fail(f"line {number} of the file is not KEY=VALUE")
        else:
            values[match[1]] = value
    return values


def run_program(node: Node, argv: tuple[str, ...], expander: Expander) -> str | None:
    """Return what a program prints, stripped; no shell. `None`, with the problem reported, when it gives no value."""
    try:
        exit_code, printed = expander.reading.run(argv, expander.folder, expander.environ)
        output = printed.decode().strip()
    except subprocess.TimeoutExpired:
        node.fail(f"the program did not end within {_PROGRAM_SECONDS} s")
    except UnicodeDecodeError:
        node.fail("what the program printed is not UTF-8 text")
    except OSError as error:
        name, *more = argv[0].split(maxsplit=1)  # a command that was not split has its arguments here too
        node.fail(f"the program {quote(f'{name} ...' if more else name)} cannot be run: {error.strerror}")
    else:
        if exit_code != 0:
            node.fail(f"the program failed with exit code {exit_code}")
        elif not output or "\0" in output:
            node.fail("the program printed no text")
        else:
            return output
    return None


def read_keyring(node: Node, name: str) -> str | None:
    """Return the value of this name in the system keyring. `None`, with the problem reported, when there is none."""
    from upstream_clients import keychain

    answers: queue.SimpleQueue[str | keychain.NoKeychain | None] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(keychain.read(keychain.SECRETS, name))
        except keychain.NoKeychain as error:
            answers.put(error)

    # In a thread that no caller waits for: a locked keyring may ask a person who is not there.
    threading.Thread(target=ask, name="keyring", daemon=True).start()
    try:
        found = answers.get(timeout=_KEYRING_SECONDS)
    except queue.Empty:
        node.fail(f"the system keyring did not answer within {_KEYRING_SECONDS} s; unlock it")
        return None
    if isinstance(found, keychain.NoKeychain):
        node.fail(f'{found}; use a variable, "${{NAME}}", or {{"command": [...]}}')
    elif found is None:
        node.fail(
            f"the system keyring has no such entry for {keychain.SECRETS}; "
            f"make one with: keyring set {keychain.SECRETS} NAME"
        )
    elif not found or "\0" in found:
        node.fail("the entry in the system keyring is empty or holds NUL")
    else:
        return found
    return None


def secret_source(node: Node, expander: Expander) -> Callable[[], str | None] | None:
    """Return what gives the value of `{"command": [...]}` or `{"keyring": "name"}`, once everything else is known to be
    right.

    It reports what goes wrong then. None, with the problem reported, where the object is not one of these.
    """
    fields = node.fields(("command", "keyring"))
    if len(fields) == 2:
        node.fail("has `command` and `keyring`; keep one")
    elif "keyring" in fields:
        entry = fields["keyring"].filled()
        return lambda: read_keyring(node, entry)
    elif "command" in fields:
        argv = tuple(map(expander.text, fields["command"].items()))
        if fields["command"].sound and not (argv and argv[0].strip()):
            fields["command"].fail("names no program")
        return lambda: run_program(node, argv, expander)
    elif not node.value:
        node.fail_type(SECRET_SOURCES)
    return None


def _unquote(text: str) -> str | None:
    """Return the value of one `KEY=VALUE` line; `None` when a quote is not closed."""
    if not text.startswith(("'", '"')):
        return re.sub(r"(^|\s+)#.*$", "", text)
    quoted = _QUOTED.fullmatch(text)
    if quoted is None:
        return None
    single, double = quoted.groups()
    return single if double is None else re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), double)
