"""The one configuration file: loading and validating it. The result is a tree of frozen settings.

`source` parses the file. `nodes` has the checks of single values and the wording of messages. Each section has its own
module: `servers` (with `server_entry`), `plugins`, `tools` (with `patterns` and `contexts`), `clients`, `store` and
`http`. `expand` and `secret_values` resolve variables, files, programs and the keyring. `load` combines all of these.

`reload` watches the file. `trust` records which files of working directories a person has confirmed. `literals` finds
secrets that are written into entries, and `written_entry` leaves them out. `edit`, `edit_members`, `json_layout` and
`formats` change files in place.
"""

from __future__ import annotations

from codemode_mcp.config.expand import Reading
from codemode_mcp.config.load import Config, load_config, load_store
from codemode_mcp.config_path import FILE_NAME, PATH_VARIABLE, find_config

__all__ = ["FILE_NAME", "PATH_VARIABLE", "Config", "Reading", "find_config", "load_config", "load_store"]
