"""The pool, the description of a server, and the small pure parts."""

import base64
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import anyio
import pytest

import upstream_clients
from upstream_clients import UpstreamPool, UpstreamSpec
from upstream_clients.backoff import Backoff
from upstream_clients.line_messages import read_message
from upstream_clients.redaction import HIDDEN
from upstream_clients.server_log import StderrTail

SECRETIVE = UpstreamSpec(
    "srv",
    transport="http",
    url="https://me:hunter22@example.com/mcp?key=hunter23",
    env={"TOKEN": "hunter24", "DEBUG": "1"},
    headers={"Authorization": "Bearer hunter25"},
    args=("hunter26",),
    secrets=("hunter26",),
)


def test_the_public_names_are_these() -> None:
    assert sorted(upstream_clients.__all__) == [
        *("Annotations", "Asking", "JsonObject", "Operation", "ProgressFn", "Question", "QuestionMethod"),
        *("QuestionRefused", "Tool", "ToolOutcome", "ToolSource", "UpstreamCallError", "UpstreamClientError"),
        *("UpstreamPool", "UpstreamSpec", "UpstreamState", "UpstreamUnavailable", "UpstreamView"),
    ]


def test_importing_the_package_does_not_import_the_sdk() -> None:
    code = (
        "import sys, upstream_clients, upstream_clients.testing; "
        "print({'mcp', 'mcp_types', 'pydantic', 'httpx2', 'jsonschema_rs'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("set()\n", "")


def test_a_spec_shows_names_and_no_values() -> None:
    assert repr(SECRETIVE) == (
        "UpstreamSpec('srv', http, 'https://example.com/mcp', 1 args, env ['DEBUG', 'TOKEN'], "
        "headers ['Authorization'])"
    )


@pytest.mark.parametrize("number", range(22, 27))
def test_every_secret_of_a_spec_is_taken_out_of_a_text(number: int) -> None:
    assert SECRETIVE.redact(f"token=hunter{number}.") == "token=***."


@pytest.mark.parametrize(
    "write",
    [
        repr,
        json.dumps,
        lambda secret: json.dumps(secret, ensure_ascii=False),
        lambda secret: json.dumps(secret).replace("/", "\\/"),
        lambda secret: json.dumps(json.dumps(secret).replace("/", "\\/")[1:-1])[1:-1],
        quote,
        quote_plus,
        lambda secret: quote(secret, safe=""),
        lambda secret: base64.b64encode(secret.encode()).decode(),
        lambda secret: base64.urlsafe_b64encode(f"a{secret}b".encode()).decode(),
        lambda secret: base64.b64encode(f"me:{secret}".encode()).decode(),
    ],
    ids=[
        *("repr", "json", "json-unicode", "json-slashes", "json-in-json", "url", "form", "url-part", "base64"),
        *("in-base64url", "in-base64"),
    ],
)
def test_a_secret_is_taken_out_however_it_is_written(write: Callable[[str], str]) -> None:
    secret = 'p/a+s "w\\ö?=rd9>>>'
    spec = UpstreamSpec("s", transport="stdio", command="x", env={"TOKEN": secret}, learned=[secret])
    # A Base64 character that the secret shares with other bytes is left.
    for shown in (spec.redact(f"<{write(secret)}>"), spec.redact_learned(f"<{write(secret)}>")):
        assert HIDDEN in shown
        assert len(shown) <= len("<'***'>") + 6


def test_what_basic_authentication_stands_for_is_secret_too() -> None:
    header = "Basic " + base64.b64encode(b"alice:open-sesame").decode()
    spec = UpstreamSpec("s", transport="http", url="https://h", headers={"Authorization": header})
    assert spec.redact("alice:open-sesame is open-sesame of alice") == "*** is *** of alice"


def test_a_value_of_one_letter_is_no_secret() -> None:
    assert SECRETIVE.redact("1 error in line 1") == "1 error in line 1"


@pytest.mark.parametrize(("transport", "missing"), [("stdio", "command"), ("http", "url"), ("sse", "url")])
def test_a_spec_without_an_address_is_refused(transport: Any, missing: str) -> None:
    with pytest.raises(ValueError, match=missing):
        UpstreamSpec("srv", transport=transport)


def test_delays_double_up_to_the_cap_and_differ_by_chance() -> None:
    backoff = Backoff(base=1, cap=8, jitter=lambda: 0.0)
    assert [backoff.after_failure() for _ in range(6)] == [0.5, 1, 2, 4, 4, 4]


def test_the_first_loss_is_tried_again_immediately_and_further_ones_are_not() -> None:
    backoff = Backoff(base=1, jitter=lambda: 1.0)
    assert [backoff.after_loss(lived=1) for _ in range(3)] == [0, 2, 4]
    assert backoff.after_loss(lived=10) == 0


def test_very_many_failures_do_not_overflow() -> None:
    backoff = Backoff(jitter=lambda: 1.0)
    assert max(backoff.after_failure() for _ in range(5000)) == backoff.cap


@pytest.mark.parametrize(
    ("answer", "request_id"),
    [
        ('{"jsonrpc": "2.0", "id": 7, "result": null}', 7),
        ('{"jsonrpc": "2.0", "id": "a", "result": [1]}', "a"),
        ('{"jsonrpc": "2.0", "id": 7.0, "result": {}, "error"}', 7),
        ('{"jsonrpc": "2.0", "id": 7}', 7),
    ],
)
def test_an_invalid_answer_becomes_the_error_of_its_request(answer: str, request_id: int | str) -> None:
    item = read_message(answer.encode())
    assert isinstance(item, dict)
    assert item["id"] == request_id
    assert item["error"]["code"] == -32603


@pytest.mark.parametrize("where", ['"id": 7, ', ""], ids=["request", "notification"])
def test_what_a_server_asks_is_read_with_half_a_character_in_it(where: str) -> None:
    item = read_message(b'{"jsonrpc": "2.0", ' + where.encode() + b'"method": "a/b", "params": {"text": "\\ud83d!"}}')
    assert isinstance(item, dict)
    assert ("id" in item, item["method"], item["params"]) == (bool(where), "a/b", {"text": "\ufffd!"})


@pytest.mark.parametrize("line", ["junk", "{}", "[]", '{"jsonrpc": "2.0", "id": 7, "method": 5}', '{"id": {}}'])
def test_what_is_no_message_is_an_exception(line: str) -> None:
    assert isinstance(read_message(line.encode()), Exception)


def test_stderr_is_kept_in_order_even_when_its_writer_has_just_ended() -> None:
    with StderrTail("srv", lambda text: text.replace("secret", "***")) as tail:
        subprocess.run(
            [sys.executable, "-c", "import os; os.write(2, b'one\\n\\xff two secret\\n  \\nthe rest')"],
            stderr=tail.file,
            check=True,
        )
    assert tail.telling_line == "the rest"


def test_stderr_does_not_wait_for_a_grandchild_that_holds_it_open() -> None:
    with StderrTail("srv", str) as tail:
        holder = subprocess.Popen(["sleep", "30"], stderr=tail.file)
        tail.file.write("here\n")
        tail.file.flush()
    assert tail.telling_line == "here"
    holder.kill()
    holder.wait()


def test_two_servers_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="same name"):
        UpstreamPool([UpstreamSpec("a", command="x"), UpstreamSpec("a", command="y")])


