"""Each check of doctor by itself, without servers: what it finds, what it says to do, what it never shows."""

import json
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import anyio
import pytest

from codemode_mcp.base.errors import RuntimeUnavailable
from codemode_mcp.base.settings import ApprovalSettings, CodeModeSettings, HttpSettings, StaticToken, ToolSettings
from codemode_mcp.cli import check
from codemode_mcp.cli.deciding import refuse_unknown
from codemode_mcp.config import Config, load_config
from codemode_mcp.config.confirmation import Gate
from codemode_mcp.config.expand import Expander
from codemode_mcp.config.nodes import Node, Report
from codemode_mcp.config.secret_values import SecretValues
from codemode_mcp.config.servers import read_servers
from codemode_mcp.extensions.setup.command_doctor import problem_lines, running_line
from codemode_mcp.extensions.setup.doctor import CHECKS, Check, Checkup, check_config, checkup
from codemode_mcp.extensions.setup.doctor.configuration import literal_secrets, permissions, variables
from codemode_mcp.extensions.setup.doctor.engine import CompiledFile, _cache
from codemode_mcp.extensions.setup.doctor.machine import (
    MIN_FREE,
    folder,
    http,
    is_here,
    nesting,
    notify,
    other_clients,
    own_code_mode,
)
from codemode_mcp.extensions.setup.doctor.servers import _CUT, HUGE_DESCRIPTION, advice_for, by_hand, oddities
from tests.integration.harness import SERVERS
from upstream_clients.list_repair import read_tools
from upstream_clients.spec import UpstreamSpec
from upstream_clients.tools import Tool, UpstreamView

PAGE = (Path(__file__).parents[3] / "docs" / "doctor.md").read_text("utf-8")
SECRET = "a-secret-of-many-letters"


def said(checks: Iterable[Check]) -> list[tuple[str, str]]:
    return [(check.status, check.detail) for check in checks]


# the page


def test_the_page_has_every_check_in_the_order_of_the_report() -> None:
    table = PAGE.partition("## What is checked")[2]
    rows = re.findall(r"^\| `([a-z ]+?)(?: NAME)?` \|", table, re.MULTILINE)
    assert rows == list(CHECKS)


def test_the_page_shows_the_keys_of_the_json() -> None:
    (text,) = re.findall(r"```text\n(\[.*?)```", PAGE, re.DOTALL)
    shown = json.loads(text)
    assert [list(each) for each in shown] == [
        list(each) for each in check.as_json([Check("a", "ok", "b")] * len(shown))
    ]
    assert {each["name"].split()[0] for each in shown} <= set(CHECKS)


def test_the_page_names_every_status_and_exit_code() -> None:
    for word in ("`ok`", "`info`", "`warn`", "`fail`", "`0`", "`1`", "`2`"):
        assert word in PAGE


# the file


