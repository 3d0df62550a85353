"""Versions and proposals of saved programs, their differences, and the tools that they use. Pure.

A version is pinned to the definitions of the tools that its text names. So a person learns that a tool has changed
since, before the program is run unattended.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct, structs

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.catalog.saved_programs.saved_program import file_name
from codemode_mcp.program.preflight import UseFinder
from codemode_mcp.program.syntax import parse, utf16_units
from codemode_mcp.rules.trust.items import tool_item

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from upstream_clients.tools import Tool


# The tools that a saved program uses, as its text names them, with the digests of their definitions.


MAX_TOOLS: Final = 500
"""Maximum number of tools of one program that are recorded."""

_TOOLS: Final = re.compile(r"(?<![\w$.])tools(?![\w$])")
"""The global by which a program reaches tools of plugins, whose names may be computed."""


class Names(Struct, frozen=True):
    """The names in a text.

    Attributes:
        paths: such as `MCP.github.createIssue`, in alphabetical order.
        complete: False if the program may use tools that its text does not name.
    """

    paths: tuple[str, ...]
    complete: bool


class UsedTool(Struct, frozen=True):
    """A tool that a program uses, with its definition at one time.

    Attributes:
        path: the expression in the program.
        server: the configured name of its server.
        tool: the name of the tool.
        digest: the digest of the definition, as pins have it; empty if there was no such tool.
        shape: the digest without titles, descriptions and comments.
    """

    path: str
    server: str = ""
    tool: str = ""
    digest: str = ""
    shape: str = ""


Definition = tuple[str, "Tool"]
"""The configured name of a server, and a tool as it lists it."""

What = Literal["other", "new", "gone", "changed", "text_changed"]


class DefinitionChange(Struct, frozen=True):
    """A difference between the definition to which a version is pinned and the present one.

    Attributes:
        what: `other`: the path leads to another tool now.
        tools: for `other`, the tool to which the version is pinned, and the present one, in words.
    """

    path: str
    what: What
    tools: tuple[str, str] = ("", "")

    def __str__(self) -> str:
        if self.what == "other":
            return f"{self.path} was {self.tools[0]}, and is {self.tools[1]} now"
        return f"{self.path} {_WORDS[self.what]}"


_WORDS: Final[dict[What, str]] = {
    "other": "is another tool now",
    "new": "exists now",
    "gone": "cannot be used now: its server does not list it, or it is held",
    "changed": "has another definition",
    "text_changed": "has another description",
}


def unusable(changes: Iterable[DefinitionChange]) -> str | None:
    """Return the reason why changes cannot be accepted: a tool cannot be used; None if they can."""
    paths = [each.path for each in changes if each.what == "gone"]
    if not paths:
        return None
    return (
        f"{', '.join(paths[:5])} cannot be used now; if it is held, decide about it first (codemode-mcp trust status), "
        "and if it is gone, change the program"
    )


def names_in(text: str) -> Names:
    units = utf16_units(text)
    tree = parse(units)
    if tree is None:
        return Names((), False)
    finder = UseFinder(units)
    finder.read(tree)
    members = finder.members()
    complete = members is not None and all(name is not None for _, name in members) and _TOOLS.search(units) is None
    paths = {f"MCP.{server}.{name}" for server, name in members or () if name is not None and name != "$api"}
    return Names(tuple(sorted(paths)[:MAX_TOOLS]), complete and len(paths) <= MAX_TOOLS)


def used_tools(names: Names, find: Callable[[str], Definition | None]) -> tuple[UsedTool, ...]:
    """Return the tools of names, with their present definitions.

    Args:
        find: returns the tool at a path; None if there is none.
    """
    return tuple(used_tool(path, find(path)) for path in names.paths)


def used_tool(path: str, found: Definition | None) -> UsedTool:
    if found is None:
        return UsedTool(path)
    server, tool = found
    item = tool_item(tool)
    return UsedTool(path, server, tool.name, item.digest, item.shape_digest)


def compare_tools(pinned: Iterable[UsedTool], present: Callable[[UsedTool], UsedTool | None]) -> list[DefinitionChange]:
    """Return the changes of definitions.

    Args:
        present: returns the same tool with its present definition; None if it is not known now.
    """
    changes = []
    for before in pinned:
        now = present(before)
        if now is None:
            continue
        if is_redirected(before, now):
            changes.append(DefinitionChange(before.path, "other", (_words(before), _words(now))))
            continue
        if (now.digest, now.shape) == (before.digest, before.shape):
            continue
        what: What
        if not now.digest or not before.digest:
            what = "new" if now.digest else "gone"
        else:
            what = "text_changed" if now.shape == before.shape else "changed"
        changes.append(DefinitionChange(before.path, what))
    return changes


def is_redirected(before: UsedTool, now: UsedTool) -> bool:
    """Return True if the same path leads to another tool than before."""
    return bool(before.server and now.server) and (before.server, before.tool) != (now.server, now.tool)


def _words(used: UsedTool) -> str:
    return f"{used.tool!r} of server {used.server!r}"


MAX_VERSIONS: Final = 20
"""Maximum number of versions of one program that are kept, the latest ones."""

MAX_TEXTS: Final = 2
"""Number of latest versions whose texts are kept, to show what has changed."""

BY_FILE: Final = "a person, in the file"
"""The author of a version that was found in the folder."""


class Version(Struct, frozen=True):
    """One version of a saved program.

    Attributes:
        by: who has accepted or written it, in words.
        at: Unix seconds.
        text: the file; None for an older version.
        tools: the tools that it uses; None while their definitions are not known yet.
        complete: False if it may use tools that its text does not name.
        proposed_by: the name of the caller that has proposed it; None for a version that was not proposed.
        run: the run that has proposed it.
    """

    digest: str
    by: str
    at: float
    text: str | None = None
    tools: tuple[UsedTool, ...] | None = None
    complete: bool = True
    proposed_by: str | None = None
    run: str | None = None


class History(Struct, frozen=True):
    """The versions of one program, the oldest first.

    Attributes:
        announced: the version of a proposal whose file a process has begun to write. The process may have been killed
            before or after it wrote the file, so only the text of the file tells whether this is a version.
    """

    name: str
    versions: tuple[Version, ...] = ()
    announced: Version | None = None

    @property
    def latest(self) -> Version | None:
        return self.versions[-1] if self.versions else None

    def of(self, digest: str) -> Version | None:
        """Return the announced or the latest version if it has this text; None otherwise."""
        for each in (self.announced, self.latest):
            if each is not None and each.digest == digest:
                return each
        return None

    def announcing(self, version: Version, digest: str | None) -> History:
        """Return the history before the file of a version is written.

        Args:
            digest: the digest of the present file.
        """
        earlier = self.announced
        kept = self if earlier is None or earlier.digest != digest else self.with_version(earlier)
        return structs.replace(kept, announced=version)

    def without_announced(self, version: Version) -> History:
        """Return the history after the file of an announced version could not be written."""
        return structs.replace(self, announced=None) if self.announced == version else self

    def with_version(self, version: Version) -> History:
        """Return the history with a new version, or with the same version pinned again."""
        is_same = self.latest is not None and self.latest.digest == version.digest
        before = self.versions[:-1] if is_same else self.versions
        kept = (*before, version)[-MAX_VERSIONS:]
        old, new = kept[:-MAX_TEXTS], kept[-MAX_TEXTS:]
        announced = self.announced
        if announced is not None and announced.digest == version.digest:
            announced = None
        return structs.replace(
            self, versions=(*(structs.replace(each, text=None) for each in old), *new), announced=announced
        )


def changes_since(
    version: Version | None, present: Callable[[UsedTool], UsedTool | None]
) -> Sequence[DefinitionChange]:
    return () if version is None or version.tools is None else compare_tools(version.tools, present)


# Programs that models propose to save, and what a person has rejected of them.
#
# A proposal changes nothing until a person accepts it. Its text and description come from a model, so they are bounded
# here, and shown with misleading characters escaped.


MAX_PROPOSALS: Final = 100
"""Maximum number of proposals for one configuration."""

MAX_PROPOSALS_PER_OWNER: Final = 20

MAX_BYTES: Final = 4 * 1024 * 1024
"""Maximum bytes of the texts of all proposals together."""

MAX_REJECTED: Final = 500
"""Maximum number of rejected texts that are remembered, the latest ones."""

Status = Literal["proposed", "saved", "rejected"]


class Author(Struct, frozen=True):
    """The origin of a proposal.

    Attributes:
        owner: the owner of the run that made it.
        principal: the name of the caller; None if it is not known.
        kind: the transport of the client.
        run: the id of the run.
    """

    owner: str
    principal: str | None
    kind: Literal["stdio", "http"]
    run: str

    @property
    def words(self) -> str:
        return f"{self.principal or 'an unnamed caller'}{' over HTTP' if self.kind == 'http' else ''}"


class Proposal(Struct, frozen=True):
    """A program that waits for a person.

    Attributes:
        text: the whole file, as it would be written.
        digest: the digest of the text.
        at: Unix seconds.
        tools: the tools that it uses, with their definitions as its run saw them.
        complete: False if it may use tools that its text does not name.
    """

    name: str
    language: Literal["javascript", "typescript"]
    text: str
    digest: str
    description: str
    author: Author
    at: float
    tools: tuple[UsedTool, ...] = ()
    complete: bool = True

    @property
    def file(self) -> str:
        return file_name(self.name, self.language)


class Proposals(Struct, frozen=True):
    """All proposals for one configuration.

    Attributes:
        waiting: the proposals, the oldest first.
        rejected: names and digests of rejected texts, the oldest first.
    """

    waiting: tuple[Proposal, ...] = ()
    rejected: tuple[tuple[str, str], ...] = ()

    def named(self, name: str) -> tuple[Proposal, ...]:
        """Return the proposals with a name, each of another owner or text."""
        return tuple(each for each in self.waiting if each.name == name)


def propose(known: Proposals, new: Proposal) -> tuple[Proposals, Status]:
    """Add a proposal, and return its status.

    The same text under the same name is the same proposal, also of another owner. Another text of the same owner
    replaces the owner's earlier proposal with this name.

    Raises:
        ProgramError: there is no room. Nothing was added.
    """
    if (new.name, new.digest) in known.rejected:
        return known, "rejected"
    if any((each.name, each.digest) == (new.name, new.digest) for each in known.waiting):
        return known, "proposed"
    left = [each for each in known.waiting if (each.name, each.author.owner) != (new.name, new.author.owner)]
    own = sum(each.author.owner == new.author.owner for each in left)
    size = sum(len(each.text.encode("utf-8", "surrogatepass")) for each in (*left, new))
    if own >= MAX_PROPOSALS_PER_OWNER or len(left) >= MAX_PROPOSALS or size > MAX_BYTES:
        raise ProgramError(
            "nested_tool_failed",
            f"save_program({new.name!r}): {len(left)} proposed programs wait for a person already, and there is no "
            "room for another one; ask the user to accept or reject some of them: codemode-mcp programs list",
        )
    return structs.replace(known, waiting=(*left, new)), "proposed"


def settle(known: Proposals, name: str, digest: str, *, rejected: bool) -> Proposals:
    """Remove a proposal that a person has decided about. Other proposals of an accepted text go with it."""
    waiting = tuple(each for each in known.waiting if (each.name, each.digest) != (name, digest))
    if not rejected:
        return Proposals(waiting, tuple(each for each in known.rejected if each != (name, digest)))
    others = tuple(each for each in known.rejected if each != (name, digest))
    return Proposals(waiting, (*others, (name, digest))[-MAX_REJECTED:])


MAX_PAIRS: Final = 1_000_000
"""Maximum number of pairs of lines that are compared. `difflib` takes cubic time for hostile texts."""

CONTEXT: Final = 2
"""Number of equal lines that are shown around a difference."""


def different_lines(before: str, after: str) -> Iterator[str]:
    """Yield the lines of a unified difference, without its head. Of long texts, all lines are shown as different."""
    old, new = before.split("\n"), after.split("\n")
    if len(old) * len(new) > MAX_PAIRS:
        yield f"@@ all lines: -{len(old)} +{len(new)}; the texts are too long to compare"
        yield from (f"-{line}" for line in old)
        yield from (f"+{line}" for line in new)
        return
    for number, line in enumerate(difflib.unified_diff(old, new, lineterm="", n=CONTEXT)):
        if number >= 2:  # after the lines with the names of the files
            yield line
