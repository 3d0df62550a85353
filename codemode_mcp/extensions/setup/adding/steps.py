"""The steps of `codemode-mcp add` with the person at the terminal: questions, texts and their order.

Nothing starts before the person has agreed to the command line or address. Nothing is written before the person has
seen what the server lists. The pins are stored before the entry, so that a running instance that reads the new entry
compares with what the person has seen.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
from msgspec.structs import replace

from codemode_mcp.base.display import counted, cut, exact, plain
from codemode_mcp.cli.deciding import confirm
from codemode_mcp.cli.loading import logging_of
from codemode_mcp.cli.messages import print_json, say, say_command, say_line, stop_line
from codemode_mcp.cli.terminal import forget_typed
from codemode_mcp.config import Config, secret_values
from codemode_mcp.config.literals import REFERENCE, secrets_of
from codemode_mcp.config.servers import ROOT_KEYS
from codemode_mcp.extensions.setup.adding import server_parts
from codemode_mcp.extensions.setup.adding.documents import auth_by_variable
from codemode_mcp.extensions.setup.adding.proposal import MARK, Answers, Proposal, Refused, Setting, with_values
from codemode_mcp.extensions.setup.adding.server_parts import Shown, Target, list_server, spec_of
from codemode_mcp.extensions.setup.mcp_clients.dialects import without_secrets
from codemode_mcp.rules.trust.findings import MAX_EXAMPLES, grouped
from codemode_mcp.rules.trust.items import reference
from codemode_mcp.rules.trust.pins_file import lock_path
from upstream_clients.environment import PLAIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.tools import Tool, UpstreamView


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
    if sum(map(len, entry_lines(proposal.entry, hide=False))) > MAX_ENTRY:
        stop_line(1, "the entry is too long to be seen at a terminal; write it by hand")
    told = _with_variables(proposal, given)
    if any(each.secret for each in proposal.settings) and not server_parts.can_keep():
        told = replace(told, warnings=(*told.warnings, _in_files(proposal)))
    show(proposal_lines(told, target.path))
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
        trial = with_values(entry, {setting: server_parts.reference(name, setting) for setting in answers.secret})
        spec = spec_of(name, trial, target.path.parent, answers.secret)
    except Refused as error:
        stop_line(1, f"nothing was added, since its entry cannot be used: {error}")
    with ExitStack() as undo:
        view = _listed(spec, undo)
        say("reading what it lists ...")
        shown = server_parts.read_listing(view, spec, entry, target.path, target.servers, long=long)
        show(listing_lines(view, shown, long=long))
        confirm("add", f"{cut(name, 60)} with what it lists as shown above")
        _write(entry, answers, target, shown, proposal)
        undo.pop_all()
    say_line(f"{name} is added to {target.path}; what it lists is accepted ({counted(len(view.tools), 'tool')})")
    _say_next(name, view, target)


def print_plan(proposal: Proposal, target: Target, given: Mapping[Setting, str]) -> None:
    """Print what would be written. Nothing is started, asked or written."""
    show(proposal_lines(_with_variables(proposal, given), target.path))
    _check(proposal, target, given)
    values: dict[Setting, object] = {}
    for setting in proposal.settings:
        if setting.secret:
            values[setting] = server_parts.reference(proposal.name, setting)
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
        setting: given.get(setting, "0" if setting.table == "args" else server_parts.reference(name, setting))
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
    from codemode_mcp.extensions.setup.doctor.servers import NOT_IN_APPS

    found = REFERENCE.findall(json.dumps(with_values(proposal.entry, given)))
    required = dict.fromkeys(each.removeprefix("env:") for each in found if ":-" not in each)
    names = [cut(name, 60) for name in required if name not in (*PLAIN, "workspaceFolder")]
    if not names:
        return proposal
    where = f'set {" and ".join(names)} where codemode-mcp starts; {NOT_IN_APPS}: use "env" in its own entry'
    return replace(proposal, notes=(*proposal.notes, where))


def _in_files(proposal: Proposal) -> str:
    names = " and ".join(cut(each.title, 60) for each in proposal.settings if each.secret)
    return (
        f"this system has no keyring, so {names} is stored in {secret_values.folder()}, in a file that only you can "
        f"read, and not encrypted; to store nothing, set a variable where codemode-mcp starts, and name it: "
        f"{_by_variable(proposal)}"
    )


def _by_variable(proposal: Proposal) -> str:
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
    from codemode_mcp.extensions.setup.doctor.servers import advice_for

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


def _write(
    entry: dict[str, Any], answers: Answers, target: Target, shown: server_parts.Shown, proposal: Proposal
) -> None:
    """Store the secrets, the pins and the entry. End the command if one of them cannot be stored."""
    name = proposal.name
    from upstream_clients.keychain import NoKeychain

    references: Mapping[Setting, dict[str, str]] = {}
    try:
        if answers.secret:
            references = server_parts.store(name, answers.secret)
    except NoKeychain as error:
        advice = f"give it by a variable: {_by_variable(proposal)}"
        stop_line(1, f"nothing was added: a secret cannot be stored: {error}; {advice}")
    is_written = False
    try:
        change = target.adding(name, with_values(entry, references))
        server_parts.store_pins(shown.pins, target.path)
        target.write(change)
        is_written = True
    finally:
        if not is_written:
            server_parts.forget_pins(name, target.path)
            server_parts.forget_secrets(each["keyring"] for each in references.values())
    server_parts.record_acceptance(shown.pins, target.path)


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


# Questions to the person at the terminal. What was typed before a question is no answer to it.


MAX_ANSWER: Final = 4000
"""Characters of an answer. A terminal drops the rest of a line of more than 4,095 bytes."""

MAX_TEXT: Final = 300
"""Characters of a description, a default or the choices in a question."""

_WORDS: Final = {"env": "the variable", "headers": "the header", "args": "the argument"}


def ask_all(settings: Sequence[Setting], given: Mapping[Setting, str]) -> Answers:
    """Ask for the value of each setting. End the command if a required one stays empty.

    Args:
        given: values that the command line has already.
    """
    plain: dict[Setting, str] = {}
    secret: dict[Setting, str] = {}
    for setting in settings:
        value = given[setting] if setting in given else _ask(setting)
        if value:
            (secret if setting.secret else plain)[setting] = value
    return Answers(plain, secret)


def ask_yes(question: str) -> bool:
    say_line(f"{question} Type yes; anything else: no.")
    return _typed().casefold() in ("yes", "y")


def _ask(setting: Setting) -> str:
    if setting.table == "auth":
        name, about = cut(setting.title, 100), ""
    else:
        name = f"{_WORDS[setting.table]} {cut(setting.name, 60)}"
        about = f": {cut(exact(setting.description), MAX_TEXT)}" if setting.description else ""
    how = "it is not shown while you type" if setting.secret else ""
    if setting.choices:
        how = f"one of {cut(exact(', '.join(setting.choices)), MAX_TEXT)}"
    if setting.default is not None:
        how += f"{'; ' if how else ''}empty for {cut(exact(setting.default), MAX_TEXT)}"
    elif not setting.required:
        how += f"{'; ' if how else ''}empty for none"
    while True:
        say_line(f"Value of {name}{about}{f' ({how})' if how else ''}")
        value = (_typed_hidden() if setting.secret else _typed()) or setting.default or ""
        if len(value.encode()) > MAX_ANSWER:
            stop_line(
                1,
                f"the value of {name} is too long for a terminal; nothing was added; store it with keyring set "
                "codemode-mcp NAME, and write the entry by hand",
            )
        if value and not value.isprintable():
            say_line("That has characters that cannot be printed; type it again.")
        elif setting.choices and value and value not in setting.choices:
            say_line("That is not one of these values; type it again.")
        elif not value and setting.required:
            stop_line(1, f"{name} is needed, and has no value; nothing was added")
        else:
            return value


def _typed() -> str:
    forget_typed()
    sys.stderr.write("> ")
    sys.stderr.flush()
    return sys.stdin.readline().strip()


def _typed_hidden() -> str:
    if sys.platform == "win32":
        import getpass

        return getpass.getpass("> ").strip()
    with _without_echo():
        value = _typed()
    sys.stderr.write("\n")
    return value


@contextmanager
def _without_echo() -> Iterator[None]:
    # Not `getpass`, which reads from another terminal if standard input is not that of the session.
    import termios

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    hidden = [*before]
    hidden[3] = before[3] & ~termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSAFLUSH, hidden)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)


# The text of `add`, `remove` and `enable`: what would run, and what a server lists.
#
# Names, commands and texts may come from a registry or from a server. All of them are escaped, and take one line each.


MAX_TOOLS: Final = 300
"""Tools that a terminal lists."""

MAX_LISTED_TEXT: Final = 110
"""Characters of a description in a list."""

MAX_ENTRY: Final = 4000
"""Characters about an entry. A longer one is refused, since a part of it would not be seen."""

_TABLES: Final = {"env": "variables", "headers": "headers", "args": "arguments", "auth": "credentials"}


def show(lines: Iterable[str]) -> None:
    """Print lines to stderr. On a terminal, the margin of a line is repeated where it is wrapped.

    So no text of a server or a registry begins at the edge, as the lines of this command do.
    """
    from rich.text import Text

    from codemode_mcp.cli import trust_views

    trust_views.show(trust_views.console_for(sys.stderr), (Text(f"  {line}") for line in lines))


def proposal_lines(proposal: Proposal, path: Path) -> Iterator[str]:
    yield f"server {plain(proposal.name)}, {exact(proposal.origin)}"
    yield from entry_lines(proposal.entry, hide=False)
    for table, title in _TABLES.items():
        names = [_named(each) for each in proposal.settings if each.table == table]
        if names:
            yield f"  {title} that it gets: {', '.join(names)}"
    for note in proposal.notes:
        yield f"  {exact(note)}"
    for warning in proposal.warnings:
        yield f"  CAUTION: {exact(warning)}"
    yield f"  is added to {plain(str(path))}"


def entry_lines(entry: Mapping[str, Any], *, hide: bool = True) -> Iterator[str]:
    """Yield the lines about what an entry starts or reaches.

    Args:
        hide: hide literal secrets. A proposal has none, and a person should see each value in it.
    """
    lines = list(_entry_lines(without_secrets(entry) if hide else entry))
    yield from lines
    if any("xn--" in line for line in lines):
        yield "  CAUTION: xn-- stands for letters beyond ASCII, which can look like another host; check the address"


def _entry_lines(entry: Mapping[str, Any]) -> Iterator[str]:
    if "command" in entry:
        yield f"  starts, as you: {command_line(entry)}"
    for key, title in (
        ("url", "connects to"),
        ("serverUrl", "connects to"),
        ("openapi", "reads the API document"),
        ("baseUrl", "requests go to"),
        ("cwd", "cwd"),
        ("envFile", "envFile"),
    ):
        if entry.get(key):
            yield f"  {title}: {exact(str(entry[key]))}"
    for table in ("env", "headers"):
        values = entry.get(table)
        if isinstance(values, dict) and values:
            texts = {name: f"={value}" if isinstance(value, str) else "" for name, value in values.items()}
            yield f"  {table}: {', '.join(_word(name + text) for name, text in texts.items())}"


def command_line(entry: Mapping[str, Any]) -> str:
    """Return the command line of an entry as a shell would read it, with the names of missing values as `<NAME>`."""
    words = [entry.get("command", ""), *(entry.get("args") or ())]
    return " ".join(map(_word, map(str, words)))


def listing_lines(view: UpstreamView, shown: Shown, *, long: bool = False) -> Iterator[str]:
    """Yield the lines about what a server has listed.

    Args:
        long: show all tools and findings.
    """
    version = f" {cut(view.server_version, 40)}" if view.server_version else ""
    own = f" ({cut(view.server_name, 60)}{version})" if view.server_name else ""
    counts = [counted(len(view.tools), "tool")]
    counts += [counted(len(view.prompt_list), "prompt")] if view.prompt_list else []
    counts += [counted(len(view.template_list), "resource template")] if view.template_list else []
    yield f"{plain(view.name)}{own} lists {', '.join(counts)}"
    limit = len(view.tools) if long else MAX_TOOLS
    for tool in view.tools[:limit]:
        first_line = tool.description.strip().partition("\n")[0]
        text = f": {cut(first_line, MAX_LISTED_TEXT)}" if first_line else ""
        yield f"  {cut(tool.name, 80)}{_hints(tool)}{text}"
    if len(view.tools) > limit:
        yield f"  and {len(view.tools) - limit:,} more; --long shows all of them"
    for problem in view.problems[:10]:
        yield f"  note: {cut(problem, 200)}"
    yield from _finding_lines(shown, long=long)


def _finding_lines(shown: Shown, *, long: bool) -> Iterator[str]:
    """Yield the findings, one group for each rule: documents of large APIs have hundreds of a few rules."""
    for group in grouped(shown.findings):
        first, found = group.first, group.found
        count = f", {counted(len(found), 'place')}" if len(found) > 1 else ""
        yield f"  {first.severity}  {first.rule}{count}: {first.message}"
        for report, finding in found if long else group.examples:
            name = cut(reference(report.server, report.kind, report.name), 100)
            yield f"    {name} {plain(finding.where)}: {plain(finding.excerpt)}"
        if not long and len(found) > MAX_EXAMPLES:
            yield "    --long shows all of them"
    if shown.unread:
        yield f"  {counted(shown.unread, 'definition')} not searched for findings; --long searches all of them"


def _hints(tool: Tool) -> str:
    found = [
        word
        for word, is_said in (
            ("read-only", tool.annotations.read_only),
            ("destructive", tool.annotations.destructive and not tool.annotations.read_only),
        )
        if is_said
    ]
    return f" ({', '.join(found)})" if found else ""


def _named(setting: Setting) -> str:
    words = [word for word, holds in (("secret", setting.secret), ("optional", not setting.required)) if holds]
    return exact(setting.title) + (f" ({', '.join(words)})" if words else "")


def _word(text: str) -> str:
    if MARK in text:
        parts = text.split(MARK)
        parts[1::2] = [f"<{each}>" for each in parts[1::2]]
        return exact("".join(parts))
    return exact(shlex.quote(text))
