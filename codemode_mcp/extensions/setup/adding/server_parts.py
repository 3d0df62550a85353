"""The parts of a server: its entry, pins, login, stored secrets, rules that name it, and its trial."""

from __future__ import annotations

import math
import os
import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, get_args

import anyio
from msgspec import Struct, structs

from codemode_mcp.base.nesting import with_depth
from codemode_mcp.cli.messages import stop_line, suggestion
from codemode_mcp.cli.pinned_items import PERSON, pins_folder, recorded
from codemode_mcp.config import secret_values
from codemode_mcp.config.edit_json import with_members
from codemode_mcp.config.expand import Expander
from codemode_mcp.config.literals import written_entry
from codemode_mcp.config.nodes import Node, Report
from codemode_mcp.config.secret_values import SecretValues
from codemode_mcp.config.servers import ROOT_KEYS, read_servers
from codemode_mcp.config.source import SourceError, parse
from codemode_mcp.extensions.setup.adding.proposal import Refused, Setting
from codemode_mcp.extensions.setup.mcp_clients.client_files import BYTE_ORDER_MARK, Change, Document, read_file
from codemode_mcp.extensions.setup.mcp_clients.importing import change_adding, servers_of
from codemode_mcp.rules.trust.comparison import Acceptance, ItemReport, ServerPins, baseline_of
from codemode_mcp.rules.trust.findings import new_findings, tools_of_others
from codemode_mcp.rules.trust.items import Finding, Severity, entry_item, is_api
from codemode_mcp.rules.trust.pins_file import LockFileError, PinsFolder, PinsUnavailable, lock_path, read_lock_file
from codemode_mcp.rules.trust.service import record_decisions
from codemode_mcp.rules.trust.views import listing_of
from upstream_clients import keychain
from upstream_clients.json_values import strings_in, values_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.tools import UpstreamView


def login_spec(name: str, entry: Mapping[str, Any], folder: Path) -> UpstreamSpec | None:
    """Return the spec of a server that has a stored login; None if it has none, or its entry does not load."""
    from upstream_clients.token_store import LoginStore

    if "command" in entry:
        return None
    try:
        spec = spec_of(name, entry, folder)
    except Refused:
        return None
    return spec if not spec.is_process and LoginStore(spec).stamp() is not None else None


def own_secrets(name: str, value: Any) -> list[str]:
    """Return the names of the stored secrets to which only the entry of a server refers.

    Args:
        value: the value of the configuration.
    """
    own: set[str] = set()
    others: set[str] = set()
    for key, part in value.items():
        if key not in ROOT_KEYS or not isinstance(part, dict):
            others.update(names_in(part))
            continue
        for server, entry in part.items():
            (own if server == name else others).update(names_in(entry))
    return sorted(own - others)


def forget_server(name: str, path: Path, spec: UpstreamSpec | None, secrets: list[str]) -> Iterator[str]:
    """Delete the pins, the login and the secrets of a server. Yield a sentence for each that is left.

    Args:
        spec: the server, if it has a login to delete.
        secrets: the names of stored secrets to delete.
    """
    from codemode_mcp.cli.browser_login import log_out
    from upstream_clients.errors import LoginError

    if not forget_pins(name, path):
        yield "its pins could not be deleted; a new server of this name is compared with them"
    if spec is not None:
        try:
            anyio.run(log_out, spec)
        except LoginError as error:
            yield f"its login is left: {spec.redact(str(error))}"
    for each in forget_secrets(secrets):
        yield f"the secret {each} could not be deleted"


def left_behind(name: str, value: Any, path: Path) -> Iterator[str]:
    """Yield a sentence for each part of the configuration that still names a server after its entry is gone."""
    for key, part in value.items():
        count = sum(f":{name}:" in text for text in strings_in(part)) if key not in ROOT_KEYS else 0
        if count:
            yield f"section `{key}` still names it {count} times; such rules apply again to a new server of this name"
    lock = lock_path(path)
    if lock.exists():
        try:
            is_locked = name in read_lock_file(lock).servers
        except LockFileError:
            is_locked = False
        if is_locked:
            yield f"{lock} still has it; codemode-mcp trust lock writes that file again"


