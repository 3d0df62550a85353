"""The templates of the page.

Every text that a template shows is made harmless: first its hidden and misleading characters are escaped, then it is
escaped for HTML. A template has to do nothing for this, so that it can forget nothing.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from codemode_mcp.audit.timeline import deadline, duration, moment, size, svg_number
from codemode_mcp.control.display import counted, plain
from declarations.untrusted_text import count_blanks

if TYPE_CHECKING:
    from collections.abc import Mapping

ASSETS: Final = Path(__file__).parent / "assets"
_TEMPLATES: Final = Path(__file__).parent / "templates"

MAX_TEXT: Final = 256 * 1024
"""Characters of one text that a page shows."""


def environment() -> Environment:
    """Return the templates."""
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=harmless,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "ago": ago,
        "rough": rough,
        "exact": exact,
        "milliseconds": milliseconds,
        "moment": moment,
        "from_now": from_now,
        "bytes": size,
        "lines": lines,
        "pretty": pretty,
        "svg_number": svg_number,
        "json_text": json.dumps,
    }
    made.globals |= {"counted": counted}
    return made


def harmless(value: Any) -> Any:
    """Return a value for a template. The hidden and misleading characters of a text are escaped."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return plain(value)
    return "" if value is None else value


def exact(value: str) -> Markup:
    """Return a text for an attribute that a script sends back as it is. Only HTML is escaped."""
    return escape(value)


def lines(text: str, *, to_decide: bool = False) -> Markup:
    """Return a text of several lines for a `<pre>`. Its misleading characters are escaped, except for line ends.

    Args:
        to_decide: True for a text on which a decision depends. Long runs of blanks are shown as their lengths.
    """
    shown = text[:MAX_TEXT]
    if to_decide:
        shown = count_blanks(shown, is_code=True)
    found = Markup("\n").join(plain(line) for line in shown.split("\n"))
    if len(text) > MAX_TEXT:
        found += Markup("\n… {} more characters").format(f"{len(text) - MAX_TEXT:,}")
    return found


def pretty(value: Any, *, to_decide: bool = False) -> Markup:
    """Return JSON in several lines for a `<pre>`, as `lines` does. `value`: JSON, or its text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return lines(value, to_decide=to_decide)
    return lines(json.dumps(value, ensure_ascii=False, indent=2), to_decide=to_decide)


def milliseconds(value: int | None) -> str:
    """Return milliseconds in words."""
    return "" if value is None else duration(value / 1000)


def from_now(value: int | None) -> str:
    """Return the time that is some milliseconds from now."""
    return "" if value is None else deadline(value, time.time())


def ago(value: int | None) -> str:
    """Return how long ago something was, in words, from its milliseconds."""
    return "" if value is None else f"{rough(value // 1000)} ago"


def rough(seconds: int | None) -> str:
    """Return a number of seconds in words."""
    if seconds is None:
        return ""
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 7200:
        return f"{seconds // 60} min"
    return f"{seconds // 3600} h" if seconds < 172_800 else f"{seconds // 86_400} days"


def rendered(made: Environment, template: str, values: Mapping[str, Any]) -> str:
    """Return the HTML of a template."""
    return made.get_template(template).render(values)
