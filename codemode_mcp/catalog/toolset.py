"""The tools of a catalog that are not MCP tools, and its saved programs.

A toolset is immutable. The manifest of the catalog has the part of a toolset that programs get at their start. The
search index is made on demand.
"""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.base.strict_json import compact_json
from codemode_mcp.base.text import one_line
from codemode_mcp.catalog.entries import Entry, OfferedNamespace, OfferedTool, Source, words_of
from codemode_mcp.catalog.saved_programs.saved_program import SOURCE_NAME, SavedProgram, program_id
from codemode_mcp.catalog.search import Found
from codemode_mcp.rules.policy.policy import Ask, Deny, Policy
from codemode_mcp.rules.policy.rule_patterns import Effects
from declarations.functions import signature
from declarations.names import OBJECT_PROTOTYPE, RESERVED_WORDS, SPECIAL_MEMBERS
from declarations.render import render_tools
from declarations.untrusted_text import HIDDEN
from upstream_clients.tools import Tool

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from codemode_mcp.catalog.search.finder import Finder, Meaning


# The saved programs of a catalog: those that policy does not deny.


EFFECTS: Final = Effects(read_only=True, destructive=False, idempotent=True, open_world=False)
"""Effects of a saved program itself. Each call that it makes is decided by the effects of its own tool."""


SAVED: Final = "programs"
"""The name of saved programs among servers, in searches."""

MAX_WARNING: Final = 1_000
"""Maximum characters of the warning in a declaration file."""


class ProgramSet:
    """The saved programs that the programs of a caller see. It is immutable.

    Attributes:
        programs: the programs in the order of their names.
        entries: their entries, in the same order.
        broken: the names of other programs, whose files have problems.
    """

    def __init__(
        self, programs: Sequence[SavedProgram] = (), meaning: Meaning | None = None, broken: Iterable[str] = ()
    ) -> None:
        self.programs = tuple(programs)
        self.broken = frozenset(broken)
        self.entries = tuple(map(_entry, self.programs))
        self._by_id = {entry.id: (entry, each) for entry, each in zip(self.entries, self.programs, strict=True)}
        self._meaning = meaning
        self._signatures: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self.programs)

    def get(self, entry_id: str) -> Entry | None:
        found = self._by_id.get(entry_id)
        return None if found is None else found[0]

    def program(self, entry_id: str) -> SavedProgram | None:
        found = self._by_id.get(entry_id)
        return None if found is None else found[1]

    def declaration(self, entry: Entry) -> str:
        """Return the text of `programs/<name>.d.ts`, with the warning of the program before it."""
        from declarations.functions import render_program  # imported late: most programs read none

        program = self.program(entry.id)
        warning = "" if program is None or not program.warning else f"// {one_line(program.warning, MAX_WARNING)}\n"
        return warning + render_program(entry.identifier, entry.tool)

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(each.name for each in self.programs)

    @property
    def manifest(self) -> str:
        """The names and ids for the guest, as a member of a JSON object after others; empty without programs."""
        if not self.programs:
            return ""
        return f',"programs":{compact_json([(each.name, each.id) for each in self.programs])}'

    def use_intl(self, source: str) -> bool:
        """Return True if a program with this text may call a saved program that needs the image with `Intl`."""
        return "program" in source and self._any_intl

    @cached_property
    def _any_intl(self) -> bool:
        from codemode_mcp.program.preflight import uses_intl  # imported late: most catalogs have no programs

        return any(uses_intl(each.text) for each in self.programs)

    def signature(self, entry: Entry) -> str:
        text = self._signatures.get(entry.id)
        if text is None:
            text = self._signatures[entry.id] = signature(entry.path, entry.tool, plain=True)
        return text

    def declarations(self) -> str:
        """Return the text of `programs.d.ts`, for an editor."""
        from declarations.functions import render_programs  # imported late: programs do not need it

        return render_programs([(entry.identifier, entry.tool) for entry in self.entries])

    def search(self, query: str, limit: int) -> Found[dict[str, Any]]:
        """Return the best hits, for `API.search` among programs alone."""
        found = self._finder.find(query, limit)
        return Found((self.hit(self.entries[each.number], each.score) for each in found), found.total)

    def hit(self, entry: Entry, score: float) -> dict[str, Any]:
        program = self.program(entry.id)
        return {
            "server": SAVED,
            "path": f"programs/{entry.identifier}.d.ts",
            "call": entry.path,
            "signature": self.signature(entry),
            "effects": entry.effect_words,
            "description": one_line(entry.tool.description),
            "score": score,
            **({"warning": program.warning} if program is not None and program.warning else {}),
        }

    @cached_property
    def _finder(self) -> Finder:
        from codemode_mcp.catalog.search.finder import Finder  # imported for the first search, as in `servers`

        return Finder([(SAVED, entry.tool) for entry in self.entries], self._meaning)


