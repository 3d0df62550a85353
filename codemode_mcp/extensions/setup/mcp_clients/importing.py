"""Plans for importing servers of clients into our configuration. A plan is shown first, and then written or discarded.

Comments in our configuration, and servers that are configured already, are kept. No shown text contains a secret.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct, structs

from codemode_mcp.config.edit_json import with_members
from codemode_mcp.config.literals import REFERENCE, secrets_of
from codemode_mcp.config.nodes import quote
from codemode_mcp.config.servers import ROOT_KEYS
from codemode_mcp.config.source import MAX_BYTES, SourceError
from codemode_mcp.extensions.setup.mcp_clients import dialects
from codemode_mcp.extensions.setup.mcp_clients.client_files import Change, Document, Source, read_file
from codemode_mcp.extensions.setup.mcp_clients.entries import IsThisServer, convert, valid_name
from upstream_clients.json_values import values_in

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from codemode_mcp.extensions.setup.mcp_clients.locations import Machine

Secrets = Literal["keep", "variables"]

Status = Literal["new", "there", "same", "itself", "left out"]

_UNSET: Final = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_()]*)(:-)?")
"""A reference to a variable without a default, or with an empty one."""

_VARIABLE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?:\}|:-)")
"""A reference to a variable, with or without a default."""

_MAX_TARGET: Final = 200
"""Maximum number of characters of the command line or URL that describes a server in a listing."""


class Item(Struct, frozen=True):
    """The decision on one server of a client.

    Attributes:
        source: the index of the server's file among the sources.
        name: the name of the server in the client.
        status: `new`: the server is added as `our_name`. `there`: our configuration already has it as `our_name`.
            `same`: it is added from another file, as `our_name`. `itself`: it is this server. `left out`: it is not
            added, for `reason`.
        target: the command line or URL of the server, without secrets.
        secrets: the keys of the literal secrets in the server's entry.
    """

    source: int
    name: str
    status: Status
    our_name: str = ""
    kind: str = ""
    target: str = ""
    reason: str = ""
    notes: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()


class Variable(Struct, frozen=True):
    """An environment variable that the added servers need.

    Attributes:
        meaning: a description of the value that the variable needs.
        is_set: whether the variable is set in this process.
        differs: whether it is set in this process to a value other than the one in the client's file.
        optional: whether servers start without the variable, with an empty value. If an added server requires a
            variable that is unset, our configuration does not load, and no server starts.
    """

    name: str
    meaning: str
    is_set: bool
    differs: bool = False
    optional: bool = False


class Plan(Struct, frozen=True):
    """The effects of an import.

    Attributes:
        path: our configuration.
        variables: the variables to set before the added servers can start.
        references: the clients' references for our variables, by variable: `${input:api-key}`, `${env:GITHUB_TOKEN}`.
            References of servers that are already configured are included.
        shown: the added entries by name, without secrets.
        change: the change of our configuration; None if nothing is added.
    """

    path: Path
    sources: tuple[Source, ...]
    items: tuple[Item, ...]
    variables: tuple[Variable, ...]
    references: Mapping[str, str]
    shown: Mapping[str, Any]
    change: Change | None

    def of_status(self, *statuses: Status) -> tuple[Item, ...]:
        return tuple(item for item in self.items if item.status in statuses)


class _Candidate(Struct, frozen=True):
    """A server that could be added, with its literal secrets and with variables in place of them.

    Attributes:
        for_secrets: the variables that the second form needs.
        for_inputs: the variables that both forms need.
    """

    item: Item
    literal: dict[str, Any]
    variable: dict[str, Any]
    for_secrets: tuple[Variable, ...]
    for_inputs: tuple[Variable, ...]
    references: Mapping[str, str]


def existing_at(target: Path) -> Document | None:
    """Return our configuration; None if there is none yet.

    Raises:
        SourceError: it cannot be read.
    """
    return read_file(target) if os.path.lexists(target) else None


def make_plan(
    sources: Sequence[Source],
    target: Path,
    before: Document | None,
    machine: Machine,
    secrets: Secrets = "keep",
) -> Plan:
    """Plan an import into the configuration at `target`, and write nothing.

    Raises:
        SourceError: the configuration cannot be changed.
    """
    existing = servers_of(before)
    names = dialects.VariableNames(_referenced(sources))
    items: list[Item] = []
    chosen: dict[str, _Candidate] = {}
    known = {identity(entry): name for name, entry in existing.items() if isinstance(entry, dict)}
    references: dict[str, str] = {}
    for number, source in enumerate(sources):
        for name, entry in source.servers.items():
            try:
                candidate = _candidate(number, name, entry, source, machine, names)
                item = _decide(candidate, known, existing, chosen, source)
            except IsThisServer:
                items.append(Item(number, name, "itself"))
                continue
            except dialects.NotImportable as error:
                items.append(Item(number, name, "left out", reason=str(error)))
                continue
            items.append(item)
            references |= candidate.references
            if item.status == "new":
                chosen[item.our_name] = candidate
                known.setdefault(identity(candidate.literal), item.our_name)
            elif item.status == "same" and "disabled" not in candidate.literal:
                # A server that one client has disabled is enabled if another client uses it.
                first = chosen[item.our_name]
                first.literal.pop("disabled", None)
                first.variable.pop("disabled", None)
    members = {name: each.literal if secrets == "keep" else each.variable for name, each in chosen.items()}
    return Plan(
        path=target,
        sources=tuple(sources),
        items=tuple(items),
        variables=_variables(chosen.values(), members, machine, secrets),
        references=references,
        shown={name: dialects.without_secrets(entry) for name, entry in members.items()},
        change=change_adding(target, before, members) if members else None,
    )


def servers_of(document: Document | None) -> dict[str, Any]:
    """Return the server entries of our configuration.

    Raises:
        SourceError: the configuration is not an object.
    """
    if document is None:
        return {}
    if not isinstance(document.value, dict):
        raise SourceError("does not contain an object; it is not a configuration")
    tables = (document.value.get(key) for key in ROOT_KEYS)
    return {name: entry for table in tables if isinstance(table, dict) for name, entry in table.items()}


def change_adding(target: Path, before: Document | None, members: Mapping[str, Any]) -> Change:
    """Return the change that adds servers to our configuration.

    Args:
        before: our configuration; None to create it.

    Raises:
        SourceError: the configuration cannot be changed safely.
    """
    if before is None:
        text = json.dumps({ROOT_KEYS[0]: members}, ensure_ascii=False, indent=2) + "\n"
        if re.search("[\ud800-\udfff]", text):  # a lone surrogate, which UTF-8 cannot encode
            text = json.dumps({ROOT_KEYS[0]: members}, indent=2) + "\n"
        before = Document(target, None, "", {})
    else:
        root = next((key for key in ROOT_KEYS if isinstance(before.value.get(key), dict)), ROOT_KEYS[0])
        text = with_members(before.text, (root,), members)
    change = replace(before, path=Path(os.path.realpath(target))).change_to(
        text, secret=any(map(secrets_of, members.values()))
    )
    if len(change.text.encode()) > MAX_BYTES:
        raise SourceError(f"has no room for these servers: it may hold {MAX_BYTES // 1024} KiB; import fewer of them")
    return change


def _referenced(sources: Sequence[Source]) -> dict[str, Hashable]:
    """Return the variables that entries refer to, so that no variable for a secret gets the same name."""
    taken: dict[str, Hashable] = {}
    for source in sources:
        for entry in source.servers.values():
            try:
                common, _ = dialects.common_form(source.client, entry) if isinstance(entry, dict) else ({}, ())
            except dialects.NotImportable:
                continue
            taken |= {name: ("reference", name) for name in _VARIABLE.findall(json.dumps(common, default=str))}
    return taken


def _candidate(
    number: int, name: str, entry: object, source: Source, machine: Machine, names: dialects.VariableNames
) -> _Candidate:
    converted = convert(name, entry, source, machine, names)
    variable, uses = dialects.with_variables(converted.entry, name, names)
    for_secrets = []
    for variable_name, secret in uses:
        text: Any = converted.entry
        for key in secret.keys:
            text = text[key]
        meaning = f"{secret.where} of {quote(name)} in {source.path}"
        if (secret.begin, secret.end) != (0, len(text)):
            meaning = f"the secret part of {meaning}"
        value = machine.environ.get(variable_name)
        differs = bool(value) and value != text[secret.begin : secret.end]
        for_secrets.append(Variable(variable_name, meaning, bool(value), differs))
    for_inputs = (
        Variable(each, meaning, bool(machine.environ.get(each)), optional=True) for each, meaning in converted.inputs
    )
    shown = dialects.without_secrets(converted.entry)
    item = Item(
        number,
        name,
        "new",
        kind="stdio" if "command" in shown else shown.get("type", "http"),
        target=_target(shown),
        notes=converted.notes,
        secrets=tuple(dict.fromkeys(secret.where for secret in secrets_of(converted.entry))),
    )
    return _Candidate(item, converted.entry, variable, tuple(for_secrets), tuple(for_inputs), converted.references)


def _target(shown: Mapping[str, Any]) -> str:
    if "url" in shown:
        return str(shown["url"])[:_MAX_TARGET]
    words = [shown["command"], *shown.get("args", ())]
    return " ".join(word if word and not re.search(r"\s", word) else quote(word) for word in words)[:_MAX_TARGET]


def _decide(
    candidate: _Candidate,
    known: Mapping[str, str],
    existing: Mapping[str, Any],
    chosen: Mapping[str, _Candidate],
    source: Source,
) -> Item:
    """Decide whether to add a server, and under which name.

    Args:
        known: the names of the servers that are configured or chosen already, by their identity.

    Raises:
        NotImportable: the server is left out.
    """
    item = candidate.item
    for version in (candidate.literal, candidate.variable):
        same = known.get(identity(version))
        if same is not None:
            if rules := _missing_rules(candidate.literal, existing.get(same) or chosen[same].literal):
                raise dialects.NotImportable(
                    f"{quote(same)} is the same server without its {rules}; add these there, then import again"
                )
            return structs.replace(item, status="there" if same in existing else "same", our_name=same)
    if source.comes_with_folder:
        raise dialects.NotImportable(
            f"others may have written it, in this folder; read it, then name it with --from {source.path}"
        )
    name = valid_name(item.name)
    if name not in chosen and name not in existing:
        if name == item.name:
            return structs.replace(item, our_name=name)
        renamed = f"named {quote(name)}: {quote(item.name)} has characters that no name here can have"
        return structs.replace(item, our_name=name, notes=(*item.notes, renamed))
    suffix = source.client or "file"
    names = [f"{name}-{suffix}", f"{name}-{suffix}-{source.scope}"]
    names += [f"{name}-{suffix}-{number}" for number in range(2, len(chosen) + len(existing) + 3)]
    free = next(each for each in names if each not in chosen and each not in existing)
    other = "our configuration" if name in existing else "another file"
    return structs.replace(
        item, our_name=free, notes=(*item.notes, f"named {quote(free)}: {other} has another {quote(name)}")
    )


def _missing_rules(entry: Mapping[str, Any], other: object) -> str:
    rules = other if isinstance(other, dict) else {}
    return " and ".join(f"`{key}`" for key in ("allow", "deny") if entry.get(key) and entry[key] != rules.get(key))


def identity(entry: Mapping[str, Any]) -> str:
    """Return the key of an entry. Entries have the same key if they start or reach the same server in the same way."""
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


def _variables(
    chosen: Iterable[_Candidate], members: Mapping[str, Any], machine: Machine, secrets: Secrets
) -> tuple[Variable, ...]:
    found: dict[str, Variable] = {}
    for candidate in chosen:
        for each in (*candidate.for_inputs, *(candidate.for_secrets if secrets == "variables" else ())):
            found.setdefault(each.name, each)
    for name, entry in members.items():
        texts = [each for each in values_in(entry) if isinstance(each, str)]  # keys are not resolved
        for reference in REFERENCE.findall("\n".join(texts)):
            variable = _UNSET.fullmatch(reference)
            if variable and machine.environ.get(variable[1]) is None:
                optional = variable[2] is not None
                found.setdefault(variable[1], Variable(variable[1], f"used by {quote(name)}", False, optional=optional))
    return tuple(found.values())
