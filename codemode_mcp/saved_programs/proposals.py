"""Programs that models propose to save, and what a person has rejected of them. Pure.

A proposal changes nothing until a person accepts it. Its text and description come from a model, so they are bounded
here, and shown with misleading characters escaped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from codemode_mcp.errors import ProgramError
from codemode_mcp.saved_programs.saved_program import file_name
from codemode_mcp.saved_programs.used_tools import UsedTool  # noqa: TC001 - msgspec reads it

MAX_PROPOSALS: Final = 100
"""Maximum number of proposals for one configuration."""

MAX_PROPOSALS_PER_OWNER: Final = 20

MAX_BYTES: Final = 4 * 1024 * 1024
"""Maximum bytes of the texts of all proposals together."""

MAX_REJECTED: Final = 500
"""Maximum number of rejected texts that are remembered, the latest ones."""

Status = Literal["proposed", "saved", "rejected"]


@dataclass(frozen=True, slots=True)
class Author:
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
        """The caller in words."""
        return f"{self.principal or 'an unnamed caller'}{' over HTTP' if self.kind == 'http' else ''}"


@dataclass(frozen=True, slots=True)
class Proposal:
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
        """The name of the file in the folder."""
        return file_name(self.name, self.language)


@dataclass(frozen=True, slots=True)
class Proposals:
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
    return replace(known, waiting=(*left, new)), "proposed"


def settle(known: Proposals, name: str, digest: str, *, rejected: bool) -> Proposals:
    """Remove a proposal that a person has decided about. Other proposals of an accepted text go with it."""
    waiting = tuple(each for each in known.waiting if (each.name, each.digest) != (name, digest))
    if not rejected:
        return Proposals(waiting, tuple(each for each in known.rejected if each != (name, digest)))
    others = tuple(each for each in known.rejected if each != (name, digest))
    return Proposals(waiting, (*others, (name, digest))[-MAX_REJECTED:])