def test_a_secret_in_a_file_that_others_can_read_is_named_by_its_key_alone(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    entry = {"command": "x", "env": {"API_TOKEN": SECRET, "REGION": "eu-central"}, "args": ["ghp_" + "a" * 36]}
    path.write_text(json.dumps({"mcpServers": {"s": entry}}), "utf-8")
    path.chmod(0o644)
    _, checks = check_config(str(path), {}, Gate(refuse_unknown))
    text = str(checks)
    assert SECRET not in text
    assert "ghp_" not in text
    (check,) = [each for each in checks if "secrets" in each.detail]
    assert "mcpServers.s.env.API_TOKEN, mcpServers.s.args[0]" in check.detail
    if sys.platform != "win32":
        assert check.status == "warn"
        assert check.advice.startswith(f"chmod 600 {path}")


@pytest.mark.parametrize(
    ("mode", "literal", "expected"),
    [
        pytest.param(0o600, [], [], id="private-without"),
        pytest.param(0o644, [], [], id="readable-without"),
        pytest.param(0o600, ["k"], ["info"], id="private-with"),
        pytest.param(0o640, ["k"], ["warn"], id="group-with"),
        pytest.param(0o666, ["k"], ["warn", "warn"], id="writable-with"),
        pytest.param(0o620, [], ["warn"], id="group-writable"),
    ],
)
def test_who_can_read_and_write_the_file(mode: int, literal: list[str], expected: list[str]) -> None:
    assert [check.status for check in permissions(Path("c.json"), mode, literal, "linux")] == expected


def test_on_windows_modes_say_nothing() -> None:
    assert [check.status for check in permissions(Path("c.json"), 0o666, ["k"], "win32")] == ["info"]


def test_references_paths_and_settings_are_no_secrets() -> None:
    env = {
        "TOKEN": "${TOKEN}",
        "KEY": {"keyring": "name-of-an-entry"},
        "TOKEN_FILE": "/run/secrets/token",
        "PASSWORD": "short",
        "LANG": "C.UTF-8-and-more",
    }
    assert list(literal_secrets({"mcpServers": {"s": {"env": env, "headers": {"Authorization": "Bearer ${T}"}}}})) == []


def test_the_key_of_an_api_is_a_secret_and_the_address_of_a_token_is_none() -> None:
    key = {"type": "apiKey", "in": "query", "name": "k", "value": "written-here"}
    client = {"type": "clientCredentials", "tokenUrl": "https://a.example/token", "clientSecret": "${SECRET}"}
    servers = {"a": {"openapi": "a.json", "auth": key}, "b": {"openapi": "b.json", "auth": client}}
    assert list(literal_secrets({"mcpServers": servers})) == ["mcpServers.a.auth.value"]


def test_secrets_among_arguments_are_named_and_hidden_in_messages() -> None:
    args = ["--token", SECRET, f"--password={SECRET}", "--max-tokens", "4096", f"exec x --api-key {SECRET}; y"]
    args += [f"https://h.example/mcp?api_key={SECRET}", "--token-file", "/run/token", "--key", "${KEY:-none}"]
    entry = {"command": "run", "args": args}
    keys = [f"mcpServers.s.args[{index}]" for index in (1, 2, 5, 6)]
    assert list(literal_secrets({"mcpServers": {"s": entry}})) == keys
    report = Report()
    root = {"mcpServers": Node({"s": entry}, "mcpServers", report)}
    found = read_servers(root, Expander({}, Path()), SecretValues())
    assert report.problems == {}
    shown = by_hand(found.specs["s"])
    assert SECRET not in shown
    assert "--max-tokens 4096" in shown


def test_variables_that_a_default_stands_in_for_and_empty_ones_are_named_without_what_they_hold() -> None:
    entries = {
        "a": {"env": {"T": "${UNSET:-hidden-default}", "E": "${EMPTY}", "S": "${env:SET}"}, "args": ["${EMPTY:-x}"]},
        "off": {"disabled": True, "env": {"T": "${ELSEWHERE}"}},
    }
    found = list(variables({"mcpServers": entries}, {"EMPTY": "", "SET": SECRET}))
    assert said(found) == [
        ("info", "UNSET is not set, so its default is used in mcpServers.a.env.T"),
        ("warn", "EMPTY is set, but empty, in mcpServers.a.env.E"),
    ]
    assert all("export " in check.advice for check in found)
    assert said(variables({"mcpServers": {"a": {"url": "${SET}"}}}, {"SET": SECRET})) == [("ok", "SET is set")]


def test_a_file_that_is_not_there_is_told_with_what_to_do(tmp_path: Path) -> None:
    loaded, (check,) = check_config(str(tmp_path / "none.json"), {}, Gate(refuse_unknown))
    assert (loaded, check.status) == (None, "fail")
    assert check.advice == "give the path of an existing file"


# the machine


@pytest.mark.parametrize(("depth", "status"), [("0", "ok"), ("1", "info"), ("3", "fail"), ("x", "fail")])
def test_nesting_is_told(monkeypatch: pytest.MonkeyPatch, depth: str, status: str) -> None:
    monkeypatch.setenv("CODEMODE_MCP_DEPTH", depth)
    assert [check.status for check in nesting()] == [status]


@pytest.mark.parametrize(
    ("settings", "statuses"),
    [
        pytest.param(HttpSettings(), ["ok"], id="nothing"),
        pytest.param(HttpSettings(tokens=(StaticToken("me", b"x", ()),)), ["ok"], id="tokens"),
        pytest.param(HttpSettings(allow_unauthenticated=True), ["warn"], id="open"),
        pytest.param(HttpSettings(max_sessions=5), ["info"], id="loopback"),
        pytest.param(
            HttpSettings(tokens=(StaticToken("me", b"x", ()),), allow_unauthenticated=True), ["ok", "warn"], id="both"
        ),
        pytest.param(HttpSettings(allowed_origins=("http://app.example",)), ["info", "warn"], id="origin"),
    ],
)
def test_serving_http_is_judged_by_its_section(settings: HttpSettings, statuses: list[str]) -> None:
    found = list(http(Config(http=settings)))
    assert [check.status for check in found] == statuses
    assert all(check.advice for check in found if check.status != "ok")


@pytest.mark.parametrize(
    ("command", "statuses"),
    [((), []), ((sys.executable, "-c", "pass"), ["ok"]), (("/nowhere/notify-me", "x"), ["warn"])],
)
def test_a_notify_command_that_is_not_there_is_told(command: tuple[str, ...], statuses: list[str]) -> None:
    config = Config(tools=ToolSettings(approval=ApprovalSettings(notify=command)))
    found = list(notify(config))
    assert [check.status for check in found] == statuses
    assert all(command[0] in check.detail for check in found)


def test_a_command_of_another_installation_is_told_from_ours(tmp_path: Path) -> None:
    ours = tmp_path / "venv" / "bin"
    ours.mkdir(parents=True)
    (ours / "codemode-mcp").write_text("", "utf-8")
    assert is_here(ours / "codemode-mcp", tmp_path / "venv")
    if sys.platform != "win32":
        (tmp_path / "link").symlink_to(ours / "codemode-mcp")
        assert is_here(tmp_path / "link", tmp_path / "venv"), "as pipx and uv do it"
    assert not is_here(tmp_path / "bin" / "codemode-mcp", tmp_path / "venv")


def test_clients_that_start_the_same_servers_are_warned_of() -> None:
    assert said(other_clients(Config(), lambda _: ["cursor starts 'github' itself"])) == [
        ("warn", "cursor starts 'github' itself")
    ]
    assert [check.status for check in other_clients(Config(), lambda _: [])] == ["ok"]


def test_a_client_with_a_code_mode_is_told_what_this_server_adds_there() -> None:
    ((status, detail),) = said(own_code_mode(lambda: ["Codex"]))
    assert status == "info"
    assert detail.startswith("Codex has a code mode of its own")
    assert all(word in detail for word in ("durable runs", "policy", "approval", "audit"))
    assert said(own_code_mode(list)) == []


# folders


def test_a_folder_that_is_not_there_yet_is_all_right(tmp_path: Path) -> None:
    ((status, detail),) = said(folder("cache folder", tmp_path / "a" / "b", "nothing is kept"))
    assert status == "ok"
    assert "made when it is needed" in detail
    assert not (tmp_path / "a").exists()


def test_a_file_in_the_place_of_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("", "utf-8")
    (check,) = folder("cache folder", tmp_path / "a" / "b", "nothing is kept")
    assert (check.status, check.detail) == ("warn", f"{tmp_path / 'a'} is a file, so nothing is kept")


@pytest.mark.skipif(sys.platform == "win32", reason="modes are POSIX")
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o707], ids=["all", "group", "others"])
def test_a_folder_that_others_can_write_is_told_with_the_command_that_closes_it(tmp_path: Path, mode: int) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(mode)
    (check,) = folder("cache folder", open_to_all, "nothing is kept")
    assert (check.status, "can be written by others" in check.detail) == ("warn", True)
    assert f"chmod 700 {open_to_all}" in check.advice


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": MIN_FREE - 1})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    (check,) = folder("cache folder", tmp_path, "nothing is kept")
    assert (check.status, check.detail.startswith("only 104 MB are free")) == ("warn", True)


