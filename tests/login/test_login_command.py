"""Tests of the servers that have a login, and of opening a browser."""

import webbrowser

import pytest

from codemode_mcp.cli.browser_login import NoLoginPossible, can_open_browser, find_server, open_browser
from codemode_mcp.config import Config
from upstream_clients import UpstreamSpec

URL = "https://mcp.example/mcp"
CONFIG = Config(
    upstreams=(
        UpstreamSpec("tracker", "http", url=URL),
        UpstreamSpec("local", command="x"),
        UpstreamSpec("fixed", "http", url=URL, headers={"AUTHORIZATION": "Bearer of-mine"}),
    ),
    disabled=("off",),
)


def test_a_remote_server_can_be_logged_in_to() -> None:
    assert find_server(CONFIG, "tracker").url == URL


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("traker", "there is no server 'traker'; did you mean 'tracker'?"),
        ("qqq", "there is no server 'qqq'; there are: tracker, local, fixed"),
        (
            "local",
            "server 'local' is started by a command; only a server with a URL has a login; "
            "put its credentials into its env",
        ),
        ("off", "server 'off' is disabled in the configuration; remove \"disabled\" from its entry to log in"),
        ("fixed", "server 'fixed' has an Authorization header; remove it from its headers to log in instead"),
    ],
    ids=["misspelt", "unknown", "a command", "disabled", "a header"],
)
def test_a_server_without_a_login_is_refused_with_the_reason(name: str, message: str) -> None:
    with pytest.raises(NoLoginPossible) as refused:
        find_server(CONFIG, name)
    assert str(refused.value) == message


def test_without_servers_nothing_is_suggested() -> None:
    with pytest.raises(NoLoginPossible, match="there is no server 'x'; there are: none"):
        find_server(Config(), "x")


def test_no_browser_is_opened_where_no_user_would_see_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    assert not can_open_browser()
    monkeypatch.setenv("DISPLAY", ":0")
    assert can_open_browser()


def test_a_browser_that_cannot_be_opened_is_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def refuse(url: str) -> bool:
        asked.append(url)
        raise webbrowser.Error("none")

    monkeypatch.setattr(webbrowser, "open", refuse)
    # An exception that leaves a thread fails the test.
    open_browser(URL).join(30)
    assert asked == [URL]
