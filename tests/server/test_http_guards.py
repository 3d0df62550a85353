"""Limits on requests: hosts, origins, rates and owners."""

import json

import anyio
import pytest

from codemode_mcp.server.http.auth import owner_string, session_owner
from codemode_mcp.server.http.guards import RateLimiter, RoundRobin, TrustedProxies, host_rules, peer
from codemode_mcp.server.http.listener import BodyBudget, seconds_to_parse
from upstream_clients.fetch import is_local, is_loopback


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.9.1", "localhost", "LocalHost", "::1", "[::1]", "x.localhost", "::ffff:127.0.0.1"]
)
def test_loopback_is_known(host: str) -> None:
    assert is_loopback(host)
    assert is_local(f"http://{host if ':' not in host else '[' + host.strip('[]') + ']'}:1/x"), "in a URL too"


@pytest.mark.parametrize(
    "host",
    [
        *("0.0.0.0", "::", "", "10.0.0.1", "localhost.example", "xlocalhost", "127.0.0.1.example"),
        *("2130706433", "::ffff:10.0.0.1"),
    ],
)
def test_what_others_may_reach_is_not_loopback(host: str) -> None:
    assert not is_loopback(host)


def test_a_listener_on_all_addresses_is_known_by_every_address_but_by_no_name() -> None:
    found = host_rules("0.0.0.0", 8808, (), (), None)
    assert found.admits_host("192.0.2.7:8808")
    assert found.admits_host("[2001:db8::1]:8808")
    assert not found.admits_host("192.0.2.7:80")
    assert not found.admits_host("mcp.example:8808")


def test_a_listener_on_one_address_is_known_by_that_one() -> None:
    found = host_rules("192.0.2.7", 8808, (), (), None)
    assert found.admits_host("192.0.2.7:8808")
    assert not found.admits_host("192.0.2.8:8808")


def test_the_port_of_http_need_not_be_said() -> None:
    assert host_rules("127.0.0.1", 80, (), (), None).admits_host("localhost")
    assert not host_rules("127.0.0.1", 8808, (), (), None).admits_host("localhost")


@pytest.mark.parametrize(
    "value", ["", ":", ":8808", "localhost:", "localhost:+8808", "localhost:\uff18\uff18\uff10\uff18", "localhost :1"]
)
def test_a_host_that_is_none_is_not_let_in(value: str) -> None:
    found = host_rules("127.0.0.1", 8808, (), (), None)
    assert not found.admits_host(value)
    assert not found.admits_origin("http://" + value, "localhost:8808")


def test_behind_another_port_of_our_name_is_the_page_of_another_user() -> None:
    found = host_rules("127.0.0.1", 8808, ("mcp.example",), (), None)
    assert found.admits_host("mcp.example:9000")
    assert found.admits_origin("https://mcp.example", "127.0.0.1:8808")
    assert found.admits_origin("https://mcp.example:9000", "mcp.example:9000")
    assert not found.admits_origin("https://mcp.example:9000", "mcp.example")


def test_a_bucket_empties_and_fills_again_for_each_key_alone() -> None:
    limiter = RateLimiter(per_second=2, burst=3)
    assert [limiter.take("a", 0) for _ in range(3)] == [0, 0, 0]
    assert limiter.take("a", 0) == 0.5
    assert limiter.take("b", 0) == 0
    assert limiter.take("a", 0.25) == 0.25
    assert limiter.take("a", 0.5) == 0
    assert limiter.take("a", 100) == 0
    assert [limiter.take("a", 100) for _ in range(3)] == [0, 0, 0.5]


def test_bodies_that_take_long_to_read_wait_for_each_other_by_what_they_hold() -> None:
    large = b'{"arguments":' + json.dumps([[number] for number in range(400_000)]).encode() + b"}"
    assert 0.3 < seconds_to_parse(large) < 2
    assert seconds_to_parse(b'{"text":"' + b"x" * 4_000_000 + b'"}') < 0.001
    limiter = RateLimiter(per_second=0.25, burst=0.5)
    assert [limiter.take_on_credit("bob", 0, 15, 0.5) for _ in range(3)] == [0, 2, 4]
    assert limiter.take_on_credit("alice", 0, 15, 0.5) == 0
    assert limiter.take_on_credit("bob", 6, 15, 0.25) == 0
    assert limiter.take_on_credit("bob", 6, 15, 100) == 15


