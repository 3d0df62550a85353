"""Folders of the user, by the conventions of the system."""

from __future__ import annotations

from pathlib import Path

import platformdirs


def cache_dir() -> Path:
    """Return the user's cache folder, for the compiled engine and esbuild."""
    return Path(platformdirs.user_cache_dir("codemode-mcp", appauthor=False))


def listings_dir() -> Path:
    """Return the folder for the lists of tools of servers."""
    return cache_dir() / "listings"


def vectors_dir() -> Path:
    """Return the folder for the vectors that the extra `semantic` has made of texts."""
    return cache_dir() / "embeddings"


def config_dir() -> Path:
    """Return the user's configuration folder."""
    return Path(platformdirs.user_config_dir("codemode-mcp", appauthor=False))


def data_dir() -> Path:
    """Return the user's folder for what has to stay."""
    return Path(platformdirs.user_data_dir("codemode-mcp", appauthor=False))


def state_dir() -> Path:
    """Return the user's folder for what outlives the process and belongs to this machine."""
    return Path(platformdirs.user_state_dir("codemode-mcp", appauthor=False))
