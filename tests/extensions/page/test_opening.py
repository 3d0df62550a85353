"""Admission to the page: opened files, stolen addresses, forged requests."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import AsyncIterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import h11
import pytest
from playwright.async_api import Browser

from tests.extensions.page.browsers import PAGES, opening, served, showing
from tests.integration.harness import cli, counting, write_config
from tests.integration.http_harness import serve_http

pytestmark = pytest.mark.anyio

COUNT = "return unwrap(await MCP.one.count({ name: 'a' }))"


@pytest.fixture(scope="module")
async def config(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncIterator[Path]:
    folder = tmp_path_factory.mktemp("opening")
    path = write_config(folder, {"one": counting(folder / "log")}, ask=["destructive"])
    async with served(path):
        yield path


async def request(
    address: str, method: str, path: str, body: bytes = b"", **headers: str
) -> tuple[int, dict[str, str], str]:
    """Send one request as no browser would. Names of headers have `_` for `-`."""
    host, _, port = address.removeprefix("http://").partition(":")
    sent = {"host": f"{host}:{port}", **{name.replace("_", "-"): value for name, value in headers.items()}}
    connection = h11.Connection(h11.CLIENT)
    async with await anyio.connect_tcp(host, int(port)) as stream:
        head = h11.Request(method=method, target=path, headers=[*sent.items(), ("content-length", str(len(body)))])
        await stream.send(connection.send(head) or b"")
        if body:
            await stream.send(connection.send(h11.Data(body)) or b"")
        await stream.send(connection.send(h11.EndOfMessage()) or b"")
        status, found, text = 0, {}, b""
        with anyio.fail_after(10):
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    try:
                        connection.receive_data(await stream.receive())
                    except anyio.EndOfStream:
                        connection.receive_data(b"")
                elif isinstance(event, h11.Response):
                    status = event.status_code
                    found = {name.decode(): value.decode() for name, value in event.headers}
                elif isinstance(event, h11.Data):
                    text += bytes(event.data)
                else:
                    return status, found, text.decode()


async def test_the_browser_gets_a_private_file_that_is_removed_when_it_was_used(browser: Browser, config: Path) -> None:
    page = await browser.new_page()
    async with opening(config) as (file, process):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        await page.goto(file.as_uri())
        await page.wait_for_url("http://127.0.0.1:*/")
        assert await process.wait() == 0
        assert not file.exists()
    await page.close()


async def test_no_token_is_in_the_arguments_of_a_process(config: Path) -> None:
    async with opening(config) as (file, process):
        token = file.read_text("utf-8").partition('name="token" value="')[2].partition('"')[0]
        assert len(token) >= 43
        listed = await anyio.run_process(["ps", "-eo", "args"])
        assert token not in listed.stdout.decode()
        process.terminate()


async def test_an_address_is_useless_after_its_use(browser: Browser, config: Path) -> None:
    page = await browser.new_page()
    thief = await (await browser.new_context()).new_page()
    async with opening(config) as (file, _):
        stolen = file.with_name("stolen.html")
        stolen.write_text(file.read_text("utf-8"), "utf-8")
        await page.goto(file.as_uri())
        await page.wait_for_url("http://127.0.0.1:*/")
    await thief.goto(stolen.as_uri())
    await thief.wait_for_url("http://127.0.0.1:*/open")
    assert "This address was used before, or is too old." in await thief.inner_text("main")
    origin = "/".join(page.url.split("/")[:3])
    for path in PAGES:
        await thief.goto(origin + path)
        assert "This browser is not admitted" in await thief.inner_text("main")
    stolen.unlink()
    await thief.context.close()
    await page.close()


async def test_a_browser_that_was_not_admitted_sees_nothing(browser: Browser, config: Path) -> None:
    async with showing(browser, config) as shown:
        origin = shown.origin
        for path in (*PAGES, "/runs/run_x", "/approvals/run_x", "/events", "/nothing"):
            status, _, text = await request(origin, "GET", path)
            assert (status, "not admitted" in text) == (401, True)
        assert (await request(origin, "POST", "/runs/run_x/cancel", b"{}", origin=origin))[0] == 401
        assert (await request(origin, "GET", "/assets/../templates/base.html"))[0] in (401, 404)


async def test_the_address_answers_only_to_its_own_names(browser: Browser, config: Path) -> None:
    async with showing(browser, config) as shown:
        port = shown.origin.rpartition(":")[2]
        for host in (f"evil.example:{port}", "127.0.0.1", f"127.0.0.1.evil.example:{port}", f"[::1]:{port}", ""):
            for method, path in (("GET", "/"), ("GET", "/assets/page.js"), ("POST", "/open"), ("GET", "/events")):
                assert (await request(shown.origin, method, path, host=host))[0] == 421
        assert (await request(shown.origin, "GET", "/assets/page.js", host=f"localhost:{port}"))[0] == 200


async def test_a_cookie_alone_changes_nothing(browser: Browser, config: Path) -> None:
    async with showing(browser, config) as shown:
        (cookie,) = await shown.page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")
        assert shown.origin.rpartition(":")[2] in cookie["name"]
        secret: str = await shown.page.evaluate("localStorage['page-secret']")
        kept = f"{cookie['name']}={cookie['value']}"
        json_type, good = "application/json", {"cookie": kept, "origin": shown.origin, "x_codemode_page": secret}
        for change, expected in (
            ({"x_codemode_page": ""}, 403),
            ({"x_codemode_page": secret[:-1]}, 403),
            ({"x_codemode_page": cookie["value"]}, 403),
            ({"origin": "null"}, 403),
            ({"origin": "http://127.0.0.1:1"}, 403),
            ({"origin": shown.origin.replace("127.0.0.1", "localhost")}, 403),
            ({"sec_fetch_site": "cross-site"}, 403),
            ({"sec_fetch_site": "same-site"}, 403),
            ({"cookie": ""}, 401),
            ({"content_type": "text/plain"}, 415),
            ({}, 409),  # admitted; there is no such run
        ):
            headers: dict[str, str] = {"content_type": json_type, **good, **change}
            status, _, _ = await request(shown.origin, "POST", "/runs/run_none/cancel", b"{}", **headers)
            assert status == expected, change
        for name in ("origin", "x_codemode_page"):
            headers = {"content_type": json_type, **{key: value for key, value in good.items() if key != name}}
            assert (await request(shown.origin, "POST", "/runs/run_none/cancel", b"{}", **headers))[0] == 403


async def test_the_secret_of_the_page_is_in_no_page_that_a_cookie_can_read(browser: Browser, config: Path) -> None:
    async with showing(browser, config) as shown:
        (cookie,) = await shown.page.context.cookies()
        secret: str = await shown.page.evaluate("localStorage['page-secret']")
        kept = f"{cookie['name']}={cookie['value']}"
        for path in (*PAGES, "/open", "/assets/page.js", "/nothing"):
            _, headers, text = await request(shown.origin, "GET", path, cookie=kept)
            assert secret not in text + json.dumps(headers)
            assert cookie["value"] not in text


async def test_every_answer_has_the_headers_that_restrict_a_page(browser: Browser, config: Path) -> None:
    async with showing(browser, config) as shown:
        for path in (*PAGES, "/open", "/assets/page.css", "/nothing"):
            _, headers, _ = await request(shown.origin, "GET", path)
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "worker-src 'none'" in policy
            assert headers["cache-control"] == "no-store"
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
            assert headers["cross-origin-resource-policy"] == "same-origin"


async def test_a_page_of_another_origin_cannot_use_the_session(browser: Browser, config: Path) -> None:
    """The browser itself protects the session: a page of another port has the cookie sent, and can still do nothing."""
    async with showing(browser, config) as shown:
        port: list[int] = []

        async def evil(stream: anyio.abc.SocketStream) -> None:
            async with stream:
                await stream.receive()
                text = b"<!doctype html><title>evil</title>"
                await stream.send(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: %d\r\n\r\n" % len(text) + text
                )

        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        async with listener, anyio.create_task_group() as group:
            port.append(listener.extra(anyio.abc.SocketAttribute.local_port))
            group.start_soon(listener.serve, evil)
            other = await shown.page.context.new_page()
            await other.goto(f"http://127.0.0.1:{port[0]}/")
            result: list[Any] = await other.evaluate(
                """async (origin) => {
                  const found = [];
                  for (const [path, options] of [
                    ["/", { mode: "no-cors", credentials: "include" }],
                    ["/events", { credentials: "include" }],
                    ["/runs/run_x/cancel", { method: "POST", mode: "no-cors", credentials: "include", body: "{}" }],
                    ["/runs/run_x/cancel", { method: "POST", credentials: "include", body: "{}",
                      headers: { "content-type": "application/json", "x-codemode-page": "x" } }],
                  ]) {
                    try {
                      const answer = await fetch(origin + path, options);
                      found.push([answer.type, answer.status, await answer.text()]);
                    } catch (error) { found.push(["refused", 0, ""]); }
                  }
                  const frame = document.createElement("iframe");
                  frame.src = origin + "/approvals";
                  document.body.append(frame);
                  await new Promise((done) => { frame.onload = done; setTimeout(done, 2000); });
                  let inside = "";
                  try { inside = frame.contentDocument?.body.innerText || ""; } catch { inside = ""; }
                  found.push(["frame", 0, inside]);
                  return found;
                }""",
                shown.origin,
            )
            assert [text for _, _, text in result] == ["", "", "", "", ""]
            await other.close()
            group.cancel_scope.cancel()


WORKER = b"""
self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(clients.claim()));
self.addEventListener("fetch", (event) => {
  const stolen = new Response("stolen", { headers: { "content-type": "text/html" } });
  if (!event.request.url.endsWith("/worker.js")) event.respondWith(stolen);
});
"""
REGISTERING = b"""<!doctype html><script>
navigator.serviceWorker.register("/worker.js").then(() => navigator.serviceWorker.ready)
  .then(() => { document.title = "registered"; });
