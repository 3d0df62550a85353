"""Tests of server addresses in messages."""

import pytest

from upstream_clients.spec import UpstreamSpec


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://mcp.example/api/s/NGU0YzQyZWItZGM1Ny00/mcp?x=1", "https://mcp.example/api/s/***/mcp"),
        ("https://user:secret@mcp.example/0123456789abcdef0123456789abcdef", "https://mcp.example/***"),
        ("https://mcp.example/v1/streamable-http-endpoint", "https://mcp.example/v1/streamable-http-endpoint"),
        ("http://127.0.0.1:8808/mcp", "http://127.0.0.1:8808/mcp"),
    ],
    ids=["a key in front", "a key at the end", "words", "nothing to hide"],
)
def test_an_address_is_shown_without_what_looks_like_a_key(url: str, shown: str) -> None:
    assert UpstreamSpec(name="s", transport="http", url=url).address == shown