# the compile cache


@pytest.mark.parametrize(
    ("before", "after", "status", "words"),
    [
        pytest.param(
            CompiledFile(None, None),
            CompiledFile(None, None),
            "warn",
            "every process compiles again (900 ms)",
            id="untrusted",
        ),
        pytest.param(None, "missing", "warn", "no file could be written", id="unwritable"),
        pytest.param("missing", None, "ok", "written now", id="made"),
        pytest.param("older", None, "ok", "was written again", id="remade"),
        pytest.param(None, None, "ok", "used", id="used"),
    ],
)
def test_what_the_compile_cache_did(
    before: CompiledFile | str | None,
    after: CompiledFile | str | None,
    status: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "engine.cwasm"
    path.write_bytes(b"x")
    path.chmod(0o600)

    def kept(given: CompiledFile | str | None) -> CompiledFile:
        if isinstance(given, CompiledFile):
            return given
        return CompiledFile(path, {"missing": None, "older": 1, None: 2}[given])

    monkeypatch.setattr("codemode_mcp.extensions.setup.doctor.engine.compiled_file", lambda: kept(after))
    check = _cache(kept(before), 900)
    assert check.status == status
    assert words in check.detail
    assert bool(check.advice) == (status == "warn")


@pytest.mark.skipif(sys.platform == "win32", reason="modes are POSIX")
def test_machine_code_that_others_could_have_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "engine.cwasm"
    path.write_bytes(b"x")
    path.chmod(0o622)
    monkeypatch.setattr("codemode_mcp.extensions.setup.doctor.engine.compiled_file", lambda: CompiledFile(path, 1))
    assert _cache(CompiledFile(path, 1), 900).status == "warn"


# servers


@pytest.mark.parametrize(
    ("spec", "why", "advice"),
    [
        pytest.param(
            UpstreamSpec("s", command="npx-gone", env={"PATH": "/opt/x:/opt/y"}),
            "command 'npx-gone' was not found on PATH",
            "install npx-gone, or give mcpServers.s.command its full path. Searched in PATH of mcpServers.s.env",
            id="command",
        ),
        pytest.param(
            UpstreamSpec("s", command="uvx"),
            "command 'uvx' was not found on PATH",
            "uvx comes with uv: install it (https://docs.astral.sh/uv), or give mcpServers.s.command its full path. "
            "Searched in /nowhere /else",
            id="launcher",
        ),
        pytest.param(
            UpstreamSpec("s", command="serve", args=("--token", SECRET), secrets=(SECRET,)),
            "it exited with code 3 before it answered",
            "run it by hand: serve --token ***",
            id="exit",
        ),
        pytest.param(
            UpstreamSpec("s", command="serve"),
            "it exited with code 1; the last line on its stderr was: Error: GITHUB_TOKEN is required",
            'GITHUB_TOKEN is set in this shell, but the server does not get it: add "GITHUB_TOKEN": "${GITHUB_TOKEN}" '
            "to mcpServers.s.env",
            id="not passed on",
        ),
        pytest.param(
            UpstreamSpec("s", command="slow", connect_timeout=5),
            "no complete answer from command 'slow' within 5 s",
            "raise mcpServers.s.connectTimeoutMs (now 5000)",
            id="hang",
        ),
        pytest.param(
            UpstreamSpec("a b", transport="http", url="https://x.example/mcp"),
            "https://x.example/mcp answered HTTP 401 (Unauthorized)",
            "codemode-mcp login 'a b'",
            id="login",
        ),
        pytest.param(
            UpstreamSpec("s", transport="http", url="https://x.example/mcp"),
            "https://x.example/mcp cannot be reached",
            "start it, or check the network, proxy and VPN",
            id="network",
        ),
    ],
)
def test_what_to_do_about_a_server_that_is_not_there(spec: UpstreamSpec, why: str, advice: str) -> None:
    told = advice_for(spec, why, {"PATH": os.pathsep.join(("/nowhere", "/else")), "GITHUB_TOKEN": SECRET})
    assert advice in told
    assert SECRET not in told


def test_what_is_odd_about_a_listing_is_told_once_for_all_tools() -> None:
    tools = (
        Tool("quiet"),
        Tool("long", "x" * (HUGE_DESCRIPTION + 1)),
        Tool("broken", "b", input_schema={"type": "object", "properties": {"a": {"type": "no such type"}}}),
    )
    found = said(oddities(UpstreamView("s", "ready", tools=tools), "server s"))
    assert [status for status, _ in found] == ["warn", "info", "info"]
    assert "arguments of 'broken' are not checked" in found[0][1]
    assert found[1][1] == "1 of 3 tools have no description: quiet"
    assert found[2][1] == "descriptions of more than 8,000 characters: long"


def listing(*schemas: Any, **more: Any) -> UpstreamView:
    """Return a server whose tools have these arguments, as it lists them."""
    items = [
        {"name": f"t{n}", "description": "d", "inputSchema": {"type": "object", **each}, **more}
        for n, each in enumerate(schemas)
    ]
    return UpstreamView("s", "ready", tools=read_tools(items)[0])


def test_parts_of_schemas_that_are_not_enforced_are_named_with_their_reasons() -> None:
    year = {"properties": {"year": {"type": "string", "enum": [2024]}}}
    tag = {"properties": {"tag": {"type": "string", "pattern": "(?=a)", "minLength": 1}}}
    doubling = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(60)} | {"a60": {}}
    result = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 5, "maximum": 1}}}
    view = listing(year, tag, {"$defs": doubling, "$ref": "#/$defs/a0"}, {}, outputSchema=result)
    found = said(oddities(view, "server s"))
    of_result = "results of 't{}' are not compared with all of its schema: properties.n: no number is within the bounds"
    assert [(status, text.partition(",")[0]) for status, text in found if text.startswith("results")] == [
        ("info", of_result.format(n)) for n in range(4)
    ]
    assert [each for each in found if not each[1].startswith("results")] == [
        (
            "info",
            "arguments of 't0' are not checked against all of its schema: "
            "properties.year: no listed value has the type, so either is accepted",
        ),
        (
            "warn",
            "arguments of 't1' are not checked against all of its schema: "
            'properties.tag: "pattern" cannot be read and is left out',
        ),
        ("warn", "arguments of 't2' are not checked before they are sent: it expands to more than 50000 subschemas"),
    ]