def select_programs(
    programs: Iterable[SavedProgram], policy: Policy, meaning: Meaning | None = None, broken: Iterable[str] = ()
) -> ProgramSet:
    """Return the saved programs that policy does not deny.

    Args:
        broken: the names of programs whose files have problems. Policy decides about these too.
    """
    shown = [each for each in programs if not isinstance(policy.decide(each.id, EFFECTS), Deny)]
    named = [each for each in broken if not isinstance(policy.decide(program_id(each), EFFECTS), Deny)]
    return ProgramSet(shown, meaning, named) if shown or named else NO_PROGRAMS


def _entry(program: SavedProgram) -> Entry:
    tool = Tool(
        name=program.name,
        description=program.description,
        input_schema=program.input_schema,
        output_schema=program.output_schema,
    )
    return Entry(
        id=program_id(program.name),
        source="program",
        source_name=SOURCE_NAME,
        path=f"programs.{program.name}",
        identifier=program.name,
        tool=tool,
        effects=EFFECTS,
    )


NO_PROGRAMS: Final = ProgramSet()


CONTROL: Final = "code_mode"
"""The source of `exec` and `wait`, which are in no catalog."""

NOT_NAMES: Final = OBJECT_PROTOTYPE | RESERVED_WORDS | SPECIAL_MEMBERS | {"search", "describe", "call", "exec", "wait"}
"""Names that cannot be functions of `tools`, because they have another meaning there or on every object."""

MAX_LISTED: Final = 300
"""Maximum number of tools that a program gets as a list at its start. More tools are one text; see `manifest`."""

_OWN: Final = frozenset({"core", "client"})
"""Sources of this product's own tools. A tool of a plugin with the same name has precedence."""

MAX_NAME: Final = 128
"""Maximum length in characters of the name of a function of `tools`."""


