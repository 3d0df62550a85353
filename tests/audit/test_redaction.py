"""Tests of what may be recorded of inputs, and what no record ever holds."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from codemode_mcp.audit.redaction import (
    MAX_INPUT,
    Inputs,
    Known,
    Redactor,
    redacted,
    shape,
    without_named_secrets,
    without_tokens,
)
from upstream_clients.redaction import is_secret_name

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nabc==\n-----END RSA PRIVATE KEY-----"


def same(text: str) -> str:
    return text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("ghp_" + "a1B2" * 9, "***"),
        ("token ghp_" + "a" * 36 + ".", "token ***."),
        ("github_pat_" + "a1_" * 12, "***"),
        ("glpat-" + "x" * 20, "***"),
        ("sk-" + "a" * 48, "***"),
        ("sk-proj-" + "a_-" * 20, "***"),
        ("xoxb-1234567890-abcdefghijkl", "***"),
        ("AKIA" + "ABCD1234" * 2, "***"),
        ("AIza" + "x" * 35, "***"),
        (JWT, "***"),
        (f'{{"jwt":"{JWT}"}}', '{"jwt":"***"}'),
        (f"before {KEY} after", "before *** after"),
        ("-----BEGIN PRIVATE KEY-----\nwithout an end", "***"),
        ("Authorization: Bearer abc.def-ghi_123=", "Authorization: Bearer ***"),
        ("bearer%20abcdefghi", "bearer%20***"),
        ("Basic dXNlcjpwYXNz", "Basic ***"),
        ("https://user:pass@host.example/path", "https://***@host.example/path"),
        ("postgres://me:p%40ss@db:5432/x and http://tok@h/", "postgres://***@db:5432/x and http://***@h/"),
    ],
)
def test_what_has_the_form_of_a_token_is_hidden(text: str, left: str) -> None:
    assert without_tokens(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "mcp:tracker:list_issues",
        "the bearer of bad news",
        "basic tools",
        "mail me@example.org about https://example.org/a?b=c",
        "https://example.org/@scope/package",
        "task-runner sk-short risk-management-of-large-projects",
        "run_AbCdEfGhIjKlMnOpQrStUvWx/12",
        "0123456789abcdef" * 4,
    ],
)
def test_what_is_no_token_stays_readable(text: str) -> None:
    assert without_tokens(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "a" * 300_000,
        "eyJ" * 100_000,
        "-eyJaaaaaaaaaa" * 20_000,
        "ghp_-" * 60_000,
        "a://" * 80_000,
        "-----BEGIN PRIVATE KEY-----" * 10_000,
        "bearer " * 40_000,
        "_" * 300_000,
        'a="' * 100_000,
        "x:`" * 100_000,
    ],
    ids=lambda text: text[:12],
)
def test_hostile_text_takes_no_long_time(text: str) -> None:
    began = time.thread_time()
    without_tokens(text)
    without_named_secrets(text[:MAX_INPUT])
    assert time.thread_time() - began < 5


@pytest.mark.parametrize(
    "name",
    [
        *("password", "PASSWORD", "db_password", "userPasswd", "accessToken", "access_token", "x-api-key", "apiKey"),
        *("Authorization", "Cookie", "set-cookie", "clientSecret", "private_key", "credentials", "sessionId", "otp"),
    ],
)
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["title", "author", "path", "keyboard", "keys", "pinned", "compass", "authorName", ""])
def test_other_names_are_not(name: str) -> None:
    assert not is_secret_name(name)


def test_values_under_secret_names_are_hidden_whatever_they_are() -> None:
    value = {"user": {"password": "a", "Cookie": ["b", {"c": "d"}], "token": None, "pin": 1234}, "note": "fine"}
    assert redacted(value, same) == {
        "user": {"password": "***", "Cookie": "***", "token": None, "pin": "***"},
        "note": "fine",
    }


def test_keys_and_texts_at_any_depth_are_redacted() -> None:
    value = {"a s3cret key": [{"x": "say s3cret"}], "n": 1}
    assert redacted(value, Known(["s3cret"]).redact) == {"a *** key": [{"x": "say ***"}], "n": 1}


def test_a_shape_tells_keys_types_and_sizes_and_no_value() -> None:
    value = {"title": "a secret title", "n": 17, "ok": True, "no": None, "ids": ["aa", "bb", "cc"], "deep": {"x": []}}
    told = shape(value, same)
    assert told == {
        "title": "string 14",
        "n": "number",
        "ok": "boolean",
        "no": "null",
        "ids": ["string 2", "… 2 more"],
        "deep": {"x": "array 0"},
    }


def test_a_shape_is_bounded_in_keys_depth_and_length_of_names() -> None:
    wide = shape({f"k{n}": n for n in range(1000)}, same)
    assert len(wide) == 21
    assert wide["…"] == "980 more"
    deep: Any = 1
    for _ in range(50):
        deep = {"d": deep}
    assert json.dumps(shape(deep, same)).count("{") == 4


@pytest.mark.parametrize("key", ["me@example.org", "4111 1111", "order-48151", "two words", "x" * 500, "", "größe"])
def test_a_key_that_may_be_data_is_told_by_its_length(key: str) -> None:
    assert shape({key: 1}, same) == {f"key of {len(key)}": "number"}


@pytest.mark.parametrize("key", ["title", "due_date", "x-limit", "$ref", "line1", "a.b"])
def test_a_key_that_looks_like_a_field_is_told(key: str) -> None:
    assert shape({key: 1}, same) == {key: "number"}


def test_a_key_that_is_a_token_is_hidden_in_a_shape() -> None:
    assert shape({"ghp_" + "a" * 36: 1}, without_tokens) == {"***": "number"}


def test_inputs_are_told_as_a_digest_and_a_shape_unless_they_are_wanted() -> None:
    text = json.dumps({"note": "very private", "password": "hunter2"})
    closed = Inputs(include=False).of_arguments(text, same)
    assert closed.keys() == {"digest", "bytes", "shape"}
    assert "private" not in str(closed)
    wanted = Inputs(include=True).of_arguments(text, same)
    assert wanted["value"] == {"note": "very private", "password": "***"}


def test_equal_arguments_have_equal_digests_which_cannot_be_computed_elsewhere() -> None:
    one, other = Inputs(include=False), Inputs(include=False)
    assert one.of_arguments("{}", same) == one.of_arguments("{}", same)
    assert one.of_arguments("{}", same) != one.of_arguments('{"a":1}', same)
    assert one.of_arguments("{}", same)["digest"] != other.of_arguments("{}", same)["digest"]


@pytest.mark.parametrize("text", ["{", "[" * 60_000, '"' + "x" * MAX_INPUT + '"', '{"a": 1} junk'])
@pytest.mark.parametrize("include", [True, False])
def test_arguments_that_cannot_be_looked_into_are_omitted_whole(text: str, include: bool) -> None:
    told = Inputs(include=include).of_arguments(text, same)
    assert told.keys() == {"digest", "bytes", "omitted"}


def test_a_program_is_told_by_its_sha256_and_its_text_only_where_wanted() -> None:
    source = 'const password = "hunter2"; const o = {apiKey: \'k-1\', title: "x", "token": `t${1}`}; return 1'
    closed = Inputs(include=False).of_program(source, same)
    assert closed.keys() == {"sha256", "bytes"}
    text = Inputs(include=True).of_program(source, same)["text"]
    assert text == 'const password = "***"; const o = {apiKey: "***", title: "x", "token": "***"}; return 1'


def test_half_of_a_surrogate_pair_in_inputs_is_no_problem() -> None:
    inputs = Inputs(include=True)
    assert inputs.of_arguments('{"a": "\ud800"}', same)["bytes"] == 12
    assert inputs.of_program("'\ud800'", same)["bytes"] == 5


def test_known_values_are_replaced_the_longest_first_and_very_short_ones_not() -> None:
    redactor = Redactor()
    redactor.know([Known(["abc", "secret", "secret-longer"])])
    assert redactor("abc secret-longer secret ghp_" + "a" * 36) == "abc *** *** ***"