</script>"""


class Earlier(BaseHTTPRequestHandler):
    """A server of another user at the port of the page, which leaves a service worker in the browser."""

    def do_GET(self) -> None:
        is_worker = self.path == "/worker.js"
        body = WORKER if is_worker else REGISTERING
        self.send_response(200)
        self.send_header("content-type", "text/javascript" if is_worker else "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


async def test_a_service_worker_of_an_earlier_server_at_the_port_gets_no_token(
    browser: Browser, tmp_path: Path
) -> None:
    context = await browser.new_context()
    page, first = await context.new_page(), await context.new_page()
    with ThreadingHTTPServer(("127.0.0.1", 0), Earlier) as earlier:
        port = earlier.server_address[1]
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.to_thread.run_sync, earlier.serve_forever)
            await first.goto(f"http://127.0.0.1:{port}/")
            await first.wait_for_function("document.title === 'registered'")
            earlier.shutdown()
    await page.goto(f"http://127.0.0.1:{port}/open")
    assert await page.content() == "<html><head></head><body>stolen</body></html>"
    path = write_config(tmp_path, {"one": counting(tmp_path / "log")})
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "ui": {"port": port}}), "utf-8")
    async with served(path):
        async with opening(path) as (file, process):
            await page.goto(file.as_uri())
            await page.get_by_role("heading", name="Overview").wait_for()
            assert await process.wait() == 0
        assert page.url == f"http://127.0.0.1:{port}/"
        assert await page.evaluate("navigator.serviceWorker.getRegistrations().then((found) => found.length)") == 0
        refused = await page.evaluate(
            "navigator.serviceWorker.register('/assets/page.js').then(() => '', (error) => error.name)"
        )
        assert refused
        assert (await request(f"http://127.0.0.1:{port}", "GET", "/assets/page.js", service_worker="script"))[0] == 404
    await context.close()


async def test_another_window_stays_admitted_when_the_page_is_opened_again(browser: Browser, config: Path) -> None:
    async with showing(browser, config) as shown:
        second = await shown.page.context.new_page()
        async with opening(config) as (file, process):
            assert (await request(shown.origin, "GET", "/clean?" + "0" * 64))[0] == 404
            mark = file.read_text("utf-8").partition("/clean?")[2].partition('"')[0]
            status, headers, _ = await request(shown.origin, "GET", f"/clean?{mark}")
            assert (status, headers["clear-site-data"]) == (204, '"storage"')
            await second.goto(file.as_uri())
            await second.wait_for_url(f"{shown.origin}/")
            assert await process.wait() == 0
        assert (await request(shown.origin, "GET", f"/clean?{mark}"))[0] == 404
        status, _ = await shown.post("/runs/run_none/cancel", {})
        assert status == 409  # admitted; there is no such run
        await shown.go("/runs")


async def test_a_program_of_a_server_cannot_open_the_page(config: Path) -> None:
    done = await anyio.to_thread.run_sync(lambda: cli("ui", "--config", str(config), env={"CODEMODE_MCP_DEPTH": "1"}))
    assert done.returncode == 1
    assert "not for programs started by a server" in done.stderr


async def test_without_a_terminal_the_file_is_not_printed(config: Path) -> None:
    done = await anyio.to_thread.run_sync(lambda: cli("ui", "--no-browser", "--config", str(config)))
    assert (done.returncode, done.stdout) == (1, "")
    assert "needs a terminal" in done.stderr


async def test_a_body_that_is_too_large_is_refused(browser: Browser, config: Path) -> None:
    async with showing(browser, config) as shown:
        status, text = await shown.post("/runs/run_x/cancel", "x" * 300_000)
        assert (status, "larger than" in text) == (413, True)
        status, text = await shown.post("/runs/run_x/cancel", [])
        assert (status, "not a JSON object" in text) == (400, True)


@pytest.mark.parametrize("key", ["enabled", "decide"])
async def test_the_configuration_restricts_the_page(browser: Browser, tmp_path: Path, key: str) -> None:
    path = write_config(tmp_path, {"one": counting(tmp_path / "log")}, ask=["destructive"])
    value = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**value, "ui": {key: False}}), "utf-8")
    async with served(path) as client:
        if key == "enabled":
            done = await anyio.to_thread.run_sync(lambda: cli("ui", "--config", str(path)))
            assert (done.returncode, "ui.enabled: false" in done.stderr) == (1, True)
            return
        waiting = await client.exec(COUNT)
        async with showing(browser, path) as shown:
            run = waiting["runId"]
            assert await shown.go(f"/approvals/{run}") == 200
            await shown.sees("This page only shows.")
            await shown.sees("mcp:one:count")
            assert await shown.page.locator("form.act").count() == 0
            for target, body in (
                (f"/approvals/{run}/decide", {"decision": "approve", "calls": [[1, "x"]]}),
                (f"/runs/{run}/cancel", {}),
                ("/servers/one", {"do": "restart"}),
            ):
                status, text = await shown.post(target, body)
                assert (status, "ui.decide: false" in text) == (403, True)
            await shown.go("/servers/one")
            await shown.sees("ready")
            assert await shown.page.get_by_role("button", name="Restart").count() == 0


def test_all_files_of_the_page_together_are_small() -> None:
    from codemode_mcp.extensions.page.site import ASSETS

    assert sum(os.path.getsize(each) for each in ASSETS.iterdir()) <= 250_000
    for each in ASSETS.iterdir():
        text = each.read_text("utf-8")
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in text


async def test_a_process_that_serves_over_http_shows_the_page(browser: Browser, tmp_path: Path) -> None:
    path = write_config(tmp_path, {"one": counting(tmp_path / "log")})
    async with serve_http(path) as serving, showing(browser, path, "/tools") as shown:
        await shown.sees("mcp:one:count")
        assert shown.origin not in serving.url
