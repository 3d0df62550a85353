"""Tests of what PostgreSQL is told, how long a lease counts, and what of an address may be shown. Without a server."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codemode_mcp.stores.schema import BadAddress, Lease, address, lease_clock, numbered

# placeholders


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT 1", "SELECT 1"),
        ("SELECT a FROM t WHERE b = ? AND c IN (?, ?)", "SELECT a FROM t WHERE b = $1 AND c IN ($2, $3)"),
        ("SELECT '?', ? FROM t", "SELECT '?', $1 FROM t"),
        ("SELECT 'it''s ?', ?", "SELECT 'it''s ?', $1"),
        ('SELECT "a?""b?" FROM t WHERE c = ?', 'SELECT "a?""b?" FROM t WHERE c = $1'),
        ("SELECT ? -- why?\n, ?", "SELECT $1 -- why?\n, $2"),
        ("SELECT ? /* or?\n not? */ , ?", "SELECT $1 /* or?\n not? */ , $2"),
        ("SELECT '--', ?", "SELECT '--', $1"),
    ],
    ids=["none", "several", "text", "quote", "name", "line", "block", "dashes"],
)
def test_placeholders_are_numbered_outside_of_texts_names_and_comments(sql: str, expected: str) -> None:
    assert numbered(sql) == expected


def test_a_statement_that_locks_says_so() -> None:
    assert numbered("SELECT a FROM t WHERE b = ?", locks=True) == "SELECT a FROM t WHERE b = $1 FOR UPDATE"


@given(st.lists(st.sampled_from(["?", "'?'", '"?"', "a", " ", "= ", "--?\n", "/*?*/", "''"]), max_size=30))
def test_as_many_are_numbered_as_there_are(parts: list[str]) -> None:
    # A lone quote cannot come about: all of these are whole; two texts side by side are one, which changes nothing.
    text = numbered(" ".join(parts))
    assert [part for part in text.split() if part.startswith("$")] == [f"${n + 1}" for n in range(parts.count("?"))]


# the lease


def test_a_lease_counts_from_when_its_renewal_was_sent_and_ends_before_it_does_for_others() -> None:
    lease = Lease(valid=8, every=2, margin=1)
    assert not lease.held(0)
    lease = lease.renewed(10)
    assert lease.held(10)
    assert lease.held(16.9)
    assert not lease.held(17)
    assert lease.renewed(15).held(21.9)


def test_an_answer_that_comes_late_makes_no_lease_shorter() -> None:
    assert Lease().renewed(12).renewed(10) == Lease().renewed(12)


def test_an_ended_lease_is_not_held() -> None:
    assert not Lease().renewed(10).ended().held(10)


@given(
    events=st.lists(
        st.tuples(st.floats(0, 5), st.floats(0, 4), st.floats(0, 4), st.booleans()), min_size=1, max_size=40
    ),
    drift=st.floats(0.9, 1.1),
)
def test_a_process_with_a_lease_lives_for_others(events: list[tuple[float, float, float, bool]], drift: float) -> None:
    """Renewals that take their time to the database and back, or are lost, over clocks that run differently fast."""
    lease = Lease(valid=8, every=2, margin=1)
    true = 1000.0
    expires = 0.0  # in the database, on its clock, which runs as true time does
    for pause, there, back, arrives in events:
        true += pause
        assert not lease.held(true * drift) or true < expires
        sent = true * drift
        true += there
        if arrives:
            expires = true + lease.valid
        true += back
        if arrives:
            lease = lease.renewed(sent)
        for step in range(20):
            later = true + step * 0.5
            assert not lease.held(later * drift) or later < expires


def test_the_clock_of_a_lease_continues_while_the_machine_sleeps() -> None:
    assert lease_clock("win32") is time.monotonic
    for system, number in (("linux", "CLOCK_BOOTTIME"), ("darwin", "CLOCK_MONOTONIC")):
        if hasattr(time, number):
            before = time.clock_gettime(getattr(time, number))
            assert before <= lease_clock(system)() <= time.clock_gettime(getattr(time, number))


# addresses


@pytest.mark.parametrize(
    ("url", "name", "schema"),
    [
        ("postgresql://ann:s3cret@db.example:6432/runs", "db.example:6432/runs", "codemode_mcp"),
        ("postgres://ann:s3cret@db.example", "db.example", "codemode_mcp"),
        ("postgresql://ann:s%2F3%40cret@[::1]:5432/runs?schema=ours", "[::1]:5432/runs", "ours"),
        ("postgresql://a,b:1/runs?user=ann&password=s3cret", "a,b:1/runs", "codemode_mcp"),
        ("postgresql:///runs?host=/run/pg&port=5433&password=s3cret", "/run/pg:5433/runs", "codemode_mcp"),
        ("postgresql://ann:s3cret@h/runs?sslmode=verify-full&schema=x1", "h/runs", "x1"),
    ],
    ids=["whole", "host", "escaped", "options", "socket", "tls"],
)
def test_the_name_of_a_database_is_its_place_alone(url: str, name: str, schema: str) -> None:
    where = address(url)
    assert (where.name, where.schema) == (name, schema)
    assert "cret" not in f"{where} {where!r}"
    assert all("schema" not in each and "cret" in each for each in where.urls())


def test_several_hosts_are_tried_one_by_one() -> None:
    where = address("postgresql://ann:s3cret@a:1,b/runs?schema=ours&target_session_attrs=read-write")
    assert where.name == "a:1,b/runs"
    assert where.urls() == (
        "postgresql://ann:s3cret@a:1/runs?target_session_attrs=read-write",
        "postgresql://ann:s3cret@b/runs?target_session_attrs=read-write",
    )


REFUSED = [
    *("", "s3cret", "mysql://ann:s3cret@h/runs", "postgresql:ann:s3cret@h/runs", "postgresql://ann:s3cret"),
    *(f"postgresql://ann:{password}@h/runs" for password in ("s3/cret", "s3#cret", "s3?cret", "s3?c=ret", "s3@cret")),
    *(f"postgresql://ann:x@h/runs?{option}" for option in ("s3cret", "S3cret=1", "schema=s3cret;drop")),
    *("postgresql://ann:x@h/runs?schema=pg_s3cret", "postgresql://[s3cret/runs"),
]


@pytest.mark.parametrize("url", REFUSED)
def test_an_address_whose_password_could_end_elsewhere_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(BadAddress) as refused:
        address(url)
    assert "cret" not in str(refused.value)
    assert "s3" not in str(refused.value)
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


def test_an_option_that_is_not_known_is_named() -> None:
    with pytest.raises(BadAddress, match="connect_timeout"):
        address("postgresql://h/runs?connect_timeout=3")
