"""Tests of logins to a real server, and of the connection to it before, with and after a login."""

import logging
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from protected import http_server, log_in_with, protected

from codemode_mcp.cli.browser_login import log_out
from upstream_clients import UpstreamCallError, UpstreamPool, UpstreamSpec, UpstreamUnavailable, UpstreamView
from upstream_clients.connection import Connection
from upstream_clients.http import Bearer
from upstream_clients.spec import OAuthSettings
from upstream_clients.token_store import Login, LoginStore
from upstream_clients.upstream import Upstream

pytestmark = pytest.mark.anyio

NEEDS_LOGIN = "server 'srv' needs a login: run codemode-mcp login srv"


class Changes:
    """An `on_change` callback that can be waited on."""

    def __init__(self) -> None:
        self._happened = anyio.Event()

    def __call__(self) -> None:
        self._happened.set()
        self._happened = anyio.Event()

    async def until(self, pool: UpstreamPool, state: str) -> UpstreamView:
        with anyio.fail_after(30):
            while pool.views()[0].state != state:
                await self._happened.wait()
        return pool.views()[0]


def kept_in(folder: Path) -> list[str]:
    return [str(path) for path in folder.glob("*.json")]


async def echo(pool: UpstreamPool, tool: str = "echo") -> Any:
    outcome = await pool.source("srv").call_tool(tool, {"text": "hi"}, timeout=20)
    return outcome.result["content"][0]["text"]


@pytest.mark.parametrize("auth", [None, OAuthSettings()], ids=["without-auth", "auth"])
async def test_a_server_that_requires_a_login_is_reported_as_such(auth: OAuthSettings | None) -> None:
    changes = Changes()
    async with protected() as server, UpstreamPool([server.spec(oauth=auth)], on_change=changes) as pool:
        view = await changes.until(pool, "down")
        assert (view.login_required, view.error) == (True, NEEDS_LOGIN)
        with pytest.raises(UpstreamUnavailable) as refused:
            await echo(pool)
        assert refused.value.message == NEEDS_LOGIN


async def test_a_new_login_is_noticed_without_a_restart() -> None:
    changes = Changes()
    async with protected() as server, UpstreamPool([server.spec()], on_change=changes) as pool:
        await changes.until(pool, "down")
        # As another process would have it: with another spec.
        await log_in_with(server.spec())
        view = await changes.until(pool, "ready")
        assert (view.login_required, view.error) == (False, None)
        assert await echo(pool) == "hi"


async def test_a_server_gets_no_requests_while_no_user_logs_in() -> None:
    polls = 0
    enough = anyio.Event()

    async def sleep(seconds: float) -> None:
        nonlocal polls
        polls += 1
        if polls == 200:
            enough.set()
        await anyio.lowlevel.checkpoint()

    async with protected() as server:
        upstream = Upstream(server.spec())
        connection = Connection(upstream, client_name="test", client_version="0", sleep=sleep)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.run)
            with anyio.fail_after(30):
                await upstream.settled.wait()
            asked = len(await server.seen("mcp"))
            assert asked > 0
            with anyio.fail_after(30):
                await enough.wait()
            assert len(await server.seen("mcp")) == asked
            connection.stop()


async def test_the_flow_uses_registration_pkce_and_the_resource_indicator(logins: Path) -> None:
    async with protected() as server:
        spec = server.spec()
        where = await log_in_with(spec)
        resource = f"{server.origin}/mcp"
        assert await server.seen("authorize") == ["read"]
        assert len(await server.seen("register")) == 1
        assert await server.seen("token") == ["authorization_code"]
        # The server has checked PKCE, and knows only the challenge.
        assert await server.seen("resource") == [resource, resource]
        assert [where] == kept_in(logins)


@pytest.mark.parametrize(
    "flags", [("--metadata", "oidc"), ("--metadata", "none", "--unbound")], ids=["OpenID Connect", "MCP of 2025-03"]
)
async def test_discovery_of_openid_connect_or_none_at_all_suffices(flags: tuple[str, ...]) -> None:
    async with protected(*flags) as server:
        spec = server.spec()
        await log_in_with(spec)
        async with UpstreamPool([spec]) as pool:
            await pool.connect(None, 20)
            assert await echo(pool) == "hi"


async def test_configured_scopes_take_precedence_over_those_of_the_server() -> None:
    async with protected() as server:
        await log_in_with(server.spec(oauth=OAuthSettings(scopes=("read", "write"))))
        assert await server.seen("authorize") == ["read write"]


async def test_an_expiring_token_is_renewed_and_no_refresh_token_is_used_twice() -> None:
    async with protected("--lifetime", "1") as server:
        spec = server.spec()
        await log_in_with(spec)
        async with UpstreamPool([spec]) as pool:
            await pool.connect(None, 20)
            async with anyio.create_task_group() as tasks:
                for _ in range(20):
                    tasks.start_soon(echo, pool)
        kinds = await server.seen("token")
        assert kinds[0] == "authorization_code"
        assert "refresh_token" in kinds
        assert await server.seen("reused") == []