# Secrets of servers in the system keyring, or in files in its place, and the references to them.


def can_keep() -> bool:
    """Return True if this system has a keyring that protects secrets."""
    return keychain.protects()


def reference(server: str, setting: Setting) -> dict[str, str]:
    """Return the reference to a secret for the configuration, if no other entry has its name."""
    return {"keyring": f"{server}/{setting.name}"}


def store(server: str, values: Mapping[Setting, str]) -> dict[Setting, dict[str, str]]:
    """Store secrets, in files if no keyring protects them. Return their references for the configuration.

    Raises:
        NoKeychain: one cannot be stored. Then none is.
    """
    references: dict[Setting, dict[str, str]] = {}
    in_keyring = can_keep()
    try:
        for setting, value in values.items():
            name = _free_name(reference(server, setting)["keyring"], in_keyring=in_keyring)
            references[setting] = {"keyring": name}
            if not in_keyring:
                secret_values.write(name, value)
                continue
            keychain.write(keychain.SECRETS, name, value)
            if keychain.read(keychain.SECRETS, name) != value:
                raise keychain.NoKeychain("the system keyring does not return what it has stored")
    except keychain.NoKeychain:
        forget_secrets(each["keyring"] for each in references.values())
        raise
    return references


def forget_secrets(names: Iterable[str]) -> list[str]:
    """Delete stored secrets. Return the names of those that could not be deleted."""
    left = []
    for name in names:
        try:
            if not secret_values.remove(name):
                keychain.remove(keychain.SECRETS, name)
        except keychain.NoKeychain:
            left.append(name)
    return left


def names_in(value: Any) -> Iterator[str]:
    """Yield the names of the keyring entries to which a part of a configuration refers."""
    for each in values_in(value):
        if isinstance(each, dict) and isinstance(each.get("keyring"), str):
            yield each["keyring"]


def _free_name(name: str, *, in_keyring: bool) -> str:
    """Return a name that no secret has: another configuration may have a server of the same name."""
    for number in count(1):
        numbered = name if number == 1 else f"{name}-{number}"
        is_taken = secret_values.read(numbered) is not None
        if not is_taken and not (in_keyring and keychain.read(keychain.SECRETS, numbered) is not None):
            return numbered
    raise AssertionError


# The pins of a server that a person accepts before it is in the configuration, and of one that is removed.


FINDING_SECONDS: Final = 30.0
"""Time for the search for findings. The operations of a large API take 5 s, and hostile texts take longer."""


class Shown(Struct, frozen=True):
    """The listing of a server, for a person to accept.

    Attributes:
        pins: the pins as they are stored if the person accepts.
        findings: parts of its definitions that the person should look at, the gravest first, with their item.
        unread: the number of definitions that were not searched for findings, since that took too long.
    """

    pins: ServerPins
    findings: Sequence[tuple[ItemReport, Finding]]
    unread: int = 0


def read_listing(
    view: UpstreamView,
    spec: UpstreamSpec,
    entry: Mapping[str, Any],
    path: Path,
    servers: Iterable[str],
    *,
    long: bool = False,
) -> Shown:
    """Return what a server has listed.

    Args:
        entry: its entry, as it will be written.
        path: the configuration file.
        servers: the names of the other servers of the configuration.
        long: search all definitions, however long that takes.
    """
    from codemode_mcp.rules.trust.comparison import compare

    at = time.time()
    listing = listing_of(view, spec.secret_values, None, at, entry_item(written_entry(entry)))
    pins = baseline_of(None, view.name, listing, "pin", logged_in=view.logged_in)
    pins = structs.replace(
        pins, accepted={key: Acceptance(each.item, PERSON, at) for key, each in pins.accepted.items()}
    )
    folder = PinsFolder(pins_folder(), path)
    listed = [(view.name, tuple(listing.items))]
    for name in servers:
        try:
            other = folder.load(name)
        except PinsUnavailable:
            continue
        listed.append((name, tuple(other.present.items) if other is not None else ()))
    others = tools_of_others(view.name, listed)
    reports = compare(ServerPins(view.name), listing, "pin")
    of_api = is_api(reports)
    found: list[tuple[ItemReport, Finding]] = []
    until = math.inf if long else time.monotonic() + FINDING_SECONDS
    unread = 0
    for report in reports:
        if time.monotonic() > until:
            unread += 1
            continue
        found += [(report, finding) for finding in new_findings(report, others, is_api=of_api)]
    order = get_args(Severity)
    return Shown(pins, sorted(found, key=lambda each: order.index(each[1].severity)), unread)


