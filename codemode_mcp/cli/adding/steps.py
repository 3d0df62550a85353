"""The steps of `codemode-mcp add` with the person at the terminal.

Nothing starts before the person has agreed to the command line or address. Nothing is written before the person has
seen what the server lists. The pins are stored before the entry, so that a running instance that reads the new entry
compares with what the person has seen.
"""

from __future__ import annotations

import json
import os
import shlex
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from codemode_mcp.cli.adding import keyring_entries, pins, views
from codemode_mcp.cli.adding.documents import auth_by_variable
from codemode_mcp.cli.adding.proposal import Refused, with_values
from codemode_mcp.cli.adding.questions import ask_all, ask_yes
from codemode_mcp.cli.adding.trial import list_server, spec_of
from codemode_mcp.cli.deciding import confirm
from codemode_mcp.cli.loading import logging_of
from codemode_mcp.cli.messages import print_json, say, say_command, say_line, stop_line
from codemode_mcp.config import Config, secret_files
from codemode_mcp.config.literals import REFERENCE, secrets_of
from codemode_mcp.config.servers import ROOT_KEYS
from codemode_mcp.control.display import counted, cut
from codemode_mcp.trust.lock_file import lock_path
from upstream_clients.environment import PLAIN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from codemode_mcp.cli.adding.proposal import Answers, Proposal, Setting
    from codemode_mcp.cli.adding.target import Target
    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.tools import UpstreamView

MAX_ARGUMENTS: Final = 8
"""Arguments of the call that is suggested at the end."""


def add(proposal: Proposal, target: Target, given: Mapping[Setting, str], *, long: bool = False) -> None:
    """Ask the person about a proposal, and add it.

    Args:
        given: values of settings that the command line has.
        long: show all tools and findings.
    """
    name = proposal.name
    _check(proposal, target, given)
    if sum(map(len, views.entry_lines(proposal.entry, hide=False))) > views.MAX_ENTRY:
        stop_line(1, "the entry is too long to be seen at a terminal; write it by hand")
    told = _with_variables(proposal, given)
    if any(each.secret for each in proposal.settings) and not keyring_entries.can_keep():
        told = replace(told, warnings=(*told.warnings, _in_files(proposal)))
    views.show(views.proposal_lines(told, target.path))
    confirm(proposal.verb, f"{cut(name, 60)} as shown above")
    answers = ask_all(proposal.settings, given)
    entry = with_values(proposal.entry, answers.plain)
    if any(_is_secret(setting, value) for setting, value in answers.plain.items()):
        stop_line(
            1,
            "one of these values looks like a secret, and the configuration would have it as plain text; nothing was "
            "added; name its variable with --env NAME, and you are asked for its value, which is not written there",
        )
    try:
        trial = with_values(entry, {setting: keyring_entries.reference(name, setting) for setting in answers.secret})
        spec = spec_of(name, trial, target.path.parent, answers.secret)
    except Refused as error:
        stop_line(1, f"nothing was added, since its entry cannot be used: {error}")
    with ExitStack() as undo:
        view = _listed(spec, undo)
        say("reading what it lists ...")
        shown = pins.read_listing(view, spec, entry, target.path, target.servers, long=long)
        views.show(views.listing_lines(view, shown, long=long))
        confirm("add", f"{cut(name, 60)} with what it lists as shown above")
        _write(entry, answers, target, shown, proposal)
        undo.pop_all()
    say_line(f"{name} is added to {target.path}; what it lists is accepted ({counted(len(view.tools), 'tool')})")
    _say_next(name, view, target)


def print_plan(proposal: Proposal, target: Target, given: Mapping[Setting, str]) -> None:
    """Print what would be written. Nothing is started, asked or written."""
    views.show(views.proposal_lines(_with_variables(proposal, given), target.path))
    _check(proposal, target, given)
    values: dict[Setting, object] = {}
    for setting in proposal.settings:
        if setting.secret:
            values[setting] = keyring_entries.reference(proposal.name, setting)
        else:
            values[setting] = given.get(setting) or setting.default or f"<{setting.name}>"
    print_json({ROOT_KEYS[0]: {proposal.name: with_values(proposal.entry, values)}})
    say("nothing was started or written, because of --dry-run")


def _check(proposal: Proposal, target: Target, given: Mapping[Setting, str]) -> None:
    """End the command if the name is taken, or its entry cannot be used."""
    name = proposal.name
    if name in target.servers:
        stop_line(2, f"{target.path} has a server {name!r} already; choose another name with --name")
    values: dict[Setting, object] = {
        setting: given.get(setting, "0" if setting.table == "args" else keyring_entries.reference(name, setting))
        for setting in proposal.settings
    }
    try:
        spec_of(name, with_values(proposal.entry, values), target.path.parent)
    except Refused as error:
        stop_line(2, f"nothing was added, since its entry cannot be used: {error}")


def _is_secret(setting: Setting, value: str) -> bool:
    """Return True if a value that would be written as plain text looks like a secret."""
    if setting.table == "args":
        return bool(secrets_of({"args": [f"{setting.name}={value}"]}))
    return bool(secrets_of({setting.table: {setting.name: value}}))


