"""What logs look like; that no record can be forged is a test of `sandbox_escape`."""

from __future__ import annotations

import logging

from codemode_mcp.audit import RedactingFormatter, Redactor

SECRET = "-----BEGIN KEY-----\nabcdef\n-----END KEY-----"


def line(message: str, *arguments: object) -> str:
    formatter = RedactingFormatter(lambda text: text.replace(SECRET, "***").replace("hunter2", "***"))
    return formatter.format(logging.LogRecord("codemode_mcp", logging.INFO, "", 0, message, arguments, None))


def test_secrets_are_replaced_also_those_of_several_lines() -> None:
    assert line("key %s and password %s", SECRET, "hunter2").endswith("key *** and password ***")


def test_what_is_readable_stays_as_it_is() -> None:
    assert line("größer → 😀 %s", "naïve").endswith("größer → 😀 naïve")


class Holder:
    def __init__(self, secret: str) -> None:
        self.secret = secret

    def redact(self, text: str) -> str:
        return text.replace(self.secret, "***")


def test_the_secrets_of_every_configuration_there_has_been_are_replaced() -> None:
    redactor = Redactor()
    redactor.know([Holder("first")])
    redactor.know([Holder("second")])
    assert redactor("first, second, third") == "***, ***, third"
