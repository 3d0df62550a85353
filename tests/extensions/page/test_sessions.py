"""Tokens and sessions of browsers, with a clock that can be moved."""

from __future__ import annotations

from codemode_mcp.extensions.page.sessions import (
    IDLE_SECONDS,
    MAX_SESSIONS,
    MAX_TOKENS,
    TOKEN_SECONDS,
    Sessions,
    clean_mark,
)


def test_a_token_becomes_a_session_once() -> None:
    sessions = Sessions()
    token = sessions.issue(0.0)
    session = sessions.redeem(token, 1.0)
    assert session is not None
    assert sessions.redeem(token, 1.0) is None
    assert sessions.find(session.cookie, 2.0) is session


def test_a_token_expires() -> None:
    sessions = Sessions()
    assert sessions.redeem(sessions.issue(0.0), TOKEN_SECONDS) is None


def test_a_mark_shows_that_a_token_was_issued_and_not_used() -> None:
    sessions = Sessions()
    token, other = sessions.issue(0.0), sessions.issue(0.0)
    mark = clean_mark(token)
    assert sessions.awaits(mark, 1.0)
    assert not sessions.awaits(mark, TOKEN_SECONDS)
    assert not sessions.awaits(token, 1.0)
    assert not sessions.awaits("\ud800", 1.0)
    assert sessions.redeem(mark, 1.0) is None
    assert sessions.redeem(token, 1.0) is not None
    assert not sessions.awaits(mark, 1.0)
    assert sessions.awaits(clean_mark(other), 1.0)


def test_an_unknown_token_or_cookie_is_refused() -> None:
    sessions = Sessions()
    sessions.issue(0.0)
    assert sessions.redeem("", 0.0) is None
    assert sessions.redeem("guessed\ud800", 0.0) is None
    assert sessions.find("", 0.0) is None


def test_a_session_ends_when_it_is_not_used() -> None:
    sessions = Sessions()
    session = sessions.redeem(sessions.issue(0.0), 0.0)
    assert session is not None
    assert sessions.find(session.cookie, IDLE_SECONDS) is session
    assert sessions.find(session.cookie, 2 * IDLE_SECONDS) is session
    assert sessions.find(session.cookie, 3 * IDLE_SECONDS + 1) is None
    assert sessions.find(session.cookie, 0.0) is None


def test_two_browsers_have_different_secrets() -> None:
    sessions = Sessions()
    one, two = (sessions.redeem(sessions.issue(0.0), 0.0) for _ in range(2))
    assert one is not None
    assert two is not None
    assert one.admits_change(one.secret)
    assert not one.admits_change(two.secret)
    assert not one.admits_change(one.cookie)
    assert not one.admits_change("")
    assert len({one.cookie, one.secret, two.cookie, two.secret}) == 4
    assert min(map(len, (one.cookie, one.secret))) >= 43  # 256 bits


def test_tokens_and_sessions_are_limited_in_number() -> None:
    sessions = Sessions()
    tokens = [sessions.issue(0.0) for _ in range(MAX_TOKENS + 1)]
    assert sessions.redeem(tokens[0], 0.0) is None
    first = sessions.redeem(tokens[1], 0.0)
    assert first is not None
    others = [sessions.redeem(sessions.issue(0.0), 0.0) for _ in range(MAX_SESSIONS)]
    assert sessions.find(first.cookie, 0.0) is None
    assert others[-1] is not None
    assert sessions.find(others[-1].cookie, 0.0) is others[-1]


def test_secrets_are_not_in_texts_about_sessions() -> None:
    sessions = Sessions()
    session = sessions.redeem(sessions.issue(0.0), 0.0)
    assert session is not None
    assert session.secret not in repr(session) + repr(sessions)
    assert session.cookie not in repr(session) + repr(sessions)
