"""Tests of what logs look like; that no record can be forged is a test of `sandbox_escape`."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from codemode_mcp.audit import MAX_HOLDERS, RedactingFormatter, Redactor, logging_to, set_level
from codemode_mcp.base.settings import LogSettings
from upstream_clients.spec import UpstreamSpec

SECRET = "-----BEGIN KEY-----\nabcdef\n-----END KEY-----"


def line(message: str, *arguments: object) -> str:
    formatter = RedactingFormatter(lambda text: text.replace(SECRET, "***").replace("hunter2", "***"))
    return formatter.format(logging.LogRecord("codemode_mcp", logging.INFO, "", 0, message, arguments, None))


def test_secrets_are_replaced_also_those_of_several_lines() -> None:
    assert line("key %s and password %s", SECRET, "hunter2").endswith("key *** and password ***")


@pytest.mark.parametrize("library", ["mcp.client.stdio", "client"])
def test_records_of_the_sdk_tell_their_place_and_kind_and_nothing_that_they_say(library: str) -> None:
    try:
        raise ValueError("input_value='canary'")
    except ValueError as error:
        failed = type(error), error, error.__traceback__
    record = logging.LogRecord(library, logging.ERROR, "stdio.py", 224, "canary %s", ("canary",), failed, "read")
    said = RedactingFormatter(str).format(record)
    assert said.endswith(f"ERROR {library}: read, line 224 (ValueError)")
    assert record.getMessage() == "canary canary", "other handlers get the record as it is"


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


def test_what_a_server_learns_after_its_entry_was_changed_and_changed_back_is_replaced() -> None:
    redactor = Redactor()

    def read(url: str) -> UpstreamSpec:
        return UpstreamSpec("s", transport="http", url=url)

    first, changed, back = read("https://a.example"), read("https://b.example"), read("https://a.example")
    for spec in (first, changed, back, read("https://a.example")):
        redactor.know([spec])
    assert back == first
    for number, spec in enumerate((first, changed, back)):
        spec.learn([f"token-{number}"])
    assert redactor("token-0 token-1 token-2") == "*** *** ***"


def test_a_configuration_that_is_read_again_and_again_costs_nothing() -> None:
    class Counted(Holder):
        redacted = 0

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Counted) and other.secret == self.secret

        def __hash__(self) -> int:
            return hash(self.secret)

        def redact(self, text: str) -> str:
            Counted.redacted += 1
            return super().redact(text)

    redactor = Redactor()
    for _ in range(10):
        redactor.know([Counted("first"), Counted("second")])
    assert redactor("first, second") == "***, ***"
    assert Counted.redacted == 2
    for number in range(2 * MAX_HOLDERS):
        redactor.know([Counted(f"{number}.")])
    Counted.redacted = 0
    assert redactor(f"{2 * MAX_HOLDERS - 1}.") == "***"
    assert Counted.redacted == MAX_HOLDERS


def test_how_much_is_logged_is_as_before_when_it_is_over() -> None:
    names = (None, "codemode_mcp", "upstream_clients", "mcp", "client")
    before = [logging.getLogger(name).level for name in names]
    with logging_to(LogSettings(level="error"), str):
        assert [logging.getLogger(name).level for name in names] != before
    assert [logging.getLogger(name).level for name in names] == before


@pytest.mark.parametrize("library", ["mcp", "client"])
def test_what_the_sdk_logs_of_junk_is_there_at_debug_only(library: str) -> None:
    with logging_to(LogSettings(level="info"), str):
        assert not logging.getLogger(library).isEnabledFor(logging.ERROR)
        set_level("debug")
        assert logging.getLogger(library).isEnabledFor(logging.ERROR)


# what cannot be logged


def test_a_log_that_cannot_be_written_says_so_once_and_shows_nothing_of_the_records(
    capsys: pytest.CaptureFixture[str],
) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with logging_to(LogSettings(level="info", file="/dev/full"), lambda text: text.replace("hunter2", "***")):
        for _ in range(3):
            logging.getLogger("codemode_mcp.runs.calls").info("call of %s", "hunter2")
    assert capsys.readouterr().err == (
        "codemode-mcp: a record of codemode_mcp.runs.calls cannot be logged (No space left on device)\n"
    )


def test_a_record_that_cannot_be_made_is_not_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    with logging_to(LogSettings(level="info"), lambda text: text.replace("hunter2", "***")):
        handler = logging.getLogger().handlers[-1]
        handler.handle(logging.LogRecord("library", logging.ERROR, "", 0, "%d calls", ("hunter2",), None))
    assert capsys.readouterr().err == "codemode-mcp: a record of library cannot be logged (TypeError)\n"


def test_halves_of_characters_are_written_as_escapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # what collects for reports could not pass it on either
    file = tmp_path / "log"
    with logging_to(LogSettings(level="info", file=str(file)), str):
        logging.getLogger("codemode_mcp.runs.calls").info("call of %s", "a\ud800b")
    assert file.read_text("utf-8").endswith("call of a\\ud800b\n")
