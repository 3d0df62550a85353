"""The versions of saved programs: who has accepted or written which text, and the tools that it uses. Pure.

A version is pinned to the definitions of the tools that its text names. So a person learns that a tool has changed
since, before the program is run unattended.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from codemode_mcp.saved_programs.used_tools import UsedTool, compare_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from codemode_mcp.saved_programs.used_tools import DefinitionChange

MAX_VERSIONS: Final = 20
"""Maximum number of versions of one program that are kept, the latest ones."""

MAX_TEXTS: Final = 2
"""Number of latest versions whose texts are kept, to show what has changed."""

BY_FILE: Final = "a person, in the file"
"""The author of a version that was found in the folder."""


@dataclass(frozen=True, slots=True)
class Version:
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


@dataclass(frozen=True, slots=True)
class History:
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
        """The latest version."""
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
        return replace(kept, announced=version)

    def without_announced(self, version: Version) -> History:
        """Return the history after the file of an announced version could not be written."""
        return replace(self, announced=None) if self.announced == version else self

    def with_version(self, version: Version) -> History:
        """Return the history with a new version, or with the same version pinned again."""
        is_same = self.latest is not None and self.latest.digest == version.digest
        before = self.versions[:-1] if is_same else self.versions
        kept = (*before, version)[-MAX_VERSIONS:]
        old, new = kept[:-MAX_TEXTS], kept[-MAX_TEXTS:]
        announced = self.announced
        if announced is not None and announced.digest == version.digest:
            announced = None
        return replace(self, versions=(*(replace(each, text=None) for each in old), *new), announced=announced)


def changes_since(
    version: Version | None, present: Callable[[UsedTool], UsedTool | None]
) -> Sequence[DefinitionChange]:
    """Return the changes of definitions since a version was pinned. See `compare_tools`."""
    return () if version is None or version.tools is None else compare_tools(version.tools, present)