def test_of_many_parts_that_are_not_enforced_the_first_are_named() -> None:
    wrong = {"type": "string", "enum": [1]}
    [(_, text)] = said(oddities(listing({"properties": {f"p{n}\u202e": wrong for n in range(30)}}), "server s"))
    assert text.count("so either is accepted") == 3
    assert text.endswith("; and 17 more")
    assert "\u202e" not in text
    found = said(oddities(listing(*[{"properties": {"a": wrong}}] * 30), "server s"))
    assert len(found) == 11
    assert found[-1] == ("info", "20 more schemas are not enforced in full")


def test_a_server_with_nothing_to_offer_is_a_warning() -> None:
    assert [check.status for check in oddities(UpstreamView("s", "ready"), "server s")] == ["warn"]
    assert list(oddities(UpstreamView("s", "ready", resources=True), "server s")) == []


# the budget


def test_names_that_are_cut_are_seen_in_the_description_as_it_is_written() -> None:
    from codemode_mcp.server.descriptions import exec_description

    few = exec_description({"a": "a", "b": "b"}, ("javascript",))
    names = {f"serverWithALongName{n}": f"server-with-a-long-name{n}" for n in range(200)}
    many = exec_description(names, ("javascript",))
    assert _CUT.search(few) is None
    cut = _CUT.search(many)
    assert cut is not None
    assert many.split(" (in code")[0].count("server with a long name") + int(cut[1]) == 200