def test_keys_without_end_take_no_room_without_end() -> None:
    limiter = RateLimiter(per_second=1, burst=1)
    for number in range(25_000):
        limiter.take(str(number), 0)
    assert len(limiter._buckets) == 10_000


def test_an_ipv6_network_is_one_peer_and_an_ipv4_address_is_one_however_it_is_written() -> None:
    assert peer("2001:db8:1:2::1") == peer("2001:db8:1:2:ffff::9") != peer("2001:db8:1:3::1")
    assert peer("::ffff:192.0.2.7") == peer("192.0.2.7") != peer("192.0.2.8")


def test_no_two_principals_share_an_owner() -> None:
    owners = [
        owner_string("token", "a"),
        owner_string("subject", "a"),
        owner_string("subject", "a", "b"),
        owner_string("client", "a", "b"),
        owner_string("subject", 'a","b'),
        owner_string("subject", "a", None),
        session_owner("a"),
    ]
    assert len(set(owners)) == len(owners)
    assert "a-secret-session" not in session_owner("a-secret-session")


@pytest.mark.parametrize(
    ("sender", "forwarded", "origin"),
    [
        ("10.0.0.1", "198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "203.0.113.9, 198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "203.0.113.9, 198.51.100.1, 10.0.0.2", "198.51.100.1"),
        ("10.0.0.1", "198.51.100.1:4711", "198.51.100.1"),
        ("10.0.0.1", "[2001:db8::1]:4711", "2001:db8::1"),
        ("::ffff:10.0.0.1", "198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "unknown", "10.0.0.1"),
        ("10.0.0.1", "198.51.100.1, unknown", "10.0.0.1"),
        ("192.0.2.1", "198.51.100.1", "192.0.2.1"),
    ],
)
def test_only_what_trusted_proxies_say_of_where_a_request_comes_from_is_believed(
    sender: str, forwarded: str, origin: str
) -> None:
    assert TrustedProxies(("10.0.0.0/8", "192.168.0.1/32")).origin(sender, forwarded) == origin
    assert TrustedProxies(()).origin(sender, forwarded) == sender


def test_bodies_of_one_principal_and_of_all_have_a_budget() -> None:
    budget = BodyBudget(total=100, share=40)
    assert budget.admits("a", 40)
    assert not budget.admits("a", 1)
    assert budget.admits("b", 40)
    assert not budget.admits("c", 21)
    budget.release("a", 40)
    assert budget.admits("c", 21)
    assert budget.admits("a", 39)


def test_failures_beyond_the_burst_wait_for_each_other_up_to_a_bound() -> None:
    limiter = RateLimiter(1.0, 2)
    assert [limiter.take_on_credit("a", 0.0, 3.0) for _ in range(7)] == [0, 0, 1, 2, 3, 3, 3]
    assert limiter.take_on_credit("b", 0.0, 3.0) == 0
    assert limiter.take_on_credit("a", 2.0, 3.0) == 2


@pytest.mark.anyio
async def test_requests_of_one_principal_wait_for_those_of_another_in_turn() -> None:
    starts = RoundRobin()
    begun: list[str] = []

    async def request(who: str) -> None:
        await starts.wait(who)
        begun.append(who)

    async with anyio.create_task_group() as group:
        for _ in range(50):
            group.start_soon(request, "bob")
        await anyio.lowlevel.checkpoint()
        for _ in range(2):
            group.start_soon(request, "alice")
    assert len(begun) == 52
    last = len(begun) - 1 - begun[::-1].index("alice")
    assert begun[: last + 1].count("bob") <= 6


@pytest.mark.anyio
async def test_one_request_begins_in_each_round_of_the_event_loop() -> None:
    starts = RoundRobin()
    rounds, begun = 0, []

    async def request() -> None:
        await starts.wait("bob")
        begun.append(rounds)

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(request)
        while len(begun) < 5:
            await anyio.lowlevel.checkpoint()
            rounds += 1
    assert len(set(begun)) == 5
