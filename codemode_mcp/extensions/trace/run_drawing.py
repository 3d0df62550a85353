"""The drawing of a run that a command has started, for `codemode-mcp run --trace`."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

from codemode_mcp.audit import Redactor
from codemode_mcp.audit.redaction import Inputs
from codemode_mcp.cli.messages import COLUMNS, is_utf8, say, stop
from codemode_mcp.extensions.trace.timeline import Record, drawn, page

if TYPE_CHECKING:
    from pathlib import Path

    from codemode_mcp.config import Config


class Drawing(Record):
    """The events of the run, and how they are shown."""

    def show(self, config: Config, html: Path | None, *, draw: bool) -> None:
        """Draw the run on stderr, and write its page."""
        redactor = Redactor()
        redactor.know(config.secretive)
        found = self.trace(Inputs(include=config.audit.include_inputs), redactor)
        if found is None:
            say("the program did not start: there is no trace of it")
            return
        if draw:
            width = shutil.get_terminal_size((COLUMNS, 24)).columns if sys.stderr.isatty() else COLUMNS
            for line in drawn(found, width, unicode=is_utf8(sys.stderr)):
                sys.stderr.write(f"{line}\n")
        if html is not None:
            try:
                html.write_text(page(found), "utf-8")
            except OSError as error:
                stop(1, f"cannot write the trace to {html}: {error.strerror}; name another file with --trace-html")
            say(f"the trace is in {html}")
