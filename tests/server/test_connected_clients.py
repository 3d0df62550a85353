"""The clients that a process remembers."""

from codemode_mcp.server.profiles import MAX_CLIENTS, MAX_TEXT, ConnectedClient, ConnectedClients


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
