"""What logs look like; that no record can be forged is a test of `sandbox_escape`."""

from __future__ import annotations

import logging

from codemode_mcp.audit import RedactingFormatter

SECRET = "-----BEGIN KEY-----\nabcdef\n-----END KEY-----"


def line(message: str, *arguments: object) -> str:
    formatter = RedactingFormatter(lambda text: text.replace(SECRET, "***").replace("hunter2", "***"))
    return formatter.format(logging.LogRecord("codemode_mcp", logging.INFO, "", 0, message, arguments, None))


def test_secrets_are_replaced_also_those_of_several_lines() -> None:
    assert line("key %s and password %s", SECRET, "hunter2").endswith("key *** and password ***")


def test_what_is_readable_stays_as_it_is() -> None:
    assert line("größer → 😀 %s", "naïve").endswith("größer → 😀 naïve")