# ahead of time


def test_without_a_network_setup_says_what_works_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*_: object, **__: object) -> Path:
        raise RuntimeUnavailable("Cannot fetch esbuild: npm cannot get it. Is this machine offline?")

    monkeypatch.setattr("codemode_mcp.program.esbuild.find_esbuild", nowhere)
    monkeypatch.setattr("codemode_mcp.program.esbuild.fetch_esbuild", nowhere)
    check = checkup._esbuild(Config())
    assert (check.status, "offline" in check.detail) == ("fail", True)
    assert "JavaScript programs work without esbuild" in check.advice
    named = checkup._esbuild(Config(tools=ToolSettings(esbuild="/no/such/esbuild")))
    assert named.advice.startswith('correct "tools.esbuild"')
    assert (
        checkup._esbuild(Config(tools=ToolSettings(code_mode=CodeModeSettings(languages=("javascript",))))).status
        == "info"
    )


# the round and the report


@pytest.mark.anyio
async def test_what_is_slow_delays_nothing_else_and_the_order_stays() -> None:
    told: list[tuple[int, tuple[str, ...]]] = []
    checkup = Checkup(lambda now: told.append((now.done, tuple(now.waiting))))
    release = anyio.Event()

    async def slow() -> list[Check]:
        await release.wait()
        return [Check("slow", "ok", "at last")]

    async def fast() -> list[Check]:
        return [Check("fast", "ok", "fast")]

    async def watch() -> None:
        while checkup.done < 1:
            await anyio.lowlevel.checkpoint()
        assert [check.name for check in checkup.checks] == ["fast"]
        release.set()

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(watch)
            await checkup._run_all({"slow": slow, "fast": fast})
    assert [check.name for check in checkup.checks] == ["slow", "fast"]
    assert told == [(0, ("slow", "fast")), (1, ("slow",)), (2, ())]


