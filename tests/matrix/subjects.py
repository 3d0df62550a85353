"""The servers of the matrix, and what a client does with each: calls, prompts, addresses, and the tools that ask."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.integration.harness import OTHER_SERVERS, REPOSITORY, npm_server
from tests.matrix.wire import ROOT, Era

Json = dict[str, Any]
Call = tuple[str, Json]


@dataclass(frozen=True)
class Subject:
    """One server.

    Attributes:
        group: servers of one group are behind us together.
        entry: returns its entry of `mcpServers`; skips the test if it is not installed.
        era: the era that it speaks.
        calls: tools with results that are the same each time.
        prompts: arguments by name of the prompts that are got.
        scheme: the beginning of the addresses of its resources and templates; empty if it has none.
        address: an address of its template.
        completions: params of `completion/complete`.
        update: a subscribed address, and the call after which the server reports updates of it.
        changes: the call after which the server reports changes of all its lists.
        log: the call after which the server sends log messages; `random` if each one differs.
        slow: the call that is cancelled; `count` is the tool that says how many were cancelled.
    """

    name: str
    entry: Callable[[Path], Json]
    era: Era = "legacy"
    calls: tuple[Call, ...] = ()
    prompts: dict[str, Json] = field(default_factory=dict)
    scheme: str = ""
    address: str = ""
    completions: tuple[Json, ...] = ()
    update: tuple[str, Call] | None = None
    changes: Call | None = None
    log: Call | None = None
    random: bool = False
    progress: Call | None = None
    slow: Call | None = None
    count: str = ""
    elicitation: tuple[Call, ...] = ()
    sampling: tuple[Call, ...] = ()
    roots: tuple[Call, ...] = ()
    tasks: tuple[Call, ...] = ()
    group: str = "reference"


def _features(era: Era) -> Callable[[Path], Json]:
    def entry(folder: Path) -> Json:
        command = ["-m", "tests.matrix.features_server", era]
        return {"command": sys.executable, "args": command, "env": {"PYTHONPATH": str(REPOSITORY)}}

    return entry


def _tasks(era: Era) -> Callable[[Path], Json]:
    def entry(folder: Path) -> Json:
        (folder / "tasks").mkdir(exist_ok=True)
        return {"command": sys.executable, "args": [str(OTHER_SERVERS / "task_server.py"), str(folder / "tasks"), era]}

    return entry


def _app(folder: Path) -> Json:
    script = REPOSITORY / ".cache/apps/node_modules/@modelcontextprotocol/server-basic-vanillajs/dist/index.js"
    if not script.is_file():
        pytest.skip("the servers with apps are not installed; python3 tests/run.py installs them")
    return {"command": "node", "args": [str(script), "--stdio"]}


def _pypi(environment: str, name: str, *arguments: str) -> Callable[[Path], Json]:
    def entry(folder: Path) -> Json:
        bin_folder, suffix = ("Scripts", ".exe") if os.name == "nt" else ("bin", "")
        command = REPOSITORY / ".cache" / "servers" / environment / bin_folder / f"{name}{suffix}"
        if not command.is_file():
            pytest.skip(f"{name} is not installed; python3 tests/run.py installs it")
        return {"command": str(command), "args": [each.replace("FOLDER", str(folder)) for each in arguments]}

    return entry


def _git(folder: Path) -> Json:
    repository = folder / "repository"
    repository.mkdir()
    entry = _pypi("mcp-2", "mcp-server-git", "--repository", "FOLDER/repository")(folder)
    times = {"GIT_AUTHOR_DATE": "2026-01-02T03:04:05Z", "GIT_COMMITTER_DATE": "2026-01-02T03:04:05Z"}
    person = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false")
    commit = ("commit", "--quiet", "--allow-empty", "--message", "First")
    for arguments in (("init", "--quiet", "--initial-branch=main"), (*person, *commit)):
        subprocess.run(["git", *arguments], cwd=repository, check=True, env={**os.environ, **times})
    return entry


def _files(folder: Path) -> Json:
    (folder / ROOT).mkdir(parents=True, exist_ok=True)
    (folder / ROOT / "a.txt").write_text("one\n", "utf-8")
    return npm_server("filesystem", str(folder / ROOT.partition("/")[0]))


def prompt_ref(name: str, argument: str, value: str, **context: str) -> Json:
    more = {"context": {"arguments": context}} if context else {}
    return {"ref": {"type": "ref/prompt", "name": name}, "argument": {"name": argument, "value": value}, **more}


def template_ref(uri: str, argument: str, value: str) -> Json:
    return {"ref": {"type": "ref/resource", "uri": uri}, "argument": {"name": argument, "value": value}}


PLAIN_CALLS: tuple[Call, ...] = (
    ("test_simple_text", {}),
    ("test_image_content", {}),
    ("test_audio_content", {}),
    ("test_embedded_resource", {}),
    ("test_multiple_content_types", {}),
    ("test_error_handling", {}),
    ("matrix_members", {}),
)
FEATURES: Json = {
    "calls": PLAIN_CALLS,
    "scheme": "test:",
    "address": "test://template/7/data",
    "completions": (
        prompt_ref("test_prompt_with_arguments", "arg1", "par"),
        template_ref("test://template/{id}/data", "id", "park"),
    ),
    "update": ("test://watched-resource", ("matrix_update", {})),
    "changes": ("matrix_change", {}),
    "log": ("test_tool_with_logging", {}),
    "progress": ("test_tool_with_progress", {}),
    "slow": ("matrix_slow", {}),
    "count": "matrix_cancelled",
}
PROMPTS: dict[str, Json] = {
    "test_simple_prompt": {},
    "test_prompt_with_arguments": {"arg1": "a", "arg2": "b"},
    "test_prompt_with_embedded_resource": {"resourceUri": "test://static-text"},
    "test_prompt_with_image": {},
}

SUBJECTS = (
    Subject(
        "fixture",
        _features("legacy"),
        group="fixture",
        **FEATURES,
        prompts=PROMPTS,
        elicitation=(
            ("test_elicitation", {"message": "Who?"}),
            ("test_elicitation_sep1034_defaults", {}),
            ("test_elicitation_sep1330_enums", {}),
        ),
        sampling=(("test_sampling", {"prompt": "Hello"}),),
        roots=(("matrix_roots", {}),),
    ),
    Subject(
        "fixture-2026",
        _features("modern"),
        "modern",
        group="fixture-2026",
        **FEATURES,
        prompts=PROMPTS | {"test_input_required_result_prompt": {}},
        elicitation=(
            ("test_input_required_result_elicitation", {}),
            ("test_input_required_result_request_state", {}),
            ("test_input_required_result_multi_round", {}),
            ("test_input_required_result_multiple_inputs", {}),
        ),
        sampling=(("test_input_required_result_sampling", {}),),
        roots=(("test_input_required_result_list_roots", {}),),
    ),
    Subject(
        "everything",
        lambda folder: npm_server("everything", "stdio"),
        calls=(
            ("echo", {"message": "hello"}),
            ("get-sum", {"a": 2, "b": 3}),
            ("get-annotated-message", {"messageType": "error", "includeImage": True}),
            ("get-structured-content", {"location": "New York"}),
            ("get-resource-links", {"count": 2}),
            ("get-resource-reference", {"resourceType": "Text", "resourceId": 1}),
            ("get-tiny-image", {}),
        ),
        prompts={"simple-prompt": {}, "args-prompt": {"city": "Paris", "state": "Texas"}},
        scheme="demo:",
        address="demo://resource/dynamic/text/3",
        completions=(
            prompt_ref("completable-prompt", "department", "E"),
            prompt_ref("completable-prompt", "name", "", department="Engineering"),
            template_ref("demo://resource/dynamic/text/{resourceId}", "resourceId", "2"),
        ),
        update=("demo://resource/dynamic/text/1", ("toggle-subscriber-updates", {})),
        log=("toggle-simulated-logging", {}),
        random=True,
        progress=("trigger-long-running-operation", {"duration": 1, "steps": 3}),
        slow=("trigger-long-running-operation", {"duration": 30, "steps": 30}),
        elicitation=(("trigger-elicitation-request", {}),),
        sampling=(("trigger-sampling-request", {"prompt": "Hello", "maxTokens": 10}),),
        roots=(("get-roots-list", {}),),
        tasks=(("simulate-research-query", {"topic": "tea", "ambiguous": False}),),
    ),
    Subject(
        "filesystem",
        _files,
        calls=(
            ("read_text_file", {"path": "FOLDER/files/root/a.txt"}),
            ("list_directory", {"path": "FOLDER/files/root"}),
        ),
        roots=(("list_allowed_directories", {}),),
    ),
    Subject(
        "memory",
        lambda folder: npm_server("memory", env={"MEMORY_FILE_PATH": str(folder / "memory.jsonl")}),
        calls=(("read_graph", {}), ("search_nodes", {"query": "nothing"})),
    ),
    Subject(
        "sequential-thinking",
        lambda folder: npm_server("sequential-thinking"),
        calls=(
            (
                "sequentialthinking",
                {"thought": "one", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1},
            ),
        ),
    ),
    Subject(
        "sqlite",
        _pypi("mcp-1", "mcp-server-sqlite", "--db-path", "FOLDER/rows.db"),
        calls=(("list_tables", {}),),
        scheme="memo:",
        prompts={"mcp-demo": {"topic": "tea"}},
    ),
    Subject(
        "time",
        _pypi("mcp-2", "mcp-server-time", "--local-timezone", "Etc/UTC"),
        calls=(
            (
                "convert_time",
                {"source_timezone": "Etc/UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
            ),
        ),
    ),
    Subject("git", _git, calls=(("git_log", {"repo_path": "FOLDER/repository"}),)),
    Subject(
        "excel",
        _pypi("mcp-2", "excel-mcp-server", "stdio", "--allow-dir", "FOLDER"),
        calls=(("list_workbooks", {"directory": "FOLDER"}), ("describe_workbook", {"path": "FOLDER/none.xlsx"})),
    ),
    Subject("calculator", _pypi("mcp-1", "mcp-server-calculator"), calls=(("calculate", {"expression": "2 + 3 * 4"}),)),
    Subject("app", _app),
    Subject("tasks", _tasks("legacy"), tasks=(("work", {"script": {"polls": 1}, "label": "a"}),)),
    Subject(
        "tasks-2026",
        _tasks("modern"),
        "modern",
        tasks=(
            ("work", {"script": {"polls": 1}, "label": "a"}),
            ("work", {"script": {"ask": True}, "label": "b"}),
        ),
    ),
)
