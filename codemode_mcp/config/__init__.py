"""Load, expand and validate the one configuration file and compose each package's own frozen settings.

`load` finds the file and composes `Config`; `servers` reads the server entries, `expand` their variables and files;
`nodes` holds the checks and the wording of every message; `source` turns bytes into values.
"""

from __future__ import annotations

from codemode_mcp.config.expand import Reading
from codemode_mcp.config.load import FILE_NAME, PATH_VARIABLE, Config, find_config, load_config, load_store

__all__ = ["FILE_NAME", "PATH_VARIABLE", "Config", "Reading", "find_config", "load_config", "load_store"]
