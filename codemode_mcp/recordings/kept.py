"""The recordings of the latest runs, in memory within a limit. They are masked when they are exported.

A run is recorded as long as its lines fit. The oldest recording is dropped first. If a run alone is too large, it is no
longer recorded.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from codemode_mcp.recordings.reader import encode
from codemode_mcp.recordings.sizes import size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from codemode_mcp.recordings.format import Line
    from codemode_mcp.recordings.masking import Mask

    LazyLine = Callable[[], Line]
    """A function that makes a line when it is needed."""

MAX_CATALOGS: Final = 8
"""Maximum number of different catalogs of the runs. Catalogs are large, and are not counted otherwise."""

MAX_TOOLS: Final = 20_000
"""Maximum number of tools in these catalogs together, except for the latest one."""

MAX_REASONS: Final = 1000
"""Maximum number of runs of which it is known why they are not kept."""


class KeptRecordings:
    """The latest recordings.

    Args:
        max_bytes: approximate limit of all recordings. 0: none are kept.

    Attributes:
        max_bytes: as above.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._runs: OrderedDict[str, KeptRecording] = OrderedDict()
        self._catalogs: dict[int, list[KeptRecording]] = {}
        """The runs of each catalog, by its identity."""
        self._size = 0
        self._reasons: OrderedDict[str, str] = OrderedDict()

    def __repr__(self) -> str:
        return f"<KeptRecordings: {len(self._runs)} runs, about {self._size} characters>"

    def begin(self, run_id: str, catalog: object, tools: int) -> KeptRecording | None:
        """Return the place for the lines of a run; None if no recordings are kept.

        Args:
            catalog: a value that runs with the same catalog share.
            tools: the number of tools in the catalog.
        """
        if not self.max_bytes:
            return None
        if id(catalog) not in self._catalogs:
            self._make_room(tools)
        found = self._runs[run_id] = KeptRecording(self, run_id, catalog, tools)
        self._catalogs.setdefault(id(catalog), []).append(found)
        return found

    def _make_room(self, tools: int) -> None:
        """Drop the runs of the oldest catalogs, so that another one can be kept."""
        while self._catalogs:
            known = sum(runs[0].tools for runs in self._catalogs.values())
            if len(self._catalogs) < MAX_CATALOGS and known + tools <= MAX_TOOLS:
                return
            for kept in list(next(iter(self._catalogs.values()))):
                self._drop(kept.run_id, "later programs had other tools, and few lists of tools are kept")

    def lines(self, run_id: str, mask: Mask) -> Iterator[bytes] | None:
        """Return the encoded lines of a run, masked; None if it is not kept. See `why_not`."""
        kept = self._runs.get(run_id)
        return None if kept is None else kept.encoded(mask)

    def why_not(self, run_id: str) -> str:
        """Return the reason why a run is not kept, as a part of a sentence; empty if it is not known."""
        return self._reasons.get(run_id, "" if self.max_bytes else "audit.keepRecordingBytes is 0")

    def add(self, kept: KeptRecording, size: int) -> None:
        """Count the size of a new line."""
        self._size += size
        kept.size += size
        if kept.size > self.max_bytes:
            self._drop(kept.run_id, f"it took more than audit.keepRecordingBytes ({self.max_bytes})")
        elif self._size > self.max_bytes:
            self._fit()

    def _fit(self) -> None:
        while self._size > self.max_bytes and self._runs:
            self._drop(next(iter(self._runs)), "later runs took the room; see audit.keepRecordingBytes")

    def _drop(self, run_id: str, why: str) -> None:
        kept = self._runs.pop(run_id)
        self._size -= kept.size
        others = self._catalogs[id(kept.catalog)]
        others.remove(kept)
        if not others:
            del self._catalogs[id(kept.catalog)]
        kept.drop()
        self._reasons[run_id] = why
        while len(self._reasons) > MAX_REASONS:
            self._reasons.popitem(last=False)


class KeptRecording:
    """The lines of one run, not masked."""

    def __init__(self, owner: KeptRecordings, run_id: str, catalog: object, tools: int) -> None:
        self.run_id = run_id
        self.catalog: object = catalog
        self.tools = tools
        self.size = 0
        self._owner = owner
        self._lines: list[Line | LazyLine] = []
        self._dropped = False

    def __repr__(self) -> str:
        return f"<KeptRecording of {self.run_id[:12]}: {len(self._lines)} lines>"

    def append(self, line: Line | LazyLine) -> None:
        """Keep a line, if there is room."""
        if not self._dropped:
            self._lines.append(line)
            self._owner.add(self, 0 if callable(line) else size_of(line))

    def drop(self) -> None:
        """Forget the lines."""
        self._dropped = True
        self._lines.clear()
        self.catalog = None

    def encoded(self, mask: Mask) -> Iterator[bytes]:
        """Yield the lines, masked."""
        for line in list(self._lines):
            yield encode(mask.line(line() if callable(line) else line))
