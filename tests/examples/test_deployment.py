"""The files of `examples/deployment`: their own validators accept them, they fit the image and each other, and two
replicas with this configuration, this database and this proxy share their programs.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from ruamel.yaml import YAML

from codemode_mcp.config.load import load_config
from codemode_mcp.stores.schema import address
from tests.container_file import environment, given
from tests.integration.harness import SECONDS, until
from tests.integration.http_harness import Served, serve_http
from tests.run import ARCHIVES, KUBERNETES, SUITES, haproxy, postgres_binaries
from tests.stores.postgres_server import PostgresServer

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="these files are for containers of Linux")

DEPLOYMENT = Path(__file__).parents[2] / "examples" / "deployment"
PROXY = (DEPLOYMENT / "haproxy.cfg").read_text("utf-8")
CONFIGURATION = (DEPLOYMENT / "codemode-mcp.json").read_text("utf-8")
DATABASE = (DEPLOYMENT / "database.sql").read_text("utf-8")

NO_HAPROXY = "HAProxy is not installed; on Debian: apt-get install haproxy"
OLDEST_KUBERNETES = "1.30"
KUBERNETES_FILES = (
    *("_definitions", "namespace-v1", "configmap-v1", "service-v1", "deployment-apps-v1"),
    *("poddisruptionbudget-policy-v1", "networkpolicy-networking-v1"),
)
"""Schemas of the kinds in the manifest."""

ACCEPTED_FINDINGS = {
    "CL-0004": "the image is built here, so it has no version of a registry",
    "CL-0019": "tags of PostgreSQL and HAProxy bring their security updates; a digest would not",
}
"""Findings of the linter of compose files that these files keep, with the reason."""


def script(name: str) -> str:
    """Return the path of a program of the environment; skip the test where there is no wheel of it."""
    found = shutil.which(name, path=sysconfig.get_path("scripts"))
    if found is None:
        pytest.skip(f"there is no wheel of {name} for this system")
    return found


@pytest.fixture(scope="module")
def compose() -> Any:
    """Return the compose file as Docker Compose reads it, with all defaults."""
    command = [script("docker-compose"), "--file", str(DEPLOYMENT / "compose.yaml"), "config", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_the_linter_finds_nothing_in_the_compose_file_but_what_is_accepted() -> None:
    command = [script("compose-lint"), "--format", "json", str(DEPLOYMENT / "compose.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.stdout, done.stderr
    assert {each["rule_id"] for each in json.loads(done.stdout)["findings"]} == set(ACCEPTED_FINDINGS)


def test_the_compose_file_fits_the_image_the_proxy_and_the_configuration(compose: Any) -> None:
    proxy, server, database = (compose["services"][name] for name in ("proxy", "codemode-mcp", "postgres"))
    (port,) = given("EXPOSE")
    assert re.findall(r"^    bind :(\d+)$", PROXY, re.MULTILINE) == [str(proxy["ports"][0]["target"])] == [port]
    assert f" codemode-mcp:{port} " in PROXY
    assert "option httpchk GET /readyz" in PROXY
    assert [name for name, each in compose["services"].items() if "ports" in each] == ["proxy"]
    assert proxy["ports"][0]["host_ip"] == "127.0.0.1", "tokens are not encrypted on this way"

    assert server["deploy"]["replicas"] == 2
    assert server["build"]["dockerfile"] == "Containerfile"
    assert any("'codemode-mcp[postgres]'" in each for each in given("RUN"))
    kept = {"/cache", "/data"}
    assert {each["target"] for each in server["volumes"]} == {environment()["CODEMODE_MCP_CONFIG"], *kept}
    assert {"/config", *kept} == set(json.loads(given("VOLUME")[0]))

    mounted = {
        name: {each["source"] for each in compose["services"][name].get("secrets", ())} for name in compose["services"]
    }
    assert set(re.findall(r"/run/secrets/(\w+)", CONFIGURATION)) == mounted["codemode-mcp"]
    read = {*re.findall(r"/run/secrets/(\w+)", DATABASE), Path(database["environment"]["POSTGRES_PASSWORD_FILE"]).name}
    assert read == mounted["postgres"]
    page = (DEPLOYMENT / "README.md").read_text("utf-8")
    assert set(re.findall(r"> secrets/(\w+)", page)) == set(compose["secrets"]), "the page makes each of them"

    for each in compose["services"].values():
        assert each["read_only"]
        assert each["deploy"]["resources"]["limits"].keys() == {"cpus", "memory", "pids"}
    assert compose["networks"]["database"]["internal"]
    assert "database" not in proxy["networks"]
    assert [*database["networks"]] == ["database"]


def test_haproxy_accepts_its_file_without_a_warning() -> None:
    if (program := haproxy()) is None:
        pytest.skip(NO_HAPROXY)
    command = [program, "-c", "-q", "-f", str(DEPLOYMENT / "haproxy.cfg")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.fixture(scope="module")
def kubernetes() -> dict[str, Any]:
    """Return the objects of the manifest by their kinds."""
    objects = list(YAML(typ="safe").load_all((DEPLOYMENT / "kubernetes.yaml").read_text("utf-8")))
    return {each["kind"]: each for each in objects}


def test_the_validator_accepts_the_manifest_for_the_oldest_and_the_newest_kubernetes(tmp_path: Path) -> None:
    archive = SUITES / ARCHIVES[KUBERNETES][0]
    if not archive.is_file():
        pytest.skip("the validator is not there: python3 tests/run.py downloads it")
    versions = (OLDEST_KUBERNETES, KUBERNETES.partition("==")[2])
    with zipfile.ZipFile(archive) as packed:
        wanted = re.compile(
            rf".*\.py|.*/v({'|'.join(versions)})[\d.]*-local-strict/({'|'.join(KUBERNETES_FILES)})\.json"
        )
        packed.extractall(tmp_path, filter(wanted.fullmatch, packed.namelist()))
    for version in versions:
        command = [sys.executable, "-m", "kubernetes_validate", "--strict", "--quiet", "-k", version]
        done = subprocess.run(
            [*command, str(DEPLOYMENT / "kubernetes.yaml")],
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert f"Kubernetes {OLDEST_KUBERNETES} or newer" in (DEPLOYMENT / "kubernetes.yaml").read_text("utf-8")


def test_the_manifest_fits_the_image_and_its_parts_fit_each_other(kubernetes: dict[str, Any]) -> None:
    deployment, policy = kubernetes["Deployment"]["spec"], kubernetes["NetworkPolicy"]["spec"]
    pod = deployment["template"]["spec"]
    (container,) = pod["containers"]
    (port,) = container["ports"]
    assert [str(port["containerPort"])] == given("EXPOSE")
    assert {each["image"] for each in (container, *pod["initContainers"])} == {"registry.example/codemode-mcp:VERSION"}
    by_name = {port["name"]}
    assert {each["targetPort"] for each in kubernetes["Service"]["spec"]["ports"]} == by_name
    assert {each["port"] for rule in policy["ingress"] for each in rule["ports"]} == by_name
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")}
    assert {probe["port"] for probe in probes.values()} == by_name
    paths = {name: probe["path"] for name, probe in probes.items()}
    assert paths == {"startup": "/healthz", "readiness": "/readyz", "liveness": "/healthz"}

    labels = deployment["template"]["metadata"]["labels"]
    assert kubernetes["Service"]["spec"]["selector"] == labels
    selectors = [deployment["selector"], kubernetes["PodDisruptionBudget"]["spec"]["selector"], policy["podSelector"]]
    assert [each["matchLabels"] for each in selectors] == [labels] * 3
    assert deployment["replicas"] > kubernetes["PodDisruptionBudget"]["spec"]["minAvailable"], (
        "no node could be drained"
    )
    assert {each["metadata"]["namespace"] for kind, each in kubernetes.items() if kind != "Namespace"} == {
        kubernetes["Namespace"]["metadata"]["name"]
    }
    assert container["lifecycle"]["preStop"]["sleep"]["seconds"] + 15 <= pod["terminationGracePeriodSeconds"]

    config = kubernetes["ConfigMap"]["data"]
    assert [*config] == [Path(environment()["CODEMODE_MCP_CONFIG"]).name]
    assert set(re.findall(r"\$\{(\w+)\}", *config.values())) == {each["name"] for each in container["env"]}
    keys = {each["valueFrom"]["secretKeyRef"]["key"] for each in container["env"]}
    page = (DEPLOYMENT / "README.md").read_text("utf-8")
    assert set(re.findall(r"--from-(?:literal|file)=([\w-]+)=", page)) == keys, "the page makes each of them"
    mounted = {each["mountPath"]: each for each in container["volumeMounts"]}
    assert set(mounted) == {*json.loads(given("VOLUME")[0]), "/tmp"}
    (first,) = pod["initContainers"]
    made = [Path(each) for each in first["command"] if each.startswith("/")]
    assert {each.parent for each in made} == {Path(each["mountPath"]) for each in first["volumeMounts"]}
    assert {each.name for each in made} == {each["subPath"] for each in mounted.values() if "subPath" in each}


def test_the_manifest_keeps_the_restricted_standard_of_kubernetes(kubernetes: dict[str, Any]) -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards, and the root is read-only."""
    assert kubernetes["Namespace"]["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "restricted"}
    pod = kubernetes["Deployment"]["spec"]["template"]["spec"]
    user, group = given("USER")[-1].split(":")
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": int(user),
        "runAsGroup": int(group),
        "fsGroup": int(group),
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert not pod.keys() & {"hostNetwork", "hostPID", "hostIPC"}
    assert not pod["automountServiceAccountToken"]
    for each in [*pod["initContainers"], *pod["containers"]]:
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert each["resources"]["limits"].keys() == {"cpu", "memory", "ephemeral-storage"}
    assert {kind for volume in pod["volumes"] for kind in volume if kind != "name"} == {"configMap", "emptyDir"}


def test_both_configurations_have_the_same_store_and_clients(kubernetes: dict[str, Any], tmp_path: Path) -> None:
    values = {name: secrets.token_hex(32) for name in ("database_password", "encryption_key", "client_token")}
    for name, value in values.items():
        (tmp_path / name).write_text(value, "utf-8")
    url = f"postgresql://codemode_mcp:{values['database_password']}@postgres:5432/codemode_mcp"
    environ = {"DATABASE_URL": url, "ENCRYPTION_KEY": values["encryption_key"], "CLIENT_TOKEN": values["client_token"]}
    loaded = []
    for text in (placed(CONFIGURATION, tmp_path), *kubernetes["ConfigMap"]["data"].values()):
        path = tmp_path / "codemode-mcp.json"
        path.write_text(text, "utf-8")
        loaded.append(load_config(path, environ=environ | {"PATH": os.environ["PATH"]}))
    one, other = loaded
    assert one.notes == other.notes == ()
    assert one.store is not None
    assert one.store.url == url
    assert one.store == other.store
    assert one.tools == other.tools
    assert one.http.tokens == other.http.tokens != ()


def test_the_address_of_the_database_that_the_page_puts_into_the_secret_is_valid() -> None:
    page = (DEPLOYMENT / "README.md").read_text("utf-8")
    parts = dict(re.findall(r'^(database|tls)="(.*)"$', page, re.MULTILINE))
    assert 'database-url="$database?$tls"' in page
    (url,) = address(f"{parts['database']}?{parts['tls']}").urls()
    assert url.startswith("postgresql://codemode:PASSWORD@db.example:5432/tools")
    created = (DEPLOYMENT.parents[1] / "docs" / "deployment.md").read_text("utf-8")
    assert "CREATE ROLE codemode LOGIN" in created
    assert "ON DATABASE tools TO codemode;" in created


# what the files describe, as processes


class Deployed:
    """Two replicas behind the proxy.

    Attributes:
        front: the address of the proxy.
        replicas: the servers by their names in the log of the proxy.
    """

    def __init__(self, front: Served, replicas: dict[str, Served], log: Path, token: str) -> None:
        self.front = front
        self.replicas = replicas
        self._log = log
        self._token = token

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return (await self.front.call(tool, arguments, authorization=f"Bearer {self._token}"))["result"]

    async def latest(self) -> str:
        """Return the name of the replica that got the latest call."""

        def names() -> list[str]:
            return re.findall(r" replicas/(\w+) .*POST /mcp", self._log.read_text("utf-8"))

        await until(lambda: bool(names()))
        return names()[-1]


def create_database(postgres: PostgresServer, folder: Path) -> None:
    """Create the database as its image does: with the name of `POSTGRES_DB`, by the file that it runs first."""
    postgres.sql("CREATE DATABASE codemode_mcp")
    binaries = postgres_binaries()
    assert binaries is not None
    url = postgres.url().partition("?")[0].removesuffix("/postgres") + "/codemode_mcp"
    command = [str(binaries / "psql"), "-X", "-v", "ON_ERROR_STOP=1", "-d", url, "-f", "-"]
    subprocess.run(command, input=placed(DATABASE, folder), check=True, capture_output=True, text=True, timeout=SECONDS)


def placed(text: str, folder: Path) -> str:
    """Return a file with the folder of secrets at another place."""
    assert "/run/secrets/" in text
    return text.replace("/run/secrets", str(folder))


@asynccontextmanager
async def proxy(replicas: dict[str, Served], log: Path) -> AsyncIterator[Served]:
    """Yield HAProxy with the file of the example. Docker's names are replaced by the addresses of processes."""
    if (program := haproxy()) is None:
        pytest.skip(NO_HAPROXY)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        servers = "".join(f"    server {name} 127.0.0.1:{each.port}\n" for name, each in replicas.items())
        text = re.sub(r"^ +server-template .*\n", servers, PROXY, flags=re.MULTILINE)
        text = text.replace("    bind :8808\n", f"    bind fd@{listener.fileno()}\n")
        assert servers in text
        assert "fd@" in text
        path = log.with_suffix(".cfg")
        path.write_text(text, "utf-8")
        with log.open("wb") as output:
            process = await anyio.open_process(
                [program, "-db", "-f", str(path)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[listener.fileno()],
            )
        front = Served(process, f"http://localhost:{listener.getsockname()[1]}/mcp", log)
        try:
            await front.ready()
            yield front
        finally:
            with anyio.CancelScope(shield=True):
                process.kill()
                await process.wait()
                await process.aclose()


@pytest.fixture(scope="module")
async def deployed(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Deployed]:
    """Yield what the compose file describes, on the PostgreSQL of the tests, with the variables of the image."""
    folder = tmp_path_factory.mktemp("deployment")
    given_secrets = folder / "secrets"
    given_secrets.mkdir()
    token = secrets.token_hex(32)
    (given_secrets / "database_password").write_text(secrets.token_hex(32) + "\n", "utf-8")
    (given_secrets / "encryption_key").write_text(secrets.token_hex(32) + "\n", "utf-8")
    (given_secrets / "client_token").write_text(token + "\n", "utf-8")
    create_database(postgres, given_secrets)
    config = folder / "codemode-mcp.json"
    assert "@postgres:5432/" in CONFIGURATION
    text = placed(CONFIGURATION, given_secrets).replace("@postgres:5432/", f"@127.0.0.1:{postgres.port}/")
    config.write_text(text, "utf-8")
    # The engine is compiled already, as it is in a cache volume.
    homes = {name: str(folder) for name in environment() if name.startswith("XDG_") and "CACHE" not in name}
    async with AsyncExitStack() as stack:
        replicas = {
            name: await stack.enter_async_context(
                serve_http(config, env=homes | {"HOME": "/nonexistent/home"}, own_process=True)
            )
            for name in ("one", "two")
        }
        front = await stack.enter_async_context(proxy(replicas, folder / "haproxy.log"))
        yield Deployed(front, replicas, folder / "haproxy.log", token)
    assert not Path("/nonexistent").exists(), "the home folder is read-only in the container"  # noqa: ASYNC240


@pytest.mark.anyio
async def test_a_program_that_was_suspended_resumes_on_the_other_replica_when_its_own_stops(
    deployed: Deployed, postgres: PostgresServer
) -> None:
    refused = await deployed.front.request(token="another-token-of-some-length")
    assert refused.status_code == 401
    waiting = await deployed.call("exec", code="await yield_control(); return 'resumed'")
    assert waiting["structuredContent"]["status"] == "waiting"
    first = await deployed.latest()
    assert await deployed.replicas[first].end() == 0
    done = await deployed.call("wait", runId=waiting["structuredContent"]["runId"])
    assert done["structuredContent"]["value"] == "resumed"
    assert done["_meta"]["codemode-mcp/telemetry"]["snapshot"]["takenOver"]
    rights = "SELECT rolsuper OR rolcreatedb OR rolcreaterole FROM pg_roles WHERE rolname = 'codemode_mcp'"
    assert postgres.sql(rights) == "f"
    assert postgres.sql("SELECT has_database_privilege('codemode_mcp', 'codemode_mcp', 'CREATE')") == "f"