async def test_a_token_that_the_server_rejects_is_renewed_within_the_call() -> None:
    async with protected() as server:
        spec = server.spec()
        await log_in_with(spec)
        async with UpstreamPool([spec]) as pool:
            await pool.connect(None, 20)
            await server.forget()
            assert await echo(pool) == "hi"
            assert await server.seen("token") == ["authorization_code", "refresh_token"]


async def test_processes_that_renew_one_login_at_the_same_time_do_it_once() -> None:
    async with protected() as server:
        await log_in_with(server.spec())
        rejected = LoginStore(server.spec()).load()
        assert rejected is not None
        assert rejected.access_token is not None
        tokens: set[str | None] = set()

        async def renew(spec: UpstreamSpec) -> None:
            tokens.add(await Bearer(spec).renew_token(str(rejected.access_token)))

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(renew, server.spec())
        assert len(tokens) == 1
        assert tokens.isdisjoint({None, rejected.access_token})
        assert await server.seen("token") == ["authorization_code", "refresh_token"]


async def test_a_renewal_is_completed_although_its_call_was_cancelled() -> None:
    async with protected("--token-delay", "0.5") as server:
        await log_in_with(server.spec())
        before = LoginStore(server.spec()).load()
        assert before is not None
        bearer = Bearer(server.spec())
        await bearer.token()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bearer.renew_token, str(before.access_token))
            with anyio.fail_after(30):
                while "refresh_token" not in await server.seen("token"):
                    pass
            tasks.cancel_scope.cancel()
        after = LoginStore(server.spec()).load()
        assert after is not None
        assert await server.seen("token") == ["authorization_code", "refresh_token"]
        # The old token is no longer valid.
        assert after.refresh_token != before.refresh_token


async def test_a_call_reports_an_expired_login_and_a_new_one_is_used() -> None:
    changes = Changes()
    async with protected() as server:
        spec = server.spec()
        await log_in_with(spec)
        async with UpstreamPool([spec], on_change=changes) as pool:
            await changes.until(pool, "ready")
            await server.forget(everything=True)
            with pytest.raises(UpstreamCallError) as refused:
                await echo(pool)
            assert (refused.value.message, refused.value.dispatched) == (NEEDS_LOGIN, False)
            view = await changes.until(pool, "down")
            assert (view.login_required, view.error) == (True, NEEDS_LOGIN)
            await log_in_with(server.spec())
            await changes.until(pool, "ready")
            assert await echo(pool) == "hi"


async def test_a_renewal_without_an_answer_does_not_ask_for_a_new_login() -> None:
    async with protected() as server:
        spec = server.spec()
        await log_in_with(spec)
        kept = LoginStore(spec).load()
        await server.be("--token", "broken")
        async with UpstreamPool([spec]) as pool:
            await pool.connect(None, 20)
            (view,) = pool.views()
            assert (view.state, view.login_required) == ("down", False)
            assert view.error == (
                "server 'srv' did not start: the login cannot be used now: the token endpoint refused: HTTP 503"
            )
        assert LoginStore(spec).load() == kept


async def test_a_call_that_needs_more_scopes_says_so_and_the_next_login_requests_them() -> None:
    async with protected() as server:
        spec = server.spec()
        await log_in_with(spec)
        async with UpstreamPool([spec]) as pool:
            await pool.connect(None, 20)
            with pytest.raises(UpstreamCallError) as refused:
                await echo(pool, "write")
            assert refused.value.message == (
                "server 'srv' requires a login with more rights for this (write): run codemode-mcp login srv"
            )
            assert not refused.value.dispatched
            assert await echo(pool) == "hi"
            await log_in_with(server.spec())
            assert await server.seen("authorize") == ["read", "read write"]
            assert await echo(pool, "write") == "hi"
            assert pool.views()[0].state == "ready"


async def test_logout_deletes_and_revokes_the_login(logins: Path) -> None:
    async with protected("--metadata", "secret") as server:
        spec = server.spec()
        assert not await log_out(spec)
        await log_in_with(spec)
        assert await log_out(spec)
        assert kept_in(logins) == []
        assert await server.seen("revoked") == ["a token"]


@pytest.mark.parametrize("tool", ["leak", "leak_as_result"])
async def test_errors_of_an_upstream_show_no_token(tool: str) -> None:
    async with protected() as server:
        spec = server.spec()
        await log_in_with(spec)
        async with UpstreamPool([spec]) as pool:
            await pool.connect(None, 20)
            try:
                said = str(await echo(pool, tool))
            except UpstreamCallError as error:
                said = error.message
            assert "unexpected request with Bearer ***" in said


async def test_logs_and_views_show_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "upstream_clients")
    caplog.set_level(logging.DEBUG, "codemode_mcp")
    caplog.set_level(logging.DEBUG, "mcp")
    async with protected("--lifetime", "1") as server:
        spec = server.spec()
        await log_in_with(spec)
        async with UpstreamPool([spec]) as pool:
            await pool.connect(None, 20)
            await echo(pool)
            await server.forget(everything=True)
            with pytest.raises(UpstreamCallError):
                await echo(pool)
            shown = f"{caplog.text} {pool.views()} {spec!r} {LoginStore(spec).load()!r}"
        assert len(spec.learned) >= 4
        assert not [secret for secret in spec.learned if secret in shown]
        assert spec.redact(" ".join(spec.learned)) == " ".join("***" for _ in spec.learned)