@pytest.mark.anyio
async def test_what_has_failed_is_shown_while_others_are_still_looked_at() -> None:
    shown: list[list[str]] = []
    checkup = Checkup(lambda now: shown.append(problem_lines(now)))

    async def fails() -> list[Check]:
        return [Check("server a", "fail", "gone\x1b[2J"), Check("server a", "info", "disabled")]

    async def later() -> list[Check]:
        while checkup.done < 1:
            await anyio.lowlevel.checkpoint()
        return [Check("engine", "ok", "fine")]

    await checkup._run_all({"engine": later, "server a": fails})
    assert shown == [[], ["fail  server a: gone\\x1b[2J"], ["fail  server a: gone\\x1b[2J"]]


@pytest.mark.anyio
async def test_a_check_that_breaks_is_a_line_of_its_own_and_quotes_nothing() -> None:
    checkup = Checkup()

    async def broken() -> list[Check]:
        raise ValueError(SECRET)

    await checkup._run_all({"http": broken})
    assert said(checkup.checks) == [("fail", "this check itself has failed: ValueError")]


def test_the_line_of_progress_names_what_is_slow() -> None:
    checkup = Checkup()
    checkup.done = 3
    checkup.waiting = dict.fromkeys(f"server {name}" for name in "abcde\x1b")
    assert running_line(checkup) == "3 of 9 done; checking server a, server b, server c, server d and 2 more"
    checkup.waiting = {"server \x1b[2J": None}
    assert "\x1b" not in running_line(checkup)


def test_lines_fit_escape_what_is_foreign_and_give_advice_once() -> None:
    checks = [
        Check("server a\x1b[2J", "fail", "word " * 60 + "\x9b2J", "do this"),
        Check("server b\u202e", "warn", "short", "do this"),
        Check("server c", "warn", "short", "\x1b]0;run this\x07"),
        Check("engine", "ok", "fine"),
    ]
    shown = check.lines(checks, "->")
    assert all(len(line) <= 100 for line in shown)
    assert sum("-> do this" in line for line in shown) == 1
    assert not re.search("[\x07\x1b\x9b\u202e]", "\n".join(shown))
    assert shown[-1] == "ok    engine: fine"


@pytest.mark.parametrize(
    ("statuses", "valid", "code"), [(["ok", "info", "warn"], True, 0), (["ok", "fail"], True, 1), (["fail"], False, 2)]
)
def test_exit_codes(statuses: list[Any], valid: bool, code: int) -> None:
    assert check.exit_code([Check("a", status, "") for status in statuses], config_is_valid=valid) == code


# one process


@pytest.mark.anyio
async def test_only_the_named_servers_are_looked_at_and_secrets_of_the_others_stay_hidden(tmp_path: Path) -> None:
    path = tmp_path / "codemode-mcp.json"
    quits = {"command": sys.executable, "args": ["-c", f"import sys; sys.exit('{SECRET}')"]}
    entries = {"holder": {"command": "no-such-command", "env": {"T": SECRET}}, "quits": quits}
    path.write_text(json.dumps({"mcpServers": entries}), "utf-8")
    checkup = Checkup()
    await checkup.run(load_config(path, environ=dict(os.environ)), ["quits"])
    (check,) = checkup.checks
    assert (check.name, check.status) == ("server quits", "fail")
    assert "it exited with code 1 before it answered" in check.detail
    assert SECRET not in check.detail + check.advice
    assert "***" in check.detail


