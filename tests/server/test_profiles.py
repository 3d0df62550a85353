"""Profiles of clients by their names, and the clients that a process remembers."""

from pathlib import Path

from codemode_mcp.base.settings import ProfileOverride
from codemode_mcp.server.profiles import (
    KEYS,
    MAX_CLIENTS,
    MAX_NAME,
    MAX_TEXT,
    PROFILES,
    ConnectedClient,
    ConnectedClients,
    Profile,
    override_of,
    profile_json,
    profile_of,
    traits,
)


def test_a_client_without_a_row_or_a_name_gets_the_plain_default() -> None:
    assert profile_of("some-client") == profile_of(None) == profile_of("") == Profile()


def test_a_glob_matches_a_name_whatever_its_case() -> None:
    assert profile_of("Gemini-CLI-mcp-client").adds_arguments == ("wait_for_previous",)
    assert profile_of("claude-code").shows_structured
    assert not profile_of("claude-code-of-mine").shows_structured


def test_an_override_replaces_the_fields_that_it_names_and_keeps_the_others() -> None:
    override = ProfileOverride("claude-*", (("max_output_bytes", None), ("defers_tools", False)))
    found = profile_of("claude-code", [override])
    assert (found.shows_structured, found.max_output_bytes, found.defers_tools) == (True, None, False)
    assert found.client == "claude-*"
    assert found.evidence.startswith("Set in the configuration. Claude Code")


def test_the_first_override_that_matches_counts() -> None:
    first, second = ProfileOverride("a*", (("sends_null", True),)), ProfileOverride("*", (("loses_pictures", True),))
    assert override_of("abc", [first, second]) is first
    assert override_of("bcd", [first, second]) is second
    assert override_of(None, [first, second]) is None


def test_a_glob_cannot_be_made_slow_by_a_long_name() -> None:
    assert override_of("a" * 1_000_000, [ProfileOverride("a" * MAX_NAME, ())]) is not None


def test_json_of_a_profile_has_each_field_by_its_name_in_the_configuration() -> None:
    told = profile_json(profile_of("codex-mcp-client"))
    assert list(told) == ["client", *KEYS.values(), "evidence"]
    assert told["losesPictures"] is True
    assert told["maxOutputBytes"] == 45_000


def test_each_row_says_what_was_measured_and_differs_from_the_plain_default() -> None:
    for profile in PROFILES:
        assert profile.evidence
        assert traits(profile_json(profile)) != traits(profile_json(Profile())) == "plain default"


def test_the_traits_of_a_profile_name_each_of_them() -> None:
    profile = Profile("x", True, True, True, 12_000, True, ("one", "two"), True, True)
    assert traits(profile_json(profile)) == (
        "shows structured content instead of text; loses pictures beside structured content; defers tools; "
        "shows at most 12,000 bytes; sends null for absent arguments; adds the arguments one, two; "
        "repeats all forms of a failure; mishandles resource links"
    )


def test_the_page_on_clients_has_the_table_of_profiles() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "clients.md").read_text("utf-8")
    table = page.partition("| name | profile | measured with |\n|---|---|---|\n")[2].partition("\n\n")[0]
    rows = [f"| `{p.client}` | {traits(profile_json(p))} | {p.evidence.partition(':')[0]} |" for p in PROFILES]
    assert table.splitlines() == rows


# The clients that a process remembers.


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_requests_of_equal_clients_are_counted_together() -> None:
    clock = Clock()
    clients = ConnectedClients(clock)
    clients.record("claude-code", "2.1", "2026-07-28")
    clock.now += 5
    clients.record("claude-code", "2.1", "2026-07-28")
    clock.now += 3
    (seen,) = clients.listed()
    assert seen.client == ConnectedClient("claude-code", "2.1", "2026-07-28")
    assert (seen.requests, seen.idle_seconds) == (2, 3.0)


def test_the_latest_client_stands_first_and_another_version_is_another_client() -> None:
    clients = ConnectedClients(Clock())
    for version in ("1", "2", "1"):
        clients.record("a", version, "2025-06-18")
    assert [(each.client.version, each.requests) for each in clients.listed()] == [("1", 2), ("2", 1)]


def test_the_client_whose_last_request_is_oldest_leaves_when_there_are_too_many() -> None:
    clients = ConnectedClients(Clock())
    for number in range(MAX_CLIENTS):
        clients.record(f"client {number}", "1", "2025-06-18")
    clients.record("client 0", "1", "2025-06-18")
    clients.record("one more", "1", "2025-06-18")
    names = [each.client.name for each in clients.listed()]
    assert len(names) == MAX_CLIENTS
    assert names[:2] == ["one more", "client 0"]
    assert "client 1" not in names


def test_long_and_absent_descriptions_are_bounded() -> None:
    clients = ConnectedClients(Clock())
    clients.record("x" * 10_000, None, None)
    assert clients.listed()[0].client == ConnectedClient("x" * MAX_TEXT, "", "")