async def test_a_login_does_not_outlive_its_address() -> None:
    async with protected() as server, protected() as other:
        await log_in_with(server.spec())
        async with UpstreamPool([server.spec(url=f"{other.origin}/mcp")]) as pool:
            await pool.connect(None, 20)
            assert pool.views()[0].login_required


async def test_a_server_with_a_configured_authorization_header_gets_no_login() -> None:
    async with protected() as server:
        spec = server.spec(headers={"authorization": "Bearer of-mine"})
        LoginStore(spec).save(Login(access_token="not-to-be-sent"))
        async with UpstreamPool([spec]) as pool:
            await pool.connect(None, 20)
            (view,) = pool.views()
        assert not view.login_required
        assert 'check "headers" or "auth" of mcpServers.srv' in str(view.error)
        assert "Bearer not-to-be-sent" not in await server.seen("mcp")


@pytest.mark.parametrize("flags", [(), ("--legacy",), ("--sse",)], ids=["modern", "legacy", "sse"])
async def test_every_transport_carries_the_login(flags: tuple[str, ...]) -> None:
    async with http_server("--token", "hunter22", *flags) as server:
        spec = server.spec(transport="auto", oauth=OAuthSettings())
        async with UpstreamPool([spec]) as pool:
            await pool.connect(None, 20)
            (view,) = pool.views()
            assert (view.state, view.login_required, view.error) == ("down", True, NEEDS_LOGIN)
        LoginStore(spec).save(Login(access_token="hunter22"))
        async with UpstreamPool([spec]) as pool:
            await pool.connect(None, 20)
            assert await echo(pool) == "hi"


@pytest.mark.parametrize("flags", [(), ("--legacy",), ("--sse",)], ids=["modern", "legacy", "sse"])
async def test_a_view_says_whether_its_lists_were_requested_with_a_login(flags: tuple[str, ...]) -> None:
    async with http_server(*flags) as server:
        spec = server.spec(transport="auto", oauth=OAuthSettings())
        async with UpstreamPool([spec]) as pool:
            await pool.wait_listed(None, 20)
            assert [view.logged_in for view in pool.views()] == [False]
            # A change of the user of the server shows at the next listing. Then all lists are requested again.
            LoginStore(spec).save(Login(access_token="hunter22"))
            await pool.source("srv").call_tool("grow", {"legacy": "--legacy" in flags or "--sse" in flags})
            with anyio.fail_after(20):
                while not pool.views()[0].logged_in:  # noqa: ASYNC110 - the view sets no event
                    await anyio.sleep(0.01)
            await pool.wait_listed(None, 20)
            (view,) = pool.views()
            assert (view.logged_in, view.prompt_list) == (True, ({"name": "greet"},))
        async with UpstreamPool([spec]) as pool:
            await pool.connect(None, 20)
            assert [view.logged_in for view in pool.views()] == [True]


async def test_calls_with_a_login_do_not_wait_for_each_other() -> None:
    async with http_server("--token", "hunter22", "--json") as server:
        spec = server.spec()
        LoginStore(spec).save(Login(access_token="hunter22"))
        async with UpstreamPool([spec]) as pool:
            await pool.connect(None, 20)
            source = pool.source("srv")
            with anyio.fail_after(30):
                async with anyio.create_task_group() as tasks:
                    for _ in range(10):
                        tasks.start_soon(source.call_tool, "hang", {})
                    await anyio.wait_all_tasks_blocked()
                    assert await echo(pool) == "hi"
                    tasks.cancel_scope.cancel()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such modes")
async def test_a_login_that_others_can_read_is_not_sent() -> None:
    async with protected() as server:
        spec = server.spec()
        await log_in_with(spec)
        LoginStore(spec).path.chmod(0o644)
        before = len(await server.seen("mcp"))
        async with UpstreamPool([spec]) as pool:
            await pool.connect(None, 20)
            (view,) = pool.views()
        assert (view.state, view.login_required) == ("down", False)
        assert "can be read by other users, so it is not used; run chmod 600 on it" in str(view.error)
        assert len(await server.seen("mcp")) == before


async def test_neither_the_keyring_nor_the_steps_of_a_login_are_imported_to_serve() -> None:
    code = (
        "import sys, codemode_mcp.process.app.app, upstream_clients.connection; print({*sys.modules} & {*sys.argv[1:]})"
    )
    done = await anyio.run_process(
        [
            sys.executable,
            "-c",
            code,
            "keyring",
            "upstream_clients.oauth",
            "upstream_clients.oauth",
            "codemode_mcp.cli.browser_login",
            "webbrowser",
        ]
    )
    assert done.stdout.decode().strip() == "set()"
