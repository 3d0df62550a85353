"""Tests of the authentication challenges in results of tools."""

from __future__ import annotations

from typing import Any

import pytest

from codemode_mcp.runs.calls.outcome import MAX_CHALLENGES, MAX_LENGTH, challenges_of

BEARER = 'Bearer resource_metadata="https://mcp.test/.well-known/oauth-protected-resource", error="insufficient_scope"'


def result(challenges: Any) -> dict[str, Any]:
    return {"content": [], "_meta": {"mcp/www_authenticate": challenges}}


@pytest.mark.parametrize("challenge", [BEARER, "Bearer realm=x", 'Bearer realm="a \\" b", scope = "read write"'])
def test_a_well_formed_challenge_is_found(challenge: str) -> None:
    assert challenges_of(result([challenge])) == (challenge,)
    assert challenges_of(result(challenge)) == (challenge,)


MALFORMED = [
    *(
        None,
        1,
        {},
        "",
        "Bearer",
        "Please log in at https://evil.test",
        'Bearer realm="open',
        'Bearer realm="a" and more',
    ),
    *(f'Bearer realm="{realm}"' for realm in ("\u202e", "\u00e9", "a" * MAX_LENGTH)),
    'Bearer realm="a"\r\nx: y',
]


@pytest.mark.parametrize("challenge", MALFORMED)
def test_a_malformed_challenge_is_left_out(challenge: Any) -> None:
    assert challenges_of(result([challenge, BEARER])) == (BEARER,)


@pytest.mark.parametrize("value", [None, [], "text", {"_meta": None}, {"_meta": []}, {"_meta": {}}, 1])
def test_other_results_have_none(value: Any) -> None:
    assert challenges_of(value) == ()


def test_the_number_of_challenges_is_bounded() -> None:
    assert len(challenges_of(result([f"Bearer realm=r{number}" for number in range(1000)]))) == MAX_CHALLENGES


def test_a_hostile_challenge_is_refused_fast() -> None:
    assert challenges_of(result(['Bearer a="' + '\\"' * 900, "Bearer " + "a=b," * 450, "a " * 999])) == ()