@pytest.mark.anyio
async def test_an_unknown_name_is_a_key_error() -> None:
    async with UpstreamPool([]) as pool:
        with pytest.raises(KeyError):
            pool.source("nobody")
        with pytest.raises(KeyError):
            await pool.wait_settled(["nobody"], timeout=1)


@pytest.mark.anyio
async def test_views_keep_the_order_of_the_specs_and_waiting_is_for_the_named_ones(raw_server: Any) -> None:
    specs = [raw_server("silent", name="slow"), raw_server(name="quick"), UpstreamSpec("gone", command="no-such")]
    async with UpstreamPool(specs) as pool:
        with anyio.fail_after(10):
            await pool.wait_settled(["gone", "quick"], timeout=20)
        assert [(view.name, view.state) for view in pool.views()] == [
            ("slow", "connecting"),
            ("quick", "ready"),
            ("gone", "down"),
        ]
        assert repr(pool) == "<UpstreamPool: 1 ready, 0 idle, 1 connecting, 1 down, 0 stopped>"
        assert repr(pool.source("quick")) == "<Upstream 'quick': ready, 7 tools>"
        with anyio.fail_after(20):
            await pool.wait_settled(None, timeout=0.05)


@pytest.mark.anyio
async def test_a_failing_observer_does_no_harm(raw_server: Any, pool_of: Any) -> None:
    async with pool_of(raw_server(), on_change=lambda: 1 / 0) as pool:
        assert pool.views()[0].state == "ready"