def _with_variables(proposal: Proposal, given: Mapping[Setting, str]) -> Proposal:
    """Return a proposal with a sentence about the variables that must be set for it."""
    from codemode_mcp.cli.doctor.servers import NOT_IN_APPS

    found = REFERENCE.findall(json.dumps(with_values(proposal.entry, given)))
    required = dict.fromkeys(each.removeprefix("env:") for each in found if ":-" not in each)
    names = [cut(name, 60) for name in required if name not in (*PLAIN, "workspaceFolder")]
    if not names:
        return proposal
    where = f'set {" and ".join(names)} where codemode-mcp starts; {NOT_IN_APPS}: use "env" in its own entry'
    return replace(proposal, notes=(*proposal.notes, where))


def _in_files(proposal: Proposal) -> str:
    """Return the sentence about secrets on a system without a keyring."""
    names = " and ".join(cut(each.title, 60) for each in proposal.settings if each.secret)
    return (
        f"this system has no keyring, so {names} is stored in {secret_files.folder()}, in a file that only you can "
        f"read, and not encrypted; to store nothing, set a variable where codemode-mcp starts, and name it: "
        f"{_by_variable(proposal)}"
    )


def _by_variable(proposal: Proposal) -> str:
    """Return the option with which the first secret of a proposal comes from a variable."""
    setting = next(each for each in proposal.settings if each.secret)
    if setting.table == "auth":
        auth = proposal.entry["auth"]
        kind = ":".join(auth[key] for key in ("type", "in", "name") if key in auth)
        return f"--auth '{cut(auth_by_variable(kind), 100)}'"
    return f"{'--header' if setting.table == 'headers' else '--env'} '{cut(setting.name, 60)}=${{VARIABLE}}'"


def _listed(spec: UpstreamSpec, undo: ExitStack) -> UpstreamView:
    """Return the view of a server, after a login if it needs one. End the command if it lists nothing.

    Args:
        undo: gets a function that deletes the login.
    """
    from codemode_mcp.cli.doctor.servers import advice_for

    with logging_of(Config(upstreams=(spec,)), level="error"):
        say(f"{'starting' if spec.command else 'connecting to'} {cut(spec.name, 60)} ...")
        view = list_server(spec)
        if view.login_required and _logs_in(spec):
            undo.callback(_log_out, spec)
            view = list_server(spec)
    if view.state != "ready":
        why = (view.error or f"it is still {view.state}").removeprefix(f"server {spec.name!r} ")
        advice = "" if view.login_required else f"; {advice_for(spec, why, os.environ)}"
        stop_line(1, f"nothing was added: {spec.name} {why}{advice}")
    return view


def _logs_in(spec: UpstreamSpec) -> bool:
    """Log in with a browser, if the person wants that. Return True if the person is logged in then."""
    from codemode_mcp.cli.browser_login import can_open_browser, log_in, open_browser
    from upstream_clients.errors import LoginError

    if not ask_yes(f"{cut(spec.name, 60)} needs a login. Log in with a browser now?"):
        return False

    def show(url: str) -> None:
        say("If no browser opens, open:" if can_open_browser() else "Open in a browser:")
        say_command(url)
        if can_open_browser():
            open_browser(url)

    try:
        anyio.run(partial(log_in, spec, show))
    except LoginError as error:
        stop_line(1, f"nothing was added: no login to {spec.name}: {spec.redact(str(error))}")
    return True


def _log_out(spec: UpstreamSpec) -> None:
    from codemode_mcp.cli.browser_login import log_out
    from upstream_clients.errors import LoginError

    try:
        anyio.run(log_out, spec)
    except LoginError as error:
        say_line(f"the login to {spec.name} is left: {spec.redact(str(error))}")


def _write(entry: dict[str, Any], answers: Answers, target: Target, shown: pins.Shown, proposal: Proposal) -> None:
    """Store the secrets, the pins and the entry. End the command if one of them cannot be stored."""
    name = proposal.name
    from upstream_clients.keychain import NoKeychain

    references: Mapping[Setting, dict[str, str]] = {}
    try:
        if answers.secret:
            references = keyring_entries.store(name, answers.secret)
    except NoKeychain as error:
        advice = f"give it by a variable: {_by_variable(proposal)}"
        stop_line(1, f"nothing was added: a secret cannot be stored: {error}; {advice}")
    is_written = False
    try:
        change = target.adding(name, with_values(entry, references))
        pins.store_pins(shown.pins, target.path)
        target.write(change)
        is_written = True
    finally:
        if not is_written:
            pins.forget_pins(name, target.path)
            keyring_entries.forget(each["keyring"] for each in references.values())
    pins.record_acceptance(shown.pins, target.path)


def _say_next(name: str, view: UpstreamView, target: Target) -> None:
    lock = lock_path(target.path)
    if lock.exists():
        say_line(f"{lock} does not have it yet; codemode-mcp trust lock writes that file again")
    say("next:")
    say_command(f"codemode-mcp tools --long --server {shlex.quote(name)}{target.option}")
    tools = [each for each in view.tools if each.name.isprintable()]
    if tools:
        tool = next((each for each in tools if each.annotations.read_only), tools[0])
        required = tool.input_schema.get("required")
        names = (
            [each for each in required if isinstance(each, str) and each.isprintable()]
            if isinstance(required, list)
            else []
        )
        words = [f"{name}.{tool.name}", *(f"{each}=..." for each in names[:MAX_ARGUMENTS])]
        say_command(f"codemode-mcp call {' '.join(map(shlex.quote, words))}{target.option}")