def store_pins(pins: ServerPins, path: Path) -> None:
    """Store the pins of a new server. Pins of an earlier server of this name are replaced. End the command if not."""
    folder = PinsFolder(pins_folder(), path)
    try:
        try:
            folder.update(pins.server, lambda _: pins)
        except PinsUnavailable:
            folder.replace_damaged(pins.server, pins)
    except PinsUnavailable as error:
        stop_line(1, f"nothing was added: {error}")


def record_acceptance(pins: ServerPins, path: Path) -> None:
    """Write the decision of the person to the trajectory of the configuration, if it has one."""
    with recorded(path) as auditor:
        if auditor is not None:
            record_decisions(auditor, ServerPins(pins.server), pins)


def forget_pins(server: str, path: Path) -> bool:
    """Delete the pins of a server. Return False if they could not be deleted."""
    try:
        PinsFolder(pins_folder(), path).forget(server)
    except PinsUnavailable:
        return False
    return True


# The trial of a server that is not in the configuration yet: it is started or connected, and lists its tools.
#
# Nothing is pinned or written. The server gets exactly the entry that a person has agreed to.


START_SECONDS: Final = 180.0
"""Timeout for the first start. `npx` and `uvx` may have to fetch the package first."""

LIST_SECONDS: Final = 10.0
"""Timeout for the lists of prompts and resource templates, once the tools are listed."""


def spec_of(
    name: str, entry: Mapping[str, Any], folder: Path, values: Mapping[Setting, str] | None = None
) -> UpstreamSpec:
    """Return the spec of an entry. The keyring is not read, and no program of the entry runs.

    Args:
        folder: the folder of the configuration file.
        values: values of settings, for which the entry itself has references to the keyring.

    Raises:
        Refused: this entry cannot be used.
    """
    report = Report()
    root = Node({name: {**entry, "disabled": False}}, ROOT_KEYS[0], report)
    servers = read_servers({ROOT_KEYS[0]: root}, Expander(os.environ, folder), SecretValues())
    for path, messages in report.problems.items():
        raise Refused(f"{path}: {next(iter(messages))}")
    for setting, value in (values or {}).items():
        if setting.table != "args":
            servers.set_value(name, setting.table, setting.name, value)
    return servers.specs[name]


def list_server(spec: UpstreamSpec) -> UpstreamView:
    """Start or connect a server, and return its view. The server is ended before this function returns."""
    return anyio.run(_list_server, spec)


async def _list_server(spec: UpstreamSpec) -> UpstreamView:
    from importlib import metadata

    from upstream_clients.pool import UpstreamPool

    spec = with_depth(replace(spec, start="eager", connect_timeout=max(spec.connect_timeout, START_SECONDS)))
    async with UpstreamPool([spec], client_version=metadata.version("codemode-mcp")) as pool:
        await pool.connect([spec.name], spec.connect_timeout + LIST_SECONDS)
        (view,) = pool.views()
        if view.state == "ready":
            await pool.wait_listed([spec.name], LIST_SECONDS)
            (view,) = pool.views()
        return view


