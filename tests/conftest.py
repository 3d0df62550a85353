"""Fixtures that all tests share: the event loop, folders of their own, one compiled engine, esbuild, and PostgreSQL."""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from codemode_mcp.base.errors import CodeModeError
from codemode_mcp.base.paths import cache_dir
from codemode_mcp.process.instance.registry import is_running, read_record
from codemode_mcp.program.esbuild import find_esbuild
from codemode_mcp.program.intl import find_intl, intl_reader
from codemode_mcp.sandbox.compiled import compiled_path
from codemode_mcp.sandbox.engine import Engine, open_engine
from codemode_mcp.server.control import endpoints
from tests.properties import examples
from tests.stores.postgres_server import NoServer, PostgresServer, postgres_server

# The time of an example, or of its data, says nothing about the code on a machine that others use. The same change
# passes or fails everywhere; with `EXAMPLES`, each run tries other examples.
settings.register_profile(
    "tests",
    deadline=None,
    derandomize="EXAMPLES" not in os.environ,
    max_examples=examples(50),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tests")

COMPILED = Path(__file__).parents[1].resolve() / ".cache" / "engine"
"""Folder of the compiled form of the engine, for all runs of the tests: compiling takes 3 s of processor time."""

LONG = (
    "tests/integration/test_serve_http.py",
    "tests/integration/test_contract.py",
    "tests/integration/test_repl.py",
    "tests/integration/test_command_line.py",
    "tests/test_packaging.py",
    "tests/examples/test_readmes.py",
    "tests/integration/test_instance_commands.py",
    "tests/faults/test_network.py",
    "tests/integration/test_serve_profiles.py",
    "tests/extensions/page/test_servers.py",
    "tests/matrix/test_matrix.py",
    "tests/extensions/page/test_opening.py",
    "tests/extensions/page/test_decisions.py",
    "tests/integration/test_instance_life.py",
    "tests/tasks/test_tasks.py",
    "tests/faults/test_crashes.py",
    "tests/integration/test_serve_held_items.py",
    "tests/upstream_clients/test_tasks.py",
    "tests/faults/test_processes.py",
    "tests/integration/test_instance.py",
    "tests/integration/test_serve_reload.py",
    "tests/trust/test_mutations.py",
    "tests/integration/test_serve_http_guards.py",
    "tests/integration/test_serve_overrides.py",
    "tests/faults/test_instances.py",
    "tests/conformance/test_conformance.py",
    "tests/extensions/page/test_hostile.py",
    "tests/integration/test_serve_tasks.py",
    "tests/integration/test_serve_http_auth.py",
    "tests/integration/test_serve_items.py",
    "tests/mcp_conformance/test_client_suite.py",
    "tests/integration/test_serve_modes.py",
    "tests/integration/test_serve_trust.py",
    "tests/apps/test_official_host.py",
    "tests/extensions/type_check/test_score.py",
    "tests/integration/test_serve_contexts.py",
    "tests/integration/test_serve_passthrough.py",
    "tests/sandbox_escape/test_built_ins_overwritten.py",
    "tests/integration/test_instance_clients.py",
    "tests/upstream_clients/test_upstream_life.py",
    "tests/benchmarks/test_harnesses.py",
    "tests/apps/test_hostile_apps.py",
    "tests/test_first_commands.py",
    "tests/integration/test_serve_login.py",
    "tests/integration/test_serve_upstreams.py",
    "tests/login/test_login_flow.py",
    "tests/integration/test_serve_approval.py",
    "tests/integration/test_trust_commands.py",
    "tests/upstream_clients/test_upstream_questions.py",
    "tests/integration/test_serve_questions.py",
    "tests/integration/test_serve_resources.py",
    "tests/stores/test_runs_that_outlive.py",
    "tests/integration/test_serve_debug_log.py",
    "tests/faults/test_floods.py",
    "tests/integration/test_serve_outlives.py",
    "tests/integration/test_serve_process.py",
    "tests/upstream_clients/test_upstream_nasty.py",
    "tests/integration/test_serve_limits.py",
    "tests/integration/test_serve_client_tasks.py",
    "tests/upstream_clients/test_resource_subscriptions.py",
    "tests/extensions/program_tools/replay/test_recorded_runs.py",
    "tests/faults/test_storm.py",
    "tests/faults/fuzz/test_fuzz_programs.py",
    "tests/extensions/type_check/test_older_programs.py",
    "tests/sandbox_escape/test_secrets_and_messages.py",
    "tests/declarations/test_declaration_agreement.py",
    "tests/runs/test_limits.py",
    "tests/integration/test_serve_suspension.py",
    "tests/integration/test_serve_plugins.py",
    "tests/trust/test_service.py",
    "tests/extensions/type_check/test_modes.py",
    "tests/extensions/page/test_program_pages.py",
    "tests/extensions/page/test_trust.py",
    "tests/sandbox/test_intl.py",
    "tests/integration/test_run_saved_program.py",
    "tests/integration/test_serve_api_changes.py",
    "tests/stores/test_store_promises.py",
    "tests/apps/test_inspector.py",
    "tests/mcp_conformance/test_client_tasks.py",
    "tests/integration/test_private_folders.py",
    "tests/integration/test_new_and_test.py",
    "tests/integration/test_masking.py",
    "tests/integration/test_serve_large_integers.py",
    "tests/saved_programs/test_compiling.py",
    "tests/extensions/program_tools/program_tests/test_drafts_of_recordings.py",
    "tests/real_servers/test_served_documents.py",
    "tests/integration/test_serve_store.py",
    "tests/integration/test_serve_logs.py",
)
"""Files that take long though they have few tests, by their time."""

_SHARED = r"^/(tmp/codemode-mcp-\d+|run/user/\d+/codemode-mcp)$"
"""Folders for the sockets of all serving processes of a user."""


def pytest_configure() -> None:
    """Let SIGINT interrupt again where a shell started the tests in the background, and SIGHUP end under `nohup`.

    Processes under test would inherit that such a signal is ignored, and tests that send one would wait for ever.
    """
    for name, handler in (("SIGINT", signal.default_int_handler), ("SIGHUP", signal.SIG_DFL)):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the files for several processes: long ones first, so that none is left alone at the end."""
    if not hasattr(config, "workerinput"):
        return
    tests = Counter(item.nodeid.partition("::")[0] for item in items)

    def place(item: pytest.Item) -> tuple[int, int, str]:
        file = item.nodeid.partition("::")[0]
        return (LONG.index(file) if file in LONG else len(LONG), -tests[file], file)

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """Let the garbage collector never visit again what exists when the tests are collected."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory, engine_cache: Path) -> Iterator[None]:
    """Give processes under test folders of their own, apart from those of the user and of earlier runs.

    They find the engine compiled: on a busy machine, compiling takes longer than some tests wait. They find the
    compiler of TypeScript, if `codemode-mcp setup --check` has fetched it for this user.
    """
    fetched = list(cache_dir().glob("typescript-*"))
    # The path of a socket has to be short.
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="cm-") as runtime:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("user-cache")))
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("user-state")))
        patch.setenv("XDG_RUNTIME_DIR", runtime)
        # Commands in this process must not find servers of other processes with tests, nor those of the user.
        every = endpoints.folders
        patch.setattr(endpoints, "folders", lambda: [each for each in every() if not re.search(_SHARED, str(each))])
        shutil.copytree(engine_cache, cache_dir(), dirs_exist_ok=True)
        for each in fetched if sys.platform != "win32" else ():
            (cache_dir() / each.name).symlink_to(each)
        yield


