"""Secret values of the configuration file: strings, outputs of programs, and entries of the system keyring.

No message in this module quotes a value or the output of a program.
"""

from __future__ import annotations

import hashlib
import os
import queue
import stat
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from codemode_mcp.base.paths import data_dir
from codemode_mcp.config.nodes import Node, array_of, quote
from upstream_clients.keychain import NoKeychain
from upstream_clients.private_files import exposure, make_private_folder, open_private, replace_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from codemode_mcp.config.expand import Expander

    Take = Callable[[Node, str], None]
    """A function that takes the value of a node. It reports problems with the value at the node."""


# Secrets that `add` stores for servers on a system without a keyring: each in a file that only the user can read.
#
# A reference such as `{"keyring": "books/value"}` in the configuration means such a file, if there is one, and
# otherwise the entry of the system keyring. Every function blocks.


_MAX_BYTES: Final = 1024 * 1024


def folder() -> Path:
    return data_dir() / "secrets"


def read(name: str) -> str | None:
    """Return a secret; None if it has no file. Raises `NoKeychain` if others can read or write the file."""
    path = _path(name)
    try:
        with open_private(path) as file:
            if sys.platform != "win32" and stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise NoKeychain(f"{path} can be read by other users, so it is not used; run chmod 600 on it")
            return file.read(_MAX_BYTES).decode()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError:
        raise NoKeychain(f"{path} is damaged") from None
    except OSError as error:
        raise NoKeychain(f"{path} cannot be used: {error.strerror}") from None


def write(name: str, value: str) -> None:
    """Store a secret. Raises `NoKeychain`."""
    path = _path(name)
    try:
        make_private_folder(path.parent)
        why = exposure(path)
        if why is None:
            replace_file(path, value.encode())
    except OSError as error:
        why = f"{path} cannot be written: {error.strerror}"
    if why is not None:
        raise NoKeychain(why)


def remove(name: str) -> bool:
    """Delete the file of a secret. Return False if there is none. Raises `NoKeychain`."""
    path = _path(name)
    try:
        path.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise NoKeychain(f"{path} cannot be deleted: {error.strerror}") from None
    return True


def _path(name: str) -> Path:
    return folder() / hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]


KEYRING_SECONDS = 20
"""Time limit of the system keyring in seconds. The keyring may be waiting for a person to unlock it."""

_ALLOWED = 'a string, {"command": [...]} or {"keyring": "name"}'


@dataclass(frozen=True, slots=True)
class _Source:
    """A program that prints a value, or the name of an entry in the system keyring."""

    node: Node
    expander: Expander
    argv: tuple[str, ...] = ()
    keyring: str | None = None

    def value(self) -> str:
        """Return the value. Raises `_NoValue`."""
        if self.keyring is None:
            return _printed(self.argv, self.expander)
        return _kept(self.keyring)


class _NoValue(Exception):
    """Error for a value that cannot be had. The text is the message."""


@dataclass(frozen=True, slots=True)
class SecretValues:
    """The reading of secret values. Programs and the keyring are used last, if everything else is valid.

    The list of sources is the mutable state.
    """

    _pending: list[tuple[_Source, Take]] = field(default_factory=list)

    def read(self, node: Node, expander: Expander, take: Take) -> None:
        """Pass the value of a node to `take`: a string immediately, the value of any other source in `run`."""
        if isinstance(node.value, dict):
            self._read_source(node, expander, take)
        elif isinstance(node.value, str):
            text = expander.text(node)
            if node.valid:
                take(node, text)
        else:
            node.fail_type(_ALLOWED)

    def _read_source(self, node: Node, expander: Expander, take: Take) -> None:
        fields = node.fields(("command", "keyring"))
        if len(fields) == 2:
            node.fail("has `command` and `keyring`; keep one")
        elif "keyring" in fields:
            self._pending.append((_Source(node, expander, keyring=fields["keyring"].nonblank()), take))
        elif "command" in fields:
            argv = array_of(expander.text)(fields["command"])
            if fields["command"].valid and not node.report.missing and not (argv and argv[0].strip()):
                fields["command"].fail("names no program; the first string is the program to run")
            self._pending.append((_Source(node, expander, argv), take))
        elif not node.value:
            node.fail_type(_ALLOWED)

    def run(self) -> None:
        """Run the programs and read the keyring. Equal sources are used only once.

        Values of a server entry that lacks another value are left out, because its server does not start.
        """
        values: dict[tuple[str | None, tuple[str, ...]], str | _NoValue] = {}
        for source, take in self._pending:
            if source.node.report.missing:
                continue
            key = source.keyring, source.argv
            if key not in values:
                try:
                    values[key] = source.value()
                except _NoValue as error:
                    values[key] = error
            value = values[key]
            if isinstance(value, _NoValue):
                source.node.miss(str(value))
            else:
                take(source.node, value)


def _printed(argv: tuple[str, ...], expander: Expander) -> str:
    """Run a program without a shell. Return its output without outer spaces. Raises `_NoValue`."""
    try:
        exit_code, printed = expander.reading.run(argv, expander.folder, expander.environ)
        output = printed.decode().strip()
    except subprocess.TimeoutExpired as error:
        raise _NoValue(f"the program did not end within {error.timeout:g} s") from None
    except UnicodeDecodeError:
        raise _NoValue("the output of the program is not UTF-8 text") from None
    except OSError as error:
        # If the user has not split the command, the first word has all arguments, which may be secret.
        name, *more = argv[0].split(maxsplit=1)
        raise _NoValue(
            f"the program {quote(f'{name} ...' if more else name)} cannot be run: {error.strerror}"
        ) from None
    if exit_code != 0:
        raise _NoValue(f"the program failed with exit code {exit_code}")
    if not output or "\0" in output:
        raise _NoValue("the program printed no text")
    return output


def _kept(name: str) -> str:
    """Return an entry of the system keyring, or of the files in its place. Raises `_NoValue`."""
    from upstream_clients import keychain

    answers: queue.SimpleQueue[str | keychain.NoKeychain | None] = queue.SimpleQueue()

    def ask() -> None:
        try:
            in_file = read(name)
            answers.put(keychain.read(keychain.SECRETS, name) if in_file is None else in_file)
        except keychain.NoKeychain as error:
            answers.put(error)

    # The thread is a daemon and is not joined: a locked keyring may wait for a person who is absent.
    threading.Thread(target=ask, name="keyring", daemon=True).start()
    try:
        answer = answers.get(timeout=KEYRING_SECONDS)
    except queue.Empty:
        raise _NoValue(f"the system keyring did not answer within {KEYRING_SECONDS} s; unlock it") from None
    if isinstance(answer, keychain.NoKeychain):
        raise _NoValue(f'{answer}; use a variable, "${{NAME}}", or {{"command": [...]}}')
    if answer is None:
        raise _NoValue(
            f"the system keyring has no such entry for {keychain.SECRETS}; "
            f"add the entry with: keyring set {keychain.SECRETS} NAME"
        )
    if not answer or "\0" in answer:
        raise _NoValue("the entry in the system keyring is empty or contains NUL")
    return answer