class Toolset:
    """The tools of a catalog that are not MCP tools. `select_tools` makes one.

    Attributes:
        entries: the tools, in the order of their ids.
        names: ids of tools by the names of their functions in `tools`.
        namespaces: namespaces of plugins whose tools are all in this toolset.
        programs: saved programs. They are no tools, and neither `ALL_TOOLS` nor `tools` has them.
    """

    def __init__(
        self,
        entries: Sequence[tuple[Entry, str | None]] = (),
        names: Iterable[tuple[str, str]] = (),
        namespaces: Iterable[OfferedNamespace] = (),
        meaning: Meaning | None = None,
        programs: ProgramSet = NO_PROGRAMS,
    ) -> None:
        self._labels = {entry.id: label for entry, label in entries}
        self._by_id = {entry.id: entry for entry, _ in entries}
        self.entries = tuple(self._by_id.values())
        self.names = dict(names)
        self.namespaces = tuple(namespaces)
        self.programs = programs
        self._meaning = meaning
        self._signatures: dict[str, str] = {}
        self._beside: tuple[Finder, frozenset[Source], Sequence[Entry], Finder] | None = None
        """The latest result of `finder_after`, with its arguments."""

    def __len__(self) -> int:
        return len(self.entries)

    def __repr__(self) -> str:
        return f"<Toolset: {len(self.entries)} tools, {len(self.names)} by name, {len(self.namespaces)} namespaces>"

    def with_programs(self, programs: ProgramSet) -> Toolset:
        entries = [(entry, self._labels[entry.id]) for entry in self.entries]
        return Toolset(entries, self.names.items(), self.namespaces, self._meaning, programs)

    def same_as(self, other: Toolset) -> bool:
        return (
            self.manifest == other.manifest
            and self.entries == other.entries
            and self._labels == other._labels
            and self.namespaces == other.namespaces
            and self.programs.programs == other.programs.programs
            and self.programs.broken == other.programs.broken
        )

    @property
    def ids(self) -> Collection[str]:
        return self._by_id.keys()

    def get(self, entry_id: str) -> Entry | None:
        return self._by_id.get(entry_id)

    def label(self, entry: Entry) -> str | None:
        return self._labels[entry.id]

    @cached_property
    def manifest(self) -> str:
        """`ALL_TOOLS` and the names of functions for the guest, as members of a JSON object.

        More than `MAX_LISTED` tools are one text, which the guest parses when a program first uses one of them.
        """
        if len(self) <= MAX_LISTED:
            tools, named = [*map(self.catalog_entry, self.entries)], [*self.names.items()]
            return f'"tools":{compact_json(tools)},"named":{compact_json(named)}{self.programs.manifest}'
        groups = [
            (source, source_name, [self._row(entry) for entry in entries])
            for (source, source_name), entries in groupby(self.entries, lambda entry: (entry.source, entry.source_name))
        ]
        return f'"tools":{compact_json(compact_json(groups))},"named":[]{self.programs.manifest}'

    def _row(self, entry: Entry) -> tuple[str, str, str | None, int]:
        listed = self.catalog_entry(entry)
        return (
            listed["name"],
            listed["description"],
            listed.get("label"),
            int(self.names.get(entry.tool.name) == entry.id),
        )

    def catalog_entry(self, entry: Entry) -> dict[str, Any]:
        label = self._labels[entry.id]
        return {
            "id": entry.id,
            "name": entry.tool.name,
            **({} if label is None else {"label": one_line(label, 80)}),
            "description": one_line(entry.tool.description),
            "source": entry.source,
            "sourceName": entry.source_name,
        }

    def search(self, query: str, limit: int) -> Found[dict[str, Any]]:
        """Return the best hits with their signatures, for `tools.search`."""
        if not self.entries:
            return Found((), 0)
        found = self._finder.find(query, limit)
        return Found((self.hit(self.entries[hit.number], hit.score) for hit in found), found.total)

    def hit(self, entry: Entry, score: float) -> dict[str, Any]:
        found = {"signature": self.signature(entry), "effects": entry.effect_words, "score": score}
        return {**self.catalog_entry(entry), **found}

    def finder_after(self, base: Finder, sources: frozenset[Source]) -> tuple[Sequence[Entry], Finder]:
        """Return the tools and saved programs of these sources, and a search index with them after those of `base`."""
        if self._beside is None or self._beside[0] is not base or self._beside[1] != sources:
            from codemode_mcp.catalog.search.finder import Finder  # imported for the first search, as in `servers`

            entries = [entry for entry in (*self.programs.entries, *self.entries) if entry.source in sources]
            named = [(SAVED if entry.source == "program" else entry.source_name, entry.tool) for entry in entries]
            finder = Finder(named, self._meaning, base) if entries else base
            self._beside = base, sources, entries, finder
        return self._beside[2:]

    def describe(self, entry: Entry) -> dict[str, Any]:
        """Return the description, the schemas and the signature of a tool, for `tools.describe`."""
        tool = entry.tool
        return {
            **self.catalog_entry(entry),
            "description": tool.description,
            "parameters": tool.input_schema,
            **({} if tool.output_schema is None else {"returns": tool.output_schema}),
            "signature": self.signature(entry),
        }

    def declarations(self) -> str:
        """Return the text of `tools.d.ts`, for an editor."""
        named = {tool_id: name for name, tool_id in self.names.items()}
        return render_tools([(entry.id, named.get(entry.id), entry.tool) for entry in self.entries])

    def signature(self, entry: Entry) -> str:
        text = self._signatures.get(entry.id)
        if text is None:
            # In the path of a call by id, `tools.call("id")`, the input is inserted before the closing parenthesis.
            by_id = entry.path.endswith(")")
            text = signature(entry.path.removesuffix(")"), entry.tool, opening=", " if by_id else "(", plain=True)
            self._signatures[entry.id] = text
        return text

    @cached_property
    def _finder(self) -> Finder:
        from codemode_mcp.catalog.search.finder import Finder  # imported for the first search, as in `servers`

        return Finder([(entry.source_name, entry.tool) for entry in self.entries], self._meaning)


