"""Results that are no errors for MCP, but whose text reads like one, such as "Database error: no such table". Pure.

Many servers answer so instead of setting `isError`. A program takes such a text for data, so a note names it. Only a
short text that begins like a message of an error counts, because ordinary texts have the same words: logs, headings and
figures ("Error handling", "Mean error: 0.2", "Failed tests: 0").
"""

from __future__ import annotations

import json
import re
from typing import Final

from codemode_mcp.json_text import result_text

MAX_TEXT: Final = 600
"""Maximum characters of a text that counts. Messages of errors are short."""

MAX_RESULT: Final = 3 * MAX_TEXT
"""Maximum characters of the JSON of a result that is read."""

_NO_FIGURE = (
    r"(?!\s*(?:[-+~<>=]?\s*\d[\d.,e+-]*\s*%?\s*(?:$|[;,\n])|(?:none|null|nil|n/a|no|ok|false|\[\])\s*(?:$|[;,.\n])|$))"
)
"""No number or empty value follows, as after "Errors:" in a summary."""

_END = r"\s*(?:$|[-\u2013\u2014:.!,(\n])"

_NO_ERROR_WORDS = (
    "mean|squared|standard|margin|last|previous|first|max|rms|relative|absolute|root|human|rounding|trial|type|fix|fixed"
    "|fixes|of|and|the|a|common|no|sampling|measurement|class|except|raise"
)
"""Words before "error" in texts about errors."""

_TOPICS = r"handling|reporting|logging|tracking|tracing|monitoring|correcting|checking"

_DOING = (
    "executing|calling|running|processing|invoking|fetching|reading|writing|parsing|loading|creating|getting|connecting"
    "|accessing|opening|querying|sending"
)
_DO = (
    "find|open|read|write|connect|load|parse|access|create|delete|remove|resolve|fetch|get|execute|complete|process"
    "|locate|retrieve|update|save|reach|convert|decode|import|list|perform|run|start|download|send|query"
)
_WHAT = (
    "tool|arguments?|parameters?|input|request|query|command|method|id|url|path|token|credentials|operation|call"
    "|authentication|authorization|login|connection|validation|execution"
)

_ERRNO = "NOENT|ACCES|PERM|EXIST|ISDIR|NOTDIR|INVAL|CONN[A-Z]+|TIMEDOUT|ADDR[A-Z]+|HOST[A-Z]+|NOTFOUND|BUSY|NOTEMPTY"

_ERROR: Final = re.compile(
    rf"""
    [^\w\n]{{0,6}}  # a picture, a bracket, or the marks of bold text
    (?:
        (?!(?:[\w'./-]+[ ]){{0,2}}(?:{_NO_ERROR_WORDS})[ ])(?:[a-z][\w'./-]*[ ]){{0,3}}
        [\w.]*(?:error|exception)(?:[ ]?[(\[][^\n)\]]{{1,40}}[)\]]|[ ]-?\d+)?[*\]]{{0,3}}\s?[:!]{_NO_FIGURE}
      | error[ ](?:(?:{_DOING})\b | (?!{_TOPICS})(?:\w+ing|while|when|in|at|from|on)\b[^\n]{{0,200}}?[:'"])
      | (?:sorry,?[ ])?an[ ](?:\w+[ ]){{0,2}}(?:error|exception)[ ](?:has[ ])?occurred
      | (?-i:(?:(?:Internal[ ][Ss]erver|Unknown|Unexpected|Syntax|Database)[ ][Ee]rror|Error))[.!]?\s*$
      | error[\]][ ] | error[ ][-\u2013\u2014][ ] | error\[\w+\]:
      | traceback[ ]\(most[ ]recent | (?:fatal|panic|err!?):[ ] | (?-i:E(?:{_ERRNO})):[ ]
      | failed[ ]to[ ]\w | (?:could[ ]not|couldn't|cannot|can't|unable[ ]to)[ ](?:{_DO})\b
      | [a-z][\w'"`-]*(?:[ ][\w'"`-]+){{0,2}}[ ]failed(?:[ ]with[^\n:]{{0,60}})?:{_NO_FIGURE}
      | (?:{_WHAT})[ ]failed[.!]?\s*$
      | (?:(?:access|permission)[ ]denied|(?:connection|request)[ ](?:refused|timed[ ]out|reset|aborted)){_END}
      | no[ ]such[ ](?:file|table|column|tool|directory|host|key)\b
      | (?:unknown|invalid|unsupported|missing)[ ](?:\w+[ ])?(?:{_WHAT})(?:{_END}|[ ]?['"`])
      | (?:http[ ](?:status[ ]|error[ ])?)?[45]\d\d:?[ ](?:
          bad[ ]request|unauthorized|forbidden|not[ ]found|internal[ ]server[ ]error|service[ ]unavailable
          |bad[ ]gateway|gateway[ ]time-?out|too[ ]many[ ]requests
        ){_END}
      | rate[ ]limit[ ]exceeded | (?-i:Unauthorized|Forbidden|Not[ ][Ff]ound)[.!]?\s*$
    )
    | \{{\s*"(?:error|errorMessage|error_message)"\s*:\s*(?:"[^"]|\{{\s*")
    | \{{\s*"status"\s*:\s*"error"
    """,
    re.IGNORECASE | re.VERBOSE,
)


def error_text(result: str) -> str | None:
    """Return the text of a result, as JSON, that reads like an error although `isError` is not set; None otherwise."""
    if len(result) > MAX_RESULT:
        return None
    try:
        found = json.loads(result)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("isError"):
        return None
    text = result_text(found.get("content"))
    data = found.get("structuredContent")
    if text is None or (data is not None and (not isinstance(data, dict) or list(data.values()) != [text])):
        return None
    return text if len(text) <= MAX_TEXT and _ERROR.match(text.strip()) else None
