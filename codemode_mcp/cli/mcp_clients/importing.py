"""The plan of an import from clients into our configuration: a value, which is shown, and then written or not.

Servers that are configured already are kept as they are, and so are comments. Nothing that is shown holds a secret.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from codemode_mcp.cli.mcp_clients.dialects import LeftOut, shared
from codemode_mcp.cli.mcp_clients.entries import Itself, convert, fitting_name, is_this_server, loads
from codemode_mcp.cli.mcp_clients.places import OWN_CODE_MODE, TITLES
from codemode_mcp.cli.mcp_clients.reading import read_clients, read_file
from codemode_mcp.cli.mcp_clients.secrets import Names, with_variables, without_secrets
from codemode_mcp.config.edit import replace_file
from codemode_mcp.config.edit_json import with_members
from codemode_mcp.config.literals import REFERENCE, secrets_of
from codemode_mcp.config.nodes import quote
from codemode_mcp.config.servers import ROOT_KEYS
from codemode_mcp.config.source import MAX_BYTES, SourceError
from upstream_clients.private_files import make_private_folder

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from codemode_mcp.cli.mcp_clients.reading import Document, Here, Source

Secrets = Literal["keep", "variables"]

Status = Literal["new", "there", "same", "itself", "left out"]

_UNSET: Final = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_()]*)(:-)?")
"""A reference to a variable that has no value of its own for when it is not set."""

_VARIABLE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?:\}|:-)")
"""A reference to a variable, with or without a default."""

_WORDS_SHOWN: Final = 200
"""Characters of a command line or URL that stand for a server in a listing."""


@dataclass(frozen=True, slots=True)
class Item:
    """Decision on one server of a client.

    Attributes:
        source: the number of the file it is from.
        name: as the client has it.
        status: `new`: it is added as `under`; `there`: our configuration has it as `under`; `same`: another file has it
            too, and it is added from there; `itself`: it starts this server; `left out`: see `reason`.
        what: its command line or URL, without secrets.
        secrets: where the literal ones are, by key.
    """

    source: int
    name: str
    status: Status
    under: str = ""
    kind: str = ""
    what: str = ""
    reason: str = ""
    notes: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable that the added servers need.

    Attributes:
        what: whose value it has to have, in words.
        is_set: whether it has one here; `is_other` whether that is not the one of the file.
        optional: whether it is empty while it is not set; else nothing starts.
    """

    name: str
    what: str
    is_set: bool
    is_other: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Effects of an import.

    Attributes:
        variables: what has to be set before the added servers can start.
        references: how the clients write what our variables stand for, by the name of the variable: `${input:api-key}`,
            `${env:GITHUB_TOKEN}`; of all servers that are taken.
        shown: the entries that are added, by name, without secrets.
        text: what the file would hold, secrets included; None where nothing changes.
        before: what it holds; None for no file.
        private: whether the new text has literal secrets.
    """

    path: Path
    sources: tuple[Source, ...]
    items: tuple[Item, ...]
    variables: tuple[Variable, ...]
    references: Mapping[str, str]
    shown: Mapping[str, Any]
    text: str | None = field(repr=False)
    before: bytes | None = field(repr=False)
    private: bool

    @property
    def added(self) -> tuple[Item, ...]:
        return tuple(item for item in self.items if item.status == "new")

    @property
    def taken(self) -> dict[str, str]:
        """Our names of all servers that will be behind us, by the clients' names, those that were there included."""
        return {item.name: item.under for item in self.items if item.status in ("new", "there", "same")}

    @property
    def left(self) -> dict[str, str]:
        """Return the reasons of the servers that stay, by the clients' names."""
        return {item.name: item.reason for item in self.items if item.status == "left out"}

    @property
    def itself(self) -> tuple[str, ...]:
        """The names of entries that start this server."""
        return tuple(item.name for item in self.items if item.status == "itself")


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A server that could be added: as it is, and with variables in the place of its secrets."""

    item: Item
    literal: dict[str, Any]
    variable: dict[str, Any]
    needs: tuple[Variable, ...]
    asked: tuple[Variable, ...]
    references: Mapping[str, str]

    def entry(self, secrets: Secrets) -> dict[str, Any]:
        return self.literal if secrets == "keep" else self.variable


def _referenced(sources: Sequence[Source]) -> dict[str, Hashable]:
    """Return the variables that entries refer to, as taken: a secret of another entry must get a name of its own."""
    taken: dict[str, Hashable] = {}
    for source in sources:
        for given in source.servers.values():
            if not isinstance(given, dict):
                continue
            try:
                words, _ = shared(source.client, given)
            except LeftOut:
                continue
            taken |= {name: ("reference", name) for name in _VARIABLE.findall(json.dumps(words, default=str))}
    return taken


def existing_at(target: Path) -> Document | None:
    """Return our configuration as it is; None where there is none yet.

    Raises:
        SourceError: it cannot be read.
    """
    return read_file(target) if os.path.lexists(target) else None


def make_plan(
    sources: Sequence[Source],
    target: Path,
    before: Document | None,
    here: Here,
    secrets: Secrets = "keep",
    *,
    disable_unset: bool = False,
) -> Plan:
    """Return the effects of an import on the configuration at `target`. Writes nothing.

    Args:
        disable_unset: whether a server is added as disabled when a variable that it cannot do without is not set here;
            with it in use, the configuration could not be loaded at all.

    Raises:
        SourceError: that cannot be changed.
    """
    existing, root = _servers_of(before)
    names = Names(_referenced(sources))
    items: list[Item] = []
    chosen: dict[str, _Candidate] = {}
    known = {essence(entry): name for name, entry in existing.items() if isinstance(entry, dict)}
    references: dict[str, str] = {}
    for number, source in enumerate(sources):
        for name, given in source.servers.items():
            try:
                candidate = _candidate(number, name, given, source, here, names)
            except Itself:
                items.append(Item(number, name, "itself"))
                continue
            except LeftOut as error:
                items.append(Item(number, name, "left out", reason=str(error)))
                continue
            item = _placed(candidate, known, existing, chosen, source)
            if item.status in ("there", "same") and (
                rules := _stricter(candidate.literal, existing.get(item.under) or chosen[item.under].literal)
            ):
                reason = (
                    f"{quote(item.under)} is the same server without its {rules}; add these there, then import again"
                )
                items.append(Item(number, name, "left out", reason=reason))
                continue
            if source.by_others and item.status == "new":
                reason = f"others may have written it, in this folder; read it, then name it with --from {source.path}"
                items.append(Item(number, name, "left out", reason=reason))
                continue
            if disable_unset and item.status == "new" and not loads(candidate.literal, here):
                candidate.literal["disabled"] = True
                note = "disabled, since a variable that it needs is not set: set it and remove `disabled`"
                item = replace(item, notes=(*item.notes, note))
            items.append(item)
            references |= candidate.references
            if item.status == "new":
                chosen[item.under] = candidate
                known.setdefault(essence(candidate.literal), item.under)
            elif item.status == "same" and "disabled" not in candidate.literal:
                # What one client has switched off and another uses is in use.
                first = chosen[item.under]
                first.literal.pop("disabled", None)
                first.variable.pop("disabled", None)
    members = {name: candidate.entry(secrets) for name, candidate in chosen.items()}
    private = any(secrets_of(entry) for entry in members.values())
    return Plan(
        path=target,
        sources=tuple(sources),
        items=tuple(items),
        variables=_variables(chosen.values(), members, here, secrets),
        references=references,
        shown={name: without_secrets(entry) for name, entry in members.items()},
        text=_text(before, root, members),
        before=None if before is None else before.data,
        private=private,
    )


def write(plan: Plan) -> Path | None:
    """Write what the plan says, for the user's eyes only where it holds secrets. The backup, if there was a file.

    Raises:
        OSError: it cannot be written; it is as before.
        ChangedMeanwhileError: it is another one than when the plan was made.
    """
    assert plan.text is not None
    path = Path(os.path.realpath(plan.path))
    make_private_folder(path.parent)
    if plan.private and plan.before is not None:
        # Before there is anything to read in it; the new file gets the mode of the old one.
        path.chmod(0o600)
    return replace_file(path, plan.before, plan.text)


# the configuration


def _servers_of(document: Document | None) -> tuple[dict[str, Any], str]:
    """Return the servers of our configuration, and the key under which it has them."""
    if document is None:
        return {}, ROOT_KEYS[0]
    if not isinstance(document.value, dict):
        raise SourceError("does not hold an object; it is no configuration")
    roots = {key: document.value[key] for key in ROOT_KEYS if isinstance(document.value.get(key), dict)}
    merged = {name: entry for key in ROOT_KEYS for name, entry in roots.get(key, {}).items()}
    return merged, ROOT_KEYS[0] if ROOT_KEYS[0] in roots or not roots else ROOT_KEYS[1]


def _text(before: Document | None, root: str, members: Mapping[str, Any]) -> str | None:
    if not members:
        return None
    if before is None:
        text = json.dumps({root: members}, ensure_ascii=False, indent=2) + "\n"
        if not _encodable(text):
            text = json.dumps({root: members}, indent=2) + "\n"
    else:
        mark = "\ufeff" if before.data.startswith(b"\xef\xbb\xbf") else ""
        text = mark + with_members(before.text, (root,), members)
    if len(text.encode()) > MAX_BYTES:
        raise SourceError(f"has no room for these servers: it may hold {MAX_BYTES // 1024} KiB; import fewer of them")
    return text


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# one server


def _candidate(number: int, name: str, given: object, source: Source, here: Here, names: Names) -> _Candidate:
    converted = convert(name, given, source, here, names)
    variable, uses = with_variables(converted.entry, name, names)
    needs = []
    for variable_name, secret in uses:
        text: Any = converted.entry
        for key in secret.keys:
            text = text[key]
        what = f"{secret.where} of {quote(name)} in {source.path}"
        if (secret.begin, secret.end) != (0, len(text)):
            what = f"the secret part of {what}"
        value = here.environ.get(variable_name)
        needs.append(
            Variable(variable_name, what, bool(value), bool(value) and value != text[secret.begin : secret.end])
        )
    asked = tuple(Variable(each, what, bool(here.environ.get(each)), optional=True) for each, what in converted.asked)
    shown = without_secrets(converted.entry)
    item = Item(
        number,
        name,
        "new",
        kind="stdio" if "command" in shown else shown.get("type", "http"),
        what=_line(shown),
        notes=converted.notes,
        secrets=tuple(dict.fromkeys(secret.where for secret in secrets_of(converted.entry))),
    )
    return _Candidate(item, converted.entry, variable, tuple(needs), asked, converted.references)


def _line(shown: Mapping[str, Any]) -> str:
    """Return a command line or a URL, for people."""
    if "url" in shown:
        return str(shown["url"])[:_WORDS_SHOWN]
    words = [shown["command"], *shown.get("args", ())]
    return " ".join(word if word and not re.search(r"\s", word) else quote(word) for word in words)[:_WORDS_SHOWN]


def _placed(
    candidate: _Candidate,
    known: Mapping[str, str],
    existing: Mapping[str, Any],
    chosen: Mapping[str, _Candidate],
    source: Source,
) -> Item:
    """Decide on a server, beside ours and the chosen ones; `known` names both by essence."""
    item = candidate.item
    name = fitting_name(item.name)
    for version in (candidate.literal, candidate.variable):
        under = known.get(essence(version))
        if under is not None:
            return replace(item, status="there" if under in existing else "same", under=under)
    if name != item.name and name not in chosen and name not in existing:
        renamed = f"named {quote(name)}: {quote(item.name)} has characters that no name here can have"
        return replace(item, under=name, notes=(*item.notes, renamed))
    if name not in chosen and name not in existing:
        return replace(item, under=name)
    suffix = source.client or "file"
    names = [f"{name}-{suffix}", f"{name}-{suffix}-{source.scope}"]
    names += [f"{name}-{suffix}-{number}" for number in range(2, len(chosen) + len(existing) + 3)]
    free = next(each for each in names if each not in chosen and each not in existing)
    other = "our configuration" if name in existing else "another file"
    return replace(item, under=free, notes=(*item.notes, f"named {quote(free)}: {other} has another {quote(name)}"))


def _stricter(entry: Mapping[str, Any], other: object) -> str:
    """Return the rules about tools that an entry has and the same server under another name has not, in words."""
    has = other if isinstance(other, dict) else {}
    return " and ".join(f"`{key}`" for key in ("allow", "deny") if entry.get(key) and entry[key] != has.get(key))


def essence(entry: Mapping[str, Any]) -> str:
    """Return the target of an entry as text, equal for entries that start or reach the same."""
    kept = {
        key: entry[key] for key in ("command", "args", "env", "cwd", "envFile", "headers", "auth") if entry.get(key)
    }
    if isinstance(kept.get("env"), dict):
        kept["env"] = {name: value for name, value in kept["env"].items() if value is not None}
    if url := entry.get("url") or entry.get("serverUrl"):
        kept["url"] = url.rstrip("/") if isinstance(url, str) else url
        if "sse" in (entry.get("type"), entry.get("transport")):
            kept["type"] = "sse"
    text = json.dumps(kept, sort_keys=True)
    return re.sub(r"\$\{(?:env:)?([^{}:]+)(?::-)?\}", r"${\1}", text)


# variables


def _variables(
    chosen: Iterable[_Candidate], members: Mapping[str, Any], here: Here, secrets: Secrets
) -> tuple[Variable, ...]:
    """Return the variables to set before the servers can start; each once."""
    found: dict[str, Variable] = {}
    for candidate in chosen:
        for each in (*candidate.asked, *(candidate.needs if secrets == "variables" else ())):
            found.setdefault(each.name, each)
    for name, entry in members.items():
        for text in _strings(entry):
            for match in REFERENCE.finditer(text):
                variable = _UNSET.fullmatch(match[1])
                if variable and here.environ.get(variable[1]) is None:
                    what, optional = f"used by {quote(name)}", variable[2] is not None
                    found.setdefault(variable[1], Variable(variable[1], what, is_set=False, optional=optional))
    return tuple(found.values())


def _strings(value: object) -> Iterable[str]:
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from _strings(item)
        case dict():
            for item in value.values():
                yield from _strings(item)


# what two have in common


@dataclass(frozen=True, slots=True)
class Shared:
    """A server that a client starts itself, although it is behind this server, which the client starts too."""

    source: Source
    name: str
    under: str


def shared_servers(sources: Iterable[Source], ours: Mapping[str, Any], here: Here) -> tuple[Shared, ...]:
    """Return the servers that clients start directly and through us. Pure.

    Args:
        ours: the entries of our configuration, as they are written.
    """
    known = {essence(entry): name for name, entry in ours.items() if isinstance(entry, dict)}
    found: list[Shared] = []
    by_client: dict[str | None, list[Source]] = {}
    for source in sources:
        by_client.setdefault(source.client, []).append(source)
    for each in by_client.values():
        names = Names()
        direct: list[tuple[Source, str, dict[str, Any], dict[str, Any]]] = []
        through_us = False
        for source in each:
            for name, given in source.servers.items():
                try:
                    literal = convert(name, given, source, here, names).entry
                except Itself:
                    through_us = through_us or not (isinstance(given, dict) and given.get("disabled") is True)
                    continue
                except LeftOut:
                    continue
                if "disabled" not in literal:
                    direct.append((source, name, literal, with_variables(literal, name, names)[0]))
        if through_us:
            found += [
                Shared(source, name, under)
                for source, name, literal, variable in direct
                if (under := known.get(essence(literal)) or known.get(essence(variable)))
            ]
    return tuple(found)


def told_of_shared(config_path: Path | None, here: Here) -> tuple[str, ...]:
    """Return a sentence for each client of this machine that starts servers directly and through us."""
    if config_path is None:
        return ()
    try:
        ours, _ = _servers_of(existing_at(config_path))
    except SourceError:
        return ()
    told = []
    shared = shared_servers(read_clients(here), ours, here)
    for path in dict.fromkeys(each.source.path for each in shared):
        found = [each for each in shared if each.source.path == path]
        names = ", ".join(dict.fromkeys(quote(each.name) for each in found))
        told.append(
            f"{found[0].source.title} starts {names} itself and through codemode-mcp; "
            f"remove {'it' if len(found) == 1 else 'them'} from {path}"
        )
    return tuple(told)


def clients_with_code_mode(here: Here) -> tuple[str, ...]:
    """Return the titles of clients that start this server and have a code mode of their own."""
    found = {
        source.client
        for source in read_clients(here, OWN_CODE_MODE)
        if any(is_this_server(given, source.client) for given in source.servers.values())
    }
    return tuple(TITLES[client] for client in OWN_CODE_MODE if client in found)