@pytest.mark.anyio
async def test_a_server_that_is_slow_to_start_has_a_warning_and_does_not_count_as_broken(tmp_path: Path) -> None:
    path, started = tmp_path / "codemode-mcp.json", tmp_path / "started"
    # The first process is as a first start, and the second one as a start on a machine that knows the server.
    once = (
        "import os, runpy, sys; first = not os.path.exists(sys.argv[1]); open(sys.argv[1], 'a').close(); "
        "first and sys.stdin.read(); sys.path.insert(0, os.path.dirname(sys.argv[2])); "
        "runpy.run_path(sys.argv[2], run_name='__main__')"
    )
    arguments = ["-c", once, str(started), str(SERVERS / "counting.py")]
    slow = {"command": sys.executable, "args": arguments, "connectTimeoutMs": 2500}
    path.write_text(json.dumps({"mcpServers": {"slow": slow}}), "utf-8")
    checkup = Checkup()
    await checkup.run(load_config(path, environ=dict(os.environ)), ["slow"])
    warning, known = checkup.checks[:2]
    assert (warning.status, known.status) == ("warn", "ok")
    assert "slow to start: it did not answer within 2.5 s, and was ready after" in warning.detail
    assert "raise mcpServers.slow.connectTimeoutMs (now 2500)" in warning.advice
    assert check.exit_code(checkup.checks, config_is_valid=True) == 0


@pytest.mark.anyio
async def test_a_server_that_hangs_ends_with_its_own_time_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "codemode-mcp.json"
    hangs = {"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"], "connectTimeoutMs": 300}
    path.write_text(json.dumps({"mcpServers": {"hangs": hangs}}), "utf-8")
    checkup = Checkup()
    await checkup.run(load_config(path, environ={}), ["hangs"])
    (check,) = checkup.checks
    assert "within 0.3 s" in check.detail
    assert "mcpServers.hangs.connectTimeoutMs (now 300)" in check.advice


def test_a_variable_that_is_not_set_is_to_be_exported(tmp_path: Path) -> None:
    file = tmp_path / "codemode-mcp.json"
    file.write_text('{"store": {"kind": "sqlite", "path": "${MY_PATH}"}}', "utf-8")
    loaded, checks = check_config(str(file), {}, Gate(refuse_unknown))
    assert loaded is None
    assert checks[0].advice == "export MY_PATH=... where codemode-mcp is started, or correct the file"


def test_a_variable_that_one_server_lacks_is_to_be_exported(tmp_path: Path) -> None:
    file = tmp_path / "codemode-mcp.json"
    file.write_text('{"mcpServers": {"s": {"command": "x", "env": {"TOKEN": "${MY_TOKEN}"}}}}', "utf-8")
    loaded, checks = check_config(str(file), {}, Gate(refuse_unknown))
    assert loaded is not None
    assert {check.status for check in checks} == {"ok"}
    (spec,) = loaded.upstreams
    assert advice_for(spec, spec.unusable or "", {}).startswith("export MY_TOKEN=... where codemode-mcp is started")


def test_a_variable_that_is_not_set_and_the_server_that_fails_with_it_are_one_finding() -> None:
    unset = "KEY is not set, so its default is used in mcpServers.docs.env.KEY"
    other = Check("variables", "info", "X is not set, so its default is used in mcpServers.up.env.X", "export X=...")
    failed = Check("server docs", "fail", "it exited", "run it by hand")
    found = check.joined(
        [Check("variables", "info", unset, "export KEY=..."), other, Check("server up", "ok", "2 tools"), failed]
    )
    assert [each.name for each in found] == ["variables", "server up", "server docs"]
    assert found[0] == other
    assert found[2].detail == f"it exited; {unset}"
    assert found[2].advice == "export KEY=...; if that is not it: run it by hand"
