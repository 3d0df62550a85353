"""Published APIs that serve their own documents: programs get what plain HTTP gets, by every operation."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from tests.integration.harness import Session, serve, write_config
from tests.real_servers.conftest import pypi_server

pytestmark = pytest.mark.anyio

METHODS = ("get", "head", "options", "post", "put", "patch", "delete")
USER = ("ada", "a password")

# httpbin

ARGUMENTS: dict[str, dict[str, Any]] = {
    "/absolute-redirect/{n}": {"n": 2},
    "/anything/{anything}": {"anything": "a b/é?#%2F"},
    "/base64/{value}": {"value": "aGVsbG8="},
    "/basic-auth/{user}/{passwd}": {"user": "ada", "passwd": "x"},
    "/bytes/{n}": {"n": 16},
    "/cache/{value}": {"value": 60},
    "/cookies/delete": {"freeform": {"a": ""}},
    "/cookies/set": {"freeform": {"a": "b & c", "d": "é"}},
    "/cookies/set/{name}/{value}": {"name": "a", "value": "b"},
    "/delay/{delay}": {"delay": 0},
    "/digest-auth/{qop}/{user}/{passwd}": {"qop": "auth", "user": "ada", "passwd": "x"},
    "/digest-auth/{qop}/{user}/{passwd}/{algorithm}": {"qop": "auth", "user": "a", "passwd": "x", "algorithm": "MD5"},
    "/digest-auth/{qop}/{user}/{passwd}/{algorithm}/{stale_after}": {
        "qop": "auth",
        "user": "ada",
        "passwd": "x",
        "algorithm": "SHA-256",
        "stale_after": "never",
    },
    "/drip": {"duration": 0, "numbytes": 5, "code": 200, "delay": 0},
    "/etag/{etag}": {"etag": "abc", "If-None-Match": '"abc"'},
    "/hidden-basic-auth/{user}/{passwd}": {"user": "ada", "passwd": "x"},
    "/links/{n}/{offset}": {"n": 3, "offset": 1},
    "/range/{numbytes}": {"numbytes": 20},
    "/redirect-to": {"url": "/get?a=1&b=é", "status_code": 303},
    "/redirect/{n}": {"n": 3},
    "/relative-redirect/{n}": {"n": 2},
    "/response-headers": {"freeform": {"X-Note": "one two"}},
    "/status/{codes}": {"codes": "418"},
    "/stream-bytes/{n}": {"n": 12},
    "/stream/{n}": {"n": 2},
}
"""Arguments by path. Those of the other operations are optional."""

RANDOM = ("getBytesByN", "getStreamBytesByN", "getUuid")
NO_LOGIN = "Server 'httpbin' has no credentials. Ask the user to write \"auth\" in mcpServers.httpbin."
PASSING = ("headers", "user-agent", "origin")
"""Members of answers that tell of a client."""

CALL_ALL = """
const found = {};
for (const [name, given] of Object.entries(CASES)) {
  const result = await MCP.httpbin[name](given).catch((error) => error.message);
  if (typeof result === "string") {
    found[name] = result;
    continue;
  }
  const { isError = false, content, structuredContent, _meta } = result;
  const shown = content.map((each) => each.text ?? each.data ?? each.resource.blob);
  found[name] = { isError, status: _meta.http.status, json: structuredContent ?? null, shown };
}
return found;
"""


@dataclass(frozen=True)
class Bench:
    """A connected client, and the addresses of the APIs."""

    session: Session
    httpbin: str
    kinto: str


@pytest.fixture(scope="module")
def ports() -> Iterator[list[int]]:
    python = pypi_server("apis", "python")["command"]
    script = Path(__file__).with_name("served_apis.py")
    with subprocess.Popen(
        [python, "-W", "ignore", str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
        process.kill()


@pytest.fixture(scope="module")
async def apis(ports: list[int], tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncIterator[Bench]:
    httpbin, kinto = (f"http://127.0.0.1:{port}" for port in ports)
    auth = {"type": "basic", "username": USER[0], "password": USER[1]}
    servers = {
        # The document of httpbin names httpbin.org, that of Kinto this machine.
        "httpbin": {"openapi": f"{httpbin}/spec.json", "baseUrl": httpbin},
        "kinto": {"openapi": f"{kinto}/v1/__api__", "auth": auth},
    }
    limits = {"connectWaitMs": 25_000, "timeoutMs": 25_000, "maxOutputBytes": 1_000_000}
    async with serve(write_config(tmp_path_factory.mktemp("apis"), servers, codeMode=limits)) as session:
        yield Bench(session, httpbin, f"{kinto}/v1")


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield method, path and node of each operation."""
    for path, node in document["paths"].items():
        for method in METHODS:
            if method in node:
                yield method, path, node[method]


