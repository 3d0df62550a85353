"""Folders of the user, by the conventions of the system."""

from __future__ import annotations

from pathlib import Path

import platformdirs


def cache_dir() -> Path:
    """Return the folder for files that can be made again, such as the compiled engine and esbuild."""
    return Path(platformdirs.user_cache_dir("codemode-mcp", appauthor=False))


def listings_dir() -> Path:
    return cache_dir() / "listings"


def vectors_dir() -> Path:
    return cache_dir() / "embeddings"


def config_dir() -> Path:
    return Path(platformdirs.user_config_dir("codemode-mcp", appauthor=False))


def data_dir() -> Path:
    """Return the folder for files that are part of the user's data."""
    return Path(platformdirs.user_data_dir("codemode-mcp", appauthor=False))


def state_dir() -> Path:
    """Return the folder for state of this machine that outlives the process, such as suspended programs."""
    return Path(platformdirs.user_state_dir("codemode-mcp", appauthor=False))
