"""Texts that are cut: no part of a secret that lies across the cut is left, wherever the text is shown."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from codemode_mcp.audit.events import MAX_NAME, Event, name_to_record
from codemode_mcp.audit.redaction import Inputs, Redactor
from codemode_mcp.audit.trajectory import document_of
from upstream_clients.error_mapping import call_error, start_failure
from upstream_clients.jsonrpc import JsonRpcError
from upstream_clients.redaction import MAX_SECRET, cut, hide, redacted_start
from upstream_clients.server_log import MAX_LINE, LogListeners, ServerLog, StderrTail
from upstream_clients.server_log import MAX_LOG_LINE as MAX_LOGGED
from upstream_clients.server_log import MAX_NAME as MAX_LOGGER
from upstream_clients.spec import UpstreamSpec

SECRET = "hunter2-and  some (more)"
PIECES = [SECRET[:length] for length in range(4, len(SECRET) + 1)]
SPEC = UpstreamSpec("s", command="server", env={"KEY": SECRET})


def across(limit: int) -> Iterator[str]:
    """Yield texts with the secret at each position across a limit."""
    for before in range(limit - len(SECRET) + 1, limit):
        words = ("word " * limit)[: before - 1] + " "
        yield f"{words}{SECRET} and the rest of the text, which is cut off"


def leaks(text: str) -> bool:
    return any(piece in text for piece in PIECES)


@pytest.mark.parametrize("limit", [40, 500])
def test_a_cut_leaves_no_part_of_a_known_secret(limit: int) -> None:
    for text in across(limit):
        for found in (cut(text, limit, (SECRET,)), redacted_start(text, limit, SPEC.redact)):
            assert not leaks(found)
            assert limit - 30 < len(found) <= limit


def test_a_cut_leaves_no_part_of_an_unknown_token_and_enough_of_any_text() -> None:
    token = "ghp_" + "a1B2" * 9
    for before in range(62, 100):
        assert "ghp" not in cut(f"{'x ' * (before // 2)}{token} rest", 100)
        assert "ghp" not in cut(f"{'x;' * (before // 2)}{token}", 100)
    assert cut("x" * 200, 100) == "x" * 100
    assert cut("\u4e2d" * 200, 100) == "\u4e2d" * 100
    assert cut("a short one", 100) == "a short one"


def test_a_secret_behind_many_other_secrets_is_not_brought_into_sight() -> None:
    limit = 100
    text = f"{SECRET} " * ((limit + MAX_SECRET) // (len(SECRET) + 1) + 3)
    assert not leaks(redacted_start(text, limit, SPEC.redact))


def test_no_part_of_a_secret_is_in_stderr_even_if_a_line_has_no_end() -> None:
    texts = [*across(MAX_LINE), "a" * (MAX_SECRET + MAX_LINE) + f" {SECRET} " * 30_000, "the end"]
    lines: list[str] = []
    with StderrTail("s", SPEC.redact, lines.append) as tail:
        program = "import sys; sys.stderr.write(sys.stdin.read())"
        subprocess.run([sys.executable, "-c", program], input="\n".join(texts), text=True, stderr=tail.file, check=True)
    assert lines[-1] == "the end"
    assert len(lines) == len(texts)
    assert not any(map(leaks, lines))


def test_no_part_of_a_secret_is_in_the_log_of_a_server() -> None:
    log = ServerLog(SPEC.redact)
    for text in (*across(MAX_LOGGED), f"{' ' * (64 * MAX_LOGGED - 10)}{SECRET}"):
        log.add_message({"data": text})
    assert log.count > 20
    assert not any(leaks(line.text) for line in log.after(0))


def test_no_part_of_a_secret_is_in_the_name_of_a_logger() -> None:
    listeners, seen = LogListeners(SPEC.redact), []
    listeners.add(seen.append, "debug", None, None)
    for text in across(MAX_LOGGER):
        listeners.report({"logger": text, "data": "x"}, None, lambda _: True)
    assert len(seen) > 20
    assert not any(leaks(str(message["logger"])) for message in seen)


@pytest.mark.parametrize(
    "message",
    [
        lambda text: call_error(SPEC, "tools/call", JsonRpcError(-32603, text)).message,
        lambda text: start_failure(SPEC, JsonRpcError(-32603, text)),
        lambda text: start_failure(SPEC, RuntimeError(text)),
    ],
)
def test_no_part_of_a_secret_is_left_at_the_end_of_an_error(message: Callable[[str], str]) -> None:
    redact = partial(hide, secrets=(SECRET,))
    assert not any(leaks(redact(message(text))) for text in across(500))


def test_no_part_of_a_secret_is_in_the_name_of_a_recorded_tool() -> None:
    redact = Redactor()
    redact.know([SPEC])
    for text in across(MAX_NAME):
        for event in (
            Event("call_started", 0.0, "1", fields={"tool": name_to_record(text)}),
            Event("item_held", 0.0, name_to_record(text)),
            Event("result_read", 0.0, "1", fields={"uri": name_to_record(text)}),
        ):
            document = document_of(event, Inputs(include=False), redact)
            assert not leaks(str(document))
            assert len(document.get("tool") or document.get("uri") or document["id"]) <= MAX_NAME