def function_name(method: str, path: str) -> str:
    """Return the name of the function of an operation without `operationId`."""
    words = [word for part in path.split("/") for word in re.findall(r"[A-Za-z0-9]+", re.sub(r"^{", "by ", part))]
    return method + "".join(word[0].upper() + word[1:] for word in words)


def arguments(path: str, node: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that an operation of httpbin takes."""
    known = {*re.findall(r"{(\w+)}", path), *(each["name"] for each in node.get("parameters", []))}
    return {name: value for name, value in ARGUMENTS.get(path, {}).items() if name in known}


def plain_request(client: httpx2.Client, method: str, path: str, node: dict[str, Any]) -> httpx2.Response:
    """Send the request of an operation of httpbin, as its document describes it, without codemode-mcp."""
    given = arguments(path, node)
    places = {each["name"]: each["in"] for each in node.get("parameters", [])}
    target = re.sub(r"{(\w+)}", lambda found: quote(str(given[found[1]]), safe=""), path)
    sent: dict[str, dict[str, Any]] = {"query": {}, "formData": {}, "header": {"accept": accepted(node)}, "path": {}}
    for name, value in given.items():
        if name in places:
            sent[places[name]] |= value if isinstance(value, dict) else {name: value}
    return client.request(
        method, target, params=sent["query"] or None, data=sent["formData"] or None, headers=sent["header"]
    )


def accepted(node: dict[str, Any]) -> str:
    return ", ".join([*node.get("produces", ["application/json"]), "*/*;q=0.1"])


def without_passing(value: Any) -> Any:
    """Return JSON data without what differs between clients."""
    if isinstance(value, dict):
        return {key: without_passing(each) for key, each in value.items() if key not in PASSING}
    if isinstance(value, str) and value.startswith("{"):
        with suppress(ValueError):
            return [without_passing(json.loads(line)) for line in value.splitlines()]
    return value


def seen_of(response: httpx2.Response) -> dict[str, Any]:
    """Return an answer in the form of `CALL_ALL`."""
    kind = response.headers.get("content-type", "").partition(";")[0]
    seen = {"isError": not response.is_success, "status": response.status_code, "json": None}
    if not response.is_success:
        reason = f"HTTP {response.status_code} {response.reason_phrase}"
        return {**seen, "shown": [reason, response.text] if response.content else [reason]}
    with suppress(ValueError):
        if kind == "application/json":
            return {**seen, "json": response.json(), "shown": []}
    if not response.content:
        return {**seen, "shown": ["null"]}
    is_text = kind.startswith("text/") or kind in ("application/json", "application/xml", "image/svg+xml")
    return {**seen, "shown": [response.text if is_text else base64.b64encode(response.content).decode()]}


def comparable(name: str, seen: dict[str, Any]) -> Any:
    """Return an answer without what differs between two equal requests."""
    if name in RANDOM:
        return {**seen, "json": None, "shown": [len(each) for each in seen["shown"]]}
    return {**seen, "json": without_passing(seen["json"]), "shown": [without_passing(each) for each in seen["shown"]]}


async def test_programs_get_what_plain_http_gets_from_each_operation_of_httpbin(apis: Bench) -> None:
    plain: dict[str, dict[str, Any]] = {}
    cases: dict[str, dict[str, Any]] = {}
    with httpx2.Client(base_url=apis.httpbin, follow_redirects=True) as client:
        client.event_hooks = {"response": [lambda _: client.cookies.clear()]}  # codemode-mcp keeps none
        for method, path, node in operations(client.get("/spec.json").json()):
            name = function_name(method, path)
            cases[name] = arguments(path, node)
            plain[name] = seen_of(plain_request(client, method, path, node))
    found = await apis.session.value(f"const CASES = {json.dumps(cases)};{CALL_ALL}")
    unauthorized = [seen for seen in found.values() if isinstance(seen, dict) and seen["status"] == 401]
    assert {seen["shown"].pop() for seen in unauthorized} == {NO_LOGIN}
    assert len(found) == 73
    assert "the content encoding 'br', which was not asked for" in found.pop("getBrotli")
    del plain["getBrotli"]
    differing = {
        name: (found[name], plain[name])
        for name in plain
        if comparable(name, found[name]) != comparable(name, plain[name])
    }
    assert differing == {}


# Kinto

REFUSED = "This user cannot access this resource."

KEPT = """
const { kinto } = MCP;
const shown = [];
const kept = (result) => {
  const [, body] = result.content;
  const { status, headers } = result._meta.http;
  shown.push(result.isError ? [status, body ? JSON.parse(body.text).message : null] : status);
  return { value: result.structuredContent, headers };
};
const library = { bucket_id: "library" };
const books = { ...library, collection_id: "books" };
"""

FILL = """
kept(await kinto.heartbeat()); kept(await kinto.lbheartbeat()); kept(await kinto.version());
const info = kept(await kinto.serverInfo()).value;
kept(await kinto.getOpenapiSpec()); kept(await kinto.contribute());

kept(await kinto.createBucket({ data: { id: "library" } }));
kept(await kinto.updateBucket({ id: "other", data: { color: "red" } }));
kept(await kinto.patchBucket({ id: "other", data: { size: 3 } }));
const bucket = kept(await kinto.getBucket({ id: "other" })).value;
const buckets = kept(await kinto.getBuckets({ _sort: ["id"], _fields: ["color"] })).value;

kept(await kinto.createGroup({ ...library, data: { id: "readers", members: ["basicauth:x"] } }));
kept(await kinto.updateGroup({ ...library, id: "writers", data: { members: [] } }));
kept(await kinto.patchGroup({ ...library, id: "writers", data: { members: ["basicauth:y"] } }));
const group = kept(await kinto.getGroup({ ...library, id: "writers" })).value;
const groups = kept(await kinto.getGroups({ ...library, _sort: ["-id"] })).value;

kept(await kinto.createCollection({ ...library, data: { id: "books" } }));
kept(await kinto.updateCollection({ ...library, id: "maps", data: { sort: "title" } }));
kept(await kinto.patchCollection({ ...library, id: "maps", data: { displayFields: ["title"] } }));
const collection = kept(await kinto.getCollection({ ...library, id: "maps" })).value;
const collections = kept(await kinto.getCollections({ ...library, _sort: ["id"] })).value;

const requests = Array.from({ length: 23 }, (_, n) => ({
  method: "PUT", path: `/buckets/library/collections/books/records/book-${n}`,
  body: { data: { title: `Title ${n} é`, pages: 100 + n, "on loan": n % 2 === 0 } },
}));
kept(await kinto.batch({ requests }));
kept(await kinto.createRecord({ ...books, data: { id: "new", title: "New", pages: 1 } }));
const { headers: { etag } } = kept(await kinto.getRecord({ ...books, id: "book-0" }));
kept(await kinto.getRecord({ ...books, id: "book-0", "If-None-Match": etag }));
kept(await kinto.updateRecord({ ...books, id: "book-0", data: { title: "Second" }, "If-Match": etag }));
kept(await kinto.updateRecord({ ...books, id: "book-0", data: { title: "Third" }, "If-Match": etag }));
kept(await kinto.patchRecord({ ...books, id: "book-1", data: { pages: 7 }, "Response-Behavior": "light" }));
kept(await kinto.updateRecord({ ...books, id: "a book/2?", data: { title: "Refused" } }));
kept(await kinto.getRecord({ ...books, id: "absent" }));
kept(await kinto.getRecords({ bucket_id: "absent", collection_id: "books" }));

const pages = [];
for (let next = {}; next; ) {
  const page = kept(await kinto.getRecords({ ...books, _sort: ["id"], _limit: 9, ...next }));
  pages.push(page.value.data);
  const address = page.headers["next-page"];
  next = address && { _token: new URL(address).searchParams.get("_token") };
}
const few = kept(await kinto.getRecords({ ...books, _sort: ["-pages"], _fields: ["title"], _limit: 3 })).value;
return { shown, pages, names: Object.keys(kinto),
  seen: { "": info, "/buckets/other": bucket, "/buckets?_sort=id&_fields=color": buckets,
    "/buckets/library/groups/writers": group, "/buckets/library/groups?_sort=-id": groups,
    "/buckets/library/collections/maps": collection, "/buckets/library/collections?_sort=id": collections,
    "/buckets/library/collections/books/records?_sort=-pages&_fields=title&_limit=3": few } };
"""

EMPTY = """
kept(await kinto.deleteRecord({ ...books, id: "book-2" }));
const deleted = kept(await kinto.deleteRecords({ ...books, _limit: 5 })).value.data.map((each) => each.deleted);
kept(await kinto.deleteCollection({ ...library, id: "maps" })); kept(await kinto.deleteCollections(library));
kept(await kinto.deleteGroup({ ...library, id: "writers" })); kept(await kinto.deleteGroups(library));
kept(await kinto.deleteBucket({ id: "other" })); kept(await kinto.deleteBuckets());
kept(await kinto.deleteUserData({ principal: "basicauth:x" }));
return { shown, deleted, buckets: kept(await kinto.getBuckets()).value };
"""


def plain_pages(client: httpx2.Client, target: str) -> list[list[Any]]:
    """Return the pages of a list of Kinto."""
    pages, address = [], f"{target}&_limit=9"
    while address:
        answer = client.get(address)
        pages.append(answer.json()["data"])
        address = answer.headers.get("next-page", "")
    return pages


async def test_each_operation_of_kinto_does_its_work_with_pages_and_errors(apis: Bench) -> None:
    filled = await apis.session.value(KEPT + FILL)
    with httpx2.Client(base_url=apis.kinto, auth=USER) as client:
        assert filled["seen"] == {target: client.get(target).json() for target in filled["seen"]}
        assert filled["pages"] == plain_pages(client, "/buckets/library/collections/books/records?_sort=id")
        emptied = await apis.session.value(KEPT + EMPTY)
        assert client.get("/buckets").json() == emptied["buckets"] == {"data": []}
    assert [len(page) for page in filled["pages"]] == [9, 9, 6]
    assert emptied["deleted"] == [True] * 5
    # Its file with the version is missing.
    failed = [[500, "A programmatic error occurred, developers have been informed."], [304, None]]
    failed += [[412, "Resource was modified meanwhile"], [404, "The resource you are looking for could not be found."]]
    failed += [[404, None], [403, REFUSED]]
    assert [each for each in filled["shown"] if each not in (200, 201)] == failed
    assert [each for each in emptied["shown"] if each != 200] == [[403, REFUSED]]
    called = set(re.findall(r"kinto\.(\w+)\(", FILL + EMPTY))
    assert called == set(filled["names"])
    assert len(called) == 36