NO_TOOLS: Final = Toolset()


def select_tools(
    offered: Iterable[OfferedTool],
    namespaces: Iterable[OfferedNamespace],
    policy: Policy,
    meaning: Meaning | None = None,
    programs: Iterable[SavedProgram] = (),
    broken: Iterable[str] = (),
) -> Toolset:
    """Return what policy does not deny. Of two tools with the same id, the first one counts."""
    kept: dict[str, tuple[OfferedTool, Effects, str]] = {}
    for each in offered:
        effects = Effects.of(each.tool.annotations)
        if each.id in kept or (each.source == "core" and each.source_name == CONTROL):
            continue
        if each.optional and not policy.names(each.id):
            continue
        decision = policy.decide(each.id, effects)
        if not isinstance(decision, Deny):
            words = words_of(effects, each.tool.annotations, asks=isinstance(decision, Ask))
            kept[each.id] = each, effects, words
    chosen = [(tool_id, *kept[tool_id]) for tool_id in sorted(kept)]
    of_plugins = {each.tool.name for _, each, *_ in chosen if each.source not in _OWN}
    may_be_named = [
        (tool_id, each.tool.name)
        for tool_id, each, *_ in chosen
        if each.source not in _OWN or each.tool.name not in of_plugins
    ]
    functions = _functions([name for _, name in may_be_named])
    named = {tool_id: name for tool_id, name in may_be_named if name in functions}
    entries = []
    for tool_id, each, effects, words in chosen:
        is_function = tool_id in named
        entry = entry_of(each.source, each.source_name, each.tool, effects, words, is_function=is_function)
        entries.append((entry, each.label or each.tool.title))
    owned = {(each.source_name, each.tool.name) for _, each, *_ in chosen if each.source == "plugin"}
    visible = [each for each in namespaces if all((each.plugin, required) in owned for required in each.required_tools)]
    return Toolset(
        entries,
        [(name, tool_id) for tool_id, name in named.items()],
        visible,
        meaning,
        select_programs(programs, policy, meaning, broken),
    )


def entry_of(source: Source, source_name: str, tool: Tool, effects: Effects, words: str, *, is_function: bool) -> Entry:
    """Return the entry of a tool that is not an MCP tool. `is_function`: True if it is a function of `tools`."""
    tool_id = f"{source}:{source_name}:{tool.name}"
    path = f"tools.{tool.name}" if is_function else f"tools.call({json.dumps(tool_id, ensure_ascii=False)})"
    return Entry(tool_id, source, source_name, path, tool.name, tool, effects, effect_words=words)


def _functions(names: Sequence[str]) -> set[str]:
    """Return the names that can be functions of `tools`: valid names that exactly one tool has."""
    return {name for name, count in Counter(names).items() if count == 1 and is_function_name(name)}


def is_function_name(name: str) -> bool:
    """Return True if a tool with this name is a function of `tools`, provided that no other tool has the name."""
    return (
        len(name) <= MAX_NAME
        and name not in NOT_NAMES
        # `$` is a letter in JavaScript. Names must be in NFC, so that no two functions have names that look the same.
        and name.replace("$", "_").isidentifier()
        and unicodedata.normalize("NFC", name) == name
        and HIDDEN.search(name) is None
    )