@pytest.mark.anyio
async def test_a_pool_that_is_left_immediately_leaves_everything_stopped(raw_server: Any) -> None:
    with anyio.fail_after(10):
        async with UpstreamPool([raw_server()]) as pool:
            pass
    assert [view.state for view in pool.views()] == ["stopped"]


@pytest.mark.anyio
async def test_a_cancelled_owner_closes_its_pool(raw_server: Any) -> None:
    pool = UpstreamPool([raw_server()])
    with anyio.fail_after(10), anyio.CancelScope() as scope:
        async with pool:
            await pool.wait_settled(None, timeout=10)
            scope.cancel()
            await anyio.sleep_forever()
    assert [view.state for view in pool.views()] == ["stopped"]


SAYS_WHAT_IT_SEES = """
import pathlib, sys

log = pathlib.Path(sys.argv[1])
log.write_text("started")
sys.stdin.read()
log.write_text("end of input")
"""


@pytest.mark.anyio
async def test_a_server_starts_before_its_connection_is_imported_and_ends_without_one(tmp_path: Path) -> None:
    log = tmp_path / "log"
    spec = UpstreamSpec("one", transport="stdio", command=sys.executable, args=("-c", SAYS_WHAT_IT_SEES, str(log)))
    with anyio.fail_after(30):
        async with UpstreamPool([spec]) as pool, pool.importing():
            while not log.exists() or log.read_text() != "started":  # noqa: ASYNC110 - it is another process
                await anyio.sleep(0.01)
            assert pool.views()[0].state == "connecting"
            pool.apply([])
            while log.read_text() != "end of input":  # noqa: ASYNC110
                await anyio.sleep(0.01)


@pytest.mark.anyio
async def test_a_command_that_is_not_there_is_told_by_its_connection(tmp_path: Path) -> None:
    spec = UpstreamSpec("one", transport="stdio", command=str(tmp_path / "none"))
    with anyio.fail_after(30):
        async with UpstreamPool([spec]) as pool:
            await pool.wait_settled(None, 20)
            assert "does not exist" in (pool.views()[0].error or "")


# server addresses in messages.


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://mcp.example/api/s/NGU0YzQyZWItZGM1Ny00/mcp?x=1", "https://mcp.example/api/s/***/mcp"),
        ("https://user:secret@mcp.example/0123456789abcdef0123456789abcdef", "https://mcp.example/***"),
        ("https://mcp.example/v1/streamable-http-endpoint", "https://mcp.example/v1/streamable-http-endpoint"),
        ("http://127.0.0.1:8808/mcp", "http://127.0.0.1:8808/mcp"),
    ],
    ids=["a key in front", "a key at the end", "words", "nothing to hide"],
)
def test_an_address_is_shown_without_what_looks_like_a_key(url: str, shown: str) -> None:
    assert UpstreamSpec(name="s", transport="http", url=url).address == shown