@pytest.fixture(scope="module", autouse=True)
def instances_end(own_folders: None) -> Iterator[None]:
    """End the shared instances that the tests of a module have started: a client that starts one does not end it."""
    yield
    found = [(path.stem, read_record(path.stem)) for path in (cache_dir() / "instance").glob("*.json")]
    for key, record in found:
        if record is not None and is_running(key):
            with suppress(ProcessLookupError):
                os.kill(record.pid, signal.SIGTERM)
    until = time.monotonic() + 20
    while any(is_running(key) for key, _ in found) and time.monotonic() < until:
        time.sleep(0.02)


@pytest.fixture(scope="session")
def engine_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the engine's compiled form."""
    folder = tmp_path_factory.mktemp("engine-cache")
    path = compiled_path(COMPILED)
    if path is None:  # others can write to the folder
        with open_engine(folder, max_threads=1):
            return folder
    if not path.exists():
        with open_engine(COMPILED, max_threads=1):
            pass
    shutil.copy(path, folder)
    return folder


@pytest.fixture(scope="session")
def engine(engine_cache: Path) -> Iterator[Engine]:
    """The engine. Guests run on `engine.threads`."""
    with open_engine(engine_cache, max_threads=4, intl=intl_reader(cache_dir())) as opened:
        yield opened


@pytest.fixture(scope="session")
def intl() -> None:
    """Skip tests of programs with `Intl` where its bundle was never built."""
    try:
        find_intl(cache_dir())
    except CodeModeError as error:
        # With npm, the installation has built the bundle, unless its pin is of other scripts.
        if shutil.which("npm"):
            pytest.fail(f"{error.message} After a change to the scripts, run scripts/pin_intl.py.")
        pytest.skip(error.message)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Return a PostgreSQL server, started by the first test of a worker that needs one; skip the test where none is.

    A test that stops the server starts it again.
    """
    with ExitStack() as stack:
        try:
            server = stack.enter_context(postgres_server())
        except NoServer as missing:
            pytest.skip(str(missing))
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> str:
    """Return a URL of the server with a schema for this test alone."""
    return postgres.url(f"t_{uuid.uuid4().hex[:16]}")


@pytest.fixture(scope="session")
def esbuild() -> None:
    """Skip tests that run TypeScript where esbuild was never fetched."""
    try:
        find_esbuild(None, environ=os.environ, cache_dir=cache_dir())
    except CodeModeError as error:
        pytest.skip(error.message)
