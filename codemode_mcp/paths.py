"""Folders of the user, by the conventions of the system."""

from __future__ import annotations

from pathlib import Path

import platformdirs


def cache_dir() -> Path:
    """The user's cache folder for the compiled engine and esbuild."""
    return Path(platformdirs.user_cache_dir("codemode-mcp", appauthor=False))


def listings_dir() -> Path:
    """Where it is kept what servers have listed."""
    return cache_dir() / "listings"


def vectors_dir() -> Path:
    """Where the extra `semantic` keeps what it has made of texts."""
    return cache_dir() / "embeddings"


def config_dir() -> Path:
    """The user's configuration folder."""
    return Path(platformdirs.user_config_dir("codemode-mcp", appauthor=False))


def data_dir() -> Path:
    """The user's folder for what has to stay."""
    return Path(platformdirs.user_data_dir("codemode-mcp", appauthor=False))


def state_dir() -> Path:
    """The user's folder for what outlives the process and belongs to this machine."""
    return Path(platformdirs.user_state_dir("codemode-mcp", appauthor=False))