class Target(Struct, frozen=True):
    """The configuration file of a command.

    Attributes:
        path: its absolute path.
        document: its content; None if the file does not exist.
        servers: the server entries.
        option: the end of commands that use the file, such as ` --config FILE`; empty if they need none.
        confirmed: True if the file was found in the working directory, and a person has confirmed its content.
    """

    path: Path
    document: Document | None
    servers: Mapping[str, Any]
    option: str
    confirmed: bool = False

    def entry(self, name: str) -> Mapping[str, Any]:
        """Return the entry of a server. End the command if there is none."""
        entry = self.servers.get(name)
        if not isinstance(entry, dict):
            stop_line(2, f"{self.path} has no server {name!r}; {suggestion(name, self.servers)}")
        return entry

    def adding(self, name: str, entry: Mapping[str, Any]) -> Change:
        """Return the change that adds a server. End the command if the file cannot be changed safely."""
        try:
            return change_adding(self.path, self.document, {name: dict(entry)})
        except SourceError as error:
            self._unchangeable(error)

    def changing(self, name: str, put: Mapping[str, object], drop: tuple[str, ...] = ()) -> Change:
        """Return the change of some members of an entry. See `adding`."""
        return self._changed((self._root(name), name), put, drop)

    def removing(self, name: str) -> Change:
        """Return the change that removes a server. See `adding`."""
        return self._changed((self._root(name),), {}, (name,))

    def write(self, change: Change) -> Path | None:
        """Write a change, and return the backup of the old file. End the command if it cannot be written.

        If a person had confirmed the old content of a file of the working directory, the new one is confirmed, too.
        """
        from codemode_mcp.config.edit import ChangedMeanwhileError

        try:
            backup = change.write()
        except ChangedMeanwhileError:
            stop_line(1, f"{self.path} was changed by another program meanwhile; nothing was written, try again")
        except OSError as error:
            stop_line(1, f"{self.path} could not be written: {error.strerror}; nothing was changed")
        if self.confirmed:
            from codemode_mcp.cli.deciding import confirm_changed

            confirm_changed(self.path, parse(change.text.removeprefix(BYTE_ORDER_MARK)))
        return backup

    def _root(self, name: str) -> str:
        assert self.document is not None
        value = self.document.value
        return next(key for key in ROOT_KEYS if isinstance(value.get(key), dict) and name in value[key])

    def _changed(self, keys: tuple[str, ...], put: Mapping[str, object], drop: tuple[str, ...]) -> Change:
        assert self.document is not None
        try:
            text = with_members(self.document.text, keys, put, drop)
        except SourceError as error:
            self._unchangeable(error)
        return replace(self.document, path=Path(os.path.realpath(self.path))).change_to(text)

    def _unchangeable(self, error: SourceError) -> NoReturn:
        stop_line(1, f"{self.path} {error}; nothing was changed")


def find_target(config: str | None) -> Target:
    """Return the configuration file that `call` and `run` would use, or else the user's, which may not exist yet.

    End the command if the file cannot be read.

    Args:
        config: the value of `--config`. This file may be a new one.
    """
    from codemode_mcp.base.config_path import FILE_NAME, PATH_VARIABLE, command_option
    from codemode_mcp.base.errors import ConfigError
    from codemode_mcp.base.paths import config_dir
    from codemode_mcp.cli.deciding import find, is_confirmed
    from codemode_mcp.config.load import check_kind

    in_folder: list[Path] = []
    named = config or os.environ.get(PATH_VARIABLE)
    try:
        found = None if named else find(None, in_folder.append)
    except ConfigError as error:
        stop_line(2, str(error))
    path = Path(os.path.abspath(os.path.expanduser(named))) if named else found or config_dir() / FILE_NAME
    try:
        document = read_file(path, "json") if os.path.lexists(path) else None
        servers = servers_of(document)
        if document is not None:
            check_kind(path, document.value)
    except SourceError as error:
        stop_line(2, f"{path} {error}")
    except ConfigError as error:
        stop_line(2, str(error))
    confirmed = bool(in_folder) and document is not None and is_confirmed(path, document.value)
    option = "" if in_folder or (config is None and named) else command_option(path, config_dir())
    return Target(path, document, servers, option, confirmed)
